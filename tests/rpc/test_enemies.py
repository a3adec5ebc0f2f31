"""Clients of a remote device that mean harm: what they hold is bounded, theirs alone, and gone when they are."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import VirtualMachine, errors
from treadle.formats.text.assembly import parse_assembly
from treadle.rpc.wire import VERSION, Steps, pack, unpack
from treadle.vm.budgets import CancelToken

from ..serve import models
from ..timing import soon

pytest.importorskip("grpc")
pytest.importorskip("prometheus_client")
import grpc
from treadle.rpc.server.sessions import RemoteLimits, Session
from treadle.rpc.server.work import Work

X = np.ones((2, 8), np.float32)
MEGABYTES = np.ones((4, 1 << 20), np.uint8)
CLOSURES = """
func @main(x: float32[2]) -> fn(float32[2]) -> float32[2] {
  alloc_closure r1, @inner (r0)
  ret r1
}
func @inner(y: float32[2]) captures (x: float32[2]) -> float32[2] {
  ret r0
}
"""


def connected(server: Any, **options: Any) -> Any:
    return treadle.remote(f"127.0.0.1:{server.grpc_port}", **options)


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_all_sessions_together_have_a_bound(start: Callable[..., Any]):
    server = start(remote=RemoteLimits(total=6 << 20))
    with connected(server) as second:
        with connected(server) as first:
            kept = first.put(MEGABYTES)
            with pytest.raises(errors.RemoteLimitError, match="together"):
                second.put(MEGABYTES)
            assert VirtualMachine(models.rows(), device=second)["main"](X).shape == (2, 4)
            assert np.asarray(kept).tobytes() == MEGABYTES.tobytes()
        assert second.put(MEGABYTES).shape == (4, 1 << 20)


def test_a_call_takes_no_more_memory_than_sessions_may_have(start: Callable[..., Any]):
    server = start(remote=RemoteLimits(total=1 << 18))
    with connected(server) as device:
        machine = VirtualMachine(models.rows(), device=device)
        with pytest.raises(errors.BudgetExceededError, match="memory"):
            machine["main"](np.ones((25_000, 8), np.float32))
        assert machine["main"](X).shape == (2, 4)


def test_a_digest_is_the_server_s_to_compute(start: Callable[..., Any]):
    """What is uploaded is known by its own digest, whatever a client says of it."""
    server = start(remote=RemoteLimits())
    with connected(server) as device:
        connection, bad, good = device.connection, models.counter().as_bytes(), models.rows().as_bytes()
        claimed = hashlib.sha256(good).digest()
        connection.upload({"kind": "executable", "digest": claimed}, memoryview(bad))
        assert set(server.remote.executables._kept) == {hashlib.sha256(bad).digest()}
        for data in (bad, good):
            proof = hashlib.sha256(connection.session + data).digest()
            assert connection.ask({"do": "machine", "digest": claimed, "proof": proof})[0] == {"missing": True}
        other = hashlib.sha256(connection.session + good).digest()
        asked = {"do": "machine", "digest": hashlib.sha256(bad).digest(), "proof": other}
        assert connection.ask(asked)[0] == {"missing": True}


def test_what_is_released_is_gone_and_is_released_once(start: Callable[..., Any]):
    server = start(remote=RemoteLimits())
    with connected(server) as device:
        kept, gone = device.put(X), device.put(X)
        (session,) = server.remote.sessions._sessions.values()
        before = session.bytes
        for number in [gone.handle.number] * 3 + [-1, 1 << 40]:
            device.connection.release(number)
        device.connection.ask({"do": "ping"})
        assert session.bytes == before - max(X.nbytes, 256)
        machine = VirtualMachine(models.rows(), device=device)
        with pytest.raises(errors.ArgumentError, match="no such value"):
            machine["main"](gone)
        with pytest.raises(errors.ArgumentError, match="no such value"):
            gone.numpy()
        assert machine["main"](kept).shape == (2, 4)
    assert session.bytes == server.remote.sessions.total.bytes == 0


# ---- the work of one message ----


def lists(count: int) -> bytes:
    """A header of empty lists, in lists of 65,535."""
    return b"\x81\xa1v\x9f" + 15 * (b"\xdc\xff\xff" + b"\x90" * (count // 15) + b"\x00" * (65_535 - count // 15))


def frame(header: bytes) -> bytes:
    return len(header).to_bytes(4, "little") + header


MESSAGES = {
    "lists without elements": pack({"values": [["numbers", "float32", [20_000_000, 0]]]}),
    "lists of lists": pack({"values": [["numbers", "float32", [300, 300, 300, 0, 5]]]}),
    "classes": pack({"values": [["alien", f"name {number}"] for number in range(20_000)]}),
    "a header of lists": frame(lists(900_000)),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_work_of_a_message_is_counted_before_it_is_done(name: str):
    def work() -> None:
        steps = Steps(1 << 18)
        header, data = unpack(MESSAGES[name], steps)
        Work(Session(RemoteLimits()), header, data, 1.0, CancelToken(), steps)

    tracemalloc.start()
    try:
        with soon(4), pytest.raises(errors.FormatError, match="more work than a server does"):
            work()
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_a_header_in_pieces_is_what_msgpack_says():
    whole = {
        "values": [["data", 0, "Cons", "List", [number, -1.5, None, True, b"\0" * number]] for number in range(99)]
    }
    whole |= {"text": "é" * 5000, "map": {"a": {}, "b": [[]]}, "empty": []}
    assert len(pack(whole)) > 5000
    assert unpack(pack(whole))[0] == whole
    for header in (pack(whole)[4:-1], pack(whole)[4:] + b"\0", b"\x91" * 5000 + b"\0", b"\x81\x01" + b"\xa1a" * 5000):
        with pytest.raises(errors.FormatError, match="not msgpack"):
            unpack(frame(header))


def test_what_is_let_go_of_costs_what_it_is():
    session = Session(RemoteLimits())
    handle = session.keep(X)
    for number in range(4000):
        session.keep_named(handle, "input", str(number), 1)
    with soon(1):
        for number in range(20_000):
            session.release(number + 2)
    assert session.bytes > 4000 * 256
    session.release(handle)
    assert session.bytes == session.total.bytes == 0


def test_a_measurement_that_rests_ends_in_time(start: Callable[..., Any]):
    server = start(remote=RemoteLimits(seconds=0.5))
    with connected(server) as device:
        machine = VirtualMachine(models.rows(), device=device)
        asked = {"do": "time", "machine": machine._owner.number, "function": "main", "args": [0]}
        asked |= {"number": 1, "cooldown_interval_ms": 9000, "values": [["tensor", "float32", [2, 8]]]}
        began = time.monotonic()
        with pytest.raises(errors.BudgetExceededError):
            device.connection.ask({**asked, "repeat": 3}, [bytes(64)])
        assert len(device.connection.ask({**asked, "repeat": 1}, [bytes(64)])[0]["results"]) == 1
        assert time.monotonic() - began < 6
        with pytest.raises(errors.FormatError, match="more work"):
            device.connection.ask({**asked, "repeat": 1 << 40}, [bytes(64)])


def test_a_closure_runs_on_its_own_machine_alone(start: Callable[..., Any]):
    server = start(remote=RemoteLimits())
    with connected(server) as device:
        owner = VirtualMachine(treadle.Executable(parse_assembly(CLOSURES)), device=device)
        other = VirtualMachine(models.rows(), device=device)
        closure = owner["main"]([1.0, 2.0])
        header = {"do": "closure", "machine": other._owner.number, "closure": closure.native.number, "args": [0]}
        with pytest.raises(errors.ArgumentError, match="closure of this machine"):
            device.connection.ask({**header, "values": [["tensor", "float32", [2]]]}, [bytes(8)])
        assert closure([3.0, 4.0]).numpy().tolist() == [3, 4]


@pytest.mark.parametrize("shape", [[1 << 46] * 9, [1 << 70], [-1], [0.5], ["2"], [1 << 40, 1 << 40], None, [2, 3]])
def test_shapes_that_nothing_has_take_no_memory(shape: Any, start: Callable[..., Any]):
    server = start(remote=RemoteLimits())
    with (
        connected(server) as device,
        pytest.raises((errors.FormatError, errors.ArgumentError, errors.RemoteLimitError)),
    ):
        device.connection.upload({"dtype": "float32", "shape": shape}, memoryview(bytes(64)))
    assert server.remote.sessions.total.bytes == 0


def test_an_upload_that_says_more_than_it_sends_takes_what_it_sends(start: Callable[..., Any]):
    server = start(remote=RemoteLimits())
    with connected(server) as device:
        connection = device.connection
        header = pack({"session": connection.session, "dtype": "uint8", "shape": [1 << 30], "size": 1 << 30})
        whose = (("treadle-session-bin", connection.session),)
        answer = connection._put(iter([header, bytes(100)]), metadata=whose, timeout=30)
        assert unpack(answer)[0]["error"]["class"] == "FormatError"
        assert server.remote.sessions.total.bytes == 0


def test_sessions_that_are_opened_and_left_are_refused_above_the_limit_and_forgotten(start: Callable[..., Any]):
    server = start(remote=RemoteLimits(sessions=8, idle=0.5))
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary("/treadle.Remote/Call")
        answers = [unpack(call(pack({"do": "open", "version": VERSION}), timeout=20))[0] for _ in range(100)]
    assert {each["error"]["class"] for each in answers if "error" in each} == {"RemoteLimitError"}
    assert sum("session" in each for each in answers) >= 8
    until(lambda: len(server.remote.sessions) == 0)
    with connected(server) as device:
        assert VirtualMachine(models.rows(), device=device)["main"](X).shape == (2, 4)


def test_sessions_leave_no_descriptors_threads_or_machines(start: Callable[..., Any]):
    server = start(remote=RemoteLimits())
    executable = models.rows()

    def one() -> weakref.ref:
        with connected(server) as device:
            machine = VirtualMachine(executable, device=device)
            kept = machine["main"](np.ones((5000, 8), np.float32))
            (session,) = server.remote.sessions._sessions.values()
            held = weakref.ref(session.get(machine._owner.number))
            assert held() is not None
            del kept, machine, session
        return held

    for _ in range(3):
        one()
    before = _used()
    held = [one() for _ in range(30)]
    gc.collect()
    until(lambda: all(each() is None for each in held))
    until(lambda: _used() <= (before[0] + 3, before[1] + 3))
    assert server.remote.sessions.total.bytes == 0


def _used() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def test_what_a_lost_connection_held_is_freed_and_its_call_ended(start: Callable[..., Any]):
    """The client's process vanishes amid a call: its channel closes without a word."""
    server = start(remote=RemoteLimits(seconds=50, idle=1.0))
    device = connected(server)
    machine = VirtualMachine(models.slow(), device=device)
    device.put(MEGABYTES)
    (session,) = server.remote.sessions._sessions.values()
    held = weakref.ref(session.get(machine._owner.number))
    raised: list[type] = []

    def run() -> None:
        try:
            machine["main"](np.ones(1, np.float32))
        except errors.TreadleError as error:
            raised.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: server.service.scheduler.running() == 1)
    _, channel, *_ = device.connection._end.peek()[2]
    device.connection._end.peek()[2][-1].set()  # no more signs of life
    channel.close()
    thread.join(30)
    assert raised
    assert all(issubclass(each, (errors.CancelledError, errors.RemoteError)) for each in raised)
    until(lambda: not server.service.scheduler.running())
    until(lambda: len(server.remote.sessions) == 0)
    del session
    until(lambda: gc.collect() >= 0 and held() is None)
    assert server.remote.sessions.total.bytes == 0
    with connected(server) as other:
        assert VirtualMachine(models.rows(), device=other)["main"](X).shape == (2, 4)


