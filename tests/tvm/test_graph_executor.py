"""TVM's graph executor by its names, as its own tests use it (tvm_spec.md, 5.8)."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import treadle
import treadle.tvm as tvm
from treadle.compiler.targets.cpu.toolchain import kernels
from treadle.formats import bundle
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import ChecksumError, FormatError, UnknownFunctionError
from treadle.formats.param_dict import save_param_dict
from treadle.tvm import relay
from treadle.tvm.contrib import graph_executor, graph_runtime
from treadle.tvm.contrib.debugger import debug_executor
from treadle.tvm.contrib.factory import GraphExecutorFactoryModule
from treadle.tvm.files.graph_json import parse_graph
from treadle.tvm.modules.module import _parts
from treadle.tvm.relay import testing
from treadle.tvm.runtime.container import ShapeTuple, String
from treadle.vm import library

from ..formats.graphs import call, document, parameter, simple

RNG = np.random.default_rng(3)


def compiled(
    result: treadle.compiler.builder.programs.Expression, *params: treadle.compiler.builder.programs.Expression
) -> Executable:
    return treadle.compile(treadle.Module(main=treadle.function(list(params), result)), progress=False)


def factory(executable: Executable) -> GraphExecutorFactoryModule:
    return GraphExecutorFactoryModule(executable)


@pytest.fixture(scope="module")
def addition() -> GraphExecutorFactoryModule:
    x, y = treadle.var("x", (1, 10)), treadle.var("y", (1, 10))
    return factory(compiled(x + y, x, y))


@pytest.fixture(scope="module")
def dense() -> GraphExecutorFactoryModule:
    x = treadle.var("data", (2, 8))
    hidden = treadle.op.relu(x @ RNG.standard_normal((8, 16)).astype(np.float32))
    return factory(compiled(hidden @ RNG.standard_normal((16, 4)).astype(np.float32), x))


def rows() -> np.ndarray:
    return RNG.random((1, 10), np.float32)


# ---- test_runtime_graph.py ----


def test_graph_simple() -> None:
    def myadd(x: tvm.nd.NDArray, out: tvm.nd.NDArray) -> None:
        out[:] = x.numpy() + 1

    module = graph_executor.create(json.dumps(simple()), {"myadd": myadd}, tvm.cpu(0))
    a = np.arange(4, dtype=np.float32)
    module.run(x=a)
    out = module.get_output(0, tvm.nd.empty((4,)))
    assert np.array_equal(out.numpy(), a + 1)


def test_graph_of_a_registered_function() -> None:
    name = "tests.graph.plus_one"
    tvm.register_func(name, lambda x, out: out.copyfrom(x.numpy() + 1))
    found = simple()
    found["nodes"][1]["attrs"]["func_name"] = name
    try:
        with pytest.raises(UnknownFunctionError, match=r"tests\.graph\.plus_one.*system_lib\(\)"):
            graph_runtime.create(json.dumps(found), None, tvm.cpu())
        module = graph_runtime.create(json.dumps(found), tvm.runtime.system_lib(), tvm.cpu())
    finally:
        tvm.runtime.remove_global_func(name)
    module.run(x=np.ones(4, np.float32))
    assert module.get_output(0).numpy().tolist() == [2, 2, 2, 2]


def test_sharing() -> None:
    x = np.ones((1, 10), np.float32)
    y = treadle.var("y", (1, 10))
    lib = factory(compiled(y + x, y))
    params = lib.get_params()
    blob = save_param_dict({name: value.array for name, value in params.items()})
    parent = graph_executor.create(lib.get_graph_json(), lib.get_lib(), tvm.cpu(0))
    parent.load_params(blob)
    children = [graph_executor.create(lib.get_graph_json(), lib.get_lib(), tvm.cpu(0)) for _ in range(10)]
    for child in children:
        child.share_params(parent, blob)
    del parent
    a = rows()
    for child in children:
        child.run(y=a)
        assert np.array_equal(child.get_output(0, tvm.nd.empty((1, 10))).numpy(), x + a)


def test_load_unexpected_params(addition: GraphExecutorFactoryModule) -> None:
    module = graph_executor.create(addition.get_graph_json(), addition.get_lib(), tvm.cpu(0))
    module.load_params(save_param_dict({"y_unknown": np.ones((1,), np.float32)}))


# ---- test_backend_graph_executor.py ----


@pytest.mark.parametrize("shape", [(), (1, 10), (1, 1), (10,)])
def test_add_op_scalar_tensor_broadcast(shape: tuple[int, ...]) -> None:
    x, y = treadle.var("x", (1, 10)), treadle.var("y", shape)
    module = graph_executor.GraphModule(factory(compiled(x + y, x, y))["default"](tvm.cpu()))
    a, b = rows(), RNG.random(shape).astype(np.float32)
    module.run(x=a, y=b)
    assert np.array_equal(module.get_output(0).numpy(), a + b)


def test_add_op_scalar_int() -> None:
    x, y = treadle.var("x", (), "int32"), treadle.var("y", (), "int32")
    module = graph_executor.GraphModule(factory(compiled(x + y, x, y))["default"](tvm.cpu()))
    module.run(x=2, y=np.int32(3))
    assert module.get_output(0).numpy() == 5


def test_with_params(dense: GraphExecutorFactoryModule) -> None:
    with pytest.warns(DeprecationWarning, match="legacy graph executor behavior"):
        graph, lib, params = dense
    module = graph_executor.create(graph, lib, tvm.cpu(0))
    data = RNG.standard_normal((2, 8)).astype(np.float32)
    module.set_input(**params)
    module.set_input(data=data)
    module.run()
    expected = treadle.VirtualMachine(dense.executable)["main"](data)
    assert np.array_equal(module.get_output(0).numpy(), expected.numpy())


def test_a_chain_takes_no_storage_for_each_node() -> None:
    x = treadle.var("x", (1, 64))
    y = x
    for _ in range(6):
        y = treadle.op.softmax(y)
    graph = parse_graph(factory(compiled(y, x)).get_graph_json())
    assert len(graph.nodes) == 7
    assert len(set(graph.storage_ids)) == 4  # x, two in turn, the output


def test_nested_tuples_are_outputs_in_a_row() -> None:
    x = treadle.var("x", (10,))
    parts = [x + float(i) for i in range(1, 5)]
    nested = treadle.tuple_(parts[0], treadle.tuple_(parts[1], treadle.tuple_(parts[2], parts[3])))
    module = graph_executor.GraphModule(factory(compiled(nested, x))["default"](tvm.cpu()))
    a = RNG.random(10, np.float32)
    module.run(x=a)
    assert module.get_num_outputs() == 4
    for index in range(4):
        assert np.array_equal(module.get_output(index).numpy(), a + np.float32(index + 1))


def test_an_empty_tuple_has_no_outputs() -> None:
    x = treadle.var("x", (16,))
    module = graph_executor.GraphModule(factory(compiled(treadle.tuple_(), x))["default"](tvm.cpu()))
    module.run()
    assert module.get_num_outputs() == 0


def test_gru_like() -> None:
    from treadle.tvm import relay

    rows, units = 1, 10
    x, h = relay.var("X", shape=(rows, units)), relay.var("H", shape=(rows, units))
    names = ("Wz", "Wr", "Wh", "Uz", "Ur", "Uh")
    given = {name: RNG.standard_normal((units, units)).astype(np.float32) / 4 for name in names}
    w = {name: relay.const(value) for name, value in given.items()}
    z = relay.sigmoid(relay.nn.dense(x, w["Wz"]) + relay.nn.dense(h, w["Uz"]))
    r = relay.sigmoid(relay.nn.dense(x, w["Wr"]) + relay.nn.dense(h, w["Ur"]))
    new = relay.tanh(relay.nn.dense(x, w["Wh"]) + relay.nn.dense(r * h, w["Uh"]))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x, h], (relay.const(1.0) - z) * h + z * new)), "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    a, b = (RNG.random((rows, units), np.float32) for _ in range(2))
    module.run(X=a, H=b)

    def sigmoid(value: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-value))

    u = sigmoid(a @ given["Wz"].T + b @ given["Uz"].T)
    v = sigmoid(a @ given["Wr"].T + b @ given["Ur"].T)
    expected = (1 - u) * b + u * np.tanh(a @ given["Wh"].T + (v * b) @ given["Uh"].T)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_compile_fused_identity_cast() -> None:
    from treadle.tvm import relay

    x, y, whole = (relay.var(name, shape=[16], dtype="float32") for name in ("x", "y", "xx"))
    identity = relay.Function([x], relay.cast(x, "float32")).with_attr("Primitive", 1)
    through = relay.Function([y], relay.Tuple([y, relay.add(y, relay.const(3.14, "float32"))])).with_attr(
        "Primitive", 1
    )
    pair = through(whole)
    result = identity(relay.TupleGetItem(pair, 0) + relay.TupleGetItem(pair, 1))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([whole], result)), "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    a = RNG.random(16, np.float32)
    module.run(xx=a)
    np.testing.assert_allclose(module.get_output(0).numpy(), a + (a + np.float32(3.14)), rtol=1e-6)


def test_simplex_data_transferring() -> None:
    """What TVM moves between devices is copied; functions may return arrays."""
    nodes = [
        parameter("A"),
        parameter("B"),
        call("add", "tests.graph.add", [[0, 0], [1, 0]]),
        call("copy", "__copy", [[2, 0]]),
        call("sub", "elemwise_sub", [[3, 0], [0, 0]]),
    ]
    found = document(nodes, [[4, 0]], [[4]] * 5)
    found["attrs"]["device_index"] = ["list_int", [1] * 5]
    found["attrs"]["storage_scope"] = ["list_str", ["global"] * 5]
    library = {
        "tests.graph.add": lambda a, b, out: a.numpy() + b.numpy(),
        "elemwise_sub": lambda a, b, out: out.copyfrom(a.numpy() - b.numpy()),
    }
    module = graph_executor.create(json.dumps(found), library, [tvm.cpu(0), tvm.cpu(0)])
    a, b = RNG.random(4, np.float32), RNG.random(4, np.float32)
    module.run(A=a, B=b)
    np.testing.assert_allclose(module.get_output(0).numpy(), b, rtol=1e-5)


def test_graph_executor_api(addition: GraphExecutorFactoryModule) -> None:
    module = graph_executor.GraphModule(addition["default"](tvm.cpu(0)))
    assert [module.get_input_index(name) for name in ("y", "x", "Invalid")] == [1, 0, -1]
    shapes, dtypes = module.get_input_info()
    assert shapes["x"] == ShapeTuple((1, 10))
    assert isinstance(shapes["x"], ShapeTuple)
    assert dtypes["y"] == String("float32")
    assert isinstance(dtypes["y"], String)
    assert module.get_num_inputs() == 2


def test_benchmark(addition: GraphExecutorFactoryModule) -> None:
    module = graph_executor.GraphModule(addition["default"](tvm.cpu()))
    data = tvm.nd.array(rows())
    result = module.benchmark(tvm.cpu(), x=data, y=data, number=5, repeat=3)
    assert len(result.results) == 3
    assert result.mean == np.mean(result.results)
    assert np.array_equal(module.get_output(0).numpy(), data.numpy() * 2)


def test_benchmark_end_to_end(addition: GraphExecutorFactoryModule) -> None:
    module = graph_executor.GraphModule(addition["default"](tvm.cpu()))
    data = tvm.nd.array(rows())
    result = module.benchmark(tvm.cpu(), x=data, y=data, number=5, repeat=3, end_to_end=True)
    assert len(result.results) == 3
    assert result.mean > 0
    with pytest.raises(tvm.TVMError, match="'z' is not a valid input name"):
        module.benchmark(tvm.cpu(), z=data, end_to_end=True)


@pytest.mark.parametrize("end_to_end", [False, True])
def test_a_benchmark_asks_time_evaluator_of_the_module(
    addition: GraphExecutorFactoryModule, monkeypatch: pytest.MonkeyPatch, end_to_end: bool
) -> None:
    """Which tests put something else in the place of."""
    made = tvm.runtime.module.BenchmarkResult([1, 2, 2, 5])
    monkeypatch.setattr(tvm.runtime.module.Module, "time_evaluator", lambda *_, **__: lambda *_: made)
    module = graph_executor.GraphModule(addition["default"](tvm.cpu()))
    assert module.benchmark(tvm.cpu(), end_to_end=end_to_end) is made


# ---- test_set_input_zero_copy.py ----


@pytest.mark.parametrize("kind", ["simple_graph", "input_in_output", "reshape_after_input"])
def test_zero_copy_gives_what_copies_give(kind: str) -> None:
    a, b = treadle.var("a", (1, 10)), treadle.var("b", (1, 10))
    if kind == "input_in_output":
        result = treadle.tuple_(a, a + b)
    elif kind == "reshape_after_input":
        result = treadle.tuple_(treadle.op.reshape(a, shape=(2, 5)), a + b)
    else:
        result = treadle.tuple_(a + b, a * b)
    lib = factory(compiled(result, a, b))
    copied, placed = (graph_executor.GraphModule(lib["default"](tvm.cpu())) for _ in range(2))
    x, y = tvm.nd.array(rows()), tvm.nd.array(rows())
    copied.run(a=x, b=y)
    placed.set_input_zero_copy("a", x)
    placed.set_input_zero_copy(b=y)
    placed.run()
    assert copied.get_num_outputs() == 2
    for index in range(2):
        assert np.array_equal(copied.get_output(index).numpy(), placed.get_output(index).numpy())


class Foreign:
    """Another library's tensor, which speaks DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_graph_module_zero_copy(addition: GraphExecutorFactoryModule) -> None:
    module = graph_executor.GraphModule(addition["default"](tvm.cpu()))
    x, y, z = rows(), rows(), np.zeros((1, 10), np.float32)
    module.set_input_zero_copy("x", tvm.nd.from_dlpack(Foreign(x)))
    module.set_input_zero_copy("y", Foreign(y))
    module.set_output_zero_copy(0, tvm.nd.from_dlpack(Foreign(z)))
    module.run()
    assert np.array_equal(z, x + y)


