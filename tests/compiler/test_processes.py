"""Servers of many processes: forked after the first call, spawned, restarted, confined to a CPU. Each example is a script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import treadle
from treadle import tools

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
]

# What all scripts begin with. A child that hangs says where, and fails.
_HEAD = """
import faulthandler, multiprocessing, os, signal, sys, threading, time, warnings
import numpy as np
import treadle
warnings.simplefilter("ignore", DeprecationWarning)
faulthandler.register(signal.SIGALRM, chain=True)
signal.alarm(200)
MODEL = sys.argv[1]
X = np.random.default_rng(0).standard_normal((512, 1, 8, 8)).astype(np.float32)

def workers():
    return sum(thread.name[:8] == "treadle-" and thread.name[8:].isdigit() for thread in threading.enumerate())

def in_child(work):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            work()
            status = 0
        except BaseException as error:
            import traceback; traceback.print_exception(error)
        finally:
            os._exit(status)
    return child

def is_well(child):
    return os.waitpid(child, 0)[1] == 0

def in_threads(count, work):
    failures = []
    def guarded():
        try:
            work()
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not failures, failures

def same(machine):
    result = machine["main"](X).numpy()
    return result.shape == EXPECTED.shape and (result == EXPECTED).all()
"""
_MACHINE = """
treadle.set_num_threads(3)
MACHINE = treadle.VirtualMachine(treadle.load(MODEL))
EXPECTED = MACHINE["main"](X).numpy()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    saved = tmp_path_factory.mktemp("processes") / "digits.trdl"
    source = Path(tools.__file__).parent / "models" / "digits.onnx"
    executable = treadle.compile(source, progress=False)
    executable.export_library(saved)
    treadle.VirtualMachine(executable)  # builds the kernels; these processes find them
    return saved


def run(script: str, model: Path, folder: Path, **environment: str) -> str:
    """A script's output. Fails if it ends otherwise than well."""
    path = folder / "script.py"  # multiprocessing imports it
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, path, model], env=os.environ | environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_a_child_has_as_many_threads_as_its_parent(model, tmp_path):
    body = """
def work():
    assert workers() == 0 and treadle.get_num_threads() == 3
    for _ in range(5):
        assert same(MACHINE)
    assert workers() == 2 and treadle.get_num_threads() == 3
    assert same(treadle.VirtualMachine(treadle.load(MODEL)))
    assert all(map(is_well, [in_child(work_of_grandchild) for _ in range(2)]))

def work_of_grandchild():
    in_threads(4, lambda: same(MACHINE) or 1 / 0)
    assert workers() == 2
    treadle.set_num_threads(2)
    assert same(MACHINE)

assert all(map(is_well, [in_child(work) for _ in range(4)]))
assert same(MACHINE) and workers() == 2
"""
    run(_HEAD + _MACHINE + body, model, tmp_path)


def test_the_number_of_threads_that_nobody_chose_is_asked_for_anew(model, tmp_path):
    body = """
MACHINE = treadle.VirtualMachine(treadle.load(MODEL))
EXPECTED = MACHINE["main"](X).numpy()
def work():
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    assert same(MACHINE)
    assert treadle.get_num_threads() == 1 and workers() == 0
assert is_well(in_child(work))
"""
    run(_HEAD + body, model, tmp_path)


@pytest.mark.parametrize("during", ["calls", "first_calls", "set_num_threads", "compiling"])
def test_a_process_may_fork_while_other_threads_are_busy(during, model, tmp_path):
    works = {
        "calls": "same(MACHINE)",
        "first_calls": "same(treadle.VirtualMachine(treadle.load(MODEL)))",
        "set_num_threads": "[treadle.set_num_threads(count) for count in (1, 4, 2, 3)]",
        "compiling": "compile_another()",
    }
    body = f"""
counter = iter(range(1 << 30))
def compile_another():
    x = treadle.var("x", (8, 8))
    y = treadle.op.add(x, np.float32(next(counter) + os.getpid() / 1e5))
    main = treadle.VirtualMachine(treadle.compile(treadle.Module(main=treadle.function([x], y)), progress=False))["main"]
    return main(np.zeros((8, 8), np.float32)).numpy()

if {during == "compiling"}:
    compile_another()
is_over = threading.Event()
def busy():
    while not is_over.is_set():
        {works[during]}

def work():
    in_threads(2, lambda: same(MACHINE) or 1 / 0)
    assert same(MACHINE) and treadle.live_bytes() >= 0
    if {during == "compiling"}:
        compile_another()
    treadle.set_num_threads(2)
    assert same(MACHINE) and workers() >= 1

from treadle.vm.context import live_bytes
treadle.live_bytes = live_bytes
threads = [threading.Thread(target=busy, daemon=True) for _ in range(2)]
for thread in threads: thread.start()
children = []
for turn in range({4 if during == "compiling" else 20}):
    time.sleep(0.01 + 0.001 * turn)
    children.append(in_child(work))
    if turn % 4 == 3:
        assert all(map(is_well, children))
        children.clear()
is_over.set()
for thread in threads: thread.join()
assert same(MACHINE)
"""
    run(_HEAD + _MACHINE + body, model, tmp_path)


