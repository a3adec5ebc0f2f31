"""The engine's memory: objects with reference counts, the stack of frames, the arena of the frames' tensors.

Compiled with the engine (`vm/engine.py`), laid out by `vm/layout.py`. Functions that can fail return a negative trap code in
place of an address. Nothing here recurses: a list of a million cells is released by a loop.
"""

from __future__ import annotations

from ..formats.limits import DIMENSION
from ..native.intrinsics import (
    advise_large_pages,
    atomic_add,
    atomic_load,
    atomic_replace,
    clear,
    copy,
    free,
    load,
    log2,
    malloc,
    multiply_overflows,
    store,
)
from ..native.words import inlined
from .layout import (
    ARRAYS,
    CHUNKS,
    CLASSES,
    CONTEXT,
    FRAME,
    FRAME_HEAD,
    FREE,
    FUNCTION,
    ITEM_SHIFTS,
    KIND,
    LARGE,
    MAX_CHUNKS,
    MAX_LARGE,
    OBJECT,
    OBJECT_HEAD,
    PYTHON,
    TRAP,
    WORD,
)

FIRST_CHUNK = 1 << 16
REGISTER = 2 * WORD


# ---- references ----


@inlined
def counted(reference):
    return reference != 0 and reference & 1 == 0


@inlined
def described(reference):
    """The address of the object of a reference."""
    return reference & -2


@inlined
def retain(reference):
    if counted(reference):
        atomic_add(reference, OBJECT.REFERENCES, 1)


def retain_reference(reference):
    """`retain` for Python."""
    retain(reference)
    return 0


@inlined
def release(context, reference):
    if counted(reference):
        drop(context, reference)


@inlined
def is_last(address):
    """Gives one reference up: True if it was the last. A sole owner needs no atomic write."""
    return atomic_load(address, OBJECT.REFERENCES) == 1 or atomic_add(address, OBJECT.REFERENCES, -1) == 1


def drop(context, address):
    """Gives up one reference to a counted object; frees what nobody refers to any more.

    The objects that are to be freed wait in a list through their REFERENCES words.
    """
    if not is_last(address):
        return 0
    store(address, OBJECT.REFERENCES, 0)
    dead = address
    while dead != 0:
        address = dead
        dead = load(address, OBJECT.REFERENCES)
        kind = load(address, OBJECT.KIND)
        if kind == KIND.TENSOR:
            child = load(address, OBJECT.OWNER)
            if counted(child) and is_last(child):
                store(child, OBJECT.REFERENCES, dead)
                dead = child
        elif kind != KIND.STORAGE:
            for k in range(load(address, OBJECT.COUNT)):
                child = load(address, OBJECT.ITEMS + k)
                if counted(child) and is_last(child):
                    store(child, OBJECT.REFERENCES, dead)
                    dead = child
        give_back(context, address)
    return 0


@inlined
def put(context, slot, data, reference):
    """Writes a register, which takes over the reference, and releases what was in it."""
    old = load(slot, 1)
    store(slot, 0, data)
    store(slot, 1, reference)
    release(context, old)


# ---- blocks ----
# A size class is a power of two times 4, 5, 6 or 7 quarters: at most a quarter of a block is lost.


def allocate(context, size):
    """A block of `size` bytes for an object, at a multiple of 64, with one reference."""
    power = log2(size - 1)
    quarter = (size - 1 >> power - 2) & 3
    capacity = quarter + 5 << power - 2
    live = load(context, CONTEXT.LIVE) + capacity
    if live > load(context, CONTEXT.MAX_LIVE):
        return -TRAP.MEMORY
    head = FREE + 4 * power + quarter
    address = load(context, head)
    if address != 0:
        store(context, head, load(address, OBJECT.DATA))
        store(context, CONTEXT.CACHED, load(context, CONTEXT.CACHED) - capacity)
    elif capacity >= LARGE:
        address = take_large(load(load(context, CONTEXT.PYTHON), PYTHON.OUTSIDE), head, capacity)
    if address == 0:
        block = malloc_pages(capacity + 64)
        if block == 0:
            return -TRAP.NO_MEMORY
        address = block + 63 & -64
        store(address, OBJECT.BLOCK, block)
        store(address, OBJECT.SIZE, capacity)
    store(context, CONTEXT.LIVE, live)
    store(address, OBJECT.REFERENCES, 1)
    return address