# ---- test_runtime_module_based_interface.py ----


def test_raw_functions_and_the_wrapper_agree(dense: GraphExecutorFactoryModule) -> None:
    data = RNG.standard_normal((2, 8)).astype(np.float32)
    raw = dense["default"](tvm.cpu())
    raw["set_input"]("data", tvm.nd.array(data))
    raw["run"]()
    wrapped = graph_executor.GraphModule(dense["default"](tvm.cpu()))
    wrapped.set_input("data", data)
    wrapped.run()
    assert np.array_equal(raw["get_output"](0).numpy(), wrapped.get_output(0).numpy())
    assert isinstance(raw["get_output"](0), tvm.nd.NDArray)


def test_graph_json_and_params_come_with_the_library(dense: GraphExecutorFactoryModule) -> None:
    found = dense["get_graph_json"]()
    assert isinstance(found, str)
    called = [node["name"] for node in json.loads(found)["nodes"] if node["op"] == "tvm_op"]
    assert len(called) == len(dense.executable.primitive_ops)
    assert all(name.startswith("test_graph_executor.py:") for name in called)  # the user's lines, as a model's nodes
    params = dense["get_graph_params"]()
    assert list(params) == ["p0", "p1"]
    module = graph_executor.GraphModule(dense["default"](tvm.cpu()))
    module.set_input(key="data", value=np.ones((2, 8), np.float32), **params)
    module.run()


