"""Convolutions by Winograd's algorithm, compiled, against NumPy's direct ones on ordinary images."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.operators.winograd import TILES, Problem, Tiles, best_tiles, raw_rows, transforms

from . import convolutions
from .harness import NARROW, TARGET, normal

USUAL, RAW = Tiles(4), Tiles(4, is_raw=True)
TARGETS = st.sampled_from([TARGET, *NARROW])


def convolve(x, weight, epilogue="", *, tiles=USUAL, pads=(1, 1, 1, 1), **options):
    choose, atol = partial(convolutions.winograd, tiles=tiles), 2e-6 * weight[0].size
    convolutions.convolve(x, weight, epilogue, choose=choose, pads=pads, rtol=1e-4, atol=atol, **options)


@given(st.data())
@settings(max_examples=32, deadline=None, derandomize=True)
def test_any_image(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    tiles, pads = data.draw(st.sampled_from(TILES)), tuple(draw(0, 3) for _ in range(4))
    height, width = (draw(max(1, 3 - pads[i] - pads[i + 2]), 15) for i in range(2))
    channels = data.draw(st.sampled_from([1, 16, 20, 32]))
    weight = normal(data.draw(st.sampled_from([1, 16, 40])), channels, 3, 3)
    symbolic = data.draw(st.sampled_from([(), (0,), (2, 3)]))
    x = normal(draw(1, 2), channels, height, width)
    convolve(x, weight, tiles=tiles, pads=pads, parts=draw(1, 4), symbolic=symbolic, target=data.draw(TARGETS))


@given(st.data())
@settings(max_examples=32, deadline=None, derandomize=True)
def test_any_volume(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    tiles, pads, taps = data.draw(st.sampled_from(TILES)), tuple(draw(0, 3) for _ in range(6)), draw(1, 4)
    sizes = [draw(max(1, least - pads[i] - pads[i + 3]), 9) for i, least in enumerate((taps, 3, 3))]
    channels = data.draw(st.sampled_from([16, 32] if taps > 1 else [1, 16, 20]))
    weight = normal(data.draw(st.sampled_from([1, 16, 40])), channels, taps, 3, 3)
    symbolic = data.draw(st.sampled_from([(), (0,), (2,), (2, 3, 4)]))
    x = normal(draw(1, 2), channels, *sizes)
    convolve(x, weight, tiles=tiles, pads=pads, parts=draw(1, 4), symbolic=symbolic, target=data.draw(TARGETS))


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
def test_epilogues_of_volumes(target):
    x, weight = normal(2, 32, 3, 7, 9), normal(48, 32, 3, 3, 3)
    convolve(x, weight, "add relu", parts=3, pads=(1,) * 6, target=target)


@pytest.mark.parametrize("tiles", TILES, ids=str)
@pytest.mark.parametrize("epilogue", ["relu", "add relu", "gelu add"])
def test_epilogues(epilogue, tiles):
    convolve(normal(2, 16, 7, 9), normal(48, 16, 3, 3), epilogue, parts=3, tiles=tiles)


def test_slices_in_the_padding_are_zero_where_weights_are_raw():
    convolve(normal(1, 16, 2, 7, 6), normal(16, 16, 1, 3, 3), tiles=RAW, pads=(2, 1, 1, 1, 1, 1))


def test_tiles_in_several_chunks():
    small = dataclasses.replace(TARGET, l2_bytes=16 << 10)
    convolve(normal(1, 32, 21, 22), normal(32, 32, 3, 3), bias=False, target=small, parts=3)


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_an_image_of_few_tiles_is_shared(parts):
    convolve(normal(1, 20, 14, 13), normal(32, 20, 3, 3), "relu", parts=parts)


def test_symbolic_batch():
    convolve(normal(3, 16, 6, 6), normal(16, 16, 3, 3), "relu", symbolic=(0,))


@pytest.mark.parametrize("tiles", [USUAL, RAW], ids=str)
@pytest.mark.parametrize("size", [1, 3, 7, 30])
def test_symbolic_sizes(size, tiles):
    convolve(normal(1, 16, size, 5), normal(16, 16, 3, 3), "add relu", symbolic=(2, 3), parts=2, tiles=tiles)


@pytest.mark.parametrize("tiles", TILES, ids=str)
@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors(target, tiles):
    convolve(normal(1, 16, 5, 8), normal(32, 16, 3, 3), "add relu", target=target, tiles=tiles)


@pytest.mark.parametrize("outputs", [2, 4])
def test_transforms_are_exact_fractions(outputs):
    chosen = transforms(outputs)
    for matrix in (chosen.of_input, chosen.of_output):
        np.testing.assert_array_equal(matrix * 4096, np.round(matrix * 4096))


@pytest.mark.parametrize("outputs", [2, 4])
def test_unscaled_transforms_give_the_same(outputs):
    weight, pixels = np.random.default_rng(0).standard_normal((2, 3 + outputs - 1, 3 + outputs - 1))
    results = [
        it.of_output @ ((it.of_weights @ weight[:3, :3] @ it.of_weights.T) * pixels) @ it.of_output.T
        for it in (transforms(outputs), transforms(outputs).unscaled())
    ]
    np.testing.assert_allclose(*results, rtol=1e-12)


def test_the_larger_an_image_the_larger_its_tiles():
    chosen = [best_tiles(Problem(1, 512, 32, size, size)) for size in (1, 7, 10, 28)]
    assert chosen == [None, RAW, Tiles(2), USUAL]


@pytest.mark.parametrize(("images", "channels", "tiles"), [(1, 512, RAW), (8, 512, Tiles(2)), (1, 64, Tiles(2))])
def test_weights_that_are_near_may_be_larger(images, channels, tiles):
    """Tiles of 2 cover an image of 6x6, those of 4 more than that."""
    assert best_tiles(Problem(images, channels, channels // 16, 6, 6)) == tiles


@pytest.mark.parametrize("size", [7, 13])
def test_raw_weights_of_more_channels_than_are_transformed_at_once(size):
    """Where registers are few: some of the windows, of the last channels fewer."""
    for target in (TARGET, *NARROW):
        convolve(normal(2, 43, size, size), normal(32, 43, 3, 3), "relu", tiles=RAW, parts=2, target=target)


def test_raw_weights_do_with_few_registers():
    assert raw_rows(32) == 4
    assert raw_rows(8) is None
    assert best_tiles(Problem(1, 512, 32, 7, 7), registers=8) == RAW
