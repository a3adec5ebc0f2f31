"""Writes the page: one file that needs no network, runs no script but its own, and shows names as text.

Pictures and tables are markup that Python has escaped. What the script reads is JSON, compressed and in base64, which can end no
element. The policy of the page names its script and its style by their hashes: nothing else runs, loads or is sent.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ... import __version__
from ...debug.noise import Loss
from ...formats.executable import Executable
from ...formats.pictures import plots
from ...formats.pictures.graph import drawn
from ...formats.pictures.program import Graph, graphs
from ...formats.pictures.svg import GRID, brief_origin, seconds, size, tag
from ...formats.ports import inputs_of, outputs_of
from ...formats.text.report import statistics
from . import facts, pictures
from .align import Group, aligned
from .gather import Beside, Seen

_TABS = {
    "overview": "Overview",
    "graph": "Graph",
    "code": "Bytecode",
    "kernels": "Kernels",
    "time": "Time",
    "roofline": "Roofline",
    "memory": "Memory",
    "constants": "Constants",
    "file": "File",
    "compare": "Compare",
}
_TIMELINE = (
    "One call, on each thread; it is watched, which takes some microseconds a kernel. "
    "Wheel: zoom; drag: move; double click: the whole; click: the node."
)
_FLAME = (
    "Functions, the scopes of the model's names, kernels, of a call that nobody watches. "
    "Click: zoom to it; double click: the whole."
)
_ALIGNED_NOTE = (
    "Rows are kernels that do the same model nodes, however these were fused: milliseconds, and the bytes of their results. "
    "A bar to the left: B takes less time."
)
_HISTOGRAMS, _CONSTANTS = 400, 2000  # of the largest constants
_ALIGNED = 5000  # rows


def el(name: str, /, *children: str, **attributes: object) -> str:
    """An element of HTML: as of SVG, but that what is empty has an end too."""
    made = tag(name, *children, **attributes)
    return f"{made[:-2]}></{name}>" if made.endswith("/>") and name not in ("meta", "input") else made


def written(seen: Sequence[Seen], compared: Sequence[Beside], start: str = "overview") -> str:
    """The page about some programs, the first of which was compared with others. `start` is the tab that it opens with."""
    found = [graphs(each.of.executable) for each in seen]
    groups = aligned(found) if len(seen) > 1 else []
    payload: dict[str, Any] = {
        "programs": [
            facts.program(each, theirs, compared if number == 0 else ())
            for number, (each, theirs) in enumerate(zip(seen, found, strict=True))
        ],
        "aligned": [[[facts.key_of(*each) for each in member] for member in group.members] for group in groups],
    }
    payload["ends"] = compared[0].ends if compared else ()
    texts = [
        facts.sources(each.of.executable, [kernel["name"] for kernel in payload["programs"][number]["kernels"]])
        for number, each in enumerate(seen)
    ]
    panels = {
        "overview": [_overview(each, theirs) for each, theirs in zip(seen, found, strict=True)],
        "graph": [drawn(theirs, f"arrow{number}") for number, theirs in enumerate(found)],
        "code": ["" for _ in seen],
        "kernels": ["" for _ in seen],
        "time": [_time(each, theirs) for each, theirs in zip(seen, found, strict=True)],
        "roofline": [_roofline(each, theirs) for each, theirs in zip(seen, found, strict=True)],
        "memory": [_memory(each, theirs) for each, theirs in zip(seen, found, strict=True)],
        "constants": [_constants(each.of.executable, theirs) for each, theirs in zip(seen, found, strict=True)],
        "file": [_file(each) for each in seen],
    }
    tabs = {name: title for name, title in _TABS.items() if name != "compare" or compared or len(seen) > 1}
    body = "".join(
        el(
            "section",
            *(
                [_compare(seen, compared, found, groups)]
                if name == "compare"
                else [el("div", panel, class_="of", data_program=number) for number, panel in enumerate(panels[name])]
            ),
            id=f"tab-{name}",
            role="tabpanel",
            aria_label=title,
        )
        for name, title in tabs.items()
    )
    return _whole([each.name for each in seen], tabs, body, {"facts": payload, "texts": texts}, start)


def _whole(names: Sequence[str], tabs: dict[str, str], body: str, data: dict[str, Any], start: str) -> str:
    folder = Path(__file__).parent
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    head = (
        el("meta", charset="utf-8")
        + el("meta", http_equiv="Content-Security-Policy", content=policy)
        + el("meta", name="viewport", content="width=device-width, initial-scale=1")
        + el("meta", name="referrer", content="no-referrer")
        + el("title", text=f"{' and '.join(names)}: Treadle")
        + f"<style>{style}</style>"
    )
    choice = [
        el("button", text=name, type="button", class_="program", data_program=number, title=name)
        for number, name in enumerate(names)
    ]
    top = el(
        "header",
        el("strong", text="treadle", class_="mark-name"),
        el("div", *choice, class_="programs", role="group", aria_label="programs"),
        el("span", class_="grow"),
        el("button", text="Keys  ?", type="button", id="keys"),
        el("button", text="Theme", type="button", id="theme"),
    )
    side = el(
        "nav",
        *(
            el("button", text=title, type="button", role="tab", data_tab=name, aria_controls=f"tab-{name}")
            for name, title in tabs.items()
        ),
        el("small", text=f"Treadle {__version__}"),
        role="tablist",
        aria_orientation="vertical",
    )
    blobs = "".join(
        el(
            "script",
            text=base64.b64encode(gzip.compress(json.dumps(value).encode(), mtime=0)).decode(),
            type="text/plain",
            id=name,
        )
        for name, value in data.items()
    )
    page = el("body", top, side, el("main", body), blobs, f"<script>{script}</script>", data_start=start)
    return f'<!DOCTYPE html>\n<html lang="en">{el("head", head)}{page}</html>\n'  # fmt: skip


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---- parts ----


def _card(title: str, *children: str, note: str = "") -> str:
    return el("article", el("h2", text=title), *([el("p", text=note, class_="note")] if note else []), *children)


def _table(
    head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = (), **attributes: object
) -> str:
    """Cells are text, or markup where they are of `Markup`."""

    def cell(name: str, at: int, value: object) -> str:
        right = "number" if at in numbers else None
        return el(name, value, class_=right) if isinstance(value, Markup) else el(name, text=value, class_=right)

    lines = []
    for row in rows:
        key = row.key if isinstance(row, Keyed) else None
        lines.append(el("tr", *(cell("td", at, value) for at, value in enumerate(row)), data_node=key))
    top = el("tr", *(cell("th", at, value) for at, value in enumerate(head)))
    table = el("table", el("thead", top), el("tbody", *lines), **attributes)
    return el("div", table, class_="scroll")


class Markup(str):
    """Markup that is a cell as it is."""


def _origin(text: str, whole: str = "") -> Markup:
    """Model nodes in one line, all of them, or `whole`, in a hint."""
    return Markup(el("span", text=brief_origin(text, 480, 13), data_tip=whole or text, class_="origin"))


class Keyed(list):
    """A row about a node."""

    key: str | None = None


def _keyed(key: str | None, *cells: object) -> Keyed:
    row = Keyed(cells)
    row.key = key
    return row


def _absent(seen: Seen, what: str) -> str:
    return el("p", text=f"There is no {what}: {seen.why or 'no call was made'}.", class_="absent")


def _figures(seen: Seen, found: Sequence[Graph]) -> list[tuple[str, str]]:
    executable, run = seen.of.executable, seen.run
    kernels = sum(bool(node.operators) for graph in found for node in graph.nodes)
    figures = []
    if run:
        figures.append(("a call", seconds(run.seconds)))
        figures.append(("threads", str(run.threads)))
        figures.append(("kernels run", str(run.stats.steps)))
        figures.append(("peak of tensors", size(run.stats.peak_bytes)))
    else:
        figures.append(("kernels", str(kernels)))
    figures += [
        ("primitives", str(len(executable.primitive_ops))),
        ("functions", str(len(executable.program.functions))),
        ("constants", size(sum(array.nbytes for array in executable.constants))),
    ]
    if seen.bytes:
        figures.append(("file", size(seen.bytes)))
    return figures


def _overview(seen: Seen, found: Sequence[Graph]) -> str:
    executable, keys = seen.of.executable, facts.places(found)
    figures = el(
        "dl", *(el("div", el("dt", text=name), el("dd", text=value)) for name, value in _figures(seen, found)), class_="figures"
    )  # fmt: skip
    ports = [
        (function.name, way, port.name, str(port.type))
        for function in executable.program.functions
        if not function.captured
        for way, ports in (("in", inputs_of(function)), ("out", outputs_of(function)))
        for port in ports
    ]
    parts = [figures]
    if seen.run:
        parts.append(_card("Where the time goes", pictures.hottest(seen.run, keys)))
        parts.append(el("div", _card("By kind", pictures.by_kind(seen.run)), _ports(ports), class_="pair"))
    else:
        parts += [_absent(seen, "time"), _ports(ports)]
    return "".join(parts)


def _ports(ports: Sequence[tuple[str, ...]]) -> str:
    return _card("Signature", _table(("function", "", "name", "type"), ports))


def _time(seen: Seen, found: Sequence[Graph]) -> str:
    if not seen.run:
        return _absent(seen, "timeline")
    keys = facts.places(found)
    return _card(
        "Timeline",
        pictures.timeline(seen.run, keys),
        note=_TIMELINE,
    ) + _card(
        "Flame graph",
        pictures.flame(seen.run, keys),
        note=_FLAME,
    )


def _roofline(seen: Seen, found: Sequence[Graph]) -> str:
    if not seen.run:
        return _absent(seen, "roofline")
    bounds, keys = seen.run.bounds, facts.places(found)
    rows = []
    for place, row in seen.run.rows.items():
        each = row.as_json()
        cells = [f"{1e3 * row.seconds:.3f}", row.calls, f"{each['gflops']:.1f}", f"{each['gbytes_per_second']:.1f}"]
        rows.append(
            _keyed(
                keys.get(place), *cells, f"{100 * row.roofline:.0f}", row.bound, row.primitive, _origin(row.node or "")
            )
        )
    head = ("ms", "calls", "GFLOP/s", "GB/s", "% roofline", "bound", "primitive", "node")
    note = (
        f"Limits of this machine with {bounds.threads} threads, measured. A circle is a kernel, as large as its time."
    )
    doubts = [el("p", text=f"doubtful: {doubt}", class_="absent") for doubt in bounds.doubts]
    return _card("Roofline", *doubts, pictures.roofline(seen.run, keys), note=note) + _card(
        "Kernels", _table(head, rows, range(5), class_="sortable")
    )


def _memory(seen: Seen, found: Sequence[Graph]) -> str:
    executable = seen.of.executable
    frames = [
        (function.name, size(function.frame_bytes), function.ref_registers, function.int_registers)
        for function in executable.program.functions
    ]
    frames_card = _card("Frames", _table(("function", "memory planned", "references", "integers"), frames, (1, 2, 3)))
    if not seen.run or not seen.run.steps:
        return _absent(seen, "call whose memory could be shown") + frames_card
    said, rows = pictures.explained(seen.run)
    note = "Tensors where they lie, while they are in use; what is in use at the peak is orange. The line is their sum."
    return (
        _card("Memory over the call", pictures.memory(seen.run, facts.places(found)), note=note)
        + _card("The peak", _table(("bytes", "share", "type", "kernels", "made by"), rows, (0, 1)), note=f"{said}.")
        + frames_card
    )


def _constants(executable: Executable, found: Sequence[Graph]) -> str:
    rows = []
    all_rows = facts.constant_rows(executable, found)
    for at, (number, type_, name) in enumerate(all_rows[:_CONSTANTS]):
        array = executable.constants[number]
        picture = plots.histogram(array) if at < _HISTOGRAMS and array.size > 1 else ""
        moments = facts.moments(array)
        shown = [moments.get(name, "") for name in ("min", "max", "mean", "deviation", "zeros")]
        odd = moments.get("not finite")
        name = f"{odd} numbers are not finite. {name}" if odd else name
        rows.append([f"c{number}", size(array.nbytes), type_, *shown, Markup(picture), _origin(name)])
    head = ("", "bytes", "type", "min", "max", "mean", "deviation", "zeros", "values", "read by")
    more = f"; {len(all_rows) - _CONSTANTS} smaller ones are left out" if len(all_rows) > _CONSTANTS else ""
    return _card(
        "Constants",
        el("input", type="search", placeholder="filter", class_="filter", aria_label="filter constants"),
        _table(head, rows, (1, 3, 4, 5, 6, 7), class_="sortable"),
        note=f"{len(all_rows)}, the largest first{more}. The red line is zero.",
    )


def _file(seen: Seen) -> str:
    said = statistics(seen.of.executable)
    metadata = [(name, value) for name, value in said["metadata"].items()]
    counts = {name: said[name] for name in ("format_version", "code_words", "primitive_ops", "imports", "native")}
    counts["primitive_ops"] = len(counts["primitive_ops"])
    shown = [(name.replace("_", " "), _plain(value)) for name, value in counts.items() if value not in ([], {})]
    return el(
        "div",
        _card("Sections", pictures.sections(said["sections"])),
        _card("Metadata", _table(("", ""), [*shown, *metadata])),
        class_="pair",
    )


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} for {name}" for name, count in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# ---- side by side ----


def _compare(
    seen: Sequence[Seen], compared: Sequence[Beside], found: Sequence[Sequence[Graph]], groups: Sequence[Group]
) -> str:
    keys = facts.places(found[0])
    parts = []
    for each in compared:
        go = ""
        if each.first in keys:
            node = next(
                n for graph in found[0] if graph.name == each.first[0] for n in graph.nodes if n.offset == each.first[1]
            )
            said = f"Show {brief_origin(node.origin or node.operation, 500)} in the graph"
            go = el("button", text=said, type="button", class_="go", data_node=keys[each.first])
        parts.append(_card(f"{seen[0].name} beside {each.name}", el("pre", text=_verdict(each)), go))
    if len(seen) > 1:
        figures = [dict(_figures(*pair)) for pair in zip(seen, found, strict=True)]
        names = dict.fromkeys(name for each in figures for name in each)
        rows = [(name, *(each.get(name, "") for each in figures)) for name in names]
        parts.append(_card("In figures", _table(("", *(each.name for each in seen)), rows, range(1, len(seen) + 1))))
        parts.append(_aligned(seen, compared, found, groups))
    elif compared:
        parts.append(_errors(compared, keys))
    return "".join(parts)  # fmt: skip


def _verdict(each: Beside) -> str:
    text = each.report.table(1 if isinstance(each.report, Loss) else 0)
    return str(text).split("\n\n")[0]


def _errors(compared: Sequence[Beside], keys: dict[tuple[str, int], str]) -> str:
    rows = [
        _keyed(keys.get(place), each.name, f"{error.grade:.2g}", error.status, error.text, place[0])
        for each in compared
        for place, error in each.errors.items()
    ]
    head = ("against", "error / bound", "status", "error", "function")
    return _card("Kernel by kernel", _table(head, rows, (1,), class_="sortable"))


def _aligned(
    seen: Sequence[Seen], compared: Sequence[Beside], found: Sequence[Sequence[Graph]], groups: Sequence[Group]
) -> str:
    """Kernels that do the same model nodes: times, memory made and errors."""
    shown = []
    for group in groups[:_ALIGNED]:
        spots = [
            [(graphs_[function].name, graphs_[function].nodes[at].offset) for function, at in members]
            for graphs_, members in zip(found, group.members, strict=True)
        ]
        totals = [_total(each, theirs) for each, theirs in zip(seen, spots, strict=True)]
        errors = [each.errors[spot] for each in compared for spot in spots[0] if spot in each.errors]
        difference = totals[1][0] - totals[0][0] if spots[0] and spots[1] else 0.0
        shown.append((group, totals, difference, max(errors, key=lambda error: error.grade, default=None)))
    most = max((abs(difference) for _, _, difference, _ in shown), default=0.0)
    rows = [
        _keyed(
            facts.key_of(*group.members[0][0]) if group.members[0] else None,
            _origin(group.name),
            *(f"{1e3 * taken:.3f}" if taken else "" for taken, _ in totals),
            f"{1e3 * difference:+.3f}" if difference else "",
            Markup(_difference(difference / most if most else 0.0)),
            *(size(count) if count else "" for _, count in totals),
            worst.status if worst else "",
            _origin(worst.text.partition(", tensor ")[0], worst.text) if worst else "",
        )
        for group, totals, difference, worst in shown
    ]
    letters = [chr(ord("A") + number) for number in range(len(seen))]
    called = ", ".join(f"{letter} is {each.name}" for letter, each in zip(letters, seen, strict=True))
    times, made = ([f"{what} {letter}" for letter in letters] for what in ("ms", "made"))
    return _card(
        "Node by node",
        el("input", type="search", placeholder="filter", class_="filter", aria_label="filter nodes"),
        _table(
            ["model nodes", *times, "B − A", "", *made, "", "error"],
            rows,
            range(1, 3 + 2 * len(seen) + 1),
            class_="sortable",
        ),
        note=f"{_ALIGNED_NOTE} {called}.",
    )


def _total(seen: Seen, spots: Sequence[tuple[str, int]]) -> tuple[float, int]:
    """The seconds that a call spends at some places, and the bytes that it makes there."""
    if seen.run is None:
        return 0.0, 0
    times = (seen.run.rows[spot].seconds for spot in spots if spot in seen.run.rows)
    return sum(times), sum(seen.run.made.get(spot, 0) for spot in spots)


def _difference(share: float) -> str:
    """A bar to the left of the middle for less, to the right for more."""
    length, side = 40 * abs(share), "less" if share < 0 else "more"
    rect = tag("rect", x=40 - length if share < 0 else 40, y=2, width=length, height=8, class_=side)
    middle = tag("path", d="M40 0V12", stroke=GRID)
    return tag("svg", rect, middle, width=80, height=12, aria_hidden="true")
