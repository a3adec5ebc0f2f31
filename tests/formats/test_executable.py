"""The public value: what can be asked of an executable, and constants that lie in other files."""

from pathlib import Path

import numpy as np
import pytest
from treadle.formats.constants import aligned_copy, gather
from treadle.formats.dtypes import DType
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import ChecksumError, FormatError, UnknownFunctionError
from treadle.formats.primitive import Primitive, PrimitiveDefinition, PrimitiveNode
from treadle.formats.program import Function, Program
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.types import FunctionType, TensorType

from . import examples


def test_looking_inside() -> None:
    executable = examples.executable()
    assert executable.globals == ["main"]
    assert executable.primitive_ops == ["add_0"]
    assert executable.get_function_params("main") == ["x"]
    assert executable.get_function_params("keep") == ["x"]
    assert executable.constants[0].dtype == np.float32
    assert "Constants (#1, 8 B): [float32[2]]" in executable.stats
    assert "Primitive ops (#1): [add_0]" in executable.stats
    assert (executable.stats(), executable.bytecode()) == (executable.stats, executable.bytecode)  # methods elsewhere
    assert "call            add_0 (r0, r1) -> (r2) [2]" in executable.bytecode
    assert executable.as_text() == examples.TEXT


def test_an_unknown_function_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownFunctionError, match="no function 'mian'; the executable has main"):
        examples.executable().get_function_params("mian")


def test_constants_are_copied_unless_they_cannot_change() -> None:
    array = np.arange(3.0)
    executable = Executable(Program((), (array,), (), np.empty(0, np.int64), (), ()))
    array[0] = 7
    assert executable.constants[0].tolist() == [0, 1, 2]
    assert Executable(executable.program).constants[0] is executable.constants[0]


def test_gathered_constants_are_not_copied_again() -> None:
    arrays = [np.arange(5), np.zeros((0, 3), np.float16), np.array(True), np.ones((7, 9), np.float32)]
    together = arrays.copy()
    gather(together, lambda *_: None)
    executable = Executable(Program((), tuple(together), (), np.empty(0, np.int64), (), ()))
    assert all(a is b for a, b in zip(executable.constants, together, strict=True))
    assert [(a.dtype, a.tolist()) for a in together] == [(a.dtype, a.tolist()) for a in arrays]
    alone = Executable(Program((), (together[3],), (), np.empty(0, np.int64), (), ())).constants[0]
    assert not np.shares_memory(alone, together[3])


def test_constants_that_lie_in_something_larger_are_copied(tmp_path: Path) -> None:
    np.arange(64, dtype=np.float32).tofile(tmp_path / "weights")
    mapped = np.memmap(tmp_path / "weights", np.float32, "r")
    part = aligned_copy(np.ones(64, np.float32))[:32]
    part.flags.writeable = False
    found = Executable(Program((), (mapped, part), (), np.empty(0, np.int64), (), ())).constants
    assert not np.shares_memory(found[0], mapped)
    assert not np.shares_memory(found[1], part)


def test_tables_that_disagree_are_refused() -> None:
    scalar = TensorType(DType.float32, ())
    function = Function("f", ("x",), FunctionType((scalar, scalar), scalar), 0, 2, 0, 0, 0, 0)
    with pytest.raises(FormatError, match="1 parameter names, 2 types"):
        Executable(Program((function,), (), (), np.empty(0, np.int64), (), ()))


def test_a_definition_that_uses_later_values_is_refused() -> None:
    node = PrimitiveNode("add", (0, 1), (TensorType(DType.int8, ()),))
    primitive = Primitive("loop", PrimitiveDefinition((TensorType(DType.int8, ()),), (node,), (1,)))
    with pytest.raises(FormatError, match=r"primitive 'loop': node 0 \(add\) uses value 1; 1 values exist before it"):
        Executable(Program((), (), (primitive,), np.empty(0, np.int64), (), ()))


