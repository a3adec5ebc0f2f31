"""A remote device: machines at a server, sessions that reach nothing of one another's, and clients that mean harm."""

from __future__ import annotations

import copy
import gc
import hashlib
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import VirtualMachine, errors
from treadle.formats.text.assembly import parse_assembly
from treadle.rpc.wire import VERSION, pack, unpack
from treadle.vm.values import Closure, DataValue

from ..serve import models
from ..serve.mutations import damaged, mutated

pytest.importorskip("grpc")
pytest.importorskip("prometheus_client")
from treadle.rpc.server.functions import Functions
from treadle.rpc.server.sessions import RemoteLimits

X = np.arange(16, dtype=np.float32).reshape(2, 8)
LARGE = np.random.default_rng(1).standard_normal((100_000, 8)).astype(np.float32)
SEED = int(os.environ.get("TREADLE_HOSTILE_SEED", "0"))
COUNT = int(os.environ.get("TREADLE_HOSTILE_REMOTE", "2000"))
LISTS = """
data List = Nil | Cons(float32[2], List)
func @main(x: float32[2]) -> List {
  alloc_data r1, List, 0 ()
  alloc_data r2, List, 1 (r0, r1)
  ret r2
}
func @again(x: float32[2], rest: List) -> List {
  alloc_data r2, List, 1 (r0, r1)
  ret r2
}
func @delayed(x: float32[2]) -> fn(float32[2]) -> List {
  alloc_closure r1, @inner (r0)
  ret r1
}
func @inner(y: float32[2]) captures (x: float32[2]) -> List {
  alloc_data r2, List, 0 ()
  alloc_data r3, List, 1 (r1, r2)
  alloc_data r4, List, 1 (r0, r3)
  ret r4
}
func @endless(x: float32[2]) -> float32[2] {
  invoke r1, @endless (r0)
  ret r1
}
"""


