"""The dispatch loop: executes a program until it returns or traps.

One native function over flat memory (`vm/layout.py`), compiled by `native/words.py` and kept as object code (`vm/core.py`).
It trusts the verifier: fields are in range and registers hold values of the types that instructions need. Values known
only at run time (sizes, tags, shapes, divisors) are checked here, before any effect: an instruction that traps has had none,
and the program counter stands on it.
"""

from __future__ import annotations

from ..native.convention import STOP_WORD, STOPPED
from ..native.intrinsics import (
    add_overflows,
    atomic_add,
    call_kernel,
    call_python,
    copy,
    load,
    load8,
    load16,
    load32,
    multiply_overflows,
    store,
    subtract_overflows,
)
from ..native.words import inlined
from .arrays import array_in, bind_array, pin_array, unpin_arrays
from .heap import (
    REGISTER,
    described,
    extend,
    item_shift,
    new_like,
    new_record,
    new_storage,
    new_tensor,
    new_view,
    pop,
    push,
    put,
    release,
    retain,
    size_of,
)
from .layout import (
    AT,
    BINARY,
    CONTEXT,
    DST,
    DTYPE,
    FRAME,
    FRAME_HEAD,
    FUNCTION,
    KIND,
    MANNER,
    OBJECT,
    OBJECT_HEAD,
    OPCODE,
    PARAMETER,
    POOL,
    PRIMITIVE,
    PYTHON,
    TRAP,
    WORD,
)
from .parallel import free_threads, run_parts, see_more_processors

COPY_PIECE = 8 << 20  # bytes that are copied between two looks at the stop word: about a millisecond
NO_ROOM = -2  # a kernel's scratch memory passes the call's memory budget


@inlined
def operand(word, ints):
    """The value of a d field: the word itself, or the integer register that it names."""
    return word if word >= 0 else load(ints, ~word)


@inlined
def register(refs, index):
    return refs + REGISTER * index


@inlined
def next_list(at):
    """The address after the list at `at`."""
    return at + WORD + WORD * load(at, 0)


def measure(shape, ints, shift):
    """The bytes of a tensor of the shape that the d list at `shape` gives, of elements of 1 << shift bytes; -1 if there is none.
    A zero counts as 1 for that, as in `size_problem`: strides are products of the others."""
    size, is_empty = 1 << shift, 0
    for k in range(load(shape, 0)):
        dimension = operand(load(shape, 1 + k), ints)
        if dimension == 0:
            is_empty = 1
        else:
            size = extend(size, dimension)
    return 0 if is_empty != 0 and size > 0 else size


def write_shape(tensor, shape, ints):
    for k in range(load(shape, 0)):
        store(tensor, OBJECT.ITEMS + k, operand(load(shape, 1 + k), ints))
    return 0


def has_shape(tensor, shape, ints):
    """1 if a tensor has the shape of the d list at `shape`."""
    if load(tensor, OBJECT.COUNT) != load(shape, 0):
        return 0
    for k in range(load(shape, 0)):
        if load(tensor, OBJECT.ITEMS + k) != operand(load(shape, 1 + k), ints):
            return 0
    return 1


def element(data, dtype, k):
    """Element k of an array of integers or booleans."""
    shift = item_shift(dtype)
    data += k << shift
    if shift == 0:
        return load8(data) & 0xFF if dtype == DTYPE.uint8 or dtype == DTYPE.bool else load8(data)
    if shift == 1:
        return load16(data) & 0xFFFF if dtype == DTYPE.uint16 else load16(data)
    if shift == 2:
        return load32(data) & 0xFFFFFFFF if dtype == DTYPE.uint32 else load32(data)
    return load(data, 0)


@inlined
def arithmetic_failure(opcode, a, b):
    """The trap that integer arithmetic ends in, 0 if it does not."""
    if opcode == OPCODE.add:
        overflows = add_overflows(a, b)
    elif opcode == OPCODE.subtract:
        overflows = subtract_overflows(a, b)
    elif opcode == OPCODE.multiply:
        overflows = multiply_overflows(a, b)
    elif opcode == OPCODE.floor_divide or opcode == OPCODE.remainder:
        if b == 0:
            return TRAP.DIVISION
        overflows = subtract_overflows(0, a) if b == -1 and opcode == OPCODE.floor_divide else 0
    else:
        overflows = 0
    return TRAP.OVERFLOW if overflows != 0 else 0


