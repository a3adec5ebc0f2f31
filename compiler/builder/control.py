"""Functions, branches, loops and matches of programs: what is made of Python functions over expressions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union

from ...formats.messages.calling import public
from ...formats.messages.errors import InferenceError
from ...formats.types import UNKNOWN, FunctionType, TensorType, TupleType, Type, map_types
from .. import ir
from . import checks as check
from .anf import Node
from .expressions import (
    ConstructorFunction,
    DataTypeBuilder,
    Expression,
    FunctionExpression,
    Operand,
    constant,
    expression,
    field,
    fields_of,
    op,
    tuple_,
    type_of,
)


def _common_fields(values: Sequence[Node]) -> tuple[Type | None, ...] | None:
    """The fields of a value that is one of several."""
    several = [fields for fields in map(fields_of, values) if fields is not None]
    if not several or any(len(fields) != len(several[0]) for fields in several):
        return None
    return tuple(types[0] if len(set(types)) == 1 else None for types in zip(*several, strict=True))


def _result(value: Any, where: str) -> Expression:
    """The result of a Python function, as one expression."""
    if isinstance(value, (tuple, list)) and any(
        isinstance(part, (Expression, tuple, list)) or part is None for part in value
    ):
        return tuple_(*(_result(part, f"{where}, value {number}") for number, part in enumerate(value)))
    return tuple_(*value) if isinstance(value, (tuple, list)) else expression(value, where)


def _is_python_function(body: Any) -> bool:
    return callable(body) and not isinstance(body, (Expression, ConstructorFunction))


def _variables(params: Sequence[Expression]) -> tuple[ir.Var, ...]:
    """The variables of a function. Raises InferenceError for anything else, and for one that comes twice."""
    seen: set[ir.Atom | None] = set()
    for number, param in enumerate(params):
        atom = param.atom if isinstance(param, Expression) else None
        if not isinstance(atom, ir.Var):
            raise InferenceError(
                f"function: parameter {number} is {check.told(param)}; expected a variable, made by var()"
            )
        if atom in seen:
            raise InferenceError(
                f"function: the variable {atom.name!r} is parameter {number}, and one before it too; make one for each by var()"
            )
        seen.add(atom)
    return _atoms(params)


def _atoms(variables: Sequence[Expression]) -> tuple[ir.Var, ...]:
    return tuple(variable.atom for variable in variables)  # type: ignore[misc]


@public
def function(
    params: Sequence[Expression],
    body: Operand | Callable[..., Any],
    result_type: Type | str | DataTypeBuilder | None = None,
    name: str = "",
) -> FunctionExpression:
    """A function of variables: the body is an expression over them, or a Python function that makes one of them. A function that
    calls itself says its result's type: `TensorType("int64")`, its text `"int64[]"`, or a data type."""
    params = check.several("function: params", params, "variables, made by var()")
    variables = _variables(params)
    if not isinstance(name, str):
        raise check.refuse("function: name", "a string", name)
    if result_type is not None:
        result_type = type_of("function: result_type", result_type)
    if _is_python_function(body):
        check.arity("function: the body", body, len(params))  # type: ignore[arg-type]
        body = body(*params)  # type: ignore[operator]
    inner = _result(body, "function: the body's result")
    types = tuple(param.type for param in params)
    result = result_type or inner.type
    known = result is not None and None not in types
    made = FunctionExpression(
        lambda _, blocks: ir.Function(variables, blocks[0], result_type, name),
        bodies=(inner,),
        type=FunctionType(types, result) if known else None,  # type: ignore[arg-type]
        name=name or "function",
    )
    made.params, made.result_type = variables, result_type
    return made


# ---- control ----


