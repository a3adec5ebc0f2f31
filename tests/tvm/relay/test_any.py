"""Shapes known only at run time, through the Relay VM: what TVM's tests/python/relay/test_any.py checks, operator by operator."""

from collections.abc import Callable

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.errors import ShapeError
from treadle.tvm import relay
from treadle.tvm.relay.loops import while_loop
from treadle.tvm.runtime.container import ADT

ANY = relay.Any()
RNG = np.random.default_rng(5)


def ran(function, *args):
    result = relay.create_executor("vm", relay.IRModule.from_expr(function), tvm.cpu(), "llvm").evaluate()(*args)
    return [part.numpy() for part in result] if isinstance(result, ADT) else result.numpy()


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


# of one tensor: shape, program, data, expected
UNARY: dict[str, tuple] = {
    "exp": ((ANY, 3), relay.exp, data(4, 3), np.exp),
    "argmax": ((ANY, ANY), lambda x: relay.argmax(x, axis=1), data(4, 3), lambda a: a.argmax(1)),
    "sum": ((ANY, ANY), lambda x: relay.sum(x, axis=[0]), data(4, 3), lambda a: a.sum(0)),
    "reshape": ((ANY, ANY), lambda x: relay.reshape(x, (0, -1, 1)), data(4, 3), lambda a: a.reshape(4, 3, 1)),
    "expand_dims": ((ANY,), lambda x: relay.expand_dims(x, 1), data(4), lambda a: a[:, None]),
    "transpose": (
        (ANY, 3, ANY),
        lambda x: relay.transpose(x, (2, 0, 1)),
        data(2, 3, 4),
        lambda a: a.transpose(2, 0, 1),
    ),
    "squeeze": ((1, ANY), lambda x: relay.squeeze(x, axis=[0]), data(1, 4), lambda a: a[0]),
    "tile": ((ANY,), lambda x: relay.tile(x, (2, 3)), data(4), lambda a: np.tile(a, (2, 3))),
    "repeat": ((ANY, 2), lambda x: relay.repeat(x, 2, axis=0), data(3, 2), lambda a: a.repeat(2, 0)),
    "pad": ((ANY, ANY), lambda x: relay.nn.pad(x, ((1, 1), (0, 2))), data(2, 3), lambda a: np.pad(a, ((1, 1), (0, 2)))),
    "softmax": ((ANY, 5), lambda x: relay.nn.softmax(x, axis=-1), data(3, 5), softmax),
    "relu": ((ANY, ANY), relay.nn.relu, data(3, 5), lambda a: np.maximum(a, 0)),
    "batch_flatten": ((ANY, 3, ANY), relay.nn.batch_flatten, data(2, 3, 4), lambda a: a.reshape(2, -1)),
    "strided_slice": (
        (ANY, 5),
        lambda x: relay.strided_slice(x, begin=[1, 0], end=[3, 4], strides=[1, 2]),
        data(4, 5),
        lambda a: a[1:3, 0:4:2],
    ),
    "ndarray_size": ((ANY, ANY), relay.ndarray_size, data(3, 5), lambda a: np.int32(a.size)),
    "shape_of": ((ANY, ANY), relay.shape_of, data(3, 5), lambda a: np.array(a.shape)),
    "full_like": ((ANY, 2), relay.zeros_like, data(3, 2), np.zeros_like),
    "global_avg_pool2d": (
        (ANY, 3, ANY, ANY),
        relay.nn.global_avg_pool2d,
        data(1, 3, 4, 5),
        lambda a: a.mean((2, 3), keepdims=True),
    ),
    "max_pool2d": (
        (1, 2, ANY, ANY),
        lambda x: relay.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2)),
        data(1, 2, 4, 6),
        lambda a: a.reshape(1, 2, 2, 2, 3, 2).max((3, 5)),
    ),
    "argwhere": ((ANY, ANY), relay.argwhere, np.eye(3, dtype="float32"), np.argwhere),
    "topk": ((ANY, ANY), lambda x: relay.topk(x, k=2, ret_type="values"), data(3, 5), lambda a: -np.sort(-a, 1)[:, :2]),
    "argsort": ((ANY, ANY), lambda x: relay.argsort(x, axis=1), data(3, 5), lambda a: a.argsort(1)),
}


