"""Questions that passes and code generation ask of the IR: types of atoms, free variables, dimensions in types."""

from __future__ import annotations

from collections.abc import Iterator

from ...formats import dims
from ...formats.dims import SymbolicDim
from ...formats.primitive import PrimitiveDefinition
from ...formats.types import FunctionType, TensorType, Type, types_in
from .. import ir


def function_type(function: ir.Function) -> FunctionType:
    """The type of a function whose types are inferred."""
    assert function.result_type is not None
    return FunctionType(tuple(param.type for param in function.params), function.result_type)  # type: ignore[misc]


def type_of(atom: ir.Atom, module: ir.Module) -> Type:
    """The type of an atom of a typed module."""
    if isinstance(atom, ir.GlobalRef):
        return function_type(module.functions[atom.name])
    assert atom.type is not None
    return atom.type


def tensors_in(type_: Type) -> Iterator[TensorType]:
    """The tensor types that `type_` is made of, those of functions' parameters and results included."""
    return (each for each in types_in(type_) if isinstance(each, TensorType))


def dimension_names(type_: Type) -> list[str]:
    """The dimension variables in a type, each once, in order of appearance."""
    names: dict[str, None] = {}
    for tensor in tensors_in(type_):
        for dim in tensor.shape:
            if isinstance(dim, SymbolicDim):
                names.update(dict.fromkeys(dims.variables(dim)))
    return list(names)


def is_symbolic(type_: Type) -> bool:
    """Whether expressions over variables are among the dimensions."""
    return any(isinstance(dim, SymbolicDim) for tensor in tensors_in(type_) for dim in tensor.shape)


def bound_vars(expr: ir.Expr) -> Iterator[ir.Var]:
    """The variables that an expression binds for its blocks: parameters, loop variables, patterns' variables."""
    if isinstance(expr, ir.Function):
        yield from expr.params
    elif isinstance(expr, ir.Loop):
        yield from expr.variables
    elif isinstance(expr, ir.Match):
        for pattern, _ in expr.clauses:
            yield from ir.pattern_vars(pattern)


def expressions(block: ir.Block) -> Iterator[ir.Binding]:
    """All bindings of a block and of the blocks in it, in the order of the text."""
    for binding in block.bindings:
        yield binding
        for inner in ir.blocks_of(binding.value):
            yield from expressions(inner)


def atoms_in(block: ir.Block) -> Iterator[ir.Atom]:
    """Every use of an atom in a block and the blocks in it."""
    for binding in block.bindings:
        yield from ir.atoms_of(binding.value)
        for inner in ir.blocks_of(binding.value):
            yield from atoms_in(inner)
    yield block.result


def called(block: ir.Block) -> Iterator[str]:
    """The global functions that a block refers to."""
    return (atom.name for atom in atoms_in(block) if isinstance(atom, ir.GlobalRef))


def constant_bytes(module: ir.Module) -> int:
    """Bytes of the constants in a module's functions, each counted once."""
    constants = {
        id(atom.array): atom.array.nbytes
        for function in module.functions.values()
        for atom in atoms_in(function.body)
        if isinstance(atom, ir.Constant)
    }
    return sum(constants.values())


def free_vars(function: ir.Function) -> list[ir.Var]:
    """The variables of blocks around `function` that it uses, in order of first use."""
    bound = set(function.params)
    for binding in expressions(function.body):
        bound.add(binding.var)
        bound.update(bound_vars(binding.value))
    used = dict.fromkeys(atom for atom in atoms_in(function.body) if isinstance(atom, ir.Var))
    return [var for var in used if var not in bound]


def dimension_uses(binding: ir.Binding) -> list[str]:
    """The dimension variables that a binding speaks of, in types and attributes, those of its blocks included."""
    names: dict[str, None] = {}
    inner = (found for block in ir.blocks_of(binding.value) for found in expressions(block))
    for found in (binding, *inner):
        for var in (found.var, *bound_vars(found.value)):
            if var.type is not None:
                names.update(dict.fromkeys(dimension_names(var.type)))
        if isinstance(found.value, ir.OperatorCall):
            attributes = tuple(value for _, value in found.value.attributes)
            names.update(dict.fromkeys(PrimitiveDefinition.variables_of((), attributes)))
    return list(names)
