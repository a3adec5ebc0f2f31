"""A primitive as a function of Python's."""

import numpy as np
import pytest
import treadle
from treadle.errors import ShapeError
from treadle.formats.executable import Executable
from treadle.formats.text.assembly import parse_assembly
from treadle.tvm.modules.kernel_function import kernel_function

TEXT = """
prim parts(%0: float32[n], %1: float32[m]) -> float32[n // m] {
  %2 = sum(%0) {axes=(0,), keepdims=true} : float32[1]
  %3 = sum(%1) {axes=(0,), keepdims=true} : float32[1]
  %4 = add(%2, %3) : float32[1]
  %5 = broadcast_to(%4) {shape=(<n // m>,)} : float32[n // m]
  return %5
}
"""


def test_a_size_that_is_divided_by_0_is_a_named_error() -> None:
    program = parse_assembly(TEXT)
    call = kernel_function(program.primitives[0], Executable(program))
    made = treadle.Tensor(np.zeros(3, np.float32))
    call(np.ones(6, np.float32), np.zeros(2, np.float32), made)
    assert made.numpy().tolist() == [6, 6, 6]
    with pytest.raises(
        ShapeError, match=r"^parts: float32\[\(n // m\)\] has no size where n is 6, m is 0: one is divided by 0"
    ):
        call(np.zeros(6, np.float32), np.zeros(0, np.float32), made)
