"""Which call of Relay's may be an operator of Treadle's: the other way through the table.

Elementwise operators are found by trying each row. Of those with attributes, names that both have in common need no word; others
are in `_ROWS`, `_ATTRIBUTES` and `_COMPUTED`. These are proposals: `raising.py` keeps those that lowering gives back.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....compiler import ir
from ....compiler.builder import programs
from ....compiler.operators import TABLE as OPERATORS
from ....formats.dtypes import DType
from ....formats.messages.errors import TreadleError
from ....formats.types import TensorType
from ..expr import Call, Expr, Op, Tuple, TupleGetItem
from .table import TABLE, Row, Said

# operators → rows where the names differ; {n} is the number of axes of space
_ROWS = {
    "average_pool": ("nn.avg_pool{n}d",),
    "batch_normalization": ("nn.batch_norm",),
    "bitcast": ("reinterpret",),
    "concat": ("concatenate",),
    "conv": ("nn.conv{n}d",),
    "conv_integer": ("nn.conv{n}d",),
    "conv_transpose": ("nn.conv{n}d_transpose",),
    "cumulative_prod": ("cumprod",),
    "cumulative_sum": ("cumsum",),
    "dequantize": ("qnn.dequantize",),
    "group_normalization": ("nn.group_norm",),
    "instance_normalization": ("nn.instance_norm",),
    "layer_normalization": ("nn.layer_norm",),
    "local_response_normalization": ("nn.lrn",),
    "log_sum_exp": ("logsumexp",),
    "matmul": ("nn.matmul", "nn.batch_matmul"),
    "max_pool": ("nn.max_pool{n}d",),
    "permute_dims": ("transpose",),
    "put_along_axis": ("scatter_elements",),
    "quantize": ("qnn.quantize",),
    "slice": ("strided_slice",),
    "take_along_axis": ("gather",),
}

# attributes of rows → those of operators where the names differ
_ATTRIBUTES = {
    "a_max": "max",
    "a_min": "min",
    "axis": "axes",
    "begin": "starts",
    "dilation": "dilations",
    "end": "ends",
    "newshape": "shape",
    "num_groups": "groups",
    "padding": "pads",
    "pool_size": "kernel",
    "reps": "repetitions",
}

Values = dict[str, Any]


def _window(bound: Values, types: Sequence[TensorType]) -> Values:
    shape, is_transposed = types[1].shape, "output_padding" in bound
    channels = shape[1] * bound["groups"] if is_transposed else shape[0]
    return {"kernel_size": shape[2:], "channels": channels, "out_dtype": "int32" if types[0].dtype.is_integer else ""}


def _sections(bound: Values, types: Sequence[TensorType]) -> Values:
    sizes = bound["sizes"]
    is_even = len(set(sizes)) == 1
    return {"indices_or_sections": len(sizes) if is_even else tuple(itertools.accumulate(sizes[:-1]))}


def _sides(bound: Values, types: Sequence[TensorType]) -> Values:
    pads = bound["pads"]
    half = len(pads) // 2
    sides = tuple(zip(pads[:half], pads[half:], strict=True))
    return {"pad_width": sides, "pad_value": bound["value"], "pad_mode": bound["mode"]}


def _new_axes(bound: Values, types: Sequence[TensorType]) -> Values:
    axes = bound["axes"]
    return {"axis": axes[0] if axes else 0, "num_newaxis": len(axes)}


# what takes a word of its own, by operator: attributes of the row
_COMPUTED: dict[str, Callable[[Values, Sequence[TensorType]], Values]] = {
    "conv": _window,
    "conv_integer": _window,
    "conv_transpose": _window,
    "dequantize": lambda bound, types: {"out_dtype": types[1].dtype.name},
    "expand_dims": _new_axes,
    "matmul": lambda bound, types: {"transpose_b": False},
    "pad": _sides,
    "put_along_axis": lambda bound, types: {"reduction": bound["reduction"].replace("none", "update")},
    "quantize": lambda bound, types: {"out_dtype": types[2].dtype.name},
    "slice": lambda bound, types: {"strides": bound["steps"]},
    "split": _sections,
    "take": lambda bound, types: {"mode": "fast"},
}


def candidates(call: ir.OperatorCall, args: Sequence[Expr], types: Sequence[Any]) -> Iterator[Call | TupleGetItem]:
    """Calls of Relay's that may be this one."""
    if call.operator in (elementwise := _elementwise()):
        yield made(elementwise[call.operator], args, {})
        return
    if not types or not all(isinstance(type_, TensorType) for type_ in types):
        return
    axes = len(types[0].shape) - 2
    own = call.operator
    for name in _ROWS.get(own, (own, f"nn.{own}")):
        row = TABLE.get(name.format(n=axes))
        if row is not None and (values := _values(row, call, types)) is not None:
            yield from _calls(row, args, values)


