"""The keys of the cache change with every module that decides about what they name, and with no other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import treadle
from treadle.formats.messages.errors import TreadleError
from treadle.tools.dev.derive.sources import SILENT, imports_by_variable, is_bare

PACKAGE = Path(treadle.__file__).parent
FOLDERS = ("formats", "native", "vm", "compiler", "decode", "tools")

# Of a definition's record, of the object code of its kernel's text (a softmax, a reduction), of the engine
KEYS = """
from treadle.compiler.targets.cpu.toolchain import kernels as build
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.cpu.target import host
from treadle.compiler.operators import TABLE
from treadle.formats.primitive import PrimitiveDefinition, PrimitiveNode
from treadle.formats.types import tensor
from treadle.vm import core, library

def definition_of(operator, **attributes):
    x, entry = tensor("float32", (3, 64)), TABLE[operator]
    canonical = entry.canonical(attributes)
    node = PrimitiveNode(operator, (0,), entry.result_types([x], canonical), canonical)
    return PrimitiveDefinition((x,), (node,), (1,), ())

definitions = [definition_of("softmax", axis=1), definition_of("cumulative_sum", axis=1)]
print(library.definition_key(definitions[0], host().key))
for each in definitions:
    print(build._object_key(lower(each, host()), host()))
print(core._key(core._target()))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in another folder."""
    folder = tmp_path_factory.mktemp("copy") / "treadle"
    for name in FOLDERS:
        shutil.copytree(PACKAGE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE / "__init__.py", folder)
    return folder


@pytest.fixture(scope="module")
def before(package: Path) -> list[str]:
    """Its keys, as it is."""
    return keys(package)


@pytest.fixture
def copy(package: Path) -> Iterator[Path]:
    """The package in another folder, to be changed."""
    texts = {path: path.read_bytes() for path in package.rglob("*.py")}
    yield package
    for path, text in texts.items():
        if path.read_bytes() != text:
            path.write_bytes(text)


def keys(package: Path) -> list[str]:
    """As a new process of that package computes them."""
    environment = os.environ | {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", KEYS], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "\n# changed\n")


# What of the keys changes: record, softmax's code, the sum's code, engine
ALL, RECORD, NOTHING = (True, True, True, False), (True, False, False, False), (False, False, False, False)


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("compiler/targets/cpu/toolchain/translate.py", ALL),
        ("compiler/targets/cpu/vectors/elementary.py", ALL),
        ("native/translation.py", (True, True, True, True)),
        ("native/object_code.py", (True, True, True, True)),
        ("compiler/targets/cpu/rows/normalization.py", RECORD),
        ("compiler/operators/table.py", RECORD),
        ("formats/dims.py", RECORD),
        ("formats/messages/errors.py", RECORD),
        ("formats/limits.py", (True, False, False, True)),
        ("vm/heap.py", (False, False, False, True)),
        ("vm/entries.py", (False, False, False, True)),
        ("compiler/onnx/importer.py", NOTHING),
        ("vm/verify/verifier.py", NOTHING),
        ("tools/cli.py", NOTHING),
    ],
)
def test_an_edit_changes_the_keys_that_it_should(copy, before, path, changes):
    edit(copy / path)
    assert tuple(a != b for a, b in zip(before, keys(copy), strict=True)) == changes


def test_another_text_of_one_template_is_other_code_of_that_template_alone(copy, before):
    template = copy / "compiler/targets/cpu/rows/cumulative.py"
    template.write_text(template.read_text() + CHANGED_TEXT)
    assert tuple(a != b for a, b in zip(before, keys(copy), strict=True)) == (True, False, True, False)


CHANGED_TEXT = """

_unchanged = lower


def lower(definition, target):
    import dataclasses

    kernel = _unchanged(definition, target)
    kernel = kernel() if callable(kernel) else kernel
    return dataclasses.replace(kernel, source=kernel.source + " ")
