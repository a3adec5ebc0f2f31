"""A call goes back: wherever it has been, it is again as it was, and goes on as it did."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import Module, for_loop, function, import_, op, var
from treadle.debug.debugger import timeline
from treadle.debug.debugger.session import Session
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import ExecutionError
from treadle.formats.text.assembly import parse_assembly
from treadle.vm.machine import VirtualMachine
from treadle.vm.observe.hooks import Listener

from ...timing import soon
from ...vm.test_instructions import EXAMPLES, IMPORTS, plain


class Count(Listener):
    """Counts instructions."""

    def __init__(self) -> None:
        self.steps = 0

    def before(self, event: Any) -> None:
        self.steps += 1


def held(session: Session) -> list[Any]:
    """All that a state shows: frames, registers, and fields to some depth."""

    def inside(name: str, level: int, path: tuple[int, ...]) -> list[Any]:
        fields = session.fields(name, path, level)
        return [(each, inside(name, level, (*path, at)) if len(path) < 3 else 0) for at, each in enumerate(fields)]

    def registers(level: int) -> list[Any]:
        found = session.registers(level)
        return [(each, inside(each.name, level, ()) if each.name[0] == "r" else 0) for each in found]

    return [(frame, registers(frame.level)) for frame in session.frames()]


def check(machine: VirtualMachine, name: str, arguments: list[Any], wanted: Any) -> None:
    """Goes forward by single instructions, then to times in any order: the states are the same each time."""
    with machine.debug(name, arguments) as session:
        states = [held(session)]
        while (stop := session.instruction()).reason == "step" and len(states) < 300:
            states.append(held(session))
            assert stop.time == len(states) - 1
        if stop.reason == "returned":
            assert plain(session.result) == wanted
        rng = random.Random(0)
        for time in rng.sample(range(len(states)), min(len(states), 12)):
            session.goto(time)
            assert held(session) == states[time], f"at {time}"
        end = session.resume()
        assert end.reason == ("returned" if stop.reason == "step" else stop.reason)
        if end.reason == "returned":
            assert plain(session.result) == wanted
        back = session.instruction(back=True)
        assert back.time == max(0, end.time - 1)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot at each opportunity."""
    monkeypatch.setattr(timeline, "SPACING", 0)
    monkeypatch.setattr(timeline, "SHARE", 0)


@pytest.mark.parametrize(("path", "name", "arguments", "kind", "outcome"), EXAMPLES)
def test_every_instruction_goes_back(
    always: None, no_leak: None, path: Path, name: str, arguments: str, kind: str, outcome: str
) -> None:
    machine = VirtualMachine(Executable(parse_assembly(path.read_text())), imports=IMPORTS, kernels="cached")
    values = list(ast.literal_eval(f"({arguments},)" if arguments else "()"))
    wanted = None if kind != "=" or outcome == "closure" else ast.literal_eval(outcome)
    check(machine, name, values, "closure" if outcome == "closure" else wanted)


PROGRAMS = Path(__file__).parents[2] / "vm" / "programs"


@pytest.mark.parametrize(
    ("file", "name", "arguments", "wanted"),
    [
        ("storage", "main", [np.float32([1, 2, 3])], None),
        ("lists", "main", [np.float32(5)], 15.0),
        ("loop", "main", [7], None),
        ("closures", "main", [np.float32([1, 2, 3])] * 2, None),
    ],
)
def test_programs_go_back(always: None, no_leak: None, file: str, name: str, arguments: list[Any], wanted: Any) -> None:
    machine = VirtualMachine(Executable(parse_assembly((PROGRAMS / f"{file}.tasm").read_text())), kernels="cached")
    check(machine, name, arguments, plain(machine[name](*arguments)) if wanted is None else wanted)


VECTOR = "float32[4]"


@pytest.fixture(scope="module")
def unsteady() -> treadle.Executable:
    """A program that draws, and whose import gives other numbers each time, in nested loops."""
    x, given = var("x", (4,)), import_("given", f"fn({VECTOR}) -> {VECTOR}")
    inner = lambda j, t: (op.sin(t) + given(t),)  # noqa: E731
    (looped,) = for_loop(3, lambda i, s: for_loop(4, inner, [s]), [x])
    return treadle.compile(Module(main=function([x], looped + op.random_normal(shape=(4,)))), progress=False)


