"""Compiled programs, Treadle's and those that TVM's Relay VM compiler wrote (`code.ro`, or a library), as `Executable`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...formats import executable as formats
from ...formats.executable import Executable as Program
from ...formats.messages.errors import ArgumentError, UnknownFunctionError
from ...formats.param_dict import load_param_dict_from_file, save_param_dict_to_file
from ...formats.types import Type
from ...vm import machine
from ...vm.device import Device
from ...vm.tensor import Tensor
from ..files import executables
from ..graphs.names import VM_PREFIX
from ..machines.relay.module import RelayModule
from ..modules import kinds
from .module import Module
from .ndarray import NDArray
from .vm_text import bytecode_text, constants_text, statistics_text

__all__ = ["Executable", "RelayExecutable", "VMExecutable"]


class Executable:
    """A compiled program. Its large constants may be kept apart (`move_late_bound_consts`, `get_late_bound_consts`)
    and given back."""

    def __new__(cls, mod: Any = None, trust_native: bool = False) -> Executable:
        """Of TVM's executable a class of its own."""
        if cls is Executable and isinstance(mod, RelayModule):
            cls = RelayExecutable
        return super().__new__(cls)

    def __init__(self, mod: Module | Program | bytes, trust_native: bool = False) -> None:
        """Of a module, such as `load_module` gives, of Treadle's executable, or of its bytes."""
        self._program: Program | None = None
        self._waiting: bytes | None = None  # the file of a program that lacks constants
        self._face: Module | None = None  # the program as a module, once somebody asked for it
        self._names: dict[int, str] = {}  # of the constants that were taken away, by index
        source = mod.executable if isinstance(mod, kinds.ExecutableModule) else mod
        if isinstance(source, VMExecutableModule):
            self.__dict__ = source.of.__dict__  # two faces of one program
        elif isinstance(source, Program):
            self._program = source
        elif isinstance(source, (bytes, bytearray)):
            self._open(bytes(source), trust_native)
        else:
            raise ArgumentError(f"Executable: expected a module with a program, got a {type(mod).__name__}")

    def _open(self, source: bytes, trust_native: bool) -> None:
        missing = formats.late_bound_constants(source)
        if missing:
            self._waiting, self._names = source, {index: constant.key for index, constant in missing.items()}
        else:
            self._program = formats.load(source, trust_native=trust_native)

    # ---- the program ----

    @property
    def program(self) -> Program:
        """Treadle's executable. Raises ArgumentError while constants are missing."""
        if self._program is None or self._names:
            raise ArgumentError(
                "Need to load late-bound-constants before creating VM; see load_late_bound_consts, "
                "load_late_bound_consts_from_map"
            )
        return self._program

    def _known(self) -> Program:
        """The program, of which constants may be missing: what can be read of it does not need them."""
        if self._program is None:
            assert self._waiting is not None
            stand_ins = {
                constant.key: np.broadcast_to(np.zeros((), constant.type.dtype.numpy), constant.type.shape)  # type: ignore[arg-type]
                for constant in formats.late_bound_constants(self._waiting).values()
            }
            return formats.load(self._waiting, constants=stand_ins)
        return self._program

    def as_bytes(self) -> bytes:
        """The file, without the constants that were taken away."""
        if self._program is None:
            assert self._waiting is not None
            return self._waiting
        return self._program.with_named_constants(self._names).as_bytes()

    # ---- running ----

    def make_machine(self, memory: Any, device: Device | None = None) -> Any:
        """What runs its functions, here or on a remote device."""
        return machine.VirtualMachine(self.program, device, memory_cfg=memory)

    def signature(self, name: str) -> tuple[Sequence[str], Sequence[Type | None]]:
        """The names of a function's parameters, and their types, None where the program does not say. Raises
        UnknownFunctionError."""
        program = self.program
        if name not in program.globals:
            raise UnknownFunctionError(
                f"Cannot find function {name} in executable; it has {', '.join(program.globals)}"
            )
        return program.get_function_params(name), program.function(name).type.params

    # ---- saving ----

    def save(self) -> tuple[bytearray, Module]:
        """The code, and the module of its kernels."""
        if self._program is None:
            raise ArgumentError("save: constants are missing; call load_late_bound_consts first")
        code, _ = self._program.with_named_constants(self._names).save()
        return bytearray(code), self.lib

    @staticmethod
    def load_exec(bytecode: Any, lib: Module | None) -> Executable:
        """The inverse of `save`. Raises ArgumentError, a TypeError, and FormatError."""
        if isinstance(bytecode, str) and os.path.isfile(bytecode):
            raise ArgumentError(f"bytecode: expected what `save` gave, got the path {bytecode!r}; read the file first")
        if isinstance(bytecode, (bytes, str)):
            bytecode = bytearray(bytecode.encode("latin-1") if isinstance(bytecode, str) else bytecode)
        if not isinstance(bytecode, bytearray):
            raise ArgumentError(
                f"bytecode is expected to be the type of bytearray or TVMByteArray, but received {type(bytecode)}"
            )
        if lib is not None and not isinstance(lib, Module):
            raise ArgumentError(f"lib is expected to be the type of tvm.runtime.Module, but received {type(lib)}")
        data = memoryview(bytes(bytecode))
        if executables.find_executable(data, executables.RELAY) is not None:
            module = RelayModule.load(data)
            if lib is not None:
                module.import_module(lib)
            return Executable(module)
        made = Executable(bytes(data))
        if isinstance(lib, kinds.KernelModule) and made._program is not None:
            made._program = made._program.with_native_of(lib.executable)
        return made

    @property
    def module(self) -> Module:
        """The program as a module: `export_library`, `mod["load_late_bound_consts"]`; the same one each time."""
        if self._face is None:
            self._face = VMExecutableModule(self)
        return self._face

    @property
    def mod(self) -> Module:
        return self.module

    @property
    def lib(self) -> Module:
        """The module of its kernels."""
        return kinds.KernelModule(self._known())

    # ---- constants kept apart ----

    def _take_constants(self, byte_limit: int) -> dict[str, np.ndarray]:
        if self._names:
            raise ArgumentError("constants have been taken away already; load them first")
        constants = self.program.constants
        self._names = {index: f"const_{index}" for index, array in enumerate(constants) if array.nbytes >= byte_limit}
        return {name: constants[index] for index, name in self._names.items()}

    def move_late_bound_consts(self, path: str | os.PathLike, byte_limit: int) -> None:
        """Writes the constants of `byte_limit` bytes and more into a parameter file, and leaves them out of the program."""
        save_param_dict_to_file(self._take_constants(byte_limit), path)

    def get_late_bound_consts(self, byte_limit: int) -> dict[str, NDArray]:
        """The constants of `byte_limit` bytes and more by name, which the program is without from now on."""
        return {name: NDArray(array) for name, array in self._take_constants(byte_limit).items()}

    def load_late_bound_consts(self, path: str | os.PathLike) -> None:
        """Puts back the constants in a parameter file. Does nothing where none are missing. Raises FormatError."""
        if self._names:
            self.load_late_bound_consts_from_map(load_param_dict_from_file(path))

    def load_late_bound_consts_from_map(self, map: Mapping[str, Any]) -> None:
        """Puts back constants by name. Does nothing where none are missing. Raises FormatError, ArgumentError."""
        if not self._names:
            return
        given = {
            str(name): value.array if isinstance(value, Tensor) else np.asarray(value) for name, value in map.items()
        }
        for index, name in self._names.items():
            if name not in given:
                raise ArgumentError(f"No binding for late-bound constant at index {index} with name '{name}'")
        if len(given) > len(self._names):
            raise ArgumentError(f"Have {len(given) - len(self._names)} unused late-bound constants")
        source = self.as_bytes()
        program = formats.load(source, constants=given)
        program.check_constants()
        self._program, self._waiting, self._names = program, None, {}

    # ---- looking inside ----

    @property
    def globals(self) -> list[str]:
        """The functions."""
        return [function.name for function in self._known().program.functions]

    @property
    def primitive_ops(self) -> list[str]:
        """The primitives, named as TVM names them."""
        return [VM_PREFIX + name for name in self._known().primitive_ops]

    @property
    def bytecode(self) -> str:
        """The code as text, in the Relay VM's layout (`vm_text.py`)."""
        return bytecode_text(self._known().program)

    @property
    def stats(self) -> str:
        """What the program consists of."""
        return statistics_text(self._known().program.constants, self.globals, self.primitive_ops)

    @property
    def constants(self) -> str:
        """The constants as text."""
        return constants_text(self._known().program.constants)

    @property
    def virtual_devices(self) -> str:
        return "VM VirtualDevice[0]: device type 1, id 0 and mem_scope \n"

    @property
    def primitives(self) -> str:
        return "".join(f"VM PackedFunc[{number}]: {name}\n" for number, name in enumerate(self.primitive_ops))

    def get_function_params(self, func_name: str) -> list[str]:
        """The names of a function's parameters. Raises UnknownFunctionError."""
        return self._known().get_function_params(func_name)


