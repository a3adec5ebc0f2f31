"""What only makes programs faster may be left out: any pass, wide vectors, threads, a template's choice."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest
from treadle.compiler.builder.programs import Module, function, op, var
from treadle.compiler.driver import compile_module
from treadle.compiler.ir.evaluate import evaluate_definition
from treadle.compiler.passes import optional_passes
from treadle.compiler.targets.cpu.target import Target
from treadle.formats.messages.errors import TreadleError
from treadle.tools.dev.fuzz.programs import Setting, sample_of, try_program, try_sample, using
from treadle.tools.dev.fuzz.runs import TARGETS, is_bad

from .targets.cpu import harness
from .targets.cpu.harness import ON_X86

# Of seed 1, for each pass; `python -m treadle.tools.dev.fuzz.programs --off` tries as many as it is told.
PROGRAMS = range(12)
KERNELS = range(6)

CHILD = """
from random import Random
from treadle.formats.messages.errors import TreadleError
from treadle.tools.dev.fuzz.programs import Setting, sample_of, try_sample
for number in range(2):
    print(number, try_sample(sample_of(2, number), Setting(native=True), Random(number)))
"""


@pytest.mark.parametrize("name", optional_passes())
def test_a_pass_that_is_left_out(name: str) -> None:
    for number in PROGRAMS:
        assert "fail" not in try_sample(sample_of(1, number), Setting(without=(name,)), Random(number))


@pytest.mark.parametrize("name", ["infer_types", "monomorphise", "lambda_lift", "dead_code", "name_shapes", "nothing"])
def test_what_code_generation_needs_cannot_be_left_out(name: str) -> None:
    x = var("x", (2,))
    with pytest.raises(ValueError, match=f"{name} cannot be left out; possible: widen_float16, simplify, "):
        compile_module(Module(main=function([x], op.relu(x))), without=[name])


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("number", KERNELS)
def test_threads(number: int, threads: int) -> None:
    with using(threads):
        try_sample(sample_of(2, number), Setting(native=True, threads=threads), Random(number))


@pytest.mark.parametrize("target", harness.NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors(target: Target) -> None:
    """The primitives of programs that are compiled for them, each on its own."""
    tried = 0
    for number in KERNELS:
        for primitive in compile_module(sample_of(2, number).module, target=target).program.primitives:
            definition = primitive.definition
            sizes = dict.fromkeys(definition.variables, 3)
            arrays = [harness.random_array(param, seed, sizes) for seed, param in enumerate(definition.params)]
            try:
                evaluate_definition(definition, arrays, list(sizes.values()))
            except TreadleError:  # its sizes go together in another way
                continue
            if harness.built(definition, target) is not None:
                harness.check(definition, arrays, sizes, rtol=1e-4, atol=1e-4, target=target)
                tried += 1
    assert tried > 5


@ON_X86
@pytest.mark.slow  # the machine's engine is built for each
@pytest.mark.parametrize("target", TARGETS[1:])
def test_programs_on_narrow_vectors(target: str) -> None:
    """A process compiles for one CPU alone."""
    environment = os.environ | {"TREADLE_TARGET": target}
    command = [sys.executable, "-c", CHILD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal") == 2


def test_programs_with_something_off() -> None:
    outcomes = [try_program(3, number, off=True) for number in range(1, 25)]
    assert not [outcome for outcome in outcomes if is_bad(outcome)]
