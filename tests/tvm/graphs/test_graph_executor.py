"""The graph executor runs graphs of the machine's primitives and of functions of the user's, in memory that is bound before."""

from __future__ import annotations

import gc
import json
import os
import weakref
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.compiler.driver import compile
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import (
    ArgumentError,
    DTypeError,
    ExecutionError,
    FormatError,
    ShapeError,
    TreadleError,
)
from treadle.formats.param_dict import save_param_dict
from treadle.formats.text.assembly import parse_assembly
from treadle.tools.dev.fuzz.changes import mutate_json
from treadle.tvm.files.graph_json import NOP, parse_graph
from treadle.tvm.graphs.debugger import DebugExecutor
from treadle.tvm.graphs.executor import GraphExecutor
from treadle.tvm.graphs.of_program import graph_of
from treadle.vm.machine import VirtualMachine
from treadle.vm.tensor import Tensor

from ... import timing
from ...formats.graphs import call, document, parameter, rich, simple

PRIMITIVES = """
prim add(%0: float32[4, 8], %1: float32[4, 8]) -> float32[4, 8] {
  %2 = add(%0, %1) : float32[4, 8]
  return %2
}
prim scale[n](%0: float32[n, 8]) -> float32[n, 8] {
  %1 = add(%0, %0) : float32[n, 8]
  return %1
}
"""
RNG = np.random.default_rng(7)
X, Y = (RNG.standard_normal((4, 8)).astype(np.float32) for _ in range(2))


@pytest.fixture(scope="module")
def executable() -> Executable:
    return Executable(parse_assembly(PRIMITIVES))


def myadd(x: Tensor, out: Tensor) -> None:
    np.add(x.array, 1, out=out.array)


def swap(a: Tensor, b: Tensor, *outputs: Tensor) -> tuple[np.ndarray, np.ndarray]:
    return b.array, a.array * 3


def sum_graph() -> str:
    """out = x + y; twice = 2 * out; the outputs are both, and x."""
    nodes = [
        parameter("x"),
        parameter("y"),
        call("sum", "add", [[0, 0], [1, 0]]),
        call("twice", "scale", [[2, 0]], sizes="4"),
    ]
    return json.dumps(document(nodes, [[2, 0], [3, 0], [0, 0]], [[4, 8]] * 4))


def made(executable: Executable, text: str | None = None, **options: Any) -> GraphExecutor:
    return GraphExecutor(text or sum_graph(), executable, **options)


# ---- running ----


def test_a_hand_written_graph_calls_a_function_of_the_users() -> None:
    executor = GraphExecutor(json.dumps(simple()), find={"myadd": myadd}.get)
    x = np.arange(4, dtype=np.float32)
    executor.run(x=x)
    out = np.zeros(4, np.float32)
    assert executor.get_output(0, out) is out
    assert out.tolist() == [1, 2, 3, 4]


def test_primitives_run_as_one_function_of_the_machine(executable: Executable) -> None:
    executor = made(executable)
    executor.run(x=X, y=Y)
    assert np.array_equal(executor.get_output(0), X + Y)
    assert np.array_equal(executor.get_output("twice"), 2 * (X + Y))
    assert np.array_equal(executor.get_output(2), X)
    assert [step.function for step in executor._plan.steps] == ["main"]


def test_nodes_that_call_one_primitive_have_names_of_their_own() -> None:
    text = PRIMITIVES + "func @main(x: float32[4, 8]) -> float32[4, 8] {\n"
    for register in (1, 2, 3):
        text += f"  alloc_tensor r{register}, float32[4, 8]\n  call add (r{register - 1}, r0) -> (r{register})\n"
    graph = graph_of(Executable(parse_assembly(text + "  ret r3\n}\n"))).graph
    names = [node.name for node in graph.nodes]
    assert len(names) == len(set(names)) == 4


