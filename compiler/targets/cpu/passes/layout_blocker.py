"""Shared state of the layout pass's rules: which images exist in blocked form, and how operands are converted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.types import UNKNOWN, TensorType
from .... import ir
from ....named_weights import computed
from ....operators.table import lookup
from ....passes.rewriting import Emitter, tensor_type
from ...base import Narrowing
from .. import costs
from . import layout_weights


@dataclass(frozen=True)
class Apart:
    """An image whose groups of channels each begin on a block boundary."""

    image: ir.Var
    each: int  # channels of a group
    count: int


class Blocker(Emitter):
    """`blocked` maps variables to their channel-blocked forms, in the current block and those around it."""

    def __init__(
        self, module: ir.Module, registers: int, narrowing: Narrowing, multiplies: bool, byte_speed: float
    ) -> None:
        super().__init__(module)
        self.registers, self.narrowing, self.multiplies, self.byte_speed = registers, narrowing, multiplies, byte_speed
        self.blocked: dict[ir.Var, ir.Var] = {}
        self.calls: dict[ir.Var, ir.OperatorCall] = {}  # calls by their result variables
        self.splits: dict[ir.Atom, ir.Var] = {}  # tuples of parts of images, to those of their blocked parts
        self.apart: dict[ir.Var, Apart] = {}  # the separate groups that blocked images were joined from

    def is_blocked(self, atom: ir.Atom) -> bool:
        return isinstance(atom, ir.Var) and atom in self.blocked

    def emit(self, operator: str, *args: ir.Atom, **attributes: Any) -> ir.Var:
        var = super().emit(operator, *args, **attributes)
        call = self.new[-1].value
        assert isinstance(call, ir.OperatorCall)
        self.calls[var] = call
        return var

    def packed(self, operator: str, atom: ir.Atom, **attributes: Any) -> ir.Atom:
        """The result of a packing operator: a constant if the atom is one."""
        if isinstance(atom, ir.Var):
            return layout_weights.packed(self, operator, atom, **attributes)
        assert isinstance(atom, ir.Constant)
        return computed(operator, atom, **attributes)

    def as_blocked(self, atom: ir.Atom) -> ir.Var:
        """The atom, an image, in blocked form: known, or packed now."""
        if isinstance(atom, ir.Var) and atom in self.blocked:
            return self.blocked[atom]
        packed = self.packed_from_last(atom) or self.emit("pack_channels", atom)
        if isinstance(atom, ir.Var):
            self.blocked[atom] = packed
        return packed

    def packed_from_last(self, atom: ir.Atom) -> ir.Var | None:
        """The atom in blocked form, if it is a permutation of an image [N, *spatial, C]; the permutation is then dead."""
        source = self._channels_last(atom)
        return None if source is None else self.emit("pack_channels", source, last=True)

    def _channels_last(self, atom: ir.Atom) -> ir.Atom | None:
        """The image [N, *spatial, C], perhaps of pixels [N, P, C], whose permutation the atom is; None for other atoms."""
        call = self.calls.get(atom)  # type: ignore[arg-type]
        if call is None or not is_image(tensor_type(atom)):
            return None
        if moves_channels(call, to_last=False):
            return call.args[0]
        turned = self.calls.get(call.args[0]) if call.operator == "reshape" else None  # type: ignore[arg-type]
        n, channels, *sizes = tensor_type(atom).shape
        if turned is None or not moves_channels(turned, to_last=False):
            return None
        if tensor_type(call.args[0]).shape[:2] != (n, channels):
            return None
        return self.emit("reshape", turned.args[0], shape=(n, *sizes, channels))


def is_image(type_: TensorType) -> bool:
    """Whether a type is a float32 tensor [N, C, *spatial], whose N and sizes may be known only at run time."""
    return (
        type_.rank >= 3
        and type_.dtype is DType.float32
        and UNKNOWN not in type_.shape
        and isinstance(type_.shape[1], int)
        and 0 not in type_.shape[1:]
    )


def likely_size(dim: Any) -> int:
    """A size of an image, or what it is if the image that comes in has a usual size."""
    return dims.evaluate(dim, dict.fromkeys(dims.variables(dim), costs.IMAGE_SIDE))


def moves_channels(call: ir.OperatorCall, *, to_last: bool) -> bool:
    """Whether the call is a permutation that moves the second axis to the end, or the last one to the second position."""
    if call.operator != "permute_dims":
        return False
    rank = tensor_type(call.args[0]).rank
    axes: Any = lookup(call.operator).bind(call.attributes)["axes"]
    wanted = (0, *range(2, rank), 1) if to_last else (0, rank - 1, *range(1, rank - 1))
    return rank > 2 and axes is not None and tuple(axis % rank for axis in axes) == wanted
