"""The kernel of `col2im`: rows of windows that are added up where they belong."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from treadle.formats.types import tensor

from ..harness import NARROW, Builder, check, check_random, definition_of, random_array

ONE_AXIS = st.tuples(
    st.integers(1, 5),  # the window
    st.integers(1, 4),  # its stride
    st.integers(1, 3),  # its dilation
    st.integers(0, 6),  # the start
    st.integers(1, 20),  # windows
    st.integers(0, 70),  # the result's size
)


@settings(max_examples=25, deadline=None)
@given(st.lists(ONE_AXIS, min_size=1, max_size=3), st.integers(1, 2), st.integers(1, 3), st.sampled_from([1, 3]))
@example([(3, 2, 1, 1, 40, 80), (4, 2, 1, 1, 40, 80)], 1, 2, 3)  # windows that fill several vectors
@example([(2, 2, 1, 0, 5, 10), (16, 16, 1, 0, 5, 80)], 2, 1, 1)  # more phases than are interleaved in registers
@example([(2, 2, 2, 0, 5, 10)], 1, 1, 1)  # places that nothing reaches
def test_windows_are_added_up_where_they_belong(axes, images, channels, parts):
    kernel, strides, dilations, starts, counts, shape = zip(*axes, strict=True)
    x = tensor("float32", (images, channels * math.prod(kernel), *counts))
    bias = tensor("float32", (channels, *(1,) * len(axes)))
    b = Builder(x, bias)
    image = b("col2im", 0, shape=shape, kernel=kernel, strides=strides, dilations=dilations, starts=starts)
    check_random(b.definition(b("relu", b("add", image, 1))), parts=parts)


def test_symbolic_sizes():
    sizes = {"shape": ("2 * h + 1", "2 * w"), "kernel": (3, 4), "strides": (2, 2), "starts": (0, 1)}
    definition = definition_of("col2im", [tensor("float32", ("n", 24, "h", "w"))], **sizes)
    check_random(definition, {"n": 2, "h": 5, "w": 19}, parts=2)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_registers(target):
    x = tensor("float32", (2, 24, 5, 19))
    sizes = {"shape": (9, 40), "kernel": (3, 4), "strides": (2, 2), "starts": (1, 1)}
    check(definition_of("col2im", [x], **sizes), [random_array(x)], target=target)