def test_a_process_may_fork_in_the_middle_of_its_own_call(model, tmp_path):
    """In a listener: both go on."""
    body = """
class Fork(treadle.vm.observe.hooks.Listener):
    operations = frozenset({"call"})
    child = None
    def before(self, event):
        if self.child is None:
            self.child = os.fork()
fork = Fork()
with MACHINE.listening(fork):
    result = MACHINE["main"](X).numpy()
good = (result == EXPECTED).all() and same(MACHINE) and workers() == 2
if fork.child == 0:
    os._exit(0 if good else 1)
assert good and is_well(fork.child)
"""
    run("import treadle.vm.observe.hooks\n" + _HEAD + _MACHINE + body, model, tmp_path)


def test_a_server_that_forks_its_workers(model, tmp_path):
    """The parent calls once, then keeps four children, each with threads of its own, which end by SIGTERM or after some calls."""
    body = """
def serve(requests, results, most):
    def answer():
        for _ in range(most):
            if requests.get() is None:
                return
            results.put((os.getpid(), same(MACHINE), workers()))
    in_threads(2, answer)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    requests, results = context.Queue(), context.Queue()
    start = lambda most: context.Process(target=serve, args=(requests, results, most))
    children = [start(5) for _ in range(4)]
    for child in children: child.start()
    for _ in range(40): requests.put(1)
    answers = [results.get(timeout=60) for _ in range(40)]
    for child in children:
        child.join(60)
        assert child.exitcode == 0, child.exitcode
    assert all(good for _, good, _ in answers) and {count for *_, count in answers} == {2}, answers
    again = [start(1000) for _ in range(4)]
    for child in again: child.start()
    for _ in range(8): requests.put(1)
    assert all(results.get(timeout=60)[1] for _ in range(8))
    for child in again: child.terminate()
    for child in again:
        child.join(60)
        assert child.exitcode == -signal.SIGTERM, child.exitcode
    os._exit(0)  # the queues' own threads may wait for children that were ended
"""
    run(_HEAD + _MACHINE + body, model, tmp_path)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_pools_of_processes(method, model, tmp_path):
    body = f"""
from concurrent.futures import ProcessPoolExecutor

def work(turn):
    global MACHINE
    if "MACHINE" not in globals():
        MACHINE = treadle.VirtualMachine(treadle.load(MODEL))
    return MACHINE["main"](X[:100]).numpy()

if __name__ == "__main__":
    treadle.set_num_threads(3)
    expected = work(0)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context({method!r})) as pool:
        assert all((result == expected).all() for result in pool.map(work, range(20)))
"""
    run(_HEAD + body, model, tmp_path)


def test_a_worker_that_is_confined_to_one_cpu_before_it_imports(model, tmp_path):
    """As those of clusters are: they get functions by value, and import what these need."""
    body = """
import subprocess
code = '''
import os, sys
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
def work(path, x):
    import treadle, threading
    result = treadle.VirtualMachine(treadle.load(path))["main"](x).numpy()
    assert treadle.get_num_threads() == 1, treadle.get_num_threads()
    assert not [thread for thread in threading.enumerate() if thread.name[8:].isdigit()]
    return result
import numpy as np
np.save(sys.argv[2], work(sys.argv[1], np.load(sys.argv[3])))
'''
folder = os.path.dirname(__file__)
np.save(folder + "/x.npy", X)
subprocess.run([sys.executable, "-c", code, MODEL, folder + "/y.npy", folder + "/x.npy"], check=True)
assert (np.load(folder + "/y.npy") == EXPECTED).all()
"""
    run(_HEAD + _MACHINE + body, model, tmp_path)
