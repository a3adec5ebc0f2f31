"""The tables that the functions of an executable share: constants, primitives, types. Equal entries are one entry."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np

from ...formats import dims, limits, mapped
from ...formats.constants import constant_bytes, gather
from ...formats.container import crc32
from ...formats.dims import Dim, SymbolicDim
from ...formats.primitive import AttributeValue, Primitive, PrimitiveDefinition, PrimitiveNode
from ...formats.types import FunctionType, Type, erase_dims, substitute_dims
from .. import ir
from . import spill
from .definitions import abstracted

_SAMPLES, _SAMPLED = 16, 4096  # of a constant's bytes: parts that are compared first

_Entry = TypeVar("_Entry", bound=Hashable)


class _Index(Generic[_Entry]):
    """A table in which equal entries share one index."""

    def __init__(self) -> None:
        self._places: dict[_Entry, int] = {}

    def place(self, entry: _Entry) -> int:
        return self._places.setdefault(entry, len(self._places))

    def entries(self) -> tuple[_Entry, ...]:
        return tuple(self._places)


class Tables:
    """Collects the tables of `module`'s executable."""

    def __init__(self, module: ir.Module, devices: Sequence[str] = ()) -> None:
        self.module = module
        self._devices = {name: number for number, name in enumerate(("", *devices))}
        self.functions = {name: index for index, name in enumerate(module.functions)}
        self._types: _Index[Type] = _Index()
        self._definitions: _Index[tuple[PrimitiveDefinition, str]] = _Index()  # and where each is computed
        self._primitives: dict[tuple[PrimitiveDefinition, str], tuple[int, tuple[Dim, ...]]] = {}
        self._constants: list[np.ndarray] = []
        self.placed: dict[int, str] = {}  # the devices of constants that lie on one, by their indices
        self._holders: dict[int, list[ir.Constant]] = {}  # the module's constants at an index
        self.weights: dict[int, ir.Weight] = {}  # replaceable constants, by their indices
        self._weight_places: dict[tuple[ir.Weight, str], int] = {}
        self._constants_like: dict[tuple, list[int]] = {}  # by dtype, shape and some of the bytes
        self._checksums: dict[int, int] = {}  # of constants that others are like

    def imported(self, name: str) -> tuple[int, FunctionType]:
        """The index of an import, and its type."""
        return list(self.module.imports).index(name), self.module.imports[name]

    def device(self, name: str) -> int:
        """The number of a device, 0 for the host."""
        return self._devices[name]

    def type(self, type_: Type) -> int:
        return self._types.place(erase_dims(type_))

    def constant(self, constant: ir.Constant, device: str = "") -> int:
        place = self._place(constant, device)
        if device:
            self.placed[place] = device
        self._holders.setdefault(place, []).append(constant)
        return place

    def _place(self, constant: ir.Constant, device: str) -> int:
        array = np.require(constant.array, requirements="C")
        if isinstance(constant, ir.Weight):
            return self._weight(constant, array, device)
        elements = constant_bytes(array)
        alike = self._constants_like.setdefault((array.dtype.name, array.shape, _sample(elements), device), [])
        found = next((index for index in alike if self._constants[index] is array), None)
        if found is None and alike:
            checksum = crc32([elements])
            equal = (index for index in alike if self._checksum(index) == checksum and self._is_equal(index, elements))
            found = next(equal, None)
        if found is None:
            found = len(self._constants)
            alike.append(found)
            self._constants.append(array)
        return found

    def _checksum(self, index: int) -> int:
        """A checksum of all bytes of a constant."""
        if index not in self._checksums:
            self._checksums[index] = crc32([constant_bytes(self._constants[index])])
        return self._checksums[index]

    def _is_equal(self, index: int, elements: memoryview) -> bool:
        other = constant_bytes(self._constants[index])
        return bool(np.array_equal(np.frombuffer(other, np.uint8), np.frombuffer(elements, np.uint8)))

    def _weight(self, weight: ir.Weight, array: np.ndarray, device: str) -> int:
        """Adds a weight without sharing: equal ones may be replaced separately."""
        place = self._weight_places.get((weight, device))
        if place is None:
            place = self._weight_places[weight, device] = len(self._constants)
            self.weights[place] = weight
            self._constants.append(array)
        return place

    def primitive(self, definition: PrimitiveDefinition, device: str = "") -> tuple[int, tuple[Dim, ...]]:
        """The index of a definition up to names of variables, and the values of its variables here."""
        found = self._primitives.get((definition, device))
        if found is None:
            general, meanings = abstracted(definition)
            place = self._definitions.place((with_canonical_variables(general), device))
            found = self._primitives[definition, device] = place, tuple(meanings[name] for name in general.variables)
        return found

    def definition(self, index: int) -> PrimitiveDefinition:
        return self._definitions.entries()[index][0]

    def types(self) -> tuple[Type, ...]:
        return self._types.entries()

    def constants(self) -> tuple[np.ndarray, ...]:
        """The constants, in order; the module's own refer to these from now on."""
        self._constants = [spill.kept(array, is_last=True) for array in self._constants]
        gather(self._constants, self._move)
        return tuple(self._constants)

    def _move(self, place: int, array: np.ndarray) -> None:
        for constant in self._holders.get(place, ()):
            constant.move(array)

    def primitives(self) -> tuple[Primitive, ...]:
        """Named after their operators, in order of first use: conv_add_relu, conv_add_relu_1, …"""
        used: dict[str, int] = {}
        named = []
        for definition, device in self._definitions.entries():
            base = _describe(definition)
            count = used[base] = used.get(base, -1) + 1
            named.append(Primitive(f"{base}_{count}" if count else base, definition, device))
        return tuple(named)


def _sample(elements: memoryview) -> int:
    """A checksum of some of the bytes: constants of the same shape rarely have the same."""
    step = max(_SAMPLED, len(elements) // _SAMPLES)
    checksum = crc32([elements[start : start + _SAMPLED] for start in range(0, len(elements), step)])
    mapped.release(elements)  # systems map more around what is read
    return checksum


def _describe(definition: PrimitiveDefinition) -> str:
    operators = [node.operator for node in definition.nodes if node.operator != "constant"]
    shown = operators if len(operators) <= _SHOWN else [*operators[: _SHOWN - 1], "etc"]
    return "_".join(shown)[: limits.SECTION_NAME_BYTES] or "constant"


_SHOWN = 6  # operators in a primitive's name


def with_canonical_variables(definition: PrimitiveDefinition) -> PrimitiveDefinition:
    """`definition` with its variables called d0, d1, …, so that functions with other names of dimensions share it."""
    names: dict[str, dims.Dim] = {name: dims.variable(f"d{i}") for i, name in enumerate(definition.variables)}
    if not names:
        return definition

    def rename(type_: Type) -> Type:
        return substitute_dims(type_, names)

    def rename_value(value: AttributeValue) -> AttributeValue:
        if isinstance(value, tuple):
            return tuple(map(rename_value, value))
        return dims.substitute(value, names) if isinstance(value, SymbolicDim) else value

    nodes = tuple(
        PrimitiveNode(
            node.operator,
            node.inputs,
            tuple(map(rename, node.results)),  # type: ignore[arg-type]
            tuple((name, rename_value(value)) for name, value in node.attributes),
            node.origin,
        )
        for node in definition.nodes
    )
    params = tuple(map(rename, definition.params))
    return PrimitiveDefinition(params, nodes, definition.outputs, tuple(map(str, names.values())))  # type: ignore[arg-type]
