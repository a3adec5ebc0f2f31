"""Tuning: which variants of the kernels are the fastest on this machine, by measuring them.

Variants are those that the templates offer (`kernels/variants.py`). A primitive's kernels take turns on the same data, as they
would find it: constants come from memory where those of the whole program are larger than the last cache, other tensors
from the caches. One thread measures. A variant replaces the default only where it was faster again when the two were
compared once more. What is found is kept in the cache, primitive by primitive.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..formats import dims
from ..formats.bytecode import function_words, scan
from ..formats.dtypes import DType
from ..formats.errors import CompileError
from ..formats.primitive import PrimitiveDefinition
from ..formats.program import Program
from ..formats.tuning import parse_variant, print_variant
from ..vm import library, native
from .kernels.build import build
from .kernels.lower import lower, space
from .kernels.target import Target
from .kernels.writer import SYMBOLIC_SIZE

SECONDS = 60.0

_BATCH = 4  # primitives whose variants are built together
_ROUNDS = 7  # in which each kernel has a turn
_TURN_SECONDS = 0.001
_LEAST_SECONDS = 3e-6  # a call that is shorter is mostly the call itself
_GAIN = 0.98  # the share of the default's time below which a variant is worth having
_COLD = 3  # times the last cache: constants that were read so long ago have left it
_MOST_COPIES = 512


@dataclass(frozen=True)
class Use:
    """A primitive in a program."""

    name: str
    definition: PrimitiveDefinition
    calls: int  # places that call it
    constants: tuple[bool, ...]  # which inputs are constants, wherever it is called


@dataclass
class Outcome:
    """What tuning found for one primitive. Seconds are of one call."""

    name: str
    calls: int
    default: float
    best: float
    variant: str = ""


@dataclass
class Tuned:
    """What tuning found: variants by definition key, empty ones where the default is best; and the measurements."""

    variants: dict[str, str] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    untried: int = 0  # primitives for which there was no time
    was_interrupted: bool = False

    @property
    def default_seconds(self) -> float:
        """Of all calls of the primitives that were measured."""
        return sum(each.default * each.calls for each in self.outcomes)

    @property
    def seconds(self) -> float:
        return sum(each.best * each.calls for each in self.outcomes)


def tune(program: Program, target: Target, seconds: float = SECONDS, progress: bool = True) -> Tuned:
    """Measures for about so many seconds, the primitives that take the most time first. Ctrl-C ends it early, and keeps what was
    found."""
    from tqdm import tqdm

    deadline = time.perf_counter() + seconds
    found = Tuned()
    cold = sum(array.nbytes for array in program.constants) > target.l3_bytes
    memory = _Memory(_COLD * target.l3_bytes if cold else 0)
    try:
        work = _by_time(_tunable(program, target), memory, target)
        hidden = None if progress else True  # None: hidden where stderr is no terminal
        with tqdm(total=len(work), desc="tuning", unit=" kernels", leave=False, disable=hidden) as bar:
            for number, use in enumerate(work):
                if time.perf_counter() >= deadline:
                    found.untried = len(work) - number
                    break
                if number % _BATCH == 0:
                    _build_variants(work[number : number + _BATCH], target)
                outcome = _tune_one(use, memory, target, deadline)
                found.outcomes.append(outcome)
                key = library.definition_key(use.definition, target.key)
                native.cache().put(_choice_key(key), outcome.variant.encode())
                found.variants[key] = outcome.variant
                bar.update()
                bar.set_postfix_str(f"{found.default_seconds * 1e3:.2f} → {found.seconds * 1e3:.2f} ms")
    except KeyboardInterrupt:
        found.was_interrupted = True
    return found


def known(program: Program, target: Target) -> dict[str, str]:
    """The variants that this machine's cache remembers from tuning, by definition key."""
    found = {}
    for primitive in program.primitives:
        key = library.definition_key(primitive.definition, target.key)
        choice = native.cache().get(_choice_key(key))
        if choice:
            found[key] = choice.decode()
    return found


def _choice_key(definition_key: str) -> str:
    return hashlib.sha256(f"tuned {definition_key}".encode()).hexdigest()


# ---- what there is to tune ----


