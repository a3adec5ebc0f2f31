"""Operators for detection, sampling, sparse matrices and signals, each against NumPy."""

import itertools

import numpy as np
import pytest
import treadle
from treadle.tvm import relay

RNG = np.random.default_rng(5)


def run(make, *arrays):
    """The results of an operator on arrays, as NumPy's."""
    params = [relay.var(f"x{place}", shape=each.shape, dtype=each.dtype.name) for place, each in enumerate(arrays)]
    made = make(*params)
    made = made.astuple() if isinstance(made, relay.expr.TupleWrapper) else made
    found = relay.create_executor("vm", mod=relay.IRModule.from_expr(relay.Function(params, made))).evaluate()(*arrays)
    return (
        [each.numpy() for each in found] if hasattr(found, "__len__") and not hasattr(found, "numpy") else found.numpy()
    )


def floats(*shape, low=-1.0, high=1.0):
    return RNG.uniform(low, high, shape).astype("float32")


# ---- sampling ----


def bilinear(image, y, x):
    """[C] of an image [C, H, W], zeros around it."""
    total = np.zeros(len(image))
    for dy, dx in itertools.product((0, 1), (0, 1)):
        row, column = int(np.floor(y)) + dy, int(np.floor(x)) + dx
        weight = (1 - abs(y - row)) * (1 - abs(x - column))
        if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
            total += weight * image[:, row, column]
    return total


@pytest.mark.parametrize("aligned", [True, False])
def test_grid_sample_reads_between_pixels(aligned):
    data, grid = floats(2, 3, 5, 4), floats(2, 2, 3, 6, low=-1.3, high=1.3)
    found = run(lambda d, g: relay.image.grid_sample(d, g, align_corners=aligned), data, grid)
    for n, y, x in np.ndindex(2, 3, 6):
        column, row = (
            (place + 1) / 2 * (size - 1) if aligned else ((place + 1) * size - 1) / 2
            for place, size in zip(grid[n, :, y, x], (4, 5), strict=True)
        )
        np.testing.assert_allclose(found[n, :, y, x], bilinear(data[n], row, column), atol=1e-5)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_cubic_samples_at_pixels_are_the_pixels(padding):
    """Sixteen taps: groups that fusion makes of them overlap in the block, and none may wait for itself."""
    data = floats(1, 2, 4, 5)
    y, x = np.meshgrid(np.linspace(-1, 1, 4), np.linspace(-1, 1, 5), indexing="ij")
    grid = np.stack([x, y])[None].astype("float32")
    found = run(lambda d, g: relay.image.grid_sample(d, g, "bicubic", padding_mode=padding), data, grid)
    np.testing.assert_allclose(found, data, atol=1e-4)


def test_volumes_are_upsampled():
    data = floats(1, 2, 2, 3, 2)
    found = run(lambda d: relay.nn.upsampling3d(d, 2, 1, 3), data)
    np.testing.assert_array_equal(found, data.repeat(2, axis=2).repeat(3, axis=4))


def test_affine_grid_moves_the_corners():
    found = run(lambda d: relay.image.affine_grid(d, (3, 5)), np.array([[[2, 0, 1], [0, 1, -1]]], "float32"))
    np.testing.assert_allclose(found[0, 0, 0], 2 * np.linspace(-1, 1, 5) + 1, rtol=1e-6)
    np.testing.assert_allclose(found[0, 1, :, 0], np.linspace(-1, 1, 3) - 1, rtol=1e-6)


def test_crop_and_resize_takes_boxes_of_images():
    data, boxes = floats(2, 5, 6, 3), np.array([[0.1, 0.2, 0.9, 0.7], [0, 0, 1.5, 1]], "float32")
    found = run(
        lambda d, b, i: relay.image.crop_and_resize(d, b, i, (4, 3), "NHWC", extrapolation_value=7),
        data, boxes, np.array([1, 0], "int32"),
    )  # fmt: skip
    for box, y, x in np.ndindex(2, 4, 3):
        low_y, low_x, high_y, high_x = boxes[box]
        row, column = (low_y + (high_y - low_y) * y / 3) * 4, (low_x + (high_x - low_x) * x / 2) * 5
        expected = bilinear(data[1 - box].transpose(2, 0, 1), row, column) if row <= 4 and column <= 5 else [7] * 3
        np.testing.assert_allclose(found[box, y, x], expected, atol=1e-5)


