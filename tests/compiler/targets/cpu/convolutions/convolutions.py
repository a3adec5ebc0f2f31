"""Checks kernels of convolutions against NumPy's direct ones on ordinary images."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from treadle.compiler.operators import lookup
from treadle.compiler.targets.cpu.operators.winograd import Tiles
from treadle.compiler.targets.cpu.target import Target
from treadle.formats.types import tensor
from treadle.vm.library import BuiltKernel

from ..harness import TARGET, Builder, built, evaluate, normal, run_kernel

Choice = tuple[
    str, np.ndarray, np.ndarray, dict
]  # the operator, the image and the weights as it takes them, attributes


def direct(x: np.ndarray, weight: np.ndarray, groups: int, **window: object) -> Choice:
    """The operator that the layout pass would choose: depthwise, planar or blocked."""
    if groups == x.shape[1] == len(weight) > 1:
        return depthwise(x, weight, groups, **window)
    if x.shape[1] < 4:
        return "conv_planar", x, evaluate("pack_planar_weights", weight), window
    image, packed = evaluate("pack_channels", x), evaluate("pack_weights", weight, groups=groups)
    if x.shape[1] % 16:
        image[:, -1, ..., x.shape[1] % 16 :] = math.nan  # what stands there is nobody's business
    channels, outputs = x.shape[1] // groups, len(weight) // groups
    is_narrow = groups > 1 and outputs <= 16 and (channels % 16 or outputs % 16)
    sizes = {"groups": groups, "channels": channels, "outputs": outputs if is_narrow else 0}
    return "conv_blocked", image, packed, window | sizes


def depthwise(x: np.ndarray, weight: np.ndarray, groups: int, **window: object) -> Choice:
    """Each channel by itself, or in groups that lie in a block."""
    image = evaluate("pack_channels", x)
    if x.shape[1] % 16:
        image[:, -1, ..., x.shape[1] % 16 :] = math.nan
    return "conv_depthwise", image, evaluate("pack_planar_weights", weight), window


def to_few(x: np.ndarray, weight: np.ndarray, groups: int, **window: object) -> Choice:
    """Vectors of input channels."""
    image, channels = evaluate("pack_channels", x), x.shape[1]
    if channels % 16:
        image[:, -1, ..., channels % 16 :] = math.nan
    return "conv_to_few", image, evaluate("pack_channels", weight), window | {"channels": channels}


def winograd(x: np.ndarray, weight: np.ndarray, groups: int, *, tiles: Tiles, **window: Any) -> Choice:
    """Of a volume, by the channels of each slice that the window meets; wider windows filled up, and the image padded as much."""
    image, counts = evaluate("pack_channels", x), {"groups": groups, "channels": x.shape[1] // groups}
    if x.shape[1] % 16:
        image[:, -1, ..., x.shape[1] % 16 :] = math.nan
    dilations = window.pop("dilations", (1,) * (x.ndim - 2))
    if tiles.is_raw:
        by_slice = np.moveaxis(weight, 2, 1).reshape(len(weight), -1, 3, 3) if x.ndim == 5 else weight
        return "conv_winograd_raw", image, evaluate("pack_weights", by_slice), window | counts
    size, steps = weight.shape[2:][-2:], dilations[-2:]
    filled = tiles.filled(size)
    more = [(full - length) * step for full, length, step in zip(filled, size, steps, strict=True)]
    pads = window.get("pads", (0,) * 2 * len(dilations))
    ends = [end + each for end, each in zip(pads[-len(more) :], more, strict=True)]
    attributes = {
        "pads": (*pads[: -len(more)], *ends),
        "window": tuple(filled),
        "dilations": steps,
    }
    packed = evaluate("pack_winograd_weights", weight, outputs=tiles.outputs)
    return "conv_winograd", image, packed, attributes | counts


def convolve(
    x: np.ndarray,
    weight: np.ndarray,
    epilogue: str = "",
    *,
    choose: Callable[..., Choice] = direct,
    symbolic: tuple[int, ...] = (),
    groups: int = 1,
    bias: bool = True,
    parts: int = 1,
    target: Target = TARGET,
    slack: int = 0,
    rtol: float = 1e-5,
    atol: float | None = None,
    **window: object,
) -> BuiltKernel | None:
    """Checks the kernel that a convolution of x with the weights gets, and gives it.

    `epilogue`: names of operators that follow, where "add" adds another image. `symbolic`: axes of sizes that only the call
    tells. `slack`: bytes that tensors end before a page. `atol`: by default the error bound of a sum of that length.
    """
    vector = normal(len(weight))
    wanted = evaluate("conv", x, weight, *[vector] * bias, groups=groups, **window)
    added = normal(*wanted.shape)
    operator, image, packed, attributes = choose(x, weight, groups, **window)
    arrays = [image, packed, evaluate("pack_vector", vector, axes=x.ndim - 2), evaluate("pack_channels", added)]
    sizes = {f"s{axis}": image.shape[axis] for axis in symbolic}
    shape = [f"s{axis}" if axis in symbolic else size for axis, size in enumerate(image.shape)]
    types = [tensor("float32", shape), *(tensor("float32", array.shape) for array in arrays[1:3])]
    build = Builder(*types, *lookup(operator).result_types(types, lookup(operator).canonical(attributes)))
    value = build(operator, *range(2 + bias), **attributes)
    for step in epilogue.split():
        value = build("add", value, 3) if step == "add" else build(step, value)
        wanted = wanted + added if step == "add" else evaluate(step, wanted)
    definition = build.definition(value)
    _, (got,) = run_kernel(definition, arrays, sizes, parts, target, slack)
    plain = evaluate("unpack_channels", got, channels=len(weight))
    if atol is None:
        atol = 2e-5 * math.sqrt(weight[0].size)
    np.testing.assert_allclose(plain, wanted, rtol=rtol, atol=atol)
    return built(definition, target)
