"""A bound call reads and writes given arrays, wherever the program makes its results."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import weakref

import numpy as np
import pytest
import treadle
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import ArgumentError, BudgetExceededError, ExecutionError
from treadle.formats.text.assembly import parse_assembly
from treadle.vm import bound
from treadle.vm.bound import bind
from treadle.vm.machine import VirtualMachine
from treadle.vm.observe.hooks import Listener

pytestmark = pytest.mark.usefixtures("no_leak")

PROGRAM = """
prim double(%0: float32[2]) -> float32[2] {
  %1 = add(%0, %0) : float32[2]
  return %1
}

func @one(x: float32[2]) -> float32[2] {
  alloc_tensor r1, float32[2]
  call double (r0) -> (r1)
  move r2, r1
  ret r2
}

func @two(x: float32[2]) -> (float32[2], float32[2]) {
  alloc_tensor r1, float32[2]
  call double (r0) -> (r1)
  alloc_tensor r2, float32[2]
  call double (r1) -> (r2)
  alloc_data r3, (float32[2], float32[2]), 0 (r2, r1)
  ret r3
}

func @none(x: float32[2]) -> () {
  alloc_tensor r1, float32[2]
  call double (r0) -> (r1)
  alloc_data r2, (), 0 ()
  ret r2
}

func @same(x: float32[2]) -> (float32[2], float32[2]) {
  alloc_tensor r1, float32[2]
  call double (r0) -> (r1)
  alloc_data r3, (float32[2], float32[2]), 0 (r1, r1)
  ret r3
}

func @chosen(n: int64[], x: float32[2]) -> float32[2] {
  alloc_tensor r2, float32[2]
  call double (r1) -> (r2)
  if r0, other
  ret r2
other:
  alloc_tensor r2, float32[2]
  call double (r1) -> (r2)
  ret r2
}

func @keeps(x: float32[2]) -> float32[2] {
  ret r0
}

