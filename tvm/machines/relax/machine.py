"""Runs programs of the Relax VM (`files/relax_program.py`). Their registers hold any of Python's values and nearly every
instruction is a call of a function of Python's: so Python walks them, on frames of its own, and nothing is compiled.

Through the engine such a call would be slower: 10 µs without arguments and 20 with a tensor, which is shared and copied there,
against 0.9 µs here. Models that a compiler made do not come here.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ....formats.messages.errors import ArgumentError, BudgetExceededError, UnknownFunctionError
from ....vm.budgets import Budget
from ....vm.tensor import Tensor
from ...files.relax_program import MACHINE, VOID, Call, Goto, If, Kind, Operand, RelaxFunction, RelaxProgram, Ret, check
from ...modules.containers import Array, Object
from ...modules.registry import PackedFunc, reachable, register_crossing
from .budget import Meter
from .values import truth

REGISTERED = "register_func makes one, or a module that the program's imports has it"
HANDED = (
    "a program from a file calls what it was handed: load_module(path, imports={name: function}), "
    "or imports=[name] of a registered one, or import_module of a module that has it"
)
SKIP = 1  # what an instrument gives for a call that is not to be made
Instrument = Callable[..., Any]


@register_crossing
class VMClosure(Object):
    """A function of a machine, with values that come after its arguments."""

    def __init__(self, func_name: str, function: Callable[..., Any], captured: Sequence[Any] = ()) -> None:
        self.func_name, self.function, self.captured = func_name, function, tuple(captured)

    def __call__(self, *args: Any) -> Any:
        return self.function(*args, *self.captured)


@register_crossing
class RelaxMachine:
    """Runs the functions of a program. `functions` are those that it may call by name (`registry.reachable` says which others),
    `budget` bounds each call that has none of its own."""

    def __init__(
        self,
        program: RelaxProgram,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Raises VerificationError, and UnknownFunctionError with all names that nothing is known of."""
        check(program)
        self.program = program
        self._budget = budget or Budget()
        self._is_metered = not self._budget.is_depth_alone
        self._meters: dict[int, Meter] = {}  # of the threads whose calls have bounds
        self.instrument: Instrument | None = None
        self._watches: dict[int, Instrument] = {}  # of threads that profile
        self.own = {function.name: function for function in program.own()}
        given = functions or {}
        found = [self._found(function, given) for function in program.functions]
        missing = [
            f"{each.name} (native code of TVM's)" if each.is_native else each.name
            for each, callee in zip(program.functions, found, strict=True)
            if callee is None
        ]
        if missing:
            raise UnknownFunctionError(
                f"Cannot find PackedFunc {', '.join(missing)} in either Relax VM kernel library, or in TVM runtime PackedFunc "
                f"registry, or in global Relax functions of the VM executable; {HANDED if program.from_file else REGISTERED}"
            )
        self._table: list[Any] = found

    def _found(self, function: RelaxFunction, given: Mapping[str, Callable[..., Any]]) -> Callable[..., Any] | None:
        if function.code is not None:
            return self.closure(function.name)
        if function.is_native:
            return None
        if function.name.startswith("R.") and function.name not in given:  # an operator on tensors, by its text
            from ...relax.kernels import kernel

            return kernel(function.name)
        return reachable(function.name, given, self.program.from_file)

    def closure(self, name: str) -> VMClosure:
        """A function of the program, to be called."""
        function = self.own[name]
        return VMClosure(name, lambda *args: self._run(function, args))

    def call(self, name: str, args: Sequence[Any], budget: Budget | None = None) -> Any:
        """Calls a function of the program. Raises ArgumentError, BudgetExceededError, CancelledError, and what the functions
        raise. Calls of closures within it, also those that Python's functions make, count for its budget."""
        try:
            if budget is None and not self._is_metered:
                return self._run(self.own[name], [_entering(arg) for arg in args])
            with self._metered(name, budget or self._budget):
                return self._run(self.own[name], [_entering(arg) for arg in args])
        except RecursionError as error:  # closures that functions of Python's call
            raise BudgetExceededError(
                "calls of closures are nested deeper than Python's stack", budget="depth"
            ) from error

    @contextlib.contextmanager
    def _metered(self, name: str, budget: Budget) -> Iterator[None]:
        thread = threading.get_ident()
        if thread in self._meters:  # a function that this call has called, calls
            yield
            return
        meter = Meter(budget)
        try:
            self._meters[thread] = meter
            with meter.arrays(name):
                yield
        finally:
            self._meters.pop(thread, None)

    def _frame(self, function: RelaxFunction, args: Sequence[Any]) -> list[Any]:
        if len(args) != len(function.params):
            raise ArgumentError(
                f"Invoking function {function.name} expects {len(function.params)} arguments "
                f"({', '.join(function.params)}), but {len(args)} arguments were provided."
            )
        return [*args, *[None] * (function.registers - len(args))]

    def _run(self, function: RelaxFunction, args: Sequence[Any]) -> Any:
        """Frames wait on a stack of this function's own, so that programs recurse as deep as a bound says."""
        registers, at = self._frame(function, args), 0
        waiting: list[tuple[RelaxFunction, list[Any], int, Call, list[Any]]] = []
        meter = self._meters.get(threading.get_ident()) if self._meters else None
        depth = (self._budget if meter is None else meter.budget).max_depth
        while True:
            assert function.code is not None
            if meter is not None:
                meter.step(function.name)
            instruction = function.code[at]
            if isinstance(instruction, Goto):
                at += instruction.offset
            elif isinstance(instruction, If):
                at += 1 if truth(self._register(registers, instruction.condition)) else instruction.false_offset
            elif isinstance(instruction, Ret):
                result = self._register(registers, instruction.result)
                if not waiting:
                    return result
                function, registers, at, call, values = waiting.pop()
                self._tell(call, False, result, values)
                self._give(registers, call.dst, result)
                at += 1
            else:
                values = [self._value(registers, arg) for arg in instruction.args]
                callee = self.program.functions[instruction.function]
                if self._tell(instruction, True, None, values) == SKIP:
                    self._give(registers, instruction.dst, None)
                elif callee.code is not None:
                    if len(waiting) >= depth:
                        raise BudgetExceededError(f"calls are nested {depth} deep; raise max_depth", budget="depth")
                    waiting.append((function, registers, at, instruction, values))
                    function, registers, at = callee, self._frame(callee, values), 0
                    continue
                else:
                    result = self._table[instruction.function](*values)
                    self._tell(instruction, False, result, values)
                    self._give(registers, instruction.dst, result)
                at += 1

    @contextlib.contextmanager
    def watching(self, watch: Instrument) -> Iterator[None]:
        """Within this, `watch` is told of the calls of this thread; what it gives changes nothing."""
        thread = threading.get_ident()
        before = self._watches.get(thread)
        self._watches[thread] = watch
        try:
            yield
        finally:
            if before is None:
                del self._watches[thread]
            else:
                self._watches[thread] = before

    def _tell(self, call: Call, before: bool, result: Any, values: Sequence[Any]) -> Any:
        if self.instrument is None and not self._watches:
            return None
        name = self.program.functions[call.function].name
        watch = self._watches.get(threading.get_ident())
        if watch is not None:
            watch(self._table[call.function], name, before, result, *values)
        if self.instrument is None:
            return None
        action = self.instrument(self._table[call.function], name, before, result, *values)
        return action if isinstance(action, int) else None

    def _register(self, registers: list[Any], number: int) -> Any:
        if number >= VOID:
            return self if number == MACHINE else None
        return registers[number]

    @staticmethod
    def _give(registers: list[Any], number: int, value: Any) -> None:
        if number < VOID:
            registers[number] = value

    def _value(self, registers: list[Any], operand: Operand) -> Any:
        kind, value = operand
        if kind == Kind.REGISTER:
            return self._register(registers, value)
        if kind == Kind.IMMEDIATE:
            return value
        return self.program.constants[value] if kind == Kind.CONSTANT else self._table[value]


def _entering(value: Any) -> Any:
    """An argument as a register holds it."""
    if isinstance(value, np.ndarray):
        return Tensor(value)
    if isinstance(value, (tuple, list)) and not isinstance(value, Object):
        return Array(map(_entering, value))
    return PackedFunc.of(value) if callable(value) and not isinstance(value, Object) else value
