"""The vocabulary of kernels (`vectors/simd.py`) on memory that checks each access: what a text's global names are."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from ....formats.dtypes import DType
from ....native.convention import FEW, PART_NANOSECONDS, STREAM_ALIGNMENT
from . import amx
from .functions import FUNCTIONS, convert, saturate, splat
from .memory import MOST_ALIGNMENT, Fault, Memory
from .vectors import BOOL, WORD, Value, Vector, dtype_of, element, is_lost, scalar, wrapped


class Access:
    """The loads and stores of kernels with `lanes` elements in a vector, on a memory."""

    def __init__(self, memory: Memory, lanes: int) -> None:
        self.memory, self.lanes = memory, lanes
        self.places = np.arange(lanes)

    def _between(self, dtype: np.dtype, address: int, low: int, high: int) -> Vector:
        """Lanes `low` to `high` of the vector there; zeros in the others."""
        size = dtype.itemsize
        low, high = max(0, low), min(self.lanes, high)
        array = np.zeros(self.lanes, dtype)
        if high <= low:
            return Vector(array)
        begin = wrapped(address + low * size)
        data, state = self.memory.read(begin, (high - low) * size, min(MOST_ALIGNMENT, size))
        array[low:high] = data != 0 if dtype == BOOL else data.view(dtype)
        if state is None:
            return Vector(array)
        lost = np.zeros(self.lanes, np.bool_)
        lost[low:high] = (state.reshape(-1, size) != 0).max(1)
        return Vector(array, lost)

    def vload(self, dtype: np.dtype, address: int, offset: int, count: int | None = None) -> Vector:
        return self._between(dtype, wrapped(address + offset), 0, self.lanes if count is None else count)

    def vload_between(self, dtype: np.dtype, address: int, offset: int, low: int, high: int) -> Vector:
        return self._between(dtype, wrapped(address + offset), low, high)

    def vload_rows(self, address: int, offset: int, step: int) -> Vector:
        """Two words there, and two `step` bytes further, again and again."""
        words = [self._line(np.dtype(np.int32), address + offset + at, 2) for at in (0, step)]
        array, lost = (np.resize(np.concatenate(each), self.lanes) for each in zip(*words, strict=True))
        return Vector(array, lost if lost.any() else None)

    def vgather(self, dtype: np.dtype, address: int, indices: Vector, mask: Vector | None = None) -> Vector:
        size, array = dtype.itemsize, np.zeros(self.lanes, dtype)
        chosen = slice(None) if mask is None else mask.defined("which elements are gathered")
        lost = None if indices.undefined is None else indices.undefined[chosen]
        if lost is not None and lost.any():
            raise Fault(f"gathers at an index, {indices}, which is made of memory that nobody wrote")
        offsets = indices.array[chosen] * size
        if not len(offsets):
            return Vector(array)
        data, state = self.memory.look(address, offsets, size, min(MOST_ALIGNMENT, size))
        found = np.ascontiguousarray(data).reshape(-1)
        array[chosen] = found != 0 if dtype == BOOL else found.view(dtype)
        if state is None or not state.any():
            return Vector(array)
        undefined = np.zeros(self.lanes, np.bool_)
        undefined[chosen] = state
        return Vector(array, undefined)

    def vstore(self, address: int, offset: int, value: Vector, count: int | None = None) -> None:
        count = self.lanes if count is None else min(self.lanes, count)
        if count > 0:
            self._store(wrapped(address + offset), value, count, MOST_ALIGNMENT)

    def _store(self, address: int, value: Vector, count: int, alignment: int) -> None:
        array = value.array[:count]
        size = array.dtype.itemsize
        lost = None if value.undefined is None else value.undefined[:count].repeat(size)
        self.memory.write(
            address, array.view(np.uint8), min(alignment, size) if alignment <= MOST_ALIGNMENT else alignment, lost
        )

    def vstream(self, address: int, offset: int, value: Vector) -> None:
        alignment = min(STREAM_ALIGNMENT, self.lanes * value.array.dtype.itemsize)
        self._store(wrapped(address + offset), value, self.lanes, alignment)
        self.memory.is_streaming = True

    def streamed(self) -> None:
        self.memory.is_streaming = False

    def load(self, dtype: np.dtype, address: int, offset: int) -> Value:
        return self._scalar(dtype, wrapped(address + offset), 1)

    def _scalar(self, dtype: np.dtype, address: int, alignment: int) -> Value:
        data, state = self.memory.read(address, dtype.itemsize, alignment)
        if state is not None and (dtype.kind in "ib" or dtype == np.float64):
            raise Fault(f"reads {dtype.name} at {self.memory.named(address)}, which nobody wrote")
        return bool(data[0]) if dtype == BOOL else scalar(data.view(dtype)[0], state is not None)

    def store(self, dtype: np.dtype, address: int, offset: int, value: Value) -> None:
        data = np.asarray(element(value, dtype)).reshape(1).view(np.uint8)
        lost = np.ones(len(data), np.bool_) if is_lost(value) else None
        self.memory.write(wrapped(address + offset), data, 1, lost)

    def word(self, address: int, index: int) -> int:
        return self._scalar(WORD, wrapped(address + 8 * index), 8)

    # ---- AMX ----

    def amx_begin(self, address: int) -> None:
        data, state = self.memory.read(wrapped(address), 64, 1)
        if state is not None:
            raise Fault("reads shapes of AMX registers that nobody wrote")
        self.memory.amx = amx.Registers(data)

    def amx_end(self) -> None:
        self.memory.amx = None

    @property
    def _amx(self) -> amx.Registers:
        if self.memory.amx is None:
            raise Fault("uses AMX before amx_begin, or after amx_end")
        return self.memory.amx

    def amx_zero(self, number: int) -> None:
        self._amx.words[number][...] = 0

    def amx_load(self, number: int, address: int, offset: int, step: int) -> None:
        for row, words in enumerate(self._amx.words[number]):
            words[...] = self._defined(wrapped(address + offset + row * step), len(words))

    def _defined(self, address: int, count: int) -> np.ndarray:
        words, lost = self._line(np.dtype(np.int32), address, count)
        if lost.any():
            raise Fault(f"loads what nobody wrote at {self.memory.named(address)}")
        return words

    def amx_store(self, number: int, address: int, offset: int) -> None:
        for row, words in enumerate(self._amx.words[number]):
            self._put(address + offset + row * amx.ROW_BYTES, words, np.zeros(len(words), np.bool_))

    def amx_product(self, name: str, number: int) -> None:
        self._amx.words[number] = amx.PRODUCTS[name](*self._amx.operands(number))

    # ---- words that parts share ----

    def atomic_load(self, address: int, index: int) -> int:
        with self.memory.synchronised():
            return self.word(address, index)

    def atomic_store(self, address: int, index: int, value: int) -> int:
        with self.memory.synchronised():
            self.memory.write(wrapped(address + 8 * index), np.array([wrapped(value)]).view(np.uint8), 8)
        return 0

    def atomic_replace(self, address: int, index: int, expected: int, value: int) -> int:
        if self.atomic_load(address, index) != expected:
            return 0
        self.atomic_store(address, index, value)
        return 1

    # ---- squares, and groups of neighbours ----

    def _line(
        self, dtype: np.dtype, address: int, count: int, alignment: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        size = dtype.itemsize
        data, state = self.memory.read(wrapped(address), count * size, alignment or min(MOST_ALIGNMENT, size))
        lost = np.zeros(count, np.bool_) if state is None else (state.reshape(-1, size) != 0).max(1)
        return data.view(dtype).copy(), lost

    def _put(self, address: int, array: np.ndarray, lost: np.ndarray, alignment: int | None = None) -> None:
        size = array.dtype.itemsize
        data = np.ascontiguousarray(array).view(np.uint8)
        alignment = alignment or min(MOST_ALIGNMENT, size)
        self.memory.write(wrapped(address), data, alignment, lost.repeat(size) if lost.any() else None)

    def transpose(
        self,
        dtype: np.dtype,
        shape: tuple[int, int],
        source: int,
        step: int,
        target: int,
        target_step: int,
        *counts: int,
    ) -> None:
        """A square of rows and columns turned; with counts, only that number of rows and columns."""
        rows, columns = (min(most, max(0, count)) for most, count in zip(shape, counts or shape, strict=True))
        if not rows or not columns:
            return
        lines = [self._line(dtype, source + row * step, columns) for row in range(rows)]
        values, lost = np.stack([line for line, _ in lines], 1), np.stack([each for _, each in lines], 1)
        for column in range(columns):
            self._put(target + column * target_step, values[column], lost[column])

    def transpose_stream(
        self, dtype: np.dtype, side: int, source: int, step: int, target: int, target_step: int
    ) -> None:
        alignment = min(STREAM_ALIGNMENT, side * dtype.itemsize)
        for column in range(side):
            if (target + column * target_step) % alignment:
                raise Fault(
                    f"streams to {self.memory.named(target + column * target_step)}, not at a multiple of {alignment}"
                )
        self.transpose(dtype, (side, side), source, step, target, target_step)
        self.memory.is_streaming = True

    def part(self, dtype: np.dtype, side: int, count: int, source: int, target: int, step: int) -> None:
        values, lost = self._line(dtype, source, side * count)
        for number in range(count):
            self._put(target + number * step, values[number::count], lost[number::count])

    def join(self, dtype: np.dtype, side: int, count: int, source: int, step: int, target: int) -> None:
        lines = [self._line(dtype, source + number * step, side) for number in range(count)]
        values, lost = np.stack([line for line, _ in lines], 1), np.stack([each for _, each in lines], 1)
        self._put(target, values.reshape(-1), lost.reshape(-1))


def _parts_for(nanoseconds: int, units: int, threads: int) -> int:
    worthy = math.trunc(nanoseconds / PART_NANOSECONDS)
    return 1 if worthy < 2 or threads < 2 else max(1, min(worthy, units, threads * 8))


@cache
def vocabulary(lanes: int) -> dict[str, Callable[[Access], Any]]:
    """The meaning of each global name of a kernel, given the memory. A test compares the names with those of
    `simd.namespace`."""
    names: dict[str, Callable[[Access], Any]] = {}

    def method(name: str, *bound: Any) -> Callable[[Access], Any]:
        return lambda access: partial(getattr(access, name), *bound)

    def fixed(value: Any) -> Callable[[Access], Any]:
        return lambda access: value

    for name in (
        "vload_rows",
        "vstore",
        "vstream",
        "streamed",
        "word",
        "atomic_load",
        "atomic_store",
        "atomic_replace",
    ):
        names[name] = method(name)
    for name, value in (
        ("math", math),
        ("hidden", lambda word: word),
        ("min", min),
        ("max", max),
        ("parts_for", _parts_for),
    ):
        names[name] = fixed(value)
    names |= {"prefetch": fixed(lambda address, offset: None), "relax": fixed(lambda: 0)}
    names["inside"] = lambda access: lambda count: Vector(access.places < count)
    names |= {f"amx_{name}": method(f"amx_{name}") for name in ("begin", "end")}
    names |= {f"amx_{verb}_{n}": method(f"amx_{verb}", n) for verb in ("zero", "store") for n in amx.SUMS}
    names |= {f"amx_load_{n}": method("amx_load", n) for n in amx.OPERANDS}
    names |= {f"amx_{name}_{n}": method("amx_product", name, n) for name in amx.PRODUCTS for n in amx.SUMS}
    names |= {name: fixed(function) for name, function in FUNCTIONS.items()}
    for name in ("int8", "uint8", "int16", "uint16"):
        names[f"saturated_{name}"] = fixed(partial(saturate, np.dtype(name)))
    for each in DType:
        names |= _names_of(each.name, lanes)
    return names


def _names_of(name: str, lanes: int) -> dict[str, Callable[[Access], Any]]:
    """The part of the vocabulary that is of one element type. NumPy's dtype is asked for when a kernel uses it."""

    def method(verb: str, *bound: Any) -> Callable[[Access], Any]:
        return lambda access: partial(getattr(access, verb), dtype_of(name), *bound)

    names = {f"{verb}_{name}": method(verb) for verb in ("vload", "vload_between", "vgather", "load", "store")}
    names[f"convert_{name}"] = lambda access: partial(convert, partial(dtype_of, name))
    names[f"splat_{name}"] = lambda access: partial(splat, partial(dtype_of, name), lanes)
    if name.startswith("uint"):
        side = min(lanes, 4 * lanes // DType[name].itemsize)  # rows of the squares that are turned at once
        names[f"transpose_{name}"] = method("transpose", (side, side))
        names[f"transpose_{name}_stream"] = method("transpose_stream", side)
        for part, title in ((2, "half"), (4, "quarter")):
            names[f"transpose_{name}_{title}"] = method("transpose", (side, max(1, side // part)))
        for count in FEW:
            for verb in ("part", "join"):
                names[f"{verb}_{name}_{count}"] = method(verb, side, count)
    if DType[name].is_string or (DType[name].is_integer and DType[name].is_numpys):
        names[f"iota_{name}"] = lambda access: lambda: Vector(np.arange(lanes, dtype=dtype_of(name)))
    return names
