"""What TVM's machines do badly (tvm_spec, section 6): threads, interrupts, what a run leaves behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm import relax, relay
from treadle.tvm.runtime.vm import VirtualMachine

ENDLESS = """
import signal
import treadle.tvm as tvm
from treadle.tvm import relax

ib = relax.ExecBuilder()
with ib.function("main", num_inputs=1):
    ib.emit_call("vm.builtin.copy", args=[ib.r(0)], dst=ib.r(1))
    ib.emit_goto(-1)
vm = relax.VirtualMachine(ib.get(), tvm.cpu())
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("running", flush=True)
    vm["main"](1)
except KeyboardInterrupt as error:
    print(type(error).__name__)
"""


def relay_program() -> tvm.runtime.vm.Executable:
    x = relay.var("x", shape=(relay.Any(), 8))
    return relay.vm.compile(relay.Function([x], relay.nn.softmax(relay.nn.relu(x) + relay.const(1.0))), "llvm")


def relax_program() -> relax.Executable:
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((tvm.tir.Var("n", "int64"), 8)))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.op.nn.softmax(relax.op.add(relax.op.nn.relu(x), relax.const(1.0)))))
    return relax.build(bb.get(), "llvm")


@pytest.mark.parametrize("face", ["relay", "relax"])
def test_threads_may_call_one_machine(face: str) -> None:
    if face == "relay":
        machine = VirtualMachine(relay_program(), tvm.cpu())

        def call(x):
            return machine.invoke("main", x)
    else:
        call = relax.VirtualMachine(relax_program(), tvm.cpu())["main"]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((rows, 8)).astype("float32") for rows in range(1, 25)]
    expected = [call(x).numpy() for x in inputs]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(20):
            for result, each in zip(threads.map(call, inputs), expected, strict=True):
                np.testing.assert_array_equal(result.numpy(), each)


def test_an_endless_loop_is_interrupted() -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "KeyboardInterrupt\n"


def test_running_changes_nothing_that_is_saved() -> None:
    executable = relay_program()
    before, _ = executable.save()
    VirtualMachine(executable, tvm.cpu()).run(np.ones((2, 8), "float32"))
    after, _ = executable.save()
    assert before == after


def test_a_parameter_that_create_executor_is_given_is_a_constant() -> None:
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(3,))
    module = relay.IRModule.from_expr(relay.Function([x, w], x + w))
    call = relay.create_executor("graph", module, tvm.cpu(), "llvm", params={"w": np.ones(3, "float32")}).evaluate()
    np.testing.assert_array_equal(call(np.zeros((2, 3), "float32")).numpy(), np.ones((2, 3)))


def test_an_unknown_input_is_named_with_those_that_there_are() -> None:
    x = relay.var("x", shape=(2,))
    module = tvm.contrib.graph_executor.GraphModule(relay.build(relay.Function([x], x + x))["default"](tvm.cpu()))
    with pytest.raises(RuntimeError, match="Could not find 'y' in graph's inputs; there are x"):
        module.set_input("y", np.zeros(2, "float32"))
    with pytest.raises(ValueError, match=r"float32\[2\]|\(2,\)|shape"):
        module.set_input("x", tvm.nd.array(np.zeros((2, 1), "float32")))
