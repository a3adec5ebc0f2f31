"""The blocks of docs/serving.md run as they stand there, where their package is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
SECTIONS = dict(re.findall(r"^##? (.+?)\n(.*?)(?=^##? |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE))


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTIONS[section], re.DOTALL | re.MULTILINE)


def python(folder: Path, code: str, name: str = "script.py") -> list[str]:
    (folder / name).write_text(code)
    return [sys.executable, name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page")
    subprocess.run(python(made, blocks("Beyond one process", "python")[0]), cwd=made, check=True)
    return made


def needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; make cluster-test has it")


@pytest.mark.parametrize(
    ("section", "package"), [("Batches on this host", "numpy"), ("Ray Data", "ray"), ("Dask", "distributed")]
)
def test_a_script_runs(section: str, package: str, folder: Path) -> None:
    needs(package)
    done = subprocess.run(
        python(folder, blocks(section, "python")[0]), cwd=folder, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def ask(url: str, body: str) -> Any:
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize(
    ("section", "package"),
    [
        ("A server", "uvicorn"),
        ("Ray Serve", "ray"),
        ("KServe", "kserve"),
        ("MLServer", "mlserver"),
        ("LitServe", "litserve"),
    ],
)
def test_a_server_answers_the_request(section: str, package: str, folder: Path) -> None:
    needs(package)
    for name, settings in zip(("model-settings.json", "settings.json"), blocks(section, "json"), strict=False):
        (folder / name).write_text(settings)
    scripts = blocks(section, "python")
    (shell,) = blocks(section, "sh")
    first = shell.split("\n")[0].split()  # of the programs that come with the package
    command = python(folder, scripts[0]) if scripts else [str(Path(sys.executable).with_name(first[0])), *first[1:]]
    ((body, url),) = re.findall(r"curl.* -d '(.*)' (http\S+)", shell)
    with open(folder / "log", "w") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        end = time.monotonic() + 240
        while True:
            try:
                answer = ask(url, body)
                break
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < end, (folder / "log").read_text()
                time.sleep(0.5)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
    output = answer["outputs"][0]["data"] if "outputs" in answer else answer["output"]
    row = np.float32([[0.1, 0.2, 0.3, 0.4]])
    right = treadle.VirtualMachine(treadle.load(folder / "model.trdl"))["main"](row).numpy()
    assert np.allclose(output, right.ravel(), atol=1e-6)


def test_a_script_uses_a_remote_device(folder: Path) -> None:
    needs("uvicorn")
    (shell,), (script,) = blocks("A remote device", "sh"), blocks("A remote device", "python")
    program, *arguments = shell.split()
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    with (
        open(folder / "remote.log", "w") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as server,
    ):
        try:
            end = time.monotonic() + 240
            while "gRPC on" not in (folder / "remote.log").read_text():
                assert server.poll() is None, (folder / "remote.log").read_text()
                assert time.monotonic() < end
                time.sleep(0.2)
            done = subprocess.run(python(folder, script), cwd=folder, capture_output=True, text=True, timeout=300)
        finally:
            server.terminate()
    assert done.returncode == 0, done.stderr
    assert "RemoteTensor(float32[1000, 3]" in done.stdout
