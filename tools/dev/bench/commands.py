"""`treadle bench`: the numbers that Treadle promises, measured. Rivals run the same work, interleaved with ours; medians count.

dispatch   one instruction of the machine, the call of its kernel included          ns_per_instruction
call       a small network from Python, NumPy arrays in, NumPy arrays out           us_per_call
profiler   ResNet-50 on one thread with a profiler, a recording, and without: CPU time share
cold       a fresh process with a warm cache: import, load, first result            seconds
compile    ResNet-50 with an empty kernel cache, and once more                      seconds
layers     compiling a small transformer of 50, 500 and 5,000 layers                seconds, peak resident bytes
memory     a fresh process that loads a model of the zoo and runs it once           peak resident bytes
threads    sharing a primitive among threads, and models on 1, 2 … threads          us, ms
models     the zoo, model by model: see bench/race.py                               ms
decode     a token with a key/value cache, against a read of the weights: see bench/decode.py      ms, share
paged      a decode step over a paged cache, against a gather by NumPy: see bench/paged.py          ms, share
serve      a request of 1 KB to the server, and to servers that do nothing: see bench/serving.py    us
throughput requests a second of 1, 8 and 64 clients, against servers around onnxruntime: see bench/throughput.py
accuracy   the zoo's errors against a float64 reference: see bench/accuracy.py      root mean square, largest
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ....formats.executable import Executable
from ....formats.program import EXACT
from ....formats.text.assembly import parse_assembly
from ...errors import UsageError
from ...least_calls import dispatch_text
from . import accuracy, decode, depth, race, race_report, scaling, throughput
from .paged import measure_paged
from .serving import measure_serve

if TYPE_CHECKING:
    from ..zoo.catalogue import Entry

_INSTRUCTIONS = 10_000


def add_commands(commands: Any) -> None:
    """Adds `bench` to the command line."""
    bench = commands.add_parser(
        "bench",
        help="measure what Treadle promises",
        epilog=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench.add_argument("what", choices=[*sorted(_BENCHMARKS), *_WITH_OPTIONS])
    bench.add_argument("--repeat", type=int, metavar="N", help="how often each thing is measured")
    race.add_options(bench)
    depth.add_options(bench)
    throughput.add_options(bench)
    bench.set_defaults(command=bench_command)


def bench_command(options: argparse.Namespace) -> int:
    if options.what in _WITH_OPTIONS:
        return _WITH_OPTIONS[options.what](options)
    measure, repeat = _BENCHMARKS[options.what]
    report = measure(options.repeat or repeat)
    if options.json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            print(f"{key:24} {value:.4g}" if isinstance(value, float) else f"{key:24} {value}")
    return 0


# ---- dispatch ----


def measure_dispatch(repeat: int) -> dict[str, Any]:
    """The difference between a long program and a short one, an instruction."""
    from .... import VirtualMachine

    x = np.float32(1)
    texts = [dispatch_text(instructions) for instructions in (_INSTRUCTIONS, 0)]
    functions = [VirtualMachine(Executable(parse_assembly(text)))["main"] for text in texts]
    calls = {name: partial(function, x) for name, function in zip(("long", "short"), functions, strict=True)}
    long, short = race.in_turns(calls, repeat, 10).values()
    return {"ns_per_instruction": (min(long) - min(short)) / _INSTRUCTIONS * 1e9, "instructions": _INSTRUCTIONS}


# ---- call ----


def measure_call(repeat: int) -> dict[str, Any]:
    """The MLP 16-64-64-4 on one row, against onnxruntime's `run` in the same process."""
    from .... import VirtualMachine, compile
    from ..zoo import mlp

    model = mlp()
    x = np.random.default_rng(0).standard_normal((1, 16)).astype(np.float32)
    function = VirtualMachine(compile(model, progress=False))["main"]
    session = _onnxruntime(model.SerializeToString())
    np.testing.assert_allclose(function(x).numpy(), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    calls = {"ours": lambda: function(x).numpy(), "theirs": lambda: session.run(None, {"x": x})}
    ours, theirs = race.in_turns(calls, repeat, 200).values()
    return {"us_per_call": median(ours) * 1e6, "onnxruntime_us_per_call": median(theirs) * 1e6}


def _onnxruntime(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


# ---- a profiler ----


def measure_profiler(repeat: int) -> dict[str, Any]:
    """The cost in CPU time of a profiler (`cost`) and of a recording (`recording`): the median of neighbouring turns with and
    without one, less 1."""
    from .... import VirtualMachine, compile
    from ....vm.observe.profile import Profiler
    from ..zoo import resnet

    machine = VirtualMachine(compile(resnet(50), progress=False), threads=1)
    main, image = machine["main"], np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)

    def turn() -> float:
        start = time.thread_time()
        main(image)
        return time.thread_time() - start

    turn()
    plain, profiled, recorded = [], [], []
    recorder = machine.record("unwritten.trrec")
    for _ in range(repeat):
        plain.append(turn())
        with machine.listening(Profiler()):
            profiled.append(turn())
        with machine.listening(recorder):
            recorded.append(turn())
    return {
        "cost": median(with_it / without for with_it, without in zip(profiled, plain, strict=True)) - 1,
        "recording": median(with_it / without for with_it, without in zip(recorded, plain, strict=True)) - 1,
        "ms_per_call": median(plain) * 1e3,
        "profiled_ms_per_call": median(profiled) * 1e3,
    }


# ---- cold start ----


def measure_cold(repeat: int) -> dict[str, Any]:
    """ResNet-50: `seconds` from the first statement of a process to its first result; `wall_seconds` of the process."""
    from ..zoo import resnet
    from .children import Contest

    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        runs = Contest(Path(folder), resnet(50), {"x": image}).run(repeat)
    return {
        f"{'' if engine == 'treadle' else f'{engine}_'}{key}": median(run[key] for run in measured)
        for engine, measured in runs.items()
        for key in ("seconds", "wall_seconds", "peak_bytes")
    }


# ---- models ----


def race_command(options: argparse.Namespace) -> int:
    """Prints each race when it is over. Raises UsageError for a report of anything but float32, which its page says it is."""
    if options.report and options.precision != EXACT:
        raise UsageError(f"--report is about float32; races of --precision {options.precision} are printed alone")
    found = race.run_races(
        options.only, options.against, options.threads, options.repeat or race.ROUNDS, options.precision
    )
    races = race.told(found, race_report.line, options, lambda each: asdict(each) | {"ratio": each.ratio})
    if not options.json:
        print("\n" + "\n".join(race_report.summary(races)))
    if options.report:
        race_report.write(options.report, races)
    return 0


# ---- memory ----


def memory_command(options: argparse.Namespace) -> int:
    """Models of the zoo, each alone in fresh processes. Exits with 1 if one takes more memory than onnxruntime does."""
    rows = race.told(measure_memory(race.zoo_entries(options.only), options.repeat or 3), _memory_line, options, dict)
    return int(any(row["treadle"] > row["onnxruntime"] for row in rows))


def _memory_line(row: Mapping[str, Any]) -> str:
    sizes = "  ".join(f"{engine} {row[engine] / 1e6:6.1f} MB" for engine in ("treadle", "onnxruntime"))
    return f"{row['model']:24}  {sizes}  {row['treadle'] / row['onnxruntime']:.2f}"


def measure_memory(entries: Iterable[Entry], repeat: int) -> Iterator[dict[str, Any]]:
    """The peak of resident memory of a process that loads a model and runs it once, in bytes, by engine."""
    from ..zoo.catalogue import inputs
    from .children import Contest

    for entry in entries:
        model = entry.build()
        with tempfile.TemporaryDirectory() as folder:
            runs = Contest(Path(folder), model, inputs(entry, model)).run(repeat)
        yield {"model": entry.name} | {
            engine: int(median(run["peak_bytes"] for run in measured)) for engine, measured in runs.items()
        }


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
    from ..zoo import resnet
    from .children import run_child

    cold, warm = [], []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.onnx")
        model.write_bytes(resnet(50).SerializeToString())
        for turn in range(repeat):
            environment = {"TREADLE_CACHE": str(Path(folder, f"cache{turn}"))}
            first = run_child(_COMPILE_CHILD, model, environment=environment)
            cold.append(first["seconds"])
            warm.append(run_child(_COMPILE_CHILD, model, environment=environment)["seconds"])
    return {"seconds": median(cold), "warm_seconds": median(warm), "primitives": int(first["primitives"])}


_BENCHMARKS: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "dispatch": (measure_dispatch, 20),
    "call": (measure_call, 20),
    "cold": (measure_cold, 5),
    "compile": (measure_compile, 1),
    "paged": (measure_paged, 15),
    "profiler": (measure_profiler, 80),
    "serve": (measure_serve, 10),
}
_WITH_OPTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "accuracy": accuracy.accuracy_command,
    "decode": decode.decode_command,
    "layers": depth.layers_command,
    "memory": memory_command,
    "models": race_command,
    "threads": scaling.threads_command,
    "throughput": throughput.throughput_command,
}
