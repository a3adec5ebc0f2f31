"""TVM's text for element types, and the three numbers behind it."""

import contextlib
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.formats import dtypes
from treadle.formats.data_type import DataType, DataTypeCode
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import DTypeError, FormatError


@pytest.mark.parametrize(
    ("text", "numbers", "printed"),
    [
        ("int", (0, 32, 1), "int32"),
        ("int8x4", (0, 8, 4), "int8x4"),
        ("uint1", (1, 1, 1), "bool"),
        ("bool", (1, 1, 1), "bool"),
        ("float", (2, 32, 1), "float32"),
        ("float16", (2, 16, 1), "float16"),
        ("handle", (3, 64, 1), "handle64"),
        ("bfloat16", (4, 16, 1), "bfloat16"),
        ("e4m3_float", (6, 8, 1), "e4m3_float8"),
        ("e5m2_float8x2", (7, 8, 2), "e5m2_float8x2"),
        ("", (3, 0, 0), "void"),
        ("void", (3, 0, 0), "void"),
    ],
)
def test_text(text: str, numbers: tuple[int, int, int], printed: str) -> None:
    found = DataType(text)
    assert (found.type_code, found.bits, found.lanes) == numbers
    assert str(found) == repr(found) == printed
    assert DataType(printed) == found


@pytest.mark.parametrize(
    "text", ["nonsense", "int-8", "int8x", "int8y", "int8x4x2", "int8 ", "int300", "int8x0", "float0"]
)
def test_other_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="type"):
        DataType(text)


def test_numpys_types_are_types() -> None:
    assert DataType(np.float32) == DataType(np.dtype("float32")) == DataType(DType.float32) == DataType("float32")
    assert DataType(bool) == DataType("bool")
    assert DataType("int16").numpy == np.int16
    with pytest.raises(ValueError, match="NumPy has no element type int8x4"):
        DataType("int8x4").numpy  # noqa: B018
    with pytest.raises(ValueError, match="Do not know how to handle type"):
        DataType(object())


@given(st.sampled_from(["int", "uint", "float"]), st.integers(2, 255), st.integers(1, 65535))
def test_what_is_printed_is_read(kind: str, bits: int, lanes: int) -> None:
    made = DataType(f"{kind}{bits}x{lanes}")
    assert DataType(str(made)) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(DataType(str(made))) == hash(made)


def test_codes() -> None:
    assert DataType("handle").type_code == DataTypeCode.HANDLE
    assert DataType("float32x4").itemsize() == 16
    assert DataType("float32x4").with_lanes(1) == DataType("float32")


@pytest.mark.parametrize(
    "text", ["(-1,)f4", "}{", "(9999999999999999999999,)f4", "(" * 9000, "\ud800", "M8[9999999999999999999s]"]
)
def test_text_that_numpy_cannot_read_is_no_element_type(text: str) -> None:
    with pytest.raises(DTypeError, match="no tensor element type"):
        DType.of(text)


@pytest.mark.parametrize("text", ["int" + "9" * 5000, "float32x" + "9" * 5000, "int0", "int99999", "int8x70000"])
def test_numbers_that_no_type_has(text: str) -> None:
    with pytest.raises(FormatError, match="bits are 1 to"):
        DataType(text)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("fp16", "float16"), ("BF16", "bfloat16"), ("f32", "float32"), ("torch.half", "float16"), ("q4", "int4 or uint4")],
)
def test_other_names_of_element_types_say_which_is_meant(name: str, meant: str) -> None:
    with pytest.raises(DTypeError, match=f"did you mean {meant}[?]"):
        DType.of(name)
    if name.isidentifier():
        with pytest.raises(AttributeError, match=f"DType has no '{name}'; did you mean {meant}[?]"):
            getattr(DType, name)


def test_the_types_that_other_names_mean_are_there() -> None:
    assert {each for meant in dtypes._OTHER_NAMES.values() for each in meant.split(" or ")} <= DType.__members__.keys()
    for name, meant in dtypes._OTHER_NAMES.items():
        with contextlib.suppress(DTypeError):
            assert DType.of(name).name == meant, name
