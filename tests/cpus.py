"""`make cpus`: Treadle's kernels, engine and programs on CPUs that this machine is not, under QEMU's emulation of processes.

    python tests/cpus.py [--all] [NAME …]

Everything is compiled natively, for the CPU that is emulated (tests/emulated.py), and only run slowly. Without `--all`, it is a
sample of some minutes: the kernels' contract, each instruction and the demo. It installs nothing: what is missing is said and
left out.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ROOT / ".venv" / "cpus"  # made by the Makefile
SAMPLE = [
    "tests/compiler/targets/cpu/kernels/test_contract.py",
    "tests/vm/test_instructions.py",
    "tests/compiler/test_cpus.py",
    "tests/compiler/targets/cpu/products/test_bfloat16.py",
    "tests/compiler/targets/cpu/products/test_int8.py",
]
MORE = [
    "tests/compiler/targets/cpu/products/test_quantized.py",
    "tests/compiler/targets/cpu/products/test_dequantized.py",
]
LIMIT = 3600  # seconds for one CPU
CHATTER = "warning: TCG doesn't support requested feature"


@dataclass(frozen=True)
class Cpu:
    """`model` is QEMU's name, `target` what TREADLE_TARGET says; where it is empty, LLVM recognises the CPU by itself."""

    name: str
    model: str
    target: str = ""
    path: str = (
        ""  # a folder in PARTS with what Python imports first: a NumPy that the CPU can run, or all that it needs
    )
    architecture: str = "x86_64"


CPUS = [
    Cpu("sse2", "qemu64", "x86-64", path="numpy-sse2"),
    Cpu("sse4.2", "Nehalem"),
    Cpu("haswell", "Haswell"),
    Cpu("zen3", "EPYC-Milan"),
    Cpu("neon", "cortex-a72", "cortex-a72", path="aarch64/site", architecture="aarch64"),
    Cpu("bf16", "max", "cortex-a72:+bf16,+i8mm", path="aarch64/site", architecture="aarch64"),
]


def missing(cpu: Cpu) -> str:
    """What is not there to emulate a CPU, and where it comes from; empty if nothing is."""
    qemu = f"qemu-{cpu.architecture}"
    if shutil.which(qemu) is None:
        return f"{qemu} is not installed (Debian: apt-get install qemu-user)"
    if cpu.path and not (PARTS / cpu.path).is_dir():
        return f"{PARTS / cpu.path} is not there (make cpus makes it, and says why it cannot)"
    return ""


def emulator(cpu: Cpu) -> list[str]:
    found = [str(shutil.which(f"qemu-{cpu.architecture}")), "-cpu", cpu.model]
    return found if cpu.architecture == platform.machine() else [*found, "-L", str(PARTS / cpu.architecture / "root")]


def python(cpu: Cpu) -> str:
    """The one that is emulated."""
    if cpu.architecture == platform.machine():
        return sys.executable
    return str(PARTS / cpu.architecture / f"root/usr/bin/python3.{sys.version_info.minor}")


def environment(cpu: Cpu) -> dict[str, str]:
    native_python = ["env", "-u", "PYTHONPATH", sys.executable]  # whose packages are of another kind
    found = {
        **os.environ,
        "TREADLE_EMULATOR": shlex.join(emulator(cpu)),
        "TREADLE_NATIVE_PYTHON": shlex.join(native_python),
    }
    # a cache of its own: the CPU that the system's files describe is not the one that is emulated
    found["TREADLE_CACHE"] = str(PARTS / "cache" / cpu.name)
    # what is set for this CPU: NumPy's own choice of kernels is that of the emulated one
    for name in ("TREADLE_TARGET", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        found.pop(name, None)
    if cpu.target:
        found["TREADLE_TARGET"] = cpu.target
    if cpu.path:
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PARTS / cpu.path), os.environ.get("PYTHONPATH")]))
    return found


def run(cpu: Cpu, everything: bool) -> int:
    """Pytest's exit status under emulation."""
    tests = SAMPLE + MORE * everything
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-o", f"timeout={LIMIT}"]
    options += ["-m", "slow or not slow"] * everything
    process = subprocess.Popen(
        [*emulator(cpu), python(cpu), "-m", "pytest", "--all", *options, *tests],
        cwd=ROOT,
        env=environment(cpu),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    for line in process.stdout:
        if CHATTER not in line:
            print(f"{cpu.name:8} {line}", end="", flush=True)
    return process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cpus")
    parser.add_argument("--all", action="store_true", help="kernels of integers and the light networks, too: an hour")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(cpu.name for cpu in CPUS)}")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {cpu.name for cpu in CPUS}
    if unknown:
        parser.error(f"no CPU is called {', '.join(sorted(unknown))}")
    chosen = [cpu for cpu in CPUS if not arguments.names or cpu.name in arguments.names]
    for cpu in chosen:
        if missing(cpu):
            print(f"{cpu.name} is left out: {missing(cpu)}", file=sys.stderr)
    able = [cpu for cpu in chosen if not missing(cpu)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        statuses = list(threads.map(lambda cpu: run(cpu, arguments.all), able))
    for cpu, status in zip(able, statuses, strict=True):
        print(f"{cpu.name}: {'passed' if status == 0 else f'failed with {status}'}")
    return int(any(statuses) or not able)


if __name__ == "__main__":
    sys.exit(main())
