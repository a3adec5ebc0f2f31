"""gradient: the program with its gradients, in reverse mode (`first_order_gradient.cc`; rules as in `_tensor_grad.py`).

Calls of functions are put in the place of their bodies first, lets give way to sharing; then, from the result back, each
expression tells its parts their gradients. The result is an ordinary function, whose gradient can be taken again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....formats.messages.errors import CompileError
from ...transform import ModulePass, PassInfo
from .. import ty
from ..expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Op, Tuple, TupleGetItem, Var
from ..infer import infer_module
from ..module import IRModule
from ..visit import postorder
from .core import make, op_of, static_shape, type_of, typed
from .functions import expanded, own_functions

Rule = Callable[
    [Any, Any], Sequence[Any]
]  # a call, the gradient of its result → those of its operands; None: it has none
Adjoint = Any  # of a tensor an expression, of a tuple a list; None: nothing depends on it


def _n(value: float, like: Expr) -> Constant:
    """A number of the element type of a tensor."""
    return Constant(np.array(value, getattr(type_of(like), "dtype", "float32")))


def _to(grad: Expr, x: Expr) -> Expr:
    """A gradient summed over what was broadcast, in the shape of the operand."""
    return make("collapse_sum_like", grad, x)


def _zeros(x: Expr) -> Expr:
    return make("zeros_like", x)


def _elementwise(slope: Callable[[Any, Any], Expr]) -> Rule:
    """A function of one tensor, by its slope at x, where it is y."""
    return lambda call, grad: [grad * slope(call.args[0], call)]


_SLOPES: dict[str, Callable[[Any, Any], Expr]] = {
    "log": lambda x, y: _n(1, x) / x,
    "log2": lambda x, y: _n(1 / math.log(2), x) / x,
    "log10": lambda x, y: _n(1 / math.log(10), x) / x,
    "exp": lambda x, y: y,
    "sqrt": lambda x, y: _n(0.5, x) / y,
    "rsqrt": lambda x, y: _n(-0.5, x) * y / x,
    "sigmoid": lambda x, y: y * (_n(1, x) - y),
    "tanh": lambda x, y: _n(1, x) - y * y,
    "sin": lambda x, y: make("cos", x),
    "cos": lambda x, y: -make("sin", x),
    "tan": lambda x, y: _n(1, x) + y * y,
    "sinh": lambda x, y: make("cosh", x),
    "cosh": lambda x, y: make("sinh", x),
    "asin": lambda x, y: make("rsqrt", _n(1, x) - x * x),
    "acos": lambda x, y: -make("rsqrt", _n(1, x) - x * x),
    "atan": lambda x, y: _n(1, x) / (_n(1, x) + x * x),
    "asinh": lambda x, y: make("rsqrt", x * x + _n(1, x)),
    "acosh": lambda x, y: make("rsqrt", x * x - _n(1, x)),
    "atanh": lambda x, y: _n(1, x) / (_n(1, x) - x * x),
    "erf": lambda x, y: _n(2 / math.sqrt(math.pi), x) * make("exp", -(x * x)),
    "negative": lambda x, y: make("negative", make("ones_like", x)),
    "copy": lambda x, y: make("ones_like", x),
    "abs": lambda x, y: make("sign", x),
    "nn.relu": lambda x, y: make("cast_like", make("greater", x, _n(0, x)), x),
    "nn.leaky_relu": lambda x, y: make("where", make("greater", x, _n(0, x)), make("ones_like", x), _slope_of(y, x)),
    "clip": lambda x, y: make("cast_like", make("logical_and", *_inside(x, y.attrs)), x),
}


def _slope_of(call: Any, x: Expr) -> Expr:
    return make("full_like", x, _n(call.attrs["alpha"], x))


def _inside(x: Expr, attrs: Any) -> tuple[Expr, Expr]:
    return make("greater_equal", x, _n(attrs["a_min"], x)), make("less_equal", x, _n(attrs["a_max"], x))


def _binary(left: Callable[..., Expr], right: Callable[..., Expr]) -> Rule:
    """A broadcasting function of two tensors, by the gradients of each."""
    return lambda call, grad: [
        _to(part(grad, *call.args, call), x) for part, x in zip((left, right), call.args, strict=True)
    ]


def _chosen(name: str) -> Rule:
    def rule(call: Any, grad: Any) -> Sequence[Any]:
        first = make(name, *call.args)
        zero = make("zeros_like", call)
        return [
            _to(make("where", first, *pair), x) for pair, x in zip(((grad, zero), (zero, grad)), call.args, strict=True)
        ]

    return rule


_BINARY: dict[str, Rule] = {
    "add": _binary(lambda g, x, y, z: g, lambda g, x, y, z: g),
    "subtract": _binary(lambda g, x, y, z: g, lambda g, x, y, z: -g),
    "multiply": _binary(lambda g, x, y, z: g * y, lambda g, x, y, z: g * x),
    "divide": _binary(lambda g, x, y, z: g / y, lambda g, x, y, z: -(g * z / y)),
    "power": _binary(
        lambda g, x, y, z: g * y * make("power", x, y - _n(1, y)), lambda g, x, y, z: g * z * make("log", x)
    ),
    "maximum": _chosen("greater_equal"),
    "minimum": _chosen("less_equal"),
}


def _shape(x: Expr) -> tuple[int, ...]:
    shape = static_shape(x)
    if shape is None:
        raise CompileError(f"gradient: the shape of an operand must be known, got {type_of(x)}")
    return shape


def _axes(call: Any) -> list[int]:
    rank, axis = len(_shape(call.args[0])), call.attrs.get("axis")
    several = list(range(rank)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    several = [int(each) % rank for each in several]
    return [each for each in range(rank) if each not in several] if call.attrs.get("exclude") else sorted(several)


def _spread(value: Expr, call: Any) -> Expr:
    """What belongs to a reduced tensor, in the shape that it had before."""
    x = call.args[0]
    if not call.attrs.get("keepdims"):
        value = make("reshape", value, [1 if axis in _axes(call) else size for axis, size in enumerate(_shape(x))])
    return make("broadcast_to", value, _shape(x))


def _count(call: Any) -> int:
    return math.prod(_shape(call.args[0])[axis] for axis in _axes(call))


def _variance(call: Any, grad: Any) -> Sequence[Any]:
    x = call.args[0]
    mean = make("mean", x, _axes(call), True)
    count = _count(call) - bool(call.attrs.get("unbiased"))
    none = [None] * (len(call.args) - 1)
    return [_spread(grad, call) * (x - mean) * _n(2 / count, x), *none]


def _extremum(call: Any, grad: Any) -> Sequence[Any]:
    x = call.args[0]
    mask = make("cast_like", make("equal", x, _spread(call, call)), x)
    return [_spread(grad, call) * mask]


def _softmax(call: Any, grad: Any) -> Sequence[Any]:
    return [(grad - make("sum", grad * call, call.attrs["axis"], True)) * call]


def _log_softmax(call: Any, grad: Any) -> Sequence[Any]:
    axis = call.attrs["axis"]
    return [grad - make("sum", grad, axis, True) * make("nn.softmax", call.args[0], axis)]


def _concatenate(call: Any, grad: Any) -> Sequence[Any]:
    axis = call.attrs["axis"]
    several = [field.shape for field in type_of(call.args[0]).fields]  # type: ignore[union-attr]
    ends = np.cumsum([int(shape[axis]) for shape in several])[:-1].tolist()
    if len(several) == 1:
        return [[grad]]
    parts = make("split", grad, tuple(ends), axis)
    return [[parts[place] for place in range(len(several))]]


def _stack(call: Any, grad: Any) -> Sequence[Any]:
    axis, count = call.attrs["axis"], len(type_of(call.args[0]).fields)  # type: ignore[union-attr]
    if count == 1:
        return [[make("squeeze", grad, [axis])]]
    parts = make("split", grad, count, axis)
    return [[make("squeeze", parts[place], [axis]) for place in range(count)]]


def _split(call: Any, grad: Any) -> Sequence[Any]:
    fields = type_of(call).fields  # type: ignore[union-attr]
    known = [
        part if part is not None else make("zeros", tuple(map(int, field.shape)), field.dtype)
        for part, field in zip(grad, fields, strict=True)
    ]
    return [make("concatenate", Tuple(known), call.attrs["axis"])]


def _dense(call: Any, grad: Any) -> Sequence[Any]:
    data, weight = call.args
    flipped = [make("transpose", each) for each in (weight, grad, data)]
    return [_to(make("nn.dense", grad, flipped[0]), data), _to(make("nn.dense", flipped[1], flipped[2]), weight)]


def _matmul(name: str) -> Rule:
    def rule(call: Any, grad: Any) -> Sequence[Any]:
        a, b = call.args
        flip_a, flip_b = call.attrs.get("transpose_a", False), call.attrs.get("transpose_b", name == "nn.batch_matmul")

        def product(x: Expr, y: Expr, flip_x: bool, flip_y: bool) -> Expr:
            return make(name, x, y, transpose_a=flip_x, transpose_b=flip_y)

        left = product(b, grad, flip_b, True) if flip_a else product(grad, b, False, not flip_b)
        right = product(grad, a, True, flip_a) if flip_b else product(a, grad, not flip_a, False)
        return [_to(left, a), _to(right, b)]

    return rule


def _conv2d(call: Any, grad: Any) -> Sequence[Any]:
    """Of NCHW data and OIHW weights of one group."""
    data, weight = call.args
    attrs = call.attrs
    layouts = (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"] or attrs["data_layout"])
    if layouts != ("NCHW", "OIHW", "NCHW") or attrs["groups"] != 1:
        raise CompileError(
            f"gradient: nn.conv2d of the layouts {layouts} and {attrs['groups']} groups has no rule; see ConvertLayout"
        )
    pads = [*map(int, np.ravel(attrs["padding"]))]
    pads = (pads * 2 if len(pads) == 2 else pads * 4) if len(pads) < 4 else pads
    strides, dilation = ([*map(int, np.ravel(attrs[key]))] * 2 for key in ("strides", "dilation"))
    strides, dilation = strides[:2], dilation[:2]
    sizes, kernel, results = _shape(data)[2:], _shape(weight)[2:], _shape(call)[2:]
    rest = [
        sizes[axis]
        - ((results[axis] - 1) * strides[axis] - pads[axis] - pads[axis + 2] + (kernel[axis] - 1) * dilation[axis] + 1)
        for axis in (0, 1)
    ]
    back = make(
        "nn.conv2d_transpose",
        *(grad, weight),
        strides=strides,
        padding=pads,
        dilation=dilation,
        channels=_shape(data)[1],
        kernel_size=kernel,
        output_padding=rest,
        kernel_layout="IOHW",
    )
    turned = [make("transpose", each, [1, 0, 2, 3]) for each in (data, grad)]
    taps = make(
        "nn.conv2d",
        *turned,
        strides=dilation,
        padding=pads,
        dilation=strides,
        channels=_shape(call)[1],
        kernel_size=results,
    )
    taps = make("strided_slice", taps, [0, 0], list(kernel), axes=[2, 3])
    return [back, make("transpose", taps, [1, 0, 2, 3])]


def _bias_add(call: Any, grad: Any) -> Sequence[Any]:
    rank = len(_shape(call))
    return [grad, make("sum", grad, [axis for axis in range(rank) if axis != call.attrs["axis"] % rank])]


def _global_pool(call: Any, grad: Any) -> Sequence[Any]:
    x = call.args[0]
    shape, layout = _shape(x), call.attrs["layout"]
    count = math.prod(size for size, axis in zip(shape, layout, strict=True) if axis in "HW")
    return [make("broadcast_to", grad * _n(1 / count, x), shape)]


def _transpose(call: Any, grad: Any) -> Sequence[Any]:
    axes = call.attrs["axes"]
    rank = len(_shape(call))
    return [make("transpose", grad, np.argsort([axis % rank for axis in axes]).tolist() if axes else None)]


def _where(call: Any, grad: Any) -> Sequence[Any]:
    condition, x, y = call.args
    zero = make("zeros_like", call)
    return [None, _to(make("where", condition, grad, zero), x), _to(make("where", condition, zero, grad), y)]


def _cross_entropy(call: Any, grad: Any) -> Sequence[Any]:
    x, y = call.args
    rows = _n(_shape(x)[0], x)
    return [-grad * y / (x * rows), -grad * make("log", x) / rows]


_reshaped: Rule = lambda call, grad: [make("reshape_like", grad, call.args[0]), *[None] * (len(call.args) - 1)]  # noqa: E731
_summed: Rule = lambda call, grad: [_to(grad, call.args[0]), *[None] * (len(call.args) - 1)]  # noqa: E731
_none: Rule = lambda call, grad: [None] * len(call.args)  # noqa: E731
_CONSTANT = """
    zeros ones zeros_like ones_like full_like full arange shape_of ndarray_size argmax argmin one_hot equal not_equal less
    less_equal greater greater_equal logical_and logical_or logical_not logical_xor sign floor ceil round trunc isnan
    isinf isfinite
