"""The law of `kernels/kernel.py`: neither the number of parts nor where tensors lie changes a bit of the result."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.check import check_definition
from treadle.compiler.ir.evaluate import evaluate_definition
from treadle.compiler.operators.table import TABLE, Fusion, Kind, lookup
from treadle.compiler.targets.cpu.kernels.kernel import even_pieces
from treadle.compiler.targets.cpu.kernels.lower import TEMPLATES, lower
from treadle.formats.messages.errors import InferenceError
from treadle.formats.primitive import PrimitiveDefinition
from treadle.formats.types import TensorType, tensor
from treadle.tools.dev.fuzz.changed_definitions import mended

from ....definitions import of_templates
from ....operators.test_operators import DIMS, array, concrete
from ..harness import TARGET, Builder, definition_of, random_array, run_kernel


def of(operator: str, *shapes: tuple, dtype: str = "float32", **attributes: object) -> PrimitiveDefinition:
    return definition_of(operator, [tensor(dtype, shape) for shape in shapes], **attributes)


def chain() -> PrimitiveDefinition:
    build = Builder(tensor("float32", (9, 70)), tensor("float32", (70,)))
    return build.definition(build("sigmoid", build("add", 0, 1)))


DEFINITIONS = {
    "chain": chain(),
    "sum of all": of("sum", (7, 1000), axes=None),
    "sum of rows": of("sum", (7, 1000), axes=(1,)),
    "sum of columns": of("sum", (300, 37), axes=(0,)),
    "log_sum_exp": of("log_sum_exp", (5, 99), axes=(1,)),
    "argmax": of("argmax", (5, 99), axis=1),
    "softmax": of("softmax", (11, 67)),
    "layer_normalization": of("layer_normalization", (11, 67), (67,), (67,)),
    "matmul": of("matmul", (37, 65), (65, 41)),
    "matmul of doubles": of("matmul", (13, 17), (17, 9), dtype="float64"),
    "conv": of("conv", (2, 3, 9, 11), (5, 3, 3, 3), pads=(1, 1, 1, 1)),
    "max_pool": of("max_pool", (2, 3, 9, 11), kernel=(3, 3)),
    "permute_dims": of("permute_dims", (5, 18, 33), axes=(2, 0, 1)),
    "concat": of("concat", (3, 18), (3, 7), axis=1),
    "put_slice": of("put_slice", (3, 18), (3, 7), start=4, axis=1),
    "pad": of("pad", (3, 18), pads=(1, 2, 0, 1), mode="reflect"),
    "few rows": of("matmul_packed", (3, 300), (9, 300, 16), columns=141),
    "im2col": of("conv_blocked", (1, 2, 70, 16), (3, 2, 3, 16, 16), channels=21, pads=(1, 1)),
    "a few large units": of("conv_blocked", (1, 2, 17, 17, 16), (7, 2, 1, 7, 16, 16), channels=32, pads=(0, 3, 0, 3)),
    "halves of an image": of("conv_blocked", (2, 3, 9, 31, 16), (2, 3, 1, 1, 16, 16), channels=48),
    "conv_planar": of("conv_planar", (1, 3, 30, 31), (2, 3, 3, 3, 16), strides=(2, 2), pads=(1, 1, 1, 1)),
    "depthwise": of("conv_depthwise", (2, 3, 15, 13, 16), (3, 1, 3, 3, 16), pads=(1, 1, 1, 1)),
    "join_channels": of("join_channels", (2, 1, 9, 7, 16), (2, 2, 9, 7, 16), channels=(5, 21), start=2, count=22),
    "normalised groups": of("group_normalization_blocked", (2, 3, 24, 25, 16), (3, 16), (3, 16), groups=4, channels=40),
}


def test_the_examples_are_of_many_templates() -> None:
    used = {node.operator for definition in DEFINITIONS.values() for node in definition.nodes}
    assert len({TEMPLATES[operator] for operator in used & TEMPLATES.keys()}) >= 9


@pytest.mark.parametrize("name", DEFINITIONS)
def test_parts_and_alignment_do_not_change_a_bit(name: str) -> None:
    definition = DEFINITIONS[name]
    arrays = [random_array(param, seed) for seed, param in enumerate(definition.params)]
    _, expected = run_kernel(definition, arrays)

    @settings(max_examples=8, deadline=None, derandomize=True)
    @given(st.integers(1, 64), st.integers(0, 15))
    def same(parts: int, words: int) -> None:
        code, outputs = run_kernel(definition, arrays, parts=parts, slack=4 * words)
        assert code == 0
        for got, wanted in zip(outputs, expected, strict=True):
            assert got.tobytes() == wanted.tobytes()

    same()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_nothing_before_a_tensor_is_read_or_written(name: str) -> None:
    definition = DEFINITIONS[name]
    arrays = [random_array(param, seed) for seed, param in enumerate(definition.params)]
    _, expected = run_kernel(definition, arrays)
    for parts, words in ((1, 0), (3, 1)):
        code, outputs = run_kernel(definition, arrays, parts=parts, slack=4 * words, at_start=True)
        assert code == 0
        assert [got.tobytes() for got in outputs] == [wanted.tobytes() for wanted in expected]


ONE_OF_EACH = of_templates()


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_template_keeps_to_its_tensors_and_to_the_reference(name: str) -> None:
    definition = ONE_OF_EACH[name]
    arrays = [array(concrete(param)) for param in definition.params]
    wanted = evaluate_definition(definition, arrays, [DIMS[name] for name in definition.variables])
    if lower(definition, TARGET) is None:
        return  # a host operator, for types or sizes like these
    for at_start in (False, True):
        code, outputs = run_kernel(definition, arrays, DIMS, at_start=at_start)
        assert code == 0
        for result, got, expected in zip(definition.results, outputs, wanted, strict=True):
            if result.dtype.is_string:  # numbers of texts, which are equal or are not
                np.testing.assert_array_equal(got, expected)
            else:
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def resized(definition: PrimitiveDefinition, before: object, after: int) -> PrimitiveDefinition | None:
    """The definition with another size in place of one, wherever a parameter has it; None where nothing is well-formed so."""
    shapes = [tuple(after if dim == before else dim for dim in param.shape) for param in definition.params]
    params = tuple(TensorType(param.dtype, shape) for param, shape in zip(definition.params, shapes, strict=True))
    changed = mended(replace(definition, params=params))
    try:
        check_definition(changed)
    except InferenceError:
        return None
    return changed


@pytest.mark.parametrize("size", [0, 1, 2])
def test_templates_take_any_size_or_leave_it(size: int) -> None:
    """What inference lets through, a file may hold: of no channels or images, there are no blocks or tiles."""
    found = [
        changed
        for definition in ONE_OF_EACH.values()
        for dim in dict.fromkeys(dim for param in definition.params for dim in param.shape)
        if (changed := resized(definition, dim, size)) is not None
    ]
    assert len(found) > 200
    for definition in found:
        lower(definition, TARGET)


def test_any_number_of_an_attribute_stands_in_a_text_as_python_reads_it() -> None:
    for definition in ONE_OF_EACH.values():
        (node,) = definition.nodes
        floats = [name for name, it in lookup(node.operator).attributes.items() if it.kind in (Kind.FLOAT, Kind.NUMBER)]
        for name, value in itertools.product(floats, (math.inf, -math.inf, math.nan)):
            attributes = tuple(sorted((dict(node.attributes) | {name: value}).items()))
            changed = replace(definition, nodes=(replace(node, attributes=attributes),))
            with contextlib.suppress(InferenceError):
                check_definition(changed)
                kernel = lower(changed, TARGET)
                assert kernel is None or not re.search(r"(?<![\w.])(inf|nan)\b", kernel.source.partition("args")[2])


def normalized(operator: str, shape: tuple, *others: tuple, **attributes: object) -> PrimitiveDefinition:
    """The normalisation of a sum, of which two results are made."""
    build = Builder(*(tensor("float32", each) for each in (shape, shape, shape, *others)))
    result = build(operator, build("add", 0, 1), *range(3, 3 + len(others)), **attributes)
    return build.definition(build("multiply", result, 2), result)


def softmax_of_a_sum() -> PrimitiveDefinition:
    """Whose exponentials wait where the result goes."""
    build = Builder(*[tensor("float32", (11, 67))] * 2)
    return build.definition(build("softmax", build("add", 0, 1)))


IN_PLACE = {
    "chain": chain(),
    "softmax": of("softmax", (11, 67)),
    "put_slice": of("put_slice", (3, 18, 5), (3, 7, 5), start=4, axis=1),
    "softmax of long rows": of("softmax", (3, 2500)),
    "softmax of columns": of("softmax", (40, 300), axis=0),
    "softmax of a sum": softmax_of_a_sum(),
    "softmax between others": normalized("softmax", (11, 67)),
    "softmax of columns between others": normalized("softmax", (2, 7, 300), axis=1),
    "log_softmax": normalized("log_softmax", (11, 67)),
    "layer_normalization": of("layer_normalization", (11, 67), (67,), (67,)),
    "layer_normalization between others": normalized("layer_normalization", (9, 67), (67,), (67,)),
    "layer_normalization of one row": normalized("layer_normalization", (67,), (67,), (67,)),
    "rms_normalization": normalized("rms_normalization", (9, 67), (67,)),
    "instance_normalization": normalized("instance_normalization", (2, 3, 5, 7), (3,), (3,)),
    "group_normalization": of("group_normalization", (2, 6, 5, 7), (6,), (6,), groups=3),
    "batch_normalization": normalized("batch_normalization", (2, 3, 5, 7), (3,), (3,), (3,), (3,)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_operators_that_work_in_place_give_the_same_bits_there(name: str) -> None:
    definition = IN_PLACE[name]
    assert all(lookup(node.operator).in_place for node in definition.nodes)
    arrays = [abs(random_array(param, seed)) + 0.1 for seed, param in enumerate(definition.params)]
    _, expected = run_kernel(definition, arrays)
    for place, param in enumerate(definition.params):
        for parts in (1, 3) if param.shape == definition.results[0].shape else ():
            code, outputs = run_kernel(definition, arrays, parts=parts, over=place)
            assert code == 0
            for got, wanted in zip(outputs, expected, strict=True):
                assert got.tobytes() == wanted.tobytes()


def test_every_operator_that_works_in_place_is_among_the_examples() -> None:
    others = {entry.name for entry in TABLE.values() if entry.in_place and entry.fusion is not Fusion.ELEMENTWISE}
    assert others <= {node.operator for definition in IN_PLACE.values() for node in definition.nodes}


@pytest.mark.parametrize(
    ("length", "least", "others"), [(224, 1, 3), (5, 1, 12), (7, 2, 1), (1, 1, 1), (100, 9, 2), (0, 1, 1)]
)
def test_few_units_are_cut_into_pieces_that_threads_share_evenly(length: int, least: int, others: int) -> None:
    pieces = even_pieces(length, least, others)
    assert least <= pieces <= max(least, length)
    if length > 100:
        assert pieces * others % 4 == 0


@pytest.mark.parametrize("sizes", [(9,), (9, 7), (9, 7, 5)])
def test_images_of_any_rank_have_kernels_or_none(sizes: tuple[int, ...]) -> None:
    """What inference lets through, a file may hold: no template may fail for it."""
    image, window = (1, 2, *sizes, 16), (3,) * len(sizes)
    for operator, shapes, attributes in (
        ("conv_blocked", (image, (3, 2, *window, 16, 16)), {"channels": 32}),
        ("conv_planar", ((1, 3, *sizes), (3, 3, *window, 16)), {}),
        ("conv_depthwise", (image, (2, 1, *window, 16)), {}),
        ("group_normalization_blocked", (image, (2, 16), (2, 16)), {"groups": 4, "channels": 32}),
        ("join_channels", (image, image), {"channels": (20, 32), "count": 52}),
        ("pack_channels", ((1, 20, *sizes),), {}),
        ("unpack_channels", (image,), {"channels": 20}),
    ):
        lower(of(operator, *shapes, **attributes), TARGET)
