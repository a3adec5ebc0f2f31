"""Templates' texts interpreted, with every access checked: they give what the reference gives, keep to their memory, use nothing
that nobody wrote, and parts neither race nor depend on their order. No native code is built here but where a test says so."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from treadle.compiler.ir.evaluate import evaluate_definition
from treadle.compiler.operators.table import Fusion, lookup
from treadle.compiler.targets.cpu.kernels.kernel import Kernel
from treadle.compiler.targets.cpu.kernels.lower import TEMPLATES, lower
from treadle.compiler.targets.cpu.target import named, of
from treadle.compiler.targets.cpu.vectors import elementary, elementary_inverse
from treadle.compiler.targets.cpu.vectors.simd import namespace
from treadle.compiler.targets.emulated import emitted
from treadle.compiler.targets.emulated.call import Ran, run_kernel
from treadle.compiler.targets.emulated.memory import KernelFaultError
from treadle.compiler.targets.emulated.vectors import converted
from treadle.compiler.targets.emulated.vocabulary import vocabulary
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import TreadleError
from treadle.formats.types import tensor
from treadle.native.numba_frontend import compiling_for

from ....definitions import alone, of_templates
from ....operators.test_operators import DIMS, EXAMPLES, array, concrete
from .. import harness, instruction_sets
from ..examples import OPERANDS, Example, examples
from ..harness import NARROW, TARGET
from ..rows.test_recurrent import layer
from .test_contract import DEFINITIONS
from .test_fused_wirings import fused

ONE_OF_EACH = of_templates()
ELEMENTWISE = {
    f"{operator}, example {number}": alone(operator, [tensor(*each) for each in inputs], attributes)
    for number, (operator, inputs, attributes) in enumerate(EXAMPLES)
    if lookup(operator).fusion is Fusion.ELEMENTWISE
}
ALL = {**ONE_OF_EACH, **ELEMENTWISE}
_EACH = 4  # random examples of each operator
_MOST_ELEMENTS = 1 << 14  # of an example: interpreting takes some 10 µs a vector
ORDERS = {"forwards": (0, 1, 2, 3, 4), "backwards": (4, 3, 2, 1, 0), "shuffled": (3, 0, 4, 2, 1)}


def example_of(name: str) -> Example:
    """An example of `ALL`."""
    definition = ALL[name]
    sizes = {each: DIMS[each] for each in definition.variables}
    return Example(name, definition, sizes, [array(concrete(param)) for param in definition.params])


def reference(example: Example) -> Sequence[np.ndarray] | None:
    """What the reference gives; None where it fails."""
    sizes = [example.sizes[name] for name in example.definition.variables]
    try:
        with np.errstate(all="ignore"):
            return evaluate_definition(example.definition, example.arrays, sizes)
    except (TreadleError, ValueError, ZeroDivisionError):
        return None


def interpreted(example: Example, kernel: Kernel, **options: object) -> Ran:
    spare = not example.is_exact
    return run_kernel(kernel, example.definition, example.arrays, example.sizes, spare_lanes=spare, **options)  # type: ignore[arg-type]


def bits(ran: Ran) -> list[bytes]:
    """The results, but for elements that may be anything."""
    return [output[~lost].tobytes() for output, lost in zip(ran.outputs, ran.undefined, strict=True)]


def check(example: Example, kernel: Kernel) -> None:
    """One part and three give the reference's results, to the bit the same, wherever tensors lie."""
    wanted = reference(example)
    one = interpreted(example, kernel, offset=0)
    three = interpreted(example, kernel, parts=3, threads=2, order=(2, 0, 1))
    assert (one.code == 0) == (three.code == 0)
    if wanted is None:
        assert one.code != 0 or not any(out.size for out in one.outputs)
        return
    assert one.code == 0
    assert bits(one) == bits(three)
    for out, want in zip(one.outputs, wanted, strict=True) if example.is_exact else ():
        if out.dtype.kind == "f":
            close = 1e-2 if out.dtype == np.float16 else 1e-4
            np.testing.assert_allclose(out.astype(np.float64), want.astype(np.float64), rtol=close, atol=close)
        else:
            np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("name", ALL)
