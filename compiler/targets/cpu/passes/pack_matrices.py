"""Matrix products in the best form for their kernel: constant matrices packed into panels (of integers by
`pack_integers.py`), transpositions of an operand's last two axes absorbed by the product, long products with a single column
as sums. Tables whose rows are gathered are kept in 16 bits, like panels, if these represent their values."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.messages.errors import ExecutionError, MissingPackageError
from .....formats.types import UNKNOWN
from .... import ir
from ....ir.analysis import expressions
from ....named_weights import computed
from ....passes.rewriting import Emitter, constant, operator_call, order_of, tensor_type
from ...base import Narrowing
from .. import costs
from ..kernels.writer import estimate
from ..operators.bfloat16 import PAIR
from ..operators.int8 import is_exact
from . import pack_integers

_SOME = 4096  # elements, of which one will tell in most cases


@dataclass(frozen=True)
class PackMatrices:
    """Constant matrices that `narrowing` takes are int8 where that gains something, at the CPU's `byte_speed`; else they are
    rounded to bfloat16, and if the CPU `multiplies` it, so is what they are multiplied with, and what attention and
    recurrent layers multiply."""

    narrowing: Narrowing = field(default_factory=Narrowing)
    multiplies: bool = False
    byte_speed: float = 1
    name: str = "pack_matrices"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Packer(module, self).run()


class _Packer(Emitter):
    def __init__(self, module: ir.Module, options: PackMatrices) -> None:
        super().__init__(module)
        self.options = options
        self.permutations: dict[ir.Var, ir.OperatorCall] = {}
        self.panels: dict[tuple[ir.Constant, bool], ir.Constant] = {}
        self.pairs: dict[ir.Constant, ir.Constant] = {}
        self.bytes: dict[ir.Constant, ir.Constant] = {}
        self.tables: dict[ir.Constant, ir.Constant] = {}
        self.taken: Counter[ir.Atom] = Counter()  # number of gathers from each constant, in the current function

    def function(self, function: ir.Function) -> ir.Function:
        calls = (each.value for each in expressions(function.body) if isinstance(each.value, ir.OperatorCall))
        self.taken = Counter(call.args[0] for call in calls if call.operator == "take")
        return super().function(function)

    def call(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        if call.operator == "permute_dims":
            self.permutations[binding.var] = call
        if call.operator == "take":
            return self._rows_taken(binding, call)
        if call.operator == "attention" and self.options.narrowing.takes(binding, "bfloat16", self.options.multiplies):
            narrow = dict(call.attributes) | {"narrow": True}
            return (dataclasses.replace(binding, value=operator_call("attention", *call.args, **narrow)),)
        if call.operator in ("rnn", "gru", "lstm"):
            return (self._recurrent(binding, call),)
        is_fast = self.options.byte_speed > 1
        if call.operator == "matmul_dequantized" and self.options.narrowing.takes(binding, "int8", is_fast):
            rounded = dict(call.attributes) | {"int8_rows": True}
            return (dataclasses.replace(binding, value=operator_call("matmul_dequantized", *call.args, **rounded)),)
        if call.operator == "matmul_integer":
            self.begin(binding)
            self.atoms[binding.var] = pack_integers.product(self, call)
            return self.new
        if call.operator != "matmul" or any(tensor_type(arg).dtype is not DType.float32 for arg in call.args):
            return (binding,)
        a, b = call.args
        if self._is_one_column(a, b):
            return self._summed(binding, a, b)
        if isinstance(b, ir.Constant) and b.type.rank == 2 and tensor_type(a).rank > 1:
            self.begin(binding)
            precision = self.options.narrowing.chosen(binding, lambda: self._narrow_precisions(a, b))
            product = self._by_panels(a, b, precision)
            return (*self.new, dataclasses.replace(binding, value=product))
        return self._transposed(binding, a, b)

    def _narrow_precisions(self, a: ir.Atom, matrix: ir.Constant) -> list[str]:
        """Those in which a product gains something. Short sums, as those that make rotary angles of places, wait for their
        stores."""
        is_long = len(matrix.array) >= costs.GEMM_SHALLOW
        return ["bfloat16"] * is_long + ["int8"] * _gains_in_int8(a, matrix, self.options.byte_speed)

    def _by_panels(self, a: ir.Atom, matrix: ir.Constant, precision: str) -> ir.OperatorCall:
        if precision == "int8":
            return self._int8(a, matrix)
        if precision == "bfloat16" and self.options.multiplies:
            return self._bfloat16(a, matrix)
        return self._float32(a, matrix, precision == "bfloat16")

    def _recurrent(self, binding: ir.Binding, call: ir.OperatorCall) -> ir.Binding:
        """A layer whose state meets constant weights: pairs of them, if it is long enough."""
        projected, weights, *others = call.args
        if not isinstance(weights, ir.Constant) or weights.array.dtype != np.float32:
            return binding
        is_long = weights.array.shape[2] >= costs.RECURRENT_PAIRS
        if not self.options.narrowing.takes(binding, "bfloat16", is_long and self.options.multiplies):
            return binding
        pairs = self._pairs_of_state(weights)
        narrow = operator_call(call.operator, projected, pairs, *others, **dict(call.attributes))
        return dataclasses.replace(binding, value=narrow)

    def _pairs_of_state(self, weights: ir.Constant) -> ir.Constant:
        """Recurrent weights as bfloat16, those of two elements of the state together."""
        if weights not in self.pairs:
            directions, blocks, depth, *rest = weights.array.shape
            padded = (
                computed("pad", weights, pads=(0, 0, 0, 0, 0, 0, 0, depth % PAIR, 0, 0)) if depth % PAIR else weights
            )
            apart = computed("reshape", padded, shape=(directions, blocks, -(-depth // PAIR), PAIR, *rest))
            together = computed("permute_dims", apart, axes=(0, 1, 2, 4, 5, 3))
            self.pairs[weights] = computed("cast", together, dtype=DType.bfloat16)
        return self.pairs[weights]

    def _is_one_column(self, a: ir.Atom, b: ir.Atom) -> bool:
        """Whether b is a vector or has one column, and a's rows are contiguous and long."""
        left, right = tensor_type(a), tensor_type(b)
        length = left.shape[-1]
        is_column = right.rank == 1 or right.shape[-1] == 1
        is_long = not isinstance(length, int) or length >= costs.LONG_COLUMN
        return left.rank > 1 and is_column and is_long and UNKNOWN not in right.shape and a not in self.permutations

    def _summed(self, binding: ir.Binding, a: ir.Atom, b: ir.Atom) -> Iterable[ir.Binding]:
        self.begin(binding)
        *batch, length, _ = (*tensor_type(b).shape, 1) if tensor_type(b).rank == 1 else tensor_type(b).shape
        row = self.emit("reshape", b, shape=(*batch, 1, length))
        products = self.emit("multiply", a, row)
        total = operator_call("sum", products, axes=(-1,), keepdims=tensor_type(b).rank > 1)
        return (*self.new, dataclasses.replace(binding, value=total))

    def _rows_taken(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        """A gather from a table without other users, in 16 bits. Not from a weight, whose values may change."""
        table, places = call.args
        if not isinstance(table, ir.Constant) or isinstance(table, ir.Weight) or self.uses[table] != self.taken[table]:
            return (binding,)
        if table not in self.tables:
            self.tables[table] = _in_16_bits(table)
        if (narrow := self.tables[table]) is table:
            return (binding,)
        self.begin(binding)
        rows = self.emit("take", narrow, places, **dict(call.attributes))
        return (*self.new, dataclasses.replace(binding, value=operator_call("cast", rows, dtype=DType.float32)))

    def _float32(self, a: ir.Atom, matrix: ir.Constant, is_rounded: bool) -> ir.OperatorCall:
        if (matrix, is_rounded) not in self.panels:
            panels = computed("pack_matrix", matrix)
            if is_rounded:
                panels = computed("cast", computed("cast", panels, dtype=DType.bfloat16), dtype=DType.float32)
            self.panels[matrix, is_rounded] = _narrowed(panels)
        return operator_call("matmul_packed", a, self.panels[matrix, is_rounded], columns=matrix.array.shape[1])

    def _bfloat16(self, a: ir.Atom, matrix: ir.Constant) -> ir.OperatorCall:
        if matrix not in self.pairs:
            self.pairs[matrix] = computed("pack_bfloat16_matrix", matrix)
        pairs = pack_integers.padded(self, self.emit("round_bfloat16", a), len(matrix.array) % PAIR)
        return operator_call("matmul_bfloat16_packed", pairs, self.pairs[matrix], columns=matrix.array.shape[1])

    def _int8(self, a: ir.Atom, matrix: ir.Constant) -> ir.OperatorCall:
        if matrix not in self.bytes:
            self.bytes[matrix] = computed("pack_int8_matrix", matrix)
        rows = self.emit("quantize_rows", a)
        return operator_call("matmul_int8_packed", rows, self.bytes[matrix], columns=matrix.array.shape[1])

    def _transposed(self, binding: ir.Binding, a: ir.Atom, b: ir.Atom) -> Iterable[ir.Binding]:
        if min(tensor_type(a).rank, tensor_type(b).rank) < 2:
            return (binding,)
        self.begin(binding)
        # panels of columns are transposed in scratch, whose size is the depth: without a known depth there is no kernel
        is_known = isinstance(tensor_type(b).shape[-2], int)
        sources = [self._untransposed(a), self._untransposed(b) if is_known else None]
        turns = [source is not None for source in sources]
        if not any(turns):
            return (binding,)
        operands = [source or operand for source, operand in zip(sources, (a, b), strict=True)]
        product = operator_call("matmul_transposed", *operands, transpose_a=turns[0], transpose_b=turns[1])
        return (*self.new, dataclasses.replace(binding, value=product))

    def _untransposed(self, operand: ir.Atom) -> ir.Atom | None:
        """The operand with its last two axes exchanged, if that is less work."""
        call = self.permutations.get(operand) if isinstance(operand, ir.Var) else None
        if call is None:
            return None
        (x,) = call.args
        rank, axes = tensor_type(x).rank, order_of(call)
        if rank < 2 or axes[-2] != rank - 1:
            return None
        axes = (*axes[:-2], axes[-1], axes[-2])
        return x if axes == tuple(range(rank)) else self.emit("permute_dims", x, axes=axes)


def _gains_in_int8(a: ir.Atom, matrix: ir.Constant, byte_speed: float) -> bool:
    """Whether a product has enough work for each row that is quantised, and for each result that is scaled; and exact sums."""
    *outer, _ = tensor_type(a).shape
    if byte_speed <= 1 or UNKNOWN in outer:
        return False
    depth, columns = matrix.array.shape
    rows = estimate(dims.product(outer))  # type: ignore[arg-type]
    is_worth = depth * columns >= costs.INT8_SIDES * (depth + columns) and rows * depth * columns >= costs.INT8_MACS
    return is_worth and is_exact(depth)


def _types_of_16_bits() -> tuple[DType, ...]:
    """Those that arrays can have here: bfloat16 is one of ml_dtypes, which need not be installed."""
    with contextlib.suppress(MissingPackageError):
        return (DType.of(DType.bfloat16.numpy), DType.float16)
    return (DType.float16,)


def _in_16_bits(table: ir.Constant) -> ir.Constant:
    """A table with the same values in 16 bits, if these represent them all, including NaNs' bits."""
    array = table.array
    if array.dtype != np.float32 or array.nbytes < costs.NARROW_BYTES:
        return table
    for dtype in _types_of_16_bits():
        for part in (array.reshape(-1)[:_SOME], array):
            with np.errstate(over="ignore"):
                narrow = part.astype(dtype.numpy)
            if not np.array_equal(narrow.astype(np.float32).view(np.uint32), part.view(np.uint32)):
                break
        else:
            return constant(narrow)
    return table


def _narrowed(panels: ir.Constant) -> ir.Constant:
    """The same numbers in 16 bits, where these hold them all exactly, as those of models trained in bfloat16 or float16: then
    there is half as much to read."""
    if panels.array.nbytes < costs.NARROW_BYTES:
        return panels
    some = ir.Constant(panels.array.reshape(-1)[:_SOME])
    for dtype in _types_of_16_bits():
        with contextlib.suppress(ExecutionError):
            computed("narrow_panels", some, dtype=dtype)
            return computed("narrow_panels", panels, dtype=dtype)
    return panels
