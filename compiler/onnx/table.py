"""The table of ONNX operators: name and opset version → the function that imports a node.

An importer reads like the operator's signature: after the builder come the node's inputs, as `Value`s (None for one that is
left out), then its attributes by their ONNX names. It gives the node's output, or a tuple of them. What it takes is also what is
supported: a node with another attribute is reported, never misread.

    @importer("LRN")
    def _lrn(g: GraphBuilder, x: Value, *, size: int, alpha: float = 1e-4, …) -> Value:
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Union

from ...formats.messages.errors import ModelError
from .values import KINDS, GraphBuilder, Imported, UnsupportedError

if TYPE_CHECKING:
    import onnx

Results = Union[Imported, tuple[Imported, ...]]
ImporterFunction = Callable[..., Results]
_Function = TypeVar("_Function", bound=ImporterFunction)

# Attributes of ancient opsets that say nothing about the result.
_IGNORED = {"consumed_inputs", "_training"}


@dataclass(frozen=True)
class Importer:
    """One version of an operator."""

    name: str
    since: int  # the first opset version that it is for
    function: ImporterFunction
    signature: inspect.Signature
    by_user: bool = False

    def __call__(
        self, g: GraphBuilder, inputs: Sequence[Imported | None], attributes: dict[str, Any]
    ) -> tuple[Imported, ...]:
        """Raises UnsupportedError, ModelError, or InferenceError from the operators."""
        known = self.signature.parameters
        attributes = {name: value for name, value in attributes.items() if name not in _IGNORED}
        for name in attributes:
            if name not in known or known[name].kind is not inspect.Parameter.KEYWORD_ONLY:
                raise UnsupportedError(f"attribute {name!r} is not supported")
        self._check_count(inputs)
        try:
            bound = self.signature.bind(g, *_trimmed(inputs), **attributes)
        except TypeError as error:
            raise ModelError(f"{self.name}: {error}") from None
        for name, value in bound.arguments.items():
            missing = value is None or (isinstance(value, tuple) and None in value)
            if missing and not _is_optional(known[name]):
                raise ModelError(f"{self.name}: input {name!r} is left out")
            if name not in attributes:  # whose lists may be millions of numbers
                self._check_kind(name, value)
        results = self.function(*bound.args, **bound.kwargs)
        return results if isinstance(results, tuple) else (results,)

    def _check_count(self, inputs: Sequence[Imported | None]) -> None:
        """Raises ModelError for more inputs than the operator has."""
        kinds = inspect.Parameter
        _, *taken = [each for each in self.signature.parameters.values() if each.kind is not kinds.KEYWORD_ONLY]
        names = [each.name for each in taken]
        if len(_trimmed(inputs)) > len(names) and not any(each.kind is kinds.VAR_POSITIONAL for each in taken):
            takes = ", ".join(names) or "none"
            raise ModelError(f"{self.name}: the node has {len(_trimmed(inputs))} inputs, the operator takes {takes}")

    def _check_kind(self, name: str, value: Any) -> None:
        """Raises ModelError for a tensor where a sequence is needed, and so on."""
        needed = self.signature.parameters[name].annotation
        if str(needed).startswith("Imported"):
            return
        expected = next((kind for each, kind in KINDS.items() if each.__name__ == needed), "tensor")
        expected = "sequence" if needed == "AnySequence" else expected
        for each in value if isinstance(value, tuple) else (value,):
            got = KINDS.get(type(each), expected)
            if got != expected:
                raise ModelError(f"{self.name}: input {name!r} must be a {expected}, got a {got}")


_TABLE: dict[tuple[str, str], list[Importer]] = {}


def importer(
    *names: str, since: int = 1, domain: str = "", attributes_of: Callable[..., Any] | None = None
) -> Callable[[_Function], _Function]:
    """Registers the importer of the operators `names`, from opset version `since` on. Instead of attributes it may take `**rest`:
    those of another function, with their defaults."""

    def add(function: _Function) -> _Function:
        signature = _signature(function, attributes_of)
        if attributes_of is not None:  # those of the functions that take them from this one
            function.__signature__ = signature  # type: ignore[attr-defined]
        for name in names:
            versions = importers_of(domain, name)
            versions.append(Importer(name, since, function, signature))
            versions.sort(key=lambda version: -version.since)
        return function

    return add


def importers_of(domain: str, name: str) -> list[Importer]:
    """The versions of an operator's importer, the newest first: the list that is looked through."""
    return _TABLE.setdefault(("" if domain == "ai.onnx" else domain, name), [])


def _signature(function: ImporterFunction, attributes_of: Callable[..., Any] | None) -> inspect.Signature:
    signature = inspect.signature(function)
    if attributes_of is None:
        return signature
    own = [it for it in signature.parameters.values() if it.kind is not inspect.Parameter.VAR_KEYWORD]
    others = inspect.signature(attributes_of).parameters.values()
    rest = [it for it in others if it.kind is inspect.Parameter.KEYWORD_ONLY]
    return signature.replace(parameters=[*own, *rest])


def find(domain: str, name: str, opset: int) -> Importer | None:
    """The importer for that opset version, if there is one."""
    return next((version for version in _TABLE.get((domain, name), ()) if version.since <= opset), None)


def names_in(domain: str) -> list[str]:
    """The names of a domain's operators that have an importer."""
    return [name for each, name in _TABLE if each == domain and _TABLE[each, name]]


def supported() -> list[str]:
    """The names of all operators that have an importer of Treadle's."""
    own = (key for key, versions in _TABLE.items() if not all(version.by_user for version in versions))
    return sorted(f"{domain}.{name}".lstrip(".") for domain, name in own)


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    """An attribute as importers take it: numbers, strings, tuples of them, arrays; graphs as they are."""
    import onnx

    from .tensors import dense, to_array

    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.TENSOR:
        return to_array(value, None)
    if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
        return dense(value, None)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return tuple(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return tuple(text.decode("utf-8", "replace") for text in value)
    return value


def _is_optional(parameter: inspect.Parameter) -> bool:
    """Inputs that may be left out can come before others that may not, and have no default then."""
    return parameter.default is not inspect.Parameter.empty or parameter.annotation == "Value | None"


def _trimmed(inputs: Sequence[Imported | None]) -> list[Imported | None]:
    """Without the inputs left out at the end."""
    count = len(inputs)
    while count and inputs[count - 1] is None:
        count -= 1
    return list(inputs[:count])
