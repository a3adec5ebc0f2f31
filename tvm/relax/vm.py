"""`relax.VirtualMachine`, over the machine that runs the program: Treadle's, or that of `ExecBuilder`'s programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...formats.executable import Executable as Program
from ...formats.messages.errors import ArgumentError, CheckError, UnknownFunctionError, UnknownGlobalFunctionError
from ...vm.budgets import Budget
from ...vm.device import Device, cpu
from ...vm.observe.benchmark import BenchmarkResult, Repeats
from ...vm.observe.hooks import InstrumentAction
from ...vm.observe.report import Report
from ...vm.tensor import Tensor, require_cpu
from ...vm.values import Closure
from ..files.relax_program import RelaxProgram
from ..machines.relax.machine import VMClosure
from ..machines.relax.module import RelaxModule
from ..modules import kinds
from ..modules.containers import Array, Object, ShapeTuple
from ..modules.registry import PackedFunc, get_global_func
from ..runtime.arguments import in_order
from ..runtime.container import given
from ..runtime.module import Module
from .executable import Executable
from .runners import Built, Compiled

VMInstrumentReturnKind = InstrumentAction

__all__ = ["VMInstrumentReturnKind", "VirtualMachine"]


class VirtualMachine:
    """Runs the functions of an executable: directly, with inputs that are set before, or under another name that is saved."""

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    def __init__(
        self,
        rt_mod: Executable | Module | Program,
        device: Device | Sequence[Device],
        memory_cfg: Any = None,
        profile: bool = False,
        *,
        budget: Budget | None = None,
    ) -> None:
        """Raises CheckError for anything but a program, ArgumentError, and UnknownFunctionError with all functions that a program
        calls and nobody has registered. `profile` changes nothing; `budget`, which TVM's has not, bounds each call."""
        program: Any = rt_mod.executable if isinstance(rt_mod, kinds.ExecutableModule) else rt_mod
        program = program.program if isinstance(program, (Executable, RelaxModule)) else program
        if not isinstance(program, (Program, RelaxProgram)):
            raise CheckError(f"Expect the rt_mod to be an runtime.Module with a program, got a {type(rt_mod).__name__}")
        devices: list[Any] = list(device) if isinstance(device, (list, tuple)) else [device]
        if not devices or not all(isinstance(each, Device) for each in devices):
            raise ArgumentError(f"device={device!r}: expected a Device or a list of Devices")
        remote = devices[0] if hasattr(devices[0], "machine_class") and len(devices) == 1 else None
        for each in devices if remote is None else ():
            require_cpu(each, "VirtualMachine")
        if remote is not None and not isinstance(program, Program):
            raise ArgumentError(
                f"{remote!r} runs programs of Treadle's compiler; TVM's bytecode calls functions of this process"
            )
        memory = _memory(memory_cfg)
        module: Any = rt_mod.module if isinstance(rt_mod, Executable) else rt_mod
        functions = module.given_functions() if isinstance(module, RelaxModule) else None
        handed = module.imported_function if isinstance(module, Module) else lambda name: None
        self._runner = (
            Compiled(program, memory, remote, budget, handed)
            if isinstance(program, Program)
            else Built(program, functions, budget)
        )
        self._kernels = program if isinstance(program, Program) else None
        self._runs: dict[str, Callable[[], Any]] = {}
        self._outputs: dict[str, Any] = {}
        self._saved: dict[str, Callable[[], Any]] = {}
        self._direct: dict[str, Callable[..., Any]] = {}

    # ---- direct calls ----

    def __getitem__(self, key: str) -> Callable[..., Any]:
        """A function, or a saved one. Raises UnknownFunctionError, an AttributeError. A function whose inputs are set is called
        by `invoke_stateful` alone: anything else is an ArgumentError."""
        if key in self._saved:
            return self._saved[key]
        if key in self._direct:
            return self._direct[key]
        if key not in self._runner.params:
            raise UnknownFunctionError(f"Module has no function '{key}'; it has {', '.join(self._runner.params)}")

        function, runs, count = self._runner.function(key), self._runs, len(self._runner.params[key])

        def call(*args: Any) -> Any:
            if key in runs:
                raise ArgumentError(
                    f"Invoking function {key} expects {count} arguments, of which set_input has taken "
                    f"hold: call invoke_stateful({key!r}), and get_outputs"
                )
            return given(function(*args))

        call.__name__ = call.__qualname__ = key
        self._direct[key] = call
        return call

    def invoke_closure(self, closure: Any, *args: Any) -> Any:
        """Calls a closure that a function returned: these arguments first, then what it has captured."""
        if not isinstance(closure, (VMClosure, Closure, PackedFunc)):
            raise ArgumentError(f"invoke_closure: expected a closure, got a {type(closure).__name__}")
        return given(closure(*args))

    # ---- stateful calls ----

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keeps copies of arguments, for `invoke_stateful`. Raises UnknownGlobalFunctionError, a ValueError, ArgumentError, and
        for a program that was compiled ShapeError, DTypeError."""
        self._runs[func_name] = self._runner.set_input(func_name, self._values(func_name, args, kwargs))

    def invoke_stateful(self, func_name: str) -> None:
        """Calls a function with its inputs, and keeps the result. Raises CheckError, a ValueError, where none are set."""
        self._outputs.pop(func_name, None)
        run = self._runs.get(func_name)
        if run is None:
            self._known(func_name)
            raise CheckError(f"No inputs set for stateful call of {func_name}; use `set_input` first.")
        self._outputs[func_name] = given(run())

    def get_outputs(self, func_name: str) -> Any:
        """What the last `invoke_stateful` gave: a tensor, or nested tuples. Raises CheckError, a ValueError."""
        self._known(func_name)
        if func_name not in self._outputs:
            raise CheckError(f'No output saved for call of "{func_name}"; use `invoke_stateful` to call it first.')
        return _tuples(self._outputs[func_name])

    def save_function(
        self, func_name: str, saved_name: str, *args: Any, include_return: bool = True, **kwargs: Any
    ) -> None:
        """Makes `vm[saved_name]()` a call of a function with copies of these arguments. Raises CheckError for the name of a
        function of the program; a saved one of that name is replaced."""
        values = self._values(func_name, args, kwargs)
        if saved_name in self._runner.params:
            raise CheckError(f"save_function: {saved_name!r} is a function of the program; take another name")
        run = self._runner.saved(func_name, values)

        def saved() -> Any:
            result = run()
            return given(result) if include_return else None

        saved.__name__ = saved.__qualname__ = saved_name
        self._saved[saved_name] = saved

    def _known(self, name: str) -> tuple[str, ...]:
        if name not in self._runner.params:
            raise UnknownGlobalFunctionError(f"Unknown function: {name}; there are {', '.join(self._runner.params)}")
        return self._runner.params[name]

    def _values(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """One value for each parameter, as `set_input` takes them."""
        names = self._known(name)
        for unused in kwargs.keys() - set(names):
            warnings.warn(f'Keyword argument "{unused}" is unused in {name}', stacklevel=3)
        used = {key: value for key, value in kwargs.items() if key in names}
        return list(map(_value, in_order(name, names, args, used)))

    # ---- looking on ----

    def set_instrument(self, instrument: Callable[..., Any] | str | None) -> None:
        """`instrument(function, symbol, before_run, ret_value, *args)` is called before and after each call; SKIP_RUN from
        before leaves it out. A registered function's name will do; None ends it. Raises UnknownGlobalFunctionError."""
        if isinstance(instrument, str):
            found = get_global_func(instrument, allow_missing=True)
            if found is None:
                raise UnknownGlobalFunctionError(f"Cannot find factory {instrument}; register_func makes one")
            instrument = found.function
        if instrument is not None and not callable(instrument):
            raise ArgumentError(f"set_instrument: expected a function, got a {type(instrument).__name__}")
        self._runner.set_instrument(instrument)

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that times calls of one: of the program, with arguments; a saved one; or "invoke_stateful", with the
        function's name. Raises UnknownFunctionError at once."""
        if func_name == "invoke_stateful":
            function: Callable[..., Any] = self.invoke_stateful
        elif func_name in self._saved or func_name in self._runner.params:
            function = self[func_name]
        else:
            raise UnknownFunctionError(
                f"Cannot find {func_name} in the machine; it has {', '.join(self._runner.params)}"
            )
        repeats = Repeats(number, repeat, min_repeat_ms, 100, cooldown_interval_ms, repeats_to_cooldown)
        return Module({func_name: function}).timed(func_name, dev or cpu(), repeats, f_preproc=f_preproc)

    def profile(self, func_name: str, *args: Any) -> Report:
        """Calls a function once to warm up, and once to see how long what it calls takes; with its inputs where they are set.
        Raises CheckError."""
        names = self._known(func_name)
        if func_name in self._runs:
            if args:
                raise CheckError("Inputs are already provided by set_input.")
            return self._runner.profile(func_name, None)
        if names and not args:
            raise CheckError(f"No input is provided; {func_name} has the parameters {', '.join(names)}")
        return self._runner.profile(func_name, args)

    @property
    def module(self) -> Module:
        """The machine as a module of functions: those of the program, and `set_input`, `invoke_stateful`, …; it imports the
        kernels, by their names."""
        own = {name: self[name] for name in (*self._runner.params, *self._saved)}
        others: dict[str, Callable[..., Any]] = {
            "set_input": lambda name, *args: self.set_input(name, *args),
            "invoke_stateful": lambda name: self.invoke_stateful(name),
            "get_output": lambda name, *indices: self._output(name, indices),
            "get_output_arity": lambda name, *indices: self._arity(name, indices),
            "get_function_arity": lambda name: len(self._known(name)),
            "get_function_param_name": lambda name, index: self._known(name)[index],
            "save_function": lambda name, saved, *args: self.save_function(name, saved, *args),
            "invoke_closure": lambda closure, *args: self.invoke_closure(closure, *args),
            "set_instrument": lambda instrument: self.set_instrument(instrument),
        }
        made = Module({**others, **own}, "relax.VirtualMachine")
        if self._kernels is not None:
            made.import_module(kinds.KernelModule(self._kernels))
        return made

    def _part(self, name: str, indices: Sequence[int]) -> Any:
        value = self.get_outputs(name)
        for index in indices:
            if not isinstance(value, tuple) or not 0 <= index < len(value):
                raise IndexError(f"Invalid index ({index} >= {len(value) if isinstance(value, tuple) else 0}).")
            value = value[index]
        return value

    def _output(self, name: str, indices: Sequence[int]) -> Any:
        value = self._part(name, indices)
        if isinstance(value, tuple):
            raise CheckError(
                "`get_output` cannot return a tuple for RPC compatibility. Please specify another index argument."
            )
        return value

    def _arity(self, name: str, indices: Sequence[int]) -> int:
        value = self._part(name, indices)
        return len(value) if isinstance(value, tuple) else -1


