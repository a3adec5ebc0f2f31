"""`relax.transform`: Treadle's passes run when a program is compiled; what is here is done to the module at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...compiler import ir
from ...compiler.driver import bind_parameters
from ..relay.build_module import array_of

__all__ = ["BindParams"]


def BindParams(func_name: str, params: Mapping[str, Any]) -> Callable[[ir.Module], ir.Module]:
    """Makes parameters of a function constants. Raises CompileError for one that does not fit."""
    arrays = {name: array_of(value) for name, value in params.items()}
    return lambda module: bind_parameters(module, func_name, arrays)
