"""Weights of a few bits: onnxruntime's MatMulNBits and ONNX's own types of 4 and 2 bits, against onnxruntime and floats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from treadle.formats.messages.errors import ModelError, UnsupportedOperatorError

from ...conformance.backend import run

Constants = dict[str, Any]  # by name: arrays, or tensors of ONNX's narrow types
CONSTANTS = ("b", "scales", "zero_points", "g_idx", "bias")


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def product_model(
    depth: int,
    columns: int,
    block: int,
    constants: Constants,
    rows: Any = "n",
    bits: int = 4,
    element: int = TensorProto.FLOAT,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one MatMulNBits node, by its constants' names."""
    names = [name if name in constants else "" for name in CONSTANTS]
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block} | attributes
    node = helper.make_node("MatMulNBits", ["a", *names], ["y"], "projection", domain="com.microsoft", **attributes)
    return model_of(
        [node],
        [helper.make_tensor_value_info("a", element, [*np.atleast_1d(rows).tolist(), depth])],
        [helper.make_tensor_value_info("y", element, None)],
        constants,
    )


def model_of(nodes: list, inputs: list, outputs: list, constants: Constants) -> onnx.ModelProto:
    tensors = [
        array if isinstance(array, TensorProto) else numpy_helper.from_array(array, name)
        for name, array in constants.items()
    ]
    graph = helper.make_graph(nodes, "few_bits", inputs, outputs, tensors)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def weights(
    depth: int, columns: int, block: int, bits: int = 4, zeros: str = "", bias: bool = False, seed: int = 0
) -> Constants:
    """Constants of a MatMulNBits node."""
    source, blocks = random(seed), -(-depth // block)
    constants = {
        "b": source.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "scales": (source.random(columns * blocks) * 0.1 - 0.02).astype(np.float32),
    }
    if zeros == "packed":
        constants["zero_points"] = source.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8)
    if zeros == "float":
        constants["zero_points"] = (source.random(columns * blocks) * 15).astype(np.float32)
    if bias:
        constants["bias"] = source.standard_normal(columns).astype(np.float32)
    return constants


def dequantized(constants: Constants, depth: int, columns: int, block: int, bits: int = 4) -> tuple[np.ndarray, Any]:
    """What the constants stand for: a matrix [depth, columns] of float64, and the bias."""
    each, blocks = 8 // bits, -(-depth // block)

    def unpacked(rows: Any) -> np.ndarray:
        parts = [rows >> bits * place & (1 << bits) - 1 for place in range(each)]
        return np.stack(parts, -1).reshape(*rows.shape[:-1], -1)

    points = constants.get("zero_points", np.float64(1 << bits - 1))
    if points.dtype == np.uint8:
        points = unpacked(points.reshape(columns, -1))[:, :blocks].astype(np.float64)
    numbers = unpacked(constants["b"]).astype(np.float64)
    points = np.broadcast_to(points.reshape(-1, blocks) if points.ndim else points, (columns, blocks))
    whole = (numbers - points[..., None]) * constants["scales"].reshape(columns, blocks, 1).astype(np.float64)
    return whole.reshape(columns, -1)[:, :depth].T, constants.get("bias", 0)


def compiled(model: onnx.ModelProto) -> Callable[..., Any]:
    return treadle.VirtualMachine(treadle.compile(model, progress=False))["main"]


