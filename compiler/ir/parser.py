"""Parses modules; the language is described in `text.py`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ...formats.dtypes import DType
from ...formats.messages.errors import InferenceError
from ...formats.messages.names import NAME, near
from ...formats.primitive import PrimitiveDefinition
from ...formats.text import notation
from ...formats.text.tables_text import TableParser
from ...formats.types import (
    Constructor,
    DataType,
    DataTypeDefinition,
    FunctionType,
    TensorType,
    TupleType,
    Type,
    TypeVariable,
)
from .. import ir
from ..check import check_definition
from .printer import RESERVED

BLOCK_NESTING = 100  # blocks in blocks; Python's own recursion ends a little later
_DECLARATION = re.compile(rf"^[ \t]*data[ \t]+({NAME})", re.MULTILINE)


def parse_module(text: str, *, folder: str | os.PathLike | None = None) -> ir.Module:
    """The module that a text stands for. `folder` is where the constants files lie that it names.

    Raises ParseError with line, column and the line itself.
    """
    return _Parser(text, folder).module()


def parse_data_type(text: str) -> DataTypeDefinition:
    """A data type from `List[a] = Nil | Cons(a, List[a])`. Raises ParseError."""
    parser = _Parser(f"data {text}", None)
    parser.module()
    return next(iter(parser.data_types.values()))


def parse_type(text: str) -> Type:
    """A type from `fn(float32[n], List[int64[]]) -> float32[2*n]`; words are data types. Raises ParseError."""
    parser = _Parser(text, None)
    parser.type_parameters = ()
    type_ = parser.type()
    if not parser.scanner.at_end():
        parser.scanner.fail(f"expected the end of the type, {parser.scanner.found()}")
    return type_


class _Parser(TableParser):
    def __init__(self, text: str, folder: str | os.PathLike | None) -> None:
        super().__init__(text, folder)
        self.data_types: dict[str, DataTypeDefinition] = {}
        self.data_type_names = set(_DECLARATION.findall(text))
        self.type_parameters: tuple[str, ...] | None = None  # of the data type that is being read
        self.functions: dict[str, ir.Function] = {}
        self.imports: dict[str, FunctionType] = {}
        self.values: dict[str, ir.Var] = {}  # what the names mean here
        self.definitions: dict[str, PrimitiveDefinition] = {}
        self.shared: dict[str, ir.Constant] = {}
        self.blocks = 0

    def module(self) -> ir.Module:
        self.read_sections(
            {
                "data": self.data,
                "const": self.shared_const,
                "prim": self.definition,
                "import": self.import_,
                "func": self.global_function,
            }
        )
        return ir.Module(self.functions, self.data_types, self.imports)

    # ---- tables ----

    def data(self) -> None:
        scanner = self.scanner
        start = scanner.skip()
        name = scanner.name("a data type's name")
        if name in self.data_types:
            scanner.fail(f"there is a data type {name!r} already", start)
        parameters = scanner.listed(lambda: scanner.name("a type variable"), "[", "]") if scanner.peek("[") else []
        self.type_parameters = tuple(parameters)
        scanner.expect("=")
        constructors: list[Constructor] = []
        if scanner.on_this_line() or scanner.peek("|"):
            constructors.append(self.constructor())
        while scanner.accept("|"):
            constructors.append(self.constructor())
        self.type_parameters = None
        self.data_types[name] = DataTypeDefinition(name, tuple(parameters), tuple(constructors))

    def constructor(self) -> Constructor:
        name = self.scanner.name("a constructor")
        has_fields = self.scanner.on_this_line() and self.scanner.peek("(")
        return Constructor(name, tuple(self.scanner.listed(self.type)) if has_fields else ())

    def shared_const(self) -> None:
        self.const()
        self.shared[list(self.constant_names)[-1]] = ir.Constant(self.constants[-1])

    def definition(self) -> None:
        start = self.scanner.skip()
        self.prim()
        primitive = self.primitives[-1]
        try:
            check_definition(primitive.definition, primitive.name)
        except InferenceError as error:
            self.scanner.fail(str(error), start)
        self.definitions[primitive.name] = primitive.definition

    def import_(self) -> None:
        start = self.scanner.skip()
        name = self.scanner.name("an import's name")
        if name in self.imports:
            self.scanner.fail(f"there is an import {name!r} already", start)
        self.scanner.expect(":")
        start = self.scanner.skip()
        type_ = self.type()
        if not isinstance(type_, FunctionType):
            self.scanner.fail(f"an import has the type of a function, not {type_}", start)
        self.imports[name] = type_

    # ---- types ----

    def type(self) -> Type:
        return self.scanner.nested(self._type)

    def _type(self) -> Type:
        scanner = self.scanner
        if scanner.peek("("):
            return TupleType(tuple(scanner.listed(self.type)))
        quoted = scanner.peek('"')
        word = scanner.name("a type")
        if quoted or scanner.peek("["):
            if not quoted and word in DType.__members__:
                return TensorType(DType[word], notation.scan_shape(scanner), notation.scan_place(scanner))
            arguments = scanner.listed(self.type, "[", "]") if scanner.peek("[") else []
            return DataType(word, tuple(arguments))
        if word == "fn":
            params = tuple(scanner.listed(self.type))
            scanner.expect("->")
            return FunctionType(params, self.type())
        if self.type_parameters is not None:
            return TypeVariable(word) if word in self.type_parameters else DataType(word)
        return DataType(word) if word in self.data_type_names else TypeVariable(word)

    # ---- functions and blocks ----

    def global_function(self) -> None:
        start = self.scanner.skip()
        self.scanner.expect("@")
        name = self.scanner.name("a function's name")
        if name in self.functions:
            self.scanner.fail(f"there is a function {name!r} already", start)
        self.functions[name] = self.function(name)

    def function(self, name: str) -> ir.Function:
        with self.scope():
            params = self.scanner.listed(self.variable)
            captured = self.scanner.listed(self.variable) if self.scanner.accept_word("captures") else []
            result = self.type() if self.scanner.accept("->") else None
            result_names = notation.scan_result_names(self.scanner)
            return ir.Function((*params, *captured), self.block(), result, name, len(captured), result_names)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names that are bound inside are forgotten after it."""
        outer = self.values
        self.values = dict(outer)
        yield
        self.values = outer

    def variable(self) -> ir.Var:
        """A name that is bound here, and its type if one is given."""
        start = self.scanner.skip()
        name = self.variable_name()
        if name in self.values:
            self.scanner.fail(f"{name!r} is bound already; every visible name means one variable", start)
        var = ir.Var(name, self.type() if self.scanner.accept(":") else None)
        self.values[name] = var
        return var

    def variable_name(self) -> str:
        start = self.scanner.skip()
        quoted = self.scanner.peek('"')
        name = self.scanner.name("a variable's name")
        if name in RESERVED and not quoted:
            self.scanner.fail(f"{name!r} is a word of the language; as a name it is quoted", start)
        return name

    def block(self) -> ir.Block:
        self.blocks += 1
        if self.blocks > BLOCK_NESTING:
            self.scanner.fail(f"blocks nest deeper than {BLOCK_NESTING}")
        self.scanner.expect("{")
        bindings: list[ir.Binding] = []
        with self.scope():
            while self.at_binding():
                bindings.append(self.binding())
            result = self.atom()
        self.scanner.expect("}")
        self.blocks -= 1
        return ir.Block(tuple(bindings), result)

    def at_binding(self) -> bool:
        """True before `name: type = …` or `name = …`."""
        start = self.scanner.skip()
        if self.scanner.peek("@") or self.scanner.peek("$"):
            return False
        self.scanner.name("a variable or a constant")
        found = self.scanner.peek(":") or self.scanner.peek("=")
        self.scanner.at = start
        return found

    def binding(self) -> ir.Binding:
        # the value is read before the name is bound: a binding does not see itself
        start = self.scanner.skip()
        name = self.variable_name()
        if name in self.values:
            self.scanner.fail(f"{name!r} is bound already; every visible name means one variable", start)
        type_ = self.type() if self.scanner.accept(":") else None
        self.scanner.expect("=")
        value = self.expression()
        var = self.values[name] = ir.Var(name, type_)
        return ir.Binding(var, value, self.origin() or "")

    # ---- expressions ----

    def atom(self) -> ir.Atom:
        scanner = self.scanner
        start = scanner.skip()
        if scanner.accept("@"):
            return ir.GlobalRef(scanner.name("a function's name"))
        if scanner.accept("$"):
            name = scanner.word("a constant's name")
            if name not in self.shared:
                scanner.fail(f"there is no constant {name!r}{near(name, self.shared)}", start)
            return self.shared[name]
        if scanner.accept("~"):
            name = scanner.word("an element type")
            if name not in DType.__members__:
                scanner.fail(f"there is no element type {name!r}{near(name, DType.__members__)}", start)
            number = self.literal(DType[name]).value
            if number.ndim:
                scanner.fail("a weak literal is one number, as in ~float32(0.5)", start)
            return ir.Constant(number, weak=True)
        quoted = scanner.peek('"')
        name = scanner.name("a variable or a constant")
        if not quoted and name in DType.__members__:
            return self.literal(DType[name])
        if name not in self.values:
            scanner.fail(f"{name!r} is not bound here", start)
        return self.values[name]

    def literal(self, dtype: DType) -> ir.Constant:
        """A constant after its element type: `float32(1.5)`, `float32[2] [1.0, 2.0]`."""
        scanner = self.scanner
        start = scanner.at
        if scanner.accept("("):
            array = notation.scan_tensor(scanner, TensorType(dtype, ()))
            scanner.expect(")")
        else:
            type_ = TensorType(dtype, notation.scan_shape(scanner))
            if not type_.is_static:
                scanner.fail(f"a constant has a static shape, not {type_}", start)
            array = notation.scan_tensor(scanner, type_)
        array.flags.writeable = False
        return ir.Constant(np.asarray(array))

    def atoms(self) -> tuple[ir.Atom, ...]:
        return tuple(self.scanner.listed(self.atom))

    def expression(self) -> ir.Expr:
        scanner = self.scanner
        if scanner.peek("("):
            return ir.MakeTuple(self.atoms())
        if not (scanner.peek("@") or scanner.peek("$") or scanner.peek('"')):
            start = scanner.skip()
            word = scanner.word("an expression")
            if word in _FORMS:
                return _FORMS[word](self)
            scanner.at = start
            if word not in DType.__members__:
                return self.named_expression()
        return self.atom_expression() if scanner.peek("@") or scanner.peek("$") else self.named_expression()

    def atom_expression(self) -> ir.Expr:
        """A global function or a constant, alone, called, or indexed."""
        atom = self.atom()
        if isinstance(atom, ir.GlobalRef) and self.scanner.peek("("):
            return ir.Call(atom, self.atoms())
        return self.item(atom)

    def item(self, atom: ir.Atom) -> ir.Expr:
        if not self.scanner.accept("["):
            return atom
        index = self.scanner.integer("a field's number", 0)
        self.scanner.expect("]")
        return ir.GetItem(atom, index)

    def named_expression(self) -> ir.Expr:
        """An expression that begins with a name: a variable, a literal, a call of an operator or constructor."""
        scanner = self.scanner
        start = scanner.skip()
        quoted = scanner.peek('"')
        name = scanner.name("an expression")
        is_literal = not quoted and name in DType.__members__
        if not is_literal and scanner.accept("::"):
            return ir.Construct(name, scanner.name("a constructor"), self.atoms())
        if not is_literal and scanner.peek("("):
            args = self.atoms()
            attributes = tuple(scanner.listed(self.attribute, "{", "}")) if scanner.peek("{") else ()
            return ir.OperatorCall(name, args, attributes)
        scanner.at = start
        return self.item(self.atom())

    def call(self) -> ir.Expr:
        return ir.Call(self.atom(), self.atoms())

    def import_call(self) -> ir.Expr:
        return ir.ImportCall(self.scanner.name("an import's name"), self.atoms())

    def closure_of_global(self) -> ir.Expr:
        self.scanner.expect("@")
        return ir.MakeClosure(self.scanner.name("a function's name"), self.atoms())

    def function_expression(self) -> ir.Expr:
        return self.function("" if self.scanner.peek("(") else self.scanner.name("a function's name"))

    def if_(self) -> ir.Expr:
        condition, then = self.atom(), self.block()
        if not self.scanner.accept_word("else"):
            self.scanner.fail(f"expected 'else', {self.scanner.found()}")
        return ir.If(condition, then, self.block())

    def match(self) -> ir.Expr:
        value = self.atom()
        clauses = []
        self.scanner.expect("{")
        while not self.scanner.accept("}"):
            with self.scope():
                pattern = self.pattern()
                self.scanner.expect("=>")
                clauses.append((pattern, self.block()))
        return ir.Match(value, tuple(clauses))

    def pattern(self) -> ir.Pattern:
        return self.scanner.nested(self._pattern)

    def _pattern(self) -> ir.Pattern:
        scanner = self.scanner
        if scanner.accept_word("_"):
            return ir.Wildcard()
        if scanner.peek("("):
            return ir.TuplePattern(tuple(scanner.listed(self.pattern)))
        start = scanner.skip()
        name = scanner.name("a pattern")
        if scanner.peek("("):
            return ir.ConstructorPattern(name, tuple(scanner.listed(self.pattern)))
        scanner.at = start
        return ir.Bind(self.variable())

    def loop(self) -> ir.Expr:
        scanner = self.scanner
        outer = self.values

        def variable() -> tuple[ir.Var, ir.Atom]:
            var = self.variable()
            scanner.expect("=")
            inner, self.values = self.values, outer  # initial values do not see the variables
            initial = self.atom()
            self.values = inner
            return var, initial

        with self.scope():
            pairs = scanner.listed(variable)
            if not scanner.accept_word("while"):
                scanner.fail(f"expected 'while', {scanner.found()}")
            condition = self.block()
            if not scanner.accept_word("do"):
                scanner.fail(f"expected 'do', {scanner.found()}")
            body = self.block()
        return ir.Loop(tuple(var for var, _ in pairs), tuple(initial for _, initial in pairs), condition, body)

    def match_shape(self) -> ir.Expr:
        return ir.MatchShape(self.atom(), notation.scan_shape(self.scanner))

    def primitive_call(self) -> ir.Expr:
        start = self.scanner.skip()
        name = self.scanner.name("a primitive's name")
        if name not in self.definitions:
            self.scanner.fail(f"there is no primitive {name!r}{near(name, self.definitions)}", start)
        return ir.PrimitiveCall(self.definitions[name], self.atoms())


_FORMS: dict[str, Callable[[_Parser], ir.Expr]] = {
    "if": _Parser.if_,
    "match": _Parser.match,
    "loop": _Parser.loop,
    "fn": _Parser.function_expression,
    "call": _Parser.call,
    "closure": _Parser.closure_of_global,
    "match_shape": _Parser.match_shape,
    "prim": _Parser.primitive_call,
    "import": _Parser.import_call,
}
