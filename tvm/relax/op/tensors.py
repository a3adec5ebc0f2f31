"""Relax's operators on tensors, in Treadle's operators and in the bodies of Relay's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, cast

import numpy as np

from ....compiler.builder.programs import Expression, constant, match_shape, tuple_
from ....compiler.builder.programs import op as own
from ...relay import op as _relay_operators  # noqa: F401  they register themselves
from ...relay.op.table import TABLE as RELAY
from ...relay.op.table import rank_of, shape_of, type_of
from .table import Rows, element_type, numbers_of, register

_ONE = """
    abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp floor isfinite isinf isnan log logical_not negative
    round rsqrt sigmoid sign sin sinh sqrt square tan tanh
"""
_TWO = """
    add bitwise_and bitwise_or bitwise_xor divide equal floor_divide greater greater_equal left_shift less less_equal
    logical_and logical_or logical_xor maximum minimum mod multiply not_equal power right_shift subtract
"""
UNARY, BINARY = _ONE.split(), _TWO.split()
OTHER_WORDS = {
    "bitwise_not": "bitwise_invert",
    "left_shift": "shift_left",
    "mod": "remainder",
    "power": "pow",
    "right_shift": "shift_right",
}
REDUCTIONS = ("max", "mean", "min", "prod", "sum")


def relay(name: str, *args: Any, **attributes: Any) -> Any:
    """The body of Relay's operator; attributes that are None are left out."""
    return RELAY[name].function(*args, **{key: value for key, value in attributes.items() if value is not None})


def _unary(name: str) -> Callable[..., Any]:
    return lambda x: getattr(own, name)(x)


def _binary(name: str) -> Callable[..., Any]:
    return lambda x1, x2: getattr(own, name)(x1, x2)


def _reduction(name: str) -> Callable[..., Any]:
    return lambda x, *, axis=None, keepdims=False: getattr(own, name)(x, axes=axis, keepdims=keepdims)


_REQUIRED = Parameter.empty  # the default of an attribute that has none
_LAYOUTS = ("data_layout", "kernel_layout")


def _relayed(name: str, arguments: str, **defaults: Any) -> Callable[..., Any]:
    """Relay's operator: a body of these arguments and attributes, of which Relay's gets those that it has."""
    known = RELAY[name].signature.parameters.keys() - {"out_layout"}
    usual = {key: value for key, value in defaults.items() if value not in ("void", _REQUIRED)}

    def body(*args: Any, **attributes: Any) -> Any:
        given = {**usual, **attributes}
        return relay(name, *args, **{key: given[key] for key in given if key in known})

    return _signed(body, arguments, defaults)


def _signed(body: Callable[..., Any], arguments: str, defaults: Mapping[str, Any]) -> Callable[..., Any]:
    """The body, which says what it takes."""
    parameters = [Parameter(each, Parameter.POSITIONAL_OR_KEYWORD) for each in arguments.split()]
    parameters += [Parameter(key, Parameter.KEYWORD_ONLY, default=value) for key, value in defaults.items()]
    body.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return body


def _window(count: int) -> dict[str, Any]:
    """What convolutions over `count` axes have in common."""
    return {"strides": (1,) * count, "padding": (0,) * (2 * count), "dilation": (1,) * count, "groups": 1}


def _layouts(count: int, kernel: str) -> dict[str, Any]:
    space = "DHW"[3 - count :]
    kinds = {"data_layout": f"NC{space}", "kernel_layout": f"{kernel}{space}"}
    return {**kinds, "out_layout": None, "out_dtype": "void"}


