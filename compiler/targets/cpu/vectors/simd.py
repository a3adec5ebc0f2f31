"""The vocabulary of generated kernels: vectors of numbers as values in Numba functions.

A kernel's text is compiled with the names that `namespace(lanes)` gives. All vectors of a namespace have the same number
of lanes, whatever their element type, so that a float32 and an int64 vector of one place in a tensor convert into each
other; LLVM splits the wide ones over several registers.

    stoppable(args)                   a statement: loops from here on look at the stop word before the arguments
    word(address, i)                  the i-th int64 word, as int64: a dimension, or an address
    load_T(address, offset)           the scalar of type T at address + offset (bytes), which may be any; vectors lie at multiples
                                      of 4, or of their elements' size
    store_T(address, offset, value)   its counterpart
    vload_T(address, offset[, n])     a vector; with n, lanes from n on are zero and their memory is not touched
    vload_between_T(address, offset, l, h)  likewise, of lanes l to h alone
    vload_rows(address, offset, step) in each four lanes, the two 32-bit words there, and the two `step` bytes further
    vstore(address, offset, v[, n])   its counterpart
    vstream(address, offset, v)       the same, non-temporal, to a multiple of 64 or of the vector's bytes; streamed() follows
    vgather_T(address, i[, mask])     the elements number i, a vector of int64, from the address on; zero where not masked
    transpose_T(a, a_step, b, b_step[, rows, columns])
                                      the square of LANES (of 8-byte elements LANES / 2) rows at a, transposed, to b; T a uint
    transpose_T_stream(a, a_step, b, b_step)   the same, written as vstream does
    transpose_T_half(a, a_step, b, b_step), transpose_T_quarter(…)   a half or quarter of the square's columns
    part_T_n(a, b, b_step)            LANES (of 8-byte elements LANES / 2) groups of n neighbours at a: the first ones of all
                                      groups to b, the second ones to b + b_step …; n from 2 to 4, T a uint
    join_T_n(a, a_step, b)            its inverse: the first elements at a, the second ones at a + a_step …, group by group to b
    amx_…(…)                          of `amx.py`
    inside(n)                         the mask of the first n lanes
    min(a, b), max(a, b)              of words
    hidden(a)                         the word a, unknown to LLVM: an address from which it loads again
    parts_for(ns, units, threads)     into how many parts a kernel asks to be split
    atomic_load, atomic_store, atomic_replace, relax
                                      of `native/intrinsics.py`, for words that parts share
    splat_T(value)                    the scalar in every lane                   iota_T()   0, 1, 2, …
    convert_T(v)                      to another element type; also of scalars
    saturated_T(v)                    a whole float32 as the nearest integer of 8 or 16 bits
    + - * / & | ^ ~ < <= == …         lane by lane, a scalar operand is splatted; comparisons give masks (bool vectors)

and the functions of `FUNCTIONS`: fma, select, minimum, exp … which `lanes.py` and `elementary.py` define as Python functions
over `Lanes`, and which work on scalars too. T is a name of `formats/dtypes.py`. Tensors of bool are bytes in memory and
masks in registers; float16 and the types of ml_dtypes are for loads, stores and conversions alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any, Union

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, signature

from .....native import intrinsics
from .....native.convention import FEW, PART_NANOSECONDS, STREAM_ALIGNMENT
from .....native.numba_frontend import MODELS, OPERATIONS, TYPES
from . import amx, conversions, elementary, elementary_inverse, lanes
from .conversions import convert, saturated
from .lanes import (
    ELEMENTS,
    HALF,
    I1,
    I8,
    I32,
    I64,
    IR_TYPES,
    ITEMSIZES,
    Half,
    Kind,
    Kinds,
    Lanes,
    Narrow,
    call_intrinsic,
    joined,
    mangled,
    maximum,
    minimum,
    parted,
    select,
    shuffle,
    side_by_side,
    splat,
    transposed,
)


class Vector(types.Type):
    """Numba's type of `lanes` elements of `dtype` in a register. Vectors of bool are masks."""

    def __init__(self, dtype: Kind, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"vector({dtype} x {lanes})")


