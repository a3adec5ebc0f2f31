"""The verifier's own test: a check that is taken out fails a test. Here of a few of them; `make verifier` takes each."""

from pathlib import Path

import pytest
from treadle.native import processes
from treadle.tools.dev.fuzz import verifier_mutants


def test_checks_are_found_in_all_layers() -> None:
    found = verifier_mutants.mutants()
    assert len(found) > 150
    assert {mutant.module for mutant in found} == set(verifier_mutants.MODULES)
    assert len(set(map(str, found))) > 0.95 * len(found)


def test_a_mutant_is_gone_afterwards() -> None:
    from treadle.vm.verify.flow import Flow

    mutant = next(each for each in verifier_mutants.mutants() if each.path == ("Flow", "fatal"))
    before = Flow.fatal.__code__
    with verifier_mutants.applied(mutant):
        Flow.fatal(None, 7)  # type: ignore[arg-type]
    assert Flow.fatal.__code__ is before


@pytest.mark.parametrize("sample", [6])
def test_no_check_of_a_sample_is_missed_wherever_one_stands(sample: int, tmp_path: Path) -> None:
    code = f"import sys\nsys.argv = ['', '--sample', '{sample}']\n" + processes.module(
        "treadle.tools.dev.fuzz.verifier_mutants"
    )
    done = processes.run(code, stdout=processes.PIPE, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
