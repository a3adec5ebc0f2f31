"""docs/tvm.md says nothing that the code does not, and names all that the face has."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import treadle.tvm
from treadle.errors import UnsupportedNameError
from treadle.tvm import relax, relay, runtime
from treadle.tvm.contrib import graph_executor
from treadle.tvm.relay.op import absent

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tvm.md").read_text(encoding="utf-8")
IN_CODE = re.compile(r"`([^`]+)`")

COMPLETE = ("treadle.tvm.runtime",)  # packages of the face whose names must all be in the page


def names() -> Iterator[str]:
    """TVM's names in the first columns, in full."""
    for line in TEXT.splitlines():
        if line.startswith("| `tvm."):
            first = ""
            for name in IN_CODE.findall(line.split("|")[1]):
                first = first or name
                yield first + name if name.startswith(".") else name


NAMES = list(dict.fromkeys(names()))
LEFT_OUT = ("tvm.build", "tvm.driver")


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_there(name: str) -> None:
    found = treadle.tvm
    for part in name.split(".")[1:]:
        if name.startswith(LEFT_OUT):
            with pytest.raises(UnsupportedNameError):
                getattr(found, part)
            break
        is_declared = part in getattr(found, "__annotations__", {})
        assert is_declared or hasattr(found, part), f"{name}: {found} has no {part}"
        found = getattr(found, part, None)


def test_each_home_of_ours_is_there() -> None:
    """What the second columns name: modules, and what they have."""
    lines = [line.split("|")[2] for line in TEXT.splitlines() if line.startswith("| `tvm.")]
    homes = {name for line in lines for name in re.findall(r"`((?:vm|formats|compiler|decode|tvm)\.[\w.]+)`", line)}
    for home in sorted(homes - {"vm.builtin"}):
        parts = home.split(".")
        depth = next(at for at in range(len(parts), 0, -1) if _module(parts[:at]) is not None)
        found: Any = _module(parts[:depth])
        for part in parts[depth:]:
            assert hasattr(found, part), f"{home}: {found} has no {part}"
            found = getattr(found, part)
    for path in {path for line in lines for path in re.findall(r"`([a-z_]+/[\w/]+\.py)`", line)}:
        assert (ROOT / path).is_file(), path


def _module(parts: list[str]) -> Any:
    path = ROOT.joinpath(*parts)
    is_there = path.with_suffix(".py").is_file() or path.is_dir()
    return importlib.import_module(".".join(("treadle", *parts))) if is_there else None


@pytest.mark.parametrize("package", COMPLETE)
def test_each_name_of_the_face_is_in_the_page(package: str) -> None:
    listed = {name.split(".")[-1] for name in NAMES}
    public = {name for several in importlib.import_module(package)._NAMES.values() for name in several.split()}
    assert public - listed == set()


# classes of which the page names every member, and what is Treadle's own of these
CLASSES: dict[str, set[str]] = {
    "contrib.debugger.debug_executor.GraphModuleDebug": set(),
    "contrib.debugger.debug_result.DebugResult": set(),
    "contrib.graph_executor.GraphModule": set(),
    "relax.BlockBuilder": {"bind", "cast", "ended", "leaf", "normal", "unique"},
    "relax.ExecBuilder": set(),
    "relax.Executable": set(),
    "relax.VirtualMachine": set(),
    "relay.vm.VMCompiler": set(),
    "relay.vm.VMExecutor": {"converts"},
    "rpc.LocalSession": set(),
    "runtime.ObjectPath": {"step"},
    "runtime.Report": {"renamed"},
    "runtime.module.BenchmarkResult": set(),
    "runtime.vm.Executable": {"as_bytes", "make_machine", "program", "signature"},
    "runtime.vm.VirtualMachine": set(),
    "transform.PassContext": {"level"},
}


@pytest.mark.parametrize("name", CLASSES)
def test_each_member_of_a_class_is_in_the_page(name: str) -> None:
    found = treadle.tvm
    for part in name.split("."):
        found = getattr(found, part)
    listed = {name.split(".")[-1] for name in NAMES}
    assert {member for member in dir(found) if not member.startswith("_")} - listed - CLASSES[name] == set()


def test_the_page_lists_the_functions_of_vm_builtin() -> None:
    section = TEXT.partition("## The functions of `vm.builtin`")[2].partition("\n## ")[0]
    listed = [f"vm.builtin.{name}" for name in IN_CODE.findall(section)]
    assert listed == [name for name in treadle.tvm.runtime.list_global_func_names() if name.startswith("vm.builtin.")]


def test_the_page_lists_the_functions_of_modules() -> None:
    x = relay.var("x", shape=(3,))
    function, device = relay.Function([x], x + x), treadle.tvm.cpu()
    library, executable = relay.build(function), relay.vm.compile(function)
    relaxed = relax.build(treadle.tvm.IRModule.from_expr(function))
    modules = {
        "relay.build(…)": library,
        "graph_module.module": graph_executor.GraphModule(library["default"](device)).module,
        "of `relay.vm.compile`": executable.mod,
        "of `runtime.vm.VirtualMachine`": runtime.vm.VirtualMachine(executable, device).mod,
        "of `VMCompiler`": relay.vm.VMCompiler().mod,
        "of `relax.build`": treadle.tvm.runtime.Module({"vm_load_executable": relaxed.mod["vm_load_executable"]}),
        "of `relax.VirtualMachine`": relax.VirtualMachine(relaxed, device).module,
    }
    section = TEXT.partition("## Functions of modules")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) == len(modules)
    for which, module in modules.items():
        (row,) = (each for each in rows if which in each[1])
        assert IN_CODE.findall(row[2]) == sorted(set(module.function_names()) - {"main"}), which


def public_names() -> Iterator[tuple[str, str]]:
    """TVM's modules, and what is public in them."""
    module = ""
    for line in (Path(__file__).parent / "public_names.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            yield from ((module, name) for name in line.split())
        else:
            module = line.rstrip(":")


OPERATORS = (
    "tvm.relay",
    "tvm.relay.nn",
    "tvm.relay.image",
    "tvm.relay.vision",
    "tvm.relay.random",
    "tvm.relay.annotation",
)


@pytest.mark.parametrize("package", OPERATORS)
def test_each_operator_of_tvm_is_here_or_says_why_not(package: str) -> None:
    found: Any = treadle
    for part in package.split("."):
        found = getattr(found, part)
    for name in (name for module, name in public_names() if module == package):
        if not hasattr(found, name):
            with pytest.raises(UnsupportedNameError):
                getattr(found, name)


def test_each_public_name_of_tvms_modules_is_in_the_page() -> None:
    listed = set(re.findall(r"\w+", TEXT))
    names = {f"{module}.{name}" for module, name in public_names() if module not in (*OPERATORS, *INNER)}
    assert {name for name in names if name.rpartition(".")[2] not in listed} == set()


INNER = ("tvm.relay.op.memory", "tvm.relay.op.vm")  # dialects of TVM's compiler, which the page names as a whole


def test_the_page_lists_the_operators_that_are_not_here() -> None:
    section = TEXT.partition("## Operators that are not here")[2].partition("\n## ")[0]
    listed = {name for name in IN_CODE.findall(section) if name.startswith("relay.")}
    tables = {"relay.": absent.RELAY, "relay.nn.": absent.NN, "relay.op.": absent.OP, "relay.vision.": absent.VISION}
    assert listed == {prefix + name for prefix, table in tables.items() for name in table}


def test_each_row_has_three_columns_or_two() -> None:
    for line in TEXT.splitlines():
        if line.startswith("|"):
            assert len(line.replace("\\|", "").split("|")) in (4, 5), line
