"""What registers hold, as a debugger shows it: tensors by their statistics, data values and closures by their fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats.dtypes import DType
from ...formats.messages.errors import ArgumentError
from ...formats.strings import to_texts
from ...formats.types import DataType
from ...vm.convert import native_type
from ...vm.image import Image
from ...vm.layout import KIND, OBJECT, OBJECT_HEAD
from ...vm.memory import array_at, tensor_shape, word, words
from ..tensors import is_float

BINS = 16
_KINDS = {KIND.TENSOR: "tensor", KIND.DATA: "data", KIND.CLOSURE: "closure", KIND.STORAGE: "storage"}


@dataclass(frozen=True)
class Value:
    """What a register, or a field of a value, holds. `fields` are as many as `Session.fields` gives."""

    kind: str  # "tensor", "tuple", "data", "closure", "storage" or "integer"
    type: str
    text: str  # in one line
    fields: int = 0


@dataclass(frozen=True)
class Numbers:
    """Statistics of a tensor; those of finite elements, of which there may be none (None)."""

    size: int
    nans: int
    infinities: int
    zeros: int
    least: float | None
    greatest: float | None
    mean: float | None
    deviation: float | None
    histogram: tuple[int, ...]  # counts in bins of equal width from the least to the greatest
    first_nonfinite: tuple[int, ...] | None


def integer(value: int) -> Value:
    return Value("integer", "int64", str(value))


def value_of(image: Image, data: int, reference: int) -> Value:
    """The value of a reference whose elements, if it has some, lie at `data`."""
    address = reference & ~1
    kind, count = _KINDS[word(address, OBJECT.KIND)], word(address, OBJECT.COUNT)
    if kind == "tensor":
        array = elements(data, reference)
        name = "string" if array.dtype == object else array.dtype.name
        return Value("tensor", f"{name}[{', '.join(map(str, array.shape))}]", brief(array))
    if kind == "storage":
        return Value("storage", "storage", f"{word(address, OBJECT.ITEMS)} bytes")
    if kind == "closure":
        function = image.program.functions[word(address, OBJECT.TAG)]
        names = ", ".join(captured_names(image, reference))
        return Value(
            "closure", str(native_type(image, reference)), f"@{function.name} with {names or 'nothing'}", count
        )
    type_ = native_type(image, reference)
    if not isinstance(type_, DataType):
        return Value("tuple", str(type_), f"{count} values", count)
    constructor = image.data_types[str(type_)].constructors[word(address, OBJECT.TAG)]
    return Value("data", str(type_), f"{constructor.name}({'…' if count else ''})", count)


def captured_names(image: Image, reference: int) -> Sequence[str]:
    """The names of the values that a closure has captured."""
    names = image.program.functions[word(reference & ~1, OBJECT.TAG)].param_names
    return names[len(names) - word(reference & ~1, OBJECT.COUNT) :]


def field(reference: int, index: int) -> tuple[int, int]:
    """Data and reference of a field of a data value, tuple or closure. Raises ArgumentError."""
    address = reference & ~1
    count = word(address, OBJECT.COUNT) if word(address, OBJECT.KIND) in (KIND.DATA, KIND.CLOSURE) else 0
    if not 0 <= index < count:
        raise ArgumentError(f"there is no field {index}: the value has {count}")
    inner = words(address + OBJECT_HEAD, count)[index]
    return word(inner & ~1, OBJECT.DATA), inner


def elements(data: int, reference: int) -> np.ndarray:
    """The elements of a tensor where they lie, read-only; texts as objects. Raises ArgumentError for other values."""
    if reference == 0 or word(reference & ~1, OBJECT.KIND) != KIND.TENSOR:
        raise ArgumentError("the value is not a tensor")
    dtype = DType.from_code(word(reference & ~1, OBJECT.TAG)).numpy
    return to_texts(array_at(data, dtype, tensor_shape(reference), writeable=False))


def numbers(array: np.ndarray) -> Numbers:
    """Statistics of an array of numbers. Raises ArgumentError for texts."""
    if array.dtype == object:
        raise ArgumentError("texts have no statistics")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = array.astype(np.float64)
    nan, infinite = np.isnan(wide), np.isinf(wide)
    finite = wide[~(nan | infinite)]
    first = None
    if finite.size < wide.size:
        first = tuple(map(int, np.unravel_index(int((nan | infinite).argmax()), wide.shape)))
    some = finite.size > 0
    with np.errstate(all="ignore"):
        histogram = np.histogram(finite, BINS)[0] if some and np.isfinite(np.ptp(finite)) else ()
        return Numbers(
            array.size,
            int(nan.sum()),
            int(infinite.sum()),
            int((wide == 0).sum()),
            float(finite.min()) if some else None,
            float(finite.max()) if some else None,
            float(finite.mean()) if some else None,
            float(finite.std()) if some else None,
            tuple(map(int, histogram)),
            first,
        )


def brief(array: np.ndarray) -> str:
    """A tensor in one line: its elements where they are few, else their range and what is not finite."""
    if array.size <= 6:
        return np.array2string(array, precision=6, separator=", ").replace("\n", "")
    if array.dtype == object:
        return f"{array.size} texts"
    if not is_float(array.dtype):
        return f"{array.min()} … {array.max()}"
    with np.errstate(invalid="ignore"):
        wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    text = f"{finite.min():.6g} … {finite.max():.6g}" if finite.size else "nothing finite"
    nans, infinities = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    return text + f", {nans} NaN" * (nans > 0) + f", {infinities} infinite" * (infinities > 0)


def part(array: np.ndarray, text: str) -> Any:
    """The part of an array that stands between brackets, `0, :3`. Raises ArgumentError."""

    def index(each: str) -> Any:
        each = each.strip()
        if each == "...":
            return ...
        if ":" not in each:
            return int(each)
        return slice(*(int(bound) if bound.strip() else None for bound in each.split(":")))

    try:
        return array[tuple(map(index, text.split(",")))]
    except IndexError as error:
        raise ArgumentError(f"[{text}] of {DType.of(array.dtype).name}{list(array.shape)}: {error}") from None
    except (TypeError, ValueError):
        raise ArgumentError(f"[{text}]: expected integers and slices, as [0, :3]") from None
