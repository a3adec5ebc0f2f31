"""Calls whose arguments are set before: what is kept is a copy, checked at once, and a call of it costs no more than a call."""

from __future__ import annotations

import numpy as np
import pytest
from treadle.formats.messages.errors import ArgumentError, DTypeError, ExecutionError, ShapeError, UnknownFunctionError
from treadle.vm.device import Device, cpu
from treadle.vm.tensor import Tensor
from treadle.vm.values import DataValue

from .. import timing

PROGRAM = """
prim add(%0: float32[2, 2], %1: float32[2, 2]) -> float32[2, 2] {
  %2 = add(%0, %1) : float32[2, 2]
  return %2
}

data Option = None | Some(float32[2, 2])

func @main(x: float32[2, 2], name: float32[2, 2]) -> float32[2, 2] {
  alloc_tensor r2, float32[2, 2]
  call add (r0, r1) -> (r2)
  ret r2
}

func @pair(p: (float32[2, 2], float32[2, 2])) -> (float32[2, 2], float32[2, 2]) {
  ret r0
}

func @option(o: Option) -> Option {
  ret r0
}

func @sized(x: float32[n], y: float32[n]) -> float32[n] {
  ret r0
}

func @endless(x: float32[2, 2]) -> float32[2, 2] {
again:
  goto again
}
"""
X = np.array([[1, 2], [3, 4]], np.float32)
Y = X * 10


@pytest.fixture
def vm(machine):
    return machine(PROGRAM)


# ---- what is kept is a copy ----


@pytest.mark.parametrize("given", [np.array, lambda x: Tensor(x.copy())], ids=["array", "tensor"])
@pytest.mark.parametrize("save", [False, True], ids=["set_input", "save_function"])
def test_arguments_are_copied(vm, given, save):
    x = given(X)
    call = kept(vm, "main", save, x, Y)
    np.asarray(x)[:] = 0
    assert np.array_equal(call(), X + Y)


@pytest.mark.parametrize("save", [False, True], ids=["set_input", "save_function"])
def test_lists_and_arrays_in_tuples_are_copied(vm, save):
    rows, x, y = X.tolist(), X.copy(), Tensor(Y.copy())
    of_rows, of_pair = kept(vm, "main", save, rows, Y), kept(vm, "pair", save, [x, y])
    rows[0][0], x[:], y.numpy()[:] = 99, 0, 0
    assert np.array_equal(of_rows(), X + Y)
    assert [part.numpy().tolist() for part in of_pair()] == [X.tolist(), Y.tolist()]


@pytest.mark.parametrize("save", [False, True], ids=["set_input", "save_function"])
def test_arrays_in_data_values_are_copied(vm, save):
    x = X.copy()
    call = kept(vm, "option", save, DataValue("Some", (x,)))
    x[:] = 0
    assert np.array_equal(call().fields[0], X)
    assert np.array_equal(call().fields[0], X)


def kept(vm, name, save, *args):
    """A call of a function with arguments that are kept."""
    if save:
        vm.save_function(name, "saved " + name, *args)
        return vm["saved " + name]
    vm.set_input(name, *args)

    def call():
        vm.invoke_stateful(name)
        return vm.get_outputs(name)

    return call


@pytest.mark.usefixtures("no_leak")
def test_what_is_kept_is_given_up_with_the_machine(machine):
    vm = machine(PROGRAM)
    for _ in range(2):
        vm.set_input("pair", (X, Y))
        vm.save_function("option", "saved", DataValue("Some", (X,)))
        vm.invoke_stateful("pair")
        assert vm["saved"]().constructor == "Some"


# ---- what is kept has been checked ----

WRONG = [
    ("main", (X, Y[:1]), ShapeError, r"main\(name\): expected float32\[2, 2\], got float32\[1, 2\]"),
    ("main", (X, Y.astype(np.float64)), DTypeError, "got float64"),
    ("main", (X, None), ArgumentError, "got a value of type NoneType"),
    ("pair", ((X, Y[0]),), ShapeError, "expected float32"),
    ("pair", ((X,),), ArgumentError, "expected the tuple"),
    ("option", (DataValue("Some", (X[0],)),), ShapeError, "expected float32"),
    (
        "sized",
        (X[0], np.zeros(3, np.float32)),
        ShapeError,
        r"sized\(y\): expected float32\[n\] with n = 2, got a tensor \[3\]",
    ),
]


