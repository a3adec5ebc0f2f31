"""Bounds of a call: steps, seconds, memory, depth, cancellation, Ctrl-C. The machine is usable after each."""

from __future__ import annotations

import _thread
import gc
import re
import signal
import threading
import time

import numpy as np
import pytest
import treadle
from treadle.formats.messages.errors import ArgumentError, BudgetExceededError, CancelledError, OutOfMemoryError
from treadle.vm.budgets import CancelToken
from treadle.vm.context import live_bytes
from treadle.vm.convert import Results

pytestmark = pytest.mark.usefixtures("no_leak")

PROGRAM = """
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

func @spin() -> int64[1] {
again:
  make_shape r0, [1, 2, 3]
  goto again
}

func @depth(n: int64[]) -> int64[1] {
  read_shape (i0), r0
  if_int i0, bottom
  subtract i0, i0, 1
  make_shape r1, [i0]
  reshape r1, r1, []
  invoke r1, @depth (r1)
  read_shape (i0), r1
  add i0, i0, 1
bottom:
  make_shape r1, [i0]
  ret r1
}

func @hoard(n: int64[]) -> int64[] {
  read_shape (i0), r0
  alloc_dynamic r1, int8, [i0]
  ret r0
}

func @grow() -> int64[] {
  alloc_tensor r0, int64[1000]
  invoke r1, @grow ()
  ret r1
}

func @framed() -> int64[]  refs=2 ints=0 frame=4096 {
  frame_tensor r0, int8[4096], 0
  invoke r1, @framed ()
  ret r1
}
"""


@pytest.fixture
def vm(machine):
    return machine(PROGRAM)


def check(vm) -> None:
    """The machine is as good as new."""
    assert vm["count"](10).item() == 10


def test_steps_are_exact(vm):
    steps = 2 + 4 * 10 + 2 + 2
    assert vm.call("count", (10,), max_steps=steps).item() == 10
    with pytest.raises(BudgetExceededError, match="more than 45 steps; raise max_steps") as raised:
        vm.call("count", (10,), max_steps=steps - 1)
    assert raised.value.budget == "steps"
    assert raised.value.function == "count"
    check(vm)


def test_many_slices_of_steps(vm):
    steps = 2 + 4 * 1_000_000 + 2 + 2
    assert vm.call("count", (1_000_000,), max_steps=steps).item() == 1_000_000
    with pytest.raises(BudgetExceededError):
        vm.call("count", (1_000_000,), max_steps=steps - 1)


def test_no_steps_at_all(vm):
    with pytest.raises(BudgetExceededError):
        vm.call("count", (1,), max_steps=0)


@pytest.mark.serial
def test_seconds(vm):
    start = time.monotonic()
    with pytest.raises(BudgetExceededError, match=r"more than 0\.05 s"):
        vm.call("spin", max_seconds=0.05)
    assert time.monotonic() - start < 2
    check(vm)


def test_memory(vm):
    assert vm.call("hoard", (1000,), max_memory=1 << 20).item() == 1000
    with pytest.raises(BudgetExceededError, match="raise max_memory") as raised:
        vm.call("hoard", (2 << 20,), max_memory=1 << 20)
    assert raised.value.budget == "memory"
    check(vm)


@pytest.mark.parametrize("name", ["grow", "framed"])
def test_memory_of_a_recursion(vm, name):
    with pytest.raises(BudgetExceededError) as raised:
        vm.call(name, max_memory=10 << 20)
    assert raised.value.budget == "memory"
    check(vm)


def test_arguments_count_as_memory(machine):
    vm = machine("func @main(x: int8[n]) -> int8[?] {\n  ret r0\n}")
    with pytest.raises(BudgetExceededError, match=r"main\(x\): it does not fit"):
        vm.call("main", (np.zeros(1 << 20, np.int8),), max_memory=1 << 19)


@pytest.mark.parametrize("name", ["max_steps", "max_seconds", "max_memory", "max_depth"])
def test_a_bound_is_a_number_that_is_not_negative(vm, name):
    for given in ("1GB", -1, True, float("nan"), [1], *((1.5, float("inf")) if name != "max_seconds" else ())):
        with pytest.raises(ArgumentError, match=f"{name}=.*expected a"):
            vm.call("depth", (1,), **{name: given})
    for given in (1e6, np.int64(1_000_000), np.float32(1e6), 1 << 63, 1 << 70, 1e300, None):
        assert vm.call("depth", (1,), **{name: given}).item() == 1


def test_what_is_no_token_is_refused(vm):
    for given in (threading.Event(), lambda: True, 1):
        with pytest.raises(ArgumentError, match=r"cancel: expected a treadle\.CancelToken"):
            vm.call("depth", (1,), cancel=given)


def test_a_machine_tells_its_bounds_and_keeps_them(machine):
    vm = machine(PROGRAM, max_seconds=2, max_memory=1 << 30)
    assert (vm.max_seconds, vm.max_memory, vm.max_steps) == (2, 1 << 30, None)
    with pytest.raises(ArgumentError, match=r"machine\.call\(name, arguments, max_seconds=…\)"):
        vm.max_seconds = 3