@pytest.fixture
def serve(start: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """`serve(**limits)`: a server, and a function that connects to it."""
    devices: list[Any] = []

    def begin(**limits: Any) -> tuple[Any, Callable[..., Any]]:
        server = start(remote=RemoteLimits(**limits))

        def connect(**options: Any) -> Any:
            devices.append(treadle.remote(f"127.0.0.1:{server.grpc_port}", **options))
            return devices[-1]

        return server, connect

    yield begin
    for device in devices:
        device.close()


def assembled(text: str) -> treadle.Executable:
    return treadle.Executable(parse_assembly(text))


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_machine_of_a_remote_device_has_the_interface_of_one_here(serve: Callable[..., Any]):
    _, connect = serve()
    there, here = VirtualMachine(models.rows(), device=connect()), VirtualMachine(models.rows())
    assert isinstance(there, VirtualMachine)
    assert list(there) == list(here)
    assert "double" in there
    assert there.get_function_params("main") == ("x",)
    for call in (
        lambda machine: machine["main"](X),
        lambda machine: machine["main"](x=X),
        lambda machine: machine["main"](X.tolist()),
        lambda machine: machine.run(X),
        lambda machine: machine.invoke("double", [[1.0, 2.0]]),
        lambda machine: machine.call("main", [LARGE], max_seconds=30),
    ):
        assert call(there).numpy().tobytes() == call(here).numpy().tobytes()
    for machine in (there, here):
        machine.set_input("main", X)
        machine.invoke_stateful("main")
        machine.save_function("double", "saved", np.ones((1, 2), np.float32))
        assert machine["saved"]().numpy().tolist() == [[2, 2]]
        assert machine.profile("main")
    assert there.get_outputs("main").numpy().tobytes() == here.get_outputs("main", 0).numpy().tobytes()
    assert there.invoke("main").numpy().tobytes() == here.invoke("main").numpy().tobytes()
    assert len(there.time_evaluator("main", number=2, repeat=3)(X).results) == 3


def test_a_fault_is_the_error_that_it_is_here(serve: Callable[..., Any]):
    _, connect = serve()
    there, here = VirtualMachine(models.rows(), device=connect()), VirtualMachine(models.rows())
    for call in (
        lambda machine: machine["main"](X[:, :3]),
        lambda machine: machine["main"](X.astype(np.float64)),
        lambda machine: machine["main"](),
        lambda machine: machine["nope"],
        lambda machine: machine.get_outputs("main"),
        lambda machine: machine.call("main", [X], max_steps=0),
        lambda machine: machine.call("main", [LARGE], max_memory=1000),
    ):
        raised = []
        for machine in (there, here):
            with pytest.raises(errors.TreadleError) as found:
                call(machine)
            raised.append((type(found.value), str(found.value)))
        assert raised[0] == raised[1]


def test_results_stay_at_the_server_until_they_are_asked_for(serve: Callable[..., Any]):
    _, connect = serve()
    machine = VirtualMachine(models.counter(), device=connect())
    small, _ = machine["main"](np.float32([1, 2]), np.float32([3, 4]))
    assert small.numpy().tolist() == [4, 6]
    machine = VirtualMachine(models.rows(), device=connect())
    result = machine["main"](LARGE)
    assert result.shape == (100_000, 4)
    assert result.dtype is treadle.formats.dtypes.DType.float32
    again = machine["double"](machine["double"](result_of_two(machine)))
    assert not result.is_here
    assert not again.is_here
    np.testing.assert_allclose(again.numpy(), 4 * 2 * np.ones((10_000, 2)), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(result), models.expected(LARGE), rtol=1e-4, atol=1e-5)


def result_of_two(machine: Any) -> Any:
    return machine["double"](np.ones((10_000, 2), np.float32))


def test_values_that_nobody_has_any_more_are_let_go_of(serve: Callable[..., Any]):
    server, connect = serve()
    device = connect()
    machine = VirtualMachine(models.rows(), device=device)
    (session,) = server.remote.sessions._sessions.values()
    machine["main"](X)
    held, size = len(session), session.bytes
    for _ in range(20):
        machine["main"](LARGE)
    gc.collect()
    machine["main"](X)
    assert (len(session), session.bytes) == (held, size)


def test_relax_s_machine_runs_on_a_remote_device(serve: Callable[..., Any]):
    import treadle.tvm as tvm

    _, connect = serve()
    device = connect()
    there = tvm.relax.VirtualMachine(models.rows(), device)
    here = tvm.relax.VirtualMachine(models.rows(), tvm.cpu())
    x = tvm.nd.array(X)
    for machine in (there, here):
        machine.set_input("main", x)
        machine.invoke_stateful("main")
        machine.save_function("main", "saved", x)
    expected = here["double"](tvm.nd.array(X[:, :2])).numpy()
    assert there["double"](tvm.nd.array(X[:, :2])).numpy().tobytes() == expected.tobytes()
    assert there.get_outputs("main").numpy().tobytes() == here.get_outputs("main").numpy().tobytes()
    assert there["saved"]().numpy().tobytes() == here["saved"]().numpy().tobytes()
    assert there.time_evaluator("saved", device, number=2)().mean > 0


def test_tvm_s_rpc_is_a_session_at_a_server(start: Callable[..., Any], tmp_path: Path):
    import treadle.tvm as tvm

    (tmp_path / "tokens").write_text("key\n")
    functions = {"total": lambda x, factor: x.numpy().sum() * factor}
    server = start(remote=RemoteLimits(), functions=functions, tokens=str(tmp_path / "tokens"))
    with pytest.raises(tvm.error.RPCError, match="token"):
        tvm.rpc.connect("127.0.0.1", server.grpc_port, key="wrong")
    session, other = (tvm.rpc.connect("127.0.0.1", server.grpc_port, key="key") for _ in range(2))
    try:
        assert session.get_function("total")(tvm.nd.array(X), 2).item() == 2 * X.sum()
        with pytest.raises(errors.UnknownGlobalFunctionError):
            session.get_function("os.system")
        models.rows().export_library(tmp_path / "model.trdl")
        session.upload(tmp_path / "model.trdl")
        session.upload(b"123", "../x")  # a name, no path
        assert session.listdir() == ["../x", "model.trdl"]
        assert session.download("../x") == b"123"
        assert other.listdir() == []
        with pytest.raises(errors.ArgumentError, match="no such file"):
            other.download("model.trdl")
        machine = tvm.relax.VirtualMachine(session.load_module("model.trdl"), session.cpu())
        np.testing.assert_allclose(machine["main"](tvm.nd.array(X)).numpy(), models.expected(X), rtol=1e-5)
        session.remove("../x")
        assert session.listdir() == ["model.trdl"]
    finally:
        session.close()
        other.close()


def test_data_values_and_closures_stay_at_the_server(serve: Callable[..., Any]):
    _, connect = serve()
    machine, other = (VirtualMachine(assembled(LISTS), device=connect()) for _ in range(2))
    one = machine["main"]([1.0, 2.0])
    assert one.constructor == "Cons"
    two = machine["again"]([3.0, 4.0], one)
    assert two[0].numpy().tolist() == [3, 4]
    assert two[1][0].numpy().tolist() == [1, 2]
    assert two[1][1].constructor == "Nil"
    made = machine["again"]([5.0, 6.0], DataValue("Cons", ([7.0, 8.0], DataValue("Nil"))))
    assert made[1][0].numpy().tolist() == [7, 8]
    closure = machine["delayed"]([1.0, 2.0])
    assert isinstance(closure, Closure)
    for called in (
        closure([3.0, 4.0]),
        machine.invoke_closure(closure, [3.0, 4.0]),
        machine.call(closure, [[3.0, 4.0]]),
    ):
        assert [called[0].numpy().tolist(), called[1][0].numpy().tolist()] == [[3, 4], [1, 2]]
    with pytest.raises(errors.ArgumentError, match="closure of this machine"):
        other.invoke_closure(closure, [3.0, 4.0])


def test_an_executable_travels_once_and_its_constants_with_it(serve: Callable[..., Any], tmp_path: Path):
    server, connect = serve()
    models.rows().move_late_bound_consts(tmp_path / "constants.bin", 16).export_library(tmp_path / "model.trdl")
    device = connect()
    sent = []
    upload = device.connection.upload
    device.connection.upload = lambda header, data: sent.append(len(data)) or upload(header, data)
    for _ in range(3):
        machine = VirtualMachine(treadle.load(tmp_path / "model.trdl"), device=device)
    np.testing.assert_allclose(machine["main"](X).numpy(), models.expected(X), rtol=1e-5)
    assert len(sent) == 1
    assert len(server.remote.executables) == 1


def test_a_digest_alone_gives_nobody_an_executable(serve: Callable[..., Any]):
    server, connect = serve()
    VirtualMachine(models.rows(), device=connect())
    (digest,) = server.remote.executables._kept
    answer, _ = connect().connection.ask({"do": "machine", "digest": digest, "proof": b"0" * 32})
    assert answer == {"missing": True}


def test_an_executable_that_the_verifier_refuses_is_refused_there(serve: Callable[..., Any]):
    _, connect = serve()
    device = connect()
    bad = assembled("func @main(x: float32[2]) -> float32[2] refs=2 { ret r1 }")
    with pytest.raises(errors.VerificationError) as there:
        VirtualMachine(bad, device=device)
    with pytest.raises(errors.VerificationError) as here:
        VirtualMachine(bad)
    assert str(there.value) == str(here.value)
    assert there.value.layer == here.value.layer
    with pytest.raises(errors.FormatError):
        device.connection.upload({"kind": "executable"}, memoryview(b"no executable at all"))
    with pytest.raises(errors.ArgumentError, match="do not travel"):
        VirtualMachine(models.rows(), device=device, trust_native=True)
    assert VirtualMachine(models.rows(), device=device)["main"](X).shape == (2, 4)


def test_a_number_of_threads_travels(serve: Callable[..., Any]):
    _, connect = serve()
    device = connect()
    machine = VirtualMachine(models.rows(), device=device, threads=1)
    np.testing.assert_array_equal(machine["main"](X).numpy(), VirtualMachine(models.rows())["main"](X).numpy())
    assert machine.profile("main", X).configuration["Number of threads"].value == 1
    assert machine.profile_call("main", [X], threads=2).configuration["Number of threads"].value <= 2


def test_a_machine_at_a_server_is_not_pickled(serve: Callable[..., Any]):
    _, connect = serve()
    device = connect()
    machine, tensor = VirtualMachine(models.rows(), device=device), device.put(X)
    for each in (machine, device, tensor.handle):
        for way in (pickle.dumps, copy.deepcopy):
            with pytest.raises(errors.NotPicklableError):
                way(each)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(tensor)), X)


