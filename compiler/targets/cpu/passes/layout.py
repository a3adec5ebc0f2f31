"""Channel-blocked layout: convolutional networks computed on images [N, C/16, *spatial, 16].

Every operator whose operands are known in blocked form, and that has one itself, is applied to blocked images; its ordinary
result is then unpacked, for other users. Between convolutions there are none: dead code elimination removes the
unpacking. Weights are packed here, once.

The two tables list the operators with a blocked form, and their rules. The rules are in three files: convolutions
(`layout_convolutions.py`), operators that move channels (`layout_channels.py`), and those that do not
(`layout_per_channel.py`); shared parts are in `layout_blocker.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Union

from .....formats.types import TensorType, TupleType
from .... import ir
from ....passes.rewriting import operator_call, tensor_type
from ...base import Narrowing
from ..operators.packing import BLOCK
from ..operators.winograd import WIDE_REGISTERS
from . import layout_channels, layout_per_channel, pack_integers
from .layout_blocker import Blocker
from .layout_convolutions import convolution

# A rule's result: the blocked form; or a call that computes the ordinary result; or None, if the operator stays.
_Result = Union[ir.Var, ir.OperatorCall, None]

# By operator; a rule gets the call and the type of its result.
_RULES: dict[str, Callable[[Blocker, ir.OperatorCall, TensorType], _Result]] = {
    "conv": convolution,
    "conv_integer": pack_integers.convolution,
    "concat": layout_channels.join,
    "permute_dims": layout_channels.to_last,
    "reshape": layout_channels.shuffle,
}

# For operators whose first operand is blocked already; a rule gets that too.
_RULES_OF_IMAGES: dict[str, Callable[[Blocker, ir.Var, ir.OperatorCall, TensorType], _Result]] = {
    "average_pool": layout_per_channel.pool,
    "max_pool": layout_per_channel.pool,
    "max": layout_per_channel.reduce,
    "mean": layout_per_channel.reduce,
    "sum": layout_per_channel.reduce,
    "group_normalization": layout_per_channel.normalize,
    "instance_normalization": layout_per_channel.normalize,
    "resize": layout_per_channel.resize,
    "depth_to_space": layout_channels.depth_to_space,
    "slice": layout_channels.cut,
}


@dataclass(frozen=True)
class BlockChannels:
    """`narrowing` says which convolutions are narrow, `multiplies` whether the CPU multiplies bfloat16, and `byte_speed` how fast
    it multiplies bytes."""

    registers: int = WIDE_REGISTERS  # of a block each
    narrowing: Narrowing = field(default_factory=Narrowing)
    multiplies: bool = False
    byte_speed: float = 1
    name: str = "block_channels"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Walk(module, self.registers, self.narrowing, self.multiplies, self.byte_speed).run()


class _Walk(Blocker):
    def __init__(self, module: ir.Module, *options: Any) -> None:
        super().__init__(module, *options)
        self._slices: dict[ir.Var, list[ir.OperatorCall]] = {}  # of what is split

    def block(self, block: ir.Block) -> ir.Block:
        outside, emitted = dict(self.blocked), self.new
        result = super().block(block)
        self.blocked, self.new = outside, emitted
        return result

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        call, type_ = self._call_of(binding.value), binding.var.type
        if call is None:
            return (binding,)
        self.calls[binding.var] = call
        self.begin(binding)
        if not isinstance(type_, TensorType):
            layout_channels.split(self, binding.var, call)
            return (*self.new, binding)
        result = self._part_of(binding.value) or self._by_rule(call, type_)
        if result is None:
            return (binding,)
        if isinstance(result, ir.Var):
            result = self._ordinary(binding.var, result, type_)
        return (*self.new, dataclasses.replace(binding, value=result))

    def _by_rule(self, call: ir.OperatorCall, type_: TensorType) -> _Result:
        rule, rule_of_images = _RULES.get(call.operator), _RULES_OF_IMAGES.get(call.operator)
        if rule is not None:
            return rule(self, call, type_)
        if rule_of_images is not None:
            image = call.args[0]
            return rule_of_images(self, self.as_blocked(image), call, type_) if self.is_blocked(image) else None
        return layout_per_channel.elementwise(self, call, type_)

    def _part_of(self, value: ir.Expr) -> ir.Var | None:
        """A part of a split in blocked form."""
        if not isinstance(value, ir.GetItem) or value.tuple not in self.splits:
            return None
        whole = self.splits[value.tuple]
        assert isinstance(whole.type, TupleType)
        return self.bind(ir.GetItem(whole, value.index), whole.type.fields[value.index], "split")

    def _call_of(self, value: ir.Expr) -> ir.OperatorCall | None:
        """The operator call of a value. A part of a split counts as a slice."""
        if isinstance(value, ir.GetItem) and isinstance(value.tuple, ir.Var) and value.tuple in self.calls:
            call = self.calls[value.tuple]
            if call.operator != "split":
                return None
            if value.tuple not in self._slices:
                self._slices[value.tuple] = layout_channels.slices(call)
            return self._slices[value.tuple][value.index]
        return value if isinstance(value, ir.OperatorCall) else None

    def _ordinary(self, var: ir.Var, result: ir.Var, type_: TensorType) -> ir.OperatorCall:
        """The call that converts a variable back from its blocked form."""
        if type_.rank != tensor_type(result).rank - 1:  # a pooled image without its spatial axes
            return operator_call("reshape", result, shape=type_.shape)
        self.blocked[var] = result
        channels = type_.shape[1]
        if all(dim == 1 for dim in type_.shape[2:]) and isinstance(channels, int) and channels % BLOCK == 0:
            return operator_call("reshape", result, shape=type_.shape)
        return operator_call("unpack_channels", result, channels=channels)
