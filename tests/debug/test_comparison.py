"""`debug.compare` finds what is planted in a model of a hundred nodes, and nothing where nothing is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import treadle
from onnx import parser
from treadle import debug
from treadle.compiler import passes
from treadle.compiler.passes import PIPELINE
from treadle.compiler.targets.base import Stage
from treadle.debug import references
from treadle.debug.tensors import error, forms
from treadle.formats.messages.errors import ArgumentError, FormatError, TreadleError
from treadle.tools.cli import main
from treadle.tools.dev import planted

CONVOLUTIONS = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[1, 3, 9, 9] x, float[20, 3, 3, 3] w, float[20] s, float[20] b, float[20] m, float[20] v, float[6, 20, 3, 3] u)
    => (float[1, 6, 9, 9] y, float[1, 20, 9, 9] n) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w)
    n = BatchNormalization(c, s, b, m, v)
    r = Relu(n)
    p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(r)
    y = Conv<pads = [1, 1, 1, 1]>(p, u)
}"""
BRANCHES = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[n, 8] x, float[8, 8] w) => (float[n, 8] y) {
    a = MatMul(x, w)
    t = Transpose<perm = [1, 0]>(a)
    e = Exp(t)
    s = ReduceSum<keepdims = 1>(e)
    d = Div(e, s)
    y = Transpose<perm = [1, 0]>(d)
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The right model, one with a wrong weight, one with a NaN, and executables with a wrong weight and a wrong kernel."""
    made = tmp_path_factory.mktemp("planted")
    planted.write(made)
    return made


def test_a_planted_wrong_weight_is_found_by_one_command(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["compare", str(folder / "weight.trdl"), "--against", str(folder / "right.onnx")]) == 1
    shown = capsys.readouterr().out
    assert "first divergence: 'block11/MatMul_product" in shown
    assert "wrong are the constants that it reads (block11.weight)" in shown


def test_the_command_says_before_that_the_model_goes_to_onnxruntime(
    folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def stopped(*_: object) -> None:
        told.append(capsys.readouterr().err)
        raise TreadleError("stopped")

    monkeypatch.setattr(references, "_of_onnxruntime", stopped)
    main(["compare", str(folder / "right.onnx")])
    assert "the model goes to onnxruntime" in told[0]
    main(["compare", str(folder / "right.onnx"), "--against", "reference"])
    assert "onnxruntime" not in capsys.readouterr().err


def test_a_planted_wrong_kernel_is_found_by_one_command(folder: Path, capsys: pytest.CaptureFixture) -> None:
    options = ["--against", str(folder / "five.onnx"), "--trust-native", "--bisect"]
    assert main(["compare", str(folder / "kernel.trdl"), *options]) == 1
    shown = capsys.readouterr().out
    assert "first divergence: 'block1/MatMul_product" in shown  # the first block with a sigmoid
    assert "the kernel of matmul_packed_add_sigmoid_multiply_add" in shown
    assert "is wrong: of the same inputs, its definition gives results" in shown
    assert "without the kernel of matmul_packed_add_sigmoid_multiply_add the results are right" in shown


def test_a_wrong_kernel_is_found_without_the_model(folder: Path) -> None:
    report = debug.compare(folder / "kernel.trdl", trust_native=True)
    assert report.first is not None
    assert report.first.primitive == "matmul_packed_add_sigmoid_multiply_add"
    assert "is wrong" in report.cause


def test_a_planted_nan_is_found_by_one_command(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["nonfinite", str(folder / "nan.onnx")]) == 1
    shown = capsys.readouterr().out
    assert "first at 'block7/" in shown
    assert "sqrt makes them, node 'block7/Sqrt_active'" in shown
    assert main(["nonfinite", str(folder / "right.onnx")]) == 0


def test_a_right_model_agrees_with_onnxruntime_and_with_the_references(folder: Path) -> None:
    for against in ("onnxruntime", "reference", folder / "right.onnx", treadle.compile(folder / "right.onnx")):
        report = debug.compare(folder / "right.onnx", against=against)
        assert report.ok, report.table()
        assert "all agree" in repr(report)


def test_codes_of_weights_are_no_reason_to_allow_more() -> None:
    pytest.importorskip("onnxruntime")
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 13]>
        agraph (float[2, 2] x) => (float[2, 2] z)
        <int8[2, 2] codes = {1, -2, 3, 4}, float scale = {0.1}, int8 zero = {0}>
        { w = DequantizeLinear(codes, scale, zero)  y = MatMul(x, w)  z = Tanh(y) }"""
    )
    rows = debug.compare(model, {"x": np.ones((2, 2), np.float32)}, against="onnxruntime").rows
    assert max(row.bound for row in rows) < 1e-3


