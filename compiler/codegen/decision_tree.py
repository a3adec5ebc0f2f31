"""Pattern matching: from the clauses of a `Match` to a tree of tests on tags.

The tree tests a value's tag at most once on each path (L. Maranget, "Compiling Pattern Matching to Good Decision
Trees", 2008). A place in the matched value is an *access path*: the root is (), and field `index` of the value at `path`,
known to be built by the constructor with `tag`, is `path + ((tag, index),)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

from ...formats.types import DataType, DataTypeDefinition, TupleType, Type
from .. import ir

Path = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Leaf:
    """Clause number `clause` matches; its pattern's variables are at `bindings`."""

    clause: int
    bindings: tuple[tuple[ir.Var, Path], ...]


@dataclass(frozen=True)
class Fail:
    """No clause matches."""


@dataclass(frozen=True)
class Test:
    """A test of the tag of the value at `path`: a branch for each tag, and one for all others (None if there are none)."""

    path: Path
    branches: tuple[tuple[int, Tree], ...]
    otherwise: Tree | None


Tree = Union[Leaf, Fail, Test]


@dataclass(frozen=True)
class _Row:
    """A clause in progress: the patterns still to be tested, by path, and the variables bound so far."""

    clause: int
    patterns: Mapping[Path, ir.Pattern]
    bindings: tuple[tuple[ir.Var, Path], ...]


def build(match: ir.Match, value_type: Type, data_types: Mapping[str, DataTypeDefinition]) -> Tree:
    """The decision tree of a `match` on a value of type `value_type`; clauses are tried from first to last."""
    rows = [_Row(i, {(): pattern}, ()) for i, (pattern, _) in enumerate(match.clauses)]
    return _build([_settle(row) for row in rows], {(): value_type}, data_types)


def clauses_reached(tree: Tree) -> list[int]:
    """The clause of each leaf, from left to right."""
    if isinstance(tree, Leaf):
        return [tree.clause]
    if isinstance(tree, Fail):
        return []
    branches = [subtree for _, subtree in tree.branches] + ([tree.otherwise] if tree.otherwise else [])
    return [clause for subtree in branches for clause in clauses_reached(subtree)]


def _settle(row: _Row) -> _Row:
    """Removes patterns without tests from `row`: variables, wildcards, and tuples, which become their fields."""
    patterns: dict[Path, ir.Pattern] = {}
    bindings = list(row.bindings)
    pending = list(row.patterns.items())
    while pending:
        path, pattern = pending.pop(0)
        if isinstance(pattern, ir.Bind):
            bindings.append((pattern.var, path))
        elif isinstance(pattern, ir.TuplePattern):
            pending[:0] = [((*path, (0, i)), part) for i, part in enumerate(pattern.fields)]
        elif isinstance(pattern, ir.ConstructorPattern):
            patterns[path] = pattern
    return _Row(row.clause, patterns, tuple(bindings))


def _build(rows: list[_Row], known: Mapping[Path, Type], data_types: Mapping[str, DataTypeDefinition]) -> Tree:
    if not rows:
        return Fail()
    first = rows[0]
    if not first.patterns:
        return Leaf(first.clause, first.bindings)
    path = next(iter(first.patterns))
    known = _with_types_along(path, known)
    data_type = known[path]
    assert isinstance(data_type, DataType)  # inference checked the patterns
    constructors = data_types[data_type.name].constructors
    tag_of = {constructor.name: tag for tag, constructor in enumerate(constructors)}
    tested = sorted(
        {tag_of[p.constructor] for row in rows if isinstance(p := row.patterns.get(path), ir.ConstructorPattern)}
    )
    branches = []
    for tag in tested:
        fields = {(*path, (tag, i)): type_ for i, type_ in enumerate(constructors[tag].fields)}
        kept = [narrowed for row in rows if (narrowed := _narrow(row, path, tag, tag_of)) is not None]
        branches.append((tag, _build(kept, {**known, **fields}, data_types)))
    rest = None
    if len(tested) < len(constructors):
        rest = _build([row for row in rows if path not in row.patterns], known, data_types)
    return Test(path, tuple(branches), rest)


def _with_types_along(path: Path, known: Mapping[Path, Type]) -> Mapping[Path, Type]:
    """`known`, with the types at `path` and above it: fields of tuples are added only when visited."""
    if path in known:
        return known
    known = _with_types_along(path[:-1], known)
    parent = known[path[:-1]]
    assert isinstance(parent, TupleType)
    return {**known, path: parent.fields[path[-1][1]]}


def _narrow(row: _Row, path: Path, tag: int, tag_of: Mapping[str, int]) -> _Row | None:
    """The rest of `row` once the value at `path` is known to have `tag`; None if it cannot match."""
    pattern = row.patterns.get(path)
    if not isinstance(pattern, ir.ConstructorPattern):
        return row
    if tag_of[pattern.constructor] != tag:
        return None
    patterns: dict[Path, ir.Pattern] = {}
    for place, part in row.patterns.items():
        if place == path:
            patterns.update({(*path, (tag, i)): field for i, field in enumerate(pattern.fields)})
        else:
            patterns[place] = part
    return _settle(_Row(row.clause, patterns, row.bindings))