def _conv(count: int) -> Callable[..., Any]:
    defaults = {**_window(count), **_layouts(count, "OI")}
    relayed = _relayed(f"nn.conv{count}d", "data weight", **defaults)

    def body(data: Any, weight: Any, **attributes: Any) -> Any:
        given = {**defaults, **attributes}
        if given["out_dtype"] not in (None, "void") or any(given[key] != defaults[key] for key in _LAYOUTS):
            return relayed(data, weight, **given)
        channels: Any = type_of(data).shape[1]
        outputs, own_channels, *size = cast(Any, type_of(weight).shape)
        is_known = isinstance(channels, int) and isinstance(own_channels, int)
        if given["groups"] == 1 and channels != own_channels and not is_known:
            weight = match_shape(weight, (outputs, channels, *size))  # a run says whether they are one
        window = {"strides": given["strides"], "pads": given["padding"], "dilations": given["dilation"]}
        return own.conv(data, weight, groups=given["groups"], **window)

    return _signed(body, "data weight", defaults)


def _transposed(count: int) -> Callable[..., Any]:
    window = _window(count)
    before = {name: window.pop(name) for name in ("strides", "padding")}  # TVM's order
    defaults = {**before, "output_padding": (0,) * count, **window, **_layouts(count, "IO")}
    return _relayed(f"nn.conv{count}d_transpose", "data weight", **defaults)


def _pool(name: str, count: int) -> Callable[..., Any]:
    window = {"strides": None, "padding": (0,) * (2 * count), "dilation": (1,) * count}
    layout = {"layout": f"NC{'DHW'[3 - count :]}", "out_layout": None}
    defaults = {"pool_size": (1,) * count, **window, "ceil_mode": False, "count_include_pad": False, **layout}
    relayed = _relayed(f"nn.{name}_pool{count}d", "data", **defaults)

    def body(data: Any, **attributes: Any) -> Any:
        given = {**defaults, **attributes}
        return relayed(data, **{**given, "strides": given["strides"] or given["pool_size"]})

    return _signed(body, "data", defaults)


def _full(shape: Any, value: Any, dtype: Any) -> Expression:
    known = numbers_of(value)
    if isinstance(known, (int, float)):
        return own.full(shape=tuple(shape), value=known, dtype=dtype or "float32")
    return own.broadcast_to(own.cast(value, dtype=dtype) if dtype else value, shape=tuple(shape))


def _cast(x: Expression, dtype: Any) -> Expression:
    return own.cast(x, dtype=dtype) if dtype else x


def _norm(x: Expression, axes: Any) -> tuple[int, bool]:
    first = min(axis % rank_of(x) for axis in axes)
    return first, sorted(axis % rank_of(x) for axis in axes) == list(range(first, rank_of(x)))


def _layer_norm(
    data: Any, gamma: Any, beta: Any, *, axes: Any, epsilon: Any = 1e-5, center: Any = True, scale: Any = True
) -> Any:
    first, is_tail = _norm(data, axes)
    if is_tail and center and scale:
        return own.layer_normalization(data, gamma, beta, axis=first - rank_of(data), epsilon=epsilon)
    made = _normal(data, [axis % rank_of(data) for axis in axes], epsilon)
    made = own.multiply(made, gamma) if scale else made
    return own.add(made, beta) if center else made


def _normal(x: Expression, axes: Any, epsilon: float) -> Expression:
    centred = own.subtract(x, own.mean(x, axes=tuple(axes), keepdims=True))
    variance = own.mean(own.square(centred), axes=tuple(axes), keepdims=True)
    return own.multiply(centred, own.rsqrt(own.add(variance, constant(epsilon, element_type(x)))))


def _rms_norm(data: Any, weight: Any, *, axes: Any, epsilon: Any = 1e-5) -> Any:
    first, is_tail = _norm(data, axes)
    if not is_tail:
        raise NotImplementedError("relax.nn.rms_norm: axes: expected the last ones")
    return own.rms_normalization(data, weight, axis=first - rank_of(data), epsilon=epsilon)