@inlined
def arithmetic(opcode, a, b):
    if opcode == OPCODE.add:
        return a + b
    if opcode == OPCODE.subtract:
        return a - b
    if opcode == OPCODE.multiply:
        return a * b
    if opcode == OPCODE.minimum:
        return min(a, b)
    if opcode == OPCODE.maximum:
        return max(a, b)
    if opcode == OPCODE.equal:
        return 1 if a == b else 0
    if opcode == OPCODE.less:
        return 1 if a < b else 0
    if b == -1:  # the processor faults on -2^63 // -1, and on the remainder too
        return -a if opcode == OPCODE.floor_divide else 0
    return a // b if opcode == OPCODE.floor_divide else a % b


def new_dynamic(context, dtype, shape, ints):
    """A tensor of the shape of the d list at `shape`, or a negative trap."""
    size = measure(shape, ints, item_shift(dtype))
    if size < 0:
        return -TRAP.SIZE
    tensor = new_tensor(context, dtype, load(shape, 0), size)
    if tensor > 0:
        write_shape(tensor, shape, ints)
    return tensor


def new_in_storage(context, storage, offset, dtype, shape, ints):
    """A tensor in a storage's memory, or a negative trap."""
    size = measure(shape, ints, item_shift(dtype))
    if size < 0:
        return -TRAP.SIZE
    if offset < 0 or offset & 63 != 0 or offset > load(described(storage), OBJECT.ITEMS) - size:
        return -TRAP.STORAGE
    retain(storage)
    data = load(described(storage), OBJECT.DATA) + offset
    tensor = new_view(context, dtype, load(shape, 0), data, storage)
    if tensor > 0:
        write_shape(tensor, shape, ints)
    return tensor


def new_reshaped(context, data, source, shape, ints):
    """A view of a tensor's elements in another shape, or a negative trap."""
    model = described(source)
    if measure(shape, ints, item_shift(load(model, OBJECT.TAG))) != size_of(model):
        return -TRAP.RESHAPE
    owner = load(model, OBJECT.OWNER)  # straight to who holds the elements: chains of views stay short
    if owner == 0:
        owner = source
    retain(owner)
    tensor = new_view(context, load(model, OBJECT.TAG), load(shape, 0), data, owner)
    if tensor > 0:
        write_shape(tensor, shape, ints)
    return tensor


def new_shape(context, shape, ints):
    """An int64 tensor that holds the values of the d list at `shape`."""
    count = load(shape, 0)
    tensor = new_tensor(context, DTYPE.int64, 1, WORD * count)
    if tensor > 0:
        store(tensor, OBJECT.ITEMS, count)
        for k in range(count):
            store(load(tensor, OBJECT.DATA), k, operand(load(shape, 1 + k), ints))
    return tensor


def new_copy(context, data, source):
    model = described(source)
    tensor = new_like(context, model)
    if tensor > 0:
        target, left = load(tensor, OBJECT.DATA), size_of(model)
        while left > 0:
            if load(load(context, CONTEXT.ARGUMENTS), STOP_WORD) != 0:
                release(context, tensor)
                return -TRAP.STOPPED
            piece = min(left, COPY_PIECE)
            copy(target, data, piece)
            target, data, left = target + piece, data + piece, left - piece
    return tensor


@inlined
def charge(fuel, worked, ticks):
    """Takes time off the slice for an instruction that takes longer than others, so that no slice lasts much longer than
    it should. Steps, which budgets count, are what is left."""
    return fuel - ticks, worked + ticks


def fill_items(record, items, refs):
    """Fields or captured values, from the register list at `items`. Returns the ticks that it took."""
    for k in range(load(items, 0)):
        reference = load(register(refs, load(items, 1 + k)), 1)
        retain(reference)
        store(record, OBJECT.ITEMS + k, reference)
    return load(items, 0) >> 1


