"""A primitive as a function that Python calls: inputs, then tensors for the results.

For each combination of sizes, a program of the one call is made and run by a machine: kernels are native and checked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.bytecode import CodeBuilder, code_array
from ...formats.dims import SymbolicDim
from ...formats.executable import Executable
from ...formats.messages.errors import ArgumentError, ShapeError
from ...formats.primitive import Primitive, PrimitiveDefinition
from ...formats.program import Function, Program
from ...formats.types import FunctionType, TensorType, TupleType, Type
from ...vm.machine import VirtualMachine
from ...vm.tensor import Tensor

_MACHINES = 16  # that are kept for one kernel


def kernel_function(primitive: Primitive, source: Executable) -> Callable[..., None]:
    """`function(*inputs, *outputs)`. Native code comes from `source`, if its user vouches for it."""
    name, definition = primitive.name, primitive.definition
    count = len(definition.params)

    @functools.lru_cache(_MACHINES)
    def machine(sizes: tuple[int, ...]) -> VirtualMachine:
        return VirtualMachine(Executable(_program(primitive, sizes)).with_native_of(source))

    def call(*tensors: Any) -> None:
        if len(tensors) != count + len(definition.outputs):
            expected = f"{count} inputs and {len(definition.outputs)} outputs"
            raise ArgumentError(f"{name}: expected {expected}, got {len(tensors)} arguments")
        inputs = [each.array if isinstance(each, Tensor) else np.asarray(each) for each in tensors[:count]]
        result = machine(_sizes(name, definition, inputs))[name](*inputs)
        results = result if isinstance(result, tuple) else (result,)
        for target, made in zip(tensors[count:], results, strict=True):
            (target if isinstance(target, Tensor) else Tensor(target)).copyfrom(made.array)

    call.__name__ = call.__qualname__ = name
    return call


def _program(primitive: Primitive, sizes: tuple[int, ...]) -> Program:
    """One function, which calls the primitive with tensors of these sizes."""
    definition = primitive.definition
    values = dict(zip(definition.variables, sizes, strict=True))
    params = tuple(_known(primitive.name, each, values) for each in definition.params)
    results = tuple(_known(primitive.name, each, values) for each in definition.results)
    result: Type = results[0] if len(results) == 1 else TupleType(results)
    types: dict[Type, int] = {each: number for number, each in enumerate(dict.fromkeys((*results, result)))}
    inputs = list(range(len(params)))
    outputs = list(range(len(params), len(params) + len(results)))
    code = CodeBuilder()
    for register, type_ in zip(outputs, results, strict=True):
        code.emit("alloc_tensor", dst=register, type=types[type_])
    code.emit("call", prim=0, inputs=inputs, outputs=outputs, dims=list(sizes))
    last = outputs[-1]
    if len(results) > 1:
        last += 1
        code.emit("alloc_data", dst=last, type=types[result], tag=0, fields=outputs)
    code.emit("ret", src=last)
    words, _ = code.finish()
    names = tuple(f"input{number}" for number in inputs)
    function = Function(primitive.name, names, FunctionType(params, result), 0, last + 1, 0, 0, 0, len(words))
    return Program((function,), (), (primitive,), code_array([words]), tuple(types), ())


def _known(name: str, type_: TensorType, values: dict[str, int]) -> TensorType:
    """The type where its variables have these values. Raises ShapeError where one divides by 0."""
    try:
        shape = tuple(dims.evaluate(dim, values) if isinstance(dim, SymbolicDim) else dim for dim in type_.shape)
    except ZeroDivisionError:
        told = ", ".join(f"{variable} is {value}" for variable, value in values.items())
        raise ShapeError(f"{name}: {type_} has no size where {told}: one is divided by 0") from None
    return TensorType(type_.dtype, shape)


def _sizes(name: str, definition: PrimitiveDefinition, inputs: Sequence[np.ndarray]) -> tuple[int, ...]:
    """The values of a definition's dimension variables. Raises ShapeError, ArgumentError."""
    found: dict[str, int] = {}
    for number, (param, array) in enumerate(zip(definition.params, inputs, strict=True)):
        fits = array.ndim == param.rank and array.dtype == param.dtype.numpy
        for dim, size in zip(param.shape, array.shape, strict=False):
            if isinstance(dim, SymbolicDim) and str(dim) in definition.variables:
                fits = fits and found.setdefault(str(dim), size) == size
            elif isinstance(dim, int):
                fits = fits and dim == size
        if not fits:
            shape = ", ".join(map(str, array.shape))
            raise ShapeError(f"{name}: argument {number}: expected {param}, got {array.dtype}[{shape}]")
    unknown = [variable for variable in definition.variables if variable not in found]
    if unknown:
        raise ArgumentError(f"{name}: the arguments do not tell {', '.join(unknown)}")
    return tuple(found[variable] for variable in definition.variables)
