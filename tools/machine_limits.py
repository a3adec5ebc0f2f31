"""This machine's peak rates, measured once by kernels that do nothing else: multiply-adds, and reading. Also how far its
cores are from each other, which changes where they are a host's.

It takes a fraction of a second, and is kept in the cache folder, for this machine, its CPU and this number of threads. What was
measured while other programs took the cores, or what no CPU can be, is said to be doubtful and not kept.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import math
import mmap
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..compiler.targets.cpu.products.amx import ROWS, AmxSums
from ..compiler.targets.cpu.products.precision import BYTES, Precision
from ..compiler.targets.cpu.products.tile import multiply_add
from ..compiler.targets.cpu.target import Target, host
from ..compiler.targets.cpu.toolchain.worker import compile_kernel
from ..compiler.targets.cpu.vectors.amx import ROW_BYTES, SUMS
from ..formats.dtypes import DType
from ..native import platform as native
from ..native import sources
from ..vm.library import PROTOTYPE
from .steady import Measured, seconds_of_a_round

_PEAKS = ("float32", "float64", "int8")  # whose multiply-adds are measured
_CHAINS = 12  # of multiply-adds that do not wait for each other: two units of four cycles need 8
_STREAMS = 8  # vectors that are read at a time
_RUNS = 5  # of which the best counts
_MOST_BYTES = 256 << 20  # to be read from memory
_MEMORY = 4  # times the last-level cache

# What a core can be, with room for those of some years to come: clocks in Hz, instructions a clock
_CLOCKS = (0.4e9, 8e9)  # of a core that saves power, and beyond the fastest that is sold (6.2 GHz)
_PORTS = 4  # that multiply and add (Neoverse V2 has 4 of 16 bytes, x86 has 2), and that load
_SLOWEST_READ = 0.1e9  # bytes a second: what memory gave in 1995
_OUTWARDS = 1.5  # a place further away is no faster than the one before it, but for this factor of noise

_TRIPS = 10_000  # of a word between two cores, which take a few milliseconds


@dataclass(frozen=True)
class Level:
    """A place that data comes from: how much of it one thread may take, and how fast all threads together read it."""

    name: str
    capacity: int  # bytes
    bandwidth: float  # bytes a second


@dataclass(frozen=True)
class Limits:
    """Limits of several threads together. `levels` are from the nearest on; the last one is the memory."""

    threads: int
    float32: float  # operations a second, a multiply-add being two
    float64: float
    int8: float  # with int32 sums
    levels: tuple[Level, ...]
    doubts: tuple[str, ...] = ()  # why not to trust them; a sentence each

    def peak(self, dtype: DType) -> float:
        """Of sums of products of such elements."""
        return {DType.float64: self.float64, DType.int8: self.int8, DType.uint8: self.int8}.get(dtype, self.float32)

    def bandwidth(self, size: int) -> float:
        """The bandwidth of the nearest level that holds `size` bytes."""
        return next((level for level in self.levels[:-1] if size <= level.capacity), self.levels[-1]).bandwidth


def limits(threads: int, again: bool = False) -> Limits:
    """This machine's limits with `threads` threads: from the cache, unless it does not have them or `again` is asked for."""
    target, cache = host(), native.cache()
    source = "".join(_multiply_text(name, target) for name in _PEAKS) + _read_text("float32", target)
    cpu = f"{native.processor_identity()} {target.key} {target.l3_bytes}"
    identity = f"limits {platform.node()} {cpu} {threads} {native.toolchain()}\n{source}"
    key = hashlib.sha256(identity.encode()).hexdigest()
    known = None if again else cache.get(key)
    if known is not None:
        facts = json.loads(known)
        return Limits(**(facts | {"levels": tuple(Level(**level) for level in facts["levels"]), "doubts": ()}))
    if not again and key in _doubtful:
        return _doubtful[key]
    found = _measure(threads, target)
    if found.doubts:
        _doubtful[key] = found
    else:
        cache.put(key, json.dumps(asdict(found)).encode())
    return found


_doubtful: dict[str, Limits] = {}  # by key: one command measures once, and the next one again


