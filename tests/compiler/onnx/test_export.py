"""`treadle.to_onnx`: programs as ONNX files. What is written is imported again, and means the same, bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import treadle
from treadle import (
    Module,
    constant,
    data_type,
    for_loop,
    function,
    global_function,
    if_,
    match_,
    op,
    tuple_,
    var,
    while_loop,
)
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.onnx.export import module as export
from treadle.compiler.onnx.export.table import REFUSED, WRITERS
from treadle.compiler.onnx.importer import from_onnx
from treadle.compiler.operators import TABLE
from treadle.errors import CompileError, UnsupportedOperatorError
from treadle.tools.dev import conformance
from treadle.tools.dev.zoo.catalogue import CATALOGUE, inputs

rng = np.random.default_rng(0)


def parts(result):
    """The tensors of a result, one after the other."""
    if isinstance(result, (tuple, list)):
        return [each for part in result for each in parts(part)]
    return [result]


def agree(module, model, *arguments, **close):
    """Compares the module's results with those of the model that was written."""
    expected = parts(evaluate(module, "main", *arguments))
    found = parts(evaluate(from_onnx(model), "main", *arguments))
    for a, b in zip(expected, found, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if close:
            np.testing.assert_allclose(a, b, **close)
        elif a.dtype.kind == "O":
            assert a.tolist() == b.tolist()
        else:
            assert np.array_equal(a, b, equal_nan=a.dtype.kind in "fV")


def written(main, *arguments, opset=None, **close):
    """The model of a function, which is compared with it."""
    module = infer_types(Module(main=main))
    model = treadle.to_onnx(module, opset=opset)
    agree(module, model, *arguments, **close)
    return model


def types_of(model):
    return [node.op_type for node in model.graph.node]


def floats(*shape):
    return rng.standard_normal(shape, np.float32)


def test_each_operator_of_models_has_a_form_or_a_reason():
    own = {name for name, entry in TABLE.items() if ".targets." not in entry.infer.__module__}
    assert own == WRITERS.keys() | REFUSED.keys()


x, y = var("x", ("n", 4)), var("y", ("n", 4))
i8 = var("i", ("n", 4), "int8")
images = var("images", (2, 8, 6, 6))

CASES = {
    "expm1": (lambda: op.expm1(x), {"rtol": 1e-6}),
    "log1p": (lambda: op.log1p(op.abs(x)), {"rtol": 1e-6}),
    "trunc": (lambda: op.trunc(x), {}),
    "isfinite": (lambda: op.isfinite(x / (y - y)), {}),
    "remainder": (lambda: op.remainder(x, y), {}),
    "floor_divide": (lambda: op.floor_divide(x, y), {}),
    "fmod": (lambda: op.fmod(x, y), {}),
    "silu": (lambda: op.silu(x), {"rtol": 1e-6}),
    "rsqrt": (lambda: op.rsqrt(op.abs(x)), {"rtol": 1e-6}),
    "clip": (lambda: op.clip(x, min=-0.5), {}),
    "not_equal": (lambda: op.not_equal(x, y), {}),
    "stack": (lambda: op.stack(x, y, axis=1), {}),
    "put_slice": (lambda: op.put_slice(x, op.exp(x[:, :2]), start=1, axis=1), {}),
    "top_k": (lambda: tuple_(*(op.top_k(x, k=2)[i] for i in range(2))), {}),
    "tile": (lambda: op.tile(x, repetitions=(2, 3)), {}),
    "attention": (lambda: op.attention(x[None], y[None], x[None], scale=0.5), {"rtol": 1e-5, "atol": 1e-6}),
    "heads": (
        lambda: op.attention(op.stack(x, y, x, y)[None], op.stack(x, y)[None], op.stack(y, x)[None], repeat=2),
        {"rtol": 1e-5, "atol": 1e-6},
    ),
    "rotary": (lambda: op.rotary(x, y, op.sin(x)), {"rtol": 1e-5, "atol": 1e-6}),
    "layer_normalization": (lambda: op.layer_normalization(x), {}),
    "arange": (lambda: op.arange(stop=x.shape[0], dtype="float32"), {}),
    "nonzero": (lambda: op.nonzero(op.greater(x, y)), {}),
    "any": (lambda: op.any(op.greater(x, y), axes=(1,)), {}),
    "cumulative_sum": (lambda: op.cumulative_sum(x, axis=1, exclusive=True), {}),
}

OF_IMAGES = {
    "conv_transpose": lambda: op.conv_transpose(
        images, constant(floats(8, 2, 3, 3)), strides=(2, 2), pads=(1, 1, 1, 1)
    ),
    "max_pool": lambda: op.max_pool(images, kernel=(3, 2), strides=(2, 2), ceil_mode=True),
    "average_pool": lambda: op.average_pool(images, kernel=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True),
    "resize": lambda: op.resize(images, axis=2, size=9, mode="linear", coordinates="align_corners"),
    "group_normalization": lambda: op.group_normalization(images, *map(constant, floats(2, 8)), groups=2),
    "blocks": lambda: op.depth_to_space(images, blocks=(2, 2)),
    "rows": lambda: op.depth_to_space(images, blocks=(2, 1)),
}


@pytest.mark.parametrize("name", OF_IMAGES)
def test_operators_on_images(name):
    written(function([images], OF_IMAGES[name]()), floats(2, 8, 6, 6))


@pytest.mark.parametrize("name", CASES)
def test_operators_that_onnx_writes_otherwise(name):
    expression, close = CASES[name]
    written(function([x, y], expression()), floats(3, 4), floats(3, 4), **close)


def test_shifts_of_signed_integers():
    for operator in (op.shift_left, op.shift_right):
        values = rng.integers(-128, 127, (3, 4), np.int8)
        written(function([i8], operator(i8, constant(np.int8(3)))), values)


def test_scales_of_blocks_are_written_as_arithmetic():
    scale, zero = constant(np.float32([[0.1, 0.2, 0.3, 0.4]])), constant(np.zeros(1, np.int8))
    model = written(function([x], op.quantize(x, scale, zero)), floats(3, 4))
    assert types_of(model) == ["QuantizeLinear"]
    scale = op.abs(y) + 0.1
    model = written(function([x, y], op.quantize(x, scale, zero)), floats(3, 4), floats(3, 4))
    assert "QuantizeLinear" not in types_of(model)


# ---- names, sizes, versions ----


def test_names_of_parameters_results_and_sizes_stay():
    model = treadle.to_onnx(function([x, y], tuple_(treadle.named("sum", x + y), treadle.named("first", x))))
    assert [info.name for info in model.graph.input] == ["x", "y"]
    assert [info.name for info in model.graph.output] == ["sum", "first"]
    assert [dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim] == ["n", ""]
    assert model.producer_name == "treadle"


def test_weights_keep_their_names():
    weight = onnx.numpy_helper.from_array(floats(4, 3), "layer.weight")
    x, y = (onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", ("n", 4)), ("y", ("n", 3))))
    node = onnx.helper.make_node("MatMul", ["x", "layer.weight"], ["y"], "product")
    graph = onnx.helper.make_graph([node], "g", [x], [y], [weight])
    model = treadle.to_onnx(onnx.helper.make_model(graph))
    assert [tensor.name for tensor in model.graph.initializer] == ["layer.weight"]
    assert [node.name for node in model.graph.node] == ["product"]


def test_sizes_are_computed_of_shapes():
    n, m = var("a", ("n", "m")), var("b", ("n * 2",))
    flat = op.reshape(n, shape=(n.shape[0] * n.shape[1],))
    last = op.slice(flat, starts=(n.shape[0] // 2,), ends=(n.shape[0] * n.shape[1] - 1,))
    for rows, columns in ((3, 4), (1, 2), (2, 0)):
        written(
            function([n, m], tuple_(last, op.slice(m, starts=(n.shape[0],), ends=(n.shape[0] * 2,)))),
            floats(rows, columns),
            floats(rows * 2),
        )


def test_a_version_is_kept_or_what_it_lacks_is_named():
    main = function([x], op.sum(x, axes=(1,)))
    for opset in (11, 13, 18):
        assert written(main, floats(3, 4), opset=opset).opset_import[0].version == opset
    assert treadle.to_onnx(main).opset_import[0].version == 21
    images = var("encoded", ("n",), "uint8")
    decoded = function([images], op.decode_image(images))
    with pytest.raises(UnsupportedOperatorError, match=r"ImageDecoder from opset 20 on: to_onnx\(…, opset=20\)"):
        treadle.to_onnx(decoded, opset=18)
    with pytest.raises(CompileError, match="opset=7: expected a version of ONNX's operators from 11 to"):
        treadle.to_onnx(main, opset=7)


# ---- control flow, functions ----


def test_conditions_and_loops():
    total = op.sum(x)
    chosen = if_(op.greater(total, 0.0), tuple_(x, x * 2), tuple_(x + 1, x))
    looped = while_loop(lambda i, s: op.less(i, 5), lambda i, s: (i + 1, s * 2 + 1), (constant(0), total))
    grown = for_loop(3, lambda i, s: (s + op.cast(i, dtype="float32"),), [total])
    main = function([x], tuple_(chosen[0], chosen[1], looped[1], grown[0]))
    model = written(main, floats(3, 4))
    assert {"If", "Loop"} <= set(types_of(model))
    written(main, -np.abs(floats(2, 4)))


def test_functions_and_closures_are_written_where_they_are_called():
    scale = function([y], y * x)
    twice = function([y], scale(scale(y)))
    written(function([x], twice(x)), floats(3, 4))


def test_what_a_program_says_of_data_types_is_followed():
    pair = data_type("Pair = One(float32[?, 4]) | Two(float32[?, 4], float32[?, 4])")
    value = pair.Two(x, y)
    written(
        function([x, y], match_(value, {pair.One: lambda a: a, pair.Two: lambda a, b: a - b})),
        floats(3, 4),
        floats(3, 4),
    )


def test_sequences_are_lists_of_the_file():
    """Of a length that is known only at run time: a run asks, where the program matches one."""
    nodes = [
        onnx.helper.make_node("SequenceInsert", ["s", "x"], ["longer"]),
        onnx.helper.make_node("ConcatFromSequence", ["longer"], ["y"], axis=0),
        onnx.helper.make_node("SequenceLength", ["longer"], ["count"]),
    ]
    tensor = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", ("n",)), ("y", (None,)))]
    sequence = onnx.helper.make_tensor_sequence_value_info("s", 1, (None,))
    count = onnx.helper.make_tensor_value_info("count", 7, ())
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [sequence, tensor[0]], [tensor[1], count]))
    again = treadle.to_onnx(model)
    assert again.graph.input[0].type.HasField("sequence_type")
    for each in (model, again):
        machine = treadle.VirtualMachine(treadle.compile(each, embed_native=False, progress=False), kernels="cached")
        joined, length = machine["main"]([np.float32([1, 2]), np.float32([3])], np.float32([4]))
        assert (np.asarray(joined).tolist(), int(length)) == ([1, 2, 3, 4], 3)


def test_a_version_is_raised_by_types_and_attributes():
    """ONNX adds 8-bit integers from opset 14 on, and has dilations of averages from 19 on."""
    with pytest.raises(UnsupportedOperatorError, match=r"Add of tensor\(int8\), tensor\(int8\).* from opset 14 on"):
        treadle.to_onnx(function([i8], i8 + i8), opset=13)
    dilated = op.average_pool(images, kernel=(2, 2), dilations=(2, 2))
    with pytest.raises(UnsupportedOperatorError, match=r"AveragePool of .* from opset 19 on"):
        treadle.to_onnx(function([images], dilated), opset=18)


def test_refusals_name_all_operators_and_nodes_and_what_to_do():
    s = var("s", (4, 4))
    main = function([s], op.solve(s, s) + op.solve(s, op.exp(s)))
    with pytest.raises(
        UnsupportedOperatorError, match=r"2 nodes have no form in ONNX:\n  solve \(.*\): ONNX has no linear systems"
    ):
        treadle.to_onnx(main)
    down = global_function("down")
    n = var("k", (), "int64")
    body = if_(op.greater(n, 0), down(n - 1), n)
    recursive = Module(main=function([n], down(n)), down=function([n], body, treadle.TensorType("int64")))
    with pytest.raises(UnsupportedOperatorError, match=r"down calls itself: ONNX has loops \(treadle.while_loop\)"):
        treadle.to_onnx(recursive)
    with pytest.raises(CompileError, match="an executable holds kernels of a CPU; give the function"):
        treadle.to_onnx(treadle.compile(function([s], s + 1), embed_native=False))


# ---- files ----


def test_constants_of_large_models_lie_beside_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "EXTERNAL_BYTES", 1000)
    main = function([x], op.matmul(x, constant(floats(4, 300))))
    path = tmp_path / "model.onnx"
    for _ in range(2):
        treadle.to_onnx(main, path)
    assert (tmp_path / "model.onnx.data").stat().st_size == 4 * 4 * 300
    array = floats(3, 4)
    module = infer_types(Module(main=main))
    assert np.array_equal(evaluate(from_onnx(path), "main", array), evaluate(module, "main", array))


# ---- models ----


DRAWS = ("bernoulli", "random", "dropout")  # other numbers each time
# of which ONNX has parts that several nodes compute; the sums of linear attention cancel
SEVERAL = {**dict.fromkeys(("layer_normalization", "swish", "swiglu"), 0.0), "linear_attention": 1e-6}


def on_machine(program, arguments):
    """A program that takes or gives values that are not tensors."""
    machine = treadle.VirtualMachine(treadle.compile(program, embed_native=False, progress=False), kernels="cached")
    return [None if each is None else np.asarray(each) for each in parts(machine["main"](*arguments))]


@pytest.mark.thorough
def test_all_models_of_onnx_are_imported_again_bit_for_bit():
    refused = []
    for name, case in conformance.cases().items():
        module = from_onnx(case.model)
        try:
            model = treadle.to_onnx(module)
        except UnsupportedOperatorError as error:
            refused.append((name, error.message))
            continue
        for arguments, _ in [] if any(word in name for word in DRAWS) else case.sets():
            if module.data_types:
                found, again = (on_machine(each, arguments) for each in (module, model))
                assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True)), name
            else:
                close = [{"rtol": 1e-6, "atol": atol} for word, atol in SEVERAL.items() if word in name]
                agree(module, model, *arguments, **(close[0] if close else {}))
    assert len(refused) < 20, refused


@pytest.mark.parametrize("name", ["mlp", pytest.param("minilm-symbolic", marks=pytest.mark.thorough), "lstm"])
def test_networks_have_the_same_results_in_onnxruntime(name):
    runtime = pytest.importorskip("onnxruntime")
    model = CATALOGUE[name].build()
    again = treadle.to_onnx(from_onnx(model))
    arguments = inputs(CATALOGUE[name], model)
    found = [runtime.InferenceSession(each.SerializeToString()).run(None, arguments) for each in (model, again)]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
