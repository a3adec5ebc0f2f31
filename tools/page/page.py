"""Writes the page: one file that needs no network, runs no script but its own, and shows names as text.

Pictures and tables are markup that Python has escaped. What the script reads is JSON, compressed and in base64, which can end no
element. The policy of the page names its script and its style by their hashes: nothing else runs, loads or is sent.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections import ChainMap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ... import __version__
from ...debug.noise import Loss
from ...formats.pictures import plots
from ...formats.pictures.graph import KIND_COLOURS, drawn
from ...formats.pictures.svg import GRID, brief_origin, seconds, size, tag
from ...formats.ports import inputs_of, outputs_of
from ...formats.text.report import statistics
from . import facts, pictures
from .align import Group, aligned
from .gather import Beside, Seen, key_of

_TIMELINE = (
    "One call, on each thread; it is watched, which takes some microseconds a kernel. "
    "Wheel: zoom; drag: move; double click: the whole; click: the node."
)
_FLAME = (
    "Functions, the scopes of the model's names, kernels, of a call that nobody watches. "
    "Click: zoom to it; double click: the whole."
)
_MEMORY = "Tensors where they lie, while they are in use; what is in use at the peak is orange. The line is their sum."
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
    groups = aligned([each.graphs for each in seen]) if len(seen) > 1 else []
    programs = [facts.program(each, () if number else compared) for number, each in enumerate(seen)]
    payload = {
        "programs": programs,
        "aligned": [[[key_of(*each) for each in member] for member in group.members] for group in groups],
        "kinds": KIND_COLOURS,
        "ends": compared[0].ends if compared else (),
    }
    texts = [
        facts.sources(each.of.executable, [kernel["name"] for kernel in known["kernels"]])
        for each, known in zip(seen, programs, strict=True)
    ]
    sections, tabs = [], {}
    for name, (title, draw) in _TABS.items():
        panels = [el("div", draw(each, number), class_="of", data_program=number) for number, each in enumerate(seen)]
        sections.append(_section(name, title, *panels))
        tabs[name] = title
    if compared or len(seen) > 1:
        tabs["compare"] = "Compare"
        sections.append(_section("compare", "Compare", _compare(seen, compared, groups)))
    return _whole([each.name for each in seen], tabs, "".join(sections), {"facts": payload, "texts": texts}, start)


def _section(name: str, title: str, *content: str) -> str:
    return el("section", *content, id=f"tab-{name}", role="tabpanel", aria_label=title)


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
    blobs = "".join(el("script", text=_packed(value), type="text/plain", id=name) for name, value in data.items())
    page = el("body", top, side, el("main", body), blobs, f"<script>{script}</script>", data_start=start)
    return f'<!DOCTYPE html>\n<html lang="en">{el("head", head)}{page}</html>\n'


def _packed(value: Any) -> str:
    return base64.b64encode(gzip.compress(json.dumps(value).encode(), mtime=0)).decode()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---- parts ----


def _card(title: str, *children: str, note: str = "") -> str:
    return el("article", el("h2", text=title), *([el("p", text=note, class_="note")] if note else []), *children)


class Markup(str):
    """Markup that is a cell as it is."""


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    numbers: Sequence[int] = (),
    keys: Sequence[str | None] | None = None,
) -> str:
    """A table. Cells are text, or markup where they are of `Markup`; columns among `numbers` are aligned to the right. With
    `keys`, the rows are about these nodes, and can be sorted."""

    def line(name: str, cells: Sequence[object], key: str | None) -> str:
        made = []
        for at, value in enumerate(cells):
            right = "number" if at in numbers else None
            is_made = isinstance(value, Markup)
            made.append(el(name, value, class_=right) if is_made else el(name, text=value, class_=right))  # type: ignore[arg-type]
        return el("tr", *made, data_node=key)

    known = keys if keys is not None else [None] * len(rows)
    body = (line("td", row, key) for row, key in zip(rows, known, strict=True))
    table = (el("thead", line("th", head, None)), el("tbody", *body))
    return el("div", el("table", *table, class_=None if keys is None else "sortable"), class_="scroll")


def _filter(what: str) -> str:
    return el("input", type="search", placeholder="filter", class_="filter", aria_label=f"filter {what}")


def _origin(text: str, whole: str = "") -> Markup:
    """Model nodes in one line, all of them, or `whole`, in a hint."""
    return Markup(el("span", text=brief_origin(text, 480, 13), data_tip=whole or text, class_="origin"))


def _absent(seen: Seen, what: str) -> str:
    return el("p", text=f"There is no {what}: {seen.why or 'no call was made'}.", class_="absent")


def _figures(seen: Seen) -> dict[str, str]:
    executable, run = seen.of.executable, seen.run
    if run:
        figures = {"a call": seconds(run.seconds), "threads": str(run.threads), "kernels run": str(run.stats.steps)}
        figures["peak of tensors"] = size(run.stats.peak_bytes)
    else:
        figures = {"kernels": str(sum(bool(node.operators) for graph in seen.graphs for node in graph.nodes))}
    figures["primitives"] = str(len(executable.primitive_ops))
    figures["functions"] = str(len(executable.program.functions))
    figures["constants"] = size(sum(array.nbytes for array in executable.constants))
    return figures | ({"file": size(seen.bytes)} if seen.bytes else {})


def _overview(seen: Seen, _: int) -> str:
    cells = [el("div", el("dt", text=name), el("dd", text=value)) for name, value in _figures(seen).items()]
    ports = [
        (function.name, way, port.name, str(port.type))
        for function in seen.of.executable.program.functions
        if not function.captured
        for way, ports in (("in", inputs_of(function)), ("out", outputs_of(function)))
        for port in ports
    ]
    figures, signature = el("dl", *cells, class_="figures"), _card("Signature", _table(_PORTS, ports))
    if not seen.run:
        return figures + _absent(seen, "time") + signature
    hottest, kinds = pictures.hottest(seen.run, seen.keys), pictures.by_kind(seen.run)
    return (
        figures + _card("Where the time goes", hottest) + el("div", _card("By kind", kinds), signature, class_="pair")
    )


def _time(seen: Seen, _: int) -> str:
    if not seen.run:
        return _absent(seen, "timeline")
    flame = _card("Flame graph", pictures.flame(seen.run, seen.keys), note=_FLAME)
    return _card("Timeline", pictures.timeline(seen.run, seen.keys), note=_TIMELINE) + flame


def _roofline(seen: Seen, _: int) -> str:
    if not seen.run:
        return _absent(seen, "roofline")
    bounds, rows = seen.run.bounds, []
    for row in seen.run.rows.values():
        each = row.as_json()
        rates = f"{each['gflops']:.1f}", f"{each['gbytes_per_second']:.1f}", f"{100 * row.roofline:.0f}"
        named = row.bound, row.primitive, _origin(row.node or "")
        rows.append((f"{1e3 * row.seconds:.3f}", row.calls, *rates, *named))
    doubts = [el("p", text=f"doubtful: {doubt}", class_="absent") for doubt in bounds.doubts]
    note = (
        f"Limits of this machine with {bounds.threads} threads, measured. A circle is a kernel, as large as its time."
    )
    table = _table(_RATES, rows, range(5), [seen.keys.get(place) for place in seen.run.rows])
    return _card("Roofline", *doubts, pictures.roofline(seen.run, seen.keys), note=note) + _card("Kernels", table)


def _memory(seen: Seen, _: int) -> str:
    frames = [
        (each.name, size(each.frame_bytes), each.ref_registers, each.int_registers)
        for each in seen.of.executable.program.functions
    ]
    planned = _card("Frames", _table(("function", "memory planned", "references", "integers"), frames, (1, 2, 3)))
    if not seen.run or not seen.run.steps:
        return _absent(seen, "call whose memory could be shown") + planned
    said, rows = pictures.explained(seen.run)
    peak = _card("The peak", _table(("bytes", "share", "type", "kernels", "made by"), rows, (0, 1)), note=f"{said}.")
    return _card("Memory over the call", pictures.memory(seen.run, seen.keys), note=_MEMORY) + peak + planned


def _constants(seen: Seen, _: int) -> str:
    rows, found = [], facts.constant_rows(seen.of.executable)
    for at, (number, type_, name) in enumerate(found[:_CONSTANTS]):
        array = seen.of.executable.constants[number]
        picture = plots.histogram(array) if at < _HISTOGRAMS and array.size > 1 else ""
        moments = facts.moments(array)
        odd = f"{moments['not finite']} numbers are not finite. " if "not finite" in moments else ""
        shown = [moments.get(each, "") for each in _MOMENTS]
        rows.append([f"c{number}", size(array.nbytes), type_, *shown, Markup(picture), _origin(odd + name)])
    more = f"; {len(found) - _CONSTANTS} smaller ones are left out" if len(found) > _CONSTANTS else ""
    table = _table(("", "bytes", "type", *_MOMENTS, "values", "read by"), rows, (1, 3, 4, 5, 6, 7), [None] * len(rows))
    note = f"{len(found)}, the largest first{more}. The red line is zero."
    return _card("Constants", _filter("constants"), table, note=note)


def _file(seen: Seen, _: int) -> str:
    said = statistics(seen.of.executable)
    native = ", ".join(f"{count} kernels for {name}" for name, count in said["native"].items())
    rows = [("format version", said["format_version"]), ("code", f"{said['code_words']} words"), ("native", native)]
    rows += [("import", each) for each in said["imports"]]
    table = _card("Metadata", _table(("", ""), [*rows, *said["metadata"].items()]))
    return el("div", _card("Sections", pictures.sections(said["sections"])), table, class_="pair")


_PORTS = ("function", "", "name", "type")
_RATES = ("ms", "calls", "GFLOP/s", "GB/s", "% roofline", "bound", "primitive", "node")
_MOMENTS = ("min", "max", "mean", "deviation", "zeros")
_TABS: dict[str, tuple[str, Callable[[Seen, int], str]]] = {
    "overview": ("Overview", _overview),
    "graph": ("Graph", lambda seen, number: drawn(seen.graphs, f"arrow{number}")),
    "code": ("Bytecode", lambda seen, number: ""),  # these two the script writes
    "kernels": ("Kernels", lambda seen, number: ""),
    "time": ("Time", _time),
    "roofline": ("Roofline", _roofline),
    "memory": ("Memory", _memory),
    "constants": ("Constants", _constants),
    "file": ("File", _file),
}


# ---- side by side ----


def _compare(seen: Sequence[Seen], compared: Sequence[Beside], groups: Sequence[Group]) -> str:
    parts, keys = [], seen[0].keys
    for each in compared:
        go, key = "", keys.get(each.first) if each.first else None
        if key is not None:
            node = seen[0].node(key)
            said = f"Show {brief_origin(node.origin or node.operation, 500)} in the graph"
            go = el("button", text=said, type="button", class_="go", data_node=key)
        verdict = str(each.report.table(1 if isinstance(each.report, Loss) else 0)).split("\n\n")[0]
        parts.append(_card(f"{seen[0].name} beside {each.name}", el("pre", text=verdict), go))
    if len(seen) > 1:
        figures = [_figures(each) for each in seen]
        rows = [(name, *(each.get(name, "") for each in figures)) for name in dict(ChainMap(*reversed(figures)))]
        parts.append(_card("In figures", _table(("", *(each.name for each in seen)), rows, range(1, len(seen) + 1))))
        parts.append(_aligned(seen, compared, groups))
    else:
        errors = [(each.name, place, error) for each in compared for place, error in each.errors.items()]
        rows = [
            (
                name,
                f"{error.grade:.2g}",
                error.status,
                error.text,
                _origin(seen[0].node(keys[place]).origin or place[0]),
            )
            for name, place, error in errors
        ]
        head = ("against", "error / bound", "status", "error", "node")
        parts.append(_card("Kernel by kernel", _table(head, rows, (1,), [keys.get(place) for _, place, _ in errors])))
    return "".join(parts)


def _aligned(seen: Sequence[Seen], compared: Sequence[Beside], groups: Sequence[Group]) -> str:
    """Kernels that do the same model nodes: times, memory made and errors."""
    shown = []
    for group in groups[:_ALIGNED]:
        spots = [
            [(each.graphs[function].name, each.graphs[function].nodes[at].offset) for function, at in members]
            for each, members in zip(seen, group.members, strict=True)
        ]
        totals = [_total(each, theirs) for each, theirs in zip(seen, spots, strict=True)]
        errors = [each.errors[spot] for each in compared for spot in spots[0] if spot in each.errors]
        difference = totals[1][0] - totals[0][0] if spots[0] and spots[1] else 0.0
        shown.append((group, totals, difference, max(errors, key=lambda error: error.grade, default=None)))
    most = max((abs(difference) for _, _, difference, _ in shown), default=0.0) or 1.0
    rows = [
        (
            _origin(group.name),
            *(f"{1e3 * taken:.3f}" if taken else "" for taken, _ in totals),
            f"{1e3 * difference:+.3f}" if difference else "",
            Markup(_difference(difference / most)),
            *(size(count) if count else "" for _, count in totals),
            worst.status if worst else "",
            _origin(worst.text.partition(", tensor ")[0], worst.text) if worst else "",
        )
        for group, totals, difference, worst in shown
    ]
    keys = [key_of(*group.members[0][0]) if group.members[0] else None for group, *_ in shown]
    letters = [chr(ord("A") + number) for number in range(len(seen))]
    called = ", ".join(f"{letter} is {each.name}" for letter, each in zip(letters, seen, strict=True))
    times, made = ([f"{what} {letter}" for letter in letters] for what in ("ms", "made"))
    head = ["model nodes", *times, "B − A", "", *made, "", "error"]
    table = _table(head, rows, range(1, 3 + 2 * len(seen) + 1), keys)
    return _card("Node by node", _filter("nodes"), table, note=f"{_ALIGNED_NOTE} {called}.")


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
