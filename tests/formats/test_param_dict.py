"""TVM's parameter files: the bytes are TVM's, both ways; any others are refused by name, before they cost memory."""

import contextlib
import struct
import tracemalloc
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from treadle.formats.messages.errors import FormatError, LimitError
from treadle.formats.param_dict import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
)
from treadle.tools.dev.fuzz.changes import mutate_bytes

KINDS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
KINDS += ["float16", "float32", "float64", "complex64", "complex128"]
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
ARRAYS = st.sampled_from(KINDS).flatmap(lambda kind: arrays.arrays(kind, SHAPES))
PARAMS = st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=8), ARRAYS, max_size=4)

# what TVM writes for {"w": float32[2]}, by hand
EXAMPLE = (
    struct.pack("<QQ", 0xF7E58D4F05049CB7, 0)
    + struct.pack("<QQ", 1, 1)
    + b"w"
    + struct.pack("<Q", 1)
    + struct.pack("<QQiiiBBHqq", 0xDD5E40F096B4A13F, 0, 1, 0, 1, 2, 32, 1, 2, 8)
    + struct.pack("<ff", 1.5, -2.0)
)
RANK = EXAMPLE.index(struct.pack("<Q", 0xDD5E40F096B4A13F)) + 24  # where the tensor says its rank


def changed(at: int, data: bytes) -> bytes:
    return EXAMPLE[:at] + data + EXAMPLE[at + len(data) :]


def test_the_bytes_are_tvms() -> None:
    saved = save_param_dict({"w": np.array([1.5, -2.0], np.float32)})
    assert isinstance(saved, bytearray)
    assert saved == EXAMPLE


def test_truth_values_are_one_bit_in_a_byte_as_tvm_0_14_has_them_and_later_codes_are_read() -> None:
    saved = save_param_dict({"b": np.array([True, False])})
    code = saved.index(struct.pack("<BBH", 1, 1, 1))
    later = saved[:code] + struct.pack("<BBH", 6, 8, 1) + saved[code + 4 :]
    for data in (saved, later):
        np.testing.assert_array_equal(load_param_dict(data)["b"], [True, False])


@given(PARAMS)
def test_what_is_saved_is_loaded(params: dict[str, np.ndarray]) -> None:
    saved = save_param_dict(params)
    loaded = load_param_dict(saved)
    assert list(loaded) == list(params)
    for name, array in params.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
        assert loaded[name].tobytes() == array.tobytes()
    assert save_param_dict(loaded) == saved


@pytest.mark.parametrize("array", [np.arange(6, dtype=">i4").reshape(2, 3), np.arange(12).reshape(3, 4).T[::2]])
def test_other_byte_orders_and_strides_are_written_in_the_files_order(array: np.ndarray) -> None:
    np.testing.assert_array_equal(load_param_dict(save_param_dict({"x": array}))["x"], array)


def test_bfloat16_goes_both_ways() -> None:
    kind = pytest.importorskip("ml_dtypes").bfloat16
    loaded = load_param_dict(save_param_dict({"x": np.array([1.5, -3.0], kind)}))["x"]
    assert loaded.dtype == kind
    assert loaded.astype(np.float32).tolist() == [1.5, -3.0]


def test_files_go_both_ways(tmp_path: Path) -> None:
    save_param_dict_to_file({"w": np.array([1.5, -2.0], np.float32)}, tmp_path / "weights.params")
    assert (tmp_path / "weights.params").read_bytes() == EXAMPLE
    assert load_param_dict_from_file(tmp_path / "weights.params")["w"].tolist() == [1.5, -2.0]
    with pytest.raises(FileNotFoundError, match=r"none\.params"):
        load_param_dict_from_file(tmp_path / "none.params")


@pytest.mark.parametrize("end", range(len(EXAMPLE)))
def test_a_file_that_is_cut_short_is_refused(end: int) -> None:
    with pytest.raises(FormatError):
        load_param_dict(EXAMPLE[:end])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(0, b"X"), "not TVM's parameters"),
        (changed(16, b"\xff" * 8), "names are announced"),
        (changed(24, struct.pack("<Q", 1 << 62)), "the limit is"),
        (changed(32, b"\xff"), "not UTF-8"),
        (changed(33, struct.pack("<Q", 2)), "tensors are announced|1 names, and 2 tensors"),
        (changed(RANK, struct.pack("<i", (1 << 31) - 1)), "rank 2147483647"),
        (changed(RANK, struct.pack("<i", -1)), "rank -1"),
        (changed(RANK - 8, struct.pack("<i", 2)), "device type 2"),
        (changed(RANK + 4, struct.pack("<BBH", 3, 64, 1)), "element type code 3"),
        (changed(RANK + 4, struct.pack("<BBH", 2, 32, 4)), "4 lanes"),
        (changed(RANK + 8, struct.pack("<q", -2)), "a shape of"),
        (changed(RANK + 8, struct.pack("<qq", 1 << 40, 1 << 42)), "4398046511104 bytes"),
        (changed(RANK + 8, struct.pack("<qq", 3, 8)), "8 bytes are announced"),
        (EXAMPLE + b"\0", "1 bytes are behind"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load_param_dict(data)


def test_two_parameters_of_one_name_are_refused() -> None:
    twice = bytearray(save_param_dict({"a": np.zeros(1), "b": np.zeros(1)}))
    twice[twice.index(b"b")] = ord("a")
    with pytest.raises(FormatError, match="two parameters are called 'a'"):
        load_param_dict(twice)


@pytest.mark.parametrize("value", [np.array(["text"]), np.array([None]), object()])
def test_what_tvms_files_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(FormatError, match="parameter 'x': TVM's files have no element type"):
        save_param_dict({"x": value})


def test_names_are_short_strings() -> None:
    with pytest.raises(FormatError, match="a string, got 3"):
        save_param_dict({3: np.zeros(1)})  # type: ignore[dict-item]
    with pytest.raises(LimitError, match="the limit is 65536"):
        save_param_dict({"x" * 70_000: np.zeros(1)})


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 32))
def test_changed_files_are_taken_or_refused_and_cost_no_more_memory_than_they_have_bytes(seed: int) -> None:
    random = Random(seed)
    saved = bytes(save_param_dict({"weight": np.arange(300.0), "b": np.zeros((0, 3), np.int8), "": np.array(True)}))
    load_param_dict(saved)
    tracemalloc.start()
    try:
        for _ in range(300):
            with contextlib.suppress(FormatError):
                load_param_dict(mutate_bytes(random, saved))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
