"""Timing kernels as a program would call them: on operands in the same level of memory, several kernels in turn."""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ....formats import dims
from ....formats.constants import aligned_empty
from ....formats.dtypes import DType
from ....formats.messages.errors import CompileError
from ....formats.primitive import PrimitiveDefinition
from ....formats.program import Program
from ....native.convention import ARGUMENT_HEAD, NOTE_WORDS
from ....vm import library
from .kernels.lower import lower
from .kernels.writer import SYMBOLIC_SIZE
from .target import Target
from .toolchain.kernels import build

GAIN = 0.97  # share of the default's time below which a variant is preferred

_ROUNDS = 7  # in which each kernel has a turn
_TURN_SECONDS = 0.001
_COLD = 3  # times the last-level cache: constants read that long ago have left it
_MOST_COPIES = 512


@dataclass(frozen=True)
class Use:
    """A primitive in a program."""

    name: str
    definition: PrimitiveDefinition
    calls: int  # places that call it
    constants: tuple[bool, ...]  # which inputs are constants, wherever it is called

    @property
    def is_measurable(self) -> bool:
        """Whether tensors of its types exist when symbolic dimensions have the size assumed here."""
        bound = dict.fromkeys(self.definition.variables, SYMBOLIC_SIZE)
        shapes = (type_.shape for type_ in self.definition.values)
        return all(dims.evaluate(dim, bound) >= 0 for shape in shapes for dim in shape)  # type: ignore[arg-type]


