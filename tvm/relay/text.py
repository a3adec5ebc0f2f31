"""Relay's text of programs, as TVM prints it: each call is a line `%3 = nn.relu(%2);`, the last one the result.

Attributes are shown where they are not the default; constants that are no scalars as `meta[relay.Constant][0]`. Types stand where
variables are declared. The text is for people: `fromtext` does not read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import adt
from .expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Op, Tuple, TupleGetItem, Var
from .op.table import TABLE
from .ty import Type
from .visit import Walk, free_vars, run

_SUFFIXES = {"float32": "f", "float64": "f64", "float16": "f16", "int32": "", "int64": "i64", "bool": ""}


def module_text(functions: Mapping[str, Any]) -> str:
    """The functions of a module."""
    texts = []
    for name, function in functions.items():
        if isinstance(function, Function):
            printer = _Printer()
            texts.append(f"def @{name}{run(printer.function(function))}\n")
    return '#[version = "0.0.5"]\n' + "\n".join(texts)


def expression_text(expr: Expr) -> str:
    """An expression, its free variables declared before it."""
    printer = _Printer()
    declared = [f"free_var {printer.declared(variable)};" for variable in free_vars(expr)]
    text = run(printer.block(expr))
    return (
        '#[version = "0.0.5"]\n'
        + "\n".join([*declared, *(line.removeprefix("  ") for line in text.split("\n"))])
        + "\n"
    )


class _Printer:
    """Writes lines; what an expression is called is known once it is written."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.kept: list[Expr] = []
        self.taken: set[str] = set()
        self.lines: list[str] = []
        self.indent = 1
        self.count = 0
        self.constants = 0

    # ---- names ----

    def declared(self, variable: Var) -> str:
        """A variable with its type, as parameters are written."""
        name, number = variable.name_hint, 0
        while name in self.taken:
            number += 1
            name = f"{variable.name_hint}_{number}"
        self.taken.add(name)
        self._call(variable, f"%{name}")
        type_: Type | None = variable.type_annotation or variable._checked_type
        return f"%{name}" if type_ is None else f"%{name}: {type_}"

    def _call(self, expr: Expr, name: str) -> None:
        self.names[id(expr)] = name
        self.kept.append(expr)

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    # ---- blocks ----

    def block(self, expr: Expr) -> Walk:
        """The lines of a block, whose last one is its result."""
        outer, self.lines = self.lines, []
        known = dict(self.names)
        text = yield self.inline(expr)
        self._line(text)
        lines, self.lines, self.names = self.lines, outer, known
        return "\n".join(lines)

    def nested(self, expr: Expr) -> Walk:
        """A block in braces."""
        self.indent += 1
        text = yield self.block(expr)
        self.indent -= 1
        return "{\n" + text + "\n" + "  " * self.indent + "}"

    def function(self, function: Function) -> Walk:
        types = f"[{', '.join(map(str, function.type_params))}]" if function.type_params else ""
        params = ", ".join(map(self.declared, function.params))
        result = f" -> {function.ret_type}" if function.ret_type is not None else ""
        attributes = "".join(f", {name}={_value(value)}" for name, value in function.attrs.items())
        self.indent -= 1
        body = yield self.nested(function.body)
        self.indent += 1
        return f"{types}({params}{attributes}){result} {body}"

    # ---- expressions ----

    def atom(self, expr: Expr) -> Walk:
        """What an expression is called: calls and whatever is longer than a word have a line of their own first."""
        found = self.names.get(id(expr))
        if found is not None:
            return found
        text = yield self.inline(expr)
        if isinstance(expr, (Constant, GlobalVar, Tuple, TupleGetItem, Op, Var)):
            return text
        name = f"%{self.count}"
        self.count += 1
        self._line(f"{name} = {text};")
        self._call(expr, name)
        return name

    def _many(self, several: Any) -> Walk:
        made = []
        for each in several:
            made.append((yield self.atom(each)))
        return made

    def inline(self, expr: Expr) -> Walk:
        """An expression as text, what it is made of by name."""
        if id(expr) in self.names:
            return self.names[id(expr)]
        if isinstance(expr, Var):
            return f"%{expr.name_hint}"
        if isinstance(expr, GlobalVar):
            return f"@{expr.name_hint}"
        if isinstance(expr, Constant):
            return self._constant(expr)
        if isinstance(expr, Tuple):
            fields = yield self._many(expr.fields)
            return f"({', '.join(fields)}{',' if len(fields) == 1 else ''})"
        if isinstance(expr, TupleGetItem):
            return f"{(yield self.atom(expr.tuple_value))}.{expr.index}"
        if isinstance(expr, Call):
            return (yield self._called(expr))
        if isinstance(expr, Function):
            return "fn " + (yield self._closure(expr))
        if isinstance(expr, If):
            condition = yield self.atom(expr.cond)
            then = yield self.nested(expr.true_branch)
            return f"if ({condition}) {then} else {(yield self.nested(expr.false_branch))}"
        if isinstance(expr, Let):
            return (yield self._lets(expr))
        if isinstance(expr, adt.Match):
            return (yield self._match(expr))
        return repr(expr)

    def _called(self, expr: Call) -> Walk:
        args = yield self._many(expr.args)
        if isinstance(expr.op, Op):
            return f"{expr.op.name}({', '.join([*args, *_attributes(expr)])})"
        if isinstance(expr.op, adt.Constructor):
            return f"{expr.op.name_hint}({', '.join(args)})" if args else expr.op.name_hint
        return f"{(yield self.atom(expr.op))}({', '.join(args)})"

    def _closure(self, function: Function) -> Walk:
        self.indent += 1
        text = yield self.function(function)
        self.indent -= 1
        return text

    def _lets(self, expr: Expr) -> Walk:
        while isinstance(expr, Let):
            name = self.declared(expr.var)
            value = yield self.inline(expr.value)
            self._line(f"let {name} = {value};")
            expr = expr.body
        return (yield self.inline(expr))

    def _match(self, expr: adt.Match) -> Walk:
        value = yield self.atom(expr.data)
        clauses = []
        for clause in expr.clauses:
            pattern = self._pattern(clause.lhs)
            clauses.append(f"{pattern} => {(yield self.nested(clause.rhs))}")
        inner = "".join("\n" + "  " * (self.indent + 1) + f"{each}," for each in clauses)
        return f"match{'' if expr.complete else '?'} ({value}) {{{inner}\n{'  ' * self.indent}}}"

    def _pattern(self, pattern: adt.Pattern) -> str:
        if isinstance(pattern, adt.PatternVar):
            return self.declared(pattern.var)
        if isinstance(pattern, adt.PatternConstructor):
            inner = ", ".join(map(self._pattern, pattern.patterns))
            return f"{pattern.constructor.name_hint}({inner})" if inner else pattern.constructor.name_hint
        if isinstance(pattern, adt.PatternTuple):
            return f"({', '.join(map(self._pattern, pattern.patterns))})"
        return "_"

    def _constant(self, expr: Constant) -> str:
        if expr.array.ndim:
            self.constants += 1
            return f"meta[relay.Constant][{self.constants - 1}]"
        number, dtype = expr.array.item(), expr.array.dtype.name
        text = f"{number:g}" if isinstance(number, float) else str(number)
        return text + _SUFFIXES.get(dtype, dtype)


def _attributes(call: Call) -> list[str]:
    """Those that are not the defaults."""
    parameters = TABLE[call.op.name].signature.parameters
    return [
        f"{name}={_value(value)}"
        for name, value in (call.attrs or {}).items()
        if name not in parameters or not _same(parameters[name].default, value)
    ]


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(np.all(a == b)) if not isinstance(a, (tuple, list)) else tuple(a) == b


def _value(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return f"{value:g}f"
    return str(value)
