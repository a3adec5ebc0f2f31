"""Sparse tensors as coordinates and as CSR, losses, bits read as another type, regions' greatest: each against NumPy."""

import numpy as np
import pytest
import treadle
from treadle.tvm import relay

from .test_more_operators import BOXES, bilinear, floats, run  # noqa: F401


@pytest.mark.parametrize(("old", "new"), [([2, 3, 6], [9, -1]), ([4, 5], [2, 2, 5]), ([6], [-1, 3, 1]), ([2, 3], [6])])
def test_indices_of_the_same_elements_in_another_shape(old, new):
    dense = np.random.default_rng(1).integers(0, 2, old)
    indices = np.argwhere(dense)
    found, shape = run(relay.sparse_reshape, indices, np.array(old), np.array(new))
    np.testing.assert_array_equal(found, np.argwhere(dense.reshape(new)))
    assert shape.tolist() == list(dense.reshape(new).shape)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_rows_without_an_element_get_a_default(dtype):
    indices, values = np.array([[0, 1], [0, 3], [2, 0], [3, 1]], dtype), np.array([1, 2, 3, 4], "float32")
    arrays = (indices, values, np.array([5, 6], dtype), np.array([10], "float32"))
    found, filled, empty = run(relay.sparse_fill_empty_rows, *arrays)
    assert found.tolist() == [[0, 1], [0, 3], [1, 0], [2, 0], [3, 1], [4, 0]]
    assert found.dtype == dtype
    assert filled.tolist() == [1, 2, 10, 3, 4, 10]
    assert empty.tolist() == [False, True, False, False, True]


def test_a_tensor_without_elements_gets_a_default_in_each_row():
    arrays = (np.zeros((0, 2), "int64"), np.zeros(0, "int32"), np.array([2, 3]), np.array([7], "int32"))
    found, filled, empty = run(relay.sparse_fill_empty_rows, *arrays)
    assert (found.tolist(), filled.tolist(), empty.tolist()) == ([[0, 0], [1, 0]], [7, 7], [True, True])


def test_a_sparse_matrix_is_transposed():
    dense = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [5, 0, 0, 3], [0, 4, 0, 0]], "float32")

    def csr(matrix):
        rows, columns = np.nonzero(matrix)
        ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(matrix)))])
        return matrix[rows, columns], columns.astype("int32"), ends.astype("int32")

    found = run(lambda *parts: relay.nn.sparse_transpose(parts), *csr(dense))
    for each, expected in zip(found, csr(dense.T), strict=True):
        np.testing.assert_array_equal(each, expected)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(), (3, 2)])
def test_the_likelihood_of_targets_is_weighted_by_class(reduction, shape):
    rng = np.random.default_rng(2)
    predictions, targets = floats(4, 5, *shape), rng.integers(0, 5, (4, *shape)).astype("int32")
    targets[1] = -100
    weights = floats(5, low=0.5)
    found = run(lambda *x: relay.nn.nll_loss(*x, reduction=reduction), predictions, targets, weights)
    counts = targets != -100
    place = np.where(counts, targets, 0)
    weight = weights[place] * counts
    loss = -np.take_along_axis(predictions, place[:, None], 1)[:, 0] * weight
    expected = {"none": loss, "sum": loss.sum(), "mean": loss.sum() / weight.sum()}[reduction]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_targets_without_a_place_for_the_classes_are_an_error():
    with pytest.raises(treadle.errors.InferenceError, match=r"nn.nll_loss: expected \[N, C, …\]"):
        run(relay.nn.nll_loss, floats(5), np.array([1]), floats(5))


def test_bits_are_read_as_another_type():
    data = np.array([1.0, -0.0, np.nan], "float32")
    np.testing.assert_array_equal(run(lambda x: relay.reinterpret(x, "uint32"), data), data.view("uint32"))
    half = np.array([1.0, 2.5], "float16")
    np.testing.assert_array_equal(run(lambda x: relay.reinterpret(x + x, "int16"), half), (half + half).view("int16"))
    with pytest.raises(treadle.errors.InferenceError, match=r"reinterpret: .*as many bytes as int64"):
        run(lambda x: relay.reinterpret(x, "int64"), data)


@pytest.mark.parametrize("ratio", [2, 0])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_greatest_of_the_places_of_a_region(ratio, layout):
    data, rois = floats(2, 3, 8, 7), np.array([[1, 0.5, 1, 6, 7], [0, 2, 0, 3, 9]], "float32")
    given = data if layout == "NCHW" else data.transpose(0, 2, 3, 1)
    found = run(lambda d, r: relay.vision.roi_align(d, r, (2, 3), 1.0, ratio, layout, "max"), given, rois)
    found = found if layout == "NCHW" else found.transpose(0, 3, 1, 2)
    for number, (image, left, top, right, bottom) in enumerate(rois.astype("float64")):
        high, wide = max(bottom - top, 1) / 2, max(right - left, 1) / 3
        down, across = (ratio or int(np.ceil(size)) for size in (high, wide))
        for y, x in np.ndindex(2, 3):
            places = [
                (top + high * (y + (j + 0.5) / down), left + wide * (x + (i + 0.5) / across))
                for j, i in np.ndindex(down, across)
            ]
            values = [
                bilinear(data[int(image)], np.clip(row, 0, 7), np.clip(column, 0, 6)) * (row <= 8 and column <= 7)
                for row, column in places
            ]
            np.testing.assert_allclose(found[number, :, y, x], np.max(values, 0), atol=1e-5)