def test_remove_package_params(dense: GraphExecutorFactoryModule) -> None:
    bare = dense["remove_params"]()
    assert bare.get_params() == {}
    module = graph_executor.GraphModule(bare["default"](tvm.cpu()))
    data = np.ones((2, 8), np.float32)
    module.run(data=data)
    assert not module.get_output(0).numpy().any()
    module.load_params(save_param_dict({name: value.array for name, value in dense.get_params().items()}))
    module.run(data=data)
    expected = treadle.VirtualMachine(dense.executable)["main"](data)
    assert np.array_equal(module.get_output(0).numpy(), expected.numpy())


@pytest.mark.parametrize("suffix", [".so", ".tar", ".trdl"])
def test_mod_export(dense: GraphExecutorFactoryModule, tmp_path: Path, suffix: str) -> None:
    path, data = tmp_path / f"deploy_lib{suffix}", np.ones((2, 8), np.float32)
    dense.export_library(path)
    loaded = tvm.runtime.load_module(path)
    assert loaded["get_graph_json"]() == dense.get_graph_json()
    module = graph_executor.GraphModule(loaded["default"](tvm.cpu(0)))
    del loaded
    module.run(data=data)
    expected = treadle.VirtualMachine(dense.executable)["main"](data)
    assert np.array_equal(module.get_output(0).numpy(), expected.numpy())
    assert isinstance(module.get_output(0), tvm.nd.NDArray if suffix != ".trdl" else treadle.Tensor)


