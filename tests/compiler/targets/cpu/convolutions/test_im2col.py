"""Convolutions of symbolic sizes, and of any number of spatial axes, compiled, against NumPy on ordinary images."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..harness import NARROW, TARGET, normal
from . import convolutions


def convolve(x, weight, epilogue="", **options):
    """A check of the kernel for spatial sizes that only the call tells."""
    return convolutions.convolve(x, weight, epilogue, **{"symbolic": tuple(range(2, x.ndim))} | options)


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
    if axes == 4:
        window["symbolic"] = ()  # fewer axes of known sizes are a matter for convolutions/blocked.py
    convolve(normal(draw(1, 2), channels, *spatial), weight, parts=draw(1, 4), **window)


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
