"""What kernels are told of a CPU, and which tiles of products its registers hold."""

import dataclasses

import pytest
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.cpu.products.tile import Tile, symbolic_tiles
from treadle.compiler.targets.cpu.target import of
from treadle.compiler.targets.cpu.toolchain.translate import kernel_text
from treadle.formats.dtypes import DType
from treadle.formats.primitive import PrimitiveDefinition
from treadle.formats.types import TensorType
from treadle.native.llvm import NativeTarget

from ..harness import definition_of

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(
    ("native", "vectors", "has_fma", "tile"),
    [
        (NativeTarget(X86, "znver5", "+avx2,+avx512f,+fma"), (64, 32), True, Tile(14, 2)),
        (NativeTarget(X86, "x86-64-v4", ""), (64, 32), True, Tile(14, 2)),
        (NativeTarget(X86, "haswell", "+avx2,-avx512f,+fma"), (32, 16), True, Tile(6, 1)),
        (NativeTarget(X86, "x86-64-v3", ""), (32, 16), True, Tile(6, 1)),
        (NativeTarget(X86, "x86-64", ""), (16, 16), False, Tile(2, 1)),
        (NativeTarget(ARM, "neoverse-n1", "+neon"), (16, 32), True, Tile(6, 1)),
        (NativeTarget("arm64-apple-darwin24.0.0", "apple-m1", ""), (16, 32), True, Tile(6, 1)),
    ],
    ids=lambda value: value.cpu if isinstance(value, NativeTarget) else None,
)
def test_vectors_and_the_largest_tile(
    native: NativeTarget, vectors: tuple[int, int], has_fma: bool, tile: Tile
) -> None:
    """Tiles leave registers for a row of vectors and a broadcast element: else LLVM moves sums about in the innermost loop."""
    target = of(native)
    assert (target.vector_bytes, target.vector_registers) == vectors
    assert target.has_fma == has_fma
    assert symbolic_tiles([99], 2, target) == [tile]


@pytest.mark.parametrize(
    ("features", "widths"),
    [
        ("", [128] * 3),
        ("+avx2", [128, 256, 256]),
        ("+avx2,+avx512f", [128, 256, 256]),
        ("+avx2,+avx512bw", [128, 256, 512]),
    ],
)
def test_products_of_bytes_take_instructions_that_the_target_has(features: str, widths: list[int]) -> None:
    """Also for vectors that are several registers: LLVM crashes on an unsupported instruction."""
    target = of(NativeTarget(X86, "x86-64", features))
    found = [dataclasses.replace(target, vector_bytes=size).dot for size in (16, 32, 64)]
    assert found == [f"dot_pairs_{width}" for width in widths]


@pytest.mark.parametrize(
    ("features", "instructions"),
    [("+avx512f,+avx512dq,+fma,+f16c", {"vscalefps", "vfmadd"}), ("+avx2,+fma,+f16c", {"vfmadd"}), ("", set())],
    ids=["avx512", "avx2", "baseline"],
)
def test_elementary_functions_are_made_of_what_the_target_has(features: str, instructions: set[str]) -> None:
    """Silently slow otherwise: what the target has is asked while a kernel is made, far from the code that names the target."""
    silu = definition_of("silu", [TensorType(DType.float32, (4096,))])
    text = assembly(silu, NativeTarget(X86, "x86-64", features))
    assert {name for name in ("vscalefps", "vfmadd") if name in text} == instructions


@pytest.mark.parametrize(
    ("native", "instructions"),
    [
        (NativeTarget(X86, "haswell", "+avx,+avx2,+f16c"), {"vcvtps2ph"}),
        (NativeTarget(X86, "x86-64", ""), set()),
        (NativeTarget(ARM, "cortex-a72", ""), {"fcvtn"}),
    ],
    ids=lambda value: value.cpu if isinstance(value, NativeTarget) else None,
)
def test_float16_is_made_by_the_instruction_of_the_target(native: NativeTarget, instructions: set[str]) -> None:
    """Whatever CPU compiles: it was asked itself, and code for ARM that was made elsewhere shifted bits."""
    text = assembly(definition_of("cast", [TensorType(DType.float32, (4096,))], dtype=DType.float16), native)
    assert {name for name in ("vcvtps2ph", "fcvtn") if name in text} == instructions


def assembly(definition: PrimitiveDefinition, native: NativeTarget) -> str:
    target = of(native)
    kernel = lower(definition, target)
    assert kernel is not None
    return kernel_text(kernel.source, kernel.lanes, target.native, "asm")
