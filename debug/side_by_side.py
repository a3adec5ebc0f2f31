"""`compare`: a run, node by node, beside that of someone else.

A kernel's result is compared with the tensors of the model nodes that it was made of. Passes move work: the result of a
convolution that has taken in a normalisation is that of the normalisation, a tensor that was made later. So a result that differs
is a divergence only if a divergence, or a wrong result of the program, is made of it; else it is held in another way, on purpose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats.messages.calling import public
from ..formats.program import EXACT
from ..vm.observe.hooks import Event
from .bisection import bisected
from .case import save_case
from .comparison import DIFFERS, ELSEWHERE, LATER, UNKNOWN, Comparison, Row, result_rows, status_of, type_of
from .flow import Flow, Step, spread
from .references import Reference, Tensor, reference
from .subject import OPT_LEVEL, Subject, arguments, subject
from .tensors import bound, error, forms, is_float, least_error

if TYPE_CHECKING:
    from .kernels import Checked

_SAMPLE = 64


@public
def compare(
    model: Any,
    feeds: Mapping[str, Any] | Sequence[Any] | None = None,
    against: Any = None,
    *,
    function: str = "main",
    tolerance: float = 1.0,
    bisect: bool = False,
    save: str | Path | None = None,
    opt_level: int = OPT_LEVEL,
    without: Collection[str] = (),
    trust_native: bool = False,
    precision: str = EXACT,
) -> Comparison:
    """Runs a model here and by someone else, and compares every tensor that both make.

    model        an executable or a file of one; or what `treadle.compile` takes, which is compiled
    feeds        arrays by the names of the parameters, or in their order; None: random ones, always the same
    against      "onnxruntime" (the default for an ONNX model), "reference" (the operators' NumPy references; for an executable
                 alone each primitive by its definition: the default for all else), an executable, a model, or a file of either
    tolerance    a factor on all bounds
    bisect       find the kernel or the pass without which the results are right (`bisection.py`)
    save         a folder, new or empty, that gets what reproduces a divergence (`case.py`)

    Raises ArgumentError, MissingPackageError, and what compiling and running raise.
    """
    of = subject(
        model, function=function, opt_level=opt_level, without=without, trust_native=trust_native, precision=precision
    )
    values = arguments(of.executable, function, feeds)
    wanted = reference(of, values, _default(of) if against is None else against)
    report = compare_with(of, values, wanted, tolerance)
    if bisect and not report.ok:
        report.bisection = bisected(of, values, wanted, tolerance)
    if save is not None:
        save_case(save, of, values, wanted, report)
    return report


def _default(of: Subject) -> str:
    return "onnxruntime" if of.is_onnx else "reference"


def compare_with(of: Subject, feeds: Mapping[str, np.ndarray], wanted: Reference, tolerance: float = 1.0) -> Comparison:
    """The comparison of one run with a reference that has been made."""
    watch = _Watch(wanted, tolerance)
    results = of.run(feeds, watch)
    depth = 1 + max((step.depth for step in watch.steps), default=0)
    ends = result_rows(results, wanted, depth, tolerance)
    _judge(watch, any(row.status == DIFFERS for row in ends))
    report = Comparison(wanted.name, [*watch.rows, *ends])
    if report.first is not None and report.first.step >= 0:
        report.cause = _cause(of, feeds, report.first, wanted)
    return report


class _Watch(Flow):
    """Compares each result of a kernel when it is made."""

    def __init__(self, wanted: Reference, tolerance: float) -> None:
        super().__init__()
        self._wanted, self._tolerance = wanted, tolerance
        self.rows: list[Row] = []
        self._turns: dict[tuple[str, str, int], int] = {}  # how often a primitive has made a result of the same nodes

    def result(self, step: Step, index: int, event: Event, register: int) -> None:
        array = event.tensor(register)
        key = step.node, step.primitive, index
        turn = self._turns[key] = self._turns.get(key, -1) + 1
        own = self._wanted.of(step.node, turn, tuple(each.iteration for each in step.rounds))
        row = Row(
            step.node, "", step.primitive, type_of(array), 0.0, 0.0, step.depth, UNKNOWN, step.number, step.operators
        )
        row.iterations = step.iterations
        row.weights = tuple(dict.fromkeys(name for tensor in own for name in tensor.weights))
        self.rows.append(row)
        # numbers are not compared with codes
        alike = [tensor for tensor in own if is_float(tensor.array.dtype) == is_float(array.dtype)]
        fitting = [(found, each) for each in alike or own if (found := least_error(array, each.array)) is not None]
        if not fitting:
            row.bound = self._tolerance * bound(array.dtype, array.dtype, step.depth)
            return
        differs, tensor = next((pair for pair in fitting if pair[0] <= self._bound(array, pair[1], step)), fitting[0])
        row.error, row.bound = differs, self._bound(array, tensor, step)
        row.tensor, row.status = tensor.name, status_of(differs, row.bound, array, tensor.array)
        if row.status == DIFFERS:
            later = self._later(array, own[0], step)
            if later is not None:
                row.error, row.tensor, row.status = later[0], later[1].name, LATER

    def _bound(self, found: np.ndarray, wanted: Tensor, step: Step) -> float:
        return self._tolerance * bound(found.dtype, wanted.array.dtype, step.depth, wanted.step)

    def _later(self, array: np.ndarray, than: Tensor, step: Step) -> tuple[float, Tensor] | None:
        """A tensor that the reference made later, and that this is. One made earlier it may be by a fault: of a kernel that only
        copies, say."""
        for tensor in self._wanted.later(than, array):
            if not spread(tensor.array):
                continue
            limit = self._bound(array, tensor, step)
            for form in forms(array, tensor.array.shape):
                if _may_be(form, tensor.array, limit) and (differs := error(form, tensor.array)) <= limit:
                    return differs, tensor
        return None


def _may_be(found: np.ndarray, wanted: np.ndarray, limit: float) -> bool:
    """Whether a sample of the elements agrees; looking at all of all tensors would take long."""
    places = np.unravel_index(np.linspace(0, wanted.size - 1, _SAMPLE).astype(np.int64), wanted.shape)
    greatest = (
        float(np.abs(wanted[np.isfinite(wanted)], dtype=np.float64).max(initial=0.0)) if wanted.dtype.kind == "f" else 1
    )
    with np.errstate(invalid="ignore"):
        return not (np.abs(found[places].astype(np.float64) - wanted[places]) > limit * max(greatest, 1e-6)).any()


def _judge(watch: _Watch, wrong: bool) -> None:
    """Takes back what only looks like a divergence. A step whose results nobody reads is read by the program's results, which
    are `wrong` or not; one that cannot be compared hands on what its readers say."""
    rows: dict[int, list[Row]] = {}
    for row in watch.rows:
        rows.setdefault(row.step, []).append(row)
    bad: dict[int, bool] = {}
    for step in reversed(watch.steps):
        readers = watch.readers.get(step.number, [])
        is_read_badly = any(bad[reader] for reader in readers) if readers else wrong
        mine = rows.get(step.number, [])
        for row in mine:
            if row.status == DIFFERS and not is_read_badly:
                row.status = ELSEWHERE
        statuses = {row.status for row in mine}
        bad[step.number] = DIFFERS in statuses or (is_read_badly and statuses <= {UNKNOWN})


def _cause(of: Subject, feeds: Mapping[str, np.ndarray], first: Row, wanted: Reference) -> str:
    """Whether the kernel is to blame: its definition is evaluated on what it read, operator by operator."""
    from .kernels import check

    checked = check(of, feeds, first.step)
    if checked is None:
        return ""
    operators = ", ".join(first.operators)
    if not checked.is_right:
        worst = max(checked.errors)
        return (
            f"the kernel of {first.primitive} ({operators}) is wrong: of the same inputs, its definition gives results "
            f"that are {worst:.2g} away"
        )
    node, weights = _first_inside(checked, wanted, first)
    named = f" ({', '.join(weights)})" if weights else ""
    at = f", from {node!r} on" if node and node != first.node else ""
    return (
        f"the kernel of {first.primitive} ({operators}) computes what its definition says{at}: wrong are the constants "
        f"that it reads{named}, its attributes, or a pass that made them or it: `treadle diff` with the right program shows the "
        f"former, bisect=True, --bisect, the pass"
    )


def _first_inside(checked: Checked, wanted: Reference, first: Row) -> tuple[str, tuple[str, ...]]:
    """Of the nodes of one kernel, the first whose last operator gives what the reference does not, and the weights it reads."""
    last = {node: array for _, node, array in checked.inside()}
    for node, array in last.items():
        tensors = wanted.by_node.get(node, [])
        errors = [(found, each) for each in tensors if (found := least_error(array, each.array)) is not None]
        if not errors:  # whether it is right cannot be told, so neither who is first
            break
        if all(found > bound(array.dtype, each.array.dtype, first.depth) for found, each in errors):
            return node, tuple(dict.fromkeys(name for tensor in tensors for name in tensor.weights))
    return "", first.weights
