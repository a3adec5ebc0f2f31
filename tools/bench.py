"""`treadle bench`: the numbers that Treadle promises, measured. Rivals run the same work, interleaved with ours; medians count.

dispatch   one instruction of the machine, the call of its kernel included          ns_per_instruction
call       a small network from Python, NumPy arrays in, NumPy arrays out           us_per_call
cold       a fresh process with a warm cache: import, load, first result            seconds
compile    ResNet-50 with an empty kernel cache, and once more                      seconds
models     the zoo, model by model: see tools/race.py                               ms
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from . import race

_INSTRUCTIONS = 10_000


def _median(values: Iterable[float]) -> float:
    import statistics  # 10 ms, which the other commands of `treadle` need not pay

    return statistics.median(values)


def add_commands(commands: Any) -> None:
    """Adds `bench` to the command line."""
    bench = commands.add_parser(
        "bench",
        help="measure what Treadle promises",
        epilog=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench.add_argument("what", choices=[*sorted(_BENCHMARKS), "models"])
    bench.add_argument("--repeat", type=int, metavar="N", help="how often each thing is measured")
    race.add_options(bench)
    bench.set_defaults(command=bench_command)


def bench_command(options: argparse.Namespace) -> int:
    if options.what == "models":
        return race.race_command(options)
    measure, repeat = _BENCHMARKS[options.what]
    report = measure(options.repeat or repeat)
    if options.json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            print(f"{key:24} {value:.4g}" if isinstance(value, float) else f"{key:24} {value}")
    return 0


# ---- dispatch ----


def _dispatch_text(instructions: int) -> str:
    """A program of so many calls of the least kernel there is: `add` of two float32."""
    calls = "".join(f"  call add (r0, r{1 + i % 2}) -> (r{2 - i % 2})\n" for i in range(instructions))
    return f"""\
prim add(%0: float32[], %1: float32[]) -> float32[] {{
  %2 = add(%0, %1) : float32[]
  return %2
}}

