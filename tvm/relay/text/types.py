"""Types in Relay's text: `Tensor[(1, ?), float32]`, `float32`, `(A, B)`, `fn (A) -> B`, `List[A]`, `_`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....formats import limits
from ....formats.dims import SymbolicDim
from ....formats.messages.errors import FormatError
from .. import ty
from .scopes import Scope
from .stream import Stream

_ELEMENT_TYPES = ("int", "uint", "float", "bool", "bfloat", "string")


class TypeReader:
    """Reads types off a stream. `variables` are the type variables in scope; `meta` gives an entry of the metadata."""

    def __init__(self, stream: Stream, variables: Scope, meta: Callable[[], Any]) -> None:
        self.stream, self.variables, self.meta, self.depth = stream, variables, meta, 0

    def type(self) -> ty.Type:
        """The next type. Raises TextError."""
        if self.depth == limits.TYPE_NESTING:
            raise self.stream.error(f"types may be nested {limits.TYPE_NESTING} deep")
        self.depth += 1
        made = self._type()
        self.depth -= 1
        return made

    def _type(self) -> ty.Type:
        stream = self.stream
        if stream.at_mark("("):
            return ty.TupleType(tuple(stream.several("(", ")", self.type)))
        if stream.accept("keyword", "fn"):
            return self._function()
        token = stream.take("word", "a type")
        if token.value == "_":
            return ty.IncompleteType()
        if token.value == "Tensor":
            return self._tensor()
        if token.value.startswith(_ELEMENT_TYPES) and self.variables.get(token.value) is None:
            return ty.TensorType((), self._dtype(token))
        arguments = stream.several("[", "]", self.type) if stream.at_mark("[") else []
        variable = self.variables.get(token.value)
        if variable is not None and not arguments:
            return variable
        return ty.TypeCall(variable or ty.GlobalTypeVar(token.value), tuple(arguments))

    def _function(self) -> ty.FuncType:
        mark = self.variables.mark()
        own = self.parameters()
        params = self.stream.several("(", ")", self.type)
        self.stream.take("mark", "->", "->")
        result = self.type()
        self.variables.reset(mark)
        return ty.FuncType(tuple(params), result, tuple(own))

    def parameters(self) -> list[ty.TypeVar]:
        """`[A, B]`, bound; none where there is no bracket."""
        if not self.stream.at_mark("["):
            return []

        def variable() -> ty.TypeVar:
            made = ty.TypeVar(self.stream.take("word", "the name of a type variable").value)
            self.variables.bind(made.name_hint, made)
            return made

        return self.stream.several("[", "]", variable)

    def _tensor(self) -> ty.TensorType:
        self.stream.take("mark", "[", "[")
        shape = self.stream.several("(", ")", self._dim)
        if len(shape) > limits.RANK:
            raise self.stream.error(f"a tensor of rank {len(shape)}; the limit is {limits.RANK}")
        self.stream.take("mark", ",", ",")
        dtype = self._dtype(self.stream.take("word", "an element type"))
        self.stream.take("mark", "]", "]")
        return ty.TensorType(tuple(shape), dtype)

    def _dtype(self, token: Any) -> str:
        try:
            return ty.dtype_name(token.value)
        except (FormatError, TypeError) as error:
            raise self.stream.error(f"`{token.value[:40]}` is not an element type here: {error}", token) from None

    def _dim(self) -> Any:
        stream = self.stream
        if stream.accept("mark", "?"):
            return ty.Any()
        if stream.at("meta"):
            token, found = stream.token, self.meta()
            if not isinstance(found, SymbolicDim):
                raise stream.error("expected a dimension in the metadata", token)
            return found
        token = stream.take("number", "a dimension: a number, ? or meta[tir.SizeVar][…]")
        digits = token.value.partition("i")[0]
        if not digits.isdecimal() or len(digits) > 20 or int(digits) > limits.DIMENSION:
            raise stream.error(f"{token.value[:40]} is not a dimension; they are 0 to {limits.DIMENSION}", token)
        return int(digits)
