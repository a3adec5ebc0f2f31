"""The words of the engine's memory: every block's layout, once.

Everything the engine touches is 64-bit words at raw addresses. A table below names the words of one kind of block; the
engine reads word DATA of an object `o` as `load(o, OBJECT.DATA)`. The same names serve the Python side (`vm/context.py`,
`vm/image.py`).

A *reference*, wherever it stands (registers, fields, owners), is one word:

    0         empty
    even      the address of a counted object: the word owns one of its references
    odd       the address + 1 of an object that is never freed (a constant, a static tensor type), not counted

A reference register is two words: [0] the address of the elements (tensors, storages) and [1] a reference to the object that
describes them. A tensor in its frame's own memory, or in an array of the caller, has its static type as object: odd, so
that nobody counts it, and [0] is all that says where it is.
"""

from __future__ import annotations

from keyword import iskeyword
from types import ModuleType

from ..formats.dtypes import DType
from ..formats.isa import OPERATIONS, Role, with_role

WORD = 8  # bytes


def _names(kind: str, table: str, start: int = 0, step: int = 1) -> ModuleType:
    """A module whose names are the words of `table`, numbered from `start`: Numba reads a module's integers as constants."""
    module = ModuleType(kind, table)
    names = [line.split()[0] for line in table.strip().splitlines()]
    for number, name in enumerate(names, start):
        setattr(module, name, number * step)
    module.WORDS = (start + len(names)) * step  # type: ignore[attr-defined]
    return module


# An object of the heap (tensor, data value, closure, storage), or a constant or static type in the image.
OBJECT = _names("OBJECT", """
    KIND        one of KIND
    REFERENCES  how many references there are; changed atomically
    BLOCK       what malloc gave; 0 in an image
    SIZE        bytes of the block; in a static type: bytes of the elements
    TAG         tensor: code of its dtype; data: tag; closure: index of its function
    COUNT       tensor: rank; data: number of fields; closure: number of captured values; storage: 1
    DATA        tensor, storage: address of the elements; data: index of its type; a free block: the next one
    OWNER       tensor: a reference to the object that holds its elements, 0 when they follow the dimensions
    ITEMS       tensor: its dimensions; data, closure: references; storage: its bytes
""")  # fmt: skip

KIND = _names("KIND", """
    TENSOR
    DATA
    CLOSURE
    STORAGE
""", start=1)  # fmt: skip

# A frame. After these words: the reference registers, two words each, then the integer registers.
FRAME = _names("FRAME", """
    CALLER      bytes from the caller's frame to this one, 0 for the outermost
    FUNCTION    address of its function record
    RETURN      where the caller goes on: bytes from the start of the code
    TARGET      the caller's reference register that takes the result
    MEMORY      address of the frame's tensor memory
    CHUNK       the arena's CHUNK before the frame
    USED        the arena's USED before the frame
""")  # fmt: skip

# A function of the image.
FUNCTION = _names("FUNCTION", """
    ENTRY       bytes from the start of the code to its first instruction
    PARAMETERS  number of parameters, captured values included
    REFERENCES  number of reference registers
    FRAME_SIZE  bytes of a frame, registers included
    MEMORY      bytes of tensor memory, a multiple of 64
    RESULT_AT   bytes from the start of the code to the alloc_tensor that makes the result, -1 if there is no such one
    ARRAYS      address of a PARAMETER for each parameter, 0 unless all are tensors
""")  # fmt: skip

# What a NumPy array must be for a parameter, and how it is given to the function.
PARAMETER = _names("PARAMETER", """
    TYPE        reference to a type object; a dimension of -1 there stands for any
    DESCRIPTOR  address of NumPy's descriptor
    MANNER      one of MANNER
""")  # fmt: skip

MANNER = _names("MANNER", """
    STATIC      in place: the type says all
    VIEW        in place, described by a new object
    COPY        as a new tensor: it may outlive the call
""")  # fmt: skip

