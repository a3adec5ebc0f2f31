"""Packs weights of convolutions known only at run time by operators with kernels; those that pack constants have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import ir
from ....operators.shapes import integer
from ....passes.rewriting import Emitter, tensor_type
from ..operators.packing import BLOCK, NarrowGroups


def packed(emitter: Emitter, operator: str, weight: ir.Var, **attributes: Any) -> ir.Var:
    """A packing operator applied to a variable of known sizes."""
    by_kernels = _BY_KERNELS.get(operator)
    result = by_kernels(emitter, weight, **attributes) if by_kernels else None
    return result or emitter.emit(operator, weight, **attributes)


def _weights(emitter: Emitter, weight: ir.Var, groups: int = 1) -> ir.Var | None:
    """[M, C / groups, *window] as [blocks of M, blocks of C, *window, 16, 16]; None for narrow groups, whose layout differs."""
    outputs, channels, *window = map(integer, tensor_type(weight).shape)
    if NarrowGroups.of(groups, channels, outputs // groups):
        return None
    each = outputs // groups
    by_group = emitter.emit("reshape", weight, shape=(groups, each, channels, *window))
    whole = _padded(emitter, _padded(emitter, by_group, 1), 2)
    rows, columns = groups * -(-each // BLOCK), -(-channels // BLOCK)
    apart = emitter.emit("reshape", whole, shape=(rows, BLOCK, columns, BLOCK, *window))
    return emitter.emit("permute_dims", apart, axes=(0, 2, *range(4, 4 + len(window)), 3, 1))


def _planar_weights(emitter: Emitter, weight: ir.Var) -> ir.Var:
    """[M, C, *window] as [blocks of M, C, *window, 16]."""
    outputs, *others = map(integer, tensor_type(weight).shape)
    apart = emitter.emit("reshape", _padded(emitter, weight, 0), shape=(-(-outputs // BLOCK), BLOCK, *others))
    return emitter.emit("permute_dims", apart, axes=(0, *range(2, 2 + len(others)), 1))


def _vector(emitter: Emitter, vector: ir.Var, axes: int) -> ir.Var:
    """[C] as [blocks of C, 1 …, 16]."""
    (channels,) = map(integer, tensor_type(vector).shape)
    return emitter.emit("reshape", _padded(emitter, vector, 0), shape=(-(-channels // BLOCK), *(1,) * axes, BLOCK))


def _padded(emitter: Emitter, x: ir.Var, axis: int) -> ir.Var:
    """x with zeros at the end of an axis, up to a multiple of BLOCK."""
    shape = tensor_type(x).shape
    missing = -integer(shape[axis]) % BLOCK
    ends = tuple(missing if place == axis else 0 for place in range(len(shape)))
    return emitter.emit("pad", x, pads=(*(0,) * len(shape), *ends)) if missing else x


_BY_KERNELS: dict[str, Callable[..., ir.Var | None]] = {
    "pack_weights": _weights,
    "pack_planar_weights": _planar_weights,
    "pack_vector": _vector,
}
