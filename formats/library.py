"""The library of an executable: its primitives, and their sources at three levels."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from .. import formats
from .extensions import check_present
from .messages.calling import Suggesting, public_class
from .messages.errors import FormatError, TreadleError, UnknownFunctionError
from .messages.names import near
from .primitive import Primitive, PrimitiveDefinition
from .program import TARGET

FORMS = ("python", "llvm", "asm")


@public_class
class Library(Suggesting):
    """The primitives of an executable by name: `lib.names`, `lib["conv_relu_0"]`, `lib.get_source("conv_relu_0", "asm")`."""

    def __init__(self, primitives: tuple[Primitive, ...], metadata: Mapping[str, str] | None = None) -> None:
        """`metadata` are those of the executable, which say what operators of users it needs."""
        self._metadata = metadata or {}
        self._primitives = {primitive.name: primitive.definition for primitive in primitives}

    @property
    def names(self) -> list[str]:
        return list(self._primitives)

    def __len__(self) -> int:
        return len(self._primitives)

    def __iter__(self) -> Iterator[str]:
        return iter(self._primitives)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._primitives

    def __getitem__(self, name: str) -> PrimitiveDefinition:
        try:
            return self._primitives[name]
        except (KeyError, TypeError):  # what cannot be a key is none
            names = ", ".join(self._primitives) or "none"
            raise UnknownFunctionError(
                f"there is no primitive {name!r}; the library has {names}{near(name, self._primitives)}"
            ) from None

    def get_source(self, name: str, fmt: str = "python") -> str:
        """The source of a primitive's kernel here: "python" as Treadle generates it, "llvm" or "asm" as it is compiled.

        Imports the compiler. Raises UnknownFunctionError, FormatError for an unknown form, CompileError for a primitive
        that has no kernel, UnknownOperatorError where operators of users are not known here.
        """
        definition = self[name]
        if not isinstance(fmt, str) or fmt not in FORMS:
            raise FormatError(f"no source form {fmt!r}; there are {', '.join(FORMS)}{near(fmt, FORMS)}")
        if not formats.kernel_sources:
            raise TreadleError("formats alone cannot show sources; import treadle")
        check_present(self._metadata)
        module = importlib.import_module(formats.kernel_sources)
        return module.get_source(definition, fmt, self._metadata.get(TARGET, ""))

    def __repr__(self) -> str:
        return f"<Library of {len(self)} primitives>"