def test_deformable_convolution_without_offsets_is_a_convolution_and_moves_with_them():
    data, weight = floats(1, 4, 6, 6), floats(3, 4, 3, 3)
    make = {"kernel_size": (3, 3), "channels": 3, "padding": (1, 1)}
    none = run(
        lambda d, o, w: relay.nn.deformable_conv2d(d, o, w, **make), data, np.zeros((1, 18, 6, 6), "float32"), weight
    )
    plain = run(lambda d, w: relay.nn.conv2d(d, w, **make), data, weight)
    np.testing.assert_allclose(none, plain, rtol=1e-4, atol=1e-5)
    one = np.zeros((1, 18, 6, 6), "float32")
    one[:, 1::2] = 1.0  # each tap a pixel to the right
    moved = run(lambda d, o, w: relay.nn.deformable_conv2d(d, o, w, **make), data, one, weight)
    np.testing.assert_allclose(moved[..., :-1], plain[..., 1:], rtol=1e-4, atol=1e-5)


def test_moved_taps_are_weighed_among_their_neighbours_which_are_0_outside_and_0_where_the_tap_itself_is():
    """As in TVM's reference, `deformable_conv2d_nchw_python`."""
    data, weight, offset = floats(2, 2, 4, 5), floats(3, 2, 3, 3), floats(2, 18, 4, 5) * 1.5
    make = {"kernel_size": (3, 3), "channels": 3, "padding": (1, 1)}
    found = run(lambda d, o, w: relay.nn.deformable_conv2d(d, o, w, **make), data, offset, weight)
    expected = np.zeros_like(found)
    padded = np.pad(data, ((0, 0), (0, 0), (0, 1), (0, 1)))
    for n, h, w, i, j in np.ndindex(2, 4, 5, 3, 3):
        y, x = np.float32([h + i - 1, w + j - 1]) + offset[n, 2 * (3 * i + j) : 2 * (3 * i + j) + 2, h, w]
        if not (0 <= y < 4 and 0 <= x < 5):
            continue
        (top, left), (dy, dx) = (int(y), int(x)), (y % 1, x % 1)
        square = padded[n, :, top : top + 2, left : left + 2]
        pixel = (square * np.outer([1 - dy, dy], [1 - dx, dx])).sum(axis=(1, 2))
        expected[n, :, h, w] += weight[:, :, i, j] @ pixel
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_dilation2d_is_the_greatest_sum():
    data, weight = floats(1, 2, 5, 5), floats(2, 2, 3)
    found = run(lambda d, w: relay.image.dilation2d(d, w), data, weight)
    for c, y, x in np.ndindex(2, 4, 3):
        assert np.isclose(found[0, c, y, x], (data[0, c, y : y + 2, x : x + 3] + weight[c]).max())


def test_correlation_is_the_mean_product_at_each_displacement():
    one, other = floats(1, 3, 6, 6), floats(1, 3, 6, 6)
    found = run(lambda a, b: relay.nn.correlation(a, b, 1, 1, 1, 1, 1), one, other)
    a, b = (np.pad(each, ((0, 0), (0, 0), (1, 1), (1, 1))) for each in (one, other))
    for place, (dy, dx) in enumerate(itertools.product((-1, 0, 1), (-1, 0, 1))):
        expected = (a[:, :, 1:7, 1:7] * b[:, :, 1 + dy : 7 + dy, 1 + dx : 7 + dx]).mean(axis=1)
        np.testing.assert_allclose(found[:, place], expected, atol=1e-6)


# ---- boxes ----


def test_valid_boxes_come_to_the_front():
    data = floats(2, 7, 6)
    counts, rows, numbers = run(lambda d: relay.vision.get_valid_counts(d, 0.1, id_index=0, score_index=1), data)
    for n in range(2):
        kept = [place for place in range(7) if data[n, place, 1] > np.float32(0.1) and data[n, place, 0] >= 0]
        assert counts[n] == len(kept)
        np.testing.assert_array_equal(rows[n], np.concatenate([data[n, kept], np.full((7 - len(kept), 6), -1)]))
        np.testing.assert_array_equal(numbers[n], kept + [-1] * (7 - len(kept)))


BOXES = np.array(
    [[[0, 0.8, 1, 20, 25, 45], [1, 0.7, 30, 60, 50, 80], [0, 0.4, 4, 21, 19, 40], [2, 0.9, 35, 61, 52, 79]]], "float32"
)


