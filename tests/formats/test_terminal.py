"""Names in files are foreign text: a terminal obeys none of it, whatever shows it."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from treadle.formats.messages.calling import warn_user
from treadle.formats.messages.errors import BudgetExceededError, ParseError, TreadleError
from treadle.formats.messages.terminal import shown
from treadle.tools.cli import main
from treadle.tvm.files.relax_program import VOID, RelaxFunction, RelaxProgram, Ret, as_text, statistics

HOSTILE = "a\x1b[2J\x9b31m\x07\r\u202eb\x7f"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@given(st.text())
def test_what_is_shown_has_lines_and_tabs_and_nothing_else_that_is_obeyed(text: str):
    found = shown(text)
    assert not any(unicodedata.category(each) in ("Cc", "Cs") for each in found.replace("\n", "").replace("\t", ""))
    assert shown(found) == found
    assert shown("plain é 名 \n\t") == "plain é 名 \n\t"


def model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", [HOSTILE], ["t"], name=f"n{HOSTILE}"),
        helper.make_node("MatMul", ["t", f"w{HOSTILE}"], [f"y{HOSTILE}"], name=f"m{HOSTILE}"),
    ]
    weight = helper.make_tensor(f"w{HOSTILE}", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in (HOSTILE, f"y{HOSTILE}")]
    graph = helper.make_graph(nodes, f"g{HOSTILE}", ports[:1], ports[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], producer_name=HOSTILE)
    entry = made.metadata_props.add()
    entry.key, entry.value = f"k{HOSTILE}", HOSTILE
    return made


@pytest.fixture(scope="module")
def executable() -> treadle.Executable:
    compiled = treadle.compile(model(), progress=False)
    program = replace(compiled.program, metadata={**compiled.program.metadata, HOSTILE: HOSTILE})
    return treadle.Executable(program, weights=compiled.weights)


@pytest.fixture(scope="module")
def file(executable: treadle.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "m.trdl"
    executable.save(path)
    return path


X = np.ones((2, 2), np.float32)
TEXTS: dict[str, Callable[[treadle.Executable], Any]] = {
    "inputs": lambda exe: exe.inputs(),
    "outputs": lambda exe: exe.outputs()[0],
    "bytecode": lambda exe: exe.bytecode,
    "stats": lambda exe: exe.stats,
    "executable": repr,
    "machine": treadle.VirtualMachine,
    "program": lambda exe: exe.program,
    "primitives": lambda exe: exe.program.primitives,
    "dis": treadle.dis,
    "profile": lambda exe: treadle.VirtualMachine(exe).profile("main", X),
    "profile's table": lambda exe: treadle.VirtualMachine(exe).profile("main", X).table(),
    "statistics": lambda exe: treadle.debug.stats(exe, [X]).table(),
    "difference": lambda exe: treadle.debug.diff(exe, treadle.compile(model(), progress=False)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_for_people_are_shown(name: str, executable: treadle.Executable):
    found = TEXTS[name](executable)
    assert not OBEYED.search(str(found))
    assert not OBEYED.search(repr(found))


@pytest.mark.parametrize("command", ["info", "stats", "dis", "verify", "profile", "run"])
def test_commands_show_names(command: str, file: Path, capsys: pytest.CaptureFixture[str]):
    main([command, str(file)])
    told = capsys.readouterr()
    assert told.out + told.err
    assert not OBEYED.search(told.out + told.err)


def errors(executable: treadle.Executable) -> Iterator[Callable[[], Any]]:
    machine = treadle.VirtualMachine(executable)
    yield lambda: machine["main"](np.ones(3))
    yield lambda: machine[HOSTILE]
    yield lambda: executable.inputs()[HOSTILE + "x"]
    yield lambda: treadle.Executable.from_text(f"func @{HOSTILE}")
    yield lambda: treadle.load(HOSTILE.replace("\0", ""))


def test_errors_show_names(executable: treadle.Executable):
    for act in errors(executable):
        with pytest.raises(TreadleError) as caught:
            act()
        assert not OBEYED.search(str(caught.value) + caught.value.message)
    for error in (
        BudgetExceededError(HOSTILE, budget="steps"),
        ParseError(HOSTILE, line=1, column=1, text=HOSTILE),
        TreadleError("x", node=HOSTILE, function=HOSTILE, section=HOSTILE),
    ):
        assert not OBEYED.search(str(error))


def test_warnings_show_names():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_user(HOSTILE)
    assert not OBEYED.search(str(caught[0].message))


def test_programs_of_tvms_show_names():
    program = RelaxProgram((RelaxFunction(HOSTILE, (), (Ret(VOID),), 0), RelaxFunction(f"f{HOSTILE}")), (HOSTILE,))
    assert not OBEYED.search(as_text(program) + statistics(program))
