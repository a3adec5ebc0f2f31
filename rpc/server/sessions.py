"""Server-side state of the remote device's clients: sessions with values and machines, and executables by their digests."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats.constants import aligned_copy
from ...formats.executable import Executable
from ...formats.messages.errors import ArgumentError, RemoteError, RemoteLimitError
from ...formats.starting import Thread
from ...serve.scheduler import Line
from ...vm.budgets import CancelToken
from ...vm.device import cpu
from ...vm.memory import heap_bytes
from ...vm.tensor import Tensor
from ...vm.values import Closure, DataValue
from ..wire import SESSION_BYTES


@dataclass(frozen=True)
class RemoteLimits:
    """Limits of the remote device's sessions. Times are in seconds, memory in bytes."""

    sessions: int = 64
    idle: float = 60.0  # after which a session that says nothing is over
    values: int = 65_536  # of a session: tensors, data values, closures, machines, saved functions
    bytes: int = 4 << 30  # of a session, in all of these
    total: int | None = None  # of all sessions together; None: half of the host's memory
    executables: int = 64  # kept by their digests, for all sessions
    executable_bytes: int = 4 << 30  # of these together, and so of one
    calls: int = 16  # that run or wait at once, of all sessions; one that has none may always have one
    session_calls: int = 8  # at once of one session, transfers too
    transfers: int = 8  # uploads and downloads at once, of all sessions; one that has none may always have one
    transfer_seconds: float = 600.0
    seconds: float = 60.0  # of a call, whatever the client says
    memory: int = 4 << 30  # of a call
    steps: int | None = None  # of a call
    build_seconds: float = 60.0  # for the kernels of a machine
    inline: int = 4096  # bytes of a result's tensors that travel with the answer

    @property
    def total_bytes(self) -> int:
        """Of all sessions."""
        return (cpu().total_global_memory or 2 * self.bytes) // 2 if self.total is None else self.total

    @property
    def most_threads(self) -> int:
        """That requests may hold at once: no session keeps another's first call or transfer from one."""
        return self.calls + self.transfers + 2 * self.sessions


_FILES = 0  # in place of a machine's handle
_LEAST = 256  # bytes that anything at all is counted as


class _Charge:
    """Bytes that one or several values of a session keep; given back with the last of them."""

    __slots__ = ("amount", "users")

    def __init__(self, amount: int) -> None:
        self.amount, self.users = amount, 0


