"""Steps of random graphs: If, Loop and Scan. Their graphs are walks that see the values around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .judges import as_array
from .sequences import is_sequence, kind_of, sequence, sequence_type
from .walk import FLOATS, Dead, Value, Walk, Ways, attempt, step

_DEEPEST = 2
_INNER_STEPS = 4
_KINDS = (*FLOATS, "int64", "int32", "bool", "string")


def _inner(w: Walk, params: Sequence[Value] = ()) -> Walk:
    if w.depth >= _DEEPEST:
        raise Dead("nested deeply")
    inner = Walk(w.random, w.opset, outer=w, fresh=0.15)
    inner.values += params
    for _ in range(w.random.randrange(1, _INNER_STEPS + 1)):
        attempt(inner, *inner.drawn(w.random))
    w.hidden += inner.values
    return inner


def _result(inner: Walk, dtype: str, shape: tuple[int, ...], kept: Value | None = None) -> Value:
    """A value of the subgraph's own, of that type: the last that it made, else what it is given."""
    for value in reversed(inner.values):
        if value.expected and value.usable and value.dtype == dtype and value.shape == shape:
            return value
    given = kept or inner.tensor(dtype, shape)
    operator = (
        "Identity" if dtype in ("bool", "string") else inner.random.choice(("Identity", "Abs", "Neg", "Identity"))
    )
    if dtype.startswith("u"):
        operator = "Identity"
    return inner.add(operator, [given], exact=True)[0]


def _grown(inner: Walk, kept: Value) -> Value:
    """A state that is longer, or has another rank, behind each round."""
    if inner.chance(0.25):
        return inner.add("Unsqueeze", [kept, inner.setting([0])], exact=True)[0]
    axis = inner.axis(kept.rank)
    place = axis % kept.rank
    more = inner.tensor(kept.dtype, tuple(1 if i == place else size for i, size in enumerate(kept.shape)))
    return inner.add("Concat", [kept, more], exact=True, axis=axis)[0]


def _sequence_result(inner: Walk, kind: str, kept: Value | None = None) -> Value:
    """A sequence of the subgraph's own, of that kind: the last that it made, or one more, of what it is given."""
    for value in reversed(inner.values):
        if value.expected and is_sequence(value) and kind_of(value.type) == kind:
            return value
    given = kept or sequence(inner, kind)
    ways = ["Identity", "SequenceInsert", "SequenceInsert", *(["SequenceErase"] if given.array else [])]
    operator = inner.random.choice(ways)
    like = given.array[0].shape if given.array else None
    new = [inner.tensor(kind, like)] if operator == "SequenceInsert" else []
    return inner.add(operator, [given, *new], exact=True, held=[given.type])[0]


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
    if w.chance(0.25):
        kept = sequence(w) if w.chance(0.5) else None
        kind = kind_of(kept.type) if kept else w.one("float32", "float64", "int64", "int32", "bool", "string")
        _add_if(w, condition, branches, [_sequence_result(branch, kind, kept) for branch in branches])
        return
    kind, shape = w.random.choice(_KINDS), w.shape((0, 1, 2))
    usable = [v for v in branches[0].values if v.expected and v.usable]
    if usable:
        chosen = w.random.choice(usable)
        kind, shape = chosen.dtype, chosen.shape
    shapes = [shape, shape]
    if w.chance(0.25):  # then sizes, or even the rank, are known only at run time
        shapes[w.random.randrange(2)] = w.shape((len(shape), len(shape), 0, 1, 2, 3))
    results = [_result(branch, kind, each) for branch, each in zip(branches, shapes, strict=True)]
    _add_if(w, condition, branches, results)


def _add_if(w: Walk, condition: Value, branches: Sequence[Walk], results: Sequence[Value]) -> None:
    graphs = [
        branch.graph([result], name) for branch, result, name in zip(branches, results, ("then", "else"), strict=True)
    ]
    held = [results[0].held]
    w.add("If", [condition], captured=_captured(*branches), held=held, then_branch=graphs[0], else_branch=graphs[1])


def _states(w: Walk) -> list[Value]:
    return [w.tensor(_KINDS, rank=(0, 1, 2)) for _ in range(w.one(1, 1, 2))]


def _param(w: Walk, array: np.ndarray) -> Value:
    value = Value(w.new_name(), as_array(array))
    value.exact = value.array.dtype.kind != "f"
    return value


def _sequence_param(w: Walk, state: Value) -> Value:
    return Value(w.new_name(), state.array, exact=False, usable=False, held=sequence_type(kind_of(state.type)))


@step("Loop")
def _loop(w: Walk, op: str) -> None:
    count = w.one(0, 1, 2, 3, 3)
    trips = w.setting(count) if w.chance(0.8) else w.put(np.asarray(count, np.int64), constant=False)
    states = _states(w)
    grown = [sequence(w)] if w.chance(0.3) else []
    params = [_param(w, np.asarray(0, np.int64)), _param(w, np.asarray(True)), *(_param(w, s.array) for s in states)]
    held_params = [_sequence_param(w, s) for s in grown]
    params += held_params
    inner = _inner(w, params)
    more = inner.add("Identity", [params[1]])[0]
    results = [
        _grown(inner, kept) if kept.rank and inner.chance(0.15) else _result(inner, s.dtype, s.shape, kept)
        for s, kept in zip(states, params[2:], strict=False)
    ]
    results += [_sequence_result(inner, kind_of(kept.type), kept) for kept in held_params]
    scanned = []
    keeps_shapes = all(result.shape == state.shape for result, state in zip(results, states, strict=False))
    if keeps_shapes and w.chance(0.5):  # what is scanned has one shape in all rounds
        usable = [v for v in inner.values if v.expected and v.usable]
        scanned = [w.random.choice(usable)]
    results = [*results, *scanned]
    seen: set[str] = {more.name}
    for place, value in enumerate(results):  # one name may be one output only
        if value.name in seen:
            results[place] = inner.add("Identity", [value], exact=True, held=[value.held])[0]
        seen.add(results[place].name)
    body = inner.graph([more, *results], "body", inputs=params)
    condition = w.setting(True, "bool") if w.chance(0.5) else None
    types = [None] * len(states) + [param.held for param in held_params]
    carried = [*states, *grown]
    w.add(op, [trips, condition, *carried], len(results), captured=_captured(inner), held=types, body=body)


@step("Scan")
def _scan(w: Walk, op: str) -> None:
    states = _states(w)[: w.one(0, 1, 1)]
    sources = [w.tensor(_KINDS, rank=(1, 2, 3), fits=lambda s: len(s) > 0 and s[0] > 0)]
    length = sources[0].shape[0]
    if w.chance(0.3):
        sources.append(w.tensor(_KINDS, (length, *w.shape((0, 1)))))
    params = [*(_param(w, s.array) for s in states), *(_param(w, s.array[0]) for s in sources)]
    inner = _inner(w, params)
    results = [_result(inner, s.dtype, s.shape, kept) for s, kept in zip(states, params, strict=False)]
    source = params[len(states)]
    usable = [v for v in inner.values if v.expected and v.usable]
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
        ways["scan_input_directions"] = [w.one(0, 1) for _ in sources]
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
