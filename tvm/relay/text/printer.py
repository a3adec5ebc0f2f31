"""Relay's text of programs, as TVM prints it: each call is a line `%3 = nn.relu(%2);`, the last one the result.

Attributes are shown where they are not the default, the types that inference found as comments. Constants that are not scalars
stand in the section after the text, as `meta[relay.Constant][0]`. `grammar.py` reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....formats import dims
from ....formats.dims import SymbolicDim
from ...files import node_json
from .. import adt, ty
from ..expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Op, Tuple, TupleGetItem, Var, as_text
from ..loops import while_loop_of
from ..module import IRModule
from ..op.table import ALWAYS_SHOWN, ROWS, Said, operands_by_name
from ..visit import Walk, children, free_vars, preorder, run
from .attributes import same_values, value_text
from .grammar import VERSION
from .scalars import has_text, scalar_text
from .spans import span_text
from .tokens import word

_HEAD = f'#[version = "{VERSION}"]\n'
_LEFT_OUT = "\n/* The metadata is left out; astext() shows it. */\n"
_INLINE = (Constant, GlobalVar, Op, Var, adt.Constructor)  # never a line of their own
_COMMENTED = (Call, Constant, Function, Tuple, TupleGetItem, Var)  # whose types are shown

Annotate = Callable[[Expr], str]


@as_text.register(IRModule)
def module_text(module: IRModule, metadata: bool = True, annotate: Annotate | None = None) -> str:
    """The data types and functions of a module; what it imported is told by the names of the libraries."""
    printer = _Printer(annotate)
    texts = [f'#[import = "{name}"]\n' for name in module._libraries]
    texts += map(printer.data_type, module.own_data_types())
    texts += [printer.definition(name, each) for name, each in module._functions.items() if isinstance(each, Function)]
    return _HEAD + "\n".join(texts) + printer.metadata(metadata)


@as_text.register(Expr)
def expression_text(expr: Expr, metadata: bool = True, annotate: Annotate | None = None) -> str:
    """An expression, its free variables declared before it."""
    printer = _Printer(annotate)
    printer.count_uses(expr)
    text = run(printer.block(printer.result(expr), free_vars(expr), deeper=0))
    return _HEAD + text + printer.metadata(metadata)


class _Printer:
    """Writes lines; what an expression is called is known once it is written."""

    def __init__(self, annotate: Annotate | None) -> None:
        self.annotate = annotate
        self.names: dict[int, str] = {}
        self.kept: list[Expr] = []
        self.taken: set[str] = set()
        self.uses: Counter[int] = Counter()
        self.lines: list[str] = []
        self.indent = 0
        self.count = 0
        self.meta: dict[str, list[Any]] = {}
        self.places: dict[Any, str] = {}

    # ---- the whole ----

    def definition(self, name: str, function: Function) -> str:
        self.names, self.taken, self.uses = {}, set(), Counter()
        self.count_uses(function)
        return f"def @{word(name)}{run(self.function(function, free_vars(function)))}\n"

    def count_uses(self, root: Expr) -> None:
        for expr in preorder(root):
            self.uses.update(id(each) for each in children(expr))

    def data_type(self, data: adt.TypeData) -> str:
        parameters = f"[{', '.join(map(str, data.type_vars))}]" if data.type_vars else ""
        lines = []
        for each in data.constructors:
            fields = f"({', '.join(map(self.type, each.inputs))})" if each.inputs else ""
            lines.append(f"  {each.name_hint}{fields},\n")
        return f"type {data.header.name_hint}{parameters} {{\n{''.join(lines)}}}\n"

    def metadata(self, shown: bool) -> str:
        if not self.meta:
            return ""
        return f"\n#[metadata]\n{node_json.dump(self.meta)}" if shown else _LEFT_OUT

    def _entry(self, kind: str, key: Any, value: Any) -> str:
        """A value among the metadata: where it stands."""
        if key not in self.places:
            entries = self.meta.setdefault(kind, [])
            self.places[key] = f"meta[{kind}][{len(entries)}]"
            entries.append(value)
        return self.places[key]

    # ---- types ----

    def type(self, type_: ty.Type) -> str:
        return ty.text_of(type_, self._dim)

    def _dim(self, dim: SymbolicDim) -> str:
        kind = node_json.VARIABLES[0] if dims.is_variable(dim) else node_json.DIMENSION
        return self._entry(kind, str(dim), dim)

    def _comment(self, expr: Expr) -> str:
        """What is told of an expression after it."""
        if self.annotate is not None:
            return self.annotate(expr)
        is_typed = isinstance(expr, _COMMENTED) and expr._checked_type is not None
        type_ = f" ty={self.type(expr._checked_type)}" if is_typed else ""  # type: ignore[arg-type]
        span = f" span={span_text(expr.span)}" if expr.span is not None else ""
        return f" /*{type_}{span} */" if type_ or span else ""

    # ---- names ----

    def declared(self, variable: Var) -> str:
        """A variable with its type, as parameters are written."""
        hint = word(variable.name_hint)
        name, number = hint, 0
        while name in self.taken:
            number += 1
            name = f"{hint}_{number}"
        self.taken.add(name)
        self._call(variable, f"%{name}")
        type_ = variable.type_annotation
        shown = f"%{name}" if type_ is None else f"%{name}: {self.type(type_)}"
        return shown + self._comment(variable)

    def _call(self, expr: Expr, name: str) -> None:
        self.names[id(expr)] = name
        self.kept.append(expr)

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    # ---- blocks ----

    def _placed(self, root: Expr) -> list[Expr]:
        """What a text or a model computes in the block of which `root` is the result, the first one last."""
        found: list[Expr] = []
        chain, body = {id(root)}, root  # lets have lines already
        stack = [root]
        while isinstance(body, Let):
            chain |= {id(body.value), id(body.body)}
            stack += [body.value, body.body]
            body = body.body
        seen = set(chain)
        while stack:
            for each in _direct(stack.pop()):
                if id(each) not in seen and id(each) not in self.names:
                    seen.add(id(each))
                    stack.append(each)
                    found += [each] if each.place is not None and not isinstance(each, _INLINE) else []
        if body.place is not None and any(body.place < (each.place or 0) for each in (*found, *_values(root))):
            found.append(body)  # the result is not what is computed last
        return sorted(found, key=lambda each: each.place or 0, reverse=True)

    def _first(self, placed: list[Expr], end: int | None = None) -> Walk:
        """Writes what comes before a place, or all."""
        while placed and (end is None or (placed[-1].place or 0) < end):
            yield self.atom(placed.pop())

    def result(self, root: Expr) -> Walk:
        """The value of a block, written behind what it is made of."""
        if not isinstance(root, Let):
            yield self._first(self._placed(root))
        return (yield self.value(root))

    def block(self, last: Walk, free: Sequence[Var] = (), deeper: int = 1) -> Walk:
        """The lines of a block; the walk gives its last one, the result. `free` are declared in it."""
        outer, self.lines = self.lines, []
        self.indent += deeper
        for variable in free:
            self._line(f"free_var {self.declared(variable)};")
        self._line((yield last))
        self.indent -= deeper
        lines, self.lines = self.lines, outer
        return "\n".join(lines)

    def nested(self, last: Walk, marks: str = "{}", free: Sequence[Var] = ()) -> Walk:
        """A block in braces."""
        text = yield self.block(last, free)
        return f"{marks[0]}\n{text}\n{'  ' * self.indent}{marks[1]}"

    def function(self, function: Function, free: Sequence[Var] = ()) -> Walk:
        types = f"[{', '.join(map(str, function.type_params))}]" if function.type_params else ""
        params = [self.declared(each) for each in function.params]
        params += [f"{name}={value_text(value, self._other)}" for name, value in function.attrs.items()]
        inferred = function._checked_type
        result = function.ret_type or (inferred.ret_type if isinstance(inferred, ty.FuncType) else None)
        arrow = f" -> {self.type(result)}" if result is not None else ""
        return f"{types}({', '.join(params)}){arrow} {(yield self.nested(self.result(function.body), free=free))}"

    # ---- expressions ----

    def value(self, expr: Expr) -> Walk:
        """What a block or a let ends with: it has a line of its own only where it is used elsewhere too."""
        if id(expr) in self.names or self.uses[id(expr)] > 1:
            return (yield self.atom(expr))
        return (yield self.inline(expr)) + self._comment(expr)

    def atom(self, expr: Expr) -> Walk:
        """What an expression is called: what is longer than a word has a line of its own first."""
        found = self.names.get(id(expr))
        if found is not None:
            return found
        if isinstance(expr, _INLINE):
            return (yield self.inline(expr)) + self._comment(expr)
        text = yield (self.nested(self._lets(expr), "()") if isinstance(expr, Let) else self.inline(expr))
        name = f"%{self.count}"
        self.count += 1
        self._line(f"{name} = {text}{self._comment(expr)};")
        self._call(expr, name)
        return name

    def _many(self, several: Any) -> Walk:
        made = []
        for each in several:
            made.append((yield self.atom(each)))
        return made

    def inline(self, expr: Expr) -> Walk:
        """An expression as text, what it is made of by name."""
        write = _WRITERS.get(type(expr))
        if write is None:
            raise TypeError(f"Relay's text has no form for a {type(expr).__name__}")
        made = write(self, expr)
        return (yield made) if hasattr(made, "send") else made

    def _tuple(self, expr: Tuple) -> Walk:
        fields = yield self._many(expr.fields)
        return f"({', '.join(fields)}{',' if len(fields) == 1 else ''})"

    def _item(self, expr: TupleGetItem) -> Walk:
        return f"{(yield self.atom(expr.tuple_value))}.{expr.index}"

    def _called(self, expr: Call) -> Walk:
        if isinstance(expr.op, adt.Constructor):
            args = yield self._many(expr.args)
            return f"{expr.op.name_hint}({', '.join(args)})" if args or expr.op.inputs else expr.op.name_hint
        attributes = _attributes(expr)
        named = operands_by_name(expr, list(attributes)) if isinstance(expr.op, Op) else {}
        args = yield self._many(each for each in expr.args if not any(each is other for other in named.values()))
        args += [f"{name}={value_text(value, self._other)}" for name, value in attributes.items()]
        for name, operand in named.items():
            args.append(f"{name}=({(yield self.atom(operand))})")
        return f"{(yield self.atom(expr.op))}({', '.join(args)})"

    def _other(self, value: Any) -> str:
        if isinstance(value, SymbolicDim):
            return self._dim(value)
        return run(self.atom(value))

    def _function(self, expr: Function) -> Walk:
        return f"fn {(yield self.function(expr))}"

    def _if(self, expr: If) -> Walk:
        condition = yield self.atom(expr.cond)
        then = yield self.nested(self.result(expr.true_branch))
        return f"if ({condition}) {then} else {(yield self.nested(self.result(expr.false_branch)))}"

    def _lets(self, expr: Let) -> Walk:
        body: Expr = expr
        placed = self._placed(expr)
        while isinstance(body, Let):
            if body.value.place is not None:
                yield self._first(placed, body.value.place)
            name = self.declared(body.var)
            value = yield self.value(body.value)
            self._line(f"let {name} = {value};")
            body = body.body
        yield self._first(placed)
        return (yield self.value(body))

    def _match(self, expr: adt.Match) -> Walk:
        value = yield self.atom(expr.data)
        clauses = []
        self.indent += 1
        for clause in expr.clauses:
            pattern = self._pattern(clause.lhs)
            clauses.append(f"{pattern} => {(yield self.nested(self.result(clause.rhs)))}")
        self.indent -= 1
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
        if expr.array.ndim or expr.place is not None or not has_text(expr.array.dtype.name):
            self.kept.append(expr)
            return self._entry(node_json.CONSTANT, id(expr), expr.array)
        return scalar_text(expr.array)


_WRITERS: dict[type, Callable[[_Printer, Any], Any]] = {
    Constant: _Printer._constant,
    GlobalVar: lambda _, expr: f"@{word(expr.name_hint)}",
    Op: lambda _, expr: expr.name,
    Var: lambda _, expr: f"%{word(expr.name_hint)}",  # used where nothing binds it
    adt.Constructor: lambda _, expr: expr.name_hint,
    Tuple: _Printer._tuple,
    TupleGetItem: _Printer._item,
    Call: _Printer._called,
    Function: _Printer._function,
    If: _Printer._if,
    Let: _Printer._lets,
    adt.Match: _Printer._match,
}


def _values(expr: Expr) -> Iterator[Expr]:
    """Those of a chain of lets."""
    while isinstance(expr, Let):
        yield expr.value
        expr = expr.body


def _direct(expr: Expr) -> tuple[Expr, ...]:
    """The expressions in one that its own block computes."""
    if isinstance(expr, If):
        return (expr.cond,)
    if isinstance(expr, adt.Match):
        return (expr.data,)
    if isinstance(expr, Let):  # a loop, or a block of its own
        return children(expr.body)[1:] if while_loop_of(expr) else ()
    return () if isinstance(expr, Function) else children(expr)


def _attributes(call: Call) -> dict[str, Any]:
    """Those that the text of a call has: those that are not the defaults, and those that have none in TVM."""
    attributes = dict(call.attrs or {})
    if not isinstance(call.op, Op):
        return attributes
    parameters, always = ROWS[call.op.name].signature.parameters, ALWAYS_SHOWN.get(call.op.name, ())
    return {
        name: value
        for name, value in attributes.items()
        if isinstance(value, Said)
        or name in always
        or name not in parameters
        or not same_values(parameters[name].default, value)
    }
