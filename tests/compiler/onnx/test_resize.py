"""Resize: scales, sizes and regions known only at run time, and what the operator `resize` cannot say by itself."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from treadle.tests.compiler.onnx.onnx_nodes import Node, same

COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
IMAGE = ("float32", (1, 2, "h", "w"))
SCALES = ([1, 1, 0.6, 1.7], [1, 1, 2, 0.5], [1, 1, 1.3, 1])
x = np.random.default_rng(0).uniform(-2, 2, (1, 2, 5, 6)).astype(np.float32)


@functools.cache
def node(*args, **attributes) -> Node:
    return Node("Resize", *args, **attributes)


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    yield
    node.cache_clear()


# of one element, which cubic curves tell, the standard's text and its evaluator differ for pytorch_half_pixel
WAYS = [
    way for way in itertools.product(("nearest", "linear", "cubic"), COORDINATES) if way != ("cubic", COORDINATES[2])
]


@pytest.mark.parametrize(("mode", "coordinates"), WAYS)
def test_scales_of_a_run_mean_what_constant_ones_do(mode, coordinates):
    options = {"mode": mode, "coordinate_transformation_mode": coordinates}
    resized = node(IMAGE, None, ("float32", (4,)), **options)
    for scales in map(np.float32, SCALES):
        resized.check(x, scales)
        constant = Node("Resize", ("float32", x.shape), None, scales, **options)
        same(constant.run(x), resized.expected(x, scales))
    assert resized.on_host == []


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_weights_at_scales_of_a_run_are_those_of_the_standard(mode):
    resized = node(IMAGE, None, ("float32", (4,)), mode=mode, cubic_coeff_a=-0.6)
    for scales in map(np.float32, SCALES):
        same(resized.evaluated(x, scales), resized.expected(x, scales))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes_of_a_run(mode):
    for sizes in ([3, 9], [5, 6], [1, 1]):
        node(IMAGE, None, None, ("int64", (2,)), mode=mode, axes=(2, 3)).check(x, sizes)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_proportions_are_kept(policy):
    options = {"mode": "linear", "axes": (2, 3), "keep_aspect_ratio_policy": policy}
    for sizes in ([3, 9], [10, 6], [4, 4]):
        node(IMAGE, None, None, ("int64", (2,)), **options).check(x, sizes)
        Node("Resize", ("float32", x.shape), None, None, np.array(sizes), **options).check(x)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
def test_a_wider_window_where_x_shrinks(mode, exclude):
    options = {"mode": mode, "antialias": 1, "exclude_outside": exclude}
    for scales in map(np.float32, SCALES):
        node(IMAGE, None, ("float32", (4,)), **options).check(x, scales)
        Node("Resize", IMAGE, None, scales, **options).check(x)


def test_without_elements_beside_x():
    scales = np.float32(SCALES[0])
    excluding = Node("Resize", IMAGE, None, scales, mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
    excluding.check(x)
    assert excluding.on_host == []


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_region_of_a_run(mode):
    options = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    cropped = node(IMAGE, ("float32", (4,)), None, ("int64", (2,)), axes=(3, 2), **options)
    for roi, sizes in itertools.product(([0.2, 0.4, 0.6, 0.8], [-0.5, 0.1, 1.2, 0.7]), ([3, 3], [1, 4])):
        cropped.check(x, np.float32(roi), sizes)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_elements_of_other_types(mode):
    pixels = np.arange(30, dtype=np.uint8).reshape(1, 1, 5, 6) * 3
    scales = np.float32([1, 1, 2, 2])
    for kind in ("uint8", "int32", "float16", "float64"):
        wanted = Node("Resize", ("float64", pixels.shape), None, scales, mode=mode).expected(pixels.astype(np.float64))
        made = Node("Resize", (kind, pixels.shape), None, scales, mode=mode).run(pixels.astype(kind))
        least, greatest = (0, 255) if kind == "uint8" else (-np.inf, np.inf)
        assert made[0].dtype == kind
        np.testing.assert_allclose(made[0], np.clip(wanted[0], least, greatest), atol=1, rtol=1e-3)


def test_tensorflows_places_of_nearest_elements():
    """A mode of older opsets, which tf2onnx still writes: (o + ½) / scale, rounded down."""
    options = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    of_a_run = Node("Resize", IMAGE, None, ("float32", (4,)), **options)
    for scales in map(np.float32, SCALES):
        rows, columns = (
            np.minimum((np.arange(int(np.float32(length) * scale)) + 0.5) / np.float64(scale), length - 1).astype(int)
            for length, scale in zip(x.shape[2:], scales[2:], strict=True)
        )
        wanted = [x[:, :, rows][..., columns]]
        of_a_run.check(x, scales, expected=wanted)
        Node("Resize", IMAGE, None, scales, **options).check(x, expected=wanted)