"""

RULES: dict[str, Rule] = {
    **{name: _elementwise(slope) for name, slope in _SLOPES.items()},
    **_BINARY,
    **dict.fromkeys(
        ("reshape", "squeeze", "expand_dims", "nn.batch_flatten", "reshape_like", "contrib_reverse_reshape"), _reshaped
    ),
    **dict.fromkeys(("broadcast_to", "broadcast_to_like"), _summed),
    **dict.fromkeys(_CONSTANT.split(), _none),
    "collapse_sum_like": lambda call, grad: [make("broadcast_to_like", grad, call.args[0]), None],
    "collapse_sum_to": lambda call, grad: [
        make("broadcast_to_like", grad, call.args[0]),
        *[None] * (len(call.args) - 1),
    ],
    "cast": lambda call, grad: [make("cast_like", grad, call.args[0])],
    "cast_like": lambda call, grad: [make("cast_like", grad, call.args[0]), None],
    "sum": lambda call, grad: [_spread(grad, call)],
    "mean": lambda call, grad: [_spread(grad, call) * _n(1 / _count(call), call.args[0])],
    "variance": _variance,
    "max": _extremum,
    "min": _extremum,
    "nn.softmax": _softmax,
    "nn.log_softmax": _log_softmax,
    "concatenate": _concatenate,
    "split": _split,
    "nn.dense": _dense,
    "nn.matmul": _matmul("nn.matmul"),
    "nn.batch_matmul": _matmul("nn.batch_matmul"),
    "nn.conv2d": _conv2d,
    "nn.bias_add": _bias_add,
    "nn.global_avg_pool2d": _global_pool,
    "transpose": _transpose,
    "where": _where,
    "stack": _stack,
    **dict.fromkeys(("annotation.checkpoint", "annotation.stop_fusion", "on_device"), lambda call, grad: [grad]),
    "nn.cross_entropy": _cross_entropy,
    "nn.cross_entropy_with_logits": lambda call, grad: [
        -grad * call.args[1] * _n(1 / _shape(call.args[0])[0], call.args[0]),
        -grad * call.args[0] * _n(1 / _shape(call.args[0])[0], call.args[0]),
    ],
}


def _rule(name: str) -> Rule:
    registered = Op.get(name).get_attr("FPrimalGradient")
    if registered is None and name not in RULES:
        raise CompileError(f"gradient: {name} has no rule; relay.op.register_gradient({name!r}, rule) gives it one")
    return registered or RULES[name]


# ---- the program as a graph of operators ----


def _inlined(function: Function, module: IRModule | None) -> Function:
    """Without lets and calls of functions. Raises CompileError for one that calls itself."""
    function = expanded(function, module)
    for each in postorder(function.body):
        plain = isinstance(each, (Var, Constant, Tuple, TupleGetItem, If)) or bool(op_of(each))
        if not plain:
            what = "a function that calls itself" if isinstance(each, (Let, Call)) else f"a {type(each).__name__}"
            raise CompileError(f"gradient: the function has {what}; unroll it, or take the gradient of what it calls")
    return function


def _plus(a: Adjoint, b: Adjoint) -> Adjoint:
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, list) or isinstance(b, list):
        return [_plus(x, y) for x, y in zip(a, b, strict=True)]
    return a + b


def _whole(adjoint: Adjoint, value: Expr, type_: ty.Type | None) -> Expr:
    """A gradient as an expression of the value's type: zeros where nothing depends on it."""
    if isinstance(type_, ty.TupleType):
        fields = adjoint if isinstance(adjoint, list) else [None] * len(type_.fields)
        return Tuple(
            [
                _whole(each, TupleGetItem(value, at), field)
                for at, (each, field) in enumerate(zip(fields, type_.fields, strict=True))
            ]
        )
    return _zeros(value) if adjoint is None else adjoint


