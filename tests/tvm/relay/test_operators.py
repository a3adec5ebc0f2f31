"""Relay's operators against NumPy: the table's rows, by family."""

import inspect

import numpy as np
import pytest
from treadle.formats.messages.errors import InferenceError
from treadle.tvm import relay
from treadle.tvm.relay.op.table import TABLE

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 3, 4)).astype("float32")
IMAGE = RANDOM.standard_normal((1, 4, 6, 6)).astype("float32")


def value(call, *arrays):
    """What a program of variables for the arrays gives."""
    variables = [relay.var(f"x{place}", shape=a.shape, dtype=a.dtype.name) for place, a in enumerate(arrays)]
    made = call(*variables)
    made = made.astuple() if hasattr(made, "astuple") else made
    result = relay.create_executor("graph").evaluate(relay.Function(variables, made))(*arrays)
    return [field.numpy() for field in result] if isinstance(result, list) else result.numpy()


def same(call, expected, *arrays):
    np.testing.assert_allclose(value(call, *arrays), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "floor", "ceil", "abs", "negative", "erf", "sign"])
def test_elementwise_operators_of_one_tensor(name):
    expected = {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": None}.get(name, getattr(np, name, None))
    got = value(getattr(relay, name), X)
    assert got.shape == X.shape
    if expected is not None:
        np.testing.assert_allclose(got, expected(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "numpys"),
    [
        ("add", "add"),
        ("subtract", "subtract"),
        ("maximum", "maximum"),
        ("less", "less"),
        ("power", "power"),
        ("mod", "fmod"),
    ],
)
def test_elementwise_operators_of_two_tensors_broadcast(ours, numpys):
    a, b = np.abs(X) + 1, np.abs(X[:1, :, :1]) + 1
    same(getattr(relay, ours), getattr(np, numpys)(a, b), a, b)


def test_integers_are_divided_towards_zero_and_down():
    a, b = np.array([7, -7, 7, -7], "int32"), np.array([2, 2, -2, -2], "int32")
    same(relay.divide, [3, -3, -3, 3], a, b)
    same(relay.floor_divide, [3, -4, -4, 3], a, b)
    same(relay.floor_mod, [1, 1, -1, -1], a, b)
    same(relay.trunc_mod, [1, -1, 1, -1], a, b)


def test_reductions_take_axes_all_or_the_others():
    same(lambda x: relay.sum(x, axis=1), X.sum(1), X)
    same(lambda x: relay.mean(x, axis=[0, -1], keepdims=True), X.mean((0, 2), keepdims=True), X)
    same(lambda x: relay.max(x, axis=1, exclude=True), X.max((0, 2)), X)
    same(lambda x: relay.variance(x, axis=2), X.var(2), X)
    same(lambda x: relay.argmax(x), X.argmax(), X)
    assert value(lambda x: relay.argmin(x, axis=1), X).dtype == np.int32


@pytest.mark.parametrize(
    ("newshape", "shape"),
    [((0, -1), (2, 12)), ((-1,), (24,)), ((-3, 0), (6, 4)), ((0, 0, -4, 2, -1), (2, 3, 2, 2)), ((0, -2), (2, 3, 4))],
)
def test_numbers_in_a_new_shape_have_meanings(newshape, shape):
    same(lambda x: relay.reshape(x, newshape), X.reshape(shape), X)


def test_a_new_shape_is_read_from_its_end():
    same(lambda x: relay.reverse_reshape(x, (-1, 0)), X.reshape(6, 4), X)


def test_elements_are_moved():
    same(lambda x: relay.transpose(x, (2, 0, 1)), X.transpose(2, 0, 1), X)
    same(lambda x: relay.reverse(x, axis=1), X[:, ::-1], X)
    same(lambda x: relay.tile(x, (2, 1, 3)), np.tile(X, (2, 1, 3)), X)
    same(lambda x: relay.repeat(x, 2, axis=1), X.repeat(2, 1), X)
    same(lambda x: relay.strided_slice(x, [0, 2, -1], [2, 0, 0], [1, -1, -2]), X[0:2, 2:0:-1, -1:0:-2], X)
    same(lambda x: relay.strided_slice(x, [0, 1], [1, -1], slice_mode="size"), X[:1, 1:], X)
    same(
        lambda x: relay.layout_transform(x, "NCHW", "NCHW2c"),
        IMAGE.reshape(1, 2, 2, 6, 6).transpose(0, 1, 3, 4, 2),
        IMAGE,
    )
    for part, expected in zip(value(lambda x: relay.split(x, (1, 3), axis=2), X), np.split(X, (1, 3), 2), strict=True):
        np.testing.assert_array_equal(part, expected)


def test_elements_are_taken_and_put():
    places = np.array([[0, 5], [-1, 1]], "int32")
    same(lambda x, i: relay.take(x, i, axis=2), np.take(X, np.clip(places, 0, 3), 2), X, places)
    same(lambda x, i: relay.take(x, i, axis=2, mode="wrap"), np.take(X, places % 4, 2), X, places)
    same(
        lambda i: relay.one_hot(i, relay.const(1.0), relay.const(0.0), 4, -1, "float32"),
        np.eye(4)[[1, 3]],
        np.array([1, 3]),
    )
    pairs = np.array([[0, 1], [2, 0]])
    same(lambda x, i: relay.gather_nd(x, i), X[[0, 1], [2, 0]], X, pairs)
    same(lambda x: relay.topk(x, 2, ret_type="values"), -np.sort(-X)[..., :2], X)
    same(lambda x: relay.argsort(x), X.argsort(), X)


def test_layouts_give_the_same_convolution():
    weight = RANDOM.standard_normal((8, 4, 3, 3)).astype("float32")
    plain = value(lambda x, w: relay.nn.conv2d(x, w, padding=(1, 1)), IMAGE, weight)
    last = value(
        lambda x, w: relay.nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO"),
        IMAGE.transpose(0, 2, 3, 1),
        weight.transpose(2, 3, 1, 0),
    )
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), plain, rtol=1e-4, atol=1e-4)
    one = weight[:4, :1]
    deep = value(lambda x, w: relay.nn.conv2d(x, w, groups=4), IMAGE, one)
    deep_last = value(
        lambda x, w: relay.nn.conv2d(x, w, groups=4, data_layout="NHWC", kernel_layout="HWOI"),
        IMAGE.transpose(0, 2, 3, 1),
        one.transpose(2, 3, 0, 1),
    )
    np.testing.assert_allclose(deep_last.transpose(0, 3, 1, 2), deep, rtol=1e-4, atol=1e-4)


