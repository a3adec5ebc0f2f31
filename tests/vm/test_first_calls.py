"""The first calls of a process, from several threads at once. Each example is a process of its own, since a fault may end it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle import tools

THREADS = 8

# What threads do at once: all there is to do; or call one machine; or make machines of one executable
_PARTS = {
    "everything": ("pass", "import treadle; y = treadle.VirtualMachine(treadle.load(model))['main'](x)"),
    "calls": ("import treadle; machine = treadle.VirtualMachine(treadle.load(model))", "y = machine['main'](x)"),
    "machines": ("import treadle; exe = treadle.load(model)", "y = treadle.VirtualMachine(exe)['main'](x)"),
    "counts": (
        "import treadle; machine = treadle.VirtualMachine(treadle.load(model))",
        "treadle.set_num_threads(1 + index % 3); y = machine['main'](x)",
    ),
    "compilers": (
        "import treadle",
        "y = treadle.VirtualMachine(treadle.compile(onnx_model, progress=False))['main'](x)",
    ),
}

_PROGRAM = """
import sys, threading
import numpy as np
sys.setswitchinterval(1e-6)
model, onnx_model, results = sys.argv[1:4]
count = int(sys.argv[4])
x = np.random.default_rng(0).standard_normal((64, 1, 8, 8)).astype(np.float32)
{before}
barrier, found = threading.Barrier(count), [None] * count
def work(index):
    barrier.wait()
    {work}
    found[index] = y.numpy()
threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
np.save(results, np.stack(found))
"""


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> tuple[Path, Path, np.ndarray]:
    """A saved model, as an executable and as ONNX, and its result for the input of `_PROGRAM`."""
    source = Path(tools.__file__).parent / "models" / "digits.onnx"
    saved = tmp_path_factory.mktemp("first") / "digits.trdl"
    executable = treadle.compile(source, progress=False)
    executable.export_library(saved)
    x = np.random.default_rng(0).standard_normal((64, 1, 8, 8)).astype(np.float32)
    return saved, source, treadle.VirtualMachine(executable)["main"](x).numpy()


def run(digits, folder: Path, part: str, count: int = THREADS, **environment: str) -> None:
    """One process. Fails if it ends otherwise than well, or if any thread's result has other bits than it should."""
    saved, source, expected = digits
    before, work = _PARTS[part]
    found = folder / "found.npy"
    found.unlink(missing_ok=True)
    program = _PROGRAM.format(before=before, work=work)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, saved, source, found, str(count)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{part}: exit status {done.returncode}\n{done.stderr[-4000:]}"
    for result in np.load(found):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("part", ["everything", "calls", "machines", "counts"])
def test_the_first_calls_of_a_process_may_come_from_eight_threads(digits, tmp_path, part):
    for _ in range(3):
        run(digits, tmp_path, part)


def test_also_where_engine_and_kernels_are_still_to_be_built(digits, tmp_path):
    run(digits, tmp_path, "compilers", count=4, TREADLE_CACHE=str(tmp_path / "cache"))


@pytest.mark.slow
def test_the_first_calls_of_two_hundred_processes(digits, tmp_path):
    for turn in range(200):
        run(digits, tmp_path, ("everything", "calls", "machines", "counts")[turn % 4])