@inlined
def free_list(size):
    """The word of a context that is the head of the free list of a size class."""
    power = log2(size - 1)
    return FREE + 4 * power + (size - 1 >> power - 2 & 3)


def give_back(context, address):
    """Keeps a block for the next object of its class, or frees it."""
    size = load(address, OBJECT.SIZE)
    limit = load(context, CONTEXT.MAX_CACHED)
    if limit < 0:  # the context that all threads release results through
        atomic_add(context, CONTEXT.LIVE, -size)
        if size >= LARGE:
            keep_large(context, address, size)
        else:
            free(load(address, OBJECT.BLOCK))
        return 0
    store(context, CONTEXT.LIVE, load(context, CONTEXT.LIVE) - size)
    cached = load(context, CONTEXT.CACHED) + size
    if cached > limit:
        free(load(address, OBJECT.BLOCK))
        return 0
    head = free_list(size)
    store(address, OBJECT.DATA, load(context, head))
    store(context, head, address)
    store(context, CONTEXT.CACHED, cached)
    return 0


def malloc_pages(size):
    """Memory in large pages, where it is much and the system has them: fewer faults when it is first written to."""
    block = malloc(size)
    if block != 0 and size >= LARGE:
        advise_large_pages(block, size)
    return block


# ---- blocks of large results ----
# The system clears the pages of a large block each time that it is mapped, which takes longer than most kernels take to write
# it. So those that results leave are kept for the next ones, of any machine, on free lists of the context that all threads
# release results through. A thread takes a whole list, and puts back what it does not need: nobody else sees a block that it
# looks at.


@inlined
def take_list(outside, head):
    """All blocks of a free list, the first one's address; 0 if there are none."""
    while True:
        first = atomic_load(outside, head)
        if first == 0 or atomic_replace(outside, head, first, 0) == 1:
            return first


@inlined
def put_list(outside, head, first, last):
    """Puts the blocks from `first` to `last` on a free list."""
    while True:
        following = atomic_load(outside, head)
        store(last, OBJECT.DATA, following)
        if atomic_replace(outside, head, following, first) == 1:
            return


def take_large(outside, head, size):
    """A block that a large result of a class has left; 0 if there is none."""
    address = take_list(outside, head)
    if address == 0:
        return 0
    atomic_add(outside, CONTEXT.CACHED, -size)
    rest = load(address, OBJECT.DATA)
    if rest != 0:
        last = rest
        while load(last, OBJECT.DATA) != 0:
            last = load(last, OBJECT.DATA)
        put_list(outside, head, rest, last)
    return address


def keep_large(outside, address, size):
    """Keeps the block of a large result. Blocks for which nobody has come go when there are too many of them."""
    if atomic_add(outside, CONTEXT.CACHED, size) + size > MAX_LARGE:
        hand_back(outside)
        if size > MAX_LARGE:
            atomic_add(outside, CONTEXT.CACHED, -size)
            free(load(address, OBJECT.BLOCK))
            return 0
    put_list(outside, free_list(size), address, address)
    return 0


def hand_back(outside):
    """Frees all blocks that large results have left."""
    for head in range(FREE + 4 * log2(LARGE - 1), FREE + CLASSES):
        address = take_list(outside, head)
        while address != 0:
            following = load(address, OBJECT.DATA)
            atomic_add(outside, CONTEXT.CACHED, -load(address, OBJECT.SIZE))
            free(load(address, OBJECT.BLOCK))
            address = following
    return 0


# ---- objects ----


@inlined
def item_shift(dtype):
    """log₂ of the bytes of an element."""
    return ITEM_SHIFTS >> 2 * dtype & 3


@inlined
def extend(count, dimension):
    """`count` elements along one more dimension; -1 if that is not a size."""
    if count < 0 or dimension < 0 or dimension > DIMENSION:
        return -1
    if dimension != 0 and count > DIMENSION // dimension:
        return -1
    return count * dimension


def count_elements(address):
    """The number of elements of a tensor object."""
    count = 1
    for k in range(load(address, OBJECT.COUNT)):
        count *= load(address, OBJECT.ITEMS + k)
    return count


@inlined
def size_of(address):
    """The bytes of a tensor object's elements."""
    return count_elements(address) << item_shift(load(address, OBJECT.TAG))


