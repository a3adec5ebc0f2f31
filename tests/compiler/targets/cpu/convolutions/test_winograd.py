"""Convolutions by Winograd's algorithm, compiled, against NumPy's direct ones on ordinary images."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.targets.cpu.operators.winograd import TILES, Problem, Tiles, best_tiles, raw_rows, transforms
from treadle.formats.types import tensor

from ..harness import NARROW, TARGET, definition_of, evaluate, normal, run_kernel
from . import convolutions

USUAL, RAW = Tiles(4), Tiles(4, is_raw=True)
TARGETS = st.sampled_from([TARGET, *NARROW])


WINDOWS = [(3, 3), (5, 5), (3, 5), (5, 3), (1, 3), (1, 5), (3, 1), (5, 1), (1, 7), (4, 1), (7, 2)]


def choices(channels, windows=WINDOWS):
    """Windows, each with tiles that it may be computed by."""
    problems = [Problem(1, channels, 1, 9, 9, (1, *window)[-2:]) for window in windows]
    return [
        (window, tiles) for window, each in zip(windows, problems, strict=True) for tiles in TILES if tiles.take(each)
    ]


def dilated(data, window, tiles):
    """Steps between a window's pixels, and how many of them it spans."""
    steps = tuple(data.draw(st.integers(1, 1 if tiles.is_raw or size == 1 else 4)) for size in window)
    return steps, [(size - 1) * step + 1 for size, step in zip(window, steps, strict=True)]


def convolve(x, weight, epilogue="", *, tiles=USUAL, pads=(1, 1, 1, 1), **options):
    choose, atol = partial(convolutions.winograd, tiles=tiles), 2e-6 * weight[0].size
    convolutions.convolve(x, weight, epilogue, choose=choose, pads=pads, rtol=1e-4, atol=atol, **options)


