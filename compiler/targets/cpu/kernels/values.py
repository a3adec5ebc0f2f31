"""Kernels as values: what a template computes with is a typed value, and the text of the kernel is what it leaves behind.

    x, target = code.input("x", 0), code.output("target", 0)      addresses, with the element types of the definition's tensors
    count = code.size("count", dim)                               a word
    first, last = code.split(count, count * 40 // 1000)           this part's share of the work
    with code.loop("i", first, last, code.lanes) as i:            for i in range(first, last, 8):
        total = code.let("total", x.vector(i) * 2 + 1)                total = vload_float32(x, i * 4) * 2 + 1
        with code.when(any_lane(total < 0)):                          if any_lane(total < 0):
            code.leave(OUT_OF_RANGE)                                      return 1
        target.store(i, total, count - i)                             vstore(target, i * 4, total, count - i)

A value is an expression of the text with the type that it has there: an element type, and LANES lanes or none. Operators of
Python make larger ones, with the parentheses that they need. A name that is missing is a NameError of the template, types that do
not fit are a TypeError in the line that joins them. A value formats as its text, for the lines that are still written as such.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Union, overload

from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ..target import Target
from .expression import literal
from .writer import Odometer, Writer, scaled, write_copy

_OR, _COMPARISON, _ADDITION, _PRODUCT, _SIGN, _ATOM = 1, 4, 9, 10, 11, 12
_BINDINGS = {"|": 5, "&": 7, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10}
_INTEGERS = frozenset({"//", "%"})  # operators of integers alone
_PREDICATES = frozenset({"isfinite", "isinf", "isnan"})

OUT_OF_RANGE = 1  # the code of a kernel that found an index out of range (`vm/failures.py`)

Operand = Union["Value", int, float]


_Operator = Callable[["Value", Operand], "Value"]


def _operator(symbol: str) -> tuple[_Operator, _Operator]:
    """A Python operator, and the one for a number on its left."""
    return lambda a, b: _binary(symbol, a, b), lambda b, a: _binary(symbol, a, b)


class Value:
    """An expression: its text, and how firmly that holds together. `dtype` is None for a number in the text, which adapts."""

    def __init__(self, text: str, dtype: DType | None = DType.int64, is_vector: bool = False, binding: int = _ATOM):
        self.text, self.dtype, self.is_vector, self.binding = text, dtype, is_vector, binding

    def __str__(self) -> str:
        return self.text

    def within(self, binding: int) -> str:
        """The text as an operand."""
        return self.text if self.binding >= binding else f"({self.text})"

    @property
    def type(self) -> DType:
        assert self.dtype is not None, f"the number {self} has no type of its own"
        return self.dtype

    @property
    def kind(self) -> str:
        return ("number" if self.dtype is None else self.dtype.name) + " vector" * self.is_vector

    __add__, __radd__ = _operator("+")
    __sub__, __rsub__ = _operator("-")
    __mul__, __rmul__ = _operator("*")
    __truediv__, __rtruediv__ = _operator("/")
    __floordiv__, __rfloordiv__ = _operator("//")
    __mod__, __rmod__ = _operator("%")
    __and__, __rand__ = _operator("&")
    __or__, __ror__ = _operator("|")

    def __invert__(self) -> Value:
        return Value(f"~{self.within(_SIGN)}", self.dtype, self.is_vector, _SIGN)

    __lt__, __gt__ = _operator("<")[0], _operator(">")[0]
    __le__, __ge__ = _operator("<=")[0], _operator(">=")[0]
    equals = _operator("==")[0]

    def __bool__(self) -> bool:
        raise TypeError(f"whether {self} holds is known when the kernel runs: `code.when` asks then")

    def to(self, dtype: DType) -> Value:
        """Converted, whatever the type is."""
        return Value(f"convert_{dtype.name}({self})", dtype, self.is_vector)

    def computed(self) -> Value:
        """An element as registers have it (float16 as float32)."""
        return self if self.type.computed is self.type else self.to(self.type.computed)

    def splat(self, dtype: DType | None = None) -> Value:
        """A scalar in every lane."""
        dtype = dtype or self.type
        return Value(f"splat_{dtype.name}({self})", dtype, True)


# ---- expressions ----


def constant(value: float, dtype: DType = DType.float64) -> Value:
    """A number of the text, as it is written where that type is computed; integers as they are."""
    text = str(value) if isinstance(value, int) else literal(value, dtype)
    return Value(text, None, binding=_SIGN if text.startswith("-") else _ATOM)


def value_of(operand: Operand) -> Value:
    return operand if isinstance(operand, Value) else constant(operand)


def _joined(text: str, *operands: Value) -> tuple[DType | None, bool]:
    """The type of lanes that operands share. A scalar is splatted; scalars of different types become float64, or int64."""
    dtype, is_vector = operands[0].dtype, operands[0].is_vector
    for each in operands[1:]:
        if each.dtype is None or (each.dtype is dtype and each.is_vector is is_vector):
            continue
        if dtype is None or (each.is_vector and not is_vector and (each.dtype.is_float or not dtype.is_float)):
            dtype, is_vector = each.dtype, each.is_vector
        elif not is_vector and not each.is_vector:
            dtype = DType.float64 if dtype.is_float or each.dtype.is_float else DType.int64
        elif each.is_vector or (each.dtype.is_float and not dtype.is_float):
            kinds = " and ".join(operand.kind for operand in operands)
            raise TypeError(f"{text}: the operands are {kinds}; convert one of them")
    return dtype, is_vector


def _binary(symbol: str, a: Operand, b: Operand) -> Value:
    left, right, binding = value_of(a), value_of(b), _BINDINGS.get(symbol, _COMPARISON)
    text = f"{left.within(max(binding, _COMPARISON + 1))} {symbol} {right.within(binding + 1)}"
    dtype, is_vector = _joined(text, left, right)
    if symbol in _INTEGERS and dtype is not None and dtype.is_float:
        raise TypeError(f"{text}: {symbol} is of integers, the operands are {left.kind} and {right.kind}")
    if binding == _COMPARISON:
        dtype = DType.bool
    elif symbol == "/" and not is_vector and not (dtype and dtype.is_float):
        dtype = DType.float64
    return Value(text, dtype, is_vector, binding)


def call(name: str, *operands: Operand) -> Value:
    """A function of the vocabulary whose result has its operands' type, or is a mask."""
    text = f"{name}({', '.join(str(value_of(each)) for each in operands)})"
    dtype, is_vector = _joined(text, *map(value_of, operands))
    return Value(text, DType.bool if name in _PREDICATES else dtype, is_vector)


