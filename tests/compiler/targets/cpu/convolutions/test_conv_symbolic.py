"""Convolutions of few channels, and of groups of a block each, of sizes that only the call tells, compiled, against NumPy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.operators import lookup
from treadle.formats.types import tensor

from ..harness import NARROW, Builder, evaluate, normal, run_kernel
from . import convolutions


def convolve(x, weight, epilogue="", **options):
    """A check of the kernel for spatial sizes that only the call tells."""
    return convolutions.convolve(x, weight, epilogue, **{"symbolic": tuple(range(2, x.ndim))} | options)


@given(st.data())
@settings(max_examples=10, deadline=None, derandomize=True)
def test_any_window(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    axes = draw(1, 2)
    kernel, dilations = (tuple(draw(1, most) for _ in range(axes)) for most in (7, 3))
    strides = tuple(draw(1, 4) for _ in range(axes))
    pads = tuple(draw(0, 8) for _ in range(2 * axes))
    least = [
        (k - 1) * d + 1 - begin - end
        for k, d, begin, end in zip(kernel, dilations, pads[:axes], pads[axes:], strict=True)
    ]
    spatial = [draw(max(1, size), max(1, size) + 40) for size in least]
    epilogue = data.draw(st.sampled_from(["", "relu", "add relu", "gelu add"]))
    window = {"strides": strides, "pads": pads, "dilations": dilations}
    weight = normal(data.draw(st.sampled_from([1, 16, 40, 48])), draw(1, 3), *kernel)
    convolve(normal(draw(1, 2), weight.shape[1], *spatial), weight, epilogue, parts=draw(1, 4), **window)


@pytest.mark.parametrize("epilogue", ["relu", "gelu add"])
@pytest.mark.parametrize("window", [(1, 1), (7, 7)])
def test_lines_longer_than_the_room_for_a_band(window, epilogue):
    convolve(normal(1, 3, 30, 1700), normal(40, 3, *window), epilogue, pads=(1, 3, 1, 3), strides=(1, 2), parts=3)


def test_long_signals():
    convolve(normal(2, 1, 90000), normal(32, 1, 10), strides=(5,), parts=2, symbolic=(0, 2))


def test_windows_higher_than_the_room_for_a_band():
    convolve(normal(1, 3, 700, 20), normal(16, 3, 650, 3))


def test_sizes_share_a_kernel():
    weight = normal(16, 3, 3, 3)
    kernels = {convolve(normal(1, 3, size, 2 * size), weight, pads=(1, 1, 1, 1)).object_key for size in (1, 4, 30)}
    assert len(kernels) == 1


def test_parts_do_not_change_a_bit():
    x, weight = normal(2, 3, 37, 45), evaluate("pack_planar_weights", normal(48, 3, 3, 3))
    types = [tensor("float32", ("n", 3, "h", "w")), tensor("float32", weight.shape)]
    attributes = {"pads": (1, 1, 1, 1), "strides": (2, 1)}
    build = Builder(*types, *lookup("conv_planar").result_types(types, lookup("conv_planar").canonical(attributes)))
    definition = build.definition(build("relu", build("conv_planar", 0, 1, **attributes)))
    results = {
        run_kernel(definition, [x, weight], {"n": 2, "h": 37, "w": 45}, parts, slack=4 * words)[1][0].tobytes()
        for parts, words in ((1, 0), (2, 3), (7, 5), (64, 15))
    }
    assert len(results) == 1


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors(target):
    convolve(normal(1, 3, 9, 37), normal(40, 3, 3, 3), "add relu", pads=(1, 1, 1, 1), target=target)


@pytest.mark.parametrize(("shape", "kernel"), [((2, 64, 9, 37), (3, 3)), ((1, 64, 200), (7,)), ((1, 64, 3, 2), (5, 1))])
@pytest.mark.parametrize("groups", [1, 4, 8, 32])
def test_groups_of_a_block(shape, kernel, groups):
    outputs = 12 if groups == 1 else 64
    weight, pads = normal(outputs, 64 // groups, *kernel), (2,) * 2 * len(kernel)
    convolve(normal(*shape), weight, "add relu", groups=groups, pads=pads, strides=(2,) * len(kernel), parts=2)
