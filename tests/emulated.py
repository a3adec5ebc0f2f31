"""Tests on another CPU than this machine's (tests/cpus.py): this process is emulated, and what it compiles with is not.

A process that an emulated one starts runs natively, unless it is told otherwise: so kernels and the engine are built at full
speed, for the CPU that is emulated, and other children are emulated in turn.
"""

from __future__ import annotations

import mmap
import os
import shlex
import subprocess
from typing import Any

from hypothesis import HealthCheck, settings
from treadle.compiler.targets.cpu.toolchain import compile_pool, worker
from treadle.native import platform, processes
from treadle.tools.dev.fuzz import forbidden_pages
from treadle.vm import core, entries

from . import workers

BUILD_ENGINE = """
import sys
from treadle.tools.dev.fuzz import forbidden_pages
from treadle.vm import entries; from treadle.native import llvm
sys.stdout.buffer.write(entries.compiled(llvm.NativeTarget(*sys.argv[1:])))
"""


def begin() -> None:
    """Called once, where the environment names an emulator."""
    emulator, native_python = (shlex.split(os.environ[name]) for name in ("TREADLE_EMULATOR", "TREADLE_NATIVE_PYTHON"))
    emulated_command = processes._command
    build_kernels = processes.module(worker.__name__)

    def command(code: str, arguments: tuple[object, ...]) -> list[str]:
        return (
            [*native_python, "-c", code] if code == build_kernels else [*emulator, *emulated_command(code, arguments)]
        )

    def engine(*_: Any) -> bytes:
        target = platform.host_target()
        arguments = [*native_python, "-c", BUILD_ENGINE, target.triple, target.cpu, target.features]
        return subprocess.run(arguments, check=True, stdout=subprocess.PIPE).stdout

    processes._command = command
    entries.compiled = engine
    compile_pool._WORTH_WORKERS = 0
    compile_pool._on_workers = workers.kept
    # QEMU 7 reads all of a vector where AVX reads some lanes of it: there, pages are forbidden to writers
    forbidden_pages._NONE = mmap.PROT_READ
    settings.register_profile("emulated", suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("emulated")
    core.engine()  # so that children find it in the cache