@pytest.mark.parametrize("name", UNARY)
def test_operators_of_one_tensor(name: str) -> None:
    shape, program, array, expected = UNARY[name]
    x = relay.var("x", shape=shape)
    np.testing.assert_allclose(ran(relay.Function([x], program(x)), array), expected(array), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "given"),
    [
        (((ANY,), (3, 2)), ((1,), (3, 2))),
        (((ANY, 2), (1, 2)), ((3, 2), (1, 2))),
        (((ANY, 2), (3, 2)), ((1, 2), (3, 2))),
        (((ANY, 2), (3, ANY)), ((1, 2), (3, 1))),
        (((ANY,), (ANY, 3, 2)), ((2,), (4, 3, 2))),
    ],
)
@pytest.mark.parametrize("operator", [(relay.add, np.add), (relay.maximum, np.maximum), (relay.less, np.less)])
def test_sizes_broadcast_when_the_program_runs(
    shapes: tuple, given: tuple, operator: tuple[Callable, Callable]
) -> None:
    x, y = (relay.var(name, shape=shape) for name, shape in zip("xy", shapes, strict=True))
    a, b = data(*given[0]), data(*given[1])
    np.testing.assert_array_equal(ran(relay.Function([x, y], operator[0](x, y)), a, b), operator[1](a, b))


@pytest.mark.parametrize(
    ("shapes", "given"),
    [
        (((ANY,), (3, 2)), ((4,), (3, 2))),
        (((ANY, 2), (4, 2)), ((2, 2), (4, 2))),
        (((ANY, 2), (4, ANY)), ((2, 2), (4, 1))),
    ],
)
def test_sizes_that_do_not_broadcast_are_an_error(shapes: tuple, given: tuple) -> None:
    x, y = (relay.var(name, shape=shape) for name, shape in zip("xy", shapes, strict=True))
    with pytest.raises(tvm.TVMError):
        ran(relay.Function([x, y], relay.add(x, y)), data(*given[0]), data(*given[1]))


def test_parts_of_several_tensors() -> None:
    x, y = relay.var("x", shape=(ANY, 2)), relay.var("y", shape=(1, 2))
    a, b = data(3, 2), data(1, 2)
    np.testing.assert_array_equal(
        ran(relay.Function([x, y], relay.concatenate([x, y], axis=0)), a, b), np.concatenate([a, b])
    )
    np.testing.assert_array_equal(
        ran(relay.Function([x], relay.stack([x, x], axis=0)), a),
        np.stack([a, a]),
    )
    first, second = ran(relay.Function([x], relay.split(x, 2, axis=1).astuple()), a)
    np.testing.assert_array_equal(np.concatenate([first, second], 1), a)


def test_elements_are_chosen_by_tensors_of_unknown_size() -> None:
    x, i = relay.var("x", shape=(ANY, 2)), relay.var("i", shape=(ANY,), dtype="int32")
    a, places = data(4, 2), np.array([2, 0, 3], "int32")
    np.testing.assert_array_equal(ran(relay.Function([x, i], relay.take(x, i, axis=0)), a, places), a[places])
    c = relay.var("c", shape=(ANY, 2), dtype="bool")
    chosen = a > 0
    np.testing.assert_array_equal(
        ran(relay.Function([c, x], relay.where(c, x, x + x)), chosen, a), np.where(chosen, a, a + a)
    )
    j = relay.var("j", shape=(1, ANY), dtype="int32")
    np.testing.assert_array_equal(ran(relay.Function([x, j], relay.gather_nd(x, j)), a, places[None]), a[places])
    depth = relay.one_hot(i, relay.const(1.0), relay.const(0.0), 4, -1, "float32")
    np.testing.assert_array_equal(ran(relay.Function([i], depth), places), np.eye(4, dtype="float32")[places])


def test_products_of_unknown_size() -> None:
    x, w = relay.var("x", shape=(ANY, 4)), relay.var("w", shape=(3, 4))
    a, b = data(5, 4), data(3, 4)
    np.testing.assert_allclose(ran(relay.Function([x, w], relay.nn.dense(x, w)), a, b), a @ b.T, rtol=1e-5)
    p, q = relay.var("p", shape=(ANY, ANY, 4)), relay.var("q", shape=(ANY, 3, 4))
    c, d = data(2, 5, 4), data(2, 3, 4)
    product = relay.nn.batch_matmul(p, q)
    np.testing.assert_allclose(
        ran(relay.Function([p, q], product), c, d), c @ d.transpose(0, 2, 1), rtol=1e-4, atol=1e-5
    )
    image, kernel = relay.var("image", shape=(ANY, 2, ANY, ANY)), relay.var("kernel", shape=(3, 2, 1, 1))
    e, f = data(1, 2, 4, 5), data(3, 2, 1, 1)
    expected = np.einsum("nchw,oc->nohw", e, f[:, :, 0, 0])
    convolved = relay.nn.conv2d(image, kernel, kernel_size=(1, 1))
    np.testing.assert_allclose(ran(relay.Function([image, kernel], convolved), e, f), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [5, 1])
