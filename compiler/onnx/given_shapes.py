"""The shapes that a user gives to a model's inputs, in place of the model's own: checked, and carried on to the other inputs.

Axes of several inputs that the model calls by one name have one size. So a size that is given for one of them is given for all,
and a size may be given by the model's name for it alone: shapes={"sequence_length": 128}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ...formats import dims
from ...formats.limits import DIMENSION
from ...formats.messages.calling import told
from ...formats.messages.errors import ModelError, ParseError
from ...formats.messages.names import near

if TYPE_CHECKING:
    import onnx

Size = Union[int, str]  # "" where it has neither a number nor a name


def given_shapes(inputs: Sequence[onnx.ValueInfoProto], given: Mapping[str, Any]) -> dict[str, list[Size]]:
    """The shapes of those inputs that have other ones than the model's. Raises ModelError for what fits no input."""
    own = {info.name: declared for info in inputs if (declared := dimensions(info)) is not None}
    symbols = {name: None for shape in own.values() for name in shape if isinstance(name, str) and name}
    inputs_named = {info.name for info in inputs}
    shapes: dict[str, list[Size]] = {}
    sizes: dict[str, Size] = {}  # of the model's names for sizes
    for name, value in given.items():
        if name in inputs_named:
            shapes[name] = _shape(name, value, own.get(name))
        elif name in symbols:
            alone = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
            sizes[name] = _size(f"shapes: {name!r}", alone, symbols)
        else:
            raise ModelError(_unknown(name, given, inputs, symbols))
    for symbol, size in _implied(own, shapes):
        sizes.setdefault(symbol, size)
    for name, shape in own.items():
        changed = [_replaced(size, sizes) for size in shape]
        if name not in shapes and changed != shape:
            shapes[name] = changed
    return shapes


def dimensions(info: onnx.ValueInfoProto) -> list[Size] | None:
    """The sizes of an input in the model, as numbers and names; None where it has no shape."""
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in info.type.tensor_type.shape.dim]


def _shape(name: str, value: Any, own: Sequence[Size] | None) -> list[Size]:
    where = f"shapes[{name!r}]"
    if not isinstance(value, (list, tuple)):
        written = f"; as a tuple: {_split(value)}" if isinstance(value, str) and "," in value else ""
        raise ModelError(f"{where}: expected sizes and names of sizes, as (8, 'n'), got {told(value)}{written}")
    if own is not None and len(value) != len(own):
        shown = ", ".join(str(size) if size != "" else "?" for size in own)
        raise ModelError(f"{where}: got {_axes(len(value))}, but the model's input has {len(own)}: [{shown}]")
    known = [size for size in own or () if isinstance(size, str)]
    return [_size(f"{where}[{axis}]", size, known) for axis, size in enumerate(value)]


def _split(text: str) -> tuple[Size, ...]:
    parts = [part.strip() for part in text.strip(" ()[]").split(",")]
    return tuple(int(part) if part.isdecimal() else part for part in parts if part)


def _axes(count: int) -> str:
    return f"{count} size{'' if count == 1 else 's'}"


def _size(where: str, size: Any, known: Any) -> Size:
    """A number that is not negative, or a name; None, as elsewhere, is a size without a name."""
    if size is None:
        return ""
    if isinstance(size, np.integer):
        size = int(size)
    if isinstance(size, dims.SymbolicDim):
        size = str(size)
    if isinstance(size, int) and not isinstance(size, bool):
        if not 0 <= size <= DIMENSION:
            raise ModelError(f'{where} is {size}; a size that is open is a name, such as "n", or None')
        return size
    if not isinstance(size, str):
        raise ModelError(f'{where}: expected a number, or a name such as "n", got {told(size)}')
    if size not in known and size not in ("", "?"):
        try:
            dims.parse(size)
        except ParseError:
            raise ModelError(
                f'{where} is {size!r}, which is not the name of a size; names are words, such as "n"'
            ) from None
    return size if size != "?" else ""


def _implied(own: Mapping[str, list[Size]], shapes: Mapping[str, list[Size]]) -> Iterator[tuple[str, Size]]:
    """The sizes that given shapes say for the model's names, where they agree."""
    said: dict[str, set[Size]] = {}
    for name, shape in shapes.items():
        for symbol, size in zip(own.get(name, ()), shape, strict=False):
            if isinstance(symbol, str) and symbol:
                said.setdefault(symbol, set()).add(size)
    for symbol, sizes in said.items():
        if len(sizes) == 1 and "" not in sizes:
            yield symbol, next(iter(sizes))


def _replaced(size: Size, sizes: Mapping[str, Size]) -> Size:
    """A size of the model, of which names have other sizes; "past + length" is computed."""
    if isinstance(size, int) or not size:
        return size
    if size in sizes:
        return sizes[size]
    try:
        parsed = dims.parse(size)
        values = {name: _dim(value) for name, value in sizes.items() if name in dims.variables(parsed)}
        replaced = dims.substitute(parsed, values) if values else size
    except ParseError:
        return size
    return replaced if isinstance(replaced, int) else str(replaced)


def _dim(size: Size) -> dims.Dim:
    return size if isinstance(size, int) else dims.parse(size)


def _unknown(name: Any, given: Mapping[str, Any], inputs: Any, symbols: Mapping[str, None]) -> str:
    names = [info.name for info in inputs]
    open_ = f"; its open sizes are {', '.join(map(repr, symbols))}" if symbols else ""
    return (
        f"a shape is given for {name!r}, but the model's inputs are {', '.join(map(repr, names))}{open_}"
        f"{near(name, [*names, *symbols])}"
    )