def select(mask: Value, a: Operand, b: Operand) -> Value:
    """a where the mask is set, else b."""
    dtype, is_vector = _joined(f"select({mask}, {a}, {b})", value_of(a), value_of(b))
    if mask.dtype is not DType.bool:
        raise TypeError(f"select({mask}, …): expected a mask, got {mask.kind}")
    return Value(f"select({mask}, {a}, {b})", dtype, is_vector or mask.is_vector)


def reduced(name: str, vector: Value) -> Value:
    """One scalar of all lanes: horizontal_sum, horizontal_maximum, any_lane …"""
    if not vector.is_vector:
        raise TypeError(f"{name}({vector}): expected a vector, got {vector.kind}")
    return Value(f"{name}({vector})", vector.dtype)


def any_lane(mask: Value) -> Value:
    return reduced("any_lane", mask)


def inside(count: Operand) -> Value:
    """The mask of the first lanes."""
    return Value(f"inside({count})", DType.bool, True)


def iota() -> Value:
    return Value("iota_int64()", is_vector=True)


def least(a: Operand, b: Operand) -> Value:
    """The smaller one of two words."""
    return call("min", a, b)


def either(*conditions: Value) -> Value:
    """Python's `or`: later conditions are looked at only if the earlier ones do not hold."""
    return Value(" or ".join(each.within(_OR) for each in conditions), DType.bool, binding=_OR)


def bracketed(value: Value) -> Value:
    """The value in parentheses, needed or not."""
    return Value(f"({value})", value.dtype, value.is_vector)


def product(values: Sequence[Value]) -> Value:
    """1 of no values."""
    return Value(" * ".join(each.within(_PRODUCT) for each in values) or "1", binding=_PRODUCT)


def in_bytes(elements: Operand, itemsize: int) -> Value:
    """Elements as bytes; a number of them is computed here."""
    if isinstance(elements, int):
        return constant(elements * itemsize)
    found = value_of(elements)
    return found if itemsize == 1 else Value(scaled(found.text, itemsize), found.dtype, found.is_vector, _PRODUCT)


# ---- memory ----


class Pointer(Value):
    """An address of elements, which are counted from there."""

    def __init__(self, code: Code, text: str, element: DType, binding: int = _ATOM) -> None:
        super().__init__(text, binding=binding)
        self._code, self.element = code, element

    def at(self, elements: Operand) -> Pointer:
        """The address of an element."""
        place = in_bytes(elements, self.element.itemsize).within(_ADDITION)
        return Pointer(self._code, f"{self.within(_ADDITION)} + {place}", self.element, _ADDITION)

    def _loaded(self, function: str, elements: Operand, *more: Operand, is_vector: bool = True) -> Value:
        arguments = [str(self), str(in_bytes(elements, self.element.itemsize)), *map(str, more)]
        return Value(f"{function}_{self.element.name}({', '.join(arguments)})", self.element, is_vector)

    def scalar(self, element: Operand) -> Value:
        return self._loaded("load", element, is_vector=False)

    def vector(self, element: Operand, *count: Operand) -> Value:
        """LANES elements from that one on; zeros after the first `count` of them, whose memory is not touched."""
        return self._loaded("vload", element, *count)

    def prefetch(self, element: Operand) -> None:
        self._code.write(f"prefetch({self}, {in_bytes(element, self.element.itemsize)})")

    def gather(self, elements: Value) -> Value:
        """The elements of these numbers, a vector of words."""
        return Value(f"vgather_{self.element.name}({self}, {elements})", self.element, True)

    def store(self, element: Operand, value: Operand, *count: Operand) -> None:
        """Writes a scalar, or a vector, or its first `count` lanes; what registers have as another type is rounded."""
        place, written = in_bytes(element, self.element.itemsize), value_of(value)
        if written.dtype not in (None, self.element):
            if written.dtype is not self.element.computed:
                raise TypeError(f"{written}: {self} has elements of {self.element.name}, got {written.kind}")
            written = written.to(self.element)
        function = "vstore" if written.is_vector else f"store_{self.element.name}"
        self._code.write(f"{function}({', '.join(map(str, (self, place, written, *count)))})")