def test_weights_of_a_damaged_file_are_refused(dense: GraphExecutorFactoryModule, tmp_path: Path) -> None:
    path = tmp_path / "model.trdl"
    dense.export_library(path)
    damaged, weights = bytearray(path.read_bytes()), dense.arrays["p0"].tobytes()
    damaged[damaged.index(weights) + 5] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ChecksumError):
        tvm.runtime.load_module(path)["default"](tvm.cpu())


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_mod_export_without_params(dense: GraphExecutorFactoryModule, tmp_path: Path, suffix: str) -> None:
    path, data = tmp_path / f"deploy_lib{suffix}", np.ones((2, 8), np.float32)
    dense["remove_params"]().export_library(path)
    assert path.stat().st_size > 0
    module = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu(0)))
    module.set_input("data", data)
    module.load_params(tvm.runtime.save_param_dict(dense.get_params()))
    module.run()
    expected = treadle.VirtualMachine(dense.executable)["main"](data)
    assert np.array_equal(module.get_output(0).numpy(), expected.numpy())


def test_the_library_alone_is_exported_too(dense: GraphExecutorFactoryModule, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="legacy graph executor behavior"):
        graph, lib, params = dense
    lib.export_library(tmp_path / "kernels.so")
    module = graph_executor.create(graph, tvm.runtime.load_module(tmp_path / "kernels.so"), tvm.cpu())
    module.run(data=np.ones((2, 8), np.float32), **params)
    expected = treadle.VirtualMachine(dense.executable)["main"](np.ones((2, 8), np.float32))
    assert np.array_equal(module.get_output(0).numpy(), expected.numpy())


