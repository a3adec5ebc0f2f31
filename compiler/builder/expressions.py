"""Expressions: what programs are made of. Variables, constants, operators, tuples, and values of data types.

An expression knows its type where that needs no inference, so most mistakes are reported on the line that makes them. A Python
number takes the element type of the tensor that it is combined with, else float32, int64 or bool; where that tensor's type is not
known yet, inference gives it one.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union, cast

import numpy as np

from ...formats import dims
from ...formats.dims import Dim, SymbolicDim
from ...formats.dtypes import DType
from ...formats.messages.calling import public
from ...formats.messages.errors import InferenceError, SubscriptError, UnknownNameError
from ...formats.messages.names import near
from ...formats.primitive import Attributes
from ...formats.types import (
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
from .. import ir
from ..ir.numbers import DEFAULT, default_dtype, dtype_of_numbers, number_as
from ..ir.unify import bind_dims, dim_variables, leaves, substituted
from ..operators import TABLE, Operator
from . import checks as check
from . import draws
from .anf import Node, postorder
from .array_methods import ArrayMethods, bitwise
from .indexing import indexed
from .operator_functions import Operators
from .user_lines import line_of_user

if TYPE_CHECKING:
    from .operator_types import ModelOperators

Operand = Union["Expression", np.ndarray, np.generic, float, int, bool, SymbolicDim]
_TYPES = (TensorType, TupleType, FunctionType, DataType, TypeVariable)


def _method(name: str) -> Callable[..., Expression]:
    return lambda *args: _apply(TABLE[name], args, {})


def _swapped(name: str) -> Callable[..., Expression]:
    return lambda *args: _apply(TABLE[name], args[::-1], {})


def _bitwise(name: str, swap: bool = False) -> Callable[..., Expression]:
    return lambda *args: bitwise(_named_operator, name, *(args[::-1] if swap else args))


def _named_operator(name: str, *args: Operand, **attributes: Any) -> Expression:
    return _apply(TABLE[name], args, attributes)


class Expression(ArrayMethods, Node):
    """A value in a program. Tensors have Python's operators and an array's methods (`array_methods.py`), tuples `[i]` and
    unpacking, functions calls.

    Comparisons are operators too: `a == b` is the tensor of truth values that the program will compute. Expressions are hashed
    by identity, so that they can be keys; `a in [b, c]` and `if a == b` raise, since nothing is known yet.
    """

    __hash__ = object.__hash__

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        if self.make is not None and not self.origin:
            self.origin = line_of_user()

    __add__, __radd__ = _method("add"), _swapped("add")
    __sub__, __rsub__ = _method("subtract"), _swapped("subtract")
    __mul__, __rmul__ = _method("multiply"), _swapped("multiply")
    __truediv__, __rtruediv__ = _method("divide"), _swapped("divide")
    __floordiv__, __rfloordiv__ = _method("floor_divide"), _swapped("floor_divide")
    __mod__, __rmod__ = _method("remainder"), _swapped("remainder")
    __pow__, __rpow__ = _method("pow"), _swapped("pow")
    __matmul__, __rmatmul__ = _method("matmul"), _swapped("matmul")
    __and__, __rand__ = _bitwise("bitwise_and"), _bitwise("bitwise_and", swap=True)
    __or__, __ror__ = _bitwise("bitwise_or"), _bitwise("bitwise_or", swap=True)
    __xor__, __rxor__ = _bitwise("bitwise_xor"), _bitwise("bitwise_xor", swap=True)
    __lshift__, __rlshift__ = _method("shift_left"), _swapped("shift_left")
    __rshift__, __rrshift__ = _method("shift_right"), _swapped("shift_right")
    __lt__, __le__ = _method("less"), _method("less_equal")
    __gt__, __ge__ = _method("greater"), _method("greater_equal")
    __eq__, __ne__ = _method("equal"), _method("not_equal")  # type: ignore[assignment]
    __neg__, __abs__, __invert__ = _method("negative"), _method("abs"), _bitwise("invert")

    _operator = staticmethod(_named_operator)

    def _of_shape(self, shape: tuple[Dim, ...]) -> Expression:
        return match_shape(self, shape)

    def __repr__(self) -> str:
        """In one line: its name and type, not what it is made of."""
        name = self.atom.name if isinstance(self.atom, (ir.Var, ir.GlobalRef)) else self.name
        return f"<{type(self).__name__} {name}: {self.type or 'type not known yet'}>"

    def __treadle_value__(self) -> Any:
        """A value of a data type that was made of constants alone, as a call takes it: `vm["main"](L.Cons(array, L.Nil()))`.
        Raises InferenceError for another expression."""
        from ...vm.values import DataValue

        made: dict[Node, Any] = {}
        for node in postorder(self):
            fields = tuple(made[operand] for operand in node.operands)
            built = node.make(tuple(ir.Var("") for _ in fields), ()) if node.make and not node.bodies else None
            if isinstance(node.atom, ir.Constant):
                made[node] = node.atom.array
            elif isinstance(built, ir.Construct):
                made[node] = DataValue(built.constructor, fields)
            elif isinstance(built, ir.MakeTuple):
                made[node] = fields
            elif node.make is None and node.operands:
                (made[node],) = fields
            else:
                raise InferenceError(
                    "an expression is not an argument of a call unless it is made of constants and constructors alone; "
                    f"{node.name!r} is computed by a program, which is compiled first"
                )
        return made[self]

    def __bool__(self) -> bool:
        raise InferenceError("an expression has no truth value while the program is built; use if_ or while_loop")

    @public
    def __call__(self, *args: Operand) -> Expression:
        params = self.type.params if isinstance(self.type, FunctionType) else ()
        if isinstance(self.type, FunctionType) and len(args) != len(params):
            raise InferenceError(f"{self.name}: expected {len(params)} arguments, got {len(args)}: {self.type}")
        if isinstance(self.type, (TensorType, TupleType, DataType)):
            raise InferenceError(f"{self.name} is {self.type}, not a function, and cannot be called")
        operands = (self, *arguments_of(args, params))
        result = result_of_call(self, [operand.type for operand in operands[1:]])
        return Expression(lambda atoms, _: ir.Call(atoms[0], atoms[1:]), operands, type=result, name="result")

    def __getitem__(self, index: Any) -> Expression:
        fields = fields_of(self)
        if fields is not None:
            if not isinstance(index, int) or isinstance(index, bool):
                raise InferenceError(f"a tuple is indexed by one integer, not by {check.told(index)}")
            if not -len(fields) <= index < len(fields):
                raise SubscriptError(f"{self.name}[{index}]: the tuple has {len(fields)} fields")
            return field(self, index % len(fields))
        if isinstance(self.type, (FunctionType, DataType)):
            raise InferenceError(
                f"{self.name} is {self.type}, and cannot be indexed; a data type's fields come out by match_"
            )
        return indexed(self, [_index_part(part) for part in (index if isinstance(index, tuple) else (index,))])

    def __setitem__(self, index: Any, value: Any) -> None:
        raise InferenceError(
            "an expression is a value, and nothing is assigned to its parts; op.where(condition, new, x), op.concat, "
            "op.put_along_axis and op.scatter_nd make another one"
        )

    def __delitem__(self, index: Any) -> None:
        self[index] = None

    def __contains__(self, value: object) -> bool:
        raise InferenceError(
            "what an expression contains is not known while the program is built; op.any(x == value) asks it in the program"
        )

    def __iter__(self) -> Iterator[Expression]:
        fields = fields_of(self)
        if fields is None:
            advice = {
                TensorType: "; x[i] is a part of a tensor, and for_loop goes along an axis",
                DataType: "; a data type's fields come out by match_",
            }
            raise InferenceError(
                f"only a tuple can be unpacked; this expression's type is {self.type or 'not known yet'}"
                f"{advice.get(type(self.type), '')}"
            )
        return (field(self, index) for index in range(len(fields)))


class FunctionExpression(Expression):
    """A function: named by a module, or a closure where it is used in another function."""

    params: tuple[ir.Var, ...] = ()
    result_type: Type | None = None


def fields_of(value: Node) -> Sequence[Type | None] | None:
    """The types of a tuple's fields, as far as they are known; None for what is not a tuple, or not known to be one."""
    return value.type.fields if isinstance(value.type, TupleType) else value.fields


