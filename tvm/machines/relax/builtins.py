"""The functions `vm.builtin.*` that programs of the Relay VM's successor call by name: shapes, checks, storage, tuples, closures.

This module is imported for the first of them (`modules/__init__.py`), and imports those of the other modules.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np

from ....formats import dims
from ....formats.data_type import DataType
from ....formats.dtypes import DType
from ....formats.messages.errors import (
    ArgumentError,
    CheckError,
    ExecutionError,
    IndexOutOfRangeError,
)
from ....vm.device import Device
from ....vm.tensor import Tensor, require_cpu
from ...modules.containers import Array, Object, ShapeTuple
from ...modules.registry import PackedFunc, get_global_func
from . import caches, devices, paged_cache, recurrent_state, sampling, tensor_cache  # noqa: F401  they register theirs
from .machine import VMClosure
from .registering import builtin, calling_builtin
from .values import parts, required, reshaped, sizes, tensor, truth

# what is done with a dimension: `match_shape`, then `make_shape`
ASSERT_EQUAL_TO_IMM, STORE_TO_HEAP, NO_OP, ASSERT_EQUAL_TO_LOAD = range(4)
USE_IMM, LOAD_SHAPE = range(2)


def size_of(dtype: Any) -> np.dtype:
    """NumPy's name of an element type. Raises DTypeError, FormatError."""
    return DType.of(DataType(str(dtype)).numpy).numpy


def _codes(values: tuple, count: int, doing: str) -> list[tuple[int, int]]:
    """Pairs (code, value), one for each dimension. Raises ArgumentError."""
    if len(values) != 2 * count:
        raise ArgumentError(f"{doing}: expected {count} pairs of a code and a value, got {len(values)} values")
    return list(zip(values[::2], values[1::2], strict=True))


def _slot(heap: Tensor, index: int, doing: str) -> int:
    if not 0 <= index < heap.array.size:
        raise IndexOutOfRangeError(f"{doing}: there is no slot {index} in a shape heap of {heap.array.size}")
    return index


# ---- shapes ----


@builtin
def alloc_shape_heap(machine: Any, size: int) -> Tensor:
    """Slots for the dimensions that a function knows."""
    return Tensor(np.zeros(sizes((size,), "alloc_shape_heap"), np.int64))


@builtin
def match_shape(value: Any, heap: Tensor, ndim: int, *codes: Any) -> None:
    """Compares a tensor's shape, or a shape, with what codes say, and remembers dimensions. Raises ExecutionError."""
    *pairs, context = codes
    shape = value.shape if isinstance(value, Tensor) else sizes(value, f"{context} match_cast")
    if len(shape) != ndim:
        raise ExecutionError(
            f"{context} match_cast shape size mismatch: {ndim} dimensions expected, got {list(shape)}."
        )
    for at, (code, given) in enumerate(_codes(tuple(pairs), ndim, "match_shape")):
        _match(shape[at], heap, code, given, f"{context} match_cast error,  shape[{at}] mismatch to")


@builtin
def match_prim_value(value: int, heap: Tensor, code: int, given: int, context: str = "") -> None:
    """`match_shape` for one integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(f"{context} match_cast expect an integer but get {type(value).__name__}")
    _match(value, heap, code, given, f"{context} match_cast error, PrimValue mismatch to")


def _match(value: int, heap: Tensor, code: int, given: int, error: str) -> None:
    if not isinstance(code, int) or not ASSERT_EQUAL_TO_IMM <= code <= ASSERT_EQUAL_TO_LOAD:
        raise ArgumentError(f"match_shape: there is no code {code!r}")
    if code == ASSERT_EQUAL_TO_IMM and value != given:
        raise ExecutionError(f"{error} specified constant: {given} expected, got {value}.")
    if code == STORE_TO_HEAP:
        heap.array[_slot(heap, given, "match_shape")] = value
    if code == ASSERT_EQUAL_TO_LOAD and value != (known := heap.array[_slot(heap, given, "match_shape")]):
        raise ExecutionError(f"{error} a previous populated value: {known} expected, got {value}.")


@builtin
def make_shape(heap: Tensor, ndim: int, *codes: int) -> ShapeTuple:
    """A shape of constants and of remembered dimensions."""
    return ShapeTuple(make_prim_value(heap, code, value) for code, value in _codes(codes, ndim, "make_shape"))


@builtin
def make_prim_value(heap: Tensor, code: int, value: int) -> int:
    """A constant, or a remembered dimension."""
    if code not in (USE_IMM, LOAD_SHAPE):
        raise ArgumentError(f"make_shape: there is no code {code}")
    return value if code == USE_IMM else int(heap.array[_slot(heap, value, "make_shape")])


@builtin
def compute_size(heap: Tensor, text: str, index: int, *known: Any) -> None:
    """Remembers an expression of dimensions: its text, and pairs of names in it and where they lie."""
    heap.array[_slot(heap, index, "compute_size")] = _size(heap, text, known)


@builtin
def compute_condition(heap: Tensor, comparison: str, left: str, right: str, *known: Any) -> bool:
    """Whether a comparison of two expressions of dimensions holds. Raises ArgumentError."""
    if comparison not in _COMPARISONS:
        raise ArgumentError(f"compute_condition: there is no comparison {comparison!r}")
    return _COMPARISONS[comparison](_size(heap, left, known), _size(heap, right, known))


_COMPARISONS: dict[str, Any] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def _size(heap: Tensor, text: str, known: tuple) -> int:
    names = zip(known[::2], known[1::2], strict=True)
    values = {name: int(heap.array[_slot(heap, at, "compute_size")]) for name, at in names}
    return int(dims.evaluate(dims.parse(text), values))


@builtin
def shape_of(value: Tensor) -> ShapeTuple:
    return ShapeTuple(tensor(value, "shape_of").shape)


@builtin
def tensor_to_shape(value: Tensor) -> ShapeTuple:
    array = tensor(value, "tensor_to_shape").array
    if array.ndim != 1 or array.dtype.kind != "i":
        raise ArgumentError(f"tensor_to_shape: expected integers along one axis, got {array.dtype}{list(array.shape)}")
    return ShapeTuple(array.tolist())


@builtin
def shape_to_tensor(value: Any) -> Tensor:
    """A shape's integers along one axis."""
    return Tensor(np.array(sizes(value, "shape_to_tensor"), np.int64))


