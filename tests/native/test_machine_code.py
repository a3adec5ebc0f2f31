"""What the engine asks of the processor and the system: the target decides, wherever the code is made."""

from __future__ import annotations

import pytest
from treadle.native import intrinsics, platform, words
from treadle.native.llvm import NativeTarget
from treadle.native.object_code import compile_object, compile_text

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


def waits(a, b):
    intrinsics.relax()
    return intrinsics.clock()


def advises(a, b):
    intrinsics.advise_large_pages(a, b)
    return 0


def looks(a, b):
    return intrinsics.atomic_load(a, b)


def assembly(function, target: NativeTarget) -> str:
    return compile_text(words.source_of({"function": function}), ["function"], target, "asm")


@pytest.mark.parametrize(
    ("triple", "cpu", "instructions"),
    [(X86, "x86-64", ["pause", "rdtsc"]), (ARM, "cortex-a72", ["yield", "CNTVCT_EL0"])],
    ids=["x86-64", "aarch64"],
)
def test_waiting_and_the_clock_are_instructions_of_the_target(triple: str, cpu: str, instructions: list[str]) -> None:
    text = assembly(waits, NativeTarget(triple, cpu, ""))
    assert [each for each in instructions if each not in text] == []
    assert "treadle." not in text


def test_what_a_target_has_no_code_for_does_nothing() -> None:
    target = NativeTarget("riscv64-unknown-elf", "", "")
    text = compile_text(words.source_of({"function": waits}), ["function"], target)
    assert "ret i64 0" in text
    assert "call" not in text


def test_who_says_that_it_sleeps_looks_afterwards() -> None:
    """ARM's `ldapr`, of acquiring loads, may be done before a store to another word: a worker would miss what wakes it."""
    text = assembly(looks, NativeTarget(ARM, "neoverse-n1", ""))
    assert "ldar\t" in text
    assert "ldapr" not in text


@pytest.mark.parametrize(("triple", "is_asked"), [(X86, True), (ARM, True), ("arm64-apple-darwin24.0.0", False)])
def test_large_pages_are_asked_of_linux(triple: str, is_asked: bool) -> None:
    assert ("madvise" in assembly(advises, NativeTarget(triple, "", ""))) == is_asked


def test_the_clock_of_this_process_runs() -> None:
    import ctypes

    code = compile_object(words.source_of({"function": waits}), ["function"], platform.host_target())
    clock = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(platform.load_object(code)["function"])
    assert 0 < clock(0, 0) < clock(0, 0)


INTEL = (
    "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t: 85\nmodel name\t: Xeon\nstepping\t: 7\nflags\t: sse avx2\n\n"
)
BIG = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\nCPU variant\t: 0x1\n\n"


def test_a_processor_is_known_again_without_llvm() -> None:
    """Else every warm start imports LLVM. ARMs put cores of several kinds into one processor: all of them count."""
    assert platform._identity(INTEL, "x86_64") == platform._identity(INTEL * 2, "x86_64")
    assert platform._identity(INTEL, "x86_64") != platform._identity(INTEL.replace("avx2", "avx512f"), "x86_64")
    assert platform._identity(BIG, "aarch64") == platform._identity(BIG * 2, "aarch64") != ""
    assert platform._identity(BIG, "aarch64") != platform._identity(BIG + BIG.replace("0xd05", "0xd0a"), "aarch64")
    assert (
        platform._identity(BIG, "x86_64")
        == platform._identity("", "aarch64")
        == platform._identity(BIG, "riscv64")
        == ""
    )
