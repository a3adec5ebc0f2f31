"""Sessions of the remote device keep nobody else waiting: calls take turns with those of others, and with the server's models."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import Module, VirtualMachine, errors, function, var

from ..serve import models

pytest.importorskip("grpc")
pytest.importorskip("prometheus_client")
import grpc
from treadle.rpc.server.sessions import RemoteLimits, Session, Total
from treadle.rpc.server.turns import Places, in_turn
from treadle.rpc.wire import SESSION_KEY, pack, unpack
from treadle.serve.scheduler import Line, Scheduler

X = np.ones((2, 8), np.float32)
ONE = np.ones(1, np.float32)
SLOTS = 2


class Endless:
    """Calls that never end, of one session."""

    def __init__(self, port: int, count: int) -> None:
        self.device = treadle.remote(f"127.0.0.1:{port}")
        self.machine, self.token = VirtualMachine(models.slow(), device=self.device), treadle.CancelToken()
        self.errors: list[type] = []

        def run() -> None:
            try:
                self.machine.call("main", [ONE], cancel=self.token)
            except errors.TreadleError as error:
                self.errors.append(type(error))

        self.threads = [threading.Thread(target=run) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self.token.cancel()
        for thread in self.threads:
            thread.join(30)
        self.device.close()


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_sessions_that_loop_for_ever_hold_up_nobody_else(start: Callable[..., Any], folder: Path):
    server = start(remote=RemoteLimits(seconds=50))
    server.service.scheduler._slots = lambda: SLOTS
    loops = [Endless(server.grpc_port, 8) for _ in range(2)]
    try:
        until(lambda: server.service.scheduler.running() >= SLOTS)
        assert server.service.scheduler.running() <= SLOTS + 1
        with treadle.remote(f"127.0.0.1:{server.grpc_port}") as device:
            machine = VirtualMachine(models.rows(), device=device)
            started = time.monotonic()
            for _ in range(20):
                assert machine["main"](X).shape == (2, 4)
            assert time.monotonic() - started < 20  # the loops have 50 s
        tritonclient = pytest.importorskip("tritonclient.grpc")
        client = tritonclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        given = tritonclient.InferInput("x", [2, 8], "FP32")
        given.set_data_from_numpy(X)
        (output,) = client.infer("rows", [given]).get_response().outputs
        assert list(output.shape) == [2, 4]
        client.close()
    finally:
        for each in loops:
            each.end()
    assert all(each.errors == [errors.CancelledError] * 8 for each in loops)
    until(lambda: server.service.scheduler.running() == 0)


def test_a_call_whose_turn_does_not_come_in_time_says_so(start: Callable[..., Any]):
    server = start(remote=RemoteLimits(seconds=50))
    server.service.scheduler._slots = lambda: 1
    loop = Endless(server.grpc_port, 1)
    try:
        until(lambda: server.service.scheduler.running() == 1)
        with pytest.raises(errors.BudgetExceededError, match="before its turn"):
            loop.machine.call("main", [ONE], max_seconds=0.3)
    finally:
        loop.end()


def test_a_cancelled_call_that_waits_is_not_made():
    scheduler, line, token = Scheduler(slots=lambda: 1), Line("session", 8, None), treadle.CancelToken()
    made: list[int] = []
    assert scheduler.enter(line)
    threading.Timer(0.1, token.cancel).start()
    with pytest.raises(errors.CancelledError):
        in_turn(scheduler, line, token, 30, lambda: made.append(1))
    scheduler.leave(line, 0.0)
    assert in_turn(scheduler, line, treadle.CancelToken(), 30, lambda: 3) == 3
    assert made == []
    assert scheduler.close(5)


def test_what_a_waiting_task_raises_is_raised_where_it_is_waited_for():
    scheduler, line = Scheduler(slots=lambda: 1), Line("session", 8, None)
    assert scheduler.enter(line)
    threading.Timer(0.1, lambda: scheduler.leave(line, 0.0)).start()

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_turn(scheduler, line, treadle.CancelToken(), 30, fail)
    assert scheduler.close(5)


def test_a_session_without_a_request_always_gets_a_place():
    places, (greedy, other) = Places(2, "calls"), (Session(RemoteLimits()) for _ in range(2))
    with places.turn(greedy), places.turn(greedy):
        with pytest.raises(errors.RemoteLimitError, match="2 calls"), places.turn(greedy):
            pass
        with places.turn(other), pytest.raises(errors.RemoteLimitError), places.turn(other):
            pass


def test_uploads_that_stop_halfway_keep_nobody_from_uploading(start: Callable[..., Any]):
    server = start(remote=RemoteLimits(transfers=2, transfer_seconds=30))
    with (
        treadle.remote(f"127.0.0.1:{server.grpc_port}") as slow,
        treadle.remote(f"127.0.0.1:{server.grpc_port}") as device,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        put, halt = channel.stream_unary("/treadle.Remote/Put"), threading.Event()

        def chunks() -> Any:
            yield pack({"session": slow.connection.session, "dtype": "uint8", "shape": [1000], "size": 1000})
            yield bytes(10)
            halt.wait(60)

        whose = ((SESSION_KEY, slow.connection.session),)
        futures = [put.future(chunks(), metadata=whose) for _ in range(2)]
        (held,) = (each for each in server.remote.sessions._sessions.values() if each.id == slow.connection.session)
        until(lambda: len(held.running) == 2)
        assert np.asarray(device.put(X)).tobytes() == X.tobytes()
        strangers = [put.future(iter(()), metadata=((SESSION_KEY, b"0" * 16),)), put.future(iter(()))]
        for future in strangers:
            assert unpack(future.result(20))[0]["error"]["class"] == "RemoteError"
        halt.set()
        for future in futures:
            assert unpack(future.result(20))[0]["error"]["class"] == "FormatError"
        assert held.bytes == 0


def test_calls_at_once_are_lent_no_more_memory_than_there_is():
    total = Total(1000)
    total.add(200)
    with total.lent(300) as first, total.lent(300) as second, total.lent(300) as third:
        assert (first, second, third) == (300, 250, 125)
        total.add(500)  # what a call gave is held from now on
        with total.lent(300) as fourth:
            assert fourth == 0
    with total.lent(300) as again:
        assert again == 150


def test_a_call_takes_no_memory_that_another_may_take_now(start: Callable[..., Any]):
    held, begun, go_on = [], threading.Event(), threading.Event()

    def wait(x: Any) -> Any:
        begun.set()
        assert go_on.wait(20)
        return x.numpy()

    x = var("x", ("n",))
    import_ = treadle.import_("wait", "fn(float32[n]) -> float32[n]")
    waits = treadle.compile(Module(main=function([x], import_(x))))
    doubles = treadle.compile(Module(main=function([x], x + x)))
    server = start(remote=RemoteLimits(total=64 << 20, memory=32 << 20), functions={"wait": wait})
    with (
        treadle.remote(f"127.0.0.1:{server.grpc_port}") as first,
        treadle.remote(f"127.0.0.1:{server.grpc_port}") as second,
    ):
        waiting, doubling = VirtualMachine(waits, device=first), VirtualMachine(doubles, device=second)
        thread = threading.Thread(target=lambda: held.append(waiting["main"](np.ones(4, np.float32))))
        thread.start()
        try:
            assert begun.wait(20)
            with pytest.raises(errors.BudgetExceededError, match="memory"):
                doubling["main"](np.ones(3 << 20, np.float32))  # 12 MiB: 32 of the 64 are lent, and 12 are held
        finally:
            go_on.set()
            thread.join()
        assert doubling["main"](np.ones(3 << 20, np.float32)).shape == (3 << 20,)
