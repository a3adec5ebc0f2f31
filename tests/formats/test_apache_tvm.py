"""Parameter files and Relax executables of Apache TVM's own newest package, both ways. Skipped where that is not installed.

TVM runs in a process of its own, away from this checkout, whose folder `tvm` also answers to `import tvm`. TREADLE_TEST_TVM may
name the Python that has it.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import treadle.tvm
from treadle.formats.param_dict import load_param_dict_from_file, save_param_dict, save_param_dict_to_file
from treadle.tools.cli import main
from treadle.tvm import relax
from treadle.tvm.files.relax_executable import load_relax_executable, pieces
from treadle.tvm.files.relax_program import as_text, check, statistics

PYTHON = os.environ.get("TREADLE_TEST_TVM", sys.executable)
ARRAYS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "i": np.array(-3),
    "empty": np.zeros((0, 4), np.float16),
    "bytes": np.arange(4, dtype=np.uint8),
}
SAVE = """
import sys, numpy, tvm
arrays = numpy.load(sys.argv[1])
tvm.runtime.save_param_dict_to_file({name: tvm.runtime.tensor(arrays[name]) for name in arrays}, sys.argv[2])
"""
LOAD = """
import sys, numpy, tvm
found = tvm.runtime.load_param_dict_from_file(sys.argv[1])
numpy.savez(sys.argv[2], **{name: value.numpy() for name, value in found.items()})
"""

TELL = """
def tell(module, name):
    try:
        stats = module["stats"]()
    except RuntimeError:  # it knows no floats
        stats = ""
    open(name, "w").write(module["as_text"]() + "|" + stats)
"""
BUILDER = (
    TELL
    + """
import numpy, tvm
from tvm import relax
ib = relax.ExecBuilder()
with ib.function("main", num_inputs=2, param_names=["x", "y"]):
    constants = ["hi", tvm.runtime.tensor(numpy.arange(3.0)), 1 << 60, 0.5, tvm.DataType("float32"), tvm.DataType("bool")]
    constants += [tvm.DataType(name) for name in ("float8_e4m3fn", "float8_e5m2", "int4", "float16x4")]
    ib.emit_if(ib.r(0), 3)
    ib.emit_call("test.add", args=[ib.r(0), (2, 3), ib.imm(-7), ib.vm_state(), *map(ib.convert_constant, constants)], dst=ib.r(2))
    ib.emit_goto(2)
    ib.emit_call("test.mul", args=[ib.void_arg(), ib.f("main")], dst=ib.r(2))
    ib.emit_ret(ib.r(2))
module = ib.get().mod
module.write_to_file("program", "")
tell(module, "told")
"""
)
BACK = (
    TELL
    + """
import tvm
tell(tvm.get_global_func("ffi.Module.load_from_file.relax.VMExecutable")("program"), "told")
"""
)
MODEL = (
    TELL
    + """
import sys, numpy, tvm
from tvm import relax
builder = relax.BlockBuilder()
n = tvm.tirx.Var("n", "int64")
x = relax.Var("x", relax.TensorType((n, 4), "float32"))
weights = relax.const(numpy.arange(8, dtype="float32").reshape(4, 2))
with builder.function("main", [x]):
    with builder.dataflow():
        out = builder.emit_output(relax.Tuple([builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, weights)))), x]))
    builder.emit_func_output(out)
made = relax.build(builder.get(), target="llvm", exec_mode=sys.argv[1])
made.export_library("model.so")
made.export_library("model.tar")
tell(made.mod, "told")
if sys.argv[1] == "bytecode":
    result = relax.VirtualMachine(made, tvm.cpu())["main"](tvm.runtime.tensor(numpy.load("x.npy")))
    numpy.savez("result.npz", *[each.numpy() for each in result])
