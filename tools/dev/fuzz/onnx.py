"""Compares random ONNX graphs as Treadle runs them with onnxruntime and `onnx.reference`.

    python -m treadle.tools.dev.fuzz.onnx --count 20000 --state graphs.json

Graph `number` is a function of the seed and its number (`random_onnx/walk.py`); how it is compiled is as in `fuzz_programs`, also
with `--off`. Each is called with what its values were judged by, with arguments that take it other ways where there are some
(conditions turned round, sequences of other lengths), and with other sizes where its inputs have symbolic ones.
What is merely unsupported is counted by what is missing; so are judges that refuse a node, or disagree.
"""

from __future__ import annotations

import copy
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import onnx

from ....compiler.driver import compile_module
from ....compiler.onnx.importer import from_onnx
from ....formats.executable import Executable, load
from ....formats.messages.errors import (
    CompileError,
    IndexOutOfRangeError,
    ShapeError,
    TreadleError,
    UnsupportedOperatorError,
)
from ....vm.machine import VirtualMachine
from . import runs
from .programs import BUDGETS, REFUSED, Finding, Setting, setting_of, tried
from .random_onnx.graphs import Sample, random_graph
from .random_onnx.judges import Array, Refused, by_onnxruntime, by_reference, difference, is_tensor
from .random_onnx.walk import beyond

_NUDGES = 6


def sample_of(seed: int, number: int) -> Sample:
    """Graph `number` of a run."""
    return random_graph(Random(f"{seed} {number} onnx"))


def try_graph(seed: int, number: int, off: bool = False) -> str:
    """What comes of a graph: a kind, or "finding: …"."""
    setting = setting_of(seed, number, off)
    return tried(setting, lambda: try_sample(sample_of(seed, number), setting))


def try_sample(sample: Sample, setting: Setting) -> str:
    """What comes of a graph. Raises Finding for what must not happen."""
    if not sample.outputs:
        return "no nodes"
    models = [sample.model, *([sample.fixed()] if sample.has_symbols else [])]
    for fixed, model in enumerate(models):  # one that is not compiled for all sizes is for the witness's
        try:
            program = _program(model, setting)
            break
        except UnsupportedOperatorError as error:
            refused = f"unsupported: {_missing(error)}"
        except CompileError as error:
            if not fixed and any(text in error.message for text in REFUSED):
                return "refused: a size that nothing says"
            if model is models[-1]:
                raise Finding(f"compile: {type(error).__name__}: {error}") from None
    else:
        return refused
    executable = load(Executable(program).as_bytes())
    machine = VirtualMachine(executable, kernels="build" if setting.native else "cached", **BUDGETS)
    feeds = sample.feeds()
    expected = [value.expected for value in sample.outputs]
    outcome = _compared(sample, machine, feeds, expected)
    if fixed:
        return f"{outcome}, of fixed sizes"
    turned = sample.turned()
    if turned and (due := _due(sample, turned)):
        try:
            _compared(sample, machine, turned, due, witness=False)
        except (ShapeError, IndexOutOfRangeError) as error:
            if _is_taken_by_both(sample, turned):
                raise Finding(f"run: {error}") from None
            outcome = "equal, another way is refused"
    for _, other in zip(range(2), sample.other_sizes(), strict=False):
        due = _due(sample, other)
        if not due:
            continue
        try:
            _compared(sample, machine, other, due, witness=False)
        except (ShapeError, IndexOutOfRangeError):  # a node held a symbolic size to one number
            outcome = "equal, other sizes are refused"
    return outcome


def _due(sample: Sample, feeds: dict[str, Array]) -> list[tuple[Array, ...]]:
    """What the outputs may be for other sizes, by either judge: of an operator about which they disagree, what either says. Empty
    where onnxruntime does not take them, integers may have left their range, or the standard leaves open what a node gives."""
    try:
        told = by_onnxruntime(sample.model, feeds)
        if sample.is_open(feeds):
            return []
    except Refused:
        return []
    if any(beyond(value.operator, each) for value, each in zip(sample.outputs, told, strict=True)):
        return []
    return [(each, *_by_reference(sample, value.name, feeds)) for value, each in zip(sample.outputs, told, strict=True)]