def test_the_library_shows_sources() -> None:
    lib = examples.executable().lib
    assert lib.names == ["add_0"]
    assert "def kernel(args, scratch, part, parts):" in lib.get_source("add_0")
    with pytest.raises(FormatError, match="no source form 'c'; there are python, llvm, asm"):
        lib.get_source("add_0", "c")
    with pytest.raises(UnknownFunctionError, match="no primitive 'sub'; the library has add_0"):
        lib.get_source("sub")


# ---- late-bound constants ----


def with_weights(*values: float) -> Executable:
    weights = tuple(np.full(1000, value, np.float32) for value in values)
    return Executable(Program((), (*weights, np.float32([1, 2])), (), np.empty(0, np.int64), (), ()))


def test_executables_share_a_file_of_constants(tmp_path: Path) -> None:
    for name, values in (("one", (1, 2)), ("two", (2, 3))):
        executable = with_weights(*values).move_late_bound_consts(tmp_path / "weights.trdc", 1000)
        assert list(executable.late_bound_consts) == [0, 1]
        executable.export_library(tmp_path / f"{name}.trdl")
    assert (tmp_path / "one.trdl").stat().st_size < 1500
    assert 3 * 4000 < (tmp_path / "weights.trdc").stat().st_size < 4 * 4000
    for name, values in (("one", (1, 2)), ("two", (2, 3))):
        executable = load(tmp_path / f"{name}.trdl")
        executable.check_constants()
        assert [array[0] for array in executable.constants] == [*values, 1]
        assert (
            load((tmp_path / f"{name}.trdl").read_bytes(), constants=tmp_path / "weights.trdc").constants[1][9]
            == values[1]
        )


def test_a_missing_constants_file_is_named(tmp_path: Path) -> None:
    with_weights(1).move_late_bound_consts(tmp_path / "weights.trdc").export_library(tmp_path / "model.trdl")
    (tmp_path / "weights.trdc").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"needs the constants file '.*weights.trdc'; load it with constants=path"
    ):
        load(tmp_path / "model.trdl")


def test_another_constants_file_is_refused(tmp_path: Path) -> None:
    with_weights(1).move_late_bound_consts(tmp_path / "weights.trdc").export_library(tmp_path / "model.trdl")
    (tmp_path / "weights.trdc").unlink()
    with_weights(2).move_late_bound_consts(tmp_path / "weights.trdc")
    with pytest.raises(FormatError, match=r"weights.trdc has no constant"):
        load(tmp_path / "model.trdl")


def test_damage_in_a_constants_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "weights.trdc"
    with_weights(1).move_late_bound_consts(path).export_library(tmp_path / "model.trdl")
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    executable = load(tmp_path / "model.trdl")
    with pytest.raises(ChecksumError, match=r"constant 0 in the file 'weights.trdc' is not the one"):
        executable.check_constants()


def test_a_file_cannot_make_its_reader_look_elsewhere(tmp_path: Path) -> None:
    executable = with_weights(1).move_late_bound_consts(tmp_path / "weights.trdc")
    (tmp_path / "deep").mkdir()
    data = executable.as_bytes()
    forged = tmp_path / "deep" / "model.trdl"
    for name in ("../weights.trdc", "/etc/passwd", "..", ""):
        constant = executable.late_bound_consts[0]
        copy = executable.move_late_bound_consts(tmp_path / "weights.trdc")
        copy._late_bound[0] = type(constant)(constant.type, constant.crc32, name, constant.key)
        copy.export_library(forged)
        with pytest.raises(FormatError, match="not the plain name"):
            load(forged)
    assert executable.as_bytes() == data


def test_text_refers_to_large_constants_in_a_file(tmp_path: Path) -> None:
    executable = with_weights(5)
    text = executable.as_text(constants_file=tmp_path / "model.trdc")
    assert len(text) < 300
    assert Executable(parse_assembly(text, folder=tmp_path)).as_bytes() == executable.as_bytes()
    with pytest.raises(FormatError, match="say where it is"):
        parse_assembly(text)
