"""The functions of `cpu/vectors/elementary.py` with the bits of native code: the instructions that they emit, executed by NumPy.

A function is emitted once for each element type, number of lanes and CPU. Values are arrays, of one element where LLVM has a
scalar; an address is the memory that lies there.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from llvmlite import ir

from ....native.llvm import NativeTarget
from ....native.numba_frontend import active_target
from ..cpu.target import of
from ..cpu.vectors import elementary, elementary_inverse
from ..cpu.vectors.lanes import ELEMENTS, Lanes

_FUNCTIONS = {each.__name__: each for each in (*elementary.FUNCTIONS, *elementary_inverse.FUNCTIONS)}
NAMES = tuple(_FUNCTIONS)

Array = Any  # of NumPy
Operation = Callable[..., Any]


def call(name: str, *operands: np.ndarray) -> np.ndarray:
    """What the function gives for vectors, of which some may be numbers for all lanes, or for scalars: arrays of one element."""
    arrays = np.broadcast_arrays(*operands)
    lanes = len(arrays[0])
    return _program(name, arrays[0].dtype.name, lanes if lanes > 1 else 0, len(arrays), active_target())(arrays)


@lru_cache(maxsize=1024)
def _program(name: str, element: str, lanes: int, count: int, target: NativeTarget) -> _Program:
    kind, scalar = ELEMENTS[element]
    type_ = ir.VectorType(scalar, lanes) if lanes else scalar
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), [type_] * count), "function")  # no name of C's
    builder = ir.IRBuilder(function.append_basic_block())
    result = _FUNCTIONS[name](*(Lanes(builder, value, kind) for value in function.args))
    builder.ret(result.value)
    return _Program(function, np.dtype(element))


class _Program:
    """A function, of which each value has a place."""

    def __init__(self, function: ir.Function, result: np.dtype) -> None:
        self._result = result
        self._places: dict[int, int] = {}
        self._constants: list[Any] = []
        for value in function.args:
            self._place(value)
        self._blocks = {
            block: [(self._place(each), *self._step(each)) for each in block.instructions] for block in function.blocks
        }
        self._first = function.entry_basic_block

    def _place(self, value: Any) -> int:
        if id(value) not in self._places:
            self._places[id(value)] = len(self._constants)
            self._constants.append((value, _constant(value) if isinstance(value, ir.Constant) else None))
        return self._places[id(value)]

    def _step(self, instruction: Any) -> tuple[Any, list[int]]:
        """What an instruction does, or one of control itself; and the places of its operands."""
        operation, operands = instruction, instruction.operands
        if instruction.opname == "phi":
            operands = [value for value, _ in instruction.incomings]
        elif instruction.opname == "call":
            operation, operands = _called(instruction.callee.name), instruction.args
        elif instruction.opname == "alloca":
            kept = instruction.type.pointee
            operation, operands = partial(np.zeros, _lanes(kept), _dtype(kept)), []
        elif instruction.opname == "shufflevector":
            lanes = [each.constant for each in operands[2].constant]
            operation, operands = partial(_shuffled, np.array(lanes)), operands[:2]
        elif instruction.opname not in ("br", "ret"):
            operation = _operation(instruction)
        return operation, [self._place(each) for each in operands if not isinstance(each, ir.Block)]

    def __call__(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        values = [constant for _, constant in self._constants]
        values[: len(arrays)] = [_signed(array) for array in arrays]
        block, before = self._first, None
        while True:
            onward = None
            for place, operation, operands in self._blocks[block]:
                if not isinstance(operation, ir.Instruction):
                    values[place] = operation(*[values[each] for each in operands])
                elif operation.opname == "phi":
                    blocks = [each for _, each in operation.incomings]
                    values[place] = values[operands[blocks.index(before)]]
                elif operation.opname == "ret":
                    return values[operands[0]].view(self._result)
                else:
                    targets = [each for each in operation.operands if isinstance(each, ir.Block)]
                    onward = targets[0] if not operands or values[operands[0]][0] else targets[1]
            block, before = onward, block


def _dtype(type_: ir.Type) -> np.dtype:
    """Of elements; integers count as signed ones."""
    element = getattr(type_, "element", type_)
    if isinstance(element, ir.IntType):
        return np.dtype(np.bool_ if element.width == 1 else f"int{element.width}")
    return np.dtype({ir.HalfType: np.float16, ir.FloatType: np.float32, ir.DoubleType: np.float64}[type(element)])


def _lanes(type_: ir.Type) -> int:
    return type_.count if isinstance(type_, ir.VectorType) else 1


def _constant(constant: ir.Constant) -> np.ndarray:
    numbers: Any = constant.constant
    dtype = _dtype(constant.type)
    found: list[Any] = (
        [getattr(each, "constant", each) for each in numbers] if isinstance(numbers, (list, tuple)) else [numbers]
    )
    if found[0] is None or found[0] is ir.Undefined:
        return np.zeros(_lanes(constant.type), dtype)
    if dtype.kind == "i":  # as LLVM, which takes the bits
        return np.array([each % (1 << 8 * dtype.itemsize) for each in map(int, found)], f"u{dtype}").view(dtype)
    return np.array(found, dtype)


def _signed(array: np.ndarray) -> np.ndarray:
    return array.view(array.dtype.name[1:]) if array.dtype.kind == "u" else array


def _unsigned(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype}") if array.dtype.kind == "i" else array


def _shuffled(lanes: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([a, b])[lanes]


def _store(value: np.ndarray, memory: np.ndarray) -> None:
    memory[...] = value


_OPERATIONS: dict[str, Operation] = {
    "fneg": np.negative,
    "fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide,
    "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "sdiv": lambda a, b: a // b + ((a % b != 0) & ((a < 0) != (b < 0))),
    "udiv": lambda a, b: _signed(_unsigned(a) // _unsigned(b)),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": np.left_shift, "ashr": np.right_shift, "lshr": lambda a, b: _signed(_unsigned(a) >> _unsigned(b)),
    "select": np.where,
    "getelementptr": lambda memory, place: memory[int(place[0]) :][:1],
    "load": np.copy,
    "store": _store,
}  # fmt: skip

_CASTS: dict[str, Operation] = {
    "bitcast": lambda dtype, a: a.view(dtype),
    **dict.fromkeys(("fpext", "fptrunc", "sitofp", "sext", "trunc", "fptosi"), lambda dtype, a: a.astype(dtype)),
    **dict.fromkeys(("uitofp", "zext"), lambda dtype, a: _unsigned(a).astype(dtype)),
    "fptoui": lambda dtype, a: a.astype(f"u{dtype}").view(dtype),
}

_PREDICATES: dict[str, Operation] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal
}  # fmt: skip


def _operation(instruction: Any) -> Operation:
    """Of arithmetic, comparisons, conversions and memory."""
    name = instruction.opname
    if name in ("icmp", "fcmp"):  # such as "ult"; of floats, only != holds for NaN, as in NumPy
        compare = _PREDICATES[instruction.op[-2:]]
        is_unsigned = name == "icmp" and instruction.op[0] == "u"
        return (lambda a, b: compare(_unsigned(a), _unsigned(b))) if is_unsigned else compare
    if isinstance(instruction.type, ir.PointerType) and name == "bitcast":
        return lambda memory: memory
    return partial(_CASTS[name], _dtype(instruction.type)) if name in _CASTS else _OPERATIONS[name]


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once on a CPU that has an instruction for it."""
    if not of(active_target()).has_fma:
        return a * b + c
    dtype = np.result_type(a, b, c)
    if dtype == np.float64:
        return _fma_of_doubles(a, b, c)
    if dtype != np.float32:
        return a * b + c
    exact = np.multiply(a, b, dtype=np.float64)
    wide = exact + c
    half_way = (wide.view(np.int64) & 0x1FFFFFFF) == 0x10000000  # where rounding twice may differ from rounding once
    if np.count_nonzero(half_way):
        wide = np.where(half_way, to_odd(exact, np.asarray(c, np.float64)), wide)
    return wide.astype(np.float32)


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b and what rounding it has lost (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def to_odd(a: Array, b: Array) -> Array:
    """a + b, rounded to the neighbour whose last bit is set where it is not a double: rounding that again is rounding once."""
    total, lost = _sum(a, b)
    bits = total.view(np.int64)
    nearer_to_zero = bits - ((lost != 0) & ((lost < 0) == (total > 0)))
    return np.where((lost != 0) & np.isfinite(total), nearer_to_zero | 1, bits).view(np.float64)


def _fma_of_doubles(a: Array, b: Array, c: Array) -> Array:
    """By exact products and sums (Dekker; Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008)."""

    def halves(x: Array) -> tuple[Array, Array]:
        high = x * 134217729.0
        high = high - (high - x)
        return high, x - high

    product = a * b
    (ah, al), (bh, bl) = halves(a), halves(b)
    low = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    total, lost = _sum(product, c)
    exact = total + to_odd(np.atleast_1d(lost), np.atleast_1d(low))
    return np.where(np.isfinite(exact), exact, product + c)


def _scaled(a: Array, b: Array, *rest: Array) -> Array:
    """a 2**floor(b), rounded once (Intel, "Instruction Set Reference", VSCALEFPS)."""
    exponent = np.clip(np.floor(np.where(np.isnan(b), 0, b)), -1000, 1000).astype(np.int32)
    return np.where(np.isnan(b), b, np.ldexp(a.astype(np.float64), exponent).astype(a.dtype))


def _behind_point(a: Array, *rest: Array) -> Array:
    """a - floor(a), which is rounded down as floor is; 0 for what is infinite (ibid., VREDUCEPS)."""
    behind, lost = _sum(a, -np.floor(a))
    behind = np.where(lost < 0, np.nextafter(behind, a.dtype.type(-np.inf)), behind)
    return np.where(np.isinf(a), a.dtype.type(0), behind)


_INTRINSICS: dict[str, Operation] = {
    "fmuladd": fma,
    "fabs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "roundeven": np.rint,
    "copysign": np.copysign,
    "vector.reduce.or": lambda mask: mask.any(keepdims=True),
    "x86.avx512.mask.scalef": _scaled,
    "x86.avx512.mask.reduce": _behind_point,
}  # fmt: skip


def _called(name: str) -> Operation:
    if not name.startswith("llvm."):
        return partial(_by_c, name)
    bare = name.removeprefix("llvm.").removesuffix(".512").rpartition(".")[0]
    return _INTRINSICS[bare]


def _by_c(name: str, *operands: np.ndarray) -> np.ndarray:
    """The C library's function of scalars."""
    kind = {np.dtype(np.float32): ctypes.c_float, np.dtype(np.float64): ctypes.c_double}[operands[0].dtype]
    function = _c_function(name, kind, len(operands))
    return np.array([function(*(each[0].item() for each in operands))], operands[0].dtype)


@cache
def _c_function(name: str, kind: Any, count: int) -> Any:
    function = getattr(ctypes.CDLL("ucrtbase" if os.name == "nt" else None), name)
    function.restype, function.argtypes = kind, [kind] * count
    return function