class _HalfModel(models.PrimitiveModel):
    def __init__(self, manager: Any, half: Half) -> None:
        super().__init__(manager, half, HALF)


class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, ir.VectorType(IR_TYPES[vector.dtype], vector.lanes))


class _NarrowModel(models.PrimitiveModel):
    def __init__(self, manager: Any, narrow: Narrow) -> None:
        super().__init__(manager, narrow, IR_TYPES[narrow])


MODELS.update({Half: _HalfModel, Narrow: _NarrowModel, Vector: _VectorModel})


# ---- the bridge to Numba ----

Typer = Callable[..., Kind]  # argument types → the result's type, or None where they do not fit
Emitter = Callable[..., Union[ir.Value, None]]  # builder, argument types, values → the result's value


_ANYTHING = (types.VarArg(types.Any),)


def define(function: Callable[..., Any], typer: Typer, emitter: Emitter, kinds: Kinds = _ANYTHING) -> None:
    """Registers `function` with our part of Numba: the type of a call, and its code.

    Numba's `intrinsic` would do, but it knows no optional arguments.
    """

    class Template(AbstractTemplate):
        key = function

        def generic(self, arguments: Kinds, keywords: Any) -> Any:
            arguments = tuple(map(types.unliteral, arguments))
            result = typer(*arguments)
            return None if result is None else signature(result, *arguments)

    TYPES.register_global(function, types.Function(Template))

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, values: list[ir.Value]) -> ir.Value:
        result = emitter(builder, sig.args, values)
        return context.get_dummy_value() if result is None else result

    OPERATIONS.lower(function, *kinds)(emit)


def named(name: str, typer: Typer, emitter: Emitter) -> Callable[..., Any]:
    """A new function that only compiled code can call."""

    def function(*arguments: Any) -> Any:
        raise NotImplementedError(f"{name} is for compiled kernels")

    function.__name__ = name
    define(function, typer, emitter)
    return function


def _lanes_of(builder: ir.IRBuilder, kind: Kind, value: ir.Value) -> Lanes:
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


def emitter_of(function: Callable[..., Lanes]) -> Emitter:
    """The code of a function over `Lanes`, as Numba wants it."""

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        operands = [_lanes_of(builder, kind, value) for kind, value in zip(kinds, values, strict=True)]
        return function(*_agree(operands)).value

    return emitter


def _same(*kinds: Kind) -> Kind:
    """The type of the vector operands; of the scalars, which are of one type, if there are none. Masks count last."""
    vectors = [kind for kind in kinds if isinstance(kind, Vector)]
    if not vectors and len({kind for kind in kinds if kind != types.boolean}) > 1:
        return None
    return next((kind for kind in vectors if kind.dtype != types.boolean), (vectors or kinds)[0])


def _mask(*kinds: Kind) -> Kind:
    vectors = [kind for kind in kinds if isinstance(kind, Vector)]
    return Vector(types.boolean, vectors[0].lanes) if vectors else types.boolean


def _chosen(mask: Kind, a: Kind, b: Kind) -> Kind:
    return _same(a, b) if isinstance(a, Vector) or isinstance(b, Vector) or not isinstance(mask, Vector) else None


def _element(vector: Kind) -> Kind:
    return vector.dtype if isinstance(vector, Vector) else None