def test_functions_of_the_graph_are_the_librarys(dense: GraphExecutorFactoryModule, tmp_path: Path) -> None:
    named = {node.function for node in parse_graph(dense.get_graph_json()).nodes if node.function}
    dense.export_library(tmp_path / "model.so")
    for module in (dense, dense.get_lib(), tvm.runtime.load_module(tmp_path / "model.so")):
        assert all(module.implements_function(name, query_imports=True) for name in named)
        assert not module.implements_function("tvmgen_default_fused_nn_softmax", query_imports=True)


def test_linked_weights_are_the_librarys(tmp_path: Path) -> None:
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(3, 4))
    weight, data = RNG.random((3, 4), np.float32), RNG.random((2, 3), np.float32)
    linked = relay.backend.Executor("graph", {"link-params": True})
    lib = relay.build(
        tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.matmul(x, w))), params={"w": weight}, executor=linked
    )
    assert lib.params == lib.get_params() == {}
    lib.lib.export_library(tmp_path / "kernels.so")
    lib["remove_params"]().export_library(tmp_path / "model.so")
    again = tvm.runtime.load_module(tmp_path / "model.so")
    assert again["get_graph_params"]() == {}
    kernels = tvm.runtime.load_module(tmp_path / "kernels.so")
    for module in (
        *(graph_executor.create(lib.graph_json, each, tvm.cpu()) for each in (lib.lib, kernels)),
        *(graph_executor.GraphModule(each["default"](tvm.cpu())) for each in (lib, again)),
        debug_executor.create(lib.graph_json, kernels, tvm.cpu()),
    ):
        module.module.run(x=data)
        np.testing.assert_allclose(module.get_output(0).numpy(), data @ weight, rtol=1e-6)


