"""Each call of the system that loading, linking, building, running, compiling and saving make fails once, each in turn: the call
goes on, or fails with a named error; nothing is lost, nothing is left behind, and the next call is right."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import treadle
from treadle.vm import core, native

sys.path.insert(0, str(Path(__file__).parent))
import faulty

pytestmark = [
    pytest.mark.slow,  # some hundred processes
    pytest.mark.skipif(sys.platform != "linux", reason="what is called differs elsewhere"),
]


@pytest.fixture(scope="module")
def cached_engine(tmp_path_factory) -> Path:
    """A cache that holds the engine, and no kernel."""
    core.engine()
    code = native.cache().get(core._key())
    folder = tmp_path_factory.mktemp("engine") / "cache"
    if code is not None:
        native.ObjectCache(folder).put(core._key(), code)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.trdl"
    treadle.compile(faulty.module(), progress=False, embed_native=False).export_library(path)
    return path


def in_process(scene: str, number: int, folder: Path, cache: Path, model: Path) -> dict[str, Any]:
    """What came of a scene in a process of its own, on copies of the cache and the model."""
    shutil.copytree(cache, folder / "cache")
    shutil.copy(model, folder / "model.trdl")
    shutil.copy(model, folder / "saved.trdl")  # what was there before
    command = [sys.executable, faulty.__file__, scene, str(number), str(folder)]
    environment = os.environ | {"TREADLE_CACHE": str(folder / "cache"), "TREADLE_JOBS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    found["left"] = [path.name for path in folder.rglob(".*")]
    return found


def problem(found: dict[str, Any]) -> str:
    """What is wrong with an outcome."""
    if found["first"].startswith("RAW"):
        return f"raw: {found['first']}"
    if not found["again"].startswith("right"):
        return f"the next call: {found['again']}"
    if found["kept"] != treadle_magic():
        return "the file that was there is lost"
    if found["left"]:
        return f"left behind: {found['left']}"
    return f"{found['descriptors']} open files" if found["descriptors"] > 2 else ""


def treadle_magic() -> str:
    from treadle.formats.container import MAGIC

    return MAGIC[:4].hex()


def fail_in_turn(scene: str, cache: Path, model: Path, tmp_path: Path, step: int) -> None:
    """Every `step`th call fails, each in a process of its own."""
    (tmp_path / "all").mkdir()
    calls = in_process(scene, -1, tmp_path / "all", cache, model)
    assert (calls["first"], problem(calls)) == ("right", "")

    def inject(number: int) -> dict[str, Any]:
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            return in_process(scene, number, folder, cache, model)
        finally:
            shutil.rmtree(folder)

    numbers = range(0, len(calls["calls"]), step)
    with ThreadPoolExecutor(2) as pool:
        outcomes = dict(zip(numbers, pool.map(inject, numbers), strict=True))
    tally = Counter(outcome["first"].partition(":")[0] for outcome in outcomes.values())
    print(f"\n{scene}: {len(outcomes)} of {len(calls['calls'])} calls failed: {dict(tally.most_common())}")
    problems = {f"{number} {calls['calls'][number]}": problem(each) for number, each in outcomes.items()}
    assert not {what: why for what, why in problems.items() if why}


def test_calls_of_a_warm_start_may_fail(cached_engine, model, tmp_path):
    """Kernels are there: nothing is built."""
    (tmp_path / "first").mkdir()
    in_process("run", -1, tmp_path / "first", cached_engine, model)
    fail_in_turn("run", tmp_path / "first" / "cache", model, tmp_path, 1)


@pytest.mark.parametrize("scene", ["run", "compile_and_save"])
def test_each_call_of_building_and_saving_may_fail(scene, cached_engine, model, tmp_path):
    fail_in_turn(scene, cached_engine, model, tmp_path, 1)
