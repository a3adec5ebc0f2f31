"""A function's text → LLVM instructions, in one walk over Python's syntax tree: what kernels and the engine have in common.

The texts are a small part of Python: names are assigned, operators and functions of a vocabulary are called, and there are
`if`, `for` over a range, `while` and `return`. A variable has one type, that of its first assignment in the text. What types
there are, and what operators and functions become, is for subclasses to say (`native/words.py`, `toolchain/translate.py`).
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from ..formats.messages.errors import CompileError

I1, I64 = ir.IntType(1), ir.IntType(64)

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}


class Typed(NamedTuple):
    """A value, or, of a variable in memory, where it is."""

    kind: Any
    value: ir.Value


class Loop(NamedTuple):
    """Where `continue` and `break` lead."""

    again: ir.Block
    end: ir.Block


class Translation:
    """The code of one function, as it grows."""

    WORD: Any  # the kind of 64-bit integers
    TRUTH: Any  # the kind of what comparisons give

    def __init__(self, symbol: str, text: ast.FunctionDef, names: Mapping[str, Any], function: ir.Function) -> None:
        self._symbol, self._text, self._names, self._function = symbol, text, names, function
        self._arguments = [argument.arg for argument in text.args.args]
        self._entry = function.append_basic_block()
        self._at = ir.IRBuilder(function.append_basic_block())
        self._in_memory = _in_memory(text, self._arguments)
        self._variables: dict[str, Typed] = {}
        self._recent: dict[str, ir.Value] = {}  # what this block knows of variables in memory
        self._loops: list[Loop] = []
        self._line = 0

    def run(self, arguments: Sequence[ir.Value]) -> None:
        """Writes the function, whose parameters have these values. Raises CompileError."""
        start = self._at.block
        for name, argument in zip(self._arguments, arguments, strict=True):
            self._set(name, Typed(self.WORD, argument))
        self._suite(self._text.body)
        if not self._at.block.is_terminated:
            self._end()
        ir.IRBuilder(self._entry).branch(start)

    # ---- what subclasses say ----

    def _call(self, function: Callable[..., Any], operands: Sequence[Typed]) -> Typed:
        """The result of a function or of one of `OPERATORS`."""
        raise NotImplementedError

    def _integer(self, value: Typed) -> ir.Value:
        """An integer as a word."""
        raise NotImplementedError

    def _is_true(self, value: Typed) -> ir.Value:
        """Whether a number is not 0."""
        raise NotImplementedError

    def _return(self, node: ast.Return) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        """The end of the text is reached without a result."""
        raise self._error("no result at the end")

    def _begin_round(self) -> None:
        """At the head of each round of a `while`."""

    # ---- errors ----

    def _error(self, message: str) -> CompileError:
        return CompileError(f"{self._symbol}, line {self._line}: {message}")

    def _entry_of(self, table: Mapping[type[ast.AST], Any], node: ast.AST) -> Any:
        found = table.get(type(node))
        if found is None:
            raise self._error(f"compiled functions know no {type(node).__name__}")
        return found

    # ---- variables ----

    def _set(self, name: str, value: Typed) -> None:
        if name not in self._in_memory:
            self._variables[name] = value
            return
        if name not in self._variables:
            self._variables[name] = Typed(value.kind, self._allocated(value.value.type))
        variable = self._variables[name]
        if variable.kind != value.kind:
            raise self._error(f"{name} is {variable.kind}, and cannot become {value.kind}")
        self._at.store(value.value, variable.value)
        self._recent[name] = value.value

    def _get(self, name: str) -> Typed:
        variable = self._variables[name]
        if name not in self._in_memory:
            return variable
        if name not in self._recent:
            self._recent[name] = self._at.load(variable.value)
        return Typed(variable.kind, self._recent[name])

    def _allocated(self, kind: ir.Type) -> ir.Value:
        """Memory for a variable, which LLVM makes a register; zero until it is assigned."""
        entry = ir.IRBuilder(self._entry)
        place = entry.alloca(kind)
        entry.store(ir.Constant(kind, None), place)
        return place

    # ---- statements ----

    def _suite(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self._at.block.is_terminated:
                return  # nothing comes here
            self._line = statement.lineno
            getattr(self, self._entry_of(_STATEMENTS, statement))(statement)

    def _blocks(self, count: int) -> list[ir.Block]:
        return [self._function.append_basic_block() for _ in range(count)]

    def _go(self, block: ir.Block) -> None:
        """Continues writing in `block`."""
        self._at.position_at_end(block)
        self._recent = {}

    def _leave_for(self, block: ir.Block) -> None:
        if not self._at.block.is_terminated:
            self._at.branch(block)

    def _assign(self, node: ast.Assign) -> None:
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple):
            self._assign_several(node.targets[0].elts, node.value)
            return
        value = self._value(node.value)
        for target in node.targets:
            self._set(self._name(target), value)

    def _assign_several(self, targets: Sequence[ast.expr], values: ast.expr) -> None:
        if not isinstance(values, ast.Tuple) or len(values.elts) != len(targets):
            raise self._error("several names are assigned as many expressions")
        for target, value in zip(targets, [self._value(each) for each in values.elts], strict=True):
            self._set(self._name(target), value)

    def _name(self, target: ast.expr) -> str:
        if not isinstance(target, ast.Name):
            raise self._error("names alone can be assigned")
        return target.id

    def _change(self, node: ast.AugAssign) -> None:
        name = self._name(node.target)
        operands = self._variable(name), self._value(node.value)
        self._set(name, self._call(self._entry_of(OPERATORS, node.op), operands))

    def _evaluate(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self._value(node.value)

    def _if(self, node: ast.If) -> None:
        then, otherwise, end = self._blocks(3)
        self._branch(node.test, then, otherwise)
        for block, suite in ((then, node.body), (otherwise, node.orelse)):
            self._go(block)
            self._suite(suite)
            self._leave_for(end)
        self._go(end)

    def _while(self, node: ast.While) -> None:
        head, body, end = self._blocks(3)
        self._at.branch(head)
        self._go(head)
        self._begin_round()
        self._branch(node.test, body, end)
        self._go(body)
        self._loop(node, Loop(head, end), end)

    def _for(self, node: ast.For) -> None:
        """Rounds are counted down: their number does not depend on what the body does, and LLVM sees that it does not."""
        start, stop, step = self._range(node.iter)
        self._rounds_of(node, start, step, self._rounds(start, stop, step))

    def _rounds_of(
        self,
        node: ast.For,
        start: ir.Value,
        step: ir.Value,
        count: ir.Value,
        outside: ir.Block | None = None,
        between: Callable[[], None] | None = None,
    ) -> ir.Value:
        """So many rounds of a loop. The index after the last one, where the loop ends by itself; `break` leads `outside`.
        `between` writes what is done between two rounds."""
        before = self._at.block
        head, body, again, end = self._blocks(4)
        self._at.branch(head)
        self._go(head)
        index, left = self._at.phi(I64), self._at.phi(I64)
        self._at.cbranch(self._at.icmp_signed(">", left, I64(0)), body, end)
        self._go(again)
        if between is not None:
            between()
        back = self._at.block
        self._at.branch(head)
        self._go(body)  # at the end, counting would let LLVM unroll loops that are long enough
        next_left, next_index = self._at.sub(left, I64(1), flags=["nsw"]), self._at.add(index, step)
        for phi, first, later in ((index, start, next_index), (left, count, next_left)):
            phi.add_incoming(first, before)
            phi.add_incoming(later, back)
        self._set(self._name(node.target), Typed(self.WORD, index))
        self._loop(node, Loop(again, outside or end), end)
        return index

    def _loop(self, node: ast.For | ast.While, loop: Loop, end: ir.Block) -> None:
        if node.orelse:
            raise self._error("a loop has no else")
        self._loops.append(loop)
        self._suite(node.body)
        self._loops.pop()
        self._leave_for(loop.again)
        self._go(end)

    def _range(self, node: ast.expr) -> list[ir.Value]:
        """Start, stop and step."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "range":
            raise self._error("a for loop is over a range")
        bounds = [self._integer(self._value(each)) for each in node.args]
        if len(bounds) == 1:
            bounds.insert(0, I64(0))
        return bounds if len(bounds) == 3 else [*bounds, I64(1)]

    def _rounds(self, start: ir.Value, stop: ir.Value, step: ir.Value) -> ir.Value:
        """How many rounds a loop has: none if the number is not positive, or the step is 0."""
        if not isinstance(step, ir.Constant):
            return self._rounds_of_any(start, stop, step)
        at, size = self._at, abs(step.constant)
        way = at.sub(stop, start) if step.constant > 0 else at.sub(start, stop)
        if size <= 1:
            return at.mul(way, I64(size))
        rounds = at.add(at.sdiv(at.sub(way, I64(1)), I64(size)), I64(1))
        return at.select(at.icmp_signed(">", way, I64(0)), rounds, I64(0))

    def _rounds_of_any(self, start: ir.Value, stop: ir.Value, step: ir.Value) -> ir.Value:
        """The same where the text does not say the step."""
        at = self._at
        way = at.sub(stop, start)
        ahead, before = at.icmp_signed(">", way, I64(0)), at.block
        arrives = at.not_(at.xor(ahead, at.icmp_signed(">", step, I64(0))))
        divide, end = self._blocks(2)
        at.cbranch(at.and_(arrives, at.icmp_signed("!=", step, I64(0))), divide, end)
        at.position_at_end(divide)
        rest = at.srem(way, step)
        rest = at.select(ahead, rest, at.neg(rest))
        rounds = at.add(at.sdiv(way, step), at.select(at.icmp_signed(">", rest, I64(0)), I64(1), I64(0)))
        at.branch(end)
        at.position_at_end(end)
        return self._either(I64, (I64(0), before), (rounds, divide))

    def _either(self, kind: ir.Type, *cases: tuple[ir.Value, ir.Block]) -> ir.Value:
        """A value by the block that control came from."""
        phi = self._at.phi(kind)
        for value, block in cases:
            phi.add_incoming(value, block)
        return phi

    def _break(self, node: ast.Break) -> None:
        self._at.branch(self._loops[-1].end)

    def _continue(self, node: ast.Continue) -> None:
        self._at.branch(self._loops[-1].again)

    def _pass(self, node: ast.Pass) -> None:
        pass

    # ---- conditions ----

    def _branch(self, node: ast.expr, then: ir.Block, otherwise: ir.Block) -> None:
        """Goes on in one block or the other."""
        if isinstance(node, ast.BoolOp):
            for each in node.values[:-1]:
                (following,) = self._blocks(1)
                places = (following, otherwise) if isinstance(node.op, ast.And) else (then, following)
                self._branch(each, *places)
                self._go(following)
            self._branch(node.values[-1], then, otherwise)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._branch(node.operand, otherwise, then)
        elif isinstance(node, ast.Compare):
            self._branch_on_comparison(node, then, otherwise)
        else:
            self._at.cbranch(self._is_true(self._value(node)), then, otherwise)

    def _branch_on_comparison(self, node: ast.Compare, then: ir.Block, otherwise: ir.Block) -> None:
        left = self._value(node.left)
        for number, (symbol, each) in enumerate(zip(node.ops, node.comparators, strict=True), 1):
            right = self._value(each)
            holds = self._call(self._entry_of(OPERATORS, symbol), (left, right))
            following = then if number == len(node.ops) else self._blocks(1)[0]
            self._at.cbranch(self._is_true(holds), following, otherwise)
            if following is not then:
                self._go(following)
            left = right

    def _condition(self, node: ast.expr) -> Typed:
        """Whether control would take the one way or the other."""
        then, otherwise, end = self._blocks(3)
        self._branch(node, then, otherwise)
        for block in (then, otherwise):
            self._at.position_at_end(block)
            self._at.branch(end)
        self._go(end)
        return Typed(self.TRUTH, self._either(I1, (I1(1), then), (I1(0), otherwise)))

    # ---- expressions ----

    def _value(self, node: ast.expr) -> Typed:
        found: Typed = getattr(self, self._entry_of(_EXPRESSIONS, node))(node)
        return found

    def _constant(self, node: ast.Constant) -> Typed:
        return self._number(node.value)

    def _number(self, number: Any) -> Typed:
        if isinstance(number, bool):
            return Typed(self.TRUTH, I1(int(number)))
        if isinstance(number, int):
            return Typed(self.WORD, I64(number))
        raise self._error(f"{number!r} is not a number")

    def _variable(self, name: str) -> Typed:
        if name not in self._variables:
            raise self._error(f"{name} has no value here")
        return self._get(name)

    def _read(self, node: ast.Name) -> Typed:
        return self._get(node.id) if node.id in self._variables else self._number(self._global(node))

    def _attribute(self, node: ast.Attribute) -> Typed:
        return self._number(self._global(node))

    def _global(self, node: ast.expr) -> Any:
        """The global object of a name that is not a variable."""
        if isinstance(node, ast.Attribute):
            owner = self._global(node.value)
            if hasattr(owner, node.attr):
                return getattr(owner, node.attr)
        if isinstance(node, ast.Name) and node.id in self._names:
            return self._names[node.id]
        if isinstance(node, ast.Name) and hasattr(builtins, node.id):
            return getattr(builtins, node.id)
        raise self._error(f"{ast.unparse(node)} is not known")

    def _called(self, node: ast.Call) -> Typed:
        function = self._global(node.func)
        if node.keywords:
            raise self._error("arguments have no names")
        return self._call(function, [self._value(each) for each in node.args])

    def _binary(self, node: ast.BinOp) -> Typed:
        return self._call(self._entry_of(OPERATORS, node.op), (self._value(node.left), self._value(node.right)))

    def _unary(self, node: ast.UnaryOp) -> Typed:
        if isinstance(node.op, ast.Not):
            return self._condition(node)
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return self._number(-node.operand.value)  # type: ignore[operator]
        return self._call(self._entry_of(OPERATORS, node.op), (self._value(node.operand),))

    def _compare(self, node: ast.Compare) -> Typed:
        if len(node.ops) > 1:
            return self._condition(node)
        operands = self._value(node.left), self._value(node.comparators[0])
        return self._call(self._entry_of(OPERATORS, node.ops[0]), operands)

    def _choice(self, node: ast.IfExp) -> Typed:
        then, otherwise, end = self._blocks(3)
        self._branch(node.test, then, otherwise)
        cases: list[tuple[ir.Value, ir.Block]] = []
        kinds: list[Any] = []
        for block, each in ((then, node.body), (otherwise, node.orelse)):
            self._go(block)
            kind, value = self._value(each)
            kinds.append(kind)
            cases.append((value, self._at.block))
            self._at.branch(end)
        if kinds[0] != kinds[1]:
            raise self._error(f"a choice between {kinds[0]} and {kinds[1]}")
        self._go(end)
        return Typed(kinds[0], self._either(cases[0][0].type, *cases))