def made(name: str, args: Sequence[Expr], attributes: Values) -> Call:
    """A call with all its attributes, as Relay's functions make it."""
    parameters = TABLE[name].signature.parameters.values()
    tensors = [each.name for each in parameters if str(each.annotation).startswith("Tensor")][: len(args)]
    defaults = {each.name: each.default for each in parameters if each.name not in tensors}
    return Call(Op.get(name), args, {**defaults, **attributes}, names=tensors)


def _calls(row: Row, args: Sequence[Expr], attributes: Values) -> Iterator[Call | TupleGetItem]:
    tensors = [each for each in row.signature.parameters.values() if str(each.annotation).startswith("Tensor")]
    if tensors and str(tensors[0].annotation) == "Tensors":
        yield made(row.name, [Tuple(args)], attributes)
    elif row.results == len(tensors) - 2 and row.name == "nn.batch_norm":
        yield TupleGetItem(made(row.name, args, attributes), 0)
    elif len(args) == len(tensors):
        yield made(row.name, args, attributes)
    elif row.name.startswith("nn.conv") and len(args) == 3:
        biased = made(row.name, args[:2], attributes)
        yield made("nn.bias_add", [biased, args[2]], {})


def _values(row: Row, call: ir.OperatorCall, types: Sequence[TensorType]) -> Values | None:
    """The attributes of a row by those of the operator; None where one has no value."""
    bound = OPERATORS[call.operator].bind(call.attributes)
    computed = _COMPUTED.get(call.operator)
    values = computed(bound, types) if computed is not None else {}
    found: Values = {}
    for parameter in row.signature.parameters.values():
        name = parameter.name
        if str(parameter.annotation).startswith("Tensor"):
            continue
        theirs = name if name in bound else _ATTRIBUTES.get(name, name)
        if name in values:
            found[name] = values[name]
        elif bound.get(theirs) is not None:
            found[name] = _value(bound[theirs])
        elif parameter.default is not parameter.empty:
            found[name] = parameter.default
        else:
            return None
    return found


def _value(value: Any) -> Any:
    return value.name if isinstance(value, DType) else Said(value) if isinstance(value, tuple) else value


@functools.cache
def _elementwise() -> dict[str, str]:
    """Operators that a row of tensors alone makes, and nothing else: that with the shortest name."""
    found: dict[str, str] = {}
    for row in sorted(TABLE.values(), key=lambda row: len(row.name)):
        parameters = row.signature.parameters.values()
        if row.results is not None or any(str(each.annotation) != "Tensor" for each in parameters):
            continue
        for dtype in ("float32", "int32", "bool"):
            operands = [programs.var(each.name, (2,), dtype) for each in parameters]
            try:
                result = row.function(*operands)
            except (TreadleError, NotImplementedError, TypeError, ValueError, AttributeError, IndexError):
                continue
            if result.make is None or list(map(id, result.operands)) != list(map(id, operands)):
                continue
            built = result.make(tuple(ir.Var("") for _ in operands), ())
            if isinstance(built, ir.OperatorCall) and not built.attributes:
                found.setdefault(built.operator, row.name)
    return found
