"""The Python front door: programs as expressions over variables.

    x = var("x", (10, 10))
    module = Module(main=function([x], x + x))

Expressions nest and may be shared; `function` gives them a name for their inputs, `Module` brings them into A-normal form
(`anf.py`). An expression knows its type where that needs no inference, so most mistakes are reported on the line that makes
them. A Python number takes the element type of the tensor that it is combined with, else float32, int64 or bool; where that
tensor's type is not known yet, inference gives it one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...formats.messages.calling import public
from ...formats.messages.errors import InferenceError
from ...formats.types import DataType, DataTypeDefinition, FunctionType, Type, types_in
from .. import ir
from ..ir.retype import freshen
from . import checks as check
from . import draws
from .anf import Node, distinct, normalize, postorder
from .control import for_loop, function, if_, match_, while_loop
from .expressions import (
    ConstructorFunction,
    DataTypeBuilder,
    Expression,
    FunctionExpression,
    Operand,
    constant,
    data_type,
    expression,
    field,
    global_function,
    import_,
    match_shape,
    named,
    op,
    tuple_,
    var,
)

__all__ = [
    "ConstructorFunction",
    "DataTypeBuilder",
    "Expression",
    "FunctionExpression",
    "Module",
    "Operand",
    "constant",
    "data_type",
    "expression",
    "field",
    "for_loop",
    "function",
    "global_function",
    "if_",
    "import_",
    "match_",
    "match_shape",
    "named",
    "op",
    "tuple_",
    "var",
    "while_loop",
]


@public
def Module(
    *parts: Mapping[str, FunctionExpression] | ir.Module | None,
    data_types: Sequence[DataTypeBuilder] = (),
    **named: FunctionExpression,
) -> ir.Module:
    """A module of functions, by name: of those in dicts and in other modules, and of those that are named. Data types that the
    functions construct or match need not be named. All functions of dicts, and those that are named, are entries, but for
    generic ones: compiling keeps them, unless it is told which ones (`entry`).

    Raises InferenceError for a name that comes twice, and for a data type or import that two parts declare differently.
    """
    functions: dict[str, ir.Function] = {}
    builders = check.several("Module: data_types", data_types, "data types, made by data_type()")
    for builder in builders:
        if not isinstance(builder, DataTypeBuilder):
            raise check.refuse("Module: data_types", "data types, made by data_type()", builder)
    definitions = {builder.definition.name: builder.definition for builder in builders}
    imports: dict[str, FunctionType] = {}
    draws_numbers = False
    for part in (*parts, named):
        for name, function_ in _functions_of(part).items():
            if name in functions:
                raise InferenceError(f"Module: there are two functions {name!r}; give one of them another name")
            if isinstance(function_, ir.Function):
                functions[name] = function_
                continue
            (body,) = function_.bodies
            block = normalize(body)
            results = _result_names(body, block)
            functions[name] = ir.Function(function_.params, block, function_.result_type, name, result_names=results)
            for param in function_.params:
                _define_of(param.type, definitions)
            for node in postorder(body):
                if node.imported is not None:
                    _declare("import", imports, *node.imported)
                _define_of(node.type, definitions)
                draws_numbers |= node.name == "call_seed"
                if node.data_type is not None:
                    _declare("data type", definitions, node.data_type.name, node.data_type)
        if isinstance(part, ir.Module):
            for name, definition in part.data_types.items():
                _declare("data type", definitions, name, definition)
            for name, type_ in part.imports.items():
                _declare("import", imports, name, type_)
    given = [part.entries if isinstance(part, ir.Module) else part or () for part in (*parts, named)]
    entries = tuple(name for names in given for name in names if not functions[name].is_generic)
    module = ir.Module(functions, definitions, imports, entries)
    return freshen(draws.numbered(module) if draws_numbers else module)


def _result_names(body: Node, block: ir.Block) -> tuple[str, ...]:
    """The names of a function's results where `named` gave one of them; the others are called what their variables are."""
    parts, atoms = [body], [block.result]
    if block.bindings and block.bindings[-1].var is block.result:
        made = block.bindings[-1].value
        if isinstance(made, ir.MakeTuple):
            while body.make is None:
                body = body.operands[0]
            parts, atoms = list(body.operands), list(made.fields)
    given = [part.given_name for part in parts]
    if not any(given):
        return ()
    first = sorted(range(len(parts)), key=lambda at: not given[at])  # so that it is the others that are numbered
    names = distinct([given[at] or getattr(atoms[at], "name", "") or f"output_{at}" for at in first])
    named = tuple(name for _, name in sorted(zip(first, names, strict=True)))
    return () if named == tuple(getattr(atom, "name", "") for atom in atoms) else named  # which they are called anyway


def _functions_of(part: object) -> Mapping[str, Any]:
    """The functions of a part of a module, by name. Raises InferenceError for anything else."""
    functions = part.functions if isinstance(part, ir.Module) else {} if part is None else part
    if not isinstance(functions, Mapping):
        raise InferenceError(f"Module: expected a dict of functions, or a module, got {check.told(part)}")
    for name, function_ in functions.items():
        if not isinstance(name, str) or not isinstance(function_, (FunctionExpression, ir.Function)):
            raise InferenceError(
                f"Module: {name!r} is {check.told(function_)}; expected a name and a function, made by function()"
            )
    return functions


def _define_of(type_: Type | None, definitions: dict[str, DataTypeDefinition]) -> None:
    """Declares the data types that a type mentions and knows."""
    for each in types_in(type_) if type_ is not None else ():
        if isinstance(each, DataType) and each.definition is not None:
            _declare("data type", definitions, each.name, each.definition)


def _declare(kind: str, known: dict[str, Any], name: str, what: Any) -> None:
    if known.setdefault(name, what) != what:
        raise InferenceError(f"{kind} {name!r} is {known[name]} and {what}; a name has one type")
