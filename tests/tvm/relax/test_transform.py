"""`relax.transform`: passes that act on a module's syntax."""

from __future__ import annotations

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.errors import CompileError, UnsupportedNameError
from treadle.tvm import relax

HEAD = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 2), "float32")):
        with R.dataflow():
"""


def module(*lines: str) -> relax.IRModule:
    return tvm.script.from_source(HEAD + "".join(f"            {line}\n" for line in lines) + "        return y\n")


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("CanonicalizeBindings", ["a = x", "y = R.exp(a)"], ["y = R.exp(x)"]),
        ("DeadCodeElimination", ["a = R.exp(x)", "b = R.sin(a)", "y = R.exp(x)"], ["y = R.exp(x)"]),
        (
            "EliminateCommonSubexpr",
            ["a = R.exp(x)", "b = R.exp(x)", "y = R.add(a, b)"],
            ["a = R.exp(x)", "y = R.add(a, a)"],
        ),
        ("FoldConstant", ["a = R.add(R.const(1.0), R.const(2.0))", "y = R.add(x, a)"], ["y = R.add(x, R.const(3.0))"]),
    ],
)
def test_a_pass_changes_what_it_says(name: str, before: list[str], after: list[str]) -> None:
    changed = getattr(relax.transform, name)()(module(*before, "R.output(y)"))
    tvm.ir.assert_structural_equal(changed, module(*after, "R.output(y)"))
    assert getattr(relax.transform, name)()(changed) is changed


def test_sizes_and_parameters_are_bound() -> None:
    program = module("y = R.exp(x)", "R.output(y)")
    sized = relax.transform.BindSymbolicVars({"n": 3})(program)
    assert sized["main"].ret_struct_info == relax.TensorStructInfo((3, 2))
    bound = relax.transform.BindParams("main", {"x": np.zeros((1, 2), np.float32)})(program)
    assert bound["main"].params == ()
    vm = relax.VirtualMachine(relax.build(bound), tvm.cpu())
    assert vm["main"]().numpy().tolist() == [[1, 1]]
    with pytest.raises(CompileError, match="there is no parameter 'z'"):
        relax.transform.BindParams("main", {"z": np.zeros(1)})(program)


def test_a_pass_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedNameError, match="ConvertLayout is not here: the pass is not here"):
        relax.transform.ConvertLayout  # noqa: B018
