"""Layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import op as relax_op
from ...block_builder import BlockBuilder
from ...expr import PrimValue, ShapeExpr
from ...struct_info import ObjectStructInfo, TensorStructInfo
from . import op
from .core import Effect, Module, ModuleList, Parameter, Tensor, get_default_dtype

__all__ = [
    *("Attention", "Conv1D", "Conv2D", "Conv3D", "ConvTranspose1D", "Embedding", "GELU", "GroupNorm"),
    *("Identity", "KVCache", "LayerNorm", "Linear", "Module", "ModuleList", "RMSNorm", "ReLU", "SiLU"),
    *("TimestepEmbedding", "Timesteps"),
]


class ReLU(Module):
    def forward(self, x: Tensor) -> Any:
        return op.relu(x)  # type: ignore[attr-defined]


class SiLU(Module):
    def forward(self, x: Tensor) -> Any:
        return op.silu(x)  # type: ignore[attr-defined]


class GELU(Module):
    def forward(self, x: Tensor) -> Any:
        return op.gelu(x)


class Identity(Module):
    """What it is given."""

    def forward(self, x: Any) -> Any:
        return x


class Linear(Module):
    """x @ weightᵀ + bias."""

    def __init__(
        self,
        in_features: Any,
        out_features: Any,
        bias: bool = True,
        dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:
        self.in_features, self.out_features, self.out_dtype = in_features, out_features, out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), out_dtype or dtype) if bias else None

    def forward(self, x: Tensor) -> Any:
        made = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)  # type: ignore[attr-defined]
        return made if self.bias is None else made + self.bias


class _Convolution(Module):
    count = 0
    function: Any = None
    transposed = False

    def __init__(
        self,
        in_channels: Any,
        out_channels: Any,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        **more: Any,
    ) -> None:
        size = tuple(kernel_size) if isinstance(kernel_size, (list, tuple)) else (kernel_size,) * self.count
        channels = (
            (in_channels, out_channels // groups) if self.transposed else (out_channels, _part(in_channels, groups))
        )
        self.options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, **more}
        self.weight = Parameter((*channels, *size), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def forward(self, x: Tensor) -> Any:
        return type(self).function(x, self.weight, self.bias, **self.options)


def _part(channels: Any, groups: int) -> Any:
    return channels if isinstance(channels, str) else channels // groups


class Conv1D(_Convolution):
    """A convolution over one axis."""

    count, function = 1, staticmethod(op.conv1d)


class Conv2D(_Convolution):
    """A convolution over two axes."""

    count, function = 2, staticmethod(op.conv2d)


class Conv3D(_Convolution):
    """A convolution over three axes."""

    count, function = 3, staticmethod(op.conv3d)


class ConvTranspose1D(_Convolution):
    """The transpose of a convolution over one axis."""

    count, function, transposed = 1, staticmethod(op.conv1d_transpose), True


class LayerNorm(Module):
    """Normalised over the last axis."""

    def __init__(
        self, normalized_shape: int, eps: float = 1e-5, elementwise_affine: bool = True, dtype: str | None = None
    ) -> None:
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight = Parameter((normalized_shape,), dtype) if elementwise_affine else None
        self.bias = Parameter((normalized_shape,), dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Any:
        return op.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Divided by the root of the mean of squares."""

    def __init__(
        self, hidden_size: int, axes: Any, epsilon: float = 1e-5, bias: bool = True, dtype: str | None = None
    ) -> None:
        self.epsilon, self.axes = epsilon, axes
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Any:
        made = op.rms_norm(x, self.weight, self.axes, self.epsilon)  # type: ignore[attr-defined]
        return made if self.bias is None else made + self.bias