@pytest.mark.parametrize(
    ("options", "scores", "numbers"),
    [
        ({"force_suppress": True, "iou_threshold": 0.4}, [0.9, 0.8, -1, -1], [13, 10, -1, -1]),
        ({"iou_threshold": 0.4}, [0.9, 0.8, 0.7, -1], [13, 10, 11, -1]),
        ({"top_k": 1}, [0.9, -1, -1, -1], [13, -1, -1, -1]),
        ({"max_output_size": 2}, [0.9, 0.8, -1, -1], [13, 10, -1, -1]),
        ({"iou_threshold": 0.99}, [0.9, 0.8, 0.7, 0.4], [13, 10, 11, 12]),
    ],
)
def test_boxes_that_overlap_a_better_one_are_left_out(options, scores, numbers):
    arrays = (BOXES, np.array([4], "int32"), np.array([[10, 11, 12, 13]], "int32"))

    def make(returned):
        return lambda *x: relay.vision.non_max_suppression(*x, return_indices=returned, **options)

    np.testing.assert_allclose(run(make(False), *arrays)[0, :, 1], scores)
    found, count = run(make(True), *arrays)
    np.testing.assert_array_equal(found[0], numbers)
    assert count[0, 0] == sum(number >= 0 for number in numbers)


def test_boxes_of_all_classes_are_chosen_class_by_class():
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1], [2, 2, 3, 3]]], "float32")
    scores = np.array([[[0.9, 0.8, 0.1], [0.2, 0.6, 0.7]]], "float32")
    rows, count = run(lambda b, s: relay.vision.all_class_non_max_suppression(b, s, 2, 0.5, 0.15), boxes, scores)
    assert count[0] == 3
    np.testing.assert_array_equal(rows[:3], [[0, 0, 0], [0, 1, 2], [0, 1, 1]])


def test_anchors_and_the_boxes_that_are_predicted_from_them():
    anchors = run(lambda d: relay.vision.multibox_prior(d, sizes=(0.5, 0.25), ratios=(1.0, 4.0)), floats(1, 3, 2, 2))
    np.testing.assert_allclose(anchors[0, 0], [0, 0, 0.5, 0.5])
    np.testing.assert_allclose(anchors[0, 1], [0.125, 0.125, 0.375, 0.375])
    np.testing.assert_allclose(anchors[0, 2], [0.25 - 0.5, 0.125, 0.25 + 0.5, 0.375])
    scores = np.array([[[0.1, 0.99], [0.7, 0.004], [0.2, 0.006]]], "float32")
    rows, counts = run(
        lambda s, p, a: relay.vision.multibox_transform_loc(s, p, a),
        scores,
        np.zeros((1, 8), "float32"),
        anchors[:, :2],
    )
    assert counts[0] == 1
    np.testing.assert_allclose(rows[0], [[0, 0.7, 0, 0, 0.5, 0.5], [-1] * 6], rtol=1e-6)


def test_roi_pool_takes_the_greatest_of_each_bin():
    data = floats(2, 3, 8, 8)
    found = run(lambda d, r: relay.vision.roi_pool(d, r, (2, 2), 0.5), data, np.array([[1, 0, 4, 10, 14]], "float32"))
    region = data[1, :, 2:8, 0:6]
    expected = region.reshape(3, 2, 3, 2, 3).max(axis=(2, 4))
    np.testing.assert_allclose(found[0], expected)


def test_yolo_reorg_is_darknets_order():
    data = floats(1, 4, 4, 6)
    found = run(lambda d: relay.vision.yolo_reorg(d, 2), data)
    wide = data.reshape(8, 12)
    expected = np.stack([wide[y::2, x::2] for y, x in itertools.product((0, 1), (0, 1))])
    np.testing.assert_array_equal(found, expected.reshape(1, 16, 2, 3))


# ---- sparse matrices, segments, what is counted once ----


def csr(dense):
    rows = [np.flatnonzero(row) for row in dense]
    indices = np.concatenate(rows).astype("int32")
    indptr = np.cumsum([0, *map(len, rows)]).astype("int32")
    return dense[dense != 0], indices, indptr


def test_sparse_matrices_multiply_and_add():
    sparse = floats(4, 6) * (RNG.random((4, 6)) < 0.4)
    sparse[1] = 0  # an empty row
    dense, other = floats(3, 6), floats(4, 6)
    parts = csr(sparse)
    found = run(lambda d, *s: relay.nn.sparse_dense(d, s), dense, *parts)
    np.testing.assert_allclose(found, dense @ sparse.T, atol=1e-5)
    found = run(lambda d, *s: relay.nn.sparse_dense(d, s, sparse_lhs=True), dense, *parts)
    np.testing.assert_allclose(found, sparse @ dense.T, atol=1e-5)
    np.testing.assert_allclose(run(lambda d, *s: relay.nn.sparse_add(d, s), other, *parts), other + sparse, atol=1e-6)


