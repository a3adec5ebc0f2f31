"""Group and instance normalisation of channel-blocked images, compiled, against NumPy on ordinary images."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.formats.types import tensor

from ..harness import NARROW, TARGET, Builder, evaluate, normal, run_kernel, seed


def normalise(x, groups, epilogue="", *, parts=1, target=TARGET, batch=None, rtol=2e-5):
    """Checks the kernel that the normalisation of x gets; the result. `batch`: the name of its symbolic dimension."""
    channels = x.shape[1]
    scale, bias = normal(2, channels)
    wanted = evaluate("group_normalization", x, scale, bias, groups=groups)
    image = evaluate("pack_channels", x)
    image[:, -1, :, :, channels - image.shape[1] * 16 :] = np.nan if channels % 16 else image[:, -1]
    arrays = [image, *(evaluate("pack_vector", vector) for vector in (scale, bias)), evaluate("pack_channels", x)]
    shapes = [(batch or len(x), *image.shape[1:]), *(array.shape for array in arrays[1:3])]
    build = Builder(*(tensor("float32", shape) for shape in (*shapes, shapes[0])))
    value = build("group_normalization_blocked", 0, 1, 2, groups=groups, channels=channels)
    for step in epilogue.split():
        value = build("add", value, 3) if step == "add" else build(step, value)
        wanted = wanted + x if step == "add" else evaluate(step, wanted)
    code, (got,) = run_kernel(build.definition(value), arrays, {batch: len(x)} if batch else None, parts, target)
    assert code == 0
    plain = evaluate("unpack_channels", got, channels=channels)
    np.testing.assert_allclose(plain, wanted, rtol=rtol, atol=2e-5)
    return plain


@given(st.data())
@settings(max_examples=12, deadline=None, derandomize=True)
def test_any_groups(data):
    groups = data.draw(st.sampled_from([1, 2, 3, 5, 8]))
    channels = groups * data.draw(st.sampled_from([1, 2, 4, 6, 12, 16, 20]))
    size = data.draw(st.tuples(st.integers(1, 19), st.integers(1, 19)))
    x = normal(data.draw(st.integers(1, 2)), channels, *size)
    normalise(x + data.draw(st.sampled_from([0, 100])), groups, parts=data.draw(st.integers(1, 3)), rtol=2e-4)


@pytest.mark.parametrize("epilogue", ["silu", "add relu", "gelu"])
def test_epilogues(epilogue):
    normalise(normal(2, 40, 7, 9), 10, epilogue)


@pytest.mark.parametrize("target", NARROW)
def test_narrow_vectors(target):
    normalise(normal(1, 24, 9, 5), 4, "relu", target=target)


def test_symbolic_batch():
    normalise(normal(3, 32, 5, 5), 8, "silu", batch="n")


def test_parts_have_the_same_bits():
    x = normal(1, 8, 40, 40)
    results = []
    for parts in (1, 2, 5):
        seed()  # the same scale and bias
        results.append(normalise(x, 2, parts=parts))
    assert all(np.array_equal(result, results[0]) for result in results)


def test_an_even_image_far_from_zero_keeps_its_small_differences():
    x = np.float32(1000) + normal(1, 4, 64, 64)
    x[:, :, :32] = 1000
    normalise(x, 2, rtol=1e-3)
