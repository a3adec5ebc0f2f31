"""The laws of compilation, on random programs: the machine gives what the evaluator gives, and compiling is a function."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from treadle.compiler.driver import compile_module
from treadle.compiler.evaluate import evaluate
from treadle.compiler.infer import infer_types
from treadle.compiler.text import parse_module, print_module

from .programs import Program, programs
from .test_compile import assert_equal, run, saved

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
