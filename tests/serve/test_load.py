"""Many clients at once, while everything else goes wrong: every answer is right to the bit, or a named error."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import numpy as np
import psutil
import pytest
from treadle import VirtualMachine

from . import models

CLIENTS = 64
ERRORS = {
    413: "declares",
    422: "max_memory",
    429: "wait already",
    499: "",
    503: "stops",
    504: "",
}  # by status, what the message says


class Load:
    """Clients of one server, and what they were answered."""

    TIMEOUT = 60.0  # of a client
    KINDS: ClassVar = {"right": 90, "gone": 3, "endless": 2, "large": 2}  # what clients do, and how often

    def __init__(self, folder: Path, port: int) -> None:
        self.begin(folder, port)
        rng = np.random.default_rng(0)
        machine = VirtualMachine(models.rows())
        self.inputs = [rng.standard_normal((1 + number % 3, 8)).astype(np.float32) for number in range(50)]
        twice = [machine["main"](np.concatenate([x, x])).numpy()[: len(x)] for x in self.inputs]
        self.expected = [result.tobytes() for result in twice]

    def begin(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.is_over = threading.Event()
        self.is_stopping = False

    def client(self, seed: int) -> None:
        rng, connection = random.Random(seed), None
        while not self.is_over.is_set():
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.TIMEOUT)
                kind = rng.choices([*self.KINDS], [*self.KINDS.values()])[0]
                if not getattr(self, kind)(rng, connection):
                    connection.close()
                    connection = None
            except (OSError, http.client.HTTPException) as error:
                if not self.is_stopping:
                    self.wrong.append(f"{kind}: {type(error).__name__}: {error}")
                connection = None
                time.sleep(0.01)

    def run(self, process: subprocess.Popen, seconds: float) -> list[int]:
        """Clients and the owner are at work for so long, then the server is stopped. Its memory after each second, in bytes."""
        threads = [threading.Thread(target=self.client, args=(seed,)) for seed in range(CLIENTS)]
        threads.append(threading.Thread(target=self.reload))
        for thread in threads:
            thread.start()
        memory = []
        for _ in range(round(seconds)):
            time.sleep(1)
            memory.append(psutil.Process(process.pid).memory_info().rss)
        self.is_stopping = True
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        self.is_over.set()
        for thread in threads:
            thread.join(60)
        return memory

    def ask(
        self, connection: http.client.HTTPConnection, model: str, x: np.ndarray, **parameters: int
    ) -> tuple[int, bytes]:
        place = {"binary_data_size": x.nbytes}
        tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "parameters": place}
        values = {"inputs": [tensor], "parameters": {"binary_data_output": True, **parameters}}
        head = json.dumps(values).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        connection.request("POST", f"/v2/models/{model}/infer", head + x.tobytes(), headers)
        response = connection.getresponse()
        body = response.read()
        if response.status == 200:
            return 200, body[int(response.getheader("Inference-Header-Content-Length")) :]
        return response.status, body

    def note(self, status: int, body: bytes, *expected: int) -> bool:
        self.answers[str(status)] += 1
        if status not in (*expected, 429, 503) or ERRORS.get(status, "") not in json.loads(body)["error"]:
            self.wrong.append(f"{status}: {body[:200]!r}")
        return status != 413

    # ---- what clients do ----

    def right(self, rng: random.Random, connection: http.client.HTTPConnection) -> bool:
        number = rng.randrange(len(self.inputs))
        status, body = self.ask(connection, "rows", self.inputs[number])
        if status != 200:
            return self.note(status, body)
        self.answers["200"] += 1
        if body != self.expected[number]:
            self.wrong.append(f"input {number}: other bits")
        return True

    def gone(self, rng: random.Random, _: http.client.HTTPConnection) -> bool:
        """Closes its connection while it is answered."""
        body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            head = f"POST /v2/models/endless/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall((head + body)[: rng.randrange(1, len(head + body) + 1)])
        self.answers["gone"] += 1
        return True

    def endless(self, _: random.Random, connection: http.client.HTTPConnection) -> bool:
        status, body = self.ask(connection, "endless", np.ones(1, np.float32), timeout=100_000)
        return self.note(status, body, 504)

    def large(self, _: random.Random, connection: http.client.HTTPConnection) -> bool:
        status, body = self.ask(connection, "rows", np.zeros((20_000, 8), np.float32))
        return self.note(status, body, 422)

    # ---- what the owner does ----

    def reload(self) -> None:
        """Replaces the model's file by the same program, again and again."""
        while not self.is_over.wait(0.3):
            models.rows().export_library(self.folder / "rows.trdl")


def serve(folder: Path) -> tuple[subprocess.Popen, int]:
    command = [
        sys.executable,
        "-m",
        "treadle",
        "serve",
        str(folder),
        "--http-port",
        "0",
        "--grpc-port",
        "-1",
        "--poll",
        "0.2",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "HTTP on" in line:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, int(line.rsplit(":", 1)[1])
    raise AssertionError("the server has not started")


@pytest.mark.serial
@pytest.mark.timeout(1200)
def test_64_clients_while_models_change_and_clients_vanish(tmp_path: Path):
    """TREADLE_LOAD_SECONDS says for how long; the memory of runs of two minutes is compared with that after the first."""
    for name in ("uvicorn", "starlette", "grpc"):
        pytest.importorskip(name)
    seconds = float(os.environ.get("TREADLE_LOAD_SECONDS", "10"))
    models.folder(tmp_path, rows=models.rows(), endless=models.slow())
    (tmp_path / "rows.json").write_text('{"max_memory": 200000}')
    (tmp_path / "endless.json").write_text('{"max_queue": 8, "max_seconds": 0.5}')
    process, port = serve(tmp_path)
    try:
        load = Load(tmp_path, port)
        memory = load.run(process, seconds)
        early, late = memory[min(60, len(memory) // 2) - 1], memory[-1]
        print(dict(load.answers), f"memory {early >> 20} to {late >> 20} MiB")
        assert load.wrong[:5] == []
        assert load.answers["200"] > 10 * seconds
        assert load.answers["422"] > 0
        assert load.answers["504"] > 0
        if seconds >= 120:
            assert late <= 1.05 * early
    finally:
        process.kill()
