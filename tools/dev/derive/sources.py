"""Which modules of the package import which, found in their text: derives native/source_lists.py, the modules that decide about
what the cache keeps.

Imports within functions count; those for type checkers alone do not. The packages that a module lies in are run before it, so
they count as imported where they have code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from . import ROOT as PACKAGE
from . import write

LISTS = PACKAGE / "native" / "source_lists.py"

# What makes a kernel's record of a definition, object code of a kernel's text, and the engine
ROOTS = {
    "KERNELS": "compiler/targets/cpu/toolchain/kernels.py",
    "TRANSLATOR": "compiler/targets/cpu/toolchain/translate.py",
    "ENGINE": "vm/entries.py",
}

# Modules that decide about no code, whatever they say: what is imported of them are errors, words for people, and what makes a
# thing once. A module that is new to the translator counts until it is named here.
SILENT = {
    "__init__.py",
    "formats/__init__.py",
    "formats/messages/choices.py",
    "formats/messages/elsewhere.py",
    "formats/messages/errors.py",
    "formats/messages/names.py",
    "vm/__init__.py",
    "native/once.py",
}

_NAME = "treadle"  # of the package, whatever the name of the checkout is
_IMPORTERS = ("importlib.import_module", "import_module", "__import__")

_HEAD = '''"""The modules that decide about what the cache keeps. Derived by tools/dev/derive/sources.py: run `make docs`."""
'''


def closure(*roots: str, package: Path = PACKAGE, silent: Set[str] = frozenset()) -> list[str]:
    """The modules of the package that some modules import, and those import, as paths in the package; without `silent` ones."""
    waiting, found = list(roots), set[str]()
    while waiting:
        path = waiting.pop()
        if path not in found and path not in silent and not is_bare(path, package):
            found.add(path)
            folders = Path(path).parent.parts
            waiting += [_path((*folders[:depth], "__init__")) for depth in range(len(folders) + 1)]
            waiting += imports(path, package)
    return sorted(found)


def is_bare(path: str, package: Path = PACKAGE) -> bool:
    """Whether that is a package's file with nothing but a docstring."""
    return path.endswith("__init__.py") and not [each for each in _tree(path, package).body if not _is_text(each)]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def imports(path: str, package: Path = PACKAGE) -> list[str]:
    """The modules of the package that one of them imports itself."""
    names = _imported(_tree(path, package), Path(path).parent.parts)
    paths = (_module(name, package) or _home(name, package) for name in names)
    return list(dict.fromkeys(filter(None, paths)))


def imports_by_variable(path: str, package: Path = PACKAGE) -> bool:
    """Whether a module imports others by names that its text does not hold, which `imports` cannot find."""
    folders = Path(path).parent.parts
    calls = (node for node in ast.walk(_tree(path, package)) if _is_import_by_name(node))
    return any(_called(node, folders) is None for node in calls)


def links(path: str, package: Path = PACKAGE) -> set[str]:
    """The modules of the package that one names in an import, within functions and for type checkers too. A name taken out of a
    package is the module of that name, else the package's own file."""
    folders, found = Path(path).parent.parts, set[str]()
    for node in ast.walk(_tree(path, package)):
        if isinstance(node, ast.ImportFrom):
            base = _resolved("." * node.level + (node.module or ""), folders)
            names = [] if base is None else [((*base, alias.name), base) for alias in node.names]
            found |= {
                _module(name, package) or _home(name, package) or _module(package_, package) for name, package_ in names
            }
        elif isinstance(node, ast.Import):
            found |= {
                _module(name, package) for each in node.names if (name := _resolved(each.name, folders)) is not None
            }
        elif _is_import_by_name(node) and (called := _called(node, folders)):
            found.add(_module(called, package))
    return found - {"", path}


def circle(paths: Iterable[str], package: Path = PACKAGE) -> list[str]:
    """Modules that import one another, by `links`: one circle of them, or none."""
    try:
        TopologicalSorter({path: links(path, package) for path in paths}).prepare()
    except CycleError as error:
        return sorted(set(error.args[1]))
    return []


def constant(path: str, name: str, package: Path = PACKAGE) -> Any:
    """The value that a module gives to a name by a literal; {} where it gives none."""
    for node in _tree(path, package).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if [each.id for each in targets if isinstance(each, ast.Name)] == [name]:
            assert isinstance(node, ast.Assign)
            return ast.literal_eval(node.value)
    return {}


def _tree(path: str, package: Path) -> ast.Module:
    return ast.parse((package / path).read_text(encoding="utf-8"))


def _path(parts: tuple[str, ...]) -> str:
    return "/".join(parts) + ".py"


def _module(name: tuple[str, ...], package: Path) -> str:
    """The path of a module of that name; "" if there is none."""
    paths = (_path((*name, "__init__")), *([_path(name)] if name else []))
    return next((path for path in paths if (package / path).is_file()), "")


def _home(name: tuple[str, ...], package: Path) -> str:
    """The path of the module that a package imports when a name of its table `_HOMES` is first used; "" for other names."""
    folder = name[:-1]
    path = _path((*folder, "__init__"))
    home = constant(path, "_HOMES", package).get(name[-1], "") if name and (package / path).is_file() else ""
    return _module(_resolved(home, folder) or (), package) if home else ""


def _imported(tree: ast.AST, folders: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The names of what may be a module of the package, relative to it."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.ImportFrom):
            base = _resolved("." * node.level + (node.module or ""), folders)
            if base is not None:
                yield base
                yield from ((*base, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (name for alias in node.names if (name := _resolved(alias.name, folders)) is not None)
        elif _is_import_by_name(node) and (called := _called(node, folders)):
            yield called
        waiting += ast.iter_child_nodes(node)


def _resolved(name: str, folders: tuple[str, ...]) -> tuple[str, ...] | None:
    """A module's name relative to the package, as a module in these folders says it; None for other packages."""
    bare = name.lstrip(".")
    level, parts = len(name) - len(bare), tuple(filter(None, bare.split(".")))
    if level:
        return folders[: len(folders) - level + 1] + parts
    return parts[1:] if parts[:1] == (_NAME,) else None


def _is_import_by_name(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = getattr(
        node.func, "attr", getattr(node.func, "id", "")
    )  # most are others: unparsing each would take seconds
    return name in ("import_module", "__import__") and ast.unparse(node.func) in _IMPORTERS


def _called(node: ast.AST, folders: tuple[str, ...]) -> tuple[str, ...] | None:
    """The module that `importlib.import_module` imports: () for another package's, None if known only at run time."""
    assert isinstance(node, ast.Call)
    (name, *_) = node.args
    text = ""
    for part in name.values if isinstance(name, ast.JoinedStr) else [name]:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        elif isinstance(part, ast.FormattedValue) and ast.unparse(part.value) == "__package__":
            text += ".".join((_NAME, *folders))
        else:
            return None
    return _resolved(text, folders) or ()


def lists() -> str:
    """The text of native/source_lists.py."""
    lines = [_HEAD]
    for name, root in ROOTS.items():
        paths = closure(root, silent=frozenset() if name == "KERNELS" else SILENT)
        lines += [f"{name} = (", *(f'    "{path}",' for path in paths), ")"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write({LISTS: lists()})
