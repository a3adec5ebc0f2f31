"""Kernels as values: what a template computes with is a typed value, and the text of the kernel is what it leaves behind.

    x, target = code.input("x", 0), code.output("target", 0)      addresses, with the element types of the definition's tensors
    count = code.size("count", dim)                               a word
    first, last = code.split(count, count * 40 // 1000)           this part's share of the work
    with code.loop("i", first, last, code.lanes) as i:            for i in range(first, last, 8):
        total = code.let("total", x.vector(i) * 2 + 1)                total = vload_float32(x, i * 4) * 2 + 1
        with code.when(any_lane(total < 0)):                          if any_lane(total < 0):
            code.fail(OUT_OF_RANGE)                                       return 1
        target.store(i, total, count - i)                             vstore(target, i * 4, total, count - i)

A value is an expression of the text with the type that it has there: an element type, and LANES lanes or none. Operators of
Python make larger ones, with the parentheses that they need. A name that is missing is a NameError of the template, types that do
not fit are a TypeError in the line that joins them. A value formats as its text, for the lines that are still written as such.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Union, overload

from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ..target import Target
from .writer import Odometer, Writer, scaled, write_copy

_TERNARY, _OR, _AND, _COMPARISON, _ADDITION, _PRODUCT, _SIGN, _ATOM = 0, 1, 2, 4, 9, 10, 11, 12
_BINDINGS = {"|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10}
_INTEGERS = frozenset({"//", "%", "<<", ">>"})  # operators of integers alone

OUT_OF_RANGE = 1  # the code of a kernel that found an index out of range (`vm/failures.py`)

Operand = Union["Value", int, float]


@dataclass(eq=False)
class Value:
    """An expression: its text, and how firmly that holds together. `dtype` is None for a number in the text, which adapts."""

    text: str
    dtype: DType | None = DType.int64
    is_vector: bool = False
    binding: int = _ATOM

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
        name = "number" if self.dtype is None else self.dtype.name
        return f"vector of {name}" if self.is_vector else name

    def __add__(self, other: Operand) -> Value:
        return _binary("+", self, other)

    def __radd__(self, other: Operand) -> Value:
        return _binary("+", other, self)

    def __sub__(self, other: Operand) -> Value:
        return _binary("-", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return _binary("-", other, self)

    def __mul__(self, other: Operand) -> Value:
        return _binary("*", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return _binary("*", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return _binary("/", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return _binary("/", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return _binary("//", self, other)

    def __mod__(self, other: Operand) -> Value:
        return _binary("%", self, other)

    def __and__(self, other: Operand) -> Value:
        return _binary("&", self, other)

    def __or__(self, other: Operand) -> Value:
        return _binary("|", self, other)

    def __invert__(self) -> Value:
        return Value(f"~{self.within(_SIGN)}", self.dtype, self.is_vector, _SIGN)

    def __neg__(self) -> Value:
        return Value(f"-{self.within(_SIGN)}", self.dtype, self.is_vector, _SIGN)

    def __lt__(self, other: Operand) -> Value:
        return _compared("<", self, other)

    def __le__(self, other: Operand) -> Value:
        return _compared("<=", self, other)

    def __gt__(self, other: Operand) -> Value:
        return _compared(">", self, other)

    def __ge__(self, other: Operand) -> Value:
        return _compared(">=", self, other)

    def equals(self, other: Operand) -> Value:
        return _compared("==", self, other)

    def differs(self, other: Operand) -> Value:
        return _compared("!=", self, other)

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


def value_of(operand: Operand) -> Value:
    """A number as a value."""
    if isinstance(operand, Value):
        return operand
    return Value(str(operand), None, binding=_SIGN if operand < 0 else _ATOM)


def _joined(text: str, operands: Sequence[Value]) -> tuple[DType | None, bool]:
    """The type of lanes that operands share. Scalars of different types become float64, or int64, as Python's do."""
    is_vector = any(each.is_vector for each in operands)
    dtypes = {each.dtype for each in operands if each.dtype is not None}
    if len(dtypes) > 1 and is_vector:
        raise TypeError(f"{text}: the operands are {' and '.join(each.kind for each in operands)}; convert one of them")
    if len(dtypes) > 1:
        return DType.float64 if any(dtype.is_float for dtype in dtypes) else DType.int64, False
    return next(iter(dtypes), None), is_vector


def _binary(symbol: str, a: Operand, b: Operand) -> Value:
    left, right, binding = value_of(a), value_of(b), _BINDINGS[symbol]
    text = f"{left.within(binding)} {symbol} {right.within(binding + 1)}"
    dtype, is_vector = _joined(text, (left, right))
    if symbol in _INTEGERS and dtype is not None and dtype.is_float:
        raise TypeError(f"{text}: {symbol} is of integers, the operands are {left.kind} and {right.kind}")
    return Value(text, dtype, is_vector, binding)


def _compared(symbol: str, a: Operand, b: Operand) -> Value:
    left, right = value_of(a), value_of(b)
    text = f"{left.within(_COMPARISON + 1)} {symbol} {right.within(_COMPARISON + 1)}"
    return Value(text, DType.bool, _joined(text, (left, right))[1], _COMPARISON)


