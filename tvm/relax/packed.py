"""What a machine hands over to a program that calls registered functions: those, called as the program wants it.

An import's name says how the function is called and of which type it is: `call_packed test.vm.add fn(float32[4]) -> float32[4]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.executable import Executable
from ...formats.program import Import, Program
from ...formats.types import TensorType, TupleType, Type
from ..modules.registry import reachable
from ..runtime.container import given
from ..runtime.ndarray import NDArray

PACKED, DPS = "call_packed", "call_dps_packed"


def registered_name(imported: str) -> str:
    """The name of the function that an import stands for."""
    manner, _, rest = imported.partition(" ")
    return rest.partition(" ")[0] if rest and manner in (PACKED, DPS) else imported


def reached(executable: Executable, given: Callable[[str], Callable[..., Any] | None]) -> dict[str, Callable[..., Any]]:
    """The functions that a program imports, by its names of them: what `given` has, and, for a program that this process has
    made, what is registered."""
    found = {}
    for entry in executable.program.imports:
        name = registered_name(entry.name)
        own = given(name)
        function = reachable(name, {} if own is None else {name: own}, executable.was_loaded)
        if function is not None:
            found[entry.name] = function
    return found


def called(program: Program, functions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """These functions, called as the program wants it."""
    return {
        entry.name: (_writing if entry.name.startswith(f"{DPS} ") else _giving)(entry, functions[entry.name])
        for entry in program.imports
        if entry.name in functions
    }


def _giving(entry: Import, function: Callable[..., Any]) -> Callable[..., Any]:
    is_dropped = entry.type.result == TupleType(())

    def call(*args: Any) -> Any:
        result = function(*map(given, args))
        return () if is_dropped else result

    return call


def _writing(entry: Import, function: Callable[..., Any]) -> Callable[..., Any]:
    result = entry.type.result
    fields: Any = result.fields if isinstance(result, TupleType) else (result,)

    def call(*args: Any) -> Any:
        sizes = _sizes(entry.type.params, args)
        outputs = [
            NDArray(np.zeros([dims.evaluate(dim, sizes) for dim in field.shape], field.dtype.numpy)) for field in fields
        ]
        function(*map(given, args), *outputs)
        return tuple(outputs) if isinstance(result, TupleType) else outputs[0]

    return call


def _sizes(params: Sequence[Type], args: Sequence[Any]) -> dict[str, int]:
    """What the dimension variables of tensors are for these arguments."""
    tensors = [(param, arg) for param, arg in zip(params, args, strict=True) if isinstance(param, TensorType)]
    shape = [dim for param, _ in tensors for dim in param.shape]
    found = [size for _, arg in tensors for size in arg.array.shape]
    values: dict[str, int] = {}
    for solution in dims.solve(shape, ()):
        product = found[solution.index] - dims.evaluate(solution.rest, values)
        values[str(solution.variable)] = max(product // solution.coefficient, 0)
    return values
