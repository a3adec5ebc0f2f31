"""Convolution of ordinary images of any rank, compiled, against the reference evaluator."""

import pytest
from treadle.formats.types import tensor

from ..harness import check_random, definition_of

CASES = {
    "image": ((2, 3, 7, 20), (5, 3, 3, 3), {"pads": (1, 1, 1, 1)}),
    "strides and dilations": (
        (1, 3, 9, 40),
        (2, 3, 2, 3),
        {"strides": (2, 3), "dilations": (1, 2), "pads": (0, 2, 1, 0)},
    ),
    "groups": ((1, 6, 5, 5), (9, 2, 3, 3), {"groups": 3}),
    "signal": ((2, 4, 50), (6, 4, 5), {"pads": (2, 2)}),
    "volume": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 3), {"pads": (0, 1, 1, 0, 1, 1)}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_rank(name, dtype):
    x, weight, attributes = CASES[name]
    params = [tensor(dtype, x), tensor(dtype, weight), tensor(dtype, weight[:1])]
    check_random(definition_of("conv", params, **attributes), parts=3)


def test_symbolic_sizes():
    x, weight = tensor("float32", ("n", 3, "h", "w")), tensor("float32", (5, 3, 3, 3))
    definition = definition_of("conv", [x, weight], strides=(1, 2), pads=(1, 1, 1, 1))
    for sizes in ({"n": 1, "h": 3, "w": 3}, {"n": 2, "h": 5, "w": 41}):
        check_random(definition, sizes, parts=2)
