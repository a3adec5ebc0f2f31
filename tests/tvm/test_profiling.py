"""TVM's test_runtime_profiling.py, test_runtime_vm_profiler.py and test_runtime_measure.py."""

import csv
import io
import json

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm import relay
from treadle.tvm.contrib.debugger import debug_executor
from treadle.tvm.relay.testing import mlp
from treadle.tvm.runtime import profiler_vm
from treadle.tvm.runtime.module import BenchmarkResult, Module
from treadle.tvm.runtime.profiling import Count, MetricCollector, Report, profile_function

DATA = np.random.default_rng(0).random((1, 1, 28, 28), np.float32)


@pytest.fixture(scope="module")
def network() -> tuple:
    return mlp.get_workload(1)


@pytest.fixture(scope="module")
def machine(network: tuple) -> profiler_vm.VirtualMachineProfiler:
    module, params = network
    return profiler_vm.VirtualMachineProfiler(relay.vm.compile(module, "llvm", params=params), tvm.cpu())


def columns(report: Report) -> dict[str, list[str]]:
    names, *rows = csv.reader(io.StringIO(report.csv()))
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def test_a_machine_of_unknown_shapes_tells_of_allocations_too() -> None:
    x, y = (relay.var(name, shape=(relay.Any(), relay.Any()), dtype="float32") for name in "xy")
    module = tvm.IRModule()
    module["main"] = relay.Function([x, y], relay.add(x, y))
    data = DATA.reshape(28, 28)
    report = profiler_vm.VirtualMachineProfiler(relay.vm.compile(module, "llvm"), tvm.cpu()).profile(data, data)
    text = str(report)
    assert all(word in text for word in ("fused_add", "Total", "AllocTensorReg", "AllocStorage"))
    assert report.configuration["Executor"] == "VM"
    found = columns(report)
    assert "Hash" in found
    for name, microseconds in zip(found["Name"], found["Duration (us)"], strict=True):
        assert float(microseconds) > 0 or "fused" not in name


def test_a_saved_executable_is_profiled(network: tuple) -> None:
    module, params = network
    code, lib = relay.vm.compile(module, "llvm", params=params).save()
    loaded = tvm.runtime.vm.Executable.load_exec(code, lib)
    assert "softmax" in str(profiler_vm.VirtualMachineProfiler(loaded, tvm.cpu()).profile(tvm.nd.array(DATA)))


def test_a_graph_executor_is_profiled(network: tuple) -> None:
    module, params = network
    library = relay.build(module, "llvm", params=params)
    report = debug_executor.create(library.get_graph_json(), library.lib, tvm.cpu()).profile(data=DATA)
    assert all(word in str(report) for word in ("softmax", "Total", "Hash", "Graph"))


def test_json(machine: profiler_vm.VirtualMachineProfiler) -> None:
    parsed = json.loads(machine.profile(DATA, func_name="main").json())
    assert {"calls", "device_metrics", "configuration"} <= parsed.keys()
    assert parsed["calls"]
    for call in parsed["calls"]:
        assert isinstance(call["Name"]["string"], str)
        assert isinstance(call["Count"]["count"], int)
        assert isinstance(call["Duration (us)"]["microseconds"], float)


def test_a_report_is_the_same_after_json(machine: profiler_vm.VirtualMachineProfiler) -> None:
    report = machine.profile(DATA, func_name="main")
    again = Report.from_json(report.json())
    assert again.table(aggregate=False, col_sums=False) == report.table(aggregate=False, col_sums=False)


class Calls(MetricCollector):
    """Counts what it is told of."""

    def init(self, devices: list) -> None:
        self.devices = devices

    def start(self, device: object) -> int:
        return 2

    def stop(self, started: int) -> dict:
        return {"Calls": Count(started)}


def test_collectors(machine: profiler_vm.VirtualMachineProfiler) -> None:
    report = machine.profile(DATA, func_name="main", collectors=[Calls()])
    assert "Calls" in str(report)
    assert all(float(value) > 0 for value in columns(report)["Calls"] if value)


def test_a_function_is_profiled() -> None:
    calls: list = []
    found = profile_function(Module({"f": calls.append}), tvm.cpu(), [Calls()], func_name="f", warmup_iters=3)(7)
    assert found["Calls"].value > 0
    assert calls == [7] * 4


def test_benchmark_result() -> None:
    result = BenchmarkResult([1, 2, 2, 5])
    assert (result.mean, result.median, result.min, result.max, result.std) == (2.5, 2.0, 1, 5, 1.5)


def test_a_time_evaluator_calls_once_more_than_it_is_told_to() -> None:
    calls: list = []
    module = Module({"f": lambda: calls.append(1)})
    module.time_evaluator("f", tvm.cpu(), number=1, repeat=1)()
    assert len(calls) == 2