# A primitive of the image.
PRIMITIVE = _names("PRIMITIVE", """
    KERNEL      address of the native code; 0: a host primitive
    STATIC      address of the kernel's static words
    TICKS       estimated time of one call, in instructions
    SCRATCH     bytes of scratch memory
    PARALLEL    1 if a call may be worth several threads
""")  # fmt: skip

# A context: the state of one call of the machine; contexts are kept and used again.
CONTEXT = _names("CONTEXT", """
    CODE        address of the code
    FUNCTIONS   address of the function records
    PRIMITIVES  address of the primitive records
    CONSTANTS   address of two words a constant, as in a register
    TYPES       address of one reference a type of the type table, 0 for a type that is not a static tensor
    PYTHON      address of the layout of NumPy arrays in this process, PYTHON below
    PC          where execution goes on: bytes from the start of the code
    FRAME       the current frame: bytes from the start of the stack; -1 when nothing runs
    FUEL        instructions left in this time slice
    SLICE       what FUEL starts from
    WORKED      ticks of kernels since the call began
    STACK       address of the stack of frames
    STACK_SIZE  bytes of it
    DEPTH       number of frames
    MAX_DEPTH   at most this many
    LIVE        bytes of the objects and frames that are in use; objects that other contexts free count negative there
    MAX_LIVE    at most this many
    CACHED      bytes of the blocks on the free lists
    MAX_CACHED  at most this many
    CHUNK       the arena's chunk in use
    USED        bytes of it in use
    SCRATCH     address of the kernels' scratch memory
    ARGUMENTS   address of the memory for kernels' arguments and, two words each, functions' arguments
    BUFFER      address of memory for the result that the caller gives, 0 when there is none
    RESULT_AT   the RESULT_AT of the function that was called while BUFFER is free, else -1
    PLACES      where the caller has memory for all results: address of the next RESULT_AT and BUFFER, at last [-1, 0]; else 0
    RESULT      the result: address of elements
    RESULT_REF  … and reference, 0 once it is taken
    DETAIL      a kernel's failure code
    POOL        address of the thread pool's words
    THREADS     at most this many threads share a kernel
    LOG         address of a LOG of the parts that they do, 0 where nobody looks
    PINS        address of a word for each parameter: weak references, which keep NumPy from moving arrays that a call reads
    PINNED      how many of them there are
""")  # fmt: skip

# Then the arena's chunks, [what malloc gave, bytes] each, every one at least twice the one before.
CHUNKS = CONTEXT.WORDS
MAX_CHUNKS = 48
FREE = CHUNKS + 2 * MAX_CHUNKS  # then the heads of the free lists, one a size class
CLASSES = 4 * 64
CONTEXT_WORDS = FREE + CLASSES

# The thread pool. Every word has a cache line of its own. After these words: a MEMBER a thread, the caller's first.
POOL = _names("POOL", """
    BUSY         1 while a call has the workers
    ACTIVE       calls that run
    DONE         parts of the loop that are done
    FAILURE      … failure code
    EPOCH        … number
    STOP         1 when workers are to end
    THREADS      threads that a call may use: workers, and its own
    WORKER_SPINS how often a worker looks for a loop before it sleeps
    YIELD_SPINS  how often a thread looks before it lets others have the core meanwhile
    MILLISECOND  of the processor's clock; 0 where it has none
    HINDERED     workers that are left out of loops because others have their cores
    SCRATCH      address of the workers' scratch memory
    STRIDE       bytes of it a worker
    BLOCK        what malloc gave for it
    LOCK         addresses of the C library's functions for what workers sleep on; 0 where there are none
    UNLOCK
    WAIT
    SIGNAL
    YIELD        … and of what lets other threads have the core
    PROCESSOR    … and of what says on which processor a thread is; 0 where processors cannot be chosen
    CONFINE      … and of what confines a thread to some processors
    ASK          … and of what says which processors a thread may use
    ALLOWED      address of a bit for each processor that calls may use; behind these, room for as many
    LIMIT        as many of THREADS as have processors
    CHOSEN       1 where the user has chosen THREADS: then LIMIT is the same
    NEXT_LOOK    when to ask for the processors again, by the processor's clock
""", step=8)  # fmt: skip

