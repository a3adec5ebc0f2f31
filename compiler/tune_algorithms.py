"""Tuning of what is decided before there are kernels: by which algorithm a 3x3 convolution is done.

The layout pass asks how large the tiles of Winograd's algorithm shall be, if it shall be that at all. The cost model's answer
is compared with the others by measuring the convolutions alone, as `tune.py` measures variants. Another algorithm rounds
otherwise: results are as accurate as those of any model that the cost model decides about, but not the same bits.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections import Counter
from collections.abc import Mapping

from ..formats.dtypes import DType
from ..formats.primitive import PrimitiveDefinition, PrimitiveNode
from ..formats.types import TensorType
from ..vm import library, native
from .kernels.target import Target
from .operators.blocked import BLOCK
from .operators.table import lookup
from .operators.winograd import TILES, WINDOW_SIZE, WinogradChoice, best_outputs, transforms
from .timing import GAIN, Memory, Operands, Timed, Use, compare
from .tune import Outcome, Session

Problem = tuple[int, int, int, int]  # channels, blocks of output channels, lines and columns of the result

_SHARE = 0.4  # of the time, which is left for the kernels otherwise


class Asked:
    """The cost model, and what it was asked."""

    def __init__(self) -> None:
        self.problems: Counter[Problem] = Counter()

    def __call__(self, channels: int, blocks: int, lines: int, columns: int) -> int | None:
        problem = (channels, blocks, lines, columns)
        self.problems[problem] += 1
        return best_outputs(*problem)


def choice(target: Target, measured: Mapping[Problem, int | None], remembers: bool) -> WinogradChoice:
    """What was measured; else, if it is asked for, what this machine's cache remembers; else what the cost model says."""

    def choose(channels: int, blocks: int, lines: int, columns: int) -> int | None:
        problem = (channels, blocks, lines, columns)
        if problem in measured:
            return measured[problem]
        found = native.cache().get(_key(problem, target)) if remembers else None
        return best_outputs(*problem) if found is None else int(found) or None

    return choose


def measure(
    problems: Mapping[Problem, int], memory: Memory, target: Target, session: Session
) -> dict[Problem, int | None]:
    """The fastest algorithms, the largest convolutions first, for a part of the session's time. The cache keeps them."""
    found: dict[Problem, int | None] = {}
    deadline = session.deadline(_SHARE)
    try:
        for problem, calls in sorted(problems.items(), key=lambda item: -_size(item[0]) * item[1]):
            if time.perf_counter() >= deadline:
                break
            found[problem] = _best(problem, calls, memory, target, session)
            native.cache().put(_key(problem, target), str(found[problem] or 0).encode())
    except KeyboardInterrupt:
        session.found.was_interrupted = True
    return found


def _size(problem: Problem) -> int:
    channels, blocks, lines, columns = problem
    return channels * blocks * lines * columns


def _key(problem: Problem, target: Target) -> str:
    identity = f"winograd {problem} {target.key} {library.compiler_version()}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _text(outputs: int | None) -> str:
    return f"Winograd's algorithm, tiles of {outputs}" if outputs else "the direct algorithm"


def _best(problem: Problem, calls: int, memory: Memory, target: Target, session: Session) -> int | None:
    """The fastest algorithm; the cost model's unless another one is worth it, which is told to the session."""
    default = best_outputs(*problem)
    others = [outputs for outputs in (None, *TILES) if outputs != default and (outputs or 0) <= min(problem[2:])]
    kernels = {outputs: _kernel(problem, outputs, memory, target) for outputs in (default, *others)}
    base = kernels[default]
    ratios = {
        outputs: compare(base, [kernel], session.deadline(_SHARE))[""]
        for outputs in others
        if base is not None and (kernel := kernels[outputs]) is not None
    }
    best = min(ratios, key=ratios.__getitem__, default=default)
    if base is None or ratios.get(best, 1.0) >= GAIN:
        return default
    seconds = statistics.median(base.times)
    channels, blocks, lines, columns = problem
    name = f"convolution 3x3, {channels} to {blocks * BLOCK} channels, {lines}x{columns}"
    session.found.algorithms.append(Outcome(name, calls, seconds, seconds * ratios[best], _text(best)))
    return best


def _kernel(problem: Problem, outputs: int | None, memory: Memory, target: Target) -> Timed | None:
    use = Use("conv", _definition(problem, outputs), 1, (False, True, True))
    return Operands(use, memory).kernels([""], target)[0]


def _definition(problem: Problem, outputs: int | None) -> PrimitiveDefinition:
    """The convolution alone, with a bias; padded, so that the image is as large as the result."""
    channels, blocks, lines, columns = problem
    operator = "conv_winograd" if outputs else "conv_blocked"
    weight: tuple[int, ...]
    if outputs:
        size = transforms(outputs).inputs
        weight = (blocks, size, size, channels, BLOCK)
    else:
        weight = (blocks, -(-channels // BLOCK), WINDOW_SIZE, WINDOW_SIZE, BLOCK, BLOCK)
    image = (1, -(-channels // BLOCK), lines, columns, BLOCK)
    params = tuple(TensorType(DType.float32, shape) for shape in (image, weight, (blocks, 1, 1, BLOCK)))
    entry = lookup(operator)
    attributes = entry.canonical({"pads": (1, 1, 1, 1), "channels": channels})
    node = PrimitiveNode(operator, (0, 1, 2), entry.result_types(params, attributes), attributes)
    return PrimitiveDefinition(params, (node,), (len(params),))
