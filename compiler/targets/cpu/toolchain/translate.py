"""A kernel's text → LLVM text (`native/translation.py`) → object code. All that this imports is part of the cache's keys.

Templates call the vocabulary of `vectors/simd.py`. The result type and the code of each function are
in Numba's tables; Numba's own pipeline, which is for all of Python, takes ten times as long.

No kernel runs on when its call must end: after `stoppable(args)`, loops check the call's stop word
(`kernels/kernel.py`), inner ones after some iterations, all others in each. A loop that finds it set jumps to the function's
end, where nothing is live: the check costs no register but the word's address, and no measurable time of ResNet-50
and MiniLM.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.errors import NumbaError

from .....formats.messages.errors import CompileError
from .....native.convention import STOP_WORD, STOPPED
from .....native.llvm import NativeTarget
from .....native.numba_frontend import Lowering
from .....native.object_code import compile_object, compile_text
from .....native.translation import DIVISIONS, Translation, Typed
from ..vectors.amx import INSTRUCTIONS as AMX
from ..vectors.lanes import I64
from ..vectors.simd import namespace

# Iterations between two checks of the stop word, by the depth of loops nested in a loop: of an innermost one, at a
# nanosecond to a hundred each; of one that contains such. Checks in each iteration make calls of small networks 2 % slower.
_UNCHECKED_ROUNDS = (1 << 14, 16)
_FEW_ROUNDS = 64  # of a loop with a literal count, which is not checked
_RARELY = (1, 1 << 20)  # weights of a branch


def compile_kernel(symbol: str, source: str, lanes: int, target: NativeTarget) -> bytes:
    """Object code of a kernel's text, which becomes the function `symbol`. Raises CompileError."""
    return compile_object(partial(_lowered, symbol, source, lanes), [symbol], target)


def kernel_text(source: str, lanes: int, target: NativeTarget, form: str) -> str:
    """The same code as text, of a function `kernel`: `form` is "llvm" (optimised IR) or "asm"."""
    return compile_text(partial(_lowered, "kernel", source, lanes), ["kernel"], target, form)


def _lowered(symbol: str, source: str, lanes: int, target: NativeTarget) -> list[str]:
    return translate(symbol, source, namespace(lanes), target)


def translate(symbol: str, source: str, names: Mapping[str, Any], target: NativeTarget) -> list[str]:
    """The LLVM texts of the function of words that `source` defines, called `symbol` there, and of what it calls.

    `names` are the functions and numbers that the text may use. Raises CompileError.
    """
    function = _parsed(symbol, source)
    lowering = Lowering(symbol, target)
    with lowering.active():
        _Translation(symbol, function, names, lowering).write()
    return lowering.texts()


def _parsed(symbol: str, source: str) -> ast.FunctionDef:
    try:
        (function,) = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise CompileError(f"{symbol}: the text of a kernel is one function: {error}") from error
    if not isinstance(function, ast.FunctionDef):
        raise CompileError(f"{symbol}: the text of a kernel is a function")
    return function


class _VolatileLoad(ir.LoadInstr):
    """A load of memory that other threads write, never elided. LLVM may move other loads across it, unlike an atomic one."""

    def descr(self, buf: Any) -> None:
        text: list[str] = []
        super().descr(text)
        buf.extend(line.replace("load ", "load volatile ", 1) for line in text)


def _depths(statements: Iterable[ast.stmt], found: dict[ast.AST, int]) -> int:
    """The depth of loop nesting in a node; for each loop in it likewise, in `found`."""
    deepest = 0
    for each in statements:
        depth = _depths([*getattr(each, "body", ()), *getattr(each, "orelse", ())], found)
        if isinstance(each, (ast.For, ast.While)):
            found[each] = depth
            depth += 1
        deepest = max(deepest, depth)
    return deepest


def _literal_rounds(node: ast.For) -> int | None:
    """At most how many rounds a loop has whose text says that they are few."""
    bounds = node.iter.args if isinstance(node.iter, ast.Call) else []
    numbers = [bound.value if isinstance(bound, ast.Constant) else None for bound in bounds]
    few = [abs(number) for number in numbers if isinstance(number, int) and abs(number) <= _FEW_ROUNDS]
    return sum(few) if len(few) == len(numbers) else None


def _unchecked(statements: Iterable[ast.stmt], depths: Mapping[ast.AST, int], short: set[ast.AST]) -> int:
    """The most rounds of innermost loops between two checks of the stop word. Loops of few rounds, of few such rounds each, need
    no check: they are added to `short`."""
    most = 1
    for each in statements:
        rounds = _unchecked([*getattr(each, "body", ()), *getattr(each, "orelse", ())], depths, short)
        if isinstance(each, ast.For):
            count = _literal_rounds(each)
            if count is not None and rounds <= _UNCHECKED_ROUNDS[0]:
                short.add(each)
                rounds *= count
            elif depths[each] < len(_UNCHECKED_ROUNDS):
                rounds *= _UNCHECKED_ROUNDS[depths[each]]
        most = max(most, rounds)
    return most


