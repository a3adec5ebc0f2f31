"""Relax's functions, variables and struct infos, as programs for TVM look at them."""

from __future__ import annotations

import numpy as np
import pytest
import treadle.tvm as tvm
from onnx import TensorProto, helper, numpy_helper
from treadle.formats.messages.errors import CheckError
from treadle.formats.types import TensorType
from treadle.tvm import relax
from treadle.tvm.relax.expr import OPERATOR_CALLS


def test_struct_infos_have_relaxs_attributes() -> None:
    tensor = relax.TensorStructInfo((2, "n"), "float16")
    assert (tensor.dtype, tensor.ndim, tensor.shape[0], str(tensor.shape[1])) == ("float16", 2, 2, "n")
    assert tensor.shape.struct_info == relax.ShapeStructInfo((2, "n"))
    assert relax.TensorStructInfo(ndim=3).shape is None
    assert relax.TensorStructInfo().ndim == -1
    assert relax.TensorStructInfo(ndim=3).ndim == 3
    pair = relax.TupleStructInfo([tensor, relax.PrimStructInfo("int64")])
    assert pair.fields[0] == tensor
    assert pair.fields[1].dtype == "int64"
    function = relax.FuncStructInfo([pair], tensor)
    assert (function.params, function.ret) == ((pair,), tensor)
    assert relax.ShapeStructInfo(ndim=2).values is None
    assert relax.PrimStructInfo(value=3).value == 3


def test_a_shape_and_another_rank_are_an_error() -> None:
    with pytest.raises(CheckError, match="2 sizes, but ndim is 3"):
        relax.TensorStructInfo((1, 2), ndim=3)


def test_what_a_block_builder_emits_is_a_variable_that_knows_its_struct_info() -> None:
    x, bb = relax.Var("x", relax.TensorStructInfo((2, 3))), relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            inner = bb.emit(relax.op.exp(x))
            outer = bb.emit_output(relax.op.sum(inner, axis=1))
        bb.emit_func_output(outer)
    assert isinstance(inner, relax.DataflowVar)
    assert inner.name_hint == "lv"
    assert isinstance(outer, relax.Var)
    assert not isinstance(outer, relax.DataflowVar)
    assert outer.name_hint == "gv"
    assert inner.struct_info == relax.TensorStructInfo((2, 3))
    assert outer.struct_info.shape == (2,)
    module = bb.get()
    main = module["main"]
    assert [param.name_hint for param in main.params] == ["x"]
    assert main.params[0] is module["main"].params[0]
    assert main.params[0].struct_info == x.struct_info
    assert main.ret_struct_info == relax.TensorStructInfo((2,))
    assert main.struct_info == relax.FuncStructInfo([x.struct_info], main.ret_struct_info)
    (block,) = main.body.blocks
    assert [each.value.op.name for each in block.bindings] == ["relax.exp", "relax.sum"]
    assert main.body.body is block.bindings[-1].var


def test_an_imported_model_shows_its_parameters_and_their_weights() -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["a.b", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("a.b", TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones(3, np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.warns(UserWarning, match="Renaming name a.b to a_b"):
        module = relax.frontend.onnx.from_onnx(model, keep_params_in_input=True)
    main = module["main"]
    assert [param.name_hint for param in main.params] == ["a_b", "w"]
    assert main.params[0].struct_info.shape == (2, 3)
    assert main.ret_struct_info.dtype == "float32"
    assert main.attrs["num_input"] == 1
    assert main.attrs["params"][0].shape == (3,)
    module, params = relax.frontend.detach_params(module)
    assert len(params["main"]) == 1
    assert "params" not in module["main"].attrs
    assert module.lowered()["main"].params[0].type == TensorType("float32", (2, 3))


def test_a_sequence_is_a_tuple_of_tensors() -> None:
    graph = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x", "x"], ["s"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2,))],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    machine = relax.VirtualMachine(relax.build(relax.frontend.onnx.from_onnx(model), "llvm"), tvm.cpu())
    machine.set_input("main", np.array([1, 2], np.float32))
    machine.invoke_stateful("main")
    outputs = machine.get_outputs("main")
    assert isinstance(outputs, tuple)
    assert [each.numpy().tolist() for each in outputs] == [[1, 2], [1, 2]]


def test_operators_say_what_they_take() -> None:
    """`nn.op` renames arguments by the signatures."""
    made = {name: each for name, each in OPERATOR_CALLS.items() if each.make is not None and name != "null_value"}
    assert "memory.alloc_tensor" in made
    assert [name for name, each in made.items() if not each.__signature__.parameters] == []