def _group_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    *,
    num_groups: Any,
    channel_axis: Any,
    axes: Any,
    epsilon: Any = 1e-5,
    center: Any = True,
    scale: Any = True,
) -> Any:
    rank = rank_of(data)
    order = [channel_axis % rank, *(axis for axis in range(1, rank) if axis != channel_axis % rank)]
    moved = own.permute_dims(data, axes=(0, *order))
    gamma = gamma if scale else _like("ones")(gamma)
    beta = beta if center else _like("zeros")(beta)
    made = own.group_normalization(moved, gamma, beta, groups=num_groups, epsilon=epsilon)
    back = np.argsort([0, *order]).tolist()
    return own.permute_dims(made, axes=tuple(back)) if back != list(range(rank)) else made


def _attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    *,
    scale: Any = None,
    causal_mask: Any = None,
    window_size: Any = None,
) -> Any:
    """Tensors of (batch, length, heads, depth). Raises NotImplementedError for a window."""
    if window_size is not None:
        raise NotImplementedError(f"relax.nn.attention: window_size: expected None, got {window_size!r}")
    q, k, v = (own.permute_dims(each, axes=(0, 2, 1, 3)) for each in (query, key, value))
    depth: Any = type_of(q).shape[-1]
    scores = own.matmul(q, own.permute_dims(k, axes=(0, 1, 3, 2)))
    factor = depth**-0.5 if scale is None else scale
    scores = own.multiply(scores, constant(factor, element_type(q)))
    if bias is not None:
        scores = own.add(scores, bias)
    if causal_mask is not None:
        rows, columns = cast(Any, type_of(scores).shape[-2:])
        shift = columns - rows if causal_mask == "BottomRight" else 0
        seen = own.less_equal(
            own.reshape(own.arange(start=0, stop=columns, step=1, dtype="int64"), shape=(1, columns)),
            own.reshape(own.arange(start=shift, stop=rows + shift, step=1, dtype="int64"), shape=(rows, 1)),
        )
        scores = own.where(seen, scores, constant(float(np.finfo("float32").min), element_type(q)))
    return own.permute_dims(own.matmul(own.softmax(scores, axis=-1), v), axes=(0, 2, 1, 3))


def _slice(x: Any, axes: Any, begin: Any, end: Any, strides: Any = None, *, assume_inbound: Any = False) -> Any:
    axes, begin, end = (list(each) for each in (axes, begin, end))
    steps = [1] * len(axes) if strides is None else list(strides)
    return own.slice(x, starts=begin, ends=end, axes=axes, steps=steps)


def _take(x: Any, indices: Any, *, axis: Any = None) -> Any:
    if isinstance(indices, (int, float)):
        indices = constant(indices, "int64")
    return own.take(x, indices, axis=axis) if axis is not None else own.take(_flat(x), indices, axis=0)


def _flat(x: Expression) -> Expression:
    return own.reshape(x, shape=(-1,))


def _squeeze(x: Any, *, axis: Any = None) -> Any:
    if axis is None:
        axis = tuple(at for at, length in enumerate(type_of(x).shape) if length == 1)
    return own.squeeze(x, axes=axis)


def _split(x: Any, *, indices_or_sections: Any, axis: Any = 0) -> Any:
    length = type_of(x).shape[axis]
    if isinstance(indices_or_sections, int):
        return relay("split", x, indices_or_sections=indices_or_sections, axis=axis)
    ends = [*indices_or_sections, length]
    parts = zip([0, *indices_or_sections], ends, strict=True)
    return tuple_(*(own.slice(x, starts=[a], ends=[b], axes=[axis], steps=[1]) for a, b in parts))


def _unique(
    x: Any,
    sorted: Any = True,
    return_index: Any = False,
    return_inverse: Any = False,
    return_counts: Any = False,
    axis: Any = None,
) -> Any:
    if return_index or return_inverse or return_counts or axis is not None:
        raise NotImplementedError("relax.unique: expected the values alone, of the tensor flattened")
    found = relay("unique", _flat(x), is_sorted=bool(sorted))
    count = own.cast(own.reshape(found[3], shape=(1,)), dtype="int64")
    return relay("strided_slice", found[0], constant([0], "int64"), count)


