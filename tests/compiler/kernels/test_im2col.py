"""Convolutions of symbolic sizes, and of any number of spatial axes, compiled, against NumPy on ordinary images."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.operators import lookup
from treadle.formats.types import tensor

from .harness import TARGET, Builder, built, run_kernel

RNG = np.random.default_rng(1)
NARROW = [dataclasses.replace(TARGET, vector_bytes=size, vector_registers=16) for size in (32, 16)]


def evaluate(operator, *arrays, **attributes):
    entry = lookup(operator)
    return entry.evaluate(arrays, entry.canonical(attributes))[0]


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def convolve(x, weight, epilogue="", *, symbolic=True, groups=1, parts=1, target=TARGET, **window):
    """Checks the kernel of a convolution of x with the weights; `symbolic`: of sizes that only the call tells."""
    axes, bias, channels = x.ndim - 2, normal(len(weight)), x.shape[1]
    wanted = evaluate("conv", x, weight, bias, groups=groups, **window)
    image, packed, operator = x, evaluate("pack_planar_weights", weight), "conv_planar"
    if channels >= 4:
        image, packed = evaluate("pack_channels", x), evaluate("pack_weights", weight, groups=groups)
        operator, window = "conv_blocked", window | {"groups": groups, "channels": channels // groups}
    if operator == "conv_blocked" and channels % 16:
        image[:, -1, ..., channels % 16 :] = math.nan  # what stands there is nobody's business
    vector = evaluate("pack_vector", bias, axes=axes)
    first = 2
    names = {f"s{axis}": size for axis, size in enumerate(x.shape[2:])} if symbolic else {}
    shape = (*image.shape[:first], *(names or x.shape[2:]), *image.shape[first + axes :])
    types = [tensor("float32", shape), *(tensor("float32", array.shape) for array in (packed, vector))]
    result = lookup(operator).result_types(types, lookup(operator).canonical(window))[0]
    added = evaluate("pack_channels", normal(*wanted.shape))
    build = Builder(*types, result)
    value = build(operator, 0, 1, 2, **window)
    for step in epilogue.split():
        value = build("add", value, 3) if step == "add" else build(step, value)
        addend = evaluate("unpack_channels", added, channels=len(weight))
        wanted = wanted + addend if step == "add" else evaluate(step, wanted)
    definition = build.definition(value)
    _, (got,) = run_kernel(definition, [image, packed, vector, added], names, parts, target)
    plain = evaluate("unpack_channels", got, channels=len(weight))
    np.testing.assert_allclose(plain, wanted, rtol=1e-5, atol=2e-5 * math.sqrt(weight[0].size))
    return built(definition, target)


@given(st.data())
@settings(max_examples=8, deadline=None, derandomize=True)
def test_any_window(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    axes = draw(1, 4)
    kernel = tuple(draw(1, 3) for _ in range(axes))
    dilations = tuple(draw(1, 2) for _ in range(axes))
    pads = tuple(draw(0, 2) for _ in range(2 * axes))
    spatial = [
        draw(max(1, (kernel[axis] - 1) * dilations[axis] + 1 - pads[axis] - pads[axes + axis]), 9)
        for axis in range(axes)
    ]
    channels = data.draw(st.sampled_from([1, 3, 5, 16, 20, 32]))
    weight = normal(data.draw(st.sampled_from([1, 16, 40])), channels, *kernel)
    window = {"strides": tuple(draw(1, 3) for _ in range(axes)), "pads": pads, "dilations": dilations}
    symbolic = axes < 4  # or it is a matter for conv.py
    convolve(normal(draw(1, 2), channels, *spatial), weight, parts=draw(1, 4), symbolic=symbolic, **window)


@pytest.mark.parametrize("epilogue", ["relu", "add relu", "gelu add"])
def test_epilogues(epilogue):
    convolve(normal(2, 16, 7, 9), normal(48, 16, 3, 3), epilogue, parts=3, pads=(1, 1, 1, 1))


def test_sizes_share_a_kernel():
    weight = normal(16, 16, 3, 3)
    kernels = {convolve(normal(1, 16, size, 5), weight, pads=(1, 1, 1, 1)).object_key for size in (1, 4, 30)}
    assert len(kernels) == 1


def test_pixels_side_by_side_are_not_gathered():
    kernel = convolve(normal(2, 40, 6, 5), normal(32, 40, 1, 1), "add relu", parts=2)
    assert kernel.scratch_bytes == 0


def test_groups_of_whole_blocks():
    convolve(normal(1, 64, 6, 6), normal(96, 32, 3, 3), groups=2, pads=(1, 1, 1, 1))


def test_lines_longer_than_a_vector():
    convolve(normal(1, 1, 100), normal(20, 1, 37), strides=(3,), pads=(20, 5))


def test_bands_of_an_image_larger_than_the_cache():
    small = dataclasses.replace(TARGET, l2_bytes=16 << 10)
    convolve(normal(1, 32, 20, 14), normal(32, 32, 3, 3), pads=(1, 1, 1, 1), target=small, parts=3)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors(target):
    convolve(normal(1, 16, 5, 8), normal(32, 16, 3, 3), "add relu", pads=(1, 1, 1, 1), target=target)
