"""The verifier's layers tables and code: a good program, changed in one place that no assembler would write."""

from dataclasses import replace

import numpy as np
import pytest
from treadle.formats import dims, limits
from treadle.formats.isa import BY_NAME
from treadle.formats.messages.errors import LimitError, VerificationError
from treadle.formats.program import Import, Program
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.types import (
    Constructor,
    DataType,
    DataTypeDefinition,
    FunctionType,
    TensorType,
    TupleType,
    TypeVariable,
    tensor,
)
from treadle.vm.verify.verifier import verify
from treadle.vm.verify.work import Work

GOOD = parse_assembly(
    """
    data List = Nil | Cons(float32[2], List)
    const one float32[2] = [1.0, 1.0]
    prim add_relu[n](%0: float32[n], %1: float32[n]) -> float32[n] {
      %2 = add(%0, %1) : float32[n]
      %3 = relu(%2) {alpha=0.0, beta=<n>} : float32[n]
      return %3
    }
    func @main(x: float32[2]) -> float32[2] {
      load_const r1, one
      alloc_tensor r2, float32[2]
      call add_relu (r0, r1) -> (r2) [2]
      goto end
    end:
      ret r2  from "Relu_1"
    }
    func @other(x: float32[2], y: List) captures (z: float32[2]) -> List {
      ret r1
    }
    """
)
MAIN = GOOD.functions[0]
SEEN = Import("log", MAIN.type)
DEFINITION = GOOD.primitives[0].definition


def refusal(program: Program) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        verify(program)
    return caught.value


def with_main(**changes: object) -> Program:
    return replace(GOOD, functions=(replace(MAIN, **changes), *GOOD.functions[1:]))


def with_definition(**changes: object) -> Program:
    return replace(GOOD, primitives=(replace(GOOD.primitives[0], definition=replace(DEFINITION, **changes)),))


def with_words(**changes: int) -> Program:
    """`w3=7`: word 3 of the code is 7."""
    code = GOOD.code.copy()
    for place, word in changes.items():
        code[int(place[1:])] = word
    return replace(GOOD, code=code)


def test_the_good_program_passes() -> None:
    assert [function.escaping for function in verify(GOOD).functions] == [(False,), (False, True, False)]


# ---- tables ----

n = dims.variable("n")
node = DEFINITION.nodes[0]

