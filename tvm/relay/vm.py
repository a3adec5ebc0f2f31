"""`relay.vm`: from modules to executables of the Relay VM."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...formats.messages.errors import ArgumentError, CheckError
from ...vm.device import device
from ..modules.containers import IntImm
from ..runtime.container import ADT
from ..runtime.module import Module
from ..runtime.ndarray import NDArray, array
from ..runtime.vm import Executable, VirtualMachine, convert
from ..target import Target
from .build_module import VMExecutor, array_of, check_target, compiled, optimize
from .module import IRModule, as_module

Tensor = NDArray  # tensors were wrapped before 0.7

__all__ = ["ADT", "Executable", "Tensor", "VMCompiler", "VMExecutor", "VirtualMachine", "compile", "convert"]


def compile(
    mod: Any, target: Any = None, target_host: Any = None, params: Mapping[str, Any] | None = None
) -> Executable:
    """The executable of a module, or of a function as "main". Raises CompileError."""
    compiler = VMCompiler()
    if params:
        compiler.set_params(params)
    compiler.lower(mod, target, target_host)
    compiler.codegen()
    return compiler.get_exec()


def _number(kind: Any) -> IntImm:
    """The number of a device's type, which has a `value`."""
    return IntImm("int32", device(str(kind)).device_type)


class VMCompiler:
    """Compiles one module, step by step: `lower`, `codegen`, `get_exec`; or `optimize` alone."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._module: IRModule | None = None
        self._executable: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Values for parameters of "main", which become constants."""
        self._params = {name: array_of(value) for name, value in params.items()}

    def get_params(self) -> dict[str, Any]:
        """The parameters that were set."""
        return {name: array(value) for name, value in self._params.items()}

    def update_target(self, target: Any) -> dict[int, Target]:
        """Targets by the types of their devices: of one, of a dict from device to target, or the current one. Raises CheckError,
        a ValueError, where there is none, ArgumentError."""
        target = target or Target.current(allow_none=True)
        if target is None:
            raise CheckError("Target is not set in env or passed as argument.")
        if isinstance(target, (str, Target)):
            return {_number(target): Target(target)}
        if not isinstance(target, Mapping):
            raise ArgumentError(
                "target is expected to be str, tvm.target.Target, or dict of str to str/tvm.target.Target, but received "
                f"{type(target)}"
            )
        return {_number(kind): Target(each) for kind, each in target.items()}

    def update_target_host(self, target: Mapping[int, Target], target_host: Any) -> Target:
        """The target of the host: the one that is given, else that of the CPU among `target`, else llvm."""
        return Target(target_host or target.get(device("cpu").device_type) or "llvm")

    def tophub_context(self, target: Any) -> AbstractContextManager:
        """Nothing: kernels need no tuning logs."""
        return nullcontext()

    def _take(self, mod: Any) -> IRModule:
        if self._module is not None:
            raise ArgumentError("Can't reuse VMCompiler object for multiple modules; make one for each")
        self._module = as_module(mod)
        return self._module

    def lower(self, mod: Any, target: Any = None, target_host: Any = None) -> None:
        """Compiles the module. Raises CompileError."""
        check_target(target)
        self._executable = Executable(compiled(self._take(mod), target, self._params))

    def codegen(self) -> None:
        """Nothing more: `lower` makes the kernels too."""
        self.get_exec()

    def optimize(
        self, mod: Any, target: Any = None, target_host: Any = None, params: Mapping[str, Any] | None = None
    ) -> tuple[IRModule, dict]:
        """The module with its parameters bound; what Treadle's passes do comes when it is compiled."""
        if params:
            self.set_params(params)
        return optimize(self._take(mod), target, self._params)

    @property
    def mod(self) -> Module:
        """The compiler as a module of functions: `mod["lower"](module, target)`, …"""
        functions = {name: getattr(self, name) for name in ("codegen", "get_params", "lower", "optimize", "set_params")}
        return Module({**functions, "get_executable": self.get_exec}, "VMCompiler")

    def get_exec(self) -> Executable:
        """The executable. Raises ArgumentError before `lower`."""
        if self._executable is None:
            raise ArgumentError("get_exec: nothing is compiled yet; call lower first")
        return self._executable
