"""Functions for other compilers, `Compiler="name"`, handed to Python.

What is registered as `relay.ext.name` is given the function, and gives what is to be called in its place: with tensors, for a
tensor or a tuple of them.

    @tvm.register_func("relay.ext.mine")
    def mine(function):
        return lambda x, y: tvm.nd.array(x.numpy() + y.numpy())
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...compiler.builder.expressions import op
from ...compiler.builder.extension import operator
from ...formats import types
from ...formats.messages.errors import CompileError
from ..modules.registry import get_global_func
from ..runtime.ndarray import array
from .expr import Function

_MADE: weakref.WeakKeyDictionary[Function, str] = weakref.WeakKeyDictionary()


def handed_over(function: Function, result_of: Callable[[Function], types.Type]) -> Callable[..., Any] | None:
    """The operator that stands for a function of another compiler, whose result is of the type that `result_of` says; None where
    no Python function is registered for that."""
    compiler = str(function.attrs.get("Compiler", ""))
    codegen = get_global_func(f"relay.ext.{compiler}", allow_missing=True) if compiler else None
    if codegen is None:
        return None
    if function not in _MADE:
        called = codegen(function)
        if not callable(called):
            raise CompileError(f"relay.ext.{compiler}: expected a function of tensors, got a {type(called).__name__}")
        name = f"relay_ext_{len(_MADE)}_{id(function)}"
        names = " ".join(f"input_{place}" for place in range(len(function.params)))
        operator(
            name,
            infer=_results(result_of(function)),
            reference=_reference(called),
            inputs=names,
            doc=f"a region of {compiler}",
        )
        _MADE[function] = name
    return getattr(op, _MADE[function])


def _results(result: types.Type) -> Callable[..., Any]:
    found = result.fields if isinstance(result, types.TupleType) else result
    return lambda *inputs: found


def _reference(called: Callable[..., Any]) -> Callable[..., Any]:
    def reference(*arrays: np.ndarray) -> Any:
        results = called(*map(array, arrays))
        several = isinstance(results, (tuple, list))
        made = tuple(
            np.asarray(each.numpy() if hasattr(each, "numpy") else each) for each in (results if several else [results])
        )
        return made if several else made[0]

    return reference
