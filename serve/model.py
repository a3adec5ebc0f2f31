"""One version of a model, loaded: its machine, its endpoints, the line in which its requests wait."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from ..formats.executable import Executable, load
from ..formats.messages.errors import ArgumentError, FileError, MissingPackageError
from ..formats.origin import stamp_of
from ..formats.same_file import digest_of_file
from ..vm.machine import VirtualMachine
from .batching import BatchLine
from .config import ModelConfig
from .endpoint import Endpoint, endpoints
from .errors import NotFoundError
from .independence import Merging, merging, rows_of
from .scheduler import Seats
from .sequences import Sequences
from .statistics import Statistics

MAIN = "main"
ONNX = ".onnx"  # of files that are compiled


class Model:
    """An executable that is served. Immutable but for what is counted: another file makes another model."""

    def __init__(
        self,
        name: str,
        version: int,
        path: Path,
        config: ModelConfig,
        before: Model | None = None,
        compiling: Mapping[str, Any] | None = None,
    ) -> None:
        """Loads and verifies the file, or compiles it where it is an ONNX model, and builds its kernels. What was counted of the
        model `before`, whose place it takes, goes on. Raises TreadleError."""
        executable, self.digest = _read(path, compiling or {})
        machine = VirtualMachine(executable, max_memory=config.max_memory, threads=config.threads)
        self.name, self.version, self.path, self.config = name, version, path, config
        self.machine = machine
        self.endpoints = endpoints(machine, executable, config)
        if not self.endpoints:
            raise ArgumentError(f"{path.name}: it has no function that takes tensors and gives tensors")
        self.main = MAIN if MAIN in self.endpoints else next(iter(self.endpoints))
        self.line = BatchLine(name, config)
        self.seats = Seats(name, config.max_queue)
        self.sequences = {each: Sequences(config) for each in self.endpoints}
        counted: dict[str, Statistics] = {} if before is None else before.statistics
        self.statistics: dict[str, Statistics] = {each: counted.get(each) or Statistics() for each in self.endpoints}
        self.merging = {each: self._merging(endpoint) for each, endpoint in self.endpoints.items()}
        self.merged = frozenset(each for each, found in self.merging.items() if found.least is not None)
        for each, endpoint in self.endpoints.items():
            endpoint.statistics = self.statistics[each]  # now, since what was tried above is not a client's
        self.texts, self.no_texts = _texts(executable, machine, config)
        self.tokenizing = ThreadPoolExecutor(1, "treadle-tokens")
        self.adapters = {each: _adapter(machine, path.parent, given) for each, given in config.adapters.items()}
        self.constant_bytes = sum(array.nbytes for array in executable.program.constants)
        self.loaded = time.time()

    def _merging(self, endpoint: Endpoint) -> Merging:
        """Whether requests of this function may become one call, and why; then calls have as many rows as that needs. Raises
        ArgumentError where that is asked for and cannot be."""
        wanted = self.config.batching
        if wanted is False or self.config.max_batch == 1:
            return Merging(
                None, "its configuration says so: " + ("batching is false" if wanted is False else "max_batch is 1")
            )
        if wanted and endpoint.function == self.main and rows_of(endpoint) is None:
            raise ArgumentError(
                f"{self.name}: batching is asked for, but not all inputs and outputs of {endpoint.function!r} begin with one "
                "symbolic dimension; compile it with one, for instance shapes={'x': ('n', …)}"
            )
        found = merging(endpoint, self.config.max_batch)
        endpoint.least_rows, endpoint.least_small_rows = found.least or 1, found.least_small
        if wanted and found.least is None and rows_of(endpoint) is not None:
            return Merging(1, f"its configuration says so, although {found.reason}")
        return found

    def name_of(self, function: str) -> str:
        """Clients' name of a function: the main one has the model's name."""
        return self.name if function == self.main else f"{self.name}:{function}"

    def endpoint(self, function: str) -> Endpoint:
        """A function by name; "" is the main one. Raises NotFoundError."""
        found = self.endpoints.get(function or self.main)
        if found is None:
            raise NotFoundError(
                f"model {self.name!r} has no function {function!r} for clients; it has {', '.join(self.endpoints)}"
            )
        return found


def _texts(executable: Executable, machine: VirtualMachine, config: ModelConfig) -> tuple[Any, str]:
    """What computes with texts, or why nothing does. Raises FormatError, ArgumentError."""
    if executable.text_model is None:
        return None, "it has no tokenizer; treadle.compile puts that of a model's folder into the executable"
    from ..text.loading import of

    try:
        return of(executable, machine, config.max_steps, config.cache_tokens), ""
    except MissingPackageError as error:
        return None, str(error)


def _adapter(machine: VirtualMachine, folder: Path, given: str) -> Any:
    """An adapter for the decoder. Raises TreadleError."""
    from ..decode.adapters import Adapter, Bound

    parts = PurePosixPath(given).parts
    if ".." in parts or PurePosixPath(given).is_absolute():
        raise ArgumentError(f"adapters: {given!r}: expected a path within the model's folder")
    adapter = Adapter.load(folder.joinpath(*parts))
    Bound(machine.inputs(MAIN), MAIN).check(adapter)
    return adapter


def _read(path: Path, compiling: Mapping[str, Any]) -> tuple[Executable, str]:
    """The executable in a file, or of the model in it, and the file's SHA-256. Raises TreadleError."""
    stamp = stamp_of(path)
    if path.suffix == ONNX:
        from ..compiler.driver import compile

        executable = compile(path, **compiling, progress=False, embed_native=False)
    else:
        executable = load(path, mapped=False)  # overwriting the file must not end the server
        executable.check_constants()
    digest = digest_of_file(str(path), stamp)
    if stamp_of(path) != stamp:
        raise FileError(f"{path.name} was replaced while it was read")
    return executable, digest