@inlined
def take_result_memory(context, frame, at, model):
    """A result's tensor object, in the memory that the caller gave for it; 0 if this is not the place for one."""
    if at != load(context, CONTEXT.RESULT_AT) or load(frame, FRAME.CALLER) != 0:
        return 0
    buffer, places = load(context, CONTEXT.BUFFER), load(context, CONTEXT.PLACES)
    if places == 0:
        store(context, CONTEXT.RESULT_AT, -1)
    else:
        store(context, CONTEXT.RESULT_AT, load(places, 0))
        store(context, CONTEXT.BUFFER, load(places, 1))
        store(context, CONTEXT.PLACES, places + 2 * WORD)
    rank = load(model, OBJECT.COUNT)
    tensor = new_view(context, load(model, OBJECT.TAG), rank, buffer, 0)
    if tensor > 0:
        copy(tensor + OBJECT_HEAD, model + OBJECT_HEAD, WORD * rank)
    return tensor


def enter(context, frame, function, arguments, captured, origin, target):
    """A frame for a function called with the register list at `arguments`, and the values of the closure `captured` or 0."""
    size = load(load(frame, FRAME.FUNCTION), FUNCTION.FRAME_SIZE)
    top = frame + size - load(context, CONTEXT.STACK)
    frame = push(context, top, function, size, origin, target)
    if frame < 0:
        return frame
    slot = frame + FRAME_HEAD
    sources = frame - load(frame, FRAME.CALLER) + FRAME_HEAD  # the stack may have moved
    for k in range(load(arguments, 0)):
        source = register(sources, load(arguments, 1 + k))
        reference = load(source, 1)
        retain(reference)
        store(slot, 0, load(source, 0))
        store(slot, 1, reference)
        slot += REGISTER
    if captured != 0:
        for k in range(load(captured, OBJECT.COUNT)):
            reference = load(captured, OBJECT.ITEMS + k)
            retain(reference)
            store(slot, 0, load(described(reference), OBJECT.DATA))
            store(slot, 1, reference)
            slot += REGISTER
    return frame


@inlined
def call_primitive(context, primitive, at, refs, ints):
    """Calls native code with the lists of inputs, outputs and dimensions at `at`. Its failure code, or STOPPED, or NO_ROOM."""
    arguments = load(context, CONTEXT.ARGUMENTS)
    if load(arguments, STOP_WORD) != 0:
        return STOPPED
    if load(context, CONTEXT.LIVE) + load(primitive, PRIMITIVE.SCRATCH) > load(context, CONTEXT.MAX_LIVE):
        return NO_ROOM
    store(arguments, 0, load(primitive, PRIMITIVE.STATIC))
    filled = arguments + WORD
    for _ in range(2):
        for k in range(load(at, 0)):
            store(filled, k, load(register(refs, load(at, 1 + k)), 0))
        filled += WORD * load(at, 0)
        at = next_list(at)
    for k in range(load(at, 0)):
        store(filled, k, operand(load(at, 1 + k), ints))
    kernel = load(primitive, PRIMITIVE.KERNEL)
    if load(primitive, PRIMITIVE.PARALLEL) != 0:
        threads = min(free_threads(load(context, CONTEXT.POOL)), load(context, CONTEXT.THREADS))
        if threads > 1:
            return run_parts(context, primitive, arguments, call_kernel(kernel, arguments, 0, -1, threads), threads)
    return call_kernel(kernel, arguments, load(context, CONTEXT.SCRATCH), 0, 1)


def run(context):
    """Executes from the context's program counter on, as one of the calls that run. Returns a trap."""
    pool = load(context, CONTEXT.POOL)
    if load(pool, POOL.LIMIT) < load(pool, POOL.THREADS):
        see_more_processors(pool)
    atomic_add(pool, POOL.ACTIVE, 1)
    trap = execute(context)
    atomic_add(pool, POOL.ACTIVE, -1)
    return trap


