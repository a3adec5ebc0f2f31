"""The process in which one file of TVM's tests runs: `tvm` is bound to `treadle.tvm`, and pytest's fixtures are TVM's.

python -m treadle.tools.dev.tvm_tests_child results.json tests/python/relay/test_vm.py [names]
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_PACKAGE = "treadle.tvm"
_OTHERS = ("torch", "torchvision")  # packages that heads of files import, of which most of their tests know nothing


class Missing:
    """A name of TVM's that Treadle does not have: using it says so."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._name.startswith(_OTHERS):
            raise ModuleNotFoundError(f"No module named {self._name.partition('.')[0]!r}")
        raise AttributeError(f"treadle.tvm has no {self._name}")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"treadle.tvm has no {self._name}")

    def __mro_entries__(self, bases: tuple) -> tuple:
        return ()


class MissingModule(types.ModuleType):
    """A module of TVM's that Treadle does not have: it can be imported, so that the file's other tests run."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # it may be a function that was imported by name
        return Missing(self.__name__)(*args, **kwargs)


class Binder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`tvm` and its modules are those of the face."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != "tvm" and not name.startswith("tvm."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = self._module(spec.name)
        spec.loader_state = getattr(module, "__spec__", None)
        return module

    def _module(self, name: str) -> types.ModuleType:
        """The module, also one that stands under another name in the face."""
        ours = _PACKAGE + name.removeprefix("tvm")
        if name != "tvm":
            parent, _, last = name.rpartition(".")
            found = getattr(importlib.import_module(parent), last, None)
            if isinstance(found, types.ModuleType):
                return found
        return importlib.import_module(ours)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Restored(Binder):
    """Import puts its own spec on a module that it is given; the face's modules keep theirs."""

    def exec_module(self, module: types.ModuleType) -> None:
        spec = module.__spec__
        if spec is not None and spec.loader_state is not None:
            module.__spec__ = spec.loader_state


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last: a module that the face lacks is one that can be imported, and nothing more."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        known = name.startswith(f"{_PACKAGE}.") or name.partition(".")[0] in _OTHERS
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return MissingModule(spec.name.replace(_PACKAGE, "tvm", 1))

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class References(importlib.abc.MetaPathFinder):
    """`tvm.topi.testing`, the NumPy references of TVM's tests, is read from TVM's sources."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(("tvm.topi.testing", "tvm.topi.utils", "tvm.topi.nn.utils")):
            return None
        file = Path("python", *name.split("."))
        locations = [str(file)] if file.is_dir() else None
        file = file / "__init__.py" if locations else file.with_suffix(".py")
        if not file.exists():
            return None
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=locations)


def _older_numpy() -> None:
    """Names of NumPy 1 that TVM's tests use: `product`, and `reshape(newshape=…)`."""
    import numpy as np

    reshape = np.reshape

    def with_newshape(a: Any, shape: Any = None, order: Any = "C", *, newshape: Any = None, **options: Any) -> Any:
        return reshape(a, newshape if shape is None else shape, order, **options)

    np.reshape = with_newshape
    vars(np)["product"] = np.prod


def _older_onnx() -> None:
    """`onnx.mapping`, which ONNX 1.20 has no more: tables of element types. And the folder of ONNX's own tests of single
    operators, which newer releases leave out: TVM's file lists it at its head."""
    try:
        import onnx
        from onnx import helper
    except ImportError:
        return
    listdir, nodes = os.listdir, Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
    if not nodes.exists():
        vars(os)["listdir"] = lambda path=".": [] if path == str(nodes) else listdir(path)
    if hasattr(onnx, "mapping"):
        return
    module = types.ModuleType("onnx.mapping")
    known = {each: helper.tensor_dtype_to_np_dtype(each) for each in helper.get_all_tensor_dtypes()}
    vars(module)["TENSOR_TYPE_TO_NP_TYPE"] = known
    vars(module)["NP_TYPE_TO_TENSOR_TYPE"] = {dtype: each for each, dtype in known.items()}
    vars(onnx)["mapping"] = sys.modules["onnx.mapping"] = module


def _codes_of_types() -> None:
    """`tvm.topi.nn.qnn` has, beside schedules, the codes of element types that simulated operators take."""
    module = MissingModule("tvm.topi.nn.qnn")
    codes = importlib.import_module(f"{_PACKAGE}.relay.qnn.op.scales").CODES
    vars(module)["SQNN_DTYPE_TO_CODE"] = codes
    vars(module)["SQNN_CODE_TO_DTYPE"] = {code: name for name, code in codes.items()}
    sys.modules["tvm.topi.nn.qnn"] = module


def _modules_of_tir() -> None:
    """A class at the head of a file that needs TIR fails where it is used: other tests of the file know nothing of it."""
    reader = importlib.import_module(f"{_PACKAGE}.script.reader")
    read = reader.ir_module

    def ir_module(mod: Any = None, **options: Any) -> Any:
        if mod is None or sys._getframe(1).f_code.co_name != "<module>":
            return read(mod, **options)
        try:
            return read(mod, **options)
        except reader.TirError as error:
            return Missing(f"tvm.script.{mod.__name__}, which has functions of TIR: {error}")

    vars(reader)["ir_module"] = ir_module


class Plugin:
    """Keeps what became of each test."""

    def __init__(self) -> None:
        self.results: dict[str, dict[str, str]] = {}

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._add(report.nodeid, "fails", _last_line(report.longrepr))

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.rpartition("::")[2]
        if report.skipped:
            xfailed = hasattr(report, "wasxfail")
            why = (
                report.wasxfail
                if xfailed
                else str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
            )
            self._add(name, "cannot", why.removeprefix("Skipped: "))
        elif report.failed:
            self._add(name, "fails", _last_line(report.longrepr))
        elif report.when == "call":
            self._add(name, "passes", "")

    def _add(self, name: str, outcome: str, why: str) -> None:
        if self.results.get(name, {}).get("outcome") != "fails":
            self.results[name] = {"name": name, "outcome": outcome, "why": " ".join(why.split())[:200]}


def _last_line(longrepr: Any) -> str:
    crash = getattr(longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)
    lines = [line for line in str(longrepr).splitlines() if line.startswith("E ")]
    return lines[-1][2:] if lines else str(longrepr)[-200:]


def main(argv: Sequence[str]) -> int:
    """Runs a file; writes the results as JSON."""
    results, file, *names = argv
    _older_numpy()
    _older_onnx()
    sys.meta_path[:0] = [References(), _Restored()]
    sys.meta_path.append(Absent())
    _codes_of_types()
    _modules_of_tir()
    folder = Path(file).resolve().parent
    sys.path[:0] = [str(folder), str(Path("tests/python").resolve())]
    plugin = Plugin()
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(folder), "--noconftest", "-c", "/dev/null"]
    selected = ["-k", names[0]] if names else []
    code = pytest.main([*options, *selected, file], plugins=[plugin, importlib.import_module("tvm.testing.plugin")])
    Path(results).write_text(json.dumps(list(plugin.results.values())))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