def test_sparse_values_become_a_tensor():
    places, values = np.array([[0, 1], [2, 3]], "int32"), np.array([5, 6], "float32")
    found = run(lambda i, v: relay.sparse_to_dense(i, (3, 4), v, relay.const(-1.0)), places, values)
    expected = np.full((3, 4), -1.0)
    expected[0, 1], expected[2, 3] = 5, 6
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("number", [None, 5])
def test_segments_are_summed(number):
    data, segments = floats(6, 2), np.array([0, 0, 3, 1, 1, 3], "int32")
    found = run(lambda d, s: relay.segment_sum(d, s, number), data, segments)
    expected = np.zeros((number or 4, 2), "float32")
    np.add.at(expected, segments, data)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_values_once(is_sorted):
    data = np.array([4, 1, 9, 4, 4, 1, 7], "int32")
    found = run(lambda d: relay.unique(d, is_sorted=is_sorted, return_counts=True), data)
    values, first, inverse, counts = np.unique(data, return_index=True, return_inverse=True, return_counts=True)
    order = np.arange(len(values)) if is_sorted else np.argsort(first)
    number = found[3][0]
    assert number == len(values)
    np.testing.assert_array_equal(found[0][:number], values[order])
    np.testing.assert_array_equal(found[1][:number], first[order])
    np.testing.assert_array_equal(found[2], np.argsort(order)[inverse])
    np.testing.assert_array_equal(found[4][:number], counts[order])


@pytest.mark.parametrize(("k", "align"), [(0, "RIGHT_LEFT"), (1, "RIGHT_LEFT"), ((-1, 2), "LEFT_RIGHT")])
def test_diagonals_are_set(k, align):
    low, high = (k, k) if isinstance(k, int) else k
    data, many = floats(2, 4, 5), high - low + 1
    longest = max(min(4 + min(d, 0), 5 - max(d, 0)) for d in range(low, high + 1))
    diagonal = floats(2, longest) if many == 1 else floats(2, many, longest)
    found = run(lambda d, x: relay.matrix_set_diag(d, x, k, align), data, diagonal)
    expected = data.copy()
    for number in range(low, high + 1):
        length = min(4 + min(number, 0), 5 - max(number, 0))
        right = align.split("_")[number < 0] == "RIGHT" and many > 1
        row = diagonal if many == 1 else diagonal[:, high - number]
        for place in range(length):
            value = row[:, place + (longest - length if right else 0)]
            expected[:, place - min(number, 0), place + max(number, 0)] = value
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("exclusive", [False, True])
def test_products_up_to_each_place(exclusive):
    data = floats(3, 7)
    found = run(lambda d: relay.cumprod(d, axis=1, exclusive=exclusive), data)
    expected = np.cumprod(data, axis=1)
    expected = np.concatenate([np.ones((3, 1)), expected[:, :-1]], axis=1) if exclusive else expected
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# ---- signals ----


@pytest.mark.parametrize("inverse", [False, True])
def test_fourier_transforms(inverse):
    real, imaginary = floats(2, 12), floats(2, 12)
    expected = (np.fft.ifft if inverse else np.fft.fft)(real + 1j * imaginary)
    found = run(lambda a, b: relay.dft(a, b, inverse), real, imaginary)
    np.testing.assert_allclose(found[0] + 1j * found[1], expected, atol=1e-5)


def test_fourier_transforms_of_windows():
    data, window = floats(2, 40), floats(6)
    found = run(lambda d, w: relay.stft(d, 8, 4, 6, w), data, window)
    wide = np.pad(window, (1, 1))
    for place in range(9):
        expected = np.fft.rfft(data[:, 4 * place : 4 * place + 8] * wide)
        np.testing.assert_allclose(found[:, :, place, 0] + 1j * found[:, :, place, 1], expected, atol=1e-5)


# ---- sides, sizes and element types that TVM takes too ----


