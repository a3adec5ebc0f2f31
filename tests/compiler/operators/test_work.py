"""The arithmetic that operators do, against counts by hand."""

from __future__ import annotations

import pytest
from treadle.compiler.demand import Demand, demand_of
from treadle.compiler.operators import TABLE
from treadle.compiler.operators.work import Work, work_of
from treadle.formats import dims
from treadle.formats.dtypes import DType
from treadle.formats.primitive import PrimitiveDefinition, PrimitiveNode
from treadle.formats.types import TensorType


def tensor(*shape: dims.Dim, dtype: DType = DType.float32) -> TensorType:
    return TensorType(dtype, shape)


def count(name: str, *inputs: TensorType, **attributes: object) -> Work:
    operator = TABLE[name]
    canonical = operator.canonical(attributes)
    return work_of(operator, inputs, operator.result_types(inputs, canonical), operator.bind(canonical))


def test_what_a_call_must_do_follows_from_the_sizes_it_is_called_with() -> None:
    n = dims.variable("n")
    shape = (("dtype", DType.float32), ("shape", (n, 3)), ("value", 1.0))
    ones = PrimitiveNode("full", (), (tensor(n, 3),), shape)
    sums = PrimitiveNode("add", (0, 1), (tensor(n, 3),))
    definition = PrimitiveDefinition((tensor(n, 3),), (ones, sums), (2,), ("n",))
    assert demand_of(definition, [5]) == Demand(15, 15, (60,), 60)


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "expected"),
    [
        ("add", [(2, 3), (3,)], {}, 6),
        ("sum", [(4, 5)], {"axes": (1,)}, 20),
        ("softmax", [(4, 5)], {}, 100),
        ("permute_dims", [(4, 5)], {"axes": (1, 0)}, 0),
        ("matmul", [(7, 2, 3), (3, 5)], {}, 2 * 7 * 2 * 3 * 5),
        ("matmul_transposed", [(3, 2), (3, 5)], {"transpose_a": True}, 2 * 2 * 3 * 5),
        ("conv", [(1, 4, 8, 8), (6, 2, 3, 3)], {"groups": 2}, 2 * 6 * 6 * 6 * 2 * 9),
        ("conv_transpose", [(1, 4, 8, 8), (4, 6, 2, 2)], {"strides": (2, 2)}, 2 * 4 * 64 * 6 * 4),
        ("conv_blocked", [(1, 2, 8, 8, 16), (3, 2, 1, 1, 16, 16)], {"channels": 20}, 2 * 48 * 64 * 20),
        ("conv_planar", [(1, 3, 8, 8), (1, 3, 3, 3, 16)], {}, 2 * 16 * 36 * 27),
        ("conv_depthwise", [(1, 2, 8, 8, 16), (2, 1, 3, 3, 16)], {}, 2 * 32 * 36 * 9),
        ("max_pool", [(1, 2, 8, 8)], {"kernel": (2, 2), "strides": (2, 2)}, 2 * 16 * 4),
        ("attention", [(2, 5, 8), (2, 7, 8), (2, 7, 4)], {}, 2 * 5 * 7 * (2 * 8 + 2 * 4 + 5)),
        ("rotary", [(2, 5, 8), (5, 8), (8,)], {}, 3 * 80),
        ("rnn", [(6, 1, 1, 1, 16), (1, 1, 16, 1, 16), (1, 1, 16)], {"direction": "forward"}, 6 * 16 * (32 + 4)),
    ],
)
def test_operations(name: str, inputs: list[tuple[int, ...]], attributes: dict[str, object], expected: int) -> None:
    assert count(name, *(tensor(*shape) for shape in inputs), **attributes) == Work(expected, expected)


def test_integers_are_no_arithmetic():
    assert count("add", tensor(4, dtype=DType.int64), tensor(4, dtype=DType.int64)).done == 0


def test_winograd_does_less_than_the_definition_asks_for():
    """Tiles of 4 take 36 multiplications for 144, and their transforms."""
    work = count("conv_winograd", tensor(1, 8, 32, 32, 16), tensor(8, 6, 6, 128, 16), pads=(1, 1, 1, 1), channels=128)
    assert work.defined == 2 * 128 * 128 * 32 * 32 * 9
    assert 36 / 144 < work.done / work.defined < 1.4 * 36 / 144


def test_along_one_axis_it_does_half_of_it():
    """Tiles of 4 pixels of a signal take 6 multiplications for 12."""
    params = tensor(1, 8, 64, 16), tensor(8, 1, 6, 128, 16)
    work = count("conv_winograd", *params, pads=(1, 1), channels=128, window=(3,))
    assert work.defined == 2 * 128 * 128 * 64 * 3
    assert 6 / 12 < work.done / work.defined < 1.1 * 6 / 12


def test_raw_weights_are_transformed_once_an_image():
    """Four tiles of 36 multiplications, and 54 to transform a window, for 49 pixels of 9."""
    params = tensor(2, 8, 7, 7, 16), tensor(8, 8, 3, 3, 16, 16)
    work = count("conv_winograd_raw", *params, pads=(1, 1, 1, 1), channels=128)
    least = (4 * 36 + 54) / (49 * 9)
    assert least < work.done / work.defined < 1.3 * least
