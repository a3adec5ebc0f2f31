"""Places for the nodes of a graph, in layers from top to bottom: Sugiyama's method, in about linear time.

Layers by the longest way; an edge over several layers runs through a chain of points, which all edges from its source share; the
order in a layer by medians of neighbours; places across by Brandes and Köpf (Fast and Simple Horizontal Coordinate Assignment,
2001), with conflicts of long edges resolved for these, and compaction over the graph of blocks.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 6
_APART, _BELOW = 22.0, 34.0  # between nodes of a layer, between layers
_POINT = 6.0  # the width that a long edge takes


@dataclass(frozen=True)
class Layout:
    """The middles of nodes, and of edges (by their places in the list) the points from the source to the target."""

    nodes: list[tuple[float, float]]
    edges: list[list[tuple[float, float]]]
    width: float
    height: float


def laid_out(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Nodes of these widths and heights; an edge to a node that comes earlier in the list, or to itself, goes back."""
    if not sizes:
        return Layout([], [], 0.0, 0.0)
    forward = [(min(a, b), max(a, b)) for a, b in edges if a != b]
    layer = _layers(len(sizes), forward)
    graph = _Graph([width for width, _ in sizes], layer, forward)
    order = _ordered(graph)
    across = _across(graph, order)
    left = min(x - w / 2 for x, w in zip(across, graph.widths, strict=True))
    across = [x - left for x in across]
    heights = [max((sizes[node][1] for node in row if node < len(sizes)), default=0.0) for row in order]
    tops = [0.0]
    for height in heights:
        tops.append(tops[-1] + height + _BELOW)
    middles = [tops[k] + height / 2 for k, height in enumerate(heights)]
    places = [(across[node], middles[layer[node]]) for node in range(len(graph.widths))]
    routes = []
    for a, b in edges:
        low, high = min(a, b), max(a, b)
        route = [] if a == b else [places[each] for each in graph.route(low, high)]
        (x, y), (end_x, end_y) = places[low], places[high]
        route = [(x, y + sizes[low][1] / 2), *route, (end_x, end_y - sizes[high][1] / 2)]
        routes.append(route if a < b else route[::-1])
    width = max(x + w / 2 for x, w in zip(across, graph.widths, strict=True))
    return Layout(places[: len(sizes)], routes, width, tops[-1] - _BELOW)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """By the longest way from above; what has more readers than makers stands near its readers."""
    below: list[list[int]] = [[] for _ in range(count)]
    makers = [0] * count
    for a, b in edges:
        below[a].append(b)
        makers[b] += 1
    layer = [0] * count
    for node in range(count):
        for each in below[node]:
            layer[each] = max(layer[each], layer[node] + 1)
    for node in reversed(range(count)):
        if len(set(below[node])) > makers[node] or (below[node] and not makers[node]):
            layer[node] = min(layer[each] for each in below[node]) - 1
    return layer


class _Graph:
    """Nodes and the points of long edges, with neighbours in the next layer alone. `layer` is made longer by the points."""

    def __init__(self, widths: list[float], layer: list[int], edges: Sequence[tuple[int, int]]) -> None:
        self.real, self.layer, self.widths = len(widths), layer, widths
        self._chains: dict[int, list[int]] = {}  # of a source: a point for each layer below it
        self.below: list[list[int]] = [[] for _ in widths]
        self.above: list[list[int]] = [[] for _ in widths]
        for a, b in dict.fromkeys(edges):
            self._connect((a, *self.route(a, b))[-1], b)

    def route(self, a: int, b: int) -> list[int]:
        """The points between two nodes."""
        chain = self._chains.setdefault(a, [])
        while len(chain) < self.layer[b] - self.layer[a] - 1:
            point = len(self.widths)
            self.widths.append(_POINT)
            self.layer.append(self.layer[a] + len(chain) + 1)
            self.below.append([])
            self.above.append([])
            self._connect(chain[-1] if chain else a, point)
            chain.append(point)
        return chain[: self.layer[b] - self.layer[a] - 1]

    def _connect(self, a: int, b: int) -> None:
        self.below[a].append(b)
        self.above[b].append(a)


def _ordered(graph: _Graph) -> list[list[int]]:
    """The nodes of each layer from left to right, with few crossings: the best of some sweeps down and up."""
    rows: list[list[int]] = [[] for _ in range(max(graph.layer) + 1)]
    seen = [False] * len(graph.layer)
    for start in range(len(graph.layer)):  # depth first: what belongs together begins together
        waiting = [start]
        while waiting:
            node = waiting.pop()
            if not seen[node]:
                seen[node] = True
                rows[graph.layer[node]].append(node)
                waiting += reversed(graph.below[node])
    best, fewest = [list(row) for row in rows], _crossings(graph, rows)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        neighbours = graph.above if down else graph.below
        for row, fixed in pairwise(rows) if down else pairwise(rows[::-1]):
            _by_medians(fixed, row, neighbours)
        found = _crossings(graph, rows)
        if found < fewest:
            best, fewest = [list(row) for row in rows], found
    return best


