"""The vocabulary of generated kernels: vectors of numbers as values in Numba functions.

A kernel's text is compiled with the names that `namespace(lanes)` gives. All vectors of a namespace have the same number
of lanes, whatever their element type, so that a float32 and an int64 vector of one place in a tensor convert into each
other; LLVM splits the wide ones over several registers.

    word(address, i)                  the i-th int64 word, as int64: a dimension, or an address
    load_T(address, offset)           the scalar of type T at address + offset (bytes)
    store_T(address, offset, value)   its counterpart
    vload_T(address, offset[, n])     a vector; with n, lanes from n on are zero and their memory is not touched
    vstore(address, offset, v[, n])   its counterpart
    splat_T(value)                    the scalar in every lane                   iota_T()   0, 1, 2, …
    convert_T(v)                      as NumPy's astype
    + - * / & | ^ ~ < <= == …         lane by lane, a scalar operand is splatted; comparisons give masks (bool vectors)

and the functions of `OPERATIONS` here and in `polynomials.py`: fma, select, minimum, exp … which are written once, as Python
functions over `Lanes`, and work on scalars too. T is a name of `formats/dtypes.py`. Tensors of bool are bytes in memory and
masks in registers; float16 is for loads, stores and conversions alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Union

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.core.extending import register_model
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, builtin_registry, signature

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()


class Half(types.Number):
    """float16 as an element of vectors; Numba has none for the CPU."""

    bitwidth = 16


float16 = Half("half")

# name in formats/dtypes.py → Numba's type, LLVM's type in a register
ELEMENTS: dict[str, tuple[types.Type, ir.Type]] = {
    "bool": (types.boolean, I1),
    **{
        f"{sign}int{bits}": (getattr(types, f"{sign}int{bits}"), ir.IntType(bits))
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "float16": (float16, HALF),
    "float32": (types.float32, FLOAT),
    "float64": (types.float64, DOUBLE),
}
_IR = dict(ELEMENTS.values())
_ITEMSIZE = {numba_type: max(1, (getattr(numba_type, "bitwidth", 8)) // 8) for numba_type in _IR}


class Vector(types.Type):
    """Numba's type of `lanes` elements of `dtype` in a register. Vectors of bool are masks."""

    def __init__(self, dtype: types.Type, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"vector({dtype} x {lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, ir.VectorType(_IR[vector.dtype], vector.lanes))


Number = Union["Lanes", int, float]


class Lanes:
    """A scalar or vector value while LLVM code is emitted: its operators emit instructions into `builder`.

    Python numbers among the operands become constants of the type of the other operand.
    """

    def __init__(self, builder: ir.IRBuilder, value: ir.Value, dtype: types.Type) -> None:
        self.builder, self.value, self.dtype = builder, value, dtype

    @property
    def lanes(self) -> int:
        """The number of lanes; 0 for a scalar."""
        return self.value.type.count if isinstance(self.value.type, ir.VectorType) else 0

    @property
    def is_float(self) -> bool:
        return isinstance(self.dtype, types.Float)

    @property
    def is_signed(self) -> bool:
        return isinstance(self.dtype, types.Integer) and self.dtype.signed

    def type_of(self, dtype: types.Type) -> ir.Type:
        """LLVM's type of as many elements of another type."""
        return ir.VectorType(_IR[dtype], self.lanes) if self.lanes else _IR[dtype]

    def like(self, value: ir.Value) -> Lanes:
        return Lanes(self.builder, value, self.dtype)

    def of(self, number: Number) -> Lanes:
        """`number` in every lane, in this value's type."""
        if isinstance(number, Lanes):
            return number
        number = float(number) if self.is_float else int(number)
        constants = [number] * self.lanes if self.lanes else number
        return self.like(ir.Constant(self.value.type, constants))

    def call(self, name: str, *others: Number) -> Lanes:
        """An LLVM intrinsic that takes and gives values of this one's type."""
        values = [self.value, *(self.of(other).value for other in others)]
        kind = self.value.type
        return self.like(call_intrinsic(self.builder, f"{name}.{mangled(kind)}", kind, values))

    def _arithmetic(self, other: Number, name: str) -> Lanes:
        method = getattr(self.builder, ("f" if self.is_float else "") + name)
        return self.like(method(self.value, self.of(other).value))

    def __add__(self, other: Number) -> Lanes:
        return self._arithmetic(other, "add")

    def __sub__(self, other: Number) -> Lanes:
        return self._arithmetic(other, "sub")

    def __mul__(self, other: Number) -> Lanes:
        return self._arithmetic(other, "mul")

    def __radd__(self, other: Number) -> Lanes:
        return self.of(other) + self

    def __rsub__(self, other: Number) -> Lanes:
        return self.of(other) - self

    def __rmul__(self, other: Number) -> Lanes:
        return self.of(other) * self

    def __truediv__(self, other: Number) -> Lanes:
        return self._arithmetic(other, "div")

    def __rtruediv__(self, other: Number) -> Lanes:
        return self.of(other) / self

    def __neg__(self) -> Lanes:
        return self.like(self.builder.fneg(self.value) if self.is_float else self.builder.neg(self.value))

    def __and__(self, other: Number) -> Lanes:
        return self.like(self.builder.and_(self.value, self.of(other).value))

    def __or__(self, other: Number) -> Lanes:
        return self.like(self.builder.or_(self.value, self.of(other).value))

    def __xor__(self, other: Number) -> Lanes:
        return self.like(self.builder.xor(self.value, self.of(other).value))

    def __invert__(self) -> Lanes:
        return self.like(self.builder.not_(self.value))

    def __lshift__(self, other: Number) -> Lanes:
        return self.like(self.builder.shl(self.value, self.of(other).value))

    def __rshift__(self, other: Number) -> Lanes:
        """Arithmetic for signed integers, logical for unsigned ones."""
        shift = self.builder.ashr if self.is_signed else self.builder.lshr
        return self.like(shift(self.value, self.of(other).value))

    def _compare(self, other: Number, symbol: str) -> Lanes:
        left, right = self.value, self.of(other).value
        if self.is_float:
            # != holds for NaN, every other comparison fails
            compare = self.builder.fcmp_unordered if symbol == "!=" else self.builder.fcmp_ordered
        else:
            compare = self.builder.icmp_signed if self.is_signed else self.builder.icmp_unsigned
        return Lanes(self.builder, compare(symbol, left, right), types.boolean)

    def __lt__(self, other: Number) -> Lanes:
        return self._compare(other, "<")

    def __le__(self, other: Number) -> Lanes:
        return self._compare(other, "<=")

    def __gt__(self, other: Number) -> Lanes:
        return self._compare(other, ">")

    def __ge__(self, other: Number) -> Lanes:
        return self._compare(other, ">=")

    def __eq__(self, other: Number) -> Lanes:  # type: ignore[override]
        return self._compare(other, "==")

    def __ne__(self, other: Number) -> Lanes:  # type: ignore[override]
        return self._compare(other, "!=")

    __hash__ = None  # type: ignore[assignment]


def mangled(kind: ir.Type) -> str:
    """LLVM's name of a type in the names of intrinsics: f32, v16f32."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{mangled(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {HALF: "f16", FLOAT: "f32", DOUBLE: "f64"}[kind]


def call_intrinsic(builder: ir.IRBuilder, name: str, result: ir.Type, values: list[ir.Value]) -> ir.Value:
    """Calls `llvm.NAME`, declared in the builder's module when it is not yet."""
    name = f"llvm.{name}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [value.type for value in values]), name)
    return builder.call(function, values)


# ---- operations ----


def fma(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """a * b + c, rounded once."""
    return a.call("fma", b, c)


def select(mask: Lanes, a: Lanes, b: Lanes) -> Lanes:
    """a where the mask is set, else b."""
    return a.like(a.builder.select(mask.value, a.value, a.of(b).value))


def isnan(a: Lanes) -> Lanes:
    return a != a


def maximum(a: Lanes, b: Lanes) -> Lanes:
    """NumPy's: NaN if either is. One instruction where `a` is a constant, so constants go first."""
    if not a.is_float:
        return select(a > b, a, b)
    return select(isnan(a) | (a > b), a, b)


def minimum(a: Lanes, b: Lanes) -> Lanes:
    """NumPy's: NaN if either is. One instruction where `a` is a constant, so constants go first."""
    if not a.is_float:
        return select(a < b, a, b)
    return select(isnan(a) | (a < b), a, b)


def relu(a: Lanes) -> Lanes:
    """max(a, 0); NaN stays."""
    return maximum(a.of(0), a)


def absolute(a: Lanes) -> Lanes:
    if a.is_float:
        return a.call("fabs")
    return select(a < 0, -a, a) if a.is_signed else a


def sqrt(a: Lanes) -> Lanes:
    return a.call("sqrt")


def floor(a: Lanes) -> Lanes:
    return a.call("floor")


def ceil(a: Lanes) -> Lanes:
    return a.call("ceil")


def trunc(a: Lanes) -> Lanes:
    return a.call("trunc")


def round_even(a: Lanes) -> Lanes:
    """To the nearest integer, halves to the even one."""
    return a.call("roundeven")


def copysign(a: Lanes, b: Lanes) -> Lanes:
    """The magnitude of a with the sign of b."""
    return a.call("copysign", b)


def convert(a: Lanes, dtype: types.Type) -> Lanes:
    """As NumPy's astype. Floats out of an integer's range give some integer."""
    builder, value, target = a.builder, a.value, a.type_of(dtype)
    if dtype == a.dtype:
        return a
    if dtype == types.boolean:
        return a != a.of(0)
    to_float = isinstance(dtype, (types.Float, Half))
    if isinstance(a.dtype, (types.Float, Half)):
        if to_float:
            wider = _ITEMSIZE[dtype] > _ITEMSIZE[a.dtype]
            result = builder.fpext(value, target) if wider else builder.fptrunc(value, target)
        else:
            result = _float_to_integer(a, dtype)
    elif to_float:
        result = builder.sitofp(value, target) if a.is_signed else builder.uitofp(value, target)
    else:
        result = _resize_integer(a, target)
    return Lanes(builder, result, dtype)


def _float_to_integer(a: Lanes, dtype: types.Integer) -> ir.Value:
    """Through a wider signed integer where there is one, so that negative numbers wrap around in unsigned types, as NumPy's."""
    if dtype == types.uint64:
        return a.builder.fptoui(a.value, a.type_of(dtype))
    middle = types.int32 if _ITEMSIZE[dtype] < 4 or dtype == types.int32 else types.int64
    wide = Lanes(a.builder, a.builder.fptosi(a.value, a.type_of(middle)), middle)
    return _resize_integer(wide, a.type_of(dtype))


def _resize_integer(a: Lanes, target: ir.Type) -> ir.Value:
    width, old = (getattr(kind, "element", kind).width for kind in (target, a.value.type))
    if width == old:
        return a.value
    if width < old:
        return a.builder.trunc(a.value, target)
    return a.builder.sext(a.value, target) if a.is_signed else a.builder.zext(a.value, target)


def reinterpret(a: Lanes, dtype: types.Type) -> Lanes:
    """The same bits as another type of the same size."""
    return Lanes(a.builder, a.builder.bitcast(a.value, a.type_of(dtype)), dtype)


def shuffle(a: Lanes, b: Lanes, indices: list[int]) -> Lanes:
    """Lanes chosen from those of a (0 … lanes-1) and of b (lanes …)."""
    mask = ir.Constant(ir.VectorType(I32, len(indices)), indices)
    return a.like(a.builder.shuffle_vector(a.value, b.value, mask))


def _horizontal(a: Lanes, combine: Callable[[Lanes, Lanes], Lanes]) -> Lanes:
    """One scalar of all lanes: halves are combined until one lane is left."""
    while a.lanes > 1:
        half = a.lanes // 2
        a = combine(shuffle(a, a, list(range(half))), shuffle(a, a, list(range(half, 2 * half))))
    return a.like(a.builder.extract_element(a.value, ir.Constant(I32, 0)))


def horizontal_sum(a: Lanes) -> Lanes:
    return _horizontal(a, operator.add)


def horizontal_product(a: Lanes) -> Lanes:
    return _horizontal(a, operator.mul)


def horizontal_maximum(a: Lanes) -> Lanes:
    return _horizontal(a, maximum)


def horizontal_minimum(a: Lanes) -> Lanes:
    return _horizontal(a, minimum)


def any_lane(mask: Lanes) -> Lanes:
    return mask.like(call_intrinsic(mask.builder, f"vector.reduce.or.{mangled(mask.value.type)}", I1, [mask.value]))


def all_lanes(mask: Lanes) -> Lanes:
    return mask.like(call_intrinsic(mask.builder, f"vector.reduce.and.{mangled(mask.value.type)}", I1, [mask.value]))


@dataclass(frozen=True)
class Operation:
    """A function of the vocabulary: what it emits, and the type of its result given those of its arguments."""

    emit: Callable[..., Lanes]
    result: Callable[[tuple[types.Type, ...]], types.Type]


def first_type(arguments: tuple[types.Type, ...]) -> types.Type:
    return arguments[0]


def _second_type(arguments: tuple[types.Type, ...]) -> types.Type:
    return arguments[1]


def _mask_type(arguments: tuple[types.Type, ...]) -> types.Type:
    vectors = [argument for argument in arguments if isinstance(argument, Vector)]
    return Vector(types.boolean, vectors[0].lanes) if vectors else types.boolean


def _element_type(arguments: tuple[types.Type, ...]) -> types.Type:
    return arguments[0].dtype


OPERATIONS: dict[str, Operation] = {
    "fma": Operation(fma, first_type),
    "select": Operation(select, _second_type),
    "maximum": Operation(maximum, first_type),
    "minimum": Operation(minimum, first_type),
    "relu": Operation(relu, first_type),
    "absolute": Operation(absolute, first_type),
    "sqrt": Operation(sqrt, first_type),
    "floor": Operation(floor, first_type),
    "ceil": Operation(ceil, first_type),
    "trunc": Operation(trunc, first_type),
    "round_even": Operation(round_even, first_type),
    "copysign": Operation(copysign, first_type),
    "isnan": Operation(isnan, _mask_type),
    "horizontal_sum": Operation(horizontal_sum, _element_type),
    "horizontal_product": Operation(horizontal_product, _element_type),
    "horizontal_maximum": Operation(horizontal_maximum, _element_type),
    "horizontal_minimum": Operation(horizontal_minimum, _element_type),
    "any_lane": Operation(any_lane, _element_type),
    "all_lanes": Operation(all_lanes, _element_type),
}


# ---- the bridge to Numba ----

Kinds = tuple[types.Type, ...]
Typer = Callable[..., Union[types.Type, None]]  # argument types → the result's type, or None where they do not fit
Emitter = Callable[..., Union[ir.Value, None]]  # builder, argument types, values → the result's value


_ANYTHING = (types.VarArg(types.Any),)


def define(function: Callable[..., Any], typer: Typer, emitter: Emitter, kinds: Kinds = _ANYTHING) -> None:
    """Teaches Numba `function`: how a call is typed, and what code it becomes.

    Numba's `intrinsic` would do, but it knows no optional arguments.
    """

    class Template(AbstractTemplate):
        key = function

        def generic(self, arguments: Kinds, keywords: Any) -> Any:
            arguments = tuple(map(types.unliteral, arguments))
            result = typer(*arguments)
            return None if result is None else signature(result, *arguments)

    builtin_registry.register_global(function, types.Function(Template))

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, values: list[ir.Value]) -> ir.Value:
        result = emitter(builder, sig.args, values)
        return context.get_dummy_value() if result is None else result

    lower_builtin(function, *kinds)(emit)


def named(name: str, typer: Typer, emitter: Emitter) -> Callable[..., Any]:
    """A new function that only compiled code can call."""

    def function(*arguments: Any) -> Any:
        raise NotImplementedError(f"{name} is for compiled kernels")

    function.__name__ = name
    define(function, typer, emitter)
    return function


def _lanes_of(builder: ir.IRBuilder, kind: types.Type, value: ir.Value) -> Lanes:
    return Lanes(builder, value, kind.dtype if isinstance(kind, Vector) else kind)


def _agree(operands: list[Lanes]) -> list[Lanes]:
    """Scalars among vectors are converted to the element type of the first vector and splatted. Masks set no type."""
    vectors = [operand for operand in operands if operand.lanes]
    if not vectors:
        return operands
    typed = [vector for vector in vectors if vector.dtype != types.boolean] or vectors
    agreed = []
    for operand in operands:
        if not operand.lanes:
            dtype = types.boolean if operand.dtype == types.boolean else typed[0].dtype
            operand = splat(convert(operand, dtype), vectors[0].lanes)
        agreed.append(operand)
    return agreed


def splat(scalar: Lanes, lanes: int) -> Lanes:
    """The scalar in every lane."""
    builder, kind = scalar.builder, ir.VectorType(scalar.value.type, lanes)
    if isinstance(scalar.value, ir.Constant):
        return scalar.like(ir.Constant(kind, [scalar.value.constant] * lanes))
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, scalar.value, ir.Constant(I32, 0))
    return scalar.like(builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)))