# ---- division ----


def divided(at: ir.IRBuilder, number: ir.Value, by: ir.Value) -> ir.Value:
    """The floor of a quotient; 0 where the divisor is 0. Numba's own way takes thirty instructions and eight blocks."""
    shift = _power_of_two(by)
    if shift is not None:
        return at.ashr(number, I64(shift))
    divisor, is_special = _divisor(at, by)
    down = _rounds_down(at, at.srem(number, divisor), divisor)
    quotient = at.sub(at.sdiv(number, divisor), at.zext(down, I64))
    return quotient if is_special is None else at.select(is_special, at.mul(number, by), quotient)


def remainder(at: ir.IRBuilder, number: ir.Value, by: ir.Value) -> ir.Value:
    """The remainder of a floor division; 0 if the divisor is 0."""
    shift = _power_of_two(by)
    if shift is not None:
        return at.and_(number, I64((1 << shift) - 1))
    divisor, _ = _divisor(at, by)
    rest = at.srem(number, divisor)
    return at.select(_rounds_down(at, rest, divisor), at.add(rest, divisor), rest)


def _power_of_two(value: ir.Value) -> int | None:
    """Its logarithm, of a number in the text that is one."""
    number = value.constant if isinstance(value, ir.Constant) else 0
    return number.bit_length() - 1 if number > 0 and number & (number - 1) == 0 else None