@given(st.data())
@settings(max_examples=32, deadline=None, derandomize=True)
def test_any_image(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    channels, pads = data.draw(st.sampled_from([1, 16, 20, 32])), tuple(draw(0, 3) for _ in range(4))
    window, tiles = data.draw(st.sampled_from(choices(channels)))
    dilations, spans = dilated(data, window, tiles)
    height, width = (draw(max(1, size - pads[i] - pads[i + 2]), size + 12) for i, size in enumerate(spans))
    weight = normal(data.draw(st.sampled_from([1, 16, 40])), channels, *window)
    symbolic = data.draw(st.sampled_from([(), (0,), (2, 3)]))
    x = normal(draw(1, 2), channels, height, width)
    options = {"symbolic": symbolic, "parts": draw(1, 4), "target": data.draw(TARGETS)}
    convolve(x, weight, tiles=tiles, pads=pads, dilations=dilations, **options)


@given(st.data())
@settings(max_examples=32, deadline=None, derandomize=True)
def test_any_signal(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    pads, channels = (draw(0, 5), draw(0, 5)), data.draw(st.sampled_from([1, 16, 20, 32]))
    window, tiles = data.draw(st.sampled_from(choices(channels, [(3,), (5,), (2,), (7,), (11,)])))
    weight = normal(data.draw(st.sampled_from([1, 16, 40])), channels, *window)
    dilations, (span,) = dilated(data, window, tiles)
    x = normal(draw(1, 2), channels, draw(max(1, span - sum(pads)), 60))
    symbolic = data.draw(st.sampled_from([(), (0,), (2,)]))
    target, epilogue = data.draw(TARGETS), data.draw(st.sampled_from(["", "relu", "add gelu"]))
    options = {"symbolic": symbolic, "parts": draw(1, 4), "target": target}
    convolve(x, weight, epilogue, tiles=tiles, pads=pads, dilations=dilations, **options)


@given(st.data())
@settings(max_examples=32, deadline=None, derandomize=True)
def test_any_volume(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    taps, pads = draw(1, 4), tuple(draw(0, 3) for _ in range(6))
    channels = data.draw(st.sampled_from([16, 32] if taps > 1 else [1, 16, 20]))
    window, tiles = data.draw(st.sampled_from(choices(channels)))
    sizes = [draw(max(1, least - pads[i] - pads[i + 3]), 9) for i, least in enumerate((taps, *window))]
    weight = normal(data.draw(st.sampled_from([1, 16, 40])), channels, taps, *window)
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


@pytest.mark.parametrize(("window", "tiles"), choices(32), ids=str)
@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
def test_windows(window, tiles, target):
    pads = [size // 2 for size in window]
    convolve(
        normal(2, 32, 11, 13), normal(24, 32, *window), "add relu", tiles=tiles, pads=(*pads, *pads), target=target
    )


@pytest.mark.parametrize("tiles", [Tiles(2), USUAL], ids=str)
@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
def test_dilated_windows(tiles, target):
    x, weight, steps = normal(1, 32, 17, 30), normal(24, 32, 3, 5), {"dilations": (2, 3), "pads": (2, 6) * 2}
    convolve(x, weight, "add gelu", tiles=tiles, parts=3, target=target, **steps)


@pytest.mark.parametrize("tiles", TILES, ids=str)
@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
@pytest.mark.parametrize(("channels", "outputs"), [(16, 32), (48, 16)])
def test_groups(channels, outputs, target, tiles):
    x, weight = normal(2, 3 * channels, 9, 10), normal(3 * outputs, channels, 3, 3)
    convolve(x, weight, "add relu", tiles=tiles, groups=3, parts=2, target=target)


@pytest.mark.parametrize("tiles", TILES, ids=str)
def test_groups_that_end_within_a_block(tiles):
    image = evaluate("pack_channels", normal(2, 64, 9, 10))
    image[:, 1::2, ..., 8:] = np.nan  # what stands there is nobody's business
    weight, operator = normal(64, 24, 3, 3), "conv_winograd_raw" if tiles.is_raw else "conv_winograd"
    packing = ("pack_weights", {}) if tiles.is_raw else ("pack_winograd_weights", {"outputs": tiles.outputs})
    arrays = [image, evaluate(packing[0], weight, **packing[1])]
    attributes = {"channels": 24, "groups": 2, "pads": (1, 1, 1, 1)}
    definition = definition_of(operator, [tensor("float32", array.shape) for array in arrays], **attributes)
    _, (got,) = run_kernel(definition, arrays, parts=3)
    np.testing.assert_allclose(got, evaluate(operator, *arrays, **attributes), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tiles", TILES, ids=str)
def test_groups_of_volumes(tiles):
    x, weight = normal(2, 32, 4, 9, 10), normal(64, 16, 3, 3, 3)
    convolve(x, weight, "relu", tiles=tiles, groups=2, pads=(1,) * 6, parts=3)


def test_groups_of_signals():
    convolve(normal(2, 64, 70), normal(96, 32, 7), "gelu", groups=2, pads=(3, 3), parts=3)


def test_slices_of_dilated_images():
    x, weight = normal(1, 32, 3, 14, 15), normal(24, 32, 2, 3, 3)
    convolve(x, weight, "relu", tiles=USUAL, pads=(1, 2, 2) * 2, dilations=(1, 2, 2))


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


@pytest.mark.parametrize(("outputs", "window"), [(1, 1), (2, 3), (4, 3), (2, 5)])
def test_transforms_are_exact_fractions(outputs, window):
    chosen = transforms(outputs, window)
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


@pytest.mark.parametrize(
    ("window", "size", "tiles"),
    [((1, 1), 28, None), ((1, 3), 28, 4), ((5, 5), 8, 2), ((5, 5), 28, 4), ((7, 7), 28, 4), ((7, 7), 4, None)],
)
def test_tiles_of_other_windows(window, size, tiles):
    """Of five pixels in one piece, whose tiles are small, or in two."""
    assert best_tiles(Problem(1, 128, 8, size, size, window)) == (tiles and Tiles(tiles))


def test_tiles_between_each_other_must_fit():
    """Sixteen tiles of four pixels six steps apart cover 24 pixels, and no tile covers less."""
    chosen = [best_tiles(Problem(1, 128, 8, 1, size, (1, 3), (1, 6))) for size in (24, 27, 480)]
    assert chosen == [USUAL, None, USUAL]


def test_pieces_are_of_whole_blocks():
    assert best_tiles(Problem(1, 20, 8, 28, 28, (1, 7))) is None
    assert best_tiles(Problem(1, 32, 8, 28, 28, (1, 7))) == Tiles(4)


def test_a_signal_is_as_long_as_it_needs_to_be():
    """One pixel is too little work for tiles, and so is an image of one line for a window of three."""
    chosen = [best_tiles(Problem(1, 128, 8, 1, length, (1, 3))) for length in (1, 3, 64)]
    assert chosen == [None, None, Tiles(4)]
    assert best_tiles(Problem(1, 128, 8, 1, 64)) is None


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
