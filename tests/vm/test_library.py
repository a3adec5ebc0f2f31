"""Linking: kernels are found by key, built when missing, loaded once, and called natively."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from treadle.formats.executable import Executable, NativeKernel
from treadle.formats.messages.errors import ArgumentError
from treadle.formats.primitive import PrimitiveDefinition
from treadle.formats.text.assembly import parse_assembly
from treadle.native import platform, words
from treadle.native.intrinsics import load, store
from treadle.native.object_code import compile_object
from treadle.vm import library
from treadle.vm.layout import MAX_THREADS
from treadle.vm.machine import VirtualMachine
from treadle.vm.threads import cpu_count, get_num_threads, set_num_threads

OBJECT_KEY = "ab" * 32

PROGRAM = """
prim double(%0: int64[64]) -> int64[64] {
  %1 = add(%0, %0) : int64[64]
  return %1
}

func @main(x: int64[64]) -> int64[64] {
  alloc_tensor r1, int64[64]
  call double (r0) -> (r1)
  ret r1
}
"""
X = np.arange(64)


def kernel(result, exception, args, scratch, part, parts):
    """Doubles 64 words, by way of the scratch memory; the static word says into how many parts it splits."""
    store(result, 0, double(args, scratch, part, parts))
    return 0


def double(args, scratch, part, parts):
    if part < 0:
        return load(load(args, 0), 0)
    if load(load(args, 1), 0) == -1:
        return 1
    for k in range(64 * part // parts, 64 * (part + 1) // parts):
        store(scratch, k, load(load(args, 1), k))
        store(load(args, 2), k, 2 * load(scratch, k))
    return 0


class KernelCompiler:
    """Gives every definition the kernel above."""

    def __init__(self, parts: int = 1, nanoseconds: int = 10) -> None:
        self.built = 0
        self._words, self._nanoseconds = (parts,), nanoseconds

    def target_key(self) -> str:
        return "test"

    def build(self, definitions: Sequence[PrimitiveDefinition], **options: object) -> list[library.BuiltKernel]:
        self.built += len(definitions)
        code = compile_object(
            words.source_of({"test_library_kernel": kernel}), ["test_library_kernel"], platform.host_target()
        )
        made = []
        for definition in definitions:
            key = library.definition_key(definition, self.target_key())
            made.append(library.BuiltKernel(key, OBJECT_KEY, code, self._words, 512, self._nanoseconds))
            platform.cache().put(OBJECT_KEY, code)
            library.store_record(key, made[-1])
        return made

    def evaluator(self, definition: PrimitiveDefinition) -> library.Evaluate:
        return lambda arrays, sizes: [arrays[0] + arrays[0]]


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """`compiler(…)` is what machines build with, on an empty cache."""
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    # the engine itself stays where it is
    from treadle.vm import core

    core.engine()

    def use(*options: int) -> KernelCompiler:
        made = KernelCompiler(*options)
        monkeypatch.setattr(library, "compiler", lambda: made)
        return made

    return use


def make(**options) -> VirtualMachine:
    return VirtualMachine(Executable(parse_assembly(PROGRAM)), **options)


def test_a_kernel_is_built_once(compiler):
    used = compiler()
    assert np.array_equal(make()["main"](X), 2 * X)
    assert np.array_equal(make()["main"](X), 2 * X)
    assert used.built == 1


def test_cached_kernels_only(compiler):
    used = compiler()
    assert np.array_equal(make(kernels="cached")["main"](X), 2 * X)  # by the evaluator
    assert used.built == 0
    make()
    assert np.array_equal(make(kernels="cached")["main"](X), 2 * X)
    assert used.built == 1


def test_native_code_of_a_file_needs_trust(compiler, tmp_path):
    used = compiler()
    exe = Executable(parse_assembly(PROGRAM))
    definition = exe.program.primitives[0].definition
    code = compile_object(
        words.source_of({"test_library_trusted": kernel}), ["test_library_trusted"], platform.host_target()
    )
    key = library.definition_key(definition, "test")
    with_native = exe.with_native({"test": {key: NativeKernel(code, (1,), 512, 10)}})
    assert np.array_equal(VirtualMachine(with_native, trust_native=True)["main"](X), 2 * X)
    assert used.built == 0
    VirtualMachine(with_native)
    assert used.built == 1


def test_a_kernels_failure_is_an_error(compiler):
    compiler()
    with pytest.raises(IndexError, match="primitive double: an index is out of range"):
        make()["main"](np.full(64, -1))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_parts_on_threads_give_the_same(compiler, threads):
    compiler(8, 100_000)
    before = get_num_threads()
    try:
        set_num_threads(threads)
        main = make()["main"]
        for round in range(200):
            assert np.array_equal(main(X + round), 2 * (X + round))
        with pytest.raises(IndexError):
            main(np.full(64, -1))
        assert np.array_equal(main(X), 2 * X)
    finally:
        set_num_threads(before)


def test_callers_that_want_the_workers_at_once_get_their_own_results(compiler):
    compiler(8, 100_000)
    before = get_num_threads()
    try:
        set_num_threads(6)
        main = make()["main"]
        with ThreadPoolExecutor(3) as callers:
            doubled = list(callers.map(lambda turn: main(X + turn), range(600)))
        for turn, result in enumerate(doubled):
            assert np.array_equal(result, 2 * (X + turn))
    finally:
        set_num_threads(before)


@pytest.mark.serial
def test_a_program_that_takes_the_workers_core_costs_little(compiler):
    """Left out or not, workers give the same; and no call waits for what a scheduler gives others, every time."""
    compiler(8, 100_000)
    before = get_num_threads()
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        set_num_threads(cpu_count())
        main = make()["main"]
        start = time.perf_counter()
        for turn in range(500):
            assert np.array_equal(main(X + turn), 2 * (X + turn))
        assert time.perf_counter() - start < 5
    finally:
        spinner.kill()
        spinner.wait()
        set_num_threads(before)


@pytest.mark.parametrize("count", [0, -1, True, "two", MAX_THREADS + 1])
def test_number_of_threads_is_checked(count):
    with pytest.raises(ArgumentError):
        set_num_threads(count)


def test_what_no_call_can_come_to_is_not_built(compiler):
    used = compiler()
    prims = "\n".join(
        f"prim p{size}(%0: float32[{size}]) -> float32[{size}] {{\n %1 = exp(%0) : float32[{size}]\n return %1\n}}"
        for size in range(1, 7)
    )
    text = """
    func @main(x: float32[1], y: float32[4]) -> float32[1] {
      alloc_tensor r2, float32[1]
      call p1 (r0) -> (r2)
      alloc_closure r3, @closure (r0)
      call_host p4 (r1) -> (r4)
      ret r2
    }
    func @other(x: float32[3]) -> float32[3] {
      alloc_tensor r1, float32[3]
      call p3 (r0) -> (r1)
      ret r1
    }
    func @closure() captures (x: float32[1]) -> float32[2] {
      alloc_tensor r1, float32[2]
      alloc_tensor r2, float32[2]
      call p2 (r1) -> (r2)
      ret r2
    }
    func @unused() captures (x: float32[5]) -> float32[5] {
      alloc_tensor r1, float32[5]
      call p5 (r0) -> (r1)
      ret r1
    }
    """.replace("call p2 (r1)", "call_host p2 (r1) -> (r1)\n  call p2 (r1)").replace(
        "alloc_tensor r1, float32[2]\n", "load_const r1, two\n"
    )
    VirtualMachine(Executable(parse_assembly("const two float32[2] = [1.0, 1.0]\n" + prims + text)))
    assert used.built == 3  # p1, p2, p3
