"""Calls of one program at a server: what goes there, and what comes back.

A machine of a remote device keeps one, as a machine here keeps `Calls`. Functions, closures and values that it gave hold this,
and not the machine, which holds some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..formats.executable import Executable
from ..formats.messages.errors import RemoteError
from ..formats.ports import outputs_of
from ..vm.budgets import BOUNDS, Budget
from ..vm.calls import bound
from ..vm.convert import closure_type
from ..vm.outputs import naming_results
from ..vm.values import Closure, DataValue
from .connection import Connection
from .tensor import Handle, node_of, taken, tensor_at
from .values import Reader, Writer

_MOST = (1 << 63) - 1  # of what travels as a number; more means no bound


class RemoteCalls:
    """A machine at the server, by its handle. Threads may call at once."""

    def __init__(self, connection: Connection, handle: Handle, executable: Executable, budget: Budget) -> None:
        self.connection, self.handle = connection, handle
        self._executable, self._budget = executable, budget

    def callable(self, number: int) -> Callable[..., Any]:
        """A function of the program, with the machine's bounds."""
        function = self._executable.program.functions[number]

        def call(*args: Any, **kwargs: Any) -> Any:
            values = bound(function.name, function.param_names, args, kwargs)
            return self.function(function.name, values, self._budget)

        return call

    def function(self, name: str, values: Sequence[Any] | None, budget: Budget) -> Any:
        """The result of a function by its name; without values, with those that are set there."""
        return self.named(name, self.ask("call", budget, values, function=name))

    def closure(self, closure: Closure, args: Sequence[Any], budget: Budget) -> Any:
        """The result of a closure of this program."""
        native: Any = closure.native
        names = [f"argument {number}" for number in range(len(closure.type.params))]
        values = bound(closure.name, names, args, {})
        return self.named(closure.name, self.ask("closure", budget, values, closure=native.number))

    def saved(self, name: str, handle: int, budget: Budget) -> Any:
        """The result of a saved call of a function."""
        return self.named(name, self.ask("saved", budget, (), saved=handle))

    def ask(self, what: str, budget: Budget, values: Sequence[Any] | None, **header: Any) -> Any:
        """The value that a request gives."""
        answer, data = self.request(what, budget, values, **header)
        if "result" not in answer:
            return None
        return Reader(answer.get("values"), data, self._result, taken).take(answer["result"])

    def request(
        self, what: str, budget: Budget, values: Sequence[Any] | None, **header: Any
    ) -> tuple[dict[str, Any], memoryview]:
        """The answer to a request, and the bytes that came along."""
        kept: list[Any] = []  # what must be there until the call is over
        writer = Writer(lambda writer, value: node_of(self.connection, value, kept, writer))
        args = None if values is None else [writer.add(value) for value in values]
        full = {
            "do": what,
            "machine": self.handle.number,
            "values": writer.nodes,
            "args": args,
            **header,
            **bounds(budget),
        }
        return self.connection.ask(full, writer.parts, budget.max_seconds, budget.cancel)

    def named(self, name: str, value: Any) -> Any:
        """The results of a function, several under their names."""
        function = self._executable.function(name)
        names = naming_results(function)
        if names is None or not isinstance(value, tuple):
            return value
        if len(value) != len(outputs_of(function)):
            raise RemoteError(
                f"{name}: the server gave {len(value)} results, the function has {len(outputs_of(function))}"
            )
        return names(value)

    def _result(self, node: list[Any]) -> Any:
        """A value that stays at the server."""
        kind, *rest = node
        if kind == "remote":
            return tensor_at(self.connection, node)
        handle = Handle(self.connection, rest[0] if rest else None, self.handle)
        if kind == "value" and len(rest) == 4:
            _, tag, constructor, type_name = rest
            return DataValue.of_native(tag, type_name, constructor, handle, self._fields)  # type: ignore[arg-type]
        if kind == "closure" and len(rest) == 2:
            name, program = rest[1], self._executable.program
            found = next((n for n, f in enumerate(program.functions) if f.name == name), None)
            if found is not None:
                return Closure(name, closure_type(program, found), handle, self._call_closure)  # type: ignore[arg-type]
        raise RemoteError(f"the server gave a value of a kind {kind!r} that is not known here")

    def _call_closure(self, closure: Closure, *args: Any) -> Any:
        return self.closure(closure, args, self._budget)

    def _fields(self, native: Any) -> tuple:
        return self.ask("fields", Budget(), (), value=native.number)


def bounds(budget: Budget) -> dict[str, Any]:
    """The bounds of a call, as they travel."""
    found = {name: getattr(budget, name) for name in BOUNDS}
    return {name: _MOST if isinstance(value, int) and value > _MOST else value for name, value in found.items()}
