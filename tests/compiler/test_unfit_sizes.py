"""What only a call tells may not fit: the call fails, and says which primitive's sizes these are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.compiler.builder.programs import Module, function, op, var
from treadle.formats.messages.errors import ShapeError


def called(make: Callable[..., Any], shapes: list[tuple], *arrays: np.ndarray) -> np.ndarray:
    """The result of a function of tensors of these shapes."""
    params = [var(f"x{number}", shape) for number, shape in enumerate(shapes)]
    executable = treadle.compile(Module(main=function(params, make(*params))), progress=False)
    return treadle.VirtualMachine(executable)["main"](*arrays)


CASES: dict[str, tuple[Callable[..., Any], list[tuple], Callable[[int], list[tuple]]]] = {
    "group_normalization": (
        lambda x, scale, bias: op.group_normalization(x, scale, bias, groups=4),
        [(2, "c", 5), ("c",), ("c",)],
        lambda c: [(2, c, 5), (c,), (c,)],
    ),
    "conv": (
        lambda x, weight: op.conv(x, weight, groups=4),
        [(1, "4*c", 5), ("o", "c", 1)],
        lambda o: [(1, 8, 5), (o, 2, 1)],
    ),
    "depth_to_space": (lambda x: op.depth_to_space(x, blocks=(2, 2)), [(1, "c", 3, 3)], lambda c: [(1, c, 3, 3)]),
}


@pytest.mark.parametrize("name", CASES)
def test_channels_that_groups_do_not_divide_are_named(name: str) -> None:
    make, symbolic, actual = CASES[name]
    good, bad = ([np.ones(shape, np.float32) for shape in actual(count)] for count in (8, 6))
    assert np.isfinite(called(make, symbolic, *good)).all()
    with pytest.raises(ShapeError, match=f"{name}.*sizes do not fit"):
        called(make, symbolic, *bad)
