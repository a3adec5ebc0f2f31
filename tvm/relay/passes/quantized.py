"""FakeQuantizationToInteger: operators between `qnn.dequantize` and `qnn.quantize` on integers
(`fake_quantization_to_integer.cc` and `.py`).

A rule takes a call whose operands are integers already, and what each expression's integers mean; it gives the call on integers,
and what its integers mean. `register_fake_quantization_to_integer` adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....formats.messages.errors import CompileError, TreadleError
from ...transform import Pass
from ..expr import Constant, Expr, Function, Op, Tuple, TupleGetItem
from ..module import IRModule
from ..op.layouts import parse
from ..rewrite import rebuilt
from ..structural import structural_equal
from ..visit import children
from .core import each_function, make, op_of, rewrite, shape_of
from .folding import folded

REGISTERED, OPTIONAL = "FTVMFakeQuantizationToInteger", "FTVMOptionalFakeQuantizationToInteger"


@dataclass(frozen=True, eq=False)
class Affine:
    """What integers mean: (number - zero_point) * scale, along an axis where these are vectors."""

    scale: Any
    zero_point: Any
    dtype: str
    axis: int = -1

    def same(self, other: Affine) -> bool:
        return self.dtype == other.dtype and _near(self.scale, other.scale) and _near(self.zero_point, other.zero_point)


@dataclass(frozen=True, eq=False)
class Affines:
    """What a tuple's integers mean."""

    types: tuple[Affine, ...]


Types = dict[Expr, Any]
Rule = Callable[[Any, Types], Sequence[Any]]


def _near(a: Expr, b: Expr) -> bool:
    a, b = folded(a), folded(b)
    if isinstance(a, Constant) and isinstance(b, Constant):
        return bool(np.allclose(a.array, b.array))
    return structural_equal(a, b)


def _requantized(expr: Expr, source: Affine, target: Affine, dtype: str = "") -> Expr:
    dtype = dtype or target.dtype
    scales = (folded(source.scale), folded(source.zero_point), target.scale, target.zero_point)
    return make("qnn.requantize", expr, *scales, axis=source.axis, out_dtype=dtype)


def _dequantize(expr: Any, types: Types) -> Sequence[Any]:
    return expr.args[0], types[expr]


def _quantize(expr: Any, types: Types) -> Sequence[Any]:
    source = types[expr.args[0]]
    target = Affine(expr.args[1], expr.args[2], expr.attrs["out_dtype"], expr.attrs["axis"])
    same = source.same(target)
    return expr.args[0] if same else _requantized(expr.args[0], source, target), target


def _same(expr: Any, types: Types) -> Sequence[Any]:
    """Operators that move numbers, and change none."""
    return expr, types[expr.args[0]]


def _split(expr: Any, types: Types) -> Sequence[Any]:
    sections = expr.attrs["indices_or_sections"]
    count = sections if isinstance(sections, int) else len(sections) + 1
    return expr, Affines((types[expr.args[0]],) * int(count))


def _topk(expr: Any, types: Types) -> Sequence[Any]:
    if expr.attrs["ret_type"] != "values":
        raise CompileError("topk: its indices are no quantized numbers")
    return expr, types[expr.args[0]]


def _avg_pool(expr: Any, types: Types) -> Sequence[Any]:
    source, target = types[expr.args[0]], types[expr]
    names = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad", "layout")
    attrs = [expr.attrs[name] for name in names]
    scales = (source.scale, source.zero_point, target.scale, target.zero_point)
    return make("qnn.avg_pool2d", expr.args[0], *scales, *attrs), Affine(*scales[2:], target.dtype, target.axis)


def _mean_pool(expr: Any, types: Types) -> Sequence[Any]:
    """Pooling by int32, in the result's scale."""
    source, target = types[expr.args[0]], types[expr]
    arg = expr.args[0]
    arg = make("cast", arg, "int32") if source.same(target) else _requantized(arg, source, target, "int32")
    return rebuilt(expr, [arg]), Affine(target.scale, target.zero_point, "int32", target.axis)


