"""Resampling along an axis, compiled, against the reference evaluator."""

import numpy as np
import pytest
from treadle.compiler.operators.resize import COORDINATES, ROUNDINGS
from treadle.formats.types import tensor

from .harness import NARROW, check, check_random, definition_of, random_array, run_kernel


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
