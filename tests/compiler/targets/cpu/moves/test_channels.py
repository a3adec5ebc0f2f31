"""Channels of blocked images, joined, cut, shuffled and laid apart, compiled, against what these are on plain channels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.formats.types import tensor

from ..harness import NARROW, TARGET, Builder, evaluate, normal, run_kernel


def join(
    channels, size, start, count, *, turns=1, apart=1, images=1, batch=None, parts=1, target=TARGET, dtype="float32"
):
    plain = [(99 * normal(images, each, *size)).astype(dtype) for each in channels]
    arrays = [evaluate("pack_channels", x) for x in plain]
    for each, array in zip(channels, arrays, strict=True):
        anything = np.nan if dtype == "float32" else 77
        array[:, -1, ..., each - array.shape[1] * 16 :] = anything if each % 16 else array[:, -1]
    params = [tensor(dtype, (batch or images, *array.shape[1:])) for array in arrays]
    build = Builder(*params)
    attributes = {"channels": channels, "start": start, "count": count, "turns": turns, "apart": apart}
    definition = build.definition(build("join_channels", *range(len(arrays)), **attributes))
    code, (got,) = run_kernel(definition, arrays, {batch: images} if batch else None, parts, target)
    assert code == 0
    wanted = np.concatenate(plain, axis=1)[:, start : start + count]
    wanted = wanted.reshape(images, turns, count // turns, *size).swapaxes(1, 2).reshape(wanted.shape)
    each = count // apart
    laid = [evaluate("unpack_channels", part, channels=each) for part in np.split(got, apart, axis=1)]
    np.testing.assert_array_equal(np.concatenate(laid, axis=1), wanted)


@given(st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_channels(data):
    channels = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4)))
    start = data.draw(st.integers(0, sum(channels) - 1))
    most = sum(channels) - start
    order = data.draw(st.sampled_from(["", "turns", "apart"]))
    counts = [1, 2, 4, 8, 16] if order == "turns" else range(1, 18) if order else [1]
    count = data.draw(st.sampled_from([each for each in counts if each <= most]))
    size = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    images, parts = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    taken = count * data.draw(st.integers(1, most // count))
    join(channels, size, start, taken, **({order: count} if order else {}), images=images, parts=parts)


@pytest.mark.parametrize("target", NARROW)
@pytest.mark.parametrize("order", [{}, {"turns": 2}, {"apart": 5}, {"turns": 16}])
def test_narrow_vectors(target, order):
    join((20, 12, 9), (5, 7), 3, 32 if order == {"turns": 16} else 30, **order, target=target)


def test_symbolic_batch_and_an_image_that_is_given_twice():
    join((24, 3, 24), (4, 4), 0, 51, images=3, batch="n")


@pytest.mark.parametrize("order", [{}, {"turns": 2}, {"apart": 5}, {"turns": 16}])
def test_bytes(order):
    join((20, 12, 9), (5, 7), 3, 32 if order == {"turns": 16} else 30, **order, dtype="int8", parts=2)


def test_volumes():
    join((20, 30), (2, 3, 4), 7, 40, parts=2)


def test_many_channels():
    join((700, 900), (7, 7), 10, 1500, turns=4, parts=2)
