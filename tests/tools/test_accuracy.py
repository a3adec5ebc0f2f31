"""Errors against a float64 reference: how the reference is made, and what is compared."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from treadle.tools.cli import USAGE, main
from treadle.tools.dev.bench import accuracy


def test_engines_are_compared_with_the_reference(capsys: pytest.CaptureFixture) -> None:
    options = ["--only", "mlp,lstm", "--against", "onnxruntime", "--repeat", "2"]
    assert main(["bench", "accuracy", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [comparison["model"] for comparison in found] == ["mlp", "lstm"]
    for comparison in found:
        assert max(comparison["ratios"]) < 2
        for deviation in comparison["engines"].values():
            assert 0 < deviation["rms"] < 1e-6
            assert 0 < deviation["largest"] < 2e-6


@pytest.mark.usefixtures("wrong_treadle")
def test_an_error_is_measured_as_a_share_of_the_reference() -> None:
    (found,) = accuracy.compare_models(["mlp"], ["onnxruntime"], 1)
    assert found.engines["treadle"].rms == pytest.approx(0.01, rel=1e-3)
    assert found.engines["treadle"].largest == pytest.approx(0.01, rel=1e-3)
    assert min(found.ratios or ()) > 1000


@pytest.mark.usefixtures("failing_onnxruntime")
def test_an_engine_that_fails_is_a_result() -> None:
    (found,) = accuracy.compare_models(["mlp"], ["onnxruntime"], 1)
    assert found.engines["onnxruntime"].failure == "no such operator at line 3"
    assert found.ratios is None


def test_other_infinities_than_the_reference_has_are_infinite_errors() -> None:
    wanted = np.array([1.0, np.inf, np.nan])
    assert accuracy.errors_of([wanted.astype(np.float32)], [wanted]) == (0, 0)
    assert accuracy.errors_of([np.float32([1, np.inf, 0])], [wanted]) == (np.inf, np.inf)


def test_a_model_in_float64_has_no_float32() -> None:
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["half"], value_float=0.5)],
        "branch",
        [],
        [helper.make_tensor_value_info("half", TensorProto.FLOAT, [])],
    )
    nodes = [
        helper.make_node("Cast", ["n"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["m", "w"], ["scaled"]),
        helper.make_node("If", ["flag"], ["c"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["scaled", "c"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("n", TensorProto.INT64, [2]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    weight = numpy_helper.from_array(np.float32([0.1, 0.2]), "w")
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])], [weight]
    )
    double = accuracy.in_double(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    onnx.checker.check_model(double, full_check=True)
    assert double.graph.output[0].type.tensor_type.elem_type == TensorProto.DOUBLE
    (values,) = accuracy._reference(double, [{"n": np.array([1, 10]), "flag": np.array(True)}])
    np.testing.assert_array_equal(values[0], np.float64(np.float32([0.1, 0.2])) * [1, 10] + 0.5)


@pytest.mark.parametrize("option", [["--only", "nothing"], ["--against", "nobody"]])
def test_unknown_names_are_usage_errors(option: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(["bench", "accuracy", *option]) == USAGE
    assert capsys.readouterr().err
