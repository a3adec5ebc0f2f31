"""Tuning of decisions before kernels: the algorithm of each convolution.

The layout pass asks for the tile size of Winograd's algorithm, or none. The cost model's answer
is compared with the others by measuring the convolutions alone, as `tune.py` measures variants. Another algorithm rounds
differently: results are as accurate, but not bitwise equal.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections import Counter
from collections.abc import Mapping

from ....formats.dtypes import DType
from ....formats.primitive import PrimitiveDefinition, PrimitiveNode
from ....formats.types import TensorType
from ....native import platform
from ....vm import library
from ... import bounds
from ...operators.shapes import integer
from ...operators.table import lookup
from .operators.packing import BLOCK
from .operators.winograd import TILES, Problem, Tiles, WinogradChoice, best_tiles
from .target import Target
from .timing import GAIN, Memory, Operands, Timed, Use, compare
from .tune import Outcome, Session

_SHARE = 0.4  # of the time; the rest is for the kernels


class Asked:
    """The cost model, and what it was asked."""

    def __init__(self, target: Target) -> None:
        self.problems: Counter[Problem] = Counter()
        self._target = target

    def __call__(self, problem: Problem) -> Tiles | None:
        self.problems[problem] += 1
        return _likely_best(problem, self._target)


def _likely_best(problem: Problem, target: Target) -> Tiles | None:
    return best_tiles(problem, registers=target.block_registers)


def choice(target: Target, measured: Mapping[Problem, Tiles | None], remembers: bool) -> WinogradChoice:
    """The measured tiles; else, if `remembers`, those in this machine's cache; else those of the cost model."""

    def choose(problem: Problem) -> Tiles | None:
        if problem in measured:
            return measured[problem]
        found = platform.cache().get(_key(problem, target)) if remembers else None
        return _likely_best(problem, target) if found is None else _BY_TEXT.get(found.decode())

    return choose


_BY_TEXT = {str(tiles): tiles for tiles in TILES}  # anything else is the direct algorithm


def measure(
    problems: Mapping[Problem, int], memory: Memory, target: Target, session: Session
) -> dict[Problem, Tiles | None]:
    """The fastest algorithms, the largest convolutions first, for a part of the session's time. The cache keeps them."""
    found: dict[Problem, Tiles | None] = {}
    deadline = session.deadline(_SHARE)
    try:
        for problem, calls in sorted(problems.items(), key=lambda item: -item[0].products * item[1]):
            bounds.check()
            if time.perf_counter() >= deadline:
                break
            found[problem] = _best(problem, calls, memory, target, session)
            platform.cache().put(_key(problem, target), str(found[problem]).encode())
    except KeyboardInterrupt:
        session.found.was_interrupted = True
    return found


def _key(problem: Problem, target: Target) -> str:
    identity = f"winograd {problem} {target.key} {library.compiler_version()}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _text(tiles: Tiles | None) -> str:
    if tiles is None:
        return "the direct algorithm"
    return f"Winograd's algorithm, tiles of {tiles.outputs}" + ", raw weights" * tiles.is_raw


def _best(problem: Problem, calls: int, memory: Memory, target: Target, session: Session) -> Tiles | None:
    """The fastest algorithm; the cost model's unless another one pays, which the session notes."""
    default = _likely_best(problem, target)
    possible = [None, *(tiles for tiles in TILES if tiles.take(problem))]
    others = [tiles for tiles in possible if tiles != default]
    kernels = {tiles: _kernel(problem, tiles, memory, target) for tiles in (default, *others)}
    base = kernels[default]
    ratios = {
        tiles: compare(base, [kernel], session.deadline(_SHARE))[""]
        for tiles in others
        if base is not None and (kernel := kernels[tiles]) is not None
    }
    best = min(ratios, key=ratios.__getitem__, default=default)
    if base is None or ratios.get(best, 1.0) >= GAIN:
        return default
    seconds = statistics.median(base.times)
    session.found.algorithms.append(Outcome(_name(problem), calls, seconds, seconds * ratios[best], _text(best)))
    return best


def _name(problem: Problem) -> str:
    images, channels, blocks, lines, columns, window, dilations, groups = problem
    name = f"convolution {'x'.join(map(str, window))}, {channels} to {blocks * BLOCK} channels, {lines}x{columns}"
    name += f" x{images}" * (images > 1) + f", {groups} groups" * (groups > 1)
    return name + f", dilated {'x'.join(map(str, dilations))}" * (max(dilations) > 1)


def _kernel(problem: Problem, tiles: Tiles | None, memory: Memory, target: Target) -> Timed | None:
    use = Use("conv", _definition(problem, tiles), 1, (False, True, True))
    return Operands(use, memory).kernels([""], target)[0]


def _definition(problem: Problem, tiles: Tiles | None) -> PrimitiveDefinition:
    """The convolution alone, with a bias; padded, so that the image is as large as the result."""
    images, channels, blocks, lines, columns, window, dilations, groups = problem
    operator, pads = "conv_blocked", [(size - 1) * step // 2 for size, step in zip(window, dilations, strict=True)]
    attributes: dict[str, object] = {"pads": (*pads, *pads), "channels": channels, "groups": groups}
    if tiles is None or not tiles.is_raw:
        attributes["dilations"] = dilations
    weight: tuple[int, ...] = (groups * blocks, -(-channels // BLOCK), *window, BLOCK, BLOCK)
    if tiles is not None:
        operator = "conv_winograd_raw" if tiles.is_raw else "conv_winograd"
    if tiles is not None and not tiles.is_raw:
        ends = (pad + more for pad, more in zip(pads, tiles.added(window, dilations), strict=True))
        attributes |= {"pads": (*pads, *ends), "window": tuple(tiles.filled(window))}
        plain = TensorType(DType.float32, (groups * blocks * BLOCK, channels, *window))
        (packed,) = lookup("pack_winograd_weights").result_types([plain], (("outputs", tiles.outputs),))
        weight = tuple(map(integer, packed.shape))
    image = (images, groups * -(-channels // BLOCK), lines, columns, BLOCK)
    params = tuple(TensorType(DType.float32, shape) for shape in (image, weight, (groups * blocks, 1, 1, BLOCK)))
    entry = lookup(operator)
    bound = entry.canonical(attributes)
    node = PrimitiveNode(operator, (0, 1, 2), entry.result_types(params, bound), bound)
    return PrimitiveDefinition(params, (node,), (len(params),))
