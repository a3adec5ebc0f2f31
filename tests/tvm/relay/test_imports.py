"""Models that a frontend read, seen as Relay: bodies, visitors, text, and the same executable from all of them."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import treadle
import treadle.tvm as tvm
from onnx import TensorProto, helper, numpy_helper
from treadle.tools.dev import conformance
from treadle.tools.dev.zoo.catalogue import CATALOGUE
from treadle.tvm import relay
from treadle.tvm.relay.dataflow_pattern import is_constant, is_op, wildcard
from treadle.tvm.relay.expr_functor import ExprMutator, ExprVisitor


def value(name: str, shape: list, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list, inputs: list, outputs: list, **weights: np.ndarray) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


NODE = helper.make_node


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def network() -> onnx.ModelProto:
    """A convolution with a bias, and what follows one; some attributes are said though they are the default."""
    nodes = [
        NODE("Conv", ["x", "w", "b"], ["c"], name="first", pads=[1, 1, 1, 1], strides=[1, 1], kernel_shape=[3, 3]),
        NODE("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"]),
        NODE("Relu", ["n"], ["r"]),
        NODE("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        NODE("Conv", ["p", "w2"], ["d"], name='a name, with /* marks */ and "quotes"'),
        NODE("GlobalAveragePool", ["d"], ["g"]),
        NODE("Flatten", ["g"], ["y"]),
    ]
    weights = {"w": floats(4, 3, 3, 3), "b": floats(4), "v": np.ones(4, "float32"), "w2": floats(4, 4, 1, 1)}
    return model(nodes, [value("x", [1, 3, 8, 8])], [value("y", [1, 4])], **weights)


def shapes() -> onnx.ModelProto:
    """Sizes that have names, also in an expression, and parts."""
    nodes = [
        NODE("Reshape", ["x:0", "s"], ["f"]),
        NODE("Split", ["f", "halves"], ["a", "b"], axis=-1),
        NODE("Concat", ["b", "a"], ["t"], axis=-1),
        NODE("Slice", ["t", "one", "two", "zero"], ["p"]),
        NODE("Softmax", ["p"], ["y"]),
    ]
    weights = {name: np.array(each) for name, each in {"s": [-1, 4], "halves": [2, 2], "zero": [0]}.items()}
    weights |= {"one": np.array([1]), "two": np.array([2])}
    return model(nodes, [value("x:0", ["n", 2, 2])], [value("y", None)], **weights)


def branches() -> onnx.ModelProto:
    """Branches, of which one alone uses a value that is computed before them."""
    inner = [value("t", [2])]
    then = helper.make_graph([NODE("Add", ["before", "x"], ["t"])], "then", [], inner)
    other = helper.make_graph([NODE("Neg", ["x"], ["t"])], "other", [], inner)
    nodes = [NODE("Exp", ["x"], ["before"]), NODE("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    return model(nodes, [value("x", [2]), value("c", [], TensorProto.BOOL)], [value("y", [2])])


def loop() -> onnx.ModelProto:
    """A loop that carries one value, and gathers another."""
    body = helper.make_graph(
        [NODE("Add", ["a", "step"], ["b"]), NODE("Identity", ["go"], ["on"]), NODE("Mul", ["b", "step"], ["seen"])],
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("a", [2])],
        [value("on", [], TensorProto.BOOL), value("b", [2]), value("seen", [2])],
    )
    nodes = [NODE("Exp", ["x"], ["step"]), NODE("Loop", ["n", "", "x"], ["y", "all"], body=body)]
    inputs = [value("x", [2]), value("n", [], TensorProto.INT64)]
    return model(nodes, inputs, [value("y", [2]), value("all", None)])


def sequences() -> onnx.ModelProto:
    """A sequence: a data type, its functions, and matches."""
    nodes = [
        NODE("SequenceConstruct", ["x", "x"], ["s"]),
        NODE("SequenceAt", ["s", "i"], ["y"]),
    ]
    return model(nodes, [value("x", [2]), value("i", [], TensorProto.INT64)], [value("y", [2])])


def constants() -> onnx.ModelProto:
    """Numbers that are used twice, the greatest one, and others that TVM's files have no type for."""
    most = np.array(np.finfo("float32").max)
    nodes = [
        NODE("Mul", ["x", "most"], ["a"]),
        NODE("Min", ["a", "most"], ["b"]),
        NODE("Add", ["b", "half"], ["c"]),
        NODE("Cast", ["few"], ["wide"], to=TensorProto.FLOAT),
        NODE("Add", ["c", "wide"], ["y"]),
    ]
    made = model(nodes, [value("x", [2])], [value("y", [2])], most=most, half=np.array(0.5, "float32"))
    made.graph.initializer.append(helper.make_tensor("few", TensorProto.INT4, [2], [1, -8]))
    made.opset_import[0].version = 21
    return made