def test_negative_widths_cut_what_they_count() -> None:
    data = floats(4, 6, 3)
    found = run(lambda d: relay.nn.pad(d, ((-1, 1), (0, -2), (2, -1)), 5), data)
    expected = np.pad(data[1:, :-2, :-1], ((0, 1), (0, 0), (2, 0)), constant_values=5)
    np.testing.assert_array_equal(found, expected)
    edges = run(lambda d: relay.nn.pad(d, ((-1, 2), (0, 0), (0, 0)), pad_mode="edge"), data)
    np.testing.assert_array_equal(edges, np.pad(data[1:], ((0, 2), (0, 0), (0, 0)), mode="edge"))
    computed = run(lambda d, value: relay.nn.pad(d, ((1, -1), (0, 0), (0, 0)), value), data, np.float32(7).reshape(()))
    np.testing.assert_array_equal(computed, np.pad(data[:-1], ((1, 0), (0, 0), (0, 0)), constant_values=7))


def test_widths_that_take_more_than_there_is_are_an_error() -> None:
    with pytest.raises(treadle.errors.InferenceError, match=r"nn.pad: widths \(-3, -2\) take more from axis 0 than 4"):
        run(lambda d: relay.nn.pad(d, ((-3, -2), (0, 0))), floats(4, 2))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("size", [(3, 2), (1, 1), (5, 7)])
def test_means_of_integers_are_cut_off_once(dtype, size) -> None:
    low = 0 if dtype == "uint8" else -128
    data = np.random.default_rng(3).integers(low, 128, (2, 3, 5, 7)).astype(dtype)
    found = run(lambda d: relay.nn.adaptive_avg_pool2d(d, size), data)
    for n, c, y, x in np.ndindex(found.shape):
        rows, columns = (
            slice(place * length // count, -(-(place + 1) * length // count))
            for place, length, count in zip((y, x), (5, 7), size, strict=True)
        )
        assert found[n, c, y, x] == int(
            data[n, c, rows, columns].astype("int64").sum() / data[0, 0, rows, columns].size
        )


@pytest.mark.parametrize(("begin", "end"), [([1, 1, 0], [4, 4]), ([1, 1], [3, 4, 2]), ([1], [3]), ([], [2, 3])])
def test_slices_of_fewer_ends_or_begins_reach_the_end_or_the_beginning(begin, end) -> None:
    data = floats(3, 4, 3)
    axes = [slice(*both) for both in itertools.zip_longest(begin, end)]
    found = run(lambda d: relay.strided_slice(d, begin, end), data)
    np.testing.assert_array_equal(found, data[tuple(axes)])


def test_a_window_of_integers_weighs_a_signal() -> None:
    data, window = floats(2, 12), np.array([1, 2, 1], "int32")
    found = run(lambda d, w: relay.op.stft(d, 3, 3, 3, w, False, True), data, window)
    frames = np.stack([data[:, start : start + 3] for start in range(0, 10, 3)], axis=1) * window
    expected = np.fft.rfft(frames).transpose(0, 2, 1)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, atol=1e-5)


def run_any(make, *arrays):
    """The results of an operator on arrays whose types say no size."""
    kinds = [relay.TensorType([relay.Any()] * each.ndim, each.dtype.name) for each in arrays]
    params = [relay.var(f"x{place}", type_annotation=kind) for place, kind in enumerate(kinds)]
    made = make(*params)
    made = made.astuple() if isinstance(made, relay.expr.TupleWrapper) else made
    found = relay.create_executor("vm", mod=relay.IRModule.from_expr(relay.Function(params, made))).evaluate()(*arrays)
    return [each.numpy() for each in found] if not hasattr(found, "numpy") else found.numpy()


@pytest.mark.parametrize("length", [3, 10, 12])
def test_a_signal_of_unknown_length(length) -> None:
    data = floats(2, length)
    found = run_any(lambda d: relay.op.stft(d, 3, 2), data)
    frames = np.stack([data[:, start : start + 3] for start in range(0, length - 2, 2)], axis=1)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], np.fft.rfft(frames).transpose(0, 2, 1), atol=1e-5)


@pytest.mark.parametrize("values", [[3, 1, 3, 2, 1], [5], [2, 2]])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_vector_of_unknown_length_has_each_value_once(values, ordered) -> None:
    data = np.array(values, "int32")
    found = run_any(lambda d: relay.unique(d, ordered, True), data)
    expected, first, inverse, counts = np.unique(data, True, True, True)
    if not ordered:
        order = np.argsort(first)
        expected, first, counts = expected[order], first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    many = int(found[3][0])
    assert many == len(expected)
    for each, wanted in zip((found[0], found[1], found[4]), (expected, first, counts), strict=True):
        np.testing.assert_array_equal(each[:many], wanted)
    np.testing.assert_array_equal(found[2], inverse)
