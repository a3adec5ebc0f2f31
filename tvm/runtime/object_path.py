"""`ObjectPath`: where in a nested object something is, as text that a person reads: `<root>.body[2]["key"]`."""

from __future__ import annotations

from typing import Any

from ...formats.messages.errors import IndexOutOfRangeError
from ..modules.containers import Object


class ObjectPath(Object):
    """A path from a root. Paths are equal where they have the same steps."""

    __slots__ = ("_parent", "step")
    _form = ""

    def __init__(self, parent: ObjectPath | None, step: Any) -> None:
        self._parent, self.step = parent, step

    @staticmethod
    def root(root_name: str | None = None) -> RootPath:
        """A path of no step."""
        return RootPath(None, root_name)

    def attr(self, attr_key: str | None) -> ObjectPath:
        """To an attribute; None for one that is not known."""
        return UnknownAttributeAccessPath(self, None) if attr_key is None else AttributeAccessPath(self, attr_key)

    def array_index(self, index: int) -> ArrayIndexPath:
        """To an element of a list."""
        return ArrayIndexPath(self, index)

    def missing_array_element(self, index: int) -> MissingArrayElementPath:
        """To where a list should have an element."""
        return MissingArrayElementPath(self, index)

    def map_value(self, key: Any) -> MapValuePath:
        """To a value of a mapping."""
        return MapValuePath(self, key)

    def missing_map_entry(self) -> MissingMapEntryPath:
        """To where a mapping should have an entry."""
        return MissingMapEntryPath(self, None)

    @property
    def parent(self) -> ObjectPath | None:
        """The path without its last step; None for a root."""
        return self._parent

    def __len__(self) -> int:
        return len(self._steps)

    def get_prefix(self, length: int) -> ObjectPath:
        """The first `length` steps, the root among them. Raises IndexError."""
        if length < 1:
            raise IndexOutOfRangeError(f"Prefix length must be at least 1, got {length}")
        if length > len(self):
            message = f"Attempted to get a prefix longer than the path itself: {length} of {len(self)} steps"
            raise IndexOutOfRangeError(message)
        path = self
        for _ in range(len(self) - length):
            assert path._parent is not None
            path = path._parent
        return path

    def is_prefix_of(self, other: ObjectPath) -> bool:
        """Whether the other path begins with this one's steps."""
        ours = self._steps
        return other._steps[: len(ours)] == ours

    @property
    def _steps(self) -> list[tuple[type, Any]]:
        steps: list[tuple[type, Any]] = []
        path: ObjectPath | None = self
        while path is not None:
            steps.append((type(path), path.step))
            path = path._parent
        return steps[::-1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and self._steps == other._steps

    def __hash__(self) -> int:
        return hash((type(self), len(self)))  # keys of mappings may have no hash

    def __init_subclass__(cls, text: str = "") -> None:
        cls._form = text  # of the step

    def _text(self) -> str:
        return self._form.format(self.step)

    def __str__(self) -> str:
        return "".join(kind(None, step)._text() for kind, step in self._steps)

    __repr__ = __str__


class RootPath(ObjectPath):
    __slots__ = ()

    def _text(self) -> str:
        return "<root>" if self.step is None else self.step


class AttributeAccessPath(ObjectPath, text=".{}"):
    __slots__ = ()


class UnknownAttributeAccessPath(ObjectPath, text=".<unknown attribute>"):
    __slots__ = ()


class ArrayIndexPath(ObjectPath, text="[{}]"):
    __slots__ = ()


class MissingArrayElementPath(ObjectPath, text="[<missing element #{}>]"):
    __slots__ = ()


class MapValuePath(ObjectPath, text="[{}]"):
    __slots__ = ()

    def _text(self) -> str:
        return f'["{self.step}"]' if isinstance(self.step, str) else super()._text()


class MissingMapEntryPath(ObjectPath, text="[<missing entry>]"):
    __slots__ = ()


class ObjectPathPair(Object):
    """Where two objects that were compared differ."""

    __slots__ = ("lhs_path", "rhs_path")

    def __init__(self, lhs_path: ObjectPath, rhs_path: ObjectPath) -> None:
        self.lhs_path, self.rhs_path = lhs_path, rhs_path

    def __repr__(self) -> str:
        return f"ObjectPathPair({self.lhs_path}, {self.rhs_path})"
