"""Tensors that the machine gives out: a thin face of an array, whose memory nobody else writes to."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from ..formats import limits
from ..formats.constants import aligned_copy, aligned_empty
from ..formats.dtypes import DType
from ..formats.messages.calling import Suggesting, public_class
from ..formats.messages.errors import (
    ArgumentError,
    CheckError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
    TreadleError,
)
from ..formats.strings import ELEMENT
from .device import Device, cpu

_F = TypeVar("_F", bound=Callable[..., Any])


def _telling(function: _F) -> _F:
    """The method, of which NumPy's errors are Treadle's, with what NumPy says."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TreadleError:
            raise
        except IndexError as error:
            raise IndexOutOfRangeError(f"{_shown(args)}: {error}") from None
        except (TypeError, OverflowError, AttributeError) as error:  # of ufuncs, too
            raise ArgumentError(f"{_shown(args)}: {error}") from None
        except ValueError as error:
            raise CheckError(f"{_shown(args)}: {error}") from None

    return call  # type: ignore[return-value]


def _shown(args: tuple[Any, ...]) -> str:
    tensor = next((each for each in args if isinstance(each, Tensor)), None)
    return "Tensor" if tensor is None else f"{tensor.dtype.name}{list(tensor.shape)}"


def _of_array(name: str) -> Callable[..., Any]:
    """A method that is the array's."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._array, name)(*map(_array_of, args), **kwargs)

    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    method.__doc__ = f"As `numpy.ndarray.{name}`: what it gives is NumPy's."
    return _telling(method)


@public_class
class Tensor(np.lib.mixins.NDArrayOperatorsMixin, Suggesting):
    """A tensor on a device. `numpy()` and DLPack share its memory; it stays alive as long as any of them.

    It computes and compares, elementwise, as an array of NumPy's does, and has no hash either. What is computed of it, and parts
    of it, `t[0]`, are NumPy's: arrays, or single elements; parts share its memory, as those of an array do.
    """

    __slots__ = ("_array",)

    def _instead_of(self, name: str) -> str:
        return super()._instead_of(name) or "; a function with one result gives the tensor itself, without a name"

    def __init__(self, array: np.ndarray) -> None:
        """The elements of an array, where they lie. Raises ArgumentError for anything else."""
        if not isinstance(array, np.ndarray):
            raise ArgumentError(f"Tensor: expected an array, got a {type(array).__name__}; np.asarray makes one of it")
        self._array = array

    def numpy(self) -> np.ndarray:
        """The elements, not copied. Read-only where the program still uses them: constants, parts of data values."""
        return self._array

    @property
    def array(self) -> np.ndarray:
        """The elements where they lie."""
        return self._array

    def alias(self) -> Tensor:
        """Another face of the same elements."""
        return type(self)(self._array)

    def copyto(self, target: Tensor | Device) -> Tensor:
        """Copies the elements into a tensor of the same shape and element type, which is returned, or into a new one on a device.

        Raises ShapeError, DTypeError, ArgumentError.
        """
        if isinstance(target, Device):
            require_cpu(target, "copyto")
            return type(self)(aligned_copy(self._array))
        if not isinstance(target, Tensor):
            raise ArgumentError(f"copyto: expected a tensor or a device, got a {type(target).__name__}")
        if target._array.dtype != self._array.dtype:
            raise DTypeError(f"copyto: {self._array.dtype} elements do not go into {target._array.dtype}; convert them")
        target.copyfrom(self)
        return target

    def copyfrom(self, source: Any) -> Tensor:
        """Overwrites the elements with those of an array of the same shape, or of lists, converted to this element type; this
        tensor. Raises ShapeError, ArgumentError."""
        try:
            given = np.asarray(source)
            given = given if given.dtype == self._array.dtype else given.astype(self._array.dtype)
        except (TypeError, ValueError):
            kind = type(source).__name__
            raise ArgumentError(f"copyfrom: expected an array of {self._array.dtype} elements, got a {kind}") from None
        if given.shape != self._array.shape:
            raise ShapeError(
                f"copyfrom: array shape do not match the shape of NDArray: got {given.shape}, expected {self._array.shape}"
            )
        if not self._array.flags.writeable:
            raise ArgumentError("copyfrom: this tensor is read-only: the program still uses it; copy it first")
        self._array[...] = given
        return self

    @_telling
    def view(self, shape: Sequence[int], dtype: np.dtype | None = None, offset: int = 0) -> np.ndarray:
        """A part of the same memory, from byte `offset` on, in another shape. Raises ShapeError, ArgumentError."""
        kind = self._array.dtype if dtype is None else dtype
        sizes = tuple(map(operator.index, shape))
        end = offset + math.prod(sizes) * kind.itemsize
        if any(size < 0 for size in sizes) or not 0 <= offset <= end <= self.nbytes:
            raise ShapeError(
                f"view: {kind.name}{list(sizes)} would occupy bytes {offset} <= i_byte < {end}, but "
                f"the NDArray being viewed only contains {self.nbytes} bytes"
            )
        if kind == ELEMENT != self._array.dtype:
            raise ArgumentError("view: the elements of a string tensor are not made of bytes; give a list of texts")
        if not self._array.flags.c_contiguous:
            raise ArgumentError("view: the elements of this tensor do not lie behind one another; copy it first")
        return np.ndarray(sizes, kind, self._array, offset)

    @_telling
    def __setitem__(self, place: slice, value: Any) -> None:
        """`tensor[:] = value` overwrites all elements. Raises ValueError for a part; set that in `tensor.numpy()`."""
        if not isinstance(place, slice) or place != slice(None):
            raise ShapeError("Array only support set from numpy array: tensor[:] = value; set a part in tensor.numpy()")
        self.copyfrom(np.broadcast_to(value, self.shape) if np.ndim(value) == 0 else value)

    @_telling
    def __getitem__(self, place: Any) -> Any:
        """A part, or an element, as NumPy has it."""
        if isinstance(place, str):
            raise IndexOutOfRangeError(
                f"{_shown((self,))}[{place!r}]: a tensor has no names; a function that has one result gives the tensor itself"
            )
        return self._array[place]

    @_telling
    def __iter__(self) -> Iterator[Any]:
        return iter(self._array)

    @_telling
    def __contains__(self, value: Any) -> bool:
        return value in self._array

    @_telling
    def tolist(self) -> Any:
        """The elements as Python's numbers, in lists as deep as there are axes."""
        return self._array.tolist()

    @property
    def T(self) -> np.ndarray:
        return self._array.T

    all, any = _of_array("all"), _of_array("any")
    argmax, argmin, argsort = _of_array("argmax"), _of_array("argmin"), _of_array("argsort")
    clip, round = _of_array("clip"), _of_array("round")
    copy, flatten, ravel = _of_array("copy"), _of_array("flatten"), _of_array("ravel")
    cumprod, cumsum = _of_array("cumprod"), _of_array("cumsum")
    dot, trace, diagonal = _of_array("dot"), _of_array("trace"), _of_array("diagonal")
    max, min, prod, sum = _of_array("max"), _of_array("min"), _of_array("prod"), _of_array("sum")
    mean, std, var = _of_array("mean"), _of_array("std"), _of_array("var")
    nonzero, repeat, take = _of_array("nonzero"), _of_array("repeat"), _of_array("take")
    reshape, squeeze = _of_array("reshape"), _of_array("squeeze")
    swapaxes, transpose = _of_array("swapaxes"), _of_array("transpose")
    tobytes = _of_array("tobytes")

    @_telling
    def astype(self, dtype: Any) -> np.ndarray:
        """The elements, converted."""
        return self._array.astype(DType.of(dtype).numpy)

    @_telling
    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        foreign = (type(each).__array_ufunc__ for each in inputs if hasattr(type(each), "__array_ufunc__"))
        if any(way not in (np.ndarray.__array_ufunc__, Tensor.__array_ufunc__) for way in foreign):
            return NotImplemented  # it is for the other to say
        if out is not None:
            options["out"] = tuple(_array_of(each) for each in out)
        result = getattr(function, method)(*map(_array_of, inputs), **options)
        return out[0] if out is not None and len(out) == 1 else result

    @_telling
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._array if dtype is None else self._array.astype(dtype, copy=False)
        return array.copy() if copy and array is self._array else array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack

    @property
    def dtype(self) -> DType:
        is_text = self._array.dtype.kind in "OTU"  # texts: objects, as results have them, or NumPy's own
        return DType.string if is_text else DType.of(self._array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._array.size

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._array.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours along each axis."""
        return self._array.strides

    @property
    def flat(self) -> Iterator[Any]:
        """The elements in a row."""
        return self._array.flat

    @property
    def device(self) -> Device:
        return cpu()

    @_telling
    def item(self) -> Any:
        """The one element, as a Python number. Raises ValueError when there are more."""
        return self._array.item()

    @_telling
    def __float__(self) -> float:
        return float(self._array.item())

    @_telling
    def __int__(self) -> int:
        return int(self._array.item())

    @_telling
    def __bool__(self) -> bool:
        if self._array.size != 1:
            raise ValueError(f"the truth value of {self._array.size} elements is ambiguous; use .any() or .all()")
        return bool(self._array.item())

    @_telling
    def __index__(self) -> int:
        return operator.index(self._array)

    @_telling
    def __round__(self, digits: int | None = None) -> Any:
        return self._array.round(digits or 0) if self._array.ndim else round(self._array.item(), digits)

    @_telling
    def __format__(self, form: str) -> str:
        """As the one number, or, without a form, as text."""
        return format(self._array.item(), form) if form else str(self)

    @_telling
    def __len__(self) -> int:
        return len(self._array)

    def _repr_html_(self) -> str:
        from ..formats.pictures.plots import histogram
        from ..formats.text.html import heading, preformatted, table, together

        array = self._array
        head = heading(f"{self.dtype.name}{list(self.shape)} on {self.device!r}{_summary(array)}")
        if not 1 <= array.ndim <= 2 or not array.size or max(array.shape) > _TABLE:
            text = preformatted(np.array2string(array, separator=", ", threshold=100))
            return together(head, histogram(array) if array.size > 1 else "", text)
        rows = array if array.ndim == 2 else array[np.newaxis]
        columns = [str(at) for at in range(rows.shape[1])]
        numbers = () if self.dtype is DType.string else columns
        cells = [[_element(value) for value in row] for row in rows]
        return together(head, table(columns, cells, numbers, first_once=False))

    def __repr__(self) -> str:
        body = np.array2string(self._array, separator=", ", prefix="Tensor(", threshold=100)
        return f"Tensor({body}, dtype={self.dtype.name}, device={self.device!r})"


_TABLE = 20  # rows and columns of a matrix that notebooks show as a table
_SUMMED = 2**22  # elements that are looked at to say what is in them


def _summary(array: np.ndarray) -> str:
    """In few words, what the numbers of a tensor are; nothing of one that is small enough to be read, or too large."""
    if array.dtype.kind not in "iuf" or not 100 < array.size <= _SUMMED:
        return ""
    finite = array[np.isfinite(array)]
    if not finite.size:
        return ": no finite number"
    text = f": {finite.min():.6g} … {finite.max():.6g}, mean {finite.mean(dtype=np.float64):.6g}"
    others = array.size - finite.size
    return f"{text}, {others} not finite" if others else text


def _element(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, np.floating) else str(value)


def _array_of(value: Any) -> Any:
    return value.array if isinstance(value, Tensor) else value


def tensor_of(array: np.ndarray) -> Tensor:
    """The tensor of what is known to be an array: calls make their results so, without a look at it."""
    made = _new(Tensor)
    made._array = array
    return made


_new = Tensor.__new__


def require_cpu(device: Device, function: str) -> None:
    """Raises ArgumentError for a device that no memory is on."""
    if not isinstance(device, Device):
        raise ArgumentError(f"{function}: expected a device, got {device!r}")
    if not device.exist:
        raise ArgumentError(f"{function}: {device!r} does not exist here; there is cpu(0)")


def empty(shape: Sequence[int] | int, dtype: np.dtype) -> np.ndarray:
    """New memory for a tensor, zeros, so that nobody sees what was there before. Raises ShapeError."""
    sizes = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    size = math.prod(sizes) * dtype.itemsize
    if any(not 0 <= dim <= limits.DIMENSION for dim in sizes) or len(sizes) > limits.RANK or size > limits.DIMENSION:
        raise ShapeError(
            f"empty({sizes}): expected up to {limits.RANK} sizes from 0 on, {limits.DIMENSION} bytes at most"
        )
    memory = aligned_empty(size)
    memory[:] = 0
    return memory.view(dtype).reshape(sizes)
