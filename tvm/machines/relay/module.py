"""Executables of TVM's Relay VM as modules, which run where every primitive that they call is handed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ....formats.messages.errors import ArgumentError, UnknownFunctionError
from ...files.relay_executable import RelayExecutable, load_relay_executable
from ...modules.module import Module
from ..relax.machine import HANDED, RelaxMachine
from .program import FUNCTIONS, flattened, make_program


class RelayModule(Module):
    """An executable of the Relay VM. A primitive is a function of a module that this one imports: it takes tensors, inputs then
    outputs, into which it writes."""

    type_key = "relay.Executable"

    def __init__(self, executable: RelayExecutable) -> None:
        self.executable = executable
        super().__init__(
            {
                "get_bytecode": lambda: executable.bytecode,
                "get_function_arity": lambda name: len(self.params(name)),
                "load_late_bound_consts_from_map": self.bind,
            }
        )
        self._machine: RelaxMachine | None = None

    def params(self, name: str) -> tuple[str, ...]:
        """The names of a function's parameters. Raises UnknownFunctionError."""
        for function in self.executable.functions:
            if function.name == name:
                return function.params
        known = ", ".join(self.executable.globals)
        raise UnknownFunctionError(f"Cannot find function {name} in executable; it has {known}")

    def function_names(self) -> list[str]:
        return [*self.executable.globals, *super().function_names()]

    def find(self, name: str) -> Callable[..., Any] | None:
        if name not in self.executable.globals:
            return super().find(name)
        machine = self.machine
        return lambda *args: machine.call(name, args)

    def bind(self, constants: Mapping[str, np.ndarray]) -> None:
        """Gives values to constants that are bound by name. Raises ArgumentError where one is missing."""
        names = {each: number for number, each in enumerate(self.executable.constants) if isinstance(each, str)}
        for name, number in names.items():
            if name not in constants:
                raise ArgumentError(f"No binding for late-bound constant at index {number} with name '{name}'")
        if unused := [name for name in constants if name not in names]:
            raise ArgumentError(f"Have {len(unused)} unused late-bound constants: {', '.join(unused)}")
        values = tuple(constants[each] if isinstance(each, str) else each for each in self.executable.constants)
        self.executable, self._machine = replace(self.executable, constants=values), None

    @property
    def unbound(self) -> list[str]:
        """The names of constants that have no value yet."""
        return [each for each in self.executable.constants if isinstance(each, str)]

    @property
    def machine(self) -> RelaxMachine:
        """The machine that its functions run on. Raises UnknownFunctionError with all primitives that are missing, ArgumentError
        where constants are."""
        if self._machine is None:
            if self.unbound:
                raise ArgumentError(
                    f"Need to load late-bound-constants before creating VM: {', '.join(self.unbound)}; see "
                    "load_late_bound_consts"
                )
            self._machine = RelaxMachine(make_program(self.executable), {**FUNCTIONS, **self._primitives()})
        return self._machine

    def _primitives(self) -> dict[str, Callable[..., Any]]:
        """The primitives, by name."""
        found = {}
        for name in self.executable.primitives:
            function = self.imported_function(name)
            if function is not None:
                found[name] = flattened(function)
        if missing := [name for name in self.executable.primitives if name not in found]:
            raise UnknownFunctionError(
                f"Cannot find the primitives {', '.join(missing)}: their code is TVM's native code, which is not run; "
                f"{HANDED}; each takes inputs, then outputs"
            )
        return found

    def get_source(self, fmt: str = "") -> str:
        return "" if fmt else self.executable.bytecode

    @staticmethod
    def load(data: memoryview, trust_native: bool = False) -> RelayModule:
        """The module in a file's bytes."""
        return RelayModule(load_relay_executable(data))
