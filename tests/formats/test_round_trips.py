"""The laws of the formats: what is written is read back, as bytes and as text."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import ArgumentError
from treadle.formats.program import Program
from treadle.formats.sections import decode_definition, encode_definition
from treadle.formats.text.assembly import parse_assembly, print_assembly
from treadle.formats.text.dis import dis

from . import strategies

quick = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(strategies.programs(), strategies.native_code)
def test_bytes_hold_everything(program: Program, native: dict) -> None:
    data = Executable(program, native).as_bytes()
    loaded = load(data)
    loaded.check_constants()
    assert loaded.native == {target: dict(kernels) for target, kernels in native.items()}
    assert loaded.program.functions == program.functions
    assert loaded.program.data_types == program.data_types
    assert loaded.program.types == program.types
    assert loaded.program.source_map == program.source_map
    assert loaded.program.metadata == program.metadata
    assert loaded.as_bytes() == data


@quick
@given(strategies.programs())
def test_executable_to_text_to_executable_gives_the_same_bytes(program: Program) -> None:
    data = Executable(program).as_bytes()
    text = load(data).as_text()
    assert Executable(parse_assembly(text)).as_bytes() == data


@quick
@given(strategies.programs())
def test_text_to_executable_to_text_is_the_identity(program: Program) -> None:
    text = print_assembly(program)
    assert print_assembly(load(Executable(parse_assembly(text)).as_bytes()).program) == text


@quick
@given(strategies.definitions())
def test_definitions_have_one_encoding(definition) -> None:
    data = encode_definition(definition)
    assert encode_definition(decode_definition(data)) == data


@quick
@given(strategies.programs())
def test_dis_shows_every_word_once(program: Program) -> None:
    assert sum(instruction.size for instruction in dis(program)) == len(program.code)


def test_two_parts_make_the_executable_again() -> None:
    program = parse_assembly("func @main(x: float32[]) -> float32[] {\n ret r0\n}")
    executable = Executable(program, {"x86": {"ab": strategies.NativeKernel(b"code", (1,), 2, 3)}})
    code, lib = executable.save()
    assert Executable.load_exec(code, lib).as_bytes() == executable.as_bytes()
    assert not Executable.load_exec(code).native
    with pytest.raises(ValueError, match="has no section 'globals'"):
        load(lib)


def test_what_save_writes_is_what_export_library_writes(tmp_path: Path) -> None:
    program = parse_assembly("func @main(x: float32[]) -> float32[] {\n ret r0\n}")
    executable = Executable(program)
    executable.save(tmp_path / "a.trdl")
    executable.export_library(tmp_path / "b.trdl")
    assert (tmp_path / "a.trdl").read_bytes() == (tmp_path / "b.trdl").read_bytes() == executable.as_bytes()


@pytest.mark.parametrize("source", [5, None, 1.5, ["model.trdl"]])
def test_a_source_that_is_none(source: object) -> None:
    for read in (Executable.load_exec, load):
        with pytest.raises(ArgumentError, match="expected a path or the bytes of a file"):
            read(source)  # type: ignore[operator]
