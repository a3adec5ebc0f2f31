"""Listeners see a program run, and can stand in for its primitives."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from treadle.formats.messages.errors import ArgumentError, BudgetExceededError, ExecutionError, TreadleError
from treadle.vm.observe.hooks import CALLS, NO_OP, SKIP_RUN, Instrument, Listener

pytestmark = pytest.mark.usefixtures("no_leak")

PROGRAM = """
prim double(%0: float32[2]) -> float32[2] {
  %1 = add(%0, %0) : float32[2]
  return %1
}

func @main(x: float32[2]) -> float32[2]  refs=4 ints=0 frame=64 {
  frame_tensor r1, float32[2], 0
  call double (r0) -> (r1)  from "Add_0"
  invoke r2, @half (r0)
  alloc_tensor r3, float32[2]
  call double (r1) -> (r3)  from "Add_1"
  ret r3
}

func @half(x: float32[2]) -> float32[2] {
  ret r0
}

func @count(n: int64[]) -> int64[1] {
  read_shape (i0), r0
  load_int i1, 0
again:
  less i2, i1, i0
  if_int i2, done
  add i1, i1, 1
  goto again
done:
  make_shape r1, [i1]
  ret r1
}

func @fail() -> float32[] {
  fatal 0
}
"""
X = np.array([1, 2], np.float32)


class Recorder(Listener):
    def __init__(self, operations: frozenset[str] | None = None) -> None:
        self.operations = operations
        self.events: list[str] = []
        self.errors: list[Exception] = []

    def before(self, event):
        self.events.append(f"{event.function}:{event.operation.name}")

    def after(self, event):
        self.events.append(f"done {event.operation.name}")

    def error(self, failure):
        self.errors.append(failure)


@pytest.fixture
def vm(machine):
    return machine(PROGRAM)


@pytest.mark.parametrize("what", [print, Listener, object()])
def test_what_is_no_listener_is_refused(vm, what):
    with pytest.raises(ArgumentError, match=r"listening: expected a treadle\.Listener"), vm.listening(what):
        pass


def test_what_is_no_instrument_is_refused(vm):
    with pytest.raises(ArgumentError, match="set_instrument: expected a function or None, got a str"):
        vm.set_instrument("print")


@pytest.mark.parametrize("operations", ["call", 3, ["conv"], {"calls"}, {None}])
def test_what_names_no_instructions_is_refused_when_listening_begins(vm, operations):
    recorder = Recorder(operations)
    with pytest.raises(ArgumentError, match=r"Recorder\.operations"), vm.listening(recorder):
        pass
    assert np.array_equal(vm["main"](X), X * 4)
    assert recorder.events == []


def test_an_event_says_what_it_is(vm):
    seen = []

    class Watcher(Listener):
        def after(self, event):
            seen.append((repr(event), event.name))

    with vm.listening(Watcher()):
        vm["main"](X)
    assert seen[0] == ("<Event frame_tensor in main>", "frame_tensor")
    assert seen[1] == ("<Event call double in main from 'Add_0'>", "double")
    assert seen[2] == ("<Event invoke half in main>", "half")


def test_an_event_gives_what_a_call_reads_and_writes(vm):
    seen = []

    class Watcher(Listener):
        operations = CALLS

        def before(self, event):
            seen.append([each.tolist() for each in event.outputs()])

        def after(self, event):
            seen.append([each.tolist() for each in (*event.inputs(), *event.outputs())])

    with vm.listening(Watcher()):
        vm["main"](X)
    assert seen == [[[0, 0]], [[1, 2], [2, 4]], [[0, 0]], [[2, 4], [4, 8]]]


def test_an_event_ends_with_its_listener(vm):
    kept = []

    class Keeper(Listener):
        operations = CALLS

        def after(self, event):
            kept.append(event)

    with vm.listening(Keeper()):
        vm["main"](X)
    assert kept[0].node == "Add_0"
    for ask in (kept[0].outputs, lambda: kept[0].tensor(1), lambda: kept[0].set_tensor(1, X), lambda: kept[0].shape(0)):
        with pytest.raises(ArgumentError, match="is over"):
            ask()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda event: event.registers("output"), "call has no field 'output'.*did you mean outputs"),
        (lambda event: event.tensor("x"), "expected the number of a register.*got a str"),
        (lambda event: event.set_tensor(1, np.zeros(3)), r"r1 is float32\[2\], got shape \[3\]"),
        (lambda event: event.set_tensor(1, "x"), r"r1 is float32\[2\], got a str"),
        (lambda event: event.output, "Event has no attribute 'output'; did you mean outputs"),
    ],
)
def test_what_an_event_cannot_do_is_told(vm, ask, message):
    class Watcher(Listener):
        operations = CALLS

        def before(self, event):
            ask(event)

    with vm.listening(Watcher()), pytest.raises(TreadleError, match=message):
        vm["main"](X)


@pytest.mark.parametrize("given", ["SKIP", 2, X])
def test_what_is_no_action_is_refused(vm, given):
    class Watcher(Listener):
        def before(self, event):
            return given

    with vm.listening(Watcher()), pytest.raises(ArgumentError, match=r"NO_OP.*SKIP_RUN"):
        vm["main"](X)
    vm.set_instrument(lambda *_: given)
    with pytest.raises(ArgumentError, match=r"NO_OP.*SKIP_RUN"):
        vm["main"](X)


def test_every_instruction_is_seen(vm):
    recorder = Recorder()
    with vm.listening(recorder):
        assert np.array_equal(vm["main"](X), X * 4)
    assert [event for event in recorder.events if not event.startswith("done")] == [
        "main:frame_tensor",
        "main:call",
        "main:invoke",
        "half:ret",
        "main:alloc_tensor",
        "main:call",
        "main:ret",
    ]
    vm["main"](X)
    assert len(recorder.events) == 12  # five instructions and two returns; nothing after `listening`


def test_a_listener_hears_only_what_it_asked_for(vm):
    recorder = Recorder(CALLS)
    with vm.listening(recorder):
        vm["main"](X)
    assert recorder.events == ["main:call", "done call"] * 2


def test_events_show_tensors_and_nodes(vm):
    seen = []

    class Watcher(Listener):
        operations = CALLS

        def after(self, event):
            (output,) = event.registers("outputs")
            seen.append((event.node, event.primitive.name, event.tensor(output).tolist()))

    with vm.listening(Watcher()):
        vm["main"](X)
    assert seen == [("Add_0", "double", [2.0, 4.0]), ("Add_1", "double", [4.0, 8.0])]


def test_listeners_hear_errors(vm):
    recorder = Recorder(frozenset())
    with vm.listening(recorder), pytest.raises(ExecutionError):
        vm["fail"]()
    assert "no clause of a match" in str(recorder.errors[0])


def test_steps_are_counted_alike_with_listeners(vm):
    steps = 2 + 4 * 10 + 2 + 2
    with vm.listening(Recorder()):
        assert vm.call("count", (10,), max_steps=steps).item() == 10
        with pytest.raises(BudgetExceededError):
            vm.call("count", (10,), max_steps=steps - 1)


def test_an_exception_of_a_listener_ends_the_call(vm):
    class Broken(Listener):
        def before(self, event):
            raise LookupError("stop here")

    with vm.listening(Broken()), pytest.raises(LookupError, match="stop here"):
        vm["main"](X)
    assert np.array_equal(vm["main"](X), X * 4)


def test_instrument_sees_calls_before_and_after(vm):
    seen = []

    def instrument(primitive, symbol, before_run, result, *tensors):
        seen.append((symbol, before_run, None if result is None else result.tolist(), tensors[0].tolist()))
        return NO_OP

    vm.set_instrument(instrument)
    vm["main"](X)
    vm.set_instrument(None)
    vm["main"](X)
    assert seen == [
        ("double", True, None, [1.0, 2.0]),
        ("double", False, [2.0, 4.0], [1.0, 2.0]),
        ("double", True, None, [2.0, 4.0]),
        ("double", False, [4.0, 8.0], [2.0, 4.0]),
    ]


def test_instrument_can_stand_in_for_a_primitive(vm):
    def instrument(primitive, symbol, before_run, result, *tensors):
        if not before_run:
            return NO_OP
        tensors[-1][:] = 7
        return SKIP_RUN

    vm.set_instrument(instrument)
    assert vm["main"](X).numpy().tolist() == [7.0, 7.0]


IN_PLACE = PROGRAM.replace("call double (r1) -> (r3)", "call double (r1) -> (r1)\n  call double (r1) -> (r3)")


@pytest.mark.parametrize("text", [PROGRAM, IN_PLACE], ids=["own memory", "in place"])
def test_outputs_that_nobody_writes_for_a_skipped_primitive_are_zeros(machine, text):
    vm = machine(text)
    for _ in range(3):
        vm["main"](X)  # leaves memory that is not zero
    vm.set_instrument(lambda primitive, symbol, before_run, *rest: SKIP_RUN if before_run else NO_OP)
    assert vm["main"](X).numpy().tolist() == [0.0, 0.0]


def test_a_listener_that_skips_and_writes_nothing_gives_zeros(machine):
    class Skip(Listener):
        operations = CALLS

        def before(self, event):
            return SKIP_RUN

    vm = machine(PROGRAM)
    for _ in range(3):
        vm["main"](X)
    with vm.listening(Skip()):
        assert vm["main"](X).numpy().tolist() == [0.0, 0.0]


def test_outputs_before_a_run_are_zeros_for_who_looks(vm):
    seen = []

    class Look(Listener):
        operations = CALLS

        def before(self, event):
            seen.extend(event.tensor(register).tolist() for register in event.registers("outputs"))

    for _ in range(3):
        vm["main"](X)
    with vm.listening(Look()):
        vm["main"](X)
    vm.set_instrument(
        lambda primitive, symbol, before_run, result, *tensors: (
            seen.append(tensors[-1].tolist()) if before_run else None
        )
    )
    vm["main"](X)
    assert seen == [[0.0, 0.0]] * 4


def test_a_register_that_holds_no_tensor_is_not_read(vm):
    class Look(Listener):
        operations = frozenset({"ret"})

        def before(self, event):
            for register in (1, 4, -1):
                with pytest.raises(ArgumentError, match=f"r{register} holds no tensor"):
                    event.tensor(register)

    with vm.listening(Look()):
        vm["half"](X)


def test_profile(machine):
    rows = machine(PROGRAM).profile("main", X)
    assert sorted((row.primitive, row.node, row.calls) for row in rows) == [
        ("double", "Add_0", 1),
        ("double", "Add_1", 1),
    ]
    assert rows[0].seconds >= rows[1].seconds > 0


def test_listeners_may_come_and_go_in_any_order(machine):
    """As those of several threads do: who leaves takes nobody else's listener away, and leaves none behind."""
    vm = machine(PROGRAM)
    early, late = Recorder(CALLS), Recorder(CALLS)
    first, second = vm.listening(early), vm.listening(late)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    vm["main"](X)
    assert early.events == []
    assert late.events != []
    heard = len(late.events)
    second.__exit__(None, None, None)
    vm["main"](X)
    assert (early.events, len(late.events)) == ([], heard)


def test_a_profile_tells_of_its_own_call_alone(machine):
    vm = machine(PROGRAM)
    is_over = threading.Event()

    def call() -> None:
        while not is_over.is_set():
            vm["main"](X)

    others = [threading.Thread(target=call) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(20):
            assert [row.calls for row in vm.profile("main", X)] == [1, 1]
    finally:
        is_over.set()
        for other in others:
            other.join()


def test_who_listens_and_the_instrument_leave_each_other_alone(vm):
    """An instrument that goes within `listening` does not come back with its end, and takes no other owner's away."""
    seen, own, other = [], Instrument(lambda *args: seen.append("own")), Recorder(CALLS)
    vm.set_instrument(lambda *args: seen.append("instrument"))
    first, second = vm.listening(own), vm.listening(other)
    first.__enter__()
    second.__enter__()
    vm.set_instrument(None)
    vm["main"](X)
    assert seen == ["own"] * 4
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    heard = len(other.events)
    vm["main"](X)
    assert seen == ["own"] * 4
    assert len(other.events) == heard
