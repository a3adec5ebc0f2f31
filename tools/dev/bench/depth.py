"""`treadle bench layers`: what compiling a small transformer of 50, 500 and 5,000 layers takes, each in a fresh process.

Kernels are not built: layers share them, so that they take the same time for any number of layers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import race
from .children import PEAK_BYTES, run_child

HEADING = "Compile time by layers"
_EXPLANATION = """\
Written by `make bench`. A BERT-like encoder of 16 channels, from the ONNX file to the executable, without building kernels:
layers share them. Seconds are of CPU time; the peak of resident memory is above that of a process with the compiler imported."""
_COLUMNS = {
    "layers": "layers",
    "nodes": "nodes",
    "seconds": "seconds",
    "milliseconds_per_layer": "ms a layer",
    "peak_bytes": "peak MB",
    "model_bytes": "model MB",
    "file_bytes": "file MB",
}

_CHILD = f"""
{PEAK_BYTES}
import json, sys, time
import treadle, treadle.compiler.driver, treadle.compiler.onnx.importer
before, start = peak_bytes(), time.process_time()
executable = treadle.compile(sys.argv[1], progress=False, embed_native=False)
executable.export_library(sys.argv[2])
print(json.dumps({{"seconds": time.process_time() - start, "peak_bytes": peak_bytes() - before}}))
"""


def add_options(bench: argparse.ArgumentParser) -> None:
    group = bench.add_argument_group("layers")
    group.add_argument(
        "--layers", type=race.counts, default=(50, 500, 5000), metavar="N,…", help="default: 50,500,5000"
    )


def layers_command(options: argparse.Namespace) -> int:
    """Prints each number of layers when it is measured."""
    rows = race.told(measure_layers(options.layers), _line, options, dict)
    if options.report:
        from . import race_report

        race_report.write_section(options.report, HEADING, [_EXPLANATION, "", *_table(rows)])
    return 0


def measure_layers(counts: Iterable[int]) -> Iterator[dict[str, Any]]:
    from ..zoo import bert

    for layers in counts:
        with tempfile.TemporaryDirectory() as folder:
            model, made = Path(folder, "model.onnx"), Path(folder, "made.trdl")
            graph = bert(layers, 16, 2, vocabulary=100, length=8)
            model.write_bytes(graph.SerializeToString())
            measured = run_child(_CHILD, model, made)
            yield {
                "layers": layers,
                "nodes": len(graph.graph.node),
                "seconds": measured["seconds"],
                "milliseconds_per_layer": measured["seconds"] / layers * 1e3,
                "peak_bytes": int(measured["peak_bytes"]),
                "model_bytes": model.stat().st_size,
                "file_bytes": made.stat().st_size,
            }


def _line(row: Mapping[str, Any]) -> str:
    return "  ".join(f"{title} {_text(row, key)}" for key, title in _COLUMNS.items())


def _table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(_COLUMNS.values())} |"
    yield "|---" * len(_COLUMNS) + "|"
    for row in rows:
        yield f"| {' | '.join(_text(row, key) for key in _COLUMNS)} |"


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row[key] / 1e6 if key.endswith("_bytes") else row[key]
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
