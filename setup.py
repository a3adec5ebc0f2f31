"""What an installed Treadle has: all that runs and compiles programs, and of `tools` what its users need.

That is what the command line and the demo import (tools/sources.py). Benchmarks, fuzzers, the zoo and what derives files of the
repository stay there. The rest is in pyproject.toml.
"""

import functools
import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SOURCES = "tools/sources.py"  # imports nothing of Treadle


@functools.cache
def installed() -> dict[str, set[str]]:
    """The modules of packages that are not installed whole."""
    tools = runpy.run_path(str(Path(__file__).parent / SOURCES))["shipped"]()
    return {"treadle": {"__init__", "__main__", "errors"}, "treadle.tools": {Path(each).stem for each in tools}}


class BuildPy(build_py):
    """Leaves out modules that an installed package does not have."""

    def find_package_modules(self, package: str, package_dir: str) -> list:
        modules = super().find_package_modules(package, package_dir)
        return [each for each in modules if each[1] in installed().get(package, {each[1]})]

    def get_source_files(self) -> list:
        """What the sdist has besides: this file runs there, too."""
        return [*super().get_source_files(), SOURCES]

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


setup(cmdclass={"build_py": BuildPy})
