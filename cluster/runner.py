"""Runs a batch in a worker of any engine: calls one function of an executable, with as many rows as it takes.

An executable whose first dimension is a number takes that many rows at once: batches of others are cut, and the last piece is
filled up with copies of its last row, whose results are cut off again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats.dtypes import DType
from ..formats.executable import Executable
from ..formats.messages.errors import ArgumentError, ShapeError
from ..formats.types import UNKNOWN, FunctionType, TensorType, TupleType, Type
from ..vm.tensor import Tensor
from ..vm.threads import set_num_threads
from .handle import Exe, Handle
from .tables import arguments_of, columns_of

if TYPE_CHECKING:
    from ..text.models import RowFunction
    from ..vm.machine import VirtualMachine


class Signature:
    """The part of a function's type that batches are cut by. Raises ArgumentError if it takes or gives other than tensors."""

    function: str
    names: tuple[str, ...]  # of the parameters
    results: tuple[str, ...]  # names
    type: FunctionType
    rows: int | None  # that a call takes; None for any number
    gives_texts: bool  # between processes these are bytes

    def __init__(self, executable: Executable, function: str | None) -> None:
        """A `function` of None is that of texts, where the executable has a tokenizer, or "main"."""
        self.of_texts = _of_texts(executable, function)
        self.gives_texts = self.of_texts is not None and self.of_texts.gives_texts
        if self.of_texts is not None:
            self.function, self.names = self.of_texts.name, self.of_texts.columns
            self.results, self.rows = (self.of_texts.result,), None
            texts = TensorType(DType.string, (UNKNOWN,))
            rows = texts if self.gives_texts else TensorType(DType.float32, (UNKNOWN, UNKNOWN))
            self.type = FunctionType((texts,) * len(self.names), rows)
            return
        self.function = function or "main"
        found = executable.function(self.function)
        function = self.function
        self.names = tuple(executable.get_function_params(function))
        self.type = found.type
        for name, type_ in zip(self.names, self.type.params, strict=False):
            if not isinstance(type_, TensorType) or not type_.rank:
                raise ArgumentError(
                    f"function {function!r}: parameter {name!r} is a {type_}; batches are rows of tensors, of rank 1 or more"
                )
        if not self.names:
            raise ArgumentError(f"function {function!r} has no parameters; batches are rows of its arguments")
        self._check_result(self.type.result)
        self.results = tuple(executable.outputs(function).names)
        sizes = {type_.shape[0] for type_ in self.type.params if isinstance(type_, TensorType)}
        fixed = {size for size in sizes if isinstance(size, int)}
        if len(fixed) > 1:
            raise ArgumentError(
                f"function {function!r}: its parameters have different numbers of rows: {self.type}; batches are cut along "
                "one first dimension of all"
            )
        self.rows = fixed.pop() if fixed else None
        if self.rows == 0:
            raise ArgumentError(f"function {function!r} takes no rows: {self.type}")

    def _check_result(self, type_: Type) -> None:
        if isinstance(type_, TupleType):
            for field in type_.fields:
                self._check_result(field)
        elif not isinstance(type_, TensorType):
            raise ArgumentError(
                f"function {self.function!r}: its result holds a {type_}; between processes travel tensors and tuples of them"
            )

    def check_answering(self, options: Mapping[str, Any]) -> None:
        """Raises ArgumentError where options of generators are given for another function."""
        if options and not self.gives_texts:
            raise ArgumentError(f"{next(iter(options))}: function {self.function!r} makes no texts")

    def texts_of(self, result: Any) -> Any:
        """A result as callers get it."""
        return np.array(texts_in(result), object) if self.gives_texts else result

    def arguments(self, value: Any, what: str = "the source") -> tuple[Any, ...]:
        """The arrays of an array, a tuple or a mapping by name, one for each parameter, in their order. Raises ArgumentError."""
        if self.of_texts is not None and isinstance(value, (str, list)) and len(self.names) == 1:
            return (np.array([value] if isinstance(value, str) else value, object),)
        if (columns := columns_of(value)) is not None:
            return arguments_of(columns, self.names, self.type.params, what)
        if isinstance(value, Mapping):
            if len(value) == len(self.names) == 1:  # whatever the column of a data set is called
                return tuple(value.values())
            if missing := [name for name in self.names if name not in value]:
                raise ArgumentError(
                    f"{what} has no {', '.join(map(repr, missing))}; function {self.function!r} takes {', '.join(self.names)}, "
                    f"got {', '.join(map(str, value)) or 'nothing'}"
                )
            return tuple(value[name] for name in self.names)
        arrays = value if isinstance(value, tuple) else (value,)
        if len(arrays) != len(self.names):
            raise ArgumentError(
                f"{what} has {len(arrays)} arrays, but function {self.function!r} takes {len(self.names)}: "
                f"{', '.join(self.names)}"
            )
        return arrays