@pytest.mark.parametrize(("name", "args", "error", "text"), WRONG)
def test_arguments_are_checked_when_they_are_set(vm, name, args, error, text):
    with pytest.raises(error, match=text):
        vm.set_input(name, *args)
    with pytest.raises(error, match=text):
        vm.save_function(name, "saved", *args)
    assert "saved" not in vm


def test_arguments_that_are_refused_leave_those_of_before(vm):
    vm.set_input("main", X, Y)
    with pytest.raises(ShapeError):
        vm.set_input("main", X, Y[0])
    vm.invoke_stateful("main")
    assert np.array_equal(vm.get_outputs("main"), X + Y)


def test_a_parameter_may_have_any_name(vm):
    vm.set_input("main", X, name=Y)
    vm.save_function("main", "saved", x=X, name=Y)
    assert np.array_equal(vm["saved"](), X + Y)
    assert np.array_equal(vm.invoke("main", X, name=Y), X + Y)
    assert vm.profile("main", X, name=Y) is not None


# ---- results ----


def test_a_call_that_fails_leaves_no_result(machine):
    vm = machine(PROGRAM, max_steps=1000)
    vm.set_input("main", X, Y)
    vm.invoke_stateful("main")
    vm.set_input("endless", X)
    vm._stateful._outputs["endless"] = X  # as if an earlier call had not failed
    with pytest.raises(ExecutionError, match="steps"):
        vm.invoke_stateful("endless")
    with pytest.raises(ArgumentError, match="call invoke_stateful"):
        vm.get_outputs("endless")
    assert np.array_equal(vm.get_outputs("main"), X + Y)


@pytest.mark.parametrize("index", ["y", 1.0, True, None.__class__, -1, 2])
def test_an_output_that_there_is_not(vm, index):
    vm.set_input("pair", (X, Y))
    vm.invoke_stateful("pair")
    with pytest.raises(ArgumentError, match=r"pair: (an output's index|output)"):
        vm.get_outputs("pair", index)
    assert np.array_equal(vm.get_outputs("pair", np.int64(1)), Y)


@pytest.mark.parametrize("name", ["nope", 5, None, ["main"]])
def test_a_function_that_there_is_not(vm, name):
    for call in (vm.set_input, vm.invoke_stateful, vm.get_outputs, vm.invoke, vm.profile):
        with pytest.raises(UnknownFunctionError, match="there is no function"):
            call(name)
    with pytest.raises(UnknownFunctionError, match="there is no function"):
        vm.save_function(name, "saved")


def test_the_names_of_functions(vm):
    vm.save_function("main", "saved", X, Y)
    vm["pair"]
    assert list(vm) == ["main", "pair", "option", "sized", "endless", "saved"]
    assert "saved" in vm
    assert "nope" not in vm


# ---- what it costs ----


@pytest.mark.serial
def test_a_call_of_what_is_kept_costs_no_more_than_a_call(machine):
    vm = machine("func @main(x: float32[2, 2], y: float32[2, 2]) -> float32[2, 2] {\n  ret r0\n}")
    vm.set_input("main", X, Y)
    vm.save_function("main", "saved", X, Y)
    direct, saved = vm["main"], vm["saved"]
    spent = timing.seconds(
        {"direct": lambda: direct(X, Y), "saved": saved, "stateful": lambda: vm.invoke_stateful("main")}
    )
    assert spent["stateful"] < 2 * spent["direct"]
    assert spent["saved"] < 1.5 * spent["direct"]


# ---- how a machine is made ----


@pytest.mark.parametrize("setting", ["naive", {"cpu": "naive"}, {"cpu:0": "naive"}, {cpu(): "naive"}])
def test_memory_is_named_for_a_device_or_its_name(machine, setting):
    assert machine(PROGRAM, memory_cfg=setting)._calls._kept_bytes == 0


@pytest.mark.parametrize(
    "setting", ["lazy", {"cpu": "lazy"}, {Device("cuda"): "lazy"}, {"cpu": 1}, {3: "naive"}, 5, ["naive"]]
)
def test_memory_that_there_is_not(machine, setting):
    with pytest.raises(ArgumentError, match="memory_cfg="):
        machine(PROGRAM, memory_cfg=setting)


@pytest.mark.parametrize("device", [5, "cpu", [5], [cpu(), None, 3], {}, Device("cuda")])
def test_a_device_that_there_is_not(machine, device):
    with pytest.raises(ArgumentError, match="device="):
        machine(PROGRAM, device=device)