TABLES = {
    "constants are read-only": (
        replace(GOOD, constants=(np.ones(2, np.float32),)),
        "constant 0 is not a read-only, C-contiguous array",
    ),
    "constants have an element type": (
        replace(GOOD, constants=(np.ones(2, np.complex64),)),
        "constant 0 has the element type complex64",
    ),
    "types have no type variables": (
        replace(GOOD, types=(*GOOD.types, TypeVariable("a"))),
        "type 1 contains the type variable a",
    ),
    "the type table has no expressions": (
        replace(GOOD, types=(*GOOD.types, tensor("float32", ("n",)))),
        "a dimension here is an integer or ?",
    ),
    "dimensions are not negative": (
        replace(GOOD, types=(*GOOD.types, tensor("float32", (-1,)))),
        "has a dimension outside of 0",
    ),
    "tensors are not absurd": (
        replace(GOOD, types=(*GOOD.types, tensor("float32", (1 << 24, 1 << 24)))),
        "bytes",
    ),
    "ranks are bounded": (replace(GOOD, types=(*GOOD.types, tensor("float32", (1,) * 33))), "has rank 33"),
    "data types that are used exist, and all that do not are named": (
        replace(GOOD, types=(DataType("Tree"), TupleType((DataType("Heap"),)))),
        "2 data types are used but not defined: 'Tree' (in type 0), 'Heap' (in type 1)",
    ),
    "data types have one meaning": (
        replace(GOOD, data_types=GOOD.data_types * 2),
        "several data types have the same name",
    ),
    "data types have constructors": (
        replace(GOOD, data_types=(*GOOD.data_types, DataTypeDefinition("Void", (), ()))),
        "data type 'Void' has 0 constructors",
    ),
    "data types are monomorphic": (
        replace(GOOD, data_types=(*GOOD.data_types, DataTypeDefinition("Box", ("a",), (Constructor("Box", ()),)))),
        "data type 'Box' has parameters",
    ),
    "functions have one meaning": (replace(GOOD, functions=GOOD.functions * 2), "several functions have the same name"),
    "imports have one meaning": (
        replace(GOOD, imports=(SEEN, SEEN)),
        "several imports have the same name",
    ),
    "imports are functions": (
        replace(GOOD, imports=(Import("log", MAIN.type.result),)),
        "import 'log' has the type float32[2], which is not a function type",
    ),
    "imports have types that exist": (
        replace(GOOD, imports=(Import("log", FunctionType((DataType("Tree"),), TupleType(()))),)),
        "'Tree' (in the type of import 'log')",
    ),
    "imports have no absurd types": (
        replace(GOOD, imports=(Import("log", FunctionType((), tensor("float32", (1 << 48,)))),)),
        "the type of import 'log', float32[281474976710656], has",
    ),
    "an import's parameters are bounded": (
        replace(GOOD, imports=(Import("log", FunctionType((TupleType(()),) * 20_000, TupleType(()))),)),
        "import 'log' has 20000 parameters",
    ),
    "parameters have names": (with_main(param_names=()), "has 1 parameters but 0 parameter names"),
    "captured values are parameters": (with_main(captured=2), "captures 2 values but has 1 parameters"),
    "parameters have registers": (with_main(ref_registers=0), "its parameters need 1"),
    "frames are bounded": (with_main(frame_bytes=1 << 50), "a frame of 1125899906842624 bytes"),
    "values exist before they are used": (
        with_definition(nodes=(replace(node, inputs=(0, 2)), *DEFINITION.nodes[1:])),
        "node 'add' uses the value 2; 2 values come before it",
    ),
    "outputs exist": (with_definition(outputs=(4,)), "its outputs uses the value 4"),
    "definitions have nodes": (with_definition(nodes=(), outputs=(0,)), "has no nodes"),
    "definitions have outputs": (with_definition(outputs=()), "has no outputs"),
    "definitions know their variables": (
        with_definition(variables=()),
        "a parameter uses the dimension variable 'n'; its variables are: none",
    ),
    "variables have one meaning": (with_definition(variables=("n", "n")), "variables of primitive"),
    "attributes have one meaning": (
        with_definition(nodes=(replace(node, attributes=(("a", 1), ("a", 2))), *DEFINITION.nodes[1:])),
        "are not sorted by name, each once",
    ),
    "attributes nest moderately": (
        with_definition(
            nodes=(replace(node, attributes=(("a", eval("(" * 80 + "1" + ",)" * 80)),)), *DEFINITION.nodes[1:])
        ),
        "nests deeper than 64",
    ),
    "intermediate results are not absurd": (
        with_definition(nodes=(replace(node, results=(tensor("float32", (1 << 46, n)),)), *DEFINITION.nodes[1:])),
        "bytes",
    ),
    "the source map names functions": (
        replace(GOOD, source_map=(replace(GOOD.source_map[0], function=2),)),
        "the source map: function 2 does not exist",
    ),
}


@pytest.mark.parametrize("rule", TABLES)
def test_tables(rule: str) -> None:
    program, message = TABLES[rule]
    error = refusal(program)
    assert error.layer == "tables"
    assert message in str(error)


def test_deep_types_are_refused_before_they_exhaust_the_stack() -> None:
    type_: object = TensorType(MAIN.type.params[0].dtype, ())
    for _ in range(limits.TYPE_NESTING + 1):
        type_ = TupleType((type_,))
    assert "nests deeper than 64" in str(refusal(replace(GOOD, types=(*GOOD.types, type_))))