class Runner:
    """Calls a function batch by batch. One a process, with the process's machine for the handle."""

    def __init__(self, exe: Exe, function: str | None = "main", threads: int | None = None, **options: Any) -> None:
        """`threads` is how many threads calls of this process take, None for what it has; `options` are those of a handle.

        Raises FileError, FormatError, ArgumentError, UnknownFunctionError.
        """
        if threads is not None:
            set_num_threads(threads)
        handle = Handle.of(exe, **options)
        executable, machine = handle.open()
        self.signature = Signature(executable, function)
        self.signature.check_answering(handle.answering)
        is_plain = self.signature.of_texts is None
        self._call = (
            machine[self.signature.function] if is_plain else _texts_call(executable, machine, handle.answering)
        )

    def run(self, arrays: Sequence[np.ndarray]) -> Any:
        """The result of these rows: an array, or a tuple of such. Raises what the function raises; ShapeError."""
        rows, fixed = row_count(arrays, self.signature.names), self.signature.rows
        if fixed is None or rows == fixed:
            return as_arrays(self._call(*arrays))
        pieces = [self._padded([array[at : at + fixed] for array in arrays]) for at in range(0, rows, fixed)]
        return join(pieces, self.signature)

    def __call__(self, value: Any) -> Any:
        """The result of an array, a tuple of arrays, or a mapping of them by the parameters' names."""
        return self.run([np.asarray(each) for each in self.signature.arguments(value, "the batch")])

    def _padded(self, arrays: list[np.ndarray]) -> Any:
        fixed, rows = self.signature.rows, len(arrays[0])
        assert fixed is not None
        if rows < fixed:
            # copies of a row, not zeros: a program may divide by what it is given
            arrays = [np.concatenate([array, np.repeat(array[-1:], fixed - rows, axis=0)]) for array in arrays]
        return _cut(as_arrays(self._call(*arrays)), rows, fixed, self.signature)


def _of_texts(executable: Executable, function: str | None) -> RowFunction | None:
    """The function of texts that is meant, if it is one."""
    if executable.text_model is None:
        return None
    from ..text.models import ROW_FUNCTIONS

    found = ROW_FUNCTIONS.get(executable.text_model.task)
    is_meant = found is not None and (function is None or (function == found.name and function not in executable))
    return found if is_meant else None


def _texts_call(executable: Executable, machine: VirtualMachine, answering: dict[str, Any]) -> Callable[..., Any]:
    from ..text.loading import of

    texts: Any = of(executable, machine)
    return lambda *columns: texts.map(*map(texts_in, columns), **answering)


def texts_in(column: np.ndarray) -> list[str]:
    """The texts of a column, which between processes are bytes."""
    values = column.tolist()
    return [each.decode() for each in values] if column.dtype.kind == "S" else values


def row_count(arrays: Sequence[Any], names: Sequence[str]) -> int:
    """The rows that all arrays have. Raises ArgumentError where they differ, or one has none."""
    shapes = [tuple(np.shape(array)) for array in arrays]
    if not all(shapes) or len({shape[0] for shape in shapes}) > 1:
        told = ", ".join(f"{name} {list(shape)}" for name, shape in zip(names, shapes, strict=False))
        raise ArgumentError(
            f"arrays of one first dimension are expected, whose rows are batched; their shapes are {told}"
        )
    return shapes[0][0]


def as_arrays(value: Any) -> Any:
    """A function's result as arrays, and tuples of them."""
    return (
        tuple(map(as_arrays, value))
        if isinstance(value, tuple)
        else value.numpy()
        if isinstance(value, Tensor)
        else value
    )


def join(pieces: Sequence[Any], signature: Signature) -> Any:
    """Results of one structure, joined along their first dimension. Raises ShapeError where one of them has none."""
    if isinstance(pieces[0], tuple):
        return tuple(join(parts, signature) for parts in zip(*pieces, strict=True))
    if not np.ndim(pieces[0]):
        raise ShapeError(
            f"function {signature.function!r}: a result of no dimension cannot be joined with those of other batches; take "
            f"results batch by batch [{signature.type}]"
        )
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def nothing(signature: Signature) -> Any:
    """The joined results of no batch. Raises ShapeError where only a call would tell their sizes."""

    def empty(type_: Type) -> Any:
        if isinstance(type_, TupleType):
            return tuple(map(empty, type_.fields))
        assert isinstance(type_, TensorType)
        inner = type_.shape[1:]
        if not type_.rank or not all(isinstance(size, int) for size in inner):
            raise ShapeError(f"there are no rows, and no call to tell the sizes of the result {type_}")
        return np.empty((0, *inner), object if type_.dtype.is_string else type_.dtype.numpy)

    return empty(signature.type.result)


def _cut(result: Any, rows: int, fixed: int, signature: Signature) -> Any:
    if isinstance(result, tuple):
        return tuple(_cut(each, rows, fixed, signature) for each in result)
    if not result.ndim or result.shape[0] != fixed:
        raise ShapeError(
            f"function {signature.function!r} takes {fixed} rows at once; another number is filled up and cut off again, but "
            f"a result of shape {list(result.shape)} has not these rows along its first dimension; take a source whose rows "
            f"are a multiple of {fixed} and batch_size={fixed}, or compile with a symbolic first dimension [{signature.type}]"
        )
    return result[:rows]
