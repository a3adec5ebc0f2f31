"""Steps of random graphs: derivatives of nodes by what they are made of. No judge has the operator; differences are the judge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator

from .judges import type_of
from .walk import Dead, Value, Walk, Ways, make_model, step

TRAINING = "ai.onnx.preview.training"
_STEP = 1e-5  # of float64: what is left out of a derivative is some 1e-10 of it
_MOST = 24  # elements that something is derived by
# Not Erf: the reference computes it in float32, too coarsely for differences
_ONE = ("Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Tanh", "Sigmoid", "Relu", "Abs", "Sin", "Cos", "Softmax")
_POSITIVE = ("Log", "Sqrt", "Reciprocal")
_TWO = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min")


def _fresh(w: Walk, kind: str, shape: Sequence[int]) -> Value:
    """Numbers none of which is another one, so that there are no corners."""
    value = w.put(w.rng.uniform(0.5, 2, shape).astype(kind))
    value.exact = False
    return value


def _follower(w: Walk, x: Value, leaves: Sequence[Value]) -> Value:
    """What one more operator makes of a value, and maybe of a leaf."""
    ways = w.random.random() if x.rank else 0.5  # of a scalar, arithmetic alone
    operator = w.random.choice(_ONE)
    if ways < 0.4:
        if operator in _POSITIVE and not (x.array > 0.125).all():
            operator = "Tanh"
        return w.add(operator, [x])[0]
    if ways < 0.75:
        operator, other = w.random.choice(_TWO), w.random.choice(leaves)
        if operator == "Pow" and not (x.array > 0.125).all():
            operator = "Mul"
        if other is x and operator in ("Max", "Min"):
            operator = "Add"
        fits = np.broadcast_shapes(x.shape, other.shape)  # raises ValueError
        if int(np.prod(fits)) > 200:
            raise Dead("large")
        return w.add(operator, [x, other])[0]
    operator = w.one("Transpose", "ReduceSum", "ReduceMean", "MatMul", "Concat", "Reshape", "Unsqueeze")
    if operator == "MatMul":
        if x.rank < 2:
            raise Dead("a vector")
        return w.add(operator, [x, _fresh(w, x.dtype, (x.shape[-1], 2))])[0]
    if operator == "Transpose":
        return w.add(operator, [x], perm=w.random.sample(range(x.rank), x.rank))[0]
    if operator == "Concat":
        return w.add(operator, [x, x], axis=w.axis(x.rank))[0]
    if operator in ("Reshape", "Unsqueeze"):
        return w.add(operator, [x, w.put(np.asarray([-1] if operator == "Reshape" else [0]), constant=True)])[0]
    if operator == "ReduceMean" and w.opset < 18:
        return w.add(operator, [x], axes=[w.axis(x.rank)], keepdims=w.one(0, 1))[0]
    return w.add(operator, [x, w.put(np.asarray([w.axis(x.rank)]), constant=True)], keepdims=w.one(0, 1))[0]


def derivatives(w: Walk, first: int, y: Value, at: dict[str, np.ndarray], by: Sequence[str]) -> list[np.ndarray]:
    """Of the sum of y, which the nodes from the first on make of the tensors `at`, by central differences."""
    nodes = w.nodes[first:]
    made = {name for node in nodes for name in node.output}
    given = {name for node in nodes for name in node.input if name} - made
    arrays = {value.name: value.array for value in w.visible() if value.name in given} | at
    feeds = {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in arrays.items()}
    inputs = [helper.make_value_info(name, type_of(array)) for name, array in feeds.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_value_info(y.name, type_of(y.array.astype(np.float64)))])
    evaluator = ReferenceEvaluator(make_model(graph, w.opset))

    def total(name: str, place: tuple[int, ...], step_: float) -> float:
        moved = feeds[name].copy()
        moved[place] += step_
        results: list[np.ndarray] = evaluator.run(None, feeds | {name: moved})  # type: ignore[assignment]
        return float(np.sum(results[0]))

    found = []
    for name in by:
        slopes = np.zeros_like(feeds[name])
        for place in np.ndindex(slopes.shape):
            slopes[place] = (total(name, place, _STEP) - total(name, place, -_STEP)) / (2 * _STEP)
        found.append(slopes.astype(at[name].dtype))
    return found


@step("Gradient", domain=TRAINING)
def _gradient(w: Walk, op: str) -> None:
    if w.outer:
        raise Dead("a gradient is of nodes of its own graph")
    kind = w.one("float32", "float64")
    shape = w.shape((1, 1, 2, 2, 3))
    if not 0 < np.prod(shape) <= _MOST:
        shape = (2, 3)
    leaves = [_fresh(w, kind, shape)]
    if w.chance(0.5):
        leaves.append(_fresh(w, kind, tuple(size if w.chance(0.7) else 1 for size in shape)))
    first, y = len(w.nodes), leaves[0]
    for _ in range(w.random.randrange(1, 6)):
        try:
            following = _follower(w, y, leaves)
        except (Dead, ValueError):
            continue
        if not following.usable or np.abs(following.array).max(initial=0) > 50:
            break
        y = following
    if y is leaves[0]:
        raise Dead("nothing was made")
    by = leaves[: w.one(1, 2)]
    others = [leaf for leaf in leaves if leaf not in by and w.chance(0.5)]
    named = [*by, *others]
    at = [_fresh(w, kind, leaf.shape) if w.chance(0.25) else leaf for leaf in named]
    told = derivatives(
        w, first, y, {leaf.name: value.array for leaf, value in zip(named, at, strict=True)}, [leaf.name for leaf in by]
    )
    if not all(np.isfinite(each).all() for each in told):
        raise Dead("no numbers")
    names: Ways = {"xs": [leaf.name for leaf in by], "zs": [leaf.name for leaf in others] or None, "y": y.name}
    w.add(op, at, len(by), domain=TRAINING, told=told, **names)