def uses(program: Program) -> list[Use]:
    """The primitives that a program calls."""
    calls: Counter[int] = Counter()
    constant: dict[int, list[bool]] = {}
    for function in program.functions:
        holds_constant: set[int] = set()
        for instruction in scan(function_words(program, function)):
            name, values = instruction.operation.name, instruction.values
            if name == "load_const":
                holds_constant.add(values[0])  # type: ignore[arg-type]
                continue
            if name == "call":
                number, inputs = values[0], values[1]
                calls[number] += 1  # type: ignore[index]
                now = [register in holds_constant for register in inputs]  # type: ignore[union-attr]
                before = constant.setdefault(number, now)  # type: ignore[arg-type]
                constant[number] = [a and b for a, b in zip(before, now, strict=True)]  # type: ignore[index]
            for operand, value in zip(instruction.operation.fields, values, strict=True):
                if operand.is_written and operand.kind.value == "r":
                    holds_constant -= set(value if isinstance(value, tuple) else (value,))  # type: ignore[arg-type]
    primitives = program.primitives
    return [
        Use(primitives[number].name, primitives[number].definition, count, tuple(constant[number]))
        for number, count in calls.items()
    ]


def _tunable(program: Program, target: Target) -> list[Use]:
    """Those whose templates leave something to decide; equal definitions once."""
    found: dict[PrimitiveDefinition, Use] = {}
    for use in uses(program):
        if use.definition in found:
            before = found[use.definition]
            found[use.definition] = Use(use.name, use.definition, before.calls + use.calls, before.constants)
        elif any(len(texts) > 1 for texts in space(use.definition, target).values()):
            found[use.definition] = use
    return list(found.values())


def _by_time(work: Sequence[Use], memory: _Memory, target: Target) -> list[Use]:
    """Those that are long enough to be measured, what takes the most time first."""
    build([use.definition for use in work], target, progress=False)
    seconds = {}
    for use in work:
        data = _Data(use, memory)
        (kernel,) = data.kernels([""], target)
        seconds[use.name] = min(kernel.seconds(1) for _ in range(3)) if kernel else 0.0
    worth = [use for use in work if seconds[use.name] > _LEAST_SECONDS]
    return sorted(worth, key=lambda use: -seconds[use.name] * use.calls)


def _build_variants(work: Sequence[Use], target: Target) -> None:
    """Builds the kernels that will be measured first: many at once, since starting compilers takes as long as two kernels."""
    wanted = [(use.definition, variant) for use in work for variant in _alone(use.definition, target)]
    build([definition for definition, _ in wanted], target, variants=[variant for _, variant in wanted], progress=False)


# ---- one primitive ----


def _tune_one(use: Use, memory: _Memory, target: Target, deadline: float) -> Outcome:
    data = _Data(use, memory)
    default, *others = data.kernels(["", *_alone(use.definition, target)], target)
    assert default is not None
    kernels = {kernel.variant: kernel for kernel in others if kernel is not None}
    ratios = _compare(default, list(kernels.values()), deadline)
    candidates = _promising(ratios)
    joined = [kernel for kernel in data.kernels(candidates, target) if kernel is not None]
    finals = _compare(default, joined, deadline)
    best = min(finals, key=finals.__getitem__, default="")
    seconds = statistics.median(default.times)
    if best and finals[best] < _GAIN:
        return Outcome(use.name, use.calls, seconds, seconds * finals[best], best)
    return Outcome(use.name, use.calls, seconds, seconds)


def _alone(definition: PrimitiveDefinition, target: Target) -> list[str]:
    """The variants that differ from the default in one choice, as far as they are possible: one choice may exclude another."""
    every = [print_variant({name: text}) for name, texts in space(definition, target).items() for text in texts[1:]]
    return [variant for variant in every if _is_possible(definition, variant, target)]


def _is_possible(definition: PrimitiveDefinition, variant: str, target: Target) -> bool:
    try:
        return lower(definition, target, variant) is not None
    except CompileError:
        return False