class Memory:
    """A large array that constants are read from; each time from another place if they must be cold."""

    def __init__(self, cold_bytes: int = 0) -> None:
        self.cold_bytes = cold_bytes
        self._numbers = np.zeros(0, np.float32)

    @staticmethod
    def of(program: Program, target: Target) -> Memory:
        """Cold where the program's constants, each of which is read once a call, do not stay in the last-level cache."""
        is_cold = sum(array.nbytes for array in program.constants) > target.l3_bytes
        return Memory(_COLD * target.l3_bytes if is_cold else 0)

    def places(self, size: int) -> list[np.ndarray]:
        """Consecutive pieces of `size` bytes."""
        copies = min(_MOST_COPIES, math.ceil(self.cold_bytes / max(size, 1)) + 1) if self.cold_bytes else 1
        step = -(-size // 64) * 64
        if self._numbers.nbytes < copies * step + 64:
            some = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)
            self._numbers = np.resize(some, (copies * step + 64) // 4 + 16)
        start = -self._numbers.ctypes.data % 64 // 4
        return [self._numbers[start + i * step // 4 :] for i in range(copies)]


class Operands:
    """Operands for the kernels of a primitive: random ones, indices zero; symbolic dimensions are of one size."""

    def __init__(self, use: Use, memory: Memory) -> None:
        definition = use.definition
        self.definition = definition
        self._bound = dict.fromkeys(definition.variables, SYMBOLIC_SIZE)
        rng = np.random.default_rng(0)
        self._others: list[np.ndarray | None] = [
            None if fixed and type_.dtype is DType.float32 else self._array(type_.dtype, type_.shape, rng)
            for type_, fixed in zip(definition.params, use.constants, strict=True)
        ]
        self._results = [self._array(type_.dtype, type_.shape, rng) for type_ in definition.results]
        sizes = [0 if array is not None else self._bytes(i) for i, array in enumerate(self._others)]
        self.places = memory.places(sum(-(-size // 64) * 64 for size in sizes))
        self._offsets = [sum(-(-size // 64) * 64 for size in sizes[:i]) for i in range(len(sizes))]

    def _array(self, dtype: DType, shape: Sequence[object], rng: np.random.Generator) -> np.ndarray:
        """An array aligned like the machine's tensors: a vector that crosses cache lines takes up to twice as long."""
        sizes = tuple(dims.evaluate(dim, self._bound) for dim in shape)  # type: ignore[arg-type]
        array = aligned_empty(math.prod(sizes) * dtype.itemsize).view(dtype.numpy).reshape(sizes)
        array[...] = rng.standard_normal(sizes, np.float32) if dtype.is_float else 0
        return array

    def _bytes(self, number: int) -> int:
        type_ = self.definition.params[number]
        sizes = [dims.evaluate(dim, self._bound) for dim in type_.shape]  # type: ignore[arg-type]
        return math.prod(sizes) * type_.dtype.itemsize

    def arguments(self, words: np.ndarray) -> list[np.ndarray]:
        """The arguments of calls, with constants in different places."""
        variables = [self._bound[name] for name in self.definition.variables]
        return [
            np.array(
                [
                    *[0] * ARGUMENT_HEAD,
                    words.ctypes.data,
                    *(
                        place.ctypes.data + offset if array is None else array.ctypes.data
                        for array, offset in zip(self._others, self._offsets, strict=True)
                    ),
                    *(array.ctypes.data for array in self._results),
                    *variables,
                    *[0] * NOTE_WORDS,
                ],
                np.int64,
            )[ARGUMENT_HEAD:]
            for place in self.places
        ]

    def kernels(self, variants: Sequence[str], target: Target) -> list[Timed | None]:
        """The variants' kernels, ready to be timed; None for one that is not possible, or not native."""
        possible = [variant for variant in variants if is_possible(self.definition, variant, target)]
        built = build([self.definition] * len(possible), target, variants=possible, progress=False)
        timed = {
            variant: Timed(variant, kernel, self)
            for variant, kernel in zip(possible, built, strict=True)
            if kernel is not None
        }
        return [timed.get(variant) for variant in variants]


def is_possible(definition: PrimitiveDefinition, variant: str, target: Target) -> bool:
    """One choice may exclude another."""
    try:
        return lower(definition, target, variant) is not None
    except CompileError:
        return False


# A kernel's signature in Numba: addresses of its result and exception, then `args`, `scratch`, `part`, `parts`
PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 4)


class Timed:
    """A kernel, loaded, with its operands."""

    def __init__(self, variant: str, kernel: library.BuiltKernel, data: Operands) -> None:
        self.variant = variant
        self.times: list[float] = []
        address = library.address_of(kernel)
        self._call = PROTOTYPE(address)
        self._scratch = np.zeros(kernel.scratch_bytes + 64, np.uint8)
        self._words = np.array([*kernel.words, 0], np.int64)
        self._arguments = data.arguments(self._words)
        self.operands = data
        self._next = self._endless()
        self.seconds(1)

    def _endless(self) -> Iterator[int]:
        while True:
            for arguments in self._arguments:
                yield arguments.ctypes.data

    def seconds(self, calls: int) -> float:
        """Mean seconds of a call, over `calls` calls."""
        outcome = (ctypes.c_int64 * 2)()
        at, scratch = ctypes.addressof(outcome), -(-self._scratch.ctypes.data // 64) * 64
        places = [next(self._next) for _ in range(calls)]
        call = self._call
        start = time.perf_counter()
        for place in places:
            call(at, at + 8, place, scratch, 0, 1)
        return (time.perf_counter() - start) / calls


def compare(default: Timed, others: Sequence[Timed], deadline: float) -> dict[str, float]:
    """The times of variants as shares of the default's, which has a turn in every round. Medians over the rounds."""
    if not others:
        return {}
    ratios: dict[str, list[float]] = {each.variant: [] for each in others}
    calls = max(1, round(_TURN_SECONDS / max(default.seconds(1), 1e-7)))
    for turn in range(_ROUNDS):
        if turn > 2 and time.perf_counter() > deadline:
            break
        base = default.seconds(calls)
        default.times.append(base)
        for each in others:
            ratios[each.variant].append(each.seconds(calls) / base)
    return {variant: statistics.median(shares) for variant, shares in ratios.items()}
