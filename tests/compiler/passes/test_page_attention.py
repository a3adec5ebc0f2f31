"""Which decoders get a function of many texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import op
from treadle.compiler.decoders.batch import batch_of
from treadle.compiler.decoders.step import with_made
from treadle.compiler.driver import compile_module, module_of
from treadle.formats.decoders import BATCH

WORDS, SIZE, HEADS = 7, 16, 2


def causal(here: Any, there: Any) -> Any:
    return op.where(op.less_equal(there, here), 0.0, -1e9)


def of_window(here: Any, there: Any) -> Any:
    return op.where(op.logical_and(op.less_equal(there, here), op.less(here - 300, there)), 0.0, -1e9)


def of_square(here: Any, there: Any) -> Any:
    """Which hides what is a million tokens ago, and is of all tokens squared."""
    rows = op.expand_dims(there, axes=(1,))
    seen = op.logical_and(op.less_equal(there, rows), op.less(rows - 1_000_000, there))
    return op.where(op.take(seen, op.squeeze(here, axes=(1,)), axis=0), 0.0, -1e9)


def program(
    mask: Callable[..., Any] = causal,
    change: Callable[..., Any] = lambda x, total: x,
    keys: Any = lambda k: k,
    bound: Any = lambda scores: scores,
    weights: Any = op.softmax,
    sound: Any = None,
) -> Any:
    """A layer of a decoder. `change` is what happens to its rows, [1, length, 32], of `total` tokens; `keys` to its keys; `bound`
    to its scores, before the mask, of which `weights` are made. With `sound`, a mask of frames, it sees an encoder's too."""
    random = np.random.default_rng(0)
    ids = treadle.var("input_ids", ("batch", "length"), "int64")
    past = [treadle.var(f"past_{name}_0", ("batch", HEADS, "past", SIZE)) for name in ("key", "value")]
    x = op.take(random.standard_normal((WORDS, HEADS * SIZE)).astype("f"), ids, axis=0)
    places = op.arange(start="past", stop="past + length", step=1, dtype="int64")
    x = x + op.expand_dims(op.sin(op.cast(places, dtype="float32")), axes=(1,))
    x = change(x, op.cast(op.shape_tensor(dims=("past + length",)), dtype="float32"))
    encoded = []
    if sound is not None:
        encoded = [treadle.var(f"past_{name}_cross_0", ("batch", HEADS, "frames", SIZE)) for name in ("key", "value")]
        x = x + _of_sound(x, *encoded, sound(op.arange(start=0, stop="frames", step=1, dtype="int64")))
    q, k, v = (
        op.permute_dims(op.reshape(op.matmul(x, w), shape=("batch", "length", HEADS, SIZE)), axes=(0, 2, 1, 3))
        for w in random.standard_normal((3, HEADS * SIZE, HEADS * SIZE)).astype("f")
    )
    new = [op.concat(old, each, axis=2) for old, each in zip(past, (keys(k), v), strict=True)]
    there = op.arange(start=0, stop="past + length", step=1, dtype="int64")
    scores = bound(op.matmul(q, op.permute_dims(new[0], axes=(0, 1, 3, 2))) * 0.25)
    scores = scores + mask(op.expand_dims(places, axes=(1,)), there)
    context = op.permute_dims(op.matmul(weights(scores), new[1]), axes=(0, 2, 1, 3))
    logits = op.matmul(
        op.reshape(context, shape=("batch", "length", HEADS * SIZE)),
        random.standard_normal((HEADS * SIZE, WORDS)).astype("f"),
    )
    results = {"logits": logits, "present_key_0": new[0], "present_value_0": new[1]}
    named = [treadle.named(name, each) for name, each in results.items()]
    return treadle.Module(main=treadle.function([ids, *past, *encoded], treadle.tuple_(*named)))


def attributes_of(model: Any) -> dict[str, Any] | None:
    """Those of the attention over pages; None where there is no function of many texts."""
    module, name = module_of(model)
    entries = (name, f"{name}.batch")
    made = compile_module(with_made(module, name, {BATCH: batch_of}), entries=entries).program
    nodes = [node for each in made.primitives for node in each.definition.nodes if node.operator == "paged_attention"]
    assert bool(nodes) == (entries[1] in {function.name for function in made.functions})
    return dict(nodes[0].attributes) if nodes else None


