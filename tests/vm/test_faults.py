"""Each call of the system, each block of the engine's memory, and objects of Python's that loading, verifying, linking, building,
running, compiling and saving ask for fail once, in turn: the scene goes on, or fails with a named error; nothing is lost, nothing
is left behind, and the next attempt is right."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FAULTY = Path(__file__).with_name("faulty.py")
ROUNDS = [
    "workers:starts:10000",
    "run:starts:10000",
    "run:calls:10000",
    "save:calls:10000",
    "call:calls:10000",
    "build:calls:10000",
    "compile:calls:10000",
    "run:blocks:10000",
    "build:blocks:10000",
    "call:blocks:10000",
    "run:objects:200",
    "save:objects:200",
    "call:objects:200",
    "compile:objects:40",
]
SAMPLE = ["run:starts:3", "run:calls:6", "save:calls:8", "call:blocks:8"]
SAMPLE_OF_OBJECTS = ["run:objects:12"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is called differs elsewhere")


def problem(found: dict[str, Any], clean: dict[str, Any]) -> str:
    """What is wrong with an outcome; "" if nothing is."""
    lacks_objects = clean["kind"] == "objects"
    if lacks_objects and found.get("died") == -signal.SIGALRM and "threading.py" in found["said"]:
        return ""  # Python's own Thread.start() waits for ever for a thread that had no memory to begin
    if "died" in found:
        return f"exit status {found['died']}: {found['said']}"
    if found["first"].startswith("RAW"):
        return found["first"]
    if not found["again"].startswith("right"):
        return f"the next attempt: {found['again']}"
    more = {
        what: (found[what], clean[what]) for what in ("bytes", "blocks", "descriptors") if found[what] > clean[what]
    }
    if more:
        return f"more than a run without a fault leaves: {more}"
    # a thread that has no memory ends, which Python tells; what it was for is done without it
    unraised = [
        each for each in found["unraised"] if not (lacks_objects and ("Thread" in each or "MemoryError" in each))
    ]
    return " ".join(map(str, found["left"] + unraised))


def fail_in_turn(rounds: list[str], folder: Path) -> None:
    if ":objects:" in rounds[0] and importlib.util.find_spec("_testcapi") is None:
        pytest.skip("this Python has no _testcapi, by which objects fail")
    done = subprocess.run([sys.executable, FAULTY, folder, *rounds], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    problems, clean = [], {}
    tally: dict[str, Counter[str]] = {}
    for found in outcomes:
        name = f"{found['scene']}, {found['kind']}"
        if found["number"] < 0:
            clean = found
            assert found.get("first") == "right", found
        else:
            tally.setdefault(name, Counter())[found.get("first", "died").partition(":")[0]] += 1
        why = problem(found, clean) if found is not clean else ""
        if why:
            problems.append(f"{name}, {found['number']} {found.get('what', '')}: {why}")
    for name, counts in tally.items():
        print(f"\n{name}: {sum(counts.values())} failed: {dict(counts.most_common())}", end="")
    print(f"\n{done.stderr}")
    assert not problems, "\n".join(problems)
    assert len(tally) == len(rounds)


@pytest.mark.parametrize("rounds", [SAMPLE, SAMPLE_OF_OBJECTS], ids=["system", "objects"])
def test_what_a_model_asks_for_may_fail(rounds, tmp_path):
    """Some of each kind; `test_each_…` has all."""
    fail_in_turn(rounds, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # some hundred processes
@pytest.mark.parametrize("turn", ROUNDS)
def test_each_thing_that_a_model_asks_of_the_system_may_fail(turn, tmp_path):
    fail_in_turn([turn], tmp_path)
