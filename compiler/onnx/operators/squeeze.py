"""Importers of Squeeze. Without axes it takes away those of size 1: where a run finds sizes, it finds the rank."""

from __future__ import annotations

from ....formats.dtypes import DType
from ...operators.shapes import axis_of
from .. import sizes_of_run as run_time
from ..held import by_length
from ..sizes_of_run import is_found, is_known, shape_of
from ..table import importer
from ..values import GraphBuilder, Imported, Value, present
from .shapes import integers_of


@importer("Squeeze", since=13)
def _squeeze(g: GraphBuilder, x: Value, axes: Value | None = None) -> Imported:
    if axes is not None and not is_known(axes):
        return g.op("reshape", x, shape=run_time.without(g, shape_of(g, x), axes, x.rank))
    return _squeezed(g, x, integers_of(axes, "axes"))


@importer("Squeeze")
def _squeeze_before_13(g: GraphBuilder, x: Value, *, axes: tuple[int, ...] | None = None) -> Imported:
    return _squeezed(g, x, axes)


def _squeezed(g: GraphBuilder, x: Value, axes: tuple[int, ...] | None) -> Imported:
    if axes is None:
        if any(is_found(g, dim) for dim in x.shape):
            return _without_ones(g, x)
        axes = tuple(axis for axis, dim in enumerate(x.shape) if dim == 1)
    ones = {axis_of(axis, x.rank) for axis in axes}
    x = g.checked(x, tuple(1 if axis in ones else dim for axis, dim in enumerate(x.shape)))
    return g.op("squeeze", x, axes=axes)


def _without_ones(g: GraphBuilder, x: Value) -> Imported:
    """x without the axes that are known to be 1, and those that a run finds to be 1."""
    axes = [axis for axis, dim in enumerate(x.shape) if dim != 1]
    sizes = g.from_dims([x.shape[axis] for axis in axes])
    is_fixed = g.constant([not is_found(g, x.shape[axis]) for axis in axes], DType.bool)
    kept = g.op("logical_or", is_fixed, g.op("not_equal", sizes, g.constant(1, DType.int64)))
    (places,) = present([g.op("nonzero", kept)])
    count = g.new_dimension()
    places = g.checked(g.op("reshape", places, shape=(places.shape[1],)), (count,))
    shape = g.op("take", sizes, places, axis=0)
    fixed = sum(not is_found(g, x.shape[axis]) for axis in axes)
    g.is_one_of(count, range(fixed, len(axes) + 1))
    (made,) = by_length(g, [x, shape], lambda known: [_reshaped(g, *present(known))])
    assert made is not None
    return made


def _reshaped(g: GraphBuilder, x: Value, shape: Value) -> Value:
    return g.op("reshape", x, shape=g.sizes(shape, "sizes"))