def recurrent() -> onnx.ModelProto:
    """An operator of three results, of which one is used, and that Relay lacks."""
    nodes = [NODE("LSTM", ["x", "w", "r"], ["", "y", ""], hidden_size=3), NODE("Gelu", ["y"], ["z"])]
    made = model(nodes, [value("x", [2, 1, 4])], [value("z", None)], w=floats(1, 12, 4), r=floats(1, 12, 3))
    made.opset_import[0].version = 20
    return made


MODELS = {each.__name__: each for each in (network, shapes, branches, loop, sequences, constants, recurrent)}


def executable(module: object) -> bytes:
    """The bytes of what is compiled, without native code."""
    made = module.lowered("main") if isinstance(module, relay.IRModule) else module
    return treadle.compile(made, embed_native=False, progress=False).as_bytes()


def check(source: object) -> relay.IRModule:
    """The import, which is equal to what is read from its text; that becomes the executable of the model."""
    expected = executable(source)
    module, _ = relay.frontend.from_onnx(source)
    read = relay.fromtext(module.astext())
    assert tvm.ir.structural_equal(module, read)
    assert tvm.ir.structural_hash(module) == tvm.ir.structural_hash(read)
    assert executable(read) == expected
    return module


@pytest.mark.parametrize("name", MODELS)
def test_text_of_an_import_gives_the_same_executable(name: str) -> None:
    check(MODELS[name]())


@pytest.mark.parametrize("name", MODELS)
def test_imports_of_a_model_are_equal_and_become_its_executable(name: str) -> None:
    source = MODELS[name]()
    module, again = (relay.frontend.from_onnx(source)[0] for _ in range(2))
    assert tvm.ir.structural_equal(module, again)
    assert executable(module) == executable(source)
    again["main"] = again["main"].with_attr("mine", 1)  # no longer what was read: its body is lowered
    assert executable(again) == executable(source)


@pytest.mark.thorough
def test_texts_of_the_suites_models_give_the_same_executables() -> None:
    """Every 18th of ONNX's own cases that can be imported."""
    checked = 0
    for case in list(conformance.cases().values())[::18]:
        try:
            relay.frontend.from_onnx(case.model)
        except treadle.TreadleError:
            continue
        check(case.model)
        checked += 1
    assert checked >= 100


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["resnet18", "mobilenet-v3-small", "minilm-symbolic", "gpt2-prefill", "swin"])
def test_texts_of_the_zoos_models_give_the_same_executables(name: str) -> None:
    check(CATALOGUE[name].build())


def test_a_body_is_of_relays_operators_with_types_and_names() -> None:
    module, _ = relay.frontend.from_onnx(network())
    main = module["main"]
    assert [param.name_hint for param in main.params] == ["x"]
    assert main.attrs["output_tensor_names"] == ["y"]
    assert str(main.body.checked_type) == "Tensor[(1, 4), float32]"
    assert str(main.checked_type) == "fn (Tensor[(1, 3, 8, 8), float32]) -> Tensor[(1, 4), float32]"
    assert relay.analysis.count_layers(module, ["nn.conv2d"]) == 2
    assert relay.analysis.list_op_freqs(module) == {
        "nn.conv2d": 2,
        "nn.bias_add": 1,
        "nn.batch_norm": 1,
        "nn.relu": 1,
        "nn.max_pool2d": 1,
        "mean": 1,
        "reshape": 1,
    }
    first = next(each for each in postorder(main) if isinstance(each, relay.Call))
    assert (first.attrs.padding, first.attrs.kernel_size, first.attrs.channels) == ((1, 1, 1, 1), (3, 3), 4)
    assert first.span.source_name.name == "first"


