"""Memory that is refused in the middle of things: a named error, and a machine that is as good as new. Each in a process of
its own, whose C library overwrites what is freed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from treadle.formats.starting import Thread

CHILD = """
import resource
import numpy as np
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.messages.errors import BudgetExceededError, OutOfMemoryError
from treadle.formats.executable import Executable
from treadle.vm import context
from treadle.vm.observe.hooks import Listener
from treadle.vm.machine import VirtualMachine

def machine(text, **options):
    return VirtualMachine(Executable(parse_assembly(text)), **options)

def fails(kind, call):
    try:
        call()
    except kind as failure:
        return failure
    raise SystemExit(f"no {kind.__name__}")
"""


def run(body: str) -> None:
    """Runs Python in a child."""
    environment = os.environ | {"MALLOC_PERTURB_": "85", "MALLOC_TCACHE_COUNT": "0"}
    child = subprocess.run([sys.executable, "-c", CHILD + body], env=environment, capture_output=True, check=False)
    assert child.returncode == 0, f"{child.returncode}: {child.stderr.decode()[-2000:]}"


@pytest.mark.parametrize("name", ["main", "captured"])
@pytest.mark.parametrize("registers", [10, 100_000], ids=["moves up", "moves down"])
def test_a_frame_whose_memory_fails_after_the_stack_has_grown(name: str, registers: int) -> None:
    run(f"""
PROGRAM = '''
func @main(n: int64[]) -> int64[] refs={registers} {{
  invoke r1, @wide (r0)
  ret r1
}}
func @captured(n: int64[]) -> int64[] refs={registers} {{
  alloc_closure r1, @inner (r0)
  invoke_closure r2, r1 (r0)
  ret r2
}}
func @wide(n: int64[]) -> int64[] refs=200000 ints=0 frame=1099511627776 {{ ret r0 }}
func @inner(n: int64[]) captures (free: int64[]) -> int64[] refs=200000 ints=0 frame=1099511627776 {{ ret r1 }}
func @well(n: int64[]) -> int64[] {{ ret r0 }}
'''
vm = machine(PROGRAM)
vm["well"](7)
before = context.live_bytes()
for _ in range(20):
    failure = fails(OutOfMemoryError, lambda: vm[{name!r}](1))
    assert failure.function == {name!r}, failure
    assert vm["well"](7).item() == 7
fails(BudgetExceededError, lambda: vm.call({name!r}, (1,), max_memory=1 << 30))
assert context.live_bytes() == before
""")


def test_a_recursion_that_meets_the_end_of_the_memory_anywhere() -> None:
    """Of every frame, the tensors' memory, the stack and an object may each be what fails."""
    run("""
PROGRAM = '''
func @depth(n: int64[]) -> int64[1] refs=9 ints=2 frame=8192 {
  read_shape (i0), r0
  if_int i0, bottom
  subtract i0, i0, 1
  make_shape r1, [i0]
  reshape r1, r1, []
  alloc_tensor r3, float32[1024]
  invoke r1, @depth (r1)
  read_shape (i0), r1
  add i0, i0, 1
bottom:
  make_shape r1, [i0]
  ret r1
}
'''
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

assert machine(PROGRAM)["depth"](10).item() == 10  # all that is made once
failures = 0
for step in range(40):
    vm = machine(PROGRAM)
    vm["depth"](1)
    resource.setrlimit(resource.RLIMIT_AS, (used() + (step + 1) * 199 * 1024, resource.RLIM_INFINITY))
    try:
        vm["depth"](9000)
    except (OutOfMemoryError, MemoryError):
        failures += 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert vm["depth"](100).item() == 100
assert failures > 20, failures
""")


def test_a_listener_sees_the_frame_of_the_instruction_that_it_was_told_of() -> None:
    """After an invoke the callee's frame is the current one, perhaps on a stack that has moved."""
    run("""
PROGRAM = '''
func @main(x: float32[]) -> float32[] refs=5000 ints=0 frame=0 {
  move r4999, r0
  invoke r1, @other (r4999)
  ret r1
}
func @other(x: float32[]) -> float32[] refs=100000 ints=0 frame=0 { ret r0 }
func @small(x: float32[]) -> float32[] { ret r0 }
'''
seen, events = [], []
class Look(Listener):
    operations = frozenset({"invoke"})
    def after(self, event):
        seen.append(event.tensor(4999).item())
        events.append(event)

for text in (PROGRAM, PROGRAM.replace("refs=100000", "refs=1")):
    vm = machine(text)
    with vm.listening(Look()):
        assert vm["main"](np.float32(3)).item() == 3
assert seen == [3.0, 3.0]
""")


def test_a_thread_that_dies_before_its_first_bytecode_is_not_waited_for() -> None:
    """`threading.Thread.start` would wait for ever: what such a thread is to do is done by who starts it, or is an error."""
    run("""
import faulthandler
faulthandler.dump_traceback_later(100, exit=True)
PROGRAM = "func @main(x: float32[2]) -> float32[2] { ret r0 }"
executable = Executable(parse_assembly(PROGRAM))
machine(PROGRAM)["main"](np.ones(2, np.float32))
for step in range(20):
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 4096 * step
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
    try:
        made = VirtualMachine(executable)
    except (OutOfMemoryError, MemoryError):
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert machine(PROGRAM)["main"](np.ones(2, np.float32)).shape == (2,)
""")


def test_a_thread_that_does_not_begin_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_start_new_thread", "_start_joinable_thread"):  # as the system does that has no memory for it
        monkeypatch.setattr(threading, name, lambda *_, **__: None, raising=False)
    with pytest.raises(RuntimeError, match="had no memory to begin"):
        Thread(target=print).start()
