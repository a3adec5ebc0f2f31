"""What TVM's test_vm_codegen_only.py, test_vm_callback_function.py and small test_vm_*.py check (tvm_spec, sections 5.6, 5.7)."""

from __future__ import annotations

import traceback

import numpy as np
import pytest
import treadle.tvm as tvm
import treadle.tvm.relax.testing.vm  # noqa: F401  it registers test.vm.*
from treadle.tvm import relax
from treadle.tvm.runtime import ShapeTuple

A = np.arange(12, dtype="float32").reshape(3, 4)


def machine(*lines, inputs: int = 1, result: int | None = None, **options) -> relax.VirtualMachine:
    """A function of these calls: (name, arguments), of which the first result is in register `inputs`."""
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=inputs):
        for at, (name, args) in enumerate(lines, inputs):
            ib.emit_call(name, args=args(ib), dst=ib.r(at))
        ib.emit_ret(ib.r(inputs + len(lines) - 1 if result is None else result))
    return relax.VirtualMachine(ib.get(), tvm.cpu(), **options)


def test_a_copy_is_the_value() -> None:
    a = tvm.nd.array(A)
    assert machine(("vm.builtin.copy", lambda ib: [ib.r(0)]))["main"](a).same_as(a)


def test_a_value_goes_to_the_one_device() -> None:
    vm = machine(("vm.builtin.to_device", lambda ib: [ib.r(0), ib.imm(1), ib.imm(0)]))
    result = vm["main"](tvm.nd.array(A))
    assert (result.device.device_type, result.device.device_id) == (1, 0)
    np.testing.assert_array_equal(result.numpy(), A)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("hello", "hello"), (tvm.DataType("float32"), "float32"), (1, 1), ((2, 3), ShapeTuple([2, 3]))],
)
def test_constants_of_all_kinds_are_results(value: object, expected: object) -> None:
    vm = machine(("vm.builtin.copy", lambda ib: [ib.convert_constant(value)]), inputs=0)
    assert vm["main"]() == expected or str(vm["main"]()) == expected


def test_a_tuple_of_constants_is_a_result() -> None:
    vm = machine(("vm.builtin.make_tuple", lambda ib: [tvm.nd.array(A), tvm.nd.array(A + 1)]), inputs=0)
    first, second = vm["main"]()
    np.testing.assert_array_equal(first.numpy() + 1, second.numpy())


def test_a_tensor_gets_another_shape() -> None:
    vm = machine(("vm.builtin.reshape", lambda ib: [ib.r(0), (6, 2)]))
    np.testing.assert_array_equal(vm["main"](tvm.nd.array(A)).numpy(), A.reshape(6, 2))
    vm = machine(
        ("vm.builtin.tensor_to_shape", lambda ib: [ib.r(1)]),
        ("vm.builtin.reshape", lambda ib: [ib.r(0), ib.r(2)]),
        inputs=2,
    )
    shape = tvm.nd.array(np.array([2, 6]))
    np.testing.assert_array_equal(vm["main"](tvm.nd.array(A), shape).numpy(), A.reshape(2, 6))


def test_storage_is_used_again_and_what_was_returned_stays() -> None:
    vm = machine(
        ("vm.builtin.alloc_storage", lambda ib: [ib.vm_state(), (48,), ib.imm(0), tvm.DataType("uint8"), "global"]),
        ("vm.builtin.alloc_tensor", lambda ib: [ib.r(1), ib.imm(0), (3, 4), tvm.DataType("float32")]),
        ("vm.builtin.null_value", lambda ib: []),
        ("test.vm.identity", lambda ib: [ib.r(0), ib.r(2)]),
        result=2,
        memory_cfg="naive",
    )
    results = [vm["main"](tvm.nd.array(A + step)).numpy() for step in range(3)]
    for step, result in enumerate(results):
        np.testing.assert_array_equal(result, A + step)


def test_storage_that_is_too_large_is_a_named_error() -> None:
    vm = machine(
        (
            "vm.builtin.alloc_storage",
            lambda ib: [ib.vm_state(), (1 << 50,), ib.imm(0), tvm.DataType("uint8"), "global"],
        ),
        inputs=0,
    )
    with pytest.raises(Exception, match=r"(?i)memory"):
        vm["main"]()


def test_an_empty_register_is_none() -> None:
    vm = machine(("vm.builtin.null_value", lambda ib: []), ("test.vm.check_if_defined", lambda ib: [ib.r(0)]), inputs=0)
    assert not vm["main"]()


# ---- functions of Python's as arguments ----


def caller() -> relax.VirtualMachine:
    return machine(("vm.builtin.invoke_closure", lambda ib: [ib.vm_state(), ib.r(0), ib.r(1)]), inputs=2)


def test_a_function_that_came_as_an_argument_takes_a_tensor_and_gives_one() -> None:
    seen = []

    def callback(tensor):
        seen.append(tensor.numpy())
        return tvm.nd.array(tensor.numpy() * 2)

    result = caller()["main"](callback, tvm.nd.array(A))
    np.testing.assert_array_equal(seen[0], A)
    np.testing.assert_array_equal(result.numpy(), A * 2)


def test_what_a_callback_raises_comes_with_its_frame() -> None:
    def callback(tensor):
        local = "kept"
        raise ZeroDivisionError(local)

    vm = caller()
    with pytest.raises(ZeroDivisionError) as caught:
        vm["main"](callback, tvm.nd.array(A))
    *_, (frame, _) = traceback.walk_tb(caught.value.__traceback__)
    assert frame.f_code is callback.__code__
    assert frame.f_locals["local"] == "kept"
    assert vm["main"](lambda tensor: 3, tvm.nd.array(A)) == 3


def test_a_list_of_devices_is_one_cpu() -> None:
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_ret(ib.r(0))
    assert relax.VirtualMachine(ib.get(), [tvm.cpu(0), tvm.cpu(1)])["main"](7) == 7
