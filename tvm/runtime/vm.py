"""The Relay VM's run-time half: `Executable` and `VirtualMachine`, over Treadle's."""

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
from ...vm.device import Device, cpu
from ...vm.tensor import Tensor, require_cpu
from ..files import executables
from ..machines.relay.module import RelayModule
from ..modules import kinds
from .arguments import argument
from .container import ADT, wrapped
from .module import Module
from .ndarray import NDArray
from .vm_text import bytecode_text, constants_text, statistics_text

__all__ = ["Executable", "VMExecutable", "VirtualMachine"]

PREFIX = "vm_mod_fused_"  # what TVM's compiler puts before the names of primitives


class Executable:
    """A compiled program. Its large constants may be kept apart (`move_late_bound_consts`, `get_late_bound_consts`)
    and given back."""

    def __new__(cls, mod: Any = None, trust_native: bool = False) -> Executable:
        """Of TVM's executable a class of its own."""
        if cls is Executable and isinstance(mod, RelayModule):
            from .relay_executable import RelayExecutable

            cls = RelayExecutable
        return super().__new__(cls)

    def __init__(self, mod: Module | Program | bytes, trust_native: bool = False) -> None:
        """Of a module, such as `load_module` gives, of Treadle's executable, or of its bytes."""
        self._program: Program | None = None
        self._waiting: bytes | None = None  # the file of a program that lacks constants
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
            made._program = made._program.with_native(lib.executable.native)
        return made

    @property
    def module(self) -> Module:
        """The program as a module: `export_library`, `mod["load_late_bound_consts"]`."""
        return VMExecutableModule(self)

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
        return [PREFIX + name for name in self._known().primitive_ops]

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


