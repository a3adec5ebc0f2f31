"""TVM's passes over Relay's own expressions: what each does, and that values stay what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import CompileError, UnsupportedNameError
from treadle.tvm import relay
from treadle.tvm.relay import transform
from treadle.tvm.relay.passes.core import value_of


def changed(expr: Any, *passes: Any) -> Any:
    """The body, or the function, after passes; its value is the same."""
    module = tvm.IRModule.from_expr(expr)
    for each in passes:
        module = each(module)
    return module["main"] if isinstance(expr, relay.Function) else module["main"].body


def value(expr: Any, **inputs: Any) -> Any:
    """The value by the reference evaluator."""
    free = {variable: relay.const(inputs[variable.name_hint]) for variable in relay.analysis.free_vars(expr)}
    return value_of(relay.bind(expr, free))


def ops(expr: Any) -> dict[str, int]:
    return relay.analysis.list_op_freqs(expr)


X = np.linspace(-1, 2, 12, dtype="float32").reshape(3, 4)


def x(shape: tuple[int, ...] = (3, 4), dtype: str = "float32") -> Any:
    return relay.var("x", shape=shape, dtype=dtype)


# ---- constants, sharing, normal forms ----


def test_constants_are_folded_and_lets_of_them_go() -> None:
    a = relay.var("a")
    body = relay.Let(a, relay.const(2.0) * relay.const(3.0), x() + a)
    folded = changed(body, transform.FoldConstant())
    assert folded.op.name == "add"
    assert folded.args[1].array == 6.0
    assert changed(relay.shape_of(x() + x()), transform.FoldConstant()).array.tolist() == [3, 4]


def test_common_subexpressions_are_one() -> None:
    v = x()
    made = changed(relay.exp(v) + relay.exp(v), transform.EliminateCommonSubexpr())
    assert made.args[0] is made.args[1]


def test_normal_forms_keep_values() -> None:
    v = x()
    body = relay.If(relay.const(True), relay.exp(v) + v, relay.exp(v) * relay.exp(v))
    shared = relay.exp(v)
    both = relay.If(relay.const(True), shared + v, shared * shared)
    for each in (transform.ToANormalForm(), transform.ToBasicBlockNormalForm()):
        np.testing.assert_allclose(value(changed(both, each), x=X), value(both, x=X))
    assert isinstance(changed(both, transform.ToBasicBlockNormalForm()), relay.Let)
    with pytest.raises(CompileError, match="two scopes share"):
        relay.analysis.check_basic_block_normal_form(both)
    assert relay.analysis.check_basic_block_normal_form(relay.Function([v], body))
    back = changed(changed(both, transform.ToANormalForm()), transform.ToGraphNormalForm())
    assert relay.analysis.Feature.fLet not in relay.analysis.detect_feature(back)


def test_dead_lets_go_and_lets_used_once_give_way() -> None:
    a, b = relay.var("a"), relay.var("b")
    body = relay.Let(a, relay.exp(x()), relay.Let(b, relay.const(1.0), a))
    assert isinstance(changed(body, transform.DeadCodeElimination()), relay.Let)
    assert changed(body, transform.DeadCodeElimination(inline_once=True)).op.name == "exp"


# ---- functions ----


def test_functions_are_inlined_lifted_and_evaluated() -> None:
    p, q = relay.var("p", shape=(3, 4)), relay.var("q", shape=(3, 4))
    module = tvm.IRModule({"twice": relay.Function([p], p + p).with_attr("Inline", 1)})
    v = x()
    module["main"] = relay.Function([v], relay.exp(relay.GlobalVar("twice")(v)))
    inlined = transform.Inline()(module)
    assert list(inlined._functions) == ["main"]
    assert ops(inlined) == {"add": 1, "exp": 1}
    closure = relay.Function([v], relay.Function([q], q + v)(v))
    lifted = transform.LambdaLift()(tvm.IRModule.from_expr(closure))
    assert len(lifted.functions) == 2
    assert ops(changed(closure, transform.PartialEvaluate())) == {"add": 1}
    assert changed(closure, transform.PartialEvaluate()).body.op.name == "add"


def test_fused_groups_are_what_tvm_fuses_and_come_apart_again() -> None:
    v, w = relay.var("data", shape=(1, 2, 5, 5)), relay.var("w", shape=(2, 2, 3, 3))
    y = relay.nn.relu(relay.nn.conv2d(v, w, kernel_size=(3, 3), channels=2) + relay.const(1.0))
    function = relay.Function([v, w], relay.nn.softmax(relay.exp(y)))
    fused = changed(function, transform.FuseOps(2))
    groups = list(relay.analysis.extract_fused_functions(tvm.IRModule.from_expr(function)).values())
    assert sorted(sum(ops(group).values()) for group in groups) == [1, 4]
    assert tvm.ir.structural_equal(changed(fused, transform.DefuseOps()), changed(function, transform.InferType()))
    assert fused.body.op.attrs["Primitive"] == 1


# ---- shorter, and other, operators ----


def test_expressions_are_simplified() -> None:
    v = x()
    for before, after in [
        (relay.transpose(relay.transpose(v)), v),
        (relay.reshape(relay.reshape(v, (2, 6)), (12,)), relay.reshape(v, (12,))),
        (v + relay.zeros_like(v), v),
        (relay.const(2.0) / relay.sqrt(v), relay.const(2.0) * relay.rsqrt(v)),
        (relay.cast(relay.cast(v, "float64"), "float32"), v),
        ((v + relay.const(3.0)) * relay.const(2.0), v * relay.const(2.0) + relay.const(6.0)),
    ]:
        assert tvm.ir.structural_equal(changed(before, transform.SimplifyExpr()), changed(after, transform.InferType()))
    y = relay.var("y", shape=(3, 4), dtype="int32")
    i = x(dtype="int32")
    kept = i * i + i * y * relay.const(3) + y * y  # whose factors are no integers
    assert ops(changed(kept, transform.SimplifyExpr())) == ops(kept)


def test_normalisations_become_arithmetic() -> None:
    v, gamma, beta = x(), relay.var("gamma", shape=(4,)), relay.var("beta", shape=(4,))
    made = changed(relay.nn.layer_norm(v, gamma, beta), transform.SimplifyInference())
    assert "nn.layer_norm" not in ops(made)
    inputs = {"x": X, "gamma": np.ones(4, "float32"), "beta": np.zeros(4, "float32")}
    np.testing.assert_allclose(value(made, **inputs), value(relay.nn.layer_norm(v, gamma, beta), **inputs), atol=1e-5)
    assert ops(changed(relay.nn.bias_add(v, gamma), transform.CanonicalizeOps())) == {"add": 1}


def test_parallel_products_become_one() -> None:
    v = x()
    weights = [relay.var(f"w{place}", shape=(2, 4)) for place in range(3)]
    several = relay.Tuple([relay.nn.dense(v, weight) for weight in weights])
    made = changed(several, transform.CombineParallelDense(3, to_batch=False))
    assert ops(made)["nn.dense"] == 1
    inputs = {"x": X, **{f"w{place}": np.full((2, 4), place + 1.0, "float32") for place in range(3)}}
    for mine, other in zip(value(made, **inputs), value(several, **inputs), strict=True):
        np.testing.assert_allclose(mine, other)


def test_paddings_and_scales_go_into_convolutions() -> None:
    v, w = relay.var("x", shape=(1, 2, 4, 4)), relay.var("w", shape=(3, 2, 3, 3))
    padded = relay.nn.conv2d(relay.nn.pad(v, [(0, 0), (0, 0), (1, 1), (1, 1)]), w)
    assert ops(changed(padded, transform.FoldExplicitPadding())) == {"nn.conv2d": 1}
    scale = relay.const(np.array([1, 2, 3], "float32").reshape(3, 1, 1))
    scaled = relay.nn.conv2d(v, w) * scale
    made = changed(scaled, transform.BackwardFoldScaleAxis())
    assert made.op.name == "nn.conv2d"
    inputs = {"x": np.random.default_rng(0).random((1, 2, 4, 4), "float32"), "w": np.ones((3, 2, 3, 3), "float32")}
    np.testing.assert_allclose(value(made, **inputs), value(scaled, **inputs), rtol=1e-5)


def test_layouts_are_converted_with_what_stands_between() -> None:
    v, w, b = relay.var("x", shape=(1, 4, 4, 2)), relay.var("w", shape=(3, 3, 2, 3)), relay.var("b", shape=(3,))
    y = relay.nn.conv2d(v, w, kernel_size=(3, 3), channels=3, data_layout="NHWC", kernel_layout="HWIO")
    y = relay.nn.relu(relay.nn.bias_add(y, b, axis=3))
    made = changed(y, transform.ConvertLayout({"nn.conv2d": ["NCHW", "default"]}))
    assert made.op.name == "layout_transform"
    assert made.args[0].op.name == "nn.relu"
    random = np.random.default_rng(0).random
    inputs = {"x": random((1, 4, 4, 2), "float32"), "w": random((3, 3, 2, 3), "float32"), "b": random(3, "float32")}
    np.testing.assert_allclose(value(made, **inputs), value(y, **inputs), rtol=1e-5)


def test_products_are_made_in_16_bits() -> None:
    v, w = x(), relay.var("w", shape=(2, 4))
    function = relay.Function([v, w], relay.nn.softmax(relay.nn.relu(relay.nn.dense(v, w))))
    made = transform.ToMixedPrecision()(tvm.IRModule.from_expr(function))["main"]
    assert made.body.checked_type.dtype == "float32"  # softmax is of the list that stays
    assert made.body.args[0].args[0].checked_type.dtype == "float16"


def test_attributes_that_are_known_become_static() -> None:
    v = x()
    made = changed(relay.reshape(v, relay.shape_of(relay.var("y", shape=(2, 6)))), transform.DynamicToStatic())
    assert made.attrs["newshape"] == [2, 6]
    assert len(made.args) == 1


def test_what_is_between_dequantize_and_quantize_is_of_integers() -> None:
    q, w = relay.var("q", shape=(2, 4), dtype="int8"), relay.var("w", shape=(3, 4), dtype="int8")
    real = [relay.qnn.op.dequantize(each, relay.const(0.5), relay.const(0)) for each in (q, w)]
    y = relay.qnn.op.quantize(relay.nn.relu(relay.nn.dense(*real)), relay.const(1.0), relay.const(0), out_dtype="int8")
    made = changed(y, transform.FakeQuantizationToInteger())
    assert "nn.dense" not in ops(made)
    assert ops(made)["qnn.dense"] == 1
    inputs = {"q": np.arange(8, dtype="int8").reshape(2, 4), "w": np.arange(-6, 6, dtype="int8").reshape(3, 4)}
    np.testing.assert_allclose(value(made, **inputs), value(y, **inputs), atol=1)  # ties are rounded otherwise
    unknown = relay.qnn.op.quantize(relay.sin(real[0]), relay.const(1.0), relay.const(0))
    assert ops(changed(unknown, transform.FakeQuantizationToInteger())) == ops(unknown)
    with pytest.raises(CompileError, match="there is no rule for sin"):
        changed(unknown, transform.FakeQuantizationToInteger(hard_fail=True))


# ---- other compilers ----


def test_a_part_of_a_program_is_handed_to_a_python_function() -> None:
    seen = []

    @tvm.register_func("relay.ext.half", override=True)
    def codegen(function: Any) -> Any:
        def run(data: Any) -> Any:
            seen.append(function.attrs["global_symbol"])
            return tvm.nd.array(np.maximum(data.numpy(), 0) / 2)

        return run

    v = x()
    module = tvm.IRModule.from_expr(relay.exp(relay.nn.relu(v)))
    with relay.testing.temp_op_attr.TempOpAttr("nn.relu", "target.half", lambda call: True):
        module = transform.AnnotateTarget("half")(module)
    module = transform.PartitionGraph()(transform.MergeCompilerRegions()(module))
    (name,) = [each for each in module._functions if each != "main"]
    np.testing.assert_allclose(
        value_of(relay.Call(relay.GlobalVar("main"), [relay.const(X)]), module), np.exp(np.maximum(X, 0) / 2)
    )
    assert name == "tvmgen_default_half_main_0"
    assert seen == [name]


def test_patterns_become_composite_functions() -> None:
    pattern = relay.dataflow_pattern.is_op("nn.relu")(
        relay.dataflow_pattern.is_op("add")(*(relay.dataflow_pattern.wildcard() for _ in "ab"))
    )
    made = changed(relay.nn.relu(x() + x()), transform.MergeComposite([("mine.add_relu", pattern)]))
    assert made.op.attrs["Composite"] == "mine.add_relu"
    assert made.op.attrs["PartitionedFromPattern"] == "add_nn.relu_"
    refused = transform.MergeComposite([("mine.add_relu", pattern, lambda extract: False)])
    assert changed(relay.nn.relu(x() + x()), refused).op.name == "nn.relu"


# ---- passes as such ----


def test_a_pass_runs_when_it_is_called_and_a_sequence_by_the_context() -> None:
    module = tvm.IRModule.from_expr(relay.exp(x()))
    assert ops(transform.FastMath()(module)) == {"fast_exp": 1}
    assert ops(tvm.transform.Sequential([transform.FastMath()])(module)) == {"exp": 1}
    with tvm.transform.PassContext(required_pass=["FastMath"]):
        assert ops(relay.optimize(module)[0]) == {"fast_exp": 1}


def test_a_pass_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedNameError, match=r"PlanDevices is not here: leave it out"):
        transform.PlanDevices  # noqa: B018
    with pytest.raises(UnsupportedNameError, match=r"FlexibleShapeDispatch is not here: .*relay.Any"):
        transform.FlexibleShapeDispatch  # noqa: B018


def test_print_ir_says_what_it_prints_among_the_errors(capsys: pytest.CaptureFixture) -> None:
    x = relay.var("x", shape=(2,))
    tvm.transform.PrintIR("here")(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))))
    shown = capsys.readouterr().err
    assert shown.startswith("PrintIR(here):")
    assert "exp(%x)" in shown


def test_keyword_arguments_go_to_all_parameters_of_the_name() -> None:
    a, b = relay.var("x", shape=(2,)), relay.var("x", shape=(2,))
    run = relay.create_executor("vm", tvm.IRModule.from_expr(relay.Function([a, b], relay.add(a, b)))).evaluate()
    with pytest.warns(UserWarning, match="unknown arguments x1: left out; the function's are x, x"):
        assert run(x=np.ones(2, np.float32), x1=np.zeros(2)).numpy().tolist() == [2, 2]
