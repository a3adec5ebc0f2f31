"""Python's values to the machine's registers, and back.

Tensors that a call cannot keep are read where they lie; others are copied into the machine's heap on the way in. Results
belong to the caller. Values nest to any depth: nothing here recurses on data values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..formats.constants import aligned_copy
from ..formats.dtypes import DType
from ..formats.host_values import as_dicts
from ..formats.messages.calling import by_name
from ..formats.messages.errors import (
    ArgumentError,
    BudgetExceededError,
    CancelledError,
    DTypeError,
    ExecutionError,
    OutOfMemoryError,
    ShapeError,
    TreadleError,
)
from ..formats.messages.names import near
from ..formats.metering import UNBOUNDED, Meter, free, metered
from ..formats.program import Program
from ..formats.strings import ELEMENT, Texts, is_text, to_numbers, to_texts
from ..formats.types import DataType, DataTypeDefinition, FunctionType, TensorType, TupleType, Type, erase_dims
from . import core
from .context import Context, outside
from .image import Image
from .layout import CONTEXT, COPIED_BYTES, KIND, OBJECT, OBJECT_HEAD, TRAP, WORD
from .memory import Elements, array_at, block_bytes, pinned, set_word, tensor_shape, word, words
from .outputs import naming_results
from .tensor import Tensor, tensor_of
from .values import Closure, DataValue, NativeReference

# ---- in ----


def array_of_library(value: Any) -> np.ndarray:
    """Another library's tensor, by whichever protocol it has. Raises TypeError for anything else."""
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    return np.asarray(memoryview(value))


