"""`relay.dataflow_pattern`: patterns of expressions, what of an expression fits one, rewriting and partitioning by them.

A pattern that stands in several places of another one fits the same expression in all of them (`dataflow_matcher.cc`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from . import ty
from .expr import Call, Constant, Expr, Function, If, Let, Op, Tuple, TupleGetItem, Var
from .passes.core import replaced, typed, users
from .passes.core import rewrite as rewrite_all
from .structural import structural_equal
from .visit import children, postorder, preorder

NodeMap = dict["DFPattern", list[Expr]]
_COMMUTATIVE = ("add", "multiply")


def _calls(name: str, swapped: bool = False) -> Any:
    return lambda self, other: is_op(name)(*((other, self) if swapped else (self, other)))


class DFPattern:
    """A pattern. `|` is either, `has_attr` asks for attributes, a call of a pattern is a pattern of a call."""

    parts: tuple[DFPattern, ...] = ()

    def _fits(self, expr: Any, memo: NodeMap) -> Iterator[NodeMap]:
        """What each pattern in this one fits, in each way that this one fits the expression."""
        raise NotImplementedError

    def fits(self, expr: Expr, memo: NodeMap) -> Iterator[NodeMap]:
        """`_fits`, this pattern itself among them."""
        if self in memo:
            if memo[self][0] is expr:
                yield memo
            return
        for found in self._fits(expr, memo):
            yield {**found, self: [expr]}

    def match(self, expr: Expr) -> bool:
        """Whether the expression fits."""
        return self.found(expr) is not None

    def found(self, expr: Expr) -> NodeMap | None:
        """What fits each pattern in this one, if the expression fits."""
        return next(self.fits(expr, {}), None)

    def rewrite(self, callback: Any, expr: Expr) -> Expr:
        """`rewrite` by `callback(pre, post, node_map)`, for this pattern."""
        return rewrite_expr([(self, callback, False, False)], expr)

    def partition(
        self, expr: Expr, attrs: Mapping[str, Any] | None = None, check: Callable[[Expr], bool] = lambda expr: True
    ) -> Expr:
        """The expression with what fits as calls of functions of these attributes."""
        return partitioned(self, expr, attrs or {}, check)

    def __call__(self, *args: Any) -> DFPattern:
        several = args[0] if len(args) == 1 and (args[0] is None or isinstance(args[0], (list, tuple))) else args
        return CallPattern(self, several)

    def __or__(self, other: DFPattern) -> DFPattern:
        return AltPattern(self, other)

    def has_attr(self, attrs: Mapping[str, Any]) -> DFPattern:
        """Those that have these attributes too."""
        return _Checked(self, lambda expr: all(_attribute(expr, name) == value for name, value in attrs.items()))

    def has_type(self, ttype: ty.Type) -> DFPattern:
        """Those of this type."""
        return _Checked(self, lambda expr: _type(expr) == ttype)

    def has_dtype(self, dtype: str) -> DFPattern:
        """Tensors of this element type."""
        return _Checked(self, lambda expr: getattr(_type(expr), "dtype", None) == ty.dtype_name(dtype))

    def has_shape(self, shape: Sequence[Any]) -> DFPattern:
        """Tensors of this shape."""
        return _Checked(self, lambda expr: getattr(_type(expr), "shape", None) == tuple(shape))

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> DFPattern:
        """With something around it, or not."""
        return option_constructor(self) | self

    __add__, __sub__, __radd__ = _calls("add"), _calls("subtract"), _calls("add", swapped=True)
    __mul__, __truediv__, __rmul__ = _calls("multiply"), _calls("divide"), _calls("multiply", swapped=True)


def _type(expr: Any) -> ty.Type | None:
    return expr._checked_type or expr._known_type


def _attribute(expr: Any, name: str) -> Any:
    if isinstance(expr, Op):
        from .passes.fuse import OPAQUE, PATTERN_OF

        return PATTERN_OF.get(expr.name, OPAQUE) if name == "TOpPattern" else expr.get_attr(name)
    value = (getattr(expr, "attrs", None) or {}).get(name)
    return list(value) if isinstance(value, tuple) else value


class WildcardPattern(DFPattern):
    """Everything; with a condition, what meets it."""

    def __init__(self, check: Callable[[Any], bool] = lambda expr: True) -> None:
        self._check = check

    def _fits(self, expr: Any, memo: NodeMap) -> Iterator[NodeMap]:
        if self._check(expr):
            yield memo

    def redirect_to(self, pattern: DFPattern) -> None:
        """Stands for another pattern from now on, perhaps one that it is in."""
        vars(self)["_fits"] = lambda expr, memo: pattern.fits(expr, memo)


class ConstantPattern(WildcardPattern):
    """A constant: partitioned functions keep it inside."""


class ExprPattern(WildcardPattern):
    """One expression, or one equal to it."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr
        same = (lambda other: isinstance(other, Op) and other.name == expr.name) if isinstance(expr, Op) else None
        super().__init__(same or (lambda other: other is expr or structural_equal(expr, other)))


