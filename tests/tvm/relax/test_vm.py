"""`relax.VirtualMachine`: the ways to call, their errors, instruments, times and reports; for both kinds of programs."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import treadle
import treadle.tvm as tvm
from treadle.compiler.builder.programs import Module, function, op, tuple_, var
from treadle.formats.messages.errors import ArgumentError, ShapeError
from treadle.tvm import relax
from treadle.tvm.relax.testing.lib_comparator import LibCompareVMInstrument
from treadle.tvm.runtime.profiling import Report

from ... import timing

X = np.array([[1, -2], [3, 4]], np.float32)
Y = X * 10


def program() -> Module:
    x, y = var("x", (2, 2)), var("y", (2, 2))
    a, b = var("x", (2, 2)), var("y", (2, 2))
    return Module(main=function([x, y], op.relu(x @ y) + y), pair=function([a, b], tuple_(tuple_(a + b, a - b), a * b)))


def compiled() -> relax.Executable:
    return relax.build(program(), "llvm")


def built() -> relax.Executable:
    import treadle.tvm.relax.testing.vm  # noqa: F401  its functions

    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=2, param_names=["x", "y"]):
        ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    with ib.function("pair", num_inputs=2, param_names=["x", "y"]):
        ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_call("vm.builtin.make_tuple", args=[ib.r(2), ib.r(2)], dst=ib.r(3))
        ib.emit_call("vm.builtin.make_tuple", args=[ib.r(3), ib.r(1)], dst=ib.r(4))
        ib.emit_ret(ib.r(4))
    return ib.get()


EXECUTABLES = {"compiled": compiled(), "built": built()}


@pytest.fixture(params=list(EXECUTABLES))
def vm(request: pytest.FixtureRequest) -> relax.VirtualMachine:
    return relax.VirtualMachine(EXECUTABLES[request.param], tvm.cpu())


def of(array: np.ndarray):
    return tvm.nd.array(array)


# ---- the ways to call ----


def test_what_was_set_gives_what_a_call_gives(vm) -> None:
    direct = vm["main"](of(X), of(Y)).numpy()
    vm.save_function("main", "saved", of(X), y=of(Y))
    vm.set_input("main", y=of(Y), x=of(X))
    vm.invoke_stateful("main")
    assert np.array_equal(vm.get_outputs("main").numpy(), direct)
    assert np.array_equal(vm["saved"]().numpy(), direct)
    vm.save_function("main", "saved", of(X), of(Y), include_return=False)
    assert vm["saved"]() is None


def test_what_was_set_is_a_copy(vm) -> None:
    x = X.copy()
    direct = vm["main"](X, Y).numpy()
    vm.save_function("main", "saved", x, Y)
    vm.set_input("main", x, Y)
    x[:] = 0
    vm.invoke_stateful("main")
    assert np.array_equal(vm.get_outputs("main").numpy(), direct)
    assert np.array_equal(vm["saved"]().numpy(), direct)


def test_outputs_nest(vm) -> None:
    (_, second), third = vm["pair"](X, Y)
    vm.set_input("pair", X, Y)
    vm.invoke_stateful("pair")
    outputs = vm.get_outputs("pair")
    assert type(outputs) is type(outputs[0]) is tuple
    assert np.array_equal(outputs[0][1].numpy(), second.numpy())
    module = vm.module
    assert (module["get_output_arity"]("pair"), module["get_output_arity"]("pair", 0)) == (2, 2)
    assert module["get_output_arity"]("pair", 1) == -1
    assert np.array_equal(module["get_output"]("pair", 1).numpy(), third.numpy())
    with pytest.raises(ValueError, match="cannot return a tuple"):
        module["get_output"]("pair", 0)
    with pytest.raises(IndexError, match=r"Invalid index \(2 >= 2\)"):
        module["get_output"]("pair", 2)


# ---- errors ----


def test_unknown_functions(vm) -> None:
    with pytest.raises(AttributeError, match="Module has no function 'nope'"):
        vm["nope"]
    for use in (
        lambda: vm.set_input("nope", 1),
        lambda: vm.invoke_stateful("nope"),
        lambda: vm.get_outputs("nope"),
        lambda: vm.save_function("nope", "saved", 1),
        lambda: vm.profile("nope"),
    ):
        with pytest.raises(ValueError, match="Unknown function: nope"):
            use()
    with pytest.raises(RuntimeError, match="Cannot find nope"):
        vm.time_evaluator("nope", tvm.cpu())


def test_wrong_arguments(vm) -> None:
    with pytest.raises(RuntimeError, match=r"Invoking function main expects 2 arguments \(x, y\), but 0 arguments"):
        vm["main"]()
    for args, kwargs in (((X,), {}), ((X, Y, X), {}), ((), {"x": X}), ((X, Y), {"y": Y})):
        with pytest.raises(
            tvm.TVMError, match="main: The number of provided parameters doesn't match the number of arguments"
        ):
            vm.set_input("main", *args, **kwargs)
    for odd in (None, object(), {}):
        with pytest.raises(TypeError, match="Unsupported type"):
            vm.set_input("main", odd, Y)
    with pytest.warns(UserWarning, match='Keyword argument "zz" is unused in main'):
        vm.set_input("main", X, Y, zz=X)


def test_what_comes_in_the_wrong_order(vm) -> None:
    with pytest.raises(ValueError, match="No inputs set for stateful call of main; use `set_input` first"):
        vm.invoke_stateful("main")
    vm.set_input("main", X, Y)
    with pytest.raises(ValueError, match='No output saved for call of "main"'):
        vm.get_outputs("main")
    for args in ((), (X, Y)):
        with pytest.raises(RuntimeError, match=r"call invoke_stateful\('main'\)"):
            vm["main"](*args)
    assert vm["pair"](X, Y) is not None


def test_a_source_function_is_not_replaced(vm) -> None:
    with pytest.raises(ValueError, match="'pair' is a function of the program"):
        vm.save_function("main", "pair", X, Y)


def test_compiled_programs_check_shapes_when_inputs_are_set() -> None:
    vm = relax.VirtualMachine(EXECUTABLES["compiled"], tvm.cpu())
    with pytest.raises(ShapeError):
        vm.set_input("main", X, Y[0])


@pytest.mark.parametrize("device", [5, "cpu", [], [tvm.cpu(), 3], None])
def test_devices_that_are_none(device: object) -> None:
    with pytest.raises(TypeError):
        relax.VirtualMachine(EXECUTABLES["built"], device)
    with pytest.raises(ValueError, match=r"Expect the rt_mod to be an runtime\.Module"):
        relax.VirtualMachine(device, tvm.cpu())


def test_memory_is_named_by_device() -> None:
    for setting in ("naive", {"cpu": "naive"}, {tvm.cpu(): "pooled"}, {tvm.cpu(): 1}):
        assert relax.VirtualMachine(EXECUTABLES["compiled"], tvm.cpu(), memory_cfg=setting)["main"](X, Y).shape == (
            2,
            2,
        )
    with pytest.raises(ArgumentError, match="memory_cfg"):
        relax.VirtualMachine(EXECUTABLES["compiled"], tvm.cpu(), memory_cfg={"cpu": "lazy"})


def test_modes_and_targets_that_there_are_not() -> None:
    module = Module(main=function([x := var("x", (2,))], x + x))
    with pytest.raises(ValueError, match="Unknown exec_mode 'fast'"):
        relax.build(module, exec_mode="fast")
    with pytest.raises(ArgumentError, match="target"):
        relax.build(module, "cuda")


# ---- looking on ----


def test_an_instrument_sees_calls_before_and_after(vm) -> None:
    seen = []

    def instrument(func, name, before_run, ret_value, *args) -> None:
        assert callable(func)
        assert not before_run or ret_value is None
        seen.append((name, before_run))

    vm.set_instrument(instrument)
    result = vm["main"](X, Y).numpy()
    names = {name for name, _ in seen}
    assert names
    assert all(seen.count((name, True)) == seen.count((name, False)) for name in names)
    count = len(seen)
    vm.set_instrument(None)
    assert np.array_equal(vm["main"](X, Y).numpy(), result)
    assert len(seen) == count


def test_a_call_that_is_left_out() -> None:
    vm = relax.VirtualMachine(EXECUTABLES["built"], tvm.cpu())
    seen = []

    def instrument(func, name, before_run, ret_value, *args):
        seen.append((name, before_run))
        return relax.VMInstrumentReturnKind.SKIP_RUN

    vm.set_instrument(instrument)
    assert vm["main"](X, Y) is None
    assert seen == [("test.vm.add", True)]
    vm = relax.VirtualMachine(EXECUTABLES["compiled"], tvm.cpu())
    vm.set_instrument(instrument)
    assert vm["pair"](X, Y)[1].numpy().tolist() == [[0, 0], [0, 0]]


def test_the_function_that_an_instrument_is_handed_computes() -> None:
    vm = relax.VirtualMachine(EXECUTABLES["compiled"], tvm.cpu())
    compared = []

    def again(func, name, before_run, ret_value, *args) -> None:
        if not before_run:
            copies = [tvm.nd.array(arg.numpy()) for arg in args]
            copies[-1].array[:] = 0
            func(*copies)
            compared.append(np.allclose(copies[-1].numpy(), args[-1].numpy()))

    vm.set_instrument(again)
    vm["main"](X, Y)
    assert compared
    assert all(compared)


def test_an_instrument_by_name(vm) -> None:
    seen = []
    tvm.register_func("test.instrument", lambda *args: seen.append(args[1]), override=True)
    vm.set_instrument("test.instrument")
    vm["main"](X, Y)
    assert seen
    with pytest.raises(ValueError, match=r"Cannot find factory no\.such"):
        vm.set_instrument("no.such")


def test_times_in_three_forms(vm) -> None:
    assert vm.time_evaluator("main", tvm.cpu(), number=2, repeat=3)(of(X), of(Y)).results
    vm.save_function("main", "saved", X, Y)
    assert len(vm.time_evaluator("saved", tvm.cpu(), number=1, repeat=3)().results) == 3
    vm.set_input("main", X, Y)
    assert vm.time_evaluator("invoke_stateful", tvm.cpu())("main").mean > 0


@pytest.mark.serial
def test_a_saved_function_costs_less_than_a_call() -> None:
    vm = relax.VirtualMachine(EXECUTABLES["compiled"], tvm.cpu())
    vm.save_function("main", "saved", X, Y)
    direct, saved = vm["main"], vm["saved"]
    spent = timing.seconds({"saved": saved, "direct": lambda: direct(X, Y)})
    assert spent["saved"] < spent["direct"]


@pytest.mark.serial
def test_a_call_costs_little_more_than_one_of_the_machine() -> None:
    """Results become TVM's tensors: asking them what they are had cost twenty calls."""
    theirs = relax.VirtualMachine(EXECUTABLES["compiled"], tvm.cpu())["main"]
    ours = treadle.VirtualMachine(treadle.compile(program()))["main"]
    spent = timing.seconds({"theirs": lambda: theirs(X, Y), "ours": lambda: ours(X, Y)})
    assert spent["theirs"] < 4 * spent["ours"]


