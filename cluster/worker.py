"""The process that `local.py` starts for each worker: it links the program, then computes batch after batch.

It runs verified programs and no code of the caller's: its imports are Treadle's, its messages numbers and places.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from multiprocessing.connection import Connection

import msgpack

from ..formats.messages.errors import naming
from ..formats.starting import Thread
from .handle import Handle
from .runner import Runner
from .wire import Memory, encode_error, end_of, flatten, places, read, write

READY, REFUSED, DONE, FAILED = range(4)  # kinds of messages to the caller


def main() -> None:
    """Serves one caller until that closes the connection, whose descriptor is the first argument. The others are those of the
    slots: memory for a batch, memory for its result."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the caller, who ends its workers
    connection, *descriptors = map(int, sys.argv[1:])
    Thread(target=_end_with_caller, daemon=True).start()
    slots = [Memory(descriptor) for descriptor in descriptors]
    with contextlib.suppress(EOFError, OSError):  # the caller needs no more
        _serve(Connection(connection), list(zip(slots[::2], slots[1::2], strict=True)))
    os._exit(0)  # nothing here is worth the time that an orderly end takes


def _end_with_caller() -> None:
    """Ends this process with the caller's, however that ends, and whatever is computed at the time: nobody wants it."""
    while os.read(0, 1):
        pass
    os._exit(1)


def _serve(connection: Connection, slots: list[tuple[Memory, Memory]]) -> None:
    path, digest, stamp, options, function, threads = msgpack.unpackb(connection.recv_bytes())
    handle = Handle(path, digest, tuple(stamp), tuple((name, value) for name, value in options))
    try:
        with naming("a worker"):
            runner = Runner(handle, function, threads)
    except Exception as error:
        connection.send_bytes(msgpack.packb([REFUSED, encode_error(error)]))
        return
    connection.send_bytes(msgpack.packb([READY]))
    while True:
        number, slot, found = msgpack.unpackb(connection.recv_bytes())
        connection.send_bytes(msgpack.packb(_answer(runner, number, found, *slots[slot])))


def _answer(runner: Runner, number: int, found: list, given: Memory, room: Memory) -> list:
    try:
        with naming("a batch"):
            result = runner.run(read(found, given.room(end_of(found))))
            arrays: list = []
            structure = flatten(result, arrays)
            put, size = places(arrays)
            write(arrays, put, room.room(size or 1))
            return [DONE, number, structure, put]
    except Exception as error:
        return [FAILED, number, encode_error(error)]


if __name__ == "__main__":
    main()