@pytest.mark.parametrize(
    "header", [b"", b"[]", b'{"name": 1}', b'{"name": "x", "graph": 5}', b'{"name": "x", "graph": "{}"}']
)
def test_a_factory_that_is_damaged_is_refused(header: bytes) -> None:
    with pytest.raises(FormatError):
        GraphExecutorFactoryModule.load(memoryview(header))


def test_cuda_graphs_say_that_there_is_no_cuda(dense: GraphExecutorFactoryModule) -> None:
    from treadle.tvm.contrib.cuda_graph import cuda_graph_executor

    with pytest.raises(tvm.TVMError, match="no CUDA device here"):
        dense["cuda_graph_create"](tvm.cuda())
    with pytest.raises(tvm.TVMError, match="no CUDA device here"):
        cuda_graph_executor.GraphModuleCudaGraph(None)


# ---- construction ----


def test_devices_are_one_or_a_list() -> None:
    assert graph_executor.get_device(None, tvm.cpu(0)) == ([tvm.cpu(0)], 0, [1, 0])
    assert graph_executor.get_device(None, [tvm.cpu(0), tvm.cuda(1)])[2] == [1, 0, 2, 1]
    with pytest.raises(ValueError, match="dev has to be the type of Device or a list of Device"):
        graph_executor.get_device(None, "cpu")
    with pytest.raises(ValueError, match="Either all or none of the devices should be rpc"):
        graph_executor.get_device(None, [tvm.cpu(0), tvm.runtime.Device(129, 0)])


def test_the_graph_is_text_and_its_functions_exist(dense: GraphExecutorFactoryModule) -> None:
    with pytest.raises(ValueError, match="expected the JSON as a str"):
        graph_executor.create(json.loads(dense.get_graph_json()), dense, tvm.cpu())
    with pytest.raises(tvm.TVMError, match="no such function in module: 'myadd'"):
        graph_executor.create(json.dumps(simple()), dense, tvm.cpu())
    with pytest.raises(tvm.TVMError, match="there is cpu"):
        graph_executor.create(dense.get_graph_json(), dense, tvm.cuda())


def test_the_debugger_alone_shows_what_nodes_give(dense: GraphExecutorFactoryModule) -> None:
    module = graph_executor.GraphModule(dense["default"](tvm.cpu()))
    with pytest.raises(NotImplementedError, match=r"Please use debugger\.debug_executor"):
        module.debug_get_output(0, None)


def test_a_warm_run_of_a_graph_imports_no_compiler(dense: GraphExecutorFactoryModule, tmp_path: Path) -> None:
    path = tmp_path / "model.trdl"
    dense.executable.export_library(path)
    program = f"""
import sys, numpy, treadle, treadle.tvm as tvm
from treadle.tvm.contrib.factory import GraphExecutorFactoryModule
module = tvm.contrib.graph_executor.GraphModule(GraphExecutorFactoryModule(treadle.load({str(path)!r}))["default"](tvm.cpu()))
module.run(data=numpy.ones((2, 8), "float32"))
print(module.get_output(0).numpy().shape, [name for name in ("numba", "treadle.compiler.driver") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "(2, 4) []"


RUN_WITHOUT_A_BUILD = """
import sys, time, numpy, treadle, treadle.tvm as tvm
from treadle.vm import core, library
from treadle.tvm.contrib.graph_executor import GraphModule, create
core.engine()  # which releases bring along

def build(*definitions, names, seconds):
    raise AssertionError(f"kernels are built: {names}")