def by_onnxruntime(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()  # optimised, it would round the activations of dequantised products
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def assert_near(got: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-6) -> None:
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max(initial=0) <= tolerance * max(1e-30, np.abs(wanted).max(initial=0))


SHAPES = [
    (64, 32, 32, {}),
    (70, 33, 16, {"zeros": "packed"}),  # an odd number of zero points in a row, a last block that is not whole
    (96, 40, 32, {"zeros": "packed", "bias": True}),
    (260, 20, 128, {"zeros": "packed"}),
    (33, 5, 32, {}),
    (16, 17, 64, {"bias": True}),
    (128, 48, 32, {"zeros": "float"}),
    (520, 72, 256, {"zeros": "packed"}),
    (100, 20, 32, {"bits": 8, "zeros": "packed"}),
    (64, 20, 16, {"bits": 8, "bias": True}),
    (100, 20, 32, {"bits": 2, "zeros": "packed"}),
]


@pytest.mark.parametrize(("depth", "columns", "block", "options"), SHAPES, ids=str)
def test_products_with_weights_of_few_bits(depth: int, columns: int, block: int, options: dict) -> None:
    bits = options.get("bits", 4)
    constants = weights(depth, columns, block, **options)
    matrix, bias = dequantized(constants, depth, columns, block, bits)
    model = product_model(depth, columns, block, constants, bits=bits)
    call = compiled(model)
    for rows in (1, 2, 5, 19, 40):
        a = random(rows).standard_normal((rows, depth), np.float32)
        got = call(a).numpy()
        assert_near(got, a.astype(np.float64) @ matrix + bias)
        assert_near(got, by_onnxruntime(model, a=a), 1e-5)


def test_rows_are_rounded_to_int8_where_the_model_or_the_precision_allows_it() -> None:
    """As onnxruntime does with accuracy_level 4: each block of a row by itself."""
    constants, a = weights(128, 40, 32), random().standard_normal((19, 128), np.float32)
    model = product_model(128, 40, 32, constants, accuracy_level=4)
    rounded, exact = compiled(model)(a).numpy(), by_onnxruntime(product_model(128, 40, 32, constants), a=a)
    assert_near(rounded, by_onnxruntime(model, a=a), 1e-5)
    assert 1e-3 < np.abs(rounded - exact).max() / np.abs(exact).max() < 2e-2
    plain = product_model(128, 40, 32, constants)
    asked = treadle.compile(plain, precision={"projection": "int8"}, progress=False)
    np.testing.assert_array_equal(treadle.VirtualMachine(asked)["main"](a).numpy(), rounded)


@pytest.mark.parametrize("rows", [(1,), (4,), (2, 3), (1, 9)])
def test_known_numbers_of_rows(rows: Any) -> None:
    constants = weights(200, 50, 32, zeros="packed", bias=True)
    matrix, bias = dequantized(constants, 200, 50, 32)
    a = random().standard_normal((*rows, 200), np.float32)
    got = compiled(product_model(200, 50, 32, constants, rows=rows))(a).numpy()
    assert_near(got, a.astype(np.float64) @ matrix + bias)


def test_activations_and_scales_of_float16() -> None:
    constants = weights(96, 40, 32, zeros="packed")
    constants["scales"] = constants["scales"].astype(np.float16)
    matrix, _ = dequantized(constants, 96, 40, 32)
    model = product_model(96, 40, 32, constants, element=TensorProto.FLOAT16)
    a = random().standard_normal((3, 96)).astype(np.float16)
    got = compiled(model)(a).numpy()
    assert got.dtype == np.float16
    assert_near(got.astype(np.float64), a.astype(np.float64) @ matrix, 1e-3)


def test_an_order_of_blocks_that_says_nothing() -> None:
    constants = weights(64, 20, 16) | {"g_idx": (np.arange(64) // 16).astype(np.int32)}
    a = random().standard_normal((2, 64), np.float32)
    got = compiled(product_model(64, 20, 16, constants))(a).numpy()
    assert_near(got, a @ dequantized(constants, 64, 20, 16)[0])


def changed(**others: Any) -> Constants:
    return weights(64, 32, 32, zeros="packed") | others


WRONG = [
    (changed(), {"bits": 3}, UnsupportedOperatorError, "weights of 3 bits"),
    (changed(), {"K": 32}, ModelError, r"K = 32 elements, got tensor\(float32, \[n, 64\]\)|K = 32 elements"),
    (changed(), {"block_size": 0}, ModelError, "block_size"),
    (changed(), {"block_size": 16}, ModelError, "scales must have 32x4 floats"),
    (changed(b=np.zeros((32, 2, 15), np.uint8)), {}, ModelError, "b must have 32x2x16 elements"),
    (changed(scales=np.zeros(63, np.float32)), {}, ModelError, "scales must have 32x2 floats"),
    (changed(scales=np.zeros(64, np.int32)), {}, ModelError, "scales must have 32x2 floats"),
    (changed(zero_points=np.zeros(31, np.uint8)), {}, ModelError, "zero_points must have 32x1 elements"),
    (changed(g_idx=np.zeros(64, np.int32)), {}, UnsupportedOperatorError, "g_idx"),
]


@pytest.mark.parametrize(("constants", "attributes", "error", "text"), WRONG, ids=lambda value: str(value)[:20])
def test_what_does_not_fit_is_named(constants: Constants, attributes: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as found:
        treadle.compile(product_model(64, 32, 32, constants, **attributes), progress=False)
    assert "projection" in str(found.value)


def test_weights_stay_as_small_as_they_are() -> None:
    constants = weights(512, 256, 32, zeros="packed")
    executable = treadle.compile(product_model(512, 256, 32, constants), progress=False)
    assert constants_of(executable) == {("uint32", (16, 64, 16)), ("float32", (16, 16, 16)), ("uint8", (16, 16, 16))}


def constants_of(executable: treadle.Executable) -> Any:
    return {(constant.dtype.name, constant.shape) for constant in executable.constants}


@pytest.mark.parametrize("axis", [0, 1])
def test_so_do_those_of_8_bits_that_meet_floats(axis: int) -> None:
    """A matrix [160, 48] with a scale for each column, or, turned, for each row."""
    numbers = random().integers(-128, 128, (160, 48)).astype(np.int8)
    scales = (random(1).random(48) * 0.01 + 0.001).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1 - axis),
        helper.make_node("Gemm", ["x", "w"], ["y"], transB=axis),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 160])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    constants = {"q": numbers.T.copy() if axis else numbers, "s": scales}
    executable = treadle.compile(model_of(nodes, inputs, outputs, constants), progress=False)
    assert constants_of(executable) == {("uint32", (3, 40, 16)), ("float32", (3, 2, 16))}
    x = random(2).standard_normal((5, 160), np.float32)
    wanted = x.astype(np.float64) @ (numbers * scales.astype(np.float64))
    assert_near(treadle.VirtualMachine(executable)["main"](x).numpy(), wanted)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("form", ["QOperator", "QDQ"])
def test_models_that_onnxruntime_has_quantised(form: str, symmetric: bool) -> None:
    from onnxruntime.quantization import matmul_nbits_quantizer as quantization

    source = random()
    constants = {"w": source.standard_normal((192, 80), np.float32), "v": source.standard_normal((80, 24), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("MatMul", ["t", "v"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 192])]
    model = model_of(nodes, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    formats = onnxruntime.quantization.QuantFormat
    quantizer = quantization.MatMulNBitsQuantizer(
        model, block_size=32, is_symmetric=symmetric, quant_format=formats[form]
    )
    quantizer.process()
    quantised = quantizer.model.model
    assert any(
        node.op_type == ("MatMulNBits" if form == "QOperator" else "DequantizeLinear") for node in quantised.graph.node
    )
    call = compiled(quantised)
    for rows in (1, 7):
        x = source.standard_normal((rows, 192), np.float32)
        assert_near(call(x).numpy(), by_onnxruntime(quantised, x=x), 1e-5)


# ---- ONNX's own types ----


def narrow(name: str, array: np.ndarray, kind: int) -> TensorProto:
    return helper.make_tensor(name, kind, array.shape, array.reshape(-1).tolist())


def four_bits(kind: int, *shape: int, seed: int = 0) -> np.ndarray:
    least = 0 if kind == TensorProto.UINT4 else -8
    return random(seed).integers(least, least + 16, shape)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("block", [0, 32])
def test_dequantised_weights_of_products(kind: int, axis: int, block: int) -> None:
    """A matrix [160, 48], whose scales belong to rows or columns, or to blocks of them."""
    numbers = four_bits(kind, 160, 48) if axis == 0 else four_bits(kind, 48, 160)
    count = 160 // block if block else 48
    shape = (count, 48) if axis == 0 else (48, count)
    shape = shape if block else (48,)
    scales = (random(1).random(shape) * 0.1 + 0.01).astype(np.float32)
    zeros = four_bits(kind, *shape, seed=2)
    constants = {"q": narrow("q", numbers, kind), "s": scales, "z": narrow("z", zeros, kind)}
    attributes = {"axis": axis, "block_size": block} if block else {"axis": 1 - axis}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], **attributes),
        helper.make_node("Gemm", ["x", "w"], ["y"], transB=axis),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 160])]
    model = model_of(nodes, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    if block:
        scale, zero = np.repeat(scales, block, axis), np.repeat(zeros, block, axis)
    else:
        scale, zero = (np.expand_dims(array, axis) for array in (scales, zeros))
    matrix = (numbers - zero) * scale.astype(np.float64)
    matrix = matrix.T if axis else matrix
    call = compiled(model)
    for rows in (1, 3, 20):
        x = random(rows).standard_normal((rows, 160), np.float32)
        assert_near(call(x).numpy(), x.astype(np.float64) @ matrix)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8])
