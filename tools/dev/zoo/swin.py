"""A small Swin transformer (Liu et al., 2021): attention in windows, which every second block rolls by half their side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .layers import attention, conv, dense, layer_norm, linear, merge_heads, perceptron, split_heads, weight_name
from .writer import GraphWriter

_WIDTH, _DEPTHS, _HEADS, _PATCH, _WINDOW = 48, (2, 2, 6, 2), (2, 4, 8, 16), 4, 7
_TOKENS = _WINDOW * _WINDOW
_HIDDEN = -100.0  # what the reference implementation adds to scores across the seams of a roll


@dataclass(frozen=True)
class _Stage:
    batch: int
    side: int
    width: int
    heads: int

    @property
    def windows(self) -> int:
        return (self.side // _WINDOW) ** 2


def swin(*, batch: int = 1, size: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to logits float32[batch, classes]; size a multiple of 224."""
    g = GraphWriter("swin", seed=seed)
    x = conv(g, g.input("x", (batch, 3, size, size)), "/patch_embed", 3, _WIDTH, _PATCH, stride=_PATCH, padding=0)
    x = layer_norm(g, g.op("Transpose", x, perm=[0, 2, 3, 1]), "/patch_embed/norm", _WIDTH)
    side, width = size // _PATCH, _WIDTH
    for number, (depth, heads) in enumerate(zip(_DEPTHS, _HEADS, strict=True)):
        if number:
            x, side, width = _merged(g, x, f"/layers.{number}/downsample", side, width), side // 2, 2 * width
        stage = _Stage(batch, side, width, heads)
        for block in range(depth):
            shift = _WINDOW // 2 if block % 2 and side > _WINDOW else 0
            x = _block(g, x, f"/layers.{number}/blocks.{block}", stage, shift)
    x = g.op("ReduceMean", layer_norm(g, x, "/norm", width), g.integers(1, 2), keepdims=0)
    g.output(dense(g, x, "/head", width, classes), "logits", (batch, classes))
    return g.model()


def _block(g: GraphWriter, x: str, scope: str, stage: _Stage, shift: int) -> str:
    """x float32[batch, side, side, width]."""
    value = layer_norm(g, x, f"{scope}/norm1", stage.width)
    value = _rolled(g, value, scope, shift, stage.side) if shift else value
    value = _window_attention(g, _partitioned(g, value, scope, stage), f"{scope}/attn", stage, shift)
    value = _joined(g, value, scope, stage)
    value = _rolled(g, value, scope, stage.side - shift, stage.side) if shift else value
    x = g.op("Add", x, value, scope=scope)
    value = perceptron(g, layer_norm(g, x, f"{scope}/norm2", stage.width), f"{scope}/mlp", stage.width, 4 * stage.width)
    return g.op("Add", x, value, scope=scope)


def _rolled(g: GraphWriter, x: str, scope: str, shift: int, side: int) -> str:
    """torch.roll by -shift along both axes, as exporters write it."""
    zero, middle, end = g.integers(0), g.integers(shift), g.integers(side)
    for axis in (1, 2):
        tail = g.op("Slice", x, middle, end, g.integers(axis), scope=scope)
        head = g.op("Slice", x, zero, middle, g.integers(axis), scope=scope)
        x = g.op("Concat", tail, head, scope=scope, axis=axis)
    return x


def _partitioned(g: GraphWriter, x: str, scope: str, stage: _Stage) -> str:
    """[batch, side, side, width] to [batch · windows, tokens, width]."""
    count = stage.side // _WINDOW
    x = g.op("Reshape", x, g.integers(stage.batch, count, _WINDOW, count, _WINDOW, stage.width), scope=scope)
    x = g.op("Transpose", x, scope=scope, perm=[0, 1, 3, 2, 4, 5])
    return g.op("Reshape", x, g.integers(-1, _TOKENS, stage.width), scope=scope)


def _joined(g: GraphWriter, x: str, scope: str, stage: _Stage) -> str:
    count = stage.side // _WINDOW
    x = g.op("Reshape", x, g.integers(stage.batch, count, count, _WINDOW, _WINDOW, stage.width), scope=scope)
    x = g.op("Transpose", x, scope=scope, perm=[0, 1, 3, 2, 4, 5])
    return g.op("Reshape", x, g.integers(stage.batch, stage.side, stage.side, stage.width), scope=scope)


def _window_attention(g: GraphWriter, x: str, scope: str, stage: _Stage, shift: int) -> str:
    depth, lengths = stage.width // stage.heads, (stage.batch * stage.windows, _TOKENS)
    joined = linear(g, x, f"{scope}/qkv", stage.width, 3 * stage.width)
    parts = g.ops("Split", joined, g.integers(*(stage.width,) * 3), outputs=3, scope=scope, axis=-1)
    query, key, value = (split_heads(g, part, scope, lengths, stage.heads, depth) for part in parts)
    added = g.op(
        "Add", _position_bias(g, scope, stage.heads), g.weight(weight_name(scope, "mask"), _mask(stage, shift))
    )
    context = attention(g, query, key, value, scope, depth, added=added)
    return linear(g, merge_heads(g, context, scope, lengths, stage.width), f"{scope}/proj", stage.width, stage.width)


def _position_bias(g: GraphWriter, scope: str, heads: int) -> str:
    """float32[1, heads, tokens, tokens]: a learned number for each difference of places."""
    places = np.stack(np.meshgrid(np.arange(_WINDOW), np.arange(_WINDOW), indexing="ij")).reshape(2, -1)
    rows, columns = places[:, :, None] - places[:, None, :] + _WINDOW - 1
    index = g.constant((rows * (2 * _WINDOW - 1) + columns).reshape(-1))
    table = g.normal(weight_name(scope, "position_bias"), (2 * _WINDOW - 1) ** 2, heads, deviation=0.2)
    bias = g.op("Reshape", g.op("Gather", table, index, scope=scope), g.integers(_TOKENS, _TOKENS, heads), scope=scope)
    return g.op("Unsqueeze", g.op("Transpose", bias, scope=scope, perm=[2, 0, 1]), g.integers(0), scope=scope)


def _mask(stage: _Stage, shift: int) -> np.ndarray:
    """float32[batch · windows, 1, tokens, tokens]: hides from each other what a roll brought together."""
    regions = np.zeros((stage.side, stage.side))
    bands = (slice(0, -_WINDOW), slice(-_WINDOW, -shift), slice(-shift, None)) if shift else ()
    for number, (rows, columns) in enumerate((a, b) for a in bands for b in bands):
        regions[rows, columns] = number
    count = stage.side // _WINDOW
    windows = regions.reshape(count, _WINDOW, count, _WINDOW).swapaxes(1, 2).reshape(-1, 1, _TOKENS)
    hidden = np.where(windows[:, :, None] != windows[..., None], np.float32(_HIDDEN), np.float32(0))
    return np.tile(hidden, (stage.batch, 1, 1, 1))


def _merged(g: GraphWriter, x: str, scope: str, side: int, width: int) -> str:
    """Each 2×2 neighbours become one, of twice the width."""
    end, axes, step = g.integers(side, side), g.integers(1, 2), g.integers(2, 2)
    parts = [
        g.op("Slice", x, g.integers(row, column), end, axes, step, scope=scope) for column in (0, 1) for row in (0, 1)
    ]
    joined = layer_norm(g, g.op("Concat", *parts, scope=scope, axis=-1), f"{scope}/norm", 4 * width)
    return linear(g, joined, f"{scope}/reduction", 4 * width, 2 * width, bias=False)
