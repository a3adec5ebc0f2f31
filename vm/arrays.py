"""NumPy's arrays at the engine's door: arguments are read where they lie, results become arrays.

Compiled with the engine. `vm/python_layout.py` says where this Python keeps what is read here, and which of its functions make
objects. All of this runs in a thread that holds the GIL. A result that needs a closer look is left to `vm/convert.py`.
"""

from __future__ import annotations

from ..native.intrinsics import call_function, call_python, copy, load, load32, store
from ..native.words import inlined
from .heap import (
    counted,
    described,
    drop,
    item_shift,
    new_tensor,
    new_view,
    release,
    size_of,
)
from .layout import (
    CAPSULE,
    CONTEXT,
    COPIED_BYTES,
    COPIES,
    HEAD,
    ITEMS,
    KIND,
    MANNER,
    OBJECT,
    OBJECT_HEAD,
    OWNER,
    PARAMETER,
    PYTHON,
    READABLE,
    WORD,
    WRITEABLE,
)


def array_in(layout, value):
    """The array of a tensor, also of a class that extends Tensor itself, or 0; of anything else the value."""
    kind, tensor = load(value + load(layout, PYTHON.TYPE), 0), load(layout, PYTHON.TENSOR)
    if kind == load(layout, PYTHON.ARRAY):
        return value
    if kind == tensor or load(kind + load(layout, PYTHON.PARENT), 0) == tensor:
        return load(value + load(layout, PYTHON.ELEMENTS), 0)
    return value


@inlined
def is_array_of(layout, array, expected):
    """1 for a NumPy array of the element type with that descriptor, aligned and in C order."""
    if load(array + load(layout, PYTHON.TYPE), 0) != load(layout, PYTHON.ARRAY):
        return 0
    descriptor = load(array + load(layout, PYTHON.DESCRIPTOR), 0)
    if descriptor != expected:  # pickles, and so other processes, bring descriptors of their own
        kind = load(layout, PYTHON.KIND)
        if load(descriptor + kind, 0) != load(expected + kind, 0):
            return 0
    return 1 if load32(array + load(layout, PYTHON.FLAGS)) & READABLE == READABLE else 0


def copy_arrays(plan, values):
    """Copies the elements of a tuple's arrays or tensors into other arrays, as `plan` says: a tuple of an array with the words of
    COPIES, and what they refer to. A method of Python's, which gives None; or `values`, and copies nothing, unless each of them
    is of its target's shape and element type, in C order, and apart from it."""
    words = load(load(plan, ITEMS) + HEAD, 0)
    layout, count = load(words, COPIES.LAYOUT), load(words, COPIES.COUNT)
    data, given, targets = load(layout, PYTHON.DATA), values + load(layout, PYTHON.ITEMS), words + WORD * COPIES.WORDS
    answer = load(layout, PYTHON.NONE)
    for k in range(count):
        source = array_in(layout, load(given, k))
        target, size = load(targets, 2 * k), load(targets, 2 * k + 1)
        if is_like(layout, source, target) == 0:
            answer = values
            break
        distance = load(source + data, 0) - load(target + data, 0)
        if -size < distance and distance < size:
            answer = values
            break
    if answer != values:
        for k in range(count):
            target, source = load(targets, 2 * k), array_in(layout, load(given, k))
            copy(load(target + data, 0), load(source + data, 0), load(targets, 2 * k + 1))
    call_function(load(layout, PYTHON.RETAIN), answer, 0)
    return answer


def is_like(layout, source, target):
    """1 for an array of another's shape and element type, aligned and in C order."""
    if source == 0 or is_array_of(layout, source, load(target + load(layout, PYTHON.DESCRIPTOR), 0)) == 0:
        return 0
    rank = load32(target + load(layout, PYTHON.RANK))
    if load32(source + load(layout, PYTHON.RANK)) != rank:
        return 0
    shape, expected = load(source + load(layout, PYTHON.SHAPE), 0), load(target + load(layout, PYTHON.SHAPE), 0)
    for axis in range(rank):
        if load(shape, axis) != load(expected, axis):
            return 0
    return 1


