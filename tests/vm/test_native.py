"""Object code: the same bytes in every process, loadable without the compiler, cached by content."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from treadle.formats.errors import CompileError, FormatError
from treadle.vm import native

SIGNATURE = "int64(uintp, uintp, int64, int64)"


def kernel(args, scratch, part, parts):
    return part * 10 + parts


def call(address: int, *arguments: int) -> tuple[int, int]:
    """Calls code of Numba's convention: the status and the result."""
    result = (ctypes.c_int64 * 2)()
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_uint64] * 6)(address)
    status = function(ctypes.addressof(result), ctypes.addressof(result) + 8, *arguments)
    return status, result[0]


def run_python(source: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_compiled_function_runs():
    addresses = native.load_object(native.compile_object({"answer": (kernel, SIGNATURE)}))
    assert call(addresses["answer"], 0, 0, 4, 2) == (0, 42)


def test_symbols_of_one_object_are_separate():
    def other(args, scratch, part, parts):
        return -part

    code = native.compile_object({"first": (kernel, SIGNATURE), "second": (other, SIGNATURE)})
    addresses = native.load_object(code)
    assert call(addresses["first"], 0, 0, 1, 1) == (0, 11)
    assert call(addresses["second"], 0, 0, 1, 1) == (0, -1)


def test_kernels_with_loops_align_the_stack_for_vectors_that_wait_there():
    def collatz(args, scratch, part, parts):
        steps = 0
        while part > 1:
            part, steps = part // 2 if part % 2 == 0 else 3 * part + 1, steps + 1
        return steps

    assert '"stackrealign"' in native.compile_text({"k": (collatz, SIGNATURE)})
    assert '"stackrealign"' not in native.compile_text({"k": (kernel, SIGNATURE)})


COMPILE = """
    import hashlib, math
    from numba import njit
    from treadle.vm import native
    @njit
    def helper(x): return math.exp(x)
    def kernel(args, scratch, part, parts):
        total = 0.0
        for i in range(part):
            total += helper(i)
        return int(total)
    {before}
    code = native.compile_object({{"k": (kernel, "int64(uintp, uintp, int64, int64)")}})
    print(hashlib.sha256(code).hexdigest())
"""


def test_bytes_do_not_depend_on_the_process():
    plain = run_python(COMPILE.format(before=""))
    # what was compiled before moves the counters in Numba's names
    later = run_python(COMPILE.format(before="helper(2.0); njit('int64(int64)')(lambda x: x)"))
    assert plain == later


def test_loading_imports_no_compiler(tmp_path: Path):
    path = tmp_path / "code"
    path.write_bytes(native.compile_object({"k": (kernel, SIGNATURE)}))
    source = f"""
        import sys
        from treadle.vm import native
        native.load_object(open({str(path)!r}, "rb").read())
        print("numba" in sys.modules)
    """
    assert run_python(source) == "False"


def test_text_forms():
    functions = {"k": (kernel, SIGNATURE)}
    assert "@k(" in native.compile_text(functions, form="llvm")
    assert "k:" in native.compile_text(functions, form="asm")


def test_what_numba_cannot_compile_is_named():
    def bad(args, scratch, part, parts):
        return args.nothing

    with pytest.raises(CompileError, match="bad_kernel"):
        native.compile_object({"bad_kernel": (bad, SIGNATURE)})


@pytest.mark.parametrize("code", [b"", b"TRDLOBJ1", b"TRDLOBJ1\xff\xff\xff\x7f"])
def test_garbage_is_refused(code: bytes):
    with pytest.raises(FormatError):
        native.load_object(code)


def test_cache_keeps_and_finds(tmp_path: Path):
    cache = native.ObjectCache(tmp_path / "new" / "folder")
    key = hashlib.sha256(b"key").hexdigest()
    assert cache.get(key) is None
    cache.put(key, b"content")
    assert native.ObjectCache(cache.folder).get(key) == b"content"


def test_damaged_cache_file_is_as_if_missing(tmp_path: Path):
    cache = native.ObjectCache(tmp_path)
    cache.put("abcdef", b"content")
    path = tmp_path / "ab" / "cdef"
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get("abcdef") is None


def test_unwritable_cache_warns_once(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    cache = native.ObjectCache(tmp_path / "file")
    with pytest.warns(RuntimeWarning, match="TREADLE_CACHE"):
        cache.put("abcdef", b"content")
    cache.put("abcdef", b"content")  # warnings are errors here: a second one would fail
    assert cache.get("abcdef") is None