def test_products():
    a, w = X[0], RANDOM.standard_normal((5, 4)).astype("float32")
    same(relay.nn.dense, a @ w.T, a, w)
    same(relay.nn.batch_matmul, X @ X.transpose(0, 2, 1), X, X)
    small, weights = np.arange(6, dtype="int8").reshape(2, 3), np.ones((4, 3), "int8")
    exact = value(lambda x, y: relay.nn.dense(x, y, out_dtype="int32"), small, weights)
    np.testing.assert_array_equal(exact, small.astype("int32") @ weights.T)
    assert exact.dtype == np.int32


def test_pooling_and_normalisation():
    same(lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2)), IMAGE.reshape(1, 4, 3, 2, 3, 2).max((3, 5)), IMAGE)
    same(lambda x: relay.nn.adaptive_avg_pool2d(x, (3, 2)), IMAGE.reshape(1, 4, 3, 2, 2, 3).mean((3, 5)), IMAGE)
    same(lambda x: relay.nn.global_avg_pool2d(x), IMAGE.mean((2, 3), keepdims=True), IMAGE)
    exps = np.exp(X - X.max(1, keepdims=True))
    same(lambda x: relay.nn.softmax(x, axis=1), exps / exps.sum(1, keepdims=True), X)
    mean, var = X.mean(2, keepdims=True), X.var(2, keepdims=True)
    ones, zeros = np.ones(4, "float32"), np.zeros(4, "float32")
    same(relay.nn.layer_norm, (X - mean) / np.sqrt(var + 1e-5), X, ones, zeros)