def _divisor(at: ir.IRBuilder, by: ir.Value) -> tuple[ir.Value, ir.Value | None]:
    """A divisor that does not trap: 1 in place of 0, and of -1, which overflows with the least integer; and
    whether that was so, unless the text tells. The quotient is the product then."""
    if isinstance(by, ir.Constant) and by.constant > 0:
        return by, None
    is_special = at.icmp_unsigned("<", at.add(by, I64(1)), I64(2))
    return at.select(is_special, I64(1), by), is_special


def _rounds_down(at: ir.IRBuilder, rest: ir.Value, divisor: ir.Value) -> ir.Value:
    """Whether the floor is one less than what the CPU gives, which rounds to zero."""
    if isinstance(divisor, ir.Constant):
        return at.icmp_signed("<", rest, I64(0))
    return at.and_(at.icmp_signed("!=", rest, I64(0)), at.icmp_signed("<", at.xor(rest, divisor), I64(0)))


DIVISIONS: dict[Callable[..., Any], Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]] = {
    operator.floordiv: divided,
    operator.mod: remainder,
}

_STATEMENTS: dict[type[ast.AST], str] = {
    ast.Assign: "_assign",
    ast.AugAssign: "_change",
    ast.Expr: "_evaluate",
    ast.Return: "_return",
    ast.If: "_if",
    ast.While: "_while",
    ast.For: "_for",
    ast.Break: "_break",
    ast.Continue: "_continue",
    ast.Pass: "_pass",
}