# The functions over `Lanes` that kernels may call, by how their result is typed
FUNCTIONS: dict[Callable[..., Lanes], Typer] = {
    **dict.fromkeys((lanes.fma, lanes.maximum, lanes.minimum, lanes.absolute, lanes.copysign), _same),
    **dict.fromkeys((lanes.sqrt, lanes.floor, lanes.ceil, lanes.trunc, lanes.round_even, lanes.even_lanes), _same),
    **dict.fromkeys((lanes.interleaved, lanes.looked_up, lanes.horizontal_sums, conversions.round_bfloat16), _same),
    **dict.fromkeys((*lanes.DOTS, *lanes.REPEATERS, lanes.interleaved_last), _same),
    **dict.fromkeys((lanes.pairs_interleaved, lanes.pairs_interleaved_last, lanes.even_pairs, lanes.odd_pairs), _same),
    **dict.fromkeys((*elementary.FUNCTIONS, *elementary_inverse.FUNCTIONS), _same),
    **dict.fromkeys((lanes.isnan, lanes.isinf, lanes.isfinite), _mask),
    **dict.fromkeys((lanes.horizontal_sum, lanes.horizontal_product), _element),
    **dict.fromkeys((lanes.horizontal_maximum, lanes.horizontal_minimum), _element),
    **dict.fromkeys((lanes.any_lane, lanes.all_lanes), _element),
    **dict.fromkeys((lanes.first_lane, lanes.last_lane), lambda mask: types.int64),
    lanes.select: _chosen,
    **dict.fromkeys(
        (conversions.nibbles, conversions.nibbles_512, conversions.upper_halves, conversions.lower_halves),
        lambda words: Vector(types.float32, words.lanes),
    ),
    **dict.fromkeys(
        (conversions.bfloat16_pairs, conversions.bfloat16_words),
        lambda a, b: Vector(types.int32, a.lanes) if a == b else None,
    ),
    conversions.from_upper_halves: lambda a: Vector(types.float32, a.lanes) if isinstance(a, Vector) else None,
}


_ARITHMETIC: tuple[Callable[..., Any], ...] = (operator.add, operator.sub, operator.mul, operator.truediv)
_BITWISE = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)
_COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
_UNARY: tuple[Callable[..., Any], ...] = (operator.neg, operator.invert)


def _operator_typer(is_comparison: bool) -> Typer:
    def typer(*kinds: Kind) -> Kind:
        vectors = [kind for kind in kinds if isinstance(kind, Vector)]
        if not vectors or any(vector != vectors[0] for vector in vectors):
            return None
        return _mask(*kinds) if is_comparison else vectors[0]

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


def _alignment(dtype: Kind) -> int:
    """Tensors from outside are aligned to 4 bytes, whatever their element type."""
    return min(4, ITEMSIZES[dtype])


def _memory_type(dtype: Kind, lanes: int) -> ir.Type:
    element = I8 if dtype == types.boolean else IR_TYPES[dtype]
    return ir.VectorType(element, lanes) if lanes else element


def _from_memory(builder: ir.IRBuilder, value: ir.Value, dtype: Kind) -> ir.Value:
    return convert(Lanes(builder, value, types.uint8), dtype).value if dtype == types.boolean else value


def _to_memory(a: Lanes) -> ir.Value:
    return convert(a, types.uint8).value if a.dtype == types.boolean else a.value


def first_lanes(builder: ir.IRBuilder, count: ir.Value, lanes: int) -> ir.Value:
    """The mask of the lanes before `count`, an int64."""
    places = ir.Constant(ir.VectorType(I64, lanes), list(range(lanes)))
    return builder.icmp_signed("<", places, splat(Lanes(builder, count, types.int64), lanes).value)


def _is_place(*kinds: Kind) -> bool:
    """Whether these are types of addresses, offsets and counts. All 64-bit integers are the same to LLVM."""
    return all(kind in (types.int64, types.uint64) for kind in kinds)


def _load_vector(
    builder: ir.IRBuilder, pointer: ir.Value, memory: ir.Type, alignment: int, count: ir.Value = None
) -> ir.Value:
    if count is None:
        loaded = builder.load(pointer)
        loaded.align = alignment
        return loaded
    mask = first_lanes(builder, count, memory.count)
    operands = [pointer, ir.Constant(I32, alignment), mask, ir.Constant(memory, None)]
    return call_intrinsic(builder, f"masked.load.{mangled(memory)}.p0", memory, operands)


def _hidden(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    """The same number, hidden from LLVM's optimiser.

    LLVM (22.1) turns a masked store of one known lane into a plain one and, for integers that are narrowed on the
    way, stores the wide one: a cast of one int32 to int8 wrote four bytes.
    """
    return builder.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [count], False)


def _store_vector(
    builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, alignment: int, count: ir.Value = None
) -> None:
    if count is None:
        builder.store(value, pointer).align = alignment
        return
    if isinstance(value.type.element, ir.IntType):
        count = _hidden(builder, count)
    mask = first_lanes(builder, count, value.type.count)
    operands = [value, pointer, ir.Constant(I32, alignment), mask]
    call_intrinsic(builder, f"masked.store.{mangled(value.type)}.p0", ir.VoidType(), operands)