def test_a_result_that_is_reshaped_before_a_primitive_writes_it_is_a_view_of_what_it_writes() -> None:
    x = treadle.var("x", (2, 4), "float32")
    product = treadle.op.matmul(x, np.arange(12, dtype=np.float32).reshape(4, 3))
    main = treadle.function([x], treadle.op.reshape(product, shape=(6, 1)))
    graph = graph_of(compile(treadle.Module(main=main), progress=False)).graph
    assert graph.nodes[graph.heads[0].node].function == NOP
    assert graph.shapes[-2:] == ((2, 3), (6, 1))


def test_functions_of_the_users_reshapes_and_copies_lie_between_primitives(executable: Executable) -> None:
    executor = GraphExecutor(json.dumps(rich()), executable, find={"python": swap}.get)
    executor.run(x=X, y=Y)
    total = X + Y
    assert np.array_equal(executor.get_output(0), (2 * total) * 3 + total)
    assert np.array_equal(executor.get_output("flat:0"), (2 * total).reshape(32))
    assert [step.function for step in executor._plan.steps] == ["step_0", None, None, "step_3"]


def test_a_function_that_asks_for_flat_tensors_gets_them() -> None:
    found = simple()
    found["attrs"]["shape"][1] = [[2, 2], [2, 2]]
    found["nodes"][1]["attrs"]["flatten_data"] = "1"
    shapes = []

    def look(x: Tensor, out: Tensor) -> None:
        shapes.append((x.shape, out.shape))

    GraphExecutor(json.dumps(found), find={"myadd": look}.get).run()
    assert shapes == [((4,), (4,))]


@pytest.mark.parametrize("given", [np.zeros(3, np.float32), np.zeros(4), (np.zeros(4, np.float32),) * 2, "text"])
def test_what_a_function_returns_is_checked(given: Any) -> None:
    executor = GraphExecutor(json.dumps(simple()), find={"myadd": lambda x, out: given}.get)
    with pytest.raises(ExecutionError, match=r"the function returned.*'add'"):
        executor.run()


def test_a_failure_of_a_function_passes_through_and_the_executor_can_be_used_again() -> None:
    fails = [True]

    def sometimes(x: Tensor, out: Tensor) -> np.ndarray:
        if fails.pop():
            raise KeyError("mine")
        return x.array + 1

    executor = GraphExecutor(json.dumps(simple()), find={"myadd": sometimes}.get)
    with pytest.raises(KeyError, match="mine"):
        executor.run()
    fails.append(False)
    executor.run(x=np.ones(4, np.float32))
    assert executor.get_output(0).numpy().tolist() == [2, 2, 2, 2]


def test_functions_that_are_missing_are_named_all_at_once(executable: Executable) -> None:
    found = rich()
    found["nodes"][8]["attrs"]["func_name"] = "other"
    with pytest.raises(AttributeError, match="no such function in module: 'python', 'other'"):
        GraphExecutor(json.dumps(found), executable)


def test_nodes_that_do_not_fit_their_primitive_are_refused_with_their_name(executable: Executable) -> None:
    found = json.loads(sum_graph())
    found["attrs"]["shape"][1][2] = [8, 4]
    with pytest.raises(FormatError, match=r"output 0 of 'add'.*node 'sum'"):
        GraphExecutor(json.dumps(found), executable)


def test_devices_that_there_are_not_are_named(executable: Executable) -> None:
    found = json.loads(sum_graph())
    found["attrs"]["device_index"] = ["list_int", [1, 1, 2, 1]]
    with pytest.raises(ArgumentError, match="a device of type 2; there is cpu"):
        GraphExecutor(json.dumps(found), executable)
    with pytest.raises(ArgumentError, match="expected a device, got 5"):
        made(executable, device=5)


@pytest.mark.parametrize(
    ("function", "shape", "dtype", "message"),
    [
        ("__nop", [31], "float32", "which has another shape"),
        ("__nop", [32], "int32", "which has other elements"),
        ("__copy", [32], "float32", "which has another shape"),
        ("__copy", [4, 8], "int32", "which has other elements"),
    ],
)
def test_reshapes_and_copies_that_are_none_are_refused(
    executable: Executable, function: str, shape: list[int], dtype: str, message: str
) -> None:
    nodes = [parameter("x"), call("same", function, [[0, 0]])]
    text = json.dumps(document(nodes, [[1, 0]], [[4, 8], shape], dltypes=["float32", dtype]))
    with pytest.raises(TreadleError, match=rf"{message}.*'same'"):
        made(executable, text)