def execute(context):
    code = load(context, CONTEXT.CODE)
    functions, primitives = load(context, CONTEXT.FUNCTIONS), load(context, CONTEXT.PRIMITIVES)
    pc = code + load(context, CONTEXT.PC)
    frame = load(context, CONTEXT.STACK) + load(context, CONTEXT.FRAME)
    refs = frame + FRAME_HEAD
    ints = refs + REGISTER * load(load(frame, FRAME.FUNCTION), FUNCTION.REFERENCES)
    fuel, worked = load(context, CONTEXT.FUEL), 0
    trap = -1
    while trap < 0:
        fuel -= 1
        if fuel < 0:
            fuel, trap = fuel + 1, TRAP.SLICE
            break
        opcode = load(pc, 0)

        if opcode == OPCODE.call:
            primitive = primitives + WORD * PRIMITIVE.WORDS * load(pc, AT.call.prim)
            if load(primitive, PRIMITIVE.KERNEL) == 0:
                fuel, trap = fuel + 1, TRAP.HOST
                break
            failure = call_primitive(context, primitive, pc + WORD * AT.call.inputs, refs, ints)
            if failure != 0:
                store(context, CONTEXT.DETAIL, failure)
                trap = TRAP.KERNEL
                if failure == STOPPED:
                    fuel, trap = fuel + 1, TRAP.STOPPED
                elif failure == NO_ROOM:
                    trap = TRAP.MEMORY
                break
            fuel, worked = charge(fuel, worked, load(primitive, PRIMITIVE.TICKS))
            pc = next_list(next_list(next_list(pc + WORD * AT.call.inputs)))

        elif opcode == OPCODE.frame_tensor:
            reference = load(load(context, CONTEXT.TYPES), load(pc, AT.frame_tensor.type))
            data = load(frame, FRAME.MEMORY) + load(pc, AT.frame_tensor.offset)
            put(context, register(refs, load(pc, AT.frame_tensor.dst)), data, reference)
            pc += WORD * AT.frame_tensor.END

        elif opcode == OPCODE.load_const:
            constant = register(load(context, CONTEXT.CONSTANTS), load(pc, AT.load_const.const))
            put(context, register(refs, load(pc, AT.load_const.dst)), load(constant, 0), load(constant, 1))
            pc += WORD * AT.load_const.END

        elif opcode == OPCODE.move:
            source = register(refs, load(pc, AT.move.src))
            reference = load(source, 1)
            retain(reference)
            put(context, register(refs, load(pc, AT.move.dst)), load(source, 0), reference)
            pc += WORD * AT.move.END

        elif opcode == OPCODE.kill:
            count = load(pc, AT.kill.regs)
            for k in range(count):
                put(context, register(refs, load(pc, AT.kill.regs + 1 + k)), 0, 0)
            fuel, worked = charge(fuel, worked, count >> 1)
            pc = next_list(pc + WORD * AT.kill.regs)

        elif opcode == OPCODE.load_int:
            store(ints, load(pc, AT.load_int.dst), load(pc, AT.load_int.imm))
            pc += WORD * AT.load_int.END

        elif opcode == OPCODE.move_int:
            store(ints, load(pc, AT.move_int.dst), load(ints, load(pc, AT.move_int.src)))
            pc += WORD * AT.move_int.END

        elif opcode == OPCODE.goto:
            pc += WORD * load(pc, AT.goto.label)

        elif opcode == OPCODE.if_int:
            pc += (
                WORD * load(pc, AT.if_int.label) if load(ints, load(pc, AT.if_int.cond)) == 0 else WORD * AT.if_int.END
            )

        elif opcode == OPCODE.if_:
            source = register(refs, load(pc, AT.if_.cond))
            value = element(load(source, 0), load(described(load(source, 1)), OBJECT.TAG), 0)
            pc += WORD * load(pc, AT.if_.label) if value == 0 else WORD * AT.if_.END

        elif opcode == OPCODE.ret:
            slot = register(refs, load(pc, AT.ret.src))
            data, reference = load(slot, 0), load(slot, 1)
            store(slot, 1, 0)  # the caller takes the reference over
            target, origin, caller = load(frame, FRAME.TARGET), load(frame, FRAME.RETURN), load(frame, FRAME.CALLER)
            pop(context, frame)
            if caller == 0:
                trap = finish(context, data, reference)
                frame = load(context, CONTEXT.STACK) - 1
                break
            frame -= caller
            refs = frame + FRAME_HEAD
            ints = refs + REGISTER * load(load(frame, FRAME.FUNCTION), FUNCTION.REFERENCES)
            put(context, register(refs, target), data, reference)
            pc = code + origin

        elif opcode == OPCODE.invoke:
            function = functions + WORD * FUNCTION.WORDS * load(pc, AT.invoke.func)
            arguments = pc + WORD * AT.invoke.args
            behind, target = next_list(arguments) - code, load(pc, AT.invoke.dst)
            entered = enter(context, frame, function, arguments, 0, behind, target)
            if entered < 0:
                trap = -entered
                break
            frame = entered
            refs = frame + FRAME_HEAD
            ints = refs + REGISTER * load(function, FUNCTION.REFERENCES)
            fuel, worked = charge(fuel, worked, load(function, FUNCTION.REFERENCES) >> 1)
            pc = code + load(function, FUNCTION.ENTRY)

        elif opcode == OPCODE.invoke_closure:
            closure = described(load(register(refs, load(pc, AT.invoke_closure.closure)), 1))
            function = functions + WORD * FUNCTION.WORDS * load(closure, OBJECT.TAG)
            arguments = pc + WORD * AT.invoke_closure.args
            behind, target = next_list(arguments) - code, load(pc, AT.invoke_closure.dst)
            entered = enter(context, frame, function, arguments, closure, behind, target)
            if entered < 0:
                trap = -entered
                break
            frame = entered
            refs = frame + FRAME_HEAD
            ints = refs + REGISTER * load(function, FUNCTION.REFERENCES)
            fuel, worked = charge(fuel, worked, load(function, FUNCTION.REFERENCES) >> 1)
            pc = code + load(function, FUNCTION.ENTRY)

        elif opcode == OPCODE.get_field:
            record = described(load(register(refs, load(pc, AT.get_field.object)), 1))
            if load(record, OBJECT.TAG) != load(pc, AT.get_field.tag):
                trap = TRAP.TAG
                break
            reference = load(record, OBJECT.ITEMS + load(pc, AT.get_field.index))
            retain(reference)
            target = register(refs, load(pc, AT.get_field.dst))
            put(context, target, load(described(reference), OBJECT.DATA), reference)
            pc += WORD * AT.get_field.END

        elif opcode == OPCODE.get_tag:
            record = described(load(register(refs, load(pc, AT.get_tag.object)), 1))
            store(ints, load(pc, AT.get_tag.dst), load(record, OBJECT.TAG))
            pc += WORD * AT.get_tag.END

        elif opcode == OPCODE.shape_of:
            behind = next_list(pc + WORD * AT.shape_of.dst)
            tensor = described(load(register(refs, load(behind, AT.shape_of.tensor)), 1))
            for k in range(load(pc, AT.shape_of.dst)):
                store(ints, load(pc, AT.shape_of.dst + 1 + k), load(tensor, OBJECT.ITEMS + k))
            pc = behind + WORD * AT.shape_of.END

        elif opcode == OPCODE.match_shape:
            tensor = described(load(register(refs, load(pc, AT.match_shape.tensor)), 1))
            if has_shape(tensor, pc + WORD * AT.match_shape.shape, ints) == 0:
                trap = TRAP.SHAPE
                break
            pc = next_list(pc + WORD * AT.match_shape.shape)

        elif opcode == OPCODE.read_shape:
            behind = next_list(pc + WORD * AT.read_shape.dst)
            source = register(refs, load(behind, AT.read_shape.tensor))
            tensor = described(load(source, 1))
            for k in range(load(pc, AT.read_shape.dst)):
                value = element(load(source, 0), load(tensor, OBJECT.TAG), k)
                store(ints, load(pc, AT.read_shape.dst + 1 + k), value)
            pc = behind + WORD * AT.read_shape.END

        elif opcode >= OPCODE.add and opcode <= OPCODE.less:
            a, b = operand(load(pc, BINARY.a), ints), operand(load(pc, BINARY.b), ints)
            failure = arithmetic_failure(opcode, a, b)
            if failure != 0:
                trap = failure
                break
            store(ints, load(pc, BINARY.dst), arithmetic(opcode, a, b))
            pc += WORD * BINARY.END

        elif opcode == OPCODE.call_host:
            fuel, trap = fuel + 1, TRAP.HOST

        elif opcode == OPCODE.call_import:
            fuel, trap = fuel + 1, TRAP.IMPORT

        elif opcode == OPCODE.fatal:
            trap = TRAP.FATAL

        else:
            # what makes a new object in r[dst]; the instruction's end is where `following` says
            made = -TRAP.HOOK
            following = pc
            data = 0
            if opcode == OPCODE.alloc_tensor:
                model = described(load(load(context, CONTEXT.TYPES), load(pc, AT.alloc_tensor.type)))
                made = take_result_memory(context, frame, pc - code, model)
                if made == 0:
                    made = new_like(context, model)
                following = pc + WORD * AT.alloc_tensor.END
            elif opcode == OPCODE.alloc_dynamic:
                shape = pc + WORD * AT.alloc_dynamic.shape
                made = new_dynamic(context, load(pc, AT.alloc_dynamic.dtype), shape, ints)
                following = next_list(shape)
            elif opcode == OPCODE.alloc_storage:
                size = operand(load(pc, AT.alloc_storage.size), ints)
                made = new_storage(context, size) if extend(size, 1) >= 0 else -TRAP.SIZE
                following = pc + WORD * AT.alloc_storage.END
            elif opcode == OPCODE.storage_tensor:
                storage = load(register(refs, load(pc, AT.storage_tensor.storage)), 1)
                offset = operand(load(pc, AT.storage_tensor.offset), ints)
                shape = pc + WORD * AT.storage_tensor.shape
                made = new_in_storage(context, storage, offset, load(pc, AT.storage_tensor.dtype), shape, ints)
                following = next_list(shape)
            elif opcode == OPCODE.alloc_data:
                items = pc + WORD * AT.alloc_data.fields
                tag, type_ = load(pc, AT.alloc_data.tag), load(pc, AT.alloc_data.type)
                made = new_record(context, KIND.DATA, tag, type_, load(items, 0))
                following = next_list(items)
                if made > 0:
                    fuel, worked = charge(fuel, worked, fill_items(made, items, refs))
            elif opcode == OPCODE.alloc_closure:
                items = pc + WORD * AT.alloc_closure.captured
                made = new_record(context, KIND.CLOSURE, load(pc, AT.alloc_closure.func), 0, load(items, 0))
                following = next_list(items)
                if made > 0:
                    fuel, worked = charge(fuel, worked, fill_items(made, items, refs))
            elif opcode == OPCODE.reshape:
                source, shape = register(refs, load(pc, AT.reshape.src)), pc + WORD * AT.reshape.shape
                made = new_reshaped(context, load(source, 0), load(source, 1), shape, ints)
                following = next_list(shape)
            elif opcode == OPCODE.make_shape:
                made = new_shape(context, pc + WORD * AT.make_shape.shape, ints)
                following = next_list(pc + WORD * AT.make_shape.shape)
            elif opcode == OPCODE.device_copy:
                source = register(refs, load(pc, AT.device_copy.src))
                made = new_copy(context, load(source, 0), load(source, 1))
                fuel, worked = charge(fuel, worked, size_of(described(load(source, 1))) >> 5)
                following = pc + WORD * AT.device_copy.END
            elif opcode == OPCODE.alloc_on:
                shape = pc + WORD * AT.alloc_on.shape
                made = new_dynamic(context, load(pc, AT.alloc_on.dtype), shape, ints)
                following = next_list(shape)
            if made < 0:
                trap = -made
                if trap == TRAP.HOOK:
                    fuel += 1
                break
            put(context, register(refs, load(pc, DST)), load(made, OBJECT.DATA), made)
            pc = following

    store(context, CONTEXT.PC, pc - code)
    store(context, CONTEXT.FRAME, frame - load(context, CONTEXT.STACK))
    store(context, CONTEXT.FUEL, fuel)
    store(context, CONTEXT.WORKED, load(context, CONTEXT.WORKED) + worked)
    return trap


