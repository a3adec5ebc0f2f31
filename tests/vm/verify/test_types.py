"""The verifier's layers data flow and types: each rule with a program that keeps it and one that breaks it."""

from dataclasses import dataclass

import pytest
from treadle.formats.messages.errors import VerificationError
from treadle.formats.text.assembly import parse_assembly
from treadle.vm.verify.verifier import verify

PRELUDE = """
data List = Nil | Cons(float32[2], List)
const one float32[2] = [1.0, 1.0]
const yes bool[] = true
prim relu(%0: float32[2]) -> float32[2] {
  %1 = relu(%0) : float32[2]
  return %1
}
prim relu_n[n](%0: float32[n, 4]) -> float32[n, 4] {
  %1 = relu(%0) : float32[n, 4]
  return %1
}
prim twice[n](%0: float32[n]) -> float32[2*n] {
  %1 = tile(%0) {repeats=(2,)} : float32[2*n]
  return %1
}
prim half[n](%0: float32[n]) -> float32[(n // 2)] {
  %1 = pool(%0) : float32[(n // 2)]
  return %1
}
prim drop[k](%0: float32[4]) -> float32[2] {
  %1 = slice(%0) {start=<k>} : float32[2]
  return %1
}
prim nonzero(%0: float32[?]) -> int64[?] {
  %1 = nonzero(%0) : int64[?]
  return %1
}
"""


@dataclass
class Rule:
    """`head` is the function's parameters and result, `kept` and `broken` are bodies; `more` stands before the function."""

    name: str
    head: str
    kept: str
    broken: str
    layer: str
    message: str
    more: str = ""


