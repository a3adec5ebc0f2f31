"""Normal forms: A-normal, basic-block and graph normal form, and the removal of lets that nothing uses.

Scopes are those of TVM's `dependency_graph.cc`: a function's body, a branch, a clause and what a let binds are each one, and an
expression stands in the innermost scope that all its uses have in common.
"""

from __future__ import annotations

from typing import Any

from ....formats.messages.errors import CompileError
from .. import adt
from ..expr import Call, Expr, Function, GlobalVar, If, Let, RefRead, RefWrite, Var
from ..module import IRModule
from ..rewrite import rebuilt
from ..ty import FuncType
from ..visit import Walk, children, free_vars, postorder, run
from .core import again, each_function, let_chain, lets, op_of, rewrite, type_of


class _Scope:
    """A scope: its parent, its depth, and the bindings that it gets."""

    def __init__(self, parent: _Scope | None = None) -> None:
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.bindings: list[tuple[Var, Expr]] = []

    def common(self, other: _Scope) -> _Scope:
        one: Any = self
        two: Any = other
        while one is not two:
            if one.depth >= two.depth:
                one, two = one.parent, two
            else:
                two = two.parent
        return one


def _inner(expr: Expr) -> int:
    """From which child on the children of an expression are scopes of their own."""
    return {Function: 0, Let: 0, If: 1, adt.Match: 1}.get(type(expr), len(children(expr)))


class _Scopes:
    """The scope of each expression of a function, the scopes that expressions open, and what is lifted out of its first one."""

    def __init__(self, root: Expr) -> None:
        self.of: dict[int, _Scope] = {id(root): _Scope()}
        self.opened: dict[tuple[int, int], _Scope] = {}
        self.lifted: list[Expr] = []
        first = _first_uses(root)
        for expr in reversed(list(postorder(root))):
            scope = self.of[id(expr)]
            if id(expr) in first and not isinstance(expr, GlobalVar):
                user, place = first[id(expr)]
                if self.scope_of_part(user, place) is not scope:
                    self.lifted.append(expr)
            for place in range(_inner(expr), len(children(expr))):
                key = self._key(expr, place)
                if key not in self.opened:
                    self.opened[key] = _Scope(scope)
            for place, child in enumerate(children(expr)):
                part, known = self.scope_of_part(expr, place), self.of.get(id(child))
                self.of[id(child)] = part if known is None else known.common(part)

    @staticmethod
    def _key(expr: Expr, place: int) -> tuple[int, int]:
        """A function's parameters and body have one scope, as a let's parts have; branches and clauses have each their own."""
        return id(expr), 0 if isinstance(expr, (Function, Let)) else place

    def scope_of_part(self, expr: Expr, place: int) -> _Scope:
        """The scope in which a child of an expression is."""
        return self.opened.get(self._key(expr, place), self.of[id(expr)])


def _first_uses(root: Expr) -> dict[int, tuple[Expr, int]]:
    """By identity, where an expression is a part of another first, in the order of evaluation."""
    found: dict[int, tuple[Expr, int]] = {}
    seen = {id(root)}
    stack = [(root, enumerate(children(root)))]
    while stack:
        expr, rest = stack[-1]
        place, child = next(rest, (-1, root))
        if place < 0:
            stack.pop()
            continue
        found.setdefault(id(child), (expr, place))
        if id(child) not in seen:
            seen.add(id(child))
            stack.append((child, enumerate(children(child))))
    return found


class _Filling:
    """Binds expressions in their scopes: all of them, or those that are lifted out of one."""

    def __init__(self, root: Expr, scopes: _Scopes, only: set[int] | None) -> None:
        self.root, self.scopes, self.only = root, scopes, only
        self.made: dict[int, Expr] = {}
        self.devices: list[Call] = []  # the `on_device` calls around

    def fill(self, expr: Expr, variable: Var | None = None) -> Walk:
        if id(expr) not in self.made:
            self.made[id(expr)] = yield self._make(expr, variable)
        elif variable is not None:
            self.scopes.of[id(expr)].bindings.append((variable, self.made[id(expr)]))
        return self.made[id(expr)]

    def _make(self, expr: Expr, variable: Var | None) -> Walk:
        if isinstance(expr, (Var, GlobalVar, adt.Constructor)):
            return self._push(expr, variable, expr) if variable is not None else expr
        if op_of(expr) == "on_device" and expr.attrs.get("constrain_result") and expr.attrs.get("constrain_body", True):  # type: ignore[attr-defined]
            self.devices.append(expr)  # type: ignore[arg-type]
            body = yield self.fill(expr.args[0], variable)  # type: ignore[attr-defined]
            self.devices.pop()
            return body if isinstance(body, Var) else again(expr, [body])  # type: ignore[arg-type]
        new = yield self._rebuilt(expr)
        if expr is self.root:
            return new
        if variable is None and self.only is not None and id(expr) not in self.only:
            return self._on_device(new)
        bindings, new = let_chain(new)
        self.scopes.of[id(expr)].bindings += bindings
        return self._push(expr, variable or Var("x"), new)

    def _push(self, expr: Expr, variable: Var, value: Expr) -> Var:
        self.scopes.of[id(expr)].bindings.append((variable, self._on_device(value)))
        return variable

    def _on_device(self, value: Expr) -> Expr:
        plain = self.devices and not isinstance(value, (Var, GlobalVar, Function)) and op_of(value) != "on_device"
        return again(self.devices[-1], [value]) if plain else value

    def _rebuilt(self, expr: Expr) -> Walk:
        if isinstance(expr, Let):
            yield self.fill(expr.value, expr.var)
            return (yield self._inside(expr, 0, expr.body))
        if isinstance(expr, Function):
            if expr.attrs.get("Primitive"):
                return expr
            devices, self.devices = self.devices, []
            body = yield self._inside(expr, 0, expr.body)
            self.devices = devices
            return rebuilt(expr, [*expr.params, body])
        parts = []
        for place, child in enumerate(children(expr)):
            inside = (id(expr), place) in self.scopes.opened
            parts.append((yield self._inside(expr, place, child) if inside else self.fill(child)))
        return rebuilt(expr, parts)

    def _inside(self, expr: Expr, place: int, child: Expr) -> Walk:
        made = yield self.fill(child)
        return lets(self.scopes.opened[id(expr), place].bindings, made)


