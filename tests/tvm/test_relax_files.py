"""Programs of the Relax VM in files: written, read, and run where what they call is handed over or registered."""

import contextlib
from random import Random

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.errors import FormatError, TreadleError, UnknownFunctionError
from treadle.formats.relax_executable import save_relax_executable
from treadle.formats.relax_program import VOID, Call, Kind, Operand, RelaxFunction, RelaxProgram, Ret
from treadle.tools.cli import main
from treadle.tools.fuzz_targets import read_corpus
from treadle.tools.mutate import mutate_bytes
from treadle.tvm import relax
from treadle.vm.relax_machine import RelaxMachine
from treadle.vm.relax_module import load_relax_program

A = tvm.nd.array(np.arange(4.0))


def built():
    """main(x) = x + a constant, its shape, and more constants."""
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=1, param_names=["x"]):
        ib.emit_call(
            "test.files.add", args=[ib.r(0), A, (2, 3), "text", 0.5, 1 << 60, tvm.DataType("float32")], dst=ib.r(1)
        )
        ib.emit_ret(ib.r(1))
    return ib.get()


def library():
    return tvm.runtime.Module({"test.files.add": lambda x, a, *rest: tvm.nd.array(x.numpy() + a.numpy())})


@pytest.mark.parametrize("name", ["model.ro", "model.tar", "model.so"])
def test_what_execbuilder_made_goes_into_a_file_and_comes_back(name, tmp_path, capsys):
    built().export_library(tmp_path / name)
    assert main(["dis", str(tmp_path / name)]) == 0
    assert capsys.readouterr().out == built().as_text()
    module = tvm.runtime.load_module(tmp_path / name)
    assert module["as_text"]() == built().as_text()
    assert module["stats"]() == built().stats()
    module.import_module(library())
    np.testing.assert_array_equal(relax.VirtualMachine(module, tvm.cpu())["main"](A).numpy(), 2 * A.numpy())
    np.testing.assert_array_equal(module["main"](A).numpy(), 2 * A.numpy())
    executable = relax.Executable(module)  # and functions of what the module imports
    assert executable.as_text() == built().as_text()
    np.testing.assert_array_equal(relax.VirtualMachine(executable, tvm.cpu())["main"](A).numpy(), 2 * A.numpy())
    with_library = built()
    with_library.mod.import_module(library())
    np.testing.assert_array_equal(relax.VirtualMachine(with_library, tvm.cpu())["main"](A).numpy(), 2 * A.numpy())


def test_all_functions_that_are_missing_are_named_at_once(tmp_path):
    program = RelaxProgram(
        (
            RelaxFunction("main", (), (Call(1, (), VOID), Call(2, (), VOID), Call(3, (), VOID), Ret(VOID)), 0),
            RelaxFunction("matmul"),
            RelaxFunction("softmax"),
            RelaxFunction("compiled", (), None, 1, is_native=True),
        ),
        (),
    )
    save_relax_executable(program, tmp_path / "model.ro")
    module = tvm.runtime.load_module(tmp_path / "model.ro")
    with pytest.raises(UnknownFunctionError, match=r"matmul, softmax, compiled \(native code of TVM's\)"):
        relax.VirtualMachine(module, tvm.cpu())


def test_functions_of_native_code_are_not_taken_from_the_registry(tmp_path):
    program = RelaxProgram((RelaxFunction("test.files.native", (), None, 1, is_native=True),), ())
    save_relax_executable(program, tmp_path / "model.ro")
    tvm.register_func("test.files.native", lambda: None)
    with pytest.raises(UnknownFunctionError, match="native code"):
        relax.VirtualMachine(tvm.runtime.load_module(tmp_path / "model.ro"), tvm.cpu())


def test_constants_that_no_file_has_are_named(tmp_path):
    ib = relax.ExecBuilder()
    with ib.function("main"):
        ib.emit_call("test.files.add", args=[ib.c(0)])
        ib.emit_ret(ib.void_arg())
    program = RelaxProgram(
        (RelaxFunction("main", (), (Call(1, (Operand(Kind.CONSTANT, 0),), VOID), Ret(VOID)), 0), RelaxFunction("f")),
        (object(),),
    )
    with pytest.raises(FormatError, match="constant 0: a object is none of"):
        relax.Executable(program).export_library(tmp_path / "model.ro")
    assert not (tmp_path / "model.ro").exists()


class Enough(Exception):
    """A program ran for long enough."""


def test_whatever_a_changed_program_does_its_errors_are_named():
    functions = dict.fromkeys(("add", "matmul", "relu", "softmax", "shape_func", "test.add", "test.mul"), lambda *_: A)
    outcomes = {"refused": 0, "ran": 0}
    for number in range(3000):
        random = Random(number)
        try:
            program = load_relax_program(mutate_bytes(random, random.choice(read_corpus("relax"))))
            machine = RelaxMachine(program, functions)
        except TreadleError:
            outcomes["refused"] += 1
            continue
        left = iter(range(2000))

        def watch(*_, left=left):
            if next(left, None) is None:
                raise Enough

        machine.instrument = watch
        for function in program.own():
            with contextlib.suppress(TreadleError, Enough):
                machine.call(function.name, [random.choice((A, 3, None, (A, A))) for _ in function.params])
            outcomes["ran"] += 1
    assert min(outcomes.values()) > 200
