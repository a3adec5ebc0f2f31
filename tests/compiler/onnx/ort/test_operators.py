"""onnxruntime's own operators on floats, and models that its optimiser has written, against onnxruntime and the reference
evaluator."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import treadle
from onnx import helper
from treadle.formats.messages.errors import ModelError, UnsupportedOperatorError
from treadle.tools.dev.zoo.bert import bert
from treadle.tools.dev.zoo.gpt import gpt
from treadle.tools.dev.zoo.llama import llama
from treadle.tools.dev.zoo.whisper import whisper

from .runtime_models import RUNTIME, by_onnxruntime, check, compiled, floats, model_of

# ---- quantised weights ----


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("others", [["zero", "bias"], ["", "bias"], ["zero"], []])
def test_products_quantised_as_they_run(kind: type, others: list[str]) -> None:
    zero = np.array([3, 90, 0, 7, 1], kind) if others and others[0] else None
    constants = {"b": _whole((24, 5), kind), "scale": np.float32([0.1, 0.02, 1, 0.5, 0.01]), "bias": floats(5)}
    constants |= {} if zero is None else {"zero": zero}
    for x in (floats(2, 3, 24), abs(floats(6, 24))):
        check(
            "DynamicQuantizeMatMul", {"x": x}, names=["x", "b", "scale", *others], constants=constants, tolerance=2e-3
        )


@pytest.mark.parametrize("past", [False, True])
def test_attention_with_quantised_weights(past: bool) -> None:
    x = _whole((2, 3, 8), np.uint8)
    constants = {"w": _whole((8, 24), np.int8), "bias": floats(24), "sx": np.float32(0.02), "sw": np.float32(0.01)}
    constants |= {"zx": np.uint8(120), "zw": np.int8(3)}
    inputs = {"x": x, "past": floats(2, 2, 2, 4, 4)} if past else {"x": x}
    names = ["x", "w", "bias", "sx", "sw", "", "zx", "zw", *(["past"] if past else [])]
    outputs = ("y", "present") if past else ("y",)
    check(
        "QAttention", inputs, outputs, names=names, constants=constants, num_heads=2, unidirectional=1, tolerance=1e-4
    )


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("hidden", [8, 70])
def test_lstm_with_quantised_weights(kind: type, by_column: bool, hidden: int) -> None:
    """Rows of inputs are rounded to 8 bits, and long states, each by itself: never less exact than onnxruntime, which rounds
    those of all sequences together. Short states, and all that meet uint8, are not rounded."""
    x, directions = floats(6, 2, 5), 2
    w, r = _whole((directions, 5, 4 * hidden), kind), _whole((directions, hidden, 4 * hidden), kind)
    sizes = (directions, 4 * hidden) if by_column else (directions,)
    most = 0.006 / np.sqrt(hidden / 8)  # larger ones would let a state's rounding grow from step to step
    scales = [np.random.default_rng(i).uniform(most / 3, most, sizes).astype(np.float32) for i in (1, 2)]
    zeros = [np.full(sizes, 127 if kind is np.uint8 else 0, kind)] * 2
    bias = floats(directions, 8 * hidden)
    common = {"direction": "bidirectional", "hidden_size": hidden}
    names = ["x", "w", "r", "bias", "", "", "", "", "sw", "zw", "sr", "zr"]
    constants = {"w": w, "r": r, "bias": bias, "sw": scales[0], "zw": zeros[0], "sr": scales[1], "zr": zeros[1]}
    few = helper.make_node("DynamicQuantizeLSTM", names, ["y", "h", "c"], domain=RUNTIME, **common)
    model = model_of([few], {"x": x}, ["y", "h", "c"], constants)

    def expanded(values: np.ndarray) -> np.ndarray:
        return values.reshape(directions, 1, -1).astype(np.float32)

    floating = {
        name: ((whole.astype(np.float32) - expanded(zero)) * expanded(scale)).swapaxes(1, 2)
        for name, whole, scale, zero in (("w", w, scales[0], zeros[0]), ("r", r, scales[1], zeros[1]))
    }
    node = helper.make_node("LSTM", ["x", "w", "r", "bias"], ["y", "h", "c"], **common)
    exact = by_onnxruntime(model_of([node], {"x": x}, ["y", "h", "c"], floating | {"bias": bias}), {"x": x})
    for got, wanted, theirs in zip(compiled(model)({"x": x}), exact, by_onnxruntime(model, {"x": x}), strict=True):
        np.testing.assert_allclose(got, theirs, atol=0.03)
        assert np.sqrt(np.mean((got - wanted) ** 2)) <= np.sqrt(np.mean((theirs - wanted) ** 2))
        if kind is np.uint8:
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "hidden"), [(np.int8, 64), (np.int8, 70), (np.int8, 8), (np.uint8, 64)])
def test_integers_that_quantised_lstms_are_computed_in(kind: type, hidden: int) -> None:
    """The projection by bytes, and long states; nothing where weights are uint8."""
    names = ["x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"]
    constants = {"w": _whole((1, 5, 4 * hidden), kind), "r": _whole((1, hidden, 4 * hidden), kind)}
    constants |= {"s": np.full(1, 0.01, np.float32), "z": np.zeros(1, kind)}
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain=RUNTIME, hidden_size=hidden)
    model = model_of([node], {"x": floats(6, 2, 5)}, ["y"], constants)
    executable = treadle.compile(model, target=treadle.emulated("cooperlake"), progress=False, embed_native=False)
    assert ("quantize_rows" in executable.primitive_ops) == (kind is np.int8)
    has_words = any(each.dtype == np.int8 and each.ndim == 6 for each in executable.program.constants)
    assert has_words == (kind is np.int8 and hidden >= 64)


def _whole(shape: tuple[int, ...], kind: type) -> np.ndarray:
    limits = np.iinfo(kind)
    return np.random.default_rng(list(shape)).integers(limits.min, limits.max + 1, shape).astype(kind)


# ---- normalisation ----


@pytest.mark.parametrize("shape", [(2, 3, 24), (1, 1, 7), (5, 16)])
def test_simplified_layer_normalization(shape: tuple[int, ...]) -> None:
    x, scale = floats(*shape), floats(shape[-1])
    check(
        "SimplifiedLayerNormalization", {"x": x}, constants={"g": scale}, domain="", epsilon=1e-6, stash_type=1, axis=-1
    )
    check("SimplifiedLayerNormalization", {"x": x, "g": scale}, ("y", "deviation"), domain="", epsilon=1e-3)


@pytest.mark.parametrize("skip", [(2, 3, 24), (1, 3, 24), (3, 24)])
@pytest.mark.parametrize("others", [["shift", "bias"], ["", "bias"], ["shift"], []])
def test_skip_layer_normalization(skip: tuple[int, ...], others: list[str]) -> None:
    inputs = {"x": floats(2, 3, 24), "skip": floats(*skip, seed=1)}
    constants = {name: floats(24, seed=place) for place, name in enumerate(["scale", *filter(None, others)])}
    check(
        "SkipLayerNormalization",
        inputs,
        ("y", "", "", "sum"),
        names=[*inputs, "scale", *others],
        constants=constants,
        epsilon=1e-5,
    )


@pytest.mark.parametrize("shape", [(2, 3, 24), (5, 24)])
@pytest.mark.parametrize("others", [["bias"], []])
def test_skip_simplified_layer_normalization(shape: tuple[int, ...], others: list[str]) -> None:
    inputs = {"x": floats(*shape), "skip": floats(*shape, seed=1)}
    constants = {name: floats(24, seed=place) for place, name in enumerate(["scale", *others])}
    check("SkipSimplifiedLayerNormalization", inputs, ("y", "", "", "sum"), constants=constants, epsilon=1e-5)
    check("SkipSimplifiedLayerNormalization", inputs, constants=constants)


def test_layer_normalization_below_its_opset_in_the_standard() -> None:
    x, constants = floats(2, 3, 24), {"scale": floats(24), "shift": floats(24, seed=1)}
    outputs = ("y", "mean", "deviation")
    node = helper.make_node("LayerNormalization", ["x", *constants], outputs, epsilon=1e-5, axis=-1, stash_type=1)
    model = model_of([node], {"x": x}, list(outputs), constants)
    model.opset_import[0].version = 12
    for got, wanted in zip(compiled(model)({"x": x}), by_onnxruntime(model, {"x": x}), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("left_out", [[], ["mask", "positions"], ["segments", "segment_table"], ["positions"]])
def test_embed_layer_normalization(left_out: list[str]) -> None:
    source = np.random.default_rng(0)
    inputs = {
        "words": source.integers(0, 30, (2, 5)).astype(np.int32),
        "segments": source.integers(0, 2, (2, 5)).astype(np.int32),
        "mask": np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 2]]),
        "positions": np.int32([[3, 0, 1, 2, 4], [0, 1, 2, 3, 9]]),
    }
    constants = {
        "word_table": floats(30, 16),
        "position_table": floats(12, 16),
        "segment_table": floats(2, 16),
        "scale": floats(16),
        "shift": floats(16, seed=1),
    }
    order = [
        "words",
        "segments",
        "word_table",
        "position_table",
        "segment_table",
        "scale",
        "shift",
        "mask",
        "positions",
    ]
    names = ["" if name in left_out else name for name in order]
    inputs = {name: array for name, array in inputs.items() if name in names}
    constants = {name: array for name, array in constants.items() if name in names}
    check("EmbedLayerNormalization", inputs, ("y", "visible", "sum"), names=names, constants=constants, epsilon=1e-6)


@pytest.mark.parametrize("left_out", [[], ["mask"], ["segments", "segment_table", "segment_scale", "segment_zero"]])
def test_embed_layer_normalization_of_8_bits(left_out: list[str]) -> None:
    source = np.random.default_rng(0)
    inputs = {
        "words": source.integers(0, 30, (2, 5)).astype(np.int32),
        "segments": source.integers(0, 2, (2, 5)).astype(np.int32),
        "mask": np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]),
    }
    shapes = {
        "word_table": (30, 16),
        "position_table": (12, 16),
        "segment_table": (2, 16),
        "gamma": (16,),
        "beta": (16,),
    }
    parts = ["word", "position", "segment", "gamma", "beta"]
    constants: dict[str, np.ndarray] = {name: _whole(shape, np.uint8) for name, shape in shapes.items()}
    constants |= {f"{part}_scale": np.float32(0.01 * place) for place, part in enumerate(parts, 1)}
    constants |= {f"{part}_zero": np.uint8(100 + place) for place, part in enumerate(parts)}
    order = [
        "words",
        "segments",
        *shapes,
        "mask",
        *(f"{part}_scale" for part in parts),
        *(f"{part}_zero" for part in parts),
    ]
    names = ["" if name in left_out else name for name in order]
    check(
        "QEmbedLayerNormalization",
        {name: array for name, array in inputs.items() if name in names},
        ("y", "visible"),
        names=names,
        constants={name: array for name, array in constants.items() if name in names},
        epsilon=1e-6,
    )


# ---- activations, and what they follow ----


@pytest.mark.parametrize("operator", ["Gelu", "FastGelu", "QuickGelu"])
def test_activations(operator: str) -> None:
    check(operator, {"x": 3 * floats(2, 3, 40)})


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu"])
def test_activations_of_sums(operator: str) -> None:
    check(operator, {"x": 3 * floats(2, 3, 40)}, constants={"bias": floats(40)})


def test_quick_gelu_with_a_factor() -> None:
    check("QuickGelu", {"x": 3 * floats(7, 9)}, alpha=0.7)


FOLLOWING = {
    "Clip": [-0.5, 1.5],
    "HardSigmoid": [0.3, 0.4],
    "LeakyRelu": [0.3],
    "Relu": [],
    "Sigmoid": [],
    "Tanh": [],
}


@pytest.mark.parametrize("activation", FOLLOWING)
@pytest.mark.parametrize("others", [["bias", "addend"], ["", "addend"], ["bias"], []])
def test_convolutions_with_what_follows(activation: str, others: list[str]) -> None:
    inputs = {"x": floats(2, 3, 9, 8)} | ({"addend": floats(2, 8, 5, 4)} if "addend" in others else {})
    constants = {"w": floats(8, 3, 3, 3)} | ({"bias": floats(8)} if "bias" in others else {})
    model = {"names": ["x", "w", *others], "constants": constants, "symbolic": False}
    window = {"pads": [1, 1, 1, 1], "strides": [2, 2], "kernel_shape": [3, 3]}
    parameters = {"activation_params": FOLLOWING[activation]} if FOLLOWING[activation] else {}
    node = {"activation": activation, **window, **parameters}
    wanted = check("FusedConv", inputs, **model, **node)
    assert wanted[0].shape == (2, 8, 5, 4)


GEMMS = {
    "Elu": {"alpha": 0.7},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "LeakyRelu": {"alpha": 0.3},
    "Relu": {},
    "Selu": {"alpha": 1.5, "gamma": 1.1},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 0.3},
}


@pytest.mark.parametrize("activation", GEMMS)
def test_gemm_with_what_follows(activation: str) -> None:
    parameters = {f"activation_{name}": value for name, value in GEMMS[activation].items()}
    constants = {"b": floats(20, 12), "c": floats(20)}
    check("FusedGemm", {"a": floats(5, 12)}, constants=constants, transB=1, activation=activation, **parameters)


def test_gemm_with_factors_and_transpositions() -> None:
    constants = {"b": floats(12, 20), "c": floats(1, 20)}
    factors = {"alpha": 0.5, "beta": 2.0, "transA": 1}
    check("FusedGemm", {"a": floats(12, 5)}, constants=constants, activation="Relu", **factors)


# ---- matrix products ----


@pytest.mark.parametrize("turned", [(), ("transA",), ("transB",), ("transBatchA",), ("transBatchB",), ("transA", "transBatchA"),
                                    ("transA", "transB", "transBatchA", "transBatchB")])  # fmt: skip
def test_matrix_products_with_transpositions(turned: tuple[str, ...]) -> None:
    a, b = floats(2, 3, 6, 8), floats(2, 3, 8, 5)
    operands = {
        name: stored(x, f"trans{name}" in turned, f"transBatch{name}" in turned)
        for name, x in zip("AB", (a, b), strict=True)
    }
    (wanted,) = check("FusedMatMul", operands, alpha=0.3, **dict.fromkeys(turned, 1))
    np.testing.assert_allclose(wanted, 0.3 * (a @ b), rtol=1e-4, atol=1e-5)


def stored(x: np.ndarray, matrix: bool, batch: bool) -> np.ndarray:
    """What has to come so that the operator makes x of it."""
    x = np.swapaxes(x, -1, -2) if matrix else x
    return np.ascontiguousarray(np.moveaxis(x, -2, 0) if batch else x)


def test_products_by_its_old_name() -> None:
    check("TransposeMatMul", {"a": floats(4, 7)}, constants={"b": floats(9, 7)}, transB=1, alpha=2.0)


# ---- what is refused ----


@pytest.mark.parametrize("transposed", [0, 1])
def test_linear_equations(transposed: int) -> None:
    """Of NumPy: the package of onnxruntime lacks the operator."""
    a, y = floats(3, 3) + 2 * np.eye(3, dtype=np.float32), floats(3, 5, seed=1)
    node = helper.make_node("Solve", ["a", "y"], ["x"], domain=RUNTIME, transposed=transposed)
    solve = compiled(model_of([node], {"a": a, "y": y}, ["x"]))
    np.testing.assert_allclose(solve({"a": a, "y": y})[0], np.linalg.solve(a.T if transposed else a, y), rtol=1e-5)
    with pytest.raises(treadle.TreadleError, match="singular"):
        solve({"a": np.zeros_like(a), "y": y})


def test_what_is_not_known_is_named() -> None:
    node = helper.make_node("FusedGemm", ["a", "b"], ["y"], "the node", domain=RUNTIME, activation="Sine")
    model = model_of([node], {"a": floats(2, 3)}, ["y"], {"b": floats(3, 4)})
    with pytest.raises(UnsupportedOperatorError, match=r"the node.*activation 'Sine'; Treadle has Clip, Elu"):
        treadle.compile(model, progress=False)
    node = helper.make_node(
        "FusedConv", ["a", "b"], ["y"], "the node", domain=RUNTIME, activation="Relu", activation_params=[1.0]
    )
    model = model_of([node], {"a": floats(1, 3, 5, 5)}, ["y"], {"b": floats(4, 3, 3, 3)}, known=True)
    with pytest.raises(ModelError, match=r"Relu has 0 parameters.*the node"):
        treadle.compile(model, progress=False)


# ---- models that the optimiser has written ----


@pytest.mark.parametrize("activation", [*GEMMS, "HardSwish", "Clip"])
def test_products_and_convolutions_that_onnxruntime_has_fused(activation: str, tmp_path: Path) -> None:
    attributes = {} if activation == "Clip" else GEMMS.get(activation, {})
    bounds = {"low": np.float32(-0.5), "high": np.float32(0.5)} if activation == "Clip" else {}
    constants = {"w": floats(8, 3, 3, 3), "v": floats(8, 5), "c": floats(5), **bounds}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"]),
        helper.make_node(activation, ["h", *bounds], ["i"], **attributes),
        helper.make_node("ReduceMean", ["i"], ["j"], axes=[2, 3], keepdims=0),
        helper.make_node("Gemm", ["j", "v", "c"], ["k"]),
        helper.make_node(activation, ["k", *bounds], ["y"], **attributes),
    ]
    inputs = {"x": floats(2, 3, 6, 6)}
    model = model_of(nodes, inputs, ["y"], constants, known=True)
    got = compiled(optimised(model, tmp_path))(inputs)[0]
    np.testing.assert_allclose(got, by_onnxruntime(model, inputs)[0], rtol=2e-5, atol=2e-5)


TRANSFORMERS = {
    "bert": partial(bert, 1, length=8),
    "bert of any length": partial(bert, 1, length="length"),
    "gpt": partial(gpt, 1, 128, 2, vocabulary=100, length=4),
    "llama": partial(llama, 1, 128, 4, 2, vocabulary=100, length=4),
    "whisper": partial(whisper, 1, 128, 2, frames=64),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_that_onnxruntime_has_fused_become_what_they_are_unfused(name: str, tmp_path: Path) -> None:
    model = TRANSFORMERS[name]()
    fused = optimised(model, tmp_path)
    assert any(node.domain == RUNTIME for node in fused.graph.node)
    executables = [treadle.compile(each, progress=False) for each in (model, fused)]
    assert sorted(executables[0].primitive_ops) == sorted(executables[1].primitive_ops)
    sizes = {"length": 8, "past": 3}
    inputs = {
        info.name: np.ones(
            [dim.dim_value or sizes[dim.dim_param] for dim in info.type.tensor_type.shape.dim],
            helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type),
        )
        for info in model.graph.input
    }
    for got, wanted in zip(compiled(fused)(inputs), by_onnxruntime(model, inputs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_models_that_onnxruntime_wrote_for_one_processor_are_told() -> None:
    model = model_of(
        [helper.make_node("ReorderInput", ["x"], ["y"], domain=f"{RUNTIME}.nchwc")], {"x": floats(1, 8, 4, 4)}, ["y"]
    )
    model.opset_import.append(helper.make_opsetid(f"{RUNTIME}.nchwc", 1))
    with pytest.raises(
        UnsupportedOperatorError, match=r"nchwc.ReorderInput .*for one kind of processor; .* level EXTENDED"
    ):
        treadle.compile(model)


def optimised(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimised.onnx")
