"""What a machine or graph executor has here, one at a server has, with the same bits and errors, or says why not."""

from __future__ import annotations

import asyncio
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import Module, VirtualMachine, errors, function, op, var
from treadle.rpc.machine import REFUSED
from treadle.tvm.graphs.executor import GraphExecutor
from treadle.tvm.graphs.factory import GraphFactory
from treadle.vm.budgets import BOUNDS

from ..serve import models

pytest.importorskip("grpc")
pytest.importorskip("prometheus_client")
from treadle.rpc.server.sessions import RemoteLimits

X = np.arange(16, dtype=np.float32).reshape(2, 8)
W = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
BIAS = np.linspace(0, 1, 4, dtype=np.float32)
OTHER = {"w": W[::-1].copy(), "b": BIAS * 2}


@pytest.fixture
def device(start: Callable[..., Any]) -> Iterator[Any]:
    server = start(remote=RemoteLimits(), functions={"twice": lambda x: x.numpy() * 2})
    with treadle.remote(f"127.0.0.1:{server.grpc_port}") as device:
        yield device


def named() -> treadle.Executable:
    """relu(x @ w + b), whose weights have names."""
    x, w, b = var("x", (2, 8)), var("w", (8, 4)), var("b", (4,))
    module = Module(main=function([x, w, b], op.relu(op.add(op.matmul(x, w), b))))
    return treadle.compile(module, params={"w": W, "b": BIAS}, named_weights=True)


def bits(value: Any) -> Any:
    """What can be compared."""
    if isinstance(value, tuple):
        return tuple(map(bits, value))
    if isinstance(value, (treadle.Tensor, np.ndarray)):
        array = np.asarray(value)
        return array.dtype.name, array.shape, array.tobytes()
    return value


def there(machine: Any, array: np.ndarray) -> Any:
    """The array where the machine's tensors lie."""
    return machine.device.put(array) if hasattr(machine.device, "put") else array


def shared(machine: Any) -> Any:
    other = VirtualMachine(named(), device=machine.device)
    other.load_params(OTHER)
    machine.share_params(other)
    return machine["main"](X)


def bound(machine: Any) -> Any:
    x, result = there(machine, X), there(machine, np.zeros((2, 4), np.float32))
    run = machine.bind("main", [x], [result])
    run()
    return np.array(result), machine.bind("main", [x])()


def then(machine: Any, *_: Any) -> Any:
    return machine["main"](X)


METHODS: dict[str, Callable[[Any], Any]] = {
    "bind": bound,
    "call": lambda m: m.call("main", [X], max_seconds=20),
    "call_async": lambda m: asyncio.run(m.call_async("main", [X], max_seconds=20)),
    "device": lambda m: m.device.kind,
    "get_function_params": lambda m: m.get_function_params("main"),
    "get_input_index": lambda m: (m.get_input_index("x"), m.get_input_index("nope")),
    "get_outputs": lambda m: (m.set_input("main", X), m.invoke_stateful("main"), m.get_outputs("main", 0))[2],
    "executable": lambda m: len(m.executable.program.functions),
    "inputs": lambda m: [str(each) for each in m.inputs()],
    "outputs": lambda m: [str(each) for each in m.outputs()],
    "invoke": lambda m: (m.invoke("main", X), m.set_input("main", x=X * 2), m.invoke("main")),
    "invoke_closure": lambda m: _closure(m),
    "invoke_stateful": lambda m: (m.set_input("main", X), m.invoke_stateful("main"), m.get_outputs()),
    "load_constants": lambda m: m.load_constants({}),
    "load_deltas": lambda m: then(m, m.load_deltas({"w": W}, 0.5)),
    "converting": lambda m: m.converting("main", lambda args: args)(X),
    "load_params": lambda m: then(m, m.load_params(OTHER)),
    "profile": lambda m: [row.primitive for row in m.profile("main", X)],
    "profile_call": lambda m: [row.calls for row in m.profile_call("main", [X], max_seconds=20)],
    "profile_with": lambda m: [row.calls for row in m.profile_with((), "main", X)],
    "run": lambda m: m.run(X),
    "save_function": lambda m: (m.save_function("main", "saved", X), m["saved"](), m.call("saved"), list(m)),
    "saved_call": lambda m: (m.saved_call("main", X)(), m.call(m.saved_call("main", X), max_seconds=20)),
    "set_input": lambda m: m.set_input("main", X),
    "share_params": shared,
    "weights": lambda m: {name: (str(m.weights.types[name]), bits(value)) for name, value in m.weights.items()},
    **{name: operator.attrgetter(name) for name in BOUNDS},
}