def test_every_template_keeps_the_convention_and_agrees_with_the_reference(name: str) -> None:
    example = example_of(name)
    kernel = lower(example.definition, TARGET)
    if kernel is not None:  # else it is a host operator, for types or sizes like these
        check(example, kernel)


@pytest.mark.parametrize("operator", TEMPLATES)
def test_random_sizes_and_fused_operators_do_so_too(operator: str) -> None:
    for plain in examples(operator, 0, _EACH):
        for example in (plain, fused(plain)):
            kernel = lower(example.definition, TARGET)
            if kernel is not None and sum(each.size for each in example.arrays) < _MOST_ELEMENTS:
                check(example, kernel)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes}-byte-vectors")
@pytest.mark.parametrize("name", ["softmax 0", "matmul 2", "attention 1", "conv_depthwise 0", "argmax 0", "lstm 0"])
def test_texts_for_narrow_vectors_do_so_too(name: str, target: harness.Target) -> None:
    example = example_of(name)
    kernel = lower(example.definition, target)
    assert kernel is not None
    check(example, kernel)


IN_ANY_ORDER = {
    **{name: DEFINITIONS[name] for name in ("chain", "softmax", "layer_normalization", "max_pool", "concat", "pad")},
    "steps that parts take together": layer("rnn", 150, 1, 3, direction="bidirectional"),
}


@pytest.mark.parametrize("name", IN_ANY_ORDER)
def test_the_order_of_parts_does_not_change_a_bit(name: str) -> None:
    definition = IN_ANY_ORDER[name]
    arrays = [harness.random_array(param, seed) for seed, param in enumerate(definition.params)]
    kernel = lower(definition, TARGET)
    assert kernel is not None
    wanted = bits(run_kernel(kernel, definition, arrays))
    for order in ORDERS.values():
        for threads in (1, 3):
            assert bits(run_kernel(kernel, definition, arrays, parts=5, threads=threads, order=order)) == wanted


def test_a_kernel_that_streams_is_interpreted() -> None:
    """Results larger than the caches are stored non-temporally if aligned to 64 bytes, and fenced."""
    text = (
        "def kernel(args, scratch, part, parts):\n"
        "    x = word(args, 1)\n"
        "    y = word(args, 2)\n"
        "    if part < 0:\n"
        "        return 1\n"
        "    vstream(y, 0, vload_float32(x, 0))\n"
        "    streamed()\n"
        "    return 0\n"
    )
    definition = harness.definition_of("relu", [tensor("float32", (TARGET.lanes(),))])
    x = np.ones(TARGET.lanes(), np.float32)
    kernel = Kernel(text, TARGET.lanes(), description="streams")
    np.testing.assert_array_equal(run_kernel(kernel, definition, [x], offset=0).outputs[0], x)
    with pytest.raises(KernelFaultError, match=r"line 6.*not at a multiple of") as found:
        run_kernel(kernel, definition, [x], offset=4)
    assert found.value.text == "vstream(y, 0, vload_float32(x, 0))"
    without = replace(kernel, source=text.replace("    streamed()\n", ""))
    with pytest.raises(KernelFaultError, match=r"does not end with streamed\(\)"):
        run_kernel(without, definition, [x], offset=0)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_the_vocabulary_is_that_of_compiled_kernels(lanes: int) -> None:
    assert vocabulary(lanes).keys() == namespace(lanes).keys()


def test_every_operator_with_a_template_has_random_examples() -> None:
    assert OPERANDS.keys() == TEMPLATES.keys()


TYPES = [dtype for dtype in DType if not dtype.is_string]


