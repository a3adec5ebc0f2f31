"""What can be compiled: functions, dicts of them, several modules; and values of data types as arguments."""

import numpy as np
import pytest
import treadle
from treadle import Module, data_type, function, match_, op, tuple_, var
from treadle.formats.errors import ArgumentError, InferenceError
from treadle.formats.types import FunctionType, tensor

X = np.array([1, 2], np.float32)
x = var("x", (2,))
L = data_type("List = Nil | Cons(float32[2], List)")


def machine(model, **options):
    return treadle.VirtualMachine(treadle.compile(model, progress=False, **options))


def test_a_function_is_compiled_as_main():
    vm = machine(function([x], x + 1))
    assert list(vm) == ["main"]
    assert vm["main"](X).tolist() == [2, 3]
    assert list(machine(function([x], x + 1), entry="more")) == ["more"]


def test_all_functions_of_a_dict_can_be_called():
    vm = machine({"double": function([x], x * 2), "half": function([x], x / 2)})
    assert vm["double"](X).tolist() == [2, 4]
    assert vm["half"](X).tolist() == [0.5, 1]


def test_modules_are_made_one():
    double = treadle.global_function("double", FunctionType((tensor("float32", (2,)),), tensor("float32", (2,))))
    one, two = Module(main=function([x], double(x) + 1)), Module(double=function([x], x * 2))
    for model in ([one, two], Module(one, two), [one, {"double": function([x], x * 2)}]):
        assert machine(model)["main"](X).tolist() == [3, 5]


def test_a_name_that_comes_twice_is_an_error():
    one = Module(main=function([x], x))
    for make in (lambda: Module(one, one), lambda: Module({"main": function([x], x)}, main=function([x], x))):
        with pytest.raises(InferenceError, match="two functions 'main'"):
            make()
    other = Module(more=function([x], x), data_types=[data_type("List = Nil | Cons(int8[2], List)")])
    with pytest.raises(InferenceError, match=r"data type 'List' is .* and .*; a name has one type"):
        Module(Module(main=function([x], x), data_types=[L]), other)


@pytest.mark.parametrize("part", [{"main": 3}, {"main": x}, {1: function([x], x)}, 3])
def test_what_is_no_function_is_named(part):
    with pytest.raises(InferenceError, match="Module: "):
        Module(part)


def length():
    """The sum of a list, and its first element."""
    values = var("values", L())
    total = treadle.global_function("total", FunctionType((L(),), tensor("float32", (2,))))
    zeros = np.zeros(2, np.float32)
    body = match_(values, {L.Nil: treadle.constant(zeros), L.Cons: lambda first, rest: first + total(rest)})
    return {"total": function([values], body)}


def test_constructors_make_arguments():
    vm = machine(length())
    assert vm["total"](L.Nil()).tolist() == [0, 0]
    assert vm["total"](L.Cons(X, L.Cons(X, L.Nil()))).tolist() == [2, 4]
    many = L.Nil()
    for _ in range(5000):
        many = L.Cons(X, many)
    assert vm.call("total", [many], max_depth=20000).tolist() == [5000, 10000]
    vm.set_input("total", L.Cons(X, L.Nil()))
    assert vm.invoke("total").tolist() == [1, 2]


def test_what_comes_out_goes_in_again():
    vm = machine({"push": push(), **length()})
    out = vm["push"](X, L.Nil())
    assert out.constructor == "Cons"
    assert out.fields[0].tolist() == [1, 2]
    assert vm["total"](vm["push"](X, out)).tolist() == [2, 4]


def push():
    rest = var("rest", L())
    return function([x, rest], L.Cons(x, rest))


def test_an_expression_that_must_be_computed_is_no_argument():
    vm = machine(length())
    with pytest.raises(InferenceError, match="constants and constructors alone; 'exp'"):
        vm["total"](L.Cons(op.exp(X), L.Nil()))
    with pytest.raises(ArgumentError, match="expected List"):
        vm["total"](tuple_(X, X))
