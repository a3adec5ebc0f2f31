"""`relay.backend.Executor` and `Runtime`: how TVM builds a program, as `relay.build` takes it. Here all programs run alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ....formats.messages.errors import ArgumentError

_KINDS = {"IntImm": (bool, int), "runtime.String": (str,)}  # TVM's name of an option's type → Python's


class _Choice:
    """One of several ways by name, with options."""

    what: ClassVar[str]
    known: ClassVar[dict[str, dict[str, str]]]  # name → option → its type

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        """Raises ArgumentError for another name, and for an option that it lacks, or of another type."""
        self.name, self.options = name, dict(options or {})
        types = self.list_registered_options(name)
        for key, value in self.options.items():
            if key not in types:
                raise ArgumentError(
                    f'Attribute "{key}" is not available on this {self.what}; {name} has {", ".join(types)}'
                )
            if not isinstance(value, _KINDS[types[key]]):
                found = next(
                    (kind for kind, several in _KINDS.items() if isinstance(value, several)), type(value).__name__
                )
                raise ArgumentError(f'Attribute "{key}" should have type "{types[key]}" but instead found "{found}"')

    def __getitem__(self, key: str) -> Any:
        """An option; None for one that is not set. Raises ArgumentError for an unknown one."""
        types = self.list_registered_options(self.name)
        if key not in types:
            raise ArgumentError(f'Attribute "{key}" is not available on this {self.what}')
        return self.options.get(key)

    def __contains__(self, key: object) -> bool:
        return key in self.options

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.what}({self.name!r}, {self.options})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash(self.name)

    @classmethod
    def list_registered(cls) -> list[str]:
        """The names."""
        return list(cls.known)

    @classmethod
    def list_registered_options(cls, name: str | _Choice) -> dict[str, str]:
        """The options of one, and their types by TVM's names. Raises ArgumentError."""
        name = str(name)
        if name not in cls.known:
            raise ArgumentError(f'{cls.what} "{name}" is not defined; there are {", ".join(cls.known)}')
        return dict(cls.known[name])


class Executor(_Choice):
    """What runs a program: all of them are the one machine."""

    what = "Executor"
    known: ClassVar = {
        "aot": {
            "constant-byte-alignment": "IntImm",
            "interface-api": "runtime.String",
            "link-params": "IntImm",
            "unpacked-api": "IntImm",
            "workspace-byte-alignment": "IntImm",
        },
        "graph": {"link-params": "IntImm"},
    }


class Runtime(_Choice):
    """In what a program runs: "cpp" is where Python is."""

    what = "Runtime"
    known: ClassVar = {
        "cpp": {"system-lib": "IntImm", "system-lib-prefix": "runtime.String"},
        "crt": {"system-lib": "IntImm"},
    }
