"""Convolutions by Winograd's algorithm, compiled, against NumPy's direct ones on ordinary images."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.operators import lookup
from treadle.compiler.operators.winograd import best_outputs, transforms
from treadle.formats.types import tensor

from .harness import TARGET, Builder, run_kernel

NARROW = [dataclasses.replace(TARGET, vector_bytes=size, vector_registers=16) for size in (32, 16)]
RNG = np.random.default_rng(1)


def evaluate(operator, *arrays, **attributes):
    entry = lookup(operator)
    return entry.evaluate(arrays, entry.canonical(attributes))[0]


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def convolve(x, weight, epilogue="", *, outputs=4, pads=(1, 1, 1, 1), bias=True, symbolic=(), parts=1, target=TARGET):
    """Checks the kernel that a convolution of x with the weights gets. `symbolic`: axes of sizes that only the call tells."""
    vector = normal(len(weight))
    wanted = evaluate("conv", x, weight, *[vector] * bias, pads=pads)
    added = normal(*wanted.shape)
    packed = evaluate("pack_winograd_weights", weight, outputs=outputs)
    arrays = [evaluate("pack_channels", x), packed, evaluate("pack_vector", vector), evaluate("pack_channels", added)]
    sizes = {f"s{axis}": x.shape[axis] for axis in symbolic}
    shape = [f"s{axis}" if axis in symbolic else size for axis, size in enumerate(arrays[0].shape)]
    types = [tensor("float32", shape), *(tensor("float32", array.shape) for array in arrays[1:3])]
    attributes = {"pads": pads, "channels": x.shape[1]}
    entry = lookup("conv_winograd")
    build = Builder(*types, *entry.result_types(types, entry.canonical(attributes)))
    value = build("conv_winograd", *range(2 + bias), **attributes)
    for step in epilogue.split():
        value = build("add", value, 3) if step == "add" else build(step, value)
        wanted = wanted + added if step == "add" else evaluate(step, wanted)
    _, (got,) = run_kernel(build.definition(value), arrays, sizes, parts, target)
    plain = evaluate("unpack_channels", got, channels=len(weight))
    np.testing.assert_allclose(plain, wanted, rtol=1e-4, atol=2e-6 * weight[0].size)


@given(st.data())
@settings(max_examples=16, deadline=None, derandomize=True)
def test_any_image(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    outputs, pads = data.draw(st.sampled_from([2, 4])), tuple(draw(0, 3) for _ in range(4))
    height, width = (draw(max(1, 3 - pads[i] - pads[i + 2]), 15) for i in range(2))
    channels = data.draw(st.sampled_from([1, 16, 20, 32]))
    weight = normal(data.draw(st.sampled_from([1, 16, 40])), channels, 3, 3)
    symbolic = data.draw(st.sampled_from([(), (0,), (2, 3)]))
    x = normal(draw(1, 2), channels, height, width)
    convolve(x, weight, outputs=outputs, pads=pads, parts=draw(1, 4), symbolic=symbolic)


@pytest.mark.parametrize("epilogue", ["relu", "add relu", "gelu add"])
def test_epilogues(epilogue):
    convolve(normal(2, 16, 7, 9), normal(48, 16, 3, 3), epilogue, parts=3)


def test_tiles_in_several_chunks():
    small = dataclasses.replace(TARGET, l2_bytes=16 << 10)
    convolve(normal(1, 32, 21, 22), normal(32, 32, 3, 3), bias=False, target=small, parts=3)


def test_symbolic_batch():
    convolve(normal(3, 16, 6, 6), normal(16, 16, 3, 3), "relu", symbolic=(0,))


@pytest.mark.parametrize("size", [1, 3, 7, 30])
def test_symbolic_sizes(size):
    convolve(normal(1, 16, size, 5), normal(16, 16, 3, 3), "add relu", symbolic=(2, 3), parts=2)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors(target):
    convolve(normal(1, 16, 5, 8), normal(32, 16, 3, 3), "add relu", target=target)


@pytest.mark.parametrize("outputs", [2, 4])
def test_transforms_are_exact_fractions(outputs):
    chosen = transforms(outputs)
    for matrix in (chosen.of_input, chosen.of_output):
        np.testing.assert_array_equal(matrix * 4096, np.round(matrix * 4096))


def test_the_larger_an_image_the_larger_its_tiles():
    chosen = [best_outputs(channels=512, blocks=32, lines=size, columns=size) for size in (1, 7, 28)]
    assert chosen == [None, 2, 4]
