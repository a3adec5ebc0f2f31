"""Work on the machines of a remote device's session: one function for each kind of request."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...formats.constants import aligned_copy
from ...formats.dtypes import DType
from ...formats.messages.errors import ArgumentError, BudgetExceededError, FormatError
from ...vm.budgets import DEFAULT_DEPTH, CancelToken
from ...vm.machine import VirtualMachine
from ...vm.observe.benchmark import Repeats, measure
from ...vm.outputs import output_number
from ...vm.stateful import SavedCall, no_inputs, output_of
from ...vm.tensor import Tensor
from ...vm.values import Closure, DataValue
from ..values import Reader, Writer
from ..wire import NAME, Steps, pack
from .sessions import Session, alone, size_of

_ALIEN = 256  # steps to make a class
_COOLDOWN = 10_000  # milliseconds between two repeats of a measurement, at most
_PLAIN = {"text": str, "bytes": bytes}  # what functions of the owner's take besides


class SentTensor(Tensor):
    """A tensor that a client has put here. Nobody else knows its memory: results may be written there."""

    __slots__ = ()


class HeldMachine:
    """A machine of a session, the functions whose inputs are set, and what their last stateful calls gave."""

    def __init__(self, machine: VirtualMachine) -> None:
        self.machine = machine
        self.inputs: set[str] = set()
        self.outputs: dict[str, Any] = {}

    def weight_bytes(self) -> int:
        """Of the constants that `load_params` replaces."""
        executable = self.machine.executable
        arrays = executable.program.constants
        return sum(arrays[place].nbytes for place, _ in executable.weights.constants)


class HeldCall:
    """A saved call of a machine."""

    def __init__(self, machine: VirtualMachine, saved: SavedCall) -> None:
        self.machine, self.saved = machine, saved


class HeldFunction:
    """A function that one of the owner's has given."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class Work:
    """One request that works with values."""

    def __init__(
        self,
        session: Session,
        header: dict[str, Any],
        data: memoryview,
        remaining: float | None,
        token: CancelToken,
        steps: Steps,
    ) -> None:
        """`remaining` are the seconds that the client waits; `steps` counts what its message asks for."""
        self.session, self.header, self.token, self.steps = session, header, token, steps
        self.parts: list[Any] = []
        self._deadline = None if remaining is None else time.monotonic() + remaining
        self._reader = Reader(header.get("values", []), data, self._special, steps=steps)
        self._inline = session.limits.inline
        self.memory = session.limits.memory  # bytes that its call may take

    # ---- received ----

    def machine(self, key: str = "machine") -> HeldMachine:
        return self.session.get(self.header.get(key), HeldMachine)

    def name(self, key: str = "function") -> str:
        name = self.header.get(key)
        if not isinstance(name, str) or len(name) > NAME:
            raise ArgumentError(f"{key}: expected a name of {NAME} characters at most")
        return name

    def function(self) -> tuple[HeldMachine, str]:
        """A machine, and the name of a function that it has. Raises UnknownFunctionError."""
        each, name = self.machine(), self.name()
        each.machine.get_function_params(name)
        return each, name

    def arguments(self) -> list[Any]:
        return self._reader.take_all(self.header.get("args", []))

    def arguments_or_none(self) -> list[Any] | None:
        """None stands for the inputs that are set."""
        return None if self.header.get("args") is None else self.arguments()

    def number(self, key: str) -> Any:
        """A number that is not negative, or None. Raises ArgumentError."""
        value = self.header.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
            raise ArgumentError(f"{key}={value!r:.40}: expected a number that is not negative, or None")
        return value

    def seconds(self) -> float:
        """Seconds that a call may still take."""
        most = self.session.limits.seconds
        return most if self._deadline is None else max(0.0, min(most, self._deadline - time.monotonic()))

    def budget(self) -> dict[str, Any]:
        """The client's bounds, and no more than the server's."""
        limits = self.session.limits
        most = {
            "max_steps": limits.steps,
            "max_seconds": self.seconds(),
            "max_memory": self.memory,
            "max_depth": DEFAULT_DEPTH,
            "threads": None,
        }
        wanted = {key: self.number(key) for key in most}
        return {key: least(wanted[key], most[key]) for key in most}

    def _special(self, node: list[Any]) -> Any:
        kind, *rest = node
        if kind == "handle" and len(rest) == 1:
            return self.session.get(rest[0], (Tensor, DataValue, Closure))
        if kind == "alien" and len(rest) == 1 and isinstance(rest[0], str) and 0 < len(rest[0]) <= NAME:
            self.steps.spend(_ALIEN)
            return type(rest[0].replace("\0", " "), (), {"__slots__": ()})()  # the machine refuses it, and says where
        if self.header.get("do") == "function" and len(rest) == 1 and type(rest[0]) is _PLAIN.get(kind):
            return bytearray(rest[0]) if kind == "bytes" else rest[0]
        raise FormatError(f"a message's values: there is no kind {kind!r:.40}")

    # ---- what goes ----

    def answer(self, value: Any, inside: int | None = None) -> dict[str, Any]:
        """An answer with a value. Tensors that are not small, and values of the machine's heap, stay here."""
        made: list[int] = []

        def special(_: Writer, each: Any) -> list[Any] | None:
            node = self._kept(each, inside)
            if node is not None and node[0] in ("remote", "value", "closure", "function"):
                made.append(node[1])
            return node

        writer = Writer(special)
        try:
            result = writer.add(value)
            packed = {"values": writer.nodes, "result": result}
            pack(packed)  # is it too large?
        except BaseException:
            for handle in made:
                self.session.release(handle)
            raise
        self.parts = writer.parts
        return packed

    def answer_or_write(self, value: Any) -> dict[str, Any]:
        """An answer with a value, or none where the client has said which of its tensors the value is to be written into."""
        into = self.header.get("into")
        if into is None:
            return self.answer(value)
        parts = value if isinstance(value, tuple) else (value,)
        if not isinstance(into, list) or len(into) != len(parts):
            raise ArgumentError(f"into: expected the handles of {len(parts)} tensors")
        targets = [self.session.get(handle, SentTensor).array for handle in into]
        for target, part in zip(targets, parts, strict=True):
            if not isinstance(part, Tensor) or part.array.shape != target.shape or part.array.dtype != target.dtype:
                raise ArgumentError(
                    f"into: {DType.of(target.dtype).name}{list(target.shape)} does not take {part!r:.100}"
                )
        for target, part in zip(targets, [part.array.copy() for part in parts], strict=True):
            np.copyto(target, part)
        return {}

    def _kept(self, value: Any, inside: int | None) -> list[Any] | None:
        if isinstance(value, Tensor):
            array = value.array
            if array.nbytes <= self._inline:
                self._inline -= array.nbytes
                return None
            handle = self.session.keep(Tensor(alone(array)))
            return ["remote", handle, DType.of(array.dtype).name, list(array.shape)]
        if isinstance(value, DataValue) and value.native is not None:
            return ["value", self.session.keep(value, inside=inside), value.tag, value.constructor, value.type_name]
        if isinstance(value, Closure):
            return ["closure", self.session.keep(value, inside=inside), value.name]
        return self._kept_of_function(value) if self.header.get("do") == "function" else None

    def _kept_of_function(self, value: Any) -> list[Any] | None:
        """The message form of a result that only owner's functions have: texts, bytes, numbers, functions; else None."""
        if isinstance(value, str):
            return ["text", str(value)]
        if isinstance(value, (bytes, bytearray)):
            return ["bytes", bytes(value)]
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            return ["number", value]
        if callable(value) and not isinstance(value, (Tensor, np.ndarray, np.generic)):
            return ["function", self.session.keep(HeldFunction(value))]
        return None