def bind_array(context, array, parameter, slot):
    """Puts a NumPy array into a register. 0 if it is not what the parameter needs, or there is no memory."""
    layout = load(context, CONTEXT.PYTHON)
    if is_array_of(layout, array, load(parameter, PARAMETER.DESCRIPTOR)) == 0:
        return 0
    model = described(load(parameter, PARAMETER.TYPE))
    rank = load(model, OBJECT.COUNT)
    if load32(array + load(layout, PYTHON.RANK)) != rank:
        return 0
    shape = load(array + load(layout, PYTHON.SHAPE), 0)
    for k in range(rank):
        size = load(model, OBJECT.ITEMS + k)
        if size >= 0 and load(shape, k) != size:
            return 0
    data, manner = load(array + load(layout, PYTHON.DATA), 0), load(parameter, PARAMETER.MANNER)
    if manner == MANNER.STATIC:
        store(slot, 0, data)
        store(slot, 1, load(parameter, PARAMETER.TYPE))
        return 1
    dtype = load(model, OBJECT.TAG)
    if manner == MANNER.VIEW:
        made = new_view(context, dtype, rank, data, 0)
    else:
        size = 1 << item_shift(dtype)
        for k in range(rank):
            size *= load(shape, k)
        made = new_tensor(context, dtype, rank, size)
        if made > 0:
            copy(load(made, OBJECT.DATA), data, size)
    if made < 0:
        return 0
    copy(made + OBJECT_HEAD, shape, WORD * rank)
    store(slot, 0, load(made, OBJECT.DATA))
    store(slot, 1, made)
    return 1


def pin_array(context, array):
    """Pins an array's elements until the call is over: NumPy refuses to resize an array that has weak references,
    also where it is told not to look at the strong ones. 0 where Python has raised an error.

    `ndarray.__setstate__` and assigning to `data` free an array's elements even while in use: NumPy's own views of it dangle,
    and so does what a call reads. No reference or flag of NumPy's prevents that, so a program that does it to an array in use
    is wrong with any library; nothing in a file or a tensor can make it do so.
    """
    layout = load(context, CONTEXT.PYTHON)
    if load32(array + load(layout, PYTHON.FLAGS)) & OWNER == 0:
        array = load(array + load(layout, PYTHON.BASE), 0)
        if array == 0 or load(array + load(layout, PYTHON.TYPE), 0) != load(layout, PYTHON.ARRAY):
            return 1  # the elements are not NumPy's to move
    reference = call_python(load(layout, PYTHON.NEW_WEAK), array, 0, 0, 0, 0, 0, 0, 0)
    if reference == 0:
        return 0
    count = load(context, CONTEXT.PINNED)
    store(load(context, CONTEXT.PINS), count, reference)
    store(context, CONTEXT.PINNED, count + 1)
    return 1


def unpin_arrays(context):
    """A call is over."""
    layout, pins = load(context, CONTEXT.PYTHON), load(context, CONTEXT.PINS)
    for k in range(load(context, CONTEXT.PINNED)):
        call_function(load(layout, PYTHON.RELEASE), load(pins, k), 0)
    store(context, CONTEXT.PINNED, 0)
    return 0


def take_arrays(context):
    """The result of a call as Python owns it: a tensor is a new array, a tuple or data value a new tuple of its fields, which are
    tensors or, of the result's own fields, tuples and data values of tensors. The result's reference is given up. None where
    something needs a closer look. 0 where Python has raised an error."""
    layout, reference = load(context, CONTEXT.PYTHON), load(context, CONTEXT.RESULT_REF)
    result = described(reference)
    if load(result, OBJECT.KIND) == KIND.TENSOR:
        if is_plain(layout, reference) == 1:
            store(context, CONTEXT.RESULT_REF, 0)
            return array_of(context, layout, reference, load(context, CONTEXT.RESULT))
    elif is_alone(reference):
        fields = 0
        while fields < load(result, OBJECT.COUNT):
            field = load(result, OBJECT.ITEMS + fields)
            if is_plain(layout, field) == 0 and is_plain_record(layout, field) == 0:
                break
            fields += 1
        if fields == load(result, OBJECT.COUNT):
            store(context, CONTEXT.RESULT_REF, 0)
            return tuple_of(context, layout, reference)
    call_function(load(layout, PYTHON.RETAIN), load(layout, PYTHON.NONE), 0)
    return load(layout, PYTHON.NONE)


def is_alone(reference):
    """Whether nothing else refers to an object of the heap."""
    return counted(reference) and load(described(reference), OBJECT.REFERENCES) == 1


def is_plain(layout, reference):
    """1 for a tensor that is copied, or has its elements for itself, and whose elements NumPy has a type for."""
    address = described(reference)
    if load(address, OBJECT.KIND) != KIND.TENSOR:
        return 0
    if load(load(layout, PYTHON.DESCRIPTORS), load(address, OBJECT.TAG)) == 0:
        return 0
    has_elements = is_alone(reference) and load(address, OBJECT.OWNER) == 0
    return 1 if has_elements or size_of(address) <= COPIED_BYTES else 0


