"""One version of a model, loaded: its machine, its endpoints, the line in which its requests wait."""

from __future__ import annotations

import time
from pathlib import Path

from ..formats.errors import ArgumentError
from ..formats.executable import load
from ..vm.machine import VirtualMachine
from .batching import BatchLine, least_rows, rows_of
from .config import ModelConfig
from .endpoint import Endpoint, endpoints
from .errors import NotFoundError
from .sequences import Sequences
from .statistics import Statistics

MAIN = "main"


class Model:
    """An executable that is served. Immutable but for what is counted: another file makes another model."""

    def __init__(self, name: str, version: int, path: Path, config: ModelConfig) -> None:
        """Loads and verifies the file, and builds its kernels. Raises TreadleError."""
        executable = load(path, mapped=False)  # whoever writes over the file must not end the server
        executable.check_constants()
        machine = VirtualMachine(executable, max_memory=config.max_memory, threads=config.threads)
        self.name, self.version, self.path, self.config = name, version, path, config
        self.machine = machine
        self.endpoints = endpoints(machine, executable, config)
        if not self.endpoints:
            raise ArgumentError(f"{path.name}: it has no function that takes tensors and gives tensors")
        self.main = MAIN if MAIN in self.endpoints else next(iter(self.endpoints))
        self.line = BatchLine(name, config)
        self.sequences = {each: Sequences(config) for each in self.endpoints}
        self.statistics = {each: Statistics() for each in self.endpoints}
        self.merged = frozenset(each for each, endpoint in self.endpoints.items() if self._merge(endpoint))
        for each, endpoint in self.endpoints.items():
            endpoint.statistics = self.statistics[each]  # now, since what was tried above is no client's
        self.loaded = time.time()

    def _merge(self, endpoint: Endpoint) -> bool:
        """Whether requests of this function may become one call; then calls have as many rows as that needs. Raises
        ArgumentError where that is asked for and cannot be."""
        wanted = self.config.batching
        if wanted is False or self.config.max_batch == 1:
            return False
        if wanted and rows_of(endpoint) is None:
            if endpoint.function != self.main:
                return False
            raise ArgumentError(
                f"{self.name}: batching is asked for, but not all inputs and outputs of {endpoint.function!r} begin with one "
                "symbolic dimension; compile it with one, for instance shapes={'x': ('n', …)}"
            )
        least = least_rows(endpoint, self.config.max_batch)
        endpoint.least_rows = least or 1
        return least is not None or wanted is True

    def name_of(self, function: str) -> str:
        """What clients call a function: the main one has the model's name."""
        return self.name if function == self.main else f"{self.name}:{function}"

    def endpoint(self, function: str) -> Endpoint:
        """A function by name; "" is the main one. Raises NotFoundError."""
        found = self.endpoints.get(function or self.main)
        if found is None:
            raise NotFoundError(
                f"model {self.name!r} has no function {function!r} for clients; it has {', '.join(self.endpoints)}"
            )
        return found
