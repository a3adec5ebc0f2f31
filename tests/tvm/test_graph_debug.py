"""TVM's debug executor by its names, as its own tests use it (tvm_spec.md, 5.9), and what TVM had wrong (section 6)."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
import treadle.tvm as tvm
from treadle.formats.param_dict import load_param_dict
from treadle.tvm.contrib.debugger import debug_executor, debug_runtime
from treadle.tvm.contrib.factory import GraphExecutorFactoryModule

from ..formats.graphs import call, document, parameter, simple

SLEEP = 0.02  # seconds
RNG = np.random.default_rng(5)


def myadd(x: tvm.nd.NDArray, out: tvm.nd.NDArray) -> None:
    time.sleep(SLEEP)
    out[:] = x.numpy() + 1


def created(**options: Any) -> debug_executor.GraphModuleDebug:
    return debug_executor.create(json.dumps(simple()), {"myadd": myadd}, tvm.cpu(0), **options)


def cells(line: str) -> list[str]:
    parts = re.split(r"  [ ]*", line)
    assert parts.pop() == ""
    return parts


# ---- test_runtime_graph_debug.py ----


def test_end_to_end_graph_simple(capsys: pytest.CaptureFixture[str]) -> None:
    module = created()
    a = RNG.random(4, np.float32)
    module.set_input(x=a)
    folder = Path(module._dump_path)
    assert folder.name == "_tvmdbg_device_CPU_0"
    assert folder.parent.name.startswith("tvmdbg_")
    assert os.listdir(folder) == ["_tvmdbg_graph_dump.json"]
    dumped = json.loads((folder / "_tvmdbg_graph_dump.json").read_text())
    assert set(dumped) == {"nodes", "arg_nodes", "node_row_ptr", "heads", "attrs"}

    module.run()
    assert sorted(os.listdir(folder)) == [
        "_tvmdbg_execution_trace.json",
        "_tvmdbg_graph_dump.json",
        "output_tensors.params",
    ]
    table = module.debug_datum.get_debug_result()
    assert table in capsys.readouterr().out
    lines = table.split("\n")
    header = ["Node Name", "Ops", "Time(us)", "Time(%)", "Shape", "Inputs", "Outputs", "Measurements(us)"]
    assert cells(lines[0]) == header
    row, total = cells(lines[2]), cells(lines[3])
    assert row[:2] == ["add", "myadd"]
    assert SLEEP < float(row[2]) / 1e6 < SLEEP * 1000
    assert row[4:7] == ["(4,)", "1", "1"]
    assert (total[0], total[2]) == ("Total_time", row[2])

    trace = json.loads((folder / "_tvmdbg_execution_trace.json").read_text())
    events = trace["traceEvents"]
    assert trace["displayTimeUnit"] == "ns"
    assert [event["name"] for event in events] == ["x", "x", "add", "add"]
    assert [event["ph"] for event in events] == ["B", "E", "B", "E"]
    assert all(event["pid"] == event["tid"] == 1 for event in events)
    assert events[0]["ts"] == events[1]["ts"] == 0

    assert np.array_equal(module.get_output(0, tvm.nd.empty((4,))).numpy(), a + 1)
    module.exit()
    assert not folder.exists()
    assert not folder.parent.exists()


def test_run_single_node() -> None:
    module = created()
    module.set_input(x=RNG.random(4, np.float32))
    assert [node["op"] for node in module.debug_datum.get_graph_nodes()] == ["param", "myadd"]
    assert module.run_individual_node(0, number=1).mean == 0
    once = module.run_individual_node(1, number=1, repeat=1)
    thrice = module.run_individual_node(1, number=1, repeat=3)
    assert once.mean > SLEEP
    assert sum(thrice.results) > sum(once.results)
    assert len(module.run_individual_node(1, number=1, repeat=5).results) == 5

    def seconds(**options: Any) -> float:
        begin = time.perf_counter()
        module.run_individual_node(1, number=1, **options)
        return time.perf_counter() - begin

    assert seconds(min_repeat_ms=150) >= 0.15
    each, second = (seconds(repeat=2, cooldown_interval_ms=200, repeats_to_cooldown=n) for n in (1, 2))
    assert each >= 0.4
    assert 0.2 <= second < each
    for index in (2, -1, "add"):
        with pytest.raises(tvm.TVMError, match="there is no node"):
            module.run_individual_node(index)  # type: ignore[arg-type]
    module.exit()


@pytest.mark.parametrize(
    "options",
    [
        {"number": 0},
        {"repeat": 0},
        {"min_repeat_ms": -1},
        {"limit_zero_time_iterations": -1},
        {"cooldown_interval_ms": -1},
        {"repeats_to_cooldown": 0},
    ],
)
@pytest.mark.parametrize("index", [0, 1])
def test_options_of_measuring_are_checked(index: int, options: dict[str, Any]) -> None:
    module = created()
    with pytest.raises(tvm.TVMError, match=next(iter(options))):
        module.run_individual_node(index, **options)
    module.exit()


def split_graph() -> str:
    """a has two outputs, (x + 1, x + 2); b is their sum; c is twice x + 2."""
    nodes = [
        parameter("x"),
        call("a", "both", [[0, 0]], outputs=2),
        call("b", "sum", [[1, 0], [1, 1]]),
        call("c", "twice", [[1, 1]]),
    ]
    return json.dumps(document(nodes, [[2, 0], [3, 0]], [[4]] * 5, [0, 1, 2, 3, 1]))


FUNCTIONS = {
    "both": lambda x, one, two: [x.numpy() + 1, x.numpy() + 2],
    "sum": lambda one, two, out: one.numpy() + two.numpy(),
    "twice": lambda two, out: 2 * two.numpy(),
}


def test_multiple_output(tmp_path: Path) -> None:
    module = debug_executor.create(split_graph(), FUNCTIONS, tvm.cpu(), str(tmp_path))
    x = np.arange(4, dtype=np.float32)
    module.run(number=1, min_repeat_ms=0, x=x)
    for node, expected in (("x", x), ("a", x + 1), (2, 2 * x + 3), ("c", 2 * x + 4)):
        assert np.array_equal(module.debug_get_output(node).numpy(), expected)
    assert np.array_equal(module.get_node_output("a", 1).numpy(), x + 2)
    keys = [f"{name}____topo-index:{i}____output-num:{j}" for name, i, j in [("x", 0, 0), ("a", 1, 0), ("a", 1, 1)]]
    assert list(module.debug_datum.get_output_tensors())[:3] == keys
    assert len(module.debug_datum.get_debug_result().split("\n")) == 2 + 4 + 1


def test_debug_create_of_a_library(tmp_path: Path) -> None:
    x = treadle.var("data", (2, 8))
    hidden = treadle.op.softmax(x @ RNG.standard_normal((8, 16)).astype(np.float32))
    module = treadle.Module(main=treadle.function([x], treadle.op.softmax(hidden)))
    lib = GraphExecutorFactoryModule(treadle.compile(module, progress=False))
    raw = lib["debug_create"]("default", tvm.cpu())
    data = RNG.random((2, 8), np.float32)
    raw["set_input"]("data", tvm.nd.array(data))
    raw["run"]()
    expected = treadle.VirtualMachine(lib.executable)["main"](data).numpy()
    assert np.array_equal(raw["get_output"](0).numpy(), expected)

    debug = debug_runtime.GraphModuleDebug(
        lib["debug_create"]("default", tvm.cpu()), [tvm.cpu()], lib.get_graph_json(), str(tmp_path)
    )
    debug.set_input("data", data)
    debug.run(number=1)
    assert np.array_equal(debug.get_output(0).numpy(), expected)
    created = debug_executor.create(lib.get_graph_json(), lib, tvm.cpu(), str(tmp_path))  # weights come along
    created.run(number=1, data=data)
    assert np.array_equal(created.get_output(0).numpy(), expected)
    with pytest.raises(AttributeError, match="there is no 'other'"):
        lib["debug_create"]("other", tvm.cpu())


def test_profile() -> None:
    module = created()
    report = module.profile(x=np.zeros(4, np.float32))
    assert [call["Name"] for call in report.calls] == ["myadd"]
    assert report.calls[0]["Argument Shapes"] == "float32[4], float32[4]"
    assert report.calls[0]["Duration (us)"].microseconds > SLEEP * 1e6
    assert report.configuration["Executor"] == "Graph"
    assert "myadd" in report.table()
    assert tvm.runtime.Report.from_json(module["profile_rpc"]()).calls[0]["Name"] == "myadd"
    module.exit()


# ---- what TVM had wrong ----


def test_a_second_run_dumps_its_own_tensors(tmp_path: Path) -> None:
    module = created(dump_root=str(tmp_path))
    for value in (1, 5):
        module.run(number=1, min_repeat_ms=0, x=np.full(4, value, np.float32))
    dumped = load_param_dict((Path(module._dump_path) / "output_tensors.params").read_bytes())
    assert [array.tolist() for array in dumped.values()] == [[5] * 4, [6] * 4]


def test_what_nodes_give_is_seen_with_out_and_without() -> None:
    module = created()
    module.set_input(x=np.ones(4, np.float32))
    out = tvm.nd.empty((4,))
    assert module.debug_get_output("add", out) is out
    assert out.numpy().tolist() == module.debug_get_output(1).numpy().tolist() == [2] * 4
    with pytest.raises(AttributeError, match="Could not find a node named none in this graph"):
        module.debug_get_output("none")
    with pytest.raises(RuntimeError, match="Require node index or name only"):
        module.debug_get_output(1.5)  # type: ignore[arg-type]
    with pytest.raises(tvm.TVMError, match="there is no node 2"):
        module.debug_get_output(2)
    with pytest.raises(ValueError, match="array shape do not match"):
        module.debug_get_output("add", tvm.nd.empty((3,)))
    module.exit()


def test_a_folder_of_the_users_stays_when_the_module_leaves(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    module = created(dump_root=str(tmp_path))
    module.exit()
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_nodes_that_share_storage_keep_what_they_gave() -> None:
    module = debug_executor.create(split_graph(), FUNCTIONS, tvm.cpu())  # c writes where a's first output was
    module.run(number=1, min_repeat_ms=0, x=np.zeros(4, np.float32))
    assert module.get_node_output("a").numpy().tolist() == [1] * 4
    module.exit()
