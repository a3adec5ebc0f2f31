"""The graph JSON is read and written; what is wrong with one is named, and costs nothing."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import DTypeError, FormatError, LimitError, TreadleError
from treadle.tools.dev.fuzz.changes import mutate_bytes, mutate_json
from treadle.tools.dev.fuzz.targets import graph as target
from treadle.tvm.files.graph_json import COPY, NOP, Entry, Graph, Node, parse_graph

from .graphs import rich, simple, text


def test_a_graph_is_nodes_entries_and_storage() -> None:
    graph = parse_graph(text(simple()))
    assert graph.nodes == (Node("x"), Node("add", "myadd", (Entry(0),)))
    assert (graph.arg_nodes, graph.names, graph.heads, graph.row_ptr) == ((0,), ("x",), (Entry(1),), (0, 1, 2))
    assert [str(type_) for type_ in graph.types] == ["float32[4]", "float32[4]"]
    assert graph.storage_ids == (0, 1)


def test_entries_count_the_outputs_of_the_nodes_before() -> None:
    graph = parse_graph(text(rich()))
    assert graph.number(Entry(6, 1)) == 7
    assert graph.number(Entry(8)) == 9
    assert [node.function for node in graph.nodes if node.function in (NOP, COPY)] == [NOP, NOP, COPY]


@pytest.mark.parametrize("found", [simple(), rich()])
def test_what_is_written_is_read(found: dict[str, Any]) -> None:
    graph = parse_graph(text(found))
    assert parse_graph(graph.as_text()) == graph
    assert json.loads(graph.as_text())["nodes"][0] == {"op": "null", "name": "x", "inputs": []}


def test_entries_may_lack_a_version_attrs_may_be_called_attr_and_metadata_is_kept() -> None:
    found = simple()
    found["heads"] = [[1, 0]]
    found["nodes"][1]["attr"] = found["nodes"][1].pop("attrs")
    found["metadata"] = {"anything": [1, {"at": "all"}]}
    graph = parse_graph(text(found))
    assert graph.heads == (Entry(1),)
    assert graph.metadata == {"anything": [1, {"at": "all"}]}


def test_one_bit_truth_values_are_booleans_and_vectors_are_refused_when_their_type_is_asked_for() -> None:
    found = simple()
    found["attrs"]["dltype"][1] = ["uint1", "float32x4"]
    graph = parse_graph(text(found))
    with pytest.raises(DTypeError, match="entry 1 has elements of type 'float32x4'"):
        _ = graph.types
    found["attrs"]["dltype"][1] = ["uint1", "bool"]
    assert [type_.dtype for type_ in parse_graph(text(found)).types] == [DType.bool, DType.bool]


def changed(change: Callable[[dict[str, Any]], object], make: Callable[[], dict[str, Any]] = simple) -> str:
    found = make()
    change(found)
    return text(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.pop("heads"), "the graph has no 'heads'"),
        (lambda g: g.update(extra=1), "the key 'extra' is not known"),
        (lambda g: g["nodes"][1].update(more=1), "node 1: the key 'more' is not known"),
        (lambda g: g["nodes"][1].update(op="call"), "node 1 has op 'call'; expected 'null'"),
        (lambda g: g["nodes"][1]["attrs"].pop("flatten_data"), "node 1: attrs has no 'flatten_data'"),
        (lambda g: g["nodes"][1]["attrs"].update(num_inputs="2"), "num_inputs is 2, but 1 inputs are listed"),
        (lambda g: g["nodes"][1]["attrs"].update(num_inputs=1), "expected a string, got 1"),
        (lambda g: g["nodes"][1].update(inputs=[[7, 0, 0]]), "an input is of node 7, but 1 nodes come before it"),
        (lambda g: g["nodes"][1].update(inputs=[[1, 0, 0]]), "an input is of node 1, but 1 nodes come before it"),
        (lambda g: g["nodes"][1].update(inputs=[[0, 1, 0]]), "an input is output 1 of node 0, which has 1"),
        (lambda g: g["nodes"][1].update(inputs=[[0]]), "expected an entry"),
        (lambda g: g["nodes"][1].update(inputs=[[-1, 0]]), "expected an integer from 0 on"),
        (lambda g: g["nodes"][1].update(control_deps=[1]), "control_deps has node 1"),
        (lambda g: g.update(heads=[[2, 0, 0]]), "heads: an output is of node 2, but the graph has 2 nodes"),
        (lambda g: g.update(arg_nodes=[1]), "arg_nodes has 1, which is not a node with op 'null'"),
        (lambda g: g.update(arg_nodes=[0, 0]), "arg_nodes has node 0 twice"),
        (lambda g: g.update(arg_nodes=[]), "node 0 \\('x'\\) has op 'null', but arg_nodes lacks it"),
        (lambda g: g.update(node_row_ptr=[0, 1, 3]), "number 2 is 3, but the nodes before have 2 outputs"),
        (lambda g: g.update(node_row_ptr=[0, 1]), "it has 2 numbers, expected 3"),
        (lambda g: g["attrs"].pop("storage_id"), "attrs has no 'storage_id'"),
        (lambda g: g["attrs"]["shape"][1].pop(), "shape has 1 elements, but the nodes have 2 outputs"),
        (lambda g: g["attrs"]["shape"].insert(0, "list_int"), "3 elements; at most 2"),
        (lambda g: g["attrs"].update(shape=["list_int", [1, 2]]), "is of kind 'list_int', expected list_shape"),
        (lambda g: g["attrs"].update(other=["list_str", []]), "is of kind 'list_str', expected list_int or size_t"),
        (lambda g: g["attrs"]["storage_id"].__setitem__(1, [0, -1]), "expected an integer from 0 on"),
        (lambda g: g["attrs"]["shape"].__setitem__(1, [[4], [1 << 40, 1 << 40]]), "is larger than any memory"),
        (lambda g: g["attrs"]["shape"].__setitem__(1, [[4], [1] * 33]), "at most 32 are allowed"),
    ],
)
def test_what_is_wrong_is_named(change: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_graph(changed(change))


@pytest.mark.parametrize(
    "bad",
    ["", "{", "[]", "NaN", '{"nodes": NaN}', '{"nodes": 1, "nodes": 2}', "1" * 5000, "[" * 100_000, '"\ud800"'],
)
def test_what_is_no_graph_is_a_format_error(bad: str) -> None:
    with pytest.raises(FormatError):
        parse_graph(bad)


def test_two_parameters_of_one_name_are_refused() -> None:
    def double(found: dict[str, Any]) -> None:
        found["nodes"][1]["name"] = "x"

    with pytest.raises(FormatError, match="two parameters are called 'x'"):
        parse_graph(changed(double, rich))


def test_the_text_is_a_str_of_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError, match="expected the JSON as a str, got a bytes"):
        parse_graph(b"{}")  # type: ignore[arg-type]
    monkeypatch.setattr("treadle.formats.limits.GRAPH_JSON_BYTES", 10)
    with pytest.raises(LimitError, match="at most 10"):
        parse_graph(text(simple()))


def test_a_graph_that_is_made_is_checked_too() -> None:
    with pytest.raises(FormatError, match="storage_id has 2 elements"):
        Graph((Node("x"),), (0,), (Entry(0),), ((4,),), (0, 1), ("float32",))


def test_changed_graphs_are_taken_or_refused_and_cost_no_more_than_their_text() -> None:
    originals = [text(simple()), text(rich())]
    taken = 0
    target(originals[1].encode())
    tracemalloc.start()
    try:
        for number in range(3000):
            random = Random(number)
            original = random.choice(originals)
            mutant = mutate_json(random, original).encode()
            if number % 3 == 0:
                mutant = mutate_bytes(random, original.encode())
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                target(mutant)
                taken += 1
            except TreadleError:
                pass
            assert tracemalloc.get_traced_memory()[1] - before < 4 << 20
    finally:
        tracemalloc.stop()
    assert 100 < taken < 2900
