"""How a call goes: a context from the pool, arguments in, the engine until it traps, what the trap asks for, the result out.

Any number of threads may call: each call takes a context of its own. Arguments are read where they lie, but for parameters that
may outlive the call (the verifier tells which), which are copied; results belong to the caller. A kernel that was stopped is
begun anew if the call goes on.

Whatever ends a call (a result, an error, a bound, Ctrl-C), its context is unwound and serves the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..formats import limits, strings
from ..formats.messages.calling import by_name, told
from ..formats.messages.errors import ArgumentError, BudgetExceededError, OutOfMemoryError, TreadleError, naming
from ..formats.messages.names import near
from ..formats.strings import Texts
from ..formats.text_entries import TextParameter, bytes_of, entry_of
from ..formats.types import TensorType
from . import core, library
from .aside import later
from .budgets import OF_A_CALL, Budget
from .clock import UNBOUNDED, Clock
from .context import KEPT_BYTES, UNLIMITED, Context, abandon_contexts, contexts_of
from .convert import Arguments, Results
from .failures import error
from .few_texts import few_texts
from .host import HostCall, go_on, perform
from .image import Image
from .imports import Imported, call_imported
from .in_process import InProcess
from .layout import CONTEXT, OBJECT, TRAP
from .memory import word
from .observe.hooks import HookedCode, Listener
from .python_layout import python_layout
from .tensor import tensor_of
from .values import Closure
from .watch import WATCH, entrance

_DONE = (TRAP.RETURNED, TRAP.IN_PLACE)


# Makes a call in the place of the machine, and gives (its result,); None where the machine is to make it
Debugger = Callable[["Calls", int, Sequence[Any], Budget], "tuple[Any] | None"]

_machines: weakref.WeakSet[Calls] = weakref.WeakSet()
_debugger: Debugger | None = None


def debug_calls(debugger: Debugger | None) -> None:
    """Has a debugger make the calls of all machines of the process, but those of closures and of `bind`. None ends that."""
    global _debugger
    _debugger = debugger
    for machine in list(_machines):
        machine.listen(machine.hooked.listeners if machine.hooked is not None else ())


def _after_fork() -> None:
    """In a child of fork, each machine makes its contexts anew: the first one starts the pool's workers. Nobody debugs it."""
    if _debugger is not None:
        debug_calls(None)
    for machine in list(_machines):
        machine.drop_contexts()
    abandon_contexts()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Calls(InProcess):
    """The calls of one machine. What it gives out (callables, closures, data values) holds it, and it holds none of that: when
    the last of them is gone, so is the machine's memory, and nobody waits for Python's collector."""

    def __init__(self, image: Image, keeps_memory: bool, budget: Budget, imports: Sequence[Imported] = ()) -> None:
        self.image = image
        self._budget = budget  # of calls that have none of their own
        self.hooked: HookedCode | None = None
        self._kept_bytes = KEPT_BYTES if keeps_memory else 0
        self._engine = core.engine()
        self._idle: list[Context] = []
        self._evaluators: dict[int, library.Evaluate] = {}
        self._host_calls: dict[int, HostCall] = {}
        self._imports = imports
        WATCH.await_signals()
        _machines.add(self)
        self.listen(())

    @property
    def _results(self) -> Results:
        return Results(self.image, self._call_closure)

    def drop_contexts(self) -> None:
        """Frees the contexts that no call uses."""
        self._idle.clear()

    def listen(self, listeners: Sequence[Listener]) -> None:
        """From the next call on, `listeners` are told what happens."""
        self.hooked = HookedCode(self.image, listeners) if listeners or _debugger is not None else None

    def replace_constants(self, arrays: Mapping[int, np.ndarray]) -> None:
        """Other elements for constants, of the same types. Calls that begin from now on see them alone; one that runs in another
        thread may see old and new ones."""
        idle = []
        with contextlib.suppress(IndexError):
            while True:
                idle.append(self._idle.pop())
        old = self.image.arrays
        self.image.replace_constants(arrays)
        for context in contexts_of(self.image):
            if context not in idle:  # it keeps what it may have seen; stopped, it comes by `_leave` when it ends
                context.constants.append(old)
                context.stop()
        self.image.forget_replaced()
        self._idle.extend(idle)

    # ---- any call ----

    @entrance
    def call(
        self,
        number: int,
        values: Sequence[Any],
        budget: Budget,
        closure: Closure | None = None,
        listener: Listener | None = None,
    ) -> Any:
        """Calls a function with one value for each parameter; those that a closure has captured come out of it. `listener` is
        told of this call alone."""
        if _debugger is not None and closure is None and listener is None:
            debugged = _debugger(self, number, values, budget)
            if debugged is not None:
                return debugged[0]
        context = self._enter(budget)
        try:
            if listener is not None:
                others = self.hooked.listeners if self.hooked is not None else ()
                self._prepare(context, budget, HookedCode(self.image, (*others, listener)))
            clock = Clock(context, budget)  # first: a call that may not begin has made nothing
            self._set_arguments(context, number, values, closure)
            trap = self._engine.start(context.address, number)
            if trap:
                raise start_error(trap, context, number)
            _began(context, number)
            return self._finish(context, number, self._engine.run(context.address), clock, None)
        finally:
            self._leave(context)

    def _call_closure(self, closure: Closure, *args: Any) -> Any:
        return self.call_closure(closure, args, self._budget)

    def call_closure(self, closure: Closure, args: Sequence[Any], budget: Budget) -> Any:
        number = word(closure.native.word & ~1, OBJECT.TAG)
        function = self.image.program.functions[number]
        names = function.param_names[: len(function.param_names) - function.captured]
        return self.call(number, bound(function.name, names, args, {}), budget, closure)

    def keep(self, number: int, values: Sequence[Any]) -> list[Any]:
        """Copies of arguments, checked, as calls to come take them. Raises ArgumentError, DTypeError, ShapeError."""
        function = self.image.program.functions[number]
        context = self._enter(self._budget)
        try:
            arguments = Arguments(context, function.name)
            named = zip(function.param_names, values, function.type.params, strict=True)
            return [arguments.copy(name, value, type_, self._results) for name, value, type_ in named]
        finally:
            self._leave(context)

    def _set_arguments(self, context: Context, number: int, values: Sequence[Any], closure: Closure | None) -> None:
        function, escaping = self.image.program.functions[number], self.image.escaping[number]
        arguments = Arguments(context, function.name)
        try:
            for position, value in enumerate(values):
                name, type_ = function.param_names[position], function.type.params[position]
                arguments.give(position, name, value, type_, escaping[position])
            if closure is not None:
                arguments.give_captured(len(values), closure)
        except BaseException as failure:
            arguments.give_up()
            if isinstance(failure, MemoryError) and not isinstance(failure, TreadleError):
                message = (
                    f"the system has no memory for a copy of an argument whose elements do not lie in order: {failure}"
                )
                raise OutOfMemoryError(message, function=function.name) from None
            raise
        context.arguments = arguments.kept

    def _enter(self, budget: Budget) -> Context:
        """A context for one call."""
        try:
            context = self._idle.pop()
        except IndexError:
            context = self._new_context()
        self._prepare(context, budget, self.hooked)
        return context

    def _new_context(self) -> Context:
        with naming(f"a call, for whose kernels {self.image.scratch_bytes} bytes are taken"):
            WATCH.await_signals()
            return Context(self.image)

    def _prepare(self, context: Context, budget: Budget, hooked: HookedCode | None) -> None:
        words, live = context.words, context.words[CONTEXT.LIVE]
        context.go_on()
        words[CONTEXT.MAX_CACHED] = self._kept_bytes
        words[CONTEXT.MAX_DEPTH] = budget.max_depth
        words[CONTEXT.MAX_LIVE] = UNLIMITED if budget.max_memory is None else live + budget.max_memory
        context.share_kernels(budget.threads)
        context.note_parts(hooked is not None and hooked.wants_parts)
        context.hooked = hooked
        words[CONTEXT.CODE] = self.image.code.ctypes.data if hooked is None else hooked.address

    def _leave(self, context: Context) -> None:
        if context.clock is not None:
            context.clock.close()
            context.clock = None
        job, context.left_behind = context.left_behind, None
        if job is not None and not job.ended(lambda: self._leave(context)):
            return
        context.unwind()
        context.arguments = None
        context.constants.clear()
        _let_go_of_texts(context)
        self._prepare(context, self._budget, None)  # as `array_callable` expects it
        if not context.is_abandoned:
            self._idle.append(context)

    def callable(self, number: int) -> Callable[..., Any]:
        """A function as Python calls it, with arguments by position or by name."""
        function, budget = self.image.program.functions[number], self._budget

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(number, bound(function.name, function.param_names, args, kwargs), budget)

        return self.array_callable(number, call) or call

    # ---- calls with arrays ----

    def array_callable(self, number: int, otherwise: Callable[..., Any]) -> Callable[..., Any] | None:
        """A fast way to call a function of tensors. `otherwise` is called with arguments that need a closer look. None for a
        function of other things."""
        if not self._takes_arrays(number):
            return None
        engine = self._engine_callable(number, otherwise)
        few = few_texts(self.image, number) if self._budget.max_depth else None
        if few is None:
            return engine
        count, in_order = len(self.image.program.functions[number].param_names), self._in_order(number)

        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                args = in_order(args, kwargs)
            if self.hooked is None and len(args) == count:
                try:
                    found = few(args)
                except Exception:  # the engine fails as well, and says where
                    found = None
                if found is not None:
                    return found
            return engine(*args)

        return call

    def _engine_callable(self, number: int, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """As `array_callable`: the engine reads NumPy's arrays itself, and writes a result of static type into a new one."""
        if self._texts_of(number):
            return self._bytes_callable(number, otherwise) or self._text_callable(number, otherwise)
        shape, dtype, take = self._made(number)
        idle, call_arrays, empty, in_order = self._idle, self._engine.call_arrays, np.empty, self._in_order(number)
        in_place, returned, unusual, host = TRAP.IN_PLACE, TRAP.RETURNED, TRAP.UNUSUAL, TRAP.HOST

        @entrance
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                args = in_order(args, kwargs)
            if self.hooked is not None:
                return otherwise(*args)
            try:
                context = idle.pop()
            except IndexError:
                context = self._enter(self._budget)
            result = empty(shape, dtype)
            trap = call_arrays(context.address, number, id(args), id(result))
            if trap == host:
                return self._finish_host(context, number, result, take)
            if trap == in_place:
                idle.append(context)
                return tensor_of(result)
            if trap == returned:
                value = take(context)
                idle.append(context)
                return value
            if trap == unusual:
                idle.append(context)
                return otherwise(*args)
            return self._finish_arrays(context, trap, number, result)

        return call

    def _in_order(self, number: int) -> Callable[[tuple[Any, ...], Mapping[str, Any]], tuple[Any, ...]]:
        """What gives a function's arguments by position, those by name included."""
        function = self.image.program.functions[number]
        return lambda args, kwargs: tuple(bound(function.name, function.param_names, args, kwargs))

    def _texts_of(self, number: int) -> list[int]:
        """Which parameters of a function are string tensors."""
        params = self.image.program.functions[number].type.params
        return [at for at, type_ in enumerate(params) if isinstance(type_, TensorType) and type_.dtype.is_string]

    def _text_callable(self, number: int, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """As `array_callable`, of a function that takes texts too: the engine is given arrays of their numbers."""
        shape, dtype, take = self._made(number)
        idle, call_arrays, empty, places = self._idle, self._engine.call_arrays, np.empty, self._texts_of(number)
        in_order = self._in_order(number)
        count = len(self.image.program.functions[number].type.params)
        in_place, returned, unusual, host = TRAP.IN_PLACE, TRAP.RETURNED, TRAP.UNUSUAL, TRAP.HOST

        @entrance
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                args = in_order(args, kwargs)
            if self.hooked is not None or len(args) != count:
                return otherwise(*args)
            texts, given = Texts(), list(args)
            for at in places:
                array = args[at]
                if type(array) is not np.ndarray or array.dtype != object:
                    return otherwise(*args)
                try:
                    given[at] = texts.numbers(array)
                except TreadleError:
                    return otherwise(*args)  # its message names the parameter
            values = tuple(given)
            try:
                context = idle.pop()
            except IndexError:
                context = self._enter(self._budget)
            context.texts, result = texts, empty(shape, dtype)
            trap = call_arrays(context.address, number, id(values), id(result))
            if trap == host:
                return self._finish_host(context, number, result, take)
            if trap in (returned, in_place):
                value = take(context) if trap == returned else tensor_of(result)
            elif trap != unusual:
                return self._finish_arrays(context, trap, number, result)
            context.texts = None
            idle.append(context)
            return otherwise(*args) if trap == unusual else value

        return call

    def _bytes_callable(self, number: int, otherwise: Callable[..., Any]) -> Callable[..., Any] | None:
        """As `array_callable`, of a function that has a twin which takes the bytes of texts; None for any other."""
        entry = entry_of(self.image.program, number)
        call_twin = None if entry is None else self.array_callable(entry[0], _unusual)
        if entry is None or call_twin is None:
            return None
        types, words = self.image.program.functions[number].type.params, entry[1]
        shapes = [
            None if word is None else tuple(dim if isinstance(dim, int) else None for dim in type_.shape)  # type: ignore[union-attr]
            for word, type_ in zip(words, types, strict=True)
        ]
        count, in_order = len(types), self._in_order(number)

        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                args = in_order(args, kwargs)
            if self.hooked is not None or len(args) != count:
                return otherwise(*args)
            given: list[Any] = []
            try:
                for array, shape, word in zip(args, shapes, words):  # noqa: B905 (their number is known)
                    if word is None:
                        given.append(array)
                    else:
                        given += _bytes_of(array, shape, word)
                return call_twin(*given)
            except _UnusualError:
                return otherwise(*args)  # it looks closer, and names the parameter

        return call

    def saved_callable(self, number: int, values: tuple, otherwise: Callable[..., Any]) -> Callable[[], Any] | None:
        """As `array_callable`, of arguments that are always these."""
        if not self._takes_arrays(number) or self._texts_of(number):
            return None
        shape, dtype, take = self._made(number)
        idle, call_arrays, empty, address_of_values = self._idle, self._engine.call_arrays, np.empty, id(values)
        in_place, returned, unusual = TRAP.IN_PLACE, TRAP.RETURNED, TRAP.UNUSUAL

        @entrance
        def call() -> Any:
            if self.hooked is not None:
                return otherwise(*values)
            try:
                context = idle.pop()
            except IndexError:
                context = self._enter(self._budget)
            result = empty(shape, dtype)
            trap = call_arrays(context.address, number, address_of_values, id(result))
            if trap == in_place:
                idle.append(context)
                return tensor_of(result)
            if trap == returned:
                value = take(context)
                idle.append(context)
                return value
            if trap == unusual:
                idle.append(context)
                return otherwise(*values)
            return self._finish_arrays(context, trap, number, result)

        return call

    def _takes_arrays(self, number: int) -> bool:
        return self._budget.is_depth_alone and self.image.takes_arrays(number) and python_layout().works

    def _made(self, number: int) -> tuple[Any, np.dtype, Callable[[Context], Any]]:
        """Shape and element type of the array that the engine is given to write a result into, and what takes other results."""
        take = self._results.taker(number, arrays=python_layout().makes_arrays)
        if not self.image.makes_result_in_place(number):
            return (0,), np.dtype(np.uint8), take
        result_type = self.image.program.functions[number].type.result
        assert isinstance(result_type, TensorType)
        return result_type.shape, result_type.dtype.numpy, take

    @entrance
    def _finish_host(self, context: Context, number: int, result: np.ndarray, take: Callable[[Context], Any]) -> Any:
        """The rest of a call without bounds that stands on a host operator."""
        context.clock = UNBOUNDED
        try:
            trap: int = TRAP.HOST
            while trap == TRAP.HOST:
                perform(context, self._evaluators, self._host_calls)
                trap = self._engine.run(context.address)
        except BaseException:
            self._leave(context)
            raise
        context.clock = None
        if trap not in _DONE:
            return self._finish_arrays(context, trap, number, result)
        self._engine.unpin_arrays(context.address)  # as `call_arrays` does where no operator of the host's lies between
        value = take(context) if trap == TRAP.RETURNED else tensor_of(result)
        _let_go_of_texts(context)
        self._idle.append(context)
        return value

    def _finish_arrays(self, context: Context, trap: int, number: int, result: np.ndarray | None) -> Any:
        """The rest of a call that did not simply return its result in place."""
        try:
            if context.words[CONTEXT.FRAME] < 0 and trap not in _DONE:
                raise start_error(trap, context, number)
            return self._finish(context, number, trap, Clock(context, self._budget, is_running=True), result)
        finally:
            self._leave(context)

    # ---- calls that are bound before ----

    def bound_callable(self, number: int) -> Callable[[int, int, object], Any]:
        """`call(arguments, places, kept)`: calls a function with registers filled before, as `engine.call_bound` takes them, and
        keeps `kept` alive meanwhile. Its result, or None where `places` says where it is made.

        What the words say of memory is the caller's to know: nothing is checked.
        """
        idle, call_bound, take = self._idle, self._engine.call_bound, self._results.taker(number)
        in_place, returned, is_bounded = TRAP.IN_PLACE, TRAP.RETURNED, not self._budget.is_depth_alone

        @entrance
        def call(arguments: int, places: int, kept: object) -> Any:
            if is_bounded or self.hooked is not None:
                return self._call_watched(number, arguments, places)
            try:
                context = idle.pop()
            except IndexError:
                context = self._enter(self._budget)
            trap = call_bound(context.address, number, arguments, places)
            if trap == in_place:
                idle.append(context)
                return None
            if trap == returned:
                value = take(context)
                idle.append(context)
                return value
            return self._finish_arrays(context, trap, number, None)

        return call

    @entrance
    def _call_watched(self, number: int, arguments: int, places: int) -> Any:
        """A bound call of which listeners are told, or whose bounds are looked at."""
        context = self._enter(self._budget)
        try:
            count = len(self.image.program.functions[number].param_names)
            for position in range(count):
                context.set_argument(position, word(arguments, 2 * position), word(arguments, 2 * position + 1))
            self._engine.give_places(context.address, places)
            clock = Clock(context, self._budget)
            trap = self._engine.start(context.address, number)
            if trap:
                raise start_error(trap, context, number)
            _began(context, number)
            return self._finish(context, number, self._engine.run(context.address), clock, None)
        finally:
            self._leave(context)

    # ---- traps ----

    @entrance
    def _finish(self, context: Context, number: int, trap: int, clock: Clock, place: np.ndarray | None) -> Any:
        """Does what traps ask for until the function has returned; its result."""
        try:
            while trap not in _DONE:
                if trap == TRAP.HOOK and context.hooked is not None:
                    trap = context.hooked.step(context, self._run_one)
                else:
                    self._handle(context, trap, clock)
                    trap = _GO_ON
                if trap == _GO_ON:
                    trap = self._engine.run(context.address)
            if trap == TRAP.IN_PLACE:
                value = None if place is None else tensor_of(place)
            else:
                value = self._results.taker(number)(context)
        except Exception as failure:
            for listener in context.hooked.listeners if context.hooked is not None else ():
                listener.error(failure)
            _ended(context, None, failure)
            raise
        _ended(context, value, None)
        return value

    def _handle(self, context: Context, trap: int, clock: Clock | None) -> None:
        if trap == TRAP.HOST:
            perform(context, self._evaluators, self._host_calls)
            context.clock.look()
        elif trap == TRAP.IMPORT:
            call_imported(context, self._imports, self._results)
            context.clock.look()
        elif trap == TRAP.SLICE and clock is not None:
            clock.tick()
        elif trap == TRAP.STOPPED:
            _check_signals()
            context.clock.look()
            go_on(context)
        elif trap != TRAP.SLICE:
            raise error(context, trap)

    @entrance
    def _run_one(self, context: Context) -> int:
        """Executes one instruction, for which there is fuel. The trap that ends the call, or _GO_ON."""
        trap = self._engine.run(context.address)
        if trap in _DONE:
            return trap
        self._handle(context, trap, None)
        return _GO_ON


_GO_ON = -1
_check_signals = ctypes.pythonapi.PyErr_CheckSignals  # runs the handlers of pending signals, which may raise


def _began(context: Context, number: int) -> None:
    for listener in context.hooked.of_calls if context.hooked is not None else ():
        listener.began(context, number)


def _ended(context: Context, value: Any, failure: Exception | None) -> None:
    for listener in context.hooked.of_calls if context.hooked is not None else ():
        listener.ended(context, value, failure)


def _let_go_of_texts(context: Context) -> None:
    """Forgets the texts that a call has met and that nobody else holds: few at once, many by another thread."""
    if context.texts is not None:
        context.texts = None
        if not strings.has_forgotten():
            later(strings.forget)


class _UnusualError(Exception):
    """Arguments need a closer look."""


def _unusual(*_: Any, **__: Any) -> Any:
    raise _UnusualError


def _bytes_of(array: Any, shape: tuple[int | None, ...] | None, word: TextParameter) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of an array of texts, of a shape of which some sizes are known. Raises _UnusualError."""
    if type(array) is not np.ndarray or array.dtype != object or shape is None or array.ndim != len(shape):
        raise _UnusualError
    for size, wanted in zip(array.shape, shape):  # noqa: B905 (both have the rank)
        if wanted is not None and size != wanted:
            raise _UnusualError
    try:
        texts = array.reshape(-1).tolist() or ([""] if word.is_never_empty else [])
        text, ends = bytes_of(texts, word.case)
    except (TypeError, UnicodeEncodeError):
        raise _UnusualError from None
    if len(text) > limits.ELEMENT_BYTES:
        raise _UnusualError
    return text, ends


def start_error(trap: int, context: Context, number: int) -> TreadleError:
    """The error of a call for whose first frame there is no room."""
    function = context.image.program.functions[number]
    if trap == TRAP.NO_MEMORY:
        return OutOfMemoryError("the system has no memory for the first frame", function=function.name)
    if trap == TRAP.MEMORY:
        left = max(0, context.words[CONTEXT.MAX_LIVE] - context.words[CONTEXT.LIVE])
        size = context.image.frame_bytes(number)
        message = f"the first frame takes {size} bytes, of the memory budget {left} are left; raise max_memory"
        return BudgetExceededError(message, budget="memory", function=function.name)
    return BudgetExceededError("the first frame passes max_depth", budget="depth", function=function.name)


def arguments(function: str, values: Any) -> Sequence[Any]:
    """The arguments that a function of the machine takes in one sequence. Raises ArgumentError for anything else, and for an
    array, which would be taken apart."""
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        return values
    if isinstance(values, Mapping):
        how = "; arguments by name: machine." + (
            "call(name, kwargs=feeds)" if function == "call" else "profile(name, **feeds)"
        )
    else:
        how = "; a list of one is [x]" if hasattr(values, "__array__") else ""
    raise ArgumentError(f"{function}: args: expected a list of arguments, got {told(values)}{how}")


def _how_by_name(function: str, args: Sequence[Any]) -> str:
    """The end of the message if one of the arguments is a mapping instead of a tensor."""
    return by_name(function) if any(isinstance(arg, Mapping) for arg in args) else ""


def _instead_of(function: str, name: str, names: Sequence[str]) -> str:
    """A suggestion for an argument that the function does not have."""
    if name in OF_A_CALL:
        return f"; bounds of one call are given as in machine.call({function!r}, [{', '.join(names)}], {name}=…)"
    return near(name, names)


def bound(function: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
    """One value for each parameter. Raises ArgumentError."""
    if not kwargs and len(args) == len(names):
        return args
    if len(args) > len(names):
        expected = f"{len(names)} argument{'s' * (len(names) != 1)} expected"
        raise ArgumentError(
            f"{function}({', '.join(names)}): {expected}, got {len(args)}{_how_by_name(function, args)}"
        )
    for name in kwargs:
        if name not in names[len(args) :]:
            reason = "is given twice" if name in names else f"is not a parameter{_instead_of(function, name, names)}"
            raise ArgumentError(f"{function}({', '.join(names)}): {name!r} {reason}")
    missing = [name for name in names[len(args) :] if name not in kwargs]
    if missing:
        raise ArgumentError(f"{function}({', '.join(names)}): no value for {', '.join(missing)}")
    return [*args, *(kwargs[name] for name in names[len(args) :])]
