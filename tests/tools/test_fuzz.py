"""Mutants of the example programs, and random programs: neither may bring the machine down."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import TreadleError
from treadle.formats.text.assembly import parse_assembly
from treadle.tools.dev.fuzz import executables
from treadle.tools.dev.fuzz.changes import mutate_bytes, mutate_program, mutate_section, tweak
from treadle.tools.dev.fuzz.random_program import random_program
from treadle.tools.dev.fuzz.stand_ins import stand_ins
from treadle.tools.dev.fuzz.state import is_bad
from treadle.vm.context import live_bytes
from treadle.vm.machine import VirtualMachine
from treadle.vm.verify.verifier import verify

PROGRAMS = Path(__file__).parent.parent / "vm" / "programs"


def test_mutants_are_refused_or_run_within_bounds(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    assert executables.main(["--count", "2000", "--corpus", str(PROGRAMS), "--state", str(state)]) == 0
    saved = json.loads(state.read_text())
    assert saved["next"] == 2000 == sum(saved["tally"].values())
    assert saved["findings"] == []


def test_a_mutant_is_a_function_of_seed_and_number() -> None:
    program = parse_assembly((PROGRAMS / "loop.tasm").read_text())
    original = executables.Original("loop", program, Executable(program).as_bytes(), ())

    def mutants(seed: int) -> list[bytes]:
        made = [executables.make_mutant([original], seed, number)[2] for number in range(40)]
        return [mutant for mutant in made if isinstance(mutant, bytes)]

    assert mutants(1) == mutants(1) != mutants(2)


def test_a_dead_child_is_a_finding_and_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = executables.Child(tmp_path, 0, tmp_path / "log")
    child._code = (
        "import os; print('ready', flush=True); input();"
        "print('0 program: ran, same result', flush=True); os.kill(os.getpid(), 11)"
    )
    outcomes = list(child.run(0, 2)) + list(child.run(0, 1))
    child.stop()
    assert outcomes == [(0, "program: ran, same result"), (1, "crash -11"), (0, "program: ran, same result")]
    assert is_bad("crash -11")


def test_a_child_that_builds_a_kernel_may_take_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "HANG_SECONDS", 0.1)
    child = executables.Child(tmp_path, 0, tmp_path / "log")
    child._code = (
        "import time; print('ready', flush=True); input(); print('building', flush=True); time.sleep(1);"
        "print('5 definition: ran, same result', flush=True); time.sleep(60)"
    )
    assert list(child.run(5, 6)) == [(5, "definition: ran, same result")]
    child.stop()


def test_a_silent_child_is_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "HANG_SECONDS", 0.2)
    child = executables.Child(tmp_path, 0, tmp_path / "log")
    child._code = "import time; print('ready', flush=True); time.sleep(60)"
    assert list(child.run(5, 6)) == [(5, "hang")]


def test_a_run_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = executables.State(seed=3)
    state.add(0, "program: refused VerificationError")
    state.add(1, "program: crash -11")
    state.next = 2
    state.write(path)
    again = executables.State.read(path, seed=3)
    assert again == state
    assert again.findings == [{"number": 1, "outcome": "program: crash -11"}]
    with pytest.raises(SystemExit, match="seed 3"):
        executables.State.read(path, seed=4)


def test_mutations_keep_kinds_and_change_something() -> None:
    program = parse_assembly((PROGRAMS / "shapes.tasm").read_text())
    data = Executable(program).as_bytes()
    random = Random(0)
    assert all(-(1 << 63) <= tweak(random, number) < 1 << 63 for number in (0, -1, (1 << 63) - 1) for _ in range(50))
    assert any(mutate_bytes(random, data) != data for _ in range(3))
    assert any(mutate_section(random, data) != data for _ in range(3))
    for _ in range(100):
        mutant = mutate_program(random, program)
        assert mutant.code.dtype == np.int64
        assert sum(f.length for f in mutant.functions) >= 0


@pytest.mark.parametrize("seed", range(15))
def test_random_programs_verify_round_trip_and_run(seed: int) -> None:
    program = parse_assembly(random_program(Random(seed)))
    verify(program)
    executable = Executable(program)
    data = executable.as_bytes()
    assert load(data).as_bytes() == data
    assert Executable(parse_assembly(executable.as_text())).as_bytes() == data
    imports = stand_ins(program)
    machine = VirtualMachine(
        executable, imports=imports, max_steps=20_000, max_seconds=5, max_memory=64 << 20, max_depth=100
    )

    def outcome() -> str:
        try:
            return executables.describe(machine["main"](np.ones(2, np.float32), np.array(3)))
        except TreadleError as error:
            return str(error)

    before = live_bytes()
    assert outcome() == outcome()
    assert live_bytes() == before