class _Checked(DFPattern):
    """Another pattern, with a condition."""

    def __init__(self, pattern: DFPattern, check: Callable[[Any], bool]) -> None:
        self.parts, self._check = (pattern,), check

    def _fits(self, expr: Any, memo: NodeMap) -> Iterator[NodeMap]:
        if self._check(expr):
            yield from self.parts[0].fits(expr, memo)


class AltPattern(DFPattern):
    """Either of two, the first one first."""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.parts = (left, right)

    def _fits(self, expr: Any, memo: NodeMap) -> Iterator[NodeMap]:
        for part in self.parts:
            yield from part.fits(expr, memo)


def _all(patterns: Sequence[DFPattern], exprs: Sequence[Any], memo: NodeMap) -> Iterator[NodeMap]:
    """The ways in which patterns fit expressions, one by one."""
    if not patterns:
        yield memo
        return
    for found in patterns[0].fits(exprs[0], memo):
        yield from _all(patterns[1:], exprs[1:], found)


class CallPattern(DFPattern):
    """A call of an operator or function; `args` None: on anything. Sums and products fit in both orders."""

    def __init__(self, op: DFPattern, args: Sequence[DFPattern] | None) -> None:
        self.op, self.args = op, None if args is None else tuple(args)
        self.parts = (op, *(self.args or ()))

    def _fits(self, expr: Any, memo: NodeMap) -> Iterator[NodeMap]:
        if not isinstance(expr, Call):
            return
        for found in self.op.fits(expr.op, memo):
            if self.args is None:
                yield found
            elif len(self.args) == len(expr.args):
                yield from _all(self.args, expr.args, found)
                if isinstance(expr.op, Op) and expr.op.name in _COMMUTATIVE:
                    yield from _all(self.args[::-1], expr.args, found)


class _Fields(DFPattern):
    """An expression of one kind, by its parts."""

    def __init__(self, kind: type, parts: Sequence[DFPattern] | None, of: Callable[[Any], Sequence[Expr]]) -> None:
        self.kind, self.of, self.any = kind, of, parts is None
        self.parts = tuple(parts or ())

    def _fits(self, expr: Any, memo: NodeMap) -> Iterator[NodeMap]:
        if isinstance(expr, self.kind) and (self.any or len(self.of(expr)) == len(self.parts)):
            yield from [memo] if self.any else _all(self.parts, self.of(expr), memo)


def wildcard() -> WildcardPattern:
    """Everything."""
    return WildcardPattern()


def is_op(op_name: str) -> DFPattern:
    """An operator; call it for its calls. Raises ValueError for a name of none."""
    return ExprPattern(Op.get(op_name))


def is_var(name: str = "") -> DFPattern:
    """A variable, of this name if one is given."""
    return WildcardPattern(lambda expr: isinstance(expr, Var) and name in ("", expr.name_hint))


def is_constant() -> DFPattern:
    return ConstantPattern(lambda expr: isinstance(expr, Constant))


def is_expr(expr: Expr) -> DFPattern:
    """This expression."""
    return ExprPattern(expr)


