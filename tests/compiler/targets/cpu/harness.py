"""Runs the kernel of a definition on NumPy arrays, as the machine does, and compares it with the reference evaluator.

Every tensor lies between forbidden pages (fuzz/forbidden_pages.py): a kernel that reads or writes out of bounds dies at once.
What templates are given here need not have the form that definitions from outside must have.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from treadle.compiler.ir.evaluate import evaluate_definition
from treadle.compiler.operators import TABLE, lookup
from treadle.compiler.targets.cpu import operators  # noqa: F401  (they join the table by import)
from treadle.compiler.targets.cpu.target import Target, host
from treadle.formats import dims
from treadle.formats.primitive import PrimitiveDefinition, PrimitiveNode
from treadle.formats.types import TensorType
from treadle.tools.dev.fuzz import forbidden_pages
from treadle.tools.dev.fuzz.forbidden_pages import call, kernel_of
from treadle.vm.library import BuiltKernel

from . import instruction_sets

__all__ = ["call"]

TARGET = host()
NARROW = [dataclasses.replace(TARGET, vector_bytes=size, vector_registers=16) for size in (32, 16)]
ON_X86 = pytest.mark.skipif(not TARGET.native.triple.startswith("x86_64"), reason="is about CPUs of that kind")


def without(target: Target, *names: str) -> Target:
    """The same CPU without features whose names contain one of these."""
    features = ",".join(each for each in target.native.features.split(",") if not any(name in each for name in names))
    return dataclasses.replace(target, native=dataclasses.replace(target.native, features=features))


_random = np.random.default_rng()


def seed() -> None:
    """Lets `normal` begin anew."""
    global _random
    _random = np.random.default_rng(1)


def normal(*shape: int) -> np.ndarray:
    """Normally distributed elements of type float32."""
    return _random.standard_normal(shape, np.float32)


def evaluate(operator: str, *arrays: np.ndarray, **attributes: object) -> np.ndarray:
    """The first result of an operator's reference."""
    entry = lookup(operator)
    return entry.evaluate(arrays, entry.canonical(attributes))[0]


class Builder:
    """Makes definitions: `b = Builder(tensor(...)); y = b("add", 0, 1); b.definition(y)`."""

    def __init__(self, *params: TensorType) -> None:
        self.params, self.values, self.nodes = params, list(params), list[PrimitiveNode]()

    def __call__(self, operator: str, *inputs: int, **attributes: object) -> int:
        entry = TABLE[operator]
        canonical = entry.canonical(attributes)
        results = entry.result_types([self.values[i] for i in inputs], canonical)
        self.nodes.append(PrimitiveNode(operator, inputs, results, canonical))
        self.values += results
        return len(self.values) - len(results)

    def definition(self, *outputs: int) -> PrimitiveDefinition:
        attributes = tuple(value for node in self.nodes for _, value in node.attributes)
        variables = PrimitiveDefinition.variables_of(tuple(self.values), attributes)
        return PrimitiveDefinition(tuple(self.params), tuple(self.nodes), outputs, variables)


def definition_of(operator: str, params: Sequence[TensorType], **attributes: object) -> PrimitiveDefinition:
    """The definition of one operator on its own."""
    build = Builder(*params)
    first = build(operator, *range(len(params)), **attributes)
    return build.definition(*range(first, len(build.values)))


def built(definition: PrimitiveDefinition, target: Target = TARGET) -> BuiltKernel | None:
    """The compiled kernel, from the user's cache of kernels if it was built before."""
    return kernel_of(definition, target)


@functools.wraps(forbidden_pages.run_kernel)
def run_kernel(*args: Any, **options: Any) -> tuple[int, list[np.ndarray]]:
    """`forbidden_pages.run_kernel`, where this CPU has what the kernel needs."""
    given = _SIGNATURE.bind(*args, **options).arguments
    target = given.get("target") or TARGET
    if target.native != TARGET.native:
        kernel = built(given["definition"], target)
        assert kernel is not None, f"no kernel for {given['definition']}"
        instruction_sets.require(kernel.code)
    return forbidden_pages.run_kernel(*args, **options)


_SIGNATURE = inspect.signature(forbidden_pages.run_kernel)


def check(
    definition: PrimitiveDefinition,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int] | None = None,
    parts: int = 1,
    rtol: float = 2e-6,
    atol: float = 1e-6,
    target: Target = TARGET,
) -> None:
    """The kernel gives what the reference gives."""
    code, outputs = run_kernel(definition, arrays, sizes, parts, target)
    assert code == 0
    variables = [(sizes or {})[name] for name in definition.variables]
    for got, wanted in zip(outputs, evaluate_definition(definition, arrays, variables), strict=True):
        if got.dtype == np.float16:
            np.testing.assert_allclose(got.astype(np.float32), wanted.astype(np.float32), rtol=1e-2, atol=1e-3)
        elif got.dtype.kind == "f":
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(got, wanted)


def random_array(type_: TensorType, seed: int = 0, sizes: Mapping[str, int] | None = None) -> np.ndarray:
    """Elements of a type's own range: normal floats, small integers, random truth."""
    random = np.random.default_rng(seed)
    shape = tuple(dims.evaluate(dim, sizes or {}) for dim in type_.shape)
    if type_.dtype.is_float:
        return random.standard_normal(shape).astype(type_.dtype.numpy)
    if type_.dtype.is_integer:
        least = 0 if type_.dtype.name.startswith("u") else -100
        return random.integers(least, 100, shape).astype(type_.dtype.numpy)
    return random.random(shape) < 0.5


def check_random(
    definition: PrimitiveDefinition,
    sizes: Mapping[str, int] | None = None,
    parts: int = 1,
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> None:
    """`check` on random arrays."""
    arrays = [random_array(param, seed, sizes) for seed, param in enumerate(definition.params)]
    check(definition, arrays, sizes, parts, rtol, atol)
