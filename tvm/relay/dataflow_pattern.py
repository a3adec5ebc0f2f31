"""`relay.dataflow_pattern`: patterns of expressions, and whether an expression fits one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .expr import Call, Constant, Expr, Op, Tuple, TupleGetItem, Var

Check = Callable[[Expr], bool]


def _calls(name: str) -> Callable[[DFPattern, DFPattern], DFPattern]:
    return lambda self, other: is_op(name)(self, other)


class DFPattern:
    """A pattern. `|` is either, `has_attr` asks for attributes, a call of a pattern is a pattern of a call."""

    def __init__(self, check: Check) -> None:
        self._check = check

    def match(self, expr: Expr) -> bool:
        """Whether the expression fits."""
        return self._check(expr)

    def __call__(self, *args: DFPattern) -> DFPattern:
        def check(expr: Expr) -> bool:
            return (
                isinstance(expr, Call)
                and self.match(expr.op)
                and len(expr.args) == len(args)
                and all(pattern.match(arg) for pattern, arg in zip(args, expr.args, strict=True))
            )

        return DFPattern(check)

    def __or__(self, other: DFPattern) -> DFPattern:
        return DFPattern(lambda expr: self.match(expr) or other.match(expr))

    def has_attr(self, attrs: Mapping[str, Any]) -> DFPattern:
        """Those that have these attributes too."""
        return DFPattern(
            lambda expr: (
                self.match(expr) and all((getattr(expr, "attrs", None) or {}).get(k) == v for k, v in attrs.items())
            )
        )

    def optional(self, option: Callable[[DFPattern], DFPattern]) -> DFPattern:
        """With something around it, or not."""
        return self | option(self)

    __add__, __sub__ = _calls("add"), _calls("subtract")
    __mul__, __truediv__ = _calls("multiply"), _calls("divide")


def wildcard() -> DFPattern:
    """Everything."""
    return DFPattern(lambda expr: True)


def is_op(op_name: str) -> DFPattern:
    """An operator; call it for its calls. Raises ValueError for a name of none."""
    name = Op.get(op_name).name
    return DFPattern(lambda expr: isinstance(expr, Op) and expr.name == name)


def is_var(name: str = "") -> DFPattern:
    """A variable, of this name if one is given."""
    return DFPattern(lambda expr: isinstance(expr, Var) and name in ("", expr.name_hint))


def is_constant() -> DFPattern:
    return DFPattern(lambda expr: isinstance(expr, Constant))


def is_expr(expr: Expr) -> DFPattern:
    """This expression."""
    return DFPattern(lambda other: other is expr)


def is_tuple(fields: Sequence[DFPattern] | None = None) -> DFPattern:
    """A tuple of such fields, or any."""

    def check(expr: Expr) -> bool:
        if not isinstance(expr, Tuple) or fields is None:
            return isinstance(expr, Tuple)
        return len(expr.fields) == len(fields) and all(p.match(e) for p, e in zip(fields, expr.fields, strict=True))

    return DFPattern(check)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> DFPattern:
    """A field of such a tuple."""
    return DFPattern(
        lambda expr: (
            isinstance(expr, TupleGetItem) and tuple_value.match(expr.tuple_value) and index in (None, expr.index)
        )
    )
