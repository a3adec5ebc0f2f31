"""Small models to serve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import treadle
from treadle import Module, function, if_, op, var

WEIGHTS = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


def rows() -> treadle.Executable:
    """relu(x @ w) of any number of rows; `double` is another function."""
    x, y = var("x", ("n", 8)), var("y", ("n", 2))
    module = Module(main=function([x], op.relu(op.matmul(x, WEIGHTS))), double=function([y], y + y))
    return treadle.compile(module, entry=("main", "double"))


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHTS, 0)


def mixed() -> treadle.Executable:
    """Rows that depend on each other."""
    x = var("x", ("n", 4))
    return treadle.compile(Module(main=function([x], op.softmax(x, axis=0))))


def branching() -> treadle.Executable:
    """Rows that depend on each other in one branch alone, which random rows do not take."""
    x = var("x", ("n", 4))
    return treadle.compile(
        Module(main=function([x], if_(op.max(x) > 1e6, x - op.max(x, axes=(0,), keepdims=True), x + x)))
    )


def slow(rounds: int = 1 << 40) -> treadle.Executable:
    """A loop that ends after a number of rounds, or practically never."""
    x = var("x", (1,))
    loop = treadle.for_loop(rounds, lambda i, value: op.sin(value), [x])
    return treadle.compile(Module(main=function([x], loop[0])))


def counter() -> treadle.Executable:
    """A state that grows by what comes: total + x."""
    x, total = var("x", (2,)), var("total", (2,))
    return treadle.compile(Module(main=function([x, total], treadle.tuple_(x + total, x))))


def growing() -> treadle.Executable:
    """A state that is twice as long after each call."""
    x = var("x", ("n",))
    return treadle.compile(Module(main=function([x], op.concat(x, x))))


def texts() -> treadle.Executable:
    """Each text twice."""
    x = var("x", ("n", 2), "string")
    return treadle.compile(Module(main=function([x], op.concat_texts(x, x))))


def folder(path: Path, **executables: treadle.Executable) -> Path:
    for name, executable in executables.items():
        executable.export_library(path / f"{name}.trdl")
    return path


ENCODER = """<ir_version: 8, opset_import: ["" : 17]>
encoder (int64[b, s] ids, int64[b, s] mask) => (float[b, s, 8] y) {
    one = Constant <value = int64 {1}> ()
    axis = Constant <value_ints = [1]> ()
    words = Gather (table, ids)
    turned = Transpose <perm = [0, 2, 1]> (words)
    scores = MatMul (words, turned)
    least = ReduceMin <keepdims = 0> (mask)
    whole = Equal (least, one)
    bias = If (whole) <
        then_branch = nothing () => (zero) { zero = Constant <value = float[1, 1, 1] {0}> () },
        else_branch = hidden () => (far) {
            out = Sub (one, mask)
            numbers = Cast <to = 1> (out)
            low = Constant <value = float {-10000}> ()
            each = Mul (numbers, low)
            far = Unsqueeze (each, axis)
        }
    >
    seen = Add (scores, bias)
    shares = Softmax <axis = 2> (seen)
    y = MatMul (shares, words)
}"""


def encoder() -> treadle.Executable:
    """Attention over words, whose exporter has left an `if` in the mask: nothing is added where all words are there."""
    from onnx import numpy_helper, parser

    model = parser.parse_model(ENCODER)
    table = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    return treadle.compile(model, progress=False)
