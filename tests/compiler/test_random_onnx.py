"""Random ONNX graphs give what onnxruntime and `onnx.reference` say, however they are compiled."""

from __future__ import annotations

from collections import Counter

import pytest
from treadle.compiler.passes import optional_passes
from treadle.tools.fuzz_onnx import judged, sample_of, try_graph, try_sample
from treadle.tools.fuzz_programs import Setting, using
from treadle.tools.fuzz_state import is_bad
from treadle.tools.random_onnx.graphs import OWN

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
