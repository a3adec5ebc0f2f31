"""Limits on work: a file's bytes bound the time that it takes to read."""

import msgpack
import pytest
from treadle.formats import dims, limits
from treadle.formats.messages.errors import LimitError
from treadle.formats.schema import DEFINITIONS, PRIMITIVE_NAMES, TYPES
from treadle.formats.types import TupleType

from ..timing import soon


@pytest.mark.serial
def test_tables_of_very_many_tiny_values_are_refused_soon() -> None:
    count = 1_000_000
    data = msgpack.packb(count) + b"\x02\x01\x02\x00" * count  # scalars of a byte each, but for the first
    with soon(5), pytest.raises(LimitError, match=f"at most {limits.TABLE_SCALARS} values") as caught:
        TYPES.decode(data, "types")
    assert caught.value.offset == len(msgpack.packb(count)) + limits.TABLE_SCALARS - 1


def test_embedded_values_count_for_what_it_takes_to_begin_one() -> None:
    count = 1 << 18
    with pytest.raises(LimitError, match="values"):
        DEFINITIONS.decode(msgpack.packb(count) + (msgpack.packb(b"\0\0\0\0") + b"\0") * count, "definitions")


def test_what_could_not_be_read_is_not_written() -> None:
    with pytest.raises(LimitError, match="values"):
        TYPES.encode((TupleType((TupleType(()),) * 10_000),) * 60, "types")
    assert len(PRIMITIVE_NAMES.encode(("name",) * 1000, "primitives")) > 5000


SUM = dims.parse(" + ".join(f"v{i}" for i in range(60)))


def test_products_of_large_sums_are_not_computed() -> None:
    with pytest.raises(LimitError, match="an operation on dimensions of"):
        dims.product([SUM] * 3)
    with pytest.raises(LimitError, match="an operation on dimensions of"):
        dims.substitute(dims.parse("n*n*n*n"), {"n": SUM})


def test_a_product_has_a_bounded_number_of_factors() -> None:
    with pytest.raises(LimitError, match="at most 128 are computed"):
        dims.product([dims.variable("n")] * 129)


def doubled(dim: dims.Dim, times: int) -> dims.Dim:
    for step in range(times):
        dim = dims.minimum(dim // 3 + step, dim // 5)
    return dim


def sums(times: int) -> None:
    for _ in range(times):
        SUM + SUM


def test_expressions_that_double_with_each_operation_end() -> None:
    with pytest.raises(LimitError, match="at most 16384 are computed"):
        doubled(dims.variable("n"), 40)


def test_all_arithmetic_within_a_bound_counts() -> None:
    with pytest.raises(LimitError, match="more steps than are allowed"), dims.bounded(1000):
        sums(30)
    assert SUM + SUM == 2 * SUM


def test_an_inner_bound_does_not_widen_an_outer_one() -> None:
    with dims.bounded(1000):
        with dims.bounded(1_000_000):
            sums(6)
        with pytest.raises(LimitError, match="more steps than are allowed"), dims.bounded(1_000_000):
            sums(3)