"""


def test_a_message_is_no_reason_to_build_kernels_again(copy, before):
    """Errors, names and advice are written in modules that the translator imports, too."""
    for path in (
        *SILENT,
        "compiler/targets/cpu/toolchain/kernels.py",
        "compiler/targets/cpu/kernels/kernel.py",
        "native/platform.py",
        "native/cache.py",
    ):
        edit(copy / path)
    record, *others = keys(copy)
    assert record != before[0]
    assert others == before[1:]


# What may be imported of modules that count for nothing, apart from errors
WORDS = {
    "formats/messages/choices.py": {"Choices"},
    "formats/messages/names.py": {"near"},
    "native/once.py": {"Lock", "once"},
}


def test_modules_that_count_for_nothing_give_errors_and_words_alone():
    import ast

    from treadle.formats.messages import errors
    from treadle.native import source_lists

    for path in {*source_lists.TRANSLATOR, *source_lists.ENGINE}:
        assert not imports_by_variable(path)
        for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            folder = Path(path).parent.parts[: len(Path(path).parent.parts) - node.level + 1]
            module = "/".join((*folder, *(node.module or "").split("."))) + ".py"
            taken = {alias.name for alias in node.names}
            if module == "formats/messages/errors.py":
                assert all(issubclass(getattr(errors, name), TreadleError) for name in taken), path
            elif module in SILENT:
                assert taken <= WORDS.get(module, set()), (path, module)


def test_the_lists_are_those_of_the_imports():
    from treadle.tools.dev.derive import sources

    assert sources.LISTS.read_text() == sources.lists(), "imports have changed: run `make docs`"


@pytest.mark.parametrize("kind", ["KERNELS", "TRANSLATOR", "ENGINE"])
def test_each_module_of_the_import_closure_counts_and_no_other(copy, kind):
    from treadle.native import sources
    from treadle.tools.dev.derive.sources import ROOTS, closure

    listed = closure(ROOTS[kind], package=copy, silent=SILENT)
    before = sources.version(listed, package=copy)
    for path in sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*.py")):
        text = (copy / path).read_bytes()
        (copy / path).write_bytes(text + b"#")
        assert (sources.version(listed, package=copy) != before) == (path in listed), path
        (copy / path).write_bytes(text)
    assert sources.version(listed, package=copy) == before


def test_imports_of_all_kinds_are_found(tmp_path):
    from treadle.tools.dev.derive.sources import closure

    files = {
        "__init__.py": "import os",
        "a/__init__.py": "from . import side",
        "a/side.py": "",
        "a/root.py": "from typing import TYPE_CHECKING\nimport os\nfrom ..b import thing, module\n"
        "if TYPE_CHECKING:\n    from . import typed\ndef f():\n    if 1:\n        from .local import x\n"
        "from .. import c\nfrom ..d import e",
        "a/typed.py": "",
        "a/local.py": "from ..b.deep import name",
        "a/unused.py": "from . import root",
        "b/__init__.py": "thing = 1",
        "b/module.py": "",
        "b/deep.py": "name = 1",
        "b/other.py": "",
        "c.py": "",
        "d/__init__.py": '"""Says what lies here."""',
        "d/e.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert closure("a/root.py", package=tmp_path) == sorted(
        files.keys() - {"a/typed.py", "a/unused.py", "b/other.py", "d/__init__.py"}
    )


def test_building_a_kernel_runs_modules_of_its_closure_alone(tmp_path):
    """What the scanner may not see, such as imports by name, would show here."""
    from treadle.native import source_lists

    code = """
import json, sys
import treadle.compiler.targets.cpu.toolchain.kernels as build
from treadle.compiler.operators import table
from treadle.formats.primitive import PrimitiveDefinition
from treadle.compiler.targets.cpu.toolchain.compile_pool import Text, compile_texts
from treadle.compiler.targets.cpu.target import host
source = "def kernel(args, scratch, part, parts):\\n    return part\\n"
print(len(list(compile_texts([Text("kernel_1", source, 4)], host().native))))
package = sys.modules["treadle"].__path__[0]
files = [m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] == "treadle" and getattr(m, "__file__", None)]
print(json.dumps([file[len(package) + 1:].replace("\\\\", "/") for file in files]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ran = set(json.loads(done.stdout.splitlines()[-1]))
    assert {each for each in ran if not is_bare(each)} <= set(source_lists.KERNELS)


def test_an_installation_that_lacks_a_module_says_which(tmp_path):
    from treadle.native import sources

    with pytest.raises(TreadleError, match=r"not whole: vm/heap\.py"):
        sources.version(["vm/heap.py"], package=tmp_path)
