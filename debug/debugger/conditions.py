"""The conditions of breakpoints: a small language of its own, `max(abs(x)) > 1e4`, that knows arrays and nothing else.

    x  r3  i0  names        what was just made: each result; registers; parameters, where a function begins
    step  depth  iteration  instructions so far, frames, and the round of the innermost loop
    + - * / // % **  < <= > >= == !=  and or not  x[0, :3]  x.shape x.size x.dtype
    any all isnan isinf isfinite abs max min sum mean std norm sqrt exp log argmax argmin round len

Python's parser reads it, a table evaluates it: what the table does not have is refused when the breakpoint is set.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...formats.messages.errors import ArgumentError
from ...formats.messages.names import near

MOST_CHARACTERS = 1000
_MOST_NODES = 200

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.remainder,
    ast.Pow: np.float_power,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: np.negative,
    ast.UAdd: np.positive,
    ast.Not: lambda value: not _truth(value),
}


def _counted(test: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A test of floats that is asked of integers and texts too."""
    return lambda value: test(value) if np.asarray(value).dtype.kind in "fc" else np.zeros(np.shape(value), bool)


def _wide(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Sums of float16 overflow where those of float32 do not."""
    return lambda value: function(np.asarray(value, np.float64))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "any": np.any,
    "all": np.all,
    "isnan": _counted(np.isnan),
    "isinf": _counted(np.isinf),
    "isfinite": lambda value: ~(_counted(np.isnan)(value) | _counted(np.isinf)(value)),
    "abs": np.abs,
    "max": np.max,
    "min": np.min,
    "sum": _wide(np.sum),
    "mean": _wide(lambda value: np.mean(value) if value.size else np.nan),
    "std": _wide(lambda value: np.std(value) if value.size else np.nan),
    "norm": _wide(lambda value: np.linalg.norm(np.ravel(value))),
    "sqrt": _wide(np.sqrt),
    "exp": _wide(np.exp),
    "log": _wide(np.log),
    "argmax": np.argmax,
    "argmin": np.argmin,
    "round": np.round,
    "len": len,
}
_ATTRIBUTES = {
    "shape": lambda value: value.shape,
    "size": lambda value: value.size,
    "dtype": lambda value: value.dtype.name,
}


class Condition:
    """A condition as it was written. `names` are those of values that it reads."""

    def __init__(self, text: str) -> None:
        """Raises ArgumentError for what is not of the language."""
        if not isinstance(text, str):
            raise ArgumentError(f"a condition is a text, as 'any(isnan(x))'; got {type(text).__name__}")
        if len(text) > MOST_CHARACTERS:
            raise ArgumentError(f"a condition of {len(text)} characters; at most {MOST_CHARACTERS} are allowed")
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ArgumentError(f"condition {self.text!r}: {getattr(error, 'msg', error)}") from None
        nodes = list(ast.walk(self._tree))
        if len(nodes) > _MOST_NODES:
            raise ArgumentError(f"a condition of {len(nodes)} terms; at most {_MOST_NODES} are allowed")
        functions = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        self._check(nodes)
        self.names = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in functions}

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"

    def value(self, values: Mapping[str, Any] | Callable[[str], Any]) -> Any:
        """What it gives for values by name. Raises ArgumentError where it cannot be evaluated."""
        find = values if callable(values) else values.__getitem__
        try:
            with np.errstate(all="ignore"):
                return self._value(self._tree, find)
        except ArgumentError:
            raise
        except Exception as error:  # NumPy's, of shapes and types that do not fit
            raise ArgumentError(f"condition {self.text!r}: {error}") from None

    def holds(self, values: Mapping[str, Any] | Callable[[str], Any]) -> bool:
        """Whether it is true. Raises ArgumentError."""
        return _truth(self.value(values), self.text)

    def _check(self, nodes: list[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
                if name not in FUNCTIONS:
                    raise self._refused(
                        f"there is no function {name!r}; there are {', '.join(FUNCTIONS)}{near(name, FUNCTIONS)}"
                    )
                if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
                    raise self._refused(f"{name} takes one value")
            elif isinstance(node, ast.Attribute) and node.attr not in _ATTRIBUTES:
                raise self._refused(f"a value has {', '.join(_ATTRIBUTES)}, no {node.attr!r}")
            elif isinstance(node, ast.Constant) and not isinstance(node.value, (bool, int, float, str)):
                raise self._refused(f"{node.value!r} is not a number")
            elif not isinstance(node, _KNOWN):
                raise self._refused(f"{type(node).__name__} is not of the language")

    def _refused(self, why: str) -> ArgumentError:
        return ArgumentError(f"condition {self.text!r}: {why}")

    def _value(self, node: ast.AST, find: Callable[[str], Any]) -> Any:
        if isinstance(node, ast.Constant):
            return np.float64(node.value) if type(node.value) is int and abs(node.value) >> 62 else node.value
        if isinstance(node, ast.Name):
            return find(node.id)
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            return FUNCTIONS[node.func.id](self._value(node.args[0], find))
        if isinstance(node, ast.BinOp):
            return _BINARY[type(node.op)](
                *map(np.asarray, (self._value(node.left, find), self._value(node.right, find)))
            )
        if isinstance(node, ast.UnaryOp):
            return _UNARY[type(node.op)](self._value(node.operand, find))
        if isinstance(node, ast.BoolOp):
            is_and = isinstance(node.op, ast.And)
            for each in node.values:
                if _truth(self._value(each, find), self.text) != is_and:
                    return not is_and
            return is_and
        if isinstance(node, ast.Compare):
            left, found = self._value(node.left, find), None
            for operation, each in zip(node.ops, node.comparators, strict=True):
                right = self._value(each, find)
                made = _equal(operation, left, right)
                found, left = made if found is None else np.logical_and(found, made), right
            return found
        if isinstance(node, ast.Subscript):
            return self._value(node.value, find)[self._value(node.slice, find)]
        if isinstance(node, ast.Slice):
            return slice(
                *(None if part is None else self._value(part, find) for part in (node.lower, node.upper, node.step))
            )
        if isinstance(node, ast.Attribute):
            return _ATTRIBUTES[node.attr](np.asarray(self._value(node.value, find)))
        assert isinstance(node, ast.Tuple)
        return tuple(self._value(each, find) for each in node.elts)


_KNOWN = (
    ast.Constant,
    ast.Name,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Subscript,
    ast.Slice,
    ast.Tuple,
    ast.Attribute,
    ast.Load,
    ast.And,
    ast.Or,
    *_BINARY,
    *_UNARY,
)


def _equal(operation: ast.cmpop, left: Any, right: Any) -> Any:
    """A comparison; tuples, as shapes are, as a whole."""
    if isinstance(left, tuple) or isinstance(right, tuple):
        same = tuple(left) == tuple(right) if isinstance(left, tuple) and isinstance(right, tuple) else False
        if isinstance(operation, (ast.Eq, ast.NotEq)):
            return same is isinstance(operation, ast.Eq)
    return _BINARY[type(operation)](left, right)


def _truth(value: Any, text: str = "") -> bool:
    if np.size(value) != 1:
        what = f"{np.asarray(value).dtype.name}{list(np.shape(value))}"
        raise ArgumentError(f"condition {text!r}: it gives {what}, no truth; say any(…) or all(…) of it")
    return bool(np.asarray(value).reshape(()))
