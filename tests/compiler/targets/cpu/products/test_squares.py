"""Products and convolutions whose sums are of two rows by two columns at once, by BFMMLA and USMMLA of ARM.

Their reference are steps of one word: the texts are interpreted here, and run by `make cpus`.
"""

import dataclasses

import numpy as np
import pytest
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.cpu.target import Target, of
from treadle.compiler.targets.cpu.toolchain.kernels import build
from treadle.compiler.targets.emulated.functions import FUNCTIONS
from treadle.compiler.targets.emulated.vectors import Vector
from treadle.formats import dims
from treadle.formats.dtypes import DType

from .. import instruction_sets
from ..examples import examples
from ..harness import ON_X86
from ..kernels.test_interpreted import bits, interpreted
from .test_bfloat16 import product_of
from .test_quantized import product_of as integer_product

pytest.importorskip("ml_dtypes")

ARM = of(instruction_sets.target("neoverse-v1"))
_KINDS = {
    "matmul": ("bfloat16_packed", "int8_packed", "integer_packed"),
    "conv": ("bfloat16_blocked", "int8_blocked", "integer_blocked"),
}
_OPERATORS = [f"{anchor}_{kind}" for anchor, kinds in _KINDS.items() for kind in kinds]
CHEAP = ("matmul_bfloat16_packed", "matmul_int8_packed")
OF_ALL = pytest.mark.parametrize(
    "operator", [pytest.param(each, marks=() if each in CHEAP else pytest.mark.thorough) for each in _OPERATORS]
)
_MOST_INPUTS, _MOST_RESULTS = 3 << 11, 1 << 11  # elements of examples, which are interpreted


def is_small(example):
    results = sum(dims.evaluate(dims.element_count(type_.shape), example.sizes) for type_ in example.definition.results)
    return sum(array.size for array in example.arrays) <= _MOST_INPUTS and results <= _MOST_RESULTS


class OfWords(Target):
    """A CPU without the instructions."""

    square = square_bfloat16 = ""


WORDS = OfWords(**{field.name: getattr(ARM, field.name) for field in dataclasses.fields(ARM)})


@OF_ALL
def test_squares_have_the_bits_of_words(operator):
    seen = 0
    for example in examples(operator, 0, 200):
        kernel = lower(example.definition, ARM)
        if kernel is None or "square_" not in kernel.source or not is_small(example):
            continue
        words = lower(example.definition, WORDS)
        assert "square_" not in words.source
        assert bits(interpreted(example, kernel, parts=2, target=ARM)) == bits(interpreted(example, words, target=ARM))
        seen += 1
        if seen == 2:
            break
    assert seen == 2


def test_a_square_is_two_steps_of_each_of_its_sums():
    rng = np.random.default_rng(0)
    total = rng.standard_normal(8, np.float32)
    x, w = (rng.standard_normal(16, np.float32).astype(DType.bfloat16.numpy).view(np.int32) for _ in range(2))
    got = FUNCTIONS["square_bfmmla"](*map(Vector, (total, x, w))).array.reshape(2, 2, 2)
    rows, columns = x.reshape(2, 2, 2), w.reshape(2, 2, 2)
    for place in np.ndindex(2, 2, 2):
        square, row, column = place
        wanted = total.reshape(2, 2, 2)[place][None]
        for word in range(2):
            operands = rows[square, row, word, None], columns[square, column, word, None]
            wanted = FUNCTIONS["dot_bfloat16_odd"](*map(Vector, (wanted, *operands))).array
        assert got[place] == wanted


# ARM's encodings: (mask, what is left under it)
BFMMLA, USMMLA, BFDOT, USDOT = (
    (0xFFE0FC00, 0x6E40EC00),
    (0xFFE0FC00, 0x4E80AC00),
    (0xFFE0FC00, 0x6E40FC00),
    (0xFFE0FC00, 0x4E809C00),
)


@ON_X86
@pytest.mark.parametrize(
    ("definition", "square", "word"),
    [(product_of(6, 40, 16), BFMMLA, BFDOT), (integer_product(6, 20, 16), USMMLA, USDOT)],
    ids=["bfloat16", "int8"],
)
def test_a_step_has_half_the_instructions_of_words(definition, square, word):
    """Of six rows by 16 columns: 24 for two words, and no other products."""
    (kernel,) = build([definition], ARM, progress=False)
    (text,) = (np.frombuffer(each, np.uint32) for each in instruction_sets.texts(kernel.code) if each)
    counts = [int(((text & mask) == value).sum()) for mask, value in (square, word)]
    assert counts[0] == 24
    assert counts[1] == 0
