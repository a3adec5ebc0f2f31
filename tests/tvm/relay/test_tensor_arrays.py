"""Tensor arrays of `relay.prelude`: lists of tensors of any shape, and of one."""

from __future__ import annotations

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.errors import ArgumentError
from treadle.tvm import relay
from treadle.tvm.relay.prelude import Prelude, StaticTensorArrayOps

ROWS = np.arange(6, dtype="float32").reshape(2, 3)


def ran(module, *arguments):
    return relay.create_executor("debug", mod=module).evaluate()(*arguments)


def test_tensors_of_several_shapes_are_written_read_and_joined():
    p = Prelude(tvm.IRModule())
    new, write, read, concat = (
        p.get_global_var(name, "float32")
        for name in ("tensor_array", "tensor_array_write", "tensor_array_read", "tensor_array_concat")
    )
    tensor2 = p.get_tensor_ctor("tensor2", "float32")
    a, b = relay.var("a"), relay.var("b")  # their types are those of the constructor
    array = write(write(new(relay.const(2)), relay.const(1), tensor2(b)), relay.const(0), tensor2(a))
    p.mod["main"] = relay.Function([a, b], relay.Tuple([concat(array), read(array, relay.const(1))]))
    whole, last = ran(p.mod, ROWS, ROWS[:1])
    np.testing.assert_array_equal(whole.fields[0].numpy(), np.concatenate([ROWS, ROWS[:1]]))
    assert last.constructor.name_hint == "tensor2_float32"


def test_rows_of_a_tensor_are_an_array_whose_stack_is_the_tensor():
    p = Prelude(tvm.IRModule())
    unstack, stack = (
        p.get_global_var(name, "float32") for name in ("tensor_array_unstack_tensor2", "tensor_array_stack")
    )
    x = relay.var("x")
    p.mod["main"] = relay.Function([x], stack(unstack(x)))
    np.testing.assert_array_equal(ran(p.mod, ROWS).fields[0].numpy(), ROWS)


def test_tensors_of_one_shape_have_a_type_of_their_own():
    p = Prelude(tvm.IRModule())
    ops = StaticTensorArrayOps(p, "float32", [3])
    unstack = StaticTensorArrayOps(p, "float32", [2, 3]).get_global_var("tensor_array_unstack")
    gather = ops.get_global_var("tensor_array_gather")
    x, places = relay.var("x"), relay.var("places")
    p.mod["main"] = relay.Function([x, places], gather(unstack(x), places))
    found = ran(p.mod, ROWS, np.int32([1, 0, 1]))
    assert found.constructor.name_hint == "tensor_constructor_float32_any_3"
    np.testing.assert_array_equal(found.fields[0].numpy(), ROWS[[1, 0, 1]])


def test_functions_that_there_are_not_are_named():
    with pytest.raises(ArgumentError, match=r"no function 'tensor_array_sort'; there are tensor_take"):
        Prelude().get_global_var("tensor_array_sort", "float32")
