"""The order of a graph's nodes. ONNX wants each node after those that make what it reads; onnxruntime does not, and its own
tools write casts of a model's inputs after everything else."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def in_order(nodes: Sequence[onnx.NodeProto]) -> Sequence[onnx.NodeProto]:
    """The nodes, each after those that it depends on, and otherwise as they were. Nodes of a cycle, and those after one, come
    last: the importer says what they lack."""
    makers: dict[str, int] = {}
    for place, node in enumerate(nodes):
        for name in node.output:
            makers.setdefault(name, place)
    makers.pop("", None)
    needs = [{makers[name] for name in names_taken([node]) if name in makers} for node in nodes]
    if all(max(each, default=-1) < place for place, each in enumerate(needs)):
        return nodes
    users: list[list[int]] = [[] for _ in nodes]
    for place, each in enumerate(needs):
        for need in each:
            users[need].append(place)
    waiting = [len(each) for each in needs]
    ready = [place for place, count in enumerate(waiting) if not count]
    found = []
    while ready:
        place = heapq.heappop(ready)
        found.append(place)
        for user in users[place]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    return [nodes[place] for place in [*found, *(place for place, count in enumerate(waiting) if count)]]


def names_taken(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    """The names that nodes take, and the nodes of graphs in them, which may be those of values around these."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from names_taken(graph.node)
                yield from (info.name for info in graph.output)