def least(wanted: Any, most: Any) -> Any:
    if wanted is None or most is None:
        return most if wanted is None else wanted
    return min(wanted, most)


# ---- what is done ----


def _call(work: Work) -> dict[str, Any]:
    each = work.machine().machine
    return work.answer_or_write(each.call(work.name(), work.arguments_or_none(), **work.budget(), cancel=work.token))


def _closure(work: Work) -> dict[str, Any]:
    closure = work.session.get(work.header.get("closure"), Closure)
    return work.answer(work.machine().machine.call(closure, work.arguments(), **work.budget(), cancel=work.token))


def _fields(work: Work) -> dict[str, Any]:
    handle = work.header.get("value")
    return work.answer(tuple(work.session.get(handle, DataValue).fields), handle)


def _set_input(work: Work) -> dict[str, Any]:
    (each, name), args = work.function(), work.arguments()
    with work.session.replacing(work.header["machine"], "input", name, size_of(args, work.session.limits.bytes)):
        each.machine.set_input(name, *args)
    each.inputs.add(name)
    return {}


def _invoke_stateful(work: Work) -> dict[str, Any]:
    each, name = work.function()
    each.outputs.pop(name, None)  # a call that fails has no result
    if name not in each.inputs and each.machine.get_function_params(name):
        raise no_inputs(name)
    result = each.machine.call(name, None, **work.budget(), cancel=work.token)
    size = size_of(result, work.session.limits.bytes)
    with work.session.replacing(work.header["machine"], "output", name, size):
        each.outputs[name] = _own(result)
    return {}


def _get_outputs(work: Work) -> dict[str, Any]:
    each, name = work.function()
    value, index = output_of(each.outputs, name), work.header.get("index")
    if index is None:
        return work.answer(value)
    number = output_number(each.machine.executable.function(name), index)
    return work.answer(value[number] if isinstance(value, tuple) else value)