RULES = [
    Rule(
        "a register is written before it is read",
        "() -> float32[2]",
        "load_const r0, one; ret r0",
        "load_const r0, one; ret r1",
        "data flow",
        "r1 is read, but on a path to here it is not written",
        "func @spare() -> float32[2] refs=2 { load_const r0, one\n ret r0 }",
    ),
    Rule(
        "a register is written on every path",
        "(c: bool[]) -> float32[2]",
        "if r0, else; load_const r1, one; goto done; else: load_const r1, one; done: ret r1",
        "if r0, else; load_const r1, one; goto done; else: load_const r2, one; done: ret r1",
        "data flow",
        "r1 is read, but on a path to here it is not written",
    ),
    Rule(
        "an integer register is written before it is read",
        "(x: float32[?]) -> float32[?]",
        "load_int i0, 3; match_shape r0 [i0]; ret r0",
        "match_shape r0 [i0]; ret r0",
        "data flow",
        "i0 is read, but on a path to here it is not written",
    ),
    Rule(
        "a killed register is empty",
        "(x: float32[2], y: float32[2]) -> float32[2]",
        "kill (r0); ret r1",
        "kill (r0, r1); ret r1",
        "data flow",
        "r1 is read, but on a path to here it is not written, or killed",
    ),
    Rule(
        "an instruction writes a register once",
        "(x: float32[?, ?]) -> float32[?, ?]",
        "shape_of (i0, i1), r0; ret r0",
        "shape_of (i0, i0), r0; ret r0",
        "data flow",
        "a register is written twice by one instruction",
    ),
    Rule(
        "the elements of a tensor are written before they are read",
        "(x: float32[2]) -> float32[2]",
        "alloc_tensor r1, float32[2]; alloc_tensor r2, float32[2]; call relu (r0) -> (r1); call relu (r1) -> (r2); ret r2",
        "alloc_tensor r1, float32[2]; alloc_tensor r2, float32[2]; call relu (r1) -> (r2); ret r2",
        "data flow",
        "the elements of r1 are read, but on a path to here nothing has written them",
    ),
    Rule(
        "the elements of a tensor are written before they are returned, on every path",
        "(c: bool[], x: float32[2]) -> float32[2]",
        "alloc_tensor r2, float32[2]; if r0, end; move r3, r2; end: call relu (r1) -> (r2); ret r2",
        "alloc_tensor r2, float32[2]; if r0, end; call relu (r1) -> (r2); end: ret r2",
        "data flow",
        "the elements of r2 are read, but on a path to here nothing has written them",
    ),
    Rule(
        "each round of a loop writes its own tensors",
        "(c: bool[], x: float32[2]) -> float32[2]",
        "again: alloc_tensor r2, float32[2]; call relu (r1) -> (r2); move r1, r2; if r0, again; ret r1",
        "again: alloc_tensor r2, float32[2]; call relu (r1) -> (r2); move r1, r2; alloc_tensor r2, float32[2];"
        "move r1, r2; if r0, again; ret r1",
        "data flow",
        "the elements of r1 are read",
    ),
    Rule(
        "a function returns its result's type",
        "(x: float32[2]) -> float32[2]",
        "ret r0",
        "make_shape r0 [1, 2]; ret r0",
        "types",
        "the result of 'main', r0, is int64[2]; expected float32[2]",
    ),
    Rule(
        "a parameter's symbolic dimension is not known",
        "(x: float32[n, 4]) -> float32[?, 4]",
        "shape_of (i0, i1), r0; alloc_dynamic r1, float32[i0, 4]; call relu_n (r0) -> (r1) [i0]; ret r1",
        "alloc_dynamic r1, float32[3, 4]; call relu_n (r0) -> (r1) [3]; ret r1",
        "types",
        "input 0 of 'relu_n', r0, is float32[?, 4]; expected float32[3, 4]; use match_shape to prove it",
    ),
    Rule(
        "dimensions are compared as polynomials",
        "(x: float32[?]) -> float32[?]",
        "shape_of (i0), r0; add i1, i0, i0; alloc_dynamic r1, float32[i1]; call twice (r0) -> (r1) [i0]; ret r1",
        "shape_of (i0), r0; add i1, i0, 2; alloc_dynamic r1, float32[i1]; call twice (r0) -> (r1) [i0]; ret r1",
        "types",
        "output 0 of 'twice', r1, is float32[shape_of.0.0 + 2]; expected float32[2*shape_of.0.0]",
    ),
    Rule(
        "division makes the same unknown of the same operands",
        "(x: float32[?]) -> float32[?]",
        "shape_of (i0), r0; floor_divide i1, i0, 2; alloc_dynamic r1, float32[i1]; call half (r0) -> (r1) [i0]; ret r1",
        "shape_of (i0), r0; floor_divide i1, i0, 3; alloc_dynamic r1, float32[i1]; call half (r0) -> (r1) [i0]; ret r1",
        "types",
        "expected float32[(shape_of.0.0 // 2)]",
    ),
    Rule(
        "match_shape proves a shape",
        "(x: float32[?, ?]) -> float32[?, ?]",
        "match_shape r0 [3, 4]; alloc_dynamic r1, float32[3, 4]; call relu_n (r0) -> (r1) [3]; ret r1",
        "match_shape r0 [4, 3]; alloc_dynamic r1, float32[3, 4]; call relu_n (r0) -> (r1) [3]; ret r1",
        "types",
        "input 0 of 'relu_n', r0, is float32[4, 3]; expected float32[3, 4]",
    ),
    Rule(
        "match_shape keeps the rank",
        "(x: float32[?, ?]) -> float32[?, ?]",
        "match_shape r0 [3, 4]; ret r0",
        "match_shape r0 [12]; ret r0",
        "types",
        "r0 is float32[?, ?], of rank 2; the shape has rank 1",
    ),
    Rule(
        "what paths disagree on is not known",
        "(c: bool[], x: float32[?, 4], y: float32[?, 4]) -> float32[?, 4]",
        "if r0, else; move r1, r2; else: shape_of (i0, i1), r1; alloc_dynamic r3, float32[i0, 4];"
        "call relu_n (r1) -> (r3) [i0]; ret r3",
        "shape_of (i0, i1), r1; if r0, else; move r1, r2; else: alloc_dynamic r3, float32[i0, 4];"
        "call relu_n (r1) -> (r3) [i0]; ret r3",
        "types",
        "input 0 of 'relu_n', r1, is float32[?, 4]",
    ),
    Rule(
        "a loop's rounds do not share their unknowns",
        "(c: bool[], x: float32[?, 4], y: float32[?, 4]) -> float32[?, 4]",
        "again: shape_of (i0, i1), r1; alloc_dynamic r3, float32[i0, 4]; call relu_n (r1) -> (r3) [i0];"
        "move r1, r2; if r0, again; ret r1",
        "shape_of (i0, i1), r1; again: alloc_dynamic r3, float32[i0, 4]; call relu_n (r1) -> (r3) [i0];"
        "move r1, r2; shape_of (i0, i1), r2; if r0, again; ret r1",
        "types",
        "input 0 of 'relu_n', r1, is float32[?, 4]",
    ),
    Rule(
        "a variable is a tensor's dimension",
        "(x: float32[4], y: float32[?]) -> float32[2]",
        "alloc_tensor r2, float32[2]; shape_of (i0), r1; call drop (r0) -> (r2) [i0]; ret r2",
        "alloc_tensor r2, float32[2]; shape_of (i0), r1; subtract i0, i0, 9; call drop (r0) -> (r2) [i0]; ret r2",
        "types",
        "variable k of 'drop' is shape_of.3.0 - 9, which is not known to be a tensor's dimension",
    ),
    Rule(
        "what is read from a shape is a dimension, whatever made the tensor of that size",
        "(x: float32[4], k: int64[]) -> float32[2]",
        "alloc_tensor r2, float32[2]; read_shape (i0), r1; alloc_dynamic r3, bool[i0, 0]; shape_of (i1, i2), r3;"
        "call drop (r0) -> (r2) [i1]; ret r2",
        "alloc_tensor r2, float32[2]; read_shape (i0), r1; call drop (r0) -> (r2) [i0];"
        "alloc_dynamic r3, bool[i0, 0]; shape_of (i1, i2), r3; ret r2",
        "types",
        "variable k of 'drop' is read_shape.3.0, which is not known to be a tensor's dimension",
    ),
    Rule(
        "a size that paths disagree on is one where it is that of a tensor on both",
        "(c: bool[], x: float32[4], y: float32[?], z: float32[?]) -> float32[2]",
        "alloc_tensor r4, float32[2]; if r0, else; shape_of (i0), r2; goto on; else: shape_of (i0), r3; move r2, r3;"
        "on: call drop (r1) -> (r4) [i0]; ret r4",
        "alloc_tensor r4, float32[2]; if r0, else; shape_of (i0), r2; goto on; else: shape_of (i0), r3;"
        "on: call drop (r1) -> (r4) [i0]; ret r4",
        "types",
        "variable k of 'drop' is i0 at 16, which is not known to be a tensor's dimension",
    ),
    Rule(
        "what one path alone has read from a shape is not a dimension where paths meet",
        "(x: float32[4], k: int64[], c: bool[]) -> float32[2]",
        "alloc_tensor r3, float32[2]; read_shape (i0), r1; alloc_dynamic r4, bool[i0]; shape_of (i1), r4; if r2, skip;"
        "alloc_dynamic r4, bool[i0]; skip: call drop (r0) -> (r3) [i0]; ret r3",
        "alloc_tensor r3, float32[2]; read_shape (i0), r1; if r2, skip; alloc_dynamic r4, bool[i0]; shape_of (i1), r4;"
        "skip: call drop (r0) -> (r3) [i0]; ret r3",
        "types",
        "variable k of 'drop' is read_shape.3.0, which is not known to be a tensor's dimension",
    ),
    Rule(
        "what an earlier round has read from a shape is not a dimension of this round",
        "(x: float32[4], k: int64[], c: bool[]) -> float32[2]",
        "alloc_tensor r3, float32[2]; again: read_shape (i0), r1; alloc_dynamic r4, bool[i0]; shape_of (i1), r4;"
        "call drop (r0) -> (r3) [i0]; if r2, again; ret r3",
        "alloc_tensor r3, float32[2]; again: read_shape (i0), r1; call drop (r0) -> (r3) [i0]; alloc_dynamic r4, bool[i0];"
        "shape_of (i1), r4; if r2, again; ret r3",
        "types",
        "variable k of 'drop' is read_shape.3.0, which is not known to be a tensor's dimension",
    ),
    Rule(
        "a call gives each variable a value",
        "(x: float32[3, 4]) -> float32[3, 4]",
        "alloc_tensor r1, float32[3, 4]; call relu_n (r0) -> (r1) [3]; ret r1",
        "alloc_tensor r1, float32[3, 4]; call relu_n (r0) -> (r1); ret r1",
        "types",
        "0 values for the dimension variables of 'relu_n': n",
    ),
    Rule(
        "a call has the definition's inputs and outputs",
        "(x: float32[2]) -> float32[2]",
        "alloc_tensor r1, float32[2]; call relu (r0) -> (r1); ret r1",
        "alloc_tensor r1, float32[2]; call relu (r0, r0) -> (r1); ret r1",
        "types",
        "'relu' is called with 2 inputs and 1 outputs; expected 1 inputs and 1 outputs",
    ),
    Rule(
        "an output is not a parameter",
        "(x: float32[2]) -> float32[2]",
        "alloc_tensor r1, float32[2]; call relu (r0) -> (r1); ret r1",
        "call relu (r0) -> (r0); ret r0",
        "types",
        "output 0 of 'relu', r0, is shared or not made in this function",
    ),
    Rule(
        "an output is not a constant",
        "(x: float32[2]) -> float32[2]",
        "load_const r1, one; alloc_tensor r2, float32[2]; call relu (r1) -> (r2); ret r2",
        "load_const r1, one; call relu (r0) -> (r1); ret r1",
        "types",
        "output 0 of 'relu', r1, is shared or not made in this function",
    ),
    Rule(
        "an output was not given away before",
        "(x: float32[2]) -> (float32[2],)",
        "alloc_tensor r1, float32[2]; call relu (r0) -> (r1); alloc_data r2, (float32[2],), 0 (r1); ret r2",
        "alloc_tensor r1, float32[2]; call relu (r0) -> (r1); alloc_data r2, (float32[2],), 0 (r1);"
        "call relu (r0) -> (r1); ret r2",
        "types",
        "output 0 of 'relu', r1, is shared or not made in this function",
    ),
    Rule(
        "call needs known shapes, call_host does not",
        "(x: float32[?]) -> int64[?]",
        "call_host nonzero (r0) -> (r1); ret r1",
        "shape_of (i0), r0; alloc_dynamic r1, int64[i0]; call nonzero (r0) -> (r1); ret r1",
        "types",
        "expected float32[?]; a dimension ? can only be given to call_host",
    ),
    Rule(
        "a frame's tensor lies inside of it",
        "(x: float32[2]) -> float32[2]",
        "frame_tensor r1, float32[2], 64; ret r0",
        "frame_tensor r1, float32[2], 128; ret r0",
        "types",
        "a tensor of 8 bytes at byte 128 of a frame of 128 bytes",
    ),
    Rule(
        "a frame's tensor is aligned",
        "(x: float32[2]) -> float32[2]",
        "frame_tensor r1, float32[2], 64; ret r0",
        "frame_tensor r1, float32[2], 32; ret r0",
        "types",
        "at a multiple of 64",
    ),
    Rule(
        "a frame's tensor is not returned",
        "(x: float32[2]) -> float32[2]",
        "alloc_tensor r1, float32[2]; call relu (r0) -> (r1); ret r1",
        "frame_tensor r1, float32[2], 0; call relu (r0) -> (r1); ret r1",
        "types",
        "the result of 'main', r1, lies in the frame's memory and must not leave the frame",
    ),
    Rule(
        "a frame's tensor is not put into data, under another name or shape either",
        "(x: float32[2]) -> (float32[2],)",
        "alloc_data r1, (float32[2],), 0 (r0); ret r1",
        "frame_tensor r1, float32[1, 2], 0; reshape r2, r1 [2]; move r3, r2; call relu (r0) -> (r3);"
        "alloc_data r1, (float32[2],), 0 (r3); ret r1",
        "types",
        "r3, lies in the frame's memory",
    ),
    Rule(
        "a frame's tensor is not given to a host operator",
        "(x: float32[?]) -> int64[?]",
        "call_host nonzero (r0) -> (r1); ret r1",
        "frame_tensor r1, float32[4], 0; call_host nonzero (r1) -> (r1); ret r1",
        "types",
        "value 0 of the inputs of 'nonzero', r1, lies in the frame's memory",
    ),
    Rule(
        "a function's arguments have its parameters' types",
        "(x: float32[3, 4]) -> float32[2]",
        "load_const r1, one; invoke r2, @callee (r1, r1); ret r2",
        "load_const r1, one; invoke r2, @callee (r1, r0); ret r2",
        "types",
        "value 1 of the parameters of 'callee', r0, is float32[3, 4]; expected float32[2]",
        "func @callee(a: float32[2], b: float32[2]) -> float32[2] { ret r0 }",
    ),
    Rule(
        "an import's arguments have its parameters' types",
        "(x: float32[3, 4]) -> float32[2]",
        "load_const r1, one; call_import r2, mix (r1, r1); ret r2",
        "load_const r1, one; call_import r2, mix (r1, r0); ret r2",
        "types",
        "value 1 of the parameters of the import 'mix', r0, is float32[3, 4]; expected float32[?]",
        "import mix: fn(float32[n], float32[n]) -> float32[2]",
    ),
    Rule(
        "an import gets all its arguments",
        "(x: float32[2]) -> float32[2]",
        "call_import r1, mix (r0, r0); ret r1",
        "call_import r1, mix (r0); ret r1",
        "types",
        "1 values for the 2 of the parameters of the import 'mix'",
        "import mix: fn(float32[n], float32[n]) -> float32[2]",
    ),
    Rule(
        "what an import gives has its type, whose sizes nobody knows",
        "(x: float32[2]) -> float32[2]",
        "call_import r1, same (r0); match_shape r1 [2]; ret r1",
        "call_import r1, same (r0); ret r1",
        "types",
        "the result of 'main', r1, is float32[?]; expected float32[2]",
        "import same: fn(float32[n]) -> float32[n]",
    ),
    Rule(
        "a frame's tensor is not shown to Python",
        "(x: float32[2]) -> float32[2]",
        "alloc_tensor r1, float32[2]; call relu (r0) -> (r1); call_import r1, same (r1); ret r1",
        "frame_tensor r1, float32[2], 0; call relu (r0) -> (r1); call_import r1, same (r1); ret r1",
        "types",
        "value 0 of the parameters of the import 'same', r1, lies in the frame's memory",
        "import same: fn(float32[2]) -> float32[2]",
    ),
    Rule(
        "a function gets all its arguments",
        "(x: float32[2]) -> float32[2]",
        "invoke r1, @callee (r0, r0); ret r1",
        "invoke r1, @callee (r0); ret r1",
        "types",
        "1 values for the 2 of the parameters of 'callee'",
        "func @callee(a: float32[2], b: float32[2]) -> float32[2] { ret r0 }",
    ),
    Rule(
        "a closure binds what its function captures",
        "(x: float32[2], y: int64[]) -> float32[2]",
        "alloc_closure r2, @body (r1); invoke_closure r3, r2 (r0); ret r3",
        "alloc_closure r2, @body (r0); invoke_closure r3, r2 (r0); ret r3",
        "types",
        "value 0 of the captured values of 'body', r0, is float32[2]; expected int64[]",
        "func @body(a: float32[2]) captures (k: int64[]) -> float32[2] { ret r0 }",
    ),
    Rule(
        "a closure gets the arguments that its type says",
        "(f: fn(float32[2]) -> float32[2], x: float32[2], y: int64[]) -> float32[2]",
        "invoke_closure r3, r0 (r1); ret r3",
        "invoke_closure r3, r0 (r2); ret r3",
        "types",
        "value 0 of the parameters of the closure r0, r2, is int64[]; expected float32[2]",
    ),
    Rule(
        "a function that takes more stands for one that takes less",
        "(x: float32[2]) -> fn(float32[2]) -> float32[?]",
        "alloc_closure r1, @general; ret r1",
        "alloc_closure r1, @special; ret r1",
        "types",
        "is fn(float32[3]) -> float32[3]; expected fn(float32[2]) -> float32[?]",
        "func @general(a: float32[?]) -> float32[?] { ret r0 }\nfunc @special(a: float32[3]) -> float32[3] { ret r0 }",
    ),
    Rule(
        "only closures are called",
        "(f: fn() -> float32[2], x: float32[2]) -> float32[2]",
        "invoke_closure r2, r0; ret r2",
        "invoke_closure r2, r1; ret r2",
        "types",
        "r1 is float32[2]; expected a closure",
    ),
    Rule(
        "data has its constructor's fields",
        "(x: float32[2]) -> List",
        "alloc_data r1, List, 0; alloc_data r2, List, 1 (r0, r1); ret r2",
        "alloc_data r1, List, 0; alloc_data r2, List, 1 (r1, r0); ret r2",
        "types",
        "value 0 of constructor 1 of List, r1, is List; expected float32[2]",
    ),
    Rule(
        "data has a tag that exists",
        "() -> List",
        "alloc_data r0, List, 0; ret r0",
        "alloc_data r0, List, 2; ret r0",
        "types",
        "List has 2 constructors; there is no tag 2",
    ),
    Rule(
        "a field exists",
        "(t: (float32[2], int64[])) -> int64[]",
        "get_field r1, r0, 0, 1; ret r1",
        "get_field r1, r0, 0, 2; ret r1",
        "types",
        "has 2 fields; there is no field 2",
    ),
    Rule(
        "a field has its constructor's type",
        "(l: List) -> List",
        "get_field r1, r0, 1, 1; ret r1",
        "get_field r1, r0, 1, 0; ret r1",
        "types",
        "the result of 'main', r1, is float32[2]; expected List",
    ),
    Rule(
        "only data has a tag",
        "(l: List, t: (int64[],)) -> List",
        "get_tag i0, r0; if_int i0, end; end: ret r0",
        "get_tag i0, r1; if_int i0, end; end: ret r0",
        "types",
        "r1 is (int64[],); expected a value of a data type",
    ),
    Rule(
        "a condition is a scalar",
        "(c: bool[], x: float32[2]) -> float32[2]",
        "if r0, end; end: ret r1",
        "if r1, end; end: ret r1",
        "types",
        "the condition r1 is float32[2]; expected a scalar of booleans or integers",
    ),
    Rule(
        "alloc_tensor needs a known shape",
        "(x: float32[2]) -> float32[2]",
        "alloc_tensor r1, float32[2]; ret r0",
        "alloc_tensor r1, float32[?]; ret r0",
        "types",
        "type 0 is float32[?]; expected a tensor type without unknown dimensions",
    ),
    Rule(
        "a shape's bytes are bounded",
        "(x: float32[2]) -> float32[2]",
        "alloc_dynamic r1, float32[0, 1000000000000]; ret r0",
        "alloc_dynamic r1, float32[0, 100000000000000]; ret r0",
        "types",
        "has more than 140737488355327 bytes",
    ),
    Rule(
        "a tensor in storage needs storage",
        "(x: float32[2]) -> float32[2]",
        "alloc_storage r1, 64; storage_tensor r2, r1, 0, float32[2]; call relu (r0) -> (r2); ret r2",
        "storage_tensor r2, r0, 0, float32[2]; call relu (r0) -> (r2); ret r2",
        "types",
        "r0 is float32[2]; expected storage",
    ),
    Rule(
        "storage itself is not a value",
        "(x: float32[2]) -> float32[2]",
        "alloc_storage r1, 64; move r2, r1; ret r0",
        "alloc_storage r1, 64; ret r1",
        "types",
        "r1, is storage; expected float32[2]",
    ),
    Rule(
        "shape_of gives every dimension",
        "(x: float32[?, ?]) -> float32[?, ?]",
        "shape_of (i0, i1), r0; ret r0",
        "shape_of (i0), r0; ret r0",
        "types",
        "of rank 2; 1 registers are given",
    ),
    Rule(
        "read_shape reads a known number of integers",
        "(x: int64[2], y: int64[?]) -> int64[2]",
        "read_shape (i0, i1), r0; ret r0",
        "read_shape (i0, i1), r1; ret r0",
        "types",
        "r1 is int64[?]; expected a tensor of integers, of rank 0 or 1, with 2 elements",
    ),
    Rule(
        "make_shape makes a tensor of integers",
        "(x: float32[2]) -> int64[3]",
        "make_shape r1 [1, 2, 3]; ret r1",
        "make_shape r1 [1, 2]; ret r1",
        "types",
        "r1, is int64[2]; expected int64[3]",
    ),
    Rule(
        "a failure has a reason",
        "() -> float32[2]",
        "fatal 0",
        "fatal 2",
        "types",
        "2 is no reason to fail",
    ),
]