def test_a_batch_of_which_nothing_is_known_broadcasts(rows: int) -> None:
    x, y = relay.var("x", shape=(5, 2, 3)), relay.var("y", shape=(ANY, ANY, ANY))
    a, b = data(5, 2, 3), data(rows, 3, 4)
    product = relay.Function([x, y], relay.nn.batch_matmul(x, y, transpose_b=False))
    np.testing.assert_allclose(ran(product, a, b), a @ b, rtol=1e-5)


def test_joined_tensors_agree_when_the_program_runs() -> None:
    x, y, like = (relay.var(name, shape=(ANY, ANY)) for name in ("x", "y", "like"))
    joined = relay.Function([x, y, like], relay.concatenate([relay.reshape_like(x, like), y], axis=0))
    np.testing.assert_array_equal(ran(joined, data(1, 6) * 0, data(1, 2) * 0, data(3, 2)), np.zeros((4, 2)))
    with pytest.raises(ShapeError):
        ran(joined, data(1, 6), data(1, 3), data(3, 2))


def test_any_number_of_boxes_is_cropped() -> None:
    image, boxes, of = (
        relay.var("image", shape=(1, 2, 8, 8)),
        relay.var("boxes", shape=(ANY, 4)),
        relay.var("of", shape=(ANY,), dtype="int32"),
    )
    cropped = relay.Function([image, boxes, of], relay.image.crop_and_resize(image, boxes, of, (8, 8), "NCHW"))
    pixels = data(1, 2, 8, 8)
    found = ran(cropped, pixels, np.array([[0, 0, 1, 1]] * 3, np.float32), np.zeros(3, np.int32))
    np.testing.assert_allclose(found, np.repeat(pixels, 3, axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    ("codes", "shape"), [((-3, 4), (6, 4)), ((0, -3), (2, 12)), ((0, -1), (2, 12)), ((4, 0, 2), (4, 3, 2))]
)
def test_a_computed_shape_may_merge_dimensions(codes: tuple, shape: tuple) -> None:
    x, wanted = relay.var("x", shape=(2, 3, 4)), relay.var("wanted", shape=(len(codes),), dtype="int64")
    found = ran(relay.Function([x, wanted], relay.reshape(x, wanted)), data(2, 3, 4), np.array(codes))
    assert found.shape == shape


def test_numbers_decide_how_long_a_result_is() -> None:
    stop = relay.var("stop", shape=(), dtype="int64")
    program = relay.arange(relay.const(0, "int64"), stop, relay.const(1, "int64"), dtype="int64")
    np.testing.assert_array_equal(ran(relay.Function([stop], program), np.int64(5)), np.arange(5))
    shape = relay.var("shape", shape=(2,), dtype="int64")
    full = relay.full(relay.const(1.5), shape, "float32")
    np.testing.assert_array_equal(ran(relay.Function([shape], full), np.array([2, 3])), np.full((2, 3), 1.5))


def test_a_shape_grows_in_a_loop() -> None:
    start = relay.var("start", shape=(1, 1), dtype="int32")
    grown = relay.var("grown", shape=(ANY, 1), dtype="int32")
    i = relay.var("i", shape=(), dtype="int32")
    one = relay.const(1, "int32")

    def body(i, grown):
        return i + one, relay.concatenate([grown, relay.reshape(i, (1, 1))], axis=0)

    loop = while_loop(lambda i, _: relay.less(i, relay.const(10, "int32")), [i, grown], body)
    result = relay.TupleGetItem(loop(relay.const(0, "int32"), start), 1)
    got = ran(relay.Function([start], result), np.array([[0]], "int32"))
    np.testing.assert_array_equal(got.ravel(), [0, *range(10)])


def test_tuples_and_values_of_several_types_come_in() -> None:
    pair = relay.TupleType([relay.TensorType((ANY, 3)), relay.TensorType((4,))])
    x = relay.var("x", relay.TupleType([pair, relay.TensorType((), "int32")]))
    inner = relay.TupleGetItem(x, 0)
    program = relay.Tuple([relay.TupleGetItem(inner, 0) + relay.const(1.0), relay.TupleGetItem(x, 1)])
    a = data(2, 3)
    first, second = ran(relay.Function([x], program), ((a, data(4)), np.int32(7)))
    np.testing.assert_array_equal(first, a + 1)
    assert second == 7


def test_strides_that_a_run_computes_are_those_of_python_s_slices() -> None:
    x = np.arange(24, dtype="float32").reshape(4, 6)
    d = relay.var("d", shape=(ANY, 6))
    bounds = [relay.var(name, shape=(2,), dtype="int64") for name in ("begin", "end", "strides")]
    program = relay.Function([d, *bounds], relay.strided_slice(d, *bounds))
    run = relay.create_executor("vm", relay.IRModule.from_expr(program)).evaluate()
    rng = np.random.default_rng(0)
    for _ in range(50):
        (b, e), s = rng.integers(-8, 9, (2, 2)), rng.choice([-3, -2, -1, 1, 2, 3], 2)
        np.testing.assert_array_equal(run(x, b, e, s).numpy(), x[b[0] : e[0] : s[0], b[1] : e[1] : s[1]])


def test_a_slice_like_another_tensor_has_its_dimensions() -> None:
    x, y = relay.var("x", shape=(ANY, 3)), relay.var("y", shape=(2, 3))
    like = relay.transform.InferType()(relay.IRModule.from_expr(relay.Function([x, y], relay.slice_like(x, y))))
    assert like["main"].checked_type.ret_type == relay.TensorType((2, 3))


@pytest.mark.parametrize("segments", [None, 4])
def test_segments_of_any_rows_are_summed(segments: int | None) -> None:
    x, numbers = relay.var("x", shape=(ANY, ANY)), relay.var("numbers", shape=(ANY,), dtype="int32")
    rows = data(3, 4)
    found = ran(relay.Function([x, numbers], relay.segment_sum(x, numbers, segments)), rows, np.array([0, 2], "int32"))
    assert found.shape == (segments or 3, 4)
    np.testing.assert_array_equal(found[[0, 2]], rows[:2])


def test_any_number_of_boxes_is_counted_and_suppressed_as_a_known_one() -> None:
    boxes = RNG.random((2, 7, 6)).astype("float32")
    boxes[..., 0] = RNG.integers(0, 2, (2, 7))

    def found(n: object, many: object) -> list[np.ndarray]:
        d, count = relay.var("d", shape=(n, many, 6)), relay.var("count", shape=(n,), dtype="int32")
        numbers = relay.var("numbers", shape=(n, many), dtype="int32")
        valid = ran(relay.Function([d], relay.vision.get_valid_counts(d, 0.3).astuple()), boxes)
        kept = relay.vision.non_max_suppression(d, count, numbers, 2).astuple()
        return [*valid, *ran(relay.Function([d, count, numbers], kept), valid[1], valid[0], valid[2])]

    for mine, other in zip(found(ANY, ANY), found(2, 7), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("bounds", [(1, 3), (-3, -1), (-3, 5), (1, -1), (0, 9), (-3, 2)])
def test_bounds_of_a_slice_that_a_run_computes_count_from_the_end_where_they_are_negative(
    bounds: tuple[int, int],
) -> None:
    x, data = relay.var("x", shape=(5,)), np.arange(5, dtype="float32")
    begin, end = (relay.var(name, shape=(1,), dtype="int64") for name in ("begin", "end"))
    computed = [np.array([bound]) for bound in bounds]
    for step in (1, -1):
        program = relay.Function([x, begin, end], relay.strided_slice(x, begin, end, [step]))
        found = relay.create_executor("vm").evaluate(program)(data, *computed).numpy()
        assert found.tolist() == data[slice(*bounds, step)].tolist()
    first, size = bounds
    last = 5 if size < 0 else first % 5 + size
    for given in (end, relay.const([size], "int64")):
        program = relay.Function([x, begin, end], relay.strided_slice(x, begin, given, slice_mode="size"))
        found = relay.create_executor("vm").evaluate(program)(data, *computed).numpy()
        assert found.tolist() == data[first % 5 : last].tolist()


@pytest.mark.parametrize("count", [2, 0, -1])
def test_top_of_a_computed_number_below_one_is_all(count: int) -> None:
    x, k = relay.var("x", shape=(3, 4)), relay.var("k", shape=(), dtype="int32")
    data = np.arange(12, dtype="float32").reshape(3, 4)
    program = relay.Function([x, k], relay.topk(x, k, ret_type="values"))
    found = relay.create_executor("vm").evaluate(program)(data, np.int32(count)).numpy()
    assert found.tolist() == data[:, ::-1][:, : count if count > 0 else 4].tolist()


IMAGE = data(1, 2, 4, 5)
SCALARS = ("float32", ())
# attributes that a run computes: the program, the tensor, the attributes with their types, what NumPy gives
COMPUTED: dict[str, tuple] = {
    "squeeze": (
        lambda x, a: relay.squeeze(x, axis=a),
        data(1, 3, 1, 2),
        [("int64", (2,), [0, -2])],
        lambda x: x[0, :, 0],
    ),
    "expand_dims": (
        lambda x, a: relay.expand_dims(x, a, 2),
        data(2, 3),
        [("int64", (), -1)],
        lambda x: x[..., None, None],
    ),
    "broadcast_to": (
        relay.broadcast_to,
        data(4, 1),
        [("int64", (3,), [2, 4, 3])],
        lambda x: np.broadcast_to(x, (2, 4, 3)),
    ),
    "pad": (
        relay.nn.pad,
        data(2, 3),
        [("int64", (2, 2), [[1, 0], [2, 1]]), ("float32", (), 7)],
        lambda x: np.pad(x, ((1, 0), (2, 1)), constant_values=7),
    ),
    "resize2d": (
        lambda x, size: relay.image.resize2d(
            x, size, method="nearest_neighbor", coordinate_transformation_mode="asymmetric"
        ),
        IMAGE,
        [("int64", (2,), [8, 15])],
        lambda x: x.repeat(2, 2).repeat(3, 3),
    ),
    "upsampling": (relay.nn.upsampling, IMAGE, [(*SCALARS, 2), (*SCALARS, 3)], lambda x: x.repeat(2, 2).repeat(3, 3)),
    "upsampling3d": (
        lambda x, a: relay.nn.upsampling3d(x, a, 2, 1),
        IMAGE[:, :, None],
        [(*SCALARS, 3)],
        lambda x: x.repeat(3, 2).repeat(2, 3),
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_attributes_that_a_run_computes(name: str) -> None:
    program, x, attributes, expected = COMPUTED[name]
    params = [relay.var(f"a{place}", shape=shape, dtype=dtype) for place, (dtype, shape, _) in enumerate(attributes)]
    arrays = [np.array(value, dtype) for dtype, _, value in attributes]
    var = relay.var("x", shape=x.shape)
    found = ran(relay.Function([var, *params], program(var, *params)), x, *arrays)
    np.testing.assert_array_equal(found, expected(x))


def test_a_shape_that_a_run_computes_must_be_one_that_repeats() -> None:
    x, shape = relay.var("x", shape=(ANY, 4)), relay.var("shape", shape=(2,), dtype="int64")
    program = relay.Function([x, shape], relay.broadcast_to(x, shape))
    assert ran(program, data(1, 4), np.array([3, 4])).shape == (3, 4)
    for wrong in ([3, 4], [2, 5]):
        with pytest.raises(tvm.TVMError):
            ran(program, data(2, 4), np.array(wrong))


@pytest.mark.parametrize("shape", [(ANY, ANY), (ANY, 2)])
def test_sparse_tensors_of_any_rank(shape: tuple) -> None:
    indices = relay.var("indices", shape=shape, dtype="int64")
    numbers = [relay.var(name, shape=(ANY,), dtype="int64") for name in ("old", "new")]
    program = relay.Function([indices, *numbers], relay.sparse_reshape(indices, *numbers).astuple())
    places, new = ran(program, np.array([[0, 3], [2, 1]]), np.array([3, 4]), np.array([2, -1, 2]))
    assert (places.tolist(), new.tolist()) == ([[0, 1, 1], [1, 1, 1]], [2, 3, 2])
    values = relay.var("values", shape=(ANY,))
    default = relay.var("default", shape=(ANY,))
    filled = relay.sparse_fill_empty_rows(indices, values, numbers[0], default)
    program = relay.Function([indices, values, numbers[0], default], filled)
    found, made, empty = ran(program, np.array([[0, 3], [2, 1]]), np.float32([5, 6]), np.array([3, 4]), np.float32([9]))
    assert (found.tolist(), made.tolist(), empty.tolist()) == (
        [[0, 3], [1, 0], [2, 1]],
        [5, 9, 6],
        [False, True, False],
    )