def emitter_of(function: Callable[..., Lanes]) -> Emitter:
    """The code of a function over `Lanes`, as Numba wants it."""

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        operands = [_lanes_of(builder, kind, value) for kind, value in zip(kinds, values, strict=True)]
        return function(*_agree(operands)).value

    return emitter


def as_function(name: str, operation: Operation) -> Callable[..., Any]:
    """An Operation as a function that compiled code may call."""

    def typer(*kinds: types.Type) -> types.Type:
        vectors = [kind for kind in kinds if isinstance(kind, Vector) and kind.dtype != types.boolean]
        # the result's type follows a vector operand where another one is a scalar
        seen = tuple(vectors[0] if vectors and not isinstance(kind, Vector) else kind for kind in kinds)
        return operation.result(seen)

    return named(name, typer, emitter_of(operation.emit))


_ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv)
_BITWISE = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)
_COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
_UNARY = (operator.neg, operator.invert)


def _operator_typer(is_comparison: bool) -> Typer:
    def typer(*kinds: types.Type) -> types.Type | None:
        vectors = [kind for kind in kinds if isinstance(kind, Vector)]
        if not vectors or any(vector != vectors[0] for vector in vectors):
            return None
        return _mask_type(kinds) if is_comparison else vectors[0]

    return typer


