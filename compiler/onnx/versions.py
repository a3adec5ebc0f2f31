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
from ..passes.rewriting import Rewriter
from .values import GraphBuilder

ORIGIN = "sizes of inputs"


def dispatching(equal: ir.Function, other: ir.Function, met: Iterable[tuple[Dim, Dim]]) -> ir.Function:
    """The function that does what one of its two versions does; `met` are the sizes that the first takes for equal."""
    g = GraphBuilder()
    g.origin, g.hint = ORIGIN, "are_equal"
    pairs = [[g.from_dims(np.array(dim, object)) for dim in pair] for pair in dict.fromkeys(map(_ordered, met))]
    are_equal = functools.reduce(functools.partial(g.op, "logical_and"), (g.op("equal", *pair) for pair in pairs))
    renamed = Rewriter(ir.Module({}))
    renamed.atoms.update(zip(other.params, equal.params, strict=True))
    outputs = ir.Var("outputs")
    choice = ir.If(g.atom(are_equal), equal.body, renamed.block(other.body))
    body = ir.Block((*g.bindings, ir.Binding(outputs, choice, ORIGIN)), outputs)
    return dataclasses.replace(equal, body=body)


def _ordered(pair: tuple[Dim, Dim]) -> tuple[Dim, Dim]:
    first, second = sorted(pair, key=str)
    return first, second
