"""The laws of compilation, on random programs: the machine gives what the evaluator gives, and compiling is a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from treadle.compiler import ir
from treadle.compiler.builder.programs import Module, function, op, tuple_, var
from treadle.compiler.driver import compile_module
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.ir.text import parse_module, print_module
from treadle.tools.dev.fuzz.programs import try_program
from treadle.tools.dev.fuzz.runs import is_bad

from .programs import Program, programs
from .samples import floats
from .test_compile import assert_equal, run, saved

SQUARE, ROW = (4, 4), (4,)

# what a step of a random graph does, and the shapes of its operands and its result; values stay small
STEPS: list[tuple[Callable[..., Any], tuple, tuple]] = [
    (lambda a, b: (a + b) * 0.5, (SQUARE, SQUARE), SQUARE),
    (lambda a, b: a * b, (SQUARE, ROW), SQUARE),
    (lambda a, b: op.tanh(a @ b), (SQUARE, SQUARE), SQUARE),
    (op.tanh, (SQUARE,), SQUARE),
    (op.relu, (ROW,), ROW),
    (op.softmax, (SQUARE,), SQUARE),
    (lambda a: op.softmax(a, axis=0), (SQUARE,), SQUARE),
    (lambda a, b: op.layer_normalization(a, b, epsilon=1.0), (SQUARE, ROW), SQUARE),
    (op.permute_dims, (SQUARE,), SQUARE),
    (lambda a: op.mean(a, axes=(0,)), (SQUARE,), ROW),
    (lambda a: op.reshape(op.concat(a, a, axis=0), shape=(2, 4, 4))[1], (SQUARE,), SQUARE),
    (lambda a: op.full(shape=SQUARE, value=0.5, dtype=a.dtype), (SQUARE,), SQUARE),
]


@st.composite
def graphs(draw: Callable[[st.SearchStrategy], Any], *dtypes: str) -> list[ir.Module]:
    """Graphs of tensor operators, in which values have several users: the same one for each element type."""
    params = [(var("x", SQUARE, dtype), var("y", ROW, dtype)) for dtype in dtypes]
    values = {SQUARE: [[x for x, _ in params]], ROW: [[y for _, y in params]]}
    for _ in range(draw(st.integers(1, 25))):
        apply, operands, result = draw(st.sampled_from(STEPS))
        chosen = [draw(st.sampled_from(values[shape][-6:])) for shape in operands]
        values[result].append([apply(*each) for each in zip(*chosen, strict=True)])
    results = draw(st.lists(st.sampled_from([*values[SQUARE], *values[ROW]]), min_size=1, max_size=3))
    tuples = zip(values[SQUARE][-1], *results, strict=True)
    return [Module(main=function(own, tuple_(*each))) for own, each in zip(params, tuples, strict=True)]


examples = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.parametrize("level", [0, 2])
@examples
@given(programs())
def test_machine_gives_what_the_evaluator_gives(level: int, program: Program) -> None:
    expected = evaluate(infer_types(program.module), "main", *program.args)
    assert_equal(run(saved(program.module, opt_level=level), *program.args), expected)


@examples
@given(programs())
def test_the_same_program_gives_the_same_bytes(program: Program) -> None:
    again = parse_module(print_module(program.module))
    assert saved(again) == saved(program.module)


@examples
@given(programs())
def test_planned_memory_is_never_more_than_without_sharing(program: Program) -> None:
    for report in compile_module(program.module).memory:
        assert report.frame_bytes <= report.unshared_bytes


@pytest.mark.parametrize("level", [0, 1, 2])
@settings(examples, max_examples=100)
@given(graphs("float32"))
def test_graphs_of_operators_keep_their_value(level: int, modules: list[ir.Module]) -> None:
    arguments = floats(*SQUARE), floats(*ROW)
    expected = evaluate(infer_types(modules[0]), "main", *arguments)
    assert_equal(run(saved(modules[0], opt_level=level), *arguments), expected)


@examples
@given(graphs("float16", "float32"))
def test_float16_is_rounded_at_the_end_alone(modules: list[ir.Module]) -> None:
    """Graphs of float16 give what those of float32 do, rounded once."""
    half, single = modules
    arguments = floats(*SQUARE).astype(np.float16), floats(*ROW).astype(np.float16)
    expected = evaluate(infer_types(single), "main", *(each.astype(np.float32) for each in arguments))
    for got, wanted in zip(run(saved(half), *arguments), expected, strict=True):
        assert got.dtype.name == "float16"
        np.testing.assert_allclose(np.asarray(got, np.float32), wanted, rtol=2**-11 + 1e-5, atol=2**-24)


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_programs_of_static_and_symbolic_sizes_keep_their_value(first: int) -> None:
    """A hundred of those that `python -m treadle.tools.dev.fuzz.programs` tries; it tries as many as it is told."""
    outcomes = [try_program(0, number) for number in range(first + 1, first + 20)]
    assert not [outcome for outcome in outcomes if is_bad(outcome)]
    assert sum(outcome.endswith("equal") for outcome in outcomes) > 12
