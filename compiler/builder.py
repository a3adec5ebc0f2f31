"""The Python front door: programs as expressions over variables.

    x = var("x", (10, 10))
    module = Module(main=function([x], x + x))

Expressions nest and may be shared; `function` gives them a name for their inputs, `Module` brings them into A-normal form
(`anf.py`). An expression knows its type where that needs no inference, so most mistakes are reported on the line that makes
them. A Python number takes the element type of the tensor that it is combined with, else float32, int64 or bool.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union

import numpy as np

from ..formats.dims import Dim
from ..formats.dtypes import DType
from ..formats.errors import InferenceError
from ..formats.limits import DIMENSION
from ..formats.types import (
    UNKNOWN,
    Constructor,
    DataType,
    DataTypeDefinition,
    FunctionType,
    TensorType,
    TupleType,
    Type,
    TypeVariable,
    tensor,
)
from . import ir
from .anf import Node, normalize, postorder
from .operators import TABLE, Operator
from .retype import freshen
from .unify import map_types

Operand = Union["Expression", np.ndarray, np.generic, float, int, bool]
_TYPES = (TensorType, TupleType, FunctionType, DataType, TypeVariable)


def _method(name: str) -> Callable[..., Expression]:
    return lambda *args: _apply(TABLE[name], args, {})


def _swapped(name: str) -> Callable[..., Expression]:
    return lambda *args: _apply(TABLE[name], args[::-1], {})


class Expression(Node):
    """A value in a program. Tensors have Python's operators, tuples `[i]` and unpacking, functions calls."""

    __hash__ = object.__hash__
    __array_ufunc__ = None  # so that `array + expression` comes here

    __add__, __radd__ = _method("add"), _swapped("add")
    __sub__, __rsub__ = _method("subtract"), _swapped("subtract")
    __mul__, __rmul__ = _method("multiply"), _swapped("multiply")
    __truediv__, __rtruediv__ = _method("divide"), _swapped("divide")
    __floordiv__, __rfloordiv__ = _method("floor_divide"), _swapped("floor_divide")
    __mod__, __rmod__ = _method("remainder"), _swapped("remainder")
    __pow__, __rpow__ = _method("pow"), _swapped("pow")
    __matmul__, __rmatmul__ = _method("matmul"), _swapped("matmul")
    __and__, __rand__ = _method("logical_and"), _swapped("logical_and")
    __or__, __ror__ = _method("logical_or"), _swapped("logical_or")
    __xor__, __rxor__ = _method("logical_xor"), _swapped("logical_xor")
    __lt__, __le__ = _method("less"), _method("less_equal")
    __gt__, __ge__ = _method("greater"), _method("greater_equal")
    __eq__, __ne__ = _method("equal"), _method("not_equal")  # type: ignore[assignment]
    __neg__, __abs__, __invert__ = _method("negative"), _method("abs"), _method("logical_not")

    @property
    def dtype(self) -> DType | None:
        """The element type, where it is known."""
        return self.type.dtype if isinstance(self.type, TensorType) else None

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth value while the program is built; use if_ or while_loop")

    def __call__(self, *args: Operand) -> Expression:
        operands = (self, *map(expression, args))
        result = self.type.result if isinstance(self.type, FunctionType) else None
        return Expression(lambda atoms, _: ir.Call(atoms[0], atoms[1:]), operands, type=result, name="result")

    def __getitem__(self, index: Any) -> Expression:
        if isinstance(self.type, TupleType):
            return field(self, range(len(self.type.fields))[index])
        return _subscript(self, index if isinstance(index, tuple) else (index,))

    def __iter__(self) -> Iterator[Expression]:
        if not isinstance(self.type, TupleType):
            raise TypeError(f"only a tuple can be unpacked; this expression's type is {self.type or 'not known yet'}")
        return (field(self, index) for index in range(len(self.type.fields)))


