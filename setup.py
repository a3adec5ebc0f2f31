"""What an installed Treadle has: all that runs and compiles programs, and of `tools` what its users need.

Benchmarks, fuzzers, the zoo and what derives files of the repository stay there. The rest is in pyproject.toml.
"""

from setuptools import setup
from setuptools.command.build_py import build_py

TOOLS = {
    "__init__",
    "arguments",
    "cli",
    "debugging",
    "demo",
    "digits",
    "doctor",
    "execute",
    "foreign",
    "inspect",
    "json_values",
    "least_calls",
    "machine_limits",
    "maintenance",
    "map",
    "operators",
    "profile",
    "program_files",
    "roofline",
    "serve",
    "steady",
}
INSTALLED = {"treadle": {"__init__", "__main__", "errors"}, "treadle.tools": TOOLS}


class BuildPy(build_py):
    """Leaves out modules of the packages in `INSTALLED` that are not named there."""

    def find_package_modules(self, package: str, package_dir: str) -> list:
        modules = super().find_package_modules(package, package_dir)
        return [each for each in modules if each[1] in INSTALLED.get(package, {each[1]})]


setup(cmdclass={"build_py": BuildPy})
