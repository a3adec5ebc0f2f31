"""Runs kernels of doubtful definitions in processes of their own, between forbidden pages, with outputs full of one byte and then
of another: what dies, hangs, writes elsewhere, leaves bytes unwritten or differs from the reference is told, not died of."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from treadle.compiler.ir.evaluate import evaluate_definition
from treadle.compiler.targets.cpu.target import Target
from treadle.compiler.targets.cpu.toolchain.kernels import compiled
from treadle.formats.primitive import PrimitiveDefinition
from treadle.vm.library import BuiltKernel

from .examples import Example
from .harness import TARGET, run_kernel

_SECONDS = 20  # that a trial may take


def kernels(definitions: Sequence[PrimitiveDefinition], target: Target = TARGET) -> list[BuiltKernel | None]:
    """What `build` gives, without what it checks before."""
    return [compiled(definition, target) for definition in definitions]


def trial(example: Example, kernel: BuiltKernel) -> None:
    """A kernel writes every byte of every output, and nothing else, and gives what the reference gives, or else fails."""
    definition, arrays, sizes = example.definition, example.arrays, example.sizes
    runs = [
        run_kernel(definition, arrays, sizes, parts, fill=fill, at_start=at_start, kernel=kernel)
        for fill, at_start, parts in ((0xA5, False, 1), (0x5A, True, 1), (0x5A, False, 3))
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
