"""Errors, listeners and profiles say in which iterations of which loops, and in which nested call, something happened."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import (
    Listener,
    Module,
    TensorType,
    VirtualMachine,
    constant,
    for_loop,
    function,
    global_function,
    if_,
    import_,
    op,
    var,
    while_loop,
)
from treadle.errors import BudgetExceededError, IndexOutOfRangeError, TreadleError
from treadle.rpc.wire import error_of_wire, error_to_wire
from treadle.vm.layout import CONTEXT

FILE, NUMBER = "test_iterations.py", TensorType("int64")
TABLE = constant(np.arange(7, dtype=np.float32))
ONE = np.float32(1)


def line_of(text: str) -> str:
    """The line of this file that holds a text, as programs name it."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{FILE}:{next(number for number, line in enumerate(lines, 1) if text in line)}"


def nested(i: Any, s: Any) -> Any:
    def body(j: Any, t: Any) -> Any:
        return t + op.take(TABLE, i * 3 + j, axis=0)

    return for_loop(3, body, [s])[0]  # inner


def halving(x: Any) -> Any:
    def body(a: Any) -> Any:
        return a / 2.0 + op.take(TABLE, op.cast(a, dtype="int64"), axis=0)

    (found,) = while_loop(lambda a: op.less(0.0, a), body, [x])
    return found


@pytest.fixture(scope="module")
def machine() -> VirtualMachine:
    """nested: index 7 in the second round of the third; halving: indices grow; down: a recursion that ends at an index of -9."""
    x, n, number = var("x", ()), var("n", NUMBER), var("number", NUMBER)
    down = global_function("down")
    deeper = if_(n < -8, op.take(TABLE, n, axis=0), 1.0 + down(n - 1))
    return VirtualMachine(
        treadle.compile(
            Module(
                nested=function([x], for_loop(5, nested, [x])[0]),  # outer
                halving=function([x], halving(x)),
                down=function([n], deeper, result_type=TensorType("float32")),
                fails=function([number], down(number)),
            ),
            entry=None,
            progress=False,
        )
    )


INNER, OUTER = f"loop at {line_of('# inner')}", f"loop at {line_of('# outer')}"


def failure(machine: VirtualMachine, name: str, *args: Any, **bounds: Any) -> TreadleError:
    with pytest.raises(TreadleError) as caught:
        machine.call(name, args, **bounds)
    return caught.value


def test_an_error_names_each_level_of_nested_loops(machine: VirtualMachine) -> None:
    with pytest.raises(IndexOutOfRangeError) as caught:
        machine["nested"](ONE)
    assert caught.value.iterations == f"{INNER}, iteration 1, in {OUTER}, iteration 2"
    assert str(caught.value).endswith(f", {caught.value.iterations}]")


def test_all_ways_to_call_name_the_same_iteration(machine: VirtualMachine) -> None:
    expected = str(failure(machine, "nested", ONE))
    for bounds in ({"max_seconds": 10.0}, {"threads": 1}, {"max_steps": 10_000}):
        assert str(failure(machine, "nested", ONE, **bounds)) == expected
    with machine.listening(Listener()):
        assert str(failure(machine, "nested", ONE)) == expected
    assert str(failure(machine, "nested", 1.0)) == expected  # no array


def test_an_error_in_a_while_loop_names_its_iteration(machine: VirtualMachine) -> None:
    error = failure(machine, "halving", np.float32(6))
    values, rounds = 6.0, 0
    while int(values) < 7:
        values, rounds = values / 2 + int(values), rounds + 1
    assert error.iterations == f"loop at {line_of('(found,) = while')}, iteration {rounds}"


def test_loops_of_callers_are_named_too() -> None:
    """A function with a loop calls itself, from a loop."""
    n, s, again = var("n", NUMBER), var("s", ()), global_function("again")

    def body(j: Any, t: Any, n: Any) -> Any:
        return t + op.take(TABLE, j * 3 + n * 2, axis=0)

    deeper = again(n - 1, for_loop(2, lambda j, t: body(j, t, n), [s])[0]) + 1.0
    program = Module(
        again=function([n, s], if_(n < 1, s, deeper), result_type=TensorType("float32")),
        main=function([s], for_loop(4, lambda i, t: again(i, t), [s])[0]),
    )
    machine = VirtualMachine(treadle.compile(program, progress=False))
    error = failure(machine, "main", ONE)
    assert error.iterations is not None
    assert [part[-1] for part in error.iterations.split(", in ")] == ["1", "2"]
    with machine.listening(seen := _Seen()):
        failure(machine, "main", ONE)
    assert seen.rounds == [(0, 1), (1, 1), (0, 2)]
    assert seen.depths == [2] * 3


def test_a_budget_of_steps_names_the_iteration_that_the_debugger_shows(machine: VirtualMachine) -> None:
    with machine.debug("nested", [ONE]) as session:
        for steps in (10, 25, 40, 60):
            error = failure(machine, "nested", ONE, max_steps=steps)
            assert isinstance(error, BudgetExceededError)
            frame = session.goto(steps).frame
            assert frame is not None
            assert error.iterations == (frame.iterations or None)


