"""A kernel of a model is run line by line: from Python, by the command, and in Python's debugger."""

from __future__ import annotations

import importlib
import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle.compiler.operators.table import TABLE
from treadle.compiler.targets.cpu.kernels.own import OWN
from treadle.compiler.targets.emulated.call import Step
from treadle.formats.extensions import EXTENSIONS
from treadle.formats.messages.errors import ArgumentError, UnknownFunctionError
from treadle.native.convention import STOPPED
from treadle.tools.cli import OK, USAGE, main

prange = range
x = treadle.var("x", ("n", 70))
FEEDS = {"x": np.ones((2, 70), np.float32)}


@pytest.fixture(scope="module")
def program() -> treadle.Executable:
    weights = np.arange(70, dtype=np.float32)
    return treadle.compile(treadle.function([x], treadle.op.relu(x + weights)), progress=False, embed_native=False)


@pytest.fixture(scope="module")
def file(program: treadle.Executable, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("step") / "program.trdl"
    program.export_library(path)
    return str(path)


def test_each_line_is_told_with_what_it_assigns(program: treadle.Executable) -> None:
    steps: list[Step] = []
    (name,) = program.lib.names
    ran = treadle.debug.step(program, FEEDS, name, watch=steps.append)
    np.testing.assert_array_equal(ran.outputs[0], np.tile(np.arange(1, 71, dtype=np.float32), (2, 1)))
    lines = program.lib.get_source(name).splitlines()
    assert all(step.text == lines[step.line - 1].strip() for step in steps)
    first = next(step for step in steps if step.text.startswith("vstore("))
    loads = [step for step in steps[: steps.index(first)] if "vload_float32(" in step.text]
    assert loads[-2].values["v0"] == "float32[all 1]"
    assert steps[-1].text == "return 0"


def test_a_kernel_ends_where_no_more_is_wanted(program: treadle.Executable) -> None:
    steps: list[Step] = []

    def watch(step: Step) -> bool:
        steps.append(step)
        return len(steps) < 5

    assert treadle.debug.step(program, FEEDS, program.lib.names[0], watch=watch).code == STOPPED
    assert len(steps) == 5


def test_a_primitive_that_is_not_there_or_not_called(program: treadle.Executable) -> None:
    with pytest.raises(UnknownFunctionError, match="there is no primitive 'rule'"):
        treadle.debug.step(program, FEEDS, "rule")
    with pytest.raises(ArgumentError, match="parts: expected an integer from 1 on, got 0"):
        treadle.debug.step(program, FEEDS, program.lib.names[0], parts=0)
    branch = treadle.compile(
        treadle.function([x], treadle.if_(treadle.op.any(x > 5), treadle.op.exp(x), treadle.op.relu(x))),
        progress=False,
        embed_native=False,
    )
    (name,) = (each for each in branch.lib.names if "exp" in each)
    with pytest.raises(ArgumentError, match=f"does not call '{name}'"):
        treadle.debug.step(branch, FEEDS, name)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Operators that a test defines are gone after it."""
    yield
    for name in list(EXTENSIONS):
        del EXTENSIONS[name], TABLE[name]
        OWN.pop(name, None)


def _racing_kernel(x, out):  # type: ignore[no-untyped-def]
    for row in prange(len(x)):
        out[row] = x[row]
        out[0] = x[row]


@pytest.mark.usefixtures("forgotten")
def test_rounds_of_a_users_kernel_that_depend_on_each_other_are_found() -> None:
    racing = treadle.operator(
        "racing", infer="fn(float32[n]) -> float32[n]", reference=np.copy, inputs="x", kernel=_racing_kernel
    )
    y = treadle.var("y", ("n",))
    program = treadle.compile(treadle.function([y], racing(y)), progress=False, embed_native=False)
    (name,) = program.lib.names
    feeds = {"y": np.ones(9, np.float32)}
    assert treadle.debug.step(program, feeds, name).code == 0
    with pytest.raises(treadle.debug.KernelFaultError, match="a race: it writes byte 0 of output 0") as found:
        treadle.debug.step(program, feeds, name, parts=3)
    assert found.value.text.startswith("store_float32(out")
    assert found.value.variables["out"].startswith("output 0")


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["step", *arguments]) == OK
    return capsys.readouterr().out.splitlines()


def test_the_command_shows_lines(program: treadle.Executable, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (name,) = program.lib.names
    lines = shown(capsys, file, name, "--top", "3")
    assert len(lines) == 4
    assert lines[1].split("#")[0].strip() == "4 words = word(args, 0)"
    assert lines[-1] == "…"
    assert shown(capsys, file, name, "--top", "0")[-1] == "the kernel returns 0"
    assert shown(capsys, file, name, "--break", "5", "--top", "1")[0].startswith("   5 ")
    assert all("v1 = " in line for line in shown(capsys, file, name, "--print", "v1")[:-1])
    steps = json.loads("".join(shown(capsys, file, name, "--top", "2", "--json")))
    assert [step["line"] for step in steps] == [3, 4]
    assert main(["step", file, "rule"]) == USAGE
    assert f"there is {name}" in capsys.readouterr().err


@pytest.mark.parametrize("end", ["c", "q"])
def test_pythons_debugger_is_entered_at_the_first_line(
    program: treadle.Executable,
    file: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"n\nn\nl\np words > 0\n{end}\n"))
    printed = "\n".join(shown(capsys, file, program.lib.names[0], "--pdb"))
    assert "-> stoppable(args)" in printed
    assert "-> words = word(args, 0)" in printed
    assert "def kernel(args, scratch, part, parts):" in printed
    assert "True" in printed


def test_what_is_said_of_a_fault_can_be_sent_to_another_process() -> None:
    fault = treadle.debug.KernelFaultError(
        "reads", kernel="k", line=3, text="a = b", part="0 of 1", variables={"b": "1"}
    )
    again = pickle.loads(pickle.dumps(fault))
    assert str(again) == str(fault) == "kernel 'k', line 3, part 0 of 1: reads\n    3: a = b\n    where b = 1"
    assert again.variables == fault.variables


@pytest.mark.usefixtures("forgotten")
def test_a_kernel_that_fails_is_run_to_the_line_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "beyond_its_rows.py").write_text(
        "import treadle\n"
        "def kernel(x, out):\n"
        "    for row in range(len(x)):\n"
        "        out[row + 1] = x[row]\n"
        "shift = treadle.operator('beyond', infer='fn(float32[n]) -> float32[n]', reference=lambda x: x, kernel=kernel)\n"
    )
    shift = importlib.import_module("beyond_its_rows").shift
    v = treadle.var("v", ("n",))
    made = treadle.compile(treadle.function([v], shift(v)), progress=False, embed_native=False)
    with pytest.raises(IndexError, match=r"`treadle step MODEL beyond`, or treadle\.debug\.step, finds the line"):
        treadle.VirtualMachine(made)["main"](np.ones(3, np.float32))
    made.export_library(tmp_path / "beyond.trdl")
    assert main(["step", str(tmp_path / "beyond.trdl"), "beyond", "--input", "1,2,3", "--top", "0"]) == OK
    assert capsys.readouterr().out.endswith("return 1  # line 3\nthe kernel returns 1: an index is out of range\n")
