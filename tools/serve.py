"""`treadle serve`: executables of a folder, or one program, for clients that speak the Open Inference Protocol."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ..formats.messages.terminal import Shown
from .errors import UsageError
from .program_files import (
    EXECUTABLE,
    HELP,
    STANDARD_INPUT,
    add_compile_options,
    compile_options,
    program_file,
    write_executable,
)

SUFFIX = ".trdl"
_NEEDED = ("uvicorn", "starlette", "prometheus_client", "grpc", "google.protobuf")

COMMANDS = {"Run models": ("serve",)}


def add_commands(commands: Any) -> None:
    """Adds `serve` to the command line."""
    serve = commands.add_parser("serve", help="serve a folder of executables, or one program, over HTTP and gRPC")
    serve.add_argument("models", help=f"a folder with NAME.trdl or .onnx, or NAME/VERSION/model.trdl; or {HELP}")
    add_compile_options(serve)
    serve.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1, this host alone)"
    )
    serve.add_argument("--http-port", type=int, default=8000, help="0: any that is free; -1: none (default: 8000)")
    serve.add_argument("--grpc-port", type=int, default=8001, help="likewise (default: 8001)")
    serve.add_argument(
        "--config", type=Path, help="JSON: how all models are served that have no configuration of their own"
    )
    serve.add_argument("--explicit", action="store_true", help="load a model only when a client asks for it")
    serve.add_argument(
        "--strict-readiness",
        action="store_true",
        help="ready only while each file in the folder is served as it is; else one that cannot be loaded is not ready itself",
    )
    serve.add_argument(
        "--poll", type=float, default=1.0, metavar="SECONDS", help="between two looks at the folder (default: 1)"
    )
    serve.add_argument(
        "--max-body", type=int, default=256 << 20, metavar="BYTES", help="of a request (default: 256 MiB)"
    )
    serve.add_argument(
        "--drain", type=float, default=30.0, metavar="SECONDS", help="that running calls have at the end (30)"
    )
    serve.add_argument("--tls-certificate", metavar="FILE", help="PEM; with --tls-key, both transports are encrypted")
    serve.add_argument("--tls-key", metavar="FILE", help="PEM")
    serve.add_argument(
        "--tls-client-ca", metavar="FILE", help="PEM; clients must show a certificate that it has signed"
    )
    serve.add_argument("--tokens", metavar="FILE", help="bearer tokens, one a line, of which clients must show one")
    serve.add_argument("--shared-memory", action="store_true", help="clients may name shared memory of this host")
    serve.add_argument(
        "--remote", action="store_true", help="clients may run executables of their own here: treadle.remote"
    )
    serve.add_argument(
        "--remote-idle", type=float, default=60.0, metavar="SECONDS", help="after which a silent session is over (60)"
    )
    serve.add_argument(
        "--remote-seconds", type=float, default=60.0, metavar="SECONDS", help="that a call of a session may take (60)"
    )
    serve.add_argument(
        "--remote-bytes", type=int, default=4 << 30, metavar="BYTES", help="that a session, or a call, may take (4 GiB)"
    )
    serve.add_argument("--access-log", metavar="FILE", help="a JSON line a request; - is standard output")
    serve.set_defaults(command=_serve)


def _serve(options: argparse.Namespace) -> None:
    if options.models != STANDARD_INPUT and not os.path.exists(options.models):
        raise UsageError(f"there is no file or folder {options.models!r}; expected a folder of models, or a program")
    missing = [name for name in _NEEDED if _is_missing(name)]
    if missing:
        raise UsageError(f"{', '.join(missing)} is not installed: pip install 'treadle[serve]'")
    from ..serve.config import ModelConfig
    from ..serve.http_app import HttpLimits
    from ..serve.server import Server, ServerConfig

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=Shown(sys.stderr))
    model = ModelConfig.load(options.config, ModelConfig()) if options.config else ModelConfig()
    config = ServerConfig(
        folder=options.models,
        host=options.host,
        http_port=_port(options.http_port),
        grpc_port=_port(options.grpc_port),
        model=model,
        is_explicit=options.explicit,
        is_strict=options.strict_readiness,
        compiling=compile_options(options),
        poll=options.poll,
        limits=replace(HttpLimits(), max_body=options.max_body),
        drain=options.drain,
        certificate=options.tls_certificate,
        key=options.tls_key,
        client_ca=options.tls_client_ca,
        tokens=options.tokens,
        shared_memory=options.shared_memory,
        remote=_remote(options),
    )
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(served_folder(options.models, **compile_options(options)))
        config = replace(config, folder=folder)
        log = None
        if options.access_log:
            log = sys.stdout if options.access_log == "-" else stack.enter_context(_appended(options.access_log))
        server = Server(config, log)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it for SIGHUP
                signal.signal(number, server.stop)
        server.run()


@contextlib.contextmanager
def _appended(path: str) -> Iterator[IO[str]]:
    """A file to write to. One that a full disk does not take to its end is not an error: the requests were answered."""
    file = open(path, "a")  # noqa: SIM115
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            file.close()


@contextlib.contextmanager
def served_folder(name: str, **compiling: Any) -> Iterator[Path]:
    """A folder itself. Of a program, one that holds it alone, under its own name, until the body ends.

    A model is compiled, as `compiling` says. An executable's file stays where it is: another one in its place is served, too.
    Raises what reading and compiling raise.
    """
    if name != STANDARD_INPUT and not os.path.isfile(name):
        yield Path(name)
        return
    file = program_file(name)
    known = "model" if isinstance(file.source, bytes) else _model_name(file.source)
    with tempfile.TemporaryDirectory(prefix="treadle-serve-") as made:
        place = Path(made, known + SUFFIX)
        if file.kind == EXECUTABLE and isinstance(file.source, Path):
            _link(file.source, place)
            if (settings := file.source.with_suffix(".json")).is_file():
                _link(settings, place.with_suffix(".json"))
        else:
            write_executable(file.executable(kernels=True, **compiling), place)
        yield Path(made)


def _model_name(path: Path) -> str:
    """Clients' name of the program in a file: the file's, without characters that a model's name may not have."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", path.stem).lstrip("._-")[:128] or "model"


def _link(path: Path, place: Path) -> None:
    try:
        place.symlink_to(os.path.abspath(path))
    except OSError:  # systems that let few users make links
        shutil.copyfile(path, place)


def _remote(options: argparse.Namespace) -> Any:
    if not options.remote:
        return None
    from ..rpc.server.sessions import RemoteLimits

    return RemoteLimits(
        idle=options.remote_idle,
        seconds=options.remote_seconds,
        bytes=options.remote_bytes,
        memory=options.remote_bytes,
        executable_bytes=options.remote_bytes,
    )


def _port(number: int) -> int | None:
    return None if number < 0 else number


def _is_missing(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:  # of a package around it
        return True