class VirtualMachine:
    """Runs the functions of an executable. Inputs that are set stay for the calls that follow."""

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    def __init__(self, exe: Executable | Module, device: Any = None, memory_cfg: Any = None) -> None:
        """`memory_cfg` is "naive", "pooled", or a dict from device to one of them. Without a device, as before 0.7, `init` is
        told it. Raises ArgumentError, a TypeError."""
        if isinstance(exe, Module):
            exe = Executable(exe)
        if not isinstance(exe, Executable):
            raise ArgumentError(f"exe is expected to be the type of Executable, but received {type(exe)}")
        first = device[0] if isinstance(device, (list, tuple)) and device else device
        self._remote: Device | None = first if hasattr(first, "machine_class") else None
        if device is not None and self._remote is None:
            self.init(device)
        self._exec = exe
        self._machine = exe.make_machine(_memory(memory_cfg), self._remote)
        self._inputs: dict[str, list[Any]] = {}
        self._result: Any = None
        self._has_result = False

    def init(self, device: Any) -> None:
        """Says on which device, or devices, the machine runs: there is one. Raises ArgumentError, a TypeError."""
        devices = list(device) if isinstance(device, (list, tuple)) else [device]
        if not devices or not all(isinstance(each, Device) for each in devices):
            raise ArgumentError("dev is expected to be Device or List[Device]")
        for each in devices:
            require_cpu(each, "VirtualMachine")

    @property
    def module(self) -> Module:
        """The machine as a module of functions: `module["invoke"]("main")`, …"""
        return Module(
            {
                "invoke": lambda name: self.invoke(name),
                "invoke_stateful": lambda name: self.invoke_stateful(name),
                "invoke_return_to_device": lambda name, *device: self.invoke(name),
                "get_output": lambda index: self.get_outputs()[index],
                "get_num_outputs": lambda: len(self.get_outputs()),
                "get_input_index": lambda name, function="main": self.get_input_index(name, function),
                "init": lambda *devices: None,
                "set_input": lambda name, *args: self.set_input(name, *args),
                "set_one_input": lambda name, tag, value: self.set_one_input(name, tag, value),
                "set_outputs": lambda name, *outputs: self._set_outputs(name, outputs),
                "load_late_bound_consts": self._exec.load_late_bound_consts,
            },
            "VirtualMachine",
        )

    # ---- inputs ----

    def _signature(self, name: str) -> tuple[Sequence[str], Sequence[Type | None]]:
        return self._exec.signature(name)

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Arguments for the calls that follow, by place or name. Raises ArgumentError."""
        self._inputs[func_name] = self._arguments(func_name, args, kwargs)

    def _arguments(self, func_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        names, types = self._signature(func_name)
        if unknown := [name for name in kwargs if name not in names]:
            raise ArgumentError(
                f"{func_name} has no parameters {', '.join(unknown)}; it has {', '.join(names) or 'none'}"
            )
        rest = iter(args)
        holes = [name for name in names if name not in kwargs]
        if len(holes) != len(args):
            raise ArgumentError(
                f"{func_name}: The number of provided parameters doesn't match the number of arguments: "
                f"expected {len(names)} ({', '.join(names)}), got {len(args) + len(kwargs)}"
            )
        values = [kwargs[name] if name in kwargs else next(rest) for name in names]
        return [argument(value, type_) for value, type_ in zip(values, types, strict=True)]

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """One argument, by place, by name, or by keyword. Raises ArgumentError."""
        if kwargs and not args and len(kwargs) == 1:
            ((tag, value),) = kwargs.items()
        elif len(args) == 2 and not kwargs:
            tag, value = args
        else:
            raise ArgumentError(f"set_one_input({func_name!r}, …): expected a place or name, and a value")
        names, types = self._signature(func_name)
        place = names.index(tag) if tag in names else tag
        if not isinstance(place, int) or not 0 <= place < len(names):
            raise ArgumentError(f"{func_name} has no parameter {tag!r}; it has {', '.join(names) or 'none'}")
        inputs = self._inputs.setdefault(func_name, [_UNSET] * len(names))
        inputs[place] = argument(value, types[place])

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """The place of a parameter, -1 for a name that is none."""
        names, _ = self._signature(func_name)
        return names.index(input_name) if input_name in names else -1

    # ---- calls ----

    def _values(self, func_name: str) -> list[Any]:
        """The inputs that are set. Raises ArgumentError where one is missing."""
        names, _ = self._signature(func_name)
        inputs = self._inputs.get(func_name, [_UNSET] * len(names))
        missing = [name for name, value in zip(names, inputs, strict=True) if value is _UNSET]
        if missing:
            raise ArgumentError(f"Input has not been set for function {func_name}: {', '.join(missing)}")
        return inputs

    def _call(self, func_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a call gives is its own: another thread's may change what the machine keeps meanwhile."""
        if args or kwargs:
            inputs = self._inputs[func_name] = self._arguments(func_name, args, kwargs)
        else:
            inputs = self._values(func_name)
        self._has_result = False
        result = self._result = wrapped(self._machine[func_name](*inputs))
        self._has_result = True
        return result

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a function: with these arguments, or with those that are set."""
        return self._call(func_name, args, kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Calls "main"."""
        return self.invoke("main", *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """As invoke; the result is for `get_outputs`."""
        self._call(func_name, args, kwargs)

    def get_outputs(self) -> list[Any]:
        """The fields of the last result, or the one. Raises ArgumentError before a call has succeeded."""
        if not self._has_result:
            raise ArgumentError("get_outputs: there is no result; call invoke_stateful first")
        return list(self._result.fields) if isinstance(self._result, ADT) else [self._result]

    def invoke_with_outputs(
        self, func_name: str, input_args: Mapping[str, Any] | None = None, output_args: Sequence[Any] = ()
    ) -> None:
        """Calls a function; its results are put into these tensors. Raises ArgumentError for those that do not fit."""
        if input_args:
            self.set_input(func_name, **input_args)
        self._call(func_name, (), {})
        self._set_outputs(func_name, output_args)

    def _set_outputs(self, func_name: str, outputs: Sequence[Any]) -> None:
        results = self.get_outputs()
        if len(results) != len(outputs):
            raise ArgumentError(
                f"{func_name}: Number of outside output tensors should be equal to model outputs number: "
                f"{len(results)}, got {len(outputs)}"
            )
        for number, (result, output) in enumerate(zip(results, outputs, strict=True)):
            if result.dtype != output.dtype or tuple(result.shape) != tuple(output.shape):
                raise ArgumentError(
                    f"{func_name}: output {number} is {result.dtype}{list(result.shape)}, "
                    f"but the tensor for it is {output.dtype}{list(output.shape)}"
                )
        for result, output in zip(results, outputs, strict=True):
            result.copyto(output)

    def benchmark(
        self,
        device: Device,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> Any:
        """How long a call takes, in seconds: a BenchmarkResult. `end_to_end` converts the arguments in each call."""
        min_repeat_ms = 0 if min_repeat_ms is None else min_repeat_ms
        options: dict[str, Any] = {
            "repeat": repeat,
            "number": number,
            "min_repeat_ms": min_repeat_ms,
            "limit_zero_time_iterations": limit_zero_time_iterations,
            "cooldown_interval_ms": cooldown_interval_ms,
            "repeats_to_cooldown": repeats_to_cooldown,
        }
        names, _ = self._signature(func_name)
        if unknown := [name for name in kwargs if name not in names]:
            raise ArgumentError(f"{func_name}() got an unexpected keyword argument '{unknown[0]}'")
        self.set_input(func_name, *args, **kwargs)
        if self._remote is not None and not end_to_end:  # measured where it runs
            times = number, repeat, min_repeat_ms, cooldown_interval_ms
            return self._machine.time_evaluator(func_name, device, *times)(*self._values(func_name))
        if end_to_end:
            device = cpu() if self._remote is not None else device
            whole = Module({"end_to_end": lambda: self.invoke(func_name, *args, **kwargs)}, "VirtualMachine")
            return whole.time_evaluator("end_to_end", device, **options)()
        return self.module.time_evaluator("invoke", device, **options)(func_name)


_UNSET = object()


def _memory(memory_cfg: Any) -> Any:
    """TVM's ways to say which allocator, as Treadle's one."""
    numbers = {VirtualMachine.NAIVE_ALLOCATOR: "naive", VirtualMachine.POOLED_ALLOCATOR: "pooled"}
    if memory_cfg is None or isinstance(memory_cfg, str):
        return memory_cfg
    if not isinstance(memory_cfg, Mapping):
        raise ArgumentError(f"memory_cfg is expected be string or dictionary, but received {type(memory_cfg)}")
    named = {device: numbers.get(each, each) for device, each in memory_cfg.items()}
    return named.get(cpu(), next(iter(named.values()), None))
