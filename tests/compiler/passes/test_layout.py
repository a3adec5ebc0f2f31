"""Channel-blocked layout and packed matrices: what the passes leave of a network, and that its results stay."""

import sys

import numpy as np
import pytest
from treadle.compiler import ir
from treadle.compiler.builder.programs import Module, constant, function, op, var
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.passes.dead_code import DeadCode
from treadle.compiler.targets.base import Stage
from treadle.compiler.targets.cpu.backend import CPU
from treadle.compiler.targets.cpu.passes.layout import BlockChannels
from treadle.compiler.targets.cpu.passes.pack_matrices import PackMatrices
from treadle.compiler.targets.cpu.target import host, of
from treadle.formats.dtypes import DType
from treadle.native.llvm import NativeTarget
from treadle.tests import timing

RNG = np.random.default_rng(3)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def rewritten(module, *inputs):
    """The operators of `main` after the passes; its result is checked."""
    before = infer_types(module)
    after = before
    for step in (BlockChannels(), PackMatrices(), DeadCode()):
        after = infer_types(step(after))
    wanted = np.asarray(evaluate(before, "main", *inputs))
    np.testing.assert_allclose(np.asarray(evaluate(after, "main", *inputs)), wanted, rtol=1e-4, atol=1e-4)
    values = [binding.value for binding in after.functions["main"].body.bindings]
    return [value.operator for value in values if isinstance(value, ir.OperatorCall)]


def image(channels, size=6, batch=2):
    return var("x", (batch, channels, size, size)), normal(batch if batch != "n" else 3, channels, size, size)


def test_nothing_is_unpacked_between_convolutions():
    x, array = image(32)
    hidden = op.relu(op.conv(x, constant(normal(48, 32, 5, 5)), constant(normal(48)), pads=(8,) * 4, dilations=(4, 4)))
    y = op.relu(op.add(op.conv(hidden, constant(normal(48, 48, 1, 1))), hidden))
    operators = rewritten(Module(main=function([x], y)), array)
    assert operators == ["pack_channels", "conv_blocked", "relu", "conv_blocked", "add", "relu", "unpack_channels"]


def test_a_classifier_from_planes_to_logits():
    x, array = image(3, batch="n")
    y = op.relu(op.conv(x, constant(normal(16, 3, 3, 3)), strides=(2, 2), pads=(1, 1, 1, 1)))
    y = op.max_pool(y, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 1, 1))
    y = op.mean(y, axes=(2, 3), keepdims=False)
    y = op.matmul(y, constant(normal(16, 10)))
    operators = rewritten(Module(main=function([x], y)), array)
    assert operators == ["conv_planar", "relu", "max_pool", "mean", "reshape", "matmul_packed"]


@pytest.mark.parametrize(
    ("window", "is_winograd"), [({}, True), ({"strides": (2, 2)}, False), ({"dilations": (2, 2)}, False)]
)
def test_windows_of_a_large_image_are_computed_by_winograd(window, is_winograd):
    x, array = image(16, size=20)
    conv = op.conv(x, constant(normal(32, 16, 3, 3)), constant(normal(32)), pads=(1, 1, 1, 1), **window)
    operators = rewritten(Module(main=function([x], op.relu(conv))), array)
    assert ("conv_winograd" in operators) == is_winograd


