"""Emitting linear code: instructions, and the facts about values, tuples and shapes at each point of it.

Tuples that are only unpacked again are never built. Dimensions are integer registers: parameters and `MatchShape` bind them,
arithmetic derives the rest, each once. Where the verifier cannot know the shape that inference found (results of
calls, data values and merging branches), a `match_shape` proves it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Union

from ...formats import dims
from ...formats.dims import Dim, Opaque, Solution, SymbolicDim, Variable
from ...formats.dtypes import DType
from ...formats.isa import Kind
from ...formats.messages.errors import CompileError
from ...formats.types import UNKNOWN, DataType, ShapeDim, TensorType, TupleType, Type, erase_dims
from .. import ir
from ..ir.analysis import dimension_names
from .tables import Tables
from .virtual import Label, Operand, Register, VirtualFunction, instruction

Number = Union[int, Register]  # a dimension at run time: known now, or in an integer register


@dataclass(frozen=True, eq=False)
class Fields:
    """A tuple that exists only as the values of its fields, until something needs it whole."""

    fields: tuple[Value, ...]
    type: Type


Value = Union[Register, Fields]


@dataclass(frozen=True)
class Scope:
    """Facts known at a point of the code. A child scope sees its parents' facts, not its siblings'."""

    values: ChainMap[ir.Var, Value] = field(default_factory=ChainMap)
    numbers: ChainMap[SymbolicDim, Number] = field(default_factory=ChainMap)
    constants: ChainMap[object, Register] = field(default_factory=ChainMap)  # also functions as values
    wholes: ChainMap[Fields, Register] = field(default_factory=ChainMap)
    # the type that the verifier knows for a register
    proved: ChainMap[Register, TensorType] = field(default_factory=ChainMap)

    def child(self) -> Scope:
        return Scope(
            self.values.new_child(),
            self.numbers.new_child(),
            self.constants.new_child(),
            self.wholes.new_child(),
            self.proved.new_child(),
        )


class Emission:
    """The code of one function in progress. `scope` has the facts at the next instruction."""

    def __init__(self, name: str, tables: Tables) -> None:
        self.name, self.tables = name, tables
        self.code = VirtualFunction(name, ())
        self.scope = Scope()
        self.origin = ""  # the model node that instructions come from
        self.computed = set[Number]()  # the registers of variables that were solved for

    def emit(self, name: str, *operands: Operand) -> None:
        self.code.items.append(instruction(name, *operands, origin=self.origin))

    def place(self, label: Label) -> None:
        self.code.items.append(label)

    def new_ref(self, type_: Type | None) -> Register:
        return self.code.new_register(Kind.REF, type_)

    def new_int(self) -> Register:
        return self.code.new_register(Kind.INT)

    def in_child_scope(self, action: Callable[[], None]) -> None:
        outer, origin = self.scope, self.origin
        self.scope = outer.child()
        action()
        self.scope, self.origin = outer, origin

    # ---- tuples and data values ----

    def whole(self, value: Value) -> Register:
        """`value` in one register."""
        if isinstance(value, Register):
            return value
        found = self.scope.wholes.get(value)
        if found is None:
            parts = tuple(map(self.whole, value.fields))
            found = self.scope.wholes[value] = self.new_ref(value.type)
            self.emit("alloc_data", found, self.tables.type(value.type), 0, parts)
        return found

    def field(self, value: Value, tag: int, index: int) -> Value:
        return value.fields[index] if isinstance(value, Fields) else self.get_field(value, tag, index)

    def get_field(self, value: Register, tag: int, index: int) -> Register:
        part = self.new_ref(self._field_type(value.type, tag, index))
        self.emit("get_field", part, value, tag, index)
        return part

    def _field_type(self, type_: Type | None, tag: int, index: int) -> Type:
        if isinstance(type_, TupleType):
            return type_.fields[index]
        assert isinstance(type_, DataType)
        return erase_dims(self.tables.module.data_types[type_.name].constructors[tag].fields[index])

    def tensors(self, value: Value, type_: Type | None) -> list[tuple[Register, TensorType]]:
        if isinstance(value, Fields):
            assert isinstance(type_, TupleType)
            pairs = zip(value.fields, type_.fields, strict=True)
            return [found for part, part_type in pairs for found in self.tensors(part, part_type)]
        return [(value, type_)] if isinstance(type_, TensorType) else []

    # ---- shapes ----

    def _known(self, register: Register) -> TensorType | None:
        """The type that the verifier knows for the tensor in a register."""
        type_ = self.scope.proved.get(register, register.type)
        return type_ if isinstance(type_, TensorType) else None

    def bind_variables(self, tensors: Sequence[tuple[Register, TensorType]]) -> list[tuple[Number, ...]]:
        """Binds variables among the dimensions of tensors, by reading the sizes of those tensors.

        Returns the sizes of each tensor; none if none of them is needed.
        """
        places = [(which, axis) for which, (_, type_) in enumerate(tensors) for axis in range(type_.rank)]
        known = [str(dim) for dim in self.scope.numbers if dims.is_variable(dim)]
        solutions = dims.solve([tensors[which][1].shape[axis] for which, axis in places], known)
        sizes: list[tuple[Number, ...]] = [()] * len(tensors)
        for which in sorted({places[solution.index][0] for solution in solutions}):
            sizes[which] = self.sizes(*tensors[which])
        for solution in solutions:
            which, axis = places[solution.index]
            self._bind_variable(solution, sizes[which][axis], *tensors[which], axis)
        return sizes

    def sizes(self, register: Register, type_: TensorType) -> tuple[Number, ...]:
        """The shape of a tensor, read at run time."""
        numbers = tuple(self.new_int() for _ in type_.shape)
        self.emit("shape_of", numbers, register)
        return numbers

    def _bind_variable(
        self, solution: Solution, size: Number, register: Register, type_: TensorType, axis: int
    ) -> None:
        """Binds a variable. A computed value may be wrong (rounded, or negative): `prove` finds out."""
        if type_.shape[axis] == solution.variable:
            self.scope.numbers[solution.variable] = size
            shape = list(self._known(register).shape)  # type: ignore[union-attr]
            shape[axis] = solution.variable
            self.scope.proved[register] = type_.with_shape(tuple(shape))
            return
        if solution.rest != 0:
            size = self.arithmetic("subtract", size, self.number(solution.rest))
        if solution.coefficient != 1:
            size = self.arithmetic("floor_divide", size, self.number(solution.coefficient))
        self.scope.numbers[solution.variable] = number = self.arithmetic("maximum", size, 0)
        self.computed.add(number)

    def told(self, sizes: Sequence[Dim], tensors: Sequence[TensorType]) -> tuple[Number, ...]:
        """The sizes passed to a kernel for these tensors: numbers that the verifier knows for sizes.

        A computed one becomes known as a dimension of a tensor: here of one made without elements.
        """
        shown = {dim for tensor in tensors for dim in tensor.shape}
        for dim in sizes:
            if self.number(dim) in self.computed and dim not in shown:
                size, none, extent = self.new_int(), self.new_int(), self.new_ref(TensorType(DType.bool, (UNKNOWN, 0)))
                self.emit("alloc_dynamic", extent, DType.bool.code, (self.number(dim), 0))
                self.emit("shape_of", (size, none), extent)
                self.scope.numbers[dim] = size  # type: ignore[index]
        return self.shape(sizes)

    def prove(self, register: Register, wanted: Type | None) -> Register:
        """Has the machine check the parts of the type that the verifier cannot know; binds new variables.

        Returns the register with the type: a new one if this one is still used with other names of its dimensions.
        """
        if not isinstance(wanted, TensorType) or self._is_known(register, wanted):
            return register
        known = self._known(register)
        if any(UNKNOWN not in pair and pair[0] != pair[1] for pair in zip(known.shape, wanted.shape, strict=True)):  # type: ignore[union-attr]
            register, renamed = self.new_ref(register.type), register
            self.emit("move", register, renamed)
            self.scope.proved[register] = known  # type: ignore[assignment]
        numbers: tuple[Number, ...] = ()
        if any(dims.variable(name) not in self.scope.numbers for name in dimension_names(wanted)):
            (numbers,) = self.bind_variables([(register, wanted)])
            if self._is_known(register, wanted):
                return register
        if UNKNOWN in wanted.shape and not numbers:
            numbers = self.sizes(register, wanted)
        shape = [numbers[axis] if dim is UNKNOWN else self.number(dim) for axis, dim in enumerate(wanted.shape)]
        self.emit("match_shape", register, tuple(shape))
        told = [have if want is UNKNOWN else want for have, want in zip(known.shape, wanted.shape, strict=True)]  # type: ignore[union-attr]
        self.scope.proved[register] = wanted.with_shape(tuple(told))
        return register

    def _is_known(self, register: Register, wanted: TensorType) -> bool:
        known = self._known(register)
        return known is None or all(
            want is UNKNOWN or want == have for want, have in zip(wanted.shape, known.shape, strict=True)
        )

    def number(self, dim: ShapeDim) -> Number:
        """A dimension as an operand."""
        if isinstance(dim, int):
            return dim if dim >= 0 else self._load(dim)
        assert isinstance(dim, SymbolicDim), "dimensions were named before"
        found = self.scope.numbers.get(dim)
        if found is None:
            if dims.is_variable(dim):
                raise self._error(
                    f"nothing that is known when it is needed says what the dimension {dim} is; "
                    f"let a parameter have a dimension {dim}, or one that is linear in it, such as 2*{dim} + 1"
                )
            found = self.scope.numbers[dim] = self._sum(dim)
        return found

    def _load(self, value: int) -> Register:
        number = self.new_int()
        self.emit("load_int", number, value)
        return number

    def arithmetic(self, name: str, left: Number, right: Number) -> Register:
        number = self.new_int()
        self.emit(name, number, left, right)
        return number

    def _sum(self, dim: SymbolicDim) -> Number:
        total: Number | None = None
        for monomial, coefficient in dim.terms:
            negative = coefficient < 0 and total is not None
            term: Number | None = None if abs(coefficient) == 1 and monomial else abs(coefficient)
            if coefficient < 0 and not negative:
                term = self._load(coefficient)
            for atom in monomial:
                factor = self._atom(atom)
                term = factor if term is None else self.arithmetic("multiply", factor, term)
            assert term is not None
            total = term if total is None else self.arithmetic("subtract" if negative else "add", total, term)
        assert total is not None
        return total

    def _atom(self, atom: Variable | Opaque) -> Number:
        whole = SymbolicDim((((atom,), 1),))
        if isinstance(atom, Variable) or whole in self.scope.numbers:
            return self.number(whole)
        name = {"//": "floor_divide", "%": "remainder", "min": "minimum", "max": "maximum"}[atom.operator]
        number = self.arithmetic(name, self.number(atom.left), self.number(atom.right))
        self.scope.numbers[whole] = number
        return number

    def shape(self, shape: Sequence[ShapeDim]) -> tuple[Number, ...]:
        return tuple(map(self.number, shape))

    def prove_value(self, value: Value, type_: Type | None) -> None:
        for register, tensor in self.tensors(value, type_):
            self.prove(register, tensor)

    def _error(self, message: str) -> CompileError:
        return CompileError(message, function=self.name, node=self.origin or None)
