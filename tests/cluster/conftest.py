"""Small executables, what they should give, and the processes of workers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import treadle
from treadle import Module, function, op, var

WIDTH, CLASSES = 16, 4
WEIGHTS = np.random.default_rng(0).normal(size=(WIDTH, CLASSES)).astype(np.float32)


def classifier(rows: object = "n") -> treadle.Executable:
    """Rows of 16 numbers to rows of 4 probabilities."""
    x = var("x", (rows, WIDTH))
    return treadle.compile(Module(main=function([x], op.softmax(op.matmul(x, WEIGHTS), axis=-1))))


@pytest.fixture(scope="session")
def exe() -> treadle.Executable:
    return classifier()


@pytest.fixture(scope="session")
def fixed() -> treadle.Executable:
    """The same of 4 rows at once."""
    return classifier(4)


@pytest.fixture(scope="session")
def path(exe: treadle.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "classifier.trdl"
    exe.export_library(file)
    return file


@pytest.fixture(scope="session")
def rows() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(103, WIDTH)).astype(np.float32)


def workers() -> list[psutil.Process]:
    """The processes that compute batches for this one."""
    found = []
    for child in psutil.Process().children():
        try:
            if child.status() != psutil.STATUS_ZOMBIE and "cluster.worker" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            pass
    return found


@pytest.fixture
def living() -> Callable[[], list[psutil.Process]]:
    return workers


def descriptors() -> list[str]:
    """The memory that batches pass through."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(each for each in found if each.startswith("/memfd:treadle"))


@pytest.fixture(autouse=True)
def _no_worker_is_left() -> Iterator[None]:
    before = descriptors()
    yield
    assert not workers()
    assert descriptors() == before
