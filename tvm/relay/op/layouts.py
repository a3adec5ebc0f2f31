"""Layouts by letters: `NCHW`, `NHWC`, `OIHW`, and with parts of an axis, `NCHW8c`."""

from __future__ import annotations

import re

from ....compiler.builder.programs import Expression, op
from ....formats.dims import Dim, floordiv, multiply
from ....formats.messages.errors import InferenceError
from .table import shape_of

_AXES = re.compile(r"(\d*)([A-Za-z])")


def parse(layout: str) -> list[tuple[str, int]]:
    """The axes of a layout, and of a lower letter how long it is. Raises InferenceError."""
    axes = [(letter, int(size or 0)) for size, letter in _AXES.findall(layout)]
    names = [letter for letter, _ in axes]
    if "".join(size + letter for size, letter in _AXES.findall(layout)) != layout or len(set(names)) != len(names):
        raise InferenceError(f"{layout!r} is not a layout: expected letters, each once, lower ones with their size")
    return axes


def transformed(data: Expression, source: str, target: str) -> Expression:
    """The tensor, its axes as `target` says. Raises InferenceError."""
    if source == target:
        return data
    letters = [letter for letter, _ in parse(source) if letter.isupper()]
    if sorted(letters) != sorted(letter for letter, _ in parse(target) if letter.isupper()):
        raise InferenceError(f"layouts {source!r} and {target!r} have different axes")
    return _parted(_whole(data, source), "".join(letters), target)


def _whole(data: Expression, layout: str) -> Expression:
    """Without parts: axes of the upper letters alone, in their order."""
    axes = parse(layout)
    if all(letter.isupper() for letter, _ in axes):
        return data
    data, shape = shape_of(data)
    order: list[int] = []
    result: list[Dim] = []
    for place, (letter, _) in enumerate(axes):
        if letter.isupper():
            parts = [i for i, (other, _) in enumerate(axes) if other == letter.lower()]
            order += [place, *parts]
            size = shape[place]
            for part in parts:
                size = multiply(size, shape[part])
            result.append(size)
    return op.reshape(op.permute_dims(data, axes=order), shape=result)


def _parted(data: Expression, letters: str, layout: str) -> Expression:
    """From whole axes to those of the layout."""
    axes = parse(layout)
    data, shape = shape_of(data)
    form: list[Dim] = []
    places: dict[str, int] = {}
    for letter, dim in zip(letters, shape, strict=True):
        size = next((size for other, size in axes if other == letter.lower()), 0)
        if size and isinstance(dim, int) and dim % size:
            raise InferenceError(f"an axis {letter} of {dim} has no parts of {size}, as the layout {layout!r} says")
        places[letter] = len(form)
        form.append(floordiv(dim, size) if size else dim)
        if size:
            places[letter.lower()] = len(form)
            form.append(size)
    if len(form) != len(shape):
        data = op.reshape(data, shape=form)
    order = [places[letter] for letter, _ in axes]
    return data if order == sorted(order) else op.permute_dims(data, axes=order)