def _bias_add(expr: Any, types: Types) -> Sequence[Any]:
    x, bias = expr.args
    source = types[x]
    if bias in types:
        own = types[bias]
        bias = bias if source.same(own) else _requantized(bias, Affine(own.scale, own.zero_point, own.dtype, 0), source)
    else:
        bias = _quantized(bias, source, axis=0)
    return make("nn.bias_add", x, bias, **expr.attrs), source


def _quantized(constant: Any, affine: Affine, axis: int = -1) -> Expr:
    """A constant of numbers as integers of this meaning."""
    if not isinstance(constant, Constant) or constant.array.dtype.kind != "f":
        raise CompileError("expected a constant of floating-point numbers, or what is quantized")
    return make("qnn.quantize", constant, affine.scale, affine.zero_point, axis=axis, out_dtype=affine.dtype)


def _product(name: str, axis: Callable[[Any, Affine], int]) -> Rule:
    """Convolutions and products: int32 of the product of the scales."""

    def rule(expr: Any, types: Types) -> Sequence[Any]:
        x, weight = (types[arg] for arg in expr.args)
        scale = folded(make("multiply", x.scale, weight.scale))
        zero = Constant(np.zeros(scale.array.shape if isinstance(scale, Constant) else (), "int32"))
        attrs = {
            key: value for key, value in expr.attrs.items() if key not in ("out_dtype", "transpose_a", "transpose_b")
        }
        if name == "qnn.batch_matmul":
            attrs = {}
        made = make(name, *expr.args, x.zero_point, weight.zero_point, x.scale, weight.scale, **attrs)
        return made, Affine(scale, zero, "int32", axis(expr, x))

    return rule


def _channels(expr: Any, _: Affine) -> int:
    layout = expr.attrs["out_layout"] or expr.attrs["data_layout"]
    return [letter for letter, _ in parse(layout)].index("C")


def _concatenate(expr: Any, types: Types) -> Sequence[Any]:
    several, target = types[expr.args[0]].types, types[expr]
    scales, zeros = Tuple([each.scale for each in several]), Tuple([each.zero_point for each in several])
    axis = expr.attrs["axis"]
    return make("qnn.concatenate", expr.args[0], scales, zeros, target.scale, target.zero_point, axis=axis), target


def _along(value: Any, affine: Affine, arg: Expr) -> Expr:
    """A number, or one for each channel, as what broadcasts along the affine's axis."""
    shape = shape_of(folded(affine.scale)) or ()
    if len(shape) != 1 or shape[0] == 1:
        return value
    form = [1] * len(_shape(arg))
    form[affine.axis] = -1
    return make("reshape", make("broadcast_to", value, shape), form)


def _shape(expr: Expr) -> tuple[Any, ...]:
    known = shape_of(expr)
    if known is None:
        from ..infer import infer_module

        known = shape_of(infer_module(IRModule.from_expr(expr))["main"].body)
    return known or ()


def _clip(expr: Any, types: Types) -> Sequence[Any]:
    arg = expr.args[0]
    affine = types[arg]
    scale, zero = folded(affine.scale), folded(affine.zero_point)
    low, high = expr.attrs["a_min"], expr.attrs["a_max"]
    if isinstance(scale, Constant) and isinstance(zero, Constant) and scale.array.size == zero.array.size == 1:
        bounds = [int(each / scale.array.item() + zero.array.item()) for each in (low, high)]
        return make("clip", arg, *bounds), affine
    parts = []
    for bound in (low, high):
        number = _along(Constant(np.float32(bound)), affine, arg)
        parts.append(folded(make("qnn.quantize", number, scale, zero, axis=affine.axis, out_dtype=affine.dtype), True))
    return make("minimum", make("maximum", arg, parts[0]), parts[1]), affine


def _relu(expr: Any, types: Types) -> Sequence[Any]:
    arg = expr.args[0]
    affine = types[arg]
    zero = make("cast", _along(affine.zero_point, affine, arg), affine.dtype)
    return make("maximum", arg, folded(zero)), affine


def _leaky_relu(expr: Any, types: Types) -> Sequence[Any]:
    source, target = types[expr.args[0]], types[expr]
    scales = (source.scale, source.zero_point, target.scale, target.zero_point)
    return make("qnn.leaky_relu", expr.args[0], expr.attrs["alpha"], *scales), target


