"""Names, element types and shapes of what goes into functions and comes out of them."""

from dataclasses import replace

import numpy as np
import pytest
import treadle
from onnx import TensorProto, helper
from treadle import Module, function, op, var
from treadle.compiler.ir.text import parse_module, print_module
from treadle.compiler.onnx.importer import from_onnx
from treadle.formats import sections
from treadle.formats.messages.errors import FormatError
from treadle.formats.ports import outputs_of
from treadle.formats.text.assembly import parse_assembly, print_assembly
from treadle.formats.types import FunctionType, TupleType


def model():
    """y = exp(x) and z = x + x, of which the model says the names."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", 2)) for name in ("x", "the values", "z")]
    nodes = [helper.make_node("Exp", ["x"], ["the values"]), helper.make_node("Add", ["x", "x"], ["z"])]
    return helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:]))


def test_ports_have_the_model_s_names_and_numpy_s_types():
    executable = treadle.compile(model())
    (x,) = executable.inputs()
    values, z = executable.outputs("main")
    assert (x.name, x.dtype, x.shape) == ("x", np.float32, ("n", 2))
    assert (values.name, values.shape, z.name) == ("the values", ("n", 2), "z")
    assert repr(values) == "<Port the values: float32[n, 2]>"


def test_results_of_a_graph_have_the_names_of_its_operators():
    x = var("x", (4,))
    executable = treadle.compile(Module(main=function([x], treadle.tuple_(op.exp(x), op.exp(x + 1), x))))
    assert [port.name for port in executable.outputs()] == ["exp", "exp_1", "x"]


def test_a_result_has_the_very_name_that_it_is_given_whatever_it_is():
    x, y, k = var("x", (2,)), var("y", (2,)), treadle.constant(1.0)
    named, shared = treadle.named, op.exp(x)
    (scores,) = treadle.for_loop(3, lambda i, scores: scores + 1, [x])
    results = {
        "scores": named("scores", scores),  # which is what the loop's variable is called
        "y": named("y", x),  # a parameter, under the name of another
        "k": named("k", k),
        "exp_1": named("exp_1", shared),
        "exp": named("exp", shared),  # one value by two names
        "x": named("x", op.exp(y)),
        "tanh": op.tanh(x),
    }
    executable = treadle.compile(function([x, y], tuple(results.values())), progress=False, embed_native=False)
    assert executable.outputs().names == tuple(results)
    assert executable.inputs().names == ("x", "y")
    alone = treadle.compile(function([x], named("scores", x)), progress=False, embed_native=False)
    assert alone.outputs().names == ("scores",)
    twice = function([x], (op.exp(x), named("exp", op.tanh(x)), named("exp", x)))
    assert treadle.compile(twice, embed_native=False).outputs().names == ("exp_2", "exp", "exp_1")


def test_a_name_changes_neither_a_value_nor_a_function():
    x = var("x", (2,))
    double = treadle.named("double", function([x], treadle.named("twice", x + x)))
    pair = treadle.named("pair", treadle.tuple_(treadle.named("a", x), 1.0))
    executable = treadle.compile(Module(main=function([x], (double(pair[0]), pair[1]))), progress=False)
    assert treadle.VirtualMachine(executable)["main"](np.float32([1, 2]))[0].numpy().tolist() == [2, 4]


def test_results_without_names_are_counted():
    x = var("x", (4,))
    program = treadle.compile(Module(main=function([x], op.exp(x)))).program
    (function_,) = program.functions
    assert [port.name for port in outputs_of(replace(function_, result_names=()))] == ["output"]
    pair = replace(
        function_, result_names=(), type=FunctionType(function_.type.params, TupleType((function_.type.result,) * 2))
    )
    assert [port.name for port in outputs_of(pair)] == ["output_0", "output_1"]


def test_names_of_results_are_in_the_file_and_in_both_texts():
    executable = treadle.compile(model())
    names = ("the values", "z")
    assert treadle.load(executable.as_bytes()).function("main").result_names == names
    assert parse_assembly(print_assembly(executable.program)).functions[0].result_names == names
    assert parse_module(print_module(from_onnx(model()))).functions["main"].result_names == names


@pytest.mark.parametrize("names", [("one",), ("z", "z"), ("", "z"), ("a", "b", "c")])
def test_names_that_do_not_fit_are_refused(names: tuple[str, ...]):
    program = treadle.compile(model()).program
    wrong = replace(program, functions=(replace(program.functions[0], result_names=names),))
    with pytest.raises(FormatError, match="results"):
        sections.encode(wrong)


def test_a_port_suggests_what_it_has() -> None:
    x = treadle.var("x", (2,))
    port = treadle.compile(treadle.function([x], x), progress=False).inputs()["x"]
    with pytest.raises(AttributeError, match="Port has no attribute 'shapes'; did you mean shape"):
        port.shapes  # noqa: B018