def result_of_call(callee: Node, arguments: Sequence[Type | None]) -> Type | None:
    """The type of a call's result. Sizes that the callee's parameters name are those of the arguments; a function of the module
    has names of its own, a closure may use those around it."""
    if not isinstance(callee.type, FunctionType):
        return None
    params, result = callee.type.params, callee.type.result
    if len(params) != len(arguments) or any(type(leaf) is TypeVariable for leaf in leaves(result)):
        return None
    own = set(dim_variables(params))
    if own.isdisjoint(dim_variables([result])):
        return result
    if None in arguments:
        return substituted(result, {})
    sizes = bind_dims(params, arguments)  # type: ignore[arg-type]
    if isinstance(callee.atom, ir.GlobalRef):
        return substituted(result, sizes)
    same = {name: size for name, size in sizes.items() if str(size) == name}
    around = {name: dims.variable(name) for name in dim_variables([result]) if name not in own}
    return substituted(result, around | same)


def _index_part(part: Any) -> Any:
    if part is None or part is ... or (isinstance(part, int) and not isinstance(part, bool)):
        return part
    if isinstance(part, slice):
        return slice(*(None if each is None else _slice_bound(each) for each in (part.start, part.stop, part.step)))
    if isinstance(part, np.integer):
        return int(part)
    if isinstance(part, (Expression, np.ndarray, list, SymbolicDim)):
        made = constant(part) if isinstance(part, (np.ndarray, list)) else expression(part)
        if made.dtype is None or made.dtype.is_integer:
            return made
    raise InferenceError(
        f"a tensor is indexed by integers, slices, ..., None and tensors of integers, not by {check.told(part)}; see op.where"
    )