_EXPRESSIONS: dict[type[ast.AST], str] = {
    ast.Constant: "_constant",
    ast.Name: "_read",
    ast.Attribute: "_attribute",
    ast.Call: "_called",
    ast.BinOp: "_binary",
    ast.UnaryOp: "_unary",
    ast.Compare: "_compare",
    ast.BoolOp: "_condition",
    ast.IfExp: "_choice",
}


def _in_memory(function: ast.FunctionDef, arguments: Sequence[str]) -> set[str]:
    """The variables that are assigned in several places, or used where their one assignment may not have been done. Others
    are values."""
    places = _Places(arguments)
    places.suite(function.body)
    return places.several


class _Places(ast.NodeVisitor):
    """Where variables are assigned, in the order of the text."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.several: set[str] = set()
        self._open = [0]  # the suites around
        self._count = 0
        self._assigned = dict.fromkeys(arguments, 0)  # name → suite

    def suite(self, statements: Sequence[ast.stmt], target: ast.expr | None = None) -> None:
        """A suite, and a variable that is assigned before it."""
        self._count += 1
        self._open.append(self._count)
        for node in ([target] if target is not None else []) + list(statements):
            self.visit(node)
        self._open.pop()

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            again = self._assigned.get(node.id, 0) not in self._open
        else:
            again = node.id in self._assigned
            self._assigned.setdefault(node.id, self._open[-1])
        if again:
            self.several.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        for each in (node.value, *node.targets):
            self.visit(each)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.suite(node.body)
        self.suite(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self.suite(node.body)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.suite(node.body, node.target)
