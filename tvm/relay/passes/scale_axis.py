"""FoldScaleAxis: scales of channels as factors of the weights of convolutions and products (`fold_scale_axis.cc`).

Forwards a scale goes into the weights of what follows, backwards into those of what precedes. Which axes can be scaled, and
whether by positive numbers alone, is found first, against the way that the scale takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...transform import Pass, Sequential
from ..expr import Call, Constant, Expr, Function
from ..module import IRModule
from ..op.layouts import parse
from ..visit import children, postorder
from .core import again, along_axis, each_function, make, op_of, rewrite, static_shape, users

_CONVS = ("nn.conv2d", "nn.conv3d")
_RELUS = ("nn.relu", "nn.leaky_relu")
_SUMS = ("add", "subtract")


@dataclass(frozen=True)
class _Wish:
    """The axes that may be scaled, and whether the scale must be positive."""

    axes: tuple[int, ...]
    positive: bool = False

    def joined(self, other: _Wish | None) -> _Wish | None:
        if other is None:
            return None
        return _Wish(tuple(axis for axis in self.axes if axis in other.axes), self.positive or other.positive)


def _index(layout: str) -> dict[str, int]:
    return {letter: place for place, (letter, _) in enumerate(parse(layout))}


def _conv_wish(call: Any, layout: str) -> _Wish | None:
    """The axes of channels of a convolution's data or result; None where its weights cannot take a scale."""
    data, kernel = _index(layout), _index(call.attrs["kernel_layout"])
    if call.attrs["groups"] != 1 and not _is_depthwise(call):
        return None
    parts = ["c" in data, "i" in kernel, "o" in kernel]
    if any(parts) and not all(parts):
        return None
    return _Wish((data["C"], data["c"]) if "c" in data else (data["C"],))


def _is_depthwise(call: Any) -> bool:
    kernel, shape = _index(call.attrs["kernel_layout"]), static_shape(call.args[1])
    if shape is None:
        return False
    out, into = (_product(shape, kernel, letters) for letters in ("Oo", "Ii"))
    return call.attrs["groups"] == out and into == 1


def _product(shape: tuple[int, ...], places: dict[str, int], letters: str) -> int:
    size = 1
    for letter in letters:
        size *= shape[places[letter]] if letter in places else 1
    return size


def _scaled_weight(call: Any, weight: Expr, scale: Expr, letters: str) -> Expr:
    """The weight of a convolution, scaled along the axes of these letters."""
    kernel = _index(call.attrs["kernel_layout"])
    axes = tuple(kernel[letter] for letter in letters if letter in kernel)
    return make("multiply", weight, _matched(scale, static_shape(call.args[1]) or (1,) * len(kernel), axes))


def _matched(scale: Expr, shape: tuple[int, ...], axes: tuple[int, ...]) -> Expr:
    """A scale of these axes as what broadcasts to a tensor of this shape."""
    if len(axes) > 1:
        return make("reshape", scale, [size if axis in axes else 1 for axis, size in enumerate(shape)])
    return along_axis(scale, len(shape), axes[0])


def _broadcasts(left: Expr, right: Expr, axes: tuple[int, ...]) -> list[int] | None:
    """The axes of 1 of `right`, if it varies along these axes of `left` alone; None otherwise."""
    mine, other = static_shape(left), static_shape(right)
    if mine is None or other is None or len(mine) < len(other):
        return None
    base, ones = len(mine) - len(other), []
    for axis, size in enumerate(mine):
        if axis in axes:
            if axis < base or size != other[axis - base]:
                return None
        elif axis >= base:
            if other[axis - base] != 1:
                return None
            ones.append(axis - base)
    return ones


def _is_positive(expr: Any) -> bool:
    """Whether an expression is a constant of positive numbers, perhaps in another shape."""
    if isinstance(expr, Constant):
        return bool((expr.array > 0).all())
    return op_of(expr) in ("expand_dims", "reshape", "transpose", "squeeze", "repeat") and _is_positive(expr.args[0])


def _scale_of(call: Any, wish: _Wish, place: int, new: Any) -> tuple[Expr, Expr] | None:
    """What a product scales, and by what, if its other operand is the scale that is wanted of operand `place`."""
    scale, shape = new.args[1 - place], static_shape(call.args[place])
    if static_shape(call.args[1 - place]) == () and shape is not None:
        scale = make("expand_dims", scale, 0, len(wish.axes))
        for at, axis in enumerate(wish.axes):
            scale = make("repeat", scale, shape[axis], at)
    else:
        ones = _broadcasts(call.args[place], call.args[1 - place], wish.axes)
        if ones is None:
            return None
        scale = make("squeeze", scale, ones) if ones else scale
    return (new.args[place], scale) if not wish.positive or _is_positive(scale) else None


# ---- forwards ----


def _asked(call: Any, wish: _Wish | None) -> list[_Wish | None]:
    """What a call wants of its operands, if that is wanted of itself."""
    name = op_of(call)
    none: list[_Wish | None] = [None] * len(call.args)
    if name in _CONVS:
        return [_conv_wish(call, call.attrs["data_layout"]), *none[1:]]
    if name == "nn.dense":
        return [_Wish((1,)), None]
    if name in _RELUS and wish is not None:
        return [_Wish(wish.axes, True)]
    if name in _SUMS and wish is not None:
        for place in (0, 1):
            if _broadcasts(call.args[place], call.args[1 - place], wish.axes) is not None:
                return [wish if other == place else None for other in (0, 1)]
    return none


