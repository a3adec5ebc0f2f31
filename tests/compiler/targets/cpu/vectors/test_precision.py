"""Rounding errors of long sums: products and convolutions, compiled, against NumPy in float64."""

import numpy as np
import pytest
from treadle.compiler.targets.cpu.operators.winograd import TILES
from treadle.formats.types import tensor

from ..convolutions.convolutions import winograd
from ..harness import definition_of, evaluate, normal, run_kernel

RNG = np.random.default_rng(1)
DEPTH = 8192


def positive(*shape):
    """Elements of one sign: their sums grow, and with them the rounding errors of what is added later."""
    return RNG.uniform(0, 1, shape).astype(np.float32)


def relative_error(operator, arrays, wanted, **attributes):
    """Root mean square, in units of float32's last place, which is 2**-23 of the result."""
    definition = definition_of(operator, [tensor(str(array.dtype), array.shape) for array in arrays], **attributes)
    code, (got,) = run_kernel(definition, arrays)
    assert code == 0
    return np.sqrt(np.mean((got / wanted - 1) ** 2)) * 2**23


@pytest.mark.parametrize("shapes", [((1, DEPTH), (DEPTH, 64)), ((30, DEPTH), (DEPTH, 40)), ((DEPTH,), (DEPTH, 20))])
def test_products(shapes):
    a, b = (positive(*shape) for shape in shapes)
    assert relative_error("matmul", [a, b], a.astype(np.float64) @ b) < 5


@pytest.mark.parametrize("size", [1, 3])
def test_blocked_convolutions(size):
    channels = DEPTH // size**2 // 16 * 16
    x, weight = positive(1, channels, 3, 6), positive(16, channels, size, size)
    wanted = evaluate("conv", x.astype(np.float64), weight.astype(np.float64))
    arrays = [evaluate("pack_channels", x), evaluate("pack_weights", weight)]
    error = relative_error("conv_blocked", arrays, evaluate("pack_channels", wanted), channels=channels)
    assert error < 5


def test_convolutions_of_ordinary_images():
    x, weight = positive(1, DEPTH // 4, 1, 20), positive(3, DEPTH // 4, 1, 4)
    assert relative_error("conv", [x, weight], evaluate("conv", x.astype(np.float64), weight.astype(np.float64))) < 5


@pytest.mark.parametrize(
    ("tiles", "window", "units"),
    [
        (TILES[0], (3, 3), 2.5),
        (TILES[1], (3, 3), 6),
        (TILES[2], (3, 3), 6),
        (TILES[1], (1, 3), 2.5),
        (TILES[0], (5, 1), 2.5),
        (TILES[0], (5, 5), 6),
    ],
    ids=str,
)
def test_winograd_convolutions(tiles, window, units):
    """Of elements of both signs, relative to the root mean square of the result."""
    x, weight = (normal(*shape) for shape in ((1, 128, 14, 14), (32, 128, *window)))
    pads = [size // 2 for size in window] * 2
    wanted = evaluate("conv", x.astype(np.float64), weight.astype(np.float64), pads=pads)
    operator, image, packed, attributes = winograd(x, weight, 1, tiles=tiles, pads=pads)
    params = [tensor("float32", array.shape) for array in (image, packed)]
    _, (got,) = run_kernel(definition_of(operator, params, **attributes), [image, packed])
    difference = evaluate("unpack_channels", got, channels=32) - wanted
    assert np.sqrt(np.mean(difference**2) / np.mean(wanted**2)) * 2**23 < units
