"""The template of user-defined operators: the user's function, turned into a kernel's text by `subscripts.py`.

def cross(a, b, out):                       # inputs, outputs; attributes of the operator by name after *
    for row in prange(out.shape[0]):        # threads share these rounds
        out[row, 0] = a[row, 1] * b[row, 2] - a[row, 2] * b[row, 1]
        …
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .....formats import dims
from .....formats.dims import Dim, SymbolicDim
from .....formats.dtypes import DType
from .....formats.messages.errors import CompileError, KernelError
from .....formats.primitive import PrimitiveDefinition
from ....operators.own import OWN, OwnKernel, parsed
from ....operators.table import bound_attributes
from .. import costs
from ..target import Target
from .kernel import Kernel
from .subscripts import Subscripts, Tensor, lines_of, text_of, users_line, variable
from .writer import Writer, estimate, shape_of


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The kernel of a user's operator, alone in its definition; None if it has none, or an attribute is a symbolic dimension.
    Raises KernelError."""
    (node, *others), own = definition.nodes, OWN.get(definition.nodes[0].operator)
    if own is None or others:
        return None
    attributes = bound_attributes(node)
    if any(isinstance(attributes[name], SymbolicDim) for name in own.attributes):
        return None
    return lambda: _kernel(own, definition, attributes, target)


def check(definition: PrimitiveDefinition, text: str, error: CompileError) -> None:
    """Raises KernelError if a kernel whose text could not be compiled is a user's."""
    name = definition.nodes[0].operator
    if name in OWN:
        found = re.match(r"kernel_\w+, line (\d+): ", str(error))
        reason, lines = str(error)[found.end() if found else 0 :], text.splitlines()
        line = users_line(lines[int(found[1]) - 1]) if found and 0 < int(found[1]) <= len(lines) else None
        place = "its kernel" if line is None else f"line {line} of its kernel"
        raise KernelError(
            f"operator {name!r}: {place} cannot be compiled: {reason}. A variable has one type, that of its first "
            "assignment; float32(…) and other types convert, and numbers in the text are int64 and float64"
        ) from error


def _kernel(own: OwnKernel, definition: PrimitiveDefinition, attributes: dict, target: Target) -> Kernel:
    types = (*definition.params, *definition.results)
    if len(own.tensors) != len(types):
        raise KernelError(
            f"operator {own.operator!r}: its kernel has {len(own.tensors)} parameters that are tensors, "
            f"{', '.join(own.tensors)}; here it needs one for each of {len(definition.params)} inputs and "
            f"{len(definition.results)} outputs"
        )
    write = Writer(definition, target, own.operator)
    tensors = _tensors(write, own.tensors)
    rewrite = Subscripts(own.operator, own.function, tensors, {name: attributes[name] for name in own.attributes})
    counted = " * ".join(tensors[own.tensors[-1]].sizes) or "1"
    elements = sum(estimate(dims.element_count(shape_of(result))) for result in definition.results)
    _write_rounds(write, rewrite, f"{counted} * {costs.OWN_NS}", text_of)
    return write.kernel(elements * costs.OWN_NS)


@dataclass(frozen=True)
class Scratch:
    """A tensor in scratch."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def write_function(
    write: Writer, function: Callable, scratch: Sequence[Scratch], constants: Mapping[str, Any], nanoseconds: str
) -> int:
    """Writes a function of ours, over the inputs, the outputs and tensors in scratch; returns the bytes of these.
    `nanoseconds` is an expression of first sizes, that of `x` being x_0; other known sizes are numbers in the text."""
    tree, used = parsed(function, write.title), 0
    kernel = OwnKernel(write.title, tree)
    tensors = _tensors(write, kernel.tensors[: len(kernel.tensors) - len(scratch)], has_numbers=True)
    for name, each in zip(kernel.tensors[len(tensors) :], scratch, strict=True):
        write(f"{name} = scratch + {used}")
        tensors[name] = Tensor(name, tuple(map(str, each.shape)), each.dtype, True)
        used += each.nbytes
    _write_rounds(write, Subscripts(write.title, tree, tensors, constants), nanoseconds, lines_of)
    return used


def _tensors(write: Writer, names: Sequence[str], has_numbers: bool = False) -> dict[str, Tensor]:
    """The inputs and outputs by these names, and their sizes: words, or after the first axis numbers in the text. Equal sizes of
    an axis have one name: an index of one tensor is one of the other, and is checked for both or none."""
    definition, tensors, sizes = write.definition, dict[str, Tensor](), dict[tuple[int, Dim], str]()
    for number, (name, type_) in enumerate(zip(names, (*definition.params, *definition.results), strict=True)):
        is_output = number >= len(definition.params)
        address = variable(name)
        (write.output(address, number - len(definition.params)) if is_output else write.input(address, number))
        for axis, dim in enumerate(shape_of(type_)):
            if (axis, dim) not in sizes:
                is_number = axis and has_numbers and isinstance(dim, int)
                sizes[axis, dim] = str(dim) if is_number else write.size(f"{address}_{axis}", dim)
        places = tuple(sizes[place] for place in enumerate(shape_of(type_)))
        tensors[name] = Tensor(address, places, type_.dtype, is_output)
    return tensors


def _write_rounds(
    write: Writer, rewrite: Subscripts, nanoseconds: str, lines: Callable[[Sequence[ast.stmt]], list[str]]
) -> None:
    before, loop = rewrite.shared()
    if loop is None:
        write.split("1", "0")
        made = rewrite.statements(before)
    else:
        made = rewrite.statements(before)
        units = rewrite.units(loop, made)
        write(*lines([*made, ast.Assign([ast.Name("units")], units)]))
        write.split("units", nanoseconds)
        made = [rewrite.loop(loop, "first", "last")]
    write(*lines(made))