func @nested(x: float32[2]) -> (float32[2], float32[2]) {
  alloc_tensor r5, float32[2]
  call double (r0) -> (r5)
  invoke r4, @two (r5)
  get_field r4, r4, 0, 0
  alloc_tensor r1, float32[2]
  call double (r4) -> (r1)
  alloc_tensor r2, float32[2]
  call double (r1) -> (r2)
  alloc_data r3, (float32[2], float32[2]), 0 (r1, r2)
  ret r3
}
"""
X = np.array([1, 2], np.float32)


def made(machine: VirtualMachine, name: str, arguments: list, results: list | None):
    return bind(machine._calls, machine._number(name), arguments, results)


def zeros(count: int) -> list[np.ndarray]:
    return [np.zeros(2, np.float32) for _ in range(count)]


@pytest.fixture(params=["reference", "native"])
def vm(machine, request):
    return machine(PROGRAM) if request.param == "reference" else VirtualMachine(Executable(parse_assembly(PROGRAM)))


def test_the_result_is_written_into_the_given_array_at_each_call(vm):
    x, (out,) = X.copy(), zeros(1)
    run = made(vm, "one", [x], [out])
    assert run() is None
    assert out.tolist() == [2, 4]
    x[:] = 5
    run()
    assert out.tolist() == [10, 10]


def test_parts_of_a_tuple_are_written_where_each_belongs_whatever_the_order_of_the_code(vm):
    first, second = zeros(2)
    made(vm, "two", [X], [first, second])()
    assert (first.tolist(), second.tolist()) == ([4, 8], [2, 4])


def test_without_results_new_ones_are_returned(vm):
    run = made(vm, "two", [X], None)
    (a, b), (c, _) = run(), run()
    assert [a.numpy().tolist(), b.numpy().tolist()] == [[4, 8], [2, 4]]
    assert not np.shares_memory(a.numpy(), c.numpy())


def test_a_function_without_results_has_none_to_place(vm):
    assert made(vm, "none", [X], [])() == ()


def test_calls_of_other_functions_make_their_results_elsewhere(vm):
    first, second = zeros(2)
    made(vm, "nested", [X], [first, second])()
    assert (first.tolist(), second.tolist()) == ([16, 32], [32, 64])
    assert vm["two"](X)[0].numpy().tolist() == [4, 8]


@pytest.mark.parametrize("name", ["same", "chosen"])
def test_results_that_are_no_tensors_of_their_own_in_a_straight_line_cannot_be_placed(vm, name):
    arguments = [np.array(1), X] if name == "chosen" else [X]
    with pytest.raises(ArgumentError, match="does not make its"):
        made(vm, name, arguments, zeros(2 if name == "same" else 1))


def test_an_argument_that_the_function_hands_on_cannot_be_bound(vm):
    with pytest.raises(ArgumentError, match="cannot hand an argument on"):
        made(vm, "keeps", [X], None)


@pytest.mark.parametrize("count", [0, 2, 3])
def test_there_is_an_array_for_each_parameter(vm, count):
    with pytest.raises(ArgumentError, match=r"one: a bound call needs an array for each of its parameters \(x\), got"):
        made(vm, "one", [X] * count, None)


@pytest.mark.parametrize(
    "array", [np.zeros(2), np.zeros(3, np.float32), np.zeros(4, np.float32)[::2], np.zeros(2, ">f4")]
)
def test_arrays_must_be_of_the_very_type(vm, array):
    with pytest.raises(ArgumentError, match=r"one\(x\): expected float32\[2\] in C order"):
        made(vm, "one", [array], zeros(1))
    with pytest.raises(ArgumentError, match="one: result 0: expected float32"):
        made(vm, "one", [X], [array])


def test_a_bound_call_keeps_its_arrays_alive_and_where_they_are(vm):
    x, (out,) = X.copy(), zeros(1)
    alive = weakref.ref(out)
    run = made(vm, "one", [x], [out])
    with pytest.raises(ValueError, match="resize"):
        x.resize(1000, refcheck=False)
    del out
    gc.collect()
    assert alive() is not None
    run()
    assert alive().tolist() == [2, 4]


def test_listeners_are_told_and_the_results_are_where_they_belong(vm):
    seen = []

    class Seen(Listener):
        operations = frozenset({"call"})

        def after(self, event):
            seen.append(event.tensor(event.registers("outputs")[0]).tolist())

    first, second = zeros(2)
    run = made(vm, "two", [X], [first, second])
    with vm.listening(Seen()):
        run()
    assert seen == [[2, 4], [4, 8]]
    assert (first.tolist(), second.tolist()) == ([4, 8], [2, 4])


def test_bounds_of_the_machine_hold(machine):
    vm = machine(PROGRAM, max_steps=2)
    run = made(vm, "two", [X], zeros(2))
    with pytest.raises(BudgetExceededError):
        run()
    out = zeros(1)[0]
    with pytest.raises(BudgetExceededError):
        made(vm, "one", [X], [out])()


def test_a_call_that_failed_leaves_nothing_to_the_next_one(machine, monkeypatch):
    vm = machine(PROGRAM)
    first, second = zeros(2)
    run = made(vm, "two", [X], [first, second])
    double = vm._calls._evaluators

    def broken(arrays, sizes):
        raise ValueError("broken")

    double[0] = broken
    with pytest.raises(ExecutionError, match="broken"):
        run()
    del double[0]
    assert vm["two"](X)[0].numpy().tolist() == [4, 8]
    assert first.tolist() == [0, 0]


def test_threads_may_call_at_once(vm):
    calls = []
    for number in range(4):
        out = zeros(1)[0]
        calls.append((made(vm, "one", [np.full(2, number, np.float32)], [out]), out))
    threads = [threading.Thread(target=lambda run=run: [run() for _ in range(300)]) for run, _ in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [out.tolist() for _, out in calls] == [[2 * n, 2 * n] for n in range(4)]


def test_copies_take_arrays_and_tensors_of_the_targets_types() -> None:
    targets = [
        np.zeros((2, 3), np.float32),
        np.zeros(4, np.int64),
        np.zeros((), np.bool_),
        np.zeros((0, 2), np.float64),
    ]
    given = [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        treadle.Tensor(np.arange(4)),
        np.array(True),
        np.zeros((0, 2)),
    ]
    copies = bound.bind_copies(targets)
    assert copies is not None
    assert copies(tuple(given)) is None
    for target, each in zip(targets, given, strict=True):
        np.testing.assert_array_equal(target, np.asarray(each))
    unpickled = pickle.loads(pickle.dumps(given[0] + 1))  # its descriptor may be another object
    assert copies((unpickled, *given[1:])) is None
    np.testing.assert_array_equal(targets[0], unpickled)


MATRIX = np.zeros((2, 2), np.float32)


@pytest.mark.parametrize(
    "other",
    [
        np.ones((2, 3), np.float32),
        np.ones(4, np.float32),
        np.ones((2, 2)),
        np.ones((2, 2), np.int32),
        np.ones((2, 2), ">f4"),
        np.ones((4, 4), np.float32)[::2, ::2],
        np.ones((2, 2), np.float32).view(type("Kind", (np.ndarray,), {})),
        np.frombuffer(bytearray(17), np.float32, 4, 1).reshape(2, 2),
        [[1.0, 2.0], [3.0, 4.0]],
        None,
        3,
        MATRIX,
    ],
)
def test_copies_copy_nothing_where_one_of_them_needs_a_closer_look(other: object) -> None:
    first = np.zeros(2, np.int32)
    copies = bound.bind_copies([first, MATRIX])
    assert copies is not None
    values = (np.ones(2, np.int32), other)
    assert copies(values) is values
    assert not first.any()
    assert not MATRIX.any()


def test_copies_keep_their_targets_and_nothing_that_was_given() -> None:
    target, value = np.zeros(3), np.ones(3)
    copies = bound.bind_copies([target])
    assert copies is not None
    values, odd = (value,), (np.ones(4),)
    counts = [sys.getrefcount(each) for each in (value, values, odd, None)]
    for _ in range(1000):
        copies(values)
        copies(odd)
    assert [sys.getrefcount(each) for each in (value, values, odd)] == counts[:3]
    assert abs(sys.getrefcount(None) - counts[3]) < 500
    gone = weakref.ref(target)
    del target
    assert gone() is not None
    del copies
    assert gone() is None


def test_copies_of_much_or_of_objects_are_made_by_numpy() -> None:
    assert bound.bind_copies([np.zeros(1 << 20)]) is None
    assert bound.bind_copies([np.zeros(1, object)]) is None