@builtin
def reshape(value: Tensor, shape: Any) -> Tensor:
    """The same elements in another shape, not copied. Raises CheckError."""
    return reshaped(value, sizes(shape, "reshape"), "reshape")


# ---- checks ----


@builtin
def check_tensor_info(value: Any, ndim: int, *rest: Any) -> None:
    """`check_tensor_info(x, ndim, [dtype], context)`: -1 is any rank, "" any element type. Raises ArgumentError, CheckError."""
    *dtypes, context = rest
    where = f"check_tensor_info: {context}"
    shape = tensor(value, where).shape
    if ndim not in (-1, len(shape)):
        raise CheckError(f"{where} expect Tensor with ndim {ndim} but get {len(shape)}")
    dtype = str(dtypes[0]) if dtypes else ""
    if dtype not in ("", "void") and dtype != str(value.array.dtype):
        raise CheckError(f"{where} expect Tensor with dtype {dtype} but get {value.array.dtype}")


@builtin
def check_shape_info(value: Any, ndim: int, context: str = "") -> None:
    where = f"check_shape_info: {context}"
    if not isinstance(value, ShapeTuple):
        raise ArgumentError(f"{where} expect a Shape but get {type(value).__name__}")
    if ndim not in (-1, len(value)):
        raise CheckError(f"{where} expect Shape with ndim {ndim} but get {len(value)}")


@builtin
def check_prim_value_info(value: Any, dtype: Any, context: str = "") -> None:
    where, kind = f"check_prim_value_info: {context}", str(dtype)
    if kind.startswith(("int", "uint")) or kind == "bool":
        fits = isinstance(value, int)
    elif kind.startswith(("float", "bfloat")):
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    elif kind == "handle":
        fits = value is None or isinstance(value, Object)
    else:
        raise ArgumentError(f"{where} there are no numbers of type {kind}")
    if not fits:
        raise ArgumentError(f"{where} expect a number of type {kind} but get {type(value).__name__}")


@builtin
def check_tuple_info(value: Any, size: int, context: str = "") -> None:
    where = f"check_tuple_info: {context}"
    if len(parts(value, where)) != size:
        raise CheckError(f"{where} expect a Tuple with {size} elements,  but get a Tuple with {len(value)} elements.")


@builtin
def check_func_info(value: Any, context: str = "") -> None:
    if not isinstance(value, (PackedFunc, VMClosure)):
        raise ArgumentError(f"check_func_info: {context} expect a Function but get {type(value).__name__}")


# ---- storage ----