def _slice_bound(value: Any) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise InferenceError(f"a slice of a tensor has integers as bounds, known now, not {value!r}; see op.take")


# ---- atoms ----


@public
def var(
    name: str, shape: Sequence[int | str | Dim] | Type | DataTypeBuilder | str | None = (), dtype: object = "float32"
) -> Expression:
    """A variable: a tensor of this shape (strings are symbolic dimensions), or of any type given in place of the shape: a type,
    its text, such as "fn(float32[n]) -> float32[n]", or a data type without parameters."""
    check.text("var: name", name)
    is_type = shape is None or isinstance(shape, (*_TYPES, DataTypeBuilder)) or check.is_text_of_type(shape)
    where = f"var({name!r}): shape"
    type_: Any = None
    if shape is not None:
        type_ = type_of(where, shape) if is_type else tensor(dtype, check.shape(where, shape))
    return Expression(atom=ir.Var(name, type_), type=type_)


def type_of(where: str, given: Any) -> Type:
    """A type where one is expected: its text is read, and a data type without parameters stands for itself. Raises
    InferenceError, ParseError."""
    if isinstance(given, DataTypeBuilder):
        return given()
    if isinstance(given, str):
        from ..ir.text import parse_type

        given = parse_type(given)
        check.no_element_type(where, given)
    if not isinstance(given, _TYPES):
        raise check.refuse(where, 'a type, or its text, such as "float32[n]"', given)
    return given


@public
def constant(value: object, dtype: Any = None) -> Expression:
    """A tensor known now."""
    if isinstance(value, SymbolicDim):
        raise InferenceError(f"constant: {value} is a size known only at run time; as an operand it is an int64 scalar")
    return _constant("constant", value, dtype)


def _constant(where: str, value: object, dtype: Any = None) -> Expression:
    array = check.array(where, value, dtype, _DEFAULT_NUMPY.get(type(value)))
    array.flags.writeable = False
    atom = ir.Constant(array)
    return Expression(atom=atom, type=atom.type)


_DEFAULT_NUMPY = {kind: dtype.numpy for kind, dtype in DEFAULT.items()}


@public
def global_function(name: str, type: FunctionType | None = None) -> Expression:
    """A function of the module by its name, which may be defined later. Its type is needed only to be known here."""
    if type is not None and not isinstance(type, FunctionType):
        raise check.refuse(f"global_function({name!r}): type", "the type of a function", type)
    return Expression(atom=ir.GlobalRef(check.text("global_function: name", name)), type=type)


