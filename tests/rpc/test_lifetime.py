"""What a client has of a server is gone with the last reference to it, at both ends; Python's collector is off."""

from __future__ import annotations

import contextlib
import gc
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import VirtualMachine, errors
from treadle.tvm.graphs.factory import GraphFactory
from treadle.vm.context import live_bytes

pytest.importorskip("grpc")
pytest.importorskip("prometheus_client")
from .test_interface import GRAPH, METHODS, X, device, named

__all__ = ["device"]

FAILURES: dict[str, Callable[[Any], Any]] = {
    "a wrong argument": lambda m: m["main"](3.5),
    "a bound": lambda m: m.call("main", [X], max_memory=1),
    "an unknown function": lambda m: m.invoke("nope"),
}


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def settled(device: Any, expected: int) -> int:
    """The live bytes of this process, in which the server is too, when a request has told it what nobody holds any more."""
    device.sync()
    end = time.monotonic() + 20
    while live_bytes() != expected and time.monotonic() < end:
        time.sleep(0.01)  # the server's thread may still be at the last request
    return live_bytes()


def fail(use: Callable[[Any], Any], machine: Any) -> None:
    with contextlib.suppress(errors.TreadleError):
        use(machine)
        raise AssertionError("the call is to fail")


USES = METHODS | {name: lambda m, use=use: fail(use, m) for name, use in FAILURES.items()}


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_a_machine_at_a_server_is_gone_with_its_last_reference(use: Callable[[Any], Any], device: Any, no_collector):
    before = settled(device, live_bytes())
    machine = VirtualMachine(named(), device=device)
    use(machine)
    gone = weakref.ref(machine)
    del machine
    assert gone() is None
    assert settled(device, before) == before


@pytest.mark.parametrize("use", GRAPH.values(), ids=list(GRAPH))
def test_a_graph_executor_at_a_server_is_gone_with_its_last_reference(use, device: Any, no_collector):
    before = settled(device, live_bytes())
    executor = GraphFactory(named())["default"](device)
    use(executor)
    executor.run(x=X)
    parts = [weakref.ref(executor), weakref.ref(executor._machine)]
    del executor
    assert [part() for part in parts] == [None, None]
    assert settled(device, before) == before


def test_a_connection_is_gone_with_the_last_that_uses_it(start: Callable[..., Any], no_collector):
    from treadle.rpc.server.sessions import RemoteLimits

    server = start(remote=RemoteLimits())
    device = treadle.remote(f"127.0.0.1:{server.grpc_port}")
    connection = weakref.ref(device.connection)
    tensor = VirtualMachine(named(), device=device)["main"](np.zeros((2, 8), np.float32))
    del device
    tensor.numpy()
    del tensor
    end = time.monotonic() + 20
    while connection() is not None and time.monotonic() < end:
        time.sleep(0.01)  # the thread that tells the server of it holds it for a moment
    assert connection() is None