class Total:
    """Bytes that all sessions of a server hold, and that their calls may take while they run."""

    def __init__(self, most: int) -> None:
        self.most, self.bytes = most, 0
        self._lent = 0  # to calls that run
        self._lock = threading.Lock()

    def add(self, amount: int) -> None:
        """Counts bytes, or gives them back. Raises RemoteLimitError."""
        with self._lock:
            if amount > 0 and self.bytes + amount > self.most:
                raise RemoteLimitError(
                    f"{amount} bytes more: the server's sessions hold {self.most} together at most; try again later"
                )
            self.bytes += amount

    @contextlib.contextmanager
    def lent(self, most: int) -> Iterator[int]:
        """The bytes that a call may take, within this: at most half of what nobody holds and no other call was lent, so that all
        together never have more than there is, and the next one has some too."""
        with self._lock:
            amount = min(most, max(0, self.most - self.bytes - self._lent) // 2)
            self._lent += amount
        try:
            yield amount
        finally:
            with self._lock:
                self._lent -= amount


class Session:
    """One client's state, reachable only by its id of 128 random bits."""

    def __init__(self, limits: RemoteLimits, total: Total | None = None) -> None:
        """`total` counts the bytes of all sessions."""
        self.total = total or Total(limits.total_bytes)
        self.id = secrets.token_bytes(SESSION_BYTES)
        self.limits = limits
        self.is_closed = False
        self.running: set[CancelToken] = set()
        self.seen = time.monotonic()
        self.bytes = 0
        self._held: dict[int, tuple[Any, _Charge]] = {}
        self._named: dict[int, dict[tuple[str, str], int]] = {}  # bytes of what machines keep by name, by their handles
        self._files: dict[str, bytes] = {}  # in memory: no session reaches the host's
        self._next = 1
        self._lock = threading.Lock()
        self.line = Line("this session", limits.session_calls, None)  # where its calls wait for their turns

    # ---- calls ----

    def begin(self) -> CancelToken:
        """A request that may take long begins. Raises RemoteError when the session is over, RemoteLimitError."""
        token = CancelToken()
        with self._lock:
            self._require_open()
            if len(self.running) >= self.limits.session_calls:
                raise RemoteLimitError(f"a session has {self.limits.session_calls} calls at once at most")
            self.running.add(token)
        return token

    def end(self, token: CancelToken) -> None:
        with self._lock:
            self.running.discard(token)
            self.seen = time.monotonic()

    def close(self) -> None:
        """Stops what runs and lets go of everything."""
        with self._lock:
            self.is_closed = True
            running, held = list(self.running), self._held
            self._held, self._named, self._files = {}, {}, {}
            self._add(-self.bytes)
        for token in running:
            token.cancel()
        held.clear()

    # ---- values ----

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, value: Any, amount: int | None = None, inside: int | None = None) -> int:
        """Holds a value; its handle. `inside` is the handle of a value that it is a part of, which is counted already.

        Raises RemoteLimitError, RemoteError.
        """
        size = max(_LEAST, size_of(value, self.limits.bytes) if amount is None else amount) if inside is None else 0
        with self._lock:
            self._require_open()
            charge = _Charge(size) if inside is None else self._entry(inside)[1]
            if len(self._held) >= self.limits.values:
                raise RemoteLimitError(
                    f"a session holds {self.limits.values} values at most; let go of some, or close it"
                )
            self._add(size)
            charge.users += 1
            number = self._next
            self._next += 1
            self._held[number] = value, charge
        return number

    def get(self, handle: Any, kind: type | tuple[type, ...] = object) -> Any:
        """The value of a handle. Raises ArgumentError."""
        with self._lock:
            self._require_open()
            value = self._entry(handle)[0]
        if not isinstance(value, kind):
            raise ArgumentError(f"handle {handle}: it is a {type(value).__name__}, something else is expected")
        return value

    def release(self, handle: int) -> None:
        """Lets go of a value; of none where there is none."""
        with self._lock:
            value, charge = self._held.pop(handle, (None, None))
            if charge is not None:
                charge.users -= 1
                if not charge.users:
                    self._add(-charge.amount)
                self._add(-sum(self._named.pop(handle, {}).values()))
        del value  # outside of the lock: it may be large

    def keep_named(self, machine: int, kind: str, name: str, amount: int) -> None:
        """Counts what a machine keeps under a name, in place of what it kept. Raises RemoteLimitError, RemoteError."""
        place, amount = (kind, name), max(_LEAST, amount) + len(name)
        with self._lock:
            self._require_open()
            named = self._named.setdefault(machine, {})
            self._add(amount - named.get(place, 0))
            named[place] = amount

    @contextlib.contextmanager
    def replacing(self, machine: int, kind: str, name: str, amount: int) -> Iterator[None]:
        """`keep_named`, for what the body has the machine keep: where that fails, what was kept before still is."""
        place = kind, name
        before = self._named.get(machine, {}).get(place)
        self.keep_named(machine, kind, name, amount)
        try:
            yield
        except BaseException:
            with self._lock:
                named = self._named.get(machine, {})
                if not self.is_closed and place in named:
                    self._add((before or 0) - named.pop(place))
                    if before is not None:
                        named[place] = before
            raise

    # ---- files ----

    def files(self) -> list[str]:
        with self._lock:
            return sorted(self._files)

    def put_file(self, name: str, data: bytes) -> None:
        """Keeps bytes under a name. Raises RemoteLimitError, RemoteError."""
        if len(self._files) >= self.limits.values and name not in self._files:
            raise RemoteLimitError(f"a session has {self.limits.values} files at most; remove some")
        self.keep_named(_FILES, "file", name, len(data))
        with self._lock:
            if not self.is_closed:
                self._files[name] = data

    def file(self, name: Any) -> bytes:
        """Raises ArgumentError."""
        found = self._files.get(name) if isinstance(name, str) else None
        if found is None:
            raise ArgumentError(f"{name!r:.60}: this session has no such file")
        return found

    def remove_file(self, name: Any) -> None:
        """Raises ArgumentError."""
        self.file(name)
        with self._lock:
            if self._files.pop(name, None) is not None:
                self._add(-self._named.get(_FILES, {}).pop(("file", name), 0))

    # ---- bytes ----

    @contextlib.contextmanager
    def reserved(self, amount: int) -> Iterator[None]:
        """Within this, bytes that come are counted. Raises RemoteLimitError, RemoteError."""
        with self._lock:
            self._require_open()
            self._add(amount)
        try:
            yield
        finally:
            with self._lock:
                if not self.is_closed:
                    self._add(-amount)

    def _add(self, amount: int) -> None:
        """Counts bytes, or gives them back. Raises RemoteLimitError."""
        if amount > 0 and self.bytes + amount > self.limits.bytes:
            raise RemoteLimitError(
                f"{amount} bytes more: a session holds {self.limits.bytes} at most, this one has {self.bytes}"
            )
        self.total.add(amount)
        self.bytes += amount

    def _entry(self, handle: Any) -> tuple[Any, _Charge]:
        found = self._held.get(handle) if type(handle) is int else None
        if found is None:
            raise ArgumentError(f"handle {handle!r:.40}: this session has no such value")
        return found

    def _require_open(self) -> None:
        if self.is_closed:
            raise RemoteError("the session is over")