# A thread's share of a loop, on one cache line …
MEMBER = _names("MEMBER", """
    TICKET      the loop's epoch in the upper half, then 16 bits each: the first part that is left, the end of those
    KERNEL      the loop's kernel
    ARGUMENTS   … arguments
    PARTS       … number of parts
    MEMBERS     … number of threads
    SCRATCH     address of the thread's scratch memory
    WORKING     1 while a part may be in the thread's hands
    LOG         the call's LOG, or 0
""")  # fmt: skip

# … and what a worker sleeps on, and whether loops do without it, on another.
SLEEPER = _names("SLEEPER", """
    ASLEEP      1 while the worker sleeps
    MUTEX       address of the C library's mutex
    CONDITION   … and its condition
    LEFT_OUT    1 while loops do without the worker
    RETURN      when it takes part again, or did, by the processor's clock
    BACK_OFF    how long it was left out the last time
    THREAD      the system's number of the worker
    APART       the processor that the worker keeps off, + 1; 0 for none
""", start=8)  # fmt: skip

# The log of a call's kernel parts (`observe/parts_log.py`). After these words: an entry a part.
LOG = _names("LOG", """
    COUNT       parts that were done; those that the entries have no room for count too
    ROOM        number of entries
""")  # fmt: skip

LOG_ENTRY = _names("LOG_ENTRY", """
    MEMBER      which thread: 0 is the caller
    PART        which part it did
    PARTS       … of how many
    BEGIN       when it began and ended, by the processor's clock
    END
""")  # fmt: skip

MEMBER_WORDS = 16
MAX_THREADS = 1024
MAX_PROCESSORS = 1024

# What the arrays that a host operator makes may take, and take.
ARRAYS = _names("ARRAYS", """
    USED        bytes of them
    MOST        at most this many
    REFUSED     1 if one would have passed that
""")  # fmt: skip

# Byte offsets in the objects of this Python and NumPy.
PYTHON = _names("PYTHON", """
    ITEMS       of the items in a tuple
    LENGTH      of the length of a tuple
    TYPE        of the type of an object
    ARRAY       the address of numpy.ndarray itself
    DATA        in an array: of the address of the elements
    RANK        (a 32-bit number)
    SHAPE
    BASE        (0, or the object that the elements belong to)
    DESCRIPTOR
    FLAGS       (a 32-bit number)
    KIND        in a descriptor: of the word that is the same in all of one element type and byte order
    DESCRIPTORS the address of those of the element types, by their codes
    NONE        the address of None
    TENSOR      the address of vm.tensor.Tensor itself; 1 where the next two are not known
    ELEMENTS    in a tensor: of its array, 0 where that is yet to come
    PARENT      in a type: of the type that it extends
    OUTSIDE     of the context that results are released through
    DROP        of `drop_owned`; behind it, of functions of Python's and NumPy's; 0 where they are not known
    RETAIN      Py_IncRef
    RELEASE     Py_DecRef
    UNLOCK      PyEval_SaveThread, which gives up the GIL
    LOCK        PyEval_RestoreThread
    NEW_WEAK    PyWeakref_NewRef
    NEW_TUPLE   PyTuple_New
    SET_ITEM    PyTuple_SetItem
    NEW_CAPSULE PyCapsule_New
    SET_CONTEXT PyCapsule_SetContext
    NEW_ARRAY   PyArray_NewFromDescr
    SET_BASE    PyArray_SetBaseObject
""")  # fmt: skip