def test_draws_and_imports_are_the_same_the_second_time(
    always: None, no_leak: None, unsteady: treadle.Executable
) -> None:
    rng = np.random.default_rng()
    calls: list[np.ndarray] = []

    def given(x: Any) -> np.ndarray:
        calls.append(rng.standard_normal(4).astype(np.float32))
        return calls[-1]

    machine = VirtualMachine(unsteady, imports={"given": given})
    with machine.debug("main", [np.ones(4, np.float32)]) as session:
        first = session.resume()
        result = session.result.numpy()
        assert first.reason == "returned"
        assert len(calls) == 12
        for time in (0, first.time // 2, 3, first.time - 1):
            session.goto(time)
            session.resume()
            assert session.result.numpy().tobytes() == result.tobytes()
        assert len(calls) == 12
        session.goto(0)
        session.set("x", 2.0)
        session.resume()
        assert len(calls) == 24  # what was to come is made anew
        assert session.result.numpy().tobytes() != result.tobytes()


def test_the_rounds_of_nested_loops_are_counted(always: None, unsteady: treadle.Executable) -> None:
    machine = VirtualMachine(unsteady, imports={"given": lambda x: x.numpy()})

    def rounds(back: bool) -> list[tuple[int, ...]]:
        seen: dict[tuple[int, ...], None] = {}
        while (stop := session.resume(back)).reason == "breakpoint":
            assert stop.made is not None
            seen[tuple(each.iteration for each in stop.made.rounds[::-1])] = None
        return [each for each in seen if len(each) == 2]

    with machine.debug("main", [np.ones(4, np.float32)]) as session:
        session.break_at(when="all(x == x)")
        forward = rounds(back=False)
        assert forward == [(i, j) for i in range(4) for j in range(5) if (i, j) != (3, 0) and i < 3]
        assert rounds(back=True) == forward[::-1]


def test_times_are_the_steps_of_budgets() -> None:
    text = (PROGRAMS / "loop.tasm").read_text()
    machine = VirtualMachine(Executable(parse_assembly(text)), kernels="cached")
    count = Count()
    with machine.listening(count):
        machine["main"](7)
    with machine.debug("main", [7]) as session:
        assert session.resume().time == count.steps
    with machine.debug("main", [7], max_steps=10) as session:
        stop = session.resume()
        assert (stop.reason, stop.time, stop.error.budget) == ("budget", 10, "steps")
        assert session.frames()
        assert session.step(back=True).time < 10
        assert session.resume().reason == "budget"


def test_control_c_leaves_a_session_that_goes_on(unsteady: treadle.Executable) -> None:
    """As Python raises it: in the middle of anything."""
    calls: list[int] = []

    def given(x: Any) -> np.ndarray:
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return x.numpy()

    with VirtualMachine(unsteady, imports={"given": given}).debug("main", [np.ones(4, np.float32)]) as session:
        with pytest.raises(KeyboardInterrupt):
            session.resume()
        held(session)
        assert session.resume().reason == "returned"
        assert len(calls) == 13


def test_a_call_that_is_interrupted_stops_and_goes_on(unsteady: treadle.Executable) -> None:
    machine = VirtualMachine(unsteady, imports={"given": lambda x: (session.interrupt(), x.numpy())[1]})
    with machine.debug("main", [np.ones(4, np.float32)]) as session:
        assert session.resume().reason == "interrupted"
        held(session)
        reasons = [session.resume().reason for _ in range(12)]
        assert reasons == ["interrupted"] * 11 + ["returned"]


def test_a_closed_session_says_so() -> None:
    machine = VirtualMachine(Executable(parse_assembly((PROGRAMS / "loop.tasm").read_text())), kernels="cached")
    session = machine.debug("main", [7])
    session.close()
    session.close()
    with pytest.raises(ExecutionError, match="this debugger is closed"):
        session.step()


def test_a_step_back_takes_what_the_last_hundredths_of_a_second_did() -> None:
    machine = VirtualMachine(Executable(parse_assembly((PROGRAMS / "loop.tasm").read_text())), kernels="cached")
    with machine.debug("main", [20_000]) as session:
        end = session.resume().time
        assert len(session._timeline._states) > 3
        session.goto(end - 1)
        with soon(0.5):  # 15 ms on a quiet machine
            for time in range(2, 7):
                assert session.instruction(back=True).time == end - time


def test_an_import_that_raises_does_so_again_once_noted(unsteady: treadle.Executable) -> None:
    def given(x: Any) -> Any:
        raise ValueError("no")

    with VirtualMachine(unsteady, imports={"given": given}).debug("main", [np.ones(4, np.float32)]) as session:
        for _ in range(3):
            stop = session.resume()
            assert (stop.reason, str(stop.error)) == ("error", "no")
            assert len(stop.error.__notes__) == 1
            assert session.frames()[0].instruction.startswith("call_import")
            session.goto(0)