def test_every_budget_ends_a_call_and_the_server_s_own_are_never_passed(serve: Callable[..., Any]):
    _, connect = serve(seconds=0.5, memory=1 << 20, steps=1 << 40)
    device = connect()
    slow, rows = (VirtualMachine(each(), device=device) for each in (models.slow, models.rows))
    endless = VirtualMachine(assembled(LISTS), device=device)
    one = np.ones(1, np.float32)
    for budget, call in {
        "steps": lambda: slow.call("main", [one], max_steps=1000),
        "seconds": lambda: slow.call("main", [one], max_seconds=1000),
        "memory": lambda: rows.call("main", [LARGE], max_memory=1 << 40),
        "depth": lambda: endless.call("endless", [[1.0, 2.0]], max_depth=100),
    }.items():
        with pytest.raises(errors.BudgetExceededError) as found:
            call()
        assert found.value.budget == budget
    with pytest.raises(errors.BudgetExceededError):
        slow.time_evaluator("main", number=1000)(one)
    assert rows["main"](X).shape == (2, 4)


def test_a_call_is_cancelled_there(serve: Callable[..., Any]):
    server, connect = serve()
    slow, token = VirtualMachine(models.slow(), device=connect()), treadle.CancelToken()
    threading.Timer(0.3, token.cancel).start()
    with pytest.raises(errors.CancelledError):
        slow.call("main", [np.ones(1, np.float32)], cancel=token)
    (session,) = server.remote.sessions._sessions.values()
    until(lambda: not session.running, 10)


