"""Host operators' BLAS computes on one thread, and the process's number of threads is left as it was."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from treadle.vm import blas

SOLVE = """
prim solve(%0: float32[96, 96], %1: float32[96, 96]) -> float32[96, 96] {
  %2 = solve(%0, %1) : float32[96, 96]
  return %2
}
func @main(a: float32[96, 96], b: float32[96, 96]) -> float32[96, 96] {
  alloc_tensor r2, float32[96, 96]
  call solve (r0, r1) -> (r2)
  ret r2
}
"""
EYE = np.eye(96, dtype=np.float32)


@pytest.fixture
def threads() -> Iterator[blas.Functions]:
    """BLAS with two threads, however many processors there are."""
    functions = blas.thread_functions()
    if functions is None:
        pytest.skip("NumPy's BLAS is not OpenBLAS")
    get, set_ = functions
    before = get()
    set_(2)
    yield get, set_
    set_(before)


def test_a_host_operator_uses_one_thread_of_blas(machine, threads: blas.Functions, monkeypatch) -> None:
    get, _ = threads
    seen: list[int] = []
    solve = np.linalg.solve

    def watched(*operands: np.ndarray) -> np.ndarray:
        seen.append(get())
        return solve(*operands)

    monkeypatch.setattr(np.linalg, "solve", watched)
    np.testing.assert_array_equal(machine(SOLVE)["main"](2 * EYE, EYE), EYE / 2)
    assert seen == [1]
    assert get() == 2


def test_the_number_of_threads_comes_back_when_the_last_operator_ends(threads: blas.Functions) -> None:
    get, _ = threads
    begun, end = threading.Event(), threading.Event()

    def other() -> None:
        with blas.one_thread():
            begun.set()
            end.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait(30)
    with blas.one_thread():
        assert get() == 1
    assert get() == 1
    end.set()
    thread.join()
    assert get() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_of_fork_has_the_threads_that_its_parent_had(threads: blas.Functions) -> None:
    get, _ = threads
    with blas.one_thread():
        child = os.fork()
        if not child:
            os._exit(get())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
