"""Programs of BlockBuilder that call registered functions: they are handed over when a machine is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import treadle
import treadle.tvm as tvm
from treadle.formats.messages.errors import CheckError, ShapeError, UnknownFunctionError
from treadle.tvm import relax
from treadle.tvm.modules.registry import remove_global_func

X = np.arange(4, dtype=np.float32)


@pytest.fixture
def told() -> Iterator[list[Any]]:
    """Registers what the programs call; the list has what they were told."""
    found: list[Any] = []

    def add_one(x: Any) -> Any:
        found.append(type(x))
        return tvm.nd.array(x.numpy() + 1)

    def write(x: Any, y: Any, out: Any) -> None:
        out.copyfrom(x.numpy() * y.numpy())

    def split(x: Any, first: Any, second: Any) -> None:
        first.copyfrom(x.numpy()[:1])
        second.copyfrom(x.numpy() * 2)

    functions = {"add_one": add_one, "write": write, "split": split, "tell": lambda x: found.append(x.numpy().tolist())}
    for name, function in functions.items():
        tvm.register_func(f"test.packed.{name}", function, override=True)
    yield found
    for name in functions:
        remove_global_func(f"test.packed.{name}")


def machine(make: Any, shape: tuple = ("n",)) -> relax.VirtualMachine:
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(make(bb, x))
    return relax.VirtualMachine(relax.build(bb.get(), "llvm"), tvm.cpu())


def test_call_packed_gives_what_the_function_gives(told: list) -> None:
    info = relax.TensorStructInfo(("n",), "float32")
    vm = machine(
        lambda bb, x: bb.emit(relax.op.call_packed("test.packed.add_one", x, sinfo_args=[info])) * relax.const(2.0)
    )
    np.testing.assert_array_equal(vm["main"](tvm.nd.array(X)).numpy(), (X + 1) * 2)
    assert told == [tvm.nd.NDArray]


def test_extern_func_is_called_as_one(told: list) -> None:
    info = relax.TensorStructInfo(("n",), "float32")
    vm = machine(lambda bb, x: bb.emit(relax.Call(relax.ExternFunc("test.packed.add_one"), [x], sinfo_args=[info])))
    np.testing.assert_array_equal(vm["main"](tvm.nd.array(X)).numpy(), X + 1)


def test_call_dps_packed_writes_into_new_tensors(told: list) -> None:
    def make(bb: Any, x: Any) -> Any:
        return bb.emit(relax.call_dps_packed("test.packed.write", [x, x], relax.TensorStructInfo(("n",), "float32")))

    np.testing.assert_array_equal(machine(make)["main"](tvm.nd.array(X)).numpy(), X * X)


def test_call_dps_packed_writes_several(told: list) -> None:
    infos = [relax.TensorStructInfo((1,), "float32"), relax.TensorStructInfo(("n",), "float32")]
    vm = machine(lambda bb, x: bb.emit(relax.call_dps_packed("test.packed.split", x, infos)))
    first, second = vm["main"](tvm.nd.array(X))
    assert (first.numpy().tolist(), second.numpy().tolist()) == ([0.0], (X * 2).tolist())


def test_calls_are_made_in_order_whether_their_results_are_used_or_not(told: list) -> None:
    def make(bb: Any, x: Any) -> Any:
        bb.emit(relax.op.call_packed("test.packed.tell", x))
        doubled = bb.emit(x * relax.const(2.0))
        bb.emit(relax.op.call_packed("test.packed.tell", doubled))
        bb.emit(relax.op.call_packed("test.packed.tell", x))
        return x

    np.testing.assert_array_equal(machine(make)["main"](tvm.nd.array(X)).numpy(), X)
    assert told == [X.tolist(), (2 * X).tolist(), X.tolist()]


def test_results_are_checked(told: list) -> None:
    info = relax.TensorStructInfo((3,), "float32")
    vm = machine(lambda bb, x: bb.emit(relax.op.call_pure_packed("test.packed.add_one", x, sinfo_args=info)))
    with pytest.raises(
        ShapeError, match=r"call_packed test\.packed\.add_one .* expected float32\[3\], got float32\[4\]"
    ):
        vm["main"](tvm.nd.array(X))


def test_functions_that_are_not_registered_are_all_named() -> None:
    def make(bb: Any, x: Any) -> Any:
        bb.emit(relax.op.call_packed("test.packed.nobody", x))
        return bb.emit(relax.call_dps_packed("test.packed.none", x, relax.TensorStructInfo(("n",), "float32")))

    with pytest.raises(UnknownFunctionError, match=r"test\.packed\.nobody .*; .*test\.packed\.none"):
        machine(make)


@pytest.mark.parametrize("hand_over", [list, dict])
def test_an_executable_that_is_loaded_calls_what_it_is_handed(hand_over: type, told: list, tmp_path: Any) -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.op.call_packed("test.packed.add_one", x, sinfo_args=[x.struct_info])))
    path = tmp_path / "model.tar"
    relax.build(bb.get(), "llvm").export_library(str(path))
    for loaded in (tvm.runtime.load_module(str(path)), treadle.load(path)):
        with pytest.raises(
            UnknownFunctionError, match=r"imports a function that it was not given: .*test\.packed\.add_one"
        ):
            relax.VirtualMachine(loaded, tvm.cpu())
    name = "test.packed.add_one"
    imports = [name] if hand_over is list else {name: tvm.get_global_func(name)}
    module = tvm.runtime.load_module(str(path), imports=imports)
    for loaded in (module, relax.Executable(module)):
        vm = relax.VirtualMachine(loaded, tvm.cpu())
        np.testing.assert_array_equal(vm["main"](tvm.nd.array(X)).numpy(), X + 1)


def test_instruments_are_told_of_them(told: list) -> None:
    info = relax.TensorStructInfo(("n",), "float32")
    vm = machine(lambda bb, x: bb.emit(relax.op.call_packed("test.packed.add_one", x, sinfo_args=[info])))
    seen: list[Any] = []
    vm.set_instrument(lambda func, name, before, result, *args: seen.append((name, before, result is None, len(args))))
    vm["main"](tvm.nd.array(X))
    assert seen == [("test.packed.add_one", True, True, 1), ("test.packed.add_one", False, False, 1)]


def test_arguments_of_which_nothing_is_known_are_handed_over_as_they_are(told: list) -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.ObjectStructInfo())
    with bb.function("main", [x]):
        bb.emit(relax.op.call_packed("test.packed.tell", x))
        bb.emit_func_output(x)
    vm = relax.VirtualMachine(relax.build(bb.get()), tvm.cpu())
    assert vm["main"](tvm.nd.array(X)).numpy().tolist() == X.tolist()
    assert told == [X.tolist()]


def test_tensors_that_a_function_writes_have_shapes() -> None:
    with pytest.raises(CheckError, match=r"expected R\.Tensor with a shape"):
        relax.call_dps_packed("test.packed.tell", [], relax.TensorStructInfo(ndim=2))
