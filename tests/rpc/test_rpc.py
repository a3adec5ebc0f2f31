"""What TVM's tests of `tvm.rpc` do, at a server: functions that its owner has registered, tensors, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import treadle.tvm as tvm

pytest.importorskip("grpc")
pytest.importorskip("prometheus_client")
from treadle.rpc.server.sessions import RemoteLimits
from treadle.tvm.rpc.testing import FUNCTIONS

OWNED = np.zeros(5000, np.float32)


@pytest.fixture
def session(start: Callable[..., Any]) -> Iterator[Any]:
    functions = {f"rpc.test.{name}": each for name, each in FUNCTIONS.items()}
    functions |= {"echo": lambda value, *rest: value, "owned": lambda: OWNED}
    server = start(remote=RemoteLimits(), functions=functions)
    session = tvm.rpc.connect("127.0.0.1", server.grpc_port)
    yield session
    session.close()


def test_numbers_text_and_bytes_go_there_and_back(session: Any):
    assert session.get_function("rpc.test.addone")(10) == 11
    assert session.get_function("rpc.test.strcat")("abc", 11) == "abc:11"
    assert session.get_function("rpc.test.runtime_str_concat")(tvm.runtime.String("abc"), "def") == "abcdef"
    echo = session.get_function("echo")
    assert [echo(1, 2, 3), echo("xyz"), echo(1.5), echo(True)] == [1, "xyz", 1.5, True]
    assert bytes(echo(bytearray(b"123"))) == b"123"
    assert echo(None) is None


def test_what_a_function_raises_there_is_raised_here(session: Any):
    with pytest.raises(tvm.TVMError, match="ValueError: abc"):
        session.get_function("rpc.test.except")("abc")
    with pytest.raises(tvm.TVMError):
        session.get_function("rpc.test.addone")("text")


def test_functions_give_functions(session: Any):
    add = session.get_function("rpc.test.add_to_lhs")(10)
    assert add(12) == 22
    made = session.get_function("rpc.test.remote_return_nd")
    array, element = made("get_arr"), made("get_arr_elem")
    assert isinstance(array(), tvm.nd.NDArray)
    assert array().numpy().tolist() == [0] * 10
    assert float(element(array(), 0)) == 0


def test_tensors_lie_on_the_session_s_device(session: Any):
    device = session.cpu(0)
    assert str(tvm.nd.array(np.ones((3, 4)), device).device).startswith("remote")
    session.get_function("rpc.test.remote_array_func")(tvm.nd.array(np.ones((3, 4)), device))
    for shape in ((5041, 720), (720, 192), (), (0, 3)):
        array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        there = tvm.nd.array(array, device)
        assert (there.dtype, there.shape) == ("float32", shape)
        assert there.numpy().tobytes() == array.tobytes()
    device.sync()


def test_what_is_written_into_a_tensor_is_written_there(session: Any):
    there = tvm.nd.empty((2, 2), "int32", session.cpu())
    there.copyfrom(np.arange(4).reshape(2, 2))
    assert session.get_function("echo")(there).numpy().tolist() == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="shape"):
        there.copyfrom(np.arange(3))


def test_nobody_writes_into_what_is_the_owner_s(session: Any):
    given = session.get_function("owned")()
    with pytest.raises(tvm.TVMError):
        given.copyfrom(np.ones(5000, np.float32))
    assert not OWNED.any()


def test_a_library_there_has_no_functions(session: Any):
    with pytest.raises(AttributeError):
        session.system_lib()["notexist"]
    with pytest.raises(ValueError, match="registered no function"):
        session.get_function("testing.echo")


def test_a_server_starts_no_sessions_elsewhere(session: Any):
    with pytest.raises(tvm.error.RPCError, match="no session elsewhere"):
        tvm.rpc.connect("127.0.0.1", 1, session_constructor_args=["rpc.Connect", "127.0.0.1", 2])


def test_a_connection_that_is_lost_is_an_error_of_the_device(session: Any):
    device = session.cpu()
    session.close()
    for use in (device.sync, lambda: tvm.nd.array([1.0], device), lambda: session.get_function("echo")):
        with pytest.raises(ConnectionError):
            use()