def test_changed_graphs_run_or_are_refused_by_name(executable: Executable) -> None:
    originals, ran = [json.dumps(simple()), json.dumps(rich())], 0
    for number in range(1500):
        random = Random(number)
        kind = random.choice((GraphExecutor, GraphExecutor, DebugExecutor))
        text = mutate_json(random, random.choice(originals))
        try:
            executor = kind(text, executable, find={"python": lambda *_: None, "myadd": lambda *_: None}.get)
            executor.run()
        except TreadleError:
            continue
        ran += 1
    assert ran > 100


# ---- parameters ----


def test_inputs_are_copied_by_name_or_index(executable: Executable) -> None:
    executor = made(executable)
    x = X.copy()
    executor.set_input("x", x)
    executor.set_input(1, Tensor(Y))
    x[:] = 0
    executor.run()
    assert np.array_equal(executor.get_output(0), X + Y)


def test_inputs_that_nobody_has_set_are_zeros(executable: Executable) -> None:
    executor = made(executable)
    executor.run(y=Y)
    assert np.array_equal(executor.get_output(0), Y)


def test_arrays_are_converted_where_their_kind_allows_it_and_tensors_are_not(executable: Executable) -> None:
    executor = made(executable)
    executor.set_input(x=np.ones((4, 8)), y=[[2] * 8] * 4)
    executor.run()
    assert (executor.get_output(0).numpy() == 3).all()
    with pytest.raises(DTypeError, match="expected float32, got complex128"):
        executor.set_input("x", np.ones((4, 8), complex))
    with pytest.raises(DTypeError, match="expected float32, got float64"):
        executor.set_input("x", Tensor(np.ones((4, 8))))


def test_shapes_must_be_the_same_even_where_the_bytes_are_as_many(executable: Executable) -> None:
    executor = made(executable)
    for value in (X.reshape(8, 4), Tensor(X.reshape(32)), 1.0, [1.0]):
        with pytest.raises(ValueError, match="array shape do not match the shape of NDArray"):
            executor.set_input("x", value)


def test_a_name_that_there_is_not_is_an_error_and_nothing_is_set(executable: Executable) -> None:
    executor = made(executable)
    for key in ("z", 2, -1):
        with pytest.raises(RuntimeError, match=r"Could not find .* in graph's inputs; there are x, y"):
            executor.set_input(key, X, x=X)
    assert (executor.get_input("x").numpy() == 0).all()


def test_names_of_keywords_that_the_graph_lacks_are_warned_of_and_left_out(executable: Executable) -> None:
    executor = made(executable)
    with pytest.warns(UserWarning, match="the graph has no z, w: left out; it has x, y"):
        executor.set_input(x=X, z=X, w=X)
    with pytest.warns(UserWarning, match="the graph has no z"):
        executor.run(y=X, z=X)
    assert np.array_equal(executor.get_input("x").numpy(), X)
    assert np.array_equal(executor.get_input("y").numpy(), X)


def test_inputs_are_seen_where_they_lie_or_copied_out(executable: Executable) -> None:
    executor = made(executable)
    executor.set_input("x", X)
    live = executor.get_input("x").numpy()
    live[0] = 7
    out = np.zeros((4, 8), np.float32)
    executor.get_input(0, out)
    assert (out[0] == 7).all()
    assert executor.get_input("z") is None
    assert (executor.get_input_index("y"), executor.get_input_index("z")) == (1, -1)
    assert executor.get_num_inputs() == 2
    assert executor.get_input_info() == ({"x": (4, 8), "y": (4, 8)}, {"x": "float32", "y": "float32"})


# ---- weights ----


