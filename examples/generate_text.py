"""Text from a decoder with a cache: token by token, by chance, and by one call of a loop in the executable.

The decoder is made here, with random weights: its inputs and outputs have the names that exporters of language models use, and
these are all that `treadle.generate` goes by.
"""

from __future__ import annotations

import numpy as np
import treadle
from treadle import Module, constant, function, match_shape, named, op, tuple_, var

WORDS, WIDTH, LONGEST = 64, 32, 256


def decoder() -> object:
    """One layer of attention over the tokens so far, whose keys and values are handed on from call to call."""
    random = np.random.default_rng(6)

    def weight(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    ids = var("input_ids", ("batch", "length"), "int64")
    places = var("position_ids", ("batch", "length"), "int64")
    mask = var("attention_mask", ("batch", "total"), "int64")
    past = [var(f"past_key_values.0.{name}", ("batch", 1, "past", WIDTH)) for name in ("key", "value")]
    x = op.take(constant(weight(WORDS, WIDTH)), ids, axis=0) + op.take(constant(weight(LONGEST, WIDTH)), places, axis=0)
    query, *new = (op.expand_dims(x @ (weight(WIDTH, WIDTH) / 6), axes=(1,)) for _ in range(3))
    key, value = (
        match_shape(op.concat(a, b, axis=2), ("batch", 1, "total", WIDTH)) for a, b in zip(past, new, strict=True)
    )
    scores = query @ op.permute_dims(key, axes=(0, 1, 3, 2))
    first = op.reshape(op.arange(start="total - length", stop="total", step=1, dtype="int64"), shape=("length", 1))
    seen = op.arange(start=0, stop="total", step=1, dtype="int64") <= first
    seen = op.logical_and(seen, op.not_equal(op.reshape(mask, shape=("batch", 1, 1, "total")), 0))
    weights = op.softmax(op.where(seen, scores, -1e9))
    logits = (x + op.squeeze(weights @ value, axes=(1,))) @ (weight(WIDTH, WORDS) / 2)
    results = named("logits", logits), named("present.0.key", key), named("present.0.value", value)
    return Module(main=function([ids, mask, places, *past], tuple_(*results)))


def main() -> None:
    executable = treadle.compile(decoder(), decode_loop=True, progress=False)
    machine = treadle.VirtualMachine(executable)
    prompt = [3, 1, 4, 1, 5]
    likeliest = list(treadle.generate(machine, prompt, max_new_tokens=20))
    print("the likeliest:", likeliest)
    sampled = treadle.generate(machine, prompt, max_new_tokens=20, temperature=0.8, top_p=0.9, seed=1)
    print("by chance:    ", list(sampled))
    print("generate takes", ", ".join(f"{port.name}: {port.type}" for port in machine.inputs("generate")))


if __name__ == "__main__":
    main()
