"""Programs that are made instruction by instruction: what TVM's test_vm_execbuilder.py checks, and what TVM does not check."""

from __future__ import annotations

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import ArgumentError, BudgetExceededError, CheckError, VerificationError
from treadle.tvm import relax
from treadle.tvm.relax.testing.vm import check_saved_func

A = tvm.nd.array(np.arange(4.0))
B = tvm.nd.array(np.arange(4.0) * 3)


def machine(ib: relax.ExecBuilder) -> relax.VirtualMachine:
    return relax.VirtualMachine(ib.get(), tvm.cpu())


def test_execute_and_several_functions() -> None:
    ib = relax.ExecBuilder()
    for name in ("add", "mul"):
        with ib.function(name, num_inputs=2):
            ib.emit_call(f"test.vm.{name}", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
            ib.emit_ret(ib.r(2))
    vm = machine(ib)
    assert np.array_equal(check_saved_func(vm, "add", A, B).numpy(), A.numpy() + B.numpy())
    assert np.array_equal(check_saved_func(vm, "mul", A, B).numpy(), A.numpy() * B.numpy())


def test_text_and_numbers_of_registers() -> None:
    def built(first: int, second: int) -> relax.Executable:
        ib = relax.ExecBuilder()
        with ib.function("f", num_inputs=2, param_names=["x", "y"]):
            ib.emit_call("test.vm.add", args=[ib.r(0), ib.imm(-3), "hi"], dst=ib.r(first))
            ib.emit_call("test.vm.mul", args=[ib.r(first), ib.vm_state(), ib.void_arg(), ib.f("f")], dst=ib.r(second))
            ib.emit_ret(ib.r(second))
        return ib.get()

    text = (
        "@f:\n"
        "  call  test.vm.add      in: %0, i-3, c[0] dst: %2\n"
        "  call  test.vm.mul      in: %2, %vm, %void, f[f] dst: %3\n"
        "  ret   %3\n\n"
        "@test.vm.add packed_func;\n\n@test.vm.mul packed_func;\n\n"
    )
    assert built(100, 50).as_text() == built(2, 3).as_text() == text
    assert '["hi"]' in built(2, 3).stats()
    assert "[f, test.vm.add, test.vm.mul]" in built(2, 3).stats()


def test_constants_that_are_equal_are_one() -> None:
    ib = relax.ExecBuilder()
    for make in (
        lambda: "text",
        lambda: tvm.runtime.ShapeTuple([1, 2]),
        lambda: tvm.nd.array(np.arange(3)),
        lambda: 1 << 60,
        lambda: 0.5,
        lambda: tvm.DataType("float32"),
    ):
        assert ib.convert_constant(make()) == ib.convert_constant(make())
    assert ib.convert_constant((1, 2)) == ib.convert_constant(tvm.runtime.ShapeTuple([1, 2]))
    assert ib.convert_constant((1, 2)) != ib.convert_constant((1, 3))
    assert ib.convert_constant(3) == ib.imm(3)
    with pytest.raises(ArgumentError, match="is not a constant"):
        ib.convert_constant(object())


def test_if_and_goto() -> None:
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=3):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("test.vm.add", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
        ib.emit_goto(2)
        ib.emit_call("test.vm.mul", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
    vm = machine(ib)
    for condition in (1, True, tvm.nd.array(np.array(5))):
        assert np.array_equal(vm["main"](condition, A, B).numpy(), A.numpy() + B.numpy())
    for condition in (0, False, tvm.nd.array(np.array(False))):
        assert np.array_equal(vm["main"](condition, A, B).numpy(), A.numpy() * B.numpy())
    with pytest.raises(ArgumentError, match="read_if_cond"):
        vm["main"](A, A, B)


def test_closures_take_what_they_captured_last() -> None:
    ib = relax.ExecBuilder()
    with ib.function("both", num_inputs=2):
        ib.emit_call("vm.builtin.make_tuple", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.builtin.make_closure", args=[ib.f("both"), ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    with ib.function("call", num_inputs=2):
        ib.emit_call("vm.builtin.invoke_closure", args=[ib.vm_state(), ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = machine(ib)
    closure = vm["main"](1)
    assert vm.invoke_closure(closure, 2) == (2, 1)
    assert vm["call"](closure, 3) == (3, 1)


def test_recursion_is_bounded() -> None:
    ib = relax.ExecBuilder()
    with ib.function("power", num_inputs=1):
        ib.emit_if(ib.r(0), 6)
        ib.emit_call("test.vm.add_scalar", args=[ib.r(0), ib.imm(-1)], dst=ib.r(1))
        ib.emit_call("power", args=[ib.r(1)], dst=ib.r(2))
        ib.emit_call("test.vm.add_scalar", args=[ib.r(2), ib.r(2)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
        ib.emit_goto(1)
        ib.emit_call("vm.builtin.copy", args=[ib.imm(1)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
    vm = machine(ib)
    assert vm["power"](50) == 2**50
    with pytest.raises(BudgetExceededError):
        vm["power"](-1)
    assert vm["power"](3) == 8


def test_storage() -> None:
    ib = relax.ExecBuilder()
    with ib.function("main"):
        args = [ib.vm_state(), (24,), 0, tvm.DataType("float32"), "global"]
        ib.emit_call("vm.builtin.alloc_storage", args=args, dst=ib.r(1))
        args = [ib.r(1), 0, (4, 6), tvm.DataType("float32")]
        ib.emit_call("vm.builtin.alloc_tensor", args=args, dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    made = machine(ib)["main"]()
    assert (made.shape, made.dtype, made.device) == ((4, 6), "float32", tvm.cpu())


def test_instructions_stand_in_functions() -> None:
    ib = relax.ExecBuilder()
    with pytest.raises(ValueError, match="emit should happen in a function scope"):
        ib.emit_ret(ib.r(0))
    with ib.function("f", num_inputs=1):
        ib.emit_ret(ib.r(0))
    with pytest.raises(CheckError, match="Function f already defined"), ib.function("f", num_inputs=1):
        pass
    ib.declare_function("g")
    with pytest.raises(CheckError, match="already declared in a different kind"):
        ib.declare_function("g", relax.VMFuncKind.VM_FUNC)


def call(ib: relax.ExecBuilder) -> None:
    ib.emit_call("test.vm.move", args=[ib.r(0)], dst=ib.r(1))


@pytest.mark.parametrize(
    ("emit", "text"),
    [
        (lambda ib: ib.emit_ret(ib.r(7)), "never defined as a destination. Dump: ret"),
        (lambda ib: (ib.emit_if(ib.r(0), 2), call(ib), ib.emit_ret(ib.r(1))), "on a path to here"),
        (call, "every path ends in a ret"),
        (lambda ib: ib.emit_goto(0), "a goto leads to itself"),
        (lambda ib: ib.emit_goto(5), "a path leads to instruction 5"),
        (lambda ib: ib.emit_goto(-1), "a path leads to instruction -1"),
        (lambda ib: (ib.emit_if(ib.r(0), 1), ib.emit_ret(ib.r(0))), "more than 1"),
        (lambda ib: ib.emit_call("f", args=[ib.c(3)], dst=ib.r(1)), "there is no constant 3"),
        (lambda ib: ib.emit_call("f", args=[], dst=ib.r(1)), "f expects 1 arguments, 0 come"),
    ],
)
def test_programs_are_checked(emit, text: str) -> None:
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=1):
        emit(ib)
    with pytest.raises(VerificationError, match=text):
        ib.get()
    assert issubclass(VerificationError, tvm.TVMError)


def test_all_missing_functions_are_named() -> None:
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=1):
        ib.emit_call("no.such", args=[ib.r(0)], dst=ib.r(0))
        ib.emit_call("nor.this", args=[ib.r(0)], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    with pytest.raises(AttributeError, match=r"Cannot find PackedFunc no\.such, nor\.this"):
        machine(ib)


def test_a_machine_goes_on_after_a_failure() -> None:
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=2):
        ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = machine(ib)
    with pytest.raises(ValueError, match="broadcast"):
        vm["f"](A, tvm.nd.array(np.zeros(3)))
    assert np.array_equal(vm["f"](A, B).numpy(), A.numpy() + B.numpy())