def _ones(value: Expr, type_: ty.Type | None) -> Adjoint:
    """Of a tuple the first field is what the gradient is of, as in TVM."""
    if isinstance(type_, ty.TupleType):
        rest: list[Any] = [None] * (len(type_.fields) - 1)
        return [_ones(TupleGetItem(value, 0), type_.fields[0]), *rest]
    return make("ones_like", value)


def _halved(condition: Expr, adjoint: Adjoint, holds: bool) -> Adjoint:
    """A gradient where a condition holds, zeros elsewhere."""
    if adjoint is None or isinstance(adjoint, list):
        return adjoint and [_halved(condition, each, holds) for each in adjoint]
    zero = _zeros(adjoint)
    return If(condition, *((adjoint, zero) if holds else (zero, adjoint)))


def _parts(expr: Any, adjoint: Adjoint) -> list[tuple[Expr, Adjoint]]:
    """What an expression's gradient tells its parts."""
    if isinstance(expr, Tuple):
        return list(zip(expr.fields, adjoint, strict=True))
    if isinstance(expr, TupleGetItem):
        fields: list[Any] = [None] * len(type_of(expr.tuple_value).fields)  # type: ignore[union-attr]
        fields[expr.index] = adjoint
        return [(expr.tuple_value, fields)]
    if isinstance(expr, If):
        branches = ((expr.true_branch, True), (expr.false_branch, False))
        return [(branch, _halved(expr.cond, adjoint, holds)) for branch, holds in branches]
    if not op_of(expr):
        return []
    return list(zip(expr.args, _rule(op_of(expr))(expr, adjoint), strict=True))