def test_weights_are_used_in_place_and_are_no_inputs(executable: Executable) -> None:
    executor = made(executable, params={"y": Y})
    assert np.shares_memory(executor.get_input("y").numpy(), Y)
    assert list(executor.get_input_info()[0]) == ["x"]
    executor.set_input("y", X)
    assert not np.array_equal(Y, X)
    executor.run(x=X)
    assert np.array_equal(executor.get_output(0), X + X)


def test_parameter_files_are_loaded_and_weights_that_the_graph_lacks_are_ignored(executable: Executable) -> None:
    executor = made(executable)
    executor.load_params(save_param_dict({"y": Y, "unknown": X}))
    executor.run(x=X)
    assert np.array_equal(executor.get_output(0), X + Y)
    assert list(executor.get_input_info()[0]) == ["x"]
    with pytest.raises(FormatError):
        executor.load_params(save_param_dict({"y": Y})[:-5])


def test_weights_are_shared_not_copied_and_outlive_who_owned_them(executable: Executable) -> None:
    blob = save_param_dict({"y": Y, "unknown": X})
    owner = made(executable)
    owner.load_params(blob)
    others = [made(executable) for _ in range(10)]
    for other in others:
        other.share_params(owner, blob)
        assert np.shares_memory(other.get_input("y").numpy(), owner.get_input("y").numpy())
    owner.set_input("y", 2 * Y)
    del owner
    gc.collect()
    for other in others:
        other.run(x=X)
        assert np.array_equal(other.get_output(0), X + 2 * Y)
    others[0].set_input("y", Y)  # takes memory of its own
    others[1].run()
    assert np.array_equal(others[1].get_output(0), X + 2 * Y)


def test_weights_are_shared_between_executors_alone(executable: Executable) -> None:
    with pytest.raises(ArgumentError, match="type_key must be GraphExecutor, got a int"):
        made(executable).share_params(3, save_param_dict({"y": Y}))  # type: ignore[arg-type]


# ---- zero copy ----


def test_inputs_are_read_where_they_lie(executable: Executable) -> None:
    executor, x = made(executable), X.copy()
    executor.set_input_zero_copy("x", x)
    executor.set_input_zero_copy(y=Tensor(Y))
    assert np.shares_memory(executor.get_input("x").numpy(), x)
    executor.run()
    assert np.array_equal(executor.get_output(0), X + Y)
    x[:] = 1
    executor.run()
    assert np.array_equal(executor.get_output(0), 1 + Y)


def test_setting_an_input_afterwards_does_not_write_into_the_users_array(executable: Executable) -> None:
    executor, x = made(executable), X.copy()
    executor.set_input_zero_copy("x", x)
    executor.set_input("x", Y)
    assert np.array_equal(x, X)
    executor.run()
    assert np.array_equal(executor.get_output(0), Y)


def test_outputs_are_made_where_the_user_says(executable: Executable) -> None:
    executor, out, again = made(executable), np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32)
    executor.set_output_zero_copy("twice:0", Tensor(out))
    executor.set_output_zero_copy(0, again)
    executor.run(x=X, y=Y)
    assert np.array_equal(out, 2 * (X + Y))
    assert np.array_equal(again, X + Y)
    assert np.shares_memory(executor.get_output(1).numpy(), out)


def test_an_input_that_is_an_output_arrives_there_too(executable: Executable) -> None:
    executor, x, out = made(executable), X.copy(), np.zeros((4, 8), np.float32)
    executor.set_input_zero_copy("x", x)
    executor.set_output_zero_copy(2, out)
    executor.run()
    assert np.array_equal(out, X)
    assert not np.shares_memory(out, x)


def test_a_reshape_behind_an_input_sees_the_users_memory(executable: Executable) -> None:
    nodes = [
        parameter("x"),
        call("flat", NOP, [[0, 0]]),
        call("square", NOP, [[1, 0]]),
        call("sum", "add", [[2, 0], [2, 0]]),
    ]
    text = json.dumps(document(nodes, [[3, 0], [1, 0]], [[2, 16], [32], [4, 8], [4, 8]], [0, 0, 0, 1]))
    executor, x = made(executable, text), X.reshape(2, 16).copy()
    executor.set_input_zero_copy("x", x)
    executor.run()
    assert np.array_equal(executor.get_output(0), 2 * X)
    assert np.shares_memory(executor.get_output(1).numpy(), x)


