"""Rules of the layout pass for operators that do not move channels: elementwise work, pooling, reductions over an image,
normalisations, resizing."""

from __future__ import annotations

from .....formats.types import TensorType
from .... import ir
from ....named_weights import computed
from ....operators.elementwise import INTEGER_DIVISIONS
from ....operators.shapes import axes_of, axis_of
from ....operators.table import Fusion, lookup
from ....passes.rewriting import tensor_type
from ..operators.packing import BLOCK
from .layout_blocker import Blocker, is_image
from .layout_channels import activate_apart


def elementwise(blocker: Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """Requires at least one blocked operand; the others may be blocked, scalars, or one constant per channel."""
    is_elementwise = lookup(call.operator).fusion is Fusion.ELEMENTWISE
    if not is_elementwise or type_.rank < 3 or not any(map(blocker.is_blocked, call.args)):
        return None
    if _divides_by_padding(call, type_):
        return None
    if activated := activate_apart(blocker, call, type_):
        return activated
    operands = [_operand(blocker, arg, type_) for arg in call.args]
    if any(operand is None for operand in operands):
        return None
    return blocker.emit(call.operator, *operands, **dict(call.attributes))  # type: ignore[arg-type]


def _divides_by_padding(call: ir.OperatorCall, type_: TensorType) -> bool:
    """Whether padding zeros in the last block would be integer divisors, which fails."""
    if call.operator not in INTEGER_DIVISIONS or type_.dtype.is_float:
        return False
    channels, divisor = type_.shape[1], tensor_type(call.args[1]).shape
    is_padded = not isinstance(channels, int) or bool(channels % BLOCK)
    return is_padded and ((1,) * (type_.rank - len(divisor)) + divisor)[1] != 1


def _operand(blocker: Blocker, arg: ir.Atom, result: TensorType) -> ir.Atom | None:
    """An operand of an elementwise operator as it broadcasts to a blocked result."""
    if blocker.is_blocked(arg) and tensor_type(arg).shape[1] == result.shape[1]:
        return blocker.as_blocked(arg)
    shape = tensor_type(arg).shape
    if shape == result.shape and (packed := blocker.packed_from_last(arg)) is not None:
        blocker.blocked[arg] = packed  # type: ignore[index]
        return packed  # it moves once in either case
    if shape == (1,) and isinstance(arg, ir.Constant):
        return arg  # a tensor: it must not become a literal in a kernel's text
    if all(dim == 1 for dim in shape):
        return computed("reshape", arg, shape=()) if isinstance(arg, ir.Constant) else arg if not shape else None
    whole = (1,) * (result.rank - len(shape)) + shape
    n, channels, *spatial = whole
    if channels == 1:  # a number for each pixel
        return blocker.packed("reshape", arg, shape=(*whole, 1))
    is_vector = all(dim == 1 for dim in spatial)
    if isinstance(arg, ir.Constant) and is_vector and n == 1:
        return blocker.packed("pack_vector", computed("reshape", arg, shape=(-1,)), axes=len(spatial))
    if isinstance(arg, ir.Constant) or (is_vector and is_image(TensorType(tensor_type(arg).dtype, whole))):
        return blocker.packed("pack_channels", blocker.packed("reshape", arg, shape=whole))
    return None


def pool(blocker: Blocker, image: ir.Var, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """A window of one element along the axis of the channels of a block."""
    attributes = lookup(call.operator).bind(call.attributes)
    for name in ("kernel", "strides", "dilations"):
        if attributes[name] is not None:
            attributes[name] = (*attributes[name], 1)
    if attributes["pads"] is not None:
        axes = len(attributes["pads"]) // 2
        attributes["pads"] = (*attributes["pads"][:axes], 0, *attributes["pads"][axes:], 0)
    return blocker.emit(call.operator, image, **attributes)


def reduce(blocker: Blocker, image: ir.Var, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """Reductions over all spatial axes, such as global pooling."""
    plain = tensor_type(call.args[0])
    spatial, channels = tuple(range(2, plain.rank)), plain.shape[1]
    if axes_of(lookup(call.operator).bind(call.attributes)["axes"], plain.rank) != spatial:
        return None
    if type_.rank != plain.rank and (not isinstance(channels, int) or channels % BLOCK):
        return None
    return blocker.emit(call.operator, image, axes=spatial, keepdims=True)


def normalize(blocker: Blocker, image: ir.Var, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """Group and instance normalisation, with a known scale and bias."""
    _, *affine = call.args
    channels = type_.shape[1]
    is_known = all(isinstance(vector, ir.Constant) for vector in affine)
    if type_.rank != 4 or not is_known or not isinstance(channels, int):
        return None
    attributes = {"groups": channels} | lookup(call.operator).bind(call.attributes) | {"channels": channels}
    vectors = [blocker.packed("pack_vector", vector) for vector in affine]
    return blocker.emit("group_normalization_blocked", image, *vectors, **attributes)


def resize(blocker: Blocker, image: ir.Var, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """Along a spatial axis."""
    attributes = lookup(call.operator).bind(call.attributes)
    axis = axis_of(attributes["axis"], type_.rank)
    return blocker.emit(call.operator, image, **(attributes | {"axis": axis})) if axis >= 2 else None
