"""Products and convolutions by AMX: texts interpreted, which is their reference, and native code disassembled, and executed, also
where the CPU has no AMX (`illegal_amx.py`)."""

import contextlib
import ctypes
import dataclasses
import sys

import numpy as np
import pytest
from treadle.compiler.targets.cpu.kernels.kernel import Kernel
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.cpu.target import of
from treadle.compiler.targets.cpu.toolchain.kernels import build
from treadle.compiler.targets.cpu.toolchain.worker import compile_kernel
from treadle.compiler.targets.emulated.call import run_kernel
from treadle.compiler.targets.emulated.memory import KernelFaultError
from treadle.formats.types import tensor
from treadle.native.convention import STOP_WORD, STOPPED
from treadle.tools import machine_limits
from treadle.tools.dev.fuzz import forbidden_pages

from .. import harness, instruction_sets
from ..examples import examples
from ..harness import ON_X86, Builder, definition_of, evaluate, random_array
from ..illegal_amx import executed
from ..kernels.test_interpreted import bits, interpreted
from .test_bfloat16 import arrays_of, product_of
from .test_quantized import product_of as integer_product
from .test_squares import ARM, OF_ALL, is_small

pytest.importorskip("ml_dtypes")

AMX = of(instruction_sets.target("sapphirerapids"))
PLAIN = of(instruction_sets.target("znver4"))


def examples_by_amx(operator, count=3):
    found = []
    for example in examples(operator, 0, 200):
        kernel = lower(example.definition, AMX)
        if kernel and "amx_begin(" in kernel.source and is_small(example):
            found.append((example, kernel))
        if len(found) == count:
            return found
    raise AssertionError(f"there are {len(found)} examples")


@OF_ALL
def test_results_are_those_of_vectors(operator):
    """Exactly those of integers; sums of bfloat16 are made in another order."""
    for example, kernel in examples_by_amx(operator):
        got, whole = (interpreted(example, kernel, parts=parts, target=AMX) for parts in (1, 3))
        assert bits(got) == bits(whole)
        wanted = interpreted(example, lower(example.definition, PLAIN), target=PLAIN)
        if "bfloat16" not in operator:
            assert bits(got) == bits(wanted)
            continue
        for a, b, lost in zip(got.outputs, wanted.outputs, got.undefined, strict=True):
            np.testing.assert_allclose(*(each[~lost].astype("f") for each in (a, b)), rtol=1e-2, atol=1e-3)


def sum_of(x, w, words):
    """The sum of products in the order of TDPBF16PS, for each row of x and column of w."""
    total = np.zeros((len(x), w.shape[1]), np.float32)
    for begin in range(0, len(w), 2 * words):
        parts = np.zeros((2, *total.shape), np.float32)
        for k in range(begin, begin + 2 * words):
            exact = x[:, k, None].astype(np.float64) * w[k].astype(np.float64)
            parts[k % 2] = (parts[k % 2] + exact).astype(np.float32)  # a fused multiply-add
        total = total + (parts[0] + parts[1])
    return total


@pytest.mark.parametrize(("pairs", "words"), [(16, 16), (40, 10), (96, 16), (13, 13)])
def test_sums_have_their_stated_order(pairs, words):
    definition = product_of(21, pairs, 40)
    a, panels = arrays_of(definition)
    (got,) = run_kernel(lower(definition, AMX), definition, [a, panels], target=AMX).outputs
    matrix = panels.transpose(1, 3, 0, 2).reshape(2 * pairs, -1)[:, :40]
    np.testing.assert_array_equal(got, sum_of(a, matrix, words))