def _pad(expr: Any, types: Types) -> Sequence[Any]:
    arg, affine = expr.args[0], types[expr.args[0]]
    value = expr.args[1] if len(expr.args) > 1 else Constant(np.float32(expr.attrs["pad_value"]))
    if value in types:
        value = value if types[value].same(affine) else _requantized(value, types[value], affine)
    else:
        value = folded(_quantized(value, affine), True)
    attrs = {name: each for name, each in expr.attrs.items() if name != "pad_value"}
    return make("nn.pad", arg, pad_value=value, **attrs), affine


def _mean(expr: Any, types: Types) -> Sequence[Any]:
    affine = types[expr.args[0]]
    mean = rebuilt(expr, [make("cast", expr.args[0], "float32")])
    return make("cast", make("round", mean), affine.dtype), affine


def _operands(expr: Any, types: Types) -> tuple[list[Expr], list[Affine], Affine]:
    """A binary call's operands as integers: one of them may be a constant."""
    known = [types.get(arg) for arg in expr.args]
    other = known[0] or known[1]
    if other is None:
        raise CompileError("neither operand is quantized")
    args = [arg if own else _quantized(arg, other) for arg, own in zip(expr.args, known, strict=True)]
    several = [own or other for own in known]
    target = types[expr]
    return args, several, target if several[0].dtype == target.dtype else several[0]


def _arithmetic(name: str) -> Rule:
    def rule(expr: Any, types: Types) -> Sequence[Any]:
        (left, right), (a, b), target = _operands(expr, types)
        if name == "qnn.add" and a.dtype == "int32" and a.same(b) and a.same(target) and _is_zero(target.zero_point):
            return make("add", left, right), a
        scales = (a.scale, a.zero_point, b.scale, b.zero_point, target.scale, target.zero_point)
        if any(shape_of(each) for each in scales[4:]):
            raise CompileError(f"{name}: expected one scale and zero point of the result")
        return make(name, left, right, *scales, a.axis, b.axis), target

    return rule


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Constant) and not expr.array.any()


def _compared(name: str) -> Rule:
    def rule(expr: Any, types: Types) -> Sequence[Any]:
        args, several, target = _operands(expr, types)
        same = [
            arg if own is target else _requantized(arg, own, target) for arg, own in zip(args, several, strict=True)
        ]
        return make(name, *same), target

    return rule


def _unary(name: str) -> Rule:
    def rule(expr: Any, types: Types) -> Sequence[Any]:
        source, target = types[expr.args[0]], types[expr]
        scales = (source.scale, source.zero_point, target.scale, target.zero_point)
        return make(name, expr.args[0], *scales), target

    return rule


def _softmax(expr: Any, types: Types) -> Sequence[Any]:
    source, target = types[expr.args[0]], types[expr]
    scales = (source.scale, source.zero_point, target.scale, target.zero_point)
    return make("qnn.softmax", expr.args[0], *scales, **expr.attrs), target


_MOVES = """
    reshape squeeze strided_slice transpose expand_dims nn.max_pool2d nn.batch_flatten nn.depth_to_space max min image.resize2d
    broadcast_to take
"""
RULES: dict[str, Rule] = {
    **dict.fromkeys(_MOVES.split(), _same),
    **{
        name: _unary(f"qnn.{name}")
        for name in ["sqrt", "rsqrt", "exp", "erf", "sigmoid", "hardswish", "tanh", "abs", "log"]
    },
    "qnn.dequantize": _dequantize,
    "qnn.quantize": _quantize,
    "nn.avg_pool2d": _avg_pool,
    "nn.adaptive_avg_pool1d": _mean_pool,
    "nn.global_avg_pool2d": _mean_pool,
    "nn.bias_add": _bias_add,
    "nn.conv2d": _product("qnn.conv2d", _channels),
    "nn.conv2d_transpose": _product("qnn.conv2d_transpose", _channels),
    "nn.dense": _product("qnn.dense", lambda expr, x: 1),
    "nn.batch_matmul": _product("qnn.batch_matmul", lambda expr, x: x.axis),
    "concatenate": _concatenate,
    "split": _split,
    "topk": _topk,
    "clip": _clip,
    "nn.relu": _relu,
    "nn.leaky_relu": _leaky_relu,
    "nn.pad": _pad,
    "mean": _mean,
    "add": _arithmetic("qnn.add"),
    "multiply": _arithmetic("qnn.mul"),
    "subtract": _arithmetic("qnn.subtract"),
    "minimum": _compared("minimum"),
    "maximum": _compared("maximum"),
}
OPTIONAL_RULES: dict[str, Rule] = {"nn.softmax": _softmax}


