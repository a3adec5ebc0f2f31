"""What the fuzzer does with a definition that it changed: checks it, lowers it, and runs its kernel between forbidden pages.

The result is compared with the reference evaluator's. This is for a child process: what is out of bounds kills it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from ....compiler.check import check_definition
from ....compiler.ir.evaluate import evaluate_definition
from ....compiler.operators import TABLE
from ....compiler.targets.cpu.kernels.lower import lower
from ....compiler.targets.cpu.target import host
from ....formats import dims
from ....formats.messages.errors import CompileError, TreadleError
from ....formats.primitive import PrimitiveDefinition, form_problem
from ....formats.types import UNKNOWN, TensorType
from .forbidden_pages import kernel_of, run_kernel

_SIZES = (0, 1, 2, 3, 4, 5, 7, 16, 17, 33)
_ELEMENTS = 1 << 16  # of all values of a definition that is run, so that the reference takes no time
_WORK = 1 << 24  # elements times elements: what a window or a sum may cost the reference
# Their last block may hold anything behind the last channel, and packed weights of Winograd's may be no one's transform.
_LOOSE = {name for name, entry in TABLE.items() if entry.infer.__module__.endswith(("blocked", "winograd", "packing"))}


def try_definition(definition: PrimitiveDefinition, random: Random, announce: Callable[[], None], built: float) -> str:
    """What comes of it, in words. `announce` is called before a kernel is built, which takes its time: `built` is how many are.

    Raises TreadleError for what is refused.
    """
    if any(name in TABLE and not _is_modest(value) for name, value in _attributes(definition)):
        return "too large"
    try:
        check_definition(definition)
    except TreadleError:
        return "refused by its form" if form_problem(definition) else "refused by its types"
    sizes = {name: random.choice(_SIZES) for name in definition.variables}
    arrays = _arguments(definition, sizes, random)
    if arrays is None:
        return "checked, too large to run"
    if lower(definition, host()) is None:
        return "checked, no kernel"
    if random.random() >= built:
        return "checked, lowered"
    announce()
    try:
        kernel_of(definition, host())
    except CompileError as error:
        return f"bug, its text does not compile: {error.message[:80]}"
    announce()
    parts, at_start = random.choice((1, 1, 2, 3)), random.random() < 0.5
    code, outputs = run_kernel(definition, arrays, sizes, parts, at_start=at_start)
    return _compared(definition, arrays, sizes, code, outputs)


def _attributes(definition: PrimitiveDefinition) -> list[tuple[str, object]]:
    return [(node.operator, value) for node in definition.nodes for _, value in node.attributes]


def _is_modest(value: object) -> bool:
    """Attributes that ask for no large work; how large ones are bounded is the subject of other tests."""
    if isinstance(value, tuple):
        return len(value) < 100 and all(map(_is_modest, value))
    return isinstance(value, bool) or not isinstance(value, int) or abs(value) < 1000 or abs(value) >= 1 << 60


def _arguments(definition: PrimitiveDefinition, sizes: dict[str, int], random: Random) -> list[np.ndarray] | None:
    """Values for the parameters; None where a shape is not known, negative, or large."""
    counts = []
    try:
        for type_ in definition.values:
            shape = _shape(type_, sizes)
            if shape is None or min(shape, default=0) < 0:
                return None
            counts.append(math.prod(shape))
    except ZeroDivisionError:
        return None
    if sum(counts) > _ELEMENTS or max(counts, default=0) * max(counts[: len(definition.params)], default=1) > _WORK:
        return None
    return [_array(type_, _shape(type_, sizes) or (), random) for type_ in definition.params]


def _shape(type_: TensorType, sizes: dict[str, int]) -> tuple[int, ...] | None:
    if UNKNOWN in type_.shape:
        return None
    return tuple(dims.evaluate(dim, sizes) for dim in type_.shape)  # type: ignore[arg-type]


def _array(type_: TensorType, shape: tuple[int, ...], random: Random) -> np.ndarray:
    generator = np.random.default_rng(random.randrange(1 << 32))
    if type_.dtype.is_float:
        return np.asarray(generator.standard_normal(shape)).astype(type_.dtype.numpy)
    if type_.dtype.is_integer:
        low, high = random.choice(((0, 2), (0, 4), (-3, 5), (-100, 100)))  # indices, often ones that exist
        low = 0 if type_.dtype.name.startswith("u") else low
        return np.asarray(generator.integers(low, high, shape)).astype(type_.dtype.numpy)
    return np.asarray(generator.random(shape) < 0.5)


def _compared(
    definition: PrimitiveDefinition, arrays: Sequence[np.ndarray], sizes: dict[str, int], code: int, outputs: list
) -> str:
    try:
        wanted = evaluate_definition(definition, arrays, [sizes[name] for name in definition.variables])
    except TreadleError:
        empty = not any(output.size for output in outputs)
        return "ran, failed as the reference" if code or empty else "ran where the reference fails"
    if code:
        return f"wrong code {code}"
    if any(node.operator in _LOOSE for node in definition.nodes):
        return "ran"
    is_narrow = any(("narrow", True) in node.attributes for node in definition.nodes)  # few queries are float32
    for got, want in zip(outputs, wanted, strict=True):
        if not _is_close(got, want, 4e-2 if is_narrow or got.dtype == np.float16 else 2e-3):
            return "wrong result"
    return "ran, same result"


def _is_close(got: np.ndarray, want: np.ndarray, coarse: float) -> bool:
    if got.dtype.kind not in "fV" or got.dtype.names:  # V: ml_dtypes' floats, whose NaNs are equal here too
        return bool((got == want).all())
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        scale = max(1.0, float(np.nanmax(np.abs(b[np.isfinite(b)]), initial=0.0)))
        same = np.isclose(a, b, coarse, coarse * scale, equal_nan=True)
        huge = (np.abs(a) > 1e30) & (np.abs(b) > 1e30)  # one overflowed, the other nearly
    return bool((same | huge).all())
