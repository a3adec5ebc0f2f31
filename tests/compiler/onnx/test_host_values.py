"""Maps, optional values and sequences as inputs and outputs of ONNX models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto as T
from onnx import helper
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import (
    ArgumentError,
    DTypeError,
    ExecutionError,
    TreadleError,
    UnsupportedOperatorError,
)
from treadle.formats.text.assembly import parse_assembly
from treadle.vm import context

ML = "ai.onnx.ml"
FLOATS = helper.make_tensor_value_info("x", T.FLOAT, ["n", 2])


def machine(node: onnx.NodeProto | list[onnx.NodeProto], *inputs: onnx.ValueInfoProto) -> Any:
    """Compiled, saved, loaded, verified."""
    nodes = node if isinstance(node, list) else [node]
    return machine_of(nodes, nodes[-1].output, *inputs)


def machine_of(nodes: list[onnx.NodeProto], names: Sequence[str], *inputs: onnx.ValueInfoProto) -> Any:
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 4)]
    graph = helper.make_graph(nodes, "g", list(inputs), outputs)
    data = treadle.compile(helper.make_model(graph, opset_imports=opsets), progress=False).as_bytes()
    executable = treadle.load(data)
    assert treadle.load(data).as_bytes() == data
    assert Executable(parse_assembly(executable.as_text())).as_text() == executable.as_text()
    return treadle.VirtualMachine(executable)["main"]


def map_info(key: int, value: int) -> onnx.ValueInfoProto:
    info = onnx.ValueInfoProto(name="x")
    info.type.map_type.key_type = key
    info.type.map_type.value_type.tensor_type.elem_type = value
    return info


def optional_info(*shape: int) -> onnx.ValueInfoProto:
    return helper.make_value_info("x", helper.make_optional_type_proto(helper.make_tensor_type_proto(T.FLOAT, shape)))


# ---- maps ----


@pytest.mark.parametrize("labels", [["no", "yes"], [7, -1]])
def test_zip_map_gives_a_list_of_dicts(labels: list) -> None:
    kind = "strings" if isinstance(labels[0], str) else "int64s"
    call = machine(helper.make_node("ZipMap", ["x"], ["y"], domain=ML, **{f"classlabels_{kind}": labels}), FLOATS)
    found = call(np.array([[0.25, 0.75], [1, 0], [0.5, 0.5]], np.float32))
    assert found == [dict(zip(labels, row, strict=True)) for row in ([0.25, 0.75], [1, 0], [0.5, 0.5])]
    assert all(type(value) is float for row in found for value in row.values())
    assert call(np.zeros((0, 2), np.float32)) == []


def test_zip_map_stands_beside_other_outputs() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("ZipMap", ["n"], ["z"], domain=ML, classlabels_int64s=[0, 1]),
        helper.make_node("Identity", ["z"], ["y"]),
    ]
    assert machine(nodes, FLOATS)(np.array([[1, 2]], np.float32)) == [{0: -1.0, 1: -2.0}]


@pytest.mark.parametrize("makes_arrays", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("keys", [2, 65, 3000])  # written out; too many for that; keys that are not copied
def test_labels_and_maps_are_the_same_whoever_makes_the_arrays(
    keys: int, rows: int, makes_arrays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context.python_layout(), "makes_arrays", makes_arrays)
    names = [f"label {number}" for number in range(keys)]
    x = np.random.default_rng(0).random((rows, keys), np.float32)
    nodes = [
        helper.make_node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
        helper.make_node("LabelEncoder", ["best"], ["label"], domain=ML, keys_int64s=range(keys), values_strings=names),
        helper.make_node("ZipMap", ["x"], ["maps"], domain=ML, classlabels_strings=names),
    ]
    info = helper.make_tensor_value_info("x", T.FLOAT, ["n", keys])
    before = None
    call = machine_of(nodes, ["label", "maps"], info)
    for _ in range(3):
        label, maps = call(x)
        assert label.numpy().tolist() == [names[row.argmax()] for row in x]
        assert maps == [dict(zip(names, row, strict=True)) for row in x.tolist()]
        del label, maps
        assert before in (None, context.live_bytes())
        before = context.live_bytes()


def test_maps_are_vectors_by_a_vocabulary() -> None:
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain=ML, string_vocabulary=["b", "a", "c"])
    call = machine(node, map_info(T.STRING, T.FLOAT))
    assert call({"a": 1.5, "b": 2, "z": 9}).numpy().tolist() == [[2, 1.5, 0]]
    assert call({}).numpy().tolist() == [[0, 0, 0]]
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain=ML, int64_vocabulary=[5, 3])
    assert machine(node, map_info(T.INT64, T.STRING))({3: "three"}).numpy().tolist() == [["", "three"]]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"cast_to": "TO_FLOAT"}, [[0.5, 1, -2]]),
        ({"cast_to": "TO_INT64"}, [[0, 1, -2]]),
        ({"cast_to": "TO_STRING"}, [["0.5", "1.0", "-2.0"]]),
        ({"cast_to": "TO_FLOAT", "map_form": "SPARSE", "max_map": 5}, [[0, 0.5, 0, 1, 0]]),
    ],
)
def test_maps_are_cast_in_order_of_their_keys(attributes: dict, expected: list) -> None:
    call = machine(helper.make_node("CastMap", ["x"], ["y"], domain=ML, **attributes), map_info(T.INT64, T.FLOAT))
    assert call({9: -2, 1: 0.5, 3: 1}).numpy().tolist() == expected


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        ([("a", 1.0)], ArgumentError, r"main\(x\): expected a dict"),
        ({"a": "b"}, DTypeError, "expected float32"),
        ({1: 1.0}, DTypeError, "expected a text, got a int"),
        (np.zeros(3, np.float32), ArgumentError, "got a value of type ndarray"),
    ],
)
def test_what_is_no_such_map_is_refused_by_name(value: Any, kind: type[TreadleError], says: str) -> None:
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain=ML, string_vocabulary=["a"])
    with pytest.raises(kind, match=says):
        machine(node, map_info(T.STRING, T.FLOAT))(value)


def test_a_map_whose_keys_and_values_are_not_as_many_is_a_named_error() -> None:
    text = """
