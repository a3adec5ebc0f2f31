"""A report of what was measured: calls with their metrics, devices', and the configuration; as a table, as CSV, as JSON and back.

The layouts of the three are TVM's, and so are the names of metrics. Text is escaped, which TVM does not do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...formats.messages.calling import Suggesting, mapping, public_class, told
from ...formats.messages.errors import ArgumentError, FormatError
from ...formats.messages.terminal import showing

NAME, DURATION, PERCENT, DEVICE, COUNT, SHAPES, NODE, LONGEST = (
    "Name",
    "Duration (us)",
    "Percent",
    "Device",
    "Count",
    "Argument Shapes",
    "Node",  # of the model, or the user's line: Treadle's own column
    "Longest in",  # the iteration of a loop in which it took longest: likewise
)
_BARS = 20  # of the longest calls
_FIRST_COLUMNS = (NAME, DURATION, PERCENT, DEVICE, COUNT, SHAPES)


@dataclass(frozen=True)
class Count:
    """How often something happened."""

    value: int

    def __str__(self) -> str:
        return f"{self.value:,}"


@dataclass(frozen=True)
class Duration:
    """A time in microseconds."""

    microseconds: float

    @property
    def value(self) -> float:
        return self.microseconds

    def __str__(self) -> str:
        return f"{self.microseconds:,.2f}"


@dataclass(frozen=True)
class Percent:
    """A share in hundredths."""

    percent: float

    @property
    def value(self) -> float:
        return self.percent

    def __str__(self) -> str:
        return f"{self.percent:,.2f}"


@dataclass(frozen=True)
class Ratio:
    """How many times as much something is."""

    ratio: float

    @property
    def value(self) -> float:
        return self.ratio

    def __str__(self) -> str:
        return f"{self.ratio:,.2f}"


Metric = Count | Duration | Percent | Ratio | str
Metrics = Mapping[str, Metric]

# The name of a kind in JSON → what makes one, and whether its value is this kind's
_KINDS: dict[str, tuple[type, Callable[[Any], bool]]] = {
    "microseconds": (Duration, lambda value: _is_number(value)),
    "percent": (Percent, lambda value: _is_number(value)),
    "count": (Count, lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "ratio": (Ratio, lambda value: _is_number(value)),
    "string": (str, lambda value: isinstance(value, str)),
}
_NAMES = {kind: name for name, (kind, _) in _KINDS.items()}


def timed(name: str, seconds: float, whole: float, shapes: str, count: int = 1) -> dict[str, Metric]:
    """The row of a call that took some seconds of the whole's."""
    times: dict[str, Metric] = {
        DURATION: Duration(seconds * 1e6),
        PERCENT: Percent(100 * seconds / whole if whole else 0.0),
    }
    return {NAME: name, **times, DEVICE: "cpu0", COUNT: Count(count), SHAPES: shapes}


def in_all(seconds: float) -> dict[str, Metrics]:
    """The metrics of the CPU, on which one call took that long."""
    return {"cpu0": {DURATION: Duration(seconds * 1e6), COUNT: Count(1), DEVICE: "cpu0"}}