def new_tensor(context, dtype, rank, size):
    """A tensor object with `size` bytes of elements of its own; its dimensions are for the caller to write."""
    head = OBJECT_HEAD + WORD * rank + 63 & -64
    address = allocate(context, head + size)
    if address > 0:
        store(address, OBJECT.KIND, KIND.TENSOR)
        store(address, OBJECT.TAG, dtype)
        store(address, OBJECT.COUNT, rank)
        store(address, OBJECT.DATA, address + head)
        store(address, OBJECT.OWNER, 0)
    return address


def new_view(context, dtype, rank, data, owner):
    """A tensor object whose elements are elsewhere; takes over the reference `owner`, also when it fails."""
    address = allocate(context, OBJECT_HEAD + WORD * rank + 1)
    if address < 0:
        release(context, owner)
        return address
    store(address, OBJECT.KIND, KIND.TENSOR)
    store(address, OBJECT.TAG, dtype)
    store(address, OBJECT.COUNT, rank)
    store(address, OBJECT.DATA, data)
    store(address, OBJECT.OWNER, owner)
    return address


def new_like(context, model):
    """A tensor object of the dtype and shape of another."""
    rank, dtype = load(model, OBJECT.COUNT), load(model, OBJECT.TAG)
    address = new_tensor(context, dtype, rank, size_of(model))
    if address > 0:
        copy(address + OBJECT_HEAD, model + OBJECT_HEAD, WORD * rank)
    return address


def new_record(context, kind, tag, data, count):
    """A data value or closure; its items are for the caller to write."""
    address = allocate(context, OBJECT_HEAD + WORD * count + 1)
    if address > 0:
        store(address, OBJECT.KIND, kind)
        store(address, OBJECT.TAG, tag)
        store(address, OBJECT.COUNT, count)
        store(address, OBJECT.DATA, data)
        store(address, OBJECT.OWNER, 0)
    return address


def new_storage(context, size):
    head = OBJECT_HEAD + WORD + 63 & -64
    address = allocate(context, head + size)
    if address > 0:
        store(address, OBJECT.KIND, KIND.STORAGE)
        store(address, OBJECT.COUNT, 1)
        store(address, OBJECT.DATA, address + head)
        store(address, OBJECT.ITEMS, size)
    return address


# ---- memory of NumPy's arrays, on account of a host operator (`vm/array_memory.py`) ----

ARRAY_HEAD = 16  # bytes before the elements: the size


def array_malloc(account, size):
    if atomic_add(account, ARRAYS.USED, size) + size > load(account, ARRAYS.MOST):
        store(account, ARRAYS.REFUSED, 1)
        atomic_add(account, ARRAYS.USED, -size)
        return 0
    block = malloc(size + ARRAY_HEAD)
    if block == 0:
        atomic_add(account, ARRAYS.USED, -size)
        return 0
    store(block, 0, size)
    return block + ARRAY_HEAD


def array_calloc(account, count, size):
    if multiply_overflows(count, size) != 0:
        return 0
    address = array_malloc(account, count * size)
    if address != 0:
        clear(address, count * size)
    return address


def array_free(account, address, size):
    if address != 0:
        atomic_add(account, ARRAYS.USED, -load(address - ARRAY_HEAD, 0))
        free(address - ARRAY_HEAD)
    return 0


def array_realloc(account, address, size):
    new = array_malloc(account, size)
    if new != 0 and address != 0:
        copy(new, address, min(size, load(address - ARRAY_HEAD, 0)))
        array_free(account, address, 0)
    return new


# ---- frames ----


def arena_take(context, size):
    """Tensor memory for a frame: the next `size` bytes of the current chunk, or the beginning of the next."""
    at, used = load(context, CONTEXT.CHUNK), load(context, CONTEXT.USED)
    chunk = context + WORD * (CHUNKS + 2 * at)
    if load(chunk, 0) == 0 or used + size > load(chunk, 1):
        most = FIRST_CHUNK
        if load(chunk, 0) != 0:
            if at + 1 == MAX_CHUNKS:
                return -TRAP.NO_MEMORY
            most = 2 * load(chunk, 1)
            at, used = at + 1, 0
            chunk += 2 * WORD
        if load(chunk, 0) != 0 and load(chunk, 1) < size:
            free(load(chunk, 0))
            store(chunk, 0, 0)
        if load(chunk, 0) == 0:
            block = malloc_pages(max(most, size) + 64)
            if block == 0:
                return -TRAP.NO_MEMORY
            store(chunk, 0, block)
            store(chunk, 1, max(most, size))
        store(context, CONTEXT.CHUNK, at)
    store(context, CONTEXT.USED, used + size)
    return (load(chunk, 0) + 63 & -64) + used


