"""Functions of Python's that a program imports: what it reaches, what is checked, and what may happen meanwhile."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import (
    ArgumentError,
    BudgetExceededError,
    CancelledError,
    DTypeError,
    ShapeError,
    UnknownFunctionError,
)
from treadle.formats.text.assembly import parse_assembly
from treadle.tvm.modules.registry import register_func, remove_global_func
from treadle.vm.budgets import CancelToken
from treadle.vm.machine import VirtualMachine
from treadle.vm.observe.hooks import Listener
from treadle.vm.values import DataValue

TEXT = """
data List = Nil | Cons(float32[2], List)
import f: fn(float32[n, 2], float32[n]) -> float32[2*n]
import g: fn((float32[2], List)) -> (int64[], bool[])
prim relu(%0: float32[2]) -> float32[2] {
  %1 = relu(%0) : float32[2]
  return %1
}
func @main(x: float32[?, 2], y: float32[?]) -> float32[?] {
  call_import r2, f (r0, r1)  from "Call_1"
  ret r2
}
func @tuples(x: float32[2], y: List) -> (int64[], bool[]) {
  alloc_data r2, (float32[2], List), 0 (r0, r1)
  call_import r3, g (r2)
  ret r3
}
func @again(x: float32[2]) -> float32[2] {
  alloc_tensor r1, float32[2]
  call relu (r0) -> (r1)
  alloc_data r2, List, 0
  alloc_data r3, (float32[2], List), 0 (r1, r2)
  call_import r4, g (r3)
  ret r1
}
"""
X, Y = np.ones((3, 2), np.float32), np.ones(3, np.float32)


def f(x: Any, y: Any) -> np.ndarray:
    return np.concatenate([x.numpy()[:, 0] + y.numpy(), x.numpy()[:, 1]])


def g(pair: Any) -> tuple:
    return int(pair[0].numpy()[0]), pair[1].constructor == "Nil"


@pytest.fixture
def given(machine):
    """`given(f=…)`: a machine of the program above."""
    return lambda text=TEXT, **functions: machine(text, imports={"f": f, "g": g, **functions})


# ---- what a program reaches ----


def test_a_program_calls_what_it_was_handed(given, no_leak):
    assert given()["main"](X, Y).numpy().tolist() == [2.0, 2.0, 2.0, 1.0, 1.0, 1.0]


def test_missing_functions_are_listed_all_at_once_with_their_types(machine):
    told = "imports 2 functions .* f: fn.float32.n, 2., float32.n.. -> float32.2.n.; g: fn"
    with pytest.raises(UnknownFunctionError, match=told):
        machine(TEXT)
    with pytest.raises(UnknownFunctionError, match=r"imports a function .* g: fn"):
        machine(TEXT, imports={"f": f})


def test_a_name_that_is_not_declared_is_left_alone(given):
    assert "main" in given(other=print)


@pytest.mark.parametrize("functions", [[f, g], 5, {"f": 3, "g": g}])
def test_what_cannot_be_called_is_refused(machine, functions):
    with pytest.raises(ArgumentError, match="imports"):
        machine(TEXT, imports=functions)


def test_a_file_reaches_no_registered_function(machine):
    register_func("f", f, override=True)
    register_func("g", g, override=True)
    try:
        executable = load(Executable(parse_assembly(TEXT)).as_bytes())
        with pytest.raises(UnknownFunctionError, match="f: fn"):
            VirtualMachine(executable)
    finally:
        remove_global_func("f")
        remove_global_func("g")


def test_imports_are_in_the_file_and_what_is_told_of_it():
    executable = load(Executable(parse_assembly(TEXT)).as_bytes())
    assert [entry.name for entry in executable.program.imports] == ["f", "g"]
    assert "Imports (#2): [f: fn(" in executable.stats
    assert parse_assembly(executable.as_text()).imports == executable.program.imports


# ---- what is checked ----


@pytest.mark.parametrize(
    ("result", "error", "told"),
    [
        (np.ones(5, np.float32), ShapeError, r"its result: expected a dimension 2\*n = 6 \(n = 3\), got 5"),
        (np.ones((6, 1), np.float32), ShapeError, r"its result: expected float32\[2\*n\], got float32\[6, 1\]"),
        (np.ones(6, np.int8), DTypeError, r"its result: expected float32\[2\*n\], got int8"),
        (None, ArgumentError, "its result: expected .*got .*NoneType"),
        ("abc", ArgumentError, "its result"),
    ],
)
def test_results_are_checked_against_the_type(given, no_leak, result, error, told):
    with pytest.raises(error, match=told) as raised:
        given(f=lambda x, y: result)["main"](X, Y)
    assert "import f: fn(float32[n, 2], float32[n]) -> float32[2*n]" in str(raised.value)
    assert (raised.value.function, raised.value.instruction, raised.value.node) == ("main", 0, "Call_1")


def test_arguments_that_disagree_about_a_dimension_are_not_shown(given):
    called = []
    with pytest.raises(ShapeError, match=r"the arguments: expected a dimension n = 3, got 2"):
        given(f=lambda *args: called.append(args))["main"](X, Y[:2])
    assert called == []


@pytest.mark.parametrize("result", [(1,), 5, (1.5, True), (1, True, 2), ([1, 2], True)])
def test_the_fields_of_tuples_are_checked(given, no_leak, result):
    with pytest.raises((ArgumentError, DTypeError, ShapeError), match="import g"):
        given(g=lambda pair: result)["tuples"](X[0], DataValue("Nil"))


def test_values_of_every_kind_go_both_ways(given):
    number, flag = given()["tuples"](np.float32([7, 8]), DataValue("Cons", ([1.0, 2.0], DataValue("Nil"))))
    assert (number.numpy().item(), flag.numpy().item()) == (7, False)


def test_a_machine_goes_on_after_a_call_has_failed(given, no_leak):
    results = iter([None, np.ones(6, np.float32)])
    main = given(f=lambda x, y: next(results))["main"]
    with pytest.raises(ArgumentError):
        main(X, Y)
    assert main(X, Y).numpy().tolist() == [1.0] * 6


# ---- what a function may do ----


def test_what_a_function_raises_comes_out_with_a_note_of_where(given, no_leak):
    def fails(x: Any, y: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        given(f=fails)["main"](X, Y)
    (note,) = raised.value.__notes__
    assert "in the import f: fn(" in note
    assert note.endswith("called by function 'main', instruction 0, node 'Call_1'")


def test_a_function_may_call_the_machine(given, no_leak):
    depth = []

    machines: list[VirtualMachine] = []

    def recursive(x: Any, y: Any) -> Any:
        depth.append(len(x.numpy()))
        if len(depth) < 20:
            inner = machines[0]["main"](x.numpy()[:1], y.numpy()[:1]).numpy()
            assert inner.shape == (2,)
        return f(x, y)

    machines.append(given(f=recursive))
    assert machines[0]["main"](X, Y).numpy().shape == (6,)
    assert depth == [3] + [1] * 19
    machines.clear()


def test_a_recursion_without_end_is_pythons_error(given):
    def endless(x: Any, y: Any) -> Any:
        return vm["main"](x, y)

    vm = given(f=endless)
    with pytest.raises(RecursionError):
        vm["main"](X, Y)


def test_threads_call_at_once(given):
    together = threading.Barrier(4, timeout=60)

    def meets(x: Any, y: Any) -> Any:
        together.wait()
        return f(x, y)

    main, found = given(f=meets)["main"], []
    threads = [threading.Thread(target=lambda: found.append(main(X, Y).numpy().tolist())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[2.0, 2.0, 2.0, 1.0, 1.0, 1.0]] * 4


def test_a_function_may_keep_what_it_was_shown(given):
    kept: list[Any] = []

    def keeps(pair: Any) -> tuple:
        kept.append(pair)
        return g(pair)

    again = given(g=keeps)["again"]
    results = [again(np.full(2, number, np.float32)) for number in range(50)]
    gc.collect()
    for result in results:
        result.numpy()[:] = -1  # what the caller owns now is not what Python was shown
    del result, results
    gc.collect()
    assert [pair[0].numpy().tolist() for pair in kept] == [[float(number)] * 2 for number in range(50)]


def test_large_tensors_are_shown_where_they_lie_and_not_to_be_written(machine, no_leak):
    text = """
    import see: fn(float32[n]) -> ()
    prim relu[n](%0: float32[n]) -> float32[n] {
      %1 = relu(%0) : float32[n]
      return %1
    }
    func @main(x: float32[n]) -> float32[n] {
      shape_of (i0), r0
      alloc_dynamic r1, float32[i0]
      call relu (r0) -> (r1) [i0]
      call_import r2, see (r1)
      ret r1
    }
    """
    seen = []

    def see(x: Any) -> tuple:
        seen.append((x.numpy().flags.writeable, x.numpy().sum()))
        return ()

    machine(text, imports={"see": see})["main"](np.ones(100_000, np.float32))
    assert seen == [(False, 100_000.0)]


def test_closures_may_be_called_kept_and_given_back(machine, no_leak):
    text = """
    import wrap: fn(fn(float32[2]) -> float32[2]) -> fn(float32[2]) -> float32[2]
    prim add(%0: float32[2], %1: float32[2]) -> float32[2] {
      %2 = add(%0, %1) : float32[2]
      return %2
    }
    func @main(x: float32[2]) -> float32[2] {
      alloc_closure r1, @plus (r0)
      call_import r1, wrap (r1)
      invoke_closure r2, r1 (r0)
      ret r2
    }
    func @plus(x: float32[2]) captures (y: float32[2]) -> float32[2] {
      alloc_tensor r2, float32[2]
      call add (r0, r1) -> (r2)
      ret r2
    }
    """
    called = []

    def wrap(function: Any) -> Any:
        called.append(function([1.0, 1.0]).numpy().tolist())
        return function

    assert machine(text, imports={"wrap": wrap})["main"]([1.0, 2.0]).numpy().tolist() == [2.0, 4.0]
    assert called == [[2.0, 3.0]]
    foreign = machine(text, imports={"wrap": wrap})
    kept: list[Any] = []
    foreign_calls = machine(text, imports={"wrap": lambda function: kept.append(function) or function})
    foreign_calls["main"]([1.0, 2.0])
    foreign = machine(text, imports={"wrap": lambda function: kept[0]})
    with pytest.raises(ArgumentError, match="belongs to another machine"):
        foreign["main"]([1.0, 2.0])
    kept.clear()


# ---- bounds, listeners ----


def test_time_in_python_counts(given):
    def slow(x: Any, y: Any) -> Any:
        time.sleep(0.05)
        return f(x, y)

    vm = given(f=slow)
    with pytest.raises(BudgetExceededError, match=r"more than 0\.01 s"):
        vm.call("main", (X, Y), max_seconds=0.01)
    assert vm["main"](X, Y).numpy().shape == (6,)


def test_a_call_may_be_cancelled_from_within(given):
    token = CancelToken()

    def cancels(x: Any, y: Any) -> Any:
        token.cancel()
        return f(x, y)

    with pytest.raises(CancelledError):
        given(f=cancels).call("main", (X, Y), cancel=token)


def test_a_call_of_an_import_is_a_step(given):
    vm = given()
    assert vm.call("main", (X, Y), max_steps=2).numpy().shape == (6,)
    with pytest.raises(BudgetExceededError):
        vm.call("main", (X, Y), max_steps=1)


def test_a_result_counts_for_the_memory_budget(given, no_leak):
    x, y = np.ones((10_000, 2), np.float32), np.ones(10_000, np.float32)
    with pytest.raises(BudgetExceededError, match="memory"):
        given().call("main", (x, y), max_memory=150_000)


def test_listeners_see_calls_of_imports_and_their_failures(given):
    class Recorder(Listener):
        operations = frozenset({"call_import"})

        def __init__(self) -> None:
            self.seen: list[Any] = []

        def before(self, event: Any) -> None:
            self.seen.append(("before", event.imported, event.describe(event.registers("args")[0])))

        def after(self, event: Any) -> None:
            self.seen.append(("after", event.describe(event.registers("dst")[0])))

        def error(self, failure: Exception) -> None:
            self.seen.append(type(failure))

    results = iter([np.ones(6, np.float32)])
    vm, recorder = given(f=lambda x, y: next(results)), Recorder()
    with vm.listening(recorder):
        vm["main"](X, Y)
        with pytest.raises(StopIteration):
            vm["main"](X, Y)
    before = ("before", "f", "float32[3, 2]")
    assert recorder.seen == [before, ("after", "float32[6]"), before, StopIteration]


def test_a_profile_has_a_row_for_an_import(given):
    table = str(given().profile("main", X, Y))
    assert "f " in table.splitlines()[1]