def _vector_load(name: str, dtype: Kind, lanes: int) -> Callable[..., Any]:
    memory = _memory_type(dtype, lanes)

    def typer(*kinds: Kind) -> Kind:
        return Vector(dtype, lanes) if len(kinds) in (2, 3) and _is_place(*kinds) else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        address, offset, *count = values
        loaded = _load_vector(builder, _pointer(builder, address, offset, memory), memory, _alignment(dtype), *count)
        return _from_memory(builder, loaded, dtype)

    return named(name, typer, emitter)


def _gather(name: str, dtype: Kind, lanes: int) -> Callable[..., Any]:
    memory = _memory_type(dtype, lanes)

    def typer(address: Kind, indices: Kind, *mask: Kind) -> Kind:
        fits = isinstance(indices, Vector) and indices.dtype == types.int64 and _is_place(address)
        return Vector(dtype, lanes) if fits else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        address, indices, *mask = values
        places = Lanes(builder, indices, types.int64) * ITEMSIZES[dtype]
        places = places + splat(Lanes(builder, address, types.int64), lanes)
        pointers = builder.inttoptr(places.value, ir.VectorType(ir.PointerType(), lanes))
        selected = mask[0] if mask else ir.Constant(ir.VectorType(I1, lanes), [1] * lanes)
        operands = [pointers, ir.Constant(I32, _alignment(dtype)), selected, ir.Constant(memory, None)]
        loaded = call_intrinsic(builder, f"masked.gather.{mangled(memory)}.v{lanes}p0", memory, operands)
        return _from_memory(builder, loaded, dtype)

    return named(name, typer, emitter)


def _load_between(name: str, dtype: Kind, lanes: int) -> Callable[..., Any]:
    memory = _memory_type(dtype, lanes)

    def typer(*kinds: Kind) -> Kind:
        return Vector(dtype, lanes) if len(kinds) == 4 and _is_place(*kinds) else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        address, offset, low, high = values
        mask = builder.and_(first_lanes(builder, high, lanes), builder.not_(first_lanes(builder, low, lanes)))
        pointer = _pointer(builder, address, offset, memory)
        operands = [pointer, ir.Constant(I32, _alignment(dtype)), mask, ir.Constant(memory, None)]
        loaded = call_intrinsic(builder, f"masked.load.{mangled(memory)}.p0", memory, operands)
        return _from_memory(builder, loaded, dtype)

    return named(name, typer, emitter)


def _load_rows(lanes: int) -> Callable[..., Any]:
    def typer(*kinds: Kind) -> Kind:
        return Vector(types.int32, lanes) if len(kinds) == 3 and _is_place(*kinds) else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        address, offset, step = values
        both = ir.Constant(ir.VectorType(I64, 2), ir.Undefined)
        for number, place in enumerate((offset, builder.add(offset, step))):
            row = builder.load(_pointer(builder, address, place, I64), align=_alignment(types.int32))
            both = builder.insert_element(both, row, ir.Constant(I32, number))
        words = Lanes(builder, builder.bitcast(both, ir.VectorType(I32, 4)), types.int32)
        return shuffle(words, words, [lane % 4 for lane in range(lanes)]).value

    return named("vload_rows", typer, emitter)


def _type_vstore(address: Kind, offset: Kind, value: Kind, *count: Kind) -> Kind:
    return types.void if isinstance(value, Vector) and _is_place(address, offset, *count) else None


def _emit_vstore(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
    address, offset, value, *count = values
    vector = kinds[2]
    stored = _to_memory(Lanes(builder, value, vector.dtype))
    _store_vector(builder, stored, _pointer(builder, address, offset, stored.type), _alignment(vector.dtype), *count)


def _stream_vector(builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, itemsize: int) -> None:
    stored = builder.store(value, pointer)
    stored.align = min(STREAM_ALIGNMENT, value.type.count * itemsize)
    stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(I32, 1)]))


