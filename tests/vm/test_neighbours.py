"""Compiling leaves the user's own Numba, collector, warnings and output as they were."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

SNAPSHOT = """
    import gc, json, operator, os, sys, warnings
    import llvmlite.binding as llvm
    import numba
    from numba.core import config, imputils
    from numba.core.datamodel import default_manager
    from numba.core.registry import cpu_target
    from numba.core.typing import templates

    @numba.njit
    def before(x):
        return sum([each * each for each in x]) + len(x)

    def ours(function):
        return (getattr(function, "__module__", None) or "").startswith("treadle.")

    def snapshot():
        cpu_target.typing_context.refresh()
        cpu_target.target_context.refresh()
        return {
            "settings": {name: repr(value) for name, value in vars(config).items() if name.isupper()},
            "types": sorted(repr(key) for key, kind in templates.builtin_registry.globals if not ours(key)),
            "operations": sorted(repr(f) + repr(t) for _, f, t in imputils.builtin_registry.functions if not ours(f)),
            "models": sorted(repr(kind) for kind in default_manager._handlers),
            "addition": len(cpu_target.typing_context._lookup_global(operator.add).templates),
            "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
            "warnings": repr(warnings.filters),
            "environment": dict(os.environ),
            "path": list(sys.path),
            "limit": sys.getrecursionlimit(),
        }

    def check(start):
        end = snapshot()
        assert start == end, {key: (start[key], end[key]) for key in start if start[key] != end[key]}

        @numba.njit
        def after(x):
            return sum([each * each for each in x]) + len(x)

        assert before((1.0, 2.0)) == after((1.0, 2.0)) == 7.0
        assert cpu_target.target_context.codegen()._get_host_cpu_name() == llvm.get_host_cpu_name()

    before((1.0, 2.0))
    from treadle.native import intrinsics
    start = snapshot()
"""

KERNELS = """
    from treadle.compiler.targets.cpu.toolchain.compile_pool import Text, compile_texts
    from treadle.compiler.targets.cpu.target import host
    source = "def kernel(args, scratch, part, parts):\\n    vstore(args, 0, splat_float32(1.0) + exp(2.0))\\n    return 0\\n"
    for count in (1, 3):
        texts = [Text(f"kernel_{count}_{i}", source, 4) for i in range(count)]
        assert len(list(compile_texts(texts, host().native, jobs=1))) == count
    check(start)
"""

ENGINE = """
    from treadle.vm import entries; from treadle.native import platform as native
    assert entries.compiled(entries.least(native.host_target().triple))
    check(start)
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    source = textwrap.dedent(SNAPSHOT) + textwrap.dedent(code)
    command = [sys.executable, "-W", "error::UserWarning", "-c", source]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", ["", "x86-64"])
def test_building_kernels_changes_nothing_for_others_and_prints_nothing(target):
    done = run(KERNELS, **({"TREADLE_TARGET": target} if target else {}))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_building_the_engine_changes_nothing_for_others_and_prints_nothing(tmp_path):
    done = run(ENGINE, TREADLE_CACHE=str(tmp_path), TREADLE_TARGET="x86-64")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_one_process_builds_for_several_cpus():
    from treadle.compiler.targets.cpu.toolchain.worker import compile_kernel
    from treadle.native.llvm import NativeTarget
    from treadle.native.platform import host_target

    source = "def kernel(args, scratch, part, parts):\n    vstore(word(args, 0), 0, splat_float32(1.0))\n    return 0\n"
    triple = host_target().triple
    codes = {
        compile_kernel("k", source, 16, NativeTarget(triple, cpu, "")) for cpu in ("x86-64", "haswell", "x86-64-v4")
    }
    assert len(codes) == 3