def is_plain_record(layout, reference):
    """1 for a tuple or data value of such tensors, to which nothing else refers."""
    address = described(reference)
    if load(address, OBJECT.KIND) != KIND.DATA or not is_alone(reference):
        return 0
    for k in range(load(address, OBJECT.COUNT)):
        if is_plain(layout, load(address, OBJECT.ITEMS + k)) == 0:
            return 0
    return 1


def tuple_of(context, layout, reference):
    """A tuple of a record's fields, arrays and tuples of arrays; takes over the reference, also when it fails."""
    record = described(reference)
    count = load(record, OBJECT.COUNT)
    made = call_python(load(layout, PYTHON.NEW_TUPLE), count, 0, 0, 0, 0, 0, 0, 0)
    for k in range(count):
        if made == 0:
            break
        field = load(record, OBJECT.ITEMS + k)
        store(record, OBJECT.ITEMS + k, 0)
        if load(described(field), OBJECT.KIND) == KIND.TENSOR:
            value = array_of(context, layout, field, load(described(field), OBJECT.DATA))
        else:
            value = tuple_of_arrays(context, layout, field)
        made = with_item(layout, made, k, value)
    release(context, reference)
    return made


def tuple_of_arrays(context, layout, reference):
    """As `tuple_of`, of a record of tensors alone."""
    record = described(reference)
    count = load(record, OBJECT.COUNT)
    made = call_python(load(layout, PYTHON.NEW_TUPLE), count, 0, 0, 0, 0, 0, 0, 0)
    for k in range(count):
        if made == 0:
            break
        field = load(record, OBJECT.ITEMS + k)
        store(record, OBJECT.ITEMS + k, 0)
        array = array_of(context, layout, field, load(described(field), OBJECT.DATA))
        made = with_item(layout, made, k, array)
    release(context, reference)
    return made


def with_item(layout, made, place, value):
    """A new tuple with one more item, which it takes over; 0, and no tuple, where there is no such item."""
    if value == 0:
        call_function(load(layout, PYTHON.RELEASE), made, 0)
        return 0
    call_python(load(layout, PYTHON.SET_ITEM), made, place, value, 0, 0, 0, 0, 0)
    return made


def array_of(context, layout, reference, data):
    """An array of a tensor with its elements at `data`; takes over the reference, also when it fails."""
    tensor = described(reference)
    size = size_of(tensor)
    if size <= COPIED_BYTES:
        array = new_array(layout, tensor, 0)
        if array != 0:
            copy(load(array + load(layout, PYTHON.DATA), 0), data, size)
        release(context, reference)
        return array
    owner = call_python(load(layout, PYTHON.NEW_CAPSULE), reference, 0, load(layout, PYTHON.DROP), 0, 0, 0, 0, 0)
    if owner == 0:
        drop(context, reference)
        return 0
    call_function(load(layout, PYTHON.SET_CONTEXT), owner, load(layout, PYTHON.OUTSIDE))
    array = new_array(layout, tensor, data)
    if array == 0:
        call_function(load(layout, PYTHON.RELEASE), owner, 0)
    elif call_function(load(layout, PYTHON.SET_BASE), array, owner) != 0:  # the owner is gone then
        call_function(load(layout, PYTHON.RELEASE), array, 0)
        array = 0
    return array


def new_array(layout, tensor, data):
    """An array of a tensor's dtype and shape, over memory, or with memory of its own."""
    descriptor = load(load(layout, PYTHON.DESCRIPTORS), load(tensor, OBJECT.TAG))
    call_function(load(layout, PYTHON.RETAIN), descriptor, 0)  # the array takes it over
    rank, shape = load(tensor, OBJECT.COUNT), tensor + OBJECT_HEAD
    # of an array that is to be allocated, flags would say Fortran's order
    flags = READABLE | WRITEABLE if data != 0 else 0
    return call_python(
        load(layout, PYTHON.NEW_ARRAY), load(layout, PYTHON.ARRAY), descriptor, rank, shape, 0, data, flags, 0
    )


def drop_owned(capsule):
    """Gives up the reference that a capsule owns."""
    drop(load(capsule, CAPSULE.CONTEXT), load(capsule, CAPSULE.POINTER))
    return 0
