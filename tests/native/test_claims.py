"""Of processes and threads that lack the same thing, one makes it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from treadle.native import claims
from treadle.native.cache import ObjectCache

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no locks of open files")

KEY, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


def test_a_claim_is_one_ones(cache):
    with cache.claims() as first, cache.claims() as second:
        assert first.take(KEY)
        assert not second.take(KEY)
        assert second.take(OTHER)
        first.release(KEY)
        assert second.take(KEY)


def test_who_waits_gets_what_another_has_made(cache):
    found: list[bytes | None] = []
    with cache.claims() as maker, cache.claims() as other:
        assert maker.take(KEY)
        waiter = threading.Thread(target=lambda: found.append(other.await_other(KEY)))
        waiter.start()
        time.sleep(0.05)
        assert found == []
        cache.put(KEY, b"made")
        maker.release(KEY)
        waiter.join(10)
    assert found == [b"made"]


def test_who_waits_for_one_that_fails_is_to_make_it(cache):
    with cache.claims() as other:
        with cache.claims() as maker:
            assert maker.take(KEY)
        assert other.await_other(KEY) is None
        with cache.claims() as third:
            assert not third.take(KEY)


def test_a_claim_ends_with_its_process(cache):
    code = f"""
import sys
from pathlib import Path
from treadle.native.cache import ObjectCache
claims = ObjectCache(Path({str(cache.folder)!r})).claims()
assert claims.take({KEY!r})
print("taken", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"taken\n"
    with cache.claims() as mine:
        assert not mine.take(KEY)
        process.kill()
        process.communicate()
        assert mine.await_other(KEY) is None


def test_patience_has_an_end(cache, monkeypatch):
    monkeypatch.setattr(claims, "_PATIENCE", 0.05)
    with cache.claims() as maker, cache.claims() as other:
        assert maker.take(KEY)
        assert other.await_other(KEY) is None
        assert other.await_other(KEY, until=0.0) is None


def test_a_process_that_is_stopped_is_waited_for_once_and_one_at_work_for_each_blob(cache, monkeypatch):
    monkeypatch.setattr(claims, "_PATIENCE", 0.2)
    with cache.claims() as maker, cache.claims() as other:
        assert maker.take(KEY)
        assert maker.take(OTHER)
        assert other.await_other(KEY) is None
        assert other._gives_up is not None
        end = other._gives_up
        assert other.await_other(OTHER) is None
        assert other._gives_up == end
        cache.put(KEY, b"made")
        assert other.await_other(KEY) == b"made"
        assert other._gives_up is None


def test_without_a_folder_each_makes_its_own(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for cache in (ObjectCache(None), ObjectCache(tmp_path / "file")):
        with cache.claims() as first, cache.claims() as second:
            assert first.take(KEY)
            assert second.take(KEY)


FIRST_CALL = """
import sys
import numpy as np
import treadle
from treadle.compiler.targets.cpu.toolchain import kernels as build
from treadle.vm import entries
made, compile_texts, compiled = [], build.compile_texts, entries.compiled
build.compile_texts = lambda texts, *a: made.extend(text.symbol for text in texts) or compile_texts(texts, *a)
entries.compiled = lambda *a: made.append("engine") or compiled(*a)
sys.stdin.readline()
x = treadle.var("x", (4, 8))
machine = treadle.VirtualMachine(treadle.compile(treadle.function([x], treadle.op.softmax(x * 2.0) @ x.T), progress=False))
machine["main"](np.ones((4, 8), np.float32))
print(*made)
"""


def test_processes_that_start_together_build_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([sys.executable, "-c", FIRST_CALL], **pipes) for _ in range(4)]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    made = [name for process in started for name in process.communicate(timeout=120)[0].split()]
    assert all(process.returncode == 0 for process in started)
    assert "engine" in made
    assert len(made) == len(set(made)) > 1
