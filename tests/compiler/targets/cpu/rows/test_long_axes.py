"""Axes of more than 2^31 elements, of which few are looked at: memory that nobody touches takes no room."""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import Any

import numpy as np
import pytest
from treadle.compiler.targets.cpu.target import Target
from treadle.formats.types import tensor
from treadle.native.convention import ARGUMENT_HEAD, NOTE_WORDS

from ..harness import NARROW, TARGET, Builder, call
from ..trial import failures, kernels

LONG = (1 << 31) + 100
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


def sparse(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Zeros, in memory that exists where something is written."""
    size = math.prod(shape)
    return np.frombuffer(mmap.mmap(-1, size * np.dtype(dtype).itemsize, flags=_FLAGS), dtype).reshape(shape)


def results(build: Builder, first: int, arrays: list[np.ndarray], target: Target) -> np.ndarray:
    """What the kernel of a definition of static sizes makes of arrays as they are."""
    definition = build.definition(first)
    (kernel,) = kernels([definition], target)
    assert kernel is not None
    (type_,) = definition.results
    out = np.full(type_.shape, 0xA5, type_.dtype.numpy)
    words = np.array([*kernel.words, 0], np.int64)
    room = np.full(kernel.scratch_bytes + 64, -1, np.int8)
    scratch = room.ctypes.data + 63 & -64
    addresses = [array.__array_interface__["data"][0] for array in (*arrays, out)]
    head = [0] * ARGUMENT_HEAD
    args = np.array([*head, words.ctypes.data, *addresses, *[0] * NOTE_WORDS], np.int64)[ARGUMENT_HEAD:]
    assert call(kernel, ctypes.c_int64(args.ctypes.data).value, scratch, 0, 1) == 0
    return out


PLACES = np.array([LONG - 1, 5, (1 << 31) - 1, 1 << 31, 0, -1, LONG - 50] * 5)

CASES: dict[str, tuple[str, tuple[int, ...], np.ndarray | None, dict[str, Any]]] = {
    "take from a vector": ("take", (LONG,), PLACES, {"axis": 0}),
    "take from several rows": ("take", (4, LONG), PLACES, {"axis": 1}),
    "take of rows": ("take", (LONG, 3), PLACES, {"axis": 0}),
    "take_along_axis": ("take_along_axis", (LONG,), PLACES, {"axis": 0}),
    "gather_nd": ("gather_nd", (LONG, 2), PLACES[:, np.newaxis], {}),
    "slice": ("slice", (2, LONG), None, {"starts": (LONG - 60,), "ends": (LONG,), "axes": (1,)}),
    "slice with steps": (
        "slice",
        (2, LONG),
        None,
        {"starts": (-1,), "ends": (0,), "axes": (1,), "steps": (-(1 << 30),)},
    ),
    "resize": ("resize", (LONG,), None, {"axis": 0, "size": 40}),
}


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=["host", "256", "128"])
@pytest.mark.parametrize("name", CASES)
def test_places_beyond_32_bits_are_found(name: str, target: Target) -> None:
    operator, shape, indices, attributes = CASES[name]
    x = sparse(shape, "uint8")
    for number, place in enumerate([LONG - 1, 5, (1 << 31) - 1, 1 << 31, 0, LONG - 50]):
        x[(0, place) if x.shape[0] < LONG and x.ndim == 2 else place] = number + 1
    arrays = [x] if indices is None else [x, indices]
    build = Builder(*(tensor(array.dtype.name, array.shape) for array in arrays))
    first = build(operator, *range(len(arrays)), **attributes)

    def found() -> None:
        np.testing.assert_array_equal(results(build, first, arrays, target), wanted(operator, arrays, attributes))

    assert failures([(name, found)]) == {}


def test_images_of_longer_lines_than_32_bits_are_resampled() -> None:
    x = sparse((1, LONG), "uint8")
    build = Builder(tensor("uint8", x.shape))
    first = build("resize", build("resize", 0, axis=0, size=2), axis=1, size=40)
    places = np.ceil((np.arange(40) + 0.5) * LONG / 40 - 1).astype(np.int64)
    x[0, places] = np.arange(1, 41)

    def found() -> None:
        made = results(build, first, [x], TARGET)
        np.testing.assert_array_equal(made, np.tile(np.arange(1, 41, dtype=np.uint8), (2, 1)))

    assert failures([("resize", found)]) == {}


def wanted(operator: str, arrays: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    x, *rest = arrays
    if operator == "slice":
        (start,), (end,), (step,) = attributes["starts"], attributes["ends"], attributes.get("steps", (1,))
        return x[:, start:end:step]
    if operator == "resize":
        return x[np.ceil((np.arange(40) + 0.5) * LONG / 40 - 1).astype(np.int64)]
    return np.take(x, rest[0].reshape(-1), attributes.get("axis", 0))