data Maps[int64[?], float32[?]] = Maps(int64[?], float32[?])

func @main(k: int64[n], v: float32[m]) -> Maps[int64[?], float32[?]]  refs=3 ints=0 frame=0 {
  alloc_data r2, Maps[int64[?], float32[?]], 0 (r0, r1)
  ret r2
}
"""
    call = treadle.VirtualMachine(Executable(parse_assembly(text)))["main"]
    assert call(np.arange(2), np.ones(2, np.float32)) == {0: 1.0, 1: 1.0}
    with pytest.raises(ExecutionError, match="maps of 2 keys have 3 values"):
        call(np.arange(2), np.ones(3, np.float32))


# ---- optional values ----


def test_an_optional_tensor_is_none_or_an_array() -> None:
    has = machine(helper.make_node("OptionalHasElement", ["x"], ["y"]), optional_info(2))
    assert has(np.zeros(2, np.float32)).item()
    assert not has(None).item()
    get = machine(helper.make_node("OptionalGetElement", ["x"], ["y"]), optional_info(2))
    assert get(np.array([1, 2], np.float32)).numpy().tolist() == [1, 2]
    with pytest.raises(ExecutionError, match="no clause of a match fits"):
        get(None)


def test_an_optional_output_is_what_came_in() -> None:
    same = machine(helper.make_node("Identity", ["x"], ["y"]), optional_info(2))
    assert same(None) is None
    assert same(np.array([3, 4], np.float32)).numpy().tolist() == [3, 4]


def test_what_is_known_to_be_there_costs_nothing() -> None:
    nodes = [helper.make_node("Optional", ["x"], ["o"]), helper.make_node("OptionalGetElement", ["o"], ["y"])]
    assert machine(nodes, FLOATS)(np.ones((1, 2), np.float32)).numpy().tolist() == [[1, 1]]


# ---- sequences ----


def test_a_sequence_is_a_list() -> None:
    call = machine(helper.make_node("SplitToSequence", ["x"], ["y"], axis=1), FLOATS)
    found = call(np.array([[1, 2], [3, 4]], np.float32))
    assert isinstance(found, list)
    assert [each.numpy().tolist() for each in found] == [[[1], [3]], [[2], [4]]]


def test_a_list_goes_in_and_comes_out_without_recursion() -> None:
    text = """
data Sequence[int64[?]] = End | Item(int64[?], Sequence[int64[?]])

func @main(x: Sequence[int64[?]]) -> Sequence[int64[?]]  refs=1 ints=0 frame=0 {
  ret r0
}
"""
    call = treadle.VirtualMachine(Executable(parse_assembly(text)))["main"]
    assert call([]) == []
    given = [np.arange(number % 5) for number in range(20_000)]
    found = call(given)
    assert [each.numpy().tolist() for each in found] == [each.tolist() for each in given]
    with pytest.raises(ArgumentError, match="expected a list"):
        call(3)
    with pytest.raises(DTypeError, match="expected int64"):
        call([np.zeros(1, np.float32)])


def test_what_is_not_supported_is_said_by_name() -> None:
    maps = onnx.TypeProto()
    maps.map_type.key_type = T.INT64
    maps.map_type.value_type.tensor_type.elem_type = T.FLOAT
    sequence = helper.make_value_info("x", helper.make_sequence_type_proto(maps))
    with pytest.raises(UnsupportedOperatorError, match="a sequence whose elements are not tensors"):
        machine(helper.make_node("SequenceLength", ["x"], ["y"]), sequence)
