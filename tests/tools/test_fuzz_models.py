"""Hostile models: a small share of what `treadle.tools.dev.fuzz.models` tries, and what it has found."""

from __future__ import annotations

import pytest
from treadle.compiler.operators.shapes import require_value
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import InferenceError
from treadle.tools.dev.fuzz import models, runs

COUNT = 60


def test_hostile_models_are_refused_or_compiled() -> None:
    state = runs.run(models.FUZZER, ["--seed", "22", "--count", str(COUNT), "--without-cases"])
    assert not state.findings
    assert sum(state.tally.values()) == COUNT
    assert state.tally["compiled"]
    assert state.tally["refused ModelError"]


def test_a_model_is_a_function_of_its_number() -> None:
    assert [models.make_model(0, number, False) for number in range(9)] == [
        models.make_model(0, n, False) for n in range(9)
    ]


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "int8", "uint64", "bool"])
def test_numbers_of_types_that_numpy_lacks_are_checked_too(name: str) -> None:
    dtype = DType[name]
    low, high = dtype.bounds
    require_value(low, dtype)
    require_value(high, dtype)
    with pytest.raises(InferenceError, match="a number of type"):
        require_value(high + 1, dtype)
