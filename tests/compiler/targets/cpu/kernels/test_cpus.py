"""Kernels for other CPUs: they hold no instruction that their target lacks, and run only where the CPU has what they need.

Under emulation other CPUs run the kernels' contract, the demo and networks: `make cpus` (tests/cpus.py).
"""

from __future__ import annotations

import pytest
from treadle.compiler.targets.cpu.target import of
from treadle.compiler.targets.cpu.toolchain.kernels import build
from treadle.formats.dtypes import DType
from treadle.formats.types import tensor
from treadle.native.llvm import NativeTarget
from treadle.native.object_code import compile_object

from .. import instruction_sets
from ..harness import ON_X86, TARGET, Builder, definition_of, random_array, run_kernel
from ..products.test_bfloat16 import product_of as bfloat16_product
from ..products.test_dequantized import operands
from ..products.test_dequantized import product_of as dequantized_product
from ..products.test_quantized import product_of as integer_product
from .test_contract import DEFINITIONS

pytestmark = ON_X86


def casts():
    """To and from the numbers that some CPUs convert by an instruction."""
    build = Builder(tensor("float32", (70,)), tensor("float16", (70,)))
    return build.definition(build("cast", 0, dtype=DType.float16), build("cast", 1, dtype=DType.float32))


SAMPLE = [
    DEFINITIONS["chain"],
    definition_of("matmul", [tensor("float32", (9, 40)), tensor("float32", (40, 33))]),
    integer_product(9, 20, 40, ((40,),)),
    bfloat16_product(9, 20, 40, "bfloat16"),
    casts(),
]
ALL = [*SAMPLE, *DEFINITIONS.values(), dequantized_product(operands(9, 330, 50, 32, True), 50, 32)]


def unknown_instructions(cpu, definitions):
    """Those features that kernels for a CPU need and it has not."""
    kernels = build(definitions, of(instruction_sets.target(cpu)), progress=False)
    return set().union(*(instruction_sets.needed(each.code) for each in kernels)) - instruction_sets.FEATURES[cpu]


@pytest.mark.parametrize("cpu", instruction_sets.FEATURES)
def test_kernels_hold_no_instruction_that_their_cpu_lacks(cpu):
    assert unknown_instructions(cpu, SAMPLE) == set()


@pytest.mark.slow
@pytest.mark.parametrize("cpu", instruction_sets.FEATURES)
def test_no_kernel_of_the_contract_holds_an_instruction_that_its_cpu_lacks(cpu):
    assert unknown_instructions(cpu, ALL) == set()


@pytest.mark.parametrize(
    ("cpu", "feature", "number"),
    [
        ("haswell", "fma", 1),
        ("skylake-avx512", "avx512f", 1),
        ("alderlake", "avxvnni", 2),
        ("cascadelake", "avx512vnni", 2),
        ("neoverse-n1", "dotprod", 2),
        ("neoverse-v1", "i8mm", 2),
        ("cooperlake", "avx512bf16", 3),
        ("znver4", "avx512bf16", 3),
        ("neoverse-v1", "bf16", 3),
        ("sapphirerapids", "amx-int8", 2),
        ("sapphirerapids", "amx-bf16", 3),
    ],
)
def test_what_instructions_need_is_seen(cpu, feature, number):
    (kernel,) = build([SAMPLE[number]], of(instruction_sets.target(cpu)), progress=False)
    assert feature in instruction_sets.needed(kernel.code)


VECTORS = "define i64 @text(ptr %p) {{\n%a = load {0}, ptr %p\n%b = {1}\nstore {2} %b, ptr %p\nret i64 0\n}}\n{3}"
DOT = (
    "call <4 x i32> @llvm.aarch64.neon.{0}.v4i32.v16i8(<4 x i32> zeroinitializer, <16 x i8> %a, <16 x i8> %a)",
    "declare <4 x i32> @llvm.aarch64.neon.{0}.v4i32.v16i8(<4 x i32>, <16 x i8>, <16 x i8>)",
)
TEXTS_FOR_ARM = {
    "": VECTORS.format("<4 x float>", "fadd <4 x float> %a, %a", "<4 x float>", ""),
    "dotprod": VECTORS.format("<16 x i8>", DOT[0].format("udot"), "<4 x i32>", DOT[1].format("udot")),
    "i8mm": VECTORS.format("<16 x i8>", DOT[0].format("usdot"), "<4 x i32>", DOT[1].format("usdot")),
    "fullfp16": VECTORS.format("<8 x half>", "fadd <8 x half> %a, %a", "<8 x half>", ""),
    "fullfp16, alone": VECTORS.format("half", "fmul half %a, %a", "half", ""),
    "bf16": VECTORS.format("<4 x float>", "fptrunc <4 x float> %a to <4 x bfloat>", "<4 x bfloat>", ""),
    "lse": VECTORS.format("i64", "atomicrmw add ptr %p, i64 %a seq_cst", "i64", ""),
    "lse, compared": VECTORS.format("i64", "cmpxchg ptr %p, i64 %a, i64 7 seq_cst seq_cst", "{i64, i1}", ""),
    "rcpc": VECTORS.format("i64", "load atomic i64, ptr %p acquire, align 8", "i64", ""),
    "sve": VECTORS.format("<vscale x 4 x i32>", "mul <vscale x 4 x i32> %a, %a", "<vscale x 4 x i32>", ""),
}


@pytest.mark.parametrize("name", TEXTS_FOR_ARM)
def test_what_instructions_of_arm_need_is_seen(name):
    feature = name.partition(",")[0]
    target = NativeTarget(instruction_sets.ARM, "generic", feature and f"+{feature}")
    code = compile_object(lambda _: [TEXTS_FOR_ARM[name]], ["text"], target)
    assert instruction_sets.needed(code) == ({feature} if feature else set())


def test_a_kernel_that_this_cpu_cannot_run_is_not_run(monkeypatch):
    """Else the process would die of an illegal instruction."""
    monkeypatch.setattr(instruction_sets, "of_this_cpu", lambda: frozenset({"avx2"}))
    target = of(instruction_sets.target("haswell"))
    arrays = [random_array(type_) for type_ in SAMPLE[1].params]
    with pytest.raises(pytest.skip.Exception, match=r"this CPU lacks .*fma.*make cpus"):
        run_kernel(SAMPLE[1], arrays, target=target)


def test_the_host_runs_its_own_kernels():
    (kernel,) = build([SAMPLE[1]], TARGET, progress=False)
    assert instruction_sets.needed(kernel.code) <= instruction_sets.of_this_cpu()