def program(rule: Rule, body: str):
    lines = body.replace(";", "\n").replace(": ", ":\n")
    return parse_assembly(f"{PRELUDE}{rule.more}\nfunc @main{rule.head} refs=8 ints=8 frame=128 {{\n{lines}\n}}\n")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_program_that_keeps_the_rule_passes(rule: Rule) -> None:
    verify(program(rule, rule.kept))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_program_that_breaks_the_rule_is_refused(rule: Rule) -> None:
    with pytest.raises(VerificationError) as caught:
        verify(program(rule, rule.broken))
    assert caught.value.layer == rule.layer
    assert rule.message in str(caught.value)
    assert caught.value.function == "main"


def test_an_error_names_the_model_node() -> None:
    text = 'func @main(x: float32[2]) -> float32[3] {\n  move r1, r0\n  ret r1  from "Identity_7"\n}'
    with pytest.raises(VerificationError) as caught:
        verify(parse_assembly(text))
    assert (caught.value.instruction, caught.value.node) == (1, "Identity_7")


def test_parameters_that_may_be_kept_are_known() -> None:
    text = (
        PRELUDE
        + """
    func @main(read: float32[2], returned: float32[2], packed: (float32[2],), sent: float32[2]) -> float32[2] {
      alloc_tensor r4, float32[2]
      call relu (r0) -> (r4)
      invoke r5, @other (r3)
      move r6, r1
      get_field r7, r2, 0, 0
      ret r6
    }
    func @other(x: float32[2]) -> float32[2] {
      ret r0
    }
    """
    )
    assert verify(parse_assembly(text)).functions[0].escaping == (False, True, False, True)


def test_what_registers_hold_can_be_asked_for() -> None:
    text = """
    func @main(x: float32[n, 4]) -> float32[?, 4] {
      shape_of (i0, i1), r0
      add i2, i0, 1
      goto end
      kill (r0)
    end:
      ret r0
    }
    """
    before = verify(parse_assembly(text)).registers(0)
    assert str(before[0].refs[0].type) == "float32[?, 4]"
    assert str(before[1].refs[0].type) == "float32[shape_of.0.0, 4]"
    assert {register: str(value) for register, value in before[2].ints.items()} == {
        0: "shape_of.0.0",
        1: "4",
        2: "shape_of.0.0 + 1",
    }
    assert before[3] is None