VMExecutable = Executable


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


class VMExecutableModule(Module):
    """A program as a module: its file is exported and comes back with constants that are kept apart still missing."""

    type_key = "VMExecutable"

    def __init__(self, of: Executable) -> None:
        super().__init__(
            {
                "load_late_bound_consts": of.load_late_bound_consts,
                "load_late_bound_consts_from_map": of.load_late_bound_consts_from_map,
                "get_function_arity": lambda name: len(of.get_function_params(name)),
                "get_stats": lambda: of.stats,
                "get_bytecode": lambda: of.bytecode,
                "get_lib": lambda: of.lib,
                "get_function_param_name": lambda name, index: of.get_function_params(name)[index],
                "save": lambda: of.save()[0],
            }
        )
        self.of = of

    @property
    def executable(self) -> Program:
        """Treadle's executable. Raises ArgumentError while constants are missing."""
        return self.of.program

    def get_source(self, fmt: str = "") -> str:
        return self.of.lib.get_source(fmt) if fmt else self.of.bytecode

    def pieces(self) -> list[Any]:
        return [self.of.as_bytes()]

    def has_native_code(self) -> bool:
        return True

    def objects(self) -> dict[str, bytes]:
        return self.of.lib.objects()

    def symbols(self) -> dict[str, str]:
        return self.of.lib.symbols()


def load_executable(data: memoryview, trust_native: bool = False) -> VMExecutableModule:
    """The module that `VMExecutableModule.pieces` gave."""
    return VMExecutableModule(Executable(bytes(data), trust_native))