class Storage(Object):
    """Bytes, in which tensors are made."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)  # used memory must not be visible

    @staticmethod
    def of(size: int, what: str) -> Storage:
        """So many bytes. Raises ExecutionError, which says what was asked for."""
        try:
            return Storage(size)
        except (MemoryError, ValueError, OverflowError):
            raise ExecutionError(f"alloc_storage: out of memory, {what} are asked for") from None


def tensor_in(storage: Any, offset: int, shape: tuple[int, ...], element: np.dtype) -> Tensor:
    """A tensor over a part of a storage, `offset` bytes from its beginning. Raises ArgumentError, CheckError."""
    required(storage, Storage, "a storage", "alloc_tensor")
    size = int(np.prod(shape, dtype=object)) * element.itemsize
    if offset < 0 or offset % element.itemsize or offset + size > len(storage.bytes):
        raise CheckError(f"alloc_tensor: {size} bytes at {offset} do not lie in a storage of {len(storage.bytes)}")
    return Tensor(storage.bytes[offset : offset + size].view(element).reshape(shape))


@builtin
def alloc_storage(machine: Any, shape: Any, device_index: int, dtype: Any, scope: str = "global") -> Storage:
    """Memory: `shape` is that of elements, or the number of bytes alone. -1, and 0, is the host. Raises IndexOutOfRangeError."""
    if device_index not in (-1, 0):
        raise IndexOutOfRangeError(f"alloc_storage: there is no device {device_index}; the machine has one")
    count = int(np.prod(sizes(shape, "alloc_storage"), dtype=object))
    return Storage.of(count * size_of(dtype).itemsize, f"{count} elements of {dtype}")


@builtin
def alloc_tensor(storage: Storage, offset: int, shape: Any, dtype: Any) -> Tensor:
    """A tensor over a part of a storage, `offset` bytes from its beginning. Raises ArgumentError, CheckError."""
    return tensor_in(storage, offset, sizes(shape, "alloc_tensor"), size_of(dtype))


@builtin
def copy(value: Any) -> Any:
    """The same value under another name."""
    return value


@builtin
def ensure_zero_offset(value: Any) -> Any:
    return value


@builtin
def null_value(*_: Any) -> None:
    """None: what a register is given that is not needed any more."""


@builtin
def to_device(value: Tensor, device_type: int, device_id: int) -> Tensor:
    require_cpu(Device(device_type, device_id), "to_device")  # type: ignore[arg-type]
    return tensor(value, "to_device")


# ---- tuples, conditions, functions ----


@builtin
def read_if_cond(value: Any) -> bool:
    return truth(value)


@builtin
def make_tuple(*values: Any) -> Array:
    return Array(values)


@builtin
def tuple_getitem(value: Any, index: int) -> Any:
    fields = parts(value, "tuple_getitem")
    if not 0 <= index < len(fields):
        raise IndexOutOfRangeError(f"tuple_getitem: there is no field {index} in a tuple of {len(fields)}")
    return fields[index]


@builtin
def tuple_reset_item(value: Any, index: int) -> Array:
    """The tuple without a field, in whose place is None."""
    tuple_getitem(value, index)
    return Array(None if at == index else field for at, field in enumerate(value))


@builtin
def make_closure(function: Any, *captured: Any) -> VMClosure:
    """A function with values that come after its arguments."""
    required(function, (PackedFunc, VMClosure), "a function", "make_closure")
    name = function.func_name if isinstance(function, VMClosure) else function.__name__
    return VMClosure(name, function, captured)


@calling_builtin
def invoke_closure(machine: Any, closure: Any, *args: Any) -> Any:
    return required(closure, (PackedFunc, VMClosure), "a closure", "invoke_closure")(*args)


@calling_builtin
def call_tir_dyn(function: Any, first: Any, *rest: Any) -> None:
    """Calls a function with tensors, and the sizes of a shape, the last argument, after them."""
    *tensors, shape = first, *rest
    required(function, (PackedFunc, VMClosure), "a function", "call_tir_dyn")(*tensors, *sizes(shape, "call_tir_dyn"))


def invoke_debug_func(machine: Any, name: str, line: str, *args: Any) -> None:
    """Calls a registered function for what it tells. Raises UnknownGlobalFunctionError."""
    function = get_global_func(name)
    assert function is not None
    function(line, *args)


calling_builtin(invoke_debug_func, contained=False)


@builtin
def debug_print(value: Any) -> None:
    print(value, file=sys.stderr)


def _printed(format_: str, values: tuple) -> str:
    """The values in their places of a text; without places one after the other."""
    texts = list(map(_shown, values))
    if "{}" not in format_:
        return " ".join([*([format_] if format_ else []), *texts])
    *before, last = format_.split("{}")
    return "".join(part + text for part, text in zip(before, [*texts, *[""] * len(before)], strict=False)) + last


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(value.array)
    is_tuple = isinstance(value, (tuple, list)) and not isinstance(value, ShapeTuple)
    return f"({', '.join(map(_shown, value))})" if is_tuple else str(value)


def _print(format_: str, *values: Any) -> Array:
    """`relax.print`."""
    print(_printed(format_, values))
    return Array()


def _assert(condition: Any, format_: str, *values: Any) -> Array:
    """`relax.assert_op`. Raises AssertionError."""
    if not truth(condition):
        told = f"{format_}" if "{}" in format_ or not values else ", ".join(["{}"] * len(values))
        raise AssertionError(_printed(told, values) if told else "Assertion Failed")
    return Array()


builtin(_print, "print", prefix="relax.run.")
builtin(_assert, "assert_op", prefix="relax.run.")
