"""Object code: the same bytes in every process, loadable without the compiler, cached by content."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from treadle.formats.messages.errors import CompileError, FormatError
from treadle.native import loader, platform, words
from treadle.native.intrinsics import store
from treadle.native.llvm import NativeTarget
from treadle.native.object_code import compile_object, compile_text


def kernel(result, exception, args, scratch, part, parts):
    store(result, 0, part * 10 + parts)
    return 0


def compiled(**functions: Callable[..., int]) -> bytes:
    return compile_object(words.source_of(functions), list(functions), platform.host_target())


def text(form: str, **functions: Callable[..., int]) -> str:
    return compile_text(words.source_of(functions), list(functions), platform.host_target(), form)


def call(address: int, *arguments: int) -> tuple[int, int]:
    """Calls code of the kernels' convention, which is Numba's: the status and the result."""
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


@pytest.mark.skipif(not platform.processor_identity(), reason="nothing tells one CPU from another here")
def test_a_cpu_that_the_cache_knows_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    ask = platform._processor.__wrapped__  # type: ignore[attr-defined]  # as another process does
    first = ask()

    def llvm() -> None:
        raise AssertionError("LLVM is asked again")

    monkeypatch.setattr(platform, "llvm", llvm)
    assert ask() == first


@pytest.mark.parametrize("answer", [0, -1])
def test_amx_is_used_where_linux_grants_its_registers(monkeypatch, answer):
    asked = []
    monkeypatch.setattr(
        platform, "_known_to_llvm", lambda: NativeTarget("x86_64", "x", "+amx-int8,+amx-tile,-amx-fp16,+avx2")
    )
    monkeypatch.setattr(platform.loader, "system_call", lambda *words: asked.append(words) or answer)
    found = platform._processor.__wrapped__()  # type: ignore[attr-defined]
    assert asked == [(158, 0x1023, 18)]
    assert found.has("avx2")
    assert found.has("amx-tile") == found.has("amx-int8") == (answer == 0)


def test_a_cpu_without_amx_is_not_asked_for_it(monkeypatch):
    monkeypatch.setattr(platform, "_known_to_llvm", lambda: NativeTarget("x86_64", "x", "-amx-tile"))
    monkeypatch.setattr(platform.loader, "system_call", lambda *words: pytest.fail("it is asked"))
    assert not platform._processor.__wrapped__().has("amx-tile")  # type: ignore[attr-defined]


@pytest.mark.skipif(sys.platform != "linux", reason="is about system calls of Linux")
def test_a_system_call_fails_with_minus_one():
    assert loader.system_call(-1) == -1


def test_compiled_function_runs():
    addresses = platform.load_object(compiled(answer=kernel))
    assert call(addresses["answer"], 0, 0, 4, 2) == (0, 42)


def test_symbols_of_one_object_are_separate():
    def other(result, exception, args, scratch, part, parts):
        store(result, 0, -part)
        return 0

    addresses = platform.load_object(compiled(first=kernel, second=other))
    assert call(addresses["first"], 0, 0, 1, 1) == (0, 11)
    assert call(addresses["second"], 0, 0, 1, 1) == (0, -1)


def test_kernels_with_loops_align_the_stack_for_vectors_that_wait_there():
    def collatz(part):
        steps = 0
        while part > 1:
            part, steps = part // 2 if part % 2 == 0 else 3 * part + 1, steps + 1
        return steps

    assert '"stackrealign"' in text("llvm", k=collatz)
    assert '"stackrealign"' not in text("llvm", k=kernel)


COMPILE = """
    import hashlib
    from treadle.compiler.targets.cpu.target import host
    from treadle.compiler.targets.cpu.toolchain.worker import compile_kernel
    source = "def kernel(args, scratch, part, parts):\\n    return parts * part // 3 + max(part, 7)\\n"
    {before}
    print(hashlib.sha256(compile_kernel("kernel_k", source, 4, host().native)).hexdigest())
"""


def test_bytes_do_not_depend_on_the_process():
    plain = run_python(COMPILE.format(before=""))
    # what was compiled before moves the counters in Numba's names
    numba = "from numba import njit; njit('int64(int64)')(lambda x: x); compile_kernel('kernel_j', source, 8, host().native)"
    assert plain == run_python(COMPILE.format(before=numba))


def test_loading_imports_no_compiler(tmp_path: Path):
    path = tmp_path / "code"
    path.write_bytes(compiled(k=kernel))
    source = f"""
        import sys
        from treadle.native import platform as native
        native.load_object(open({str(path)!r}, "rb").read())
        print("numba" in sys.modules)
    """
    assert run_python(source) == "False"


def test_text_forms():
    assert "@k(" in text("llvm", k=kernel)
    assert "k:" in text("asm", k=kernel)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: words_bad_attribute, "nothing"),
        (lambda: words_bad_call, "print is not a function of words"),
        (lambda: words_bad_count, "store takes 3 words, got 2"),
        (lambda: words_bad_statement, "compiled functions know no With"),
    ],
    ids=["attribute", "call", "count", "statement"],
)
def test_what_cannot_be_compiled_is_named(bad, message):
    with pytest.raises(CompileError, match=f"bad_kernel, line .*{message}"):
        compiled(bad_kernel=bad())


def words_bad_attribute(x):
    return os.nothing


def words_bad_call(x):
    return print(x)


def words_bad_count(x):
    return store(x, 0)


def words_bad_statement(x):
    with x:
        return 0


@pytest.mark.parametrize("code", [b"", b"TRDLOBJ1", b"TRDLOBJ1\xff\xff\xff\x7f"])
def test_garbage_is_refused(code: bytes):
    with pytest.raises(FormatError):
        platform.load_object(code)


def test_cache_keeps_and_finds(tmp_path: Path):
    cache = platform.ObjectCache(tmp_path / "new" / "folder")
    key = hashlib.sha256(b"key").hexdigest()
    assert cache.get(key) is None
    cache.put(key, b"content")
    assert platform.ObjectCache(cache.folder).get(key) == b"content"


def test_damaged_cache_file_is_as_if_missing(tmp_path: Path):
    cache = platform.ObjectCache(tmp_path)
    cache.put("abcdef", b"content")
    path = tmp_path / "ab" / "cdef"
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get("abcdef") is None


def test_unwritable_cache_warns_once(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    cache = platform.ObjectCache(tmp_path / "file")
    with pytest.warns(RuntimeWarning, match="TREADLE_CACHE"):
        cache.put("abcdef", b"content")
    cache.put("abcdef", b"content")  # warnings are errors here: a second one would fail
    assert cache.get("abcdef") == b"content"  # for this process, which made it
    assert platform.ObjectCache(cache.folder).get("abcdef") is None
