"""Operators that look up by several indices, put in place, sort and sum up, compiled, against the reference evaluator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.formats.dims import variable
from treadle.formats.types import tensor

from ..harness import NARROW, TARGET, check, definition_of, random_array, run_kernel

shapes = st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(1, 70))
reductions = st.sampled_from(["none", "add", "mul", "max", "min"])


def indices_into(length, shape, seed=0):
    return np.random.default_rng(seed).integers(-length, length, shape)


@given(st.data())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_putting_along_an_axis(data):
    shape, axis, reduction = data.draw(shapes), data.draw(st.integers(0, 2)), data.draw(reductions)
    dtype = data.draw(st.sampled_from(["float32", "float64", "int32", "uint8", "int64"]))
    count = data.draw(st.integers(0, 50))
    x = tensor(dtype, shape)
    wanted = tuple(count if place == axis else size for place, size in enumerate(shape))
    indices = indices_into(shape[axis], wanted)
    if data.draw(st.booleans()):  # one index for a whole row, as in networks of graphs
        indices = np.broadcast_to(indices.take([0], 2), wanted) if axis < 2 else indices
    params = [x, tensor("int64", wanted), tensor(dtype, wanted)]
    definition = definition_of("put_along_axis", params, axis=axis, reduction=reduction)
    check(definition, [random_array(x), indices, random_array(params[2], 1)], parts=data.draw(st.integers(1, 4)))


@given(st.data())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_several_indices(data):
    shape, depth, reduction = data.draw(shapes), data.draw(st.integers(1, 3)), data.draw(reductions)
    x, places = tensor("float32", shape), data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=2))
    indices = np.stack([indices_into(shape[axis], places, axis) for axis in range(depth)], -1).astype(np.int32)
    updates = tensor("float32", (*places, *shape[depth:]))
    params, parts = [x, tensor("int32", indices.shape), updates], data.draw(st.integers(1, 4))
    definition = definition_of("scatter_nd", params, reduction=reduction)
    check(definition, [random_array(x), indices, random_array(updates, 1)], parts=parts)
    check(definition_of("gather_nd", params[:2]), [random_array(x), indices], parts=parts)


def test_places_of_a_batch():
    x, indices = tensor("float64", (3, 4, 5, 7)), indices_into(4, (3, 4, 6, 2))
    check(definition_of("gather_nd", [x, tensor("int64", indices.shape)], batch_axes=2), [random_array(x), indices])


def test_symbolic_sizes():
    sizes = {"n": 5, "m": 9}
    x, updates = tensor("float32", ("n", 3)), tensor("float32", ("m", 3))
    arrays = [random_array(x, 0, sizes), indices_into(5, (9, 3)), random_array(updates, 1, sizes)]
    check(definition_of("put_along_axis", [x, tensor("int64", ("m", 3)), updates], reduction="add"), arrays, sizes)
    arrays[1] = indices_into(5, (9, 1))
    check(definition_of("scatter_nd", [x, tensor("int64", ("m", 1)), updates], reduction="max"), arrays, sizes)
    check(definition_of("gather_nd", [x, tensor("int64", ("m", 1))]), arrays[:2], sizes)
    check(
        definition_of("top_k", [tensor("float32", ("m", "n"))], k=3), [random_array(tensor("float32", (9, 5)))], sizes
    )
    for axis in (0, 1):
        check(definition_of("cumulative_sum", [updates], axis=axis), arrays[2:], sizes)


@pytest.mark.parametrize("index", [4, -5, 2**62, -(2**63)])
def test_an_index_out_of_range_is_a_failure(index):
    x, updates = tensor("float32", (4, 2)), tensor("float32", (1, 2))
    params, arrays = (
        [x, tensor("int64", (1, 2)), updates],
        [random_array(x), np.array([[0, index]]), random_array(updates)],
    )
    assert run_kernel(definition_of("put_along_axis", params), arrays)[0] == 1
    params[1:], arrays[1:] = [tensor("int64", (1, 1)), updates], [np.array([[index]]), arrays[2]]
    assert run_kernel(definition_of("scatter_nd", params), arrays)[0] == 1
    assert run_kernel(definition_of("gather_nd", params[:2]), arrays[:2])[0] == 1


@given(st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_largest_and_the_smallest(data):
    shape, axis, largest = data.draw(shapes), data.draw(st.integers(0, 2)), data.draw(st.booleans())
    dtype = data.draw(st.sampled_from(["float32", "float64", "float16", "int8", "uint8", "uint32", "int64", "uint64"]))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = random.integers(0, 9, shape).astype(dtype)  # many of them equal
    if dtype.startswith("float"):
        for special in (np.nan, np.inf, -np.inf, -0.0, -1.5):
            x[random.random(shape) < 0.1] = special
    elif data.draw(st.booleans()):
        x[random.random(shape) < 0.5] = np.iinfo(dtype).max if largest else np.iinfo(dtype).min
    definition = definition_of(
        "top_k", [tensor(dtype, shape)], k=random.integers(1, shape[axis] + 1), axis=axis, largest=largest
    )
    check(definition, [x], parts=data.draw(st.integers(1, 3)))


@given(st.data())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_as_many_of_the_largest_as_a_run_says(data):
    axis, largest, sizes = data.draw(st.integers(0, 2)), data.draw(st.booleans()), data.draw(shapes)
    dtype = data.draw(st.sampled_from(["float32", "float64", "float16", "uint8", "int64", "uint64"]))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 9, sizes).astype(dtype)
    if dtype.startswith("float"):
        x[x == 7] = np.nan
    definition = definition_of("top_k", [tensor(dtype, ("a", "b", "c"))], k=variable("k"), axis=axis, largest=largest)
    known = {**dict(zip("abc", sizes, strict=True)), "k": data.draw(st.integers(0, sizes[axis]))}
    check(definition, [x], known, parts=data.draw(st.integers(1, 3)))


def test_the_largest_of_many():
    x = random_array(tensor("float32", (2, 5000)))
    for k in (1, 7, 5000):
        check(definition_of("top_k", [tensor("float32", x.shape)], k=k), [x], parts=2)


@given(st.data())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_running_sums(data):
    dtype = data.draw(st.sampled_from(["float32", "float64", "float16", "int8", "uint8", "int32", "uint64"]))
    x, axis = tensor(dtype, data.draw(shapes)), data.draw(st.integers(0, 2))
    exclusive, reverse = data.draw(st.booleans()), data.draw(st.booleans())
    operator = data.draw(st.sampled_from(["cumulative_sum", "cumulative_prod"]))
    definition = definition_of(operator, [x], axis=axis, exclusive=exclusive, reverse=reverse)
    check(definition, [random_array(x)], parts=data.draw(st.integers(1, 3)))


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
def test_every_width_of_vectors(target):
    x = tensor("float32", (6, 37))
    for axis in (0, 1):
        check(definition_of("cumulative_sum", [x], axis=axis), [random_array(x)], target=target)
    for columns, parts in ((75, 1), (600, 1), (2203, 3)):
        wide = tensor("float32", (2, 5, columns))
        definition = definition_of("cumulative_sum", [wide], axis=1, reverse=True)
        check(definition, [random_array(wide)], parts=parts, target=target)
    check(definition_of("top_k", [x], k=5), [random_array(x)], target=target)
    params = [x, tensor("int64", (9, 37)), tensor("float32", (9, 37))]
    arrays = [random_array(x), indices_into(6, (9, 37)), random_array(params[2])]
    check(definition_of("put_along_axis", params, reduction="add"), arrays, target=target)


@given(st.data())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_what_is_found_where_its_number_is_known(data):
    shape = data.draw(st.lists(st.integers(0, 40), max_size=3))
    dtype = data.draw(st.sampled_from(["bool", "float32", "float16", "int64", "uint8"]))
    target = data.draw(st.sampled_from([TARGET, *NARROW]))
    x = (np.random.default_rng(0).random(shape) < data.draw(st.sampled_from([0, 0.1, 0.9]))).astype(dtype)
    sizes = {"count": int(np.count_nonzero(x))}
    check(definition_of("counted_nonzero", [tensor(dtype, x.shape)], count="count"), [x], sizes, target=target)
    best = np.random.default_rng(1).integers(-3, 9, (2, 3, data.draw(st.integers(0, 9))))
    sizes = {"count": int(np.sum(best >= 0))}
    check(definition_of("counted_boxes", [tensor("int64", best.shape)], count="count"), [best], sizes, target=target)


def test_what_was_counted_may_be_wrong():
    x = np.float32([[1, 0, 2], [0, 3, 0]])
    definition = definition_of("counted_nonzero", [tensor("float32", x.shape)], count="count")
    assert [run_kernel(definition, [x], {"count": count})[0] for count in (2, 3, 4)] == [1, 0, 1]


@given(st.data())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_boxes_that_overlap_no_better_one(data):
    images, kinds = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    count, room = data.draw(st.integers(0, 90)), data.draw(st.integers(0, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    boxes = rng.integers(0, 9, (images, count, 4)).astype(np.float32)  # some alike, some of no area
    scores = (rng.integers(-4, 5, (images, kinds, count)) / 4).astype(np.float32)
    scores[rng.random(scores.shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    boxes[rng.random(boxes.shape) < 0.02] = rng.choice([np.nan, np.inf])
    most = np.array(data.draw(st.sampled_from([-1, 0, 3, 1 << 40])))
    overlap, least = (np.float32(data.draw(st.sampled_from(values))) for values in ([0, 0.3, 0.5], [-np.inf, 0, 0.4]))
    shapes, sizes = [boxes.shape, scores.shape], {}
    if data.draw(st.booleans()):  # the number of boxes is known only at run time
        shapes, room, sizes = [("n", "m", 4), ("n", kinds, "m")], "m", {"n": images, "m": count}
    definition = definition_of(
        "best_boxes",
        [*(tensor("float32", shape) for shape in shapes), *_NUMBERS],
        centred=data.draw(st.booleans()),
        room=room,
    )
    target = data.draw(st.sampled_from([TARGET, *NARROW]))
    check(definition, [boxes, scores, most, overlap, least], sizes, parts=data.draw(st.integers(1, 4)), target=target)


def test_more_boxes_are_kept_than_have_their_corners_in_the_scratch_memory():
    rng = np.random.default_rng(0)
    count = 4200
    corners = np.stack([np.arange(count) % 70, np.arange(count) // 70], -1).astype(np.float32)
    boxes = np.concatenate([corners, corners + 0.75], -1)
    boxes = np.concatenate([boxes, boxes[rng.integers(0, count, 300)]])[None]  # each of the last ones is there twice
    scores = rng.random((1, 1, count + 300), np.float32)
    definition = definition_of(
        "best_boxes", [tensor("float32", (1, "m", 4)), tensor("float32", (1, 1, "m")), *_NUMBERS], room="m"
    )
    numbers = [np.array(1 << 40), np.float32(0.5), np.float32(0)]
    check(definition, [boxes, scores, *numbers], {"m": boxes.shape[1]})


@given(st.data())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_regions_of_images(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    dtype, count = data.draw(st.sampled_from(["float32", "float64"])), draw(0, 5)
    shape, size = (draw(1, 3), draw(1, 12), draw(1, 12), draw(1, 150)), (draw(1, 4), draw(1, 4))
    rng = np.random.default_rng(draw(0, 99))
    rois = (rng.integers(-9, 90, (count, 4)) / 4).astype(dtype)  # some turned round, some outside
    images = rng.integers(0, shape[0], count)
    x = rng.standard_normal(shape).astype(dtype)
    sizes = {"samples": draw(0, 3), "scale": data.draw(st.sampled_from([0.25, 1, 0.3]))}
    kind = {"half_pixel": data.draw(st.booleans()), "mode": data.draw(st.sampled_from(["avg", "max", "max_of_places"]))}
    params = [tensor(dtype, each.shape) for each in (x, rois)] + [tensor("int64", (count,))]
    definition = definition_of("roi_align", params, size=size, **sizes, **kind)
    target = data.draw(st.sampled_from([TARGET, *NARROW]))
    check(definition, [x, rois, images], parts=draw(1, 3), target=target, rtol=1e-5, atol=1e-6)


def test_a_region_of_no_image():
    params = [tensor("float32", (2, 3, 3, 1)), tensor("float32", (1, 4)), tensor("int64", (1,))]
    definition = definition_of("roi_align", params, size=(1, 1))
    arrays = [random_array(params[0]), np.float32([[0, 0, 2, 2]])]
    assert [run_kernel(definition, [*arrays, np.array([number])])[0] for number in (-1, 1, 2)] == [1, 0, 1]
    empty = definition_of("roi_align", [tensor("float32", (2, 0, 3, 1)), *params[1:]], size=(1, 1))
    assert run_kernel(empty, [np.zeros((2, 0, 3, 1), np.float32), arrays[1], np.array([0])])[0] == 1


_NUMBERS = [tensor("int64", ()), tensor("float32", ()), tensor("float32", ())]
