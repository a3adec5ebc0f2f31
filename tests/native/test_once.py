"""What is made once a process: also when threads ask for it at once, and in a child of fork."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from treadle.native import once as once_module
from treadle.native.once import Lock, deferred, interruptible, once

from .. import package

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def test_threads_that_ask_at_once_get_one_object():
    barrier = threading.Barrier(8)

    @once
    def thing(key: str) -> object:
        time.sleep(0.01)
        return object()

    def ask(turn: int) -> object:
        barrier.wait()
        return thing("a")

    with ThreadPoolExecutor(8) as threads:
        assert len(set(map(id, threads.map(ask, range(8))))) == 1
    assert thing("b") is not thing("a")


def test_an_error_is_not_kept():
    answers = iter([ValueError("not yet"), 5])

    @once
    def thing() -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(ValueError, match="not yet"):
        thing()
    assert thing() == 5 == thing()


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_that_another_thread_held_at_a_fork_is_free_in_the_child():
    lock, is_held, is_over = Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            is_over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    child = os.fork()
    if child == 0:
        with lock:
            os._exit(0)
    is_over.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0


@forks
def test_a_lock_of_the_thread_that_forks_stays_its_own():
    lock = Lock()
    with lock:
        child = os.fork()
        if child == 0:
            try:
                with lock:
                    pass
            except BaseException:
                os._exit(1)
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_the_machine_makes_nothing_by_a_cache_that_two_threads_may_fill():
    """`functools.cache` calls its function twice when two threads ask at once, and frees one of the results."""
    for name, path in package.modules(of=("vm", "native")).items():
        text = path.read_text()
        assert not re.search(r"@(functools\.)?cache\b|lru_cache\(maxsize=None", text), name
        # nor by locks that stay taken in a child of fork
        assert name == "native/once.py" or not re.search(r"threading\.R?Lock\(", text), name


def test_ctrl_c_waits_for_the_end_of_a_block_or_a_part_of_it() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), deferred():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        with deferred():
            done.append("whole")
    with pytest.raises(KeyboardInterrupt), deferred():  # noqa: PT012
        try:
            signal.raise_signal(signal.SIGINT)
            with interruptible():
                done.append("never")
        finally:
            signal.raise_signal(signal.SIGINT)
            done.append("mended")
    with pytest.raises(KeyboardInterrupt), deferred(), interruptible():
        signal.raise_signal(signal.SIGINT)
    assert done == ["whole", "mended"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_between_any_two_lines_of_a_block_is_handled_and_so_is_the_next() -> None:
    left, count = -1, 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != once_module.__file__:
            return None
        left -= event == "line"
        if left < 0:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    while left < 0:  # until a block is over before its turn
        left = count
        sys.settrace(trace)
        try:
            with deferred(), interruptible():
                pass
        except KeyboardInterrupt:
            assert left < 0
        else:
            assert left >= 0
        finally:
            sys.settrace(before)
        assert once_module._deferred is None
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        count += 1
    assert count > 20


def test_a_handler_that_is_set_within_a_block_stays() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        with deferred(), interruptible():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
