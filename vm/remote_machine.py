"""A machine at a server, with the interface of `VirtualMachine`: what `VirtualMachine(exe, device=treadle.remote(…))` makes.

Tensors of results stay there until somebody looks at their elements; data values and closures stay there.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..formats.constants import aligned_copy
from ..formats.dtypes import DType
from ..formats.errors import ArgumentError, RemoteError
from ..formats.executable import Executable
from ..formats.ports import outputs_of
from .benchmark import BenchmarkResult, check_options
from .budgets import DEFAULT_DEPTH, Budget, CancelToken
from .calls import bound
from .convert import closure_type
from .device import Device
from .machine import VirtualMachine, _keeps_memory
from .outputs import describe, naming_results, output_number
from .profile import Profile, ProfileRow
from .remote import Connection, RemoteDevice
from .remote_values import Reader, Writer, array_of, as_array, read_type
from .remote_wire import INLINE
from .report import Report
from .tensor import Tensor
from .values import Closure, DataValue

_saved_calls = itertools.count(1)


class Handle:
    """A value at a server, let go of when this object goes."""

    __slots__ = ("__weakref__", "connection", "constants", "number", "owner", "word")

    def __init__(self, connection: Connection, number: int, owner: object = None) -> None:
        self.connection, self.number = connection, number
        self.owner, self.word, self.constants = owner, 1, None  # as values of this process have them
        weakref.finalize(self, connection.release, number).atexit = False


class RemoteTensor(Tensor):
    """A tensor at a server. Its elements come when they are asked for, once."""

    __slots__ = ("_dtype", "_found", "_shape", "handle")

    def __init__(self, handle: Handle, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self.handle, self._dtype, self._shape = handle, dtype, shape
        self._found: np.ndarray | None = None

    @property
    def _array(self) -> np.ndarray:  # type: ignore[override]
        if self._found is None:
            data = self.handle.connection.download({"handle": self.handle.number})
            self._found = array_of(data, self._dtype, self._shape)
        return self._found

    @property
    def is_here(self) -> bool:
        """Whether its elements have come."""
        return self._found is not None

    @property
    def dtype(self) -> DType:
        return DType.of(self._dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        return self.size * self._dtype.itemsize

    def __len__(self) -> int:
        return self._shape[0] if self._shape else len(self._array)

    def alias(self) -> Tensor:
        return self

    def __repr__(self) -> str:
        place = self.handle.connection.address
        return f"RemoteTensor({self.dtype.name}{list(self._shape)}, at {place!r})"


def _tensor(array: np.ndarray) -> Tensor:
    """A result that came along; it is the caller's, who may write to it."""
    return Tensor(aligned_copy(array))