class Arguments:
    """Fills the registers of one call; what it makes belongs to the call once that starts."""

    def __init__(self, context: Context, function: str) -> None:
        self.kept: list[object] = []  # arrays that the call reads in place, and what pins them
        self._context, self._function, self._name = context, function, ""
        self._engine = core.engine()
        self._made: list[int] = []

    def give(self, position: int, name: str, value: Any, type_: Type, escapes: bool) -> None:
        """Sets register `position`, the parameter `name`. Raises ArgumentError, DTypeError or ShapeError."""
        self._name = name
        if isinstance(type_, TensorType):
            array = self._array(value, type_)
            if escapes:
                reference = self._copied(array)
                data = word(reference, OBJECT.DATA)
            else:
                data, reference = array.ctypes.data, self._in_place(array, type_)
        else:
            data, reference = 0, self.reference(value, type_)
        if reference & 1 == 0:
            self._made.append(reference)
        self._context.set_argument(position, data, reference)

    def copy(self, name: str, value: Any, type_: Type, results: Results) -> Any:
        """A copy of an argument for calls to come, which is an argument of that type: arrays in values lie in the heap. Raises
        ArgumentError, DTypeError or ShapeError."""
        self._name = name
        if isinstance(type_, TensorType):
            return to_texts(aligned_copy(self._array(value, type_)))
        if isinstance(value, Closure):
            release(self._context, self.reference(value, type_))  # it is of that type
            return value
        return results.keep(self.reference(value, type_), self._context.texts)

    def result(self, value: Any, type_: Type) -> int:
        """A new reference to what a function of Python's gave, as a value of a type. Raises ArgumentError, DTypeError,
        ShapeError, OutOfMemoryError, BudgetExceededError."""
        self._name = "its result"
        if isinstance(type_, TensorType):
            return self._copied(self._array(value, type_))
        return self.reference(value, type_)

    def give_captured(self, position: int, closure: Closure) -> None:
        """Sets the registers from `position` on to a closure's captured values."""
        address = closure.native.word & ~1
        captured = words(address + OBJECT_HEAD, word(address, OBJECT.COUNT))
        for number, reference in enumerate(captured, position):
            self._engine.retain_reference(reference)
            if reference & 1 == 0:
                self._made.append(reference)
            self._context.set_argument(number, word(reference & ~1, OBJECT.DATA), reference)

    def give_up(self) -> None:
        """Releases what was made for a call that does not start."""
        for made in self._made:
            self._engine.drop(self._context.address, made)
        self._made.clear()

    def _in_place(self, array: np.ndarray, type_: TensorType) -> int:
        """A reference that describes an array, which stays alive, and where it is, as long as this object."""
        self.kept.append(array)
        static = self._context.image.types.find(type_)
        if static:
            return static
        code = DType.of(array.dtype).code
        view = self._engine.new_view(self._context.address, code, array.ndim, array.ctypes.data, 0)
        self._checked(view, OBJECT_HEAD + WORD * array.ndim + 1)
        _set_items(view, array.shape)
        return view

    def _copied(self, array: np.ndarray) -> int:
        head = OBJECT_HEAD + WORD * array.ndim + 63 & -64
        return new_tensor(self._context, array, lambda address: self._checked(address, head + array.nbytes))

    def _checked(self, address: int, size: int) -> int:
        """The address of a new object of `size` bytes. Raises OutOfMemoryError, BudgetExceededError."""
        if address == -TRAP.MEMORY:
            left = max(0, self._context.words[CONTEXT.MAX_LIVE] - self._context.words[CONTEXT.LIVE])
            takes = block_bytes(size)
            message = f"it does not fit into the memory budget: it takes {takes} bytes, {left} are left"
            raise BudgetExceededError(f"{self._place()}: {message}; raise max_memory", budget="memory")
        if address < 0:
            raise OutOfMemoryError(f"{self._place()}: the system has no memory for it")
        return address

    def _place(self) -> str:
        """How messages begin."""
        return f"{self._function}({self._name})" if self._function else self._name

    # ---- tensors ----

    def _array(self, value: Any, type_: TensorType) -> np.ndarray:
        array = self._own(self._as_array(value, type_))
        if DType.of(array.dtype) is not type_.dtype:
            raise DTypeError(f"{self._place()}: expected {type_}, got {array.dtype.name}; convert it with astype")
        if array.ndim != type_.rank or any(
            isinstance(expected, int) and expected != actual
            for expected, actual in zip(type_.shape, array.shape, strict=True)
        ):
            shape = ", ".join(map(str, array.shape))
            raise ShapeError(f"{self._place()}: expected {type_}, got {type_.dtype.name}[{shape}]")
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=("C", "A"))

    def _own(self, array: np.ndarray) -> np.ndarray:
        """The same elements in an array that no other thread has, where they stay until the call is over: another thread may give
        the caller's array another shape between two looks at it."""
        self.kept.append(pinned(array))
        return array.view()

    def _texts(self, value: Any, type_: TensorType) -> np.ndarray:
        """Texts as a string tensor's elements."""
        if isinstance(value, Tensor):
            value = value.array
        if isinstance(value, (str, list, tuple)):
            value = np.array(value, object)
        if not isinstance(value, (np.ndarray, np.generic)):
            raise ArgumentError(f"{self._place()}: expected {type_}, got a value of type {type(value).__name__}")
        array = np.asarray(value)
        if not is_text(array) and array.dtype != ELEMENT:
            raise DTypeError(
                f"{self._place()}: expected {type_}, got an array of {array.dtype}; texts are Python's str"
            )
        clock = self._context.clock
        try:
            with metered(UNBOUNDED if clock is None else Meter(clock.look, free)):
                return to_numbers(array, self._context.holder())
        except (BudgetExceededError, CancelledError):
            raise
        except TreadleError as error:
            raise type(error)(f"{self._place()}: {error.message}") from None

    def _as_array(self, value: Any, type_: TensorType) -> np.ndarray:
        if type_.dtype.is_string:
            return self._texts(value, type_)
        if isinstance(value, Tensor):
            return value.array
        if isinstance(value, (np.ndarray, np.generic)):
            return self._known(np.asarray(value), type_)
        if isinstance(value, (bool, int, float, list, tuple)):
            return self._exact(value, type_)
        try:
            return array_of_library(value)
        except TypeError:
            kind = type(value).__name__
            how = by_name(self._function) if isinstance(value, Mapping) and self._function else ""
            raise ArgumentError(f"{self._place()}: expected {type_}, got a value of type {kind}{how}") from None

    def _known(self, array: np.ndarray, type_: TensorType) -> np.ndarray:
        try:
            DType.of(array.dtype)
        except DTypeError:
            raise DTypeError(f"{self._place()}: expected {type_}, got an array of {array.dtype}") from None
        return array

    def _exact(self, value: Any, type_: TensorType) -> np.ndarray:
        """Python numbers, or nested lists of them, where the parameter's element type holds each without loss of range."""
        target = type_.dtype.numpy
        try:
            array = np.asarray(value)
        except ValueError:
            raise ShapeError(f"{self._place()}: expected {type_}, got lists of different lengths") from None
        if array.size == 0:
            return array.astype(target)
        if array.dtype == target:
            return array
        # of NumPy's kinds: it knows nothing of those of ml_dtypes
        fits = array.dtype.kind in "biuf" and np.can_cast(array.dtype, type_.dtype.computed.numpy, "same_kind")
        if (fits and type_.dtype.is_integer) or (array.dtype.kind in "iu" and type_.dtype.is_integer):
            least, greatest = type_.dtype.bounds
            fits = bool(int(array.min()) >= least and int(array.max()) <= greatest)
        elif array.dtype.kind in "iu" and type_.dtype.is_float:
            fits = bool((array.astype(target).astype(object) == array.astype(object)).all())
        if not fits:
            shown = repr(value) if array.ndim == 0 else f"a {type(value).__name__} of {array.dtype.name}"
            raise DTypeError(f"{self._place()}: expected {type_}, which does not hold {shown}")
        return array.astype(target)

    # ---- tuples, data values, closures ----

    def reference(self, value: Any, type_: Type) -> int:
        """A new reference to a value in the heap. Nested values wait on a stack of this function's own."""
        done: list[int] = []  # finished values, whose references are ours
        todo: list[tuple[Any, Any, int]] = [(value, type_, _NEW)]
        try:
            while todo:
                value, type_, tag = todo.pop()
                if tag != _NEW:
                    first = len(done) - len(value)
                    done[first:] = [self._record(type_, tag, done[first:])]
                elif isinstance(type_, TensorType):
                    done.append(self._copied(self._array(value, type_)))
                elif (shared := self._shared(value, type_)) is not None:
                    done.append(shared)
                else:
                    tag, types, fields = self._parts(value, type_)
                    todo.append((fields, type_, tag))
                    todo += [(field, inner, _NEW) for field, inner in zip(fields[::-1], types[::-1], strict=True)]
        except BaseException:
            for reference in done:
                release(self._context, reference)
            raise
        return done[0]

    def _record(self, type_: Type, tag: int, fields: list[int]) -> int:
        number = self._context.image.type_number(type_)
        made = self._engine.new_record(self._context.address, KIND.DATA, tag, number, len(fields))
        self._checked(made, OBJECT_HEAD + WORD * len(fields) + 1)
        _set_items(made, fields)
        return made

    def _shared(self, value: Any, type_: Type) -> int | None:
        """One more reference to a value that is in a heap of this program already."""
        native = value.native if isinstance(value, (DataValue, Closure)) else None
        if native is None or native.owner is not self._context.image:
            if isinstance(value, Closure):
                raise ArgumentError(f"{self._place()}: {value!r} belongs to another machine")
            return None
        actual = native_type(self._context.image, native.word)
        if actual != erase_dims(type_):
            raise ArgumentError(f"{self._place()}: expected {type_}, got a value of type {actual}")
        for held in native.constants:
            if isinstance(held, Texts):
                self._context.holder().keep(held)
        self._engine.retain_reference(native.word)
        return native.word

    def _parts(self, value: Any, type_: Type) -> tuple[int, tuple[Type, ...], tuple]:
        """Tag, field types and fields of a value that Python built."""
        if hasattr(type(value), "__treadle_value__"):  # an expression of constants
            value = value.__treadle_value__()
        if isinstance(type_, TupleType):
            if isinstance(value, DataValue) and value.tag == 0 and not value.type_name:  # TVM's tuple
                value = value.fields
            if not isinstance(value, (tuple, list)) or len(value) != len(type_.fields):
                got = f"{len(value)} values" if isinstance(value, (tuple, list)) else f"a {type(value).__name__}"
                raise ArgumentError(f"{self._place()}: expected the tuple {type_}, got {got}")
            return 0, type_.fields, tuple(value)
        if isinstance(type_, DataType):
            definition = self._context.image.data_types[str(type_)]
            form = self._context.image.forms.get(str(type_))
            if form is not None and not isinstance(value, DataValue):
                return self._parts_of_form(form, value, definition)
            if not isinstance(value, DataValue):
                makers = " or ".join(constructor.name for constructor in definition.constructors)
                raise ArgumentError(
                    f"{self._place()}: expected {type_}, got a {type(value).__name__}; make one by its constructors, {makers}"
                )
            tag = self._tag(value, definition)
            constructor = definition.constructors[tag]
            if len(value.fields) != len(constructor.fields):
                raise ArgumentError(
                    f"{self._place()}: {constructor.name} of {type_} has {len(constructor.fields)} fields, "
                    f"got {len(value.fields)}"
                )
            return tag, constructor.fields, value.fields
        raise ArgumentError(f"{self._place()}: expected a closure {type_}, got a {type(value).__name__}")

    def _parts_of_form(
        self, form: str, value: Any, definition: DataTypeDefinition
    ) -> tuple[int, tuple[Type, ...], tuple]:
        """Of a value that Python has itself."""
        fields: tuple = ()
        if form == "Optional" and value is not None:
            fields = (value,)
        elif form == "Sequence":
            rest = value if isinstance(value, _Rest) else _Rest(value, 0)
            if not isinstance(rest.items, (list, tuple)):
                raise self._unfit(f"a list, for {definition.name}", value)
            fields = rest.parts()
        elif form == "Maps":
            if not isinstance(value, dict):
                raise self._unfit(f"a dict, for {definition.name}", value)
            fields = list(value), list(value.values())
        elif form == "Ranked":
            rank = value.ndim if isinstance(value, (np.ndarray, Tensor)) else np.ndim(value)
            if rank >= len(definition.constructors):
                raise self._unfit(f"an array of less than {len(definition.constructors)} axes", value)
            return rank, definition.constructors[rank].fields, (value,)
        tag = len(definition.constructors) - 1 if fields else 0
        return tag, definition.constructors[tag].fields, fields

    def _unfit(self, expected: str, value: Any) -> ArgumentError:
        return ArgumentError(f"{self._place()}: expected {expected}, got a value of type {type(value).__name__}")

    def _tag(self, value: DataValue, definition: DataTypeDefinition) -> int:
        names = [constructor.name for constructor in definition.constructors]
        if value.tag is None and value.constructor in names:
            return names.index(value.constructor)
        if value.tag is None or not 0 <= value.tag < len(names):
            which = value.constructor if value.tag is None else f"tag {value.tag}"
            raise ArgumentError(
                f"{self._place()}: {definition.name} has no {which}; it has {', '.join(names)}{near(which, names)}"
            )
        return value.tag


