"""What narrow numbers cost, tensor by tensor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from treadle import debug
from treadle.debug.noise import _snr, _unmasked
from treadle.tools.cli import main

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

WIDTH, ROWS = 32, 16


def layers(scales: dict[str, float], folder: Path, name: str) -> Path:
    """Three products; with scales, what each gives is rounded to codes of 8 bits."""
    generator = np.random.default_rng(0)
    nodes, weights, read = [], [], "x"
    for at in range(3):
        weights.append(numpy_helper.from_array(generator.standard_normal((WIDTH, WIDTH)).astype("f") / 6, f"w{at}"))
        made = f"h{at}"
        nodes.append(helper.make_node("MatMul", [read, f"w{at}"], [made], f"product{at}"))
        read = made
        if scale := scales.get(made):
            weights += [
                numpy_helper.from_array(np.float32(scale), f"{made}_scale"),
                numpy_helper.from_array(np.int8(0), f"{made}_zero"),
            ]
            names = [f"{made}_scale", f"{made}_zero"]
            nodes.append(helper.make_node("QuantizeLinear", [made, *names], [f"{made}_codes"], f"quantise{at}"))
            nodes.append(
                helper.make_node("DequantizeLinear", [f"{made}_codes", *names], [f"{made}_numbers"], f"dequantise{at}")
            )
            read = f"{made}_numbers"
    nodes.append(helper.make_node("Relu", [read], ["y"], "end"))
    ports = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [ROWS, WIDTH]) for each in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / name)
    return folder / name


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    """A float model, and one whose second product has codes that are far too coarse."""
    return layers({}, tmp_path, "float.onnx"), layers({"h0": 0.03, "h1": 1.5, "h2": 0.03}, tmp_path, "int8.onnx")


def test_the_layer_that_loses_most_is_named(models: tuple[Path, Path]) -> None:
    exact, narrow = models
    found = debug.loss(narrow, exact)
    assert [row.tensor for row in found.rows] == ["h0", "h1", "h2", "y"]
    assert found.worst is not None
    assert found.first is not None
    assert (found.worst.tensor, found.worst.node, found.first.tensor) == ("h1", "product1", "h1")
    assert found.rows[0].snr > 35 > 20 > found.rows[1].snr
    assert found.table(2).splitlines()[5].split()[2] == "h1"
    assert found.table(2).endswith("… 2 more rows")


def test_the_command_compares_what_codes_mean(models: tuple[Path, Path], capsys: pytest.CaptureFixture) -> None:
    exact, narrow = models
    assert main(["compare", str(narrow), "--against", str(exact)]) == 0
    assert "worst: 'h1', " in capsys.readouterr().out
    assert main(["compare", str(narrow), "--against", str(exact), "--json"]) == 0
    assert '"tensor": "h1"' in capsys.readouterr().out


def test_what_bfloat16_loses(models: tuple[Path, Path], capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("ml_dtypes")
    exact, _ = models
    found = debug.loss(exact, exact, precision="bfloat16")
    assert [row.tensor for row in found.rows] == ["h0", "h1", "y"]
    assert all(row.snr > 40 for row in found.rows)
    assert main(["compare", str(exact), "--precision", "bfloat16"]) == 0
    assert "3 tensors beside those of onnxruntime" in capsys.readouterr().out


def test_a_model_without_counterparts_says_so(models: tuple[Path, Path], tmp_path: Path) -> None:
    exact, _ = models
    other = onnx.load(exact)
    for node in other.graph.node:
        node.output[:] = [f"other_{name}" for name in node.output]
        node.input[:] = [f"other_{name}" if name.startswith("h") else name for name in node.input]
    other.graph.output[0].name = "other_y"
    onnx.save(other, tmp_path / "other.onnx")
    assert "no tensor of" in debug.loss(models[1], tmp_path / "other.onnx").table()


def test_a_right_quantised_model_agrees_whatever_ties_do(tmp_path: Path) -> None:
    """Of sums that end at a tie, onnxruntime's and ours may be rounded to neighbouring codes."""
    generator = np.random.default_rng(1)
    model = layers({"h0": 0.03, "h1": 0.03, "h2": 0.03}, tmp_path, "int8.onnx")
    weights = onnx.load(model)
    for tensor in weights.graph.initializer:  # products of halves: many sums are ties
        if tensor.name.startswith("w"):
            tensor.CopyFrom(
                numpy_helper.from_array(generator.integers(-8, 8, (WIDTH, WIDTH)).astype("f") * 0.015, tensor.name)
            )
    onnx.save(weights, model)
    x = generator.integers(-4, 4, (ROWS, WIDTH)).astype("f") / 3
    report = debug.compare(model, {"x": x})
    assert report.ok, report.table(0)


