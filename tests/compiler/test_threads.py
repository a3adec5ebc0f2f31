"""Calls from many threads, and on changing numbers of them: each gets the bits that one thread alone gets."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle import tools
from treadle.compiler.builder.programs import Module, function, op, var

DIGITS = Path(tools.__file__).parent / "models" / "digits.onnx"


def test_eight_threads_get_the_bits_of_one() -> None:
    executable = treadle.compile(DIGITS, progress=False)
    classify = treadle.VirtualMachine(executable)["main"]
    batches = [np.random.default_rng(seed).standard_normal((5, 1, 8, 8)).astype(np.float32) for seed in range(8)]
    alone = [classify(batch).numpy() for batch in batches]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda turn: classify(batches[turn % 8]).numpy(), range(400)))
    for turn, result in enumerate(together):
        np.testing.assert_array_equal(result, alone[turn % 8])


@pytest.mark.serial
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processors cannot be chosen here")
def test_a_worker_that_was_woken_keeps_off_the_callers_processor() -> None:
    allowed, before = os.sched_getaffinity(0), treadle.get_num_threads()
    classify = treadle.VirtualMachine(treadle.compile(DIGITS, progress=False))["main"]
    batch = np.zeros((200, 1, 8, 8), np.float32)
    treadle.set_num_threads(2)
    try:
        for _ in range(3):
            time.sleep(0.01)  # the worker sleeps then
            classify(batch)
        worker = next(thread for thread in threading.enumerate() if thread.name == "treadle-1")
        assert len(os.sched_getaffinity(worker.native_id)) == max(1, len(allowed) - 1)
    finally:
        treadle.set_num_threads(before)


def test_the_number_of_threads_may_change_while_a_call_runs() -> None:
    """A call that has asked how many threads there are may find fewer, and scratch memory for no more than these."""
    x = var("x", (1, 16, 24, 24))
    weight = np.random.default_rng(0).standard_normal((32, 16, 3, 3)).astype(np.float32)
    module = Module(main=function([x], op.conv(x, weight, pads=(1, 1, 1, 1))))
    convolve = treadle.VirtualMachine(treadle.compile(module, progress=False))["main"]
    image = np.random.default_rng(1).standard_normal((1, 16, 24, 24)).astype(np.float32)
    alone, before = convolve(image).numpy(), treadle.get_num_threads()
    is_over = threading.Event()

    def change() -> None:
        while not is_over.is_set():
            for count in (8, 1, 5, 2):
                treadle.set_num_threads(count)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(300):
            np.testing.assert_array_equal(convolve(image).numpy(), alone)
    finally:
        is_over.set()
        changing.join()
        treadle.set_num_threads(before)