def test_a_session_reaches_nothing_of_another(serve: Callable[..., Any]):
    _, connect = serve()
    owner, thief = connect(), connect()
    machine = VirtualMachine(models.rows(), device=owner)
    kept = machine["main"](LARGE)
    mine = machine._owner.number
    for number in (*range(100), kept.handle.number, mine, -1, 1 << 70):
        with pytest.raises((errors.ArgumentError, errors.FormatError, OverflowError)):
            thief.connection.ask({"do": "call", "machine": number, "function": "main", "args": []})
        with pytest.raises((errors.ArgumentError, OverflowError)):
            thief.connection.download({"handle": number})
    thief.connection.ask({"do": "ping", "release": [mine]})
    thief.connection.release(kept.handle.number)
    thief.connection.ask({"do": "ping"})
    np.testing.assert_allclose(kept.numpy(), models.expected(LARGE), rtol=1e-4, atol=1e-5)
    with pytest.raises(errors.RemoteError, match="no such session"):
        VirtualMachine(models.rows(), device=stolen(thief, b"0" * 16))


def stolen(device: Any, session: bytes) -> Any:
    device.connection.session = session
    return device


def test_limits_of_sessions_values_and_bytes_have_names(serve: Callable[..., Any]):
    _, connect = serve(sessions=2, values=6, bytes=8 << 20)
    device = connect()
    rows = VirtualMachine(models.rows(), device=device)
    kept = []
    with pytest.raises(errors.RemoteLimitError, match="bytes"):
        kept += [rows["main"](LARGE) for _ in range(6)]
    kept.clear()
    gc.collect()
    with pytest.raises(errors.RemoteLimitError, match="values"):
        kept += [rows["double"](np.ones((10_000, 2), np.float32)) for _ in range(10)]
    kept.clear()
    gc.collect()
    with pytest.raises(errors.RemoteLimitError, match="bytes"):
        rows.set_input("main", np.ones((400_000, 8), np.float32))
    second = connect()
    with pytest.raises(errors.RemoteLimitError, match="sessions"):
        connect()
    second.close()
    assert VirtualMachine(models.rows(), device=connect())["main"](X).shape == (2, 4)
    with pytest.raises(errors.RemoteError, match="closed"):
        VirtualMachine(models.rows(), device=second)


def test_one_session_does_not_take_all_the_calls(serve: Callable[..., Any]):
    server, connect = serve(calls=2, session_calls=1)
    device, token, one = connect(), treadle.CancelToken(), np.ones(1, np.float32)
    (session,) = server.remote.sessions._sessions.values()
    slow, rows = (VirtualMachine(each(), device=device) for each in (models.slow, models.rows))

    def run() -> None:
        with pytest.raises(errors.CancelledError):
            slow.call("main", [one], cancel=token)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: bool(session.running))
    with pytest.raises(errors.RemoteLimitError, match="at once"):
        rows["main"](X)
    assert VirtualMachine(models.rows(), device=connect())["main"](X).shape == (2, 4)
    token.cancel()
    thread.join(30)


