"""The server's life: it listens, follows its folder, drains and stops.

server = Server(ServerConfig(folder="models"))
server.run()          # until SIGTERM or SIGINT
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import uvicorn

from ..formats.messages.errors import ArgumentError, FileError
from ..formats.starting import Thread
from ..rpc.server.sessions import RemoteLimits
from .access import AccessLog, Tokens
from .completions import Completions
from .config import ModelConfig
from .descriptors import most_connections
from .embeddings import Embeddings
from .errors import LOG
from .http_app import HttpApp, HttpLimits
from .http_body import Room
from .http_pages import Pages
from .http_protocol import Connection, sweep
from .repository import Repository
from .service import Service
from .shared_memory import Regions
from .tls_listener import TlsListener
from .tracing import Tracing

_LOOK_SECONDS = 0.05  # between two looks at whether the server is to stop, while it loads
_GRPC_THREADS = 256  # calls that gRPC's server takes at once: each waits in a thread of its own, and more are refused


@dataclass(frozen=True)
class ServerConfig:
    """Settings of a server. A port of None is not opened, of 0 chosen by the system. Times are in seconds."""

    folder: str | Path
    host: str = "127.0.0.1"
    http_port: int | None = 8000
    grpc_port: int | None = 8001
    model: ModelConfig = field(default_factory=ModelConfig)
    is_explicit: bool = False
    is_strict: bool = False  # readiness: see `Repository.is_ready`
    compiling: Mapping[str, Any] = field(default_factory=dict)  # `treadle.compile`'s arguments for ONNX models
    poll: float = 1.0  # between two looks at the folder
    limits: HttpLimits = field(default_factory=HttpLimits)
    drain: float = 30.0  # that running calls have when the server stops
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None  # then clients must show a certificate that it has signed
    tokens: str | None = None  # a file
    shared_memory: bool = False
    remote: RemoteLimits | None = None  # then clients may bring executables of their own; see server/service.py
    functions: Mapping[str, Any] = field(default_factory=dict)  # that these clients may call; see server/functions.py


class _Http(uvicorn.Server):
    """uvicorn's server, that leaves signals and the beginning of TLS to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is None:
            await super().startup(sockets)
            return
        await self.lifespan.startup()
        self.servers = [TlsListener(self.config, self.server_state)]
        self.started = True


