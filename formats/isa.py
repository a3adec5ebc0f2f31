"""The instruction set of the machine: one page, one table.

A program's code is a sequence of 64-bit signed words. An instruction is its opcode, then its fields in the
order of the table. A list is its length, then its elements; other fields are one word.

    r[x]   a reference register: a tensor, tuple, data value, closure or storage     i[x]   an integer register
    x, x!  a register that is read, written          x*, x*!  a list of them
    d      an integer: a word >= 0 is the value itself, a word < 0 is the integer register ~word

    field    is                                      in text
    r        reference register                      r3
    i        integer register                        i0
    d        immediate or integer register           4 or i0
    imm      immediate                               -7
    const    index in the constant pool              c2
    prim     index in the primitive table            add_relu_0
    func     index in the function table             @main
    import   index in the table of imports           log
    type     index in the type table                 float32[2]
    dtype    an element type's code                  float32
    device   0 the host, n the n-th device           gpu0
    label    words from this instruction's first     L1
             word to the target's

Registers of a function: its parameters are in r[0], r[1], … (a closure's captured values after its arguments). Both
kinds count from 0. A frame's registers start empty. A tensor in r[x] is *borrowed* when it lies in the frame's own
memory (frame_tensor): it may be given to primitives, reshaped, looked at and moved, but must not leave the frame.

Opcode 0 is not an instruction, so that zeroed memory does not run.

This table is the one place that knows an instruction's fields: the words where the engine finds them (`vm/layout.py`), what the
verifier, hooks and traps call them, and what the compiler may do around an instruction (its roles) follow from it.
"""

from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """The kind of a field: the table or register file that it refers to."""

    REF = "r"
    INT = "i"
    DIM = "d"
    IMM = "imm"
    CONST = "const"
    PRIM = "prim"
    FUNC = "func"
    IMPORT = "import"
    TYPE = "type"
    DTYPE = "dtype"
    DEVICE = "device"
    LABEL = "label"


@dataclass(frozen=True)
class Field:
    """One field of an instruction, from its notation in the table: `args:r*`, `dst:r!`."""

    name: str
    kind: Kind
    is_list: bool = False
    is_written: bool = False

    @staticmethod
    def parse(notation: str) -> "Field":
        name, _, rest = notation.partition(":")
        return Field(name, Kind(rest.rstrip("*!") or name), "*" in rest, "!" in rest)


class Role(Enum):
    """An instruction's role for other parts: what they may rely on, whatever it does."""

    ENDS = "ends"  # control never reaches the instruction after it
    WORKS = (
        "works"  # the work of a model is done here, outside of the dispatch loop: what profiles and instruments look at
    )
    MAKES = "makes"  # r[dst] is a new object in the heap
    VIEWS = "views"  # r[dst] is another view of memory that is there
    BUFFER = "buffer"  # r[dst] is a new tensor, whose memory the compiler may place elsewhere
    GROWS = "grows"  # it may ask for any amount of memory
    LOCAL = "local"  # what it reads of r[x] stays in the frame: borrowed tensors may be given
    ALIAS = "alias"  # r[dst] is the memory of the register that it reads
    COPIES = "copies"  # it does nothing but give a register's value to another one
    ENTERS = "enters"  # other code runs meanwhile: a function of the program, or of Python's
    EFFECTS = "effects"  # it may do what is seen outside of the program: it is not left out, doubled or moved across another one
    LASTING = "lasting"  # r[dst] lies in what is never freed


@dataclass(frozen=True)
class Operation:
    """One instruction of the set: a row of the table."""

    opcode: int
    name: str
    group: str
    fields: tuple[Field, ...]
    meaning: str
    roles: frozenset[Role] = frozenset()
    ends_block: bool = field(init=False)  # control never reaches the instruction after it
    written: tuple[int, ...] = field(init=False)  # the places of the fields of registers that are written
    read: tuple[int, ...] = field(init=False)  # and read
    labels: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends_block", Role.ENDS in self.roles)
        places = {at: each for at, each in enumerate(self.fields) if each.kind in (Kind.REF, Kind.INT, Kind.DIM)}
        object.__setattr__(self, "written", tuple(at for at, each in places.items() if each.is_written))
        object.__setattr__(self, "read", tuple(at for at, each in places.items() if not each.is_written))
        object.__setattr__(self, "labels", tuple(at for at, e in enumerate(self.fields) if e.kind is Kind.LABEL))
        object.__setattr__(self, "_positions", {each.name: at for at, each in enumerate(self.fields)})

    def has(self, name: str) -> bool:
        """Whether there is a field of that name."""
        return name in self._positions  # type: ignore[attr-defined]

    def position(self, name: str) -> int:
        """The place of a field among the fields. Raises KeyError."""
        return self._positions[name]  # type: ignore[attr-defined]

    def places(self) -> dict[str, int]:
        """By field, the words between the end of the list before it, or the instruction's first word if there is none, and the
        field (of a list: its length). So much for the instruction's end, too, as END."""
        found: dict[str, int] = {}
        at = 1
        for each in self.fields:
            found[each.name] = at
            at = 0 if each.is_list else at + 1
        return {**found, "END": at}


