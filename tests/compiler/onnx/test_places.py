"""Unique, TensorScatter, Einsum's diagonals, Det, SpaceToDepth, and BatchNormalization in training."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.tests.compiler.onnx.onnx_nodes import Node, same

few = settings(max_examples=20, deadline=None, derandomize=True)
rng = np.random.default_rng(0)


@functools.cache
def node(*args, **attributes) -> Node:
    return Node(*args, **attributes)


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    yield
    node.cache_clear()


def unique(x: np.ndarray, axis: int | None, is_sorted: bool) -> list[np.ndarray]:
    values, places, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(places)
        values, places, counts = np.take(values, order, axis or 0), places[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return [values, places.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)]


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("kind", ["float32", "int8", "bool", "int64"])
def test_each_element_once(kind, is_sorted):
    found = node("Unique", (kind, ("a", "b")), outputs=4, sorted=is_sorted)

    @few
    @given(st.lists(st.integers(0, 3), min_size=0, max_size=6), st.integers(1, 2))
    def check(row, copies):
        x = np.array([row] * copies).reshape(copies, -1).astype(kind)
        found.check(x, expected=unique(x, None, bool(is_sorted)))

    check()


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_each_slice_once(axis, is_sorted):
    found = node("Unique", ("float32", ("a", "b", "c")), outputs=4, axis=axis, sorted=is_sorted)
    for shape in ((4, 5, 1), (5, 2, 3), (1, 1, 6)):
        x = rng.integers(0, 2, shape).astype(np.float32)
        found.check(x, expected=unique(x, axis % 3, bool(is_sorted)))


def test_what_is_no_number_is_there_once():
    x = np.float32([np.nan, 1, np.nan, -np.inf])
    same(node("Unique", ("float32", ("a",)), outputs=4).run(x), unique(x, None, True))


def test_elements_of_a_type_that_numpy_lacks():
    x = np.array([2, 1, 2, 3], ml_dtypes.bfloat16)
    values, *_ = Node("Unique", (x.dtype, ("a",)), outputs=4).run(x)
    assert values.dtype == x.dtype
    assert values.tolist() == [1, 2, 3]


@pytest.mark.parametrize(("shape", "axis"), [((2, 5, 3), 1), ((2, 3, 5, 4), 2), ((2, 3, 5), -1)])
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_updates_of_a_cache(shape, axis, mode):
    size = [each if place != axis % len(shape) else 2 for place, each in enumerate(shape)]
    starts = [3, 1] if mode == "linear" else [4, 2]
    cache, updates = rng.standard_normal(shape, np.float32), rng.standard_normal(size, np.float32)
    symbolic = ("b", *shape[1:])
    scattered = Node(
        "TensorScatter",
        ("float32", symbolic),
        ("float32", ("b", *size[1:])),
        ("int64", ("b",)),
        opset=24,
        axis=axis,
        mode=mode,
    )
    scattered.check(cache, updates, starts)
    assert scattered.on_host == []


@pytest.mark.parametrize("equation", ["...ii->...i", "ii", "iji->j", "iij,jk->ik", "kiii->k"])
def test_diagonals(equation):
    terms = equation.split("->")[0].split(",")
    operands = [rng.standard_normal((3,) * len(term.replace("...", "_")), np.float32) for term in terms]
    declared = [("float32", ("n",) * each.ndim) for each in operands]
    summed = Node("Einsum", *declared, equation=equation, opset=12)
    same(summed.run(*operands), [np.asarray(np.einsum(equation, *operands))])


def test_determinants():
    x = rng.standard_normal((3, 4, 4), np.float32)
    Node("Det", ("float32", ("n", 4, 4)), opset=22).check(x)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_undoes_space_to_depth(mode):
    x = rng.standard_normal((2, 3, 4, 6), np.float32)
    (deep,) = Node("SpaceToDepth", ("float32", ("n", 3, "h", "w")), blocksize=2, mode=mode, opset=28).run(x)
    same(Node("DepthToSpace", ("float32", deep.shape), blocksize=2, mode=mode, opset=13).run(deep), [x])


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_batch_normalisation_in_training(kind):
    x = rng.standard_normal((4, 3, 5, 2)).astype(kind)
    parameters = [rng.uniform(0.5, 1.5, 3).astype(kind) for _ in range(4)]
    declared = [(kind, ("n", 3, "h", "w")), *[(kind, (3,))] * 4]
    made = Node("BatchNormalization", *declared, outputs=3, training_mode=1, momentum=0.7, opset=15)
    made.check(x, *parameters, rtol=1e-3)
    assert made.on_host == []
