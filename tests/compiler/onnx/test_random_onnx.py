"""Random ONNX graphs give what onnxruntime and `onnx.reference` say, however they are compiled."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import onnx
import pytest
from treadle.compiler.passes import optional_passes
from treadle.tools.dev.fuzz.onnx import judged, sample_of, try_graph, try_sample
from treadle.tools.dev.fuzz.programs import Setting, using
from treadle.tools.dev.fuzz.random_onnx.gradients import derivatives
from treadle.tools.dev.fuzz.random_onnx.graphs import FAMILIES, OWN
from treadle.tools.dev.fuzz.random_onnx.judges import by_onnxruntime, difference, unsaid
from treadle.tools.dev.fuzz.random_onnx.walk import Walk
from treadle.tools.dev.fuzz.runs import is_bad

# Of seed 0; `python -m treadle.tools.dev.fuzz.onnx` tries as many as it is told.


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
    for family in FAMILIES:
        assert names & {f"{domain}.{name}".lstrip(".") for domain, name in family}


def test_a_run_may_be_sent_another_way() -> None:
    samples = [sample_of(11, number) for number in range(12)]
    pairs = [(sample.feeds(), sample.turned()) for sample in samples]
    held = [
        (value, turned[value.name])
        for (_, turned), sample in zip(pairs, samples, strict=True)
        if turned
        for value in sample.inputs
        if value.held or value.array.dtype == bool
    ]
    assert held
    for value, other in held:
        if isinstance(value.array, list) and value.array:
            assert len(other) != len(value.array)
        elif value.held and not isinstance(value.array, list):
            assert other is None


def test_derivatives_are_judged_by_differences() -> None:
    walk = Walk(Random(0), 20)
    x = walk.put(np.array([0.5, 1, 2]), constant=False)
    y = walk.add("Log", [x])[0]
    (slopes,) = derivatives(walk, 0, y, {x.name: x.array}, [x.name])
    np.testing.assert_allclose(slopes, 1 / x.array, rtol=1e-8)


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