class Sessions:
    """All sessions of a server."""

    def __init__(self, limits: RemoteLimits) -> None:
        self.limits = limits
        self.total = Total(limits.total_bytes)
        self._sessions: dict[bytes, Session] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        Thread(target=self._sweep, name="treadle-sessions", daemon=True).start()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self) -> Session:
        """Raises RemoteLimitError."""
        with self._lock:
            if self._stop.is_set():
                raise RemoteError("the server stops")
            if len(self._sessions) >= self.limits.sessions:
                raise RemoteLimitError(f"the server has {self.limits.sessions} sessions, its most; try again later")
            session = Session(self.limits, self.total)
            self._sessions[session.id] = session
        return session

    def get(self, name: Any) -> Session:
        """Raises RemoteError."""
        session = self._sessions.get(name) if isinstance(name, bytes) else None
        if session is None:
            raise RemoteError("there is no such session: it was closed, or was silent for too long; connect again")
        session.seen = time.monotonic()
        return session

    def close(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)
        session.close()

    def close_all(self) -> None:
        self._stop.set()
        for session in list(self._sessions.values()):
            self.close(session)

    def _sweep(self) -> None:
        while not self._stop.wait(self.limits.idle / 4):
            now = time.monotonic()
            for session in list(self._sessions.values()):
                if not session.running and now - session.seen > self.limits.idle:
                    self.close(session)


class Executables:
    """Executables by the SHA-256 of their bytes, which a client must have to use one."""

    def __init__(self, limits: RemoteLimits) -> None:
        self._limits = limits
        self._kept: OrderedDict[bytes, tuple[bytes, Executable]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, digest: bytes, session: bytes, proof: bytes) -> tuple[int, Executable] | None:
        """The number of bytes of an executable, and itself. A digest may be known to people who do not have the bytes: `proof`
        is the SHA-256 of the session's id and the bytes."""
        with self._lock:
            found = self._kept.get(digest)
            if found is None:
                return None
            self._kept.move_to_end(digest)
        data, executable = found
        return (len(data), executable) if hmac.compare_digest(proof_of(session, data), proof) else None

    def add(self, data: bytes, executable: Executable) -> None:
        """Keeps one; those that were not used for longest go."""
        digest = hashlib.sha256(data).digest()
        with self._lock:
            if digest in self._kept:
                return
            self._kept[digest] = data, executable
            self._bytes += len(data)
            while len(self._kept) > self._limits.executables or self._bytes > self._limits.executable_bytes:
                _, (old, _) = self._kept.popitem(last=False)
                self._bytes -= len(old)


def proof_of(session: bytes, data: bytes) -> bytes:
    """A proof, within a session, of having these bytes."""
    made = hashlib.sha256(session)
    made.update(data)
    return made.digest()


def size_of(value: Any, most: int) -> int:
    """Bytes that a value keeps; not exact from `most` on."""
    total, todo = 0, [value]
    while todo and total <= most:
        each = todo.pop()
        if isinstance(each, (Tensor, np.ndarray)):
            total += each.nbytes
        elif isinstance(each, (DataValue, Closure)) and each.native is not None:
            total += heap_bytes(each.native.word, most)
        elif isinstance(each, DataValue):
            total += _LEAST
            todo += each.fields
        elif isinstance(each, (tuple, list)):
            total += 8 * len(each)
            todo += each
    return total


def alone(array: np.ndarray) -> np.ndarray:
    """The array, or a copy where it is a part of something larger, which it would keep."""
    return array if array.flags.writeable else aligned_copy(array)