def _subscript(value: Expression, index: tuple) -> Expression:
    """NumPy's basic indexing by integers and slices of static bounds."""
    if not all(isinstance(part, (int, slice)) for part in index):
        raise TypeError(f"a tensor is indexed by integers and slices, not by {index!r}; see op.take")
    taken = [axis for axis, part in enumerate(index) if isinstance(part, int) and not _is_sized(value, axis)]
    if taken:  # checked when the program runs: a slice would be empty where there is no such element
        rest = [slice(None) if axis in taken else part for axis, part in enumerate(index)]
        for axis in reversed(taken):
            value = op.take(value, constant(index[axis]), axis=axis)
            del rest[axis]
        return _subscript(value, tuple(rest)) if rest else value
    parts = [slice(part, part + 1 if part != -1 else None) if isinstance(part, int) else part for part in index]
    backward = [(part.step or 1) < 0 for part in parts]
    first, last = [DIMENSION if back else 0 for back in backward], [-DIMENSION if b else DIMENSION for b in backward]
    result = op.slice(
        value,
        starts=[default if part.start is None else part.start for part, default in zip(parts, first, strict=True)],
        ends=[default if part.stop is None else part.stop for part, default in zip(parts, last, strict=True)],
        steps=[part.step or 1 for part in parts],
    )
    squeezed = [axis for axis, part in enumerate(index) if isinstance(part, int)]
    return op.squeeze(result, axes=squeezed) if squeezed else result


def _is_sized(value: Expression, axis: int) -> bool:
    """Whether the length of an axis is known now, so that an integer index can be checked now."""
    return isinstance(value.type, TensorType) and axis < value.type.rank and isinstance(value.type.shape[axis], int)


# ---- atoms ----


def var(name: str, shape: Sequence[int | str | Dim] | Type | None = (), dtype: object = "float32") -> Expression:
    """A variable: a tensor of this shape (strings are symbolic dimensions), or of any type given in place of the shape."""
    type_ = shape if shape is None or isinstance(shape, _TYPES) else tensor(dtype, tuple(shape))
    return Expression(atom=ir.Var(name, type_), type=type_)


def constant(value: object, dtype: Any = None) -> Expression:
    """A tensor known now."""
    array = np.array(value, DType.of(dtype).numpy if dtype else _DEFAULT_DTYPES.get(type(value)), order="C")
    array = array.astype(DType.of(array.dtype).numpy)
    array.flags.writeable = False
    atom = ir.Constant(array)
    return Expression(atom=atom, type=atom.type)


_DEFAULT_DTYPES: dict[type, type] = {float: np.float32, int: np.int64, bool: np.bool_}


def global_function(name: str, type: FunctionType | None = None) -> Expression:
    """A function of the module by its name, which may be defined later. Its type is needed only to be known here."""
    return Expression(atom=ir.GlobalRef(name), type=type)


