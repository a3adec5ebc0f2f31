"""Models of other tools under TVM's names: ONNX is read, and the others say how they become ONNX."""

import numpy as np
import onnx
import pytest
import treadle.tvm as tvm
from onnx import TensorProto, helper, numpy_helper
from treadle.formats.messages.errors import UnsupportedNameError
from treadle.tvm import relax, relay
from treadle.tvm.contrib import graph_executor

WEIGHTS = np.arange(12, dtype="float32").reshape(4, 3)


def model() -> onnx.ModelProto:
    """y = reshape(x · w + 1, (-1, 1))."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "one"], ["s"]),
        helper.make_node("Reshape", ["s", "shape"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = {"w": WEIGHTS, "one": np.ones(3, "float32"), "shape": np.array([-1, 1])}
    graph = helper.make_graph(
        nodes, "g", [x], [y], [numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


X = np.arange(8, dtype="float32").reshape(2, 4)
EXPECTED = (X @ WEIGHTS + 1).reshape(-1, 1)


@pytest.mark.parametrize("freeze_params", [True, False])
def test_a_model_is_built_and_run_by_the_graph_executor(freeze_params: bool) -> None:
    module, params = relay.frontend.from_onnx(model(), {"x": (2, 4)}, freeze_params=freeze_params)
    assert sorted(params) == ([] if freeze_params else ["one", "w"])
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm", params=params)
    run = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
    run.set_input("x", X)
    run.run()
    np.testing.assert_array_equal(run.get_output(0).numpy(), EXPECTED)


def test_weights_that_are_parameters_come_behind_the_inputs() -> None:
    module, params = relay.frontend.from_onnx(model(), {"x": (2, 4)}, freeze_params=False)
    main = relay.create_executor("vm", module, tvm.cpu(), "llvm", params=params).evaluate()
    np.testing.assert_array_equal(main(X).numpy(), EXPECTED)
    doubled = {"w": tvm.nd.array(2 * WEIGHTS), "one": params["one"]}
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(module, "llvm", params=doubled), tvm.cpu())
    np.testing.assert_array_equal(machine.run(X).numpy(), (X @ (2 * WEIGHTS) + 1).reshape(-1, 1))


@pytest.mark.parametrize("batch", [relay.Any(), "n", tvm.te.var("n")])
def test_a_size_that_is_not_known_is_any_or_has_a_name(batch: object) -> None:
    module, _ = relay.frontend.from_onnx(model(), {"x": (batch, 4)})
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(module, "llvm"), tvm.cpu())
    for rows in (1, 2):
        np.testing.assert_array_equal(machine.run(X[:rows]).numpy(), EXPECTED[: 3 * rows])


def test_a_shape_may_have_another_rank_than_the_models() -> None:
    source = model()
    module, _ = relay.frontend.from_onnx(source, {"x": (5, 2, 4)})
    assert [str(param.type_annotation) for param in module["main"].params] == ["Tensor[(5, 2, 4), float32]"]
    assert len(source.graph.input[0].type.tensor_type.shape.dim) == 2


def test_relax_takes_models_too() -> None:
    module = relax.frontend.onnx.from_onnx(model(), {"x": (2, 4)}, keep_params_in_input=True)
    module, params = relax.frontend.detach_params(module)
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.nd.array(X), *params["main"]).numpy(), EXPECTED)
    machine = relax.VirtualMachine(relax.build(relax.frontend.onnx.from_onnx(model(), {"x": (2, 4)})), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.nd.array(X)).numpy(), EXPECTED)


def test_models_are_shown_and_bound_and_passes_leave_them_as_they_are() -> None:
    module, params = relay.frontend.from_onnx(model(), {"x": (2, 4)}, freeze_params=False)
    assert "nn.matmul(%x, %w" in str(module)
    assert str(module["main"].checked_type.ret_type) == "Tensor[(6, 1), float32]"
    assert [param.name_hint for param in module["main"].params] == ["x", "w", "one"]
    bound = relay.build_module.bind_params_by_name(module["main"], params)
    assert [param.name_hint for param in bound.params] == ["x"]
    passes = [relay.transform.InferType(), relay.transform.FoldConstant()]
    assert tvm.transform.Sequential(passes)(module)["main"].source is module["main"].source
    graph = relax.frontend.onnx.from_onnx(model(), {"x": (2, 4)})
    assert 'def main(x: R.Tensor((2, 4), dtype="float32"))' in str(graph)
    assert tvm.transform.Sequential([relax.transform.LegalizeOps(), relax.get_pipeline("zero")])(graph) is graph
    with pytest.raises(ValueError, match="Unknown pre-built pipeline 'nonsense'; there are zero"):
        relax.get_pipeline("nonsense")


@pytest.mark.parametrize("tool", ["pytorch", "keras", "tflite", "tensorflow", "mxnet"])
def test_models_of_other_tools_say_how_they_become_onnx(tool: str) -> None:
    with pytest.raises(UnsupportedNameError, match=f"from_{tool}: .* export this one with .*, and use from_onnx"):
        getattr(relay.frontend, f"from_{tool}")(object(), {"x": (1, 4)})
