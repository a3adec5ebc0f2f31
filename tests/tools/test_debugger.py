"""`treadle debug` in a real terminal, and from a script."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import treadle
from treadle import Module, for_loop, function, op, var, while_loop
from treadle.tools.cli import main

PROMPT = "(treadle) "


def below(i: Any, s: Any) -> Any:
    lower = s * 2.0 - 1.0
    return op.sqrt(lower)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`main` has a NaN in iteration 1 of its loop; `endless` never ends."""
    x, y = var("x", (4,)), var("y", ())
    (looped,) = for_loop(20, below, [x])
    forever = while_loop(lambda v: op.greater(v, -1.0), lambda v: v * 1.0, [y])
    path = tmp_path_factory.mktemp("programs") / "loop.trdl"
    exe = treadle.compile(Module(main=function([x], looped), endless=function([y], forever)), progress=False)
    exe.export_library(path)
    return path


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._end, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "treadle", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C is for it
        )
        os.close(theirs)

    def read(self, until: str = PROMPT, seconds: float = 60) -> str:
        """What is printed up to and with a text."""
        seen, end = "", time.monotonic() + seconds
        while until not in seen:
            ready, _, _ = select.select([self._end], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"no {until!r} in {seen!r}"
            seen += os.read(self._end, 1 << 16).decode()
        return seen

    def do(self, line: str) -> str:
        self.write(line + "\n")
        return self.read()

    def write(self, text: str) -> None:
        os.write(self._end, text.encode())

    def close(self) -> int:
        os.close(self._end)
        return self.process.wait(60)


@pytest.fixture
def terminal(programs: Path) -> Iterator[Any]:
    made: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        made.append(Terminal("debug", str(programs), *arguments))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def test_in_a_terminal_a_nan_is_found_and_gone_back_from(terminal: Any) -> None:
    session = terminal("--input", "x=1,2,3,0.6")
    assert "start at step 0" in session.read()
    session.do("break if any(isnan(x))")
    assert re.search(r"r\d+: float32\[4\] .*nan.*iteration 1 ", session.do("c"), re.DOTALL)
    before = session.do("back")
    assert re.search(r"step at step \d+.*iteration 1 ", before, re.DOTALL)
    assert "0 NaN" in session.do("p r0")
    session.do("set r0 = 1.0")
    assert re.search(r"returned at step \d+: float32\[4\] \[1\.", session.do("c"))
    assert "breakpoint 1" not in session.do("reverse")
    session.write("quit\n")
    assert session.process.wait(60) == 0


def test_control_c_stops_the_call_and_not_the_debugger(terminal: Any) -> None:
    session = terminal("--function", "endless", "--input", "y=1")
    session.read()
    session.write("continue\n")
    session.read("continue")
    time.sleep(0.5)
    session.write("\x03")
    assert "interrupted at step" in session.read()
    assert "step at step" in session.do("back")
    session.write("\x04")  # the end of what is typed
    assert session.process.wait(60) == 0


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["debug", *arguments]) == 0
    return capsys.readouterr().out


def test_a_script_shows_what_it_does(programs: Path, capsys: Any) -> None:
    commands = ["break operator sqrt iteration 3", "c", "p iteration", "q"]
    script = [word for command in commands for word in ("-c", command)]
    said = run(capsys, str(programs), "--input", "x=1,2,3,0.6", *script)
    assert "(treadle) break operator sqrt iteration 3\nbreakpoint 1" in said
    assert "\n(treadle) p iteration\n3\n" in said
    assert said.rstrip().endswith("(treadle) q")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("break nothing", "there is nothing called 'nothing' to stop at"),
        ("break if any(foo(x))", "there is no function 'foo'"),
        ("break if r0 > 1", "a breakpoint needs a place"),
        ("brake", "did you mean break"),
        ("p r99", "main has no register r99"),
        ("p r9[a]", "has no register"),
        ("delete 7", "there is no breakpoint 7"),
        ("goto x", "expected a number from 0 on, got 'x'"),
        ("step -3", "expected a number from 1 on, got '-3'"),
        ("p r0[9]", "[9] of float32[4]: index 9 is out of bounds"),
        ("p", "usage: print NAME"),
        ("break line 3", "to stop at; there are main, "),
        ("registers", "r0  float32[4]"),
        ("up", "there is no frame 1"),
        ("set r0 = any(r0)", ""),
    ],
)
def test_what_is_wrong_is_said_and_the_debugger_goes_on(
    programs: Path, capsys: Any, command: str, message: str
) -> None:
    said = run(capsys, str(programs), "--input", "x=1,2,3,0.6", "-c", command, "-c", "where", "-c", "q")
    assert message in said
    assert "start at step 0" in said.partition("(treadle) where")[2]


def test_a_budget_is_looked_at_afterwards(programs: Path, capsys: Any) -> None:
    arguments = [str(programs), "--function", "endless", "--input", "y=1", "--max-steps", "1000"]
    said = run(capsys, *arguments, "-c", "c", "-c", "frames", "-c", "back", "-c", "q")
    assert "budget: the call took more than 1000 steps; raise max_steps" in said
    assert "step at step 99" in said
