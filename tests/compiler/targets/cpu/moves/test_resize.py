"""Resampling along an axis, compiled, against the reference evaluator."""

import numpy as np
import pytest
from treadle.compiler.operators.resize import COORDINATES, ROUNDINGS
from treadle.formats.types import tensor

from ..harness import NARROW, Builder, check, check_random, definition_of, random_array, run_kernel


def check_resize(axis, **options):
    for size, scale in ((131, None), (40, 2.2), (1, None), (9, None)):
        shape = (18, 19, 18 if axis == 2 else 21)
        definition = definition_of("resize", [tensor("float32", shape)], axis=axis, size=size, scale=scale, **options)
        check_random(definition, parts=3)


@pytest.mark.parametrize("axis", [1, 2], ids=["runs", "gathered"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_modes(axis, mode):
    check_resize(axis, mode=mode)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors(target):
    x = tensor("float32", (18, 21))
    for size in (50, 9, 3):
        definition = definition_of("resize", [x], axis=1, size=size, mode="linear")
        check(definition, [random_array(x)], parts=2, target=target)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_coordinates(coordinates):
    check_resize(2, coordinates=coordinates, mode="linear")


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "int64"])
def test_the_nearest_of_any_elements(rounding, dtype):
    for axis in (0, 1):
        check_random(definition_of("resize", [tensor(dtype, (6, 10))], axis=axis, size=15, rounding=rounding))


def test_symbolic_sizes():
    definition = definition_of("resize", [tensor("float32", ("n", "h", "w"))], axis=1, size="2 * h", mode="linear")
    for sizes in ({"n": 1, "h": 1, "w": 1}, {"n": 3, "h": 40, "w": 17}, {"n": 0, "h": 2, "w": 2}):
        check_random(definition, sizes, parts=2)


def test_an_axis_without_elements():
    definition = definition_of("resize", [tensor("float32", ("n", 3))], axis=0, size=4)
    code, _ = run_kernel(definition, [np.zeros((0, 3), np.float32)], {"n": 0})
    assert code == 1


def both_axes(shape, sizes, first=2, dtype="float32", scales=(None, None), **options):
    """Resampling along axis `first`, then along the other one of 1 and 2."""
    build = Builder(tensor(dtype, shape))
    (rows, columns), second = (sizes if first == 1 else sizes[::-1]), 3 - first
    value = build("resize", 0, axis=first, size=rows, scale=scales[0], **options)
    return build.definition(build("resize", value, axis=second, size=columns, scale=scales[1], **options))


@pytest.mark.parametrize("inner", [(), (16,), (5,), (19,)])
@pytest.mark.parametrize("first", [1, 2])
def test_the_nearest_along_two_axes(inner, first):
    for shape, sizes in (((2, 20, 13), (40, 26)), ((3, 7, 90), (150, 33)), ((2, 9, 5), (3, 1100)), ((1, 3, 2), (1, 1))):
        check_random(both_axes((*shape, *inner), sizes, first), parts=3)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "int64"])
def test_the_nearest_of_any_elements_along_two_axes(rounding, dtype):
    for coordinates in COORDINATES:
        options = {"rounding": rounding, "coordinates": coordinates}
        check_random(both_axes((2, 6, 10), (15, 31), dtype=dtype, **options), parts=2)
        check_random(both_axes((2, 6, 10), (15, 31), dtype=dtype, scales=(3.14, 2.6), **options))


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_two_axes_in_narrow_vectors(target):
    for shape, sizes in (((2, 6, 13), (12, 26)), ((2, 6, 43), (7, 20)), ((2, 6, 5, 16), (12, 10))):
        definition = both_axes(shape, sizes)
        check(definition, [random_array(definition.params[0])], target=target)


def test_symbolic_sizes_of_two_axes():
    definition = both_axes(("n", "h", "w"), ("2 * h", "3 * w"))
    for sizes in ({"n": 1, "h": 1, "w": 1}, {"n": 3, "h": 40, "w": 17}, {"n": 0, "h": 2, "w": 2}):
        check_random(definition, sizes, parts=2)
    code, _ = run_kernel(both_axes(("n", "h", 3), (4, 3)), [np.zeros((1, 0, 3), np.float32)], {"n": 1, "h": 0})
    assert code == 1


def test_a_large_result_is_written_past_the_caches():
    check_random(both_axes((3, 1024, 1024), (2048, 2048)), parts=2)
    check_random(both_axes((1, 1500, 1490), (3000, 2980)), parts=2)  # rows that are not aligned
