"""Importers that users write: functions of expressions, as programs are built of, in place of the graph builder's values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

from ...formats.messages.calling import raised
from ...formats.messages.errors import CompileError
from .. import ir
from ..builder.anf import postorder
from ..builder.programs import Expression, expression
from .table import Importer, importers_of
from .values import GraphBuilder, UnsupportedError, Value

_Held = Union[Value, tuple[Value, ...]]


class _Own:
    """A user's function, called like one of Treadle's importers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, g: GraphBuilder, *inputs: Value | None, **attributes: Any) -> tuple[Value, ...]:
        operands = [None if each is None else Expression(atom=g.atom(each), type=each.type) for each in inputs]
        given = {each.atom: value for each, value in zip(operands, inputs, strict=True) if each is not None and value}
        results = self._called(g, operands, attributes)
        made: list[Value] = []
        for each in results if isinstance(results, (tuple, list)) else (results,):
            if each is None:
                raise CompileError("its importer gave None; expected an expression, or a tuple of them", node=g.origin)
            held = _imported(g, expression(each), given)
            made += held if isinstance(held, tuple) else (held,)
        return tuple(made)

    def _called(self, g: GraphBuilder, operands: Sequence[Expression | None], attributes: Mapping[str, Any]) -> Any:
        """The function's result. Raises CompileError with its line for anything but an error of the compiler's."""
        try:
            return self.function(*operands, **attributes)
        except (CompileError, UnsupportedError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise CompileError(f"its importer raised {raised(error, self.function)}", node=g.origin) from error


def _imported(g: GraphBuilder, result: Expression, given: dict[Any, Value]) -> _Held:
    """The value of an expression, operator by operator, so that what is known when a model is imported is computed now."""
    values: dict[Any, _Held] = {}
    for node in postorder(result):
        if node.make is None:
            values[node] = given.get(node.atom) or _constant(node.atom)
            continue
        if node.bodies or any(type(values[each]) is tuple and len(node.operands) > 1 for each in node.operands):
            raise UnsupportedError(
                "its importer uses branches, loops or functions; operators alone are supported there"
            )
        holders = tuple(ir.Var(f"operand{number}") for number in range(len(node.operands)))
        call, operands = node.make(holders, ()), [values[each] for each in node.operands]
        if isinstance(call, ir.OperatorCall):
            made = g.ops(call.operator, *operands, **dict(call.attributes))  # type: ignore[arg-type]
            values[node] = made[0] if len(made) == 1 else made
        elif isinstance(call, ir.MakeTuple):
            values[node] = tuple(operands)  # type: ignore[arg-type]
        elif isinstance(call, ir.GetItem) and isinstance(operands[0], tuple):
            values[node] = operands[0][call.index]
        else:
            raise UnsupportedError("its importer calls functions; operators alone are supported there")
    return values[result]


def _constant(atom: Any) -> Value:
    if not isinstance(atom, ir.Constant):
        raise UnsupportedError(f"its importer uses {getattr(atom, 'name', atom)!r}, which is none of the node's inputs")
    return Value(atom.type, atom)


def add_importer(name: str, domain: str, since: int, function: Callable[..., Any]) -> None:
    """Registers a user's importer, before those that are there. Raises CompileError."""
    if not callable(function):
        raise CompileError(f"the importer of {name}: expected a function, got {function!r}")
    own = inspect.signature(function)
    builder = next(each for each in ("g", "_g", "__g") if each not in own.parameters)  # they may be called like ours
    first = inspect.Parameter(builder, inspect.Parameter.POSITIONAL_ONLY)
    signature = own.replace(parameters=[first, *_positional(own)])
    versions = importers_of(domain, name)
    versions[:] = [each for each in versions if each.since != since or not each.by_user]
    versions.insert(0, Importer(name, since, _Own(function), signature, by_user=True))
    versions.sort(key=lambda version: -version.since)


def _positional(signature: inspect.Signature) -> list[inspect.Parameter]:
    """The parameters, the inputs among them by position alone: one of them may be called like the builder's own."""
    kinds = inspect.Parameter
    return [
        each.replace(kind=kinds.POSITIONAL_ONLY) if each.kind is kinds.POSITIONAL_OR_KEYWORD else each
        for each in signature.parameters.values()
    ]