class _Rest:
    """The rest of a list."""

    __slots__ = ("items", "start")

    def __init__(self, items: Any, start: int) -> None:
        self.items, self.start = items, start

    def parts(self) -> tuple:
        return () if self.start == len(self.items) else (self.items[self.start], _Rest(self.items, self.start + 1))


_NEW = -1  # in place of a tag: a value that is still to be looked at


def release(context: Context, reference: int) -> None:
    """Gives up one reference."""
    if reference & 1 == 0:
        core.engine().drop(context.address, reference)


def _set_items(address: int, items: Sequence[int]) -> None:
    for position, item in enumerate(items):
        set_word(address, OBJECT.ITEMS + position, item)


def new_tensor(context: Context, array: np.ndarray, checked: Callable[[int], int]) -> int:
    """A heap tensor with the elements of an array."""
    code = DType.of(array.dtype).code
    made = checked(core.engine().new_tensor(context.address, code, array.ndim, array.nbytes))
    _set_items(made, array.shape)
    array_at(word(made, OBJECT.DATA), array.dtype, array.shape)[...] = array
    return made


def native_type(image: Image, reference: int) -> Type:
    """The type of a data value, tuple or closure in the heap."""
    address = reference & ~1
    if word(address, OBJECT.KIND) == KIND.CLOSURE:
        return closure_type(image.program, word(address, OBJECT.TAG))
    return image.record_types[word(address, OBJECT.DATA)]