def _measure(threads: int, target: Target) -> Limits:
    memory = min(_MEMORY * target.l3_bytes, _MOST_BYTES // threads)
    places = (
        ("L2", target.l2_bytes, target.l2_bytes // 2),
        ("L3", target.l3_bytes * threads, target.l3_bytes // 2),
        ("memory", memory * threads, memory),
    )
    peaks = {name: _peak(name, threads, target) for name in _PEAKS}
    reads = {name: _bandwidth(size, threads, target) for name, _, size in places}
    levels = tuple(Level(name, capacity, 1 / reads[name].seconds) for name, capacity, _ in places)
    rates = {name: 1 / each.seconds for name, each in peaks.items()}
    found = Limits(threads, rates["float32"], rates["float64"], rates["int8"], levels)
    unsteady = [name for name, each in {**peaks, **reads}.items() if not each.is_steady]
    doubts = [f"other programs took the cores while {', '.join(unsteady)} was measured"] if unsteady else []
    return dataclasses.replace(found, doubts=(*doubts, *implausible(found, target)))


def implausible(found: Limits, target: Target) -> list[str]:
    """Implausible figures, a sentence each: a peak is clock times lanes times ports times two."""
    cores = min(found.threads, os.cpu_count() or 1)
    slow, fast = _CLOCKS[0] * cores, _CLOCKS[1] * cores
    doubts = []
    for name in _PEAKS:
        lanes = target.lanes(8 if name == "float64" else 4)
        rate, least, most = getattr(found, name), slow * lanes / 4, fast * lanes * _products(name, target) * _PORTS * 2
        if not least <= rate <= most:
            doubts.append(_outside(f"{name} operations", rate, least, most))
    most = fast * _PORTS * target.vector_bytes
    for level in found.levels:
        if not _SLOWEST_READ <= level.bandwidth <= most:
            doubts.append(_outside(f"bytes read from {level.name}", level.bandwidth, _SLOWEST_READ, most))
        most = min(most, level.bandwidth * _OUTWARDS)
    return doubts


def _outside(what: str, rate: float, least: float, most: float) -> str:
    return f"{rate / 1e9:.3g}e9 {what} a second are none of the {least / 1e9:.3g}e9 to {most / 1e9:.3g}e9 that can be"


# ---- kernels, by the convention of kernels/kernel.py; words are their arguments ----


def _products(name: str, target: Target) -> int:
    """Multiply-adds in a lane by an instruction; of AMX, in as much time."""
    if name != "int8":
        return 1
    return 64 if target.amx else 8 if target.square else 4


def _multiply_text(name: str, target: Target) -> str:
    """word 0: where to leave the sums, after which there is a zero that the compiler must not know, word 1: how many rounds."""
    sums = [f"sum_{i}" for i in range(_CHAINS)]
    precision = BYTES.on(target, is_even=True) if name == "int8" else Precision.plain(DType[name])
    amx = AmxSums.of(precision, ROWS, target)
    if amx:
        lines = ["amx = word(args, 0)"]
        amx.write_begin(lambda *each: lines.extend(each), str(ROWS))
        products = [f"    amx_{target.amx}_{number}()" for number in SUMS]
        return _kernel([*lines, "for i in range(word(args, 1)):", *products, "amx_end()"])
    lines = [
        f"x = {precision.broadcast(f'word(args, 0), {_CHAINS * target.vector_bytes}')}",
        *(f"{total} = splat_{precision.summed.name}(1)" for total in sums),
    ]
    if precision.square:
        products = [f"    {total} = {target.square}({total}, {total}, x)" for total in sums]
    else:
        products = [f"    {multiply_add(total, total, 'x', target, precision)}" for total in sums]
    lines += ["for i in range(word(args, 1)):", *products]
    return _kernel([*lines, *_stores(sums, target)])


def _read_text(name: str, target: Target) -> str:
    """word 0: where to leave the sums, word 1: how many rounds, word 2: where to read, word 3: how many bytes."""
    sums, size = [f"sum_{i}" for i in range(_STREAMS)], target.vector_bytes
    lines = ["at = word(args, 2)", *(f"{total} = splat_{name}(0.0)" for total in sums)]
    lines += ["for i in range(word(args, 1)):", f"    for place in range(0, word(args, 3), {_STREAMS * size}):"]
    lines += [f"        {total} = {total} + vload_{name}(at, place + {i * size})" for i, total in enumerate(sums)]
    return _kernel([*lines, *_stores(sums, target)])


def _hand_over_text() -> str:
    """word 1: how many rounds, word 2: where what is handed over lies, which begins as 0, word 3: the value that this thread
    waits for first, to make it one more."""
    lines = ["place = word(args, 2)", "mine = word(args, 3)", "end = mine + 2 * word(args, 1)"]
    lines += ["while mine < end:", "    if atomic_load(place, 0) == mine:"]
    return _kernel([*lines, "        atomic_store(place, 0, mine + 1)", "        mine += 2"])


def _stores(sums: Sequence[str], target: Target) -> list[str]:
    return [f"vstore(word(args, 0), {i * target.vector_bytes}, {total})" for i, total in enumerate(sums)]


def _kernel(lines: Sequence[str]) -> str:
    return "\n    ".join(["def kernel(args, scratch, part, parts):", *lines, "return 0\n"])


class _Runner:
    """A kernel, run by some threads at once, each with words of its own."""

    def __init__(self, text: str, lanes: int, target: Target, words: Sequence[Sequence[int]]) -> None:
        identity = f"{sources.translator_version()} {target.key} {lanes}\n{text}"
        key = hashlib.sha256(identity.encode()).hexdigest()
        code = native.cache().get(key)
        if code is None:
            code = compile_kernel(f"limit_{key}", text, lanes, target.native)
            native.cache().put(key, code)
        (address,) = native.load_object(code).values()
        self._call = PROTOTYPE(address)
        self._sums = [np.zeros(_CHAINS * target.vector_bytes + 128, np.uint8) for _ in words]
        self._words = [
            np.array([-(-sums.ctypes.data // 64) * 64, 1, *more], np.int64)
            for sums, more in zip(self._sums, words, strict=True)
        ]

    def seconds_of_a_round(self) -> Measured:
        """Of all threads together: the time of one thread's round, divided by how many do one meanwhile."""
        found = seconds_of_a_round(self.run)
        return found._replace(seconds=found.seconds / len(self._words))

    def run(self, rounds: int) -> float:
        """Seconds from when all threads begin to when the last one ends."""
        count = len(self._words)
        barrier, spans = threading.Barrier(count), [(0.0, 0.0)] * count

        def work(index: int) -> None:
            words, outcome = self._words[index], (ctypes.c_int64 * 2)()
            words[1] = rounds
            at = ctypes.addressof(outcome)
            take_core(index, count)
            barrier.wait()
            start = time.perf_counter()
            self._call(at, at + 8, words.ctypes.data, 0, 0, 1)
            spans[index] = start, time.perf_counter()

        run_threads(work, count)
        return max(end for _, end in spans) - min(start for start, _ in spans)


def run_threads(work: Callable[[int], None], count: int) -> None:
    """Runs `work` in `count` threads, with their numbers, and waits for them."""
    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def take_core(index: int, count: int) -> None:
    """Confines the calling thread to a core of its own among `count` threads, where the system can and there are enough."""
    if hasattr(os, "sched_setaffinity") and 1 < count <= len(cores := sorted(os.sched_getaffinity(0))):
        os.sched_setaffinity(0, {cores[index]})  # of this thread


class PlainRead:
    """Threads that read `size` bytes from memory, each its share."""

    def __init__(self, size: int, threads: int) -> None:
        target, step = host(), max(_STREAMS * host().vector_bytes, mmap.PAGESIZE)
        share = max(1, size // threads // step) * step
        self._memory = np.ones(threads * share + 64, np.uint8)
        start = -(-self._memory.ctypes.data // 64) * 64
        words = [(start + index * share, share) for index in range(threads)]
        self._runner = _Runner(_read_text("float32", target), target.lanes(), target, words)

    def seconds(self) -> float:
        """Seconds of one read."""
        return self._runner.run(1)


class RoundTrip:
    """A word that two threads, each on a core of its own, hand to each other."""

    def __init__(self) -> None:
        self._word = np.zeros(1, np.int64)
        words = [(self._word.ctypes.data, mine) for mine in (0, 1)]
        self._runner = _Runner(_hand_over_text(), 1, host(), words)

    def nanoseconds(self) -> float:
        """Round trip in nanoseconds, the best of several runs: some 100 between cores of one cache, several times as long
        between others. Infinite where there is one core, on which threads would take turns of milliseconds."""
        if (os.cpu_count() or 1) < 2:
            return math.inf
        return 1e9 / _TRIPS * min(self._once() for _ in range(_RUNS))

    def _once(self) -> float:
        self._word[0] = 0
        return self._runner.run(_TRIPS)


def _peak(name: str, threads: int, target: Target) -> Measured:
    """The time of one operation."""
    lanes = target.lanes(8 if name == "float64" else 4)
    products = _products(name, target) * lanes * _CHAINS
    if name == "int8" and target.amx:
        products = len(SUMS) * ROWS * ROWS * ROW_BYTES
    found = _Runner(_multiply_text(name, target), lanes, target, [()] * threads).seconds_of_a_round()
    return found._replace(seconds=found.seconds / (2 * products))


def _bandwidth(size: int, threads: int, target: Target) -> Measured:
    """The time of one byte. Each thread reads its own `size` bytes, again and again."""
    step = max(_STREAMS * target.vector_bytes, mmap.PAGESIZE)
    size = size // step * step
    memory = np.ones(threads * size + 64, np.uint8)
    start = -(-memory.ctypes.data // 64) * 64
    words = [(start + index * size, size) for index in range(threads)]
    found = _Runner(_read_text("float32", target), target.lanes(), target, words).seconds_of_a_round()
    return found._replace(seconds=found.seconds / size)