# ---- code ----

CODE = {
    "functions leave no gaps": (with_main(start=1), "expected at least one word from word 0 on"),
    "functions cover the code": (with_main(length=MAIN.length - 1), "expected at least one word from word"),
    "opcodes exist": (with_words(w0=99), "99 is not an opcode"),
    "zeros do not run": (with_words(w0=0), "0 is not an opcode"),
    "registers exist": (with_words(w1=3), "dst of load_const: there is no reference register 3"),
    "negative registers do not exist": (with_words(w1=-1), "dst of load_const: there is no reference register -1"),
    "constants exist": (with_words(w2=1), "const of load_const: there is no constant 1"),
    "types exist": (with_words(w5=1), "type of alloc_tensor: there is no type 1"),
    "primitives exist": (with_words(w7=1), "prim of call: there is no primitive 1"),
    "registers in lists exist": (with_words(w10=9), "inputs of call: there is no reference register 9"),
    "integer registers exist": (with_words(w14=-1), "dims of call: there is no integer register 0"),
    "lists fit": (with_words(w8=1 << 40), "1099511627776"),
    "lists have no negative length": (with_words(w8=-1), "-1"),
    "jumps land on instructions": (
        with_words(w16=1),
        "goto jumps to word 16, where no instruction of the function starts",
    ),
    "jumps stay in the function": (with_words(w16=4), "goto jumps to word 19, where no instruction"),
    "imports exist": (
        with_words(w15=BY_NAME["call_import"].opcode, w16=0, w17=0, w18=0),
        "imported of call_import: there is no import 0",
    ),
    "control does not leave a function": (
        with_words(w17=BY_NAME["kill"].opcode, w18=0),
        "control runs past the function's last instruction, kill",
    ),
}


@pytest.mark.parametrize("rule", CODE)
def test_code(rule: str) -> None:
    program, message = CODE[rule]
    error = refusal(program)
    assert error.layer == "code"
    assert message in str(error)


def test_errors_in_code_name_function_and_instruction() -> None:
    error = refusal(with_words(w14=-1))
    assert (error.function, error.instruction) == ("main", 2)


# ---- bounds ----


def test_many_joins_of_many_registers_are_refused_quickly() -> None:
    registers, jumps = 2000, 20000
    lines = [f"load_const r{i}, one" for i in range(1, registers)]
    lines += [f"if r0, L{i}\n L{i}:" for i in range(jumps)]
    text = (
        "const one float32[2] = [1.0, 1.0]\nfunc @main(c: bool[]) -> float32[2] {\n" + "\n".join(lines) + "\nret r1\n}"
    )
    with pytest.raises(LimitError, match="too many registers are live across too many jumps"):
        verify(parse_assembly(text))


def test_what_calls_of_an_import_must_solve_counts() -> None:
    def importing(count: int) -> Program:
        sizes = tuple(dims.add(dims.variable("n"), number) for number in range(1, count + 1))
        parts = [TensorType(MAIN.type.params[0].dtype, sizes[at : at + 8]) for at in range(0, count, 8)]
        return replace(GOOD, imports=(Import("log", FunctionType((tensor("float32", ("n",)), *parts), TupleType(()))),))

    verify(importing(16))
    with pytest.raises(LimitError, match="shape expressions are too large"):
        verify(importing(400))


def test_growing_polynomials_are_forgotten() -> None:
    steps = "\n".join(["multiply i0, i0, i1\nadd i1, i0, i1"] * 500)
    text = f"func @main(x: float32[?, ?]) -> float32[?, ?] {{\nshape_of (i0, i1), r0\n{steps}\nret r0\n}}"
    verify(parse_assembly(text))


def test_work_is_counted() -> None:
    work = Work(words=0)
    work.spend(work.limit)
    with pytest.raises(LimitError):
        work.spend(1)
