"""Runs the kernel of a definition on NumPy arrays, as the machine does, and compares it with the reference evaluator.

Every tensor ends where an unreadable page begins: a kernel that reads or writes behind the end of one dies at once.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import mmap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from treadle.compiler.evaluate import evaluate_definition
from treadle.compiler.kernels.build import build
from treadle.compiler.kernels.target import Target, host
from treadle.compiler.operators import TABLE, lookup
from treadle.compiler.timing import PROTOTYPE
from treadle.formats import dims
from treadle.formats.primitive import PrimitiveDefinition, PrimitiveNode
from treadle.formats.types import TensorType
from treadle.vm.layout import NOTE_WORDS
from treadle.vm.library import BuiltKernel
from treadle.vm.native import load_object

TARGET = host()
NARROW = [dataclasses.replace(TARGET, vector_bytes=size, vector_registers=16) for size in (32, 16)]
ON_X86 = pytest.mark.skipif(not TARGET.native.triple.startswith("x86_64"), reason="is about CPUs of that kind")

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
    return build([definition], target, progress=False, jobs=1)[0]


_addresses: dict[str, int] = {}


def call(kernel: BuiltKernel, args: int, scratch: int, part: int, parts: int) -> int:
    """One call of a kernel; its answer."""
    if kernel.object_key not in _addresses:
        (_addresses[kernel.object_key],) = load_object(kernel.code).values()
    result, exception = ctypes.c_int64(-99), ctypes.c_void_p()
    status = PROTOTYPE(_addresses[kernel.object_key])(
        ctypes.addressof(result), ctypes.addressof(exception), args, scratch, part, parts
    )
    assert status == 0
    return result.value


_libc = ctypes.CDLL(None, use_errno=True)


def guarded(array: np.ndarray, slack: int = 0) -> np.ndarray:
    """A copy that ends so many bytes before an unreadable page, or a few more: it starts at a multiple of 4."""
    size = array.nbytes
    pages = (size + slack + mmap.PAGESIZE - 1) // mmap.PAGESIZE + 1
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert _libc.mprotect(ctypes.c_void_p(base + (pages - 1) * mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    offset = ((pages - 1) * mmap.PAGESIZE - size - slack) // 4 * 4
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


def run_kernel(
    definition: PrimitiveDefinition,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int] | None = None,
    parts: int = 1,
    target: Target = TARGET,
    slack: int = 0,
    at_once: bool = False,
    over: int | None = None,
) -> tuple[int, list[np.ndarray]]:
    """The kernel's code (0 for success) and the outputs, made by so many parts one after the other, or each by a thread. The
    first output lies `over` an input, where one is named."""
    kernel, sizes = built(definition, target), sizes or {}
    assert kernel is not None, f"no kernel for {definition}"
    inputs = [guarded(np.require(array, requirements="C"), slack) for array in arrays]
    outputs = []
    for type_ in definition.results:
        shape = tuple(dims.evaluate(dim, sizes) for dim in type_.shape)
        poison = np.full(math.prod(shape) * type_.dtype.itemsize, 0xA5, np.uint8).view(type_.dtype.numpy)
        outputs.append(guarded(poison.reshape(shape), slack))
    if over is not None:
        outputs[0] = inputs[over].view(outputs[0].dtype)
    words = np.array([*kernel.words, 0], np.int64)
    stride = (kernel.scratch_bytes + 63) // 64 * 64
    scratch = guarded(np.full(stride * (parts if at_once else 1), -1, np.int8))
    variables = [sizes[name] for name in definition.variables]
    addresses = [array.__array_interface__["data"][0] for array in (*inputs, *outputs)]
    args = np.array([words.ctypes.data, *addresses, *variables, *[0] * NOTE_WORDS], np.int64)
    assert 1 <= call(kernel, args.ctypes.data, 0, -1, 2) <= 64
    with ThreadPoolExecutor(parts if at_once else 1) as threads:
        places = [scratch.ctypes.data + part * stride * at_once for part in range(parts)]
        codes = threads.map(lambda part: call(kernel, args.ctypes.data, places[part], part, parts), range(parts))
        return max(codes), outputs


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
