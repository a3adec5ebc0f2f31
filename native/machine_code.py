"""Code that depends on the processor and the system that the engine is made for: the one place where they differ.

`intrinsics.py` calls these functions by name; `platform.py` links them, since it knows the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .llvm import NativeTarget

NAMES = RELAX, CLOCK, ADVISE_LARGE_PAGES = "treadle.relax", "treadle.clock", "treadle.advise_large_pages"

_MADV_HUGEPAGE = 14  # Linux's, on all machines that Numba knows

# By architecture: what is declared, and the body
_RELAX = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),  # yield
}
_CLOCK = {
    "x86_64": ("declare i64 @llvm.readcyclecounter()", "%result = call i64 @llvm.readcyclecounter()"),
    # not `llvm.readcyclecounter`, which programs may not read, nor `llvm.readsteadycounter`, which LLVM makes 0
    "aarch64": (
        'declare i64 @llvm.read_volatile_register.i64(metadata)\n!0 = !{!"cntvct_el0"}',
        "%result = call i64 @llvm.read_volatile_register.i64(metadata !0)",
    ),
}

# By system
_ADVISE_LARGE_PAGES = {
    "linux": (
        "declare i32 @madvise(ptr, i64, i32)",
        f"%at = inttoptr i64 %a to ptr\ncall i32 @madvise(ptr %at, i64 %b, i32 {_MADV_HUGEPAGE})",
    )
}


def text(target: NativeTarget) -> str:
    """LLVM text of the functions, each of which gives a word; what the target has no code for does nothing, and gives 0."""
    system = "linux" if "linux" in target.triple else ""
    return "\n".join(
        (
            _function(RELAX, "", *_RELAX.get(target.architecture, ("", ""))),
            _function(CLOCK, "", *_CLOCK.get(target.architecture, ("", ""))),
            _function(ADVISE_LARGE_PAGES, "i64 %a, i64 %b", *_ADVISE_LARGE_PAGES.get(system, ("", ""))),
        )
    )


def _function(name: str, parameters: str, declaration: str, body: str) -> str:
    result = "%result" if "%result" in body else 0
    return f"{declaration}\ndefine i64 @{name}({parameters}) alwaysinline {{\n{body}\nret i64 {result}\n}}\n"