for _function in _ARITHMETIC + _BITWISE + _COMPARISONS:
    for _kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        define(_function, _operator_typer(_function in _COMPARISONS), emitter_of(_function), _kinds)
for _function in _UNARY:
    define(_function, _operator_typer(False), emitter_of(_function), (Vector,))


# ---- memory ----


def _pointer(builder: ir.IRBuilder, address: ir.Value, offset: ir.Value, kind: ir.Type) -> ir.Value:
    """An inttoptr and a byte offset that LLVM can fold into an addressing mode."""
    base = builder.inttoptr(address, I8.as_pointer())
    return builder.bitcast(builder.gep(base, [offset]), kind.as_pointer())


def _alignment(dtype: types.Type) -> int:
    """Tensors from outside are aligned to 4 bytes, whatever their element type."""
    return min(4, _ITEMSIZE[dtype])


def _memory_type(dtype: types.Type, lanes: int) -> ir.Type:
    element = I8 if dtype == types.boolean else _IR[dtype]
    return ir.VectorType(element, lanes) if lanes else element


def _from_memory(builder: ir.IRBuilder, value: ir.Value, dtype: types.Type) -> ir.Value:
    return convert(Lanes(builder, value, types.uint8), dtype).value if dtype == types.boolean else value


def _to_memory(a: Lanes) -> ir.Value:
    return convert(a, types.uint8).value if a.dtype == types.boolean else a.value


