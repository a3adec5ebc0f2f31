"""What folders import is what the table of docs/architecture.md says, imports within functions and by name included."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from treadle.tools.dev.derive import sources

from ..package import FOLDERS, ROOT

# "The runtime objects" of `vm`: what the compiler may import of the machine; the package itself holds a name alone
OF_VM = {"__init__", "library", "values", "verify"}

# Modules that import by names which are not in their own text, and what these are
BY_VARIABLE = {
    "formats/executable.py": "the package says which module links libraries (formats.library_writer)",
    "formats/library.py": "the package says which module shows kernels (formats.kernel_sources)",
    "compiler/operators/table.py": "the compiler says which module has the operators of targets (operators_of_targets)",
    "compiler/driver.py": "the package says which module runs programs to find their precision (formats.precision_search)",
    "vm/library.py": "the package says which module builds kernels (vm.compiler_name), and which others run them (vm.targets)",
    "tvm/_lazy.py": "the modules that packages of tvm list by name (lazy)",
    "tvm/relax/node.py": "the package says which module prints (relax.printer)",
    "tvm/relax/expr.py": "the package says which module binds parameters (relax.binder)",
    "vm/machine.py": "the package says which module debugs calls (vm.debugger_name)",
    "vm/internals.py": "names within Numba and NumPy",
    "formats/messages/names.py": "the modules that packages list by name (_HOMES)",
    "cluster/tables.py": "modules of pyarrow",
    "compiler/onnx/converters.py": "converters of other libraries' models (LIBRARIES)",
}


def rows() -> dict[str, str]:
    """The table: a folder and what it imports, in words."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text[text.index("| folder | its one job | imports |") :].partition("\n\n")[0]
    found = re.findall(r"^\| `(\w+)/` \|.*\| (.+) \|$", table, re.MULTILINE)
    return {folder: words for folder, words in found if folder != "tests"}


def test_what_the_page_names_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\.?\w+(?:/\w+)+(?:\.\w+)?)`", text))
    assert len(named) > 60
    assert sorted(each for each in named if not (ROOT / each).exists()) == []
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([\w-]+)`", text)) <= targets


NAMED = re.compile(r"\btreadle\.([a-z_]\w*(?:\.[a-z_]\w*)+)")
PATH = re.compile(r"(?<![\w/.*{}<>-])((?:[\w.-]+/)+[\w-]+\.(?:py|pyi|md|tasm|txt|json))\b")


def texts() -> Iterator[tuple[str, int, str]]:
    """Lines of code, tests and pages: path, number, line. The examples in this file name modules that do not exist."""
    places = [ROOT / folder for folder in (*FOLDERS, "docs", "examples", "tests")]
    paths = [path for place in places for suffix in ("py", "md", "ipynb") for path in place.rglob(f"*.{suffix}")]
    for path in [*paths, ROOT / "README.md", ROOT / "Makefile", ROOT / "pyproject.toml"]:
        if path != Path(__file__):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                yield path.relative_to(ROOT).as_posix(), number, line


def is_named_rightly(dotted: str) -> bool:
    """Whether the name is of a module, or of something that the text of a module mentions."""
    parts, depth = dotted.split("."), 0
    while depth < len(parts) and (is_module(parts[: depth + 1]) or (ROOT.joinpath(*parts[: depth + 1])).is_dir()):
        depth += 1
    module = ROOT.joinpath(*parts[:depth])
    module = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    return depth == len(parts) or (module.exists() and parts[depth] in re.findall(r"\w+", module.read_text("utf-8")))


def is_module(parts: list[str]) -> bool:
    return any(ROOT.joinpath(*parts).with_suffix(suffix).exists() for suffix in (".py", ".pyi"))


def test_modules_that_strings_comments_and_pages_name_are_there() -> None:
    wrong = [
        f"{path}:{number}: treadle.{name}"
        for path, number, line in texts()
        for name in NAMED.findall(line)
        if name.partition(".")[0] in FOLDERS and not is_named_rightly(name)
    ]
    assert not wrong, "\n".join(wrong)