class _Translation(Translation):
    """The code of a kernel, as it grows."""

    WORD, TRUTH = types.int64, types.boolean

    def __init__(self, symbol: str, function: ast.FunctionDef, names: Mapping[str, Any], lowering: Lowering) -> None:
        self._lowering = lowering
        words = [types.int64] * len(function.args.args)
        super().__init__(symbol, function, names, lowering.declare(symbol, types.int64, words))
        self._depths: dict[ast.AST, int] = {}  # of the loops in each loop
        _depths(function.body, self._depths)
        self._short: set[ast.AST] = set()  # loops that are over before a check would pay
        _unchecked(function.body, self._depths, self._short)
        self._stop_word: ir.Value | None = None  # its address
        self._uses_amx = any(isinstance(each, ast.Name) and each.id == "amx_begin" for each in ast.walk(function))
        self._stop: ir.Block | None = None  # the target of a loop that finds the stop word set

    def write(self) -> None:
        """Raises CompileError."""
        try:
            self.run(self._function.args[2:])
        except (NumbaError, NotImplementedError) as error:
            raise self._error(f"there is no {error}") from error

    def _evaluate(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "stoppable":
            (args,) = [self._integer(self._value(each)) for each in node.value.args]
            self._stop_word = self._at.gep(self._at.inttoptr(args, I64.as_pointer()), [I64(STOP_WORD)])
            return
        super()._evaluate(node)

    def _return(self, node: ast.Return) -> None:
        if node.value is None:
            raise self._error("a kernel gives an integer")
        self._lowering.give(self._at, self._integer(self._value(node.value)))

    def _begin_round(self) -> None:
        self._look_for_stop()

    def _for(self, node: ast.For) -> None:
        start, stop, step = self._range(node.iter)
        count = self._rounds(start, stop, step)
        if node in self._short:
            self._rounds_of(node, start, step, count)
        elif self._depths[node] < len(_UNCHECKED_ROUNDS):
            self._pieces_of(node, start, step, count, _UNCHECKED_ROUNDS[self._depths[node]])
        else:
            self._rounds_of(node, start, step, count, between=self._look_for_stop)

    def _pieces_of(self, node: ast.For, start: ir.Value, step: ir.Value, count: ir.Value, most: int) -> None:
        """A loop split into pieces of bounded duration; nearly always one piece."""
        before = self._at.block
        piece, more, end = self._blocks(3)
        self._at.branch(piece)
        self._go(piece)
        first, all_left = self._at.phi(I64), self._at.phi(I64)
        many = I64(most)
        rounds = self._at.select(self._at.icmp_signed("<", all_left, many), all_left, many)
        index = self._rounds_of(node, first, step, rounds, end)
        rest = self._at.sub(all_left, rounds)
        self._at.cbranch(self._at.icmp_signed(">", rest, I64(0)), more, end).set_weights(_RARELY)
        self._go(more)
        self._look_for_stop()
        for phi, at_first, later in ((first, start, index), (all_left, count, rest)):
            phi.add_incoming(at_first, before)
            phi.add_incoming(later, self._at.block)
        self._at.branch(piece)
        self._go(end)

    def _look_for_stop(self) -> None:
        """Leaves the function if the call must end."""
        if self._stop_word is None:
            return
        if self._stop is None:
            (self._stop,) = self._blocks(1)
            end = ir.IRBuilder(self._stop)
            if self._uses_amx:
                AMX["amx_end"][1](end)
            self._lowering.give(end, I64(STOPPED))
        word = _VolatileLoad(self._at.block, self._stop_word)
        self._at._insert(word)
        (goes_on,) = self._blocks(1)
        self._at.cbranch(self._at.icmp_signed("!=", word, I64(0)), self._stop, goes_on).set_weights(_RARELY)
        self._at.position_at_end(goes_on)

    def _integer(self, value: Typed) -> ir.Value:
        """An integer as a word."""
        if not isinstance(value.kind, (types.Integer, types.Boolean)):
            raise self._error(f"{value.kind} is not an integer")
        return self._lowering.cast(self._at, *value, types.int64)

    def _is_true(self, value: Typed) -> ir.Value:
        return self._lowering.cast(self._at, *value, types.boolean)

    def _number(self, number: Any) -> Typed:
        if isinstance(number, float):
            return Typed(types.float64, ir.Constant(ir.DoubleType(), number))
        if isinstance(number, int) and not number < 1 << 63:
            return Typed(types.uint64, I64(number))
        return super()._number(number)

    def _call(self, function: Callable[..., Any], operands: Sequence[Typed]) -> Typed:
        if function in DIVISIONS and all(kind == types.int64 for kind, _ in operands):
            return Typed(types.int64, DIVISIONS[function](self._at, *[value for _, value in operands]))
        return Typed(*self._lowering.call(self._at, function, operands))
