"""Which kernels of several programs do the same model nodes, however these were fused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...debug.flow import nodes_of
from ...formats.pictures.program import Graph

_QUANTISED = "_quant"  # what onnxruntime's quantiser adds to the names of nodes


@dataclass(frozen=True)
class Group:
    """Nodes of each program that share model nodes, by number of function and node."""

    name: str
    members: tuple[tuple[tuple[int, int], ...], ...]  # by program


def aligned(programs: Sequence[Sequence[Graph]]) -> list[Group]:
    """Groups in the order of the first program, then of what it lacks."""
    kernels = [
        (number, (function, at), _names(node.origin))
        for number, found in enumerate(programs)
        for function, graph in enumerate(found)
        for at, node in enumerate(graph.nodes)
        if node.operators and node.origin
    ]
    groups: dict[str, str] = {}  # of a model node, another one of its group, up to the root

    def root(name: str) -> str:
        while (up := groups.setdefault(name, name)) != name:
            groups[name] = groups.get(up, up)
            name = up
        return name

    for _, _, names in kernels:
        for name in names[1:]:
            groups[root(name)] = root(names[0])
    found: dict[str, list[list[tuple[int, int]]]] = {}
    called: dict[str, str] = {}
    for number, place, names in kernels:
        which = root(names[0])
        found.setdefault(which, [[] for _ in programs])[number].append(place)
        called.setdefault(which, " + ".join(names))
    return [Group(called[which], tuple(map(tuple, members))) for which, members in found.items()]


def _names(origin: str) -> list[str]:
    return [name.removesuffix(_QUANTISED) for name in nodes_of(origin, {})]
