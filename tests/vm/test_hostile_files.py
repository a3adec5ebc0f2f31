"""Files of a few kilobytes are loaded or refused within seconds and little memory, whatever they say."""

from __future__ import annotations

import json

import pytest
from treadle.native import processes

from .hostile_files import MAKERS, files

SECONDS = 2.0  # of this process's CPU time
MEGABYTES = 200
BUILD_SECONDS = 1.0

LOAD = """
import json, resource, sys, time
import numpy as np
import treadle
from treadle.compiler.targets.cpu.kernels import lower
from treadle.compiler.targets.cpu.toolchain import kernels  # honest imports do not count
from treadle.vm.core import engine

treadle.VirtualMachine(treadle.load(sys.argv[1]), max_build_seconds=1e9)
for name in sys.stdin.read().split():
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        executable = treadle.load(name)
        imports = {entry.name: print for entry in executable.program.imports}
        treadle.VirtualMachine(executable, imports=imports, max_build_seconds=float(sys.argv[2]))
        outcome = "loaded"
    except treadle.TreadleError as error:
        outcome = f"{type(error).__name__}: {str(error)[:300]}"
    except Exception as error:
        outcome = f"raw {type(error).__name__}: {error}"
    seconds = time.process_time() - start
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(json.dumps([name.rsplit("/")[-1], outcome, round(seconds, 2), megabytes]), flush=True)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list]:
    """The outcome of each file, its seconds and megabytes; all are loaded by one child process, one after the other."""
    folder = tmp_path_factory.mktemp("hostile")
    names = {}
    for number, (name, data) in enumerate(files().items()):
        (folder / str(number)).write_bytes(data)
        names[str(number)] = name
    (folder / "fine").write_bytes(files()["many functions"])
    paths = "\n".join(str(folder / number) for number in names)
    done = processes.run(
        LOAD, folder / "fine", BUILD_SECONDS, input=paths, stdout=processes.PIPE, text=True, timeout=300
    )
    found = {names[number]: rest for number, *rest in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, f"the process died at {list(names.values())[len(found)]!r}"
    return found


def test_the_files_are_small() -> None:
    assert max(map(len, files().values())) <= 32_000


@pytest.mark.serial
@pytest.mark.parametrize("name", MAKERS)
def test_a_small_file_costs_little(outcomes: dict[str, list], name: str) -> None:
    outcome, seconds, megabytes = outcomes[name]
    assert not outcome.startswith("raw"), outcome
    assert seconds < SECONDS, outcome
    assert megabytes < MEGABYTES, outcome
