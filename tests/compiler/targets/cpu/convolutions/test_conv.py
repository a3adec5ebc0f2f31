"""Convolutions of channel-blocked and planar images, compiled, against NumPy on ordinary images."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.formats.types import tensor

from ..harness import NARROW, TARGET, Builder, evaluate, normal, run_kernel
from .convolutions import convolve, depthwise, to_few


@given(st.data())
@settings(max_examples=10, deadline=None, derandomize=True)
def test_any_window(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    axes = draw(1, 3)
    kernel, dilations, strides = (tuple(draw(1, most) for _ in range(axes)) for most in (4, 2, 3))
    pads = tuple(draw(0, 3) for _ in range(2 * axes))
    spatial = [
        draw(
            max(1, (kernel[axis] - 1) * dilations[axis] + 1 - pads[axis] - pads[axes + axis]),
            12 + 6 * (axis == axes - 1),
        )
        for axis in range(axes)
    ]
    channels = data.draw(st.sampled_from([1, 3, 5, 16, 20, 32]))
    weight = normal(data.draw(st.sampled_from([1, 16, 40])), channels, *kernel)
    window = {"strides": strides, "pads": pads, "dilations": dilations}
    convolve(normal(draw(1, 2), channels, *spatial), weight, parts=draw(1, 4), **window)


@pytest.mark.parametrize("epilogue", ["relu", "add relu", "gelu add"])
def test_epilogues(epilogue):
    convolve(normal(2, 16, 7, 9), normal(48, 16, 3, 3), epilogue, parts=3, pads=(1, 1, 1, 1))


def test_pixels_of_a_pointwise_convolution_are_one_row():
    kernel = convolve(normal(1, 32, 5, 7), normal(32, 32, 1, 1), "add relu", parts=2)
    assert kernel.scratch_bytes == 64  # a note, and no copies


def test_bands_of_an_image_larger_than_the_cache():
    small = dataclasses.replace(TARGET, l2_bytes=16 << 10)
    convolve(normal(1, 32, 20, 14), normal(32, 32, 3, 3), pads=(1, 1, 1, 1), target=small, parts=3)


@pytest.mark.parametrize(("stride", "pads"), [(1, (2, 2)), (2, (0, 9)), (3, (40, 1))])
@pytest.mark.parametrize("channels", [3, 33])
def test_bands_of_a_line_longer_than_the_cache_are_copied_one_by_one(channels, stride, pads):
    small = dataclasses.replace(TARGET, l2_bytes=16 << 10)
    x, weight = normal(2, channels, 501), normal(40, channels, 5)
    convolve(x, weight, "relu", strides=(stride,), pads=pads, dilations=(2,), target=small, parts=5)


@pytest.mark.parametrize("slack", [0, 4])
def test_large_results_are_written_past_the_caches(slack):
    size = 740  # an image of 16 channels, larger than the caches
    convolve(normal(1, 3, size, size), normal(16, 3, 1, 1), "relu", parts=2, slack=slack)
    convolve(normal(1, 16, size, size), normal(16, 16, 1, 1), "add relu", parts=2, slack=slack)
    convolve(normal(1, 16, size, size), normal(16, 1, 1, 3), "relu", parts=2, slack=slack, groups=16, pads=(0, 1, 0, 1))


@pytest.mark.parametrize("stride", [1, 2])
def test_bands_of_one_line_share_its_padded_copy(stride):
    x = normal(2, 64, 1, 6000)
    convolve(x, normal(16, 64, 1, 3), parts=3, strides=(1, stride), pads=(0, 1, 0, 1))


@pytest.mark.parametrize("epilogue", ["add relu", "gelu"])
@pytest.mark.parametrize(
    ("kernel", "pads"), [((3, 3, 3), (1,) * 6), ((1, 1, 1), (0,) * 6), ((3, 1, 1), (2, 0, 0, 0, 0, 0))]
)
def test_volumes(kernel, pads, epilogue):
    small = dataclasses.replace(TARGET, l2_bytes=16 << 10)
    convolve(normal(2, 40, 4, 6, 5), normal(33, 40, *kernel), epilogue, pads=pads, parts=3, target=small)


@pytest.mark.parametrize("channels", [2, 32])
def test_causal_signals(channels):
    convolve(normal(2, channels, 37), normal(40, channels, 3), "gelu add", pads=(8, 0), dilations=(4,), parts=3)


def test_groups_of_whole_blocks():
    convolve(normal(1, 64, 6, 6), normal(96, 32, 3, 3), groups=2, pads=(1, 1, 1, 1))


@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("shape", "kernel", "window"),
    [
        ((2, 40, 7, 19), (3, 3), {"pads": (1, 1, 1, 1)}),
        ((1, 32, 9, 8), (1, 1), {}),
        ((1, 16, 12, 11), (5, 4), {"strides": (2, 3), "dilations": (1, 2), "pads": (2, 0, 1, 3)}),
        ((2, 300, 33), (3,), {"pads": (2, 0)}),
        ((1, 20, 3, 4, 5), (2, 3, 3), {"pads": (1, 1, 0, 0, 1, 2)}),
    ],
)
def test_to_a_few_channels(shape, kernel, window, outputs):
    weight = normal(outputs, shape[1], *kernel)
    for bias, epilogue in ((True, "add relu"), (False, "gelu")):
        convolve(normal(*shape), weight, epilogue, choose=to_few, bias=bias, parts=3, **window)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors_to_a_few_channels(target):
    convolve(normal(1, 24, 5, 8), normal(3, 24, 3, 3), choose=to_few, pads=(1, 1, 1, 1), target=target)


@pytest.mark.parametrize(
    ("groups", "channels", "outputs"),
    [
        (8, 4, 4),
        (2, 24, 12),
        (13, 8, 8),
        (8, 3, 3),
        (21, 1, 2),
        (9, 1, 3),
        (6, 2, 16),
        (3, 40, 1),
        (2, 16, 8),
        (5, 7, 9),
    ],
)
def test_groups_that_share_blocks(groups, channels, outputs):
    x, weight = normal(2, groups * channels, 6, 7), normal(groups * outputs, channels, 3, 3)
    convolve(x, weight, "relu", groups=groups, pads=(1, 1, 1, 1), parts=3)
    convolve(x[:, :, :, 0], weight[:, :, :, 0], groups=groups, symbolic=(0, 2), strides=(2,), parts=2)
    convolve(x, weight[:, :, :1, :1], "add", groups=groups, symbolic=(2, 3))
    convolve(x, weight[:, :, :1, :1], groups=groups, parts=2)


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize(("groups", "channels", "outputs"), [(8, 3, 5), (10, 2, 2), (4, 40, 9)])
def test_what_is_no_number_stays_in_its_group(groups, channels, outputs, target):
    x, weight = normal(1, groups * channels, 6, 7), normal(groups * outputs, channels, 3, 3)
    x[0, 1, 2, 3], x[0, channels, 5, 0], x[0, -1, 0, 6] = np.inf, np.nan, -np.inf
    weight[0, 1] = 0  # an infinity times a zero of the group itself is NaN
    sizes = {"groups": groups, "target": target, "parts": 2}
    convolve(x, weight, pads=(1, 1, 1, 1), **sizes)
    convolve(x, weight, symbolic=(2, 3), **sizes)
    convolve(x, weight[:, :, 1:2, 1:2], symbolic=(2, 3), **sizes)


def test_groups_of_a_volume_that_share_blocks():
    convolve(normal(1, 30, 3, 4, 5), normal(20, 3, 2, 2, 2), groups=10, pads=(1, 0, 1, 0, 1, 1), parts=3)


@pytest.mark.parametrize("members", [1, 2, 4, 8])
@pytest.mark.parametrize(("stride", "size", "width"), [(1, 3, 13), (2, 3, 12), (1, 5, 9), (2, 2, 4), (3, 7, 5)])
def test_depthwise(stride, size, width, members):
    window = {"pads": (size // 2,) * 4, "strides": (stride, stride), "groups": 24 // members}
    convolve(normal(2, 24, 6, width), normal(24, members, size, size), "relu", choose=depthwise, parts=3, **window)


@given(st.data())
@settings(max_examples=16, deadline=None, derandomize=True)
def test_any_depthwise_window(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    kernel = (draw(1, 4), draw(1, 9))
    strides, dilations = (draw(1, 3), draw(1, 3)), (draw(1, 3), draw(1, 2))
    pads = tuple(draw(0, 5) for _ in range(4))
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    height = draw(max(1, reach[0] - pads[0] - pads[2]), 10)  # as far as a window reaches
    width = draw(max(1, reach[1] - pads[1] - pads[3]), 50)
    members = data.draw(st.sampled_from([1, 2, 4]))
    x, weight = normal(draw(1, 2), 20, height, width), normal(20, members, *kernel)
    epilogue = data.draw(st.sampled_from(["", "relu", "gelu add"]))
    window = {"strides": strides, "pads": pads, "dilations": dilations}
    convolve(x, weight, epilogue, choose=depthwise, groups=20 // members, parts=draw(1, 4), **window)


@pytest.mark.parametrize("members", [1, 4])
@pytest.mark.parametrize(("width", "stride"), [(40, 1), (9, 1), (14, 1), (33, 2), (3, 2)])
def test_depthwise_of_symbolic_sizes(width, stride, members):
    x, weight = normal(2, 20, 7, width), normal(20, members, 3, 5)
    window = {"strides": (stride, stride), "pads": (1, 2, 0, 1)}
    wanted = evaluate("relu", evaluate("conv", x, weight, groups=20 // members, **window))
    image, packed = evaluate("pack_channels", x), evaluate("pack_planar_weights", weight)
    build = Builder(tensor("float32", ("n", 2, "h", "w", 16)), tensor("float32", packed.shape))
    definition = build.definition(build("relu", build("conv_depthwise", 0, 1, **window)))
    for parts in (1, 3):
        _, (got,) = run_kernel(definition, [image, packed], {"n": 2, "h": 7, "w": width}, parts)
        plain = evaluate("unpack_channels", got, channels=20)
        np.testing.assert_allclose(plain, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", [TARGET, *NARROW])
def test_small_groups_keep_what_is_no_number(target):
    x = normal(1, 24, 5, 9)
    x[0, 5, 2, 3] = np.inf
    window = {"pads": (1, 1, 1, 1), "target": target, "choose": depthwise}
    for members in (2, 4, 8):
        convolve(x, normal(24, members, 3, 3), groups=24 // members, **window)


def test_symbolic_batch():
    window = {"pads": (1, 1, 1, 1), "symbolic": (0,)}
    kernels = {convolve(normal(n, 16, 4, 4), normal(16, 16, 3, 3), **window) for n in (1, 3)}
    assert len(kernels) == 1


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors(target):
    convolve(normal(1, 20, 3, 4, 8), normal(32, 20, 2, 3, 3), "add relu", pads=(1,) * 6, target=target)
    convolve(normal(1, 16, 5, 8), normal(32, 16, 3, 3), "add relu", pads=(1, 1, 1, 1), target=target)
    convolve(normal(1, 16, 5, 8), normal(16, 1, 3, 3), groups=16, pads=(1, 1, 1, 1), target=target)


@pytest.mark.parametrize(
    "target", [None, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes" if target else "host"
)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("channels", [1, 16, 20, 40])
def test_packing_and_unpacking(channels, last, target):
    x = normal(2, 5, 70, channels) if last else normal(2, channels, 5, 70)
    for operator, source, attributes in (
        ("pack_channels", x, {"last": last}),
        ("unpack_channels", evaluate("pack_channels", x, last=last), {"channels": channels, "last": last}),
    ):
        build = Builder(tensor("float32", source.shape))
        definition = build.definition(build(operator, 0, **attributes))
        _, (got,) = run_kernel(definition, [source], parts=2, target=target)
        np.testing.assert_array_equal(got, evaluate(operator, source, **attributes))


@pytest.mark.parametrize("slack", [0, 4])
def test_unpacking_past_the_caches(slack):
    blocked = normal(1, 2, 660, 640, 16)
    build = Builder(tensor("float32", blocked.shape))
    definition = build.definition(build("unpack_channels", 0, channels=21))
    _, (got,) = run_kernel(definition, [blocked], parts=2, slack=slack)
    np.testing.assert_array_equal(got, evaluate("unpack_channels", blocked, channels=21))
