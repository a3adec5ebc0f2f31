"""One machine, many threads; forks; the end of the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("no_leak")

PROGRAM = """
data List = Nil | Cons(int64[], List)

func @sum(n: int64[]) -> int64[1] {
  read_shape (i0), r0
  alloc_data r1, List, 0 ()
build:
  if_int i0, built
  make_shape r2, [i0]
  reshape r2, r2, []
  alloc_data r1, List, 1 (r2, r1)
  subtract i0, i0, 1
  goto build
built:
  load_int i1, 0
again:
  get_tag i2, r1
  if_int i2, done
  get_field r2, r1, 1, 0
  read_shape (i3), r2
  add i1, i1, i3
  get_field r1, r1, 1, 1
  goto again
done:
  make_shape r2, [i1]
  ret r2
}

func @length(list: List) -> int64[1] {
  load_int i0, 0
again:
  get_tag i1, r0
  if_int i1, done
  add i0, i0, 1
  get_field r0, r0, 1, 1
  goto again
done:
  make_shape r1, [i0]
  ret r1
}

func @range(n: int64[]) -> List {
  read_shape (i0), r0
  alloc_data r1, List, 0 ()
build:
  if_int i0, built
  make_shape r2, [i0]
  reshape r2, r2, []
  alloc_data r1, List, 1 (r2, r1)
  subtract i0, i0, 1
  goto build
built:
  ret r1
}
"""


def in_threads(count: int, work) -> None:
    failures: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            work(index)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_eight_threads_call_one_machine(machine):
    vm = machine(PROGRAM)

    def work(index: int) -> None:
        for n in range(index, index + 100):
            assert vm["sum"](n).item() == n * (n + 1) // 2

    in_threads(8, work)


def test_threads_share_one_data_value(machine):
    vm = machine(PROGRAM)
    value = vm["range"](1000)

    def work(index: int) -> None:
        for _ in range(20):
            assert vm["length"](value).item() == 1000

    in_threads(4, work)


def test_results_may_be_released_by_any_thread(machine):
    vm = machine(PROGRAM)
    results: list = [vm["range"](100) for _ in range(50)]

    def work(index: int) -> None:
        while True:
            try:
                results.pop()
            except IndexError:
                return

    in_threads(4, work)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_call(machine):
    vm = machine(PROGRAM)
    vm["sum"](3)
    child = os.fork()
    if child == 0:
        os._exit(0 if vm["sum"](10).item() == 55 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_interpreter_ends_cleanly():
    source = f"""
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.executable import Executable
from treadle.vm.machine import VirtualMachine
from treadle.vm.threads import set_num_threads
set_num_threads(3)
vm = VirtualMachine(Executable(parse_assembly({PROGRAM!r})))
kept = vm["range"](10)
print(vm["sum"](4).item())
"""
    build = "from treadle.vm import core; core.engine()"  # builds the engine; this process may have it elsewhere
    subprocess.run([sys.executable, "-c", build], check=True, timeout=60)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")


def test_numpy_inputs_may_be_shared_by_threads(machine):
    vm = machine(PROGRAM)
    n = np.int64(50)
    in_threads(4, lambda index: [vm["sum"](n) for _ in range(50)])
