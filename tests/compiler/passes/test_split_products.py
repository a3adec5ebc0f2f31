"""Products whose columns part after them: what the pass makes of them, what it leaves alone, and that values stay."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from treadle.compiler import ir
from treadle.compiler.builder.programs import Expression, Module, constant, function, op, tuple_, var
from treadle.compiler.ir.analysis import expressions
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.passes import DeadCode, SplitProducts
from treadle.compiler.targets.choice import backend_of

from ..test_compile import assert_equal, run, saved

COSTS = backend_of().costs
DEPTH, PART = 128, 128  # of the weights of a part that is worth a product
rng = np.random.default_rng(0)


def product(x: Expression, parts: int, biased: bool = False) -> Expression:
    result = op.matmul(x, constant(rng.uniform(-0.1, 0.1, (DEPTH, parts * PART)).astype(np.float32)))
    return op.add(result, constant(rng.standard_normal(parts * PART).astype(np.float32))) if biased else result


def operators(make: Callable[[Expression], Expression], *shape: Any) -> Counter[str]:
    """How often a function of x has each operator after the pass, which changes no value."""
    x = var("x", (*shape, DEPTH))
    module = infer_types(Module(main=function([x], make(x))))
    parted = DeadCode()(SplitProducts(COSTS)(module))
    array = rng.standard_normal([*(3 if size == "n" else size for size in shape), DEPTH]).astype(np.float32)
    expected = evaluate(module, "main", array)
    assert_equal(evaluate(parted, "main", array), expected)
    assert_equal(run(saved(module), array), expected)
    found = [each.value for each in expressions(parted.functions["main"].body)]
    return Counter(each.operator for each in found if isinstance(each, ir.OperatorCall))


def test_a_gate_and_what_it_gates() -> None:
    def gated(x: Expression) -> Expression:
        gate, value = op.split(product(x, 2, biased=True), axis=-1, sizes=(PART, PART))
        return op.multiply(op.silu(gate), value)

    for rows in (5, "n"):
        assert operators(gated, 2, rows) == {"matmul": 2, "add": 2, "silu": 1, "multiply": 1}


def heads(x: Expression, order: tuple[str, ...], use: Callable[..., Expression]) -> Expression:
    """Two heads of queries, keys and values of one product, whose columns lie in this order."""
    sizes = {"part": 3, "head": 2, "depth": PART // 2}
    columns = op.reshape(product(x, 3), shape=(1, 4, *(sizes[name] for name in order)))
    columns = op.permute_dims(columns, axes=(0, *(2 + order.index(name) for name in ("head", "part")), 1, 4))
    parts = (op.slice(columns, starts=(i,), ends=(i + 1,), axes=(2,)) for i in range(3))
    return use(*(op.squeeze(part, axes=(2,)) for part in parts))


def test_heads_that_rotate_are_products_of_their_own_and_those_that_attention_reads_are_not() -> None:
    def attended(q: Expression, k: Expression, v: Expression) -> Expression:
        return op.attention(q, k, v)

    def rotated(q: Expression, k: Expression, v: Expression) -> Expression:
        return op.attention(op.negative(q), op.negative(k), v)

    for order in (("part", "head", "depth"), ("head", "part", "depth")):
        assert operators(lambda x, order=order: heads(x, order, attended), 1, 4)["matmul"] == 1
        found = operators(lambda x, order=order: heads(x, order, rotated), 1, 4)
        assert (found["matmul"], found["slice"]) == (3, 0)


def test_what_is_used_as_a_whole_or_twice_stays_whole() -> None:
    def whole(x: Expression) -> Expression:
        y = product(x, 2)
        a, b = op.split(y, axis=-1, sizes=(PART, PART))
        return tuple_(op.exp(a), op.exp(b), y)

    def overlapping(x: Expression) -> Expression:
        y = product(x, 2)
        cuts = ((0, PART + 8), (PART, 2 * PART))
        return tuple_(*(op.exp(op.slice(y, starts=(a,), ends=(b,), axes=(-1,))) for a, b in cuts))

    def shared(x: Expression) -> Expression:
        matrix = constant(rng.standard_normal((DEPTH, 2 * PART)).astype(np.float32))
        parts = [op.split(op.matmul(y, matrix), axis=-1, sizes=(PART, PART)) for y in (x, op.negative(x))]
        return tuple_(*(op.tanh(part) for both in parts for part in both))

    def rows(x: Expression) -> Expression:
        a, b = op.split(product(x, 2), axis=0, sizes=(2, 2))
        return op.multiply(a, b)

    def corners(x: Expression) -> Expression:
        y = product(x, 2)
        return tuple_(*(op.exp(op.slice(y, starts=(0, a), ends=(2, a + PART))) for a in (0, PART)))

    assert operators(corners, 4)["matmul"] == 1
    assert operators(whole, 4)["matmul"] == operators(overlapping, 4)["matmul"] == operators(rows, 4)["matmul"] == 1
    assert operators(shared, 4)["matmul"] == 2


def test_small_parts_are_copied() -> None:
    def small(x: Expression) -> Expression:
        parts = op.split(product(x, 1), axis=-1, sizes=(8,) * (PART // 8))
        return tuple_(*(op.exp(part) for part in parts))

    assert operators(small, 4)["matmul"] == 1


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_values_stay_whatever_the_parts(data: st.DataObject) -> None:
    """Columns seen as up to three axes, one of which is cut into ranges, some of which are left out."""
    inner = data.draw(st.sampled_from([(4 * PART,), (4, PART), (2, 4, 64), (4, 2, 64), (16, 32)]))
    axis = data.draw(st.integers(0, len(inner) - 1))
    bounds = sorted({0, inner[axis], *data.draw(st.lists(st.integers(0, inner[axis]), max_size=4))})
    ranges = data.draw(st.lists(st.sampled_from(list(itertools.pairwise(bounds))), min_size=1, max_size=4))
    order = data.draw(st.none() | st.permutations(range(2 + len(inner))))
    biased = data.draw(st.booleans())

    def cut(x: Expression) -> Expression:
        y = op.reshape(product(x, 4, biased), shape=(2, 3, *inner))
        place = 2 + axis
        if order is not None:
            y, place = op.permute_dims(y, axes=tuple(order)), order.index(2 + axis)
        parts = (op.slice(y, starts=(a,), ends=(b,), axes=(place,)) for a, b in ranges)
        return tuple_(*(op.tanh(part) for part in parts))

    assert operators(cut, 6)["matmul"] >= 1