@pytest.mark.parametrize("target", TYPES, ids=str)
def test_elements_become_any_other_type_as_in_the_reference(target: DType) -> None:
    pytest.importorskip("ml_dtypes")
    numbers = np.array([0, -0.0, 1, -1, 0.3, 2.5, -3.7, 5, 7.99, 100, -127, 1e-3, 250, 1e5, -1e9, 3e38], np.float32)
    for source in TYPES:
        array = (np.abs(numbers[:10]) if not source.is_signed else numbers[:10]).astype(source.computed.numpy)
        array = (numbers if source in (DType.float32, DType.float64) else array).astype(source.numpy)
        definition = harness.definition_of("cast", [tensor(source, array.shape)], dtype=target)
        with np.errstate(all="ignore"):
            (wanted,) = evaluate_definition(definition, [array], [])
            got = converted(array, target.numpy)
        assert got.dtype == wanted.dtype
        assert got.tobytes() == wanted.tobytes(), f"{source}: {array} becomes {got}, {wanted} in the reference"


FLOAT32_ALONE = {"exp_of_negative", "weight_of", "short_weight_of"}
TO_BE_ROUNDED = {"short_weight_of": 2**-12}  # what vectors alone are short of: the rounding to bfloat16 hides it
ELEMENTARY = [(name, dtype) for name in emitted.NAMES for dtype in ("float32", "float64")]


@pytest.mark.parametrize(
    ("name", "dtype"), [each for each in ELEMENTARY if each[1] == "float32" or each[0] not in FLOAT32_ALONE]
)
def test_elementary_functions_take_vectors_and_scalars(name: str, dtype: str) -> None:
    count = len(inspect.signature(getattr(elementary, name, None) or getattr(elementary_inverse, name)).parameters)
    operands = [(np.linspace(0.1, 0.9, 16) + each).astype(dtype) for each in range(count)]
    if name.startswith("shift_"):
        operands = [each.astype("int32" if dtype == "float32" else "uint64") for each in operands]
    if name == "acosh":
        operands[0] += 1
    with compiling_for(TARGET.native):
        vector = emitted.call(name, *operands)
        scalars = np.concatenate(
            [emitted.call(name, *each) for each in zip(*(o.reshape(-1, 1) for o in operands), strict=True)]
        )
    assert vector.dtype == scalars.dtype == operands[0].dtype
    assert np.isfinite(vector).all()
    np.testing.assert_allclose(vector, scalars, rtol=TO_BE_ROUNDED.get(name, 1e-6 if dtype == "float32" else 1e-14))


# ---- native code ----


@pytest.mark.thorough
@pytest.mark.parametrize("name", ALL)
def test_native_code_gives_the_same(name: str) -> None:
    example = example_of(name)
    kernel = lower(example.definition, TARGET)
    if kernel is None:
        return
    ran = interpreted(example, kernel)
    code, outputs = harness.run_kernel(example.definition, example.arrays, example.sizes)
    assert code == ran.code == 0
    for got, wanted, lost in zip(ran.outputs, outputs, ran.undefined, strict=True):
        assert got[~lost].tobytes() == wanted[~lost].tobytes()


@harness.ON_X86
@pytest.mark.parametrize(
    "name", ["softmax 0", "matmul 2", next(each for each in ELEMENTWISE if each[:5] == "gelu,"), "attention 1"]
)
def test_native_code_for_another_cpu_gives_the_same_as_its_text(name: str) -> None:
    """Without fused multiply-add, with vectors of four lanes."""
    example, target = example_of(name), named("x86-64")
    kernel = lower(example.definition, target)
    assert kernel is not None
    ran = interpreted(example, kernel, target=target)
    _, outputs = harness.run_kernel(example.definition, example.arrays, example.sizes, target=target)
    assert [output.tobytes() for output in ran.outputs] == [output.tobytes() for output in outputs]


def test_the_texts_of_one_arm_are_those_of_all() -> None:
    for example in map(example_of, ALL):
        texts = {
            lower(example.definition, target)
            for target in (named("aarch64"), of(instruction_sets.target("cortex-a72")))
        }
        assert len(texts) == 1