# ---- statements ----


class Code:
    """Writes the statements of one kernel."""

    def __init__(self, definition: PrimitiveDefinition, target: Target, title: str) -> None:
        self.write = Writer(definition, target, title)
        self.lanes, self.definition = self.write.lanes, definition
        self.scratch = Value("scratch")
        self.kernel = self.write.kernel

    @overload
    def let(self, name: str, value: Pointer) -> Pointer: ...
    @overload
    def let(self, name: str, value: Operand) -> Value: ...
    def let(self, name: str, value: Operand) -> Value:
        """Defines a variable."""
        found = value_of(value)
        self.write(f"{name} = {found}")
        if isinstance(found, Pointer):
            return Pointer(self, name, found.element)
        return Value(name, found.dtype or (DType.float64 if isinstance(value, float) else DType.int64), found.is_vector)

    def set(self, variable: Value, value: Operand, operator: str = "=") -> None:
        """Gives a variable another value, of its type."""
        found = value_of(value)
        if found.dtype is not None and (found.dtype, found.is_vector) != (variable.dtype, variable.is_vector):
            raise TypeError(f"{variable} {operator} {found}: {variable} is a {variable.kind}, got a {found.kind}")
        self.write(f"{variable} {operator} {found}")

    def add(self, variable: Value, value: Operand) -> None:
        self.set(variable, value, "+=")

    def pointer(self, address: Value, element: DType) -> Pointer:
        return Pointer(self, address.text, element, address.binding)

    def tensor(self, name: str, number: int, element: DType) -> Pointer:
        """The address of a tensor's elements. Parameters count first, then outputs."""
        return self.let(name, self.pointer(Value(f"word(args, {self.write.argument(number)})"), element))

    def input(self, name: str, number: int, element: DType | None = None) -> Pointer:
        return self.tensor(name, number, element or self.definition.params[number].dtype)

    def output(self, name: str, number: int, element: DType | None = None) -> Pointer:
        dtype = element or self.definition.results[number].dtype
        return self.tensor(name, len(self.definition.params) + number, dtype)

    def size(self, name: str, dim: Dim) -> Value:
        return Value(self.write.size(name, dim))

    def split(self, units: Operand, nanoseconds: Operand) -> tuple[Value, Value]:
        """This part's share of the units."""
        self.write.split(str(units), str(nanoseconds))
        return Value("first"), Value("last")

    def prepare(self, name: str) -> Value:
        """What the scratch memory has been prepared for, -1 at first."""
        self.write.prepare(name)
        return Value(name)

    @contextlib.contextmanager
    def loop(self, name: str, *bounds: Operand) -> Iterator[Value]:
        """A loop over Python's range."""
        with self.write.block(f"for {name} in range({', '.join(map(str, bounds))})"):
            yield Value(name)

    def loop_while(self, condition: Value) -> contextlib.AbstractContextManager[None]:
        return self.write.block(f"while {condition}")

    def when(self, condition: Value) -> contextlib.AbstractContextManager[None]:
        return self.write.block(f"if {condition}")

    def otherwise(self) -> contextlib.AbstractContextManager[None]:
        return self.write.block("else")

    def leave(self, code: int = 0) -> None:
        """Ends the kernel: with 0, there is nothing left to do."""
        self.write(f"return {code}")

    def copy(self, target: Pointer, source: Pointer, begin: Operand, end: Operand) -> None:
        """Copies elements `begin` to `end`."""
        write_copy(self.write, source.element.itemsize, str(target), str(source), str(begin), str(end))


class Walk:
    """The indices of nested axes, given outermost first with their sizes, that are walked as one."""

    def __init__(self, code: Code, axes: Sequence[tuple[str, Value]]) -> None:
        self._odometer = Odometer(code.write, [(index, str(size)) for index, size in axes])
        self.indices = [Value(index) for index, _ in axes]
        self.count = product([size for _, size in axes])

    def start(self, at: Value) -> None:
        """Sets the indices to place number `at`, a variable."""
        self._odometer.start(str(at))

    def advance(self, count: Operand = 1) -> None:
        self._odometer.advance(str(count))