def _is_taken_by_both(sample: Sample, feeds: dict[str, Array]) -> bool:
    """Whether the reference takes these arguments too: onnxruntime does not compare all sizes, of GatherND for one."""
    try:
        by_reference(sample.model, feeds)
    except Refused:
        return False
    return True


def _by_reference(sample: Sample, output: str, feeds: dict[str, Array]) -> list[Array]:
    """The output, or nothing where the reference does not take what it is made of."""
    try:
        return by_reference(sample.part([output]), feeds)
    except Refused:
        return []


def _program(model: Any, setting: Setting) -> Any:
    return compile_module(from_onnx(model), opt_level=setting.level, without=setting.without).program


def _compared(
    sample: Sample, machine: Any, feeds: dict[str, Array], expected: Sequence[tuple[Array, ...]], witness: bool = True
) -> str:
    try:
        with np.errstate(all="ignore"):
            given = [copy.deepcopy(array) for array in feeds.values()]
            results = machine["main"](*given)
    except (ShapeError, IndexOutOfRangeError) as error:
        if not witness:
            raise
        raise Finding(f"run: {error}") from None
    except TreadleError as error:
        raise Finding(f"run: {type(error).__name__}: {error}") from None
    results = results if isinstance(results, tuple) else (results,)
    if len(results) != len(expected):
        raise Finding(f"{len(results)} results, {len(expected)} are due")
    for value, got, wanted in zip(sample.outputs, results, expected, strict=True):
        faults = [difference(plain(got), each, value.slack, sample.coarse) for each in wanted]
        if not all(faults):
            continue
        if _jumps(sample, feeds):
            return "the judges jump"
        raise Finding(
            f"{value.operator} {value.name}, {value.judges}: {' | '.join(str(fault)[:200] for fault in faults)}"
        )
    return "equal"


def plain(result: Any) -> Array:
    """A result as the judges have it: what the machine gives is an array, None, or a list of such."""
    if isinstance(result, list):
        return [plain(each) for each in result]
    return None if result is None else np.asarray(result)


def _jumps(sample: Sample, feeds: dict[str, Array]) -> bool:
    """Whether a judge itself gives something else for arguments that differ by rounding."""
    rng = np.random.default_rng(0)
    for judge in (by_onnxruntime, by_reference):
        try:
            plain = judge(sample.model, feeds)
            for _ in range(_NUDGES):
                nudged = judge(sample.model, {name: _nudged(array, rng) for name, array in feeds.items()})
                if any(difference(a, b, 1.0, sample.coarse) for a, b in zip(nudged, plain, strict=True)):
                    return True
            return False
        except Refused:
            continue
    return False


def _nudged(array: Array, rng: np.random.Generator) -> Array:
    if isinstance(array, list):
        return [_nudged(each, rng) for each in array]
    if not is_tensor(array) or array.dtype.kind != "f":
        return array
    return np.asarray(array * (1 + np.finfo(array.dtype).eps * rng.uniform(-2, 2, array.shape))).astype(array.dtype)


def _missing(error: UnsupportedOperatorError) -> str:
    """What is not supported, without names and numbers, to count by."""
    words = [word for word in error.message.replace(":", " ").split() if not any(letter.isdigit() for letter in word)]
    return " ".join(words)[:120]


def judged(seed: int, count: int) -> Counter[str]:
    """How often each operator is in the graphs of a run, and how often a judge refused one, or both disagreed."""
    total: Counter[str] = Counter()
    for number in range(count):
        total += sample_of(seed, number).tally
    return total


def _show(options: Namespace, number: int) -> None:
    print(onnx.printer.to_text(sample_of(options.seed, number).model))


def _trial(options: Namespace) -> Callable[[int], str]:
    return lambda number: try_graph(options.seed, number, options.off)


def main(arguments: list[str] | None = None) -> int:
    return runs.main(runs.Fuzzer(__spec__.name, "graph", __doc__ or "", _trial, _show, runs.add_off, jobs=0), arguments)


if __name__ == "__main__":
    sys.exit(main())
