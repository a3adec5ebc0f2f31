"""The virtual machine: an executable, linked and ready to be called from any number of threads.

    machine = treadle.VirtualMachine(treadle.load("model.trdl"))
    result = machine["main"](x).numpy()

This is what users see; `calls.py` says how a call goes.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import vm
from ..formats.constants import aligned_copy
from ..formats.executable import Executable
from ..formats.messages.calling import Suggesting, mapping, public_class, told
from ..formats.messages.errors import ArgumentError, ExecutionError, NotPicklableError, UnknownFunctionError, naming
from ..formats.messages.names import near
from ..formats.ports import Ports
from ..formats.starting import Thread
from ..native import knobs
from ..native.once import Lock
from . import library
from .budgets import BOUNDS, DEFAULT_DEPTH, OF_A_CALL, Budget, CancelToken
from .calls import Calls, arguments, bound
from .device import Device, cpu
from .device import device as device_of
from .image import Image
from .imports import find_imports
from .layout import MAX_THREADS
from .observe.hooks import NO_OP, SKIP_RUN, Instrument, InstrumentAction, Listener, wanted
from .outputs import describe, output_number
from .stateful import SavedCall, Stateful
from .threads import get_num_threads
from .values import Closure
from .verify.verifier import verify

if TYPE_CHECKING:
    from ..debug.debugger.session import Session
    from ..debug.recorder import Recorder
    from .observe.profile import MetricCollector, Profile
    from .replaced_weights import Weights

__all__ = ["NO_OP", "SKIP_RUN", "CancelToken", "InstrumentAction", "Listener", "VirtualMachine"]


class _Bound:
    """A bound of a machine, which can be read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.__doc__ = f"The `{name}` that the machine was made with: of each call that is given no other."

    def __get__(self, machine: VirtualMachine | None, kind: type) -> Any:
        return self if machine is None else getattr(machine._budget, self.name)

    def __set__(self, machine: VirtualMachine, value: Any) -> None:
        raise ArgumentError(
            f"{self.name} of a machine is set when it is made, VirtualMachine(exe, {self.name}=…), or for one call: "
            f"machine.call(name, arguments, {self.name}=…)"
        )