def first_lanes(builder: ir.IRBuilder, count: ir.Value, lanes: int) -> ir.Value:
    """The mask of the lanes before `count`, an int64."""
    places = ir.Constant(ir.VectorType(I64, lanes), list(range(lanes)))
    return builder.icmp_signed("<", places, splat(Lanes(builder, count, types.int64), lanes).value)


def _is_place(*kinds: types.Type) -> bool:
    """True for the types of addresses, offsets and counts. All 64-bit integers are the same to LLVM."""
    return all(isinstance(kind, types.Integer) and kind.bitwidth == 64 for kind in kinds)


def _vector_load(name: str, dtype: types.Type, lanes: int) -> Callable[..., Any]:
    memory = _memory_type(dtype, lanes)

    def typer(*kinds: types.Type) -> types.Type | None:
        return Vector(dtype, lanes) if len(kinds) in (2, 3) and _is_place(*kinds) else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        pointer = _pointer(builder, values[0], values[1], memory)
        if len(values) == 2:
            loaded = builder.load(pointer)
            loaded.align = _alignment(dtype)
        else:
            alignment, mask = ir.Constant(I32, _alignment(dtype)), first_lanes(builder, values[2], lanes)
            operands = [pointer, alignment, mask, ir.Constant(memory, None)]
            loaded = call_intrinsic(builder, f"masked.load.{mangled(memory)}.p0", memory, operands)
        return _from_memory(builder, loaded, dtype)

    return named(name, typer, emitter)