"""
)


def tvm(code: str, folder: Path, *arguments: str) -> None:
    done = subprocess.run([PYTHON, "-c", code, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", autouse=True)
def _there(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tvm")
    if subprocess.run([PYTHON, "-c", "import tvm.runtime"], cwd=folder, capture_output=True).returncode:
        pytest.skip("apache-tvm is not installed; TREADLE_TEST_TVM may name a Python that has it")


def test_files_of_tvm_are_read_and_written_again_byte_for_byte(tmp_path: Path) -> None:
    np.savez(tmp_path / "arrays.npz", **ARRAYS)
    tvm(SAVE, tmp_path, "arrays.npz", "weights.params")
    found = load_param_dict_from_file(tmp_path / "weights.params")
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert save_param_dict(found) == (tmp_path / "weights.params").read_bytes()


def test_tvm_reads_what_is_written_here(tmp_path: Path) -> None:
    save_param_dict_to_file(ARRAYS, tmp_path / "weights.params")
    tvm(LOAD, tmp_path, "weights.params", "arrays.npz")
    found = np.load(tmp_path / "arrays.npz")
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)


def told(folder: Path) -> tuple[str, str]:
    text, _, stats = (folder / "told").read_text().partition("|")
    return text, stats


def test_programs_of_tvms_builder_are_read_and_written_again_byte_for_byte(tmp_path: Path) -> None:
    tvm(BUILDER, tmp_path)
    program = load_relax_executable(tmp_path / "program")
    check(program)
    text, stats = told(tmp_path)
    assert as_text(program) == text
    assert stats in ("", statistics(program))
    assert len(program.constants) == 11
    assert b"".join(pieces(program)) == (tmp_path / "program").read_bytes()


def test_tvm_reads_programs_that_are_written_here(tmp_path: Path) -> None:
    builder = relax.ExecBuilder()
    with builder.function("main", num_inputs=1):
        constants = [treadle.tvm.nd.array(np.arange(3.0)), (2, 3), "text", 0.5, treadle.tvm.DataType("bool")]
        builder.emit_call("test.add", args=[builder.r(0), *constants], dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    built = builder.get()
    built.export_library(tmp_path / "program")
    tvm(BACK, tmp_path)
    assert told(tmp_path)[0] == built.as_text()


@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_models_that_tvm_compiled_run_with_functions_that_are_registered(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).random((3, 4), "float32") - 0.5
    np.save(tmp_path / "x.npy", x)
    tvm(MODEL, tmp_path, "bytecode")
    path = tmp_path / f"model.{suffix}"
    assert main(["dis", str(path)]) == 0
    assert capsys.readouterr().out == told(tmp_path)[0]
    assert main(["info", str(path)]) == 0
    assert "main(x): " in capsys.readouterr().out
    module = treadle.tvm.runtime.load_module(path)
    with pytest.raises(AttributeError, match=r"Cannot find PackedFunc .*matmul"):
        relax.VirtualMachine(module, treadle.tvm.cpu())

    def matmul(a, b, out):
        out.copyfrom(a.numpy() @ b.numpy())

    def relu(a, out):
        out.copyfrom(np.maximum(a.numpy(), 0))

    def shape_func(heap):
        heap.numpy()[1:] = 8 * heap.numpy()[0]  # bytes of a result

    names = [function.name for function in module.program.functions if function.code is None]
    functions = {"matmul": matmul, "relu": relu, "shape_func": shape_func}
    module.import_module(treadle.tvm.runtime.Module({name: functions[name] for name in names if name in functions}))
    result = relax.VirtualMachine(module, treadle.tvm.cpu())["main"](treadle.tvm.nd.array(x))
    expected = np.load(tmp_path / "result.npz")
    for number, each in enumerate(result):
        np.testing.assert_allclose(each.numpy(), expected[f"arr_{number}"], rtol=1e-5)


def test_functions_that_tvm_compiled_to_native_code_are_shown_and_not_run(tmp_path: Path) -> None:
    tvm(MODEL, tmp_path, "compiled")
    module = treadle.tvm.runtime.load_module(tmp_path / "model.so")
    assert module["as_text"]() == told(tmp_path)[0]
    with pytest.raises(AttributeError, match=r"main \(native code of TVM's\)"):
        relax.VirtualMachine(module, treadle.tvm.cpu())
