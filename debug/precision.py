"""The search of `treadle.compile(precision="auto")`: as much bfloat16 as a tolerance allows.

Where all that may be narrow is within the tolerance, all is. Else nodes are measured in groups, each group narrow by itself.
Errors that know nothing of each other add up as squares: their sum is the budget, and groups are taken by the work that they have
for each part of it. What was chosen is measured as a whole, and checked on samples that the search has not seen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from ..compiler.targets.choice import backend_of
from ..formats import limits
from ..formats.executable import Executable
from ..formats.messages.errors import ArgumentError
from ..formats.program import AUTO, EXACT, PRECISION, PRECISION_REPORT
from ..vm.machine import VirtualMachine
from .subject import arguments
from .tensors import error

NARROW = "bfloat16"
_GROUPS = 12  # of nodes that are measured together: as many compilations, each a second or so once kernels are built
_MORE = 6  # groups, at most, that are tried beside those whose errors are within the tolerance by themselves
# Share of the tolerance that samples of the search may take: on the zoo's 27 models others differ by less than the rest
_HEADROOM = 0.8
_SEEDED = 3  # samples that are made where none are given; the last third of all is kept for the check

Feeds = Mapping[str, np.ndarray]


def compiled(
    compile_: Callable[..., Executable], model: Any, options: Mapping[str, Any], tolerance: float, samples: Any
) -> Executable:
    """The executable, with a report in its metadata. `compile_` is `treadle.compile`, `options` are its other arguments.

    Raises ArgumentError for samples or a tolerance that are none, and what compiling and running raise.
    """
    try:
        most = float(tolerance) if isinstance(tolerance, Real) and not isinstance(tolerance, bool) else math.nan
    except OverflowError:
        most = math.inf
    if not 0 < most < math.inf:
        raise ArgumentError(
            f"tolerance={tolerance!r}: expected a number above 0, the largest error as a share of an output"
        )
    return _Search(compile_, model, options, most, samples).run()


class _Search:
    def __init__(
        self,
        compile_: Callable[..., Executable],
        model: Any,
        options: Mapping[str, Any],
        tolerance: float,
        samples: Any,
    ) -> None:
        self._compile, self._model, self._options, self._tolerance = compile_, model, options, tolerance
        entry = options.get("entry") or "main"
        self._function = entry if isinstance(entry, str) else entry[0]
        exact, _ = self._built(EXACT)
        self._source, given = _samples(exact, self._function, samples)
        machine = VirtualMachine(exact)
        pairs = [(feeds, self._results(machine, feeds)) for feeds in given]
        kept = max(1, len(pairs) // 3) if len(pairs) > 1 else 0
        self._seen, self._unseen = pairs[: len(pairs) - kept], pairs[len(pairs) - kept :]

    def _built(self, precision: str | Mapping[str, str]) -> tuple[Executable, dict[str, int]]:
        """The program of that precision, and the work of the nodes that may be narrow."""
        backend = backend_of(self._options.get("target"), precision)
        executable = self._compile(self._model, **{**self._options, "target": backend, "progress": False})
        return executable, backend.narrowing.met

    def run(self) -> Executable:
        executable, work = self._built(NARROW)
        found = self._errors(executable)
        if self._is_within(found):
            return self._told(executable, dict.fromkeys(work, found[0]), work, found)
        groups = _in_groups(work)
        alone = (VirtualMachine(self._built(dict.fromkeys(group, NARROW))[0]) for group in groups)
        errors = [self._error(machine, self._seen) for machine in alone]
        order = sorted(
            range(len(groups)), key=lambda at: errors[at] ** 2 / (1 + sum(work[name] for name in groups[at]))
        )
        chosen: list[int] = []
        for at in order:
            if sum(errors[each] ** 2 for each in (*chosen, at)) <= (_HEADROOM * self._tolerance) ** 2:
                chosen.append(at)
        best = self._measured(groups, chosen)
        while chosen and not self._is_within(best[1]):
            chosen.pop()
            best = self._measured(groups, chosen)
        for at in [at for at in order if at not in chosen][:_MORE]:  # errors seldom add up to all that they may
            more = self._measured(groups, [*chosen, at])
            if self._is_within(more[1]):
                chosen, best = [*chosen, at], more
        return self._told(best[0], {name: errors[at] for at in chosen for name in groups[at]}, work, best[1])

    def _measured(
        self, groups: Sequence[Sequence[str]], chosen: Sequence[int]
    ) -> tuple[Executable, tuple[float, float]]:
        """The program whose chosen groups are narrow, and its errors."""
        nodes = {name: NARROW for at in chosen for name in groups[at]}
        executable, _ = self._built(nodes or EXACT)
        return executable, self._errors(executable)

    def _errors(self, executable: Executable) -> tuple[float, float]:
        """On the samples of the search, and on those that are kept for the check, of which there may be none."""
        machine = VirtualMachine(executable)
        return self._error(machine, self._seen), self._error(machine, self._unseen)

    def _is_within(self, errors: tuple[float, float]) -> bool:
        return errors[0] <= _HEADROOM * self._tolerance and errors[1] <= self._tolerance

    def _error(self, machine: VirtualMachine, samples: Sequence[tuple[Feeds, list[np.ndarray]]]) -> float:
        """The largest of all outputs on all samples, as a share of an output's largest element."""
        pairs = (zip(self._results(machine, feeds), wanted, strict=True) for feeds, wanted in samples)
        return max((error(got, wanted) for each in pairs for got, wanted in each), default=0.0)

    def _results(self, machine: VirtualMachine, feeds: Feeds) -> list[np.ndarray]:
        return list(_tensors(machine[self._function](*feeds.values())))

    def _told(
        self, executable: Executable, nodes: Mapping[str, float], work: Mapping[str, int], errors: tuple[float, float]
    ) -> Executable:
        report: dict[str, Any] = {
            "tolerance": self._tolerance,
            "samples": self._source,
            "error": errors[0],
            "unseen": errors[1] if self._unseen else None,
            "nodes": [
                [name, NARROW if name in nodes else EXACT, count, nodes.get(name)] for name, count in work.items()
            ],
        }
        while len(text := json.dumps(report)) > limits.STRING_BYTES:  # of many nodes or long names
            least = sorted(report["nodes"], key=lambda row: row[2])[: len(report["nodes"]) // 4 + 1]
            report["nodes"] = [row for row in report["nodes"] if row not in least]
        return executable.with_metadata({PRECISION: AUTO, PRECISION_REPORT: text})


def _tensors(result: Any) -> Iterator[np.ndarray]:
    """The tensors of a result. Raises ArgumentError for a function, which cannot be measured."""
    if hasattr(result, "__array__"):
        yield np.asarray(result)
    elif isinstance(result, tuple) or hasattr(result, "fields"):
        for each in result if isinstance(result, tuple) else result.fields:
            yield from _tensors(each)
    else:
        raise ArgumentError(
            f'precision="auto": a result is a {type(result).__name__}, which has no error; give a precision'
        )


def _samples(executable: Executable, function: str, samples: Any) -> tuple[str, list[Feeds]]:
    """Where they are from, and arrays by the names of the parameters, one mapping for each sample."""
    if samples is None:
        made: list[Feeds] = [arguments(executable, function, None, seed) for seed in range(_SEEDED)]
        return f"{_SEEDED} from seeds", made
    given = samples if isinstance(samples, (list, tuple)) and not isinstance(samples[:1], np.ndarray) else [samples]
    if not given:
        raise ArgumentError(
            "samples: expected one mapping of arrays by the names of inputs, or a list of such, got none"
        )
    return f"{len(given)} given", [arguments(executable, function, each) for each in given]


def _in_groups(work: Mapping[str, int]) -> list[list[str]]:
    """Neighbouring nodes, in groups of about equal work."""
    whole = sum(work.values()) + len(work)
    groups: list[list[str]] = [[] for _ in range(_GROUPS)]
    before = 0
    for name, count in work.items():
        groups[before * _GROUPS // whole].append(name)
        before += count + 1
    return [group for group in groups if group]