def test_a_profile_is_a_report(vm) -> None:
    report = vm.profile("main", X, Y)
    assert "Duration" in str(report)
    assert report.calls
    assert report.configuration["Executor"] == "VM"
    assert str(Report.from_json(report.json())) == str(report)
    with pytest.raises(ValueError, match="No input is provided"):
        vm.profile("main")
    vm.set_input("main", X, Y)
    assert vm.profile("main").calls
    with pytest.raises(ValueError, match="Inputs are already provided by set_input"):
        vm.profile("main", X, Y)


def test_a_profile_counts_no_calls_of_other_threads(vm) -> None:
    rows = len(vm.profile("main", X, Y).calls)
    stop = threading.Event()

    def others() -> None:
        while not stop.is_set():
            vm["main"](X, Y)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        assert {len(vm.profile("main", X, Y).calls) for _ in range(50)} == {rows}
    finally:
        stop.set()
        thread.join()


def test_the_kernels_that_a_machine_calls_are_compared_with_a_library() -> None:
    x = var("x", (2, 3))
    program = treadle.compile(Module(main=function([x], op.softmax(x, axis=1))), progress=False)
    vm = relax.VirtualMachine(program, tvm.cpu())
    compare = LibCompareVMInstrument(vm.module.imported_modules[0], tvm.cpu(), verbose=False)
    vm.set_instrument(compare)
    vm["main"](tvm.nd.array(np.ones((2, 3), "float32")))
    assert compare.counter == 1
