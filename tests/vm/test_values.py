"""Tuples, data values and closures between Python and the machine."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from treadle.formats.messages.errors import ArgumentError, DTypeError
from treadle.vm import context
from treadle.vm.tensor import Tensor
from treadle.vm.values import Closure, DataValue

pytestmark = pytest.mark.usefixtures("no_leak")

LISTS = """
data List = Nil | Cons(int64[], List)

prim add(%0: int64[], %1: int64[]) -> int64[] {
  %2 = add(%0, %1) : int64[]
  return %2
}

func @range(n: int64[]) -> List {
  read_shape (i0), r0
  alloc_data r1, List, 0 ()
again:
  if_int i0, done
  subtract i0, i0, 1
  make_shape r2, [i0]
  reshape r2, r2, []
  alloc_data r1, List, 1 (r2, r1)
  goto again
done:
  ret r1
}

func @length(list: List) -> int64[1] {
  load_int i0, 0
again:
  get_tag i1, r0
  if_int i1, done
  add i0, i0, 1
  get_field r0, r0, 1, 1
  goto again
done:
  make_shape r1, [i0]
  ret r1
}

func @second(pair: (float32[2], (float32[], List))) -> (float32[], List) {
  get_field r1, r0, 0, 1
  ret r1
}

func @adder(n: int64[]) -> fn(int64[]) -> int64[] {
  alloc_closure r1, @plus (r0)
  ret r1
}

func @plus(x: int64[]) captures (n: int64[]) -> int64[] {
  alloc_tensor r2, int64[]
  call add (r0, r1) -> (r2)
  ret r2
}

func @apply(f: fn(int64[]) -> int64[], x: int64[]) -> int64[] {
  invoke_closure r2, r0 (r1)
  ret r2
}
"""


@pytest.fixture
def vm(machine):
    return machine(LISTS)


def build(count: int) -> DataValue:
    """The list of 0 … count-1, made in Python."""
    value = DataValue("Nil")
    for number in reversed(range(count)):
        value = DataValue("Cons", (number, value))
    return value


def test_data_value_comes_out(vm):
    value = vm["range"](2)
    assert (value.constructor, value.tag, value.type_name) == ("Cons", 1, "List")
    assert value[0].item() == 0
    assert value.fields[1].fields[1].constructor == "Nil"
    assert repr(value).startswith("Cons(Tensor(0")


def test_data_value_goes_in(vm):
    assert vm["length"](build(3)).item() == 3
    assert vm["length"](DataValue(1, (7, DataValue(0)))).item() == 1


def test_data_values_compare_by_what_they_are_made_of(vm):
    value = vm["range"](3)
    assert value == vm["range"](3) == build(3)
    assert value != vm["range"](2)
    assert value != DataValue("Cons", (1, build(2)))
    assert value != DataValue(1, value.fields, "Tree")
    assert DataValue(0, (np.float32(1),)) != DataValue(0, (np.float64(1),))
    assert DataValue(0, (np.nan,)) != DataValue(0, (np.nan,))
    assert build(100_000) == build(100_000)
    assert (value == "Cons") is False
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)


@pytest.mark.parametrize("wrong", [None, "x", [1.0], 3], ids=repr)
def test_a_tensor_is_made_of_an_array(wrong):
    with pytest.raises(ArgumentError, match="expected an array, got a"):
        Tensor(wrong)


def test_data_value_goes_back_in_as_it_is(vm):
    value = vm["range"](5)
    before = context.live_bytes()
    assert vm["length"](value).item() == 5
    assert context.live_bytes() == before


def test_a_list_of_a_hundred_thousand_cells(vm):
    value = vm["range"](100_000)
    assert vm["length"](value).item() == 100_000
    del value
    gc.collect()
    assert vm["length"](build(100_000)).item() == 100_000


def test_values_of_another_machine_are_rebuilt(machine):
    assert machine(LISTS)["length"](machine(LISTS)["range"](4)).item() == 4


def test_nested_tuples(vm):
    number, list_ = vm["second"](((1.0, 2.0), (3.0, build(2))))
    assert number.item() == 3.0
    assert vm["length"](list_).item() == 2


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (DataValue("Tree"), ArgumentError, "length(list): List has no Tree; it has Nil, Cons"),
        (DataValue(2), ArgumentError, "List has no tag 2"),
        (DataValue("Cons", (1,)), ArgumentError, "Cons of List has 2 fields, got 1"),
        (DataValue("Cons", (1.5, DataValue("Nil"))), DTypeError, "does not hold 1.5"),
        (DataValue("Cons", (1, DataValue("Cons", (2, None)))), ArgumentError, "expected List, got a NoneType"),
        ((), ArgumentError, "expected List, got a tuple"),
    ],
)
def test_wrong_data_values(vm, value, error, text):
    with pytest.raises(error) as raised:
        vm["length"](value)
    assert text in str(raised.value)


def test_closures(vm):
    closure = vm["adder"](40)
    assert isinstance(closure, Closure)
    assert str(closure.type) == "fn(int64[]) -> int64[]"
    assert vm.invoke_closure(closure, 2).item() == 42
    assert closure(3).item() == 43
    assert vm["apply"](closure, 4).item() == 44
    with pytest.raises(ArgumentError, match=r"plus\(x\): 1 argument expected, got 2"):
        closure(1, 2)


def test_a_closure_outlives_its_machine(machine):
    closure = machine(LISTS)["adder"](1)
    gc.collect()
    assert closure(1).item() == 2


def test_a_closure_of_another_machine_is_refused(machine, vm):
    closure = machine(LISTS)["adder"](1)
    with pytest.raises(ArgumentError, match="another machine"):
        vm["apply"](closure, 1)
    with pytest.raises(ArgumentError, match="of this machine"):
        vm.invoke_closure(closure, 1)


def test_parts_of_values_are_read_only(vm):
    value = vm["range"](1)
    assert not value[0].numpy().flags.writeable
    assert np.array_equal(value[0], 0)
