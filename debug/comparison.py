"""`compare`: a run, node by node, beside that of someone else.

A kernel's result is compared with the tensors of the model nodes that it was made of. Passes move work: the result of a
convolution that has taken in a normalisation is that of the normalisation, a tensor that was made later. So a result that differs
is a divergence only if a divergence, or a wrong result of the program, is made of it; else it is held in another way, on purpose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats.messages.calling import Suggesting, public, public_class
from ..formats.messages.terminal import showing
from ..vm.observe.hooks import Event
from .flow import Flow, Step, spread
from .references import Reference, Tensor, reference
from .subject import OPT_LEVEL, Subject, arguments, subject
from .tensors import bound, error, forms, least_error

if TYPE_CHECKING:
    from .bisection import Bisection
    from .kernels import Checked

EQUAL, CLOSE, LATER, ELSEWHERE, UNKNOWN, DIFFERS = "equal", "close", "later", "elsewhere", "unknown", "differs"
_MEANINGS = {
    EQUAL: "the same bits",
    CLOSE: "within the bound",
    LATER: "holds a tensor that the model makes later: a pass moved work here",
    ELSEWHERE: "differs, but nothing wrong is made of it: held in another way, or without effect",
    UNKNOWN: "no tensor of the reference to compare with",
    DIFFERS: "wrong, and so is what is made of it",
}
_ROWS = 40
_SAMPLE = 64


@public_class
@dataclass
class Row(Suggesting):
    """One result of a kernel, or (with no primitive) of the program. `error` and `bound` are as `tensors.py` has them."""

    node: str
    tensor: str  # of the reference, that it was compared with
    primitive: str
    type: str
    error: float
    bound: float
    depth: int
    status: str
    step: int = -1  # the call of the kernel in the run
    operators: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()  # constants of the model that its nodes read


@public_class
@dataclass
class Comparison(Suggesting):
    """The result of `compare`. `rows` are in the order of the run, results of the program last."""

    against: str
    rows: list[Row] = field(default_factory=list)
    cause: str = ""  # what is known of the first divergence
    bisection: Bisection | None = None

    @property
    def ok(self) -> bool:
        """True if all results of the program are right."""
        return all(row.status != DIFFERS for row in self.rows)

    @property
    def first(self) -> Row | None:
        """The first divergence: all that it is made of agrees, or is unknown."""
        return next((row for row in self.rows if row.status == DIFFERS), None)

    @property
    def worst(self) -> Row | None:
        """The largest error in units of its bound, of what was compared."""
        compared = [row for row in self.rows if row.status in (EQUAL, CLOSE, LATER, DIFFERS)]
        return max(compared, key=_excess, default=None)

    def __repr__(self) -> str:
        kernels = sum(bool(row.primitive) for row in self.rows)
        head = f"<Comparison with {self.against}: {kernels} tensors of kernels, {len(self.rows) - kernels} results"
        if self.first is None:
            return f"{head}, all agree>"
        return f"{head}; first divergence at {self.first.node!r}>"

    def _repr_html_(self) -> str:
        from ..formats.text.html import heading, preformatted, table, together

        head, *cells = self._cells(shown := self._shown(_ROWS))
        meanings = [(name, _MEANINGS[name]) for name in dict.fromkeys(row.status for row in shown)]
        verdict, *more = self._verdict().splitlines()
        return together(
            heading(verdict),
            preformatted("\n".join(more)) if more else "",
            table(head, cells, head[:3], more=len(self.rows) - len(shown), first_once=False),
            table(("status", "means"), meanings),
        )

    @showing
    def table(self, rows: int = _ROWS) -> str:
        """The verdict, then the rows: those around the first divergence if they are more than `rows`; 0 shows all."""
        lines = [self._verdict(), ""]
        shown = self._shown(rows)
        cells = self._cells(shown)
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines += ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells]
        if len(shown) < len(self.rows):
            lines.append(f"… {len(self.rows) - len(shown)} more rows")
        lines += ["", *(f"{name}: {_MEANINGS[name]}" for name in dict.fromkeys(row.status for row in shown))]
        return "\n".join(lines)

    def _cells(self, shown: Sequence[Row]) -> list[list[str]]:
        """The rows as text, under the names of the columns, of which the first three are numbers."""
        cells = [["error", "bound", "depth", "status", "tensor", "type", "node"]]
        for row in shown:
            numbers = [f"{row.error:.2g}" if row.status != UNKNOWN else "", f"{row.bound:.2g}", str(row.depth)]
            cells.append([*numbers, row.status, row.tensor, row.type, row.node])
        return cells

    def _shown(self, most: int) -> list[Row]:
        if not most or len(self.rows) <= most:
            return self.rows
        at = next((index for index, row in enumerate(self.rows) if row.status == DIFFERS), 0)
        start = max(0, min(at - most // 2, len(self.rows) - most))
        return self.rows[start : start + most]

    def _verdict(self) -> str:
        first, worst = self.first, self.worst
        at_worst = f"; largest error {worst.error:.2g} (bound {worst.bound:.2g}) at {worst.node!r}" if worst else ""
        if first is None:
            return f"agrees with {self.against}{at_worst}"
        text = f"differs from {self.against}\nfirst divergence: {first.node!r}, error {first.error:.2g} (bound {first.bound:.2g})"
        if first.tensor:
            text += f", tensor {first.tensor!r} {first.type}"
        if first.primitive:
            text += f", primitive {first.primitive}"
        text += f"{at_worst}".replace("; largest", "\nlargest")
        for more in (self.cause, str(self.bisection or "")):
            text += f"\n{more}" if more else ""
        return text

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON has it; infinite errors are the text "inf"."""
        return {
            "against": self.against,
            "ok": self.ok,
            "first": _plain(self.first),
            "worst": _plain(self.worst),
            "cause": self.cause,
            "bisection": None if self.bisection is None else asdict(self.bisection),
            "rows": [_plain(row) for row in self.rows],
        }

    def json(self) -> str:
        return json.dumps(self.as_dict(), ensure_ascii=False, indent=1)


