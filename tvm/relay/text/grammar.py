"""Relay's text read: definitions of functions and data types, and expressions.

    module      version (#[import = "prelude.rly"] | definition | data type)* metadata?
    definition  "def" @name parameters block
    parameters  ("[" names "]")? "(" %name (":" type)? …, key "=" value … ")" ("->" type)?
    data type   "extern"? "type" name ("[" names "]")? ("{" name ("(" types ")")? … "}")?
    block       "{" sequence "}"
    sequence    (("let" %name (":" type)? "=" | %number "=")? binary ";" | "free_var" %name (":" type)? ";")* binary
    binary      call (("*" | "/" | "+" | "-" | "<" | "<=" | ">" | ">=" | "==" | "!=") call)*
    call        atom ("(" (sequence | key "=" value) … ")" | "." number)*
    atom        number | %name | %number | @name | name | meta | tuple | "(" sequence ")" | block
                | "fn" parameters block | "if" "(" sequence ")" block "else" block
                | ("match" | "match?") atom "{" pattern "=>" sequence … "}"

Expressions are read by generators (`visit.run`): text may be nested as deep as it likes. %1 means the same wherever it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....formats.dims import SymbolicDim
from ....formats.messages.errors import FormatError, TreadleError
from ...files.node_json import UnknownNode, load
from .. import adt, ty
from ..expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Op,
    Tuple,
    TupleGetItem,
    Var,
    next_place,
)
from ..module import IRModule
from ..op.table import ROWS, call_operator
from ..visit import Walk, run
from .scalars import read_number, read_scalar
from .scopes import Scope
from .stream import Stream
from .tokens import Token, word
from .types import TypeReader

VERSION = "0.0.5"  # of the text

_BINARY = {
    "*": ("multiply", 3),
    "/": ("divide", 3),
    "+": ("add", 2),
    "-": ("subtract", 2),
    "<": ("less", 1),
    ">": ("greater", 1),
    "<=": ("less_equal", 1),
    ">=": ("greater_equal", 1),
    "==": ("equal", 0),
    "!=": ("not_equal", 0),
}  # the operator, and how strongly it binds
_ATOMIC = (Constant, GlobalVar, Op, Var, adt.Constructor)  # which are where they are used


def parse_module(text: str, module: IRModule | None = None, meta: Mapping[str, Sequence] | None = None) -> IRModule:
    """The module of a text; what it defines goes into `module` where one is given, of which the text may use functions and types.
    `meta` are entries of `meta[…]` after those of the text. Raises TextError."""
    return _Reader(text, IRModule() if module is None else module, meta).module_()


def parse_expression(text: str) -> Expr:
    """The expression of a text. Raises TextError."""
    return _Reader(text, IRModule(), None).expression()


class _Reader:
    def __init__(self, text: str, module: IRModule, meta: Mapping[str, Sequence] | None) -> None:
        self.stream, self.module = Stream(text), module
        self.names, self.type_names = Scope(), Scope()
        self.types = TypeReader(self.stream, self.type_names, self._meta)
        self.graph: dict[str, Expr] = {}
        self.constructors = _constructors(module)
        self.used: dict[str, Token] = {}  # functions, where they are used first
        self.meta = self._metadata(meta or {})

    # ---- the whole ----

    def _metadata(self, more: Mapping[str, Sequence]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        last = self.stream.tokens[-2:-1]
        if last and last[0].kind == "metadata":
            try:
                found = load(last[0].value)
            except FormatError as error:
                raise self.stream.error(error.message, last[0]) from None
            del self.stream.tokens[-2]
        for kind, entries in more.items():
            found.setdefault(str(kind), []).extend(entries)
        return found

    def _version(self, required: bool) -> None:
        if self.stream.at("version"):
            token = self.stream.step()
            if token.value != VERSION:
                raise self.stream.error(f'version "{token.value}" of the text; "{VERSION}" is read', token)
        elif required:
            raise self.stream.unexpected(f'#[version = "{VERSION}"]')

    def module_(self) -> IRModule:
        self._version(required=True)
        own: set[str] = set()
        while not self.stream.at("end"):
            if self.stream.at("import"):
                self._import()
            elif self.stream.accept("keyword", "def"):
                self._definition(own)
            else:
                self._data_type()
        for name, token in self.used.items():
            if name not in self.module:
                raise self.stream.error(f"there is no function @{name}", token)
        return self.module

    def expression(self) -> Expr:
        self._version(required=False)
        made = run(self.sequence())
        if not self.stream.at("end"):
            raise self.stream.unexpected("the end of the text")
        return made

    def _import(self) -> None:
        token = self.stream.step()
        try:
            self.module.import_from_std(token.value)
        except ValueError as error:
            raise self.stream.error(str(error), token) from None
        self.constructors = _constructors(self.module)

    # ---- definitions ----

    def _definition(self, own: set[str]) -> None:
        token = self.stream.take("global", "@ and the name of a function")
        if token.value in own:
            raise self.stream.error(f"a function @{token.value} is defined already", token)
        own.add(token.value)
        if self.stream.at_mark("="):
            raise self.stream.error("a function of another compiler (`= meta[…]`) is not read")
        self.module[token.value] = run(self.function())

    def _data_type(self) -> None:
        external = self.stream.accept("keyword", "extern")
        self.stream.take("keyword", "def, type or extern type", "type")
        token = self.stream.take("word", "the name of a data type")
        if token.value in self.module._data_types:
            raise self.stream.error(f"a data type {token.value} is defined already", token)
        header, mark = ty.GlobalTypeVar(token.value), self.type_names.mark()
        parameters = self.types.parameters()
        cases: list[adt.Constructor] = []
        if self.stream.at_mark("{"):
            if external:
                raise self.stream.error("a data type that is extern has no constructors")
            cases = self.stream.several("{", "}", lambda: self._constructor(header))
        self.type_names.reset(mark)
        self.module[header] = adt.TypeData(header, parameters, cases)

    def _constructor(self, header: ty.GlobalTypeVar) -> adt.Constructor:
        token = self.stream.take("word", "the name of a constructor")
        if token.value in self.constructors:
            raise self.stream.error(f"a constructor {token.value} is defined already", token)
        fields = self.stream.several("(", ")", self.types.type) if self.stream.at_mark("(") else []
        made = self.constructors[token.value] = adt.Constructor(token.value, fields, header)
        return made

    def function(self) -> Walk:
        """Parameters and body, what comes before them read."""
        mark, type_mark = self.names.mark(), self.type_names.mark()
        type_params = self.types.parameters()
        params, attributes = yield self._listed(self._parameter)
        result = self.types.type() if self.stream.accept("mark", "->") else None
        body = yield self.block()
        self.names.reset(mark)
        self.type_names.reset(type_mark)
        return Function(params, body, result, type_params, attributes)

    def _listed(self, one: Callable[[], Walk]) -> Walk:
        """What lies between brackets: what `one` reads, in order, and values by their keys."""
        found, attributes = [], {}
        self.stream.take("mark", "(", "(")
        while not self.stream.accept("mark", ")"):
            if self._at_key():
                key, value = yield self._attribute()
                attributes[key] = value
            else:
                found.append((yield one()))
            if not self.stream.at_mark(")"):
                self.stream.take("mark", ",` or `)", ",")
        return found, attributes

    def _parameter(self) -> Walk:
        return self._variable()
        yield

    def _variable(self) -> Var:
        """A variable that is bound here, with its type."""
        token = self.stream.take("local", "a variable")
        if self.stream.at_mark("{"):
            raise self.stream.error("the virtual device of a variable is not read")
        type_, span = self._annotation(), self.stream.span
        told = span.source_name.name if span is not None else ""
        is_its = told and re.fullmatch(rf"{re.escape(word(told))}(_\d+)?", token.value)  # a name that is no word
        made = Var(told if is_its else token.value, type_)
        made.span = span
        self.names.bind(token.value, made)
        return made

    def _annotation(self) -> ty.Type | None:
        if not self.stream.accept("mark", ":"):
            return None
        type_ = self.types.type()
        return None if isinstance(type_, ty.IncompleteType) else type_

    # ---- sequences ----

    def block(self) -> Walk:
        self.stream.take("mark", "{", "{")
        made = yield self.sequence()
        self.stream.take("mark", "}", "}")
        return made

    def sequence(self) -> Walk:
        """Bindings, then the expression that is the value."""
        stream, mark = self.stream, self.names.mark()
        bound: list[tuple[Var, Expr]] = []
        while True:
            if stream.accept("keyword", "free_var"):
                self._variable()
            elif stream.accept("keyword", "let"):
                variable = self._variable()
                stream.take("mark", "=", "=")
                bound.append((variable, (yield self.placed())))
            elif stream.at("graph") and stream.following.kind == "mark" and stream.following.value == "=":
                name = stream.step().value
                stream.step()
                self.graph[name] = yield self.placed()
            else:
                body = yield self.placed()
                if not stream.accept("mark", ";"):
                    break
                bound.append((Var("_"), body))
                continue
            stream.take("mark", ";", ";")
        self.names.reset(mark)
        for variable, value in reversed(bound):
            body = Let(variable, value, body)
        return body

    def placed(self) -> Walk:
        """An expression that has a line of its own."""
        made = yield self.binary()
        if made.place is None and not isinstance(made, _ATOMIC):
            made.place, made.span = next_place(), self.stream.span
        return made

    def binary(self) -> Walk:
        """Calls with signs between them; signs that bind as strongly group from the left."""
        operands: list[Expr] = [(yield self.call())]
        signs: list[Token] = []
        while self.stream.token.kind == "mark" and self.stream.token.value in _BINARY:
            token = self.stream.step()
            while signs and _BINARY[signs[-1].value][1] >= _BINARY[token.value][1]:
                self._join(operands, signs.pop())
            signs.append(token)
            operands.append((yield self.call()))
        while signs:
            self._join(operands, signs.pop())
        return operands[0]

    def _join(self, operands: list[Expr], sign: Token) -> None:
        right, left = operands.pop(), operands.pop()
        operands.append(self._operator(_BINARY[sign.value][0], sign, [left, right], {}))

    # ---- calls ----

    def call(self) -> Walk:
        token = self.stream.token
        made = yield self.atom()
        while True:
            if self.stream.at_mark("("):
                made = yield self._called(made, token)
            elif self.stream.accept("mark", "."):
                made = TupleGetItem(made, int(self.stream.take("index", "the number of an item").value))
            else:
                break
        return Call(made, []) if isinstance(made, adt.Constructor) and not made.inputs else made

    def _at_key(self) -> bool:
        following = self.stream.following
        return self.stream.at("word") and following.kind == "mark" and following.value == "="

    def _called(self, callee: Any, token: Token) -> Walk:
        args, attributes = yield self._listed(self.sequence)
        if isinstance(callee, _Named):
            return self._operator(callee.name, token, args, attributes)
        if isinstance(callee, adt.Constructor) and len(args) != len(callee.inputs):
            count = len(callee.inputs)
            raise self.stream.error(f"{callee.name_hint} has {count} fields, got {len(args)} arguments", token)
        return Call(callee, args, attributes or None)

    def _operator(self, name: str, token: Token, args: list[Expr], attributes: dict[str, Any]) -> Expr:
        try:
            return call_operator(name, args, attributes)
        except (TypeError, ValueError, NotImplementedError, TreadleError) as error:
            raise self.stream.error(f"{name}: {error}", token) from None

    def _attribute(self) -> Walk:
        key = self.stream.step().value
        self.stream.take("mark", "=", "=")
        return key, (yield self._value())

    def _value(self) -> Walk:
        """An attribute's value: a number, text, None, a list, or an expression."""
        stream = self.stream
        if stream.at("string"):
            return _unescaped(stream.step().value)
        if stream.accept("word", "None", "nullptr"):
            return None
        if stream.at_mark("["):
            stream.step()
            made = []
            while not stream.accept("mark", "]"):
                made.append((yield self._value()))
                if not stream.at_mark("]"):
                    stream.take("mark", ",` or `]", ",")
            return tuple(made)
        if stream.at("meta"):
            return self._meta()
        if stream.accept("mark", "?"):
            return ty.Any()
        if stream.at("word", "True", "False"):
            return stream.step().value == "True"
        if stream.at("number") or stream.at_mark("-"):
            return self._number(read_number)
        return (yield self.atom())

    # ---- atoms ----

    def atom(self) -> Walk:
        token = self.stream.token
        if token.kind == "number" or (token.kind == "mark" and token.value == "-"):
            return Constant(self._number(read_scalar))
        if token.kind == "mark" and token.value == "(":
            return (yield self._tuple())
        if token.kind == "mark" and token.value == "{":
            return (yield self.block())
        read = _ATOMS.get((token.kind, token.value)) or _ATOMS.get((token.kind, ""))
        if read is None:
            raise self.stream.unexpected("an expression")
        self.stream.step()
        made = read(self, token)
        return (yield made) if hasattr(made, "send") else made

    def _number(self, read: Callable[[str, bool], Any]) -> Any:
        negative = False
        while self.stream.accept("mark", "-"):
            negative = not negative
        token = self.stream.take("number", "a number")
        try:
            return read(token.value, negative)
        except ValueError as error:
            raise self.stream.error(str(error), token) from None

    def _tuple(self) -> Walk:
        self.stream.step()
        fields: list[Expr] = []
        while not self.stream.accept("mark", ")"):
            fields.append((yield self.sequence()))
            if not fields[1:] and self.stream.accept("mark", ")"):
                return fields[0]
            if not self.stream.at_mark(")"):
                self.stream.take("mark", ",` or `)", ",")
        return Tuple(fields)

    def _local(self, token: Token) -> Var:
        found = self.names.get(token.value)
        if found is None:
            raise self.stream.error(f"expected a variable that is bound here, found {token}", token)
        return found

    def _graph(self, token: Token) -> Expr:
        if token.value not in self.graph:
            raise self.stream.error(f"expected an expression with a number, found {token}, which has none", token)
        return self.graph[token.value]

    def _global(self, token: Token) -> GlobalVar:
        self.used.setdefault(token.value, token)
        return self.module._variables.get(token.value) or GlobalVar(token.value)

    def _word(self, token: Token) -> Any:
        if token.value in ("True", "False"):
            import numpy as np

            return Constant(np.array(token.value == "True"))
        if token.value in self.constructors:
            return self.constructors[token.value]
        if token.value.removeprefix("dyn.") not in ROWS:
            raise self.stream.error(f"there is no operator or constructor {token}", token)
        return _Named(token.value) if self.stream.at_mark("(") else _Named(token.value).op

    def _meta(self, token: Token | None = None) -> Any:
        token = self.stream.step() if token is None else token
        entries = self.meta.get(token.value, [])
        if token.number >= len(entries):
            raise self.stream.error(f"meta[{token.value}] has {len(entries)} entries, {token.number} is none", token)
        found = entries[token.number]
        if isinstance(found, UnknownNode):
            raise self.stream.error(f"meta: a {found.kind} is not read; tensors and dimensions are", token)
        if not isinstance(found, (Expr, SymbolicDim)):
            found = entries[token.number] = Constant.of(found)
            found.place = None if found.array.ndim else next_place()  # or it would stand in the text
        return found

    def _meta_expr(self, token: Token) -> Expr:
        found = self._meta(token)
        if not isinstance(found, Expr):
            raise self.stream.error("expected an expression in the metadata", token)
        return found

    def _if(self, _: Token) -> Walk:
        self.stream.take("mark", "(", "(")
        condition = yield self.sequence()
        self.stream.take("mark", ")", ")")
        then = yield self.block()
        self.stream.take("keyword", "else", "else")
        return If(condition, then, (yield self.block()))

    def _match(self, token: Token) -> Walk:
        value = yield self.atom()
        self.stream.take("mark", "{", "{")
        clauses = []
        while not self.stream.accept("mark", "}"):
            mark = self.names.mark()
            pattern = yield self._pattern()
            self.stream.take("mark", "=>", "=>")
            clauses.append(adt.Clause(pattern, (yield self.sequence())))
            self.names.reset(mark)
            if not self.stream.at_mark("}"):
                self.stream.take("mark", ",` or `}", ",")
        return adt.Match(value, clauses, complete=token.value == "match")

    def _pattern(self) -> Walk:
        stream = self.stream
        if stream.accept("word", "_"):
            return adt.PatternWildcard()
        if stream.at("local"):
            return adt.PatternVar(self._variable())
        token = stream.token
        constructor = None
        if stream.accept("word"):
            constructor = self.constructors.get(token.value)
            if constructor is None:
                raise stream.error(f"there is no constructor {token}; a variable is %{token.value}", token)
        parts = []
        if constructor is None or stream.at_mark("("):
            stream.take("mark", "(", "(")
            while not stream.accept("mark", ")"):
                parts.append((yield self._pattern()))
                if not stream.at_mark(")"):
                    stream.take("mark", ",` or `)", ",")
        return adt.PatternTuple(parts) if constructor is None else adt.PatternConstructor(constructor, parts)


class _Named(Expr):
    """An operator that is called: `dyn.reshape` is `reshape`, whose shape may be a tensor."""

    def __init__(self, name: str) -> None:
        self.name = name.removeprefix("dyn.")

    @property
    def op(self) -> Expr:
        return Op.get(self.name)


_ATOMS: dict[tuple[str, str], Callable[[_Reader, Token], Any]] = {
    ("local", ""): _Reader._local,
    ("graph", ""): _Reader._graph,
    ("global", ""): _Reader._global,
    ("word", ""): _Reader._word,
    ("meta", ""): _Reader._meta_expr,
    ("keyword", "fn"): lambda reader, _: reader.function(),
    ("keyword", "if"): _Reader._if,
    ("keyword", "match"): _Reader._match,
    ("keyword", "match?"): _Reader._match,
}


def _constructors(module: IRModule) -> dict[str, adt.Constructor]:
    return {each.name_hint: each for several in module._constructors.values() for each in several}


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found.group(1), found.group(1)), text, flags=re.DOTALL)