def _filled(root: Expr, only_lifted: bool) -> Expr:
    scopes = _Scopes(root)
    filling = _Filling(root, scopes, set(map(id, scopes.lifted)) if only_lifted else None)
    return lets(scopes.of[id(root)].bindings, run(filling.fill(root)))


def a_normal(expr: Expr) -> Expr:
    """Each value but variables and operators bound by a let, in the order of evaluation."""
    return _filled(expr, only_lifted=False)


def basic_block_normal(expr: Expr) -> Expr:
    """What several scopes share is bound by a let in the innermost scope around them."""
    return _filled(expr, only_lifted=True)


def check_basic_block_normal_form(expr: Expr) -> bool:
    """True. Raises CompileError for an expression that two scopes share and no let binds."""
    lifted = _Scopes(expr).lifted
    if lifted:
        raise CompileError(
            f"check_basic_block_normal_form: two scopes share {lifted[0]}; ToBasicBlockNormalForm binds it by a let"
        )
    return True


def graph_normal(expr: Expr) -> Expr:
    """Lets replaced by sharing; those of functions that call themselves stay."""
    return rewrite(expr, inline=lambda let, value: not (isinstance(value, Function) and let.var in free_vars(value)))


# ---- lets that nothing uses ----


def _is_pure(expr: Expr, module: IRModule, seen: set[str]) -> bool:
    """Whether evaluation has no effect: no reference is read or written, by no function that may be called, and no unknown
    function is."""
    functions = {each.var for each in postorder(expr) if isinstance(each, Let)}
    for each in postorder(expr):
        if isinstance(each, (RefRead, RefWrite)):
            return False
        callee = each.op if isinstance(each, Call) else None
        is_unknown = isinstance(callee, Var) and callee not in functions and callee.name_hint not in seen
        if is_unknown and isinstance(type_of(callee), FuncType):  # type: ignore[arg-type]
            return False
        if isinstance(each, GlobalVar) and each.name_hint not in seen and each.name_hint in module:
            seen.add(each.name_hint)
            function = module._functions[each.name_hint]
            if isinstance(function, Function) and not _is_pure(function, module, seen):
                return False
    return True


def dead_code(function: Expr, module: IRModule, inline_once: bool, ignore_impurity: bool) -> Expr:
    """Without lets whose variables nothing uses; with `inline_once` those that are used once, in the same function, give way to
    their values. What has effects stays."""
    values: dict[int, Expr] = {}
    level: dict[int, int] = {}
    uses: dict[int, list[int]] = {}  # the depths of functions in which a variable is used
    pure: dict[int, bool] = {}
    locals_ = {each.var.name_hint for each in postorder(function) if isinstance(each, Let)}
    stack: list[tuple[Expr, int]] = [(function, 0)]
    visits: dict[int, int] = {}
    while stack:
        each, depth = stack.pop()
        visits[id(each)] = visits.get(id(each), 0) + 1
        if isinstance(each, Var):
            uses.setdefault(id(each), []).append(depth)
            if id(each) in values and len(uses[id(each)]) == 1 and pure[id(each)]:
                stack.append((values[id(each)], level[id(each)]))
            continue
        if visits[id(each)] > 2:
            continue
        while isinstance(each, Let):
            key = id(each.var)
            values[key], level[key] = each.value, depth
            pure[key] = ignore_impurity or _is_pure(each.value, module, set(locals_))
            if not pure[key]:
                stack.append((each.value, depth))
            each = each.body
        if isinstance(each, Function):
            stack.append((each.body, depth + 1))
        elif isinstance(each, Var):
            stack.append((each, depth))
        else:
            stack += [(child, depth) for child in children(each)]
    counts = {key: len(uses.get(key, ())) for key in values}
    dead = {key for key, count in counts.items() if count == 0 and pure[key]}
    once = {key for key, count in counts.items() if count == 1 and pure[key] and uses[key][0] == level[key]}
    return rewrite(
        function,
        lambda old, new: new.body if isinstance(old, Let) and id(old.var) in dead else None,  # type: ignore[attr-defined]
        lambda let, _: inline_once and id(let.var) in once,
    )


def ToANormalForm() -> Any:
    """Each value bound by a let, in the order of evaluation (`to_a_normal_form.cc`)."""
    return each_function("ToANormalForm", lambda function, _: a_normal(function))


def ToANormalFormExpr(expr: Expr) -> Expr:
    """`ToANormalForm` of an expression."""
    return a_normal(expr)


def ToBasicBlockNormalForm() -> Any:
    """What several branches share is bound by a let before them (`to_basic_block_normal_form.cc`)."""
    return each_function("ToBasicBlockNormalForm", lambda function, _: basic_block_normal(function))


def ToGraphNormalForm() -> Any:
    """Lets replaced by sharing (`to_graph_normal_form.cc`)."""
    return each_function("ToGraphNormalForm", lambda function, _: graph_normal(function))


def DeadCodeElimination(inline_once: bool = False, ignore_impurity: bool = False) -> Any:
    """Without lets that nothing uses (`dead_code.cc`)."""
    return each_function(
        "DeadCodeElimination", lambda function, module: dead_code(function, module, inline_once, ignore_impurity)
    )