def finish(context, data, reference):
    """Hands the result over."""
    buffer, places = load(context, CONTEXT.BUFFER), load(context, CONTEXT.PLACES)
    store(context, CONTEXT.BUFFER, 0)  # the next call may have none
    store(context, CONTEXT.RESULT_AT, -1)
    store(context, CONTEXT.PLACES, 0)
    if places != 0 or (data == buffer and data != 0):
        release(context, reference)
        return TRAP.IN_PLACE
    store(context, CONTEXT.RESULT, data)
    store(context, CONTEXT.RESULT_REF, reference)
    return TRAP.RETURNED


def start(context, index):
    """Makes the outermost frame, for function `index` with the registers in ARGUMENTS, which it takes over. 0, or a trap."""
    function = load(context, CONTEXT.FUNCTIONS) + WORD * FUNCTION.WORDS * index
    arguments, count = load(context, CONTEXT.ARGUMENTS), load(function, FUNCTION.PARAMETERS)
    frame = push(context, 0, function, 0, 0, 0)
    if frame < 0:
        for k in range(count):
            release(context, load(arguments, 2 * k + 1))
        return -frame
    copy(frame + FRAME_HEAD, arguments, REGISTER * count)
    store(context, CONTEXT.FRAME, 0)
    store(context, CONTEXT.PC, load(function, FUNCTION.ENTRY))
    return 0