@public
def import_(name: str, type: FunctionType | str) -> Callable[..., Expression]:
    """A Python function that the program's user passes under this name:

        norm = import_("norm", "fn(float32[n]) -> float32[]")
        module = Module(main=function([x], x / norm(x)))

    Calls are made as often as the program says, in its order: that of the expressions that the result is made of. One that
    nothing is made of is not in the program.
    """
    check.text("import_: name", name)
    if isinstance(type, str):
        type = type_of(f"import {name!r}", type)  # type: ignore[assignment]
    if not isinstance(type, FunctionType):
        raise InferenceError(f"import {name!r}: expected the type of a function, got {type}")
    callee = Expression(atom=ir.GlobalRef(""), type=type)

    def call(*args: Operand) -> Expression:
        if len(args) != len(type.params):
            raise InferenceError(f"import {name!r}: expected {len(type.params)} arguments, got {len(args)}: {type}")
        operands = arguments_of(args, type.params)
        result = result_of_call(callee, [operand.type for operand in operands])
        imported = name, type
        return Expression(
            lambda atoms, _: ir.ImportCall(name, atoms), operands, type=result, name="result", imported=imported
        )

    call.__name__ = call.__qualname__ = name
    return call


def expression(value: Operand, where: str = "a value") -> Expression:
    """The value as an expression: arrays and numbers are constants, sizes int64. `where` says in messages what it is for."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, SymbolicDim):
        return _size(value)
    if isinstance(value, ConstructorFunction):
        name = value.constructor.name
        raise InferenceError(f"{where}: got the constructor {name}; {name}(…) makes a value")
    return _constant(where, value)


def _size(dim: SymbolicDim, dtype: DType | None = None) -> Expression:
    """A size known only at run time, as a scalar: int64, or of the element type that a number would have in its place."""
    size = op.reshape(op.shape_tensor(dims=(dim,)), shape=())
    return size if dtype is None or dtype is DType.int64 else op.cast(size, dtype=dtype)


def arguments_of(values: Sequence[Operand], types: Sequence[Type]) -> tuple[Expression, ...]:
    """The arguments of a function or constructor. A Python number takes the element type of the scalar that is asked for."""
    made = []
    for value, type_ in itertools.zip_longest(values, types[: len(values)]):
        if isinstance(value, (bool, int, float)) and isinstance(type_, TensorType) and type_.rank == 0:
            atom = number_as(value, type_.dtype)
            made.append(Expression(atom=atom, type=atom.type))
        else:
            made.append(expression(value, f"argument {len(made)}"))
    return tuple(made)


@public
def named(name: str, value: Expression) -> Expression:
    """The expression with `name` as its origin, in place of the file and line that made it: errors, profiles and dumps show it.
    A result, or a field of a tuple that is the result, gets exactly this name; a name given a second time is numbered."""
    if not isinstance(value, Expression):
        raise check.refuse("named: value", "an expression", value)
    check.text("named: name", name)
    if value.atom is None:
        value.origin = value.name = name
    if isinstance(value, FunctionExpression):
        return value
    shared = {each: getattr(value, each) for each in ("atom", "type", "fields", "origin", "name")}
    return Expression(operands=() if value.atom else (value,), **shared, given_name=name)


# ---- operators ----


def _apply(operator: Operator, args: Sequence[Operand], attributes: Mapping[str, Any]) -> Expression:
    operator.check_arity(len(args))
    canonical = operator.canonical(attributes)
    operands = _operands(operator, args, canonical)
    for operand in operands:
        if isinstance(operand.type, (FunctionType, TupleType, DataType)) or isinstance(operand, FunctionExpression):
            raise InferenceError(
                f"{operator.name}: expected tensors, {check.subject(operand)} is {operand.type or 'a function'}"
            )
    result: Type | None = None
    if all(isinstance(operand.type, TensorType) for operand in operands):
        types = _result_types(operator, operands, canonical)
        result = types[0] if len(types) == 1 else TupleType(types)
    return Expression(
        lambda atoms, _: ir.OperatorCall(operator.name, atoms, canonical), operands, type=result, name=operator.name
    )


def _result_types(operator: Operator, operands: Sequence[Expression], attributes: Attributes) -> tuple[Type, ...]:
    """Raises InferenceError, which begins with the operator's name."""
    try:
        return operator.result_types([operand.type for operand in operands], attributes)  # type: ignore[misc]
    except InferenceError as error:
        if type(error) is not InferenceError:
            raise
        begin = "" if error.message.startswith(f"{operator.name}:") else f"{operator.name}: "
        raise InferenceError(f"{begin}{error.message}{_how_to_convert(operands)}") from None


