"""From a module to the machine: compiled, saved, loaded, verified, run; the reference evaluator says what must come out."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treadle.compiler import ir
from treadle.compiler.builder.programs import Module, constant, function, op, var
from treadle.compiler.driver import compile_module
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.formats.executable import Executable, load
from treadle.vm.machine import VirtualMachine

from .samples import SAMPLES


def saved(module: ir.Module, **options: Any) -> bytes:
    return Executable(compile_module(module, **options).program).as_bytes()


def run(data: bytes, *arguments: object, name: str = "main") -> Any:
    return VirtualMachine(load(data), kernels="cached")[name](*arguments)


def assert_equal(actual: Any, expected: Any) -> None:
    """Two values, of the machine or the evaluator, are equal: arrays up to rounding."""
    if isinstance(expected, np.ndarray):
        array = np.asarray(actual)
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)
        return
    if not isinstance(expected, tuple):
        assert actual.tag == expected.tag
        actual, expected = actual.fields, expected.fields
    assert len(actual) == len(expected)
    for part, wanted in zip(actual, expected, strict=True):
        assert_equal(part, wanted)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("name", SAMPLES)
def test_machine_gives_what_the_evaluator_gives(name: str, level: int) -> None:
    sample = SAMPLES[name]
    expected = evaluate(infer_types(sample.module), "main", *sample.arguments)
    assert_equal(run(saved(sample.module, opt_level=level), *sample.arguments), expected)


def test_running_does_not_change_what_is_saved() -> None:
    executable = load(saved(SAMPLES["list_map"].module))
    before = executable.as_bytes()
    VirtualMachine(executable, kernels="cached")["main"](*SAMPLES["list_map"].arguments)
    assert executable.as_bytes() == before


def digest_of_samples(samples: dict) -> str:
    return hashlib.sha256(b"".join(saved(sample.module) for sample in samples.values())).hexdigest()


def test_two_processes_give_identical_bytes() -> None:
    script = """
import sys
sys.path.insert(0, sys.argv[1])
import tests.compiler.test_compile as test
print(test.digest_of_samples(test.SAMPLES))
"""
    root = Path(__file__).parents[2]
    other = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest_of_samples(SAMPLES)


def test_numbers_that_int64_does_not_have_stay_constants_of_the_program() -> None:
    x = var("x", ("n",), "uint64")
    last, first = np.uint64(2**64 - 1), np.uint64(1 << 63)
    module = Module(main=function([x], op.bitwise_xor(op.add(x, constant(last)), constant(first))))
    given = np.array([0, 1, 2**63], np.uint64)
    assert_equal(run(saved(module), given), (given + last) ^ first)
