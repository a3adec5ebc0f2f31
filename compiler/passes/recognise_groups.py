"""Group normalisation among reshapes: the part of `recognise.py` for the forms of exporters.

They normalise the instances of x seen as [N, groups, …]. A constant scale and bias of each channel that follow join the
normalisation's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...formats.types import TensorType
from .. import ir
from ..named_weights import computed
from ..operators.table import lookup
from .rewriting import operator_call

_NORMALIZATIONS = frozenset({"group_normalization", "instance_normalization"})


def candidates(
    call: ir.OperatorCall, definitions: Mapping[ir.Var, ir.OperatorCall], uses: Mapping[Any, int]
) -> Iterator[ir.OperatorCall]:
    """Replacements of a call that ends a normalisation without other users. `uses`: use counts of variables."""
    if call.operator not in ("reshape", "multiply", "add"):
        return
    for place, atom in enumerate(call.args):
        normal = definitions.get(atom)  # type: ignore[arg-type]
        if normal is None or normal.operator not in _NORMALIZATIONS or uses[atom] != 1 or _affine(normal) is None:
            continue
        if call.operator == "reshape":
            made = _of_groups(normal, definitions)
        else:
            made = _joined(call.operator, normal, call.args[1 - place])
        if made is not None:
            yield made


def _affine(normal: ir.OperatorCall) -> tuple[ir.Constant, ir.Constant] | None:
    """A normalisation's scale and bias, if they are known."""
    _, scale, bias = normal.args
    if isinstance(scale, ir.Constant) and isinstance(bias, ir.Constant):
        return scale, bias
    return None


def _of_groups(normal: ir.OperatorCall, definitions: Mapping[ir.Var, ir.OperatorCall]) -> ir.OperatorCall | None:
    """The normalisation of the image whose view the instances are."""
    view, affine = definitions.get(normal.args[0]), _affine(normal)  # type: ignore[arg-type]
    if view is None or view.operator != "reshape" or normal.operator != "instance_normalization" or affine is None:
        return None
    seen, whole = normal.args[0].type, view.args[0].type  # type: ignore[union-attr]
    assert isinstance(seen, TensorType)
    assert isinstance(whole, TensorType)
    groups, channels = seen.shape[1], whole.shape[1] if whole.rank > 2 else None
    if not isinstance(groups, int) or not isinstance(channels, int) or groups < 1 or channels % groups:
        return None
    if seen.shape[0] != whole.shape[0]:
        return None
    scale, bias = (_repeated(vector, channels // groups) for vector in affine)
    epsilon = lookup(normal.operator).bind(normal.attributes)["epsilon"]
    return operator_call("group_normalization", view.args[0], scale, bias, groups=groups, epsilon=epsilon)


def _repeated(vector: ir.Constant, times: int) -> ir.Constant:
    """Each element repeated `times` times."""
    column = computed("reshape", vector, shape=(-1, 1))
    wide = computed("broadcast_to", column, shape=(column.array.shape[0], times))
    return computed("reshape", wide, shape=(-1,))


def _joined(operator: str, normal: ir.OperatorCall, operand: ir.Atom) -> ir.OperatorCall | None:
    """The normalisation with one more constant for each channel."""
    x, affine = normal.args[0].type, _affine(normal)  # type: ignore[union-attr]
    if not isinstance(operand, ir.Constant) or not isinstance(x, TensorType) or affine is None:
        return None
    channels, inner = x.shape[1], (1,) * (x.rank - 2)
    shape = operand.array.shape
    if shape not in (inner, (1, *inner), (1, 1, *inner), (channels, *inner), (1, channels, *inner)):
        return None
    scale, bias = affine
    vector = computed("broadcast_to", computed("reshape", operand, shape=(-1,)), shape=scale.array.shape)
    if operator == "add":
        bias = computed("add", bias, vector)
    else:
        scale, bias = computed("multiply", scale, vector), computed("multiply", bias, vector)
    return ir.OperatorCall(normal.operator, (normal.args[0], scale, bias), normal.attributes)
