"""A machine's memory is freed when the last reference to it goes, whatever it was used for; Python's collector is off."""

from __future__ import annotations

import contextlib
import gc
import json
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import ChecksumError, TreadleError
from treadle.formats.text.assembly import parse_assembly
from treadle.tvm.graphs.executor import GraphExecutor
from treadle.vm.budgets import CancelToken
from treadle.vm.context import live_bytes
from treadle.vm.machine import VirtualMachine
from treadle.vm.observe.hooks import Listener

from ..formats.graphs import call, document, parameter

TEXT = """
prim double[n](%0: float32[n]) -> float32[n] {
  %1 = add(%0, %0) : float32[n]
  return %1
}

prim static(%0: float32[2]) -> float32[2] {
  %1 = add(%0, %0) : float32[2]
  return %1
}

prim gather[n](%0: float32[n], %1: int64[1]) -> float32[1] {
  %2 = take(%0, %1) {axis=0} : float32[1]
  return %2
}

data Box = Empty | Full(float32[?])

import host: fn(float32[n]) -> float32[n]

func @main(x: float32[n]) -> float32[?] {
  shape_of (i0), r0
  alloc_dynamic r1, float32, [i0]
  call double (r0) -> (r1) [i0]
  ret r1
}

func @gather(x: float32[n], i: int64[1]) -> float32[1] {
  shape_of (i0), r0
  alloc_tensor r2, float32[1]
  call gather (r0, r1) -> (r2) [i0]
  ret r2
}

func @static(x: float32[2]) -> float32[2] {
  alloc_tensor r1, float32[2]
  call static (r0) -> (r1)
  ret r1
}

func @pair(x: float32[n]) -> (float32[?], float32[?]) {
  alloc_data r1, (float32[?], float32[?]), 0 (r0, r0)
  ret r1
}

func @box(x: float32[n]) -> Box {
  alloc_data r1, Box, 1 (r0)
  ret r1
}

func @keep(x: float32[n]) -> fn() -> float32[?] {
  alloc_closure r1, @kept (r0)
  ret r1
}

func @kept() captures (x: float32[n]) -> float32[?] {
  ret r0
}

func @imported(x: float32[n]) -> float32[n] {
  call_import r1, host (r0)
  ret r1
}

func @endless(x: float32[n]) -> float32[n] {
again:
  goto again
}
"""
X = np.arange(100_000, dtype=np.float32)


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def failing(vm: VirtualMachine, *args: Any, **kwargs: Any) -> None:
    with contextlib.suppress(TreadleError, ZeroDivisionError):
        vm.call(*args, **kwargs)
        raise AssertionError("the call is to fail")


def cancelled(vm: VirtualMachine) -> None:
    token = CancelToken()
    token.cancel()
    failing(vm, "endless", [X], cancel=token)


def stateful(vm: VirtualMachine) -> None:
    vm.set_input("main", X)
    vm.invoke_stateful("main")
    vm.get_outputs()
    vm.save_function("main", "saved", X)
    vm["saved"]()
    vm.call("saved", None)


def listened(vm: VirtualMachine) -> None:
    with vm.listening(Listener()):
        vm["main"](X)
    vm.set_instrument(lambda *_: None)
    vm["main"](X)


USES: dict[str, Callable[[VirtualMachine], Any]] = {
    "nothing": lambda vm: None,
    "a call": lambda vm: vm["main"](X),
    "a call by name": lambda vm: vm.invoke("main", x=X),
    "a call with a bound": lambda vm: vm.call("main", [X], max_seconds=60, max_memory=1 << 30),
    "a call of a tuple": lambda vm: vm["pair"](X),
    "a data value": lambda vm: vm["box"](X).fields,
    "a closure": lambda vm: (vm["keep"](X)(), vm.invoke_closure(vm["keep"](X))),
    "an import": lambda vm: vm["imported"](X),
    "a bound call": lambda vm: vm.bind("static", [X[:2]], [np.empty(2, np.float32)])(),
    "stateful calls": stateful,
    "listeners": listened,
    "a profile": lambda vm: vm.profile("main", X),
    "a wrong argument": lambda vm: failing(vm, "main", [3.5]),
    "an operator that fails": lambda vm: failing(vm, "gather", [X, np.array([1 << 40])]),
    "an operator that fails on a thread": lambda vm: failing(vm, "gather", [X, np.array([1 << 40])], max_seconds=60),
    "an import that fails": lambda vm: failing(vm, "imported", [X[:0]]),
    "too much memory": lambda vm: failing(vm, "main", [X], max_memory=1000),
    "too many steps": lambda vm: failing(vm, "endless", [X], max_steps=1000),
    "a deadline": lambda vm: failing(vm, "endless", [X], max_seconds=0.05),
    "cancellation": cancelled,
}