def _emit_vstream(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
    address, offset, value = values
    stored = _to_memory(Lanes(builder, value, kinds[2].dtype))
    pointer = _pointer(builder, address, offset, stored.type)
    _stream_vector(builder, stored, pointer, ITEMSIZES[kinds[2].dtype])


def _emit_streamed(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
    """A store fence: non-temporal stores become visible before any later store."""
    builder.fence("seq_cst")


def _transposer(name: str, dtype: Kind, side: int, streams: bool = False) -> Callable[..., Any]:
    memory, alignment = _memory_type(dtype, side), _alignment(dtype)
    takes = (4,) if streams else (4, 6)

    def typer(*kinds: Kind) -> Kind:
        return types.void if len(kinds) in takes and _is_place(*kinds) else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
        source, source_step, target, target_step, *counts = values
        rows, columns = counts or (None, None)

        def rest(row: int, count: ir.Value, width: ir.Value) -> tuple[ir.Value, ir.Value]:
            """The row to access instead of this one, and its length: nothing of row 0 for those from row `count` on. Even
            if nothing is read or written there, an address that has no memory yet takes the processor long to find out."""
            number = ir.Constant(I64, row)
            if count is None:
                return number, None
            zero, is_there = ir.Constant(I64, 0), builder.icmp_signed("<", number, count)
            return builder.select(is_there, number, zero), builder.select(is_there, width, zero)

        def place(address: ir.Value, step: ir.Value, row: ir.Value) -> ir.Value:
            return _pointer(builder, address, builder.mul(step, row), memory)

        lines = []
        for row in range(side):
            number, width = rest(row, rows, columns)
            line = _load_vector(builder, place(source, source_step, number), memory, alignment, width)
            lines.append(Lanes(builder, line, dtype))
        for row, turned in enumerate(transposed(lines)):
            number, width = rest(row, columns, rows)
            pointer = place(target, target_step, number)
            if streams:
                _stream_vector(builder, turned.value, pointer, ITEMSIZES[dtype])
            else:
                _store_vector(builder, turned.value, pointer, alignment, width)

    return named(name, typer, emitter)


def _transposer_of_columns(name: str, dtype: Kind, side: int, columns: int) -> Callable[..., Any]:
    """The same for `columns` of a square's columns: narrow squares are put side by side, then transposed."""
    memory, whole, alignment = _memory_type(dtype, columns), _memory_type(dtype, side), _alignment(dtype)

    def typer(*kinds: Kind) -> Kind:
        return types.void if len(kinds) == 4 and _is_place(*kinds) else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
        source, source_step, target, target_step = values

        def place(address: ir.Value, step: ir.Value, row: int, kind: ir.Type) -> ir.Value:
            return _pointer(builder, address, builder.mul(step, ir.Constant(I64, row)), kind)

        pointers = [place(source, source_step, row, memory) for row in range(side)]
        lines = [Lanes(builder, _load_vector(builder, pointer, memory, alignment), dtype) for pointer in pointers]
        squares = [side_by_side(lines[row::columns]) for row in range(columns)]
        for row, turned in enumerate(transposed(squares)):
            _store_vector(builder, turned.value, place(target, target_step, row, whole), alignment)

    return named(name, typer, emitter)


def _parter(name: str, dtype: Kind, side: int, count: int, joins: bool) -> Callable[..., Any]:
    """part_T_n, or join_T_n."""
    memory, alignment, size = _memory_type(dtype, side), _alignment(dtype), ITEMSIZES[dtype]

    def typer(*kinds: Kind) -> Kind:
        return types.void if len(kinds) == 3 and _is_place(*kinds) else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
        def neighbours(address: ir.Value) -> list[ir.Value]:
            return [_pointer(builder, address, ir.Constant(I64, i * side * size), memory) for i in range(count)]

        def apart(address: ir.Value, step: ir.Value) -> list[ir.Value]:
            return [_pointer(builder, address, builder.mul(step, ir.Constant(I64, i)), memory) for i in range(count)]

        if joins:
            sources, targets = apart(values[0], values[1]), neighbours(values[2])
        else:
            sources, targets = neighbours(values[0]), apart(values[1], values[2])
        vectors = [Lanes(builder, _load_vector(builder, place, memory, alignment, None), dtype) for place in sources]
        for place, vector in zip(targets, (joined if joins else parted)(vectors), strict=True):
            _store_vector(builder, vector.value, place, alignment, None)

    return named(name, typer, emitter)


def _scalar_load(name: str, dtype: Kind) -> Callable[..., Any]:
    def typer(address: Kind, offset: Kind) -> Kind:
        return dtype if _is_place(address, offset) else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        loaded = builder.load(_pointer(builder, values[0], values[1], _memory_type(dtype, 0)))
        loaded.align = 1  # runs of narrower elements are copied as words
        return _from_memory(builder, loaded, dtype)

    return named(name, typer, emitter)


def _scalar_store(name: str, dtype: Kind) -> Callable[..., Any]:
    def typer(address: Kind, offset: Kind, value: Kind) -> Kind:
        return types.void if _is_place(address, offset) and value in IR_TYPES else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
        stored = _to_memory(convert(Lanes(builder, values[2], kinds[2]), dtype))
        builder.store(stored, _pointer(builder, values[0], values[1], stored.type)).align = 1

    return named(name, typer, emitter)


def _mask_of_first(lanes: int) -> Callable[..., Any]:
    return named(
        "inside",
        lambda count: Vector(types.boolean, lanes) if _is_place(count) else None,
        lambda builder, kinds, values: first_lanes(builder, values[0], lanes),
    )


def _splat_to(name: str, dtype: Kind, lanes: int) -> Callable[..., Any]:
    def typer(scalar: Kind) -> Kind:
        return Vector(dtype, lanes) if scalar in IR_TYPES else None

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        return splat(convert(Lanes(builder, values[0], kinds[0]), dtype), lanes).value

    return named(name, typer, emitter)


def _iota_of(name: str, dtype: Kind, lanes: int) -> Callable[..., Any]:
    return named(
        name,
        lambda: Vector(dtype, lanes),
        lambda builder, kinds, values: ir.Constant(ir.VectorType(IR_TYPES[dtype], lanes), list(range(lanes))),
    )


def _saturate_to(name: str, dtype: Kind) -> Callable[..., Any]:
    def typer(value: Kind) -> Kind:
        return Vector(dtype, value.lanes) if isinstance(value, Vector) and value.dtype == types.float32 else None

    return named(name, typer, emitter_of(lambda a: saturated(a, dtype)))


def _convert_to(name: str, dtype: Kind) -> Callable[..., Any]:
    def typer(value: Kind) -> Kind:
        return Vector(dtype, value.lanes) if isinstance(value, Vector) else dtype

    return named(name, typer, emitter_of(lambda a: convert(a, dtype)))


def _type_word(address: Kind, index: Kind) -> Kind:
    return types.int64 if _is_place(address, index) else None


def _emit_word(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
    return builder.load(builder.gep(builder.inttoptr(values[0], I64.as_pointer()), [values[1]]))


def _type_prefetch(address: Kind, offset: Kind) -> Kind:
    return types.void if _is_place(address, offset) else None


def _emit_prefetch(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> None:
    """Prefetches a cache line to L1; harmless where there is no memory.

    Prefetching to L2 only is up to a fifth slower from memory on Zen 5.
    """
    read, nearest, data = (ir.Constant(I32, number) for number in (0, 3, 1))
    pointer = _pointer(builder, values[0], values[1], I8)
    call_intrinsic(builder, "prefetch.p0", ir.VoidType(), [pointer, read, nearest, data])


def _of_words(intrinsic: intrinsics.Intrinsic) -> Callable[..., Any]:
    """An intrinsic that functions of words call, too."""

    def emitter(builder: ir.IRBuilder, kinds: Kinds, values: list[ir.Value]) -> ir.Value:
        return intrinsic.emit(builder, *values)

    return named(intrinsic.__name__, lambda *kinds: types.int64 if _is_place(*kinds) else None, emitter)


def _of_amx(name: str, count: int, emit: Callable[..., None]) -> Callable[..., Any]:
    def typer(*kinds: Kind) -> Kind:
        return types.void if len(kinds) == count and _is_place(*kinds) else None

    return named(name, typer, lambda builder, kinds, values: emit(builder, *values))


def _type_choice(a: Kind, b: Kind) -> Kind:
    return types.int64 if a == b == types.int64 else None


def _type_parts(nanoseconds: Kind, units: Kind, threads: Kind) -> Kind:
    return types.int64 if _is_place(nanoseconds, units, threads) else None


def _parts_for(nanoseconds: Lanes, units: Lanes, threads: Lanes) -> Lanes:
    """The number of parts for work of `nanoseconds`: at most its units."""
    worthy = Lanes(
        nanoseconds.builder,
        nanoseconds.builder.sdiv(nanoseconds.value, nanoseconds.of(PART_NANOSECONDS).value),
        types.int64,
    )
    # several parts for each thread balance parts, and cores, of unequal speed
    parts = minimum(minimum(worthy, units), threads * 8)
    return select((worthy < 2) | (threads < 2), parts.of(1), maximum(parts.of(1), parts))


_COMMON = {
    "math": math,
    "min": named("min", _type_choice, emitter_of(minimum)),
    "max": named("max", _type_choice, emitter_of(maximum)),
    "parts_for": named("parts_for", _type_parts, emitter_of(_parts_for)),
    "word": named("word", _type_word, _emit_word),
    "hidden": named(
        "hidden",
        lambda address: types.int64 if _is_place(address) else None,
        lambda builder, kinds, values: _hidden(builder, values[0]),
    ),
    "prefetch": named("prefetch", _type_prefetch, _emit_prefetch),
    **{
        name: _of_words(getattr(intrinsics, name))
        for name in ("atomic_load", "atomic_store", "atomic_replace", "relax")
    },
    **{name: _of_amx(name, count, emit) for name, (count, emit) in amx.INSTRUCTIONS.items()},
    "vstore": named("vstore", _type_vstore, _emit_vstore),
    "vstream": named("vstream", _type_vstore, _emit_vstream),
    "streamed": named("streamed", lambda: types.void, _emit_streamed),
    **{
        function.__name__: named(function.__name__, typer, emitter_of(function))
        for function, typer in FUNCTIONS.items()
    },
    **{
        f"saturated_{name}": _saturate_to(f"saturated_{name}", ELEMENTS[name][0])
        for name in ("int8", "uint8", "int16", "uint16")
    },
    **{f"convert_{name}": _convert_to(f"convert_{name}", dtype) for name, (dtype, _) in ELEMENTS.items()},
}
for _name, (_dtype, _) in ELEMENTS.items():
    _COMMON[f"load_{_name}"] = _scalar_load(f"load_{_name}", _dtype)
    _COMMON[f"store_{_name}"] = _scalar_store(f"store_{_name}", _dtype)


@cache
def namespace(lanes: int) -> dict[str, Any]:
    """The global names of a generated kernel whose vectors have `lanes` lanes. Copy it before you execute a text in it."""
    names = dict(_COMMON)
    names["inside"] = _mask_of_first(lanes)
    names["vload_rows"] = _load_rows(lanes)
    for name, (dtype, _) in ELEMENTS.items():
        names[f"vload_{name}"] = _vector_load(f"vload_{name}", dtype, lanes)
        names[f"vload_between_{name}"] = _load_between(f"vload_between_{name}", dtype, lanes)
        names[f"vgather_{name}"] = _gather(f"vgather_{name}", dtype, lanes)
        names[f"splat_{name}"] = _splat_to(f"splat_{name}", dtype, lanes)
        if name.startswith("uint"):
            side = min(lanes, 4 * lanes // ITEMSIZES[dtype])
            for title, streams in ((f"transpose_{name}", False), (f"transpose_{name}_stream", True)):
                names[title] = _transposer(title, dtype, side, streams)
            for part, title in ((2, f"transpose_{name}_half"), (4, f"transpose_{name}_quarter")):
                names[title] = _transposer_of_columns(title, dtype, side, max(1, side // part))
            for count in FEW:
                for verb in ("part", "join"):
                    title = f"{verb}_{name}_{count}"
                    names[title] = _parter(title, dtype, side, count, joins=verb == "join")
        if isinstance(dtype, types.Integer):
            names[f"iota_{name}"] = _iota_of(f"iota_{name}", dtype, lanes)
    return names
