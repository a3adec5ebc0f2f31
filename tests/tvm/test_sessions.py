"""What TVM's tests do on a remote device, in a session of this process: files go there, and what they hold is loaded there."""

from __future__ import annotations

import numpy as np
import treadle.tvm as tvm
from treadle.tvm import relay
from treadle.tvm.contrib import graph_executor
from treadle.tvm.contrib.debugger import debug_executor
from treadle.tvm.runtime import profiler_vm
from treadle.tvm.runtime.container import tuple_object

X = np.arange(6, dtype="float32").reshape(2, 3)


def program() -> relay.Function:
    x = relay.var("x", shape=(2, 3))
    return relay.Function([x], relay.nn.softmax(x + relay.const(1.0)))


def sent(library, tmp_path):
    """The library as a session has it."""
    library.export_library(tmp_path / "lib.tar")
    session = tvm.rpc.LocalSession()
    session.upload(str(tmp_path / "lib.tar"))
    return session, session.load_module("lib.tar")


def test_a_graph_executor(tmp_path) -> None:
    library = relay.build(program(), "llvm")
    session, there = sent(library, tmp_path)
    module = graph_executor.GraphModule(there["default"](session.cpu()))
    module.run(x=X)
    here = graph_executor.GraphModule(library["default"](tvm.cpu()))
    here.run(x=X)
    np.testing.assert_array_equal(module.get_output(0).numpy(), here.get_output(0).numpy())
    assert module.benchmark(session.cpu(), repeat=2, number=1, end_to_end=True, x=X).mean > 0


def test_a_debug_executor(tmp_path) -> None:
    library = relay.build(program(), "llvm")
    session, there = sent(library, tmp_path)
    module = debug_executor.create(library.get_graph_json(), there, session.cpu(), dump_root=tmp_path / "dump")
    module.run(x=X)
    assert len(module.debug_datum.get_output_tensors()) >= 2
    assert module.profile(x=X).calls


def test_a_profile_of_the_virtual_machine(tmp_path) -> None:
    session, there = sent(relay.vm.compile(program(), "llvm").mod, tmp_path)
    report = profiler_vm.VirtualMachineProfiler(there, session.cpu()).profile(X)
    assert "softmax" in str(report)


def test_a_tuple_of_the_runtime_is_an_argument_there() -> None:
    pair = relay.var("pair", relay.TupleType([relay.TensorType((2,)), relay.TensorType((2,))]))
    function = relay.Function([pair], relay.TupleGetItem(pair, 0) + relay.TupleGetItem(pair, 1))
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(function), tvm.cpu())
    values = tuple_object([tvm.nd.array(np.ones(2, "float32")), tvm.nd.array(np.ones(2, "float32"))])
    np.testing.assert_array_equal(machine.invoke("main", values).numpy(), [2, 2])


def test_copies_between_devices_are_nodes_that_a_file_keeps(tmp_path) -> None:
    """test_runtime_heterogeneous.py::test_duplex_data_transferring, on one device."""
    x, y = relay.var("x", shape=(4,)), relay.var("y", shape=(4,))
    there = relay.device_copy(x + y, tvm.cpu(), tvm.cpu())
    back = relay.device_copy(there - y, tvm.cpu(), tvm.cpu())
    library = relay.build(relay.Function([x, y], back + y), "llvm")
    library.export_library(tmp_path / "lib.so")
    a, b = np.arange(4, dtype="float32"), np.ones(4, "float32")
    for each in (library, tvm.runtime.load_module(tmp_path / "lib.so")):
        module = graph_executor.GraphModule(each["default"](tvm.cpu()))
        module.run(x=a, y=b)
        np.testing.assert_array_equal(module.get_output(0).numpy(), a + b)