def _has_outputs(work: Work) -> dict[str, Any]:
    each, name = work.function()
    output_of(each.outputs, name)
    return {}


def _save_function(work: Work) -> dict[str, Any]:
    (each, name), args = work.function(), work.arguments()
    size = size_of(args, work.session.limits.bytes)
    with work.session.reserved(size):
        saved = each.machine.saved_call(name, *args)
    return {"handle": work.session.keep(HeldCall(each.machine, saved), size)}


def _saved(work: Work) -> dict[str, Any]:
    held = work.session.get(work.header.get("saved"), HeldCall)
    return work.answer(held.machine.call(held.saved, **work.budget(), cancel=work.token))


def _constants(work: Work) -> dict[str, Any]:
    each, places, arrays = work.machine(), work.header.get("places"), work.arguments()
    if not isinstance(places, list) or any(type(at) is not int for at in places):
        raise FormatError("a message's places: expected a list of numbers")
    if not len(set(places)) == len(places) == len(arrays):
        raise FormatError("a message's places: expected a number for each constant")
    constants = {
        at: value.array if isinstance(value, Tensor) else value for at, value in zip(places, arrays, strict=True)
    }
    with contextlib.ExitStack() as stack:
        for at, array in constants.items():
            stack.enter_context(
                work.session.replacing(
                    work.header["machine"], "constant", str(at), size_of(array, work.session.limits.bytes)
                )
            )
        each.machine.load_constants(constants)
    return {}


def _share(work: Work) -> dict[str, Any]:
    """Either may be freed first while the other keeps the memory: it is counted for each."""
    each, other = work.machine(), work.machine("other")
    with work.session.replacing(work.header["machine"], "shared", "", each.weight_bytes()):
        each.machine.share_params(other.machine)
    return {}


def _profile(work: Work) -> dict[str, Any]:
    each, name = work.function()
    profile = each.machine.profile_call(name, work.arguments_or_none(), **work.budget(), cancel=work.token)
    rows = [[row.primitive, row.node, row.calls, row.seconds] for row in profile.rows]
    return {"report": profile.json(), "rows": rows}


def _time(work: Work) -> dict[str, Any]:
    """Measures calls, all together within the time of one."""
    budget = work.budget()
    saved = work.header.get("saved")
    if saved is None:
        held, what = work.function()
        machine, called, args = held.machine, what, work.arguments_or_none()
    else:
        kept = work.session.get(saved, HeldCall)
        machine, called, args = kept.machine, kept.saved, None
    end = time.monotonic() + budget["max_seconds"]
    work.steps.spend(work.number("repeat") or 1)
    options = {key: work.number(key) for key in ("number", "repeat", "min_repeat_ms", "cooldown_interval_ms")}
    given = {key: value for key, value in options.items() if value is not None}
    if given.get("cooldown_interval_ms", 0) > _COOLDOWN:
        raise ArgumentError(f"cooldown_interval_ms={given['cooldown_interval_ms']!r}: expected {_COOLDOWN} at most")

    def run() -> None:
        budget["max_seconds"] = left = end - time.monotonic()
        if left <= 0:
            raise BudgetExceededError("the measurement takes longer than a call may", budget="seconds")
        machine.call(called, args, **budget, cancel=work.token)

    over = threading.Event()

    def rest(seconds: float) -> None:
        over.wait(min(seconds, max(0.0, end - time.monotonic())))

    work.token.attach(id(over), over.set)
    try:
        if work.token.cancelled:
            over.set()
        return {"results": list(measure(run, Repeats(**given), sleep=rest).results)}
    finally:
        work.token.detach(id(over))


def _copy(work: Work) -> dict[str, Any]:
    """Writes a tensor into another, or into a new one."""
    given = work.arguments()
    if len(given) != 1 or not isinstance(given[0], (Tensor, np.ndarray)):
        raise ArgumentError("copy: expected one tensor")
    array = np.asarray(given[0])
    return work.answer_or_write(Tensor(array if work.header.get("into") is not None else aligned_copy(array)))


WORK: dict[str, Callable[[Work], dict[str, Any]]] = {
    "call": _call,
    "closure": _closure,
    "constants": _constants,
    "copy": _copy,
    "fields": _fields,
    "get_outputs": _get_outputs,
    "has_outputs": _has_outputs,
    "invoke_stateful": _invoke_stateful,
    "profile": _profile,
    "save_function": _save_function,
    "saved": _saved,
    "set_input": _set_input,
    "share": _share,
    "time": _time,
}


def _own(value: Any) -> Any:
    """The value, where no tensor of it is a part of something larger."""
    if isinstance(value, tuple):
        return tuple(map(_own, value))
    return Tensor(alone(value.array)) if isinstance(value, Tensor) else value
