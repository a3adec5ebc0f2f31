"""How many threads share the kernels of a machine, or of a call: never more than it says, and always with the same bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import treadle
from treadle.compiler.builder.programs import Module, function, op, var
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import ArgumentError
from treadle.native import processes
from treadle.vm.layout import MAX_THREADS
from treadle.vm.machine import VirtualMachine
from treadle.vm.observe.hooks import Event, Listener

IMAGE = np.random.default_rng(1).standard_normal((1, 16, 48, 48)).astype(np.float32)


class Sharing(Listener):
    """Which threads did parts of kernels, and how many parts there were."""

    operations = frozenset({"call"})
    wants_parts = True

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.parts = 0

    def after(self, event: Event) -> None:
        self.threads |= {part.thread for part in event.parts}
        self.parts += len(event.parts)


@pytest.fixture(scope="module")
def exe() -> Executable:
    x = var("x", IMAGE.shape)
    weight = np.random.default_rng(0).standard_normal((32, 16, 3, 3)).astype(np.float32)
    return treadle.compile(Module(main=function([x], op.conv(x, weight, pads=(1, 1, 1, 1)))), progress=False)


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    before = treadle.get_num_threads()
    treadle.set_num_threads(4)
    yield
    treadle.set_num_threads(before)


def sharing(machine: VirtualMachine, **bounds: int) -> Sharing:
    """What a call was shared by."""
    seen = Sharing()
    with machine.listening(seen):
        machine.call("main", [IMAGE], **bounds)
    return seen


@pytest.mark.parametrize("threads", [1, 2, 3, 4, MAX_THREADS, None])
def test_a_machine_has_no_more_threads_than_it_says(exe: Executable, threads: int | None) -> None:
    seen = sharing(VirtualMachine(exe, threads=threads))
    assert seen.threads <= set(range(min(threads or 4, 4)))
    assert (seen.parts > 0) == (threads != 1)


def test_a_call_may_say_otherwise_and_the_next_one_does_not(exe: Executable) -> None:
    machine = VirtualMachine(exe, threads=3)
    assert sharing(machine, threads=1).parts == 0
    assert sharing(machine).parts > 0
    assert sharing(machine, threads=2).threads <= {0, 1}
    assert machine["main"](IMAGE).numpy().shape == (1, 32, 48, 48)


def test_any_number_of_threads_gives_the_same_bits(exe: Executable) -> None:
    alone = VirtualMachine(exe, threads=1)["main"](IMAGE).numpy()
    for threads in (2, 3, 4, None):
        np.testing.assert_array_equal(VirtualMachine(exe, threads=threads)["main"](IMAGE).numpy(), alone)


def test_machines_of_different_numbers_do_not_disturb_each_other(exe: Executable) -> None:
    machines = [VirtualMachine(exe, threads=threads) for threads in (1, 2, 4, None)]
    alone = machines[0]["main"](IMAGE).numpy()
    with ThreadPoolExecutor(4) as callers:
        results = list(callers.map(lambda turn: machines[turn % 4]["main"](IMAGE).numpy(), range(200)))
    for result in results:
        np.testing.assert_array_equal(result, alone)
    assert sharing(machines[0]).parts == 0
    assert treadle.get_num_threads() == 4


def test_bound_and_saved_calls_have_the_machines_threads(exe: Executable) -> None:
    machine, seen = VirtualMachine(exe, threads=1), Sharing()
    run, saved = machine.bind("main", [IMAGE]), machine.saved_call("main", IMAGE)
    with machine.listening(seen):
        run()
        saved()
        machine.call(saved)
    assert seen.parts == 0


def test_a_profile_says_how_many_threads_there_were(exe: Executable) -> None:
    machine = VirtualMachine(exe, threads=2)
    assert machine.profile("main", IMAGE).configuration["Number of threads"].value == 2
    assert machine.profile_call("main", [IMAGE], threads=1).configuration["Number of threads"].value == 1


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, "2", MAX_THREADS + 1])
def test_what_is_no_number_of_threads_is_refused_by_name(exe: Executable, threads: object) -> None:
    expected = rf"threads={threads!r}: expected a number from 1 to {MAX_THREADS}"
    with pytest.raises(ArgumentError, match=expected):
        VirtualMachine(exe, threads=threads)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=expected):
        VirtualMachine(exe).call("main", [IMAGE], threads=threads)  # type: ignore[arg-type]


def test_a_machine_of_one_thread_starts_no_worker(exe: Executable) -> None:
    code = """
import sys, threading, numpy, treadle
machine = treadle.VirtualMachine(treadle.load(sys.stdin.buffer.read()), threads=1)
machine["main"](numpy.zeros((1, 16, 48, 48), numpy.float32))
names = [thread.name for thread in threading.enumerate() if thread.name.startswith("treadle-") and thread.name[8:].isdigit()]
assert not names, names
"""
    done = processes.run(
        code, input=exe.as_bytes(), capture_output=True, env={**os.environ, "TREADLE_NUM_THREADS": "3"}
    )
    assert done.returncode == 0, done.stderr.decode()
