"""`ScopeBuilder`: programs line by line, with `let`, `if_scope`, `else_scope` and `ret`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from . import ty
from .expr import Constant, Expr, If, Let, Var, as_expr
from .expr import Tuple as TupleExpr


class ScopeBuilder:
    """Collects bindings; `get()` is the expression."""

    def __init__(self) -> None:
        self._bindings: list[list[tuple[Var, Any]]] = [[]]
        self._results: list[Any] = [None]

    def let(self, var: str | tuple[str, ty.Type] | Var, value: Any) -> Var:
        """Binds a value to a variable, or to one of this name, and perhaps of this type."""
        if isinstance(value, (tuple, list)):
            value = TupleExpr(value)
        value = as_expr(value)
        if isinstance(var, tuple):
            variable = Var(*var)
        else:
            known = value.type_annotation if isinstance(value, Var) else None
            variable = Var(var, known) if isinstance(var, str) else var
        self._bindings[-1].append((variable, value))
        return variable

    @contextlib.contextmanager
    def _scope(self) -> Iterator[None]:
        self._bindings.append([])
        self._results.append(None)
        yield

    def _leave(self) -> Expr:
        result = self._results.pop()
        if result is None:
            raise RuntimeError("a scope ended without a result; call ret(value) in it")
        return _lets(self._bindings.pop(), result)

    @contextlib.contextmanager
    def if_scope(self, cond: Any) -> Iterator[None]:
        """What is done where the condition holds; `else_scope` follows."""
        with self._scope():
            yield
        then = self._leave()
        self._bindings[-1].append((Var("pending"), (as_expr(cond), then)))

    @contextlib.contextmanager
    def else_scope(self) -> Iterator[None]:
        """What is done where it does not."""
        if not self._bindings[-1] or not isinstance(self._bindings[-1][-1][1], tuple):
            raise RuntimeError("else_scope must follow if_scope")
        with self._scope():
            yield
        otherwise = self._leave()
        _, (condition, then) = self._bindings[-1].pop()
        self._results[-1] = If(condition, then, otherwise)

    def type_of(self, expr: Any) -> ty.Type | None:
        """The type of a variable or constant."""
        if isinstance(expr, Var):
            return expr.type_annotation
        if isinstance(expr, Constant):
            return expr.checked_type
        inferred = getattr(expr, "_checked_type", None) or getattr(expr, "_known_type", None)
        return inferred if inferred is not None else ty.IncompleteType()

    def ret(self, value: Any) -> None:
        """The result of the scope. Raises RuntimeError for a second one."""
        if self._results[-1] is not None:
            raise RuntimeError("ret value is already set")
        self._results[-1] = as_expr(value)

    def get(self) -> Expr:
        """The expression. Raises RuntimeError without a result."""
        if self._results[-1] is None:
            raise RuntimeError("no return value set")
        return _lets(self._bindings[-1], self._results[-1])


def _lets(bindings: list[tuple[Var, Any]], result: Expr) -> Expr:
    for variable, value in reversed(bindings):
        if isinstance(value, tuple):
            raise RuntimeError("if_scope must be followed by else_scope")
        result = Let(variable, value, result)
    return result