def _closure(machine: Any) -> Any:
    x, y = var("x", (2,)), var("y", (2,))
    exe = treadle.compile(Module(main=function([x], function([y], x - y))))
    other = VirtualMachine(exe, device=machine.device)
    return other.invoke_closure(other["main"]([5.0, 6.0]), [1.0, 3.0])


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_every_method_of_a_machine_is_tried_or_refused():
    assert set(METHODS) | set(REFUSED) == public(VirtualMachine) | {"device", "executable"}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_gives_at_a_server_what_it_gives_here(name: str, device: Any):
    remote, here = (METHODS[name](VirtualMachine(named(), device=each)) for each in (device, treadle.cpu()))
    assert bits(remote) == bits(here)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_server_has_not_is_refused_and_says_why(name: str, device: Any):
    machine = VirtualMachine(named(), device=device)
    with pytest.raises(errors.ArgumentError, match=REFUSED[name]):
        getattr(machine, name)(print)
    machine.set_instrument(None)


FAULTS: dict[str, Callable[[Any], Any]] = {
    "no such function": lambda m: m["nope"],
    "no function of this type": lambda m: m[3],
    "an input too few": lambda m: m["main"](),
    "an input too many": lambda m: m["main"](X, X),
    "an unknown name": lambda m: m["main"](y=X),
    "text": lambda m: m["main"]("x"),
    "another shape": lambda m: m["main"](X[:1]),
    "another element type": lambda m: m["main"](X.astype(np.int64)),
    "nested lists of two lengths": lambda m: m["main"]([[1.0], [2.0, 3.0]]),
    "too many steps": lambda m: m.call("main", [X], max_steps=0),
    "a bound that is none": lambda m: m.call("main", [X], max_steps=-1),
    "too little memory": lambda m: m.call("main", [X], max_memory=1),
    "no inputs": lambda m: m.invoke_stateful("main"),
    "no outputs": lambda m: m.get_outputs("main"),
    "an unknown output": lambda m: (m.set_input("main", X), m.invoke_stateful("main"), m.get_outputs("main", 1)),
    "an output before the first": lambda m: (m.set_input("main", X), m.invoke_stateful("main"), m.get_outputs("main", -1)),
    "an output without a number": lambda m: (m.set_input("main", X), m.invoke_stateful("main"), m.get_outputs("main", "a")),
    "an output True": lambda m: (m.set_input("main", X), m.invoke_stateful("main"), m.get_outputs("main", True)),
    "inputs that do not fit": lambda m: m.set_input("main", X[:1]),
    "a saved name that is taken": lambda m: m.save_function("main", "main", X),
    "a saved call that does not fit": lambda m: m.saved_call("main", X[:1]),
    "a saved call with arguments": lambda m: m.call(m.saved_call("main", X), [X]),
    "another machine's saved call": lambda m: m.call(VirtualMachine(named(), device=m.device).saved_call("main", X)),
    "an unknown weight": lambda m: m.load_params({"nope": W}),
    "a weight of another shape": lambda m: m.load_params({"w": W[:1]}),
    "a constant that is not a weight": lambda m: m.load_constants({1000: W}),
    "a constant of another type": lambda m: m.load_constants({m._weights.constants[0][0]: X}),
    "results of another type": lambda m: m.bind("main", [there(m, X)], [there(m, X)]),
    "too many results": lambda m: m.bind("main", [there(m, X)], [there(m, X), there(m, X)]),
    "no closure": lambda m: m.invoke_closure(3),
    "kernels": lambda m: VirtualMachine(named(), device=m.device, kernels="slow"),
    "memory": lambda m: VirtualMachine(named(), device=m.device, memory_cfg="lots"),
    "no executable": lambda m: VirtualMachine("model.trdl", device=m.device),
    "building": lambda m: VirtualMachine(named(), device=m.device, max_build_seconds=-1),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_the_same_error_at_a_server_and_here(name: str, device: Any):
    raised = []
    for each in (device, treadle.cpu()):
        machine = VirtualMachine(named(), device=each)
        with pytest.raises(errors.TreadleError) as found:
            FAULTS[name](machine)
        raised.append((type(found.value), str(found.value)))
        assert bits(machine["main"](X)) == bits(VirtualMachine(named())["main"](X))
    assert raised[0] == raised[1]


def test_saved_calls_are_let_go_of(start: Callable[..., Any]):
    server = start(remote=RemoteLimits())
    with treadle.remote(f"127.0.0.1:{server.grpc_port}") as device:
        machine = VirtualMachine(named(), device=device)
        (session,) = server.remote.sessions._sessions.values()
        machine["main"](X)
        held = len(session), session.bytes
        for _ in range(20):
            machine.saved_call("main", X)()
            machine.save_function("main", "saved", X)
        machine["main"](X)
        assert len(session) <= held[0] + 1
        assert session.bytes <= held[1] + X.nbytes + 1024


def test_inputs_that_are_refused_cost_a_session_nothing(start: Callable[..., Any]):
    server = start(remote=RemoteLimits())
    with treadle.remote(f"127.0.0.1:{server.grpc_port}") as device:
        machine = VirtualMachine(named(), device=device)
        machine.set_input("main", X)
        (session,) = server.remote.sessions._sessions.values()
        held = session.bytes
        for _ in range(3):
            with pytest.raises(errors.ShapeError):
                machine.set_input("main", np.zeros((1000, 8), np.float32))
        assert session.bytes == held
        assert bits(machine.invoke("main")) == bits(VirtualMachine(named())["main"](X))


def test_weights_of_one_machine_are_not_another_s(device: Any):
    first, second = (VirtualMachine(named(), device=device) for _ in range(2))
    first.load_params(OTHER)
    assert bits(second["main"](X)) == bits(VirtualMachine(named())["main"](X))


# ---- imports ----


def importing(type_: str = "fn(float32[n]) -> float32[n]") -> treadle.Executable:
    x = var("x", ("n",))
    return treadle.compile(Module(main=function([x], treadle.import_("twice", type_)(x) + x)))


def test_a_program_imports_what_the_owner_has_registered(device: Any):
    machine = VirtualMachine(importing(), device=device)
    assert machine["main"]([1.0, 2.0]).numpy().tolist() == [3, 6]


def test_imports_of_the_client_and_unknown_ones_are_refused_by_name(start: Callable[..., Any]):
    server = start(remote=RemoteLimits(), functions={"other": print})
    with treadle.remote(f"127.0.0.1:{server.grpc_port}") as device:
        with pytest.raises(errors.ArgumentError, match=r"'twice'.*do not travel"):
            VirtualMachine(importing(), device=device, imports={"twice": lambda x: x})
        with pytest.raises(errors.UnknownFunctionError, match=r"registered by the server's owner: twice: fn"):
            VirtualMachine(importing(), device=device)


def test_an_import_has_the_type_that_the_owner_says(start: Callable[..., Any]):
    functions = {"twice": (lambda x: x.numpy() * 2, "fn(float32[n]) -> float32[n]")}
    server = start(remote=RemoteLimits(), functions=functions)
    with treadle.remote(f"127.0.0.1:{server.grpc_port}") as device:
        assert VirtualMachine(importing(), device=device)["main"]([1.0]).numpy().tolist() == [3]
        with pytest.raises(errors.ArgumentError, match=r"owner has registered twice: fn\(float32\[n\]\)"):
            VirtualMachine(importing("fn(float32[n]) -> float32[]"), device=device)


def test_what_an_owner_s_function_gives_wrongly_ends_the_call_by_name(start: Callable[..., Any]):
    server = start(remote=RemoteLimits(), functions={"twice": lambda x: "no tensor"})
    with treadle.remote(f"127.0.0.1:{server.grpc_port}") as device:
        machine = VirtualMachine(importing(), device=device)
        with pytest.raises(errors.TreadleError, match="import twice"):
            machine["main"]([1.0])


# ---- graphs ----


def test_every_function_of_a_graph_executor_is_tried():
    assert set(GRAPH) == set(GraphExecutor.functions)


GRAPH: dict[str, Callable[[Any], Any]] = {
    "benchmark": lambda g: len(g.benchmark(g.device, repeat=2, number=1, x=X).results),
    "debug_get_output": lambda g: type(_raised(lambda: g.debug_get_output(0))),
    "get_input": lambda g: (g.set_input("x", X), g.get_input("x"), g.get_input("nope"), g.get_input(0, out=np.zeros_like(X))),
    "get_input_index": lambda g: (g.get_input_index("x"), g.get_input_index("nope")),
    "get_input_info": lambda g: g.get_input_info(),
    "get_num_inputs": lambda g: g.get_num_inputs(),
    "get_num_outputs": lambda g: g.get_num_outputs(),
    "get_output": lambda g: (bits(g.get_output(0)), g.run(x=X), g.get_output(0), g.get_output(0, np.zeros((2, 4), np.float32))),
    "load_params": lambda g: (g.load_params(treadle.formats.param_dict.save_param_dict(OTHER)), g.run(x=X), g.get_output(0)),
    "run": lambda g: (g.run(x=X), bits(g.get_output(0)), g.run(x=X + 1), bits(g.get_output(0))),
    "run_from_inputs": lambda g: g.run_from_inputs(1, 0, "x", X)[0],
    "set_input": lambda g: (g.set_input("x", X.tolist()), g.set_input(w=OTHER["w"], b=BIAS), g.run(), g.get_output(0)),
    "set_input_zero_copy": lambda g: (g.set_input_zero_copy("x", there(g, X)), g.run(), g.get_output(0)),
    "set_output_zero_copy": lambda g: _into(g),
    "share_params": lambda g: _shared_graph(g),
    "time_evaluator": lambda g: (g.set_input("x", X), len(g.time_evaluator("run", g.device, number=1, repeat=3)().results)),
}  # fmt: skip
GRAPH_FAULTS: dict[str, Callable[[Any], Any]] = {
    "an unknown input": lambda g: g.set_input("nope", X),
    "another shape": lambda g: g.set_input("x", X[:1]),
    "another element type": lambda g: g.set_input("x", X.astype(np.int64).astype(np.complex128)),
    "an unknown output": lambda g: g.get_output(7),
    "out of another shape": lambda g: g.get_output(0, np.zeros((1, 4), np.float32)),
    "a weight of another shape": lambda g: g.set_input(w=X),
    "in place, of another shape": lambda g: g.set_input_zero_copy("x", there(g, X[:1])),
    "out in place, of another shape": lambda g: g.set_output_zero_copy(0, there(g, X)),
    "no parameter file": lambda g: g.load_params(b"none"),
}


def _raised(call: Callable[[], Any]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None


def _into(graph: Any) -> Any:
    result = there(graph, np.zeros((2, 4), np.float32))
    graph.set_output_zero_copy(0, result)
    graph.run(x=X)
    return np.array(result), graph.get_output(0)


def _shared_graph(graph: Any) -> Any:
    other = GraphFactory(named())["default"](graph.device)
    other.set_input(**OTHER)
    graph.share_params(other, treadle.formats.param_dict.save_param_dict(OTHER))
    graph.run(x=X)
    return graph.get_output(0)


@pytest.mark.parametrize("name", GRAPH)
def test_a_graph_gives_at_a_server_what_it_gives_here(name: str, device: Any):
    remote, here = (GRAPH[name](GraphFactory(named())["default"](each)) for each in (device, treadle.cpu()))
    assert bits(remote) == bits(here)


@pytest.mark.parametrize("name", GRAPH_FAULTS)
def test_a_graph_s_fault_has_the_same_error_at_a_server_and_here(name: str, device: Any):
    raised = []
    for each in (device, treadle.cpu()):
        graph = GraphFactory(named())["default"](each)
        with pytest.raises(errors.TreadleError) as found:
            GRAPH_FAULTS[name](graph)
        raised.append((type(found.value), str(found.value)))
    assert raised[0] == raised[1]


def test_the_graph_executor_s_tensors_stay_at_the_server(device: Any):
    x = var("x", (1000, 8))
    graph = GraphFactory(treadle.compile(Module(main=function([x], op.relu(op.matmul(x, W))))))["default"](device)
    graph.run(x=np.ones((1000, 8), np.float32))
    first = graph.get_output(0)
    assert not first.is_here
    graph.run(x=np.zeros((1000, 8), np.float32))
    assert np.asarray(first).any()  # a value: later runs do not change it
    assert not np.asarray(graph.get_output(0)).any()


def test_weights_of_several_executors_travel_once(device: Any):
    factory = GraphFactory(named())
    first = factory["default"](device)
    sent = []
    upload = device.connection.upload
    device.connection.upload = lambda header, data: sent.append(header) or upload(header, data)
    second = factory["default"](device)
    assert sent == []
    for graph in (first, second):
        graph.run(x=X)
    assert bits(first.get_output(0)) == bits(second.get_output(0))


def test_tvm_s_graph_module_runs_at_a_server(device: Any):
    import treadle.tvm as tvm
    from treadle.tvm.contrib import graph_executor
    from treadle.tvm.contrib.factory import GraphExecutorFactoryModule

    lib = GraphExecutorFactoryModule(named())
    expected = VirtualMachine(named())["main"](X).numpy()
    modules = [
        graph_executor.GraphModule(lib["default"](device)),
        graph_executor.create(lib.get_graph_json(), lib.get_lib(), device),
    ]
    modules[1].set_input(**lib.get_params())
    for module in modules:
        module.set_input("x", tvm.nd.array(X))
        module.run()
        out = module.get_output(0)
        assert isinstance(out, tvm.nd.NDArray)
        assert out.dtype == "float32"
        assert out.numpy().tobytes() == expected.tobytes()
        assert module.benchmark(device, number=1, repeat=2).mean > 0
        assert module.benchmark(device, number=1, repeat=2, end_to_end=True, x=X).mean > 0


def test_a_graph_calls_what_the_server_s_owner_has_registered_and_nothing_of_this_process(device: Any):
    graph = """{"nodes": [{"op": "null", "name": "x", "inputs": []}, {"op": "tvm_op", "name": "y", "inputs": [[0, 0, 0]],
      "attrs": {"func_name": "NAME", "num_inputs": "1", "num_outputs": "1", "flatten_data": "0"}}],
      "arg_nodes": [0], "node_row_ptr": [0, 1, 2], "heads": [[1, 0, 0]],
      "attrs": {"shape": ["list_shape", [[2], [2]]], "dltype": ["list_str", ["float32", "float32"]],
                "storage_id": ["list_int", [0, 1]]}}"""
    executor = GraphExecutor(graph.replace("NAME", "twice"), None, device)
    executor.run(x=[1.0, 2.0])
    assert executor.get_output(0).numpy().tolist() == [2, 4]
    with pytest.raises(errors.UnknownFunctionError, match=r"'mine'.*do not travel"):
        GraphExecutor(graph.replace("NAME", "mine"), None, device, find=lambda name: print)
    with pytest.raises(errors.UnknownFunctionError, match="no such function"):
        GraphExecutor(graph.replace("NAME", "mine"), None, device)


def test_the_debug_executor_is_refused_by_name(device: Any):
    with pytest.raises(errors.ArgumentError, match=r"GraphExecutorDebug.*remote"):
        GraphFactory(named())["debug_create"]("default", device)


def test_relay_s_virtual_machine_runs_at_a_server(device: Any):
    import treadle.tvm as tvm

    x = var("x", (1000, 8))
    program = treadle.compile(Module(main=function([x], op.relu(op.matmul(x, W)))))
    there, here = (
        tvm.runtime.vm.VirtualMachine(tvm.runtime.vm.Executable(program), each) for each in (device, tvm.cpu())
    )
    given = np.linspace(-1, 1, 8000, dtype=np.float32).reshape(1000, 8)
    result = there.run(tvm.nd.array(given, device))
    assert isinstance(result, tvm.nd.NDArray)
    assert not result.is_here
    assert result.numpy().tobytes() == here.run(given).numpy().tobytes()
    assert there.benchmark(device, given, number=1, repeat=2).mean > 0
    assert there.benchmark(device, given, number=1, repeat=2, end_to_end=True).mean > 0


def test_tensors_of_relax_s_machine_stay_at_the_server(device: Any):
    import treadle.tvm as tvm

    machine = tvm.relax.VirtualMachine(models.rows(), device)
    large = tvm.nd.array(np.ones((10_000, 2), np.float32), device)
    first = machine["double"](large)
    second = machine["double"](first)
    assert [each.is_here for each in (large, first, second)] == [False] * 3
    assert second.numpy().sum() == 80_000