# What `copy_arrays` copies into; behind it, of each target, the address of the array and the bytes of its elements.
COPIES = _names("COPIES", """
    LAYOUT      the address of the words of PYTHON
    COUNT       how many targets there are
""")  # fmt: skip

# What is read before the words of PYTHON are at hand: where a tuple's items begin (in words), and an array's elements (in bytes).
ITEMS, HEAD = tuple.__basicsize__ // WORD, object.__basicsize__

# Of NumPy's flags: C-contiguous and aligned; writeable; owns its elements.
READABLE, WRITEABLE, OWNER = 0x101, 0x400, 0x4

# A capsule of Python, after what all objects begin with.
CAPSULE = _names("CAPSULE", """
    POINTER
    NAME
    CONTEXT
    DESTRUCTOR
""", start=object.__basicsize__ // 8)  # fmt: skip

# Why the engine returns to Python. Errors leave the program counter at the instruction that failed.
TRAP = _names("TRAP", """
    RETURNED    the outermost function has returned
    IN_PLACE    the same, and the result is in the caller's buffer
    SLICE       the time slice is spent
    HOST        this call_host, or call of a primitive without native code, is for Python to do
    HOOK        no instruction: what a debugger has put here
    UNUSUAL     the arguments need Python to look at them
    DEPTH       error: too many frames
    MEMORY      error: the call's memory budget is passed
    NO_MEMORY   error: the system has no memory
    SHAPE       error: match_shape fails
    RESHAPE     error: reshape changes the number of elements
    SIZE        error: a dimension or size is negative or too large
    STORAGE     error: a tensor does not lie in its storage, or not at a multiple of 64
    TAG         error: get_field of a data value with another tag
    DIVISION    error: division by zero
    OVERFLOW    error: a result of integer arithmetic does not fit into a word
    KERNEL      error: a kernel failed, DETAIL says how
    FATAL       error: the instruction fatal
    STOPPED     the call's stop word is set: a kernel may have been left in the middle
    IMPORT      this call_import is for Python to do
""")  # fmt: skip

FRAME_HEAD = FRAME.WORDS * WORD  # bytes before the registers
OBJECT_HEAD = OBJECT.ITEMS * WORD  # bytes before dimensions or fields
COPIED_BYTES = (
    16 << 10
)  # a result of at most this many bytes is copied: that is faster than letting Python own the heap's memory
LARGE = 4 << 20  # for a block of this many bytes malloc is likely to ask the system, each time anew
MAX_LARGE = 512 << 20  # at most this many bytes of freed large results are kept for the next ones

# The opcodes by name, from the instruction table; and where in an instruction's words its fields are: `AT.move.src` words from
# its first word on, or from the end of the list that stands before the field. The instruction's end is `END` words from there.
OPCODE, AT = ModuleType("OPCODE"), ModuleType("AT")
for _operation in OPERATIONS:
    _name = _operation.name + "_" * iskeyword(_operation.name)
    setattr(OPCODE, _name, _operation.opcode)
    _places = ModuleType(_name)
    vars(_places).update(_operation.places())
    setattr(AT, _name, _places)


def _common_place(name: str, operations: frozenset[str]) -> int:
    """Where a field is that instructions which the engine treats as one have all at the same place."""
    (place,) = {operation.places()[name] for operation in OPERATIONS if operation.name in operations}
    return place


# Of what puts one object into r[dst], and of arithmetic.
DST = _common_place("dst", with_role(Role.MAKES, Role.VIEWS))
BINARY = AT.add
HOOK_OPCODE = 1 << 20  # no instruction

DTYPE = ModuleType("DTYPE")
for _dtype in DType:
    setattr(DTYPE, _dtype.name, _dtype.code)
# Two bits an element type: log₂ of its bytes, for `ITEM_SHIFTS >> 2 * code & 3`. A word has room for codes up to 30.
ITEM_SHIFTS = sum((dtype.itemsize.bit_length() - 1) << 2 * dtype.code for dtype in DType)
