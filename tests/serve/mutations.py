"""Messages that are changed at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any


def mutated(value: Any, values: Sequence[Any], rng: random.Random) -> Any:
    """The value with one place of it missing, doubled, or one of `values`."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {name: each for name, each in value.items() if name != key}
        return value | {key: mutated(value[key], values, rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:at] + value[at:] + value[at : at + 1]
        return [*value[:at], mutated(value[at], values, rng), *value[at + 1 :]]
    return rng.choice(values)


def damaged(data: bytes, rng: random.Random, least: int = 0) -> bytes:
    """The bytes with up to two places more than `least` of them replaced, dropped or added."""
    for _ in range(rng.randrange(least, least + 3)):
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.randbytes(rng.randrange(4)) + data[at + rng.randrange(4) :]
    return data