def test_weights_without_a_type_take_what_the_operator_says():
    x = relay.var("x", shape=(2, 5))
    program = relay.nn.bias_add(relay.nn.dense(x, relay.var("w"), units=3), relay.var("b"), axis=-1)
    typed = relay.transform.InferType()(relay.IRModule.from_expr(program))
    weight, bias = typed["main"].checked_type.arg_types[1:]
    assert (weight, bias) == (relay.TensorType((3, 5)), relay.TensorType((3,)))
    assert typed["main"].body.checked_type == relay.TensorType((2, 3))


def test_a_mistake_names_the_operator():
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(4, 3))
    with pytest.raises(InferenceError, match="concatenate: "):
        relay.transform.InferType()(relay.IRModule.from_expr(relay.concatenate([x, y], axis=1)))
    with pytest.raises(TypeError, match='convert "1" with `const` first'):
        x + 1
    with pytest.raises(ValueError, match=r"Cannot find op nn\.nothing"):
        relay.op.get("nn.nothing")


def test_every_row_has_a_signature_and_says_what_it_is():
    for name, row in TABLE.items():
        first = next(iter(row.signature.parameters.values()), None)
        assert first is None or first.default is inspect.Parameter.empty or name in ("arange",), name
        assert row.function.__doc__, name


def test_no_module_of_relay_takes_the_name_of_an_operator():
    import pkgutil

    modules = {each.name for each in pkgutil.iter_modules(relay.__path__)}
    assert modules.isdisjoint(set(relay.op.FUNCTIONS) - {"transform"})


def test_how_many_are_taken_may_be_computed():
    data, count = np.array([3, 1, 2], "float32"), np.array(2, "int32")
    same(lambda x, k: relay.topk(x, k, ret_type="values"), [3, 2], data, count)
    same(lambda k: relay.arange(relay.const(0), k, relay.const(1), "int32"), [0, 1], count)
    same(lambda k: relay.full(relay.const(7.0), relay.reshape(k, (1,))), [7, 7], count)


def test_sums_and_products_of_truth_values_are_truth_values():
    flags = np.array([[True, False, True], [False, False, False]])
    for call, expected in ((relay.sum, flags.any(1)), (relay.max, flags.any(1)), (relay.prod, flags.all(1))):
        got = value(lambda x, call=call: call(x, axis=1), flags)
        assert got.dtype == np.bool_
        np.testing.assert_array_equal(got, expected)


def test_a_transposed_convolution_of_bytes_is_exact():
    data, weight = np.full((1, 2, 3, 3, 3), 100, "int8"), np.full((2, 4, 2, 2, 2), 100, "int8")
    got = value(lambda x, w: relay.nn.conv3d_transpose(x, w, channels=4, out_dtype="int32"), data, weight)
    assert (got.dtype, got.max()) == (np.int32, 100 * 100 * 2 * 8)


@pytest.mark.parametrize("segments", [None, 4])
def test_rows_behind_the_last_number_are_in_no_segment(segments):
    rows, numbers = np.arange(12, dtype="float32").reshape(3, 4), np.array([0, 2], "int32")
    expected = np.zeros((segments or 3, 4), "float32")
    expected[[0, 2]] = rows[:2]
    same(lambda x, i: relay.segment_sum(x, i, segments), expected, rows, numbers)


def test_the_compiler_that_scripts_clear_is_there_under_both_names():
    relay.backend.te_compiler.get().clear()
    relay.backend.compile_engine.get().clear()
    with pytest.raises(AttributeError, match=r"TECompiler\.lower is not here"):
        relay.backend.te_compiler.get().lower(None)