def test_a_server_may_ask_clients_for_certificates(start: Callable[..., Any], tmp_path: Path):
    def openssl(command: str) -> None:
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True, cwd=tmp_path)

    subject = "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    for name in ("authority", "stranger"):
        openssl(f"req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {name}.key -out {name}.pem {subject}")
    for name in ("server", "client"):
        openssl(f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr {subject}")
        signing = "-CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -copy_extensions copy"
        openssl(f"x509 -req -in {name}.csr -out {name}.pem {signing}")
    files = {name: str(tmp_path / name) for name in os.listdir(tmp_path)}
    server = start(
        remote=RemoteLimits(),
        certificate=files["server.pem"],
        key=files["server.key"],
        client_ca=files["authority.pem"],
    )
    address, trusted = f"localhost:{server.grpc_port}", {"tls": files["authority.pem"], "timeout": 5}
    pair = {"client_certificate": files["client.pem"], "client_key": files["client.key"]}
    with treadle.remote(address, **trusted, **pair) as device:
        assert VirtualMachine(models.rows(), device=device)["main"](X).shape == (2, 4)
    wrong = {"client_certificate": files["stranger.pem"], "client_key": files["stranger.key"]}
    for each in ({}, wrong):
        with pytest.raises(errors.RemoteError):
            treadle.remote(address, **trusted, **each)
