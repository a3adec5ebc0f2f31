"""`treadle warmup` and `treadle cache`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import treadle
from treadle.native import platform
from treadle.tools import digits
from treadle.tools.cli import main

# A first request, with what it builds counted: object code that is compiled here, and processes that would
REQUEST = """
import sys
import numpy as np
import treadle
from treadle.native import object_code, processes
builds = []
compile_object, start = object_code.compile_object, processes.Process.__init__
object_code.compile_object = lambda *a, **k: builds.append("here") or compile_object(*a, **k)
processes.Process.__init__ = lambda self, *a, **k: builds.append("process") or start(self, *a, **k)
machine = treadle.VirtualMachine(treadle.load(sys.argv[1]))
for rows in map(int, sys.argv[2:]):
    machine["main"](np.ones((rows, 8), np.float32), np.ones((8, 8), np.float32))
print(len(builds), "numba" in sys.modules)
"""


def in_cache(folder: Path, *command: str) -> str:
    environment = {**os.environ, "TREADLE_CACHE": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a server has it: a model of one size and a dynamic one, without native code."""
    folder = tmp_path_factory.mktemp("models")
    for name, rows in (("static", 4), ("dynamic", "n")):
        x, w = treadle.var("x", (rows, 8)), treadle.var("w", (8, 8))
        module = treadle.Module(main=treadle.function([x, w], treadle.op.softmax(treadle.op.relu(x @ w) + 1.0)))
        treadle.compile(module, progress=False, embed_native=False).export_library(folder / f"{name}.trdl")
    return folder


def test_after_warmup_a_first_request_waits_for_no_build(models: Path, tmp_path: Path) -> None:
    request = [sys.executable, "-c", REQUEST]
    told = json.loads(in_cache(tmp_path, sys.executable, "-m", "treadle", "warmup", str(models), "--json"))
    assert len(told["programs"]) == 2
    assert told["built"] > 2
    assert in_cache(tmp_path, *request, str(models / "static.trdl"), "4") == "0 False\n"
    assert in_cache(tmp_path, *request, str(models / "dynamic.trdl"), "1", "5", "64", "1000") == "0 False\n"
    again = json.loads(in_cache(tmp_path, sys.executable, "-m", "treadle", "warmup", str(models), "--json"))
    assert again["built"] == 0


def test_warmup_needs_a_place_to_keep_things(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("TREADLE_CACHE", "off")
    assert main(["warmup"]) == 2
    assert "nothing that is built can be kept: TREADLE_CACHE is off" in capsys.readouterr().err


def test_warmup_of_a_folder_without_programs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["warmup", str(tmp_path)]) == 2
    assert "there is no executable (*.trdl) in" in capsys.readouterr().err


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a blob of today and one of forty days ago."""
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    platform.cache().put("aa11", b"new")
    platform.cache().put("bb22", b"old")
    then = time.time() - 40 * 86400
    os.utime(tmp_path / "cache" / "bb" / "22", (then, then))
    return tmp_path / "cache"


def test_cache_shows_what_is_there(filled: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["cache", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["folder"], report["files"], report["bytes"]) == (str(filled), 2, 8192)
    assert report["days"] == {"1": 4096, "7": 4096, "30": 4096}
    assert main(["cache", "--size"]) == 0
    assert capsys.readouterr().out == "8192\n"
    assert main(["cache"]) == 0
    assert f"folder   {filled}\nkept     2 files" in capsys.readouterr().out


def test_cache_forgets_what_was_not_used(filled: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["cache", "--older-than", "30d"]) == 0
    assert capsys.readouterr().out == "removed 1 files, 0.0 MB\n"
    assert platform.cache().get("aa11") == b"new"
    assert platform.cache().get("bb22") is None
    assert main(["cache", "--clear"]) == 0
    assert platform.cache().entries() == []


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1y", ""])
def test_an_age_has_a_unit(filled: Path, age: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["cache", f"--older-than={age}"]) == 2
    assert "write a number and its unit, as in 90m, 12h, 30d or 8w" in capsys.readouterr().err
    assert len(platform.cache().entries()) == 2


def test_a_machine_has_nothing_of_ours_but_the_cache_and_what_was_asked_for(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("HOME", "TMPDIR", "here")}
    for folder in folders.values():
        folder.mkdir()
    kept = {name: text for name, text in os.environ.items() if name not in ("TREADLE_CACHE", "XDG_CACHE_HOME")}
    environment = {**kept, "HOME": str(folders["HOME"]), "TMPDIR": str(folders["TMPDIR"])}
    command = [sys.executable, "-m", "treadle", "compile", str(digits.MODEL), "-o", "digits.trdl", "--no-kernels"]
    subprocess.run(command, cwd=folders["here"], env=environment, check=True, capture_output=True)
    found = {name: [each.relative_to(folder) for each in folder.rglob("*")] for name, folder in folders.items()}
    assert {each.parts[:2] for each in found["HOME"]} <= {(".cache",), (".cache", "treadle")}
    assert found["TMPDIR"] == []
    assert found["here"] == [Path("digits.trdl")]