def call(name: str, *operands: Operand) -> Value:
    """A function of the vocabulary whose result has its operands' type."""
    text = f"{name}({', '.join(str(value_of(each)) for each in operands)})"
    return Value(text, *_joined(text, [value_of(each) for each in operands]))


def select(mask: Value, a: Operand, b: Operand) -> Value:
    """a where the mask is set, else b."""
    dtype, is_vector = _joined(f"select({mask}, {a}, {b})", (value_of(a), value_of(b)))
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


def all_lanes(mask: Value) -> Value:
    return reduced("all_lanes", mask)


def inside(count: Operand) -> Value:
    """The mask of the first lanes."""
    return Value(f"inside({count})", DType.bool, True)


def iota(dtype: DType = DType.int64) -> Value:
    """0, 1, 2 … in lanes."""
    return Value(f"iota_{dtype.name}()", dtype, True)


def least(a: Operand, b: Operand) -> Value:
    """The smaller one of two words."""
    return call("min", a, b)


def greatest(a: Operand, b: Operand) -> Value:
    return call("max", a, b)


def both(*conditions: Value) -> Value:
    """Python's `and`: later conditions are looked at only if the earlier ones hold."""
    return Value(" and ".join(each.within(_AND) for each in conditions), DType.bool, binding=_AND)


def either(*conditions: Value) -> Value:
    """Python's `or`."""
    return Value(" or ".join(each.within(_OR) for each in conditions), DType.bool, binding=_OR)


def choice(condition: Value, a: Operand, b: Operand) -> Value:
    """a if the condition holds, else b: of words."""
    return Value(f"{a} if {condition} else {b}", *_joined("a choice", (value_of(a), value_of(b))), _TERNARY)


def bracketed(value: Value) -> Value:
    """The value in parentheses, needed or not."""
    return Value(f"({value})", value.dtype, value.is_vector)


def product(values: Sequence[Value]) -> Value:
    """1 of no values."""
    return Value(" * ".join(each.within(_PRODUCT) for each in values) or "1", binding=_PRODUCT)


def in_bytes(elements: Operand, itemsize: int) -> Value:
    """Elements as bytes."""
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
        return self._code.pointer(self + in_bytes(elements, self.element.itemsize), self.element)

    def _loaded(self, function: str, elements: Operand, *more: Operand, is_vector: bool = True) -> Value:
        arguments = [str(self), str(in_bytes(elements, self.element.itemsize)), *map(str, more)]
        return Value(f"{function}_{self.element.name}({', '.join(arguments)})", self.element, is_vector)

    def scalar(self, element: Operand) -> Value:
        return self._loaded("load", element, is_vector=False)

    def vector(self, element: Operand, *count: Operand) -> Value:
        """LANES elements from that one on; zeros behind the first `count` of them, whose memory is not touched."""
        return self._loaded("vload", element, *count)

    def vector_between(self, element: Operand, begin: Operand, end: Operand) -> Value:
        """Likewise, of lanes `begin` to `end` alone."""
        return self._loaded("vload_between", element, begin, end)

    def gather(self, elements: Value) -> Value:
        """The elements of these numbers, a vector of words."""
        return Value(f"vgather_{self.element.name}({self}, {elements})", self.element, True)

    def store(self, element: Operand, value: Operand, *count: Operand, function: str = "vstore") -> None:
        """Writes a scalar, or a vector, or its first `count` lanes; what registers have as another type is rounded."""
        place, written = in_bytes(element, self.element.itemsize), value_of(value)
        if written.dtype not in (None, self.element):
            if written.dtype is not self.element.computed:
                raise TypeError(f"{written}: {self} has elements of {self.element.name}, got {written.kind}")
            written = written.to(self.element)
        function = function if written.is_vector else f"store_{self.element.name}"
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
        """Defines a variable, or gives one another value."""
        found = value_of(value)
        self.write(f"{name} = {found}")
        if isinstance(found, Pointer):
            return self.pointer(Value(name), found.element)
        return Value(name, found.dtype or (DType.float64 if isinstance(value, float) else DType.int64), found.is_vector)

    def set(self, variable: Value, value: Operand) -> None:
        _joined(f"{variable} = {value}", (variable, value_of(value)))
        self.write(f"{variable} = {value}")

    def add(self, variable: Value, value: Operand) -> None:
        _joined(f"{variable} += {value}", (variable, value_of(value)))
        self.write(f"{variable} += {value}")

    def pointer(self, address: Value, element: DType) -> Pointer:
        return Pointer(self, address.text, element, address.binding)

    def input(self, name: str, number: int, element: DType | None = None) -> Pointer:
        dtype = self.definition.params[number].dtype
        return self.pointer(Value(self.write.input(name, number)), element or dtype)

    def output(self, name: str, number: int, element: DType | None = None) -> Pointer:
        dtype = self.definition.results[number].dtype
        return self.pointer(Value(self.write.output(name, number)), element or dtype)

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

    def fail(self, code: int) -> None:
        self.write(f"return {code}")

    def odometer(self, axes: Sequence[tuple[str, Value]]) -> Walk:
        return Walk(self, axes)

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
