"""The packages of an installed Treadle: all but the workshop (tools/dev). The rest is in pyproject.toml."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
MODULES = {"__init__", "__main__", "errors"}  # of the root, where this file lies too


def packages() -> list[str]:
    """The folders below the root that have an `__init__.py`, and whose parents have one."""
    waiting, found = [ROOT], []
    while waiting:
        folder = waiting.pop()
        found.append(".".join(("treadle", *folder.relative_to(ROOT).parts)))
        waiting += [file.parent for file in folder.glob("*/__init__.py") if file.parent != ROOT / "tools" / "dev"]
    return sorted(found)


class BuildPy(build_py):
    """Leaves out what lies beside the root's modules, and writes the engine."""

    def find_package_modules(self, package: str, package_dir: str) -> list:
        modules = super().find_package_modules(package, package_dir)
        return [each for each in modules if package != "treadle" or each[1] in MODULES]

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_engines(Path(self.build_lib, "treadle"))


def write_engines(package: Path) -> None:
    """Writes the engine's object code into a built package, where LLVM is at hand. Elsewhere, as where pip builds in an
    environment of its own, it is left to the first call, which takes a second."""
    if find_spec("llvmlite") is None or find_spec("numpy") is None:
        print("no llvmlite here: the engine will be compiled by its first user", file=sys.stderr)
        return
    code = "from treadle.vm import core; core.write_released(core.ENGINES)"
    environment = {
        **os.environ,
        "PYTHONPATH": str(package.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TREADLE_CACHE": "off",
    }
    if subprocess.run([sys.executable, "-c", code], env=environment).returncode:
        print("the engine could not be compiled here: its first user will compile it", file=sys.stderr)


setup(packages=packages(), cmdclass={"build_py": BuildPy})
