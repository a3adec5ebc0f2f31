"""Kernels that users write for their own operators: Python functions over elements, as syntax trees. A target compiles them
(`targets/cpu/kernels/own.py`)."""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats.dtypes import DType
from ...formats.messages.errors import KernelError

# Element types whose names convert in a kernel: "bool" does not
_COMPUTED = frozenset(name for name, dtype in DType.__members__.items() if name != "bool" and dtype.computed is dtype)


@dataclass(frozen=True)
class OwnKernel:
    """A user's kernel: the syntax tree of its function."""

    operator: str
    function: ast.FunctionDef

    @property
    def tensors(self) -> list[str]:
        """The names of the parameters that are tensors: inputs, then outputs."""
        return [each.arg for each in self.function.args.args]

    @property
    def attributes(self) -> list[str]:
        """The names of the parameters that are attributes."""
        return [each.arg for each in self.function.args.kwonlyargs]


OWN: dict[str, OwnKernel] = {}  # by the operator's name


def parsed(function: Callable[..., Any], operator: str) -> ast.FunctionDef:
    """The syntax tree of a function, with the numbers that its names outside stand for now. Raises KernelError where its text is
    not there."""
    function = getattr(function, "py_func", function)  # of numba's
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        raise KernelError(
            f"operator {operator!r}: the text of its kernel is not to be found ({error}); define it with def, in a file or a "
            "notebook"
        ) from None
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(f"operator {operator!r}: its kernel must be a function made by def")
    return ast.fix_missing_locations(_Numbers(function, tree).visit(tree))


class _Numbers(ast.NodeTransformer):
    """Puts numbers in place of the names that a function reads outside of itself."""

    def __init__(self, function: Callable[..., Any], tree: ast.FunctionDef) -> None:
        free = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._outside = {**function.__globals__}
        for name, cell in free:
            with contextlib.suppress(ValueError):  # it has no value yet
                self._outside[name] = cell.cell_contents
        self._own = {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self._own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = None if node.id in self._own or not isinstance(node.ctx, ast.Load) else self._outside.get(node.id)
        if isinstance(value, np.generic) and value.dtype.name in _COMPUTED:
            number = literal(value.item())
            return ast.copy_location(ast.Call(ast.Name(value.dtype.name, ast.Load()), [number], []), node)
        return ast.copy_location(literal(value), node) if isinstance(value, (bool, int, float)) else node


def literal(value: float) -> ast.expr:
    """A number as the text of a kernel has it."""
    if math.isfinite(value):
        return ast.parse(repr(value), mode="eval").body
    special = ast.Attribute(ast.Name("math", ast.Load()), "nan" if math.isnan(value) else "inf", ast.Load())
    return ast.UnaryOp(ast.USub(), special) if value < 0 else special
