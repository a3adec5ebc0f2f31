"""Prints modules; the language is described in `text.py`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from ...formats.constants import constant_type
from ...formats.dtypes import DType
from ...formats.primitive import Primitive, PrimitiveDefinition
from ...formats.text.notation import print_attribute, print_name, print_result_names, print_tensor, quote
from ...formats.text.tables_text import is_inline, print_constants, print_primitive
from ...formats.types import DataType, DataTypeDefinition, FunctionType, TensorType, TupleType, Type
from . import nodes as ir

# Words that a variable's name cannot be, unless it is quoted.
RESERVED = frozenset(
    ["if", "match", "loop", "fn", "call", "closure", "match_shape", "prim", "import", "_"]
) | frozenset(DType.__members__)


class Printable(Protocol):
    """What is printed of a module."""

    @property
    def functions(self) -> Mapping[str, ir.Function]: ...
    @property
    def data_types(self) -> Mapping[str, DataTypeDefinition]: ...
    @property
    def imports(self) -> Mapping[str, FunctionType]: ...


def print_module(module: Printable, *, constants_file: str | os.PathLike | None = None, elide: bool = False) -> str:
    """The module's text. Constants of more than 64 elements are written as base64; with `constants_file`, into that file, to
    which the text refers; with `elide`, not at all (then the text is for reading only)."""
    return _Printer(module).module(constants_file, elide)


def print_type(type_: Type) -> str:
    """A type, its names quoted where they are not words."""
    if isinstance(type_, TensorType):
        return str(type_)
    if isinstance(type_, TupleType):
        return _tuple(map(print_type, type_.fields))
    if isinstance(type_, FunctionType):
        return f"fn({', '.join(map(print_type, type_.params))}) -> {print_type(type_.result)}"
    if isinstance(type_, DataType) and type_.arguments:
        return f"{print_name(type_.name)}[{', '.join(map(print_type, type_.arguments))}]"
    return print_name(type_.name)


def _tuple(parts: Iterable[str]) -> str:
    texts = list(parts)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _print_data_type(definition: DataTypeDefinition) -> str:
    parameters = f"[{', '.join(map(print_name, definition.parameters))}]" if definition.parameters else ""
    cases = [
        print_name(case.name) + (f"({', '.join(map(print_type, case.fields))})" if case.fields else "")
        for case in definition.constructors
    ]
    return f"data {print_name(definition.name)}{parameters} = {' | '.join(cases)}".rstrip()


def _expressions(module: Printable) -> Iterator[ir.Expr]:
    """All expressions and block results, in the order of the text."""

    def of_block(block: ir.Block) -> Iterator[ir.Expr]:
        for binding in block.bindings:
            yield binding.value
            for inner in ir.blocks_of(binding.value):
                yield from of_block(inner)
        yield block.result

    for function in module.functions.values():
        yield from of_block(function.body)


class _Printer:
    def __init__(self, module: Printable) -> None:
        self.module_ = module
        self.large: dict[int, np.ndarray] = {}
        self.definitions: dict[int, PrimitiveDefinition] = {}
        for expr in _expressions(module):
            for atom in ir.atoms_of(expr):
                if isinstance(atom, ir.Constant) and not is_inline(atom.array):
                    self.large.setdefault(id(atom.array), atom.array)
            if isinstance(expr, ir.PrimitiveCall):
                self.definitions.setdefault(id(expr.definition), expr.definition)
        self.constant_names = {key: f"c{number}" for number, key in enumerate(self.large)}
        self.primitive_names = {key: f"p{number}" for number, key in enumerate(self.definitions)}
        self.names: dict[ir.Var, str] = {}
        self.visible: set[str] = set()

    def module(self, constants_file: str | os.PathLike | None, elide: bool) -> str:
        primitives = [
            print_primitive(Primitive(self.primitive_names[key], definition))
            for key, definition in self.definitions.items()
        ]
        imports = [f"import {print_name(name)}: {print_type(type_)}" for name, type_ in self.module_.imports.items()]
        tables = [
            [_print_data_type(definition) for definition in self.module_.data_types.values()],
            print_constants(list(self.large.values()), constants_file, elide),
            primitives,
            imports,
        ]
        functions = [
            f"func @{print_name(name)}{self.function(function, '')}"
            for name, function in self.module_.functions.items()
        ]
        parts = ["\n".join(lines) for lines in tables if lines] + functions
        return "\n\n".join(parts) + "\n" if parts else ""

    # ---- names ----

    def bind(self, var: ir.Var) -> str:
        """The variable's name here, with a number if another visible variable has it, and its type."""
        name, number = var.name, 0
        while name in self.visible:
            number += 1
            name = f"{var.name}_{number}"
        self.names[var] = name
        self.visible.add(name)
        return f"{_print_variable(name)}: {print_type(var.type)}" if var.type is not None else _print_variable(name)

    def forget(self, variables: Iterable[ir.Var]) -> None:
        self.visible.difference_update(self.names[var] for var in variables)

    # ---- blocks ----

    def function(self, function: ir.Function, indent: str) -> str:
        """Parameters, result and body."""
        own = len(function.params) - function.captured
        params = f"({', '.join(map(self.bind, function.params[:own]))})"
        captured = f" captures ({', '.join(map(self.bind, function.params[own:]))})" if function.captured else ""
        result = f" -> {print_type(function.result_type)}" if function.result_type is not None else ""
        result += print_result_names(function.result_names)
        text = f"{params}{captured}{result} {self.block(function.body, indent)}"
        self.forget(function.params)
        return text

    def block(self, block: ir.Block, indent: str) -> str:
        inner = indent + "  "
        lines = ["{"]
        for binding in block.bindings:
            value = self.expression(binding.value, inner)
            origin = f"  from {quote(binding.origin)}" if binding.origin else ""
            lines.append(f"{inner}{self.bind(binding.var)} = {value}{origin}")
        lines += [inner + self.atom(block.result), indent + "}"]
        self.forget(binding.var for binding in block.bindings)
        return "\n".join(lines)

    # ---- expressions ----

    def atom(self, atom: ir.Atom) -> str:
        if isinstance(atom, ir.GlobalRef):
            return f"@{print_name(atom.name)}"
        if isinstance(atom, ir.Var):
            return _print_variable(self.names.get(atom, f"{atom.name} (not bound)"))
        if id(atom.array) in self.constant_names:
            return f"${self.constant_names[id(atom.array)]}"
        if atom.array.ndim == 0:
            return f"{'~' if atom.weak else ''}{atom.type.dtype.name}({print_tensor(atom.array)})"
        return f"{constant_type(atom.array)} {print_tensor(atom.array)}"

    def atoms(self, atoms: Sequence[ir.Atom]) -> str:
        return f"({', '.join(map(self.atom, atoms))})"

    def expression(self, expr: ir.Expr, indent: str) -> str:
        if isinstance(expr, (ir.Var, ir.Constant, ir.GlobalRef)):
            return self.atom(expr)
        return getattr(self, type(expr).__name__)(expr, indent)

    def OperatorCall(self, expr: ir.OperatorCall, _: str) -> str:
        attributes = ", ".join(f"{print_name(name)}={print_attribute(value)}" for name, value in expr.attributes)
        return f"{print_name(expr.operator)}{self.atoms(expr.args)}{f' {{{attributes}}}' if attributes else ''}"

    def PrimitiveCall(self, expr: ir.PrimitiveCall, _: str) -> str:
        return f"prim {self.primitive_names[id(expr.definition)]}{self.atoms(expr.args)}"

    def Call(self, expr: ir.Call, _: str) -> str:
        prefix = "" if isinstance(expr.callee, ir.GlobalRef) else "call "
        return f"{prefix}{self.atom(expr.callee)}{self.atoms(expr.args)}"

    def ImportCall(self, expr: ir.ImportCall, _: str) -> str:
        return f"import {print_name(expr.name)}{self.atoms(expr.args)}"

    def MakeTuple(self, expr: ir.MakeTuple, _: str) -> str:
        return _tuple(map(self.atom, expr.fields))

    def GetItem(self, expr: ir.GetItem, _: str) -> str:
        return f"{self.atom(expr.tuple)}[{expr.index}]"

    def Construct(self, expr: ir.Construct, _: str) -> str:
        return f"{print_name(expr.data_type)}::{print_name(expr.constructor)}{self.atoms(expr.args)}"

    def Function(self, expr: ir.Function, indent: str) -> str:
        return (
            f"fn {print_name(expr.name)}{self.function(expr, indent)}"
            if expr.name
            else f"fn{self.function(expr, indent)}"
        )

    def MakeClosure(self, expr: ir.MakeClosure, _: str) -> str:
        return f"closure @{print_name(expr.function)}{self.atoms(expr.captured)}"

    def If(self, expr: ir.If, indent: str) -> str:
        then, otherwise = self.block(expr.then, indent), self.block(expr.otherwise, indent)
        return f"if {self.atom(expr.condition)} {then} else {otherwise}"

    def Match(self, expr: ir.Match, indent: str) -> str:
        lines = [f"match {self.atom(expr.value)} {{"]
        for pattern, block in expr.clauses:
            lines.append(f"{indent}  {self.pattern(pattern)} => {self.block(block, indent + '  ')}")
            self.forget(ir.pattern_vars(pattern))
        return "\n".join([*lines, indent + "}"])

    def Loop(self, expr: ir.Loop, indent: str) -> str:
        starts = [self.atom(initial) for initial in expr.initial]
        variables = ", ".join(f"{self.bind(v)} = {start}" for v, start in zip(expr.variables, starts, strict=True))
        blocks = f"while {self.block(expr.condition, indent)} do {self.block(expr.body, indent)}"
        self.forget(expr.variables)
        return f"loop ({variables}) {blocks}"

    def MatchShape(self, expr: ir.MatchShape, _: str) -> str:
        return f"match_shape {self.atom(expr.value)} [{', '.join(map(str, expr.shape))}]"

    def pattern(self, pattern: ir.Pattern) -> str:
        if isinstance(pattern, ir.Wildcard):
            return "_"
        if isinstance(pattern, ir.Bind):
            return self.bind(pattern.var)
        if isinstance(pattern, ir.TuplePattern):
            return _tuple(map(self.pattern, pattern.fields))
        return f"{print_name(pattern.constructor)}({', '.join(map(self.pattern, pattern.fields))})"


def _print_variable(name: str) -> str:
    return quote(name) if name in RESERVED else print_name(name)
