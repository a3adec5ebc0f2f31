"""How many threads calls have: no more than processors, than the control groups' share of them, and than the chosen number."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import treadle
from treadle import tools
from treadle.native.processors import cpu_count, cpu_quota, memory_left, memory_limit
from treadle.vm import device

pytestmark = pytest.mark.serial
confines = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processors cannot be chosen here")


@pytest.fixture
def process(tmp_path):
    """`process(kind, group, root, files)`: a folder like /proc/self, of a process whose control groups have these files."""

    def make(kind: str, group: str, root: str, files: dict[str, str]) -> Path:
        mount = tmp_path / "the groups"
        for name, text in files.items():
            (mount / name).parent.mkdir(parents=True, exist_ok=True)
            (mount / name).write_text(text + "\n")
        escaped = str(mount).replace(" ", "\\040")
        options = "rw,cpu,cpuacct" if kind == "cgroup" else "rw"
        (tmp_path / "mountinfo").write_text(
            f"24 1 0:22 / / rw - ext4 /dev/vda rw\n30 24 0:26 {root} {escaped} rw shared:4 - {kind} {kind} {options}\n"
        )
        (tmp_path / "cgroup").write_text(
            f"5:cpu,cpuacct:{group}\n3:memory:/else\n" if kind == "cgroup" else f"0::{group}\n"
        )
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("group", "root", "files", "quota"),
    [
        ("/", "/", {"cpu.max": "200000 100000"}, 2.0),
        ("/", "/", {"cpu.max": "max 100000"}, None),
        ("/a/b", "/", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, 1.5),
        ("/a/b", "/", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "50000 50000"}, 1.0),
        ("/a/b", "/", {"a/b/cpu.max": "100000 100000", "a/cpu.max": "300000 100000"}, 1.0),
        ("/pod/me", "/pod/me", {"cpu.max": "250000 100000"}, 2.5),
        ("/../other", "/", {"cpu.max": "250000 100000"}, 2.5),
        ("/a", "/", {"a/cpu.max": "nonsense"}, None),
    ],
)
def test_the_least_quota_of_all_groups_counts(process, group, root, files, quota):
    assert cpu_quota(process("cgroup2", group, root, files)) == quota


@pytest.mark.parametrize(
    ("group", "root", "quotas", "quota"),
    [
        ("/docker/1", "/docker/1", {"": (200000, 100000)}, 2.0),
        ("/docker/1", "/", {"docker/1": (-1, 100000), "docker": (75000, 50000)}, 1.5),
        ("/docker/1", "/", {"docker/1": (-1, 100000)}, None),
    ],
)
def test_groups_of_version_1(process, group, root, quotas, quota):
    files = {}
    for folder, (most, period) in quotas.items():
        files |= {
            f"{folder}/cpu.cfs_quota_us".lstrip("/"): str(most),
            f"{folder}/cpu.cfs_period_us".lstrip("/"): str(period),
        }
    assert cpu_quota(process("cgroup", group, root, files)) == quota


@pytest.mark.parametrize(
    ("group", "files", "limit"),
    [
        ("/", {"memory.max": "1073741824"}, 1 << 30),
        ("/", {"memory.max": "max"}, None),
        ("/a/b", {"a/b/memory.max": "max", "a/memory.max": "4096"}, 4096),
        ("/a/b", {"a/b/memory.max": "8192", "a/memory.max": "4096"}, 4096),
        ("/a", {"a/memory.max": "nonsense"}, None),
    ],
)
def test_the_least_memory_of_all_groups_counts(process, group, files, limit):
    assert memory_limit(process("cgroup2", group, "/", files)) == limit


def test_the_memory_of_groups_of_version_1(process):
    folder = process("cgroup", "/docker/1", "/", {"docker/1/memory.limit_in_bytes": "65536"})
    (folder / "cgroup").write_text("3:memory:/docker/1\n")
    mounts = (folder / "mountinfo").read_text()
    (folder / "mountinfo").write_text(mounts.replace("rw,cpu,cpuacct", "rw,memory"))
    assert memory_limit(folder) == 65536


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"a/memory.max": "8192", "a/memory.current": "5000"}, 3192),
        ({"a/memory.max": "8192", "a/memory.current": "9000"}, 0),
        ({"a/memory.max": "8192"}, None),  # it does not say what it uses
        ({"a/memory.max": "max", "a/memory.current": "5000"}, None),
        ({"a/memory.max": "max", "memory.max": "4096", "memory.current": "96", "a/memory.current": "90"}, 4000),
    ],
)
def test_the_least_that_is_left_of_all_groups_memory_counts(process, files, left):
    assert memory_left(process("cgroup2", "/a", "/", files)) == left


def test_no_more_memory_is_available_than_control_groups_have_left(monkeypatch):
    monkeypatch.setattr(device, "memory_left", lambda: 123)
    assert device.cpu().available_global_memory == 123


def test_a_device_has_no_more_memory_than_its_control_groups(monkeypatch):
    monkeypatch.setattr(device, "memory_limit", lambda: 12345)
    assert device.cpu().total_global_memory == 12345


def test_systems_without_control_groups(tmp_path):
    assert cpu_quota(tmp_path) is None
    assert memory_limit(tmp_path) is None


@pytest.mark.parametrize(("quota", "count"), [(None, 4), (0.2, 1), (1.0, 1), (1.5, 2), (2.0, 2), (64.0, 4)])
def test_a_quota_is_rounded_up(monkeypatch, quota, count):
    monkeypatch.setattr("treadle.native.processors.cpu_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(4), raising=False)
    assert cpu_count() == count


# ---- processes of their own ----

_HEAD = """
import os, sys, threading, time
import numpy as np
import treadle
ALL = os.sched_getaffinity(0)
def workers():
    return [thread.native_id for thread in threading.enumerate() if thread.name[:8] == "treadle-" and thread.name[8:].isdigit()]
