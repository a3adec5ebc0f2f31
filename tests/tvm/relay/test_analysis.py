"""`relay.analysis`: questions about types, matches and programs."""

from __future__ import annotations

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import InferenceError
from treadle.tvm import relay
from treadle.tvm.relay import analysis
from treadle.tvm.relay.dataflow_pattern import DFPatternCallback, is_op, rewrite, wildcard


def test_types_have_kinds_and_variables() -> None:
    a, b = relay.TypeVar("a"), relay.TypeVar("b", relay.TypeKind.ShapeVar)
    function = relay.FuncType([a], relay.TupleType([a]), [a])
    assert analysis.check_kind(function) == relay.TypeKind.Type
    assert (analysis.bound_type_vars(function), analysis.free_type_vars(function)) == ([a], [])
    with pytest.raises(InferenceError, match=r"b in .* is of the kind ShapeVar, expected Type"):
        analysis.check_kind(relay.TupleType([a, b]))


def test_matches_say_what_they_leave_out() -> None:
    module = tvm.IRModule()
    list_ = relay.GlobalTypeVar("list")
    nil, cons = (
        relay.Constructor("nil", [], list_),
        relay.Constructor("cons", [relay.scalar_type("int32"), list_()], list_),
    )
    module[list_] = relay.TypeData(list_, [], [nil, cons])
    some = relay.PatternConstructor(cons, [relay.PatternWildcard(), relay.PatternConstructor(nil, [])])
    (longer, empty) = sorted(
        analysis.unmatched_cases(relay.Match(relay.var("v"), [relay.Clause(some, relay.const(1))]), module),
        key=lambda pattern: pattern.constructor.name_hint,
    )
    assert empty.constructor is nil
    assert longer.patterns[1].constructor is cons


def test_work_and_parts_are_counted() -> None:
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, w))))
    assert analysis.get_total_mac_number(module["main"]) == 24
    assert analysis.all_dtypes(module["main"]) == {"float32"}
    assert analysis.extract_intermdeiate_expr(module, 0)["main"].body.op.name == "nn.dense"


def test_rules_of_patterns_rewrite_until_nothing_fits() -> None:
    class Twice(DFPatternCallback):
        def __init__(self) -> None:
            super().__init__()
            self.x = wildcard()
            self.pattern = is_op("add")(self.x, self.x)

        def callback(self, pre: object, post: object, node_map: dict) -> object:
            return node_map[self.x][0] * relay.const(np.float32(2))

    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    made = rewrite(Twice(), relay.exp(x + x) + y)
    assert analysis.list_op_freqs(made) == {"multiply": 1, "exp": 1, "add": 1}
