"""Products with constant matrices that are dequantised from 2 to 8-bit integers, and rows taken from such matrices:
the integers stay narrow, in memory and in the file.

A matrix is recognised by its elements, not by the operators that lay them out: each of these, such as reshape,
permute_dims and slice, is applied to integers, scales and zero points alike; a group begins where scales or
zero points of neighbouring rows differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .....formats.primitive import PrimitiveDefinition
from .... import ir
from ....operators.recurrent import recurrent_words
from ....operators.table import lookup
from ....passes.rewriting import Emitter, constant, operator_call, rewriting, tensor_type
from .. import costs
from ..operators.dequantized import PACKINGS, Packing
from ..operators.int8 import LARGEST, is_exact, packed_columns
from ..operators.packing import pack_matrix
from .dequantized_rows import rows

_BITS = 8
_BYTES = (np.int8, np.uint8)
_LONGEST = 128  # most rows of a group: longer groups have coarser rounding, and less exact sums
# Operators that only move elements.
_LAYOUT = frozenset({"reshape", "permute_dims", "expand_dims", "squeeze", "slice", "broadcast_to"})


@dataclass(frozen=True)
class _Numbers:
    """Elements (number - zero) · scale. Scales and zero points have the shape of the numbers."""

    numbers: np.ndarray
    scale: np.ndarray
    zero: np.ndarray


@dataclass(frozen=True)
class _Packed:
    """The operands of matmul_dequantized for one matrix."""

    operands: tuple[ir.Constant, ...]
    group: int
    bits: int


@dataclass(frozen=True)
class _Columns:
    """Elements code · scale, of one scale a column."""

    codes: np.ndarray
    scale: np.ndarray


class _Walk(Emitter):
    def __init__(self, module: ir.Module, byte_speed: float) -> None:
        super().__init__(module)
        self.byte_speed = byte_speed
        self.calls: dict[ir.Var, ir.OperatorCall] = {}  # calls whose results' elements may be known
        # by matrix, and whether rows may be rounded: operands, or panels of int8
        self.packed: dict[tuple[ir.Var, bool], _Packed | ir.Constant | None] = {}

    def call(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        if call.operator == "matmul":
            self.begin(binding)
            product = self._product(binding, call)
            return (*self.new, product)
        if call.operator == "lstm":
            return (self._layer(binding, call),)
        if call.operator == "take":
            return self._rows(binding, call)
        is_known = not PrimitiveDefinition.variables_of((), tuple(value for _, value in call.attributes))
        if (call.operator == "dequantize" or call.operator in _LAYOUT or _pads_zeros(call)) and is_known:
            self.calls[binding.var] = call
        return (binding,)

    def _product(self, binding: ir.Binding, call: ir.OperatorCall) -> ir.Binding:
        a, b = call.args
        if not isinstance(b, ir.Var) or tensor_type(a).rank < 2 or tensor_type(b).rank != 2 or b not in self.calls:
            return binding
        may_round, columns = bool(dict(call.attributes).get("int8_rows")), tensor_type(b).shape[1]
        if (b, may_round) not in self.packed:
            self.packed[b, may_round] = self._packed(b, may_round)
        packed = self.packed[b, may_round]
        if packed is None:
            return binding
        if isinstance(packed, ir.Constant):
            product = operator_call("matmul_int8_packed", self.emit("quantize_rows", a), packed, columns=columns)
        else:
            sizes = {"columns": columns, "group": packed.group, "bits": packed.bits, "int8_rows": may_round}
            product = operator_call("matmul_dequantized", a, *packed.operands, **sizes)
        return ir.Binding(binding.var, product, binding.origin)

    def _packed(self, matrix: ir.Var, may_round: bool) -> _Packed | ir.Constant | None:
        """A matrix as operands, or as panels of int8 if rows may be rounded and that loses nothing."""
        found = self._numbers(matrix)
        if found is None:
            return None
        packed = _packed(found)
        columns = _columns(found) if may_round and (packed is None or packed.bits == _BITS) else None
        return packed if columns is None else constant(packed_columns(columns.codes, columns.scale[0]))

    def _layer(self, binding: ir.Binding, call: ir.OperatorCall) -> ir.Binding:
        """A layer whose states may be rounded, by integers if it is long enough."""
        projected, weights, *others = call.args
        attributes = dict(call.attributes)
        may_round = attributes.pop("int8_rows", False) and self.byte_speed > 1
        if not may_round or not isinstance(weights, ir.Var) or weights not in self.calls:
            return binding
        units = tensor_type(weights).shape[2]
        is_long = isinstance(units, int) and units >= costs.RECURRENT_PAIRS
        found = self._numbers(weights) if is_long else None
        columns = None if found is None else _columns(found, axis=2)
        if columns is None:
            return binding
        words = constant(recurrent_words(columns.codes, columns.scale))
        return ir.Binding(binding.var, operator_call("lstm", projected, words, *others, **attributes), binding.origin)

    def _rows(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        table, places = call.args
        is_row = lookup("take").bind(call.attributes)["axis"] in (0, -2) and tensor_type(table).rank == 2
        found = self._numbers(table) if is_row and isinstance(table, ir.Var) and table in self.calls else None
        if found is None or not found.numbers.size:
            return (binding,)
        self.begin(binding)
        self.atoms[binding.var] = rows(self, found.numbers, found.scale, found.zero, places)
        return self.new

    def _numbers(self, matrix: ir.Var) -> _Numbers | None:
        """The integers that a matrix is dequantised from, in its layout; None if unknown."""
        moves = []
        while (call := self.calls[matrix]).operator != "dequantize":
            moves.append(call)
            if len(call.args) != 1 or not isinstance(call.args[0], ir.Var) or call.args[0] not in self.calls:
                return None
            matrix = call.args[0]
        numbers, scale, zero = map(self._elements, call.args)
        if numbers is None or scale is None or zero is None or numbers.dtype not in _BYTES:
            return None
        whole = np.broadcast_shapes(numbers.shape, scale.shape, zero.shape)
        found = [np.broadcast_to(array, whole) for array in (numbers, scale, zero)]
        for move in reversed(moves):
            found = [_evaluated(move, [array]) for array in found]
        return _Numbers(*found)

    def _elements(self, atom: ir.Atom) -> np.ndarray | None:
        """The elements of a constant, perhaps in another layout."""
        if isinstance(atom, ir.Constant):
            return atom.value
        if not isinstance(atom, ir.Var) or atom not in self.calls:
            return None
        call = self.calls[atom]
        arrays = [self._elements(arg) for arg in call.args]
        known = [array for array in arrays if array is not None]
        return _evaluated(call, known) if len(known) == len(arrays) else None


def _columns(found: _Numbers, axis: int = 0) -> _Columns | None:
    """The elements as int8 whose sums with uint8 are exact; None where they do not fit, or scales differ along the axis."""
    codes, scale = np.subtract(found.numbers, found.zero, dtype=np.int16), found.scale.take([0], axis)
    narrow = codes.astype(np.int8)
    if (
        not is_exact(codes.shape[axis], LARGEST + 1)
        or not codes.size
        or np.any(codes != narrow)
        or np.any(found.scale != scale)
    ):
        return None
    return _Columns(narrow, scale.astype(np.float32))


def _pads_zeros(call: ir.OperatorCall) -> bool:
    """Whether the call adds zeros, of which zeros with a scale of zero may be dequantised."""
    if call.operator != "pad":
        return False
    attributes = lookup("pad").bind(call.attributes)
    return attributes["mode"] == "constant" and attributes["value"] == 0


def _evaluated(call: ir.OperatorCall, arrays: Sequence[np.ndarray]) -> np.ndarray:
    return lookup(call.operator).evaluate(arrays, call.attributes)[0]


def _packed(found: _Numbers) -> _Packed | None:
    """The operands; None for integers whose groups do not suit the operator."""
    shift = 128 if found.numbers.dtype == np.int8 else 0
    numbers, zeros = (np.add(array, shift, dtype=np.int16) for array in (found.numbers, found.zero))
    for packing in PACKINGS.values():
        lowest = shift - packing.middle if shift else 0
        fits = all(_is_within(array, lowest, lowest + (1 << packing.bits)) for array in (numbers, zeros))
        group = _group(found, packing) if fits else None
        if group is not None:
            firsts = slice(None, None, group)
            operands = [packing.packed((numbers - lowest).astype(np.uint8)), pack_matrix(found.scale[firsts])]
            if np.any(zeros - lowest != packing.middle):
                operands.append(pack_matrix((zeros[firsts] - lowest).astype(np.uint8)))
            return _Packed(tuple(map(constant, operands)), group, packing.bits)
    return None


def _is_within(numbers: np.ndarray, begin: int, end: int) -> bool:
    return numbers.size > 0 and numbers.min() >= begin and numbers.max() < end


def _group(found: _Numbers, packing: Packing) -> int | None:
    """The rows, in whole words, that share scales and zero points, also as parts of longer groups; None if that varies in a
    word."""
    begins = np.zeros(len(found.scale), bool)
    for array in (found.scale, found.zero):
        begins[1:] |= np.any(array[1:] != array[:-1], axis=1)
    places = np.flatnonzero(begins).tolist()
    group = math.gcd(*places, 0 if len(begins) <= _LONGEST else _LONGEST)
    group = group or -(-len(begins) // packing.each) * packing.each
    return group if group % packing.each == 0 else None


DequantizedProducts = rewriting("dequantized_products", _Walk)