x = np.zeros((200, 1, 8, 8), np.float32)
"""
_MACHINE = """
main = treadle.VirtualMachine(treadle.load(sys.argv[1]))["main"]
for _ in range(20): main(x)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    saved = tmp_path_factory.mktemp("processors") / "digits.trdl"
    executable = treadle.compile(Path(tools.__file__).parent / "models" / "digits.onnx", progress=False)
    executable.export_library(saved)
    treadle.VirtualMachine(executable)
    return saved


def run(script: str, model: Path, **options) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TREADLE_NUM_THREADS"}
    command = [sys.executable, "-c", script, model]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, **options)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-3000:]}"


@confines
def test_workers_follow_when_the_process_is_confined_to_other_processors(model):
    body = """
if len(ALL) > 1:
    one = {max(ALL)}
    assert treadle.get_num_threads() >= 2 and workers()
    os.sched_setaffinity(0, one)
    time.sleep(0.06)
    main(x)
    assert treadle.get_num_threads() == 1
    assert all(os.sched_getaffinity(worker) == one for worker in workers())
    for _ in range(20): main(x)
    os.sched_setaffinity(0, ALL)
    time.sleep(0.06)
    for _ in range(20): main(x)
    assert treadle.get_num_threads() >= 2
    assert all(len(os.sched_getaffinity(worker)) > 1 or len(ALL) == 2 for worker in workers())
"""
    run(_HEAD + _MACHINE + body, model)


@confines
def test_a_number_that_was_chosen_stays(model):
    body = """
treadle.set_num_threads(2)
os.sched_setaffinity(0, {min(ALL)})
time.sleep(0.06)
main(x)
assert treadle.get_num_threads() == 2
"""
    run(_HEAD + _MACHINE + body, model)


@confines
def test_more_processors_are_used_by_the_next_machine(model):
    body = """
main = treadle.VirtualMachine(treadle.load(sys.argv[1]))["main"]
"""
    head = _HEAD + "os.sched_setaffinity(0, {min(ALL)})\n"
    end = """
assert treadle.get_num_threads() == 1 and not workers()
os.sched_setaffinity(0, ALL)
main = treadle.VirtualMachine(treadle.load(sys.argv[1]))["main"]
main(x)
assert treadle.get_num_threads() == min(len(ALL), len(workers()) + 1)
"""
    run(head + body + "main(x)\n" + end, model)


def test_idle_workers_take_no_time(model):
    """At most a thousandth of a core, in a process with four threads."""
    body = """
def used():  # seconds of processors: of each thread but this one, which sleeps
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    assert len(others) >= 3
    return sum(time.clock_gettime(time.pthread_getcpuclockid(thread.ident)) for thread in others)

treadle.set_num_threads(4)
main(x)
before, until = -1.0, time.monotonic() + 30
while used() != before and time.monotonic() < until:  # where cores are shared, they find late that there is nothing to do
    before = used()
    time.sleep(0.5)
before, start = used(), time.monotonic()
time.sleep(3)
share = (used() - before) / (time.monotonic() - start)
assert share < 0.0005, f"{share:.5f} of a core"
"""
    run(_HEAD + _MACHINE + body, model)


@pytest.mark.parametrize(("quota", "count"), [(100_000, 1), (150_000, 2)])
def test_a_process_in_a_control_group(model, quota, count):
    """Where this process may make one: of version 2, or of version 1."""
    with contextlib.ExitStack() as stack:
        group = _group(stack, quota)
        if group is None:
            pytest.skip("no control groups can be made here")
        body = f"assert treadle.get_num_threads() == min({count}, len(ALL)), treadle.get_num_threads()\n"
        enter = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n"
        body += f"main = treadle.VirtualMachine(treadle.load(sys.argv[1]))['main']; main(x); assert len(workers()) < {count}"
        run(enter + _HEAD + body, model)


def _group(stack: contextlib.ExitStack, quota: int) -> Path | None:
    """A control group with a quota of microseconds in each tenth of a second, with one without a limit in it."""
    for root, files in (
        (Path("/sys/fs/cgroup"), {"cpu.max": f"{quota} 100000"}),
        (Path("/sys/fs/cgroup/cpu"), {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(quota)}),
    ):
        group = root / f"treadle-test-{os.getpid()}-{quota}"
        try:
            group.mkdir()
        except OSError:
            continue
        stack.callback(group.rmdir)
        try:
            for name, text in files.items():
                if not (group / name).exists():
                    raise FileNotFoundError(name)
                (group / name).write_text(text)
            inner = group / "inner"
            inner.mkdir()
        except OSError:
            continue
        stack.callback(inner.rmdir)
        return inner
    return None