def host(x: Any) -> Any:
    1 / len(x)
    return x


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_a_machine_is_gone_with_its_last_reference(machine, use):
    before = live_bytes()
    vm = machine(TEXT, imports={"host": host})
    image = weakref.ref(vm._calls.image)
    parts = [weakref.ref(vm), weakref.ref(vm._calls), weakref.ref(vm.executable.program)]
    use(vm)
    del vm
    assert [part() for part in parts] == [None] * 3
    assert image() is None  # on which no thread and no error holds on
    assert live_bytes() == before


HELD: dict[str, tuple[Callable[[VirtualMachine], Any], Callable[[Any], Any]]] = {
    "a callable": (lambda vm: vm["main"], lambda held: held(X)),
    "a saved call": (lambda vm: vm.saved_call("main", X), lambda held: held()),
    "a closure": (lambda vm: vm["keep"](X), lambda held: held()),
    "a data value": (lambda vm: vm["box"](X), lambda held: held.fields[0]),
    "a result": (lambda vm: vm["main"](X), lambda held: held.numpy()),
}


@pytest.mark.parametrize(("make", "use"), HELD.values(), ids=list(HELD))
def test_what_a_machine_gave_works_without_it_and_keeps_it_no_longer_than_itself(machine, make, use):
    before = live_bytes()
    vm = machine(TEXT, imports={"host": host})
    calls = weakref.ref(vm._calls)
    held = make(vm)
    del vm
    use(held)
    del held
    assert calls() is None
    assert live_bytes() == before


@pytest.mark.parametrize("options", [{}, {"imports": {"host": 3}}, {"max_build_seconds": -1}], ids=str)
def test_a_machine_that_could_not_be_made_is_gone_with_its_error(options):
    executable = Executable(parse_assembly(TEXT))
    program = weakref.ref(executable.program)
    with pytest.raises(TreadleError):
        VirtualMachine(executable, **options)
    del executable
    assert program() is None


def test_a_machine_whose_constants_are_wrong_is_gone_with_its_error(machine, monkeypatch):
    def check(self):
        raise ChecksumError("the constants are others")

    monkeypatch.setattr(Executable, "check_constants", check)
    executable = Executable(parse_assembly("func @main(x: float32[n]) -> float32[n] {\n  ret r0\n}"))
    program = weakref.ref(executable.program)
    with pytest.raises(ChecksumError):
        VirtualMachine(executable)
    del executable
    assert program() is None


def test_a_graph_executor_is_gone_with_its_last_reference():
    nodes = [parameter("x"), call("twice", "double", [[0, 0]]), call("user", "user", [[1, 0]])]
    graph = json.dumps(document(nodes, [[1, 0], [2, 0], [0, 0]], [[2], [2], [2]]))
    text = TEXT[: TEXT.index("prim gather")].replace("double[n]", "double").replace("float32[n]", "float32[2]")
    executor = GraphExecutor(
        graph, Executable(parse_assembly(text)), find={"user": lambda x, out: np.copyto(out.array, x.array)}.get
    )
    machine = weakref.ref(executor._machine)
    executor.set_input("x", X[:2])
    executor.set_output_zero_copy(2, np.empty(2, np.float32))  # of a parameter: it is copied after each run
    executor.run()
    executor["get_output"](0)
    executor.benchmark(repeat=1, number=1)
    gone = weakref.ref(executor)
    del executor
    assert gone() is None
    assert machine() is None
