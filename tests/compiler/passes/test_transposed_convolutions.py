"""Transposed convolutions become ordinary ones; their results stay."""

import numpy as np
import pytest
from treadle.compiler import ir
from treadle.compiler.builder.programs import Module, constant, function, op, var
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.passes.dead_code import DeadCode
from treadle.compiler.passes.fold_constants import FoldConstants
from treadle.compiler.passes.simplify import Simplify
from treadle.compiler.targets.cpu.passes.layout import BlockChannels
from treadle.compiler.targets.cpu.passes.transposed_convolutions import TransposedConvolutions

RNG = np.random.default_rng(5)
CASES = {
    "windows side by side": ((2, 4, 5, 6), (4, 3, 2, 2), {"strides": (2, 2)}),
    "windows that overlap": ((1, 4, 5, 6), (4, 3, 4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "phases of two sizes": ((1, 2, 4, 3), (2, 3, 3, 5), {"strides": (2, 3), "pads": (1, 0, 0, 2), "output_padding": (1, 2)}),
    "step 1": ((1, 2, 7, 6), (2, 3, 3, 2), {"dilations": (2, 3), "pads": (1, 2, 0, 1)}),
    "dilations": ((1, 2, 4, 5), (2, 3, 3, 3), {"strides": (3, 2), "dilations": (2, 3), "pads": (0, 1, 2, 3)}),
    "pads wider than the window": ((1, 2, 6, 6), (2, 2, 2, 1), {"strides": (1, 2), "pads": (3, 2, 2, 3)}),
    "windows with gaps": ((1, 2, 3, 4), (2, 1, 1, 2), {"strides": (3, 4), "output_padding": (2, 1)}),
    "groups": ((2, 6, 3, 4), (6, 2, 3, 3), {"strides": (2, 2), "groups": 3, "pads": (1, 1, 1, 1)}),
    "signal": ((2, 3, 9), (3, 4, 5), {"strides": (3,), "pads": (1, 2)}),
    "volume": ((1, 2, 2, 3, 4), (2, 2, 2, 2, 3), {"strides": (2, 1, 2)}),
}  # fmt: skip
LACKING = {
    "3x3": ((1, 16, 4, 5), (16, 16, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (1, 1)}, 4),
    "no pads": ((2, 16, 4, 5), (16, 16, 3, 3), {"strides": (2, 2)}, 4),
    "4x4": ((1, 20, 6, 5), (20, 32, 4, 4), {"strides": (3, 2), "pads": (2, 1, 1, 1)}, 3),
    "wide steps": ((1, 16, 3, 6), (16, 16, 3, 5), {"strides": (1, 4), "pads": (1, 2, 1, 1)}, 2),
    "dilated": ((1, 16, 7, 6), (16, 16, 3, 3), {"strides": (1, 2), "dilations": (2, 1), "pads": (1, 1, 0, 1)}, 2),
    "signal": ((2, 16, 9), (16, 16, 3), {"strides": (2,), "pads": (1, 0)}, 2),
    "volume": ((1, 16, 2, 3, 4), (16, 16, 3, 3, 3), {"strides": (2, 2, 2), "pads": (1, 1, 1, 1, 1, 1)}, 8),
}  # fmt: skip


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def rewritten(module, x, *passes):
    """The operators of `main` after the passes; its result is checked."""
    before = after = infer_types(module)
    for step in (TransposedConvolutions(), Simplify(), FoldConstants(), *passes, DeadCode()):
        after = infer_types(step(after))
    wanted = evaluate(before, "main", x)
    np.testing.assert_allclose(np.asarray(evaluate(after, "main", x)), wanted, rtol=1e-4, atol=1e-4)
    values = [binding.value for binding in after.functions["main"].body.bindings]
    return [value.operator for value in values if isinstance(value, ir.OperatorCall)]


def convolved(x):
    """The image after a convolution: what follows is not alone."""
    channels, axes = x.type.shape[1], x.type.rank - 2
    return op.conv(x, constant(normal(channels, channels, *(1,) * axes)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("is_alone", [False, True])
def test_the_result_stays(name, symbolic, is_alone):
    shape, kernel, attributes = CASES[name]
    x = var("x", ("n", shape[1], "h", *shape[3:]) if symbolic else shape)
    bias = constant(normal(kernel[1] * attributes.get("groups", 1)))
    y = op.conv_transpose(x if is_alone else convolved(x), constant(normal(*kernel)), bias, **attributes)
    operators = rewritten(Module(main=function([x], y)), normal(*shape))
    assert "conv_transpose" not in operators
    assert is_alone or operators[:2] == ["conv", "conv"]


PRODUCTS = {
    "few outputs": ((2, 64, 24, 24), (64, 3, 4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "output padding": ((1, 64, 9, 20), (64, 16, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (1, 0)}),
    "other steps": ((1, 32, 6, 30), (32, 2, 3, 5), {"strides": (3, 2), "dilations": (2, 1), "pads": (0, 2, 1, 3)}),
    "wide steps": ((1, 32, 4, 40), (32, 1, 1, 16), {"strides": (1, 16)}),
    "signal": ((2, 48, 100), (48, 4, 5), {"strides": (2,), "pads": (2, 1)}),
    "volume": ((1, 32, 3, 5, 16), (32, 3, 2, 3, 4), {"strides": (2, 2, 2), "pads": (0, 1, 1, 0, 0, 1)}),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_one_that_stands_alone_is_a_product(name):
    shape, kernel, attributes = PRODUCTS[name]
    x = var("x", ("n", *shape[1:]))
    y = op.conv_transpose(x, constant(normal(*kernel)), constant(normal(kernel[1])), **attributes)
    operators = rewritten(Module(main=function([x], y)), normal(*shape))
    assert [operator for operator in operators if operator != "reshape"] == ["matmul", "col2im", "add"]


def test_one_of_few_pixels_or_for_winograd_is_no_product():
    for shape, kernel, pads in (((1, 64, 7, 7), (64, 64, 4, 4), 1), ((1, 64, 32, 32), (64, 3, 6, 6), 2)):
        x = var("x", shape)
        y = op.conv_transpose(x, constant(normal(*kernel)), strides=(2, 2), pads=(pads,) * 4)
        assert rewritten(Module(main=function([x], y)), normal(*shape))[0] == "conv"


@pytest.mark.parametrize("name", LACKING)
@pytest.mark.parametrize("symbolic", [False, True])
def test_phases_that_lack_weights_are_convolved_apart(name, symbolic):
    shape, kernel, attributes, count = LACKING[name]
    x = var("x", ("n", shape[1], "h", *shape[3:]) if symbolic else shape)
    y = op.conv_transpose(convolved(x), constant(normal(*kernel)), constant(normal(kernel[1])), **attributes)
    operators = rewritten(Module(main=function([x], y)), normal(*shape))
    assert operators.count("conv") == 1 + count


@pytest.mark.parametrize("spatial", [(9,), (4, 5), (2, 3, 4)])
def test_whole_blocks_of_channels_stay_blocked(spatial):
    axes, shape = len(spatial), (1, 32, *spatial)
    x = var("x", shape)
    y = op.conv(x, constant(normal(32, 32, *(3,) * axes)), pads=(1,) * 2 * axes)
    y = op.conv_transpose(y, constant(normal(32, 16, *(4,) * axes)), strides=(2,) * axes, pads=(1,) * 2 * axes)
    y = op.conv(op.relu(y), constant(normal(16, 16, *(1,) * axes)))
    operators = rewritten(Module(main=function([x], y)), normal(*shape), BlockChannels())
    assert operators == [
        "pack_channels", "conv_blocked", "conv_blocked", "depth_to_space", "slice", "relu", "conv_blocked", "unpack_channels"
    ]  # fmt: skip