def unwind(context):
    """Releases every frame of a call that will not go on, a result that Ctrl-C has kept from being taken, and what it has pinned.
    Called with the GIL."""
    offset = load(context, CONTEXT.FRAME)
    while offset >= 0:
        frame = load(context, CONTEXT.STACK) + offset
        caller = load(frame, FRAME.CALLER)
        pop(context, frame)
        offset = offset - caller if caller != 0 else -1
    store(context, CONTEXT.FRAME, -1)
    reference = load(context, CONTEXT.RESULT_REF)
    if reference != 0:
        store(context, CONTEXT.RESULT_REF, 0)
        release(context, reference)
    unpin_arrays(context)
    return 0


def give_up(context, arguments, count):
    """Releases the first arguments of a call that does not start."""
    for k in range(count):
        release(context, load(arguments, 2 * k + 1))
    unpin_arrays(context)


def call_bound(context, index, arguments, places):
    """Calls a function with registers that were filled before, in memory that nobody changes meanwhile; runs until a trap.

    At `places`, [RESULT_AT, BUFFER] for each tensor of its result in the order of the code, then [-1, 0]. Where that is 0, the
    results are new ones.
    """
    count = load(load(context, CONTEXT.FUNCTIONS) + WORD * FUNCTION.WORDS * index, FUNCTION.PARAMETERS)
    target = load(context, CONTEXT.ARGUMENTS)
    store(target, STOP_WORD, 0)
    copy(target, arguments, REGISTER * count)
    store(context, CONTEXT.FUEL, load(context, CONTEXT.SLICE))
    give_places(context, places)
    trap = start(context, index)
    return run(context) if trap == 0 else trap


