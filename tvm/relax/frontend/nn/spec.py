"""What functions of a module take, as `export_tvm` is told it."""

from __future__ import annotations

from collections.abc import Sequence


class Int:
    """A size."""


class Tensor:
    """A tensor: sizes that are strings are names."""

    def __init__(self, shape: Sequence[object], dtype: str) -> None:
        self.shape, self.dtype = list(shape), dtype


class Object:
    """A value of another kind than tensors."""

    def __init__(self, object_type: type | None = None) -> None:
        self.object_type = object_type


class Tuple:
    """Several of them."""

    def __init__(self, name: str, elements: Sequence[object]) -> None:
        self.name, self.elements = name, elements
