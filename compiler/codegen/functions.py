"""Code generation: from a typed module, with closures lifted and operators fused, to a program of the machine.

Each function goes through `lowering` (linear code), `result_shape`, `memory` (allocation of tensors) and `registers`; the
rest, here, is encoding its instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...formats.bytecode import CodeBuilder, code_array, int_register
from ...formats.bytecode import Label as Target
from ...formats.isa import Kind
from ...formats.program import Function, Import, Program, ProgramDevice, SourceLocation
from ...formats.types import Constructor, DataTypeDefinition, TupleType, erase_dims
from ...formats.weight_table import WeightTable
from .. import ir
from ..builder.anf import distinct
from ..ir.analysis import function_type
from . import memory, registers
from .liveness import analyse
from .lowering import lower
from .memory import MemoryReport
from .registers import Allocation
from .result_shape import make_in_last_shape
from .tables import Tables
from .virtual import Label, Operand, Register, VirtualFunction


@dataclass(frozen=True)
class Generated:
    """A program, and the memory planner's report for each of its functions."""

    program: Program
    memory: tuple[MemoryReport, ...]
    constants: Mapping[int, ir.Weight] = field(default_factory=dict)  # replaceable ones, by their indices
    weights: WeightTable = field(default_factory=WeightTable)


def generate(
    module: ir.Module, metadata: Mapping[str, str] | None = None, devices: Sequence[ProgramDevice] = ()
) -> Generated:
    """The program of a module. Its types are inferred, its closures lifted, its data types monomorphic; they name these devices.

    Raises CompileError if a shape cannot be computed.
    """
    tables = Tables(module, [device.name for device in devices])
    functions: list[Function] = []
    words: list[list[int]] = []
    reports: list[MemoryReport] = []
    sources: list[SourceLocation] = []
    start = 0
    for index, (name, function) in enumerate(module.functions.items()):
        code = lower(name, function, tables)
        make_in_last_shape(code, tables.type)
        report = memory.plan(code, tables.definition)
        allocation = registers.allocate(code, analyse(code))
        body, nodes = _write(code, allocation)
        sources += [SourceLocation(index, offset, node) for offset, node in nodes]
        functions.append(_describe(name, function, allocation, report, start, len(body)))
        words.append(body)
        reports.append(report)
        start += len(body)
    program = Program(
        functions=tuple(functions),
        constants=tables.constants(),
        primitives=tables.primitives(),
        code=code_array(words),
        types=tables.types(),
        data_types=tuple(map(_erased, module.data_types.values())),
        source_map=tuple(sources),
        metadata=dict(metadata or {}),
        imports=tuple(Import(name, type_) for name, type_ in module.imports.items()),
        devices=tuple(devices),
        placed=tables.placed,
    )
    return Generated(program, tuple(reports), tables.weights)


def _describe(
    name: str, function: ir.Function, allocation: Allocation, report: MemoryReport, start: int, length: int
) -> Function:
    type_ = function_type(function)
    results = len(type_.result.fields) if isinstance(type_.result, TupleType) else 1
    return Function(
        name=name,
        param_names=distinct([param.name for param in function.params]),
        type=type_,
        captured=function.captured,
        ref_registers=allocation.ref_registers,
        int_registers=allocation.int_registers,
        frame_bytes=report.frame_bytes,
        start=start,
        length=length,
        result_names=function.result_names if len(function.result_names) == results else (),
    )


def _erased(definition: DataTypeDefinition) -> DataTypeDefinition:
    constructors = tuple(Constructor(c.name, tuple(map(erase_dims, c.fields))) for c in definition.constructors)
    return DataTypeDefinition(definition.name, definition.parameters, constructors)


def _write(function: VirtualFunction, allocation: Allocation) -> tuple[list[int], list[tuple[int, str]]]:
    """The words of a function, and the model nodes that its instructions come from."""
    code = CodeBuilder()
    targets: dict[Label, Target] = {item: code.label() for item in function.items if isinstance(item, Label)}

    def word(kind: Kind, operand: Operand) -> object:
        if isinstance(operand, tuple):
            return [word(kind, element) for element in operand]
        if isinstance(operand, Label):
            return targets[operand]
        if isinstance(operand, Register):
            number = allocation.numbers[operand]
            return int_register(number) if kind is Kind.DIM else number
        return operand

    for item in function.items:
        if isinstance(item, Label):
            code.place(targets[item])
        elif not allocation.is_void(item):
            code.node = item.origin
            forms = item.operation.fields
            pairs = zip(forms, item.operands, strict=True)
            code.emit(item.name, **{form.name: word(form.kind, operand) for form, operand in pairs})
    return code.finish()