def grow_stack(context, used, needed):
    """Moves the stack, `used` bytes of it, into a block of at least `needed` bytes. 0 if the system has none: it stays
    where it is then."""
    size = max(needed, 2 * load(context, CONTEXT.STACK_SIZE))
    block = malloc(size)
    if block == 0:
        return 0
    old = load(context, CONTEXT.STACK)
    if old != 0:
        copy(block, old, used)
        free(old)
    store(context, CONTEXT.STACK, block)
    store(context, CONTEXT.STACK_SIZE, size)
    return 1


def push(context, top, function, caller, origin, target):
    """A new frame, `top` bytes from the start of the stack, `caller` bytes after its caller's. May move the stack.

    Whatever can fail comes before the stack moves: after a trap, every address in it that the engine has is good still.
    """
    size, memory = load(function, FUNCTION.FRAME_SIZE), load(function, FUNCTION.MEMORY)
    depth, live = load(context, CONTEXT.DEPTH), load(context, CONTEXT.LIVE) + size + memory
    chunk, used = load(context, CONTEXT.CHUNK), load(context, CONTEXT.USED)
    if depth >= load(context, CONTEXT.MAX_DEPTH):
        return -TRAP.DEPTH
    if live > load(context, CONTEXT.MAX_LIVE):
        return -TRAP.MEMORY
    if memory != 0:
        memory = arena_take(context, memory)
        if memory < 0:
            return memory
    if top + size > load(context, CONTEXT.STACK_SIZE) and grow_stack(context, top, top + size) == 0:
        store(context, CONTEXT.CHUNK, chunk)
        store(context, CONTEXT.USED, used)
        return -TRAP.NO_MEMORY
    frame = load(context, CONTEXT.STACK) + top
    store(frame, FRAME.CHUNK, chunk)
    store(frame, FRAME.USED, used)
    store(frame, FRAME.MEMORY, memory)
    store(frame, FRAME.CALLER, caller)
    store(frame, FRAME.FUNCTION, function)
    store(frame, FRAME.RETURN, origin)
    store(frame, FRAME.TARGET, target)
    clear(frame + FRAME_HEAD, REGISTER * load(function, FUNCTION.REFERENCES))
    store(context, CONTEXT.DEPTH, depth + 1)
    store(context, CONTEXT.LIVE, live)
    return frame


def pop(context, frame):
    """Releases a frame's registers and memory."""
    function = load(frame, FRAME.FUNCTION)
    slot = frame + FRAME_HEAD
    for _ in range(load(function, FUNCTION.REFERENCES)):
        release(context, load(slot, 1))
        slot += REGISTER
    store(context, CONTEXT.CHUNK, load(frame, FRAME.CHUNK))
    store(context, CONTEXT.USED, load(frame, FRAME.USED))
    store(context, CONTEXT.DEPTH, load(context, CONTEXT.DEPTH) - 1)
    size = load(function, FUNCTION.FRAME_SIZE) + load(function, FUNCTION.MEMORY)
    store(context, CONTEXT.LIVE, load(context, CONTEXT.LIVE) - size)
    return 0


def close(context):
    """Frees what an idle context keeps: free lists, arena, stack."""
    for k in range(FREE, FREE + CLASSES):
        address = load(context, k)
        store(context, k, 0)
        while address != 0:
            following = load(address, OBJECT.DATA)
            free(load(address, OBJECT.BLOCK))
            address = following
    for k in range(MAX_CHUNKS):
        free(load(context, CHUNKS + 2 * k))
        store(context, CHUNKS + 2 * k, 0)
    free(load(context, CONTEXT.STACK))
    store(context, CONTEXT.STACK, 0)
    store(context, CONTEXT.STACK_SIZE, 0)
    store(context, CONTEXT.CACHED, 0)
    return 0


def settle(context):
    """Leaves it to the context that results are released through to count the objects that are in use."""
    atomic_add(load(load(context, CONTEXT.PYTHON), PYTHON.OUTSIDE), CONTEXT.LIVE, load(context, CONTEXT.LIVE))
    store(context, CONTEXT.LIVE, 0)
    return 0