def postorder(expr: relay.Expr) -> list:
    found: list = []
    relay.analysis.post_order_visit(expr, found.append)
    return found


def test_patterns_and_visitors_see_an_import() -> None:
    module, _ = relay.frontend.from_onnx(network())
    pattern = is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), is_constant()), is_constant())
    assert sum(map(pattern.match, postorder(module["main"]))) == 1

    class Counts(ExprVisitor):
        calls = 0

        def visit_call(self, call: relay.Call) -> None:
            self.calls += 1
            self._children(call)

    counts = Counts()
    counts.visit(module["main"])
    assert counts.calls == 8


def test_an_import_that_a_pass_changed_is_compiled_as_changed() -> None:
    class Tanh(ExprMutator):
        def visit_call(self, call: relay.Call) -> relay.Expr:
            made = self._rebuilt(call)
            return relay.tanh(made.args[0]) if made.op.name == "nn.relu" else made

    source = network()
    module, _ = relay.frontend.from_onnx(source)
    module["main"] = Tanh().visit(module["main"])
    assert relay.analysis.list_op_freqs(module)["tanh"] == 1
    expected = network()
    (changed,) = (node for node in expected.graph.node if node.op_type == "Relu")
    changed.op_type = "Tanh"
    mine, theirs = (treadle.compile(each, embed_native=False) for each in (module.lowered("main"), expected))
    texts = [re.sub(' +from ".*"', "", each.as_text()) for each in (mine, theirs)]
    assert "tanh" in texts[0]
    assert texts[0] == texts[1]


def test_an_import_is_not_looked_into_where_it_is_built() -> None:
    module, params = relay.frontend.from_onnx(network(), freeze_params=False)
    main = module._functions["main"]
    bound = relay.build_module.bind_params_by_name(main, params)
    assert executable(relay.IRModule({"main": bound}))
    for function in (main, bound):
        assert "body" not in vars(function)
        assert function.body
        assert "body" in vars(function)


def test_a_text_of_treadles_has_a_body_with_what_it_imports() -> None:
    text = "import norm: fn(float32[n]) -> float32[]\n\nfunc @main(x: float32[n]) -> float32[n] {\n"
    module = relay.fromtext(text + "  a = import norm(x)\n  y = divide(x, a)\n  y\n}\n")
    assert executable(relay.fromtext(module.astext())) == executable(module)


def test_a_model_is_written_with_a_name_on_each_node(tmp_path: Path) -> None:
    relay.frontend.from_onnx(network(), export_node_renamed_model_path=str(tmp_path))
    (file,) = tmp_path.glob("tvm_exported_model_*.onnx")
    names = [node.name for node in onnx.load(file).graph.node]
    assert (names[0], names[2]) == ("first", "Relu_0")


def test_a_loop_is_a_function_that_calls_itself_and_is_a_loop_again() -> None:
    module, _ = relay.frontend.from_onnx(loop())
    text = module.astext(show_meta_data=False)
    assert "let %while_loop = fn (" in text
    assert " loop (" in str(relay.fromtext(module.astext()).lowered("main"))


def test_a_loop_whose_condition_shares_what_a_round_computes_stays_a_function() -> None:
    i = relay.var("i", shape=(), dtype="int32")
    more = i + relay.const(1)
    name = relay.Var("f")
    body = relay.If(more < relay.const(9), name(more), relay.Tuple([i]))
    expr = relay.Let(name, relay.Function([i], body), name(relay.const(0)))
    assert " loop (" not in str(relay.IRModule.from_expr(expr).lowered("main"))
