"""Host operators obey the bounds of their call: NumPy's temporaries count, and a call ends though NumPy goes on."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import treadle
from treadle import VirtualMachine
from treadle.compiler.ir.text import parse_module
from treadle.formats.messages.errors import BudgetExceededError, CancelledError, ExecutionError
from treadle.vm import aside, context, host, library
from treadle.vm.budgets import CancelToken

SOON = 0.05  # seconds

POOL = """
prim pool(%0: float32[1, 4, 256, 256]) -> float32[1, 4, 226, 226] {
  %1 = max_pool(%0) {kernel=(31, 31)} : float32[1, 4, 226, 226]
  return %1
}
func @main(x: float32[1, 4, 256, 256]) -> float32[1, 4, 226, 226] {
  alloc_tensor r1, float32[1, 4, 226, 226]
  call pool (r0) -> (r1)
  ret r1
}
"""
X = np.ones((1, 4, 256, 256), np.float32)


_before = 0  # helpers that another test has left at work, or idle for good by a Ctrl-C at the wrong time


@pytest.fixture(autouse=True)
def helpers_of_others() -> None:
    global _before
    _before = at_work()


@pytest.fixture
def slow(machine, monkeypatch):
    """A machine whose operator takes a second, most of it in one call of NumPy's, and then some."""
    vm = machine(POOL)
    compiler = library.compiler()

    def evaluator(definition):
        def evaluate(arrays, sizes):
            time.sleep(1)  # like a long call of NumPy's: outside of Python, without the GIL
            assert arrays[0].sum() == X.size  # still there
            return [np.zeros((1, 4, 226, 226), np.float32)]

        return evaluate

    monkeypatch.setattr(compiler, "evaluator", staticmethod(evaluator))
    yield vm
    await_helpers()


def at_work() -> int:
    """How many helpers are not idle."""
    return sum(thread.name == "treadle-host" for thread in threading.enumerate()) - len(aside._idle)


