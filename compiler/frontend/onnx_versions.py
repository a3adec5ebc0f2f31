"""Two versions of a model whose inputs' sizes meet under other names: where all are equal, and where some of them are 1.

ONNX broadcasts where sizes are equal or 1, whatever their names are. Programs that ask at each such meeting could not fuse across
it, so the question is asked once, where a call begins: the version for equal sizes has the code of a model of equal names.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

import numpy as np

from ...formats.dims import Dim
from .. import ir
from .onnx_values import GraphBuilder

EQUAL, OTHER = "equal_sizes", "other_sizes"  # behind the name of the model's function


def dispatching(equal: ir.Function, other: ir.Function, met: Iterable[tuple[Dim, Dim]]) -> dict[str, ir.Function]:
    """Functions by name: the model's, which calls one of its two versions; `met` are the sizes that the first takes for equal."""
    g = GraphBuilder()
    pairs = [[g.from_dims(np.array(dim, object)) for dim in pair] for pair in dict.fromkeys(map(_ordered, met))]
    are_equal = functools.reduce(functools.partial(g.op, "logical_and"), (g.op("equal", *pair) for pair in pairs))
    condition = g.atom(are_equal)
    params = tuple(ir.Var(param.name, param.type) for param in equal.params)
    versions = {f"{equal.name}.{suffix}": function for suffix, function in ((EQUAL, equal), (OTHER, other))}
    chosen = ir.Var("outputs")
    choice = ir.If(condition, *(_called(name, params) for name in versions))
    main = dataclasses.replace(equal, params=params, body=ir.Block((*g.bindings, ir.Binding(chosen, choice)), chosen))
    return {
        equal.name: main,
        **{name: dataclasses.replace(function, name=name) for name, function in versions.items()},
    }


def _ordered(pair: tuple[Dim, Dim]) -> tuple[Dim, Dim]:
    first, second = sorted(pair, key=str)
    return first, second


def _called(name: str, params: tuple[ir.Var, ...]) -> ir.Block:
    result = ir.Var("outputs")
    return ir.Block((ir.Binding(result, ir.Call(ir.GlobalRef(name), params)),), result)
