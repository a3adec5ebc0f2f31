"""Arrays that a call reads, and that another thread changes meanwhile: the call sees what was there, or refuses.

Each example is a process of its own, since a fault ends it. The arrays are so large that memory which is given up is unmapped.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import treadle
from treadle.compiler.builder.programs import Module, function, op, var

_PROGRAM = """
import sys, threading, time, warnings
import numpy as np, treadle
warnings.simplefilter("ignore")
sys.setswitchinterval(1e-5)
N = 4 << 20
x = treadle.var("x", {shape})
module = treadle.Module(main=treadle.function([x], treadle.op.exp(x)))
main = treadle.VirtualMachine(treadle.compile(module, progress=False))["main"]
is_over = threading.Event()
a = np.zeros(N, np.float32)

def change():
    while not is_over.is_set():
        for size in (16, N):
            try:
                {change}
            except (ValueError, AttributeError):
                pass

thread = threading.Thread(target=change)
thread.start()
end, calls, refused = time.monotonic() + 1, 0, 0
try:
    while time.monotonic() < end or not calls + refused:
        try:
            assert (main({argument}).numpy() == 1).all()
            calls += 1
        except treadle.errors.ShapeError:
            refused += 1
finally:
    is_over.set()
    thread.join()
"""
_CHANGES = {
    "resize": "a.resize(size, refcheck=False)",
    "shape": "a.shape = (N,) if size == N else (2, N // 4, 2)",
    "forget": "globals().update(a=np.zeros(size, np.float32))",
}
_ARGUMENTS = {"array": "a", "keyword": "x=a"}


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize("argument", _ARGUMENTS)
@pytest.mark.parametrize("shape", ['("n",)', "(N,)"])
def test_a_thread_changes_an_array_that_another_one_calls_with(change, argument, shape):
    program = _PROGRAM.format(change=_CHANGES[change], argument=_ARGUMENTS[argument], shape=shape)
    command = [sys.executable, "-X", "faulthandler", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-3000:]}"


def _doubled() -> tuple[treadle.VirtualMachine, np.ndarray]:
    x = var("x", ("n",))
    module = Module(main=function([x], op.add(x, x)))
    return treadle.VirtualMachine(treadle.compile(module, progress=False)), np.ones(8, np.float32)


def test_after_a_call_its_arrays_may_be_resized_again() -> None:
    machine, array = _doubled()
    machine["main"](array)
    machine["main"](x=array)
    with pytest.raises(treadle.TreadleError):
        machine["main"](array, array)
    array.resize(4, refcheck=False)
    assert array.tolist() == [1] * 4


def test_a_programs_constants_stay_where_they_are() -> None:
    x = var("x", (4096,))
    exe = treadle.compile(Module(main=function([x], op.add(x, np.arange(4096, dtype=np.float32)))), progress=False)
    machine = treadle.VirtualMachine(exe)
    for constant in exe.program.constants:
        with pytest.raises(ValueError, match="cannot resize"):
            constant.resize(0, refcheck=False)
    assert machine["main"](np.zeros(4096, np.float32)).numpy()[-1] == 4095


def test_without_a_lock_of_the_interpreter_arrays_are_bound_by_python() -> None:
    """As free-threaded Python runs: a stand-in for it, since few machines have one."""
    program = """
import sys
sys._is_gil_enabled = lambda: False
import numpy as np, treadle
from treadle.vm.python_layout import python_layout
x = treadle.var("x", ("n",))
module = treadle.Module(main=treadle.function([x], treadle.op.add(x, x)))
main = treadle.VirtualMachine(treadle.compile(module, progress=False))["main"]
assert not python_layout().works and not python_layout().makes_arrays
assert main(np.ones(8, np.float32)).numpy().tolist() == [2] * 8
assert main(np.ones(1 << 16, np.float32)).numpy().sum() == 2 << 16
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_after_calls_that_the_host_had_a_part_in_their_arrays_may_be_resized_again() -> None:
    x = var("x", ("n", "n"))
    vm = treadle.VirtualMachine(treadle.compile(Module(main=function([x], op.determinant(x))), progress=False))
    array = np.eye(3, dtype=np.float32)
    for _ in range(100):
        assert vm["main"](array).numpy() == 1
    array.resize(4, refcheck=False)