def test_a_wrong_weight_is_found_all_the_same(tmp_path: Path) -> None:
    right = layers({"h0": 0.03, "h1": 0.03, "h2": 0.03}, tmp_path, "int8.onnx")
    wrong = onnx.load(right)
    for tensor in wrong.graph.initializer:
        if tensor.name == "w0":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.2), tensor.name))
    onnx.save(wrong, tmp_path / "wrong.onnx")
    report = debug.compare(tmp_path / "wrong.onnx", against=right)
    assert report.first is not None
    assert "product0" in report.first.node


def test_names_that_only_look_like_codes(tmp_path: Path) -> None:
    """A scale of another shape, and a tensor of another type under the float model's name."""
    cast = helper.make_node("Cast", ["x"], ["y_quantized"], "cast", to=TensorProto.INT8)
    texts = helper.make_node("Cast", ["x"], ["z"], "texts", to=TensorProto.STRING)
    paths = []
    for name, nodes, kind in (("float", [], TensorProto.FLOAT), ("int8", [cast, texts], TensorProto.STRING)):
        nodes = [*nodes, helper.make_node("Neg", ["x"], ["y"], "neg")]
        nodes += [] if name == "int8" else [helper.make_node("Abs", ["x"], ["z"], "abs")]
        weights = [numpy_helper.from_array(np.ones(3, "f"), "y_scale")]
        ports = [
            helper.make_tensor_value_info(each, type_, [2, 4])
            for each, type_ in (("x", TensorProto.FLOAT), ("y", TensorProto.FLOAT), ("z", kind))
        ]
        graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
        paths.append(tmp_path / f"{name}.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), paths[-1])
    assert [row.tensor for row in debug.loss(paths[1], paths[0]).rows] == ["y"]


def test_what_is_infinite_is_null(models: tuple[Path, Path]) -> None:
    exact, narrow = models
    x = np.full((ROWS, WIDTH), np.nan, np.float32)
    rows = debug.loss(narrow, exact, {"x": x}).as_dict()["rows"]
    assert json.dumps(rows, allow_nan=False)
    assert rows[-1]["error"] is None


def test_codes_of_an_operator_hold_the_activation_that_its_quantiser_took_away(tmp_path: Path) -> None:
    """Those of QLinearMatMul are of numbers from 0 on: a Relu between it and the next layer is gone."""
    generator = np.random.default_rng(0)
    weight = (generator.standard_normal((WIDTH, WIDTH)) / 6).astype("f")
    ports = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [ROWS, WIDTH]) for each in "xy"]

    def saved(name: str, nodes: list, weights: dict) -> Path:
        arrays = [numpy_helper.from_array(array, key) for key, array in weights.items()]
        graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], arrays)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / name)
        return tmp_path / name

    end = helper.make_node("Sqrt", ["r"], ["y"], "end")
    product = helper.make_node("MatMul", ["x", "w"], ["h"], "product")
    exact = saved("float.onnx", [product, helper.make_node("Relu", ["h"], ["r"], "relu"), end], {"w": weight})
    scales = {"x_scale": np.float32(0.03), "w_scale": np.float32(0.006), "h_scale": np.float32(0.02)}
    zeros = {"x_zero_point": np.uint8(128), "w_zero_point": np.int8(0), "h_zero_point": np.uint8(0)}
    codes = np.clip(np.rint(weight / 0.006), -127, 127).astype(np.int8)
    parts = [each for name in "xw" for each in (f"{name}_quantized", f"{name}_scale", f"{name}_zero_point")]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero_point"], ["x_quantized"], "q"),
        helper.make_node("QLinearMatMul", [*parts, "h_scale", "h_zero_point"], ["h_quantized"], "product"),
        helper.make_node("DequantizeLinear", ["h_quantized", "h_scale", "h_zero_point"], ["r2"], "d"),
        helper.make_node("Sqrt", ["r2"], ["y"], "end"),
    ]
    narrow = saved("int8.onnx", nodes, scales | zeros | {"w_quantized": codes})
    rows = {row.tensor: row.snr for row in debug.loss(narrow, exact).rows}
    assert "h" not in rows
    assert rows["r"] > 30


def test_a_mask_drowns_nothing() -> None:
    """Scores beside -1e9 are lost if one scale is to hold both; the mask's own power says that nothing is."""
    numbers = np.random.default_rng(0).standard_normal((4, 8)).astype("f")
    mask = np.where(np.arange(8) < 4, 0, -1e9).astype("f")
    wanted, lost = numbers + mask, np.broadcast_to(mask, (4, 8))
    assert _snr(lost, wanted) > 100
    assert _snr(*_unmasked(lost, wanted)) == pytest.approx(0, abs=1e-6)
    for ordinary in (numbers, np.exp(20 * numbers), -1e4 * np.abs(numbers)):
        assert _unmasked(ordinary, ordinary)[0] is ordinary