def await_helpers() -> None:
    """Until no more are at work than when the test began."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if at_work() <= _before:
            return
        time.sleep(0.01)
    raise AssertionError("a helper is still at work")


def past_the_deadline(vm) -> float:
    start = time.monotonic()
    with pytest.raises(BudgetExceededError, match=r"more than 0\.1 s"):
        vm.call("main", (X,), max_seconds=0.1)
    return time.monotonic() - start - 0.1


def after_a_cancel(vm) -> float:
    token, at = CancelToken(), []
    timer = threading.Timer(0.1, lambda: (at.append(time.monotonic()), token.cancel()))
    timer.start()
    with pytest.raises(CancelledError):
        vm.call("main", (X,), cancel=token)
    return time.monotonic() - at[0]


def after_an_interrupt(vm) -> float:
    at: list[float] = []
    timer = threading.Timer(0.1, lambda: (at.append(time.monotonic()), os.kill(os.getpid(), signal.SIGINT)))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        vm["main"](X)
    return time.monotonic() - at[0]


@pytest.mark.serial
@pytest.mark.parametrize("end", [past_the_deadline, after_a_cancel, after_an_interrupt])
def test_a_call_ends_soon_within_a_host_operator(slow, end: Callable) -> None:
    before = context.live_bytes()
    late: list[float] = []
    while not late or (min(late) > SOON and len(late) < 5):
        late.append(end(slow))
    assert min(late) < SOON, late
    await_helpers()
    assert context.live_bytes() == before
    assert slow["main"](X).shape == (1, 4, 226, 226)  # in peace


WORK = {
    "few elements, but a long text": (
        "func @main(x: string[1], e: string[1]) {\n  y = tokenize_texts(x, e)\n  y\n}",
        lambda: (np.array(["a" * 4000], object), np.array(["a*b"], object)),
    ),
    "a text of many states": (
        'func @main(x: string[1]) {\n  y = match_texts(x) {expression="[ab]*a[ab]{999}"}\n  y\n}',
        lambda: (np.array(["ab" * 2000], object),),
    ),
    "texts of numbers": (
        "func @main(x: float64[n]) {\n  y = print_numbers(x)\n  y\n}",
        lambda: (np.arange(400_000) + 0.1,),
    ),
    "arguments": (
        "func @main(x: string[n]) {\n  y = hash_texts(x)\n  y\n}",
        lambda: (np.array([f"text {number}" for number in range(300_000)], object),),
    ),
    "a file of few bytes": (
        'func @main(x: uint8[n]) {\n  y = decode_image(x) {pixel_format="RGB"}\n  y\n}',
        lambda: (webp(3000),),
    ),
    "one call of LAPACK's": (
        "func @main(x: float64[n, n]) {\n  y = determinant(x)\n  y\n}",
        lambda: (np.random.default_rng(1).random((1500, 1500)),),
    ),
}


def webp(size: int) -> np.ndarray:
    """A black image, in some thirty bytes."""
    file = io.BytesIO()
    pytest.importorskip("PIL.Image").new("RGB", (size, size)).save(file, "WEBP", lossless=True, method=0)
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.mark.serial
@pytest.mark.parametrize("name", WORK)
def test_a_call_ends_soon_and_others_go_on_meanwhile(name: str) -> None:
    program, arguments = WORK[name]
    vm, args = VirtualMachine(treadle.compile(parse_module(program))), arguments()
    late, gaps = [1.0], [1.0]
    while max(min(late), min(gaps)) > SOON and len(late) < 6:
        with beats() as gap:
            start = time.monotonic()
            with pytest.raises(BudgetExceededError, match=r"more than 0\.02 s"):
                vm.call("main", args, max_seconds=0.02)
            late.append(time.monotonic() - start - 0.02)
        gaps.append(max(gap))
        await_helpers()
    assert min(late) < SOON, late
    assert min(gaps) < SOON, gaps


@contextlib.contextmanager
def beats() -> Iterator[list[float]]:
    """How long another thread had to wait, each time, in order to run."""
    gaps: list[float] = [0.0]
    over = threading.Event()

    def beat() -> None:
        last = time.monotonic()
        while not over.wait(0.002):
            now = time.monotonic()
            gaps.append(now - last)
            last = now

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield gaps
    finally:
        over.set()
        thread.join()


def test_numbers_that_say_how_often_something_is_done_count_as_elements_do(machine) -> None:
    program = machine(POOL)._calls.image.program
    assert [host._product(value) for _, value in program.primitives[0].definition.nodes[0].attributes] == [31 * 31]


@pytest.mark.serial
def test_few_operators_are_left_behind_at_a_time(slow, monkeypatch) -> None:
    monkeypatch.setattr(aside, "MOST_LEFT", 3)
    before, arguments = context.live_bytes(), [X.copy() for _ in range(3)]
    kept = [weakref.ref(array) for array in arguments]
    while arguments:
        with pytest.raises(BudgetExceededError, match="max_seconds"):
            slow.call("main", (arguments.pop(),), max_seconds=0.02)
    assert all(array() is not None for array in kept)  # operators still read them
    with pytest.raises(ExecutionError, match=r"3 operators of calls that ended .* still at work") as raised:
        slow.call("main", (X,), max_seconds=10)
    assert raised.value.function == "main"
    assert slow["main"](X[:]).shape == (1, 4, 226, 226)  # calls that nothing can end keep their operators themselves
    await_helpers()
    assert [array() for array in kept] == [None] * 3
    assert context.live_bytes() == before
    assert slow.call("main", (X,), max_seconds=10).shape == (1, 4, 226, 226)


def test_a_call_that_gets_no_thread_gives_its_memory_back(slow, monkeypatch) -> None:
    before, count = context.live_bytes(), len(slow._calls._idle)
    with monkeypatch.context() as without:
        without.setattr(aside, "_idle", [])  # helpers that wait for work are none here
        without.setattr(aside.threading.Thread, "start", no_thread)
        with pytest.raises(ExecutionError, match="can't start new thread"):
            slow.call("main", (X,), max_seconds=10)
    assert context.live_bytes() == before
    assert len(slow._calls._idle) == max(1, count)


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_temporaries_of_an_operator_count_for_the_memory_budget(machine, monkeypatch) -> None:
    def evaluator(definition):
        return lambda arrays, sizes: [
            np.ones((64, 1 << 20)).max(0)[: 4 * 226 * 226].astype(np.float32).reshape(1, 4, 226, 226)
        ]

    vm = machine(POOL)
    monkeypatch.setattr(library.compiler(), "evaluator", staticmethod(evaluator))
    with pytest.raises(BudgetExceededError, match="raise max_memory") as raised:
        vm.call("main", (X,), max_memory=8 << 20)
    assert raised.value.budget == "memory"


def test_an_operator_within_the_memory_budget_is_done(machine) -> None:
    vm = machine(POOL.replace("31, 31", "1, 1").replace("226", "256"))
    assert np.array_equal(vm.call("main", (X,), max_memory=16 << 20), X)


def test_arrays_made_on_an_account_outlive_it() -> None:
    from treadle.vm.array_memory import bounded

    with bounded(1 << 20) as account:
        kept = np.arange(1000)
        with pytest.raises(MemoryError):
            np.zeros(1 << 20)
        grown = np.zeros(10)
        grown.resize(5000, refcheck=False)
    assert account is not None
    assert account.was_refused
    other = np.ones(1 << 20)
    assert (kept == np.arange(1000)).all()
    assert grown.sum() == 0
    assert other.sum() == 1 << 20
    assert account.words[0] == kept.nbytes + grown.nbytes
    del kept, grown
    assert account.words[0] == 0


def test_errors_of_operators_come_from_the_helper_as_they_are(machine) -> None:
    from treadle.vm.aside import Job

    def fail() -> None:
        raise LookupError("so")

    with pytest.raises(LookupError, match="so"):
        Job(fail).run(lambda: None)
    assert Job(lambda: 7).run(lambda: None) == 7


def test_a_helper_does_one_job_after_the_other() -> None:
    from treadle.vm.aside import Job

    first = Job(threading.current_thread).run(lambda: None)
    await_helpers()
    assert first.name == "treadle-host"
    assert Job(threading.current_thread).run(lambda: None) is first


def test_scratch_memory_counts() -> None:
    import treadle
    from treadle import Module, VirtualMachine, function, op, var

    x, y = var("x", (64, 512)), var("y", (512, 512))
    vm = VirtualMachine(treadle.compile(Module(main=function([x, y], op.matmul(x, y)))))
    arguments = [np.ones((64, 512), np.float32), np.ones((512, 512), np.float32)]
    needed = vm._calls.image.scratch_bytes
    result = 64 * 512 * 4
    vm.call("main", arguments, max_memory=1 << 30)
    assert needed > 1 << 16
    with pytest.raises(BudgetExceededError, match="raise max_memory"):
        vm.call("main", arguments, max_memory=result + needed // 2)