def test_convolutions_too_from_channels_to_window():
    """A row of the window in two steps, of each block of channels; what sums start with comes last."""
    x, weight = (random_array(tensor("bfloat16", shape), 3) for shape in ((1, 32, 5, 21), (20, 32, 3, 3)))
    image, packed = evaluate("pack_channels", x), evaluate("pack_bfloat16_weights", weight)
    start = evaluate("pack_vector", random_array(tensor("float32", (20,)), 2), axes=2)
    types = [
        tensor(dtype, each.shape) for dtype, each in (("bfloat16", image), ("bfloat16", packed), ("float32", start))
    ]
    build = Builder(*types)
    definition = build.definition(build("conv_bfloat16_blocked", 0, 1, 2, channels=32, pads=(0, 1, 0, 1)))
    (got,) = run_kernel(lower(definition, AMX), definition, [image, packed, start], target=AMX).outputs
    padded = np.pad(x.astype("f"), ((0, 0), (0, 0), (0, 0), (1, 1)))[0].reshape(2, 16, 5, 23)
    total = np.zeros((3, 21, 20), np.float32)
    for block in range(2):
        for tap in range(3):
            lines = padded[block, :, tap : tap + 3]  # channels, lines, columns
            rows = np.stack([lines[:, :, at : at + 21] for at in range(3)]).transpose(2, 3, 0, 1).reshape(63, 48)
            by_tap = weight[:, 16 * block : 16 * block + 16, tap].transpose(2, 1, 0).reshape(48, 20)
            for step in (slice(0, 24), slice(24, 48)):
                total += sum_of(rows[:, step], by_tap[step], 12).reshape(total.shape)
    wanted = evaluate("pack_channels", total.transpose(2, 0, 1)[None]) + start
    np.testing.assert_array_equal(
        *(evaluate("unpack_channels", np.ascontiguousarray(each), channels=20) for each in (got, wanted))
    )


@pytest.mark.parametrize("rows", [1, 4, 16, 17, 33, "n"])
def test_a_row_has_the_same_bits_in_any_batch(rows):
    """Also alone, where vectors would do; and none at all."""
    a, panels = arrays_of(product_of(70, 24, 33))
    whole = product_of(70, 24, 33)
    (wanted,) = run_kernel(lower(whole, AMX), whole, [a, panels], target=AMX).outputs
    definition = product_of(rows, 24, 33)
    for count in (0, 1, 5, 70) if rows == "n" else (rows,):
        sizes = {"n": count} if rows == "n" else {}
        ran = run_kernel(lower(definition, AMX), definition, [a[:count], panels], sizes, parts=2, target=AMX)
        assert ran.code == 0
        assert ran.outputs[0].tobytes() == wanted[:count].tobytes()


@pytest.mark.parametrize(
    ("definition", "is_used"),
    [
        (product_of(40, 17, 40), False),  # words of which no register's row has four
        (product_of(40, 3, 40), False),
        (product_of(40, 34, 40), False),
        (product_of(40, 44, 40), True),
        (integer_product(40, 18, 40), True),
        (integer_product(1, 18, 40), False),  # exact in any way
        (product_of(1, 18, 40), True),
    ],
    ids=str,
)
def test_sizes_that_do_not_fit_keep_vectors(definition, is_used):
    assert ("amx_begin(" in lower(definition, AMX).source) == is_used


@pytest.mark.parametrize("feature", ["amx-bf16", "amx-int8"])
def test_a_cpu_without_the_instruction_keeps_vectors(feature):
    target = harness.without(AMX, feature)
    for name, definition in (("amx-bf16", product_of(40, 16, 40)), ("amx-int8", integer_product(40, 16, 40))):
        assert ("amx_begin(" in lower(definition, target).source) == (name != feature)
        narrow = dataclasses.replace(AMX, vector_bytes=32, vector_registers=16)
        assert "amx_begin(" not in lower(definition, narrow).source


@ON_X86
@pytest.mark.parametrize(
    ("definition", "name"),
    [(product_of(40, 16, 40), "TDPBF16PS"), (integer_product(40, 16, 40), "TDPBUSD")],
    ids=["bfloat16", "int8"],
)
def test_native_code_takes_registers_and_gives_them_back(definition, name):
    """Once each; before it returns, and where the call is stopped. Each operand is loaded once for two products."""
    import iced_x86

    (kernel,) = build([definition], AMX, progress=False)
    counts, last = dict[str, int](), ""
    names = {number: each for each, number in vars(iced_x86.Mnemonic).items() if isinstance(number, int)}
    for text in instruction_sets.texts(kernel.code):
        for instruction in iced_x86.Decoder(64, text):
            last = names[instruction.mnemonic]
            counts[last] = counts.get(last, 0) + 1
    assert counts["LDTILECFG"] == 1
    assert counts["TILERELEASE"] == 2
    assert counts[name] == 4 + 2 + 2 + 1
    assert counts["TILELOADD"] == 4 + 3 + 3 + 2
    assert not any(each.startswith(("VDP", "VPDP")) for each in counts)


