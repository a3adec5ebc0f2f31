"""A small executable that has something in every section."""

import numpy as np
from treadle.formats.dtypes import DType
from treadle.formats.executable import Executable, NativeKernel
from treadle.formats.primitive import PrimitiveNode
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.types import TensorType
from treadle.formats.weight_table import NamedWeight, WeightTable

TEXT = """\
meta "producer" = "tests"

data List[float32[2]] = Nil | Cons(float32[2], List[float32[2]])

const c0 float32[2] = [1.0, nan]

import log: fn(float32[n], List[float32[2]]) -> ()

prim add_0[n](%0: float32[n], %1: float32[n]) -> float32[n] {
  %2 = add(%0, %1) : float32[n]  from "Add_17"
  return %2
}

func @main(x: float32[2]) -> float32[2] as (y)  refs=4 ints=1 frame=64 {
  load_const r1, c0
  frame_tensor r2, float32[2], 0
  call add_0 (r0, r1) -> (r2) [2]  from "Add_17"
  shape_of (i0), r0
  if_int i0, L0
  alloc_tensor r3, float32[2]
  call add_0 (r2, r1) -> (r3) [i0]
  ret r3
L0:
  fatal 0
}

func @keep(x: List[float32[2]]) captures (y: float32[2]) -> float32[2]  refs=2 ints=0 frame=0 {
  ret r1
}
"""

TEXTS = 'const c1 string[3] = ["", "a text", ""]\ndevice gpu0 = "emulated x86-64-v4"\nconst c2 int32[]@gpu0 = 7\n'

PAIR = TensorType(DType.float32, (2,))
WEIGHTS = WeightTable(
    (NamedWeight("w", PAIR), NamedWeight("settled", PAIR, "0" * 64)),
    (np.array([2, 3], np.float32),),
    (PrimitiveNode("multiply", (0, 2), (PAIR,)),),
    ((0, 3),),
)


def executable(more: str = "") -> Executable:
    """With `more` in its text."""
    native = {"x86-64": {"00ff": NativeKernel(b"machine code", (2, 64), 0, 12)}}
    return Executable(parse_assembly(TEXT + more), native, WEIGHTS)
