"""Values of kernels' texts: an expression means what its Python operators said, what does not fit is an error there."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.compiler.targets.cpu.kernels.values import Code, Value, any_lane, bracketed, constant, least, select
from treadle.formats.dtypes import DType
from treadle.formats.primitive import PrimitiveDefinition, PrimitiveNode
from treadle.formats.types import TensorType

from ....golden import TARGETS

_OPERATORS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.and_, operator.or_)
_NAMES = {"a": 7, "b": -3, "c": 5}
X, V, MASK = Value("x", DType.float32, True), Value("v", DType.int32, True), Value("m", DType.bool, True)


def _code() -> Code:
    types = (TensorType(DType.float32, (8,)), TensorType(DType.float16, (8,)))
    node = PrimitiveNode("cast", (0,), (types[1],), ())
    return Code(PrimitiveDefinition(types[:1], (node,), (1,)), TARGETS["avx2"], "test")


_LEAVES = st.one_of(
    st.sampled_from(sorted(_NAMES)).map(lambda name: (Value(name), _NAMES[name])),
    st.integers(-4, 9).map(lambda number: (number, number)),
)


def _both(pair: tuple, how: Callable) -> tuple:
    (left, a), (right, b) = pair
    try:
        return how(left, right), how(a, b)
    except ZeroDivisionError:
        return left, a


_EXPRESSIONS = st.recursive(
    _LEAVES, lambda deeper: st.tuples(deeper, deeper, st.sampled_from(_OPERATORS)).map(lambda t: _both(t[:2], t[2]))
)


@given(_EXPRESSIONS)
def test_the_text_of_an_expression_means_what_was_written(expression: tuple) -> None:
    value, expected = expression
    assert eval(str(value), {}, _NAMES) == expected


def test_comparisons_are_masks_and_are_told_apart_from_what_surrounds_them() -> None:
    mask = (X < 0.0) | (X + 1 >= 2 * X)
    assert str(mask) == "(x < 0.0) | (x + 1 >= 2 * x)"
    assert (mask.dtype, mask.is_vector) == (DType.bool, True)
    assert str(any_lane(~mask)) == "any_lane(~((x < 0.0) | (x + 1 >= 2 * x)))"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: X + V,
        lambda: X // 2,
        lambda: V * Value("f", DType.float32),
        lambda: select(X, X, X),
        lambda: any_lane(Value("a") < 3),
        lambda: bool(Value("a") < 3),
        lambda: _code().set(Value("a"), X),
        lambda: _code().output("y", 0).store(0, V),
    ],
)
def test_what_does_not_fit_is_an_error_where_it_is_written(wrong: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"x|v|a|f"):
        wrong()


def test_elements_are_counted_in_bytes_and_rounded_where_they_are_stored() -> None:
    code = _code()
    x, y = code.input("x", 0), code.output("y", 0)
    with code.loop("i", 0, 8, code.lanes) as i:
        v = code.let("v", x.at(i).vector(i + 1, least(8, 9 - i)))
        y.store(i, bracketed(v) * 2)
        y.at(i * 2).store(0, code.let("s", constant(1.5).to(DType.float32)))
    *_, load, store, scalar, place = code.kernel(1.0).source.splitlines()[-6:-1]
    assert load == "        v = vload_float32(x + i * 4, (i + 1) * 4, min(8, 9 - i))"
    assert store == "        vstore(y, i * 2, convert_float16((v) * 2))"
    assert scalar == "        s = convert_float32(1.5)"
    assert place == "        store_float16(y + (i * 2) * 2, 0, convert_float16(s))"
