"""`Executable` over a file that TVM's Relay VM compiler wrote (`code.ro`, or a library)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...formats.executable import Executable as Program
from ...formats.messages.errors import ArgumentError
from ...formats.param_dict import load_param_dict_from_file
from ...formats.types import Type
from ...vm.device import Device
from ...vm.tensor import Tensor
from ..machines.relay.module import RelayModule
from .module import Module
from .vm import Executable
from .vm_text import constants_text, statistics_text


class RelayExecutable(Executable):
    """A program of TVM's. Its primitives are those of the library that is handed over, or registered functions."""

    def __init__(self, mod: RelayModule, trust_native: bool = False) -> None:
        self._module = mod
        self._names = dict.fromkeys(range(len(mod.unbound)), "")

    @property
    def program(self) -> Program:
        """Raises ArgumentError: it is none of Treadle's."""
        raise ArgumentError(
            "this is an executable of TVM's: it is shown and run, but not changed or saved; keep its file"
        )

    def _known(self) -> Program:
        return self.program

    def as_bytes(self) -> bytes:
        return self.program.as_bytes()

    def save(self) -> tuple[bytearray, Module]:
        return bytearray(self.as_bytes()), self.lib

    @property
    def module(self) -> Module:
        """The program as a module of functions."""
        return self._module

    @property
    def lib(self) -> Module:
        """What was handed over as its library. Raises ArgumentError where there is none."""
        if not self._module.imported_modules:
            raise ArgumentError("lib: none was handed over; see load_exec")
        return self._module.imported_modules[0]

    def make_machine(self, memory: Any, device: Device | None = None) -> Any:
        """What runs its functions. Raises UnknownFunctionError with all primitives that are missing, and ArgumentError for a
        remote device."""
        if device is not None:
            raise ArgumentError(
                f"{device!r} runs programs of Treadle's compiler; TVM's bytecode calls functions of this process"
            )
        _ = self._module.machine
        return self._module

    def signature(self, name: str) -> tuple[Sequence[str], Sequence[Type | None]]:
        names = self._module.params(name)
        return names, [None] * len(names)

    # ---- constants kept apart ----

    def load_late_bound_consts(self, path: str | os.PathLike) -> None:
        """Gives constants the values in a parameter file. Does nothing where none are missing."""
        if self._module.unbound:
            self._module.bind(load_param_dict_from_file(path))

    def load_late_bound_consts_from_map(self, map: Mapping[str, Any]) -> None:
        """Gives constants values by name. Does nothing where none are missing. Raises ArgumentError."""
        if self._module.unbound:
            self._module.bind(
                {
                    str(name): value.array if isinstance(value, Tensor) else np.asarray(value)
                    for name, value in map.items()
                }
            )

    # ---- looking inside ----

    def _constants(self) -> list[np.ndarray]:
        return [each for each in self._module.executable.constants if isinstance(each, np.ndarray)]

    @property
    def globals(self) -> list[str]:
        return list(self._module.executable.globals)

    @property
    def primitive_ops(self) -> list[str]:
        return list(self._module.executable.primitives)

    @property
    def bytecode(self) -> str:
        return self._module.executable.bytecode

    @property
    def stats(self) -> str:
        return statistics_text(self._constants(), self.globals, self.primitive_ops)

    @property
    def constants(self) -> str:
        return constants_text(self._constants())

    @property
    def virtual_devices(self) -> str:
        return "".join(
            f"VM VirtualDevice[{number}]: device type {each.type}, id {each.number} and mem_scope {each.scope}\n"
            for number, each in enumerate(self._module.executable.devices)
        )

    def get_function_params(self, func_name: str) -> list[str]:
        return list(self._module.params(func_name))