def closure_type(program: Program, function: int) -> FunctionType:
    """The type of closures of a function: without the captured values."""
    entry = program.functions[function]
    params = entry.type.params[: len(entry.type.params) - entry.captured]
    erased = erase_dims(FunctionType(params, entry.type.result))
    assert isinstance(erased, FunctionType)
    return erased


# ---- out ----

_Form = Callable[[Any], Any]


def _tensor_of_texts(array: np.ndarray) -> Tensor:
    return tensor_of(to_texts(array))


def _maps_of_arrays(arrays: tuple[np.ndarray, np.ndarray]) -> dict | list[dict]:
    return as_dicts(*arrays)


class Results:
    """Makes Python's values of an image's native ones. Those that are read or called later hold `invoke`, which calls a closure:
    so whatever `invoke` holds must hold neither this object nor what it has made."""

    __slots__ = ("_engine", "_image", "_invoke")

    def __init__(self, image: Image, invoke: Callable[..., Any]) -> None:
        self._image, self._invoke = image, invoke
        self._engine = core.engine()

    def taker(self, number: int, arrays: bool = False) -> Callable[[Context], Any]:
        """`take` of a function's results: several get their names. With `arrays`, the engine makes arrays where it can."""
        naming, take = self._image.naming, self.take
        if number not in naming:
            naming[number] = naming_results(self._image.program.functions[number])
        named = naming[number]
        form = self._form_of(self._image.program.functions[number].type.result) if arrays else None
        if form is not None:
            return lambda context: self.take_arrays(context, form, named)
        return take if named is None else lambda context: named(take(context))

    def take_arrays(self, context: Context, form: _Form, named: Callable[[Any], Any] | None) -> Any:
        """`take` of a result that the engine makes arrays of, and `form` a value of these."""
        made = self._engine.take_arrays(context.address)
        value = self.take(context) if made is None else form(made)
        return value if named is None else named(value)

    def _form_of(self, type_: Type, is_field: bool = False) -> _Form | None:
        """The function that makes a type's value from the engine's arrays, or tuples of arrays; None where `take` is needed."""
        if isinstance(type_, TensorType):
            return _tensor_of_texts if type_.dtype.is_string else tensor_of
        if isinstance(type_, DataType) and self._image.forms.get(str(erase_dims(type_))) == "Maps":
            return _maps_of_arrays
        if not isinstance(type_, TupleType) or is_field:
            return None
        forms = [self._form_of(field, is_field=True) for field in type_.fields]
        if None in forms:
            return None
        if all(form is tensor_of for form in forms):
            return lambda made: tuple(map(tensor_of, made))
        return lambda made: tuple([form(part) for form, part in zip(forms, made, strict=True)])  # type: ignore[misc]

    def take(self, context: Context) -> Any:
        """The result of a call that has returned, whose reference becomes Python's."""
        reference = context.words[CONTEXT.RESULT_REF]
        context.words[CONTEXT.RESULT_REF] = 0
        return self._taken(context, reference, context.words[CONTEXT.RESULT])

    def shown(self, context: Context, reference: int, data: int) -> Any:
        """The value in a register, of which the program may keep a reference as well."""
        self._engine.retain_reference(reference)
        return self._taken(context, reference, data)

    def keep(self, reference: int, texts: Texts | None = None) -> DataValue:
        """A value in the heap, whose reference is handed over, as an argument of calls; `texts` holds those in it."""
        type_ = native_type(self._image, reference)
        native = NativeReference(reference, outside().drop, self._image, (texts,))
        return DataValue.of_native(word(reference & ~1, OBJECT.TAG), str(type_), "", native, self._fields)

    def _taken(self, context: Context, reference: int, data: int) -> Any:
        """The value of a reference that is handed over; `data` is where a tensor's elements are."""
        address = reference & ~1
        header = words(address, OBJECT.ITEMS)
        if header[OBJECT.KIND] == KIND.TENSOR:
            shape = words(address + OBJECT_HEAD, header[OBJECT.COUNT])
            dtype = DType.from_code(header[OBJECT.TAG]).numpy
            if math.prod(shape) * dtype.itemsize <= COPIED_BYTES:
                array = to_texts(array_at(data, dtype, shape).copy())
                release(context, reference)
                return tensor_of(array)
        elif header[OBJECT.KIND] == KIND.DATA and self._is_tuple(header):
            fields = words(address + OBJECT_HEAD, header[OBJECT.COUNT])
            for field in fields:
                self._engine.retain_reference(field)
            release(context, reference)  # now the fields may be ours alone
            return tuple(self._taken(context, field, word(field & ~1, OBJECT.DATA)) for field in fields)
        is_alone = header[OBJECT.KIND] == KIND.TENSOR and reference & 1 == 0 and header[OBJECT.OWNER] == 0
        # in which elements may lie, and who holds texts
        constants = () if is_alone else (self._image.arrays, *context.constants, context.texts)
        return self._value(NativeReference(reference, outside().drop, self._image, constants), data)

    def _is_tuple(self, header: tuple[int, ...]) -> bool:
        return isinstance(self._image.record_types[header[OBJECT.DATA]], TupleType)

    def _value(self, native: NativeReference, data: int) -> Any:
        address = native.word & ~1
        header = words(address, OBJECT.ITEMS)
        if header[OBJECT.KIND] == KIND.TENSOR:
            return tensor_of(_elements(native, header, data))
        if header[OBJECT.KIND] == KIND.CLOSURE:
            program, number = self._image.program, header[OBJECT.TAG]
            return Closure(program.functions[number].name, closure_type(program, number), native, self._invoke)
        if header[OBJECT.KIND] != KIND.DATA:
            raise ExecutionError("the program returned a storage, which has no form in Python")
        if self._is_tuple(header):
            return self._fields(native)
        type_ = str(self._image.record_types[header[OBJECT.DATA]])
        form = self._image.forms.get(type_)
        if form is not None:
            return self._of_form(form, native)
        constructor = self._image.data_types[type_].constructors[header[OBJECT.TAG]]
        return DataValue.of_native(header[OBJECT.TAG], type_, constructor.name, native, self._fields)

    def _of_form(self, form: str, native: NativeReference) -> Any:
        """A value that Python has one of its own for."""
        if form == "Maps":
            keys, values = self._fields(native)
            return as_dicts(keys.array, values.array)
        if form == "Optional":
            return next(iter(self._fields(native)), None)
        if form == "Ranked":
            return self._fields(native)[0]
        found, at = [], native
        while word(at.word & ~1, OBJECT.COUNT):
            item, rest = self._references(at)
            found.append(self._value(item, word(item.word & ~1, OBJECT.DATA)))
            at = rest
        return found

    def _references(self, native: NativeReference) -> list[NativeReference]:
        """References to the fields of a data value."""
        found = []
        for field in words((native.word & ~1) + OBJECT_HEAD, word(native.word & ~1, OBJECT.COUNT)):
            self._engine.retain_reference(field)
            found.append(NativeReference(field, outside().drop, self._image, native.constants))
        return found

    def _fields(self, native: NativeReference) -> tuple:
        """The fields of a tuple or data value that stays as it is."""
        return tuple(self._value(each, word(each.word & ~1, OBJECT.DATA)) for each in self._references(native))


def _elements(native: NativeReference, header: tuple[int, ...], data: int) -> np.ndarray:
    """The array of a tensor object. Elements that something else refers to as well are read-only."""
    dtype, alone = DType.from_code(header[OBJECT.TAG]).numpy, native.word & 1 == 0
    writeable = alone and header[OBJECT.REFERENCES] == 1 and header[OBJECT.OWNER] == 0
    return to_texts(Elements(data, dtype, tensor_shape(native.word), native, writeable).array())
