"""Steps of random graphs: If, Loop and Scan. Their graphs are walks that see the values around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .walk import FLOATS, Dead, Value, Walk, Ways, step

_DEEPEST = 2
_INNER_STEPS = 4
_KINDS = (*FLOATS, "int64", "int32", "bool")


def _inner(w: Walk, params: Sequence[Value] = ()) -> Walk:
    if w.depth >= _DEEPEST:
        raise Dead("nested deeply")
    inner = Walk(w.random, w.opset, outer=w, fresh=0.15)
    inner.values += params
    from .graphs import OWN, attempt

    for _ in range(w.random.randrange(1, _INNER_STEPS + 1)):
        attempt(inner, "", w.random.choice(OWN))
    w.hidden += inner.values
    return inner


def _result(inner: Walk, dtype: str, shape: tuple[int, ...], kept: Value | None = None) -> Value:
    """A value of the subgraph's own, of that type: the last that it made, else what it is given."""
    for value in reversed(inner.values):
        made = value.expected and value.usable and not isinstance(value.array, list)
        if made and value.dtype == dtype and value.shape == shape:
            return value
    given = kept or inner.tensor(dtype, shape)
    operator = "Identity" if dtype == "bool" else inner.random.choice(("Identity", "Abs", "Neg", "Identity"))
    if dtype.startswith("u"):
        operator = "Identity"
    return inner.add(operator, [given], exact=True)[0]


def _captured(*walks: Walk) -> list[Value]:
    """What subgraphs use of the values around them."""
    found: dict[str, Value] = {}
    for walk in walks:
        found |= walk.used
    return list(found.values())


@step("If")
def _if(w: Walk, op: str) -> None:
    condition = w.tensor("bool", ())
    branches = _inner(w), _inner(w)
    kind, shape = w.random.choice(_KINDS), w.shape((0, 1, 2))
    usable = [v for v in branches[0].values if v.expected and v.usable and not isinstance(v.array, list)]
    if usable:
        chosen = w.random.choice(usable)
        kind, shape = chosen.dtype, chosen.shape
    results = [_result(branch, kind, shape) for branch in branches]
    graphs = [
        branch.graph([result], name) for branch, result, name in zip(branches, results, ("then", "else"), strict=True)
    ]
    w.add(op, [condition], captured=_captured(*branches), then_branch=graphs[0], else_branch=graphs[1])


def _states(w: Walk) -> list[Value]:
    return [w.tensor(_KINDS, rank=(0, 1, 2)) for _ in range(w.random.choice((1, 1, 2)))]


def _param(w: Walk, array: np.ndarray) -> Value:
    return Value(w.new_name(), array, exact=array.dtype.kind != "f")


@step("Loop")
def _loop(w: Walk, op: str) -> None:
    count = w.random.choice((0, 1, 2, 3, 3))
    trips = w.setting(count) if w.chance(0.8) else w.put(np.asarray(count, np.int64), constant=False)
    states = _states(w)
    params = [_param(w, np.asarray(0, np.int64)), _param(w, np.asarray(True)), *(_param(w, s.array) for s in states)]
    inner = _inner(w, params)
    more = inner.add("Identity", [params[1]])[0]
    results = [_result(inner, s.dtype, s.shape, kept) for s, kept in zip(states, params[2:], strict=True)]
    scanned = []
    if w.chance(0.5):
        usable = [v for v in inner.values if v.expected and v.usable and not isinstance(v.array, list)]
        scanned = [w.random.choice(usable)]
    results = [*results, *scanned]
    seen: set[str] = {more.name}
    for place, value in enumerate(results):  # one name may be one output only
        if value.name in seen:
            results[place] = inner.add("Identity", [value], exact=True)[0]
        seen.add(results[place].name)
    body = inner.graph([more, *results], "body", inputs=params)
    condition = w.setting(True, "bool") if w.chance(0.5) else None
    w.add(op, [trips, condition, *states], len(results), captured=_captured(inner), body=body)


@step("Scan")
def _scan(w: Walk, op: str) -> None:
    states = _states(w)[: w.random.choice((0, 1, 1))]
    sources = [w.tensor(_KINDS, rank=(1, 2, 3), fits=lambda s: len(s) > 0 and s[0] > 0)]
    length = sources[0].shape[0]
    if w.chance(0.3):
        sources.append(w.tensor(_KINDS, (length, *w.shape((0, 1)))))
    params = [*(_param(w, s.array) for s in states), *(_param(w, s.array[0]) for s in sources)]
    inner = _inner(w, params)
    results = [_result(inner, s.dtype, s.shape, kept) for s, kept in zip(states, params, strict=False)]
    source = params[len(states)]
    usable = [v for v in inner.values if v.expected and v.usable and not isinstance(v.array, list)]
    scanned = w.random.choice(usable) if usable else inner.add("Identity", [source], exact=True)[0]
    results.append(inner.add("Identity", [scanned], exact=True)[0])
    seen: set[str] = set()
    for place, value in enumerate(results):
        if value.name in seen:
            results[place] = inner.add("Identity", [value], exact=True)[0]
        seen.add(results[place].name)
    body = inner.graph(results, "body", inputs=params)
    ways: Ways = {}
    if w.chance(0.3):
        ways["scan_input_directions"] = [w.random.choice((0, 1)) for _ in sources]
    if w.chance(0.3):
        ways["scan_output_directions"] = [1]
    w.add(
        op,
        [*states, *sources],
        len(results),
        captured=_captured(inner),
        body=body,
        num_scan_inputs=len(sources),
        **ways,
    )
