"""Lowering of `Match`: the decision tree of its patterns as tests of tags, jumps and field loads."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from functools import partial

from ...formats.types import Type, erase_dims
from .. import ir
from . import decision_tree
from .decision_tree import Path, Tree
from .emission import Emission, Value
from .virtual import Label, Register

_Found = ChainMap[Path, Value]  # the parts of the matched value that are in registers at a point of the code


def lower_match(
    emission: Emission, match: ir.Match, value: Value, type_: Type, finish: Callable[[ir.Block], None]
) -> None:
    """Emits the tests on `value`, of type `type_`; `finish` emits a clause's block and leaves it."""
    _Matching(emission, match, type_, finish).run(value)


class _Matching:
    def __init__(self, emission: Emission, match: ir.Match, type_: Type, finish: Callable[[ir.Block], None]) -> None:
        self.emission, self.match, self.finish = emission, match, finish
        self.tree = decision_tree.build(match, type_, emission.tables.module.data_types)
        reached = decision_tree.clauses_reached(self.tree)
        self.shared = {clause: Label() for clause in reached if reached.count(clause) > 1}
        self.meeting: dict[ir.Var, Register] = {}  # variables of clauses that several leaves share

    def run(self, value: Value) -> None:
        self._walk(self.tree, ChainMap({(): value}))
        for clause, label in self.shared.items():
            self.emission.place(label)
            self.emission.in_child_scope(partial(self._shared_clause, clause))

    def _walk(self, tree: Tree, found: _Found) -> None:
        if isinstance(tree, decision_tree.Test):
            self._test(tree, found)
        elif isinstance(tree, decision_tree.Fail):
            self.emission.emit("fatal", 0)
        elif tree.clause in self.shared:
            self._jump_to_clause(tree, found)
        else:
            for var, path in tree.bindings:
                self._bind(var, self._find(path, found))
            self.finish(self.match.clauses[tree.clause][1])

    def _test(self, test: decision_tree.Test, found: _Found) -> None:
        """One branch a tag. If the tags are complete, the last needs no test."""
        branches = list(test.branches)
        last = test.otherwise if test.otherwise is not None else branches.pop()[1]
        if branches:
            number = self.emission.new_int()
            self.emission.emit("get_tag", number, self.emission.whole(self._find(test.path, found)))
        for tag, subtree in branches:
            following = Label()
            if tag == 0 and len(branches) == 1:
                subtree, last = last, subtree  # if_int jumps on 0: the other branch first, and no comparison
                self.emission.emit("if_int", number, following)
            else:
                self.emission.emit("if_int", self.emission.arithmetic("equal", number, tag), following)
            self.emission.in_child_scope(partial(self._walk, subtree, found.new_child()))
            self.emission.place(following)
        self.emission.in_child_scope(partial(self._walk, last, found.new_child()))

    def _jump_to_clause(self, leaf: decision_tree.Leaf, found: _Found) -> None:
        for var, path in leaf.bindings:
            if var not in self.meeting:
                self.meeting[var] = self.emission.new_ref(erase_dims(var.type))  # type: ignore[arg-type]
            self.emission.emit("move", self.meeting[var], self.emission.whole(self._find(path, found)))
        self.emission.emit("goto", self.shared[leaf.clause])

    def _shared_clause(self, clause: int) -> None:
        pattern, block = self.match.clauses[clause]
        for var in ir.pattern_vars(pattern):
            self._bind(var, self.meeting[var])
        self.finish(block)

    def _bind(self, var: ir.Var, value: Value) -> None:
        self.emission.scope.values[var] = value
        self.emission.prove_value(value, var.type)

    def _find(self, path: Path, found: _Found) -> Value:
        """The part of the matched value at `path`."""
        value = found.get(path)
        if value is None:
            tag, index = path[-1]
            value = found[path] = self.emission.field(self._find(path[:-1], found), tag, index)
        return value