def loader(program: Program) -> Module:
    """What `module["vm_load_executable"]()` of an executable is: a machine as a module, which `vm_initialization` may be told
    devices of."""

    def load() -> Module:
        machine = VirtualMachine(program, cpu()).module
        machine._functions["vm_initialization"] = lambda *devices: None
        return machine

    return Module({"vm_load_executable": load}, "relax.Executable")


def _value(value: Any) -> Any:
    """An argument of `set_input` as a machine takes it: numbers are scalar tensors. Raises ArgumentError."""
    if isinstance(value, (tuple, list)) and not isinstance(value, ShapeTuple):
        return Array(map(_value, value))
    if isinstance(value, bool):
        return Tensor(np.array(value))
    if isinstance(value, (int, float)):
        made = np.array(value, np.int32 if isinstance(value, int) else np.float32)
        if isinstance(value, int) and int(made) != value:
            raise ArgumentError(f"set_input: {value} is not an int32; give an array")
        return Tensor(made)
    if isinstance(value, (Object, Tensor, np.ndarray, np.generic, str, Closure)) or hasattr(value, "__dlpack__"):
        return value
    raise ArgumentError(f"Unsupported type: {type(value)}")


def _tuples(value: Any) -> Any:
    """Tuples as Python's."""
    is_tuple = isinstance(value, tuple) and not isinstance(value, ShapeTuple)
    return tuple(map(_tuples, value)) if is_tuple else value


def _memory(memory_cfg: Any) -> Any:
    """TVM's numbers of allocators, as names."""
    names = {VirtualMachine.NAIVE_ALLOCATOR: "naive", VirtualMachine.POOLED_ALLOCATOR: "pooled"}
    if isinstance(memory_cfg, Mapping):
        return {device: names.get(each, each) for device, each in memory_cfg.items()}
    return memory_cfg