def test_rows_of_dequantised_tables(kind: int) -> None:
    numbers = random().integers(-128, 128, (50, 64)) if kind == TensorProto.INT8 else four_bits(kind, 50, 64)
    scales, zeros = random(1).random((50, 2)).astype(np.float32), four_bits(kind, 50, 2, seed=2)
    constants = {"q": narrow("q", numbers, kind), "s": scales, "z": narrow("z", zeros, kind)}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1, block_size=32),
        helper.make_node("Gather", ["w", "i"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, ["n", 2])]
    model = model_of(nodes, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    places = np.int64([[3, 49], [-1, 0]])
    wanted = ((numbers - np.repeat(zeros, 32, 1)) * np.repeat(scales, 32, 1)).astype(np.float32)[places]
    executable = treadle.compile(model, progress=False)
    assert max(constant.nbytes for constant in executable.constants) <= numbers.size * (
        1 if kind == TensorProto.INT8 else 0.5
    )
    np.testing.assert_array_equal(treadle.VirtualMachine(executable)["main"](places).numpy(), wanted)


@pytest.mark.parametrize("form", ["bytes of two", "bytes of two with zeros", "bytes", "uint4"])
def test_rows_of_tables_in_blocks(form: str) -> None:
    bits = 8 if form == "bytes" else 4
    numbers = random().integers(0, 1 << bits, (40, 64)).astype(np.uint8)
    zeros = random(2).integers(0, 1 << bits, (40, 4)).astype(np.uint8)
    constants = {"q": numbers, "s": random(1).random((40, 4)).astype(np.float32)}
    if form == "uint4":
        constants["q"] = narrow("q", numbers, TensorProto.UINT4)
    elif bits == 4:
        constants["q"] = numbers[:, ::2] | numbers[:, 1::2] << 4
    if "zeros" in form:
        constants["z"] = zeros[:, ::2] | zeros[:, 1::2] << 4
    names = ["q", "i", "s", *(["z"] if "z" in constants else [])]
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", block_size=16, bits=bits)
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])]
    model = model_of([node], inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    places = np.int64([3, 39, 3, 0])
    np.testing.assert_array_equal(compiled(model)(places).numpy(), by_onnxruntime(model, i=places))


@pytest.mark.parametrize(
    "views", [["Reshape"], ["Transpose", "Identity", "Transpose"], ["Cast", "Reshape"]], ids="-".join
)
def test_views_of_weights_are_weights_whatever_their_size(views: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding and head that share a table, as onnxruntime's model builder ties them: nothing is small enough to be folded."""
    monkeypatch.setattr("treadle.compiler.onnx.values.FOLD_BYTES", 15)
    rows, columns, block = 40, 64, 16
    constants = weights(columns, rows, block) | {"shape": np.int64([rows, columns // 2])}
    table = constants["b"].reshape(rows, columns // 2)
    constants["b"] = table.astype(np.int32) if "Cast" in views else table
    constants["s"] = constants["scales"].reshape(rows, -1)
    nodes, name = [], "b"
    for number, view in enumerate(views):
        attributes = {"Cast": {"to": TensorProto.UINT8}, "Transpose": {"perm": [1, 0]}}.get(view, {})
        inputs = [name, "shape"] if view == "Reshape" else [name]
        nodes.append(helper.make_node(view, inputs, [name := f"view_{number}"], **attributes))
    nodes += [
        helper.make_node("GatherBlockQuantized", [name, "i", "s"], ["x"], domain="com.microsoft", block_size=block),
        helper.make_node(
            "MatMulNBits", ["x", name, "scales"], ["y"], domain="com.microsoft", K=columns, N=rows, block_size=block
        ),
    ]
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = model_of(nodes, inputs, outputs, constants)
    places = np.int64([3, 39, 3, 0])
    plain = dict(constants, b=table.reshape(rows, -1, block // 2), t=table)
    wanted = by_onnxruntime(model_of(nodes_of_table(columns, rows, block), inputs, outputs, plain), i=places)
    np.testing.assert_allclose(compiled(model)(places).numpy(), wanted, rtol=1e-5, atol=1e-5)


def nodes_of_table(columns: int, rows: int, block: int) -> list[onnx.NodeProto]:
    """The same without views."""
    sizes = {"K": columns, "N": rows, "block_size": block}
    return [
        helper.make_node("GatherBlockQuantized", ["t", "i", "s"], ["x"], domain="com.microsoft", block_size=block),
        helper.make_node("MatMulNBits", ["x", "b", "scales"], ["y"], domain="com.microsoft", **sizes),
    ]


def test_weights_of_four_bits_in_a_file_of_their_own(tmp_path: Path) -> None:
    numbers = four_bits(TensorProto.INT4, 33, 15)
    inside = narrow("q", numbers, TensorProto.INT4)
    packed = numpy_helper.to_array(inside).reshape(-1).view(np.uint8) & 15
    packed = np.append(packed, 0) if packed.size % 2 else packed
    (tmp_path / "weights").write_bytes(bytes(4) + (packed[::2] | packed[1::2] << 4).astype(np.uint8).tobytes())
    outside = TensorProto(name="q", dims=(33, 15), data_type=TensorProto.INT4, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "weights", "offset": "4", "length": str(-(-33 * 15 // 2))}.items():
        outside.external_data.add(key=key, value=value)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 33])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = model_of(nodes, inputs, outputs, {"q": outside, "s": np.float32(0.5)})
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    x = random().standard_normal((2, 33), np.float32)
    machine = treadle.VirtualMachine(treadle.compile(str(tmp_path / "model.onnx"), progress=False))
    assert_near(machine["main"](x).numpy(), x.astype(np.float64) @ (numbers * 0.5))


@pytest.mark.parametrize(("kind", "least"), [(TensorProto.INT4, -8), (TensorProto.UINT2, 0)])
def test_numbers_become_numbers_of_few_bits(kind: int, least: int) -> None:
    like = narrow("like", np.ones(2, np.int64), kind)
    node = helper.make_node("CastLike", ["x", "like"], ["y"], "narrower")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])]
    model = model_of([node], inputs, [helper.make_tensor_value_info("y", kind, [4])], {"like": like})
    machine = treadle.VirtualMachine(treadle.compile(model, progress=False))
    x = np.float32([0, 1.9, 3, least])
    assert machine["main"](x).numpy().astype(np.int64).tolist() == [0, 1, 3, least]


def array_of(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # where others of them are made
def test_the_standards_own_examples(tmp_path: Path) -> None:
    """Of tensors of few bits, and of blocks that share a scale. Results of few bits come as bytes."""
    names = ("int4", "int2", "blocked")
    cases = [case for case in load_model_tests(kind="node") if "quantizelinear" in case.name]
    cases = [case for case in cases if any(name in case.name for name in names)]
    assert len(cases) >= 9
    for case in cases:
        path = tmp_path / "model.onnx"
        path.write_bytes(case.model.SerializeToString())
        for inputs, outputs in case.data_sets:
            (got,), wanted = run(str(path), [array_of(each) for each in inputs]), array_of(outputs[0])
            np.testing.assert_allclose(got, wanted.astype(got.dtype), rtol=1e-6, err_msg=case.name)


def test_a_tensor_of_a_type_that_numpy_lacks_is_a_constant() -> None:
    """Its elements have no buffer of their own in Python."""
    import ml_dtypes

    x = treadle.var("x", (2,), "bfloat16")
    weight = treadle.constant(np.array([1, 2], ml_dtypes.bfloat16))
    executable = treadle.compile(treadle.function([x], x + weight), embed_native=False, opt_level=0)
    assert any(array.dtype == ml_dtypes.bfloat16 for array in executable.constants)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_tables_whose_numbers_fit_16_bits_take_16(dtype: str) -> None:
    """As those of models that were trained so, and exported in float32; not if something else reads them as they are."""
    table = random().standard_normal((2000, 64)).astype(treadle.DType.of(dtype).numpy).astype(np.float32)
    places = treadle.var("places", ("n",), "int64")
    rows = treadle.op.take(treadle.constant(table), places, axis=0)
    executable = treadle.compile(treadle.function([places], rows), progress=False)
    assert sum(each.nbytes for each in executable.constants) == table.nbytes // (1 if dtype == "float32" else 2)
    at = np.int64([3, -1, 3])
    np.testing.assert_array_equal(treadle.VirtualMachine(executable)["main"](at).numpy(), table[at])
    shared = treadle.constant(table)
    both = treadle.tuple_(treadle.op.take(shared, places, axis=0), treadle.op.sum(shared * 1.5, axes=(1,)))
    executable = treadle.compile(
        treadle.function([places], both), progress=False, embed_native=False, without=["fold_constants"]
    )
    assert sum(each.nbytes for each in executable.constants if each.nbytes > 99) == table.nbytes