class GroupNorm(Module):
    """Groups of channels normalised by their own mean and variance."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, dtype: str | None = None
    ) -> None:
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(self, x: Tensor, channel_axis: int = 1, axes: Any = None) -> Any:
        return op.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes)


class KVCache(Effect):
    """A cache of keys or values, which grows."""

    def __init__(self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None) -> None:
        self.init_seq_len, self.unit_shape = init_seq_len, list(unit_shape)
        self.dtype = dtype or get_default_dtype()

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Any]:
        shape = ShapeExpr([self.init_seq_len, *self.unit_shape])
        zeros = builder.emit(relax_op.zeros(shape, self.dtype))
        made = relax_op.call_pure_packed(
            "vm.builtin.attention_kv_cache_create", zeros, shape, PrimValue(0), sinfo_args=[ObjectStructInfo()]
        )
        return [builder.emit(made, name_hint)]

    def to(self, dtype: str | None = None) -> None:
        self.dtype = dtype or self.dtype

    def view(self, seq_len: Any) -> Tensor:
        """The first `seq_len` entries."""
        shape = ShapeExpr([seq_len, *self.unit_shape])
        made = relax_op.call_pure_packed(
            "vm.builtin.attention_kv_cache_view", self.state, shape, sinfo_args=[TensorStructInfo(shape, self.dtype)]
        )
        return Tensor(_expr=_current().emit(made))

    def append(self, new_element: Tensor) -> None:
        """Adds entries. Raises TypeError for another element type."""
        if new_element.dtype != self.dtype:
            raise TypeError(f'KVCache has been set to use dtype "{self.dtype}", but got "{new_element.dtype}"')
        made = relax_op.call_inplace_packed(
            *("vm.builtin.attention_kv_cache_append", self.state, new_element._expr),
            inplace_indices=[0],
            sinfo_args=[ObjectStructInfo()],
        )
        self.state = _current().emit(made)


def _current() -> BlockBuilder:
    current = BlockBuilder.current()
    assert current is not None
    return current


class Embedding(Module):
    """A row of the weights for each number."""

    def __init__(self, num: Any, dim: Any, dtype: str | None = None) -> None:
        self.num, self.dim = num, dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Any:
        if x.ndim == 1:
            return op.take(self.weight, x, axis=0)  # type: ignore[attr-defined]
        rows = op.take(self.weight, op.reshape(x, [-1]), axis=0)  # type: ignore[attr-defined]
        return op.reshape(rows, [*x.shape, self.dim])  # type: ignore[attr-defined]


class TimestepEmbedding(Module):
    """Two linear layers on embeddings of steps."""

    def __init__(
        self,
        in_channels: int,
        time_embed_dim: int,
        act_fn: str = "silu",
        out_dim: int | None = None,
        post_act_fn: str | None = None,
        cond_proj_dim: int | None = None,
    ) -> None:
        """Raises ValueError for another activation than silu."""
        if act_fn != "silu" or post_act_fn not in (None, "silu"):
            raise ValueError(f"TimestepEmbedding: expected silu, got {act_fn}, {post_act_fn}")
        self.linear_1 = Linear(in_channels, time_embed_dim)
        self.cond_proj = Linear(cond_proj_dim, in_channels, bias=False) if cond_proj_dim is not None else None
        self.act = SiLU()
        self.linear_2 = Linear(time_embed_dim, out_dim or time_embed_dim)
        self.post_act = SiLU() if post_act_fn else None

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Any:
        if condition is not None and self.cond_proj is not None:
            sample = sample + self.cond_proj(condition)
        made = self.linear_2(self.act(self.linear_1(sample)))
        return made if self.post_act is None else self.post_act(made)


class Timesteps(Module):
    """Sines and cosines of steps."""

    def __init__(self, num_channels: int, flip_sin_to_cos: bool = False, downscale_freq_shift: float = 1) -> None:
        self.num_channels, self.flip_sin_to_cos = num_channels, flip_sin_to_cos
        self.downscale_freq_shift = downscale_freq_shift

    def forward(self, x: Tensor) -> Any:
        return op.get_timestep_embedding(x, self.num_channels, self.flip_sin_to_cos, self.downscale_freq_shift)


class Attention(Module):
    """Attention of heads, to itself or to other states."""

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int = 64,
        bias: bool = False,
        norm_num_groups: int | None = None,
        out_bias: bool = True,
        scale_qk: bool = True,
    ) -> None:
        self.heads, self.dim_head, inner = heads, dim_head, heads * dim_head
        self.to_q = Linear(query_dim, inner, bias=bias)
        self.to_k = Linear(cross_attention_dim or query_dim, inner, bias=bias)
        self.to_v = Linear(cross_attention_dim or query_dim, inner, bias=bias)
        self.group_norm = GroupNorm(norm_num_groups, query_dim) if norm_num_groups is not None else None
        self.to_out = ModuleList([Linear(inner, query_dim, bias=out_bias)])

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor | None = None, **_: Any) -> Any:
        if self.group_norm is not None:
            hidden_states = self.group_norm(hidden_states, channel_axis=2, axes=[1])
        others = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        projected = self.to_q(hidden_states), self.to_k(others), self.to_v(others)
        parts = (op.reshape(each, [0, -1, self.heads, self.dim_head]) for each in projected)  # type: ignore[attr-defined]
        made = op.scaled_dot_product_attention(*parts)
        return self.to_out[0](op.reshape(made, [0, -1, self.heads * self.dim_head]))  # type: ignore[attr-defined]
