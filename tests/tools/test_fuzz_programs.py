"""What the trials of random programs take for a difference."""

import numpy as np
import pytest
from treadle import Module, function, op, var
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.tools.dev.fuzz.programs import TOLERANCE, jumps, sample_of


@pytest.mark.parametrize(("body", "does"), [(op.floor, True), (op.exp, False)])
def test_where_rounding_decides_the_evaluator_jumps(body, does: bool):
    x = var("x", (64, 16))
    module = infer_types(Module(main=function([x], body(op.sum(x, axes=(1,))))))
    values = np.full((64, 16), 1 / 16, np.float32)
    expected = evaluate(module, "main", values)
    assert jumps(module, [values], expected, (False,), TOLERANCE) is does


@pytest.mark.parametrize("number", [70, 1154, 1418])
def test_functions_that_a_branch_chooses_use_their_own_parameters(number: int):
    infer_types(sample_of(7, number).module)