def test_one_tensor_that_is_two_outputs_arrives_in_both_places(executable: Executable) -> None:
    nodes = [parameter("x"), call("sum", "add", [[0, 0], [0, 0]]), call("flat", NOP, [[1, 0]])]
    executor = made(executable, json.dumps(document(nodes, [[1, 0], [2, 0]], [[4, 8], [4, 8], [32]], [0, 1, 1])))
    first, second = np.zeros((4, 8), np.float32), np.zeros(32, np.float32)
    executor.set_output_zero_copy(0, first)
    executor.set_output_zero_copy(1, second)
    executor.run(x=X)
    assert np.array_equal(first, 2 * X)
    assert np.array_equal(second, 2 * X.reshape(32))


def test_buffers_live_as_long_as_they_are_in_use(executable: Executable) -> None:
    executor = made(executable)
    x, out = X.copy(), np.zeros((4, 8), np.float32)
    alive = weakref.ref(x), weakref.ref(out)
    executor.set_input_zero_copy("x", x)
    executor.set_output_zero_copy(0, out)
    del x, out
    gc.collect()
    executor.run(y=Y)
    assert np.array_equal(alive[1](), X + Y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="resize"):
        alive[0]().resize(1000, refcheck=False)  # type: ignore[union-attr]
    executor.set_input("x", X)
    executor.run()
    gc.collect()
    assert alive[0]() is None


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (X.reshape(8, 4), ShapeError),
        (X.astype(np.float64), DTypeError),
        (X.astype(">f4"), DTypeError),
        (np.asfortranarray(X), ArgumentError),
        (np.zeros(129, np.uint8)[1:].view(np.float32).reshape(4, 8), ArgumentError),
        ([[1.0] * 8] * 4, ArgumentError),
        (None, ArgumentError),
    ],
)
def test_what_cannot_be_used_in_place_is_refused(executable: Executable, value: Any, error: type[TreadleError]) -> None:
    executor = made(executable)
    with pytest.raises(error, match=r"set_input_zero_copy\('x'\)"):
        executor.set_input_zero_copy("x", value)
    with pytest.raises(error, match=r"set_output_zero_copy\(0\)"):
        executor.set_output_zero_copy(0, value)


def test_outputs_need_memory_of_their_own_that_can_be_written(executable: Executable) -> None:
    executor, read_only = made(executable), X.copy()
    read_only.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        executor.set_output_zero_copy(0, read_only)
    executor.set_input_zero_copy("x", X)
    with pytest.raises(ArgumentError, match="a parameter's or another output's"):
        executor.set_output_zero_copy(0, X)
    executor.set_output_zero_copy(1, out := np.zeros((4, 8), np.float32))
    with pytest.raises(ArgumentError, match="a parameter needs memory of its own"):
        executor.set_input_zero_copy("y", out)
    with pytest.raises(ArgumentError, match="Invalid output node: 'sum:1'"):
        executor.set_output_zero_copy("sum:1", X)


def test_outputs_lie_where_the_next_run_writes_and_are_copied_into_out(executable: Executable) -> None:
    executor = made(executable)
    executor.run(x=X, y=Y)
    live, out = executor.get_output(0).numpy(), np.zeros((4, 8), np.float32)
    executor.get_output(0, out)
    executor.run(x=Y)
    assert np.array_equal(live, Y + Y)
    assert np.array_equal(out, X + Y)
    with pytest.raises(ShapeError, match="get_output"):
        executor.get_output(0, np.zeros((8, 4), np.float32))
    with pytest.raises(DTypeError, match="get_output"):
        executor.get_output(0, np.zeros((4, 8)))
    for key in ("none", 3, -1):
        with pytest.raises(ArgumentError, match="Invalid output node"):
            executor.get_output(key)


