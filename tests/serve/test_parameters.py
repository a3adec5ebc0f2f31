"""The parameters of a request: one table, whichever transport they come by."""

from __future__ import annotations

import time
from typing import Any

import pytest
from treadle.serve.errors import BadRequestError
from treadle.serve.parameters import options


@pytest.mark.parametrize(
    ("parameters", "sequence", "is_start", "is_end"),
    [
        ({}, None, False, False),
        ({"binary_data_output": True}, None, False, False),
        ({"sequence_id": 0}, None, False, False),
        ({"sequence_id": ""}, None, False, False),
        ({"sequence_id": None}, None, False, False),
        ({"sequence_id": 7, "sequence_start": True}, 7, True, False),
        ({"sequence_id": "a" * 128, "sequence_end": True}, "a" * 128, False, True),
        ({"sequence_start": False}, None, False, False),
    ],
)
def test_sequences(parameters: dict[str, Any], sequence: int | str | None, is_start: bool, is_end: bool):
    assert options(parameters) == (None, sequence, is_start, is_end)


def test_a_timeout_is_in_microseconds():
    before = time.monotonic()
    deadline = options({"timeout": 2_000_000}).deadline
    assert deadline is not None
    assert before + 2 <= deadline <= time.monotonic() + 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", True),
        ("timeout", -1),
        ("timeout", 1.5),
        ("timeout", "1"),
        ("timeout", 1 << 62),
        ("sequence_id", True),
        ("sequence_id", 1.0),
        ("sequence_id", [1]),
        ("sequence_id", "a" * 129),
        ("sequence_start", 1),
        ("sequence_start", None),
        ("sequence_end", "true"),
    ],
)
def test_what_is_refused(name: str, value: Any):
    with pytest.raises(BadRequestError, match=name):
        options({name: value})
