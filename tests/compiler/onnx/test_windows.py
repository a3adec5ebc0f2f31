"""Operators on windows of an image: places of the greatest elements and what puts them back, convolution at moved places."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from treadle.tests.compiler.onnx.onnx_nodes import Node, same

rng = np.random.default_rng(0)
POOLS = [
    {"kernel_shape": [2, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [2, 3], "dilations": [2, 1], "storage_order": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
]


def by_onnxruntime(node: Node, *arrays):
    session = onnxruntime.InferenceSession(node.model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(node.names, map(np.asarray, arrays), strict=True)))


@pytest.mark.parametrize("attributes", POOLS, ids=str)
@pytest.mark.parametrize("sizes", [(2, 3, 7, 8), ("n", 3, "h", "w")], ids=["known", "symbolic"])
def test_places_of_the_greatest(attributes, sizes):
    if "auto_pad" in attributes:
        sizes = (2, 3, 7, 8)  # how much is padded depends on the sizes
    node = Node("MaxPool", ("float32", sizes), outputs=2, opset=12, **attributes)
    node.model.ir_version = 8
    x = rng.permutation(2 * 3 * 7 * 8).reshape(2, 3, 7, 8).astype(np.float32) - 200
    wanted = by_onnxruntime(node, x)
    node.check(x, expected=wanted)
    assert node.on_host == []


def test_places_of_the_greatest_of_signals_volumes_and_bytes():
    for shape, kernel, kind in (
        ((2, 3, 9), [3], "float64"),
        ((1, 2, 4, 5, 6), [2, 3, 2], "float32"),
        ((1, 1, 5, 5), [2, 2], "uint8"),
    ):
        node = Node("MaxPool", (kind, shape), outputs=2, opset=12, kernel_shape=kernel, strides=[2] * len(kernel))
        node.model.ir_version = 8
        x = rng.permutation(int(np.prod(shape))).reshape(shape).astype(kind)
        same(node.run(x), by_onnxruntime(node, x))


@pytest.mark.parametrize("told", [False, True])
def test_elements_go_back_where_they_were(told):
    pool = Node("MaxPool", ("float32", (2, 3, 6, 8)), outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    x = rng.permutation(2 * 3 * 6 * 8).reshape(2, 3, 6, 8).astype(np.float32)
    values, places = pool.run(x)
    more = [("int64", (4,))] if told else []
    sizes = ("float32", ("n", 3, "h", "w"))
    node = Node("MaxUnpool", sizes, ("int64", sizes[1]), *more, kernel_shape=[2, 2], strides=[2, 2])
    node.check(values, places, *([[2, 3, 7, 9]] if told else []))
    assert node.on_host == []


DEFORMED = [
    {"kernel_shape": [2, 2]},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]},
    {"kernel_shape": [2, 2], "dilations": [2, 1], "group": 2, "offset_group": 2},
]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("attributes", DEFORMED, ids=str)
def test_convolution_at_moved_places(attributes, masked):
    group, parts, kernel = attributes.get("group", 1), attributes.get("offset_group", 1), attributes["kernel_shape"]
    pads, strides, dilations = (
        attributes.get(*each) for each in (("pads", [0] * 4), ("strides", [1, 1]), ("dilations", [1, 1]))
    )
    shape, count = (2, 4, 6, 7), kernel[0] * kernel[1]
    sizes = [
        (shape[2 + k] + pads[k] + pads[2 + k] - (kernel[k] - 1) * dilations[k] - 1) // strides[k] + 1 for k in range(2)
    ]
    x, weights = rng.standard_normal(shape), rng.standard_normal((6, 4 // group, *kernel))
    offset, bias = rng.uniform(-1.4, 1.4, (2, 2 * parts * count, *sizes)), rng.standard_normal(6)
    arrays = [each.astype(np.float32) for each in (x, weights, offset, bias)]
    arrays += [rng.uniform(0, 1, (2, parts * count, *sizes)).astype(np.float32)] if masked else []
    declared = [("float32", array.shape) for array in arrays]
    declared[0] = ("float32", ("n", 4, "h", "w"))
    declared[2] = ("float32", ("n", *offset.shape[1:]))
    node = Node("DeformConv", *declared, opset=19, **attributes)
    node.check(*arrays, rtol=1e-3)
    assert node.on_host == []


@pytest.mark.parametrize(
    "attributes", [{}, {"pads": [1, 0, 1, 2], "strides": [2, 1]}, {"dilations": [1, 2], "strides": [2, 2]}], ids=str
)
def test_blocks_and_images_of_a_run(attributes):
    """Blocks that the whole image has, put back: by sizes of a run as by known ones."""
    image, block = np.array([6, 7]), np.array([2, 3])
    pads, strides, dilations = (
        attributes.get(*each) for each in (("pads", [0] * 4), ("strides", [1, 1]), ("dilations", [1, 1]))
    )
    counts = [
        (image[k] + pads[k] + pads[2 + k] - (block[k] - 1) * dilations[k] - 1) // strides[k] + 1 for k in range(2)
    ]
    x = rng.standard_normal((2, 3 * 6, int(np.prod(counts)))).astype(np.float32)
    known = Node("Col2Im", ("float32", x.shape), image, block, opset=18, **attributes)
    node = Node("Col2Im", ("float32", ("n", "k", "l")), ("int64", (2,)), ("int64", (2,)), opset=18, **attributes)
    same(node.run(x, image, block), known.expected(x))
    assert node.on_host == []
