"""Places of a graph's nodes: none lies over another, and edges go from layer to layer."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from treadle.formats.pictures.layered import laid_out

from ..timing import soon


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 14))
    node = st.integers(0, count - 1)
    sizes = draw(st.lists(st.tuples(st.floats(10, 200), st.floats(10, 60)), min_size=count, max_size=count))
    return sizes, draw(st.lists(st.tuples(node, node), max_size=30))


@given(graphs())
def test_nodes_lie_apart_and_edges_between_them(graph):
    sizes, edges = graph
    found = laid_out(sizes, edges)
    boxes = [(x - w / 2, x + w / 2, y - h / 2, y + h / 2) for (x, y), (w, h) in zip(found.nodes, sizes, strict=True)]
    for k, (left, right, top, bottom) in enumerate(boxes):
        assert left >= -1e-6
        assert right <= found.width + 1e-6
        assert bottom <= found.height + 1e-6
        for other in boxes[:k]:
            assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
    for (a, b), route in zip(edges, found.edges, strict=True):
        assert route[0][0] == found.nodes[a][0]
        assert route[-1][0] == found.nodes[b][0]
        if a < b:
            ys = [y for _, y in route]
            assert ys == sorted(ys)


def test_a_chain_is_straight():
    found = laid_out([(50, 20), (90, 20), (30, 20)], [(0, 1), (1, 2)])
    assert len({x for x, _ in found.nodes}) == 1


def test_thousands_of_nodes_take_a_second():
    edges = [(k, k + 1) for k in range(2999)] + [(0, k) for k in range(5, 3000, 40)]
    with soon(10):
        laid_out([(100, 40)] * 3000, edges)