class RemoteMachine(VirtualMachine):
    """A machine at a server. Threads may call it at once."""

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
    ) -> None:
        """Uploads the executable, if the server has not got it, with all its constants and without native code. The server
        verifies and links it. Raises what a machine of this process raises, RemoteError, RemoteLimitError, and ArgumentError for
        imports and `trust_native`: Python functions and native code do not travel."""
        (found,) = device if isinstance(device, (list, tuple)) else (device,)
        if not isinstance(found, RemoteDevice):
            raise ArgumentError(f"device={device!r}: expected treadle.remote(…)")
        if not isinstance(exe, Executable):
            raise ArgumentError(
                f"VirtualMachine(exe): expected an Executable, a {type(exe).__name__} came; see treadle.load"
            )
        if imports or trust_native:
            raise ArgumentError(
                "a machine of a remote device takes no imports and no native code: functions and code do not travel"
            )
        self.device: RemoteDevice = found
        self._connection = found.connection
        self.executable = exe
        self._program, self._weights = exe.program, exe.weights
        self._budget = Budget(max_steps, max_seconds, max_memory, max_depth)
        self._functions = {f.name: number for number, f in enumerate(exe.program.functions) if not f.captured}
        self._callables: dict[str, Callable[..., Any]] = {}
        memory = "pooled" if _keeps_memory(memory_cfg, found) else "naive"
        data = Executable(exe.program, None, exe.tuning, exe.weights).as_bytes()
        proof = hashlib.sha256(self._connection.session)
        proof.update(data)
        header = {
            "do": "machine",
            "digest": hashlib.sha256(data).digest(),
            "proof": proof.digest(),
            "kernels": kernels,
            "memory": memory,
            "max_build_seconds": max_build_seconds,
            **self._bounds(self._budget),
        }
        answer, _ = self._connection.ask(header)
        if answer.get("missing"):
            self._connection.upload({"kind": "executable"}, memoryview(data))
            answer, _ = self._connection.ask(header)
        if type(answer.get("handle")) is not int:
            raise RemoteError(f"{found.address}: the server did not keep the executable; it may be too large for it")
        self._handle = Handle(self._connection, answer["handle"])

    # ---- calling ----

    def invoke(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function by name; without arguments, with those of `set_input` if there are any."""
        if not args and not kwargs and name in self._functions:
            return self._named(name, self._ask_call("call", self._budget, None, function=name))
        return self[name](*args, **kwargs)

    def call(
        self,
        name: str | Closure,
        args: Sequence[Any] | None = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        max_memory: int | None = None,
        max_depth: int | None = None,
        cancel: CancelToken | None = None,
    ) -> Any:
        """Calls a function with bounds for this call, and no more than the server's."""
        bounds = {"max_steps": max_steps, "max_seconds": max_seconds, "max_memory": max_memory, "max_depth": max_depth}
        budget = self._budget.but(cancel=cancel, **bounds)
        if isinstance(name, Closure):
            return self._call_closure(name, args or (), budget)
        number = self._number(name)
        values = None if args is None else self._bind(number, args, kwargs or {})
        return self._named(name, self._ask_call("call", budget, values, function=name))

    def invoke_closure(self, closure: Closure, *args: Any) -> Any:
        """Calls a closure that this machine returned."""
        return self._call_closure(closure, args, self._budget)

    # ---- stateful calls ----

    def set_input(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Keeps copies of arguments at the server, checked there, for `invoke_stateful` and `invoke`."""
        self._ask_call("set_input", Budget(), self._bind(self._number(name), args, kwargs), function=name)

    def invoke_stateful(self, name: str) -> None:
        """Calls a function with the arguments of `set_input`; the server keeps its result for `get_outputs`."""
        self._number(name)
        self._ask_call("invoke_stateful", self._budget, (), function=name)

    def get_outputs(self, name: str = "main", index: int | str | None = None) -> Any:
        """What the last `invoke_stateful` of the function gave; with `index`, a position or a name, one part of a tuple."""
        function = self._program.functions[self._number(name)]
        chosen = None if index is None else output_number(function, index)
        answer = self._ask_call("get_outputs", Budget(), (), function=name, index=chosen)
        return self._named(name, answer) if index is None else answer

    def save_function(
        self, name: str, saved_name: str, /, *args: Any, include_return: bool = True, **kwargs: Any
    ) -> None:
        """Makes `machine[saved_name]()` a call of a function with copies of these arguments, which lie at the server."""
        if saved_name in self._functions:
            raise ArgumentError(f"save_function: {saved_name!r} is a function of the program; take another name")
        run = self._saved(saved_name, name, args, kwargs)

        def saved() -> Any:
            result = run()
            return result if include_return else None

        saved.__name__ = saved.__qualname__ = saved_name
        self._callables[saved_name] = saved

    def saved_call(self, name: str, /, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """A call of a function with copies of these arguments, which lie at the server as long as this machine."""
        return self._saved(f"saved call {next(_saved_calls)}", name, args, kwargs)

    def _saved(self, saved_name: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
        values = self._bind(self._number(name), args, kwargs)
        self._ask_call("save_function", Budget(), values, function=name, saved=saved_name)
        return lambda: self._named(name, self._ask_call("saved", self._budget, (), saved=saved_name))

    # ---- measuring ----

    def profile(self, name: str, /, *args: Any, **kwargs: Any) -> Profile:
        """A profile of a call, made at the server."""
        values = self._bind(self._number(name), args, kwargs) if args or kwargs else ()
        answer = self._request("profile", self._budget, values, function=name)[0]
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
        with those of `set_input`."""
        function = self._number(name)
        check_options(number, repeat, min_repeat_ms, 100, cooldown_interval_ms, 1)
        options = {
            "number": number,
            "repeat": repeat,
            "min_repeat_ms": min_repeat_ms,
            "cooldown_interval_ms": cooldown_interval_ms,
        }

        def evaluate(*args: Any, **kwargs: Any) -> BenchmarkResult:
            values = self._bind(function, args, kwargs) if args or kwargs else None
            return BenchmarkResult(self._request("time", self._budget, values, function=name, **options)[0]["results"])

        return evaluate

    # ---- what does not go over a network ----

    def _not_there(self, *_: Any, **__: Any) -> Any:
        raise ArgumentError(
            "a machine of a remote device does not do that: it needs arrays, or functions, of the same process"
        )

    bind = load_params = share_params = listening = set_instrument = profile_with = _not_there

    # ---- inside ----

    def _callable(self, number: int) -> Callable[..., Any]:
        function = self._program.functions[number]

        def call(*args: Any, **kwargs: Any) -> Any:
            values = self._bind(number, args, kwargs)
            return self._named(function.name, self._ask_call("call", self._budget, values, function=function.name))

        return describe(call, function)

    def _call_closure(self, closure: Any, args: Sequence[Any], budget: Budget) -> Any:
        native: Any = closure.native if isinstance(closure, Closure) else None
        if not isinstance(native, Handle) or native.owner is not self._handle:
            raise ArgumentError(f"invoke_closure: expected a closure of this machine, {closure!r} came")
        names = [f"argument {number}" for number in range(len(closure.type.params))]
        values = bound(closure.name, names, args, {})
        return self._named(closure.name, self._ask_call("closure", budget, values, closure=native.number))

    def _ask_call(self, what: str, budget: Budget, values: Sequence[Any] | None, **header: Any) -> Any:
        answer, data = self._request(what, budget, values, **header)
        if "result" not in answer:
            return None
        return Reader(answer.get("values"), data, self._result, _tensor).take(answer["result"])

    def _named(self, name: str, value: Any) -> Any:
        """The results of a function, several under their names."""
        function = self.executable.function(name)
        named = naming_results(function)
        if named is None or not isinstance(value, tuple):
            return value
        if len(value) != len(outputs_of(function)):
            raise RemoteError(
                f"{name}: the server gave {len(value)} results, the function has {len(outputs_of(function))}"
            )
        return named(value)

    def _request(
        self, what: str, budget: Budget, values: Sequence[Any] | None, **header: Any
    ) -> tuple[dict[str, Any], memoryview]:
        kept: list[Any] = []  # what must be there until the call is over
        writer = Writer(lambda value: _special(self._connection, value, kept, writer))
        args = None if values is None else [writer.add(value) for value in values]
        full = {
            "do": what,
            "machine": self._handle.number,
            "values": writer.nodes,
            "args": args,
            **header,
            **self._bounds(budget),
        }
        try:
            return self._connection.ask(full, writer.parts, budget.max_seconds, budget.cancel)
        finally:
            kept.clear()  # now: the collector of cycles may come much later

    @staticmethod
    def _bounds(budget: Budget) -> dict[str, Any]:
        return {name: getattr(budget, name) for name in ("max_steps", "max_seconds", "max_memory", "max_depth")}

    def _result(self, node: list[Any]) -> Any:
        """A value that stays at the server."""
        kind, number, *rest = node
        if type(number) is not int:
            raise RemoteError("the server gave a handle that is no number")
        handle = Handle(self._connection, number, self._handle)
        if kind == "remote" and len(rest) == 2:
            return RemoteTensor(handle, *read_type(*rest))
        if kind == "value" and len(rest) == 3:
            tag, constructor, type_name = rest
            return DataValue.of_native(tag, type_name, constructor, handle, self._fields)  # type: ignore[arg-type]
        if kind == "closure" and len(rest) == 1:
            found = next((n for n, f in enumerate(self._program.functions) if f.name == rest[0]), None)
            if found is not None:
                return Closure(rest[0], closure_type(self._program, found), handle, self.invoke_closure)  # type: ignore[arg-type]
        raise RemoteError(f"the server gave a value of a kind {kind!r} that is not known here")

    def _fields(self, native: Any) -> tuple:
        return self._ask_call("fields", Budget(), (), value=native.number)


def _special(connection: Connection, value: Any, kept: list[Any], writer: Writer) -> list[Any] | None:
    """The node of what lies at the server, or is too large to travel with the request."""
    handle: Any = value.handle if isinstance(value, RemoteTensor) else None
    if isinstance(value, (DataValue, Closure)):
        handle = value.native if isinstance(value.native, Handle) else None
    if handle is not None and handle.connection is connection:
        kept.append(value)
        return ["handle", handle.number]
    if isinstance(value, (DataValue, Closure, bool, int, float, list, tuple)) or value is None:
        return None
    array = as_array(value)
    if array.nbytes + sum(map(len, writer.parts)) <= INLINE:
        return None
    uploaded = Handle(connection, connection.upload_array(array))
    kept.append(uploaded)
    return ["handle", uploaded.number]


def call_registered(connection: Connection, name: str, args: Sequence[Any]) -> Any:
    """Calls a function that the server's owner has registered: tensors, numbers and tuples of these in and out."""
    kept: list[Any] = []
    writer = Writer(lambda value: _special(connection, value, kept, writer))
    numbers = [writer.add(value) for value in args]
    try:
        answer, data = connection.ask(
            {"do": "function", "function": name, "values": writer.nodes, "args": numbers}, writer.parts
        )
    finally:
        kept.clear()

    def result(node: list[Any]) -> RemoteTensor:
        if len(node) != 4 or node[0] != "remote":
            raise RemoteError(f"{name}: the server gave something else than tensors")
        return RemoteTensor(Handle(connection, node[1]), *read_type(*node[2:]))

    return Reader(answer.get("values"), data, result, _tensor).take(answer.get("result"))
