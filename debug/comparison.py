"""What `compare` (`side_by_side.py`) found: results of kernels and of the program beside those of a reference."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..formats.messages.calling import Suggesting, public_class
from ..formats.messages.terminal import showing
from .references import Reference
from .tensors import bound, error

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
    iterations: str = (
        ""  # of the loops that the kernel was called in, the innermost first, and the depth of nested calls
    )

    @property
    def place(self) -> str:
        """The node, and in which iterations."""
        return f"{self.node}, {self.iterations}" if self.iterations else self.node


@dataclass
class Bisection:
    """`kind`: "kernel", "pass", "model" or "open"; `names` are primitives or the pass; `right`: whether the results are right
    without them."""

    kind: str
    names: tuple[str, ...]
    right: bool
    detail: str
    runs: int

    @showing
    def __str__(self) -> str:
        return f"bisection ({self.runs} runs): {self.detail}"


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
            cells.append([*numbers, row.status, row.tensor, row.type, row.place])
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
        at_worst += f", {worst.iterations}" if worst and worst.iterations else ""
        if first is None:
            return f"agrees with {self.against}{at_worst}"
        text = f"differs from {self.against}\nfirst divergence: {first.node!r}, error {first.error:.2g} (bound {first.bound:.2g})"
        if first.tensor:
            text += f", tensor {first.tensor!r} {first.type}"
        if first.primitive:
            text += f", primitive {first.primitive}"
        text += f", {first.iterations}" if first.iterations else ""
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


def result_rows(results: Mapping[str, Any], wanted: Reference, depth: int, tolerance: float) -> list[Row]:
    """The results of the program beside those of the reference: by name, or, where names differ, by position."""
    by_name = all(name in wanted.results for name in results)
    others = wanted.results if by_name else dict(zip(results, wanted.results.values(), strict=False))
    steps = {tensor.name: tensor.step for tensor in wanted.tensors}
    rows = []
    for name, value in results.items():
        other = others.get(name)
        if not isinstance(value, np.ndarray) or other is None:
            rows.append(Row(f"result {name}", "", "", type(value).__name__, 0.0, 0.0, depth, UNKNOWN))
            continue
        limit = tolerance * bound(value.dtype, other.dtype, depth, steps.get(name if by_name else "", 0.0))
        differs = error(value, other) if value.shape == other.shape else math.inf
        status = status_of(differs, limit, value, other)
        rows.append(Row(f"result {name}", name, "", type_of(value), differs, limit, depth, status))
    return rows


def status_of(differs: float, limit: float, found: np.ndarray, wanted: np.ndarray) -> str:
    if differs > limit:
        return DIFFERS
    return EQUAL if differs == 0 and found.dtype == wanted.dtype else CLOSE


def type_of(array: np.ndarray) -> str:
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"