def _forward(function: Function, _: IRModule) -> Expr:
    wishes: dict[int, _Wish | None] = {}

    def tell(expr: Expr, wish: _Wish | None) -> None:
        known = wishes.get(id(expr), wish)
        wishes[id(expr)] = None if known is None else known.joined(wish)

    order = list(postorder(function))
    for expr in reversed(order):
        if isinstance(expr, Call):
            several = _asked(expr, wishes.get(id(expr)))
            for arg, wish in zip(expr.args, several, strict=True):
                tell(arg, wish)
            rest: tuple[Expr, ...] = (expr.op,) if isinstance(expr.op, Expr) else ()
        else:
            rest = children(expr)
        for child in rest:
            tell(child, None)
    # of a new expression: the factor that is still to come, and its axes; what it is without the factor
    scales: dict[int, tuple[Expr, tuple[int, ...]]] = {}
    values: dict[int, Expr] = {}
    kept: list[Expr] = []  # whose identities are in use

    def rule(old: Any, new: Any) -> Expr | None:
        name = op_of(old)
        wish = wishes.get(id(old))
        if name == "multiply" and wish is not None and wish.axes:
            for place in (0, 1):
                found = _scale_of(old, wish, place, new)
                if found is not None:
                    value = again(new, new.args)  # an object of its own, which a scale can be told of
                    values[id(value)] = found[0]
                    scales[id(value)] = found[1], wish.axes
                    kept.append(value)
                    return value
        several = [at for at, arg in enumerate(new.args) if id(arg) in scales] if name else []
        if not several:
            return None
        place = several[0]
        scale, axes = scales[id(new.args[place])]
        args = [values.get(id(arg), arg) for arg in new.args]
        if name in _CONVS or name == "nn.dense":
            if name == "nn.dense":
                return again(new, [args[0], make("multiply", args[1], scale)])
            letters = "Oo" if _is_depthwise(old) else "Ii"
            return again(new, [args[0], _scaled_weight(old, args[1], scale, letters)])
        if name in _SUMS:
            shape = static_shape(old.args[place])
            assert shape is not None
            args[1 - place] = make("divide", args[1 - place], _matched(scale, shape, axes))
        made = again(new, new.args)
        values[id(made)], scales[id(made)] = again(new, args), (scale, axes)
        kept.append(made)
        return made

    return rewrite(function, rule)


def ForwardFoldScaleAxis() -> Pass:
    """Scales as factors of the weights behind them."""
    return each_function("ForwardFoldScaleAxis", _forward, level=3)


# ---- backwards ----


def _offered(call: Any, wishes: dict[int, _Wish]) -> _Wish | None:
    """Along which axes a call's result can be scaled before it."""
    name = op_of(call)
    if name in _CONVS:
        return _conv_wish(call, call.attrs["out_layout"] or call.attrs["data_layout"])
    if name == "nn.dense":
        return _Wish((1,))
    several = [wishes.get(id(arg)) for arg in call.args]
    if name in _RELUS and several[0] is not None:
        return _Wish(several[0].axes, True)
    if name == "nn.bias_add" and several[0] is not None:
        rank = len(static_shape(call) or ())
        return several[0] if rank and several[0].axes == (call.attrs["axis"] % rank,) else None
    if name in _SUMS:
        for place, wish in enumerate(several):
            if wish is not None and _broadcasts(call.args[place], call.args[1 - place], wish.axes) is not None:
                return wish
        alike = static_shape(call.args[0]) == static_shape(call.args[1])
        if several[0] is not None and several[1] is not None and several[0].axes == several[1].axes and alike:
            return several[0].joined(several[1])
    return None


def _backward(function: Function, _: IRModule) -> Expr:
    used = users(function)
    wishes: dict[int, _Wish] = {}
    for expr in postorder(function):
        wish = _offered(expr, wishes) if op_of(expr) and len(used.get(id(expr), ())) == 1 else None
        if wish is not None:
            wishes[id(expr)] = wish

    def scaled(old: Any, new: Any, wish: _Wish, scale: Expr) -> Expr:
        """The call, its result scaled."""
        name, args = op_of(old), list(new.args)
        if name in _CONVS:
            args[1] = _scaled_weight(old, args[1], scale, "Oo")
        elif name == "nn.dense":
            args[1] = make("multiply", args[1], along_axis(scale, 2, 0))
        elif name == "nn.bias_add":
            args = [scaled(old.args[0], args[0], wish, scale), make("multiply", args[1], scale)]
        else:
            for place, arg in enumerate(old.args):
                if id(arg) in wishes:
                    args[place] = scaled(arg, args[place], wish, scale)
                else:
                    shape = static_shape(old.args[1 - place])
                    assert shape is not None
                    args[place] = make("multiply", args[place], _matched(scale, shape, wish.axes))
        return again(new, args)

    def rule(old: Any, new: Any) -> Expr | None:
        if op_of(old) != "multiply":
            return None
        place = 0 if id(old.args[0]) in wishes else 1
        wish = wishes.get(id(old.args[place]))
        found = _scale_of(old, wish, place, new) if wish is not None else None
        return None if found is None or wish is None else scaled(old.args[place], found[0], wish, found[1])

    return rewrite(function, rule)


def BackwardFoldScaleAxis() -> Pass:
    """Scales as factors of the weights before them."""
    return each_function("BackwardFoldScaleAxis", _backward, level=3)


def FoldScaleAxis() -> Pass:
    """Scales as factors of the weights before them, or else behind them; then constants are folded."""
    from .folding import FoldConstant

    return Sequential(
        [BackwardFoldScaleAxis(), ForwardFoldScaleAxis(), FoldConstant()], opt_level=3, name="FoldScaleAxis"
    )
