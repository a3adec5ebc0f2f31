"""`treadle bench decode`: how near decoding comes to the speed at which memory gives the weights.

A token needs every weight of the matrix products once, so a plain read of as many bytes is what it cannot be faster than.
That read is measured in the same run, in turns with the engines, each of which takes the key/value cache as inputs and gives
the longer one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from .race import OURS, each_count, interleaved, prepare, told, zoo_entries

if TYPE_CHECKING:
    import onnx

    from ..zoo.catalogue import Entry

_MODELS = ("gpt2-decode", "llama-decode")
_PRODUCTS = frozenset({"MatMul", "Gemm"})
_ROUNDS = 15
_READ = "read"


@dataclass(frozen=True)
class Decoding:
    """One model with a number of threads."""

    model: str
    threads: int
    weight_bytes: int
    milliseconds: dict[str, float]  # a token, by engine: medians
    read_milliseconds: float  # of a plain read of the weights
    failures: dict[str, str]

    @property
    def share(self) -> float | None:
        """Our bandwidth as a share of a plain read's."""
        return self.read_milliseconds / self.milliseconds[OURS] if OURS in self.milliseconds else None

    def gigabytes_a_second(self, milliseconds: float) -> float:
        return self.weight_bytes / milliseconds / 1e6


def decode_command(options: argparse.Namespace) -> int:
    """Prints each model when it is measured."""
    found = measure(options.only or _MODELS, options.against, options.threads, options.repeat or _ROUNDS)
    told(found, _line, options, lambda each: asdict(each) | {"share": each.share})
    return 0


def _line(decoding: Decoding) -> str:
    times = [f"{name} {time:8.3f} ms" for name, time in decoding.milliseconds.items()]
    parts = [f"{decoding.model:16} {decoding.threads} threads  {decoding.weight_bytes / 1e6:6.1f} MB", *times]
    if decoding.share is not None:
        speeds = (decoding.milliseconds[OURS], decoding.read_milliseconds)
        ours, read = map(decoding.gigabytes_a_second, speeds)
        parts.append(f"{ours:.1f} of {read:.1f} GB/s: {decoding.share:.0%}")
    return "  ".join([*parts, *(f"{name}: {text}" for name, text in decoding.failures.items())])


def measure(
    models: Sequence[str], rivals: Sequence[str], thread_counts: Sequence[int], rounds: int
) -> Iterator[Decoding]:
    """Raises UsageError for a name that is not in the zoo, or no engine's."""
    return each_count(zoo_entries(models), rivals, thread_counts, partial(_measure, rounds=rounds))


def _measure(entry: Entry, engines: Sequence[str], threads: int, rounds: int) -> Decoding:
    from ...machine_limits import PlainRead
    from ..zoo.catalogue import inputs

    model = entry.build()
    feeds, weights = inputs(entry, model), weight_bytes(model)
    reader = PlainRead(weights, threads)
    calls, _, failures = prepare(engines, model, feeds, threads)
    reads: list[float] = []

    def read() -> list:
        reads.append(reader.seconds())
        return []

    times = interleaved({**calls, _READ: read}, rounds)
    medians = {name: 1e3 * statistics.median(times[name]) for name in calls}
    return Decoding(entry.name, threads, weights, medians, 1e3 * statistics.median(reads), failures)


def weight_bytes(model: onnx.ModelProto) -> int:
    """The bytes of the constants that matrix products read."""
    import onnx

    read = {name for node in model.graph.node if node.op_type in _PRODUCTS for name in node.input}
    return sum(
        prod(weight.dims) * onnx.helper.tensor_dtype_to_np_dtype(weight.data_type).itemsize
        for weight in model.graph.initializer
        if weight.name in read
    )
