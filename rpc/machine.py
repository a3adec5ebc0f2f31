"""A machine at a server, with the interface of `VirtualMachine`: what `VirtualMachine(exe, device=treadle.remote(…))` makes.

Tensors of results stay there until their elements are read; data values and closures stay there. What a machine here has
and one there has not, `REFUSED` tells of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ..formats.executable import Executable
from ..formats.messages.errors import ArgumentError, NotPicklableError, RemoteError
from ..vm.bound import check_type, results_of
from ..vm.budgets import Budget, CancelToken
from ..vm.calls import arguments, bound
from ..vm.device import Device
from ..vm.machine import VirtualMachine
from ..vm.observe.benchmark import BenchmarkResult, Repeats
from ..vm.observe.profile import MetricCollector, Profile, ProfileRow
from ..vm.observe.report import Report
from ..vm.outputs import describe, output_number
from ..vm.replaced_weights import check_constants
from ..vm.stateful import SavedCall
from ..vm.values import Closure
from .calls import RemoteCalls, bounds
from .connection import Connection
from .tensor import Handle, require_remote

REFUSED = {  # methods of a machine that one at a server has not, and why
    "listening": "a listener is called in the middle of a call, and may look at and change all that the program works with",
    "set_instrument": "an instrument is called in the middle of a call, and may change tensors or leave primitives out",
    "debug": "a debugger looks at and changes all that the program works with",
    "record": "a recording reads the arguments where a call has them",
}
_INSTEAD = "profile(…) tells the times at the server; a machine of treadle.cpu() has listeners"


class RemoteMachine(VirtualMachine):
    """A machine at a server. Threads may call it at once.

    To make one uploads the executable, if the server has not got it, with all its constants and without native code; the server
    verifies and links it. It has the imports that the server's owner has registered, by name, and nothing of this process. Raises
    what a machine of this process raises, RemoteError, RemoteLimitError, and ArgumentError for `imports` and `trust_native`:
    functions and native code do not travel."""

    _reads_in_place = False

    def _own_device(self, device: Any) -> Device:
        (found,) = device if isinstance(device, (list, tuple)) else (device,)
        connection = getattr(found, "connection", None)
        if not isinstance(connection, Connection):
            raise ArgumentError(f"device={device!r}: expected treadle.remote(…)")
        self._connection = connection
        return found

    def _link(
        self,
        exe: Executable,
        imports: Mapping[str, Callable[..., Any]] | None,
        kernels: str,
        trust_native: bool,
        keeps_memory: bool,
        max_build_seconds: float | None,
    ) -> None:
        if imports:
            names = ", ".join(map(repr, list(imports)[:10]))
            raise ArgumentError(
                f"imports of {names}: functions of this process do not travel; a program at a server imports what the "
                "server's owner has registered under its names"
            )
        if trust_native:
            raise ArgumentError(
                "trust_native: functions and native code do not travel; a remote device builds its own kernels"
            )
        connection = self._connection
        data = Executable(exe.program, weights=exe.weights).as_bytes()
        proof = hashlib.sha256(connection.session)
        proof.update(data)
        header = {
            "do": "machine",
            "digest": hashlib.sha256(data).digest(),
            "proof": proof.digest(),
            "kernels": kernels,
            "memory": "pooled" if keeps_memory else "naive",
            "max_build_seconds": max_build_seconds,
            **bounds(self._budget),
        }
        answer, _ = connection.ask(header)
        if answer.get("missing"):
            connection.upload({"kind": "executable"}, memoryview(data))
            answer, _ = connection.ask(header)
        if "handle" not in answer:
            raise RemoteError(
                f"{self._connection.address}: the server did not keep the executable; it may be too large for it"
            )
        self._owner = Handle(connection, answer["handle"])
        self._given: Mapping[int, np.ndarray] = {}  # the weights that are others than the program's, by their places
        self._remote = RemoteCalls(connection, self._owner, exe, self._budget)

    def __reduce__(self) -> NoReturn:
        raise NotPicklableError(
            "a machine at a server cannot be pickled; pickle its executable, and connect again where it is needed"
        )

    # ---- calling ----

    def invoke(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function by name; without arguments, with those of `set_input` if there are any."""
        if not args and not kwargs and name in self._functions:
            return self._remote.function(name, None, self._budget)
        return self[name](*args, **kwargs)

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
        """Calls a function with bounds for this call, and no more than the server's."""
        bounds = {"max_steps": max_steps, "max_seconds": max_seconds, "max_memory": max_memory, "max_depth": max_depth}
        budget = self._budget.but(cancel=cancel, threads=threads, **bounds)
        name = self._saved.get(name, name) if isinstance(name, str) else name
        if isinstance(name, SavedCall):
            self._require_own_call(name, args, kwargs)
            return self._remote.saved(name.function, name.number, budget)
        if isinstance(name, Closure):
            return self._call_closure(name, args or (), budget)
        number = self._number(name)
        values = None if args is None else self._bind(number, arguments("call", args), kwargs or {})
        return self._remote.function(name, values, budget)

    def invoke_closure(self, closure: Closure, *args: Any) -> Any:
        """Calls a closure that this machine returned."""
        return self._call_closure(closure, args, self._budget)

    def bind(
        self, name: str, arguments: Sequence[np.ndarray], results: Sequence[np.ndarray] | None = None
    ) -> Callable[[], Any]:
        """A call that always reads these tensors, which lie at the server (`device.put`), as they are then, and copies its
        results into those. Raises ArgumentError, as `bound.bind`."""
        function = self._program.functions[self._number(name)]
        remote, budget = self._remote, self._budget
        place = f"bind({name!r})"
        kept = [require_remote(remote.connection, place, each) for each in (*arguments, *(results or ()))]
        reads, writes = kept[: len(arguments)], kept[len(arguments) :]
        for tensor, type_, param in zip(reads, function.type.params, function.param_names, strict=False):
            check_type(f"{name}({param})", tensor.dtype, tensor.shape, type_)
        values = bound(name, function.param_names, reads, {})
        if results is None:
            return lambda: remote.function(name, values, budget)
        for index, (tensor, type_) in enumerate(zip(writes, results_of(function, len(writes)), strict=True)):
            check_type(f"{name}: result {index}", tensor.dtype, tensor.shape, type_)
        into = [tensor.handle.number for tensor in writes]

        def run() -> None:
            remote.ask("call", budget, values, function=name, into=into)
            for tensor in writes:
                tensor.forget()

        return run

    # ---- weights ----

    def load_constants(self, constants: Mapping[int, Any]) -> None:
        """Takes other constants, by their places. `load_params` makes them here; they lie at the server."""
        check_constants(self._weights, self._program.constants, constants)
        self._remote.request("constants", Budget(), list(constants.values()), places=list(constants))
        held = set(self._weights.held.values())
        given = {place: array.copy() for place, array in constants.items() if place in held}
        self._given = {**self._given, **given}

    def _constant(self, place: int) -> np.ndarray:
        """The current value of a constant; weights are known here as well."""
        return self._given.get(place, self._program.constants[place])

    def share_params(self, other: VirtualMachine) -> None:
        """Takes the weights that another machine of the same session and program has now, without a copy."""
        if (
            not isinstance(other, RemoteMachine)
            or other._remote.connection is not self._remote.connection
            or not other._weights.is_like(self._weights)
        ):
            raise ArgumentError(
                "share_params: expected a machine of the same program with named weights, at the same device; "
                f"got {other!r}"
            )
        self._remote.request("share", Budget(), (), other=other._remote.handle.number)
        self._given, self._bases = other._given, other._bases

    # ---- stateful calls ----

    def set_input(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Keeps copies of arguments at the server, checked there, for `invoke_stateful` and `invoke`."""
        self._remote.ask("set_input", Budget(), self._bind(self._number(name), args, kwargs), function=name)

    def invoke_stateful(self, name: str) -> None:
        """Calls a function with the arguments of `set_input`; the server keeps its result for `get_outputs`."""
        self._number(name)
        self._remote.ask("invoke_stateful", self._budget, (), function=name)

    def get_outputs(self, name: str = "main", index: int | str | None = None) -> Any:
        """The result of the function's last `invoke_stateful`; with `index`, a position or a name, one part of a tuple."""
        function = self._program.functions[self._number(name)]
        if index is None:
            return self._remote.named(name, self._remote.ask("get_outputs", Budget(), (), function=name))
        self._remote.request("has_outputs", Budget(), (), function=name)  # before what is said of the index, as here
        return self._remote.ask("get_outputs", Budget(), (), function=name, index=output_number(function, index))

    def saved_call(self, name: str, /, *args: Any, **kwargs: Any) -> SavedCall:
        """A call of a function with copies of these arguments, which lie at the server as long as this does."""
        values = self._bind(self._number(name), args, kwargs)
        answer, _ = self._remote.request("save_function", Budget(), values, function=name)
        remote, budget = self._remote, self._budget
        handle = Handle(remote.connection, answer.get("handle"))
        return SavedCall.of(lambda: remote.saved(name, handle.number, budget), self._owner, name, handle.number)

    # ---- measuring ----

    def profile_with(self, collectors: Sequence[MetricCollector], name: str, /, *args: Any, **kwargs: Any) -> Profile:
        """`profile`. Raises ArgumentError for collectors, which measure the process that they are in."""
        values = self._bind(self._number(name), args, kwargs) if args or kwargs else None
        return self._profile(name, values, self._budget, collectors)

    def profile_call(
        self, name: str, args: Sequence[Any] | None = None, *, collectors: Sequence[MetricCollector] = (), **bounds: Any
    ) -> Profile:
        """A profile of a call with these bounds, made at the server."""
        values = None if args is None else self._bind(self._number(name), arguments("profile_call", args), {})
        return self._profile(name, values, self._budget.but(**bounds), collectors)

    def _profile(
        self, name: str, values: Sequence[Any] | None, budget: Budget, collectors: Sequence[MetricCollector]
    ) -> Profile:
        self._number(name)
        if collectors:
            raise ArgumentError("profile: collectors measure the process that they are in; at a server there are none")
        answer = self._remote.request("profile", budget, values, function=name)[0]
        made = Profile.__new__(Profile)
        report = Report.from_json(str(answer.get("report")))
        Report.__init__(made, report.calls, report.device_metrics, report.configuration)
        made.rows = [ProfileRow(*row) for row in answer.get("rows", ())]
        return made

    def time_evaluator(
        self,
        name: str,
        device: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval_ms: float = 0,
    ) -> Callable[..., BenchmarkResult]:
        """A function that times calls of one at the server, which all together take no longer than a call may; without arguments,
        with those of `set_input`. A saved function has its own."""
        saved = self._saved.get(name) if isinstance(name, str) else None
        function = -1 if saved is not None else self._number(name)
        what = {"function": name} if saved is None else {"saved": saved.number}
        Repeats(number, repeat, min_repeat_ms, cooldown_interval_ms=cooldown_interval_ms)  # raises ArgumentError
        options = {
            "number": number,
            "repeat": repeat,
            "min_repeat_ms": min_repeat_ms,
            "cooldown_interval_ms": cooldown_interval_ms,
        }

        def evaluate(*args: Any, **kwargs: Any) -> BenchmarkResult:
            values = None
            if saved is not None:
                bound(name, (), args, kwargs)  # raises ArgumentError where there are any
            elif args or kwargs:
                values = self._bind(function, args, kwargs)
            return BenchmarkResult(self._remote.request("time", self._budget, values, **what, **options)[0]["results"])

        return evaluate

    # ---- what does not go over a network ----

    def listening(self, *listeners: Any) -> NoReturn:
        """Raises ArgumentError: see `REFUSED`."""
        raise refusal("listening")

    def set_instrument(self, callback: Callable[..., Any] | None) -> None:
        """Raises ArgumentError, see `REFUSED`; None is accepted, since there is nothing to end."""
        if callback is not None:
            raise refusal("set_instrument")

    def debug(self, *_: Any, **__: Any) -> NoReturn:
        """Raises ArgumentError: see `REFUSED`."""
        raise refusal("debug")

    def record(self, *_: Any, **__: Any) -> NoReturn:
        """Raises ArgumentError: see `REFUSED`."""
        raise refusal("record")

    # ---- inside ----

    def _direct(self, number: int, otherwise: Callable[..., Any]) -> None:
        """Nothing is read in place."""

    def _callable(self, number: int) -> Callable[..., Any]:
        """It holds no machine, which keeps it."""
        return describe(self._remote.callable(number), self._program.functions[number])

    def _call_closure(self, closure: Any, args: Sequence[Any], budget: Budget) -> Any:
        native: Any = closure.native if isinstance(closure, Closure) else None
        if not isinstance(native, Handle) or native.owner is not self._remote.handle:
            raise ArgumentError(f"invoke_closure: expected a closure of this machine, got {closure!r}")
        return self._remote.closure(closure, args, budget)


def refusal(method: str) -> ArgumentError:
    """The error of a method that machines at a server have not."""
    return ArgumentError(f"{method}: a machine of a remote device has none: {REFUSED[method]}. {_INSTEAD}")
