"""The data types of an executable, by name, with their constructors: the file is enough to make values of them.

Tree = executable.types.Tree
machine["main"](Tree.Node(Tree.Leaf(), 1.5, Tree.Leaf()))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..formats.messages.calling import Suggesting, public_class
from ..formats.messages.errors import ArgumentError, UnknownTypeError
from ..formats.messages.names import near
from ..formats.types import Constructor, DataTypeDefinition
from .values import DataValue


@public_class
class ConstructorOf(Suggesting):
    """A constructor of a data type: call it with the fields to make a value."""

    __slots__ = ("constructor", "definition", "tag")

    def __init__(self, definition: DataTypeDefinition, tag: int) -> None:
        """The constructor at that position."""
        self.definition, self.tag = definition, tag
        self.constructor: Constructor = definition.constructors[tag]

    def __repr__(self) -> str:
        fields = ", ".join(map(str, self.constructor.fields))
        return f"<constructor {self.definition.name}.{self.constructor.name}({fields})>"

    def __call__(self, *fields: Any) -> DataValue:
        """A value, whose fields a call checks. Raises ArgumentError for another number of them."""
        wanted = self.constructor.fields
        if len(fields) != len(wanted):
            shown = ", ".join(map(str, wanted)) or "nothing"
            raise ArgumentError(
                f"{self.constructor.name} of {self.definition.name} takes {shown}, got {len(fields)} values"
            )
        return DataValue(self.tag, fields, self.definition.name, self.constructor.name)


class DataTypeOf(Suggesting):
    """A data type of an executable: its constructors are attributes, and are iterated over in their order."""

    __slots__ = ("_constructors", "definition")

    def __init__(self, definition: DataTypeDefinition) -> None:
        self.definition = definition
        tags = range(len(definition.constructors))
        self._constructors = {definition.constructors[tag].name: ConstructorOf(definition, tag) for tag in tags}

    def __repr__(self) -> str:
        return f"<{self.definition}>"

    def __dir__(self) -> list[str]:
        return ["definition", *self._constructors]

    def __iter__(self) -> Iterator[ConstructorOf]:
        return iter(self._constructors.values())

    def __getattr__(self, name: str) -> Any:
        if name not in self._constructors:
            return super().__getattr__(name)  # type: ignore[misc]
        return self._constructors[name]


class DataTypes(Mapping[str, DataTypeOf], Suggesting):
    """By name: `types["List[float32[2]]"]`, and `types.List` where there is one List alone."""

    def __init__(self, definitions: tuple[DataTypeDefinition, ...]) -> None:
        self._types = {each.name: DataTypeOf(each) for each in definitions}

    def __getitem__(self, name: str) -> DataTypeOf:
        """Raises UnknownTypeError, which is a KeyError."""
        found = self._types.get(name) or self._alone(name)
        if found is None:
            raise UnknownTypeError(
                f"there is no data type {name!r}; there is {', '.join(self._types) or 'none'}{near(name, self)}"
            )
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or (found := self._alone(name)) is None:
            return super().__getattr__(name)  # type: ignore[misc]
        return found

    def _alone(self, name: str) -> DataTypeOf | None:
        found = [type_ for full, type_ in self._types.items() if full.partition("[")[0] == name]
        return found[0] if len(found) == 1 else None

    def _instead_of(self, name: str) -> str:
        several = [full for full in self._types if full.partition("[")[0] == name]
        return f"; there are {', '.join(f'types[{full!r}]' for full in several)}" if several else near(name, dir(self))

    def __dir__(self) -> list[str]:
        return sorted({full.partition("[")[0] for full in self._types})

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def __repr__(self) -> str:
        return f"DataTypes({', '.join(map(str, (each.definition for each in self._types.values())))})"