func @main(x: float32[]) -> float32[] {{
  frame_tensor r1, float32[], 0
  frame_tensor r2, float32[], 64
  alloc_tensor r3, float32[]
  call add (r0, r0) -> (r1)
{calls}  call add (r1, r0) -> (r3)
  ret r3
}}
"""


def measure_dispatch(repeat: int) -> dict[str, Any]:
    """The difference between a long program and a short one, an instruction."""
    import numpy as np

    from .. import VirtualMachine
    from ..formats.assembly import parse_assembly
    from ..formats.executable import Executable

    x = np.float32(1)
    texts = [_dispatch_text(instructions) for instructions in (_INSTRUCTIONS, 0)]
    functions = [VirtualMachine(Executable(parse_assembly(text)))["main"] for text in texts]
    long, short = _interleaved([partial(function, x) for function in functions], repeat, calls=10)
    return {"ns_per_instruction": (min(long) - min(short)) / _INSTRUCTIONS * 1e9, "instructions": _INSTRUCTIONS}


# ---- call ----


def measure_call(repeat: int) -> dict[str, Any]:
    """The MLP 16-64-64-4 on one row, against onnxruntime's `run` in the same process."""
    import numpy as np

    from .. import VirtualMachine, compile
    from .zoo import mlp

    model = mlp()
    x = np.random.default_rng(0).standard_normal((1, 16)).astype(np.float32)
    function = VirtualMachine(compile(model, progress=False))["main"]
    session = _onnxruntime(model.SerializeToString())
    np.testing.assert_allclose(function(x).numpy(), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    ours, theirs = _interleaved([lambda: function(x).numpy(), lambda: session.run(None, {"x": x})], repeat, calls=200)
    return {
        "us_per_call": _median(ours) * 1e6,
        "onnxruntime_us_per_call": _median(theirs) * 1e6,
    }


def _onnxruntime(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _interleaved(functions: Sequence[Callable[[], object]], repeat: int, calls: int) -> list[list[float]]:
    """Seconds a call of each function, `repeat` times; a slow moment of the machine hits all of them."""
    for function in functions:
        for _ in range(calls):
            function()
    found: list[list[float]] = [[] for _ in functions]
    for _ in range(repeat):
        for times, function in zip(found, functions, strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                function()
            times.append((time.perf_counter() - start) / calls)
    return found


# ---- cold start ----

# Both read the input from a file, and print what they used. Linux's VmHWM starts at exec; ru_maxrss, which other systems
# have, starts with what the parent held, in KiB (bytes on macOS).
_CHILD_HEAD = """
import time; start = time.perf_counter()
import json, sys
import numpy as np
x = np.load(sys.argv[2])
"""
_CHILD_TAIL = """
seconds = time.perf_counter() - start
try:
    lines = open("/proc/self/status").read().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
except OSError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps({"seconds": seconds, "peak_bytes": peak, "checksum": float(np.abs(result).sum())}))
"""
_TREADLE_CHILD = """
import treadle
result = treadle.VirtualMachine(treadle.load(sys.argv[1]))["main"](x).numpy()
"""
_ONNXRUNTIME_CHILD = """
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
result = session.run(None, {"x": x})[0]
"""


def measure_cold(repeat: int) -> dict[str, Any]:
    """ResNet-50: `seconds` from the first statement of a process to its first result; `wall_seconds` of the process."""
    import numpy as np

    from .. import compile
    from .zoo import resnet

    with tempfile.TemporaryDirectory() as folder:
        model, executable, image = (Path(folder, name) for name in ("model.onnx", "model.trdl", "x.npy"))
        model.write_bytes(resnet(50).SerializeToString())
        compile(model, progress=False).export_library(executable)
        np.save(image, np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32))
        children = {"": (_TREADLE_CHILD, executable), "onnxruntime_": (_ONNXRUNTIME_CHILD, model)}
        runs: dict[str, list[dict[str, float]]] = {prefix: [] for prefix in children}
        for turn in range(repeat + 1):  # the first one warms the file system's cache, and ours
            for prefix, (code, path) in children.items():
                measured = _child(_CHILD_HEAD + code + _CHILD_TAIL, path, image)
                runs[prefix] += [measured] if turn else []
    report: dict[str, Any] = {}
    for prefix, measured_runs in runs.items():
        for key in ("seconds", "wall_seconds", "peak_bytes"):
            report[prefix + key] = _median(run[key] for run in measured_runs)
    return report


def _child(code: str, *arguments: Path, environment: dict[str, str] | None = None) -> dict[str, float]:
    """Runs Python code in a fresh process, and gives the JSON of its last line of output."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        from ..formats.errors import ExecutionError

        raise ExecutionError(f"the measured process failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1]) | {"wall_seconds": seconds}


# ---- compile ----

_COMPILE_CHILD = """
import json, sys, time
import treadle
start = time.perf_counter()
executable = treadle.compile(sys.argv[1], progress=False)
print(json.dumps({"seconds": time.perf_counter() - start, "primitives": len(executable.program.primitives)}))
"""


def measure_compile(repeat: int) -> dict[str, Any]:
    """ResNet-50 with an empty kernel cache (`seconds`), and with the cache that this left (`warm_seconds`)."""
    from .zoo import resnet

    cold, warm = [], []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.onnx")
        model.write_bytes(resnet(50).SerializeToString())
        for turn in range(repeat):
            environment = {"TREADLE_CACHE": str(Path(folder, f"cache{turn}"))}
            first = _child(_COMPILE_CHILD, model, environment=environment)
            cold.append(first["seconds"])
            warm.append(_child(_COMPILE_CHILD, model, environment=environment)["seconds"])
    return {
        "seconds": _median(cold),
        "warm_seconds": _median(warm),
        "primitives": int(first["primitives"]),
    }


_BENCHMARKS: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "dispatch": (measure_dispatch, 20),
    "call": (measure_call, 20),
    "cold": (measure_cold, 5),
    "compile": (measure_compile, 1),
}
