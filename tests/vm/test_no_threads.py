"""A system that gives no more threads, files or folders: calls go on as they can, and what cannot be is a named error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHILD = """
import os, threading, warnings
import numpy as np
import treadle
from treadle import Module, VirtualMachine, function, op, var
from treadle.formats.messages.errors import ExecutionError

x = var("x", ("n", 8))
MODULE = Module(main=function([x], op.softmax(x)))
X = np.ones((2, 8), np.float32)

def machine():
    return VirtualMachine(treadle.compile(MODULE, progress=False))

def check(vm):
    assert np.allclose(vm["main"](X).numpy(), 1 / 8)
    assert np.allclose(vm["main"](x=X).numpy(), 1 / 8)

def unbounded(vm):
    try:
        vm.call("main", (X,), max_seconds=9)
    except ExecutionError as error:
        assert "cannot be bounded" in str(error), error
    else:
        raise SystemExit("the call had a deadline")
"""


def run(body: str, **environment: str) -> str:
    command = [sys.executable, "-X", "faulthandler", "-c", CHILD + body]
    child = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert child.returncode == 0, f"{child.returncode}: {child.stderr[-2000:]}"
    return child.stderr


def test_a_process_that_gets_no_threads() -> None:
    run("""
machine()  # its kernels are built
start = threading.Thread.start
def refused(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refused
warnings.simplefilter("ignore")
other = machine()
check(other)
threading.Thread.start = start
assert other.call("main", (X,), max_seconds=9).shape == (2, 8)
""")


def test_kernels_are_built_where_there_is_no_thread_to_wait_for_each_worker() -> None:
    run("""
from treadle.compiler.targets.cpu.toolchain.compile_pool import Text, compile_texts
from treadle.compiler.targets.cpu.target import host
source = "def kernel(args, scratch, part, parts):\\n    return part\\n"
texts = [Text(f"kernel_{number}", source, 4) for number in range(3)]
def refused(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refused
assert {text for text, code in compile_texts(texts, host().native, jobs=2)} == set(texts)
""")


def test_a_process_that_gets_no_files() -> None:
    run("""
executable = treadle.compile(MODULE, progress=False)
pipe = os.pipe
def refused():
    raise OSError(24, "Too many open files")
os.pipe = refused
vm = VirtualMachine(executable)
check(vm)
unbounded(vm)
os.pipe = pipe
check(vm)
assert vm.call("main", (X,), max_seconds=9).shape == (2, 8)
""")


def test_a_cache_in_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    stderr = run(
        """
from pathlib import Path
from treadle.native.cache import ObjectCache
os.chdir(os.environ["GONE"])
os.rmdir(os.getcwd())
cache = ObjectCache(Path("relative"))
cache.put("abcd", b"code")
assert cache.get("abcd") is None
""",
        GONE=str(tmp_path),
    )
    assert "set TREADLE_CACHE to a whole path" in stderr