def gradient(expr: Any, mod: IRModule | None = None, mode: str = "higher_order") -> Function:
    """A function of the same parameters that gives the result and the tuple of the parameters' gradients: of the sum of the
    result, or of its first field. `mode` is TVM's, "first_order" or "higher_order"; both are the same here.

    Raises CompileError for an operator without a rule, and for functions that call themselves.
    """
    if mode not in ("first_order", "higher_order"):
        raise CompileError(f"gradient: mode={mode!r}: expected 'first_order' or 'higher_order'")
    function = mod[expr] if isinstance(expr, GlobalVar) and mod is not None else expr
    if not isinstance(function, Function):
        raise CompileError(f"gradient: expected a function, got a {type(function).__name__}")
    function = _inlined(function, mod)
    infer_module(IRModule.from_expr(function))
    adjoints: dict[int, Adjoint] = {id(function.body): _ones(function.body, type_of(function.body))}
    for each in reversed(list(postorder(function.body))):
        adjoint = adjoints.get(id(each))
        if adjoint is not None:
            for part, told in _parts(each, adjoint):
                adjoints[id(part)] = _plus(adjoints.get(id(part)), told)
    grads = [_whole(adjoints.get(id(param)), param, type_of(param)) for param in function.params]
    return Function(function.params, Tuple([function.body, Tuple(grads)]), None, function.type_params)


def FirstOrderGradient() -> ModulePass:
    """Each function as the one that gives its gradients too."""

    def run(module: IRModule, _: Any) -> IRModule:
        made = typed(module).shallow_copy()
        for name, function in own_functions(module).items():
            made._functions[name] = gradient(function, module)
        return typed(made)

    return ModulePass(PassInfo(0, "FirstOrderGradient"), run)
