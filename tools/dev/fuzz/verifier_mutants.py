"""Takes every check out of the verifier, one at a time, and runs its tests: a check that no test misses is not tested.

    python -m treadle.tools.dev.fuzz.verifier_mutants [--sample 20] [--only TEXT] [--list]

What is taken out: a `raise`; a call of a function that checks; one of several conditions before a `raise`, or of those that a
function `is_…` asks for; the text of a problem that a function returns; a fact that the analysis remembers. The mutant is the
live function with other code, in this process, so a run of the tests takes a second. Exits with 1 where a mutant survives.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import io
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

PACKAGE = Path(__file__).resolve().parents[3]
MODULES = ("verifier", "code", "flow", "state", "tables", "integers", "work")
TESTS = ("test_types.py", "test_tables.py", "test_memory.py", "test_checks.py", "test_devices.py")
_SECONDS = 120  # for all tests, which take two
_REMEMBERS = frozenset({"add", "update", "pop", "setdefault"})  # methods by which the analysis keeps or forgets facts

# Taken out, these change what nobody can see, for the reason given.
EQUIVALENT: dict[str, str] = {
    "no self._scheduled.add(position)": "a block that is scheduled twice is interpreted twice, with the same result"
}


@dataclass(frozen=True)
class Mutant:
    """One check that is taken out: `path` are the names around the function, `number` counts its mutants."""

    module: str
    path: tuple[str, ...]
    number: int
    line: int
    text: str

    def __str__(self) -> str:
        return f"vm/verify/{self.module}.py:{self.line} {'.'.join(self.path)}: {self.text}"


def mutants() -> list[Mutant]:
    """All of them, in the order of the source."""
    found = []
    for module in MODULES:
        for path, function in _functions(_tree(module)):
            for number, (line, text) in enumerate(_places(function)):
                found.append(Mutant(module, path, number, line, text))
    return found


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Within this, the function has the mutant's code."""
    tree = _tree(mutant.module)
    function = next(function for path, function in _functions(tree) if path == mutant.path)
    _Taker(mutant.number).visit(function)
    module = importlib.import_module(f"treadle.vm.verify.{mutant.module}")
    code = _code(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec"), mutant.path)
    live = _live(module, mutant.path)
    original, live.__code__ = live.__code__, code
    try:
        yield
    finally:
        live.__code__ = original


def survives(mutant: Mutant) -> bool:
    """Whether all tests pass with it."""
    with applied(mutant):
        return run_tests()


def run_tests() -> bool:
    """Whether the verifier's tests pass, in this process."""
    import pytest

    tests = [str(PACKAGE / "tests" / "vm" / "verify" / name) for name in TESTS]
    quiet = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), _in_time():
        return pytest.main([*quiet, *tests]) == 0


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    """A test that has not ended after `_SECONDS` fails: some checks are what ends a loop."""

    def end(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- finding what may be taken out ----


def _tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / "vm" / "verify" / f"{module}.py").read_text())


def _functions(tree: ast.Module) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield (node.name,), node
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and not member.decorator_list:
                    yield (node.name, member.name), member


def _places(function: ast.FunctionDef) -> list[tuple[int, str]]:
    taker = _Taker(-1)
    taker.visit(copy.deepcopy(function))
    return taker.places


class _Taker(ast.NodeTransformer):
    """Takes the check number `wanted` out of a function; counts them all in `places`."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.places: list[tuple[int, str]] = []
        self._predicate = False

    def _is_it(self, node: ast.AST, what: str) -> bool:
        text = f"{what} {' '.join(ast.unparse(node).split())}"
        self.places.append((getattr(node, "lineno", 0), text[:110]))
        return len(self.places) - 1 == self.wanted

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._predicate = node.name.lstrip("_").startswith(("is_", "all_"))
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.copy_location(ast.Pass(), node) if self._is_it(node, "no") else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            checks = name.lstrip("_").startswith(("check", "share", "tensor", "integer", "int_register"))
            if (checks or name in _REMEMBERS) and self._is_it(node, "no"):
                return ast.copy_location(ast.Pass(), node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        remembers = isinstance(node.target, ast.Attribute) and isinstance(node.op, ast.BitOr)
        return ast.copy_location(ast.Pass(), node) if remembers and self._is_it(node, "no") else node

    def visit_If(self, node: ast.If) -> ast.AST:
        if any(isinstance(inner, ast.Raise) for statement in node.body for inner in ast.walk(statement)):
            node.test = self._weaker(node.test)
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        value = node.value
        if isinstance(value, ast.JoinedStr) and self._is_it(node, "no"):
            return ast.copy_location(ast.Pass(), node)
        if self._predicate and value is not None:
            node.value = self._stronger(value)
        return node

    def _weaker(self, test: ast.expr) -> ast.expr:
        """The condition of a refusal without one of its cases."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
            return self._without_one(test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self._stronger(test.operand)
        return test

    def _stronger(self, test: ast.expr) -> ast.expr:
        """The condition of an acceptance without one of its demands."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return self._without_one(test)
        if isinstance(test, ast.Compare) and len(test.ops) == 2:
            first = ast.Compare(test.left, test.ops[:1], test.comparators[:1])
            second = ast.Compare(test.comparators[0], test.ops[1:], test.comparators[1:])
            if self._is_it(ast.copy_location(second, test), "not asked:"):
                return first
            if self._is_it(ast.copy_location(first, test), "not asked:"):
                return second
        return test

    def _without_one(self, test: ast.BoolOp) -> ast.expr:
        for number, operand in enumerate(test.values):
            if self._is_it(operand, "not asked:"):
                rest = test.values[:number] + test.values[number + 1 :]
                return ast.BoolOp(test.op, rest) if len(rest) > 1 else rest[0]
        return test


# ---- code that is exchanged ----


def _code(code: CodeType, path: tuple[str, ...]) -> CodeType:
    for name in path:
        code = next(inner for inner in code.co_consts if isinstance(inner, CodeType) and inner.co_name == name)
    return code


def _live(module: ModuleType, path: tuple[str, ...]) -> FunctionType:
    found: object = module
    for name in path:
        found = getattr(found, name)
    assert isinstance(found, FunctionType)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, metavar="N", help="N of them, evenly spread (default: all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose description contains the text")
    parser.add_argument("--list", action="store_true", help="only name them")
    options = parser.parse_args()
    found = [mutant for mutant in mutants() if mutant.text not in EQUIVALENT and options.only in str(mutant)]
    if options.sample:
        found = found[:: -(-len(found) // options.sample)]
    if options.list:
        print("\n".join(map(str, found)))
        return
    os.chdir(PACKAGE)  # pytest's settings name folders from there
    if not run_tests():
        raise SystemExit("the verifier's tests fail as they are")
    survivors = []
    for mutant in found:
        if survives(mutant):
            survivors.append(mutant)
            print(f"survives: {mutant}", flush=True)
    print(
        f"{len(found)} checks taken out, {len(found) - len(survivors)} noticed by the tests, {len(survivors)} not",
        flush=True,
    )
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
