"""Strings, shapes, lists, maps, tuples, typed numbers, and what `convert` makes of Python's values."""

import json
import pickle

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm.runtime import Object, ObjectGeneric, ShapeTuple, String, const, container, convert, convert_to_object


def test_a_tuple_is_a_value_with_tag_0() -> None:
    x = tvm.nd.array([1, 2, 3])
    y = container.ADT(0, [x, x])
    assert isinstance(y, container.ADT)
    assert (len(y), y.tag) == (2, 0)
    assert y[0:1][-1] is x
    assert y[-1] is x
    assert container.tuple_object([x])[0] is x
    with pytest.raises(IndexError, match=r"Index out of range. size: 2, got index 2"):
        y[2]


def test_strings() -> None:
    s = String("xyz")
    assert isinstance(s, str)
    assert s.startswith("xy")
    assert s + "1" == "xyz1"
    assert isinstance(pickle.loads(pickle.dumps(s)), String)
    assert json.loads(json.dumps(s)) == s
    assert s.__tvm_object__.same_as(s)


def test_shapes() -> None:
    shape = ShapeTuple([2, -3, 4])
    assert shape == [2, -3, 4]
    assert shape == (2, -3, 4)
    assert shape == ShapeTuple((2, -3, 4))
    assert shape != [2, -3]
    assert (len(shape), shape[0], shape[-1], list(shape[1:])) == (3, 2, 4, [-3, 4])
    assert isinstance(pickle.loads(pickle.dumps(shape)), ShapeTuple)
    assert hash(shape) == hash(ShapeTuple([2, -3, 4]))
    with pytest.raises(TypeError, match="expected integers"):
        ShapeTuple([1.5])


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, "int32"),
        (-(1 << 31), "int32"),
        (1 << 31, "int64"),
        ((1 << 64) - 1, "uint64"),
        (1.5, "float32"),
        (1e39, "float64"),
        (True, "bool"),
        (np.float16(2), "float16"),
        (np.int8(2), "int8"),
    ],
)
def test_numbers_have_the_type_that_holds_them(value: object, dtype: str) -> None:
    made = const(value)
    assert (made.value, made.dtype) == (value, dtype)
    assert isinstance(made, Object)


def test_a_type_may_be_said() -> None:
    assert const(1, "float32").dtype == "float32"
    assert const((1 << 63) + 1, "uint64").value == (1 << 63) + 1
    with pytest.raises(ValueError, match="no type of 64 bits"):
        const(1 << 64)
    with pytest.raises(NotImplementedError, match="Cannot automatically inference the type"):
        const("text")


def test_pythons_values_become_objects() -> None:
    x = tvm.nd.array([1])
    assert convert(None) is None
    assert convert(x) is x
    assert isinstance(convert("a"), String)
    assert convert(True).dtype == "bool"
    assert list(convert([1, [2]])) == [1, (2,)]
    assert convert({"a": len})["a"]([1, 2]) == 2
    assert convert_to_object(convert([1])) == (1,)
    with pytest.raises(ValueError, match="don't know how to convert type"):
        convert(object())
    with pytest.raises(ValueError, match="key of map must already been a container type"):
        convert({(1, 2): 3})


def test_a_class_may_say_what_object_it_is() -> None:
    class Mine(ObjectGeneric):
        def asobject(self) -> object:
            return convert(7)

    assert convert(Mine()) == 7
    assert convert(lambda x: x)(Mine()) == 7
    with pytest.raises(NotImplementedError):
        convert(ObjectGeneric())


def test_objects_are_saved_as_json() -> None:
    value = convert({"a": [1, 2.5, "text", None], "x": tvm.nd.array([1, 2])})
    loaded = tvm.ir.load_json(tvm.ir.save_json(value))
    assert list(loaded["a"]) == [1, 2.5, "text", None]
    assert loaded["a"][0].dtype == "int32"
    assert loaded["x"].numpy().tolist() == [1, 2]
    assert isinstance(tvm.ir.load_json(tvm.ir.save_json("s")), String)
    for text in (
        "",
        "3",
        "[]",
        '{"Array": 3}',
        '{"Nonsense": 1}',
        '{"IntImm": [1]}',
        '{"IntImm": ["int32", Infinity]}',
        '{"FloatImm": ["float64", 1' + "0" * 400 + "]}",
        "[" * 100_000,
        '{"NDArray": "AA"}',
    ):
        with pytest.raises(ValueError, match=r"load_json|cut short"):
            tvm.ir.load_json(text)


def test_objects_are_told_apart() -> None:
    x, y = convert([1]), convert([1])
    assert x.same_as(x)
    assert not x.same_as(y)
    assert x.handle.value != y.handle.value