@public
def if_(condition: Operand, then: Any, otherwise: Any) -> Expression:
    """`then` if the scalar condition is not zero, else `otherwise`; only that one is computed."""
    branches = (_result(then, "if_: then"), _result(otherwise, "if_: otherwise"))
    chooses = expression(condition, "if_: the condition")
    if isinstance(chooses.type, TensorType) and chooses.type.rank:
        raise InferenceError(
            f"if_: the condition: expected a scalar, got {chooses.type}; .any() and .all() make one of it, "
            "and op.where chooses element by element"
        )
    type_ = branches[0].type if branches[0].type == branches[1].type else None
    return Expression(
        lambda atoms, blocks: ir.If(atoms[0], *blocks),
        (chooses,),
        branches,
        type=type_,
        name="chosen",
        fields=_common_fields(branches),
    )


@public
def while_loop(condition: Callable[..., Any], body: Callable[..., Any], initial: Sequence[Operand]) -> Expression:
    """Variables start as `initial`; while `condition(*variables)` is not zero they become `body(*variables)`. Their last values.

    The variables are named like the parameters of `body`.
    """
    operands = tuple(_initial("while_loop", initial))
    _parameter_names(condition, len(operands), "while_loop: the condition")
    names = _parameter_names(body, len(operands), "while_loop: the body")
    variables = [_loop_variable(name, start) for name, start in zip(names, operands, strict=True)]
    following = _next_values("while_loop", body(*variables), len(variables))
    return loop(variables, operands, _result(condition(*variables), "while_loop: the condition's result"), following)


def _initial(loop: str, values: Any) -> Iterator[Expression]:
    """The values that a loop's variables start as."""
    given = check.several(f"{loop}: initial", values, "values, one for each variable")
    return (expression(value, f"{loop}: initial[{number}]") for number, value in enumerate(given))


def loop(
    variables: Sequence[Expression], initial: Sequence[Expression], condition: Expression, following: Expression
) -> Expression:
    """The loop of existing variables: `condition` and `following`, the tuple of their next values, are made of them."""
    atoms_of_variables = _atoms(variables)
    types = tuple(variable.type for variable in variables)
    return Expression(
        lambda atoms, blocks: ir.Loop(atoms_of_variables, atoms, *blocks),
        tuple(initial),
        (condition, following),
        type=TupleType(types) if None not in types else None,  # type: ignore[arg-type]
        name="last",
        fields=types,
    )


def _next_values(loop: str, after: Any, count: int) -> Expression:
    """The result of a loop's body, as a tuple of its variables' next values. A single variable needs no tuple."""
    fields = fields_of(after) if isinstance(after, Expression) else after if isinstance(after, (tuple, list)) else None
    if fields is None and isinstance(after, Expression) and count > 1:
        return after  # a tuple, as inference will see
    if count == 1 and (fields is None or len(fields) != 1):
        return tuple_(_result(after, f"{loop}: the body's result"))
    if fields is None:
        _result(after, f"{loop}: the body's result")  # raises for anything but a value
    got = 1 if fields is None else len(fields)
    if got != count:
        raise InferenceError(f"{loop}: the body gives {got} values for {count} variables")
    return _result(after, f"{loop}: the body's result")


def _parameter_names(body: Callable[..., Any], count: int, what: str) -> list[str]:
    """Names for the `count` arguments that a Python function is called with; *args are numbered."""
    if not _is_python_function(body):
        raise check.refuse(what, "a Python function of the variables", body)
    try:
        parameters = list(inspect.signature(body).parameters.values())
    except ValueError:  # of some built-in functions Python does not know the parameters
        return [f"value_{number}" for number in range(count)]
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{number}" for number in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            needs = parameter.default is parameter.empty
            names += [parameter.name] if needs or len(names) < count else []
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise InferenceError(f"{what} must not need the keyword argument {parameter.name!r}")
    if len(names) != count:
        raise InferenceError(f"{what} takes {len(names)} variables, but there are {count}")
    return names


def _loop_variable(name: str, initial: Expression) -> Expression:
    """Its type may be wider than the initial value's: what is known here is the element type and the rank."""
    return Expression(atom=ir.Var(name), type=initial.type and map_types(initial.type, _shapeless))


def _shapeless(type_: Type) -> Type:
    return TensorType(type_.dtype, (UNKNOWN,) * type_.rank) if isinstance(type_, TensorType) else type_


