"""From graphs of nested expressions to A-normal form: each expression bound once, in the right block.

An expression that is used in several blocks is bound in the innermost block around them all; one that is used in a single
branch stays in that branch. Nothing here recurses, so a graph may be of any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..formats.types import DataTypeDefinition, FunctionType, Type
from . import ir


@dataclass(eq=False)
class Node:
    """An expression: an atom, or what `make` builds of its operands' atoms and its bodies' blocks."""

    make: Callable[[tuple[ir.Atom, ...], tuple[ir.Block, ...]], ir.Expr] | None = None
    operands: tuple[Node, ...] = ()
    bodies: tuple[Node, ...] = ()  # the results of its blocks
    atom: ir.Atom | None = None
    type: Type | None = None  # where it is known before inference
    name: str = "value"  # what the variable that holds it is called
    origin: str = ""
    data_type: DataTypeDefinition | None = None  # that it uses
    fields: tuple[Type | None, ...] | None = None  # of a tuple, the types as far as they are known
    imported: tuple[str, FunctionType] | None = None  # that it calls


@dataclass(eq=False)
class _Scope:
    """A block in the making."""

    parent: _Scope | None
    depth: int
    bindings: list[ir.Binding] = field(default_factory=list)


def _common(a: _Scope, b: _Scope) -> _Scope:
    """The innermost scope around both."""
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None
        a = a.parent
    return a


def postorder(root: Node) -> list[Node]:
    """The nodes that `root` is made of, itself the last; each once, behind those that it uses."""
    order: list[Node] = []
    seen = {root}
    stack: list[tuple[Node, Any]] = [(root, iter((*root.operands, *root.bodies)))]
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


def normalize(result: Node) -> ir.Block:
    """The block that computes `result`."""
    order = postorder(result)
    root = _Scope(None, 0)
    homes: dict[Node, _Scope] = {result: root}
    inner: dict[Node, list[_Scope]] = {}

    def use(node: Node, scope: _Scope) -> None:
        homes[node] = _common(homes[node], scope) if node in homes else scope

    for node in reversed(order):  # a node comes behind all that use it
        home = homes[node]
        inner[node] = [_Scope(home, home.depth + 1) for _ in node.bodies]
        for operand in node.operands:
            use(operand, home)
        for body, scope in zip(node.bodies, inner[node], strict=True):
            use(body, scope)

    atoms: dict[Node, ir.Atom] = {}
    names = _Names(order)
    for node in order:
        if node.make is None:
            assert node.atom is not None
            atoms[node] = node.atom
            continue
        scopes = zip(node.bodies, inner[node], strict=True)
        blocks = tuple(ir.Block(tuple(scope.bindings), atoms[body]) for body, scope in scopes)
        value = node.make(tuple(atoms[operand] for operand in node.operands), blocks)
        var = ir.Var(names.fresh(node.name))
        homes[node].bindings.append(ir.Binding(var, value, node.origin))
        atoms[node] = var
    return ir.Block(tuple(root.bindings), atoms[result])


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