def _by_medians(row: list[int], fixed: Sequence[int], neighbours: Sequence[Sequence[int]]) -> None:
    """Sorts a row by the medians of the places of its nodes' neighbours; what has none stays."""
    place = {node: k for k, node in enumerate(fixed)}
    keys = {}
    for k, node in enumerate(row):
        found = sorted(place[each] for each in neighbours[node])
        half = len(found) // 2
        keys[node] = (found[half] + found[-half - 1]) / 2 if found else float(k)
    row.sort(key=keys.__getitem__)


def _crossings(graph: _Graph, rows: Sequence[Sequence[int]]) -> int:
    total = 0
    for upper, lower in pairwise(rows):
        place = {node: k for k, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(place[each] for each in graph.below[node])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


# ---- places across ----


def _across(graph: _Graph, rows: Sequence[Sequence[int]]) -> list[float]:
    """The mean of the two middle ones of four assignments, which lean to the upper left, upper right and so on."""
    conflicts = _conflicts(graph, rows)
    found = []
    for up in (True, False):
        for mirrored in (False, True):
            turned = [list(reversed(row)) if mirrored else list(row) for row in (rows if up else rows[::-1])]
            xs = _one_way(graph, turned, graph.above if up else graph.below, conflicts)
            found.append([-x for x in xs] if mirrored else xs)
    narrowest = min(found, key=lambda xs: max(xs) - min(xs))
    shifted = []
    for number, xs in enumerate(found):  # all aligned to the narrowest, those that lean right by their right ends
        end = max if number % 2 else min
        shifted.append([x + end(narrowest) - end(xs) for x in xs])
    return [sum(sorted(four)[1:3]) / 2 for four in zip(*shifted, strict=True)]


def _conflicts(graph: _Graph, rows: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    """Edges that cross a piece of a long edge, which stays straight instead."""
    found = set()
    for upper, lower in pairwise(rows):
        place = {node: k for k, node in enumerate(upper)}
        start, left = 0, -1
        for k, node in enumerate(lower):
            inner = next((a for a in graph.above[node] if node >= graph.real and a >= graph.real), None)
            if inner is None and k < len(lower) - 1:
                continue
            right = len(upper) if inner is None else place[inner]
            for each in lower[start : k + 1]:
                for a in graph.above[each]:
                    is_inner = each >= graph.real and a >= graph.real
                    if not left <= place[a] <= right and not is_inner:
                        found.add((a, each))
            start, left = k + 1, right
    return found


def _one_way(
    graph: _Graph,
    rows: Sequence[Sequence[int]],
    neighbours: Sequence[Sequence[int]],
    conflicts: set[tuple[int, int]],
) -> list[float]:
    """Places with each node above or below a middle neighbour in the row before where it can be, leaning to the left."""
    root, align = list(range(len(graph.widths))), list(range(len(graph.widths)))
    place = {node: k for row in rows for k, node in enumerate(row)}
    for row in rows:
        last = -1
        for node in row:
            near = sorted(neighbours[node], key=place.__getitem__)
            for middle in sorted({(len(near) - 1) // 2, len(near) // 2}) if near else ():
                other = near[middle]
                is_free = align[node] == node and last < place[other]
                if is_free and (other, node) not in conflicts and (node, other) not in conflicts:
                    align[other], root[node] = node, root[other]
                    align[node] = root[node]
                    last = place[other]
    return _compacted(graph.widths, rows, root)


def _compacted(widths: Sequence[float], rows: Sequence[Sequence[int]], root: Sequence[int]) -> list[float]:
    """Blocks as far left as they may be, then those with room to the right as near to their neighbours as they may be."""
    after: dict[int, dict[int, float]] = {root[node]: {} for row in rows for node in row}
    before: Mapping[int, dict[int, float]] = {block: {} for block in after}
    for row in rows:
        for a, b in pairwise(row):
            apart = (widths[a] + widths[b]) / 2 + _APART
            left, right = root[a], root[b]
            after[left][right] = before[right][left] = max(apart, after[left].get(right, 0.0))
    order: list[int] = []
    waiting = {block: len(found) for block, found in before.items()}
    ready = [block for block, count in waiting.items() if not count]
    while ready:
        block = ready.pop()
        order.append(block)
        for each in after[block]:
            waiting[each] -= 1
            if not waiting[each]:
                ready.append(each)
    x = dict.fromkeys(after, 0.0)
    for block in order:
        x[block] = max((x[each] + apart for each, apart in before[block].items()), default=0.0)
    for block in reversed(order):
        if after[block]:
            x[block] = max(x[block], min(x[each] - apart for each, apart in after[block].items()))
    return [x[each] for each in root]
