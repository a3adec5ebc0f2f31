"""Fresh processes that load a model, run it once and say what that took: for `treadle bench cold` and `treadle bench memory`."""

from __future__ import annotations

import compileall
import functools
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ....formats.messages.errors import ExecutionError
from ....native import processes

if TYPE_CHECKING:
    import onnx

# The peak of a process' resident memory, in bytes. Linux's VmHWM starts at exec; ru_maxrss, which other systems have, starts with
# what the parent held, in KiB (bytes on macOS).
PEAK_BYTES = """
import sys
def peak_bytes():
    try:
        lines = open("/proc/self/status").read().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    except OSError:
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
"""

# Both engines read the inputs from a file, and print what they used.
_HEAD = """
import time; start = time.perf_counter()
import json, sys
import numpy as np
feeds = dict(np.load(sys.argv[2]))
"""
_TAIL = f"""
seconds = time.perf_counter() - start
{PEAK_BYTES}
print(json.dumps({{"seconds": seconds, "peak_bytes": peak_bytes()}}))
"""
_ENGINES = {
    "treadle": """
import treadle
result = treadle.VirtualMachine(treadle.load(sys.argv[1]))["main"](*feeds.values())
results = [part.numpy() for part in (result if isinstance(result, tuple) else (result,))]
""",
    "onnxruntime": """
import onnxruntime
results = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"]).run(None, feeds)
""",
}


class Contest:
    """A model's files in a folder, one for each engine, and its inputs."""

    def __init__(self, folder: Path, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> None:
        from .... import compile

        self.feeds = folder / "feeds.npz"
        self.models = {"treadle": folder / "model.trdl", "onnxruntime": folder / "model.onnx"}
        self.models["onnxruntime"].write_bytes(model.SerializeToString())
        compile(model, progress=False).export_library(self.models["treadle"])
        np.savez(self.feeds, **feeds)  # type: ignore[arg-type]

    def run(self, repeat: int) -> dict[str, list[dict[str, float]]]:
        """Each process's measurements, by engine: "seconds" from its first statement to its first result, "wall_seconds" and
        "peak_bytes" of the process. Engines take turns; the first turn, which warms the file system's cache, is left out."""
        runs: dict[str, list[dict[str, float]]] = {engine: [] for engine in _ENGINES}
        for turn in range(repeat + 1):
            for engine, code in _ENGINES.items():
                measured = run_child(_HEAD + code + _TAIL, self.models[engine], self.feeds)
                runs[engine] += [measured] if turn else []
        return runs


@functools.cache
def _as_installed() -> None:
    """Python's bytecode lies beside our modules, as that of installed packages does. A checkout may lack it, for good where
    PYTHONDONTWRITEBYTECODE is set: each process would compile the modules again."""
    package = Path(__file__).parents[3]
    compileall.compile_file(package / "__init__.py", quiet=2)
    for folder in package.glob("*/__init__.py"):
        compileall.compile_dir(folder.parent, quiet=2)


def run_child(code: str, *arguments: Path, environment: dict[str, str] | None = None) -> dict[str, float]:
    """Runs Python code in a fresh process, and gives the JSON of its last line of output."""
    _as_installed()
    start = time.perf_counter()
    done = processes.run(code, *arguments, env=os.environ | (environment or {}), capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise ExecutionError(f"the measured process failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1]) | {"wall_seconds": seconds}