def _excess(row: Row) -> float:
    return row.error / row.bound if row.bound else math.inf if row.error else 0.0


def _plain(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return asdict(row) | {"error": row.error if math.isfinite(row.error) else "inf"}


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
    of = subject(model, function=function, opt_level=opt_level, without=without, trust_native=trust_native)
    values = arguments(of.executable, function, feeds)
    wanted = reference(of, values, _default(of) if against is None else against)
    report = compare_with(of, values, wanted, tolerance)
    if bisect and not report.ok:
        from .bisection import bisected

        report.bisection = bisected(of, values, wanted, tolerance)
    if save is not None:
        from .case import save_case

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


def result_rows(results: Mapping[str, Any], wanted: Reference, depth: int, tolerance: float) -> list[Row]:
    """The results of the program beside those of the reference: by name, or, where names differ, by position."""
    by_name = all(name in wanted.results for name in results)
    others = wanted.results if by_name else dict(zip(results, wanted.results.values(), strict=False))
    rows = []
    for name, value in results.items():
        other = others.get(name)
        if not isinstance(value, np.ndarray) or other is None:
            rows.append(Row(f"result {name}", "", "", type(value).__name__, 0.0, 0.0, depth, UNKNOWN))
            continue
        limit = tolerance * bound(value.dtype, other.dtype, depth)
        differs = error(value, other) if value.shape == other.shape else math.inf
        status = _status(differs, limit, value, other)
        rows.append(Row(f"result {name}", name, "", _type(value), differs, limit, depth, status))
    return rows


def _status(differs: float, limit: float, found: np.ndarray, wanted: np.ndarray) -> str:
    if differs > limit:
        return DIFFERS
    return EQUAL if differs == 0 and found.dtype == wanted.dtype else CLOSE


def _type(array: np.ndarray) -> str:
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"


class _Watch(Flow):
    """Compares each result of a kernel when it is made."""

    def __init__(self, wanted: Reference, tolerance: float) -> None:
        super().__init__()
        self._wanted, self._tolerance = wanted, tolerance
        self.rows: list[Row] = []
        self._last: dict[int, int] = {}  # step → the order of the tensors that its own nodes make

    def result(self, step: Step, index: int, event: Event, register: int) -> None:
        array = event.tensor(register)
        own = self._wanted.of(step.node)
        row = Row(
            step.node, "", step.primitive, _type(array), 0.0, 0.0, step.depth, UNKNOWN, step.number, step.operators
        )
        row.weights = tuple(dict.fromkeys(name for tensor in own for name in tensor.weights))
        self.rows.append(row)
        fitting = [(found, tensor) for tensor in own if (found := least_error(array, tensor.array)) is not None]
        if not fitting:
            row.bound = self._bound(array, array, step)
            return
        differs, tensor = next(
            (pair for pair in fitting if pair[0] <= self._bound(array, pair[1].array, step)), fitting[0]
        )
        row.error, row.bound = differs, self._bound(array, tensor.array, step)
        row.tensor, row.status = tensor.name, _status(differs, row.bound, array, tensor.array)
        if row.status == DIFFERS:
            later = self._later(array, own[0].order, step)
            if later is not None:
                row.error, row.tensor, row.status = later[0], later[1].name, LATER

    def _bound(self, found: np.ndarray, wanted: np.ndarray, step: Step) -> float:
        return self._tolerance * bound(found.dtype, wanted.dtype, step.depth)

    def _later(self, array: np.ndarray, than: int, step: Step) -> tuple[float, Tensor] | None:
        """A tensor that the reference made later, and that this is. One made earlier it may be by a fault: of a kernel that only
        copies, say."""
        for tensor in self._wanted.later(than, array):
            if not spread(tensor.array):
                continue
            limit = self._bound(array, tensor.array, step)
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
        f"that it reads{named}, or the program"
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