class Server:
    """One process that serves a folder of models."""

    def __init__(self, config: ServerConfig, access_log: IO[str] | None = None, tracer_provider: Any = None) -> None:
        """Loads the models. `tracer_provider` is OpenTelemetry's; None is that of the process, if it has one. Raises FileError,
        ArgumentError."""
        if (config.certificate is None) != (config.key is None):
            raise ArgumentError("a certificate and its key come together: --tls-certificate and --tls-key")
        if config.client_ca and not config.certificate:
            raise ArgumentError("clients' certificates are asked for over TLS alone: give --tls-certificate, too")
        self.config = config
        self.regions = Regions(config.shared_memory, Room(config.limits.max_bodies * config.limits.max_body))
        self.repository = Repository(
            config.folder,
            config.model,
            is_explicit=config.is_explicit,
            is_strict=config.is_strict,
            compiling=config.compiling,
        )
        self.service = Service(self.repository)
        self.service.metrics.watch(self.service.scheduler.waiting, self.service.scheduler.running)
        self._tokens = Tokens.load(config.tokens) if config.tokens else None
        self._log = AccessLog(access_log) if access_log else None
        self.tracing = Tracing.found(tracer_provider)
        self._stopping = threading.Event()
        self._http: _Http | None = None
        self._grpc: Any = None
        self.remote: Any = None  # the methods of the remote device
        self.http_port: int | None = None
        self.grpc_port: int | None = None

    # ---- running ----

    def run(self) -> None:
        """Serves until `stop`. Raises FileError where a port cannot be opened, before anything is loaded."""
        for name, port in (("HTTP", self.config.http_port), ("gRPC", self.config.grpc_port)):
            if port:
                _check_is_free(name, self.config.host, port)
        if not self._load():
            return
        self._start_grpc()
        follower = Thread(target=self._follow, name="treadle-folder", daemon=True)
        follower.start()
        try:
            if self.config.http_port is None:
                self._stopping.wait()
            else:
                self._run_http()
        finally:
            self._close()

    def _load(self) -> bool:
        """Loads what is in the folder, in another thread, since that may take minutes: False when `stop` has come before. Raises
        FileError."""
        loading: concurrent.futures.Future[None] = concurrent.futures.Future()

        def load() -> None:
            try:
                self.repository.refresh()
            except Exception as error:
                loading.set_exception(error)
            else:
                loading.set_result(None)

        Thread(target=load, name="treadle-loading", daemon=True).start()
        while not self._stopping.is_set():
            with contextlib.suppress(concurrent.futures.TimeoutError):
                loading.result(_LOOK_SECONDS)
                return True
        return False

    def stop(self, *_: object) -> None:
        """Has `run` end: nothing new is begun, what runs is finished. May be called from a signal handler or any thread."""
        self.service.is_draining = True
        self._stopping.set()
        if self._http is not None:
            self._http.should_exit = True

    def _run_http(self) -> None:
        config = self.config
        app = HttpApp(
            self.service,
            self.regions,
            Pages(self.service, self.regions).app(),
            limits=config.limits,
            tokens=self._tokens,
            log=self._log,
            tracing=self.tracing,
            texts=Embeddings(self.service),
            completions=Completions(self.service),
        )
        options: dict[str, Any] = {}
        if config.certificate:
            options = {"ssl_certfile": config.certificate, "ssl_keyfile": config.key}
            if config.client_ca:
                options |= {"ssl_ca_certs": config.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
        self._http = _Http(
            uvicorn.Config(
                app,
                host=config.host,
                port=config.http_port or 0,
                access_log=False,
                log_config=None,
                lifespan="off",
                http=Connection,
                ws="none",
                limit_concurrency=most_connections(),
                timeout_graceful_shutdown=max(1, int(config.drain)),
                **options,
            )
        )
        if self._stopping.is_set():
            return
        _run(self._http_main(self._http), self._http.config.get_loop_factory())

    async def _http_main(self, server: _Http) -> None:
        task = asyncio.ensure_future(server.serve())
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        if server.started:
            self.http_port = server.servers[0].sockets[0].getsockname()[1]
            LOG.info("HTTP on %s:%d", self.config.host, self.http_port)
        sweeper = asyncio.ensure_future(sweep(server.server_state.connections))
        try:
            await task
        finally:
            sweeper.cancel()

    def _start_grpc(self) -> None:
        config = self.config
        if config.grpc_port is None:
            return
        from .grpc_calls import STREAMS, Calls, Shares
        from .grpc_service import Methods, make_server

        if config.remote is not None:
            from ..rpc.server.service import RemoteMethods

            self.remote = RemoteMethods(config.remote, config.functions, self.service.scheduler)
        self._calls = Calls(Room(config.limits.max_bodies * config.limits.max_body), config.limits.max_body)
        self._grpc = make_server(
            Methods(self.service, self.regions, self.tracing, Shares(_GRPC_THREADS - STREAMS)),
            max_body=config.limits.max_body,
            threads=_GRPC_THREADS + (0 if config.remote is None else config.remote.most_threads),
            calls=self._calls,
            tokens=self._tokens,
            log=self._log,
            remote=self.remote,
        )
        address = f"{config.host}:{config.grpc_port}"
        try:
            self.grpc_port = self._grpc_port(address)
        except RuntimeError as error:  # the port was taken while models were loaded
            raise FileError(f"gRPC cannot listen on {address}: {error}") from None
        self._grpc.start()
        self._calls.start()
        LOG.info("gRPC on %s:%d", config.host, self.grpc_port)

    def _grpc_port(self, address: str) -> int:
        """Opens the port, and gives its number."""
        import grpc

        config = self.config
        if config.certificate and config.key:
            pair = (_read(config.key), _read(config.certificate))
            root = _read(config.client_ca) if config.client_ca else None
            credentials = grpc.ssl_server_credentials([pair], root, root is not None)
            return self._grpc.add_secure_port(address, credentials)
        return self._grpc.add_insecure_port(address)

    def _follow(self) -> None:
        """Looks at the folder again and again."""
        while not self._stopping.wait(self.config.poll):
            try:
                self.service.history.look()
                self.service.tidy()
                self.repository.refresh()
            except Exception as error:  # the folder may come back
                LOG.error("%s", error)

    def _close(self) -> None:
        self.service.is_draining = True
        self._stopping.set()
        if self._grpc is not None:
            self._grpc.stop(self.config.drain).wait()
            self._calls.stop()
        if self.remote is not None:
            self.remote.close()
        if not self.service.scheduler.close(self.config.drain):
            LOG.error("calls still run after %g s; they are given up", self.config.drain)
        self.regions.close()


def _check_is_free(name: str, host: str, port: int) -> None:
    """Raises FileError where nobody can listen there now."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        option = f"--{name.lower()}-port"
        hint = f"; {option} N takes another one, {option} 0 any that is free" if error.errno == errno.EADDRINUSE else ""
        found = FileError(f"{name} cannot listen on {host}:{port}: {error.strerror or error}{hint}")
        found.errno = error.errno
        raise found from None


def _run(main: Coroutine[Any, Any, None], make_loop: Callable[[], asyncio.AbstractEventLoop] | None) -> None:
    """`asyncio.run` on the loop that uvicorn would take: uvloop's where it is installed, which halves what a request costs."""
    if sys.version_info < (3, 11):
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(main)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError.of(error, "cannot read a certificate or key") from None