UNDERSTOOD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "of all tokens": ({}, {}),
    "of a window": ({"mask": of_window}, {"window": 300}),
    "each row by itself": ({"change": lambda x, total: op.relu(x - op.mean(x, axes=(2,), keepdims=True))}, {}),
    "rows of rows": ({"change": lambda x, total: _by_heads(x)}, {}),
    "whose scores are bounded": (
        {"bound": lambda x: op.tanh(x / 30.0) * 30.0, "mask": of_window},
        {"softcap": 30.0, "window": 300},
    ),
    "with a score of no value": ({"weights": lambda scores: _with_sink(scores)}, {}),
    "with experts": ({"change": lambda x, total: _by_expert(x)}, {}),
    "which sees all frames": ({"sound": lambda frames: op.where(op.less(frames, 0), -1e9, 0.0)}, {}),
}
REFUSED = {
    "whose mask is too large to be looked at": {"mask": lambda here, there: of_square(here, there)},
    "which sees what is to come": {"mask": lambda here, there: op.cast(op.less(there, here * 0), dtype="float32")},
    "which does not see its own": {"mask": lambda here, there: op.where(op.less(there, here), 0.0, -1e9)},
    "whose mask hides little": {"mask": lambda here, there: op.where(op.less_equal(there, here), 0.0, -3.0)},
    "which looks at distances": {
        "mask": lambda here, there: causal(here, there) + op.cast(there - here, dtype="float32") * 0.1
    },
    "which sees each second token": {
        "mask": lambda here, there: op.where(op.equal(op.remainder(here - there, 2), 0), causal(here, there), -1e9)
    },
    "which does not see later frames": {"sound": lambda frames: op.where(op.less(frames, 400), 0.0, -1e9)},
    "which mixes tokens": {"change": lambda x, total: x - op.mean(x, axes=(1,), keepdims=True)},
    "which adds tokens up": {"change": lambda x, total: op.cumulative_sum(x, axis=1)},
    "which turns tokens around": {
        "change": lambda x, total: op.reshape(
            op.permute_dims(x, axes=(0, 2, 1)), shape=("batch", "length", HEADS * SIZE)
        )
    },
    "which knows how many there are": {"change": lambda x, total: x * total},
    "with a score of no value for each token": {"weights": lambda scores: _with_sink(scores, scores)},
    "with experts of which one sees others' rows": {"change": lambda x, total: _by_expert(x, op.cumulative_sum)},
    "whose keys are not its own rows": {
        "keys": lambda k: k * op.cast(op.shape_tensor(dims=("past",)), dtype="float32")
    },
}


def _of_sound(x: Any, keys: Any, values: Any, mask: Any) -> Any:
    q = op.permute_dims(op.reshape(x, shape=("batch", "length", HEADS, SIZE)), axes=(0, 2, 1, 3))
    scores = op.matmul(q, op.permute_dims(keys, axes=(0, 1, 3, 2))) * 0.25 + mask
    heads = op.permute_dims(op.matmul(op.softmax(scores), values), axes=(0, 2, 1, 3))
    return op.reshape(heads, shape=("batch", "length", HEADS * SIZE))


def _by_heads(x: Any) -> Any:
    rows = op.reshape(x, shape=("batch", "length * 2", SIZE))
    return op.reshape(op.softmax(rows), shape=("batch", "length", HEADS * SIZE))


def _with_sink(scores: Any, seen: Any = None) -> Any:
    """As gpt-oss has them, less the greatest. The score is that of a head, or of the first key that is `seen`."""
    sink = np.array([1.0, -2.0], "f").reshape(1, HEADS, 1, 1) if seen is None else op.take(seen, [0], axis=3)
    column = op.broadcast_to(sink, shape=("batch", HEADS, "length", 1))
    joined = op.concat(scores, column, axis=3)
    weights = op.softmax(joined - op.max(joined, axes=(3,), keepdims=True))
    return op.slice(weights, starts=(0,), ends=("past + length",), axes=(3,))


def _by_expert(x: Any, change: Any = lambda x, axis: x) -> Any:
    """Rows that begin with a positive number are multiplied by weights, the others stay."""
    rows = op.reshape(x, shape=("batch * length", HEADS * SIZE))
    places = treadle.match_shape(op.nonzero(op.take(rows, 0, axis=1) > 0), (1, "chosen"))
    places = op.reshape(places, shape=("chosen",))
    weight = np.random.default_rng(1).standard_normal((HEADS * SIZE, HEADS * SIZE)).astype("f")
    made = op.matmul(change(op.take(rows, places, axis=0), axis=0), weight)
    whole = op.scatter_nd(rows, op.expand_dims(places, axes=(1,)), made, reduction="add")
    return op.reshape(whole, shape=("batch", "length", HEADS * SIZE))


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_decoder_that_computes_each_token_by_itself_has_it(name: str):
    options, expected = UNDERSTOOD[name]
    found = attributes_of(program(**options))
    assert found is not None
    assert {name: found[name] for name in ("window", "softcap") if found.get(name)} == expected


@pytest.mark.parametrize("name", REFUSED)
def test_a_decoder_has_none(name: str):
    assert attributes_of(program(**REFUSED[name])) is None
