"""What operators say of the types of their weights: variables that a program leaves without a type
(`relay.var("fc1_weight")`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....compiler.builder.programs import Expression
from ....formats.dims import add, floordiv, product
from ....formats.types import TensorType
from .layouts import parse
from .table import axis_of, pair

Types = dict[str, TensorType]


def _vector(data: Expression, axis: int, *names: str) -> Types:
    """A number for each channel."""
    assert isinstance(data.type, TensorType)
    return dict.fromkeys(names, TensorType(data.type.dtype, (data.type.shape[axis_of(data, axis)],)))


def _of(values: Mapping[str, Any], letters: str, sizes: Mapping[str, Any]) -> Types:
    assert isinstance(values["data"].type, TensorType)
    parts = {letter.upper(): size for letter, size in parse(letters) if letter.islower()}
    shape = (
        size if letter.islower() else floordiv(sizes[letter], parts.get(letter, 1)) for letter, size in parse(letters)
    )
    return {"weight": TensorType(values["data"].type.dtype, tuple(shape))}


def _conv(spatial: str, transposed: bool) -> Callable[[Mapping[str, Any]], Types]:
    def weight(values: Mapping[str, Any]) -> Types:
        layout, kernel = values["data_layout"], values["kernel_layout"]
        channels, size, groups = values["channels"], values["kernel_size"], int(values["groups"])
        if channels is None or size is None:
            return {}
        places = [letter for letter, _ in parse(layout)]
        inputs = product([values["data"].type.shape[places.index(letter)] for letter in "Cc" if letter in places])
        sizes: dict[str, Any] = dict(zip(spatial, pair(size, len(spatial)), strict=True))
        if transposed:
            sizes |= {"I": inputs, "O": channels // groups}
        elif groups > 1 and groups == inputs and (kernel.endswith("OI") or kernel.startswith("OI")):
            sizes |= {"O": inputs, "I": channels // groups}  # depthwise: how many results each channel has
        else:
            sizes |= {"O": channels, "I": floordiv(inputs, groups)}
        return _of(values, kernel, sizes)

    return weight


def _dense(values: Mapping[str, Any]) -> Types:
    data, units = values["data"].type, values["units"]
    return {} if units is None else {"weight": TensorType(data.dtype, (units, data.shape[-1]))}


def _matmul(values: Mapping[str, Any]) -> Types:
    a, units = values["tensor_a"].type, values["units"]
    shape = (a.shape[-2 if values["transpose_a"] else -1], units)
    return {} if units is None else {"tensor_b": TensorType(a.dtype, shape[::-1] if values["transpose_b"] else shape)}


def _normalisation(*names: str) -> Callable[[Mapping[str, Any]], Types]:
    return lambda values: _vector(values["data"], values["axis"], *names)


def _moved_taps(values: Mapping[str, Any]) -> Types:
    """The weight of a convolution whose taps move, and their offsets."""
    found = _conv("HW", transposed=False)(values)
    if found and isinstance(values["data"].type, TensorType):
        letters = [letter for letter, _ in parse(values["data_layout"])]
        shape = values["data"].type.shape
        sizes: dict[str, Any] = {letter: shape[place] for place, letter in enumerate(letters)}
        size, sides = pair(values["kernel_size"], 2), pair(values["padding"], 2)
        sides = (*sides, *sides) if len(sides) == 2 else sides
        steps, gaps = pair(values["strides"], 2), pair(values["dilation"], 2)
        for axis, letter in enumerate("HW"):
            span = add(sizes[letter], sides[axis] + sides[axis + 2] - (size[axis] - 1) * gaps[axis] - 1)
            sizes[letter] = add(floordiv(span, steps[axis]), 1)
        sizes["C"] = 2 * size[0] * size[1] * int(values["deformable_groups"])
        found["offset"] = TensorType(values["data"].type.dtype, tuple(sizes[letter] for letter in letters))
    return found


_RULES: dict[str, Callable[[Mapping[str, Any]], Types]] = {
    "nn.conv1d": _conv("W", transposed=False),
    "nn.conv2d": _conv("HW", transposed=False),
    "nn.deformable_conv2d": _moved_taps,
    "nn.conv3d": _conv("DHW", transposed=False),
    "nn.conv1d_transpose": _conv("W", transposed=True),
    "nn.conv2d_transpose": _conv("HW", transposed=True),
    "nn.conv3d_transpose": _conv("DHW", transposed=True),
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.bias_add": _normalisation("bias"),
    "nn.prelu": _normalisation("alpha"),
    "nn.batch_norm": _normalisation("gamma", "beta", "moving_mean", "moving_var"),
    "nn.instance_norm": _normalisation("gamma", "beta"),
    "nn.layer_norm": _normalisation("gamma", "beta"),
    "nn.group_norm": _normalisation("gamma", "beta"),
}


def weight_types(name: str, values: Mapping[str, Any]) -> Types:
    """The types of an operator's weights, by parameter, as far as the other arguments say them."""
    rule = _RULES.get(name)
    data = values.get("data", values.get("tensor_a"))
    if rule is None or not isinstance(data, Expression) or not isinstance(data.type, TensorType):
        return {}
    return rule(values)
