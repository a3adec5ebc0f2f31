"""Expressions of TVMScript, walked as `ast` has them: what they stand for, and where they are wrong."""

from __future__ import annotations

import ast
import contextlib
import enum
import operator
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...formats import dims, limits
from ...formats.messages.errors import TreadleError, UnsupportedNameError
from ...formats.messages.names import near
from ..relax import expr
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, ExternFunc, GlobalVar
from ..relax.node import Node
from ..relax.op import TIR
from ..relax.op.table import Operator
from ..relax.struct_info import Condition, StructInfo
from ..relay.expr import GlobalVar as AnyGlobal
from .names import MATCH_CAST, Cast, Macro, Names, Own, PrimFunc, ScriptError, TirError, as_info
from .tir import NUMBERS, T

# what a text may look at of expressions, struct infos and sizes
ATTRIBUTES = {"astype", "dtype", "fields", "ndim", "params", "ret", "shape", "struct_info", "value", "values"}
_PACKAGE = __package__.rpartition(".")[0]
ALIASES = {
    **{f"{__package__}.{name}": letter for name, letter in (("ir", "I"), ("tir", "T"), ("relax", "R"))},
    f"{_PACKAGE}.relax": "relax",
    f"{_PACKAGE}.relax.op": "op",
    f"{_PACKAGE}": "tvm",
}
NESTING = 100  # statements and expressions in each other
_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
}
_COMPARE: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}
_UNARY: dict[type, Callable[..., Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}


class Vocabulary:
    """What a text may name, and call: the members of `names`, operators, struct infos, and nothing else."""

    def __init__(self, **names: Any) -> None:
        self.names: dict[str, Any] = names
        self._called: list[Any] = [np.array, *_NUMPY]
        waiting = [*names.values()]
        while waiting:
            each = waiting.pop()
            waiting += each.members.values() if isinstance(each, Names) else ()
            self._called.append(each)

    def allows(self, callee: Any) -> bool:
        """Whether a text may call that."""
        return isinstance(callee, (Operator, StructInfo)) or any(callee is each for each in self._called)


class Expressions:
    """Evaluates expressions over the names that are bound in a text, and those around it."""

    def __init__(self, vocabulary: Vocabulary, env: dict[str, Any], first: int, file: str) -> None:
        self.first, self.file = first, file
        self.vocabulary = vocabulary
        self.names: dict[str, Any] = {**vocabulary.names, **env}  # what was there before the text
        self.scopes: list[dict[str, Any]] = [{}]
        self.builder = BlockBuilder()
        self.attrs: list[dict[str, Any]] = []
        self.is_dataflow = False
        self.depth = 0
        self.metadata: Mapping[str, Any] = {}
        self.globals: dict[str, GlobalVar] = {}
        self.infos: dict[str, list[Any]] = {}
        self.reading = self.path = self.ending = ""  # the function, and the branches in it

    # ---- errors ----

    def fail(self, node: ast.AST, message: str) -> Any:
        """Raises ScriptError."""
        raise ScriptError(f"{self.place(node)}: {message}")

    def place(self, node: ast.AST) -> str:
        line, column = getattr(node, "lineno", 1) + self.first, getattr(node, "col_offset", 0) + 1
        return f"{self.file}{', ' if self.file else ''}line {line}, column {column}"

    @contextlib.contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Errors within say where; depth is bounded."""
        self.depth += 1
        if self.depth > NESTING:
            self.fail(node, f"statements and expressions are nested deeper than {NESTING}")
        try:
            yield
        except ScriptError as error:
            if "line " in str(error):
                raise
            raise ScriptError(f"{self.place(node)}: {error}") from None
        except UnsupportedNameError as error:
            if "line " in str(error):
                raise
            raise TirError(f"{self.place(node)}: {error}") from None
        except (
            TreadleError,
            TypeError,
            ValueError,
            KeyError,
            IndexError,
            NotImplementedError,
            ArithmeticError,
        ) as error:
            raise ScriptError(f"{self.place(node)}: {error}") from error
        finally:
            self.depth -= 1

    @contextlib.contextmanager
    def scope(self) -> Iterator[dict[str, Any]]:
        """Names that are bound within are forgotten after it."""
        self.scopes.append({})
        try:
            yield self.scopes[-1]
        finally:
            self.scopes.pop()

    # ---- expressions ----

    def value(self, node: ast.AST) -> Any:
        """What an expression stands for: an expression of Relax, a struct info, a number, a name's value …"""
        with self.at(node):
            if isinstance(node, ast.Constant):
                if isinstance(node.value, (bytes, complex)) or node.value is Ellipsis:
                    self.fail(node, f"{node.value!r} is not a value of TVMScript")
                return node.value
            if isinstance(node, ast.Name):
                return self.name(node)
            if isinstance(node, (ast.Tuple, ast.List)):
                parts = [self.value(each) for each in node.elts]
                return tuple(parts) if isinstance(node, ast.Tuple) else parts
            if isinstance(node, ast.Dict):
                keys = [
                    self.value(key) if key is not None else self.fail(node, "**: expected keys") for key in node.keys
                ]
                return dict(zip(keys, map(self.value, node.values), strict=True))
            found = getattr(self, f"_{type(node).__name__}", None) if isinstance(node, ast.expr) else None
            if found is None:
                self.fail(node, f"{kind_of(node)} is not an expression of TVMScript")
            return found(node)  # type: ignore[misc]

    def statements(self, nodes: list[ast.stmt], owner: ast.AST) -> Any:
        """Binds a function's statements, which readers of statements do."""
        raise NotImplementedError

    def name(self, node: ast.Name) -> Any:
        for scope in reversed(self.scopes):
            if node.id in scope:
                return scope[node.id]
        if node.id in self.names:
            return self.known(self.names[node.id])
        known = [*(name for scope in self.scopes for name in scope), *self.vocabulary.names]
        return self.fail(node, f"the name {node.id} is not defined{near(node.id, known)}")

    def known(self, value: Any) -> Any:
        """A value from outside: modules of TVM's are their names."""
        if isinstance(value, types.ModuleType):
            return self.vocabulary.names.get(ALIASES.get(value.__name__, ""), value)
        return value

    def _Attribute(self, node: ast.Attribute) -> Any:
        base = self.value(node.value)
        name = node.attr
        if isinstance(base, Own):
            if name not in self.globals:
                self.fail(node, f"the module has no function {name}{near(name, self.globals)}")
            return self.globals[name]
        if isinstance(base, Names):
            if name not in base.members:
                self.fail(node, f"{base.name} has no {name}{near(name, base.members)}")
            return self.known(base.members[name])
        if name.startswith("_"):
            self.fail(node, f"{name}: names that begin with _ are not looked at")
        if isinstance(base, types.SimpleNamespace):
            if not hasattr(base, name):
                self.fail(node, f"there is no operator {name}{near(name, vars(base))}")
            return vars(base)[name]
        if isinstance(base, (Node, dims.SymbolicDim)) and name not in ATTRIBUTES:
            self.fail(node, f"{name}: expected one of {', '.join(sorted(ATTRIBUTES))}")
        is_enum = isinstance(base, type) and issubclass(base, enum.Enum)
        if isinstance(base, (types.FunctionType, type)) and not is_enum:
            self.fail(node, f"{name} of {ast.unparse(node.value)}: a text looks at names of R, T, I and relax")
        return self.known(getattr(base, name))

    def _Call(self, node: ast.Call) -> Any:
        callee = self.value(node.func)
        if any(isinstance(each, ast.Starred) for each in node.args) or any(key.arg is None for key in node.keywords):
            self.fail(node, "* and **: expected arguments one by one")
        args = [self.value(each) for each in node.args]
        options = {str(key.arg): self.value(key.value) for key in node.keywords}
        if callee is MATCH_CAST:
            value, info = (*args, *options.values())
            return Cast(self.builder.leaf(expr.as_expr(value)), as_info(info))
        if isinstance(callee, Macro):
            return self.expanded(callee, args, options, node)
        if isinstance(callee, PrimFunc) or any(callee is each for each in TIR.values()):
            name = getattr(callee, "name", "") or getattr(callee, "__name__", "")
            raise TirError(
                f"{self.place(node)}: {name} is a function of TIR, or calls one; Treadle's compiler makes kernels of "
                "operators, and R.call_dps_packed calls functions of Python"
            )
        if (
            isinstance(callee, types.MethodType)
            and isinstance(callee.__self__, expr.Expr)
            and callee.__name__ == "astype"
        ):
            return callee(*args, **options)
        if isinstance(callee, expr.Expr):
            if isinstance(callee, ExternFunc):
                return callee(*args, **options)
            return Call(callee, args, None, options.get("sinfo_args", ()))
        if isinstance(callee, AnyGlobal):
            return Call(GlobalVar(callee.name_hint, getattr(callee, "struct_info", None)), args)
        if not self.vocabulary.allows(callee):
            self.fail(node, f"{ast.unparse(node.func)} is not called: a text calls names of R, T, I and relax alone")
        made = callee(*args, **options)
        if isinstance(made, Call):
            _ = made.struct_info  # what is wrong with the call is told here
        return made

    def expanded(self, macro: Macro, args: list[Any], options: dict[str, Any], node: ast.AST) -> Any:
        """The value that a macro returns, its statements bound here."""
        names = [each.arg for each in macro.node.args.args]
        given = {**dict(zip(names, args, strict=False)), **options}
        if given.keys() != set(names):
            self.fail(node, f"the macro {macro.node.name} takes {', '.join(names)}")
        outer, known = self.scopes, self.names
        env = macro.env if macro.is_hygienic else {**macro.origin.__globals__, **closure_of(macro.origin)}
        self.scopes, self.names = ([given] if macro.is_hygienic else [*outer, given]), {**known, **env}
        try:
            return self.statements(macro.node.body, macro.node)
        finally:
            self.scopes, self.names = outer, known

    def _Subscript(self, node: ast.Subscript) -> Any:
        base, index = self.value(node.value), self.value(node.slice)
        if isinstance(base, expr.Expr) and not isinstance(index, int):
            self.fail(node, f"a field of a tuple has a number, got {index!r}")
        return base[index]

    def _BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        found = _BINARY.get(type(node.op))
        if found is None or isinstance(left, str) or isinstance(right, str):
            self.fail(node, f"{ast.unparse(node)} is not an expression of TVMScript")
        most = 64 if isinstance(node.op, ast.Pow) else limits.DIMENSION
        if isinstance(left, int) and isinstance(right, int) and (abs(left) > limits.DIMENSION or abs(right) > most):
            self.fail(node, "a number that is too large")
        return found(left, right)  # type: ignore[misc]

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        found = _UNARY.get(type(node.op))
        return (
            found(self.value(node.operand))
            if found
            else self.fail(node, f"{ast.unparse(node)} is not an expression of TVMScript")
        )

    def _Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARE:
            self.fail(node, f"{ast.unparse(node)}: expected one comparison")
        text, compare = _COMPARE[type(node.ops[0])]
        left, right = self.value(node.left), self.value(node.comparators[0])
        if isinstance(left, dims.SymbolicDim) or isinstance(right, dims.SymbolicDim):
            return Condition(text, left, right)
        return compare(left, right)


_NUMPY = [getattr(np, name) for name in NUMBERS if name != "bool"]
_SIZES = Vocabulary(T=T)


def kind_of(node: ast.AST) -> str:
    return f"`{ast.unparse(node).splitlines()[0][:60]}`"


def quoted_size(text: str) -> Any:
    """A size that stands in quotes: `"n"`, `"2 * n"`, `"T.max(n, 20)"`; "?" is one that is not known. Raises ScriptError."""
    if text == "?":
        return "?"
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        raise ScriptError(f"{text!r}: expected a size, as 'n' or '2 * n'") from None
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - {"T"}
    reader = Expressions(_SIZES, {name: dims.named(name) for name in names}, 0, "")
    return reader.value(node)


def closure_of(function: Any) -> dict[str, Any]:
    """The variables of the functions around a function that it uses."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not bound yet
            found[name] = cell.cell_contents
    return found