def _promising(ratios: Mapping[str, float]) -> list[str]:
    """Of variants of one choice: the best one, and that which has the best choice of each kind."""
    best: dict[str, tuple[float, str]] = {}
    for variant, ratio in ratios.items():
        ((name, text),) = parse_variant(variant).items()
        if ratio < best.get(name, (_GAIN, ""))[0]:
            best[name] = ratio, text
    if not best:
        return []
    first = min(best, key=lambda name: best[name][0])
    return list(
        dict.fromkeys(
            [print_variant({first: best[first][1]}), print_variant({name: text for name, (_, text) in best.items()})]
        )
    )


def _compare(default: _Timed, others: Sequence[_Timed], deadline: float) -> dict[str, float]:
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


class _Memory:
    """A large stretch of numbers, from which constants are read; each time from another place if it is to be cold."""

    def __init__(self, cold_bytes: int) -> None:
        self.cold_bytes = cold_bytes
        self._numbers = np.zeros(0, np.float32)

    def places(self, size: int) -> list[np.ndarray]:
        """Stretches of so many bytes, one behind the other."""
        copies = min(_MOST_COPIES, math.ceil(self.cold_bytes / max(size, 1)) + 1) if self.cold_bytes else 1
        step = -(-size // 64) * 64
        if self._numbers.nbytes < copies * step + 64:
            some = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)
            self._numbers = np.resize(some, (copies * step + 64) // 4 + 16)
        start = -self._numbers.ctypes.data % 64 // 4
        return [self._numbers[start + i * step // 4 :] for i in range(copies)]


class _Data:
    """Operands for the kernels of a primitive: random ones, indices zero; symbolic dimensions are of one size."""

    def __init__(self, use: Use, memory: _Memory) -> None:
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
        sizes = tuple(dims.evaluate(dim, self._bound) for dim in shape)  # type: ignore[arg-type]
        if dtype.is_float:
            return rng.standard_normal(sizes, np.float32).astype(dtype.numpy)
        return np.zeros(sizes, dtype.numpy)

    def _bytes(self, number: int) -> int:
        type_ = self.definition.params[number]
        return math.prod(dims.evaluate(dim, self._bound) for dim in type_.shape) * type_.dtype.itemsize  # type: ignore[arg-type]

    def arguments(self, words: np.ndarray) -> list[np.ndarray]:
        """The arguments of calls, whose constants lie in different places."""
        variables = [self._bound[name] for name in self.definition.variables]
        return [
            np.array(
                [
                    words.ctypes.data,
                    *(
                        place.ctypes.data + offset if array is None else array.ctypes.data
                        for array, offset in zip(self._others, self._offsets, strict=True)
                    ),
                    *(array.ctypes.data for array in self._results),
                    *variables,
                ],
                np.int64,
            )
            for place in self.places
        ]

    def kernels(self, variants: Sequence[str], target: Target) -> list[_Timed | None]:
        """The variants' kernels, ready to be timed; None for one that is not possible, or not native."""
        possible = [variant for variant in variants if _is_possible(self.definition, variant, target)]
        built = build([self.definition] * len(possible), target, variants=possible, progress=False)
        timed = {
            variant: _Timed(variant, kernel, self)
            for variant, kernel in zip(possible, built, strict=True)
            if kernel is not None
        }
        return [timed.get(variant) for variant in variants]


_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 4)


class _Timed:
    """A kernel, loaded, with its operands."""

    def __init__(self, variant: str, kernel: library.BuiltKernel, data: _Data) -> None:
        self.variant = variant
        self.times: list[float] = []
        address = library.address_of(kernel)
        self._call = _PROTOTYPE(address)
        self._scratch = np.zeros(kernel.scratch_bytes + 64, np.uint8)
        self._words = np.array([*kernel.words, 0], np.int64)
        self._arguments = data.arguments(self._words)
        self._data = data
        self._next = self._endless()
        self.seconds(1)

    def _endless(self) -> Iterator[int]:
        while True:
            for arguments in self._arguments:
                yield arguments.ctypes.data

    def seconds(self, calls: int) -> float:
        """Of one call, the mean of so many."""
        outcome = (ctypes.c_int64 * 2)()
        at, scratch = ctypes.addressof(outcome), -(-self._scratch.ctypes.data // 64) * 64
        places = [next(self._next) for _ in range(calls)]
        call = self._call
        start = time.perf_counter()
        for place in places:
            call(at, at + 8, place, scratch, 0, 1)
        return (time.perf_counter() - start) / calls