def test_a_client_that_is_killed_leaves_nothing_behind(serve: Callable[..., Any], folder: Path):
    server, connect = serve(idle=2.0)
    device = connect()
    machine = VirtualMachine(models.rows(), device=device)
    client = Path(__file__).parent / "remote_client.py"
    command = [sys.executable, client, f"127.0.0.1:{server.grpc_port}", folder / "rows.trdl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "(100000, 4)\n"
        assert len(server.remote.sessions) == 2
        child.kill()
    until(lambda: len(server.remote.sessions) == 1)
    time.sleep(2.5)  # the one that says that it is there stays
    assert machine["main"](X).shape == (2, 4)


def test_a_tensor_that_was_put_there_does_not_travel_again(serve: Callable[..., Any]):
    _, connect = serve()
    device = connect()
    machine = VirtualMachine(models.rows(), device=device)
    there = device.put(LARGE)
    device.connection.upload = None  # nothing goes there any more
    assert there.shape == LARGE.shape
    assert (there.ndim, there.size, there.nbytes) == (LARGE.ndim, LARGE.size, LARGE.nbytes)
    for _ in range(2):
        np.testing.assert_allclose(machine["main"](there).numpy(), models.expected(LARGE), rtol=1e-4, atol=1e-5)
    assert np.asarray(there).tobytes() == LARGE.tobytes()


def test_a_server_that_is_killed_has_a_name_and_the_next_one_serves(folder: Path):
    command = [sys.executable, "-m", "treadle", "serve", folder, "--remote", "--http-port", "-1", "--grpc-port"]

    def begin(port: int) -> tuple[subprocess.Popen, int]:
        child = subprocess.Popen([*command, str(port)], stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        for line in child.stderr:
            if "gRPC on" in line:
                return child, int(line.rpartition(":")[2])
        raise AssertionError("it did not begin")

    server, port = begin(0)
    try:
        old = treadle.remote(f"127.0.0.1:{port}")
        machine = VirtualMachine(models.rows(), device=old)
        kept = machine["main"](LARGE)
        server.kill()
        server.wait()
        for call in (lambda: machine["main"](X), kept.numpy, lambda: VirtualMachine(models.rows(), device=old)):
            with pytest.raises(errors.RemoteError):
                call()
        server, _ = begin(port)
        with treadle.remote(f"127.0.0.1:{port}") as new:
            assert VirtualMachine(models.rows(), device=new)["main"](X).shape == (2, 4)
        old.close()
    finally:
        server.kill()
        server.wait()


def test_a_lost_connection_has_a_name(serve: Callable[..., Any]):
    server, connect = serve()
    machine = VirtualMachine(models.rows(), device=connect())
    kept = machine["main"](LARGE)
    server.stop()
    until(lambda: len(server.remote.sessions) == 0)
    for call in (lambda: machine["main"](X), kept.numpy):
        with pytest.raises(errors.RemoteError) as found:
            call()
        assert isinstance(found.value, ConnectionError)
    with pytest.raises(errors.RemoteError, match="no server"):
        connect(timeout=2)


def test_a_server_without_remote_and_a_wrong_token_are_told_apart(start: Callable[..., Any], tmp_path: Path):
    plain = start()
    with pytest.raises(errors.RemoteError, match="--remote"):
        treadle.remote(f"127.0.0.1:{plain.grpc_port}")
    (tmp_path / "tokens").write_text("right\n")
    guarded = start(remote=RemoteLimits(), tokens=str(tmp_path / "tokens"))
    for token in (None, "wrong"):
        with pytest.raises(errors.RemoteError, match="token"):
            treadle.remote(f"127.0.0.1:{guarded.grpc_port}", token=token)
    with treadle.remote(f"127.0.0.1:{guarded.grpc_port}", token="right") as device:
        assert VirtualMachine(models.rows(), device=device)["main"](X).shape == (2, 4)


def test_tls(start: Callable[..., Any], tmp_path: Path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=localhost"
    subprocess.run([*command.split(), "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    server = start(remote=RemoteLimits(), certificate=str(certificate), key=str(key))
    with treadle.remote(f"localhost:{server.grpc_port}", tls=certificate) as device:
        assert VirtualMachine(models.rows(), device=device)["main"](X).shape == (2, 4)
    with pytest.raises(errors.RemoteError):
        treadle.remote(f"localhost:{server.grpc_port}", timeout=3)


# ---- clients that mean harm ----

VALUES = (
    None, True, -1, 0, 1, 2, 1 << 31, 1 << 63, 1e308, float("nan"), "", "x", "main", "float32", b"", b"0" * 16, [], {}, [[]],
    [0, 0], [0] * 1000, {"x": 1}, ["tuple", [0]], ["tuple", [0, 0]], ["handle", 1], ["data", 0, "", "", []], ["none"],
    ["tensor", "float32", [1 << 46] * 9], ["tensor", "float32", [0]], ["numbers", "int64", []],
    ["alien", "str"], ["text", "x"], ["bytes", b"x"], [[0], [1]],
)  # fmt: skip
KINDS = (
    "call", "closure", "fields", "set_input", "invoke_stateful", "get_outputs", "save_function", "saved", "profile", "time",
    "machine", "open", "ping", "close", "put", "get", "files", "remove", "function", "has_function", "constants", "copy",
    "has_outputs", "share",
)  # fmt: skip


def test_mutated_messages_are_answered_or_refused_by_name(serve: Callable[..., Any]):
    """TREADLE_HOSTILE_REMOTE says how many are tried, TREADLE_HOSTILE_SEED which."""
    import grpc

    server, connect = serve(seconds=0.2, bytes=64 << 20, memory=16 << 20)
    server.remote._functions = Functions({"main": lambda *given: given[0] if given else str})
    victim = connect()
    rng = random.Random(SEED)
    machine = VirtualMachine(models.rows(), device=victim)
    kept = machine["main"](LARGE)
    channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}")
    call, put, get = (
        channel.unary_unary("/treadle.Remote/Call"),
        channel.stream_unary("/treadle.Remote/Put"),
        channel.unary_stream("/treadle.Remote/Get"),
    )
    digest, held = next(iter(server.remote.executables._kept)), {}

    def begin() -> dict[str, Any]:
        """A session with a machine, a data value and a closure, in place of the one before."""
        if held:
            held["device"].close()
        device = connect()
        rows, lists = (VirtualMachine(each, device=device) for each in (models.rows(), assembled(LISTS)))
        closure, value = lists["delayed"]([1.0, 2.0]), lists["main"]([1.0, 2.0])
        rows.set_input("main", X)
        place = device.put(np.zeros((2, 4), np.float32))
        held.update(place=place, rows=rows, lists=lists, closure=closure, value=value, device=device)
        return {
            "session": device.connection.session,
            "machine": rows._owner.number,
            "closure": closure.native.number,
            "value": value.native.number,
            "place": place.handle.number,
        }

    common, classes = begin(), set()
    tensor = ["tensor", "float32", [2, 8]]
    for _ in range(COUNT):
        what = rng.choice(KINDS)
        message = {
            **common, "do": what, "version": VERSION, "function": "main", "saved": "s", "args": [0], "values": [tensor],
            "index": None, "release": [], "number": 1, "repeat": 1, "digest": digest, "proof": b"0" * 32, "max_seconds": 0.1,
            "max_steps": 1000, "handle": 2, "kind": "tensor", "dtype": "float32", "shape": [2, 8], "size": 64,
            "into": None if rng.random() < 0.7 else [common["place"]], "places": [0], "other": common["machine"], "held": None,
        }  # fmt: skip
        frame = pack(mutated(message, VALUES, rng), [X.tobytes()])
        if rng.random() < 0.3:
            frame = damaged(frame, rng, least=1)
        start = time.monotonic()
        try:
            if what == "put":
                whose = (("treadle-session-bin", common["session"]),)
                chunks = iter([frame, rng.randbytes(rng.choice((0, 63, 64, 65)))])
                answers = [put(chunks, timeout=20, metadata=whose)]
            elif what == "get":
                stream = get(frame, timeout=20)
                answers = [next(iter(stream))]
                stream.cancel()
            else:
                answers = [call(frame, timeout=20)]
        except grpc.RpcError as error:  # gRPC's own
            pytest.fail(f"{what}: {error}")
        assert time.monotonic() - start < 15
        for answer in answers:
            header, _ = unpack(answer)
            if "error" in header:
                classes.add(header["error"]["class"])
                assert "server failed" not in header["error"]["message"], (header, message, what)
                if "session" in header["error"]["message"] or "bytes" in header["error"]["message"]:
                    common = begin()
        if len(server.remote.sessions) > 30:
            for each in list(server.remote.sessions._sessions.values()):
                if each.id not in (victim.connection.session, common["session"]):
                    server.remote.sessions.close(each)
    channel.close()
    assert {"FormatError", "ArgumentError", "RemoteError"} <= classes
    np.testing.assert_allclose(kept.numpy(), models.expected(LARGE), rtol=1e-4, atol=1e-5)
    assert machine["main"](X).shape == (2, 4)


def test_damaged_executables_are_refused_or_run_within_their_bounds(serve: Callable[..., Any]):
    _, connect = serve(seconds=0.5, memory=16 << 20)
    device, rng = connect(), random.Random(1)
    connection = device.connection
    originals = [each.as_bytes() for each in (models.rows(), models.counter(), assembled(LISTS))]
    outcomes = set()
    for _ in range(COUNT // 10):
        original = rng.choice(originals)
        at = rng.randrange(len(original))
        data = (
            original[:at] + rng.randbytes(1) + original[at + 1 :]
            if rng.random() < 0.8
            else damaged(original, rng, least=1)
        )
        digest = hashlib.sha256(data).digest()
        proof = hashlib.sha256(connection.session + data).digest()
        try:
            connection.upload({"kind": "executable"}, memoryview(data))
            answer, _ = connection.ask({"do": "machine", "digest": digest, "proof": proof, "kernels": "cached"})
            connection.release(answer["handle"])
            request = {"do": "call", "machine": answer["handle"], "function": "main", "args": [0]}
            connection.ask({**request, "values": [["tensor", "float32", [2, 8]]]}, [X.tobytes()])
            outcomes.add("ran")
        except errors.TreadleError as error:
            outcomes.add("server failed" if "server failed" in str(error) else type(error).__name__)
    assert "ChecksumError" in outcomes
    assert "server failed" not in outcomes
    assert VirtualMachine(models.rows(), device=device)["main"](X).shape == (2, 4)


def test_a_value_is_never_larger_than_what_was_sent(serve: Callable[..., Any]):
    """A tuple of two tuples, each of which is the same one, and so on, would have 2 ** 40 parts."""
    _, connect = serve()
    device = connect()
    machine = VirtualMachine(models.rows(), device=device)
    nodes: list[Any] = [["tuple", []]] + [["tuple", [number, number]] for number in range(40)]
    header = {"do": "call", "machine": machine._owner.number, "function": "main", "args": [40], "values": nodes}
    with pytest.raises(errors.FormatError, match="is not a node"):
        device.connection.ask(header)
    with pytest.raises(errors.FormatError, match="got 0"):
        device.connection.ask({**header, "args": [0], "values": [["tensor", "float32", [1 << 40]]]})
    numbers = {**header, "args": [0], "values": [["numbers", "int8", [1 << 21]]]}
    with pytest.raises(errors.FormatError, match="at most"):
        device.connection.ask(numbers, [bytes(1 << 21)])


def test_results_have_their_names_there_too(serve: Callable[..., Any]):
    _, connect = serve()
    x = treadle.var("x", ("n", 8))
    exe = treadle.compile(
        treadle.Module(main=treadle.function([x], treadle.tuple_(treadle.op.exp(x), treadle.op.sigmoid(x))))
    )
    machine = VirtualMachine(exe, device=connect())
    for result in (machine["main"](X), machine.call("main", [X]), machine.saved_call("main", X)()):
        assert result._fields == tuple(port.name for port in machine.outputs())
        np.testing.assert_allclose(np.asarray(result.exp), np.exp(X), rtol=1e-6)
    machine.set_input("main", X)
    machine.invoke_stateful("main")
    assert np.asarray(machine.get_outputs("main", "sigmoid")).shape == X.shape
    assert machine.get_outputs("main")["sigmoid"].shape == X.shape