def test_an_error_in_a_recursion_names_the_depth(machine: VirtualMachine) -> None:
    error = failure(machine, "fails", np.int64(0))
    assert error.depth is not None
    assert f"call depth {error.depth}" in str(error)
    assert failure(machine, "fails", np.int64(-4)).depth == error.depth - 4
    assert failure(machine, "nested", ONE).depth is None  # no recursion


def test_calls_of_many_threads_count_for_themselves(machine: VirtualMachine) -> None:
    errors: list[str | None] = []
    with machine.listening(Listener()):
        threads = [
            threading.Thread(target=lambda: errors.append(failure(machine, "nested", ONE).iterations)) for _ in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert errors == [f"{INNER}, iteration 1, in {OUTER}, iteration 2"] * 4


class _Seen(Listener):
    operations = frozenset({"call"})

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[tuple[int, ...]] = []
        self.depths: list[int] = []

    def after(self, event: treadle.vm.observe.hooks.Event) -> None:
        if event.primitive is not None and any(each.operator == "take" for each in event.primitive.definition.nodes):
            self.rounds.append(tuple(each.iteration for each in event.rounds))
            self.depths.append(event.depth)


def test_a_listener_is_told_of_the_iterations(machine: VirtualMachine) -> None:
    with machine.listening(seen := _Seen()):
        for _ in range(2):  # each call counts from 0
            failure(machine, "nested", ONE)
    assert seen.rounds == [(j, i) for i in range(3) for j in range(3)][:7] * 2


def test_a_listener_sees_all_of_a_loop_behind_another(machine: VirtualMachine) -> None:
    with machine.listening(seen := _Seen()):
        failure(machine, "halving", np.float32(6))
    assert seen.rounds == [(k,) for k in range(len(seen.rounds))]
    assert set(seen.depths) == {1}


def test_a_profile_says_in_which_iteration_a_place_took_longest(machine: VirtualMachine) -> None:
    x = var("x", ())
    report = VirtualMachine(
        treadle.compile(Module(main=function([x], for_loop(3, lambda i, s: op.tanh(s + 1.0), [x])[0])), progress=False)
    ).profile("main", ONE)
    (call,) = [each for each in report.calls if "tanh" in str(each["Name"])]
    assert str(call["Longest in"]).startswith(f"loop at {FILE}:")
    assert "Longest in" in report.table()
    assert "Longest in" in report.csv()


def loop_of_imports(given: Any) -> VirtualMachine:
    x = var("x", (2,))
    draw = import_("draw", "fn(float32[2]) -> float32[2]")

    def body(i: Any, s: Any) -> Any:
        return s + op.take(TABLE, op.cast(draw(s), dtype="int64"), axis=0)

    program = Module(main=function([x], for_loop(9, body, [x])[0]))
    return VirtualMachine(treadle.compile(program, progress=False), imports={"draw": given})


@pytest.fixture
def counted() -> list[Any]:
    return []


def test_no_import_is_called_twice_to_find_an_iteration(counted: list[Any]) -> None:
    def draw(x: Any) -> Any:
        counted.append(x)
        return np.full(2, 2 * len(counted), np.float32)

    machine = loop_of_imports(draw)
    error = failure(machine, "main", np.ones(2, np.float32))
    assert len(counted) == 4
    assert error.iterations is None
    counted.clear()
    with machine.listening(Listener()):
        observed = failure(machine, "main", np.ones(2, np.float32))
    assert observed.iterations is not None
    assert observed.iterations.endswith("iteration 3")


def test_what_an_import_raises_is_noted_with_the_iteration(counted: list[Any]) -> None:
    def draw(x: Any) -> Any:
        counted.append(x)
        return np.zeros(2, np.float32) if len(counted) < 3 else 1 / 0

    machine = loop_of_imports(draw)
    with machine.listening(Listener()), pytest.raises(ZeroDivisionError) as caught:
        machine["main"](np.ones(2, np.float32))
    assert caught.value.__notes__[0].endswith("iteration 2")  # type: ignore[attr-defined]


def test_a_call_of_a_program_that_draws_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = var("x", (2,))

    def body(i: Any, s: Any) -> Any:
        return s + op.random_uniform(shape=(2,)) + op.take(TABLE, i * 3, axis=0)

    with pytest.warns(UserWarning, match="the host evaluates"):
        executable = treadle.compile(Module(main=function([x], for_loop(9, body, [x])[0])), progress=False)
    machine = VirtualMachine(executable)
    assert failure(machine, "main", np.ones(2, np.float32)).iterations is None
    with machine.debug("main", [np.ones(2, np.float32)]) as session:
        stop = session.resume()
        assert stop.error is not None
        assert getattr(stop.error, "iterations", "").endswith("iteration 3")


def test_a_call_that_nobody_observes_runs_the_program_itself(machine: VirtualMachine) -> None:
    failure(machine, "nested", ONE)
    calls = machine._calls
    assert calls.hooked is None
    assert calls._idle
    for context in calls._idle:
        assert context.rounds is None
        assert context.words[CONTEXT.CODE] == calls.image.code.ctypes.data


def test_an_error_keeps_its_iterations_in_other_processes(machine: VirtualMachine) -> None:
    error = failure(machine, "nested", ONE)
    for other in (pickle.loads(pickle.dumps(error)), error_of_wire(error_to_wire(error))):
        assert (str(other), other.iterations) == (str(error), error.iterations)
