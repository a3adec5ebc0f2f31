"""Checks definitions of primitives, which come with executables and so from anywhere."""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.dims import SymbolicDim
from ..formats.messages.errors import InferenceError, LimitError
from ..formats.primitive import PrimitiveDefinition, form_problem
from ..formats.types import TensorType
from .operators import lookup
from .operators.shapes import mismatch

_DIM_TEXT = 2000  # characters of a dimension; arithmetic on longer ones would be too much work


def check_definition(definition: PrimitiveDefinition, name: str = "") -> None:
    """Checks a definition, which is untrusted: its form, then node by node operators, attributes and result types.

    Raises InferenceError, which names the primitive if it has a name. What passes can be evaluated and lowered.
    """
    try:
        _check(definition)
    except InferenceError as error:
        if not name:
            raise
        raise InferenceError(f"primitive {name!r}: {error.message}", node=error.node) from None


def _check(definition: PrimitiveDefinition) -> None:
    values = list(definition.params)
    _check_dims(definition, definition.params, ())
    for number, node in enumerate(definition.nodes):
        place = node.origin or f"{node.operator} (node {number} of the primitive)"
        try:
            if any(not 0 <= index < len(values) for index in node.inputs):
                raise mismatch(f"inputs numbered below {len(values)}", list(node.inputs))
            _check_dims(definition, node.results, tuple(value for _, value in node.attributes))
            inferred = lookup(node.operator).result_types([values[index] for index in node.inputs], node.attributes)
            if inferred != node.results:
                raise mismatch(f"results {', '.join(map(str, node.results))}", ", ".join(map(str, inferred)))
        except InferenceError as error:
            raise InferenceError(error.message, node=place) from None
        except LimitError:
            raise
        except Exception as error:  # nobody has made such inputs or attributes before
            fault = f"inference failed, which is Treadle's fault: {type(error).__name__}: {error}"
            raise InferenceError(fault[:1000], node=place) from error
        values.extend(node.results)
    if any(not 0 <= index < len(values) for index in definition.outputs):
        raise mismatch(f"outputs numbered below {len(values)}", list(definition.outputs))
    problem = form_problem(definition)
    if problem:
        raise InferenceError(problem)


def _check_dims(definition: PrimitiveDefinition, types: tuple[TensorType, ...], attributes: tuple) -> None:
    """Every dimension uses the definition's variables alone, and is of a size that arithmetic can bear."""
    unbound = set(PrimitiveDefinition.variables_of(types, attributes)) - set(definition.variables)
    if unbound:
        raise mismatch(f"dimension variables among {list(definition.variables)}", min(unbound))
    for dim in _symbolic((tuple(type_.shape for type_ in types), attributes)):
        if len(str(dim)) > _DIM_TEXT:
            raise mismatch(f"dimensions of at most {_DIM_TEXT} characters", len(str(dim)))


def _symbolic(value: object) -> Iterable[SymbolicDim]:
    if isinstance(value, SymbolicDim):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _symbolic(part)
