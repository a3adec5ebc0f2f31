"""Tests side by side: serial ones come last, and wait for all others."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from .conftest import pytest_collection_modifyitems, turn


@pytest.mark.serial
def test_serial_tests_come_last(request: pytest.FixtureRequest) -> None:
    items = [request.node, *(item for item in request.session.items if item is not request.node)]
    pytest_collection_modifyitems(request.config, items)
    serial = [item.get_closest_marker("serial") is not None for item in items]
    assert serial == sorted(serial)
    assert serial[-1]


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_nothing_runs_beside_a_serial_test(first: bool, second: bool, tmp_path: Path) -> None:
    order: list[str] = []
    is_held = threading.Event()

    def hold() -> None:
        with turn(str(tmp_path / "lock"), alone=first):
            is_held.set()
            time.sleep(0.05)
            order.append("first")

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    with turn(str(tmp_path / "lock"), alone=second):
        order.append("second")
    holder.join()
    assert order == ["first", "second"]


def test_ordinary_tests_run_side_by_side(tmp_path: Path) -> None:
    with turn(str(tmp_path / "lock"), alone=False), turn(str(tmp_path / "lock"), alone=False):
        pass
