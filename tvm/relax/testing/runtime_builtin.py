"""The codes of `vm.builtin.match_shape` and `vm.builtin.make_shape`."""

from enum import IntEnum

MatchShapeCode = IntEnum(
    "MatchShapeCode", ["ASSERT_EQUAL_TO_IMM", "STORE_TO_HEAP", "NO_OP", "ASSERT_EQUAL_TO_LOAD"], start=0
)
MakeShapeCode = IntEnum("MakeShapeCode", ["USE_IMM", "LOAD_SHAPE"], start=0)