def _how_to_convert(operands: Sequence[Expression]) -> str:
    """The end of the message where operands are numbers of several element types: nothing is converted in silence."""
    dtypes = dict.fromkeys(operand.dtype for operand in operands if operand.dtype and not operand.dtype.is_string)
    if len(dtypes) < 2 or DType.bool in dtypes:
        return ""
    wanted = next((dtype for dtype in dtypes if dtype.is_float), next(iter(dtypes)))
    return f"; nothing is converted in silence: .astype({wanted.name!r}) makes one of the other"


def _operands(operator: Operator, args: Sequence[Operand], attributes: Attributes) -> tuple[Expression, ...]:
    """The operands as expressions; numbers, lists of numbers and symbolic sizes take the element type that `dtype_of_numbers`
    says."""
    where = [f"{operator.name}: {operator.input_name(number)}" for number in range(len(args))]
    numbers = list(map(_number_like, args))
    if not any(number is not None for number in numbers):
        return tuple(map(expression, args, where))
    others = [
        expression(arg, place) if number is None else None
        for arg, number, place in zip(args, numbers, where, strict=True)
    ]
    if any(other is not None and not isinstance(other.type, TensorType) for other in others):
        atoms = [None if number is None else _weak(number) for number in numbers]
    else:
        types: list[Any] = [None if other is None else other.type for other in others]
        dtype = dtype_of_numbers(operator, types, numbers, attributes)
        atoms = [None if n is None else number_as(n, dtype or default_dtype(n)) for n in numbers]
    triples = zip(others, atoms, args, strict=True)
    return tuple(other if atom is None else _of_number(arg, atom) for other, atom, arg in triples)  # type: ignore[misc]