# ---- memory ----


def test_a_graph_that_the_machine_has_no_room_for_is_refused_before_anything_is_allocated() -> None:
    found = simple()
    found["attrs"]["shape"][1] = [[1 << 40], [4]]
    with pytest.raises(MemoryError, match="the graph's tensors take 4398046511120 bytes; the machine has"):
        GraphExecutor(json.dumps(found), find={"myadd": myadd}.get)


def test_tensors_that_nobody_writes_take_no_memory() -> None:
    found = simple()
    found["attrs"]["shape"][1] = [[1 << 28], [4]]  # a gigabyte
    before = resident()
    GraphExecutor(json.dumps(found), find={"myadd": lambda x, out: None}.get).run()
    assert resident() - before < 64 << 20


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_step_reads_and_writes_different_memory_whatever_the_storage_ids_say(executable: Executable) -> None:
    nodes = [
        parameter("x"),
        call("own", "python", [[0, 0]]),
        call("sum", "add", [[1, 0], [1, 0]]),
        call("last", "python", [[2, 0]]),
    ]
    text = json.dumps(document(nodes, [[3, 0]], [[4, 8]] * 4, [0, 0, 0, 0]))
    executor = GraphExecutor(text, executable, find={"python": lambda x, out: x.array + 1}.get)
    executor.run(x=X)
    assert np.array_equal(executor.get_output(0), 2 * (X + 1) + 1)
    machine_step = next(step for step in executor._plan.steps if step.function is not None)
    read, written = (executor._array(entries[0]) for entries in (machine_step.reads, machine_step.writes))
    assert not np.may_share_memory(read, written)


@pytest.mark.serial
def test_a_run_costs_no_more_than_a_call_of_the_machine() -> None:
    x = hidden = treadle.var("x", (1, 16))
    for _ in range(3):
        hidden = treadle.op.relu(hidden @ RNG.standard_normal((16, 16)).astype(np.float32))
    executable = compile(treadle.Module(main=treadle.function([x], hidden)))
    graph, params, _ = graph_of(executable)
    executor, main = GraphExecutor(graph, executable, params=params), VirtualMachine(executable)["main"]
    value = np.ones((1, 16), np.float32)
    executor.run(x=value)
    spent = timing.seconds({"run": executor.run, "call": lambda: main(value)})
    assert spent["run"] <= spent["call"]


# ---- as a module ----


def test_methods_are_found_by_name(executable: Executable) -> None:
    executor = made(executable)
    executor["set_input"]("x", X)
    executor["run"]()
    assert np.array_equal(executor["get_output"](0), X)
    assert executor["get_num_outputs"]() == 3
    with pytest.raises(AttributeError, match="Module has no function 'none'"):
        executor["none"]


def test_parameters_in_a_row_are_run_from(executable: Executable) -> None:
    executor = made(executable)
    results = executor["run_from_inputs"](1, 0, "x", X, "y", Y)
    assert np.array_equal(results[0], X + Y)
    with pytest.raises(ArgumentError, match="'z' is not a valid input name"):
        executor["run_from_inputs"](1, 0, "z", X)


def test_parameters_may_have_the_names_of_set_inputs_own(executable: Executable) -> None:
    """As those of attention have."""
    text = sum_graph().replace('"name": "x"', '"name": "key"').replace('"name": "y"', '"name": "value"')
    executor = made(executable, text)
    for _ in range(2):
        executor.run(key=X, value=Y)
        assert np.array_equal(executor.get_output(0), X + Y)
    assert np.array_equal(executor["run_from_inputs"](1, 0, "key", Y, "value", Y)[0], Y + Y)
    assert executor.benchmark(number=1, repeat=1, key=X, value=Y).mean > 0


# ---- what the compiler makes ----


def network() -> Executable:
    x = treadle.var("x", (2, 8, 16, 16))
    weights = RNG.standard_normal((16, 8, 3, 3)).astype(np.float32)
    y = treadle.op.relu(treadle.op.conv(x, weights, pads=(1, 1, 1, 1)))
    flat = treadle.op.reshape(y, shape=(2, 16 * 16 * 16))
    out = flat @ RNG.standard_normal((16 * 16 * 16, 10)).astype(np.float32)
    return compile(treadle.Module(main=treadle.function([x], treadle.tuple_(out, y))))


