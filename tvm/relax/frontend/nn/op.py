"""The functions that `forward` calls: Relax's operators on values of modules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ... import expr
from ...block_builder import BlockBuilder
from ...expr import OPERATOR_CALLS
from .core import NAMES, Tensor, get_default_dtype, unwrap, wrap_nested

# function → Relax's operator; its arguments are the operator's, and `name` the variable's name
_SAME = """
    add argsort astype broadcast_to concat
    cumsum divide equal exp greater greater_equal less less_equal matmul maximum minimum multiply
    negative not_equal permute_dims repeat reshape sigmoid sort split sqrt square squeeze subtract sum take tanh topk triu where
"""
_ALIKE = {
    **{name: name for name in _SAME.split()},
    **{name: f"nn.{name}" for name in ("relu", "rms_norm", "silu", "softmax")},
    "chunk": "split",
    "permute": "permute_dims",
    "unsqueeze": "expand_dims",
}
_WORDS = {"dim": "axis", "a": "x1", "b": "x2", "diagonal": "k", "chunks": "indices_or_sections"}


def _alike(function: str, operator: str) -> Callable[..., Any]:
    def call(*args: Any, name: str | None = None, **options: Any) -> Any:
        renamed = {_word(key, operator): _plain(value) for key, value in options.items()}
        return wrap_nested(
            OPERATOR_CALLS[operator](*map(_plain, args), **renamed), name or NAMES.get(function, function)
        )

    call.__name__ = function
    call.__doc__ = f"`relax.op.{operator}`."
    return call


def _word(key: str, operator: str) -> str:
    known = OPERATOR_CALLS[operator].__signature__.parameters
    return key if key in known else {"x": next(iter(known))}.get(key, _WORDS.get(key, key))


def _plain(value: Any) -> Any:
    is_shape = isinstance(value, (list, tuple)) and not any(isinstance(each, Tensor) for each in value)
    return list(value) if is_shape else unwrap(value)


globals().update({name: _alike(name, operator) for name, operator in _ALIKE.items()})
ones, zeros = _alike("ones", "ones"), _alike("zeros", "zeros")
empty = _alike("empty", "zeros")  # nobody sees what was in the memory before


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Any:
    """`relax.op.nn.gelu`, or `gelu_tanh`."""
    return wrap_nested(OPERATOR_CALLS["nn.gelu_tanh" if approximate == "tanh" else "nn.gelu"](unwrap(x)), name)


def _convolution(name: str, count: int) -> Callable[..., Any]:
    def convolve(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        name: str = name,
        **more: Any,
    ) -> Any:
        """A convolution, and a bias for each channel."""
        options = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups, **more}
        made = OPERATOR_CALLS[f"nn.{function}"](unwrap(x), unwrap(weight), **options)
        if bias is not None:
            made = OPERATOR_CALLS["add"](made, OPERATOR_CALLS["reshape"](unwrap(bias), [1, -1, *[1] * count]))
        return wrap_nested(made, name)

    function = name
    convolve.__name__ = name
    return convolve


conv1d, conv2d, conv3d = (_convolution(f"conv{count}d", count) for count in (1, 2, 3))
conv1d_transpose = _convolution("conv1d_transpose", 1)


def layer_norm(
    x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, name: str = "layer_norm"
) -> Any:
    """Normalised over the last axes."""
    sizes = list(normalized_shape) if isinstance(normalized_shape, (list, tuple)) else [normalized_shape]
    gamma = weight if weight is not None else ones(sizes, x.dtype)
    beta = bias if bias is not None else zeros(sizes, x.dtype)
    axes = list(range(-len(sizes), 0))
    return wrap_nested(
        OPERATOR_CALLS["nn.layer_norm"](unwrap(x), unwrap(gamma), unwrap(beta), axes=axes, epsilon=eps), name
    )


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: Any = None,
    name: str = "group_norm",
) -> Any:
    """Groups of channels normalised by their own mean and variance."""
    channels = x.shape[channel_axis]
    gamma = weight if weight is not None else ones([channels], x.dtype)
    beta = bias if bias is not None else zeros([channels], x.dtype)
    own = list(axes) if axes is not None else list(range(2, x.ndim))
    made = OPERATOR_CALLS["nn.group_norm"](
        *map(unwrap, (x, gamma, beta)), num_groups=num_groups, channel_axis=channel_axis, axes=own, epsilon=eps
    )
    return wrap_nested(made, name)


def full(shape: Sequence[Any], fill_value: Any, dtype: str = "float32", name: str = "full") -> Any:
    """A tensor of one number."""
    value = expr.const(fill_value, dtype) if isinstance(fill_value, (int, float)) else unwrap(fill_value)
    return wrap_nested(OPERATOR_CALLS["full"](list(shape), value, dtype), name)


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0, name: str = "pad") -> Any:
    """Elements around the tensor: (before, after) for each axis, the last one first."""
    widths = [0] * (2 * x.ndim)
    for at in range(len(pad) // 2):
        widths[2 * (x.ndim - 1 - at) : 2 * (x.ndim - at)] = pad[2 * at : 2 * at + 2]
    return wrap_nested(OPERATOR_CALLS["nn.pad"](unwrap(x), pad_width=widths, pad_value=value, pad_mode=mode), name)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool | None = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Any:
    """Attention of tensors of (batch, length, heads, depth)."""
    operands = [unwrap(each) for each in (query, key, value, attn_mask) if each is not None]
    mask = "TopLeft" if is_causal else None
    return wrap_nested(OPERATOR_CALLS["nn.attention"](*operands, causal_mask=mask, scale=scale), name)


def get_timestep_embedding(
    x: Tensor,
    embedding_dim: int,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1,
    scale: float = 1,
    max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Any:
    """Sines and cosines of the steps (Denoising Diffusion Probabilistic Models)."""
    of, half = OPERATOR_CALLS, embedding_dim // 2
    steps = of["astype"](unwrap(x), "float32")
    exponent = expr.const(-math.log(max_period), "float32") * of["arange"](0, half, 1, dtype="float32")
    angles = of["exp"](exponent / expr.const(half - downscale_freq_shift, "float32"))
    angles = of["expand_dims"](steps, 1) * of["expand_dims"](angles, 0)
    if scale != 1:
        angles = expr.const(scale, "float32") * angles
    current = expr_bound(angles)
    parts = [of["sin"](current), of["cos"](current)]
    made = of["concat"](parts[::-1] if flip_sin_to_cos else parts, axis=-1)
    if embedding_dim % 2:
        made = of["nn.pad"](made, pad_width=(0, 1, 0, 0))
    return wrap_nested(of["astype"](made, get_default_dtype()), name)


def expr_bound(value: Any) -> Any:
    """The expression as a variable of the function that is being built, so that it is computed once."""
    current = BlockBuilder.current()
    return value if current is None else current.emit(value)
