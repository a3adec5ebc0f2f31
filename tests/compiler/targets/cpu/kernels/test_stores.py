"""A store of few elements writes those and nothing beside them, whatever LLVM makes of it."""

from __future__ import annotations

import re

import pytest
from treadle.compiler.targets.cpu.target import Target
from treadle.compiler.targets.cpu.toolchain.translate import translate
from treadle.compiler.targets.cpu.vectors.simd import namespace
from treadle.formats.dtypes import DType
from treadle.formats.primitive import PrimitiveDefinition, PrimitiveNode
from treadle.formats.types import TensorType

from .. import harness

TARGETS = pytest.mark.parametrize(
    "target", [None, *harness.NARROW], ids=lambda target: f"{target.vector_bytes} bytes" if target else "here"
)
SHAPES = pytest.mark.parametrize("shape", [(), (2,), (3,)], ids=str)


def check(definition: PrimitiveDefinition, target: Target | None) -> None:
    arrays = [harness.random_array(param, seed, {}) for seed, param in enumerate(definition.params)]
    if target is None:
        harness.check(definition, arrays, {})
    elif harness.built(definition, target) is not None:
        harness.check(definition, arrays, {}, target=target)


@TARGETS
@SHAPES
@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("int16", "int8"),
        ("int32", "int8"),
        ("int32", "uint16"),
        ("int64", "int8"),
        ("int64", "int32"),
        ("bool", "int64"),
    ],
)
def test_integers_that_are_made_narrower(given: str, made: str, shape: tuple[int, ...], target: Target | None) -> None:
    source, result = TensorType(DType[given], shape), TensorType(DType[made], shape)
    node = PrimitiveNode("cast", (0,), (result,), (("dtype", DType[made]),))
    check(PrimitiveDefinition((source,), (node,), (1,), ()), target)


@TARGETS
@SHAPES
@pytest.mark.parametrize("given", ["int8", "int32", "int64", "float32", "float64"])
def test_truth_values(given: str, shape: tuple[int, ...], target: Target | None) -> None:
    source, zero = TensorType(DType[given], shape), TensorType(DType[given], ())
    constant = PrimitiveNode("constant", (), (zero,), (("dtype", DType[given]), ("value", 0)))
    less = PrimitiveNode("less", (0, 1), (TensorType(DType.bool, shape),))
    check(PrimitiveDefinition((source,), (constant, less), (2,), ()), target)


def test_scalars_may_lie_at_any_address() -> None:
    """Runs of narrow elements are copied as words: LLVM may not think that these lie at multiples of four bytes."""
    text = "def kernel(args, scratch, part, parts):\n    store_uint64(scratch, 1, load_uint64(args, 3))\n    return 0\n"
    found = "\n".join(translate("kernel", text, namespace(4), harness.TARGET.native))
    assert re.search(r"load i64, .*, align 1\b", found)
    assert re.search(r"store i64 .*, align 1\b", found)
