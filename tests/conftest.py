"""How tests share a machine, and which are run: `make test` runs them on several processes (pytest-xdist), those marked `serial`
after all others.

`make test` is tier 1, minutes on two cores without a cache: of tests that take long, the cases that `tests/tiers.py` chooses, and
properties of fewer examples. `make test-all` (`--all`) runs all. A test that is named on the command line runs whole.

A serial test measures time, memory or threads, and runs while no other test does. The processes agree on that by a lock on a
file: shared by ordinary tests, exclusive for a serial one.

Hypothesis judges what programs do, not how long a busy machine takes to draw or to run an example.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from . import tiers

BUILD_ENGINE = "from treadle.vm.core import engine; engine()"

with contextlib.suppress(ImportError):  # some environments have no property tests
    from hypothesis import HealthCheck, settings

    settings.register_profile("treadle", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("treadle")


class Shared:
    """What the process that starts the others does for them: the engine is built once, and there is a file to lock."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="treadle-tests-")

    def pytest_sessionstart(self) -> None:
        subprocess.run([sys.executable, "-c", BUILD_ENGINE], timeout=300, check=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["treadle_lock"] = str(Path(self.folder.name) / "lock")

    def pytest_unconfigure(self) -> None:
        self.folder.cleanup()


# before other folders' conftest.py, which ask what the target is
if "TREADLE_EMULATOR" in os.environ:
    from . import emulated

    emulated.begin()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="tier 2: all cases, and properties of all their examples")
    parser.addoption("--costs", metavar="FILE", help="writes what each test took, for `tests/tiers.py`")


def pytest_configure(config: pytest.Config) -> None:
    if (
        signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    ):  # as a shell's background jobs have it; tests interrupt themselves
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(Shared())
    elif hasattr(config, "workerinput"):
        # kernels are built by one process for each that tests: as many as CPUs would start for each, and wait for each other
        os.environ.setdefault("TREADLE_JOBS", "1")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """ONNX's own cases take seconds to list: nobody waits for them who has not asked."""
    return (
        True if collection_path.name == "conformance" and "conformance" not in config.option.markexpr.split() else None
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Serial tests come last: nothing waits for them then."""
    if not config.getoption("all") and not any("::" in name for name in config.args):
        kept, left = tiers.parted(items)
        config.hook.pytest_deselected(items=left)
        items[:] = kept
    items.sort(key=is_serial)


def pytest_collection_finish() -> None:
    """What was collected stays: no search for garbage needs to go through it again."""
    gc.collect()
    gc.freeze()


_states: dict[int, tuple[Any, Any]] = {}  # of generators of test modules: what they are, and how they began


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws does not depend on which tests ran before it: generators of its module begin anew."""
    for value in vars(getattr(item, "module", item)).values():
        if type(value).__name__ == "Generator" and hasattr(value, "bit_generator"):
            _, state = _states.setdefault(id(value), (value, value.bit_generator.state))
            value.bit_generator.state = state


def is_serial(item: pytest.Item) -> bool:
    return item.get_closest_marker("serial") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    lock, costs = getattr(item.config, "workerinput", {}).get("treadle_lock"), item.config.getoption("costs")
    with turn(lock, alone=is_serial(item)), tiers.measured(item, costs):
        return (yield)


@contextlib.contextmanager
def turn(lock: str | None, alone: bool) -> Iterator[None]:
    """Holds the lock, where tests have one; `alone`, no other process holds it."""
    if lock is None:
        yield
        return
    import fcntl

    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@pytest.fixture
def page() -> Iterator[Any]:
    """A page in a headless Chromium, where there is one."""
    playwright = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 1280, "height": 800})
        browser.close()
