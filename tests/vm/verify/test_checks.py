"""Checks of the verifier that the examples of its rules do not need: each is here because, taken out, nothing else failed
(fuzz/verifier_mutants.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from treadle.formats import dims, limits
from treadle.formats.messages.errors import LimitError, VerificationError
from treadle.formats.program import Program, SourceLocation
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.types import (
    Constructor,
    DataType,
    DataTypeDefinition,
    FunctionType,
    TupleType,
    TypeVariable,
    tensor,
)
from treadle.vm.verify.integers import Values
from treadle.vm.verify.state import STORAGE, is_assignable
from treadle.vm.verify.verifier import verify
from treadle.vm.verify.work import Work

PRELUDE = """
data List = Nil | Cons(float32[2], List)
const one float32[2] = [1.0, 1.0]
prim add(%0: float32[2], %1: float32[2]) -> float32[2] {
  %2 = add(%0, %1) : float32[2]
  return %2
}
prim found(%0: float32[2]) -> int64[1, ?] {
  %1 = nonzero(%0) : int64[1, ?]
  return %1
}
prim first(%0: int64[1, ?]) -> float32[2] {
  %1 = cast(%0) : float32[2]
  return %1
}
func @body(a: float32[2]) captures (k: float32[2]) -> float32[2] { ret r0 }
"""


def is_refused(program: Program, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(program)


# ---- types ----

X, Y, N = tensor("float32", (2,)), tensor("float32", (3,)), tensor("float32", ("?",))
LIST = DataType("List")

ASSIGNABLE = [
    (X, X, True),
    (X, N, True),
    (N, X, False),
    (X, Y, False),
    (X, tensor("float64", (2,)), False),
    (X, tensor("float32", (2, 1)), False),
    (X, X.on("gpu0"), False),
    (X.on("gpu0"), X, False),
    (X.on("gpu0"), N.on("gpu0"), True),
    (X, tensor("float32"), False),
    (TupleType((X, X)), TupleType((X, N)), True),
    (TupleType((X, X)), TupleType((X, Y)), False),
    (TupleType((X, X)), TupleType((X,)), False),
    (TupleType((X,)), TupleType((X, X)), False),
    (X, TupleType((X,)), False),
    (TupleType((X,)), X, False),
    (FunctionType((N,), X), FunctionType((X,), N), True),
    (FunctionType((X,), X), FunctionType((N,), X), False),
    (FunctionType((X,), N), FunctionType((X,), X), False),
    (FunctionType((X,), X), FunctionType((X, X), X), False),
    (FunctionType((X, X), X), FunctionType((X,), X), False),
    (X, FunctionType((X,), X), False),
    (TupleType((X,)), FunctionType((X,), X), False),
    (FunctionType((X,), X), TupleType((X,)), False),
    (LIST, DataType("List"), True),
    (LIST, DataType("Tree"), False),
    (LIST, TypeVariable("List"), False),
    (TypeVariable("List"), LIST, False),
    (X, LIST, False),
    (LIST, X, False),
    (STORAGE, X, False),
    (STORAGE, LIST, False),
]


@pytest.mark.parametrize(("actual", "declared", "expected"), ASSIGNABLE, ids=str)
def test_what_may_stand_for_what(actual, declared, expected: bool) -> None:
    assert is_assignable(actual, declared) is expected


# ---- tables ----

GOOD = parse_assembly(PRELUDE + "func @main(x: float32[2]) -> float32[2] {\n alloc_tensor r1, float32[2]\n ret r0\n}")
BODY, MAIN = GOOD.functions
DEFINITION = GOOD.primitives[0].definition
NODE = DEFINITION.nodes[0]


def with_main(**changes: object) -> Program:
    return replace(GOOD, functions=(BODY, replace(MAIN, **changes)))


def with_definition(**changes: object) -> Program:
    return replace(GOOD, primitives=(replace(GOOD.primitives[0], definition=replace(DEFINITION, **changes)),))


def with_attribute(value: object) -> Program:
    return with_definition(nodes=(replace(NODE, attributes=(("a", value),)),))


def with_constant(array: np.ndarray) -> Program:
    array.flags.writeable = False
    return replace(GOOD, constants=(array,))


def nested(depth: int) -> TupleType:
    type_ = TupleType(())
    for _ in range(depth):
        type_ = TupleType((type_,))
    return type_


def data(*constructors: Constructor) -> DataTypeDefinition:
    return DataTypeDefinition("Other", (), constructors)


with_data = lambda *constructors: replace(GOOD, data_types=(*GOOD.data_types, data(*constructors)))  # noqa: E731
with_type = lambda type_: replace(GOOD, types=(*GOOD.types, type_))  # noqa: E731
m = dims.variable("m")

TABLES = {
    "primitives have one meaning": (replace(GOOD, primitives=GOOD.primitives * 2), "several primitives have the same name"),
    "functions have function types": (with_main(type=X), "which is not a function type"),
    "functions have known types": (with_main(type=FunctionType((TypeVariable("a"),), X)), "the type variable a"),
    "data types have no arguments": (with_type(DataType("List", (X,))), "has arguments"),
    "types nest moderately": (with_type(nested(limits.TYPE_NESTING + 1)), "nests deeper"),
    "parts of types are types": (with_type(TupleType((TypeVariable("a"),))), "the type variable a"),
    "results of functions are types": (with_type(FunctionType((), TypeVariable("a"))), "the type variable a"),
    "parameters have one meaning": (with_main(param_names=("x", "x"), type=FunctionType((X, X), X), ref_registers=2),
                                    "several parameters of function 'main' have the same name"),
    "nothing captures less than nothing": (with_main(captured=-1), "captures -1 values"),
    "integer registers are counted": (with_main(int_registers=-1), "-1 integer registers"),
    "integer registers are bounded": (with_main(int_registers=limits.REGISTERS + 1), "integer registers, not 0"),
    "registers are bounded": (with_main(ref_registers=limits.REGISTERS + 1), "reference registers; its parameters need"),
    "frames have a size": (with_main(frame_bytes=-1), "a frame of -1 bytes"),
    "the source map names functions": (replace(GOOD, source_map=(SourceLocation(-1, 0, "a"),)), "function -1 does not exist"),
    "constructors have one meaning": (with_data(Constructor("A", ()), Constructor("A", ())),
                                      "several constructors of 'Other' have the same name"),
    "constructors have types": (with_data(Constructor("A", (TypeVariable("a"),))), "a field of Other.A contains"),
    "constructors are bounded": (with_data(*(Constructor(f"A{i}", ()) for i in range(limits.CONSTRUCTORS + 1))),
                                 "has 4097 constructors"),
    "constants are little-endian": (with_constant(np.ones(2, ">f4")), "has the element type >f4"),
    "constants are contiguous": (with_constant(np.ones((4, 4), np.float32).T[::2]), "is not a read-only, C-contiguous array"),
    "constants have possible shapes": (with_constant(np.zeros((0, 1 << 48), np.int8)), "has a dimension outside"),
    "parameters of primitives are tensors": (with_definition(params=(TupleType(()), X)), "a parameter has the type"),
    "parameters of primitives have possible sizes": (
        with_definition(params=(tensor("float32", (1 << 46, 2)), X)), "has more than"),
    "parameters of primitives use their variables": (with_definition(params=(tensor("float32", (m,)), X)),
                                                     "a parameter uses the dimension variable 'm'"),
    "results in primitives use their variables": (with_definition(nodes=(replace(NODE, results=(tensor("float32", (m,)),)),)),
                                                  "a result of node 'add' uses the dimension variable 'm'"),
    "attributes use the variables": (with_attribute(m), "attribute 'a' of node 'add' uses the dimension variable 'm'"),
    "attributes within attributes, too": (with_attribute((1, (m,))), "uses the dimension variable 'm'"),
    "attributes are values": (with_attribute({1}), "has a value of the kind set"),
    "attributes nest moderately": (with_attribute(eval("(" * 80 + "1" + ",)" * 80)), "nests deeper"),
    "no words belong to no function": (replace(GOOD, code=np.append(GOOD.code, 9)), "words together, but there are"),
    "no function is empty": (replace(GOOD, functions=(replace(BODY, length=0), replace(MAIN, start=0, length=len(GOOD.code)))),
                             "expected at least one word"),
}  # fmt: skip


@pytest.mark.parametrize("rule", TABLES)
def test_tables(rule: str) -> None:
    program, message = TABLES[rule]
    is_refused(program, message)


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("FUNCTIONS", 1, "more than 1 functions"),
        ("CODE_WORDS", 3, "3 words of code"),
        ("PARAMETERS", 0, "at most 0 are allowed"),
        ("CONSTRUCTORS", 1, "has 2 constructors"),
        ("RANK", 0, "has rank 1"),
    ],
)
def test_limits(monkeypatch: pytest.MonkeyPatch, limit: str, value: int, message: str) -> None:
    monkeypatch.setattr(limits, limit, value)
    is_refused(GOOD, message)


# ---- code ----


def with_word(place: int, word: int) -> Program:
    code = GOOD.code.copy()
    code[MAIN.start + place] = word
    return replace(GOOD, code=code)


@pytest.mark.parametrize(("place", "word"), [(1, -1), (1, 2), (2, -1), (2, 5)])
def test_fields_are_in_range_on_both_sides(place: int, word: int) -> None:
    is_refused(with_word(place, word), "there is no (reference register|type)")


@pytest.mark.parametrize("word", [-1, 1])
def test_lists_are_in_range_on_both_sides(word: int) -> None:
    program = parse_assembly("func @main(x: float32[2]) -> float32[2] {\n kill (r0)\n load_const r0, c\n ret r0\n}".replace(
        "func", "const c float32[2] = [1.0, 1.0]\nfunc", 1))  # fmt: skip
    code = program.code.copy()
    code[2] = word
    is_refused(replace(program, code=code), "there is no reference register")


# ---- data flow and types ----

HEAD = "(x: float32[2], y: int64[1, ?], t: (float32[2], List), s: float32[], d: int64[2]) -> float32[2]"
BODIES = {
    "a float is not a condition": ("if r3, end; end: ret r0", "expected a scalar of booleans or integers"),
    "several integers are not a condition": ("if r4, end; end: ret r0", "expected a scalar of booleans or integers"),
    "a call's inputs have known shapes": (
        "alloc_tensor r5, float32[2]; call first (r1) -> (r5)",
        "a dimension \\? can only be given to call_host",
    ),
    "an integer is written before a jump looks at it": ("if_int i0, end; end: ret r0", "i0 is read"),
    "a call has all outputs": ("call add (r0, r0) -> ()", "2 inputs and 0 outputs"),
    "a call has no more outputs": (
        "alloc_tensor r5, float32[2]; call add (r0, r0) -> (r5, r5)",
        "2 inputs and 2 outputs",
    ),
    "a call's outputs have known shapes": ("call found (r0) -> (r1)", "a dimension \\? can only be given to call_host"),
    "a host operator has all inputs": ("call_host add (r0) -> (r5)", "1 inputs and 1 results"),
    "a host operator has all results": ("call_host add (r0, r0) -> ()", "2 inputs and 0 results"),
    "a host operator has no more results": ("call_host add (r0, r0) -> (r5, r6)", "2 inputs and 2 results"),
    "a frame begins at 0": ("frame_tensor r5, float32[2], -64", "at byte -64 of a frame"),
    "a tensor's type is one of tensors": ("alloc_tensor r5, (float32[2],)", "expected a tensor type"),
    "the size of storage is known": ("alloc_storage r5, i0", "i0 is read"),
    "a place in storage is known": ("alloc_storage r5, 64; storage_tensor r6, r5, i0, float32[2]", "i0 is read"),
    "fields are counted from 0": ("get_field r5, r2, 0, -1", "there is no field -1"),
    "tags are counted from 0": ("alloc_data r5, List, -1", "there is no tag -1"),
    "a tensor has no fields": ("get_field r5, r0, 0, 0", "expected a tuple or a value of a data type"),
    "tuples have one tag": ("get_field r5, r2, 1, 0", "there is no tag 1"),
    "a tuple has no shape": ("shape_of (i0), r2", "expected a tensor"),
    "a tuple is not storage": ("storage_tensor r5, r2, 0, float32[2]", "expected storage"),
    "a shape is made of what is known": ("make_shape r5 [1, i0]", "i0 is read"),
    "floats are not a shape": ("read_shape (i0, i1), r0", "expected a tensor of integers"),
    "what is read into registers is counted": ("read_shape (i0), r4", "with 1 elements"),
    "a register is read into once": ("read_shape (i0, i0), r4", "written twice"),
    "a shape gives a register one dimension": ("shape_of (i0, i0), r1", "written twice"),
    "a closure binds all values": ("alloc_closure r5, @body", "captures 1 values; 0 are given"),
    "a closure binds no more": ("alloc_closure r5, @body (r0, r0)", "captures 1 values; 2 are given"),
    "elements are copied when they are there": ("alloc_tensor r5, float32[2]; device_copy r6, r5, 0", "r5 are read"),
    "elements are looked at when they are there": ("alloc_tensor r5, int64[2]; read_shape (i0, i1), r5", "r5 are read"),
    "elements decide when they are there": ("alloc_tensor r5, int64[]; if r5, end; end: ret r0", "r5 are read"),
    "elements are shared when they are there": (
        "alloc_tensor r5, float32[2]; alloc_closure r6, @body (r5)",
        "r5 are read",
    ),
    "an integer is written before it is moved": ("move_int i1, i0", "i0 is read"),
    "an integer is written before it is added to": ("add i1, i0, 1", "i0 is read"),
}


@pytest.mark.parametrize("rule", BODIES)
def test_bodies(rule: str) -> None:
    body, message = BODIES[rule]
    end = "" if "ret" in body else "; ret r0"
    lines = (body + end).replace(";", "\n").replace(": ", ":\n")
    is_refused(parse_assembly(f"{PRELUDE}func @main{HEAD} refs=8 ints=4 frame=128 {{\n{lines}\n}}"), message)


def test_a_register_that_a_host_operator_writes_twice() -> None:
    text = """
    prim both(%0: float32[4]) -> (float32[2], float32[2]) {
      %1, %2 = split(%0) {axis=0, sizes=(2, 2)} : (float32[2], float32[2])
      return %1, %2
    }
    func @main(x: float32[4]) -> float32[2] {
      call_host both (r0) -> (r1, r1)
      ret r1
    }"""
    is_refused(parse_assembly(text), "a register is written twice")


# ---- values and work ----


def test_polynomials_that_grow_are_forgotten() -> None:
    values = Values(Work(1000))
    many = dims.parse(" + ".join(f"v{i}" for i in range(31)))
    assert len(values.apply("+", many, m).terms) == 32
    assert len(values.apply("+", values.apply("+", many, m), dims.variable("n")).terms) == 1
    assert len(values.apply("*", dims.parse("*".join(["m"] * 8)), m).terms[0][0]) == 1
    largest = dims.multiply(m, (1 << 63) - 1)
    assert values.apply("+", largest, m).terms[0][1] == 1


def test_the_primitives_that_calls_come_to() -> None:
    text = """
    func @main(x: float32[2]) -> float32[2] {
      invoke r1, @hidden (r0, r0)
      ret r1
    }
    func @hidden(x: float32[2]) captures (y: float32[2]) -> float32[2] {
      alloc_tensor r2, float32[2]
      call add (r0, r1) -> (r2)
      alloc_closure r3, @hidden (r1)
      ret r2
    }"""
    assert verify(parse_assembly(PRELUDE + text)).called_primitives() == {0}
    assert verify(GOOD).called_primitives() == set()


def test_work_is_counted() -> None:
    work = Work(0)
    work.spend(work.limit)
    with pytest.raises(LimitError, match="verification takes more than"):
        work.spend(1)
