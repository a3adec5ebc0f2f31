"""Results, shapes and element types that are asked for in place of an ONNX model's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper, parser
from treadle.formats.messages.errors import CompileError, InferenceError, ModelError
from treadle.tools.cli import main

TEXT = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
agraph (float[1, 3] x, float[1, 3] z, bool c) => (float[1, 3] y, float[1, 3] w)
{
    a = Relu (x)
    b = Neg (a)
    y = If (c) <then_branch = g () => (float[1, 3] t) { t = Identity (b) },
                else_branch = h () => (float[1, 3] e) { e = Identity (a) }>
    w = own.Strange (z)
}"""
X = np.array([[-1, 2, 3]], np.float32)


def compiled(**options: Any) -> Any:
    executable = treadle.compile(parser.parse_model(TEXT).SerializeToString(), embed_native=False, **options)
    return treadle.VirtualMachine(executable, kernels="cached"), executable


def test_a_value_inside_is_a_result_and_what_is_not_needed_is_left_out() -> None:
    machine, executable = compiled(outputs=["b", "a"])
    assert [port.name for port in executable.outputs("main")] == ["b", "a"]
    assert executable.get_function_params("main") == ["x"]
    b, a = machine["main"](X)
    assert np.array_equal(a.numpy(), np.maximum(X, 0))
    assert np.array_equal(b.numpy(), -np.maximum(X, 0))


def test_what_branches_take_is_needed() -> None:
    machine, executable = compiled(outputs=["y"])
    assert executable.get_function_params("main") == ["x", "c"]
    assert np.array_equal(machine["main"](X, np.array(False)).numpy(), np.maximum(X, 0))


def test_an_input_is_of_another_type_and_shape() -> None:
    _, executable = compiled(outputs=["b"], dtypes={"x": "float16"}, shapes={"x": ("n", "m")})
    assert str(executable.inputs("main")[0].type) == "float16[n, m]"
    assert str(executable.outputs("main")[0].type) == "float16[n, m]"


def test_an_input_can_be_a_result() -> None:
    machine, _ = compiled(outputs=["x"])
    assert np.array_equal(machine["main"](X).numpy(), X)


def test_the_users_own_model_stays_as_it_is() -> None:
    model = parser.parse_model(TEXT)
    before = model.SerializeToString()
    treadle.compile(model, outputs=["b"], dtypes={"x": np.float64}, embed_native=False)
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"outputs": ["bb"]}, ModelError, "no value 'bb' to be an output; its outputs are"),
        ({"outputs": "b"}, CompileError, "outputs='b': expected a list of names"),
        ({"outputs": []}, CompileError, r"outputs=\[\]: expected a list"),
        ({"outputs": [3]}, CompileError, "expected a list of names"),
        ({"dtypes": {"v": "float16"}}, ModelError, r"dtypes are given for \['v'\]"),
        ({"dtypes": {"x": "nonsense"}}, CompileError, r"dtypes\['x'\]: no tensor element type 'nonsense'"),
        ({"dtypes": "float16"}, CompileError, "dtypes='float16': expected element types by the names"),
    ],
)
def test_what_cannot_be_asked_for(options: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        compiled(**options)


def test_a_module_has_its_own() -> None:
    x = treadle.var("x", (2,))
    for option in ({"dtypes": {"x": "float16"}}, {"outputs": ["y"]}):
        with pytest.raises(CompileError, match="these are for ONNX models"):
            treadle.compile(treadle.function([x], x + 1), **option)


def test_the_command_line_takes_them_too(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(TEXT).SerializeToString())
    made = ["compile", f"{tmp_path}/m.onnx", "-o", f"{tmp_path}/m.trdl", "--no-kernels"]
    assert main([*made, "--outputs", "a,b", "--dtype", "x=float64", "--shape", "x=n,2"]) == 0
    assert main(["info", f"{tmp_path}/m.trdl"]) == 0
    assert "float64[n, 2]" in capsys.readouterr().out
    assert main([*made, "--dtype", "x"]) == 2


def test_a_size_that_stands_on_two_axes_is_one_size_whatever_its_name_is() -> None:
    for text in ("2*k", "batch size"):
        model = parser.parse_model(TEXT)
        for info in model.graph.input[:2]:
            info.type.tensor_type.shape.dim[0].dim_param = text
        executable = treadle.compile(model.SerializeToString(), embed_native=False, outputs=["b"])
        assert executable.inputs("main")[0].type.rank == 2
    square = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, m] x) => (float[n, m] y) { y = Relu (x) }"""
    model = parser.parse_model(square).SerializeToString()
    executable = treadle.compile(model, embed_native=False, shapes={"x": ("2*k", "k*2")})
    rows, columns = executable.inputs("main")[0].type.shape
    assert rows == columns
    with pytest.raises(treadle.errors.ShapeError):
        treadle.VirtualMachine(executable, kernels="cached")["main"](np.zeros((2, 4), np.float32))


def test_onnx_codes_are_element_types_too() -> None:
    _, executable = compiled(outputs=["b"], dtypes={"x": TensorProto.FLOAT16})
    assert str(executable.inputs("main")[0].type) == "float16[1, 3]"


def test_what_the_model_holds_is_a_result_too() -> None:
    model = parser.parse_model(TEXT)
    model.graph.initializer.append(numpy_helper.from_array(X, "held"))
    executable = treadle.compile(model.SerializeToString(), embed_native=False, outputs=["held"])
    assert np.array_equal(treadle.VirtualMachine(executable, kernels="cached")["main"]().numpy(), X)


def test_messages_say_what_to_write_instead() -> None:
    model = parser.parse_model(TEXT)
    model.graph.node[0].name = "rectifier"
    with pytest.raises(ModelError, match=r"'rectifier' is a node, whose values are \['a'\]"):
        treadle.compile(model.SerializeToString(), outputs=["rectifier"])
    with pytest.raises(ModelError, match=r"got a str; as a tuple: \('n', 3\)"):
        compiled(outputs=["b"], shapes={"x": "n, 3"})
    model.graph.node.append(helper.make_node("Add", ["x", "held"], ["s"]))
    model.graph.initializer.append(numpy_helper.from_array(X, "held"))
    with pytest.raises(InferenceError, match="dtypes are those of inputs alone"):
        treadle.compile(model.SerializeToString(), outputs=["s"], dtypes={"x": "float16"})
