"""TREADLE_TARGET: what is switched off is off for templates and for LLVM alike, and a misspelt name is told at once."""

from __future__ import annotations

import platform

import pytest
from treadle.compiler.targets.cpu.target import host
from treadle.formats.messages.errors import TreadleError
from treadle.native import platform as native
from treadle.native import processes
from treadle.native.llvm import NativeTarget

pytestmark = pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names of x86-64")


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch):
    """`target(text)`: what the knob of that text means."""

    def set_knob(text: str) -> NativeTarget:
        monkeypatch.setenv("TREADLE_TARGET", text)
        return native.host_target()

    return set_knob


def test_the_last_mention_of_a_feature_counts():
    assert not NativeTarget("", "", "+avx2,-avx2").has("avx2")
    assert NativeTarget("", "", "-avx2,+avx2").has("avx2")


def test_the_target_is_another_one(target):
    here = native.host_target()
    there = target("x86-64:+avx2")
    assert (there.triple, there.cpu, there.has("avx2")) == (here.triple, "x86-64", True)
    assert there.key != here.key


def test_this_cpu_by_name_is_this_cpu(target):
    here = native.host_target()
    assert target(here.cpu) == here


def test_a_switched_off_feature_is_off_for_templates_too(target):
    here = native.host_target()
    there = target(f"{here.cpu}:+avx512f,-avx512f")
    assert not there.has("avx512f")
    assert host().vector_bytes <= 32
    assert there == target(f"{here.cpu}:-avx512f") == target(f"{here.cpu}: -avx512f ,-avx512f")


def test_what_implies_a_feature_goes_with_it(target):
    here = native.host_target()
    there = target(f"{here.cpu}:-avx2")
    assert not [name for name in ("avx2", "avx512f", "avx512vl", "avxvnni") if there.has(name)]
    assert there.has("avx") == here.has("avx")
    assert host().vector_bytes == 16


def test_what_a_feature_implies_comes_with_it(target):
    there = target("x86-64:+avx512bw")
    assert all(map(there.has, ("avx512f", "avx2", "fma", "sse4.2")))
    assert (host().vector_bytes, host().vector_registers) == (64, 32)


@pytest.mark.parametrize(("cpu", "size"), [("haswell", 32), ("nehalem", 16), ("skylake-avx512", 64), ("bdver4", 32)])
def test_a_name_alone_says_what_the_cpu_has(target, cpu, size):
    target(cpu)
    assert host().vector_bytes == size
    target(f"{cpu}:+popcnt")
    assert host().vector_bytes == size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("znver33", r"LLVM knows no CPU 'znver33'; close are .*znver3"),
        ("haswell:-avx512ff", r"LLVM knows no feature 'avx512ff'; close are .*avx512f"),
        ("haswell:avx2", r"'avx2': a feature begins with \+ or -"),
        ("i386", "LLVM cannot generate code for i386"),
        (":+avx2", "LLVM knows no CPU ''"),
    ],
)
def test_an_unknown_name_is_told_before_anything_is_built(target, text, message, capfd, monkeypatch):
    monkeypatch.setattr(processes, "start", lambda *_, **__: pytest.fail("a builder is started"))
    with pytest.raises(TreadleError, match=f"TREADLE_TARGET='{text}'.*".replace("+", r"\+") + message):
        target(text)
    assert capfd.readouterr() == ("", "")


def test_code_that_this_cpu_cannot_run_is_refused(target, monkeypatch):
    here = native.host_target()
    monkeypatch.setattr(native, "_processor", lambda: NativeTarget(here.triple, "nehalem", "-avx,-avx2,+sse4.2"))
    target("x86-64:+avx2")
    with pytest.raises(TreadleError, match=r"code for x86-64 cannot run here: this CPU \(nehalem\) has no .*avx2"):
        native.check_runnable()
