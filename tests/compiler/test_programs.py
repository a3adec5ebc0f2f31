"""Laws of the compiler's middle that hold of every program."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.ir.text import parse_module, print_module
from treadle.vm.values import DataValue

from .programs import Program, programs
from .structure import structurally_equal

examples = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def same(a: object, b: object) -> bool:
    """Values are equal to the bit."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, DataValue) and isinstance(b, DataValue):
        return a.constructor == b.constructor and same(a.fields, b.fields)
    return isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))


@examples
@given(programs())
def test_a_program_is_well_typed_and_runs(program: Program) -> None:
    evaluate(infer_types(program.module), "main", *program.args)


@examples
@given(programs())
def test_text_is_an_exact_round_trip(program: Program) -> None:
    for module in (program.module, infer_types(program.module)):
        text = print_module(module)
        parsed = parse_module(text)
        assert print_module(parsed) == text
        assert structurally_equal(parsed, module)


@examples
@given(programs())
def test_types_do_not_change_when_they_are_inferred_again(program: Program) -> None:
    typed = infer_types(program.module)
    assert structurally_equal(infer_types(typed), typed)
    assert structurally_equal(infer_types(parse_module(print_module(typed))), typed)


@examples
@given(programs())
def test_the_evaluator_gives_the_same_bits_every_time(program: Program) -> None:
    first, second = (evaluate(infer_types(program.module), "main", *program.args) for _ in range(2))
    assert same(first, second)