def _rule(name: str, optional: Sequence[str]) -> Rule | None:
    op = Op.get(name)
    own = op.get_attr(REGISTERED) or (op.get_attr(OPTIONAL) if name in optional else None)
    return own or RULES.get(name) or (OPTIONAL_RULES.get(name) if name in optional else None)


def _region(quantize: Any) -> list[Expr] | None:
    """The expressions from what is quantized back to what was dequantized, parts first; None where something else goes in."""
    found: dict[int, Expr] = {}
    stack: list[tuple[Any, bool]] = [(quantize.args[0], False)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            found[id(expr)] = expr
        elif id(expr) not in found:
            stack.append((expr, True))
            if isinstance(expr, (Tuple, TupleGetItem)) or (op_of(expr) and op_of(expr) != "qnn.dequantize"):
                stack += [(child, False) for child in children(expr)]
            elif op_of(expr) != "qnn.dequantize" and not isinstance(expr, Constant):
                return None
    return list(found.values())


def _on_integers(old: Any, quantize: Any, optional: Sequence[str]) -> Expr:
    """What is quantized, computed on integers. Raises CompileError where an operator has no rule."""
    region = _region(quantize)
    if region is None or not any(op_of(each) for each in region):
        return quantize
    for each in region:
        if op_of(each) and _rule(op_of(each), optional) is None:
            raise CompileError(f"FakeQuantizationToInteger: there is no rule for {op_of(each)}")
    types: Types = {}
    made: dict[int, Expr] = {}
    target = Affine(quantize.args[1], quantize.args[2], quantize.attrs["out_dtype"], quantize.attrs["axis"])
    for each in (*region, quantize):
        is_leaf = op_of(each) == "qnn.dequantize" or isinstance(each, Constant)
        new: Any = each if is_leaf else rebuilt(each, [made.get(id(child), child) for child in children(each)])
        name = op_of(each)
        if isinstance(new, Tuple):
            types[new] = Affines(tuple(types[field] for field in new.fields))
        elif isinstance(new, TupleGetItem):
            types[new] = types[new.tuple_value].types[new.index]
        elif name:
            dtype = getattr(each.args[0].checked_type, "dtype", "int8") if name == "qnn.dequantize" else ""
            types[new] = Affine(each.args[1], each.args[2], dtype, each.attrs["axis"]) if dtype else target
            rule = _rule(name, optional)
            assert rule is not None
            result, meaning = rule(new, types)
            result = result if isinstance(result, Expr) else result.astuple()
            types[result] = meaning
            new = result
        made[id(each)] = new
    return made[id(quantize)]


def FakeQuantizationToInteger(
    hard_fail: bool = False, use_qat: bool = False, optional_qnn_ops: Sequence[str] | None = None
) -> Pass:
    """Operators between `qnn.dequantize` and `qnn.quantize` on integers. Where one has no rule, its part stays as it is; with
    `hard_fail` that raises. `use_qat`, for parts that no quantize ends, is not there: quantize what they give."""
    if use_qat:
        raise CompileError(
            "FakeQuantizationToInteger(use_qat=True): only parts that end in qnn.quantize are changed; add one"
        )

    def change(function: Function, _: IRModule) -> Expr:
        def rule(old: Any, new: Any) -> Expr | None:
            if op_of(old) != "qnn.quantize":
                return None
            try:
                return _on_integers(old, new, optional_qnn_ops or ())
            except (TreadleError, NotImplementedError, AssertionError, KeyError):
                if hard_fail:
                    raise
                return None

        return rewrite(function, rule)

    return each_function("FakeQuantizationToInteger", change, level=0)