def test_a_bound_given_to_a_function_says_where_it_belongs(vm):
    for name in ("max_seconds", "cancel"):
        with pytest.raises(ArgumentError, match=rf"machine\.call\('depth', \[n\], {name}=…\)"):
            vm["depth"](1, **{name: 1})
    with pytest.raises(ArgumentError, match=r"profile_call: 'max_second' is not a parameter.*did you mean max_seconds"):
        vm.profile_call("depth", (1,), max_second=1)


def test_a_token_says_what_it_is():
    token = CancelToken()
    assert repr(token) == "<CancelToken: not cancelled>"
    token.cancel()
    assert repr(token) == "<CancelToken: cancelled>"


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3, 4), (1000,)])
def test_what_an_argument_and_the_first_frame_take_is_the_least_budget_that_they_fit_into(machine, shape):
    vm = machine("func @main(x: int8[*]) -> int8[*] {\n  ret r0\n}".replace("*", ", ".join("abcd"[: len(shape)])))
    with pytest.raises(BudgetExceededError, match=r"takes \d+ bytes, 8 are left") as raised:
        vm.call("main", (np.zeros(shape, np.int8),), max_memory=8)
    takes = int(re.findall(r"takes (\d+)", str(raised.value))[0])
    with pytest.raises(BudgetExceededError, match=rf"takes {takes} bytes, {takes - 1} are left"):
        vm.call("main", (np.zeros(shape, np.int8),), max_memory=takes - 1)
    with pytest.raises(BudgetExceededError, match="the first frame takes") as raised:  # the next thing
        vm.call("main", (np.zeros(shape, np.int8),), max_memory=takes)
    takes += int(re.findall(r"takes (\d+)", str(raised.value))[0])
    with pytest.raises(BudgetExceededError, match="the first frame takes"):
        vm.call("main", (np.zeros(shape, np.int8),), max_memory=takes - 1)
    assert vm.call("main", (np.zeros(shape, np.int8),), max_memory=takes).shape == shape


def test_depth(vm):
    assert vm["depth"](100_000).item() == 100_000
    with pytest.raises(BudgetExceededError, match="more than 50 calls are nested") as raised:
        vm.call("depth", (50,), max_depth=50)
    assert raised.value.budget == "depth"
    assert vm.call("depth", (49,), max_depth=50).item() == 49
    check(vm)


def test_endless_recursion_ends(machine):
    vm = machine(PROGRAM, max_depth=10_000)
    with pytest.raises(BudgetExceededError):
        vm["grow"]()
    check(vm)


def test_a_machines_budget_holds_for_every_call(machine):
    vm = machine(PROGRAM, max_steps=1000)
    check(vm)
    with pytest.raises(BudgetExceededError):
        vm["spin"]()
    check(vm)


@pytest.mark.serial
def test_cancel_from_another_thread(vm):
    token = CancelToken()
    threading.Timer(0.05, token.cancel).start()
    start = time.monotonic()
    with pytest.raises(CancelledError):
        vm.call("spin", cancel=token)
    assert time.monotonic() - start < 2
    check(vm)


def test_cancelled_before_it_starts(vm):
    token = CancelToken()
    token.cancel()
    with pytest.raises(CancelledError):
        vm.call("count", (1,), cancel=token)


@pytest.fixture
def heeded_interrupts():
    """A shell starts what runs in the background with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.serial
@pytest.mark.usefixtures("heeded_interrupts")
def test_ctrl_c(vm):
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        vm["spin"]()
    assert time.monotonic() - start < 2
    check(vm)


@pytest.mark.parametrize("shape", [("n",), (1 << 16,)])
def test_a_result_that_ctrl_c_keeps_from_being_taken_is_released(shape, monkeypatch) -> None:
    x = treadle.var("x", shape)
    y = treadle.op.exp(x)
    module = treadle.Module(main=treadle.function([x], treadle.tuple_(y, y + 1.0)), one=treadle.function([x], y))
    vm = treadle.VirtualMachine(treadle.compile(module, entry=("main", "one"), progress=False))

    def interrupted(self, *args):
        raise KeyboardInterrupt

    for name in ("take", "take_arrays"):
        monkeypatch.setattr(Results, name, interrupted)
    array, before = np.zeros(1 << 16, np.float32), live_bytes()
    for name in ("main", "one") if shape == ("n",) else ("main",):  # the other one makes its result in place
        for call in (lambda name=name: vm[name](array), lambda name=name: vm[name](x=array)):
            with pytest.raises(KeyboardInterrupt):
                call()
            gc.collect()
            assert live_bytes() == before


def test_an_argument_that_there_is_no_memory_to_copy(machine) -> None:
    vm = machine("func @main(x: uint8[n]) -> uint8[n] {\n  ret r0\n}\n")
    huge = np.lib.stride_tricks.as_strided(np.ones(1, np.uint8), (1 << 46,), (0,))
    with pytest.raises(OutOfMemoryError, match="copy of an argument"):
        vm["main"](huge)
    assert vm["main"](np.ones(3, np.uint8)).shape == (3,)