@public
def for_loop(count: Operand, body: Callable[..., Any], initial: Sequence[Operand]) -> Expression:
    """`count` times, with i = 0, 1, …, the variables become `body(i, *variables)`. The tuple of their last values."""
    limit = expression(count, "for_loop: count")
    if isinstance(limit.type, TensorType) and (limit.type.rank or not limit.type.dtype.is_integer):
        raise InferenceError(f"for_loop: count: expected an integer, got {limit.type}")
    if isinstance(count, int) and count < 0:
        raise InferenceError(f"for_loop: count: expected 0 or more, got {count}")
    start = constant(0, limit.dtype) if limit.type is not None else op.subtract(limit, limit)
    operands = (start, *_initial("for_loop", initial))
    names = _parameter_names(body, len(operands), "for_loop: the body")
    variables = [_loop_variable(name, value) for name, value in zip(names, operands, strict=True)]
    counter = variables[0]
    after = _next_values("for_loop", body(*variables), len(variables) - 1)
    following = (counter + 1, *(field(after, index) for index in range(len(variables) - 1)))
    looped = loop(variables, operands, counter < limit, tuple_(*following))
    return tuple_(*(field(looped, index) for index in range(1, len(variables))))


Pattern = Union[ConstructorFunction, ir.Pattern]


def _clauses(clauses: Any) -> list[tuple[Any, Any]]:
    """The clauses of a match as pairs. Raises InferenceError."""
    expected = "clauses, pairs of a pattern and a value or function"
    pairs = (
        list(clauses.items()) if isinstance(clauses, Mapping) else check.several("match_: clauses", clauses, expected)
    )
    if not pairs:
        raise InferenceError(f"match_: there are no clauses; expected {expected}")
    for number, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise check.refuse(f"match_: clause {number}", "a pair of a pattern and a value or function", pair)
        if not isinstance(pair[0], _PATTERNS):
            expected = "a constructor, as List.Cons, or ... for all that no clause before fits"
            raise check.refuse(f"match_: the pattern of clause {number}", expected, pair[0])
    return [(ir.Wildcard() if pattern is ... else pattern, body) for pattern, body in pairs]


_PATTERNS = (ConstructorFunction, ir.Wildcard, ir.Bind, ir.ConstructorPattern, ir.TuplePattern, type(...))


@public
def match_(value: Expression, clauses: Mapping[Any, Any] | Sequence[tuple[Pattern, Any]]) -> Expression:
    """The first clause whose pattern fits. A clause is a value, or a Python function of the variables that its pattern binds.

    A constructor as a pattern binds all its fields, named like the function's parameters; `...` fits every value. A value that no
    clause fits ends the call in an ExecutionError.
    """
    value = expression(value, "match_: value")
    pairs = _clauses(clauses)
    definition = check.matched("match_", value, [p.definition for p, _ in pairs if isinstance(p, ConstructorFunction)])
    patterns, bodies = [], []
    for pattern, body in pairs:
        is_function = _is_python_function(body)
        if isinstance(pattern, ConstructorFunction):
            case, count = pattern.constructor, len(pattern.constructor.fields)
            what = f"match_: the clause of {case.name}"
            names = _parameter_names(body, count, what) if is_function else ["field"] * count
            pattern = ir.ConstructorPattern(case.name, tuple(ir.Bind(ir.Var(name)) for name in names))
        variables = list(ir.pattern_vars(pattern))
        if len(set(variables)) != len(variables):
            raise InferenceError("match_: a variable stands twice in a pattern; make one for each place")
        bound = [Expression(atom=variable, type=variable.type) for variable in variables]
        patterns.append(pattern)
        if is_function:
            check.arity("match_: a clause", body, len(bound))
        bodies.append(_result(body(*bound) if is_function else body, "match_: a clause's result"))
    types = {body.type for body in bodies}
    return Expression(
        lambda atoms, blocks: ir.Match(atoms[0], tuple(zip(patterns, blocks, strict=True))),
        (value,),
        tuple(bodies),
        type=types.pop() if len(types) == 1 else None,
        name="chosen",
        data_type=definition,
        fields=_common_fields(bodies),
    )
