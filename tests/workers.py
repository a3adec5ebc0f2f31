"""A process that compiles kernels for a CPU, kept until the tests end: to start one for each kernel took half of the time."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from treadle.compiler.targets.cpu.toolchain.compile_pool import Result, Text, _Client
from treadle.formats.messages.errors import CompileError
from treadle.native.llvm import NativeTarget


@functools.cache
def _client(target: NativeTarget) -> _Client:
    return _Client(target)


def kept(texts: Sequence[Text], target: NativeTarget, jobs: int, until: float) -> Iterator[tuple[Text, Result]]:
    """In place of `compile_pool._on_workers`; it takes whatever time it takes."""
    for text in texts:
        try:
            yield text, _client(target)._compile(text)
        except CompileError as error:
            yield text, error
