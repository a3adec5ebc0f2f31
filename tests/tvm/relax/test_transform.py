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


def test_parameters_say_what_is_known_of_variables() -> None:
    function = module("a: R.Tensor(dtype='float32') = R.exp(x)", "y = R.add(a, x)", "R.output(y)")["main"]
    bound = function.bind_params({"x": np.zeros((3, 2), np.float32)})
    assert [str(each.var.struct_info) for each in bound.body.blocks[0].bindings] == [
        'R.Tensor((3, 2), dtype="float32")'
    ] * 2
    assert str(bound.ret_struct_info) == 'R.Tensor((3, 2), dtype="float32")'
    with pytest.raises(CompileError, match="no parameter 'z'"):
        function.bind_params({"z": 1})


def test_a_function_s_sizes_are_bound() -> None:
    function = module("y = R.exp(x)", "R.output(y)")["main"]
    assert list(function.bind_symbolic_vars({"n": 3}).params[0].struct_info.shape) == [3, 2]
    with pytest.raises(CompileError, match="no size 'k'; the function has n"):
        function.bind_symbolic_vars({"k": 3})
    with pytest.raises(CompileError, match="one size twice"):
        function.bind_symbolic_vars({"n": 3, function.params[0].struct_info.shape[0]: 3})


X = relax.Var("x", relax.TensorStructInfo((2,), "float32"))


def single(value: object, kind: type = relax.BindingBlock, **options: object) -> relax.Function:
    made = relax.Var("y", options.pop("info", None) or X.struct_info)
    return relax.Function([X], relax.SeqExpr([kind([relax.VarBinding(made, value)])], made), **options)


NESTED = relax.op.exp(relax.op.sin(X))
PRINTED = relax.op.call_packed("f", X, sinfo_args=X.struct_info)
BRANCHES = relax.If(relax.const(True), relax.SeqExpr([], X), relax.SeqExpr([], X))


@pytest.mark.parametrize(
    "function",
    [
        single(NESTED),
        single(relax.Tuple([X, relax.op.exp(X)]), info=relax.TupleStructInfo([X.struct_info] * 2)),
        single(PRINTED),
        single(PRINTED, relax.DataflowBlock, is_pure=False),
        single(BRANCHES, relax.DataflowBlock),
        single(relax.op.exp(X), info=relax.TensorStructInfo((2,), "int32")),
        single(relax.op.exp(X), info=relax.TensorStructInfo((tvm.tir.Var("k", "int64"),), "float32")),
        single(relax.op.exp(X), ret_struct_info=relax.TensorStructInfo((tvm.tir.Var("k", "int64"),), "float32")),
    ],
)
def test_a_function_that_is_ill_formed_is_said_to_be(function: relax.Function) -> None:
    assert not relax.analysis.well_formed(function)


@pytest.mark.parametrize(
    "function",
    [single(relax.op.exp(X)), single(PRINTED, is_pure=False), single(BRANCHES), single(X, relax.DataflowBlock)],
)
def test_a_function_that_is_well_formed_is_said_to_be(function: relax.Function) -> None:
    assert relax.analysis.well_formed(function)


def test_normalize_binds_what_is_computed_within() -> None:
    made = relax.transform.Normalize()(tvm.IRModule.from_expr(single(NESTED)))["main"]
    assert relax.analysis.well_formed(made)
    assert [each.value.op.name for each in made.body.blocks[0].bindings] == ["relax.sin", "relax.exp"]


def test_uses_and_bindings_are_named() -> None:
    function = module("a = R.exp(x)", "y = R.add(a, x)", "R.output(y)")["main"]
    a, y = (each.var for each in function.body.blocks[0].bindings)
    x = function.params[0]
    assert relax.analysis.udchain(function.body.blocks[0]) == {a: [y], y: [], x: [a, y]}
    assert list(relax.analysis.name_to_binding(function)) == ["a", "y"]
    assert set(relax.analysis.all_vars(function)) == {x, a, y}
    assert (
        relax.analysis.remove_all_unused(module("a = R.exp(x)", "y = R.sin(x)", "R.output(y)")["main"])
        .body.blocks[0]
        .bindings[1:]
        == ()
    )
