"""Whose call is next."""

from __future__ import annotations

import threading
import time

import pytest
from treadle.serve.errors import OverloadedError, UnavailableError
from treadle.serve.scheduler import Line, Scheduler


class Task:
    """Work that runs until it is told to end, or for some time."""

    def __init__(self, seconds: float | None = 0.0, order: list | None = None, name: str = "") -> None:
        self.seconds, self.order, self.name = seconds, order, name
        self.started, self.may_end, self.ended = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> None:
        self.started.set()
        if self.order is not None:
            self.order.append(self.name)
        self.may_end.wait(self.seconds)
        self.ended.set()


def test_a_full_line_refuses_at_once():
    scheduler, line = Scheduler(lambda: 1), Line("m", 2, None)
    running, *waiting = tasks = [Task(None), Task(None), Task(None)]
    scheduler.submit(line, running)
    assert running.started.wait(10)
    for task in waiting:
        scheduler.submit(line, task)
    with pytest.raises(OverloadedError, match="2 requests wait already"):
        scheduler.submit(line, Task())
    for task in tasks:
        task.may_end.set()
    assert scheduler.close(10)
    assert all(task.ended.is_set() for task in tasks)


def test_calls_that_never_end_hold_up_nobody_else():
    scheduler = Scheduler(lambda: 2)
    endless = [(Line(f"endless{number}", 9, None), [Task(None) for _ in range(4)]) for number in range(3)]
    for line, tasks in endless:
        for task in tasks:
            scheduler.submit(line, task)
    quick = Task()
    scheduler.submit(Line("quick", 9, None), quick)
    assert quick.ended.wait(10)
    for _, tasks in endless:
        for task in tasks:
            task.may_end.set()
    assert scheduler.close(10)


def test_the_model_that_has_used_the_least_time_is_next():
    scheduler, order = Scheduler(lambda: 1), []
    long, short = Line("long", 99, None), Line("short", 99, None)
    gate = Task(None)
    scheduler.submit(Line("gate", 9, None), gate)
    assert gate.started.wait(10)
    for _ in range(4):
        scheduler.submit(long, Task(0.05, order, "long"))
        scheduler.submit(short, Task(0.001, order, "short"))
    gate.may_end.set()
    assert scheduler.close(10)
    assert order.index("long") < 3
    assert [each for each in order if each == "short"] == ["short"] * 4
    assert order[-2:] == ["long", "long"]


def test_a_slot_at_once_is_given_where_nobody_waits():
    scheduler, line = Scheduler(lambda: 2), Line("m", 9, 1)
    assert scheduler.enter(line)
    assert not scheduler.enter(line)  # one instance
    scheduler.leave(line, 0.0)
    assert scheduler.enter(line)
    scheduler.leave(line, 0.0)


def test_a_closed_scheduler_takes_nothing():
    scheduler, line = Scheduler(lambda: 1), Line("m", 9, None)
    assert scheduler.close(1)
    with pytest.raises(UnavailableError):
        scheduler.submit(line, Task())
    assert not scheduler.enter(line)


def test_threads_that_have_nothing_to_do_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("treadle.serve.scheduler._IDLE_SECONDS", 0.05)
    scheduler, line = Scheduler(lambda: 2), Line("m", 99, None)
    for _ in range(8):
        scheduler.submit(line, Task(0.001))
    end = time.monotonic() + 10
    while scheduler._threads and time.monotonic() < end:
        time.sleep(0.01)
    assert scheduler._threads == 0
    last = Task()
    scheduler.submit(line, last)
    assert last.ended.wait(10)
