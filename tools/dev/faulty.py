"""Programs with a fault each, for docs/debugging.md: `planted.py` runs this file in a folder, where they are written."""

from typing import Any

import numpy as np
import treadle
from treadle import (
    DType,
    Module,
    TensorType,
    constant,
    for_loop,
    function,
    global_function,
    if_,
    import_,
    op,
    var,
    while_loop,
)

rng = np.random.default_rng(0)
weights = rng.standard_normal((4, 8, 8)).astype(np.float32)
weights[2] *= 100  # one head has other weights than the rest


def body(i: Any, s: Any) -> Any:
    doubled = s * 2.0
    lower = doubled - 1.0
    return op.sqrt(lower)  # of what has become negative


def attention(x: Any) -> Any:
    scores = op.matmul(x @ constant(weights), op.permute_dims(x, axes=(1, 0)))
    scale = op.exp(scores)
    return scale / op.sum(scale, axes=(-1,), keepdims=True)  # overflows: nothing is subtracted before exp


def masked(x: Any) -> Any:
    mask = np.triu(np.full((6, 6), -1e9, np.float32), 2)  # should begin at the first diagonal
    return op.softmax(x + mask, axis=-1)


def cached(x: Any) -> Any:
    """The last four rows that a loop has seen: it keeps the first one, which should go, and drops the second."""

    def step(i: Any, cache: Any, row: Any) -> Any:
        return op.concat(cache[:1], cache[2:], row, axis=0), row * 2.0

    return for_loop(3, step, [np.zeros((4, 2), np.float32), x])[0]


def branches(x: Any) -> Any:
    return if_(op.less(op.sum(x), 0.0), x * 10.0, x / 10.0)


def growing(x: Any) -> Any:
    """Each round keeps all that were before."""
    (kept,) = while_loop(lambda kept: op.less(op.max(kept), 1e6), lambda kept: op.concat(kept, kept * 1.1, axis=0), [x])
    return kept


def root(x: Any) -> Any:
    """Newton's method, which goes on until the square is exact: that of few numbers is."""
    (found,) = while_loop(lambda a: op.not_equal(a * a, x), lambda a: ((a + x / a) / 2.0,), [x])
    return found


def scaled(x: Any) -> Any:
    """A closure that knows another scale than was meant."""
    first, second, y = x[0], x[1], var("y", (2,))
    scale = function([y], y * second)
    return scale(scale(x)) + first


def picked(x: Any) -> Any:
    table = constant(np.arange(4, dtype=np.float32))
    return op.take(table, op.cast(x, dtype="int64"), axis=0)


def counted(x: Any) -> Any:
    count = import_("count", "fn(float32[2]) -> float32[2]")
    return count(x) + count(x)


def along(x: Any) -> Any:
    return op.softmax(x, axis=0)  # of columns, where those of rows were meant


def deep() -> Any:
    """Counts down by two, and ends at zero: of an odd number never."""
    n, again = var("n", (), "int64"), global_function("down")
    down = function([n], if_(op.equal(n, 0), 0.0, again(n - 2) + 1.0), result_type=TensorType(DType.of("float32")))
    return Module(down=down)


def save(name: str, shape: Any, made: Any) -> None:
    x = var("x", shape)
    treadle.compile(Module(main=function([x], made(x))), progress=False).export_library(f"{name}.trdl")


save("loop", (4,), lambda x: for_loop(20, body, [x])[0])
save("heads", (6, 8), attention)
save("mask", (6, 6), masked)
save("cache", (1, 2), cached)
save("branch", (4,), branches)
save("growing", ("n",), growing)
save("root", (), root)
save("closure", (2,), scaled)
save("index", (3,), picked)
save("race", (2,), counted)
save("axis", (2, 3), along)
treadle.compile(deep(), entry="down", progress=False).export_library("deep.trdl")

seen: list[Any] = []


def count(x: Any) -> Any:
    """How often it was called: by whom else, nobody knows."""
    seen.append(x)
    return np.full(2, len(seen), np.float32)


machine = treadle.VirtualMachine(treadle.load("race.trdl"), imports={"count": count})
with machine.record("race.trrec"):
    machine["main"](np.ones(2, np.float32))
    machine["main"](np.ones(2, np.float32))
