"""Ctrl-C ends native code: the watch knows the functions that run it, and nothing else of the main thread."""

from __future__ import annotations

import ast
import inspect
import signal
import threading
from types import CodeType, FunctionType

import pytest
from treadle.debug.debugger import timeline
from treadle.vm import calls, watch
from treadle.vm.context import Context

RUNS = {"run", "call_arrays", "call_bound"}  # functions of the engine that execute a program


def functions_that_run_programs() -> set[str]:
    found = set()
    for function in [each for module in (calls, timeline) for each in ast.walk(ast.parse(inspect.getsource(module)))]:
        if isinstance(function, ast.FunctionDef):
            own = [node for statement in function.body for node in walk_own(statement)]
            names = {
                node.func.attr for node in own if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            }
            names |= {node.func.id for node in own if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
            if names & RUNS:
                found.add(f"{function.name} {function.lineno}")
    return found


def walk_own(node: ast.AST):
    """A function's nodes without those of functions within it."""
    if not isinstance(node, ast.FunctionDef):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from walk_own(child)


def test_every_function_that_runs_native_code_is_known_to_the_watch(machine) -> None:
    vm = machine("func @main(x: float32[2]) -> float32[2] {\n  ret r0\n}\n")
    assert vm._calls.array_callable(0, lambda: None) is not None  # each makes one of them
    assert vm._calls._text_callable(0, lambda: None) is not None
    assert vm._calls.saved_callable(0, (), lambda: None) is not None
    assert vm._calls.bound_callable(0) is not None
    known = {f"{code.co_name} {line_of(code)}" for code in watch._ENTRANCES}
    assert known == functions_that_run_programs()


def line_of(code: CodeType) -> int:
    """Of the `def`; a code object's first line is that of its decorator."""
    return code.co_firstlineno + 1


def test_a_function_without_a_context_is_no_entrance() -> None:
    with pytest.raises(TypeError, match="no local variable `context`"):

        @watch.entrance
        def run(number: int) -> None: ...


@pytest.mark.parametrize("is_known", [False, True])
def test_the_watch_stops_the_calls_of_functions_that_it_knows(machine, monkeypatch, is_known: bool) -> None:
    monkeypatch.setattr(watch.signal, "getsignal", lambda number: signal.default_int_handler)
    monkeypatch.setattr(watch, "_ENTRANCES", {waits.__code__} if is_known else set())
    vm = machine("func @main(x: float32[2]) -> float32[2] {\n  ret r0\n}\n")
    context, stops = Context(vm._calls.image), []
    context.stop = lambda: stops.append(True)  # type: ignore[method-assign]
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Timer(0.05, lambda: (watch._interrupt(), lock.release()))
    thread.start()
    FunctionType(waits.__code__, {"__package__": watch.__package__})(context, lock)
    thread.join()
    assert stops == [True] * is_known


def waits(context: Context, lock: threading.Lock) -> None:
    lock.acquire()
