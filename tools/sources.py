"""Derives vm/source_lists.py: the modules that decide about what the cache keeps, which is what a module imports, and so on.

Imports are found in the text, also those within functions; those for type checkers alone are none. The packages that a module
lies in are run before it, so they count as imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
LISTS = PACKAGE / "vm" / "source_lists.py"

# What makes a kernel's record of a definition, object code of a kernel's text, and the engine
ROOTS = {
    "KERNELS": "compiler/kernels/build.py",
    "TRANSLATOR": "compiler/kernels/translate.py",
    "ENGINE": "vm/entries.py",
}

# Modules that decide about no code, whatever they say: what is imported of them are errors, words for people, and what makes a
# thing once. A module that is new to the translator counts until it is named here.
SILENT = {
    "__init__.py",
    "compiler/__init__.py",
    "compiler/kernels/__init__.py",
    "formats/__init__.py",
    "formats/choices.py",
    "formats/elsewhere.py",
    "formats/errors.py",
    "formats/names.py",
    "vm/__init__.py",
    "vm/once.py",
}

_HEAD = '''"""The modules that decide about what the cache keeps. Derived by tools/sources.py: run `make docs`."""
'''


def closure(root: str, package: Path = PACKAGE, silent: Set[str] = frozenset()) -> list[str]:
    """The modules of the package that a module imports, and those import, as paths in the package; without `silent` ones."""
    waiting, found = [root], set[str]()
    while waiting:
        path = waiting.pop()
        if path not in found and path not in silent:
            found.add(path)
            folders = Path(path).parent.parts
            waiting += [_path((*folders[:depth], "__init__")) for depth in range(len(folders) + 1)]
            tree = ast.parse((package / path).read_text(encoding="utf-8"))
            waiting += [each for name in _imported(tree, folders) if (each := _module(name, package))]
    return sorted(found)


def _path(parts: tuple[str, ...]) -> str:
    return "/".join(parts) + ".py"


def _module(name: tuple[str, ...], package: Path) -> str:
    """The path of a module of that name; "" if there is none."""
    paths = (_path((*name, "__init__")), *([_path(name)] if name else []))
    return next((path for path in paths if (package / path).is_file()), "")


def _imported(tree: ast.AST, folders: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The names of what may be a module of the package, relative to it."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folders[: len(folders) - node.level + 1] + tuple(node.module.split(".") if node.module else ())
            yield base
            yield from ((*base, alias.name) for alias in node.names)
        waiting += ast.iter_child_nodes(node)


def lists() -> str:
    """The text of vm/source_lists.py."""
    lines = [_HEAD]
    for name, root in ROOTS.items():
        paths = closure(root, silent=frozenset() if name == "KERNELS" else SILENT)
        lines += [f"{name} = (", *(f'    "{path}",' for path in paths), ")"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    LISTS.write_text(lists(), encoding="utf-8")