@pytest.mark.parametrize("window", [(1, 3), (5, 1), (5, 5), (1, 7)])
def test_so_are_narrow_and_wider_windows(window):
    x, array = image(64, size=20)
    conv = op.conv(x, constant(normal(64, 64, *window)), pads=[size // 2 for size in window] * 2)
    assert "conv_winograd" in rewritten(Module(main=function([x], conv)), array)


@pytest.mark.parametrize(("channels", "size"), [(32, 20), (24, 20), (24, 7)])
def test_so_are_groups(channels, size):
    """Those that do not begin with a block are laid apart."""
    x, array = image(3 * channels, size=size)
    conv = op.conv(x, constant(normal(120, channels, 3, 3)), constant(normal(120)), pads=(1, 1, 1, 1), groups=3)
    operators = rewritten(Module(main=function([x], op.relu(conv))), array)
    assert ("conv_winograd" if size > 7 else "conv_winograd_raw") in operators


def test_so_are_signals():
    x, array = var("x", ("n", 32, "length")), normal(2, 32, 50)
    conv = op.conv(x, constant(normal(48, 32, 3)), constant(normal(48)), pads=(1, 1))
    assert rewritten(Module(main=function([x], op.relu(conv))), array)[1:-1] == ["conv_winograd", "relu"]


def test_weights_stay_raw_where_an_image_is_small():
    x, array = image(64, size=7)
    conv = op.conv(x, constant(normal(32, 64, 3, 3)), constant(normal(32)), pads=(1, 1, 1, 1))
    assert rewritten(Module(main=function([x], conv)), array)[1:-1] == ["conv_winograd_raw"]


@pytest.mark.parametrize(("channels", "is_winograd"), [(16, True), (20, False)])
def test_windows_of_a_volume_are_computed_by_winograd_slice_by_slice(channels, is_winograd):
    x = var("x", ("n", channels, 4, 20, 20))
    conv = op.conv(x, constant(normal(32, channels, 3, 3, 3) / 20), constant(normal(32)), pads=(1,) * 6)
    operators = rewritten(Module(main=function([x], op.relu(conv))), normal(2, channels, 4, 20, 20))
    assert ("conv_winograd" in operators) == is_winograd


def test_a_resized_image_stays_blocked():
    x, array = image(16)
    y = op.relu(op.conv(x, constant(normal(16, 16, 1, 1))))
    y = op.resize(op.resize(y, axis=3, size=12), axis=2, size=9, mode="linear")
    operators = rewritten(Module(main=function([x], op.conv(y, constant(normal(16, 16, 1, 1))))), array)
    assert operators.count("pack_channels") == operators.count("unpack_channels") == 1


@pytest.mark.parametrize("groups", [None, 4])
def test_a_normalised_image_stays_blocked(groups):
    x, array = image(16)
    y = op.conv(x, constant(normal(24, 16, 1, 1)))
    affine = constant(normal(24)), constant(normal(24))
    y = op.group_normalization(y, *affine, groups=groups) if groups else op.instance_normalization(y, *affine)
    operators = rewritten(Module(main=function([x], op.conv(op.silu(y), constant(normal(16, 24, 1, 1))))), array)
    assert operators[1:-1] == ["conv_blocked", "group_normalization_blocked", "silu", "conv_blocked"]


def test_concatenation_and_scales_of_channels():
    x, array = image(16)
    left = op.conv(x, constant(normal(32, 16, 1, 1)))
    right = op.conv(x, constant(normal(8, 16, 1, 1)))
    y = op.multiply(op.concat(left, right, axis=1), constant(normal(40, 1, 1)))
    operators = rewritten(Module(main=function([x], op.conv(y, constant(normal(5, 40, 1, 1))))), array)
    assert operators.count("pack_channels") == operators.count("unpack_channels") == 1
    assert "concat" in operators


@pytest.mark.parametrize(
    "shape", [(2, 40, 1, 1), (40, 1, 1), (2, 1, 6, 6), (1, 1, 6, 6), (6, 6), (1, 1, 1, 6)], ids=str
)
def test_numbers_for_each_channel_or_pixel_that_a_run_computes(shape):
    x, array = image(16)
    scale = var("s", shape)
    y = op.multiply(op.conv(x, constant(normal(40, 16, 1, 1))), scale)
    module = Module(main=function([x, scale], op.conv(y, constant(normal(5, 40, 1, 1)))))
    operators = rewritten(module, array, normal(*shape))
    assert operators.count("unpack_channels") == 1
    assert operators.count("pack_channels") == (2 if 40 in shape else 1)


def test_a_constant_of_the_size_of_an_image_is_packed_once():
    x, array = image(16)
    y = op.add(op.conv(x, constant(normal(40, 16, 1, 1))), constant(normal(1, 40, 6, 6)))
    operators = rewritten(Module(main=function([x], op.conv(y, constant(normal(5, 40, 1, 1))))), array)
    assert operators.count("pack_channels") == operators.count("unpack_channels") == 1


@pytest.mark.parametrize(
    ("weights", "groups"),
    [((40, 20, 3, 3), 1), ((32, 20, 1, 1), 1), ((20, 1, 3, 3), 20), ((64, 10, 3, 3), 2), ((32, 5, 3, 3), 4)],
)
def test_weights_that_a_run_computes_are_packed_by_kernels(weights, groups):
    x, array = image(20)
    w, bias = var("w", weights), var("b", (weights[0],))
    y = op.conv(x, w, bias, pads=(weights[2] // 2,) * 4, groups=groups)
    operators = rewritten(Module(main=function([x, w, bias], y)), array, normal(*weights), normal(weights[0]))
    assert {"pack_weights", "pack_planar_weights", "pack_vector"}.isdisjoint(operators) or weights[1] == 5


def test_channels_are_joined_and_cut_anywhere():
    x, array = image(16)
    left, right = op.conv(x, constant(normal(10, 16, 1, 1))), op.conv(x, constant(normal(23, 16, 1, 1)))
    joined = op.relu(op.concat(left, right, left, axis=1))
    inner = op.slice(joined, starts=(5,), ends=(-3,), axes=(1,))
    first = op.slice(joined, starts=(16,), ends=(40,), axes=(1,))
    y = op.add(op.conv(inner, constant(normal(7, 35, 1, 1))), op.conv(first, constant(normal(7, 24, 1, 1))))
    operators = rewritten(Module(main=function([x], y)), array)
    assert operators.count("pack_channels") == operators.count("unpack_channels") == 1
    assert operators.count("join_channels") == 2
    assert operators.count("slice") == 1


@pytest.mark.parametrize(("sizes", "joins"), [((16, 16, 8), 0), ((10, 30), 1)])
def test_parts_of_a_split_stay_blocked(sizes, joins):
    x, array = image(16)
    parts = op.split(op.conv(x, constant(normal(40, 16, 1, 1))), axis=1, sizes=sizes)
    whole = op.concat(*(op.relu(parts[i]) for i in reversed(range(len(sizes)))), axis=1)
    operators = rewritten(Module(main=function([x], op.conv(whole, constant(normal(7, 40, 1, 1))))), array)
    assert operators.count("pack_channels") == operators.count("unpack_channels") == 1
    assert operators.count("join_channels") == joins + 1


def test_channels_of_volumes():
    x, array = var("x", (1, 16, 3, 4, 5)), normal(1, 16, 3, 4, 5)
    y = op.conv(x, constant(normal(24, 16, 1, 1, 1)))
    parts = op.split(op.instance_normalization(y, constant(normal(24)), constant(normal(24))), axis=1, sizes=(10, 14))
    y = op.concat(op.slice(y, starts=(3,), ends=(20,), axes=(1,)), y, parts[0], parts[1], axis=1)
    rewritten(Module(main=function([x], op.conv(y, constant(normal(7, 65, 1, 1, 1))))), array)


@pytest.mark.parametrize(("batch", "groups"), [(1, 2), ("n", 2), (2, 4), (1, 13)])
def test_shuffled_channels(batch, groups):
    x, array = image(16, batch=batch)
    left, right = (op.conv(x, constant(normal(26, 16, 1, 1))) for _ in range(2))
    joined = op.concat(left, right, axis=1)
    apart = op.reshape(joined, shape=(batch, groups, 52 // groups, 6, 6))
    y = op.reshape(op.permute_dims(apart, axes=(0, 2, 1, 3, 4)), shape=(batch, 52, 6, 6))
    operators = rewritten(Module(main=function([x], op.conv(y, constant(normal(7, 52, 1, 1))))), array)
    assert ("permute_dims" in operators) == (groups == 13)
    assert operators.count("join_channels") == 1


@pytest.mark.parametrize(
    ("apart", "axes", "shape"), [((2, 4, 4, 36), (0, 2, 1, 3), (1152,)), ((1152,), (0,), (2, 16, 6, 6))]
)
def test_what_looks_like_a_shuffle_for_a_while_stays(apart, axes, shape):
    x, array = image(16)
    y = op.reshape(
        op.permute_dims(op.reshape(op.conv(x, constant(normal(16, 16, 1, 1))), shape=apart), axes=axes), shape=shape
    )
    assert "permute_dims" in rewritten(Module(main=function([x], y)), array)


@pytest.mark.parametrize(("channels", "batch", "as_pixels"), [(32, 2, False), (40, "n", False), (20, 2, True)])
def test_channels_that_lie_last_for_a_while_are_moved_once_each_way(channels, batch, as_pixels):
    x, array = image(channels, batch=batch)
    hidden = op.conv(x, constant(normal(channels, channels, 3, 3)), pads=(1, 1, 1, 1))
    if as_pixels:
        pixels = op.permute_dims(op.reshape(hidden, shape=(batch, channels, 36)), axes=(0, 2, 1))
        normed = op.layer_normalization(pixels, constant(normal(channels)), constant(normal(channels)))
        first = op.reshape(op.permute_dims(normed, axes=(0, 2, 1)), shape=(batch, channels, 6, 6))
    else:
        last = op.permute_dims(hidden, axes=(0, 2, 3, 1))
        normed = op.layer_normalization(last, constant(normal(channels)), constant(normal(channels)))
        first = op.permute_dims(normed, axes=(0, 3, 1, 2))
    y = op.conv(op.add(first, hidden), constant(normal(17, channels, 1, 1)))
    operators = rewritten(Module(main=function([x], y)), array)
    between = operators[operators.index("layer_normalization") :]
    assert "permute_dims" not in operators
    assert [name for name in between if name != "reshape"] == [
        "layer_normalization", "pack_channels", "add", "conv_blocked", "unpack_channels"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "operator"),
    [
        (32, 32, 32, "conv_depthwise"),
        (32, 32, 8, "conv_depthwise"),
        (40, 40, 5, "conv_depthwise"),
        (24, 24, 8, "conv_blocked"),
        (64, 32, 2, "conv_blocked"),
        (20, 40, 20, "conv_blocked"),
        (15, 9, 3, "conv_blocked"),
    ],
)
def test_groups(channels, outputs, groups, operator):
    x, array = image(channels)
    y = op.conv(x, constant(normal(outputs, channels // groups, 3, 3)), constant(normal(outputs)), groups=groups)
    assert rewritten(Module(main=function([x], y)), array) == ["pack_channels", operator, "unpack_channels"]


@pytest.mark.parametrize(("channels", "operator"), [(2, "conv_blocked"), (4, "conv_blocked"), (8, "conv_winograd")])
def test_a_single_group_of_few_channels_is_no_depthwise_one(channels, operator):
    x, array = image(channels, size=20)
    y = op.conv(x, constant(normal(channels, channels, 3, 3)), pads=(1, 1, 1, 1))
    y = op.conv(y, constant(normal(channels, channels, 3, 3)), pads=(1, 1, 1, 1))
    assert rewritten(Module(main=function([x], y)), array) == ["conv_planar", operator, "unpack_channels"]


@pytest.mark.parametrize(("outputs", "operator"), [(3, "conv_to_few"), (5, "conv_blocked")])
def test_a_few_output_channels(outputs, operator):
    x, array = image(20)
    y = op.conv(x, constant(normal(outputs, 20, 5, 5)), constant(normal(outputs)), pads=(2, 2, 2, 2), strides=(2, 1))
    assert rewritten(Module(main=function([x], y)), array) == ["pack_channels", operator, "unpack_channels"]


def test_very_wide_depthwise_windows_are_left_as_they_are():
    x, array = image(16, size=70)
    y = op.conv(x, constant(normal(16, 1, 1, 65)), groups=16)
    assert rewritten(Module(main=function([x], y)), array) == ["conv"]


@pytest.mark.parametrize("turns", [1, 4])
def test_wide_groups_that_do_not_fit_into_blocks_are_laid_apart(turns):
    """What follows a convolution is computed before its groups are laid together, which they are not for others like them."""
    x, array = image(15)
    y = op.relu(op.conv(x, constant(normal(60, 5, 3, 3)), constant(normal(60)), groups=3))
    if turns > 1:
        turned = op.permute_dims(op.reshape(y, shape=(2, turns, 60 // turns, 4, 4)), axes=(0, 2, 1, 3, 4))
        y = op.reshape(turned, shape=(2, 60, 4, 4))
    operators = rewritten(Module(main=function([x], op.conv(y, constant(normal(96, 20, 1, 1)), groups=3))), array)
    between = ["split", "join_channels", "join_channels"] if turns > 1 else []
    assert operators == [
        "pack_channels", "join_channels", "conv_blocked", "relu", *between, "conv_blocked", "unpack_channels"
    ]  # fmt: skip


def test_signals_stay_blocked():
    x = var("x", (2, 5, 20))
    y = op.gelu(op.conv(x, constant(normal(32, 5, 3)), constant(normal(32)), strides=(2,), pads=(1, 1)))
    y = op.add(op.conv(y, constant(normal(32, 32, 3)), dilations=(2,), pads=(4, 0)), y)
    y = op.max_pool(op.multiply(y, constant(normal(32, 1))), kernel=(2,), strides=(2,))
    operators = rewritten(Module(main=function([x], y)), normal(2, 5, 20))
    assert operators == ["conv_planar", "gelu", "conv_blocked", "add", "multiply", "max_pool", "unpack_channels"]


def test_depthwise_convolutions_of_signals_are_those_of_images_of_height_one():
    x = var("x", (2, 20, "l"))
    y = op.conv(x, constant(normal(20, 1, 5)), constant(normal(20)), strides=(2,), pads=(2, 2), groups=20)
    y = op.conv(op.relu(y), constant(normal(16, 20, 1)))
    operators = rewritten(Module(main=function([x], y)), normal(2, 20, 33))
    assert operators == [
        "pack_channels",
        "reshape",
        "conv_depthwise",
        "reshape",
        "relu",
        "conv_blocked",
        "unpack_channels",
    ]


def test_sizes_of_images_may_be_symbolic():
    x = var("x", (1, 3, "h", "w"))
    y = op.relu(op.conv(x, constant(normal(32, 3, 3, 3)), strides=(2, 2), pads=(1, 1, 1, 1)))
    y = op.max_pool(y, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    y = op.add(op.conv(y, constant(normal(32, 32, 3, 3)), pads=(1, 1, 1, 1)), y)
    y = op.mean(op.relu(y), axes=(2, 3), keepdims=True)
    operators = rewritten(Module(main=function([x], y)), normal(1, 3, 19, 24))
    assert operators == ["conv_planar", "relu", "max_pool", "conv_winograd", "add", "relu", "mean", "reshape"]


def test_depthwise_convolutions_of_symbolic_sizes_are_blocked():
    x = var("x", ("n", 32, "h", "w"))
    y = op.relu(op.conv(x, constant(normal(32, 1, 3, 3)), strides=(2, 2), pads=(1, 1, 1, 1), groups=32))
    y = op.conv(y, constant(normal(16, 32, 1, 1)))
    operators = rewritten(Module(main=function([x], y)), normal(2, 32, 11, 40))
    assert operators == ["pack_channels", "conv_depthwise", "relu", "conv_blocked", "unpack_channels"]


def test_volumes():
    x = var("x", (2, 16, 3, 5, 6))
    y = op.relu(op.conv(x, constant(normal(20, 16, 3, 5, 5)), constant(normal(20)), pads=(2,) * 6, dilations=(2, 1, 1)))
    y = op.max_pool(y, kernel=(1, 2, 2), strides=(1, 2, 2))
    y = op.multiply(op.conv(y, constant(normal(32, 20, 1, 1, 1))), constant(normal(32, 1, 1, 1)))
    operators = rewritten(Module(main=function([x], y)), normal(2, 16, 3, 5, 6))
    wanted = ["conv_blocked", "relu", "max_pool", "conv_blocked", "multiply"]
    assert operators == ["pack_channels", *wanted, "unpack_channels"]


def test_what_a_product_can_transpose_itself_is_not_moved():
    q, k = var("q", (2, 5, 4)), var("k", (2, 6, 4))
    y = op.matmul(q, op.permute_dims(k, axes=(0, 2, 1)))
    assert rewritten(Module(main=function([q, k], y)), normal(2, 5, 4), normal(2, 6, 4)) == ["matmul_transposed"]


def test_columns_of_unknown_length_are_moved_and_not_left_to_the_host():
    """Weights of attention times values that lie column by column: a kernel that turns columns needs their length."""
    weights, values = var("w", (2, "n", "n")), var("v", (2, 8, "n"))
    y = op.matmul(weights, op.permute_dims(values, axes=(0, 2, 1)))
    module = Module(main=function([weights, values], y))
    assert rewritten(module, normal(2, 5, 5), normal(2, 8, 5)) == ["permute_dims", "matmul"]


@pytest.mark.parametrize(
    ("a", "b"),
    [((5, 70), (70, 1)), ((5, 70), (70,)), ((2, 5, 70), (2, 70, 1)), ((5, 70), (3, 70, 1)), ((1, 70), (70, 1))],
)
@pytest.mark.parametrize("is_constant", [False, True])
def test_a_product_with_one_column_is_a_sum(a, b, is_constant):
    x, arrays = var("x", a), [normal(*a), normal(*b)]
    y = constant(arrays.pop()) if is_constant else var("y", b)
    module = Module(main=function([x] if is_constant else [x, y], op.matmul(x, y)))
    assert rewritten(module, *arrays) == ["reshape", "multiply", "sum"]


def test_a_product_of_short_rows_with_one_column_stays():
    x = var("x", (5, 7))
    assert rewritten(Module(main=function([x], op.matmul(x, constant(normal(7, 1))))), normal(5, 7)) == [
        "matmul_packed"
    ]


def test_weights_may_be_arguments():
    x, array = image(16)
    weight = var("weight", (16, 16, 3, 3))
    operators = rewritten(Module(main=function([x, weight], op.conv(x, weight))), array, normal(16, 16, 3, 3))
    moved = ["reshape", "reshape", "permute_dims"]
    assert operators == [*moved, "pack_channels", "conv_blocked", "unpack_channels"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_matrices_that_16_bits_hold_exactly_take_no_more(dtype):
    matrix = normal(300, 400).astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":  # with numbers that float16 has not
        matrix = (matrix * 1e6).astype(DType.bfloat16.numpy).astype(np.float32)
    if dtype == "float32":
        matrix[299, 399] += 1e-3
    x, array = var("x", (2, 300)), normal(2, 300)
    plain = infer_types(Module(main=function([x], op.matmul(x, constant(matrix)))))
    packed = PackMatrices()(plain)
    (binding,) = packed.functions["main"].body.bindings
    assert binding.value.args[1].type.dtype.name == dtype
    results = [np.asarray(evaluate(module, "main", array)) for module in (plain, packed)]
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4 * np.abs(results[0]).max())


def test_weights_stay_float32_where_the_package_of_a_narrower_type_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.setattr(DType.bfloat16, "_numpy", None)
    places = var("places", (3,), "int64")
    rows = op.take(constant(normal(300, 400)), places, axis=0)
    module = infer_types(Module(main=function([places], op.matmul(rows, constant(normal(400, 300))))))
    constants = [arg.type.dtype for each in PackMatrices()(module).functions["main"].body.bindings
                 for arg in each.value.args if isinstance(arg, ir.Constant)]  # fmt: skip
    assert constants == [DType.float32, DType.float32]


def test_halves_whose_channels_end_within_a_block_are_joined_unblocked():
    """What shifts channels takes no float16: images that were narrowed between convolutions are joined as they are."""
    x, array = image(16)
    parts = [op.cast(op.conv(x, constant(normal(8, 16, 1, 1))), dtype="float16") for _ in range(2)]
    operators = rewritten(Module(main=function([x], op.concat(*parts, axis=1))), array)
    assert "join_channels" not in operators


@pytest.mark.parametrize(("channels", "stays_blocked"), [(3, False), (16, True)])
@pytest.mark.parametrize("name", ["divide", "remainder"])
def test_integers_are_not_divided_by_what_lies_behind_the_last_channel(name, channels, stays_blocked):
    x = var("x", (1, 2, 4, 4), "uint8")
    weights = constant(np.ones((channels, 2, 1, 1), np.int8))
    divisors = constant((1 + np.arange(channels, dtype=np.int32)).reshape(1, channels, 1, 1))
    y = getattr(op, name)(op.conv_integer(x, weights), divisors)
    operators = rewritten(Module(main=function([x], y)), RNG.integers(0, 9, (1, 2, 4, 4)).astype(np.uint8))
    assert (operators.index(name) < operators.index("unpack_channels")) == stays_blocked


def test_the_parts_of_a_split_are_cut_once():
    def walked(count):
        x = var("x", (1, count, 4, 4))
        parts = op.split(x, sizes=(1,) * count, axis=1)
        module = infer_types(Module(main=function([x], op.concat(*(op.relu(parts[i]) for i in range(count)), axis=1))))
        return timing.calls(lambda: BlockChannels()(module))

    assert walked(120) < 2.3 * walked(60)


@pytest.mark.parametrize("cpu", ["haswell", "x86-64-v4"])
def test_algorithms_are_chosen_for_the_registers_of_the_target(cpu):
    target = of(NativeTarget(host().native.triple, cpu, ""))
    (step,) = (step for _, step in CPU(target).passes(Stage.LAYOUT) if isinstance(step, BlockChannels))
    assert step.registers == target.block_registers
