"""docs/tvm.md says nothing that the code does not, and names all that the face has."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import treadle.tvm

TEXT = (Path(__file__).parent.parent.parent / "docs" / "tvm.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_there(name: str) -> None:
    found = treadle.tvm
    for part in name.split(".")[1:]:
        is_declared = part in getattr(found, "__annotations__", {})
        assert is_declared or hasattr(found, part), f"{name}: {found} has no {part}"
        found = getattr(found, part, None)


@pytest.mark.parametrize("package", COMPLETE)
def test_each_name_of_the_face_is_in_the_page(package: str) -> None:
    listed = {name.split(".")[-1] for name in NAMES}
    public = {name for several in importlib.import_module(package)._NAMES.values() for name in several}
    assert public - listed == set()


# classes of which the page names every member, and what is Treadle's own of these
CLASSES: dict[str, set[str]] = {
    "contrib.debugger.debug_executor.GraphModuleDebug": set(),
    "contrib.debugger.debug_result.DebugResult": set(),
    "contrib.graph_executor.GraphModule": set(),
    "relax.BlockBuilder": {"unique"},
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


def test_each_row_has_three_columns_or_two() -> None:
    for line in TEXT.splitlines():
        if line.startswith("|"):
            assert len(line.replace("\\|", "").split("|")) in (4, 5), line
