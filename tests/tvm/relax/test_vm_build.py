"""What TVM's tests/python/relax/test_vm_build.py checks that needs no TIR (tvm_spec, section 5.4), for both modes."""

from __future__ import annotations

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm import relax
from treadle.tvm.relax.testing.vm import check_saved_func
from treadle.tvm.runtime import ShapeTuple

RNG = np.random.default_rng(3)
N, M = tvm.tir.Var("n", "int64"), tvm.tir.Var("m", "int64")


@pytest.fixture(params=["bytecode", "compiled"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


def machine(module, mode: str = "bytecode") -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(module, "llvm", exec_mode=mode), tvm.cpu())


def of(*shapes_and_body):
    """A module whose main is a function of variables of these shapes."""
    *shapes, body = shapes_and_body
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{at}", relax.TensorStructInfo(shape)) for at, shape in enumerate(shapes)]
    with bb.function("main", params):
        bb.emit_func_output(bb.emit(body(*params)))
    return bb.get()


def data(*shape: int) -> tvm.nd.NDArray:
    return tvm.nd.array(RNG.standard_normal(shape).astype("float32"))


def test_sizes_are_expressions_of_others(mode: str) -> None:
    vm = machine(of((N, M), (N * 2, M * 3), lambda x, y: relax.Tuple([x, relax.op.add(y, y)])), mode)
    a, b = data(2, 3), data(4, 9)
    first, second = vm["main"](a, b)
    np.testing.assert_array_equal(first.numpy(), a.numpy())
    np.testing.assert_array_equal(second.numpy(), b.numpy() * 2)
    for wrong in (data(4, 8), data(4, 9, 1), tvm.nd.array(np.zeros((4, 9), "int32"))):
        with pytest.raises((ValueError, TypeError)):
            vm["main"](a, wrong)
    with pytest.raises(TypeError):
        vm["main"](a, [])


def test_a_cast_that_does_not_hold_is_an_error(mode: str) -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(ndim=2))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.match_cast(x, relax.TensorStructInfo((N, 4))))
    vm = machine(bb.get(), mode)
    a = data(2, 4)
    np.testing.assert_array_equal(vm["main"](a).numpy(), a.numpy())
    with pytest.raises(ValueError, match="shape"):
        vm["main"](data(2, 5))


def test_an_output_has_the_size_that_the_input_says(mode: str) -> None:
    vm = machine(of((N, M), lambda x: relax.op.tile(x, (1, 2))), mode)
    a = data(3, 4)
    np.testing.assert_array_equal(check_saved_func(vm, "main", a).numpy(), np.tile(a.numpy(), (1, 2)))


def test_sizes_of_weights_are_parameters_too(mode: str) -> None:
    vm = machine(of((N, 16), (16, M), lambda x, w: relax.op.matmul(x, w)), mode)
    a, w = data(32, 16), data(16, 32)
    np.testing.assert_allclose(check_saved_func(vm, "main", a, w).numpy(), a.numpy() @ w.numpy(), rtol=1e-4, atol=1e-4)


def test_constants_joins_and_casts(mode: str) -> None:
    constant = RNG.standard_normal((2, 3)).astype("float32")
    vm = machine(of((2, 3), lambda x: relax.op.astype(relax.op.add(x, relax.const(constant)), "float64")), mode)
    a = data(2, 3)
    result = vm["main"](a)
    assert result.dtype == "float64"
    np.testing.assert_allclose(result.numpy(), a.numpy() + constant, rtol=1e-6)
    vm = machine(of((N, M), (N, M), lambda x, y: relax.op.concat([x, y], axis=1)), mode)
    b = data(2, 3)
    np.testing.assert_array_equal(check_saved_func(vm, "main", a, b).numpy(), np.hstack([a.numpy(), b.numpy()]))


def test_tuples_nest_and_are_taken_apart(mode: str) -> None:
    vm = machine(of((N, M), lambda x: relax.Tuple([relax.Tuple([x, relax.Tuple([x])]), x])), mode)
    a = data(2, 3)
    (first, (second,)), third = vm["main"](a)
    for each in (first, second, third):
        np.testing.assert_array_equal(each.numpy(), a.numpy())
    vm = machine(of((N, M), (N, M), lambda x, y: relax.TupleGetItem(relax.Tuple([x, y]), 0)), mode)
    np.testing.assert_array_equal(vm["main"](a, data(2, 3)).numpy(), a.numpy())


def test_a_tuple_is_an_argument(mode: str) -> None:
    bb = relax.BlockBuilder()
    pair = relax.TupleStructInfo([relax.TensorStructInfo((2,)), relax.TensorStructInfo((2,))])
    x = relax.Var("x", pair)
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.op.add(relax.TupleGetItem(x, 0), relax.TupleGetItem(x, 1))))
    vm = machine(bb.get(), mode)
    a, b = data(2), data(2)
    vm.set_input("main", (a, b))
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main").numpy(), a.numpy() + b.numpy())


def test_a_program_is_exported_loaded_and_run(mode: str, tmp_path) -> None:
    executable = relax.build(of((N, 2), lambda x: relax.op.add(x, x)), "llvm", exec_mode=mode)
    executable.export_library(tmp_path / "exec.so")
    vm = relax.VirtualMachine(tvm.runtime.load_module(tmp_path / "exec.so"), tvm.cpu())
    for rows in (1, 5):
        a = data(rows, 2)
        np.testing.assert_array_equal(vm["main"](a).numpy(), a.numpy() * 2)


def test_two_programs_with_functions_of_one_name(mode: str) -> None:
    add, multiply = (
        machine(of((4,), (4,), op), mode)
        for op in (lambda x, y: relax.op.add(x, y), lambda x, y: relax.op.multiply(x, y))
    )
    a, b = data(4), data(4)
    np.testing.assert_array_equal(add["main"](a, b).numpy(), a.numpy() + b.numpy())
    np.testing.assert_array_equal(multiply["main"](a, b).numpy(), a.numpy() * b.numpy())