def test_layouts_and_moved_work_are_no_divergence() -> None:
    model = parser.parse_model(CONVOLUTIONS)
    rng = np.random.default_rng(0)
    feeds = [rng.random([dim.dim_value for dim in i.type.tensor_type.shape.dim], np.float32) for i in model.graph.input]
    report = debug.compare(model, feeds)
    assert report.ok, report.table()
    assert {"Conv c", "MaxPool p"} <= {node for row in report.rows for node in row.node.split(" + ")}


def test_transposed_tensors_are_compared_by_their_elements() -> None:
    report = debug.compare(parser.parse_model(BRANCHES))
    assert report.ok, report.table()


def test_a_wrong_pass_is_found(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    wrong = [
        (1, lambda _: _Wrong())
        if not isinstance(row, Stage) and row[1](passes.Options()).name == "fold_batch_norm"
        else row
        for row in PIPELINE
    ]
    monkeypatch.setattr(passes, "PIPELINE", tuple(wrong))
    report = debug.compare(folder / "right.onnx", bisect=True)
    assert report.bisection is not None
    assert (report.bisection.kind, report.bisection.names, report.bisection.right) == ("pass", ("wrong",), True)


class _Wrong:
    """A pass that takes all activations for another."""

    name = "wrong"

    def __call__(self, module: object) -> object:
        from treadle.compiler.ir.text import parse_module, print_module

        return passes.InferTypes()(parse_module(print_module(module).replace("sigmoid(", "tanh(")))


def test_a_case_reproduces_what_was_found(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    case = tmp_path / "case"
    against = ["--against", str(folder / "right.onnx")]
    assert main(["compare", str(folder / "weight.trdl"), *against, "--save", str(case)]) == 1
    saved = json.loads((case / "case.json").read_text())
    assert saved["report"]["first"]["tensor"] == "block11.out"
    assert sorted(saved["kernel"]) == ["found", "inputs", "primitive", "wanted"]
    capsys.readouterr()
    assert main(["compare", str(case)]) == 1
    assert "first divergence: 'result block19.out'" in capsys.readouterr().out


def test_a_folder_that_is_not_empty_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(ArgumentError, match="not empty"):
        debug.compare(folder / "right.onnx", save=tmp_path)


def test_a_case_may_not_name_files_outside(folder: Path, tmp_path: Path) -> None:
    case = tmp_path / "case"
    debug.compare(folder / "right.onnx", save=case)
    np.save(tmp_path / "secret.npy", np.zeros(3))
    text = (case / "case.json").read_text()
    for outside in ("../secret.npy", str(tmp_path / "secret.npy")):
        (case / "case.json").write_text(text.replace("feeds/0000-x.npy", outside))
        with pytest.raises(FormatError, match="not in the folder"):
            debug.load_case(case)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"against": "onnxrt"}, 'expected "onnxruntime"'),
        ({"feeds": {"y": np.zeros(3)}}, "there is no 'y'; main takes x"),
        ({"feeds": {}}, "'x' is missing"),
        ({"feeds": [1, 2]}, "expected 1 arrays"),
    ],
)
def test_wrong_uses_are_named(folder: Path, arguments: dict, message: str) -> None:
    with pytest.raises(TreadleError, match=message):
        debug.compare(folder / "right.onnx", **arguments)


def test_an_executable_alone_has_no_onnx_model(folder: Path) -> None:
    with pytest.raises(ArgumentError, match="needs the ONNX model"):
        debug.compare(folder / "weight.trdl", against="onnxruntime")


def test_the_report_is_json_and_a_table(folder: Path) -> None:
    report = debug.compare(folder / "wrong.onnx", against=folder / "right.onnx")
    found = json.loads(report.json())
    assert (found["ok"], found["first"]["tensor"]) == (False, "block11.out")
    assert len(found["rows"]) == 21
    assert "block11.weight" in report.table(4)
    assert "first divergence" in repr(report)


def test_errors_are_relative_for_floats_and_infinite_where_nans_differ() -> None:
    a = np.array([1.0, 100.0], np.float32)
    assert error(a + np.float32(1), a) == pytest.approx(0.01)
    assert error(np.array([np.nan, 1]), np.array([1.0, 1])) == np.inf
    assert error(np.array([np.nan, np.inf]), np.array([np.nan, np.inf])) == 0
    assert error(np.array([3, 250], np.uint8), np.array([4, 2], np.uint8)) == 248


def test_forms_see_blocked_channels_and_other_orders_of_axes() -> None:
    from treadle.compiler.targets.cpu.operators.packing import pack_channels

    image = np.arange(2 * 20 * 3 * 5, dtype=np.float32).reshape(2, 20, 3, 5)
    assert any(np.array_equal(form, image) for form in forms(pack_channels(image), image.shape))
    assert any(np.array_equal(form, image) for form in forms(image.transpose(0, 2, 3, 1), image.shape))
    assert list(forms(image, (7, 7))) == []