def expression(value: Operand, dtype: DType | None = None) -> Expression:
    """The value as an expression: arrays and numbers are constants. `dtype` is for Python numbers."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, (bool, int, float)):
        if dtype is not None and isinstance(value, float) and not dtype.is_float:
            raise InferenceError(f"expected a number that {dtype.name} can hold, but {value} came")
        return constant(value, dtype)
    return constant(value)


def named(name: str, value: Expression) -> Expression:
    """The expression, which came from the model node `name`: errors, profiles and dumps will say so."""
    value.origin = value.name = name
    return value


# ---- operators ----


def _apply(operator: Operator, args: Sequence[Operand], attributes: Mapping[str, Any]) -> Expression:
    tensors = [arg.dtype if isinstance(arg, Expression) else getattr(arg, "dtype", None) for arg in args]
    dtype = next((DType.of(found) for found in tensors if found is not None), None)
    operands = tuple(expression(arg, dtype) for arg in args)
    canonical = operator.canonical(attributes)
    result: Type | None = None
    if all(isinstance(operand.type, TensorType) for operand in operands):
        types = operator.result_types([operand.type for operand in operands], canonical)  # type: ignore[misc]
        result = types[0] if len(types) == 1 else TupleType(types)
    return Expression(
        lambda atoms, _: ir.OperatorCall(operator.name, atoms, canonical), operands, type=result, name=operator.name
    )


class Operators:
    """A function for each operator of the table: `op.conv(x, weight, strides=(2, 2))`."""

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        if name not in TABLE:
            raise AttributeError(f"there is no operator {name!r}; dir(op) lists them")
        return _operator_function(TABLE[name])

    def __dir__(self) -> list[str]:
        return sorted(TABLE)


def _operator_function(operator: Operator) -> Callable[..., Expression]:
    def apply(*args: Operand, **attributes: Any) -> Expression:
        return _apply(operator, args, attributes)

    lines = [f"{operator.name}({', '.join(operator.inputs)}): {operator.doc}.", ""]
    lines += [f"{name}: {attribute.doc}" for name, attribute in operator.attributes.items()]
    apply.__name__, apply.__doc__ = operator.name, "\n".join(lines).rstrip()
    return apply


op = Operators()

# ---- tuples, functions ----


def tuple_(*values: Operand) -> Expression:
    """A tuple of values."""
    operands = tuple(map(expression, values))
    types = tuple(operand.type for operand in operands)
    type_ = TupleType(types) if None not in types else None  # type: ignore[arg-type]
    return Expression(lambda atoms, _: ir.MakeTuple(atoms), operands, type=type_, name="tuple")


def field(value: Expression, index: int) -> Expression:
    """A field of a tuple: `value[index]`, also where the type is not known yet."""
    type_ = value.type.fields[index] if isinstance(value.type, TupleType) else None
    return Expression(lambda atoms, _: ir.GetItem(atoms[0], index), (value,), type=type_, name="item")


def _result(value: Any) -> Expression:
    """What a Python function gave, as one expression."""
    return tuple_(*map(_result, value)) if isinstance(value, (tuple, list)) else expression(value)


def _atoms(variables: Sequence[Expression]) -> tuple[ir.Var, ...]:
    return tuple(variable.atom for variable in variables)  # type: ignore[misc]


class FunctionExpression(Expression):
    """A function: named by a module, or a closure where it is used in another function."""

    params: tuple[ir.Var, ...] = ()
    result_type: Type | None = None


def function(
    params: Sequence[Expression], body: Operand | Callable[..., Any], result_type: Type | None = None, name: str = ""
) -> FunctionExpression:
    """A function of variables: the body is an expression over them, or a Python function that makes one of them."""
    inner = _result(body(*params) if inspect.isfunction(body) else body)
    variables = _atoms(params)
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


def if_(condition: Operand, then: Any, otherwise: Any) -> Expression:
    """`then` if the scalar condition is not zero, else `otherwise`; only that one is computed."""
    branches = (_result(then), _result(otherwise))
    type_ = branches[0].type if branches[0].type == branches[1].type else None
    return Expression(
        lambda atoms, blocks: ir.If(atoms[0], *blocks), (expression(condition),), branches, type=type_, name="chosen"
    )


def while_loop(condition: Callable[..., Any], body: Callable[..., Any], initial: Sequence[Operand]) -> Expression:
    """Variables start as `initial`; while `condition(*variables)` is not zero they become `body(*variables)`. Their last values.

    The variables are named like the parameters of `body`.
    """
    operands = tuple(map(expression, initial))
    variables = [_loop_variable(name, start) for name, start in zip(_parameter_names(body), operands, strict=True)]
    bodies = (_result(condition(*variables)), _result(body(*variables)))
    if len(variables) == 1 and not isinstance(bodies[1].type, TupleType):
        bodies = (bodies[0], tuple_(bodies[1]))
    atoms_of_variables = _atoms(variables)
    type_ = TupleType(tuple(v.type for v in variables)) if all(v.type for v in variables) else None  # type: ignore[misc]
    return Expression(
        lambda atoms, blocks: ir.Loop(atoms_of_variables, atoms, *blocks), operands, bodies, type=type_, name="last"
    )


def _parameter_names(body: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(body).parameters)


def _loop_variable(name: str, initial: Expression) -> Expression:
    """Its type may be wider than the initial value's: what is known here is the element type and the rank."""
    return Expression(atom=ir.Var(name), type=initial.type and map_types(initial.type, _shapeless))


def _shapeless(type_: Type) -> Type:
    return TensorType(type_.dtype, (UNKNOWN,) * type_.rank) if isinstance(type_, TensorType) else type_


def for_loop(count: Operand, body: Callable[..., Any], initial: Sequence[Operand]) -> Expression:
    """`count` times, with i = 0, 1, …, the variables become `body(i, *variables)`. The tuple of their last values."""
    limit = expression(count)
    names = _parameter_names(body)
    counter = _loop_variable(names[0], constant(0, limit.dtype or DType.int64))
    operands = (constant(0, limit.dtype or DType.int64), *map(expression, initial))
    variables = [counter, *(_loop_variable(n, start) for n, start in zip(names[1:], operands[1:], strict=True))]
    after = _result(body(*variables))
    following = (
        counter + 1,
        *([after] if len(variables) == 2 else (field(after, i) for i in range(len(variables) - 1))),
    )
    atoms_of_variables = _atoms(variables)
    type_ = TupleType(tuple(v.type for v in variables)) if all(v.type for v in variables) else None  # type: ignore[misc]
    looped = Expression(
        lambda atoms, blocks: ir.Loop(atoms_of_variables, atoms, *blocks),
        operands,
        (counter < limit, tuple_(*following)),
        type=type_,
        name="last",
    )
    return tuple_(*(field(looped, index) for index in range(1, len(variables))))