def _topk(
    data: Any, *, k: Any = 1, axis: Any = -1, ret_type: Any = "both", largest: Any = True, dtype: Any = "int32"
) -> Any:
    values, indices = own.top_k(data, k=k, axis=axis, largest=largest, sorted=True)
    indices = own.cast(indices, dtype=dtype)
    return {"both": tuple_(values, indices), "values": values, "indices": indices}[ret_type]


def _linear(data: Any, weight: Any, bias: Any = None, *, out_dtype: Any = "void") -> Any:
    made = _cast(own.matmul(data, own.permute_dims(weight)), out_dtype)
    return made if bias is None else own.add(made, bias)


def _like(name: str) -> Callable[..., Any]:
    def body(x: Any, *, dtype: Any = "void") -> Any:
        x, shape = shape_of(x)
        return own.full(
            shape=shape, value=int(name == "ones"), dtype=element_type(x) if dtype in (None, "void") else dtype
        )

    return body


_RESIZE = {
    "roi": None,
    "layout": "NCHW",
    "method": "linear",
    "coordinate_transformation_mode": "half_pixel",
    "rounding_method": "round",
    "cubic_alpha": -0.5,
    "cubic_exclude": 0,
    "extrapolation_value": 0.0,
    "out_dtype": "void",
}
_BATCH = {"axis": _REQUIRED, "epsilon": 1e-5, "center": True, "scale": True, "momentum": 0.1}
ROWS: Rows = {
    **{name: _unary(OTHER_WORDS.get(name, name)) for name in UNARY},
    **{name: _binary(OTHER_WORDS.get(name, name)) for name in BINARY},
    **{name: _reduction(name) for name in REDUCTIONS},
    **{name: _relayed(name, "x", axis=None, keepdims=False) for name in ("std", "variance")},
    "arange": lambda start, end=None, step=1, *, dtype="void": own.arange(
        start=0 if end is None else start, stop=start if end is None else end, step=step, dtype=dtype or "int64"
    ),
    "argmax": lambda x, *, axis=None, keepdims=False: own.argmax(
        _flat(x) if axis is None else x, axis=axis or 0, keepdims=keepdims
    ),
    "argmin": lambda x, *, axis=None, keepdims=False: own.argmin(
        _flat(x) if axis is None else x, axis=axis or 0, keepdims=keepdims
    ),
    "argsort": lambda data, *, axis=-1, descending=False, dtype="int32": relay(
        "argsort", data, axis=axis, is_ascend=not descending, dtype=dtype
    ),
    "astype": lambda x, *, dtype: own.cast(x, dtype=dtype),
    "broadcast_to": lambda x, shape: own.broadcast_to(x, shape=tuple(shape)),
    "clip": lambda x, min, max: own.clip(x, min=min, max=max),
    "collapse_sum_like": _relayed("collapse_sum_like", "data collapse_target"),
    "collapse_sum_to": lambda data, shape: relay("collapse_sum_to", data, shape=shape),
    "concat": lambda tensors, *, axis=0: own.concat(
        *(tensors if axis is not None else map(_flat, tensors)), axis=axis or 0
    ),
    "cumprod": lambda data, *, axis=None, dtype="void", exclusive=False: own.cumulative_prod(
        _cast(data if axis is not None else _flat(data), dtype), axis=axis or 0, exclusive=exclusive
    ),
    "cumsum": lambda data, *, axis=None, dtype="void", exclusive=False: own.cumulative_sum(
        _cast(data if axis is not None else _flat(data), dtype), axis=axis or 0, exclusive=exclusive
    ),
    "einsum": lambda operands, *, subscripts: relay("einsum", operands, equation=subscripts),
    "ewise_fma": lambda x1, x2, x3: own.add(own.multiply(x1, x2), x3),
    "expand_dims": lambda x, *, axis: own.expand_dims(x, axes=axis),
    "flatten": _flat,
    "flip": lambda data, *, axis: relay("reverse", data, axis=axis),
    "full": lambda shape, fill_value, *, dtype="void": _full(shape, fill_value, dtype),
    "full_like": lambda x, fill_value, *, dtype="void": _full(type_of(x).shape, fill_value, dtype or element_type(x)),
    "image.resize2d": _relayed("image.resize2d", "data size", **_RESIZE),
    "linear": _linear,
    "matmul": lambda x1, x2, *, out_dtype="void": _cast(own.matmul(x1, x2), out_dtype),
    "nn.adaptive_avg_pool2d": _relayed(
        "nn.adaptive_avg_pool2d", "data", output_size=None, layout="NCHW", out_layout=None
    ),
    "nn.attention": _attention,
    "nn.batch_norm": _relayed("nn.batch_norm", "data gamma beta moving_mean moving_var", **_BATCH),
    **{f"nn.conv{count}d": _conv(count) for count in (1, 2, 3)},
    **{f"nn.conv{count}d_transpose": _transposed(count) for count in (1, 2)},
    **{f"nn.{name}_pool{count}d": _pool(name, count) for name in ("avg", "max") for count in (1, 2, 3)},
    "nn.dropout": lambda data, *, rate=0.5: tuple_(data, _like("ones")(data)),
    "nn.gelu": lambda data: own.gelu(data),
    "nn.gelu_tanh": lambda data: own.gelu(data, approximate="tanh"),
    "nn.group_norm": _group_norm,
    "nn.layer_norm": _layer_norm,
    "nn.leakyrelu": lambda data, *, alpha=0.01: own.leaky_relu(data, alpha=alpha),
    "nn.log_softmax": lambda data, *, axis=-1: own.log_softmax(data, axis=axis),
    "nn.pad": lambda data, *, pad_width, pad_value=0, pad_mode="constant": relay(
        "nn.pad",
        data,
        pad_width=tuple(zip(pad_width[::2], pad_width[1::2], strict=True)),
        pad_value=pad_value,
        pad_mode=pad_mode,
    ),
    "nn.relu": lambda data: own.relu(data),
    "nn.rms_norm": _rms_norm,
    "nn.silu": lambda data: own.silu(data),
    "nn.softmax": lambda data, *, axis=-1: own.softmax(data, axis=axis),
    "ones": lambda shape, *, dtype="float32": _full(shape, 1, dtype),
    "ones_like": _like("ones"),
    "permute_dims": lambda x, *, axes=None: own.permute_dims(x, axes=axes),
    "repeat": lambda data, *, repeats, axis=None: relay(
        "repeat", data if axis is not None else _flat(data), repeats=repeats[0], axis=axis or 0
    ),
    "reshape": lambda x, shape: own.reshape(x, shape=tuple(shape)),
    "scatter_elements": _relayed("scatter_elements", "data indices updates", axis=0, reduction="update"),
    "scatter_nd": lambda data, indices, updates, *, reduction="update": own.scatter_nd(
        data, indices, updates, reduction="none" if reduction == "update" else reduction
    ),
    "sort": lambda x, *, axis=-1, descending=False: relay("sort", x, axis=axis, is_ascend=not descending),
    "split": _split,
    "squeeze": _squeeze,
    "strided_slice": _slice,
    "take": _take,
    "tile": lambda x, *, repeats: own.tile(x, repetitions=repeats),
    "topk": _topk,
    "tril": lambda x, k=0: relay("trilu", x, k=constant(k, "int64"), upper=False),
    "triu": lambda x, k=0: relay("trilu", x, k=constant(k, "int64"), upper=True),
    "unique": _unique,
    "where": lambda condition, x1, x2: own.where(condition, x1, x2),
    "zeros": lambda shape, *, dtype="float32": _full(shape, 0, dtype),
    "zeros_like": _like("zeros"),
}
_AXIS = ("expand_dims", "squeeze", "std", "variance", *REDUCTIONS)
list(register(ROWS, dict.fromkeys(_AXIS, ("axis",))))
