"""A machine's profile: what took how long in one call."""

import sys
import threading

import numpy as np
import pytest
from treadle.formats.messages.errors import ExecutionError
from treadle.vm.observe.hooks import CALLS, Listener
from treadle.vm.observe.profile import Profiler
from treadle.vm.observe.report import Count, Metric, Report

pytestmark = pytest.mark.usefixtures("no_leak")

PROGRAM = """
prim double(%0: float32[n]) -> float32[n] {
  %1 = add(%0, %0) : float32[n]
  return %1
}

func @main(x: float32[n]) -> float32[n]  refs=3 ints=1 {
  shape_of (i0), r0
  alloc_dynamic r1, float32[i0]
  call double (r0) -> (r1) [i0]  from "Add_0"
  alloc_dynamic r2, float32[i0]
  call double (r1) -> (r2) [i0]  from "Add_1"
  ret r2
}

func @fail() -> float32[] {
  fatal 0
}
"""
X = np.array([1, 2, 3], np.float32)


class Recorder(Listener):
    operations = CALLS

    def __init__(self) -> None:
        self.count = 0

    def before(self, event):
        self.count += 1


def test_a_profile_is_a_report(machine) -> None:
    report = machine(PROGRAM).profile("main", X)
    assert [(call["Name"], call["Argument Shapes"]) for call in report.calls] == [
        ("alloc_dynamic", ""),
        ("double", "float32[3], float32[3]"),
        ("alloc_dynamic", ""),
        ("double", "float32[3], float32[3]"),
    ]
    assert all(call["Duration (us)"].microseconds > 0 for call in report.calls)
    assert len({call["Hash"] for call in report.calls if "Hash" in call}) == 1
    assert report.configuration["Executor"] == "VM"
    text = str(report)
    assert all(word in text for word in ("double", "Duration (us)", "Total", "Hash", "Executor: VM"))
    assert Report.from_json(report.json()).table(aggregate=False) == report.table(aggregate=False)


def test_a_loop_that_meets_ever_other_shapes_makes_no_endless_report(machine, monkeypatch) -> None:
    monkeypatch.setattr("treadle.vm.observe.profile._ENTRIES", 2)
    report = machine(PROGRAM).profile("main", X)
    shapes = [(call["Name"], call["Argument Shapes"]) for call in report.calls if call["Name"] == "double"]
    assert shapes == [("double", "float32[3], float32[3]"), ("double", "…")]


def test_a_profile_is_the_places_that_call_primitives(machine) -> None:
    report = machine(PROGRAM).profile("main", X)
    assert sorted((row.primitive, row.node, row.calls) for row in report) == [
        ("double", "Add_0", 1),
        ("double", "Add_1", 1),
    ]
    assert len(report) == 2
    assert report[0].seconds >= report[1].seconds


def test_it_takes_the_inputs_that_are_set(machine) -> None:
    vm = machine(PROGRAM)
    vm.set_input("main", X)
    assert "double" in str(vm.profile("main"))


def test_only_its_own_call_is_slower(machine) -> None:
    """Calls of other threads, and other listeners, are as they were."""
    vm, recorder = machine(PROGRAM), Recorder()
    is_over = threading.Event()

    def call() -> None:
        while not is_over.is_set():
            vm["main"](X)

    other = threading.Thread(target=call)
    other.start()
    try:
        for _ in range(20):
            assert [row.calls for row in vm.profile("main", X)] == [1, 1]
    finally:
        is_over.set()
        other.join()
    with vm.listening(recorder):
        vm.profile("main", X)
    assert recorder.count == 4  # warming up, and the call


def test_a_call_that_fails_leaves_nothing_behind(machine) -> None:
    vm = machine(PROGRAM)
    with pytest.raises(ExecutionError):
        vm.profile("fail")
    assert vm["main"](X).numpy().tolist() == [4, 8, 12]


def test_collectors_measure_besides(machine) -> None:
    class Collector:
        def init(self, devices) -> None:
            self.devices = devices

        def start(self, device) -> int:
            return 3

        def stop(self, started: int) -> dict[str, Metric]:
            return {"Threes": Count(started)}

    collector = Collector()
    report = machine(PROGRAM).profile_with([collector], "main", X)
    assert [call["Threes"] for call in report.calls] == [Count(3)] * 4
    assert [device.kind for device in collector.devices] == ["cpu"]


def test_a_profiler_does_little_at_each_instruction(machine) -> None:
    """What it says of one is made after the call: at the instruction, Python calls a dozen functions, also the first time."""
    text = PROGRAM.replace("float32[n]", "float32[3]").replace("[i0]  from", "from").replace("shape_of (i0), r0\n", "")
    text = text.replace("alloc_dynamic r1, float32[i0]", "alloc_tensor r1, float32[3]")
    vm = machine(text.replace("alloc_dynamic r2, float32[i0]", "alloc_tensor r2, float32[3]"))
    vm["main"](X)

    def calls(listeners: tuple[Listener, ...]) -> int:
        count = 0

        def seen(frame, event: str, argument) -> None:
            nonlocal count
            count += event == "call"

        with vm.listening(*listeners):
            sys.setprofile(seen)
            try:
                vm["main"](X)
            finally:
                sys.setprofile(None)
        return count

    class Elsewhere(Listener):
        """A call that is listened to is prepared by Python, whatever it runs."""

        operations = frozenset({"fatal"})

    instructions = 4
    assert calls((Profiler(),)) - calls((Recorder(),)) <= 6 * instructions
    assert calls((Recorder(),)) - calls((Elsewhere(),)) <= 20 * instructions