def _number_like(value: Any) -> bool | int | float | None:
    """A number of the kind of an operand that takes its element type from the others; None for another operand."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, SymbolicDim):
        return 1
    numbers = list(check.numbers_of(value)) if isinstance(value, (list, tuple)) else []
    if not numbers or None in numbers or all(isinstance(number, bool) for number in numbers):
        return None
    kind = float if any(isinstance(number, float) for number in numbers) else int
    return max((kind(number) for number in numbers if number is not None), key=abs)


def _of_number(value: Any, atom: ir.Constant) -> Expression:
    """The operand that `_number_like` saw a number in, of the element type of the constant that was made of that number."""
    if isinstance(value, SymbolicDim):
        return _size(value, atom.type.dtype)
    if isinstance(value, (list, tuple)):
        return _constant("a list of numbers", value, atom.type.dtype)
    return Expression(atom=atom, type=atom.type)


def _weak(number: bool | int | float) -> ir.Constant:
    return ir.Constant(number_as(number, default_dtype(number)).value, weak=True)


class _Maker:
    """The builder of operators for `draws.py`."""

    op = staticmethod(_named_operator)
    new_place = itertools.count().__next__  # `Module` gives each draw another one

    @staticmethod
    def constant(value: Any, dtype: DType) -> Expression:
        return _constant("constant", value, dtype)


def _composed(function: Callable[..., Any]) -> Callable[..., Expression]:
    """A function of what makes operators, without that."""
    parameters = list(inspect.signature(function).parameters.values())[1:]

    def call(*args: Any, **attributes: Any) -> Expression:
        return function(_Maker, *args, **attributes)

    call.__name__, call.__qualname__, call.__doc__ = function.__name__, f"op.{function.__name__}", function.__doc__
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return public(call)


_DRAWS = {name: _composed(each) for name, each in draws.FUNCTIONS.items()}
op: ModelOperators = cast(  # declared, so that editors that follow no cast know it
    "ModelOperators", Operators(_apply, _DRAWS)
)

# ---- tuples, functions ----


@public
def tuple_(*values: Operand) -> Expression:
    """A tuple of values."""
    operands = tuple(expression(value, f"tuple_: value {number}") for number, value in enumerate(values))
    types = tuple(operand.type for operand in operands)
    type_ = TupleType(types) if None not in types else None  # type: ignore[arg-type]
    return Expression(lambda atoms, _: ir.MakeTuple(atoms), operands, type=type_, name="tuple", fields=types)


def field(value: Expression, index: int) -> Expression:
    """A field of a tuple: `value[index]`, also where the type is not known yet."""
    fields = fields_of(value)
    type_ = fields[index] if fields is not None and index < len(fields) else None
    return Expression(lambda atoms, _: ir.GetItem(atoms[0], index), (value,), type=type_, name="item")


@public
def match_shape(value: Expression, shape: Sequence[int | str | Dim]) -> Expression:
    """The tensor, whose shape is checked when the program runs; variables that are not bound yet are bound by it."""
    if not isinstance(value, Expression):
        raise check.refuse("match_shape: value", "an expression", value)
    if value.type is not None and not isinstance(value.type, TensorType):
        raise InferenceError(f"match_shape: value: expected a tensor, {value.name!r} is {value.type}")
    dimensions = check.shape("match_shape: shape", shape)
    type_ = TensorType(value.dtype, dimensions) if value.dtype else None
    return Expression(lambda atoms, _: ir.MatchShape(atoms[0], dimensions), (value,), type=type_, name="matched")


# ---- data types ----


class ConstructorFunction:
    """A constructor: call it to make a value; in `match_` it is the pattern that binds all fields."""

    def __init__(self, definition: DataTypeDefinition, constructor: Constructor) -> None:
        self.definition, self.constructor = definition, constructor

    def __repr__(self) -> str:
        fields = ", ".join(map(str, self.constructor.fields))
        return f"<constructor {self.definition.name}.{self.constructor.name}({fields})>"

    def __call__(self, *args: Operand) -> Expression:
        name, case = self.definition.name, self.constructor.name
        if len(args) != len(self.constructor.fields):
            fields = ", ".join(map(str, self.constructor.fields)) or "nothing"
            raise InferenceError(f"{case} of {name} takes {fields}, got {len(args)} values")
        type_ = None if self.definition.parameters else DataType(name)
        return Expression(
            lambda atoms, _: ir.Construct(name, case, atoms),
            arguments_of(args, self.constructor.fields),
            type=type_,
            name=case.lower(),
            data_type=self.definition,
        )


class DataTypeBuilder:
    """A data type: `List(type)` is its type for an argument, `List.Cons` a constructor."""

    def __init__(self, definition: DataTypeDefinition) -> None:
        self.definition = definition
        self._constructors = {case.name: ConstructorFunction(definition, case) for case in definition.constructors}

    def __call__(self, *arguments: Type | str | DataTypeBuilder) -> DataType:
        name, parameters = self.definition.name, self.definition.parameters
        if len(arguments) != len(parameters):
            raise InferenceError(f"{name} takes {len(parameters)} types, got {len(arguments)}")
        return DataType(name, tuple(type_of(f"{name}(…)", argument) for argument in arguments), self.definition)

    def __repr__(self) -> str:
        return f"<{self.definition}>"

    def __dir__(self) -> list[str]:
        return sorted(self._constructors)

    def __getattr__(self, name: str) -> ConstructorFunction:
        try:
            return self.__dict__["_constructors"][name]
        except KeyError:
            known = self.__dict__.get("_constructors", ())
            raise UnknownNameError(
                f"{self.__dict__.get('definition')} has no constructor {name!r}{near(name, known)}"
            ) from None


@public
def data_type(text: str) -> DataTypeBuilder:
    """A data type from its text: `data_type("List[a] = Nil | Cons(a, List[a])")`. Raises ParseError, InferenceError."""
    from ..ir.text import parse_data_type

    check.text("data_type: text", text, "text such as 'List[a] = Nil | Cons(a, List[a])'")
    definition = parse_data_type(text)
    if not definition.constructors:
        raise InferenceError(
            f"data_type: {text!r} has no constructors; expected text such as 'List[a] = Nil | Cons(a, List[a])'"
        )
    check.constructors(definition)
    return DataTypeBuilder(definition)