def match_shape(value: Expression, shape: Sequence[int | str | Dim]) -> Expression:
    """The tensor, whose shape is checked when the program runs; variables that are not bound yet are bound by it."""
    dimensions = tensor("float32", tuple(shape)).shape
    type_ = TensorType(value.dtype, dimensions) if value.dtype else None
    return Expression(lambda atoms, _: ir.MatchShape(atoms[0], dimensions), (value,), type=type_, name="matched")


# ---- data types ----


class ConstructorFunction:
    """A constructor: call it to make a value; in `match_` it is the pattern that binds all fields."""

    def __init__(self, definition: DataTypeDefinition, constructor: Constructor) -> None:
        self.definition, self.constructor = definition, constructor

    def __call__(self, *args: Operand) -> Expression:
        name, case = self.definition.name, self.constructor.name
        type_ = None if self.definition.parameters else DataType(name)
        return Expression(
            lambda atoms, _: ir.Construct(name, case, atoms),
            tuple(map(expression, args)),
            type=type_,
            name=case.lower(),
            data_type=self.definition,
        )


class DataTypeBuilder:
    """A data type: `List(type)` is its type for an argument, `List.Cons` a constructor."""

    def __init__(self, definition: DataTypeDefinition) -> None:
        self.definition = definition
        self._constructors = {case.name: ConstructorFunction(definition, case) for case in definition.constructors}

    def __call__(self, *arguments: Type) -> DataType:
        return DataType(self.definition.name, arguments)

    def __getattr__(self, name: str) -> ConstructorFunction:
        try:
            return self.__dict__["_constructors"][name]
        except KeyError:
            raise AttributeError(f"{self.__dict__.get('definition')} has no constructor {name!r}") from None


def data_type(text: str) -> DataTypeBuilder:
    """A data type from its text: `data_type("List[a] = Nil | Cons(a, List[a])")`. Raises ParseError."""
    from .text import parse_data_type

    return DataTypeBuilder(parse_data_type(text))


Pattern = Union[ConstructorFunction, ir.Pattern]


def match_(value: Expression, clauses: Mapping[Pattern, Any] | Sequence[tuple[Pattern, Any]]) -> Expression:
    """The first clause whose pattern fits. A clause is a value, or a Python function of the variables that its pattern binds.

    A constructor as a pattern binds all its fields, named like the function's parameters.
    """
    pairs = list(clauses.items()) if isinstance(clauses, Mapping) else list(clauses)
    patterns, bodies = [], []
    for pattern, body in pairs:
        names = _parameter_names(body) if inspect.isfunction(body) else []
        if isinstance(pattern, ConstructorFunction):
            case = pattern.constructor
            variables = [
                ir.Var(name) for name, _ in zip(names or ["field"] * len(case.fields), case.fields, strict=True)
            ]
            pattern = ir.ConstructorPattern(case.name, tuple(map(ir.Bind, variables)))
        bound = [Expression(atom=variable, type=variable.type) for variable in ir.pattern_vars(pattern)]
        patterns.append(pattern)
        bodies.append(_result(body(*bound) if inspect.isfunction(body) else body))
    definition = next((p.definition for p, _ in pairs if isinstance(p, ConstructorFunction)), None)
    types = {body.type for body in bodies}
    return Expression(
        lambda atoms, blocks: ir.Match(atoms[0], tuple(zip(patterns, blocks, strict=True))),
        (value,),
        tuple(bodies),
        type=types.pop() if len(types) == 1 else None,
        name="chosen",
        data_type=definition,
    )


# ---- modules ----


def Module(
    functions: Mapping[str, FunctionExpression] | None = None,
    /,
    *,
    data_types: Sequence[DataTypeBuilder] = (),
    **named: FunctionExpression,
) -> ir.Module:
    """A module of functions, by name. Data types that the functions construct or match need not be named."""
    definitions = {builder.definition.name: builder.definition for builder in data_types}
    made = {}
    for name, function_ in {**(functions or {}), **named}.items():
        (body,) = function_.bodies
        made[name] = ir.Function(function_.params, normalize(body), function_.result_type, name)
        used = (node.data_type for node in postorder(body) if node.data_type)
        definitions |= {definition.name: definition for definition in used}
    return freshen(ir.Module(made, definitions))
