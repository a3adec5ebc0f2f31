"""Mutants of the example programs may not bring the machine down; runs of fuzzers, and their children."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from treadle.formats.dtypes import DType
from treadle.formats.executable import Executable
from treadle.formats.text.assembly import parse_assembly
from treadle.tools.dev.fuzz import definitions, executables, runs
from treadle.tools.dev.fuzz.changes import change, mutate_bytes, mutate_program, mutate_section, tweak

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


def child(code: str, seconds: float = 240.0) -> runs.Child:
    fuzzer = runs.Fuzzer("", "trial", "", lambda options: str, seconds=seconds)
    start = (
        "import json, os, sys, time\nsay = lambda what: print(json.dumps(what), flush=True)\nsay('ready'); input()\n"
    )
    return runs.Child(fuzzer, start + code)


def outcomes(code: str, *stretches: tuple[int, int], seconds: float = 240.0) -> list[tuple[int, str]]:
    made = child(code, seconds)
    try:
        return [outcome for stretch in stretches for outcome in made.run(*stretch)]
    finally:
        made.stop()


def test_a_dead_child_is_a_finding_and_is_replaced() -> None:
    code = "say([0, 'ran']); print('last words', file=sys.stderr, flush=True); os.kill(os.getpid(), 11)"
    assert outcomes(code, (0, 2), (0, 1)) == [(0, "ran"), (1, "crash -11: last words\n"), (0, "ran")]
    assert runs.is_bad("crash -11")


def test_a_child_that_says_so_may_take_longer() -> None:
    code = "say(None); time.sleep(1); say([5, 'ran']); time.sleep(60)"
    assert outcomes(code, (5, 6), seconds=0.1) == [(5, "ran")]


def test_a_silent_child_is_a_hang() -> None:
    assert outcomes("time.sleep(60)", (5, 6), seconds=0.2) == [(5, "hang")]


def test_a_child_that_does_not_start_ends_the_run() -> None:
    fuzzer = runs.Fuzzer("", "trial", "", lambda options: str)
    with pytest.raises(SystemExit, match=r"(?s)does not start: .*ZeroDivisionError"):
        list(runs.Child(fuzzer, "1 / 0").run(0, 1))


def test_a_run_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = runs.State(seed=3)
    state.add(0, "program: refused VerificationError")
    state.add(1, "program: crash -11")
    state.next = 2
    assert state.tally == {"program: refused VerificationError": 1, "finding": 1}
    state.write(path)
    again = runs.State.read(path, seed=3)
    assert again == state
    assert again.findings == [{"number": 1, "outcome": "program: crash -11"}]
    with pytest.raises(SystemExit, match="seed 3"):
        runs.State.read(path, seed=4)


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


def test_narrow_types_that_no_cast_joins_are_changed_too() -> None:
    array = np.ones(2, DType.float8_e4m3fnuz.numpy)
    assert len({change(Random(seed), array).dtype for seed in range(200)}) > 5


def test_nans_of_narrow_types_are_the_same() -> None:
    none = np.array([np.nan, 1], DType.float8_e8m0fnu.numpy)
    assert definitions._is_close(none, none, 1e-3)
    assert not definitions._is_close(none, none[::-1], 1e-3)
