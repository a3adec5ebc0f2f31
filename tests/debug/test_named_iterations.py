"""`nonfinite`, `dump`, `compare` and timelines name iterations: of ONNX's loops, of programs in Python, of nested calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper
from treadle import Module, TensorType, constant, for_loop, function, global_function, if_, op, var
from treadle.errors import IndexOutOfRangeError

ONES = np.ones(2, np.float32)


def _info(name: str, shape: Any = (2,), type_: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, shape)


def _model(node: onnx.NodeProto, inputs: Any, outputs: Any, **weights: np.ndarray) -> onnx.ModelProto:
    made = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "graph", inputs, outputs, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def loop_model() -> onnx.ModelProto:
    """A sum of rows, the third of which makes it negative, and its roots."""
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["row"], "pick"),
        helper.make_node("Add", ["s", "row"], ["s_out"], "sum"),
        helper.make_node("Identity", ["c"], ["c_out"], "keep"),
        helper.make_node("Sqrt", ["s_out"], ["root"], "root"),
    ]
    given = [_info("i", (), TensorProto.INT64), _info("c", (), TensorProto.BOOL), _info("s")]
    body = helper.make_graph(
        nodes, "body", given, [_info("c_out", (), TensorProto.BOOL), _info("s_out"), _info("root")]
    )
    table = np.array([[1, 1], [2, 2], [-9, 1]], np.float32)
    return _model(
        helper.make_node("Loop", ["n", "true", "x"], ["y", "roots"], "repeat", body=body),
        [_info("x"), _info("n", (), TensorProto.INT64)],
        [_info("y"), _info("roots", ("k", 2))],
        true=np.array(True),
        table=table,
    )


def scan_model() -> onnx.ModelProto:
    nodes = [helper.make_node("Sub", ["s", "row"], ["d"], "less"), helper.make_node("Sqrt", ["d"], ["s_out"], "root")]
    body = helper.make_graph(nodes, "body", [_info("s"), _info("row")], [_info("s_out")])
    node = helper.make_node("Scan", ["x", "rows"], ["y"], "each", body=body, num_scan_inputs=1)
    return _model(node, [_info("x"), _info("rows", ("k", 2))], [_info("y")])


def nested(scale: float) -> Module:
    """Ten times the sum of squares, but for the last round of the second one, which has another scale."""
    x = var("x", (2,))
    scales = np.ones((2, 3, 1), np.float32)
    scales[1, 2] = scale

    def outer(i: Any, s: Any) -> Any:
        rows = op.take(constant(scales), i, axis=0)
        return for_loop(3, lambda j, t: op.tanh(t * op.take(rows, j, axis=0)), [s])[0]

    return Module(main=function([x], for_loop(2, outer, [x])[0]))


def test_loops_of_onnx_name_the_iteration_of_a_nan() -> None:
    found = treadle.debug.first_nonfinite(loop_model(), [ONES, np.int64(3)])
    assert found is not None
    assert found.iterations == "loop at repeat, iteration 2"
    assert found.at == "root"
    assert ", loop at repeat, iteration 2;" in str(found)
    assert json.loads(found.json())["iterations"] == found.iterations


def test_scans_do_too() -> None:
    rows = np.array([[0, 0], [0.5, 0], [3, 0]], np.float32)
    found = treadle.debug.first_nonfinite(scan_model(), [ONES, rows])
    assert found is not None
    assert found.iterations == "loop at each, iteration 2"


def test_errors_of_loops_of_onnx_name_the_iteration() -> None:
    machine = treadle.VirtualMachine(treadle.compile(loop_model(), progress=False))
    with pytest.raises(IndexOutOfRangeError, match=r"node 'pick', loop at repeat, iteration 3\]"):
        machine["main"](ONES, np.int64(5))


def test_a_recursion_names_the_depth_of_calls() -> None:
    x, n = var("x", ()), var("n", TensorType("int64"))
    down = global_function("down")
    number = TensorType("float32")
    program = Module(
        down=function([x, n], if_(n < 1, x, op.sqrt(down(x, n - 1) - 1.0)), result_type=number),
        main=function([x, n], down(x, n)),
    )
    found = treadle.debug.first_nonfinite(treadle.compile(program, progress=False), [np.float32(2), np.int64(5)])
    assert found is not None
    assert found.iterations == "call depth 4"


def test_a_dump_says_of_each_tensor_in_which_iterations_it_was_made(tmp_path: Path) -> None:
    folder = treadle.debug.dump(treadle.compile(nested(1.0), progress=False), [ONES], tmp_path / "dump")
    rows = json.loads((folder / "index.json").read_text(encoding="utf-8"))["tensors"]
    told = [row["iterations"] for row in rows if "tanh" in row.get("primitive", "")]
    assert [(text.count(", in loop at"), text.count("iteration ")) for text in told] == [(1, 2)] * 6
    numbers = [tuple(int(part.split(",")[0]) for part in text.split("iteration ")[1:]) for text in told]
    assert numbers == [(j, i) for i in range(2) for j in range(3)]
    assert {row["function"] for row in rows if row["kind"] == "kernel"} == {"main"}


@pytest.mark.parametrize("is_executable", [False, True])
def test_compare_finds_the_first_iteration_that_differs(is_executable: bool) -> None:
    wrong, right = nested(1.5), nested(1.0)
    against = treadle.compile(right, progress=False) if is_executable else right
    report = treadle.debug.compare(treadle.compile(wrong, progress=False), [ONES / 3], against)
    assert report.first is not None
    assert report.first.iterations.split("iteration ")[1:] == [
        f"2, in {report.first.iterations.split(', in ')[1].rpartition('iteration ')[0]}",
        "1",
    ]
    assert report.first.iterations in report.table()
    assert '"iterations"' in report.json()


def test_a_loop_that_is_right_compares_iteration_by_iteration() -> None:
    report = treadle.debug.compare(nested(1.0), [ONES / 3], "reference")
    tensors = [row for row in report.rows if "tanh" in row.primitive]
    assert report.ok
    assert len(tensors) == 6
    assert all(row.status in ("equal", "close") for row in tensors)


def test_a_timeline_says_it_of_each_kernel(tmp_path: Path) -> None:
    treadle.debug.save_trace(treadle.compile(nested(1.0), progress=False), [ONES], tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    told = [each["args"]["iterations"] for each in events if "tanh" in each.get("name", "") and each["ph"] == "X"]
    assert len(set(told)) == 6
