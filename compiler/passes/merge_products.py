"""Merges products of one tensor that only attention reads: queries, keys and values of the same rows.

    attention(x w₁ + b₁, x w₂ + b₂, x w₃ + b₃)    →  attention(y, y, y), each a part of y = x w + b

The columns of w are those of the parts head by head, so that threads which share the product by columns find their results
in their caches when they share attention by heads. The rows of x are read once, with one barrier instead of three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...formats import dims
from ...formats.dims import Dim, SymbolicDim
from .. import ir
from ..named_weights import computed
from ..operators.table import lookup
from ..targets.base import Costs
from .rewriting import Emitter, constant, is_row, operator_call, rewriting, tensor_type

_OPERANDS = "qkv"


@dataclass(frozen=True)
class _Heads:
    """An operand of attention: the columns of a product, perhaps plus a bias, with an axis of heads."""

    place: int  # its index among the operands
    x: ir.Atom
    weights: ir.Constant  # [depth, heads, columns of a head]
    bias: ir.Constant | None  # [heads, columns of a head]
    shape: tuple[Dim, ...]  # […, heads, columns of a head]
    origin: str  # of the product

    def fits(self, other: _Heads) -> bool:
        return self.x is other.x and self.shape == other.shape and self.weights.type.dtype is other.weights.type.dtype


def _is_large(alike: Sequence[_Heads], most_bytes: int) -> bool:
    """Whether together they take more memory than one product should give. Of unknown sizes, they are taken to be small."""
    size = dims.product(alike[0].shape)
    return isinstance(size, int) and len(alike) * size * alike[0].weights.array.itemsize > most_bytes


class _Merger(Emitter):
    def __init__(self, module: ir.Module, costs: Costs) -> None:
        super().__init__(module)
        self.costs = costs
        self.made: dict[ir.Atom, tuple[ir.OperatorCall, str]] = {}  # in the present block, and where that is from

    def block(self, block: ir.Block) -> ir.Block:
        before, self.made = self.made, {}
        result = super().block(block)
        self.made = before
        return result

    def call(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        self.made[binding.var] = call, binding.origin
        if call.operator != "attention":
            return (binding,)
        self.begin(binding)
        heads = [found for place in range(len(_OPERANDS)) if (found := self._heads(call, place)) is not None]
        while heads:
            alike = [each for each in heads if each.fits(heads[0])]
            heads = [each for each in heads if not each.fits(alike[0])]
            if len(alike) > 1 and not _is_large(alike, self.costs.merged_bytes):
                call = self._merged(call, alike)
        return (*self.new, replace(binding, value=call))

    def _heads(self, call: ir.OperatorCall, place: int) -> _Heads | None:
        """The product of an operand; None if it is something else, or has other users."""
        attributes = lookup(call.operator).bind(call.attributes)
        name, operand = _OPERANDS[place], call.args[place]
        view = self._made(operand, "reshape")
        if view is None or attributes[f"{name}_part"] is not None:
            return None
        sum_ = self._made(view.args[0], "add")
        terms = sum_.args if sum_ else view.args[:1]
        biases = [term for term in terms if isinstance(term, ir.Constant)]
        factors = [term for term in terms if not isinstance(term, ir.Constant)]
        product = self._made(factors[0], "matmul") if len(factors) == 1 else None
        weights = product.args[1] if product else None
        if product is None or not isinstance(weights, ir.Constant) or weights.type.rank != 2:
            return None
        shape = tuple(dim for dim in tensor_type(operand).shape if isinstance(dim, (int, SymbolicDim)))
        if len(shape) < tensor_type(operand).rank:
            return None
        heads, columns = shape[-2:]
        if not isinstance(heads, int) or not isinstance(columns, int) or heads * columns != weights.array.shape[1]:
            return None
        if not all(is_row(bias, heads * columns) for bias in biases):
            return None
        return _Heads(
            place,
            product.args[0],
            computed("reshape", weights, shape=(-1, heads, columns)),
            computed("reshape", biases[0], shape=(heads, columns)) if biases else None,
            shape,
            self.made[factors[0]][1],
        )

    def _made(self, atom: ir.Atom, operator: str) -> ir.OperatorCall | None:
        """The call that makes an atom in this block, if it has a single use."""
        call, _ = self.made.get(atom, (None, ""))
        return call if call is not None and call.operator == operator and self.uses[atom] == 1 else None

    def _merged(self, call: ir.OperatorCall, alike: Sequence[_Heads]) -> ir.OperatorCall:
        """The attention with some operands as parts of one product."""
        outer, (_, heads, columns) = alike[0].shape[:-2], alike[0].weights.array.shape
        count, self.origin = len(alike), " + ".join(dict.fromkeys(each.origin for each in alike))
        weights = _side_by_side([each.weights for each in alike], (-1, heads * count * columns))
        result = self.emit("matmul", alike[0].x, weights)
        if any(each.bias is not None for each in alike):
            none = constant(np.zeros((heads, columns), alike[0].weights.array.dtype))
            bias = _side_by_side([each.bias or none for each in alike], (-1,))
            result = self.emit("add", result, bias)
        result = self.emit("reshape", result, shape=(*outer, heads, count, columns))
        args, attributes = list(call.args), dict(call.attributes)
        for index, each in enumerate(alike):
            args[each.place] = result
            attributes[f"{_OPERANDS[each.place]}_part"] = (len(outer) + 1, index)
        return operator_call("attention", *args, **attributes)


def _side_by_side(parts: Sequence[ir.Constant], shape: tuple[int, ...]) -> ir.Constant:
    """Concatenates arrays [..., heads, columns] head by head, in a shape."""
    return computed("reshape", computed("concat", *parts, axis=-1), shape=shape)


MergeProducts = rewriting("merge_products", _Merger)
