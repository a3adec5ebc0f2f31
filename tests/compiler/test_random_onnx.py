"""Random ONNX graphs give what onnxruntime and `onnx.reference` say, however they are compiled."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from treadle.compiler.passes import optional_passes
from treadle.tools.fuzz_onnx import judged, sample_of, try_graph, try_sample
from treadle.tools.fuzz_programs import Setting, using
from treadle.tools.fuzz_state import is_bad
from treadle.tools.random_onnx.graphs import OWN
from treadle.tools.random_onnx.judges import by_onnxruntime, difference, unsaid

# Of seed 0; `python -m treadle.tools.fuzz_onnx` tries as many as it is told.


@pytest.mark.parametrize("first", [1, 26])
def test_random_graphs_give_what_the_judges_say(first: int) -> None:
    outcomes = [try_graph(0, number) for number in range(first, first + 24)]
    assert not [outcome for outcome in outcomes if is_bad(outcome)]
    assert sum(outcome.startswith("planned: equal") for outcome in outcomes) > 12


@pytest.mark.parametrize("number", range(2))
def test_random_graphs_on_native_kernels(number: int) -> None:
    with using(1 + number):
        assert not is_bad(try_sample(sample_of(5, number), Setting(native=True)))


@pytest.mark.parametrize("name", optional_passes())
def test_a_pass_that_is_left_out(name: str) -> None:
    number = optional_passes().index(name)
    assert not is_bad(try_sample(sample_of(7, number), Setting(without=(name,))))


def test_a_graph_is_a_function_of_its_number() -> None:
    first, second = (sample_of(3, 4).model.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_graphs_have_subgraphs_and_most_operators() -> None:
    found: Counter[str] = judged(11, 40)
    names = {name.removeprefix("node ") for name in found if name.startswith("node ")}
    assert len(names & set(OWN)) > len(OWN) / 2
    assert names & {"If", "Loop", "Scan"}


HEAD = '<ir_version: 10, opset_import: ["" : 18]> g '


@pytest.mark.parametrize(
    ("node", "operands", "results", "is_due"),
    [
        ("(float[2] x) => (uint8[2] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }", [[0, 0]], [], False),
        ("(float[2] x) => (uint8[2] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }", [[0, 1]], [], True),
        ("(float[5] x) => (float[?] a, float[?] b, float[?] c, float[?] d) "
         "{ a, b, c, d = Split<num_outputs: int = 4>(x) }", [range(5)], [], False),
        ("(float[4] x) => (float[?] a, float[?] b, float[?] c) { a, b, c = Split<num_outputs: int = 3>(x) }",
         [range(4)], [], True),
        ("(float[3] x) => (float[1] y) { y = ReduceProd(x) }", [[3e38, 3e38, 0]], [[np.nan]], False),
        ("(float[3] x) => (float[1] y) { y = ReduceProd(x) }", [[3, 4, 0]], [[0]], True),
    ],
)  # fmt: skip
def test_what_the_standard_leaves_open_is_not_due(node: str, operands: list, results: list, is_due: bool) -> None:
    (parsed,) = onnx.parser.parse_model(HEAD + node).graph.node
    reason = unsaid(parsed, [np.array(each, np.float32) for each in operands], [np.array(each) for each in results])
    assert (reason is None) == is_due


def test_what_a_loop_of_no_rounds_scans_is_not_due() -> None:
    node = onnx.helper.make_node("Loop", ["count", "", "x"], ["y", "all"])
    x = np.zeros(3, np.float32)
    assert unsaid(node, [np.int64(0), None, x], [x, np.zeros((0, 0), np.float32)])
    assert unsaid(node, [np.int64(2), None, x], [x, np.zeros((2, 3), np.float32)]) is None


def test_a_part_of_a_graph_gives_what_the_graph_gives() -> None:
    sample = sample_of(11, 3)
    whole = by_onnxruntime(sample.model, sample.feeds())
    for value, wanted in zip(sample.outputs, whole, strict=True):
        part = sample.part([value.name])
        assert len(part.graph.node) <= len(sample.model.graph.node)
        (got,) = by_onnxruntime(part, sample.feeds())
        assert difference(got, wanted) is None