@ON_X86
@pytest.mark.parametrize(
    ("target", "product", "products"),
    [(AMX, "amx_dpbusd_3(", 64), (ARM, "square_usmmla(", 8), (PLAIN, "dot_512(", 4)],
    ids=["amx", "arm", "plain"],
)
def test_the_roofline_is_that_of_the_same_instruction(target, product, products):
    text = machine_limits._multiply_text("int8", target)
    assert product in text
    assert machine_limits._products("int8", target) == products
    assert compile_kernel("kernel_peak", text, target.lanes(), target.native)


@pytest.fixture
def run():
    """`run(example)`: the results of native code, and AMX's instructions, where they are executed one by one."""

    def run(definition, arrays, sizes=None):
        kernel = harness.built(definition, AMX)
        features = instruction_sets.needed(kernel.code)
        lacking = features - instruction_sets.of_this_cpu()
        if lacking and (lacking != {each for each in features if each.startswith("amx-")} or sys.platform != "linux"):
            pytest.skip(f"this CPU lacks {', '.join(sorted(lacking))}")
        with executed(AMX.native) if lacking else contextlib.nullcontext([]) as instructions:
            code, outputs = forbidden_pages.run_kernel(definition, arrays, sizes, target=AMX)
        return code, outputs, instructions

    return run


@ON_X86
@OF_ALL
def test_native_code_has_the_bits_of_its_interpretation(run, operator):
    for example, kernel in examples_by_amx(operator, 2):
        ran = interpreted(example, kernel, target=AMX)
        code, outputs, _ = run(example.definition, example.arrays, example.sizes)
        assert code == ran.code == 0
        for got, wanted, lost in zip(outputs, ran.outputs, ran.undefined, strict=True):
            assert got[~lost].tobytes() == wanted[~lost].tobytes()


@ON_X86
def test_native_code_that_is_stopped_gives_registers_back(run, monkeypatch):
    def stopped(kernel, args, scratch, part, parts):
        ctypes.c_int64.from_address(args + 8 * STOP_WORD).value = part >= 0
        return call(kernel, args, scratch, part, parts)

    call = forbidden_pages.call
    monkeypatch.setattr(forbidden_pages, "call", stopped)
    definition = product_of(40, 16, 40)
    code, _, instructions = run(definition, arrays_of(definition))
    assert code == STOPPED
    assert not instructions or [instructions[0], instructions[-1]] == ["LDTILECFG", "TILERELEASE"]


BEGIN = """
    store_int64(scratch, 0, 1)
    store_int64(scratch, 8, 0)
    store_int64(scratch, 16, 0x0040004000400040)
    store_int64(scratch, 24, 0x0040004000200020)
    store_int64(scratch, 32, 0)
    store_int64(scratch, 40, 0)
    store_int64(scratch, 48, 0x0808040404040404)
    store_int64(scratch, 56, 0)
    amx_begin(scratch)
"""


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("    amx_zero_0()", "uses AMX before amx_begin"),
        (BEGIN, r"does not end with amx_end\(\)"),
        ("    store_int64(scratch, 56, 0)\n    amx_begin(scratch)", "shapes of AMX registers that nobody wrote"),
        (BEGIN.replace("0x0808040404040404", "0x0808040404040004"), "an AMX register of 0 rows"),
        (BEGIN.replace("(scratch, 0, 1)", "(scratch, 0, 2)"), "are no shapes"),
        (BEGIN + "    amx_load_4(scratch, 128, 64)", "loads what nobody wrote"),
        (BEGIN.replace("00200020", "00100010") + "    amx_dpbusd_0()", "do not make sums"),
    ],
)
def test_faults_are_found_in_the_text(lines, reason):
    text = f"def kernel(args, scratch, part, parts):\n    if part < 0:\n        return 1\n{lines}\n    return 0\n"
    kernel = Kernel(text, 16, scratch_bytes=1024, description="faulty")
    definition = definition_of("relu", [tensor("float32", (0,))])
    with pytest.raises(KernelFaultError, match=reason):
        run_kernel(kernel, definition, [np.zeros(0, np.float32)])