def test_a_function_becomes_a_graph_that_gives_the_same_bits() -> None:
    executable = network()
    graph, params, _ = graph_of(executable)
    again = parse_graph(graph.as_text())
    assert again == graph
    x = RNG.standard_normal((2, 8, 16, 16)).astype(np.float32)
    expected = VirtualMachine(executable)["main"](x)
    for each in (graph, graph.without("frame_offset")):  # by the planner's places, and by storage alone
        executor = GraphExecutor(each.as_text(), executable, params=params)
        executor.run(x=x)
        assert executor.get_num_outputs() == 2
        for index, wanted in enumerate(expected):
            assert np.array_equal(executor.get_output(index), wanted.numpy())


def test_storages_are_shared_by_tensors_that_are_never_wanted_together() -> None:
    graph, _, _ = graph_of(network())
    sizes: dict[int, int] = {}
    for storage, type_ in zip(graph.storage_ids, graph.types, strict=True):
        sizes[storage] = max(sizes.get(storage, 0), type_.nbytes)
    assert len(sizes) <= len(graph.storage_ids)
    for number, node in enumerate(graph.nodes):
        first = graph.row_ptr[number]
        storages = {graph.storage_ids[graph.number(entry)] for entry in node.inputs}
        own = set(graph.storage_ids[first : graph.row_ptr[number + 1]])
        assert own == storages if node.function == NOP else not own & storages


def test_functions_that_are_called_become_part_of_the_graph() -> None:
    text = (
        PRIMITIVES
        + """
    func @main(x: float32[4, 8]) -> (float32[4, 8], float32[4, 8])  frame=128 {
      frame_tensor r1, float32[4, 8], 0
      call add (r0, r0) -> (r1)
      alloc_tensor r2, float32[4, 8]
      call add (r1, r0) -> (r2)
      invoke r3, @other (r2)
      invoke r4, @other (r3)
      alloc_data r5, (float32[4, 8], float32[4, 8]), 0 (r4, r2)
      ret r5
    }
    func @other(x: float32[4, 8]) -> float32[4, 8]  frame=128 {
      frame_tensor r1, float32[4, 8], 0
      call scale (r0) -> (r1) [4]
      alloc_tensor r2, float32[4, 8]
      call add (r1, r0) -> (r2)
      ret r2
    }
    func @forever(x: float32[4, 8]) -> float32[4, 8] {
      invoke r1, @forever (r0)
      ret r1
    }
    """
    )
    executable = Executable(parse_assembly(text))
    graph, params, _ = graph_of(executable)
    assert [node.function for node in graph.nodes if node.function] == ["add", "add", "scale", "add", "scale", "add"]
    assert max(graph.extra["frame_offset"]) == 128 + 1  # type: ignore[type-var]
    executor = GraphExecutor(graph, executable, params=params)
    executor.run(x=X)
    for index, wanted in enumerate(VirtualMachine(executable)["main"](X)):
        assert np.array_equal(executor.get_output(index), wanted.numpy())
    with pytest.raises(ArgumentError, match="forever calls itself"):
        graph_of(executable, "forever")


def test_what_is_no_straight_line_has_no_graph() -> None:
    n = treadle.var("x", ("n", 4))
    symbolic = compile(treadle.Module(main=treadle.function([n], n + 1.0)))
    with pytest.raises(ArgumentError, match="the parameter 'x' is float32\\[n, 4\\]; a graph is straight-line code"):
        graph_of(symbolic)
    c, x = treadle.var("c", (), "bool"), treadle.var("x", (4,))
    branching = compile(treadle.Module(main=treadle.function([c, x], treadle.if_(c, x + 1.0, x * x))))
    with pytest.raises(ArgumentError, match="it has the instruction"):
        graph_of(branching)
