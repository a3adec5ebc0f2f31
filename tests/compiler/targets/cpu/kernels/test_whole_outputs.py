"""Every byte of every output is written, or the call fails; nothing else is; whatever the sizes are."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from treadle.compiler.targets.cpu.kernels.kernel import UNFIT
from treadle.compiler.targets.cpu.kernels.lower import TEMPLATES, lower
from treadle.formats import dims
from treadle.formats.types import tensor
from treadle.vm.library import BuiltKernel

from ..examples import Example, examples
from ..harness import TARGET, Builder, definition_of, run_kernel
from ..trial import failures, kernels, trials

_EACH = 6


@pytest.mark.parametrize("operator", TEMPLATES)
def test_every_byte_of_every_output_is_written_or_the_call_fails(operator: str) -> None:
    assert trials(list(examples(operator, 0, _EACH))) == {}


N, M = dims.variable("n"), dims.variable("m")
NINTH = dims.multiply(dims.product([N] * 9), -1)

PRODUCTS = {
    # a product of four sizes of 2^40 is 0 in a word: the tensor would have 1,000 elements, and has none
    "min": (dims.add(1000, dims.multiply(dims.minimum(N * N * N * N, 1000), -1)), {"n": 1 << 40}),
    # the least word has no quotient by -1
    "//": (dims.maximum(dims.floordiv(NINTH, dims.add(M, -1)) * -1, 0), {"n": 128, "m": 0}),
    "%": (dims.add(dims.modulo(NINTH, dims.add(M, -1)), 3), {"n": 128, "m": 0}),
}


@pytest.mark.parametrize("operator", PRODUCTS)
def test_sizes_that_do_not_fit_into_a_word_are_not_computed_with(operator: str) -> None:
    size, sizes = PRODUCTS[operator]
    definition = definition_of("exp", [tensor("float32", (size,))])
    example = Example("exp", definition, sizes, [np.zeros(dims.evaluate(size, sizes), np.float32)])
    (kernel,) = kernels([definition])
    assert kernel is not None
    assert failures([("exp", partial(fails, example, kernel, UNFIT))]) == {}


def test_estimates_of_any_size_are_numbers() -> None:
    """No dimension is a reason for an error while a kernel is written."""
    divided = dims.floordiv(N, dims.add(M, -64))
    for size in (divided, dims.product([N, N, M] * 10), dims.multiply(dims.product([N] * 30), 1 << 46)):
        for shape in ((size,), (size,) * 30):
            lower(definition_of("exp", [tensor("float32", shape)]), TARGET)
            lower(definition_of("sum", [tensor("float32", shape)], axes=(0,)), TARGET)


def test_an_axis_of_any_length_beside_one_of_no_elements_takes_no_time() -> None:
    long = 1 << 40
    build = Builder(tensor("float32", (long, 0)), tensor("float32", (1, 0)))
    of_a_sum = build.definition(build("sum", build("add", 0, 1), axes=None))
    cases = [Example("sum of a sum", of_a_sum, {}, [np.zeros((long, 0), np.float32), np.zeros((1, 0), np.float32)])]
    for operator, shapes, attributes in (
        ("softmax", [(long, 0)], {}),
        ("cumulative_sum", [(long, 0)], {"axis": 1}),
        ("cumulative_sum", [(long, 0)], {"axis": 0}),
        ("permute_dims", [(long, 0)], {}),
        ("concat", [(long, 0), (long, 0)], {"axis": 1}),
        ("pad", [(long, 0)], {"pads": (1, 0, 1, 0)}),
        ("max_pool", [(1, long, 0, 5)], {"kernel": (1, 1)}),
        ("sum", [(3, long, 0)], {"axes": (1, 2)}),
        ("sum", [(long, 3, 0)], {"axes": (0, 2)}),
        ("argmax", [(long, 1, 0)], {"axis": 1}),
        ("counted_nonzero", [(long, 0)], {"count": 3}),
        ("counted_nonzero", [(long, 0)], {"count": 0}),
        ("matmul", [(long, 0), (0, 0)], {}),
        ("exp", [(long, 0)], {}),
        ("pack_channels", [(long >> 4, 0, 3)], {}),  # in blocks of 16; a longer one is not a type
        ("resize", [(long, 2, 0)], {"axis": 1, "size": 5}),
    ):
        definition = definition_of(operator, [tensor("float32", shape) for shape in shapes], **attributes)
        cases.append(Example(operator, definition, {}, [np.zeros(shape, np.float32) for shape in shapes]))
    made = kernels([case.definition for case in cases])
    assert None not in made
    tasks = [
        (f"{case.name} {case.definition.params}", partial(runs, case, kernel))
        for case, kernel in zip(cases, made, strict=True)
    ]
    assert failures(tasks) == {}


def fails(example: Example, kernel: BuiltKernel, code: int) -> None:
    assert run_kernel(example.definition, example.arrays, example.sizes, kernel=kernel)[0] == code


def runs(example: Example, kernel: BuiltKernel) -> None:
    run_kernel(example.definition, example.arrays, example.sizes, kernel=kernel)