def test_stateful_and_saved_functions_are_timed(mode: str) -> None:
    vm = machine(of((2, 3), lambda x: relax.op.add(x, x)), mode)
    a = data(2, 3)
    vm.set_input("main", a)
    assert len(vm.time_evaluator("invoke_stateful", tvm.cpu(), repeat=2)("main").results) == 2
    np.testing.assert_array_equal(vm.get_outputs("main").numpy(), a.numpy() * 2)
    vm.save_function("main", "saved", x0=a)
    assert vm.time_evaluator("saved", tvm.cpu())().mean > 0
    np.testing.assert_array_equal(vm["saved"]().numpy(), a.numpy() * 2)


# ---- shapes and numbers, which a program that was compiled has as sizes of tensors: by ExecBuilder ----


def with_heap(*lines) -> relax.VirtualMachine:
    """A function of one argument and a heap of four slots, in r(1); each line is a call, whose result is in r(2) and on."""
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.builtin.alloc_shape_heap", args=[ib.vm_state(), ib.imm(4)], dst=ib.r(1))
        for at, (name, args) in enumerate(lines, 2):
            ib.emit_call(f"vm.builtin.{name}", args=args(ib), dst=ib.r(at))
        ib.emit_ret(ib.r(len(lines) + 1))
    return relax.VirtualMachine(ib.get(), tvm.cpu())


def test_a_shape_is_an_argument_and_a_result() -> None:
    vm = with_heap(
        ("check_shape_info", lambda ib: [ib.r(0), ib.imm(2), "main param 0"]),
        ("match_shape", lambda ib: [ib.r(0), ib.r(1), ib.imm(2), *map(ib.imm, (1, 0, 1, 1)), "main param 0"]),
        ("make_shape", lambda ib: [ib.r(1), ib.imm(2), *map(ib.imm, (1, 1, 1, 0))]),
    )
    assert vm["main"](ShapeTuple([2, 3])) == ShapeTuple([3, 2])
    with pytest.raises(ValueError, match="main param 0"):
        vm["main"](ShapeTuple([2, 3, 4]))
    with pytest.raises(TypeError, match="main param 0"):
        vm["main"](4)


def test_a_number_is_an_argument_and_a_result() -> None:
    vm = with_heap(
        ("check_prim_value_info", lambda ib: [ib.r(0), tvm.DataType("int64"), "main param 0"]),
        ("match_prim_value", lambda ib: [ib.r(0), ib.r(1), ib.imm(1), ib.imm(2), "main param 0"]),
        ("make_prim_value", lambda ib: [ib.r(1), ib.imm(1), ib.imm(2)]),
    )
    assert vm["main"](2) == 2
    with pytest.raises(TypeError, match="main param 0"):
        vm["main"](ShapeTuple([2]))


def test_a_wrong_result_is_told_by_the_context_that_the_check_was_given() -> None:
    vm = with_heap(("check_tensor_info", lambda ib: [ib.r(0), ib.imm(2), tvm.DataType("float32"), "ret: return"]))
    with pytest.raises(ValueError, match=r"return.* ndim 2"):
        vm["main"](data(2))
    with pytest.raises(ValueError, match=r"return.* dtype float32"):
        vm["main"](tvm.nd.array(np.zeros((2, 2), "int32")))


def test_functions_of_the_program_and_of_python_call_each_other() -> None:
    ib = relax.ExecBuilder()
    for name, called in (("inner", "test.vm.add"), ("main", "inner")):
        with ib.function(name, num_inputs=2):
            ib.emit_call(called, args=[ib.r(0), ib.r(1)], dst=ib.r(2))
            ib.emit_call("test.vm.mul", args=[ib.r(2), ib.r(1)], dst=ib.r(3))
            ib.emit_ret(ib.r(3))
    vm = relax.VirtualMachine(ib.get(), tvm.cpu())
    a, b = data(3), data(3)
    expected = ((a.numpy() + b.numpy()) * b.numpy()) * b.numpy()
    np.testing.assert_array_equal(check_saved_func(vm, "main", a, b).numpy(), expected)


def test_a_function_writes_into_its_argument() -> None:
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("test.vm.identity", args=[ib.r(0), ib.r(1)], dst=ib.void_arg())
        ib.emit_ret(ib.r(1))
    vm = relax.VirtualMachine(ib.get(), tvm.cpu())
    a, b = data(3, 4), data(3, 4)
    assert vm["main"](a, b).same_as(b)
    np.testing.assert_array_equal(b.numpy(), a.numpy())


def test_each_way_to_several_results_gives_tvm_s_tensors(mode: str) -> None:
    vm = machine(of((2,), lambda x: relax.Tuple([x, relax.Tuple([relax.op.add(x, x), x])])), mode)
    x = data(2)
    vm.save_function("main", "saved", x)
    direct, saved = vm["main"](x), vm["saved"]()
    vm.set_input("main", x)
    vm.invoke_stateful("main")
    for first, (twice, again) in (direct, saved, vm.get_outputs("main")):
        assert {type(first), type(twice), type(again)} == {tvm.nd.NDArray}
        np.testing.assert_array_equal(twice.numpy(), 2 * x.numpy())
    assert type(direct) is type(saved) is tvm.runtime.container.Array


def test_compile_makes_what_build_makes() -> None:
    x = data(2)
    program = of((2,), lambda x: relax.op.add(x, x))
    vm = relax.VirtualMachine(tvm.compile(program, target="llvm"), tvm.cpu())
    np.testing.assert_array_equal(vm["main"](x).numpy(), 2 * x.numpy())
