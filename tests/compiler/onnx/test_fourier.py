"""Fourier transforms of lengths, axes and steps known only at run time."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import treadle
from onnx import helper
from treadle.tests.compiler.onnx.onnx_nodes import Node, same

rng = np.random.default_rng(0)
close = {"rtol": 1e-3, "atol": 1e-4}


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_as_many_points_as_the_input_has(parts, inverse):
    node = Node("DFT", ("float32", ("n", "s", parts)), inverse=inverse, opset=20)
    for points in (1, 2, 7, 24):
        node.check(rng.standard_normal((3, points, parts), np.float32), **close)
    assert node.on_host == []


@pytest.mark.parametrize("onesided", [0, 1])
def test_a_length_of_a_run(onesided):
    node = Node("DFT", ("float32", (2, "s", 1)), ("int64", ()), onesided=onesided, opset=20)
    for points, length in ((6, 6), (6, 4), (6, 9), (5, 1)):
        node.check(rng.standard_normal((2, points, 1), np.float32), length, **close)


def test_an_axis_of_a_run():
    node = Node("DFT", ("float32", ("a", "b", "c", 2)), None, ("int64", ()), opset=20)
    x = rng.standard_normal((3, 4, 5, 2), np.float32)
    for axis in (0, 1, 2, -2, -3, -4):
        node.check(x, axis, **close)
    assert node.on_host == []


@pytest.mark.parametrize("symbolic", [False, True])
def test_real_numbers_of_one_side(symbolic):
    for points in (8, 9):
        x = rng.standard_normal((2, points), np.float32)
        spectrum = np.fft.rfft(x)
        bins = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)
        shape = (2, "bins", 2) if symbolic else bins.shape
        node = Node("DFT", ("float32", shape), ("int64", ()), inverse=1, onesided=1, opset=20)
        same(node.run(bins, points), [x[..., None]], **close)


def test_mixing_along_tokens_and_features_as_in_fnet():
    """Two transforms one after the other, the first of as many points as there are tokens; the real parts are what is used."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "last"], ["parts"]),
        helper.make_node("DFT", ["parts"], ["of_features"], axis=2),
        helper.make_node("DFT", ["of_features"], ["of_both"], axis=1),
        helper.make_node("Gather", ["of_both", "zero"], ["y"], axis=-1),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.array([3]), "last"),
        onnx.numpy_helper.from_array(np.array(0), "zero"),
    ]
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "tokens", 8])
    graph = helper.make_graph(nodes, "mixing", [info], [onnx.ValueInfoProto(name="y")], constants)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    machine = treadle.VirtualMachine(treadle.compile(model, progress=False))
    for shape in ((1, 5, 8), (3, 16, 8)):
        x = rng.standard_normal(shape, np.float32)
        np.testing.assert_allclose(machine["main"](x), np.fft.fft2(x).real, **close)


@pytest.mark.parametrize("onesided", [0, 1])
def test_steps_and_lengths_of_windows(onesided):
    x, window = rng.standard_normal((2, 40, 1), np.float32), np.hanning(8).astype(np.float32)
    declared = ("float32", (2, "n", 1)), ("int64", ())
    windowed = Node("STFT", *declared, ("float32", ("w",)), onesided=onesided, opset=17)
    plain = Node("STFT", *declared, None, ("int64", ()), onesided=onesided, opset=17)
    for step in (4, 7):
        windowed.check(x, step, window, **close)
        plain.check(x, step, 8, **close)
    assert windowed.on_host == []


@pytest.mark.parametrize("sizes", [(8, 64, 16000), (20, 256, 22050)])
def test_mel_weights_of_a_run(sizes):
    node = Node("MelWeightMatrix", *[("int64", ())] * 3, ("float32", ()), ("float32", ()), opset=17)
    node.check(*sizes, np.float32(20), np.float32(sizes[2] / 2), **close)
