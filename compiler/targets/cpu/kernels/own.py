"""The template of user-defined operators: the user's function, turned into a kernel's text by `subscripts.py`.

def cross(a, b, out):                       # inputs, outputs; attributes of the operator by name after *
    for row in prange(out.shape[0]):        # threads share these rounds
        out[row, 0] = a[row, 1] * b[row, 2] - a[row, 2] * b[row, 1]
        …
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from .....formats import dims
from .....formats.dims import SymbolicDim
from .....formats.messages.errors import CompileError, KernelError
from .....formats.primitive import PrimitiveDefinition
from ....operators.own import OWN, OwnKernel
from ....operators.table import bound_attributes
from .. import costs
from ..target import Target
from .kernel import Kernel
from .subscripts import Subscripts, Tensor, text_of, users_line, variable
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
    tensors: dict[str, Tensor] = {}
    for number, (name, type_) in enumerate(zip(own.tensors, types, strict=True)):
        is_output = number >= len(definition.params)
        address = variable(name)
        (write.output(address, number - len(definition.params)) if is_output else write.input(address, number))
        sizes = tuple(write.size(f"{address}_{axis}", dim) for axis, dim in enumerate(shape_of(type_)))
        tensors[name] = Tensor(address, sizes, type_.dtype, is_output)
    rewrite = Subscripts(own.operator, own.function, tensors, {name: attributes[name] for name in own.attributes})
    before, loop = rewrite.shared()
    elements = sum(estimate(dims.element_count(shape_of(result))) for result in definition.results)
    if loop is None:
        write.split("1", "0")
        made = rewrite.statements(before)
    else:
        made = rewrite.statements(before)
        units = rewrite.units(loop, made)
        _write(write, [*made, ast.Assign([ast.Name("units")], units)])
        counted = " * ".join(tensors[own.tensors[-1]].sizes) or "1"
        write.split("units", f"{counted} * {costs.OWN_NS}")
        made = [rewrite.loop(loop, "first", "last")]
    _write(write, made)
    return write.kernel(elements * costs.OWN_NS)


def _write(write: Writer, statements: list[ast.stmt]) -> None:
    write(*text_of(statements))