def _type_vstore(address: types.Type, offset: types.Type, value: types.Type, *count: types.Type) -> types.Type | None:
    return types.void if isinstance(value, Vector) and _is_place(address, offset, *count) else None


def _emit_vstore(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
    address, offset, value, *count = values
    vector = kinds[2]
    stored = _to_memory(Lanes(builder, value, vector.dtype))
    pointer = _pointer(builder, address, offset, stored.type)
    if not count:
        builder.store(stored, pointer).align = _alignment(vector.dtype)
        return
    alignment, mask = ir.Constant(I32, _alignment(vector.dtype)), first_lanes(builder, count[0], vector.lanes)
    call_intrinsic(
        builder, f"masked.store.{mangled(stored.type)}.p0", ir.VoidType(), [stored, pointer, alignment, mask]
    )


def _scalar_load(name: str, dtype: types.Type) -> Callable[..., Any]:
    def typer(address: types.Type, offset: types.Type) -> types.Type | None:
        return dtype if _is_place(address, offset) else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        loaded = builder.load(_pointer(builder, values[0], values[1], _memory_type(dtype, 0)))
        loaded.align = _alignment(dtype)
        return _from_memory(builder, loaded, dtype)

    return named(name, typer, emitter)


def _scalar_store(name: str, dtype: types.Type) -> Callable[..., Any]:
    def typer(address: types.Type, offset: types.Type, value: types.Type) -> types.Type | None:
        return types.void if _is_place(address, offset) and value in _IR else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
        stored = _to_memory(convert(Lanes(builder, values[2], kinds[2]), dtype))
        builder.store(stored, _pointer(builder, values[0], values[1], stored.type)).align = _alignment(dtype)

    return named(name, typer, emitter)


def _splat_to(name: str, dtype: types.Type, lanes: int) -> Callable[..., Any]:
    def typer(scalar: types.Type) -> types.Type | None:
        return Vector(dtype, lanes) if scalar in _IR else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        return splat(convert(Lanes(builder, values[0], kinds[0]), dtype), lanes).value

    return named(name, typer, emitter)


def _iota_of(name: str, dtype: types.Type, lanes: int) -> Callable[..., Any]:
    return named(
        name,
        lambda: Vector(dtype, lanes),
        lambda builder, kinds, values: ir.Constant(ir.VectorType(_IR[dtype], lanes), list(range(lanes))),
    )


def _convert_to(name: str, dtype: types.Type) -> Callable[..., Any]:
    def typer(value: types.Type) -> types.Type:
        return Vector(dtype, value.lanes) if isinstance(value, Vector) else dtype

    return named(name, typer, emitter_of(lambda a: convert(a, dtype)))


def _type_word(address: types.Type, index: types.Type) -> types.Type | None:
    return types.int64 if _is_place(address, index) else None


def _emit_word(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
    return builder.load(builder.gep(builder.inttoptr(values[0], I64.as_pointer()), [values[1]]))


def _type_prefetch(address: types.Type, offset: types.Type) -> types.Type | None:
    return types.void if _is_place(address, offset) else None


def _emit_prefetch(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
    """Asks for a cache line; harmless where there is no memory."""
    read, keep, data = (ir.Constant(I32, number) for number in (0, 3, 1))
    pointer = _pointer(builder, values[0], values[1], I8)
    call_intrinsic(builder, "prefetch.p0", ir.VoidType(), [pointer, read, keep, data])


_COMMON = {
    "math": math,
    "word": named("word", _type_word, _emit_word),
    "prefetch": named("prefetch", _type_prefetch, _emit_prefetch),
    "vstore": named("vstore", _type_vstore, _emit_vstore),
    **{name: as_function(name, operation) for name, operation in OPERATIONS.items()},
    **{f"convert_{name}": _convert_to(f"convert_{name}", dtype) for name, (dtype, _) in ELEMENTS.items()},
}
for _name, (_dtype, _) in ELEMENTS.items():
    if _dtype != float16:
        _COMMON[f"load_{_name}"] = _scalar_load(f"load_{_name}", _dtype)
        _COMMON[f"store_{_name}"] = _scalar_store(f"store_{_name}", _dtype)


@cache
def namespace(lanes: int) -> dict[str, Any]:
    """The global names of a generated kernel whose vectors have `lanes` lanes. Copy it before you execute a text in it."""
    names = dict(_COMMON)
    for name, (dtype, _) in ELEMENTS.items():
        names[f"vload_{name}"] = _vector_load(f"vload_{name}", dtype, lanes)
        if dtype != float16:
            names[f"splat_{name}"] = _splat_to(f"splat_{name}", dtype, lanes)
        if isinstance(dtype, types.Integer):
            names[f"iota_{name}"] = _iota_of(f"iota_{name}", dtype, lanes)
    return names
