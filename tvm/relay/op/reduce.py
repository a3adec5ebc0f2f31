"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats.dims import product
from .table import Tensor, axis_of, like, operator, rank_of, shape_of, type_of


def axes_of(data: Expression, axis: Any, exclude: bool = False) -> tuple[int, ...]:
    """The axes that are reduced: all for None; with `exclude` the others."""
    if axis is None or (isinstance(axis, (tuple, list)) and not axis):
        return () if exclude and axis is None else tuple(range(rank_of(data)))
    several = axis if isinstance(axis, (tuple, list)) else [axis]
    given = {axis_of(data, int(each)) for each in several}
    return tuple(each for each in range(rank_of(data)) if (each in given) != exclude)


def _said(axis: Any, axes: tuple[int, ...], exclude: bool = False) -> tuple[int, ...] | None:
    """The axes as they are said: all where none are, negative ones from the end."""
    several = axis if isinstance(axis, (tuple, list)) else [axis]
    return axes if exclude else None if axis is None else tuple(map(int, several)) or axes


def _reduction(name: str) -> Callable[..., Any]:
    summary = f"`{name}` over axes: all where none are given, the others with `exclude`; of truth values a truth value."

    @operator(name, summary=summary)
    def reduce(data: Tensor, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> Expression:
        axes = axes_of(data, axis, exclude)
        own = _OF_TRUTH.get(name, name) if type_of(data).dtype.name == "bool" else name
        return getattr(op, own)(data, axes=_said(axis, axes, exclude), keepdims=bool(keepdims)) if axes else data

    return reduce


_OF_TRUTH = {"sum": "any", "prod": "all", "max": "any", "min": "all"}  # TVM's results have the operand's type
sum, mean, prod, max, min = map(_reduction, ("sum", "mean", "prod", "max", "min"))
all, any = _reduction("all"), _reduction("any")


def _place(name: str) -> Callable[..., Any]:
    @operator(name, summary=f"`{name}`: the place of an element, int32, over an axis or in all axes together.")
    def reduce(
        data: Tensor, axis: Any = None, keepdims: bool = False, exclude: bool = False, select_last_index: bool = False
    ) -> Expression:
        axes = axes_of(data, axis, exclude)
        flags = {"select_last_index": bool(select_last_index)}
        if len(axes) == 1:
            found = getattr(op, name)(data, axis=axes[0], keepdims=bool(keepdims), **flags)
            return op.cast(found, dtype="int32")
        data, shape = shape_of(data)
        kept = [each for each in range(len(shape)) if each not in axes]
        flat = op.permute_dims(data, axes=[*kept, *axes])
        flat = op.reshape(flat, shape=[*(shape[each] for each in kept), product(shape[each] for each in axes)])
        found = op.cast(getattr(op, name)(flat, axis=-1, **flags), dtype="int32")
        return op.expand_dims(found, axes=axes) if keepdims else found

    return reduce


argmax, argmin = _place("argmax"), _place("argmin")


@operator("logsumexp")
def logsumexp(data: Tensor, axis: Any = None, keepdims: bool = False) -> Expression:
    """log of the sum of exp."""
    return op.log_sum_exp(data, axes=_said(axis, axes_of(data, axis)), keepdims=bool(keepdims))


def _moments(
    data: Expression, axes: tuple[int, ...], unbiased: bool, mean: Expression | None
) -> tuple[Expression, Expression]:
    """Mean and variance, axes kept."""
    middle = op.mean(data, axes=axes, keepdims=True) if mean is None else mean
    spread = op.mean(op.square(op.subtract(data, middle)), axes=axes, keepdims=True)
    if unbiased:
        data, shape = shape_of(data)
        number = product(shape[axis] for axis in axes)
        if isinstance(number, int):
            count = like(data, number)
        else:
            sizes = [op.take(op.shape(data), programs.constant(axis), axis=0) for axis in axes]
            count = op.cast(op.prod(op.stack(*sizes, axis=0)), dtype=type_of(data).dtype)
        spread = op.multiply(spread, op.divide(count, op.subtract(count, like(data, 1))))
    return middle, spread


def _squeezed(x: Expression, axes: tuple[int, ...], keepdims: bool) -> Expression:
    return x if keepdims else op.squeeze(x, axes=axes)


@operator("variance")
def variance(
    data: Tensor,
    axis: Any = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: Tensor | None = None,
) -> Expression:
    """The variance over axes; `with_mean` is the mean, where it is known."""
    axes = axes_of(data, axis, exclude)
    return _squeezed(_moments(data, axes, unbiased, with_mean)[1], axes, keepdims)


@operator("std")
def std(
    data: Tensor, axis: Any = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False
) -> Expression:
    """The standard deviation over axes."""
    axes = axes_of(data, axis, exclude)
    return op.sqrt(_squeezed(_moments(data, axes, unbiased, None)[1], axes, keepdims))


@operator("mean_variance", results=2)
def mean_variance(
    data: Tensor, axis: Any = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False
) -> Expression:
    """Mean and variance over axes."""
    axes = axes_of(data, axis, exclude)
    return programs.tuple_(*(_squeezed(each, axes, keepdims) for each in _moments(data, axes, unbiased, None)))


@operator("mean_std", results=2)
def mean_std(data: Tensor, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> Expression:
    """Mean and standard deviation over axes."""
    axes = axes_of(data, axis, exclude)
    middle, spread = _moments(data, axes, False, None)
    return programs.tuple_(_squeezed(middle, axes, keepdims), op.sqrt(_squeezed(spread, axes, keepdims)))
