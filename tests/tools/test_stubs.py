"""`treadle.op` as editors and type checkers see it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

from treadle import op
from treadle.compiler.builder.draws import FUNCTIONS
from treadle.compiler.operators import TABLE
from treadle.formats.extensions import EXTENSIONS
from treadle.tools.dev.derive import stale, stubs

ROOT = Path(__file__).parents[2]
PROGRAM = """
import treadle
from treadle import op

x = treadle.var("x", ("n", 3, 8, 8))
w = treadle.constant([1.0])
right = op.softmax(op.relu(op.conv(x, w, strides=(2, 2))), axis=-1)
op.concat(right, right, axis=0)
op.reshape(x, shape=("n", "n * 2", 3))
op.cast(x, dtype="int8")
op.rellu(x)
op.softmax(x, axes=-1)
op.softmax(x, axis="last")
op.relu(x, x)
op.conv_blocked(x, w)
"""


def test_the_stubs_are_fresh():
    assert stale({stubs.PATH: stubs.stubs()}) == "", "run make docs"


def test_mypy_refuses_wrong_names_of_operators_and_attributes(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "treadle").symlink_to(ROOT)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports", "program.py"]
    environment = {"MYPYPATH": str(tmp_path / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    lines = [line.split(": error: ") for line in done.stdout.splitlines() if ": error: " in line]
    found = {int(place.split(":")[1]): message for place, message in lines}
    assert sorted(found) == [11, 12, 13, 14, 15], done.stdout + done.stderr
    assert 'has no attribute "rellu"; maybe "relu"?' in found[11]
    assert 'Unexpected keyword argument "axes" for "softmax"' in found[12]
    assert 'expected "int"' in found[13]
    assert "Too many positional arguments" in found[14] or "Too many arguments" in found[14]
    assert 'has no attribute "conv_blocked"' in found[15]


def test_editors_are_told_each_operator_of_models_and_no_other():
    declared = {node.name for node in ast.walk(ast.parse(stubs.stubs())) if isinstance(node, ast.FunctionDef)}
    assert declared - {"__getattr__"} == set(dir(op)) - set(EXTENSIONS)
    assert set(dir(op)) | set(dir(op.lowered)) == set(TABLE) | set(FUNCTIONS)


def test_signatures_are_those_of_the_table():
    assert str(inspect.signature(op.softmax)) == "(x, /, *, axis=-1)"
    assert str(inspect.signature(op.concat)) == "(*tensors, axis=0)"
    assert list(inspect.signature(op.conv).parameters)[:3] == ["x", "weight", "bias"]
    assert op.conv.__qualname__ == "op.conv"