graph, feeds = (numpy.load(path, allow_pickle=False) for path in sys.argv[1:3])
weights = {name: graph[name] for name in graph if name != "json"}
library.compiler().build = build
for path in sys.argv[3:]:
    start = time.thread_time()
    loaded = tvm.runtime.load_module(path, trust_native=True)
    if "vm" in path:
        given = tvm.runtime.vm.VirtualMachine(tvm.runtime.vm.Executable(loaded), tvm.cpu()).run(*feeds.values())
    else:
        made = create(str(graph["json"]), loaded, tvm.cpu()) if "kernels" in path else GraphModule(loaded["default"](tvm.cpu()))
        made.set_input(**weights)
        made.run(**feeds)
        given = made.get_output(0)
    print(path.rpartition("/")[2], given.numpy().sum() != 0, time.thread_time() - start)
"""


def run_without_a_build(
    folder: Path, lib: GraphExecutorFactoryModule, feeds: dict[str, np.ndarray]
) -> dict[str, float]:
    """CPU seconds that loading each kind of export and a first call take in a process without a kernel cache, by file name."""
    np.savez(folder / "graph.npz", json=lib.graph_json, **lib.arrays)
    np.savez(folder / "feeds.npz", **feeds)
    exports = {
        "model.so": lib,
        "model.tar": lib,
        "model.trdl": lib,
        "weightless.so": lib["remove_params"](),
        "kernels.so": lib.lib,
        "vm.so": tvm.runtime.vm.Executable(lib.executable).mod,
    }
    for name, module in exports.items():
        module.export_library(folder / name)
    done = subprocess.run(
        [sys.executable, "-c", RUN_WITHOUT_A_BUILD, *(folder / name for name in ("graph.npz", "feeds.npz", *exports))],
        env={**os.environ, "TREADLE_CACHE": str(folder / "cache"), "TREADLE_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert all(is_computed == "True" for _, is_computed, _ in lines)
    return {name: float(seconds) for name, _, seconds in lines}


def test_what_is_exported_runs_at_once_where_no_kernels_are(dense: GraphExecutorFactoryModule, tmp_path: Path) -> None:
    taken = run_without_a_build(tmp_path, dense, {"data": np.ones((2, 8), np.float32)})
    assert len(taken) == 6
    assert max(taken.values()) < 1, taken


@pytest.mark.thorough
def test_an_exported_network_runs_at_once_where_no_kernels_are(tmp_path: Path) -> None:
    network, params = testing.resnet.get_workload(num_layers=18, image_shape=(3, 32, 32))
    lib = relay.build(network, "llvm", params=params)
    taken = run_without_a_build(tmp_path, lib, {"data": np.ones((1, 3, 32, 32), np.float32)})
    assert max(taken.values()) < 1, taken


def test_native_code_of_an_export_runs_only_where_it_is_trusted(
    dense: GraphExecutorFactoryModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind of export: what is not code of a machine at all is not looked at."""
    none = {
        target: {key: each._replace(code=b"") for key, each in of.items()}
        for target, of in dense.executable.native.items()
    }
    poor = factory(dense.executable.with_native(none))
    data, expected = (
        np.ones((2, 8), np.float32),
        treadle.VirtualMachine(dense.executable)["main"](np.ones((2, 8), np.float32)),
    )
    params = dense.get_params()
    for name, module in {"model": poor, "weightless": poor["remove_params"](), "kernels": poor.lib}.items():
        file = tmp_path / f"{name}.bin"
        file.write_bytes(b"".join(bundle.pack(_parts(module.with_imports()))))
        for is_trusted in (False, True):
            loaded = tvm.runtime.load_module(file, trust_native=is_trusted)
            with monkeypatch.context() as patch:
                patch.setattr(library, "find_kernels", lambda keys: {}) if is_trusted else None
                with pytest.raises(FormatError) if is_trusted else contextlib.nullcontext():
                    made = graph_executor.create(dense.graph_json, loaded, tvm.cpu())
                    made.run(data=data, **params)
                    assert np.array_equal(made.get_output(0).numpy(), expected.numpy())


# ---- weights by their names in the model ----


def classifier() -> treadle.Module:
    x, w, b, d = (treadle.var(name, shape) for name, shape in (("x", (1, 3, 8, 8)), *SHAPES.items()))
    image = treadle.op.relu(treadle.op.conv(x, w, pads=(1, 1, 1, 1)) + treadle.op.reshape(b, shape=(1, 32, 1, 1)))
    return treadle.Module(main=treadle.function([x, w, b, d], treadle.op.mean(image, axes=(2, 3)) @ d))


