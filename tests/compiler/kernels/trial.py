"""Runs kernels of doubtful definitions in processes of their own, between forbidden pages, with outputs full of one byte and then
of another: what dies, hangs, writes elsewhere, leaves bytes unwritten or differs from the reference is told, not died of."""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from treadle.compiler.evaluate import evaluate_definition
from treadle.compiler.kernels.build import compiled
from treadle.compiler.kernels.target import Target
from treadle.formats import dims
from treadle.formats.primitive import PrimitiveDefinition
from treadle.vm.layout import ARGUMENT_HEAD, NOTE_WORDS
from treadle.vm.library import BuiltKernel

from .examples import Example
from .harness import TARGET, call

_libc = ctypes.CDLL(None, use_errno=True)
_SECONDS = 20  # that a trial may take
_PAGE = mmap.PAGESIZE


class Fenced:
    """Memory of an array between two forbidden pages, at the end or at the beginning of what lies between; the rest is known."""

    def __init__(self, shape: Sequence[int], dtype: np.dtype, fill: int, at_end: bool) -> None:
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        between = -(-max(size, 1) // _PAGE) * _PAGE
        self._memory = mmap.mmap(-1, between + 2 * _PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for place in (0, between + _PAGE):
            assert _libc.mprotect(ctypes.c_void_p(base + place), _PAGE, 0) == 0
        self._bytes = np.frombuffer(self._memory, np.uint8, between, _PAGE)
        self._bytes[:] = fill
        begin = (between - size) // 4 * 4 if at_end else 0
        self._rest = [self._bytes[:begin], self._bytes[begin + size :]]
        self.fill, self.size = fill, size
        self.array = self._bytes[begin : begin + size].view(dtype).reshape(shape)
        self.address = base + _PAGE + begin

    def is_clean(self) -> bool:
        """Whether the bytes around the array are what they were."""
        return all(bool((rest == self.fill).all()) for rest in self._rest)


def run(
    kernel: BuiltKernel,
    definition: PrimitiveDefinition,
    arrays: Sequence[np.ndarray],
    sizes: dict[str, int],
    fill: int,
    at_end: bool,
    parts: int,
) -> tuple[int, list[np.ndarray]]:
    """The kernel's code and outputs, which were full of `fill` before. Raises AssertionError for writes elsewhere."""
    shapes = [tuple(dims.evaluate(dim, sizes) for dim in type_.shape) for type_ in definition.results]
    inputs = [Fenced(array.shape, array.dtype, fill, at_end) for array in arrays]
    for fenced, array in zip(inputs, arrays, strict=True):
        fenced.array[...] = array
    outputs = [
        Fenced(shape, type_.dtype.numpy, fill, at_end) for shape, type_ in zip(shapes, definition.results, strict=True)
    ]
    scratch = Fenced((-(-kernel.scratch_bytes // 64) * 64,), np.dtype(np.uint8), 255, False)
    words = np.array([*kernel.words, 0], np.int64)
    variables = [sizes[name] for name in definition.variables]
    addresses = [fenced.address for fenced in (*inputs, *outputs)]
    head = [0] * ARGUMENT_HEAD
    args = np.array([*head, words.ctypes.data, *addresses, *variables, *[0] * NOTE_WORDS], np.int64)[ARGUMENT_HEAD:]
    call(kernel, args.ctypes.data, 0, -1, 2)
    codes = [call(kernel, args.ctypes.data, scratch.address, part, parts) for part in range(parts)]
    for number, fenced in enumerate((*inputs, *outputs, scratch)):
        assert fenced.is_clean(), f"it wrote beside tensor {number}"
    for number, (fenced, array) in enumerate(zip(inputs, arrays, strict=True)):
        assert fenced.array.tobytes() == np.ascontiguousarray(array).tobytes(), f"it wrote into input {number}"
    return max(codes), [fenced.array for fenced in outputs]


def kernels(definitions: Sequence[PrimitiveDefinition], target: Target = TARGET) -> list[BuiltKernel | None]:
    """What `build` gives, without what it checks before."""
    return [compiled(definition, target) for definition in definitions]


def trial(example: Example, kernel: BuiltKernel) -> None:
    """A kernel writes every byte of every output, and nothing else, and gives what the reference gives, or else fails."""
    definition, arrays, sizes = example.definition, example.arrays, example.sizes
    runs = [
        run(kernel, definition, arrays, sizes, *how) for how in ((0xA5, True, 1), (0x5A, False, 1), (0x5A, True, 3))
    ]
    (code, outputs), *others = runs
    for other, _ in others:
        assert (other == 0) == (code == 0), f"codes {code} and {other}"
    wanted, reason = _reference(example)
    if wanted is None:
        is_empty = not any(output.size for output in outputs)  # then there is nothing that could be wrong
        assert code != 0 or is_empty, f"it succeeds where the reference says {reason}"
        return
    assert code == 0, f"it fails with code {code}, the reference does not"
    for _, found in others:
        for number, (one, other) in enumerate(zip(outputs, found, strict=True)):
            assert one.tobytes() == other.tobytes(), f"output {number} depends on what was there before"
    for got, want in zip(outputs, wanted, strict=True) if example.is_exact else ():
        if got.dtype.kind == "f":
            close = 2e-2 if got.dtype == np.float16 else 2e-3
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=close, atol=close)
        else:
            np.testing.assert_array_equal(got, want)


def _reference(example: Example) -> tuple[Sequence[np.ndarray] | None, str]:
    """What the reference gives, or why it gives nothing."""
    variables = [example.sizes[name] for name in example.definition.variables]
    try:
        return evaluate_definition(example.definition, example.arrays, variables), ""
    except Exception as error:
        return None, str(error)


def trials(examples: Sequence[Example]) -> dict[str, str]:
    """What is wrong with the kernels of examples, by their names; nothing with those that have none."""
    made = kernels([example.definition for example in examples])
    pairs = [(example, kernel) for example, kernel in zip(examples, made, strict=True) if kernel is not None]
    return failures([(example.name, partial(trial, example, kernel)) for example, kernel in pairs])


def failures(tasks: Sequence[tuple[str, Callable[[], None]]]) -> dict[str, str]:
    """What is wrong, by the name of the task. A process does one after the other; where it dies, another one goes on."""
    found: dict[str, str] = {}
    at = 0
    while at < len(tasks):
        done, told, status = _in_child(tasks[at:])
        found |= told
        at += done
        if at < len(tasks):
            name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"status {status}"
            found[tasks[at][0]] = "it never ends" if name == "SIGALRM" else f"it dies of {name}"
            at += 1
    return found


def _in_child(tasks: Sequence[tuple[str, Callable[[], None]]]) -> tuple[int, dict[str, str], int]:
    """How many tasks a child process has done, what they said, and how it ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status: Any = 0
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            for name, task in tasks:
                signal.alarm(_SECONDS)
                message = ""
                try:
                    task()
                except BaseException as error:
                    message = f"{type(error).__name__}: {error}"
                os.write(writer, pickle.dumps((name, message[:2000])))
        finally:
            os._exit(status)
    os.close(writer)
    done, found = 0, dict[str, str]()
    with os.fdopen(reader, "rb") as stream:
        while True:
            try:
                name, message = pickle.load(stream)
            except EOFError:
                break
            done += 1
            if message:
                found[name] = message
    return done, found, os.waitpid(child, 0)[1]