def test_files_that_strings_comments_and_pages_name_are_there() -> None:
    """Those of TVM's own tests (tests/python) are not ours."""
    wrong = [
        f"{path}:{number}: {name}"
        for path, number, line in texts()
        for name in PATH.findall(line)
        if name.partition("/")[0] in (*FOLDERS, "docs", "tests")
        and not name.startswith("tests/python/")
        and not any((place / name).exists() for place in (ROOT, (ROOT / path).parent))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", ["treadle", "treadle.cluster", "treadle.debug", "treadle.text"])
def test_no_module_has_the_name_of_something_else_of_its_package(package: str) -> None:
    """The import of the module would put it in the other's place."""
    homes = importlib.import_module(package)._HOMES
    assert [
        name for name, home in homes.items() if home != f".{name}" and importlib.util.find_spec(f"{package}.{name}")
    ] == []


def allowed(folder: str) -> set[str]:
    words, named = rows()[folder], set(re.findall(r"`(\w+)`", rows()[folder]))
    if words.startswith("all"):
        return rows().keys() - named
    assert named or words == "nothing of ours", words
    return named | {folder}


def modules(folder: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.py"))


def test_the_table_has_every_folder_of_the_package() -> None:
    assert rows().keys() == {path.parent.name for path in ROOT.glob("*/__init__.py")}


@pytest.mark.parametrize("folder", rows())
def test_a_folder_imports_what_the_table_says(folder: str) -> None:
    wrong = [
        f"{path} imports {each}"
        for path in modules(folder)
        for each in sources.imports(path)
        if "/" in each and each.partition("/")[0] not in allowed(folder)
    ]
    assert not wrong, f"docs/architecture.md lets {folder} import {rows()[folder]}; " + "; ".join(wrong)


def test_the_compiler_imports_the_runtime_objects_of_the_machine_alone() -> None:
    found = {
        Path(each).parts[1].removesuffix(".py"): path
        for path in modules("compiler")
        for each in sources.imports(path)
        if each[:3] == "vm/"
    }
    assert found.keys() == OF_VM, f"imported by, of each one: {found}"


def test_only_targets_know_which_target_it_is() -> None:
    """The rest of the compiler imports what all targets are (`targets/base.py`) and which one is meant, and none of them."""
    facade = {"compiler/targets/base.py", "compiler/targets/choice.py"}
    wrong = [
        f"{path} imports {each}"
        for path in modules("compiler")
        if not path.startswith("compiler/targets/")
        for each in sources.imports(path)
        if each.startswith("compiler/targets/") and each not in facade
    ]
    assert not wrong, "; ".join(wrong)


def test_what_no_text_tells_is_known() -> None:
    """Folders that may import all need no reasons."""
    folders = [folder for folder in rows() if rows()[folder] != "all"]
    found = {path for folder in folders for path in modules(folder) if sources.imports_by_variable(path)}
    assert found == BY_VARIABLE.keys()


def test_no_modules_import_one_another() -> None:
    """A third module has what two need of each other, or one of them is handed it."""
    assert sources.circle(path for folder in rows() for path in modules(folder)) == []


def test_no_file_is_longer_than_700_lines_and_no_folder_has_more_than_40() -> None:
    lengths = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in everything()}
    assert {
        path: length for path, length in lengths.items() if length > 700 and path.partition("/")[0] != "tests"
    } == {}
    counts = Counter(Path(path).parent.as_posix() for path in lengths)
    assert {folder: count for folder, count in counts.items() if count > 40} == {}


def everything() -> list[str]:
    return [path for folder in (*rows(), "tests") for path in modules(folder)]


def test_imports_within_functions_and_for_type_checkers_make_circles(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "a.py": "def f():\n    from . import b",
        "b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .c import C",
        "c.py": "import treadle.a",
        "d.py": "from . import a, e",
        "e.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    assert sources.circle(files, tmp_path) == ["a.py", "b.py", "c.py"]
    assert sources.circle(["d.py", "e.py"], tmp_path) == []


def test_imports_of_all_kinds_count(tmp_path: Path) -> None:
    files = {
        "__init__.py": '_HOMES = {"compile": ".compiler.driver"}',
        "compiler/__init__.py": "",
        "compiler/driver.py": "",
        "vm/__init__.py": "",
        "vm/a.py": "import treadle.b\nfrom treadle.c import x\nimport numpy",
        "vm/lazily.py": "def f():\n    from .. import compile",
        "vm/by_name.py": 'import importlib\nimportlib.import_module(f"{__package__}.a"), importlib.import_module("numpy")',
        "vm/by_variable.py": "import importlib\nname = 'a'\nimportlib.import_module(name)",
        "b.py": "",
        "c.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert set(sources.imports("vm/a.py", tmp_path)) == {"b.py", "c.py"}
    assert set(sources.imports("vm/lazily.py", tmp_path)) == {"__init__.py", "compiler/driver.py"}
    assert sources.imports("vm/by_name.py", tmp_path) == ["vm/a.py"]
    assert [path for path in files if sources.imports_by_variable(path, tmp_path)] == ["vm/by_variable.py"]