def give_places(context, places):
    """Has the next call make its results in the caller's memory. See `call_bound`."""
    if places == 0:
        return 0
    store(context, CONTEXT.RESULT_AT, load(places, 0))
    store(context, CONTEXT.BUFFER, load(places, 1))
    store(context, CONTEXT.PLACES, places + 2 * WORD)
    return 0


def call_arrays(context, index, values, result):
    """Calls a function of tensors with a tuple of NumPy arrays or tensors, and a new array for its result; runs until a trap.

    Called with the GIL, which is given up while the program runs: objects that other threads may change are read before, and
    arrays pinned until the call is over. UNUSUAL when any argument is not an array that can be taken as it is: nothing has
    happened then.
    """
    layout = load(context, CONTEXT.PYTHON)
    function = load(context, CONTEXT.FUNCTIONS) + WORD * FUNCTION.WORDS * index
    count = load(function, FUNCTION.PARAMETERS)
    if load(values + load(layout, PYTHON.LENGTH), 0) != count:
        return TRAP.UNUSUAL
    arguments, parameter = load(context, CONTEXT.ARGUMENTS), load(function, FUNCTION.ARRAYS)
    store(arguments, STOP_WORD, 0)
    for k in range(count):
        array = array_in(layout, load(values + load(layout, PYTHON.ITEMS), k))
        if array == 0 or bind_array(context, array, parameter, arguments + REGISTER * k) == 0:
            give_up(context, arguments, k)
            return TRAP.UNUSUAL
        if load(parameter, PARAMETER.MANNER) != MANNER.COPY and pin_array(context, array) == 0:
            give_up(context, arguments, k + 1)
            return TRAP.UNUSUAL  # Python raises its error
        parameter += WORD * PARAMETER.WORDS
    store(context, CONTEXT.FUEL, load(context, CONTEXT.SLICE))
    store(context, CONTEXT.BUFFER, load(result + load(layout, PYTHON.DATA), 0))
    store(context, CONTEXT.RESULT_AT, load(function, FUNCTION.RESULT_AT))
    trap = start(context, index)
    if trap != 0:
        return trap
    thread = call_python(load(layout, PYTHON.UNLOCK), 0, 0, 0, 0, 0, 0, 0, 0)
    trap = run(context)
    call_python(load(layout, PYTHON.LOCK), thread, 0, 0, 0, 0, 0, 0, 0)
    if trap == TRAP.IN_PLACE or trap == TRAP.RETURNED:
        unpin_arrays(context)
    return trap