# fmt: off
TABLE = """
# values
 1  move              dst:r! src:r                               r[dst] := r[src]  // local copies alias
 2  kill              regs:r*                                    release r[x] and make it empty, for each x of regs  // local
 3  load_const        dst:r! const                               r[dst] := the constant, shared, never written to  // lasting
 4  load_int          dst:i! imm                                 i[dst] := imm
 5  move_int          dst:i! src:i                               i[dst] := i[src]  // copies
# control
 6  goto              label                                      continue at label  // ends
 7  if                cond:r label                               continue at label when the scalar tensor r[cond] is zero  // local
 8  if_int            cond:i label                               continue at label when i[cond] is 0
 9  ret               src:r                                      return r[src] to the caller  // ends
10  fatal             reason:imm                                 fail: 0 no clause of a match fits, 1 unreachable code  // ends
# calls
11  invoke            dst:r! func args:r*                        r[dst] := func(r[args]…)  // grows enters
12  invoke_closure    dst:r! closure:r args:r*                   r[dst] := r[closure](r[args]…, its captured values…)  // grows enters
13  call              prim inputs:r* outputs:r* dims:d*          prim reads r[inputs], writes into the tensors r[outputs]; dims: its dimension variables  // local works
14  call_host         prim dst:r*! inputs:r* dims:d*             r[dst] := new values that the host operator prim makes of r[inputs]  // works grows
15  call_import       dst:r! imported:import args:r*            r[dst] := what the function of Python's gives for r[args]…, if it has the import's type  // grows enters effects
# memory
16  frame_tensor      dst:r! type offset:imm                     r[dst] := a borrowed tensor of a static type in the frame's memory  // lasting
17  alloc_tensor      dst:r! type                                r[dst] := a new tensor of a static type  // makes buffer
18  alloc_dynamic     dst:r! dtype shape:d*                      r[dst] := a new tensor  // makes buffer grows
19  alloc_storage     dst:r! size:d                              r[dst] := new storage of size bytes  // makes grows
20  storage_tensor    dst:r! storage:r offset:d dtype shape:d*   r[dst] := a tensor in r[storage], from byte offset on; it keeps the storage alive  // views
# data
21  alloc_data        dst:r! type tag:imm fields:r*              r[dst] := a tuple (tag 0) or data value  // makes
22  get_field         dst:r! object:r tag:imm index:imm          r[dst] := field index of r[object], whose tag must be tag
23  get_tag           dst:i! object:r                            i[dst] := the tag of r[object]
24  alloc_closure     dst:r! func captured:r*                    r[dst] := func with its last parameters bound to r[captured]  // makes
# shapes
25  shape_of          dst:i*! tensor:r                           i[dst] := the dimensions of r[tensor], all of them  // local
26  match_shape       tensor:r shape:d*                          fail unless r[tensor] has this shape  // local
27  reshape           dst:r! src:r shape:d*                      r[dst] := the elements of r[src], not copied, in another shape of equal size  // local alias views
28  make_shape        dst:r! shape:d*                            r[dst] := a new int64 tensor of rank 1 that holds shape  // makes
29  read_shape        dst:i*! tensor:r                           i[dst] := the elements of r[tensor], an integer tensor of rank 0 or 1  // local
# integers
32  add               dst:i! a:d b:d                             i[dst] := a + b      (this whole group fails when a result does not fit into 64 bits)
33  subtract          dst:i! a:d b:d                             i[dst] := a - b
34  multiply          dst:i! a:d b:d                             i[dst] := a * b
35  floor_divide      dst:i! a:d b:d                             i[dst] := floor(a / b), fails when b is 0
36  remainder         dst:i! a:d b:d                             i[dst] := a - b * floor(a / b), fails when b is 0
37  minimum           dst:i! a:d b:d                             i[dst] := min(a, b)
38  maximum           dst:i! a:d b:d                             i[dst] := max(a, b)
39  equal             dst:i! a:d b:d                             i[dst] := 1 if a = b else 0
40  less              dst:i! a:d b:d                             i[dst] := 1 if a < b else 0
# devices
48  device_copy       dst:r! src:r device                        r[dst] := a copy of r[src] on the device  // makes local
49  alloc_on          dst:r! device dtype shape:d*               r[dst] := a new tensor on the device, which is not the host  // makes grows
"""
# fmt: on


def parse_table(table: str) -> list[Operation]:
    """The rows of a table of this form."""
    rows, group = [], ""
    for line in table.strip().splitlines():
        if line.startswith("#"):
            group = line[1:].strip()
            continue
        opcode, name, rest = line.split(maxsplit=2)
        fields, _, meaning = rest.partition("  ")  # as two spaces are between a row's parts
        meaning, _, roles = meaning.strip().partition("  // ")
        rows.append(
            Operation(
                int(opcode),
                name,
                group,
                tuple(map(Field.parse, fields.split())),
                meaning,
                frozenset(map(Role, roles.split())),
            )
        )
    return rows


OPERATIONS: tuple[Operation, ...] = tuple(parse_table(TABLE))
BY_NAME: dict[str, Operation] = {operation.name: operation for operation in OPERATIONS}
BY_OPCODE: dict[int, Operation] = {operation.opcode: operation for operation in OPERATIONS}


def with_role(*roles: Role) -> frozenset[str]:
    """The names of the instructions that have any of these roles."""
    return frozenset(operation.name for operation in OPERATIONS if not operation.roles.isdisjoint(roles))