@public_class
class Report(Suggesting):
    """Measurements: `calls`, each with metrics by name; `device_metrics` by device; `configuration`."""

    def __init__(
        self,
        calls: Sequence[Metrics],
        device_metrics: Mapping[str, Metrics] | None = None,
        configuration: Metrics | None = None,
    ) -> None:
        self.calls = [dict(call) for call in calls]
        self.device_metrics = {str(device): dict(metrics) for device, metrics in (device_metrics or {}).items()}
        self.configuration: dict[str, Metric] = dict(configuration or {})

    def renamed(self, names: Mapping[str, str]) -> Report:
        """The same report, with other names for calls of these names."""
        mapping("renamed", names, "names by name")
        calls = [
            {**call, NAME: names.get(str(call[NAME]), call[NAME])} if NAME in call else call for call in self.calls
        ]
        return Report(calls, self.device_metrics, self.configuration)

    def __repr__(self) -> str:
        facts = ", ".join(f"{_text(name)}: {_text(value)}" for name, value in self.configuration.items())
        count = len(self.calls)
        return f"<{type(self).__name__} of {count} row{'s' * (count != 1)}{f' ({facts})' if facts else ''}: print it>"

    def _repr_html_(self) -> str:
        from ...formats.pictures.plots import Bar, bars
        from ...formats.text.html import heading, table, together

        columns, rows = self._rows()
        facts = ", ".join(f"{_text(name)}: {_text(value)}" for name, value in self.configuration.items())
        cells = [[_text(row.get(name)) for name in columns] for row in rows]
        calls = [(call, _number(call.get(DURATION))) for call in self._rows(col_sums=False)[1][:_BARS]]
        longest = [
            Bar(_text(call.get(NAME)), spent, f"{spent:,.2f} µs") for call, spent in calls if 0 < spent < math.inf
        ]
        picture = bars(longest, 760, 260) if longest else ""
        return together(heading(facts), picture, table(columns, cells, (DURATION, PERCENT, COUNT), first_once=False))

    # ---- CSV ----

    def csv(self) -> str:
        """The calls, a line each under a line of names; what a call lacks is empty."""
        names = sorted({name for call in self.calls for name in call})
        lines = [",".join(_quoted(name) if set(name) & set(',"\n\r') else name for name in names)]
        lines += [",".join(_csv_cell(call.get(name)) for name in names) for call in self.calls]
        return "".join(f"{line}\n" for line in lines)

    # ---- a table ----

    @showing
    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """The calls as a table, then the configuration. `sort`: the longest first. `aggregate`: calls of one kernel (by hash, or
        name) with the same argument shapes on the same device are one row. `col_sums`: sums below, and each device's total."""
        for name, flag in (("sort", sort), ("aggregate", aggregate), ("col_sums", col_sums)):
            if not isinstance(flag, (bool, int)):
                raise ArgumentError(f"table: {name}: expected True or False, got {told(flag)}")
        columns, rows = self._rows(sort, aggregate, col_sums)
        lines = [columns] + [[_text(row.get(name)) for name in columns] for row in rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = "".join(f"{_line(line, widths)}\n" for line in lines)
        facts = "".join(f"{_text(name)}: {_text(value)}\n" for name, value in self.configuration.items())
        return f"{text}\nConfiguration\n-------------\n{facts}"

    def _rows(
        self, sort: bool = True, aggregate: bool = True, col_sums: bool = True
    ) -> tuple[list[str], list[dict[str, Metric]]]:
        """The names of the table's columns, and its rows."""
        calls: list[dict[str, Metric]] = _aggregated(self.calls) if aggregate else self.calls
        if sort:
            calls = sorted(calls, key=lambda call: -_number(call.get(DURATION)))
        rows = list(calls)
        if col_sums:
            rows += [{NAME: "-" * 10}, {NAME: "Sum", **_sums(calls)}]
            rows += [{**metrics, NAME: "Total"} for _, metrics in sorted(self.device_metrics.items())]
        present = {name for row in rows for name in row}
        columns = [name for name in _FIRST_COLUMNS if name in present]
        return columns + sorted(present.difference(_FIRST_COLUMNS)), rows

    def __str__(self) -> str:
        return self.table()

    # ---- JSON ----

    def json(self) -> str:
        """All of it, so that `from_json` gives the same report."""
        return json.dumps(
            {
                "calls": [_to_json(call) for call in self.calls],
                "device_metrics": {device: _to_json(metrics) for device, metrics in self.device_metrics.items()},
                "configuration": _to_json(self.configuration),
            }
        )

    @staticmethod
    def from_json(s: str) -> Report:
        """The report that `json` wrote, here or in TVM. Raises FormatError."""
        try:
            found = json.loads(s)
        except (ValueError, TypeError, RecursionError) as error:
            raise FormatError(f"Report.from_json: this is not JSON: {error}") from None
        calls = _of_json(found, dict, "a report").get("calls", [])
        devices = _of_json(found.get("device_metrics", {}), dict, "device_metrics")
        return Report(
            [_metrics(call) for call in _of_json(calls, list, "calls")],
            {device: _metrics(metrics) for device, metrics in devices.items()},
            _metrics(found.get("configuration", {})),
        )


# ---- CSV and tables ----


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _csv_cell(value: Metric | None) -> str:
    if value is None:
        return ""
    return _quoted(value) if isinstance(value, str) else repr(value.value)


def _text(value: Metric | None) -> str:
    """On one line."""
    return "" if value is None else str(value).replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = f"{cells[0]:<{widths[0]}}  " if cells else ""
    return first + "".join(f"{cell:>{width}}  " for cell, width in zip(cells[1:], widths[1:], strict=True))


def _number(value: Metric | None) -> float:
    return 0.0 if value is None or isinstance(value, str) else value.value


def _sums(calls: Sequence[Metrics]) -> dict[str, Metric]:
    sums: dict[str, Metric] = {}
    for name in {name for call in calls for name in call}:
        total = merged([call[name] for call in calls if name in call])
        if isinstance(total, (Count, Duration, Percent)):
            sums[name] = total
    return sums


def _aggregated(calls: Sequence[Metrics]) -> list[dict[str, Metric]]:
    groups: dict[tuple, list[Metrics]] = {}
    for call in calls:
        key = call.get("Hash", call.get(NAME)), call.get(SHAPES), call.get(DEVICE)
        groups.setdefault(key, []).append(call)
    return [
        {
            name: (_nodes if name == NODE else merged)([call[name] for call in group if name in call])
            for call in group
            for name in call
        }
        for group in groups.values()
    ]


def _nodes(values: list[Metric]) -> str:
    """The first of several places, and how many others there are."""
    first, *others = dict.fromkeys(map(str, values))
    return f"{first}, {len(others)} more" if others else first


def merged(values: list[Metric]) -> Metric:
    """Durations, counts and shares add up, ratios have a mean; text that differs is none."""
    first = values[0]
    if isinstance(first, str) or any(type(value) is not type(first) for value in values):
        return first if all(value == first for value in values) else ""
    total = sum(value.value for value in values if not isinstance(value, str))
    return Ratio(total / len(values)) if isinstance(first, Ratio) else type(first)(total)  # type: ignore[arg-type]


# ---- JSON ----


def _to_json(metrics: Metrics) -> dict[str, dict[str, Any]]:
    kinds = ((name, str if isinstance(value, str) else type(value), value) for name, value in metrics.items())
    return {name: {_NAMES[kind]: str(value) if kind is str else value.value} for name, kind, value in kinds}  # type: ignore[union-attr]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _of_json(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "a list"
        raise FormatError(f"Report.from_json: expected {expected} for {what}, got {json.dumps(value)[:60]}")
    return value


def _metrics(value: Any) -> dict[str, Metric]:
    return {name: _metric(name, given) for name, given in _of_json(value, dict, "metrics").items()}


def _metric(name: str, given: Any) -> Metric:
    if isinstance(given, dict) and len(given) == 1:
        kind, value = next(iter(given.items()))
        if kind in _KINDS:
            make, fits = _KINDS[kind]
            if not fits(value):
                raise FormatError(f"Report.from_json: {name!r}: {kind} is not {json.dumps(value)[:60]}")
            return make(value)
    kinds = ", ".join(_KINDS)
    raise FormatError(
        f"Report.from_json: {name!r}: Cannot parse metric of type {json.dumps(given)[:60]}; expected {kinds}"
    )
