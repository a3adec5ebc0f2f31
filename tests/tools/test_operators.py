"""`treadle ops`, the page of operators, and what is told of host operators."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
import treadle
from onnx import parser
from treadle.compiler.onnx.schemas import is_known
from treadle.formats.messages.errors import UnsupportedOperatorError
from treadle.tools import operators
from treadle.tools.cli import main
from treadle.tools.dev.derive.operators import measured

HEAD = '<ir_version: 8, opset_import: ["" : 17, "own" : 3]>'


def model(text: str) -> bytes:
    return parser.parse_model(f"{HEAD} {text}").SerializeToString()


STRANGE = model(
    """agraph (float[n] x, complex128[n] z, bool c) => (float[n] y, float[n] w) {
        a = own.First (x)
        b = Relu (a)
        d = own.Second (b)
        y = If (c) <then_branch = g () => (float[n] t) { t = own.Third (d) },
                    else_branch = h () => (float[n] e) { e = Relu (d) }>
        w = ATen (x)
    }"""
)


def test_all_that_a_model_lacks_is_listed_at_once() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        treadle.compile(STRANGE)
    listed = {name: reason for name, _, reason in caught.value.operators}
    assert listed.keys() == {"input", "own.First", "own.Second", "own.Third", "ATen"}
    assert "[own 3]" in listed["own.Second"]
    assert "[ai.onnx 17]" in listed["ATen"]
    assert all(name in str(caught.value) for name in listed)


def test_what_a_model_needs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "strange.onnx").write_bytes(STRANGE)
    assert main(["ops", "--model", f"{tmp_path}/strange.onnx", "--json"]) == 3
    facts = json.loads(capsys.readouterr().out)
    assert {"operator": "Relu", "version": 17, "nodes": 2} in facts["operators"]
    assert len(facts["unsupported"]) == 5
    assert main(["ops", "--model", f"{tmp_path}/strange.onnx"]) == 3
    text = capsys.readouterr().out
    assert "2 × Relu of opset 17" in text
    assert "not supported: own.Third" in text


def test_a_model_that_is_native(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "m.onnx").write_bytes(model("agraph (float[n] x) => (float[n] y) { y = Relu (x) }"))
    assert main(["ops", "--model", f"{tmp_path}/m.onnx"]) == 0
    assert "all of it is native" in capsys.readouterr().out


def test_the_list_has_each_importer(capsys: pytest.CaptureFixture) -> None:
    assert main(["ops", "--json"]) == 0
    names = {f"{each['domain']}.{each['name']}".lstrip(".") for each in json.loads(capsys.readouterr().out)}
    assert {"Conv", "If", "Loop", "Celu", "ai.onnx.ml.Scaler", "com.microsoft.BiasGelu"} <= names
    assert names.isdisjoint({"Upsample"} if not is_known("", "Upsample", 9) else {"NoSuchOperator"})


def test_versions_are_those_of_the_standard() -> None:
    (conv,) = [each for each in operators.operators() if each.full_name == "Conv"]
    assert conv.versions == (7, 11, 22)
    assert not conv.lacks
    assert onnx.defs.get_schema("Conv", 22).since_version == 22
    assert conv.types["float"] == operators.NATIVE


SLOW_LOOP = model(
    """agraph (float[2, 2] x, int64 n, bool c) => (float[2, 2] y) {
        y = Loop (n, c, x) <body = g (int64 i, bool go, float[2, 2] a) => (bool more, float[2, 2] b) {
            more = Identity (go)
            u = Det (a)
            b = Add (a, u)
        }>
    }"""
)
OUTSIDE = model("agraph (float[2, 2] x) => (float y) { y = Det (x) }")


def test_a_host_operator_in_a_loop_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"the host evaluates in each round of a loop.*det.*Det u"):
        treadle.compile(SLOW_LOOP, embed_native=False)


def test_info_says_what_runs_on_the_host(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "loop.onnx").write_bytes(SLOW_LOOP)
    with pytest.warns(UserWarning, match="in each round of a loop"):
        assert main(["compile", f"{tmp_path}/loop.onnx", "-o", f"{tmp_path}/loop.trdl", "--no-kernels"]) == 0
    capsys.readouterr()
    assert main(["info", f"{tmp_path}/loop.trdl"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "on the host" in line]
    assert "det" in line
    assert "Det u" in line
    assert "in a loop" in line
    assert main(["info", f"{tmp_path}/loop.trdl", "--json"]) == 0
    (host,) = json.loads(capsys.readouterr().out)["host"]
    assert host["in_loop"]


def test_one_outside_of_loops_is_none_to_warn_of(recwarn: pytest.WarningsRecorder) -> None:
    treadle.compile(OUTSIDE, embed_native=False)
    assert not recwarn.list


@pytest.mark.slow
def test_what_was_tried_is_fresh() -> None:
    found = json.loads(operators.FOUND.read_text(encoding="utf-8"))
    assert measured() == found, "run python -m treadle.tools.dev.derive.operators, then … .docs"
