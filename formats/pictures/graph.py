"""Functions as pictures: a box for each node of `program.py`, loops in frames, functions beside each other."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..text.html import unfolded
from ..types import TensorType, Type
from .layered import laid_out
from .program import CONSTANT, PARAMETERS, RETURN, Graph, Held, Node, graphs
from .svg import ACCENT, COLOURS, GREY, GRID, block, fitting, line, mark, picture, tag, width_of, words

CONTROL, OTHER = "control", "elementwise"
# What operators do, by how their names begin
KINDS = {
    "convolution": ("conv",),
    "product": ("matmul", "dense", "gemm", "einsum", "dot", "linear", "batch_matmul"),
    "attention and recurrence": ("attention", "lstm", "gru", "rnn", "scan"),
    "normalisation": ("softmax", "log_softmax", "layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm", "normal"),
    "pooling and reduction": ("max_pool", "average_pool", "pool", "global", "reduce", "mean", "sum", "argm", "top", "cum", "lp_"),
    "data movement": (
        *("pack", "unpack", "reshape", "permute", "transpose", "concat", "slice", "strided", "pad", "gather", "cast", "take"),
        *("split", "stack", "copy", "tile", "expand", "broadcast", "squeeze", "flatten", "scatter", "one_hot", "identity"),
    ),
    OTHER: (),
    CONTROL: (),
}  # fmt: skip
_SAID = {RETURN: "result", "invoke": "call", "invoke_closure": "call closure", "alloc_closure": "closure"}
KIND_COLOURS = dict(zip(KINDS, COLOURS, strict=True))
_TITLE, _BOLD, _DETAIL = 12.0, 14.0, 10.0  # sizes of letters; bold ones are as wide as larger ones
_WIDEST, _HEIGHT, _ROUND = 240.0, 42.0, 7
_PADDING, _HEAD = 18.0, 24.0  # of frames
_BESIDE = 60.0  # between functions
_FEW, _MOST = 12, 300  # nodes of a notebook's picture: of one that is open at first, of the largest
_Point = tuple[float, float]
_OUTSIDE = -(10**6)  # in place of a node: what a loop reads of what is around it


def operator_kind(operators: Collection[str]) -> str:
    """Of what is fused, the kind that costs most: the first in the table that any has."""
    for kind, begins in KINDS.items():
        if begins and any(each.startswith(begins) for each in operators):
            if kind == "data movement" and not all(each.startswith(begins) for each in operators):
                return OTHER
            return kind
    return OTHER if operators else CONTROL


def label_of(node: Node) -> str:
    """What it does, in few words."""
    if not node.operators:
        return f"{_SAID.get(node.operation, node.operation)}{node.callee and f' @{node.callee}'}"
    operators = [each for each in node.operators if each != "constant"] or list(node.operators)
    whole = " + ".join(operators)
    if width_of(whole, _BOLD) <= _WIDEST - 24:
        return whole
    kind = operator_kind(operators)
    main = next((each for each in operators if operator_kind([each]) == kind), operators[0])
    return f"{main} + {len(operators) - 1}" if len(operators) > 1 else main


def type_text(type_: Type | None) -> str:
    if not isinstance(type_, TensorType):
        return "" if type_ is None else str(type_)
    return f"{type_.dtype.name} {'×'.join(map(str, type_.shape)) or 'scalar'}"


def of_executable(executable: Held) -> str:
    """The functions of an executable for a notebook, to be unfolded where they are long; "" where they are too many."""
    found = graphs(executable)
    count = sum(len(each.nodes) for each in found)
    return unfolded("graph", drawn(found), is_open=count <= _FEW) if count <= _MOST else ""


def drawn(found: Sequence[Graph], arrow: str = "arrow") -> str:
    """All functions in one picture, the first one first. `arrow` is an identifier that nothing else in the page has. Nodes are
    groups of class `node` whose key is the function's number and the node's; parameters have numbers below 0."""
    frames = [_Function(number, graph).frame() for number, graph in enumerate(found)]
    room = 1.3 * math.sqrt(sum((frame.width + _BESIDE) * (frame.height + _BESIDE) for frame in frames))
    x = y = width = below = 0.0
    parts, corners = [], []
    for k, frame in enumerate(frames):
        if x and x + frame.width > room:
            x, y, below = 0.0, y + below + _BESIDE, 0.0
        corners.append((x, y))
        parts.append(tag("g", frame.drawn, transform=f"translate({x:.1f} {y:.1f})", class_="function", data_function=k))
        x += frame.width + _BESIDE
        width, below = max(width, x - _BESIDE), max(below, frame.height)
    shape = {
        "viewBox": "0 0 8 8",
        "refX": 7,
        "refY": 4,
        "markerWidth": 9,
        "markerHeight": 9,
        "markerUnits": "userSpaceOnUse",
        "orient": "auto-start-reverse",
    }
    head = tag("defs", tag("marker", tag("path", d="M0 0L8 4L0 8Z", fill="context-stroke"), id=arrow, **shape))
    edges = _calls(found, frames, corners)
    label = f"{len(found)} function{'s' * (len(found) != 1)}, {sum(len(each.nodes) for each in found)} nodes"
    made = picture(width, y + below, head, edges, *parts, label=label, class_="graph")
    return made.replace('"url(#arrow)"', f'"url(#{arrow})"')  # attributes alone: texts hold no quotation marks


def _calls(found: Sequence[Graph], frames: Sequence[_Frame], corners: Sequence[_Point]) -> str:
    """Dashed lines from calls, and from what makes closures, to the functions."""
    numbers = {graph.name: number for number, graph in enumerate(found)}
    lines = []
    for graph, frame, (x, y) in zip(found, frames, corners, strict=True):
        for at, node in enumerate(graph.nodes):
            if node.callee in numbers and node.callee != graph.name and at in frame.places:
                other = numbers[node.callee]
                end_x, end_y = corners[other][0], corners[other][1] + 20
                middle_x, begin_y = frame.places[at]
                begin_x, begin_y = x + middle_x + frame.half_widths.get(at, 0.0), y + begin_y
                bend = max(40.0, min(abs(end_x - begin_x) / 2, 160.0))
                d = f"M{begin_x:.1f} {begin_y:.1f}C{begin_x + bend:.1f} {begin_y:.1f}"
                d += f" {end_x - bend:.1f} {end_y:.1f} {end_x:.1f} {end_y:.1f}"
                drawn = {"stroke_dasharray": "5 4", "marker_end": "url(#arrow)", "class_": "call-edge"}
                lines.append(line(d, COLOURS[3], 1.2, **drawn))
    return "".join(lines)


@dataclass
class _Frame:
    drawn: str
    width: float
    height: float
    places: dict[int, _Point] = field(default_factory=dict)  # of nodes, their middles
    half_widths: dict[int, float] = field(default_factory=dict)


@dataclass
class _Box:
    """A node, or a loop as one."""

    width: float
    height: float
    drawn: str
    nodes: frozenset[int]
    inside: dict[int, _Point] = field(default_factory=dict)  # of a loop: where its nodes are, from its corner


class _Function:
    """One function: its nodes and parameters by number, the k-th parameter being node -1 - k."""

    def __init__(self, number: int, graph: Graph) -> None:
        self._number, self._graph = number, graph
        self._names, self._types = list(graph.parameters), list(graph.parameters.values())
        shown = [at for at, node in enumerate(graph.nodes) if node.operation != CONSTANT]
        self._nodes = [*range(-1, -1 - len(self._names), -1), *shown]
        edges = (
            (-1 - result if maker == PARAMETERS else maker, at)
            for at in shown
            for makers in graph.nodes[at].inputs
            for maker, result in sorted(makers)
        )
        known = set(self._nodes)  # without constants and captured values
        self._edges = [each for each in dict.fromkeys(edges) if each[0] in known]
        self._half_widths: dict[int, float] = {}

    def frame(self) -> _Frame:
        """The function's own frame, with its name."""
        body, width, height, places = self._level(self._nodes, self._graph.loops)
        title = f"@{self._graph.name}"
        width = max(width, width_of(title, 13) + 10, 80) + 2 * _PADDING
        height += 2 * _PADDING + _HEAD
        moved = {node: (x + _PADDING, y + _PADDING + _HEAD) for node, (x, y) in places.items()}
        drawn = (
            block(0, 0, width, height, GRID, 0, rx=10, class_="frame")
            + words(_PADDING, 24, title, font_size=13, font_weight=600)
            + moved_by(_PADDING, _PADDING + _HEAD, body)
        )
        return _Frame(drawn, width, height, moved, self._half_widths)

    def _level(
        self, nodes: Sequence[int], loops: Sequence[tuple[int, int]], fed: Collection[int] = ()
    ) -> tuple[str, float, float, dict[int, _Point]]:
        """Nodes and, as one box each, the loops among them: the picture, its size, the middles of the nodes. `fed` are those that
        read what is made outside: a dot stands for that."""
        outer = [each for each in loops if not any(a <= each[0] and each[1] <= b and (a, b) != each for a, b in loops)]
        boxes: list[_Box] = []
        taken: set[int] = set()
        if fed:
            dot = tag("circle", cx=4, cy=4, r=4, fill=ACCENT)
            boxes.append(_Box(8.0, 8.0, dot, frozenset([_OUTSIDE])))
        inside = {
            loop: [n for n in nodes if n >= 0 and loop[0] <= self._graph.nodes[n].offset <= loop[1]] for loop in outer
        }
        begins = {found[0]: loop for loop, found in inside.items() if found}
        for node in nodes:
            if node in taken:
                continue
            loop = begins.get(node)
            box = self._node(node) if loop is None else self._loop(inside[loop], loop, loops)
            boxes.append(box)
            taken |= box.nodes
        holder = {node: k for k, box in enumerate(boxes) for node in box.nodes}
        edges = [
            (holder[a], holder[b], a, b)
            for a, b in [*((_OUTSIDE, b) for b in fed), *self._edges]
            if a in holder
            and b in holder
            and (holder[a] != holder[b] or (a >= b >= 0 and len(boxes[holder[a]].nodes) == 1))
        ]
        layout = laid_out([(box.width, box.height) for box in boxes], [(a, b) for a, b, *_ in edges])
        lines = "".join(
            self._edge(route, a, b, is_back=k >= m)
            for (k, m, a, b), route in zip(edges, layout.edges, strict=True)
            if k != m
        )
        drawn = []
        places: dict[int, _Point] = {}
        for box, (x, y) in zip(boxes, layout.nodes, strict=True):
            corner = x - box.width / 2, y - box.height / 2
            drawn.append(moved_by(*corner, box.drawn))
            inner = box.inside or dict.fromkeys(box.nodes, (box.width / 2, box.height / 2))
            places |= {node: (corner[0] + dx, corner[1] + dy) for node, (dx, dy) in inner.items()}
        return lines + "".join(drawn), layout.width, layout.height, places

    def _loop(self, nodes: Sequence[int], loop: tuple[int, int], loops: Sequence[tuple[int, int]]) -> _Box:
        inner = [(a, b) for a, b in loops if loop[0] <= a and b <= loop[1] and (a, b) != loop]
        inside = set(nodes)
        fed = dict.fromkeys(b for a, b in self._edges if b in inside and a not in inside)
        body, width, height, places = self._level(nodes, inner, list(fed))
        width, height = max(width, 60.0) + 2 * _PADDING, height + 2 * _PADDING + 10
        drawn = (
            block(0, 0, width, height, ACCENT, 0.06, rx=9, stroke_dasharray="6 4", class_="loop")
            + words(10, 16, "↻ loop", font_size=_DETAIL, fill=ACCENT)
            + moved_by(_PADDING, _PADDING + 10, body)
        )
        moved = {node: (x + _PADDING, y + _PADDING + 10) for node, (x, y) in places.items()}
        return _Box(width, height, drawn, frozenset(nodes), moved)

    def _node(self, at: int) -> _Box:
        if at < 0:
            name, detail = self._names[-1 - at], type_text(self._types[-1 - at])
            kind, title = "input", f"{name}: {detail}"
        else:
            node = self._graph.nodes[at]
            name, detail = label_of(node), ", ".join(filter(None, map(type_text, node.results)))
            kind, title = operator_kind(node.operators), f"{node.origin}\n{node.details['instruction']}".lstrip()
        wide = max(width_of(name, _BOLD), width_of(detail, _DETAIL)) + 24
        width, height = max(64.0, min(_WIDEST, wide)), _HEIGHT if detail else 30.0
        self._half_widths[at] = width / 2
        colour = KIND_COLOURS.get(kind, GREY)
        is_round = kind == "input" or (at >= 0 and self._graph.nodes[at].operation == RETURN)
        bold = {"font_size": _TITLE, "font_weight": 600, "text_anchor": "middle"}
        quiet = {"font_size": _DETAIL, "fill_opacity": 0.75, "text_anchor": "middle"}
        head = words(width / 2, 18.5, fitting(name, width - 12, _BOLD), **bold)
        head += words(width / 2, 33, fitting(detail, width - 12, _DETAIL), **quiet) if detail else ""
        box = block(0, 0, width, height, colour, 0.16, rx=height / 2 if is_round else _ROUND, class_="box")
        key = f"{self._number}:{at}"
        return _Box(width, height, mark(title, box, head, key=key, class_="node"), frozenset([at]))

    def _edge(self, route: Sequence[_Point], a: int, b: int, is_back: bool) -> str:
        (x, y), *rest = route
        d = f"M{x:.1f} {y:.1f}"
        for end_x, end_y in rest:
            middle = (y + end_y) / 2
            d += (
                f"L{end_x:.1f} {end_y:.1f}"
                if abs(end_x - x) < 0.5
                else f"C{x:.1f} {middle:.1f} {end_x:.1f} {middle:.1f} {end_x:.1f} {end_y:.1f}"
            )
            x, y = end_x, end_y
        ends = {"data_from": f"{self._number}:{a}", "data_to": f"{self._number}:{b}", "marker_end": "url(#arrow)"}
        if is_back:
            return line(d, ACCENT, 1.2, class_="edge back", stroke_dasharray="4 3", **ends)
        return line(d, GREY, 1.2, class_="edge", **ends)


def moved_by(x: float, y: float, drawn: str) -> str:
    """The same with its corner here."""
    return tag("g", drawn, transform=f"translate({x:.1f} {y:.1f})")
