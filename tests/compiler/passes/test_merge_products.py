"""Products of one tensor for attention alone: what becomes one product, what does not, and that values stay."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from treadle.compiler import ir
from treadle.compiler.builder.programs import Expression, Module, constant, function, op, tuple_, var
from treadle.compiler.ir.analysis import expressions
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.passes import DeadCode, MergeProducts
from treadle.compiler.targets.choice import backend_of

from ..test_compile import assert_equal, run, saved

COSTS = backend_of().costs
HEADS, COLUMNS = 3, 16  # of a head
ORDER = (0, 2, 1, 3)  # of the axes [batch, rows, heads, columns of a head]
rng = np.random.default_rng(0)


def heads(x: Expression, rows: Any, *, depth: int = 24, count: int = HEADS, bias: bool = False) -> Expression:
    """Queries, keys or values: a product of [1, rows, depth], seen as heads."""
    columns = count * COLUMNS
    result = op.matmul(x, constant(rng.uniform(-0.3, 0.3, (depth, columns)).astype(np.float32)))
    if bias:
        result = op.add(constant(rng.standard_normal(columns).astype(np.float32)), result)
    return op.reshape(result, shape=(1, rows, count, COLUMNS))


def attended(q: Expression, k: Expression, v: Expression, **attributes: Any) -> Expression:
    return op.attention(q, k, v, q_axes=ORDER, k_axes=ORDER, v_axes=ORDER, result_axes=ORDER, **attributes)


def merged(*params: Expression, result: Expression, rows: int = 5) -> Counter[str]:
    """How often each operator is there after the pass, which changes no value."""
    module = infer_types(Module(main=function(list(params), result)))
    behind = DeadCode()(MergeProducts(COSTS)(module))
    arrays = [rng.standard_normal((1, rows, 24)).astype(np.float32) for _ in params]
    expected = evaluate(module, "main", *arrays)
    assert_equal(evaluate(behind, "main", *arrays), expected)
    assert_equal(run(saved(module), *arrays), expected)
    found = [each.value for each in expressions(behind.functions["main"].body)]
    return Counter(each.operator for each in found if isinstance(each, ir.OperatorCall))


@pytest.mark.parametrize("rows", [5, "n"])
def test_queries_keys_and_values_are_one_product(rows: Any) -> None:
    x = var("x", (1, rows, 24))
    result = attended(heads(x, rows), heads(x, rows), heads(x, rows))
    assert merged(x, result=result) == {"matmul": 1, "reshape": 1, "attention": 1}


def test_what_has_no_bias_gets_one_of_zeros_beside_others() -> None:
    x = var("x", (1, 5, 24))
    result = attended(heads(x, 5, bias=True), heads(x, 5), heads(x, 5, bias=True))
    assert merged(x, result=result) == {"matmul": 1, "add": 1, "reshape": 1, "attention": 1}


def test_keys_and_values_of_another_tensor_are_one_product_beside_the_queries() -> None:
    x, memory = var("x", (1, 5, 24)), var("memory", (1, 5, 24))
    result = attended(heads(x, 5), heads(memory, 5, bias=True), heads(memory, 5, bias=True))
    assert merged(x, memory, result=result)["matmul"] == 2


def test_keys_and_values_of_fewer_heads_are_one_product() -> None:
    x = var("x", (1, 5, 24))
    result = attended(heads(x, 5, count=6), heads(x, 5), heads(x, 5), repeat=2)
    assert merged(x, result=result)["matmul"] == 2


@pytest.mark.parametrize("shape", [(), (1,), (HEADS * COLUMNS,), (5, 1), (5, HEADS * COLUMNS)])
def test_what_is_added_is_a_bias_only_with_an_element_for_each_column(shape: tuple[int, ...]) -> None:
    def added() -> Expression:
        weights = constant(rng.uniform(-0.3, 0.3, (24, HEADS * COLUMNS)).astype(np.float32))
        sum_ = op.add(op.matmul(x, weights), constant(rng.standard_normal(shape).astype(np.float32)))
        return op.reshape(sum_, shape=(1, 5, HEADS, COLUMNS))

    x = var("x", (1, 5, 24))
    assert merged(x, result=attended(added(), added(), added()))["matmul"] == (1 if shape == (48,) else 3)


def test_what_something_else_uses_too_stays_as_it_is() -> None:
    x = var("x", (1, 5, 24))
    keys = heads(x, 5)
    result = tuple_(attended(heads(x, 5), keys, heads(x, 5)), op.negative(keys))
    assert merged(x, result=result)["matmul"] == 2  # queries and values are one


def test_a_result_that_leaves_the_second_cache_stays_in_parts() -> None:
    x, rows = var("x", (1, 2000, 24)), 2000
    result = attended(heads(x, rows), heads(x, rows), heads(x, rows))
    assert merged(x, result=result, rows=rows)["matmul"] == 3


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.booleans(), min_size=3, max_size=3), st.lists(st.sampled_from("xy"), min_size=3, max_size=3))
def test_any_operands(biases: list[bool], sources: list[str]) -> None:
    params = {name: var(name, (1, 5, 24)) for name in "xy"}
    operands = (heads(params[name], 5, bias=bias) for name, bias in zip(sources, biases, strict=True))
    assert merged(*params.values(), result=attended(*operands))["matmul"] == len(set(sources))
