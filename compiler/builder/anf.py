"""From graphs of nested expressions to A-normal form: each expression bound once, in the right block.

An expression that is used in several blocks is bound in the innermost block around them all; one that is used in a single
branch stays in that branch. Nothing here recurses, so a graph may be of any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...formats.messages.errors import InferenceError
from ...formats.types import DataTypeDefinition, FunctionType, Type
from .. import ir


@dataclass(eq=False)
class Node:
    """An expression: an atom, what `make` builds of its operands' atoms and its bodies' blocks, or, of neither, its first operand
    under a name, the others being bound where it is."""

    make: Callable[[tuple[ir.Atom, ...], tuple[ir.Block, ...]], ir.Expr] | None = None
    operands: tuple[Node, ...] = ()
    bodies: tuple[Node, ...] = ()  # the results of its blocks
    params: tuple[ir.Var, ...] = ()  # of a function, which its body may use
    atom: ir.Atom | None = None
    type: Type | None = None  # where it is known before inference
    declared: Type | None = None  # that inference is to find, or one within it
    name: str = "value"  # what the variable that holds it is called
    given_name: str = ""  # what the user calls it, and so the result that it is
    origin: str = ""
    data_type: DataTypeDefinition | None = None  # that it uses
    place: int | None = None  # in the order of a text or a model; None: where it is needed first
    fields: tuple[Type | None, ...] | None = None  # of a tuple, the types as far as they are known
    imported: tuple[str, FunctionType] | None = None  # that it calls


@dataclass(eq=False)
class _Scope:
    """A block in the making."""

    parent: _Scope | None
    depth: int
    params: tuple[ir.Var, ...] = ()  # of a function, whose body it is
    bindings: list[ir.Binding] = field(default_factory=list)


def _common(a: _Scope, b: _Scope) -> _Scope:
    """The innermost scope around both."""
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None
        a = a.parent
    return a


def postorder(*roots: Node) -> list[Node]:
    """The nodes that `roots` are made of, root after root; each once, after those that it uses."""
    order: list[Node] = []
    seen: set[Node] = set()
    for root in roots:
        stack: list[tuple[Node, Any]] = [] if root in seen else [(root, iter((*root.operands, *root.bodies)))]
        seen.add(root)
        while stack:
            node, children = stack[-1]
            child = next((child for child in children if child not in seen), None)
            if child is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(child)
                stack.append((child, iter((*child.operands, *child.bodies))))
    return order


def _ordered(result: Node) -> list[Node]:
    """The nodes of a block: by their places, each after those that it uses."""
    order = postorder(result)
    placed = [node for node in order if node.place is not None]
    return postorder(*sorted(placed, key=lambda node: node.place or 0), result) if placed else order


def normalize(result: Node) -> ir.Block:
    """The block that computes `result`. Raises InferenceError for an expression of a function's parameter that would have to be
    placed outside of that function."""
    order = _ordered(result)
    root = _Scope(None, 0)
    homes: dict[Node, _Scope] = {result: root}
    inner: dict[Node, list[_Scope]] = {}

    def use(node: Node, scope: _Scope) -> None:
        homes[node] = _common(homes[node], scope) if node in homes else scope

    for node in reversed(order):  # a node comes after all that use it
        home = homes[node]
        inner[node] = [_Scope(home, home.depth + 1, node.params) for _ in node.bodies]
        for operand in node.operands:
            use(operand, home)
        for body, scope in zip(node.bodies, inner[node], strict=True):
            use(body, scope)
    _check_parameters(order, homes, inner)

    atoms: dict[Node, ir.Atom] = {}
    names = _Names(order)
    for node in order:
        if node.make is None:
            atoms[node] = atoms[node.operands[0]] if node.atom is None else node.atom
            continue
        scopes = zip(node.bodies, inner[node], strict=True)
        blocks = tuple(ir.Block(tuple(scope.bindings), atoms[body]) for body, scope in scopes)
        value = node.make(tuple(atoms[operand] for operand in node.operands), blocks)
        var = ir.Var(names.fresh(node.name), node.declared)
        homes[node].bindings.append(ir.Binding(var, value, node.origin))
        atoms[node] = var
    return ir.Block(tuple(root.bindings), atoms[result])


def _check_parameters(order: Sequence[Node], homes: Mapping[Node, _Scope], inner: Mapping[Node, list[_Scope]]) -> None:
    """Raises InferenceError for an expression that is used where its variable is the parameter of one function, and placed where
    it is that of another one, or of none: it would have the wrong value."""
    params = {param for node in order for param in node.params}
    if not params:
        return
    used: dict[Node, frozenset[ir.Var]] = {}  # parameters of functions within that a node's value depends on
    for node in order:
        own = {node.atom} if isinstance(node.atom, ir.Var) and node.atom in params else set()
        found = own.union(*(used[each] for each in (*node.operands, *node.bodies)))
        used[node] = frozenset(found.difference(node.params)) if node.bodies else frozenset(found)
        scopes = [homes[node]] * len(node.operands) + inner[node]
        for each, scope in zip((*node.operands, *node.bodies), scopes, strict=True):
            for var in used[each]:
                if each.make is not None and _binder(scope, var) is not _binder(homes[each], var):
                    where = f" of {each.origin}" if each.origin else ""
                    raise InferenceError(
                        f"{each.name}{where} is an expression of {var.name!r}, and is used in a function that has this variable "
                        "as a parameter and outside of that; give one of them another variable"
                    )


def _binder(scope: _Scope | None, var: ir.Var) -> _Scope | None:
    """The body of the innermost function around that has the variable as a parameter."""
    while scope is not None and var not in scope.params:
        scope = scope.parent
    return scope


class _Names:
    """Names of variables that are unique in a function and the same every time: add, add_1, add_2 …"""

    def __init__(self, order: Sequence[Node]) -> None:
        self._taken = {node.atom.name for node in order if isinstance(node.atom, ir.Var)}
        self._counts: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        while True:
            count = self._counts.get(name, 0)
            self._counts[name] = count + 1
            candidate = f"{name}_{count}" if count else name
            if candidate not in self._taken:
                self._taken.add(candidate)
                return candidate


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names, numbered where one occurs twice."""
    seen: dict[str, None] = {}
    for name in names:
        unique, count = name, 1
        while unique in seen:
            unique, count = f"{name}_{count}", count + 1
        seen[unique] = None
    return tuple(seen)