@public_class
class VirtualMachine(Suggesting):
    """Runs the functions of an executable. Threads may call it at once; each call has a context of its own."""

    _reads_in_place = True  # whether calls read the caller's arrays where they lie: nothing is sent elsewhere

    def __new__(cls, *given: Any, **options: Any) -> VirtualMachine:
        """A device that is elsewhere has machines of its own class, which has this interface."""
        device = given[1] if len(given) > 1 else options.get("device")
        first = device[0] if isinstance(device, (list, tuple)) and len(device) == 1 else device
        return object.__new__(getattr(first, "machine_class", cls) if cls is VirtualMachine else cls)

    def __init__(
        self,
        exe: Executable,
        device: Device | Sequence[Device] | None = None,
        memory_cfg: str | Mapping[Device | str, str] | None = None,
        profile: bool = False,
        *,
        imports: Mapping[str, Callable[..., Any]] | None = None,
        kernels: str = "build",
        trust_native: bool = False,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        max_memory: int | None = None,
        max_depth: int = DEFAULT_DEPTH,
        max_build_seconds: float | None = None,
        threads: int | None = None,
    ) -> None:
        """Verifies the program and links its primitives.

        `imports` are the functions of Python's that the program declares to call, by name: it reaches no others. One that is
        given and not declared is left alone. `memory_cfg` is "pooled" (the default: freed memory is kept for the next call) or
        "naive", or says so by device, or by its name. `profile`, which is TVM's, changes nothing. `kernels` is "build", or
        "cached": then nothing is compiled, and primitives that the cache lacks run by their reference implementation, slowly.
        `trust_native` lets native code in the executable's file run; it can do anything this process can. The bounds hold for
        every call. `threads` is how many of the process's threads (`set_num_threads`) may share a kernel of its calls (None: all;
        1: no worker is started for it). `max_build_seconds` bounds how long kernels are built now (None:
        TREADLE_MAX_BUILD_SECONDS); what no call can come to is not built.

        Raises UnknownFunctionError with all imports that are missing, VerificationError, ChecksumError,
        ArgumentError, CompileError, BudgetExceededError.
        """
        if not isinstance(exe, Executable):
            raise ArgumentError(f"VirtualMachine(exe): expected an Executable, got {told(exe)}{_how_to_make(exe)}")
        self.device = self._own_device(device)
        self.executable = exe
        self._program, self._weights, self._swapping = exe.program, exe.weights, Lock()
        self._weighing = Lock()
        self._bases: dict[str, np.ndarray] = {}  # of the weights that have a delta, what they are without it
        self._budget = Budget(max_steps, max_seconds, max_memory, max_depth, threads=threads)
        self._listeners: tuple[Listener, ...] = ()
        self._instruments: tuple[Listener, ...] = ()  # that of `set_instrument`
        self._listening = Lock()
        self._functions = {f.name: number for number, f in enumerate(exe.program.functions) if not f.captured}
        self._callables: dict[str, Callable[..., Any]] = {}
        self._saved: dict[str, SavedCall] = {}  # by the names of `save_function`
        keeps_memory = _keeps_memory(memory_cfg, self.device)
        with naming("a machine"):
            self._link(exe, imports, kernels, trust_native, keeps_memory, max_build_seconds)
        self._options: dict[str, Any] = {  # as it was made, without bounds
            "memory_cfg": "pooled" if keeps_memory else "naive",
            "imports": None if imports is None else dict(imports),
            "kernels": kernels,
            "trust_native": trust_native,
            "max_build_seconds": max_build_seconds,
        }

    def _own_device(self, device: Any) -> Device:
        """Where this class's machines run. Raises ArgumentError for another device."""
        return _device(device)

    def _link(
        self,
        exe: Executable,
        imports: Mapping[str, Callable[..., Any]] | None,
        kernels: str,
        trust_native: bool,
        keeps_memory: bool,
        max_build_seconds: float | None,
    ) -> None:
        """Verifies the program and makes what calls it."""
        verified = verify(exe.program)
        imported = find_imports(exe.program, imports)
        called, seconds = verified.called_primitives(), _build_seconds(max_build_seconds)
        trusted = exe.native if trust_native or exe.trust_native else None
        with _meanwhile(exe.check_constants):
            linked = library.link(exe.program, kernels, trusted, called, seconds)
            image = Image(verified, linked)
        self._calls = Calls(image, keeps_memory, self._budget, imported)
        self._owner: object = self._calls  # of its saved calls
        self._stateful = Stateful(self._calls)

    # ---- pickling ----

    def __reduce__(self) -> tuple[Any, ...]:
        """As its executable (`Executable.__reduce__`), its options and bounds, and the weights that it was given since.

        Unpickling makes another machine: it verifies, links, and raises what `VirtualMachine` raises. Functions of `imports` go
        as pickle has functions: by the names of their modules. What was set for stateful calls (`set_input`, `save_function`)
        stays here, and so do results, calls that run, and the process's own setting (`set_num_threads`). Raises
        NotPicklableError for a machine that listeners listen to.
        """
        if self._listeners:
            raise NotPicklableError(
                f"a machine that {self._listeners[0]!r} listens to can be neither pickled nor copied: nobody would be told of "
                "the other's calls; end `listening`, or set_instrument(None), before"
            )
        budget = self._budget
        bounds = {name: getattr(budget, name) for name in BOUNDS}
        bases = [self._bases] if self._bases else []
        return _made_again, (type(self), self.executable, {**self._options, **bounds}, self._replaced(), *bases)

    def _replaced(self) -> dict[int, np.ndarray]:
        """The constants that are others than the executable's, by their places."""
        given, now = self._program.constants, self._calls.image.arrays
        return {place: now[place] for place, _ in self._weights.constants if now[place] is not given[place]}

    # ---- what there is ----

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.device!r}: {', '.join(self._functions)}>"

    def _repr_html_(self) -> str:
        from ..formats.text.html import heading, port_table, together

        functions = self.executable.program.functions
        return together(heading(f"{type(self).__name__} on {self.device!r}"), port_table(functions))

    def _instead_of(self, name: str) -> str:
        if name in self:
            return f"; the program's function of that name is machine[{name!r}]"
        if not name.startswith("_") and hasattr(type(self.executable), name):
            return f"; its executable has it: machine.executable.{name}"
        return super()._instead_of(name)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    max_steps, max_seconds, max_memory, max_depth, threads = map(_Bound, BOUNDS)

    def inputs(self, name: str = "main") -> Ports:
        """The parameters of a function: names, element types, shapes. Raises UnknownFunctionError."""
        return self.executable.inputs(name)

    def outputs(self, name: str = "main") -> Ports:
        """The result of a function, or the fields of its tuple, as the model calls them. Raises UnknownFunctionError."""
        return self.executable.outputs(name)

    # ---- calling ----

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The function of that name, as a Python function. Raises UnknownFunctionError."""
        found = self._callables.get(name) if isinstance(name, str) else None
        if found is None:
            found = self._callables[name] = self._callable(self._number(name))
        return found

    def converting(self, name: str, convert: Callable[[Sequence[Any]], Sequence[Any]]) -> Callable[..., Any]:
        """The function of that name, for arguments by position that `convert` makes the program's, where it does not take them
        as they are: arrays and tensors of its parameters' types cost no conversion. Raises UnknownFunctionError."""
        call = self[name]

        def otherwise(*args: Any) -> Any:
            return call(*convert(args))

        return self._direct(self._number(name), otherwise) or otherwise

    def __iter__(self) -> Iterator[str]:
        """The names of its functions, then of those that were saved."""
        return iter([*self._functions, *(name for name in self._callables if name not in self._functions)])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._functions or name in self._callables)

    def invoke(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function by name; without arguments, with those of `set_input` if there are any."""
        if not args and not kwargs:
            args = tuple(self._stateful.inputs(name) or ())
        return self[name](*args, **kwargs)

    def run(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls "main"."""
        try:
            return self.invoke("main", *args, **kwargs)
        except ExecutionError:
            if len(args) != 2 or not (args[0] is None or isinstance(args[0], list)) or not isinstance(args[1], Mapping):
                raise
            raise ArgumentError(
                "run(names, feeds) is ONNX Runtime's; here machine.run(**feeds) calls the function, and gives all results: "
                "one as a tensor, several as a tuple with names"
            ) from None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls "main"."""
        return self.invoke("main", *args, **kwargs)

    def call(
        self,
        name: str | Closure | SavedCall,
        args: Sequence[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        max_memory: int | None = None,
        max_depth: int | None = None,
        threads: int | None = None,
        cancel: CancelToken | None = None,
    ) -> Any:
        """Calls a function, a saved one, a closure of this machine, or what `saved_call` gave, with bounds for this call; what is
        None is as the machine has it. With `args` of None, the arguments are those of `set_input`.

        Raises BudgetExceededError or CancelledError when a bound is passed; the machine can be used afterwards.
        """
        if args.__class__ is not tuple and args.__class__ is not list and args is not None:
            args = arguments("call", args)
        if kwargs is not None:
            mapping("call: kwargs", kwargs, "arguments by name")
        bounds = {"max_steps": max_steps, "max_seconds": max_seconds, "max_memory": max_memory, "max_depth": max_depth}
        budget = self._budget.but(cancel=cancel, threads=threads, **bounds)
        name = self._saved.get(name, name) if isinstance(name, str) else name
        if isinstance(name, SavedCall):
            self._require_own_call(name, args, kwargs)
            return name() if budget is self._budget else self._calls.call(name.number, name.values, budget)
        if isinstance(name, Closure):
            self._require_own(name)
            return self._calls.call_closure(name, args or (), budget)
        if args is None:
            args = self._stateful.inputs(name) or ()
        number = self._number(name)
        values = self._bind(number, args, kwargs or {})
        return self[name](*values) if budget is self._budget else self._calls.call(number, values, budget)

    async def call_async(
        self,
        name: str | Closure | SavedCall,
        args: Sequence[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        cancel: CancelToken | None = None,
        **bounds: Any,
    ) -> Any:
        """`call`, in a thread of the running event loop's: the loop goes on meanwhile. When the task is cancelled, so is the
        call, by its token: the task ends when the call has, whose arguments nobody reads any more then."""
        import asyncio

        token = CancelToken() if cancel is None else cancel
        make = functools.partial(self.call, name, args, kwargs, cancel=token, **bounds)
        running = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, make)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            token.cancel()
            while not running.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            running.exception()  # which nobody else asks for
            raise

    def invoke_closure(self, closure: Closure, *args: Any) -> Any:
        """Calls a closure that this machine returned."""
        self._require_own(closure)
        return self._calls.call_closure(closure, args, self._budget)

    def bind(
        self, name: str, arguments: Sequence[np.ndarray], results: Sequence[np.ndarray] | None = None
    ) -> Callable[[], Any]:
        """A call of a function that always reads these arrays and writes its results into those; see `bound.bind`."""
        from .bound import bind

        for what, arrays in (("arguments", arguments), ("results", () if results is None else results)):
            if not isinstance(arrays, (list, tuple)) or not all(isinstance(each, np.ndarray) for each in arrays):
                raise ArgumentError(f"bind: {what}: expected a list of arrays, got {told(arrays)}")
        return bind(self._calls, self._number(name), arguments, results)

    # ---- weights ----

    def load_params(self, params: Mapping[str, Any]) -> None:
        """Takes other weights, by their names in the model, for an executable that was compiled with `named_weights`.

        Results are to the bit those of a program that was compiled with them; nothing is compiled. Any of them may be given: the
        others stay as they are. Calls that run meanwhile in other threads may see old and new ones.

        Raises ArgumentError: for unknown names and other types, and for a weight that decided about the program, as numbers do
        that are all alike.
        """
        mapping("load_params", params, "arrays by name, as treadle.load_params gives them")
        with self._weighing:
            self._take(params)
            self._bases = {name: base for name, base in self._bases.items() if name not in params}

    def load_deltas(self, deltas: Mapping[str, Any], scale: float = 1.0) -> None:
        """Adds to weights, by their names in the model, what an adapter says: `scale * delta`, or `scale * B @ A` of a pair
        (B, A), as LoRA has them. Deltas are to the weights that were compiled in, or given to `load_params`, and take the place
        of those before: `load_deltas({})` gives the weights back, to the bit. Raises ArgumentError, as `load_params` does."""
        from .replaced_weights import changed

        mapping("load_deltas", deltas, "arrays, or pairs of arrays B, A, by the names of weights")
        if isinstance(scale, bool) or not isinstance(scale, (int, float, np.number)):
            raise ArgumentError(f"load_deltas: scale: expected a number, got {told(scale)}")
        with self._weighing:
            weights = self.weights
            bases = {name: self._bases[name] if name in self._bases else weights[name].array for name in deltas}
            made = {name: changed(name, bases[name], delta, float(scale)) for name, delta in deltas.items()}
            self._take({**{name: base for name, base in self._bases.items() if name not in deltas}, **made})
            self._bases = bases

    def _take(self, params: Mapping[str, Any]) -> None:
        from .replaced_weights import constants_of

        self.load_constants(constants_of(self._weights, params, self._constant))

    def _constant(self, place: int) -> np.ndarray:
        """The current value of a constant of the program."""
        return self._calls.image.arrays[place]

    def load_constants(self, constants: Mapping[int, Any]) -> None:
        """Takes other constants, by their places, of those that are made of named weights; `load_params` makes them. Raises
        ArgumentError for another place or type."""
        from .replaced_weights import check_constants

        mapping("load_constants", constants, "arrays by place")
        check_constants(self._weights, self._calls.image.arrays, constants)
        arrays = {place: aligned_copy(array) for place, array in constants.items()}
        for array in arrays.values():
            array.flags.writeable = False
        with self._swapping:
            self._calls.replace_constants(arrays)

    def share_params(self, other: VirtualMachine) -> None:
        """Takes the weights that another machine of the same program has now, without a copy: both read the same memory. What
        either loads later is its own. Raises ArgumentError where they are not of the same program."""
        calls = getattr(other, "_calls", None)  # one at a server has none here
        if not isinstance(calls, Calls) or not other._weights.is_like(self._weights):
            raise ArgumentError(
                f"share_params: expected a machine of the same program with named weights, in this process; got {other!r}"
            )
        arrays = {place: calls.image.arrays[place] for place, _ in self._weights.constants}
        with self._swapping:
            self._calls.replace_constants(arrays)
        self._bases = other._bases

    @property
    def weights(self) -> Weights:
        """The weights that `load_params` takes, by their names in the model: `machine.weights[name]` are the elements that are
        there now, read-only, and `machine.weights.types` says of each what it is."""
        from .replaced_weights import Weights

        return Weights(self._weights, self._constant)

    # ---- stateful calls ----

    def set_input(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Keeps copies of arguments for `invoke_stateful` and `invoke`, checked now. Raises ArgumentError, DTypeError,
        ShapeError; then the arguments of before stay."""
        number = self._number(name)
        self._stateful.set_input(name, number, self._bind(number, args, kwargs))

    def invoke_stateful(self, name: str) -> None:
        """Calls a function with the arguments of `set_input`, and keeps its result for `get_outputs`."""
        self._stateful.invoke(name, self._number(name))

    def get_outputs(self, name: str = "main", index: int | str | None = None) -> Any:
        """The result of the function's last `invoke_stateful`; with `index`, a position or a name, one part of a tuple. None is
        left of it when a later one fails: ArgumentError. Raises UnknownOutputError for an unknown name."""
        function = self._program.functions[self._number(name)]
        value = self._stateful.output(name)
        if index is None:
            return value
        number = output_number(function, index)
        return value[number] if isinstance(value, tuple) else value

    def save_function(
        self, name: str, saved_name: str, /, *args: Any, include_return: bool = True, **kwargs: Any
    ) -> None:
        """Makes `machine[saved_name]()` a call of a function with copies of these arguments, whose checks are done now."""
        if not isinstance(saved_name, str) or not saved_name:
            raise ArgumentError(f"save_function: saved_name: expected a name, got {told(saved_name)}")
        if saved_name in self._functions:
            raise ArgumentError(f"save_function: {saved_name!r} is a function of the program; take another name")
        run = self.saved_call(name, *args, **kwargs)

        def saved() -> Any:
            result = run()
            return result if include_return else None

        saved.__name__ = saved.__qualname__ = saved_name
        self._callables[saved_name], self._saved[saved_name] = saved, run

    def saved_call(self, name: str, /, *args: Any, **kwargs: Any) -> SavedCall:
        """A call of a function with copies of these arguments, whose checks are done now."""
        number = self._number(name)
        return self._stateful.saved(name, number, self._bind(number, args, kwargs))

    def get_input_index(self, input_name: str, name: str = "main") -> int:
        """The position of a parameter, -1 if the function has none of that name."""
        names = self._program.functions[self._number(name)].param_names
        return names.index(input_name) if isinstance(input_name, str) and input_name in names else -1

    def get_function_params(self, name: str) -> tuple[str, ...]:
        """The names of a function's parameters."""
        return self._program.functions[self._number(name)].param_names

    # ---- listeners ----

    @contextlib.contextmanager
    def listening(self, *listeners: Listener) -> Iterator[None]:
        """`with machine.listening(listener, …):` tells listeners of all calls of this machine that begin in the block, in any
        thread. Raises ArgumentError for anything but a `treadle.Listener`, and for unknown operations."""
        for each in listeners:
            if not isinstance(each, Listener):
                got = f"the class {each.__name__}" if isinstance(each, type) else f"a {type(each).__name__}"
                raise ArgumentError(f"listening: expected a treadle.Listener, got {got}")
            wanted(each)
        self._listen(add=listeners)
        try:
            yield
        finally:
            self._listen(remove=listeners)

    def set_instrument(self, callback: Callable[..., Any] | None) -> None:
        """`callback(primitive, symbol, before_run, result, *tensors)` is called before and after each call of a primitive;
        None ends that. It may give `InstrumentAction.SKIP_RUN`: then the primitive is not run. Raises ArgumentError."""
        if callback is not None and not callable(callback):
            raise ArgumentError(f"set_instrument: expected a function or None, got a {type(callback).__name__}")
        with self._listening:
            before, self._instruments = self._instruments, () if callback is None else (Instrument(callback),)
            self._listen(remove=before, add=self._instruments)

    def profile(self, name: str, /, *args: Any, **kwargs: Any) -> Profile:
        """Calls a function once to warm up, and once to see how long what it does takes; without arguments, with those of
        `set_input` if there are any. Other calls are as fast as before."""
        return self.profile_with((), name, *args, **kwargs)

    def profile_with(self, collectors: Sequence[MetricCollector], name: str, /, *args: Any, **kwargs: Any) -> Profile:
        """`profile`, where collectors measure something else besides."""
        number = self._number(name)
        if not args and not kwargs:
            args = tuple(self._stateful.inputs(name) or ())
        return self._profiled(number, self._bind(number, args, kwargs), self._budget, collectors)

    def profile_call(
        self, name: str, args: Sequence[Any] | None = None, *, collectors: Sequence[MetricCollector] = (), **bounds: Any
    ) -> Profile:
        """`profile`, with the bounds of `call` for each of the two calls. Raises ArgumentError for others."""
        self._check_bounds("profile_call", bounds)
        number = self._number(name)
        given = (self._stateful.inputs(name) or ()) if args is None else arguments("profile_call", args)
        values = self._bind(number, given, {})
        return self._profiled(number, values, self._budget.but(**bounds), collectors)

    def _profiled(
        self, number: int, values: Sequence[Any], budget: Budget, collectors: Sequence[MetricCollector]
    ) -> Profile:
        self._calls.call(number, values, budget)
        from .observe.profile import Profile, Profiler  # who runs a model does not pay for these

        profiler = Profiler(collectors)
        start = time.perf_counter()
        self._calls.call(number, values, budget, listener=profiler)
        seconds = time.perf_counter() - start
        return Profile(profiler, seconds, min(budget.threads or MAX_THREADS, get_num_threads()))

    def debug(
        self,
        name: str = "main",
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **bounds: Any,
    ) -> Session:
        """As `call`, under a debugger that stops before the first instruction: `treadle.debug.Session` says how the call goes on,
        and back. Listeners are not told of it; other calls are as fast as before."""
        number = self._number(name)
        self._check_bounds("debug", bounds)
        given = (self._stateful.inputs(name) or ()) if args is None and not kwargs else args or ()
        values = self._bind(number, arguments("debug", given), kwargs or {})
        debugger: Any = importlib.import_module(vm.debugger_name)
        return debugger.session(self._calls, number, values, self._budget.but(**bounds))

    def record(self, path: str | os.PathLike, *, most_bytes: int = 1 << 30) -> Recorder:
        """`with machine.record("run.trrec"):` writes what calls of the block are given from outside (arguments, draws, what
        imports give): `treadle replay` and `treadle.debug.load_recording` make them again to the bit. Calls that would make
        the file larger than `most_bytes` are left out, and counted."""
        debugger: Any = importlib.import_module(vm.debugger_name)
        return debugger.Recorder(self, path, most_bytes)

    def _check_bounds(self, function: str, bounds: Mapping[str, Any]) -> None:
        for each in bounds:
            if each not in OF_A_CALL:
                raise ArgumentError(
                    f"{function}: {each!r} is not a parameter; there are {', '.join(OF_A_CALL)}{near(each, OF_A_CALL)}"
                )

    def _listen(self, *, remove: Sequence[Listener] = (), add: Sequence[Listener] = ()) -> None:
        """Threads may come and go in any order: each takes away what it has added, and no more."""
        with self._listening:
            listeners = list(self._listeners)
            for listener in remove:
                at = next((at for at in reversed(range(len(listeners))) if listeners[at] is listener), None)
                if at is not None:
                    del listeners[at]
            self._listeners = (*listeners, *add)
            self._calls.listen(self._listeners)

    # ---- inside ----

    def _require_own(self, closure: Any) -> None:
        if not isinstance(closure, Closure) or closure.native.owner is not self._calls.image:
            raise ArgumentError(f"invoke_closure: expected a closure of this machine, got {closure!r}")

    def _require_own_call(self, saved: SavedCall, args: Any, kwargs: Any) -> None:
        if saved.owner is not self._owner or args or kwargs:
            raise ArgumentError("call: a saved call belongs to one machine, and has its arguments already")

    def _number(self, name: str) -> int:
        try:
            return self._functions[name]
        except (KeyError, TypeError):
            asked = repr(name) if isinstance(name, str) else f"with {told(name)} for a name"
            known = ", ".join(self._functions) or "none"
            raise UnknownFunctionError(
                f"there is no function {asked}; the executable has {known}{near(name, self._functions)}"
            ) from None

    def _bind(self, number: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """One value for each parameter."""
        function = self._program.functions[number]
        return bound(function.name, function.param_names, args, kwargs)

    def _direct(self, number: int, otherwise: Callable[..., Any]) -> Callable[..., Any] | None:
        """As `Calls.array_callable`."""
        return self._calls.array_callable(number, otherwise)

    def _callable(self, number: int) -> Callable[..., Any]:
        """It holds no machine, which keeps it."""
        return describe(self._calls.callable(number), self._program.functions[number])


def _made_again(
    kind: type[VirtualMachine],
    exe: Executable,
    options: Mapping[str, Any],
    constants: Mapping[int, np.ndarray],
    bases: Mapping[str, np.ndarray] | None = None,
) -> VirtualMachine:
    """The machine that was pickled."""
    machine = kind(exe, **options)
    if constants:
        machine.load_constants(constants)
    machine._bases = dict(bases or {})
    return machine


@contextlib.contextmanager
def _meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Does `work` on a thread of its own while the body runs. What it raises is raised after the body."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:  # raised below
            raised.append(error)

    thread = Thread(target=run)
    try:
        thread.start()
    except RuntimeError:  # the system has no more threads
        work()
        yield
        return
    try:
        yield
    finally:
        thread.join()
    if raised:
        raise raised.pop()  # else it would hold the frame that holds it


def _how_to_make(given: Any) -> str:
    """How to make an executable of what was given instead."""
    if isinstance(given, (str, os.PathLike)):
        is_model = os.fspath(given).endswith((".onnx", ".ir"))
        return f"; treadle.{'compile' if is_model else 'load'}({os.fspath(given)!r}) makes one"
    if isinstance(given, (bytes, bytearray, memoryview)):
        return "; treadle.load(data) makes one of a .trdl file's bytes, treadle.compile(data) of an ONNX file's"
    if isinstance(given, VirtualMachine):
        return "; machine.executable is that of a machine"
    return "; treadle.compile(model) makes one of a model, and treadle.load(path) reads one"


def _build_seconds(seconds: float | None) -> float:
    seconds = knobs.get("TREADLE_MAX_BUILD_SECONDS") if seconds is None else seconds
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ArgumentError(f"max_build_seconds={seconds!r}: expected a number of seconds, 0 or more")
    return seconds


def _device(device: Device | Sequence[Device] | None) -> Device:
    several: Sequence[Any] = device if isinstance(device, (list, tuple)) else [device]
    if any(each is not None and each != cpu() for each in several):
        raise ArgumentError(f"device={device!r}: expected treadle.cpu(), or one treadle.remote(…)")
    return cpu()


_MEMORY = ("pooled", "naive")


def _keeps_memory(memory_cfg: str | Mapping[Device | str, str] | None, device: Device) -> bool:
    """A mapping may name devices that the machine does not use: then what it says of these must be a setting, no more."""
    expected = f'memory_cfg={memory_cfg!r}: expected "pooled", "naive", or a mapping of devices to these'
    if memory_cfg is None or isinstance(memory_cfg, str):
        settings = {device: memory_cfg or "pooled"}
    elif isinstance(memory_cfg, Mapping):
        settings = {}
        for key, setting in memory_cfg.items():
            if not isinstance(key, (Device, str)):
                raise ArgumentError(f"{expected}; {key!r} is not a device")
            settings[key if isinstance(key, Device) else device_of(key)] = setting
    else:
        raise ArgumentError(expected)
    for setting in settings.values():
        if setting not in _MEMORY:
            raise ArgumentError(f"{expected}, got {setting!r}")
    return settings.get(device, "pooled") == "pooled"