SHAPES = {"w": (32, 3, 3, 3), "b": (32,), "d": (32, 10)}
IMAGE = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)


def weights(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.random(shape, np.float32) + np.float32(0.5) for name, shape in SHAPES.items()}


def result_of(module: graph_executor.GraphModule) -> bytes:
    module.run(x=IMAGE)
    return module.get_output(0).numpy().tobytes()


@pytest.fixture(scope="module")
def libraries() -> dict[int, GraphExecutorFactoryModule]:
    made = {
        seed: treadle.compile(classifier(), params=weights(seed), progress=False, named_weights=True) for seed in (1, 2)
    }
    return {seed: GraphExecutorFactoryModule(executable) for seed, executable in made.items()}


def loaded(module: graph_executor.GraphModule) -> None:
    module.load_params(save_param_dict(weights(2)))


@pytest.mark.parametrize("take", [lambda module: module.set_input(**weights(2)), loaded])
def test_other_weights_give_the_bits_of_a_graph_that_is_compiled_with_them(
    libraries: dict[int, GraphExecutorFactoryModule],
    take: Callable[[graph_executor.GraphModule], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = graph_executor.GraphModule(libraries[2]["default"](tvm.cpu()))
    with pytest.warns(DeprecationWarning, match="legacy graph executor behavior"):
        graph, lib, params = libraries[1]
    legacy = graph_executor.create(graph, lib, tvm.cpu())
    legacy.set_input(**params)
    for module in (graph_executor.GraphModule(libraries[1]["default"](tvm.cpu())), legacy):
        before = result_of(module)
        monkeypatch.setattr(kernels, "compile_texts", lambda *_: pytest.fail("a kernel is built"))
        take(module)
        assert result_of(module) == result_of(other) != before
        module.set_input(**weights(1))
        assert result_of(module) == before


def test_weights_are_shared_by_their_names_in_the_model(libraries: dict[int, GraphExecutorFactoryModule]) -> None:
    parent, child = (graph_executor.GraphModule(libraries[1]["default"](tvm.cpu())) for _ in range(2))
    parent.set_input(**weights(2))
    child.share_params(parent, save_param_dict(weights(2)))
    assert result_of(child) == result_of(parent)
    for name in libraries[1].params:
        assert np.shares_memory(parent.get_input(name).array, child.get_input(name).array)


def test_a_weight_that_does_not_fit_is_refused_and_nothing_is_set(
    libraries: dict[int, GraphExecutorFactoryModule],
) -> None:
    module = graph_executor.GraphModule(libraries[1]["default"](tvm.cpu()))
    before = result_of(module)
    with pytest.raises(tvm.TVMError, match=r"weight 'd': expected float32\[32, 10\]"):
        module.set_input(x=0 * IMAGE, w=weights(2)["w"], b=weights(2)["b"], d=np.ones((10, 32), np.float32))
    with pytest.raises(tvm.TVMError, match="Could not find 'v' in graph's inputs; there are x, p0"):
        module.set_input("v", IMAGE, **weights(2))
    module.run()
    assert module.get_output(0).numpy().tobytes() == before


def test_functions_are_called_as_tvm_calls_them_and_their_own_names_work_too() -> None:
    x = treadle.var("x", (2, 3))
    executable = compiled(treadle.op.softmax(x, axis=1) + x, x)
    lib = factory(executable)
    text = lib.get_graph_json()
    assert "tvmgen_default_fused_nn_softmax_add" in text
    own = text.replace("tvmgen_default_fused_nn_softmax_add", executable.program.primitives[0].name)
    for each in (text, own):
        module = graph_executor.create(each, lib.get_lib(), tvm.cpu(0))
        module.run(x=np.zeros((2, 3), "float32"))
        np.testing.assert_allclose(module.get_output(0).numpy(), np.full((2, 3), 1 / 3), rtol=1e-6)
