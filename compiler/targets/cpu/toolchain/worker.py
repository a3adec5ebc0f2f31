"""A process that compiles kernels: requests come on standard input, object code goes to standard output.

`compile_pool.py` starts it, by `native/processes.py`.

Each message is a length (u32) and that many bytes of msgpack. The first request is the target, [triple, cpu, features];
each later one is [symbol, source, lanes], answered by ["ok", code] or ["error", text]. The end of the input ends the process.
"""

from __future__ import annotations

import gc
import os
import signal
import struct
import sys
from importlib import metadata
from typing import Any, BinaryIO

import msgpack

from .....formats.messages.errors import CompileError
from .....native.llvm import NativeTarget
from .....native.platform import ADVICE

_LENGTH = struct.Struct("<I")
_GARBAGE = 500_000  # objects allocated before a garbage collection: those of about two kernels


def compile_kernel(symbol: str, source: str, lanes: int, target: NativeTarget) -> bytes:
    """Object code of a kernel's text, which becomes the function `symbol`. Imports Numba. Raises CompileError."""
    try:
        from .translate import compile_kernel

        return compile_kernel(symbol, source, lanes, target)
    except (AttributeError, ImportError, TypeError) as error:  # errors of another version's internals
        found = f"Numba {metadata.version('numba')} is not as Treadle expects, or Treadle is at fault"
        raise CompileError(f"{found}: {type(error).__name__}: {error}; {ADVICE}") from error


def send(stream: BinaryIO, message: Any) -> None:
    data = msgpack.packb(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """The next message. Raises EOFError where the stream ends."""
    head = stream.read(_LENGTH.size)
    data = stream.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
    if not data:
        raise EOFError
    return msgpack.unpackb(data)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers requests until there are no more."""
    from . import translate  # noqa: F401  imports Numba while the first request is on its way

    # compiling makes many objects that live until the end: collecting again and again takes a fifth of the time
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    target = NativeTarget(*receive(requests))
    while True:
        try:
            symbol, source, lanes = receive(requests)
        except EOFError:
            return
        try:
            answer = ["ok", compile_kernel(symbol, source, lanes, target)]
        except CompileError as error:
            answer = ["error", str(error)]
        send(answers, answer)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