def is_tuple(fields: Sequence[DFPattern] | None = None) -> DFPattern:
    """A tuple of such fields, or any."""
    return _Fields(Tuple, fields, lambda expr: expr.fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> DFPattern:
    """A field of such a tuple."""
    item = _Fields(TupleGetItem, [tuple_value], lambda expr: [expr.tuple_value])
    return (
        item if index is None else _Checked(item, lambda expr: isinstance(expr, TupleGetItem) and expr.index == index)
    )


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> DFPattern:
    """A branch of such parts."""
    return _Fields(If, [cond, true_branch, false_branch], children)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> DFPattern:
    """A let of such parts."""
    return _Fields(Let, [var, value, body], children)


def FunctionPattern(params: Sequence[DFPattern] | None, body: DFPattern) -> DFPattern:
    """A function of such parameters, or any, and body."""
    if params is None:
        return _Fields(Function, [body], lambda expr: [expr.body])
    return _Fields(Function, [*params, body], children)


TuplePattern, TupleGetItemPattern, VarPattern, IfPattern, LetPattern = (
    is_tuple,
    is_tuple_get_item,
    is_var,
    is_if,
    is_let,
)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> DFPattern:
    return (pattern or wildcard()).has_attr(attrs)


def has_type(ttype: ty.Type, pattern: DFPattern | None = None) -> DFPattern:
    return (pattern or wildcard()).has_type(ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DFPattern:
    return (pattern or wildcard()).has_dtype(dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> DFPattern:
    return (pattern or wildcard()).has_shape(shape)


def match(pattern: DFPattern, expr: Expr) -> bool:
    """Whether the expression fits."""
    return pattern.match(expr)


# ---- rewriting ----


class DFPatternCallback:
    """A rule: `pattern`, and `callback(pre, post, node_map)`, which gives what replaces what fits."""

    pattern: DFPattern

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.require_type, self.rewrite_once = require_type, rewrite_once

    def rewrite(self, expr: Expr) -> Expr:
        return rewrite_expr([(self.pattern, self.callback, self.require_type, self.rewrite_once)], expr)

    def callback(self, pre: Expr, post: Expr, node_map: NodeMap) -> Expr:
        raise NotImplementedError(f"{type(self).__name__} has no callback")


Rule = tuple[DFPattern, Callable[[Expr, Expr, NodeMap], Expr], bool, bool]


def rewrite_expr(rules: Sequence[Rule], expr: Expr) -> Expr:
    """The expression with what fits a rule's pattern replaced, until nothing changes."""
    from .module import IRModule

    for pattern, callback, require_type, once in rules:
        for _ in range(1 if once else 1 << 20):
            if require_type:
                typed(IRModule.from_expr(expr))

            def rule(old: Expr, new: Expr, pattern: DFPattern = pattern, callback: Any = callback) -> Expr | None:
                found = pattern.found(new)
                return None if found is None else callback(old, new, found)

            before, expr = expr, rewrite_all(expr, rule)
            if expr is before or structural_equal(before, expr):
                break
    return expr


def rewrite(callbacks: Any, expr: Expr, mod: Any = None) -> Expr:
    """The expression with what fits the callbacks' patterns replaced, until nothing changes."""
    several = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
    return rewrite_expr([(each.pattern, each.callback, each.require_type, each.rewrite_once) for each in several], expr)


# ---- partitioning ----


def _leaves(pattern: DFPattern, seen: set[int]) -> Iterator[DFPattern]:
    """The patterns in one, parts first, each once."""
    if id(pattern) not in seen:
        seen.add(id(pattern))
        for part in pattern.parts:
            yield from _leaves(part, seen)
        yield pattern


def _inputs(pattern: DFPattern, found: NodeMap) -> list[Expr]:
    """What goes into the part of a program that fits: what fits patterns that have no parts, but constants."""
    several: dict[int, Expr] = {}
    for each in _leaves(pattern, set()):
        for expr in found.get(each, ()):
            if isinstance(each, CallPattern) and each.args is None:
                candidates: Sequence[Any] = expr.args  # type: ignore[attr-defined]
            elif isinstance(each, _Fields) and each.any:
                candidates = each.of(expr)
            else:
                candidates = () if each.parts or isinstance(each, ConstantPattern) else (expr,)
            for one in candidates:
                embedded = isinstance(one, Constant) and isinstance(each, ExprPattern)
                if not isinstance(one, (Op, Function)) and not embedded:
                    several[id(one)] = one
    return list(several.values())


def _name(body: Expr) -> str:
    """The operators of a part of a program, as TVM names it."""
    words = []
    for each in postorder(body):
        if isinstance(each, Call):
            words.append(each.op.name if isinstance(each.op, Op) else "Call")
        elif isinstance(each, TupleGetItem):
            words.append(f"TupleGetItem{each.index}")
        elif isinstance(each, (Tuple, Let, If)):
            words.append(type(each).__name__)
    return "".join(f"{word}_" for word in words)


def partitioned(pattern: DFPattern, root: Expr, attrs: Mapping[str, Any], check: Callable[[Expr], bool]) -> Expr:
    """`DFPattern.partition`: from the end of the program on, what fits and has no other uses becomes a call of a function."""
    used = users(root)
    taken: set[int] = set()  # what is in a part already, or in a function that was partitioned before
    values: dict[int, Expr] = {}
    number = 0
    for expr in reversed(list(postorder(root))):
        if isinstance(expr, Function) and "PartitionedFromPattern" in expr.attrs:
            taken |= {id(each) for each in preorder(expr)}
        found = None if id(expr) in taken else pattern.found(expr)
        if found is None:
            continue
        inputs = _inputs(pattern, found)
        params = {id(each): Var(f"FunctionVar_{number}_{place}") for place, each in enumerate(inputs)}
        number += 1
        inside = [each for each in _inside(expr, set(params)) if not isinstance(each, (Constant, Op, Function))]
        own = set(map(id, inside))
        if own & taken or any(id(user) not in own for each in inside if each is not expr for user in used[id(each)]):
            continue
        taken |= own
        if not check(expr):
            continue
        for each in inputs:
            params[id(each)]._checked_type = _type(each)
            if _type(each) is not None:
                params[id(each)].type_annotation = params[id(each)]._known_type = _type(each)
        body = replaced(expr, params)
        name = {"PartitionedFromPattern": _name(body)}
        function = Function([params[id(each)] for each in inputs], body, attrs={**attrs, **name})
        values[id(expr)] = Call(function, inputs)
    return replaced(root, values) if values else root


def _inside(expr: Expr, inputs: set[int]) -> list[Expr]:
    """The expressions from `expr` up to the inputs, without these."""
    seen: dict[int, Expr] = {}
    stack = [expr]
    while stack:
        each = stack.pop()
        if id(each) not in seen and id(each) not in inputs:
            seen[id(each)] = each
            stack += children(each)
    return list(seen.values())


def partition(
    pattern: DFPattern,
    expr: Expr,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Expr], bool] = lambda e: True,
) -> Expr:
    """The expression with what fits as calls of functions of these attributes."""
    return pattern.partition(expr, attrs, check)
