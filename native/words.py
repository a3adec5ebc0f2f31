"""Python functions of words → one LLVM module: how the engine is made, without Numba.

All values are 64-bit integers. Functions call each other, Python's `min` and `max`, and `native/intrinsics.py`; integers of
modules and tables are constants. A function gives a word or, as a tuple, several; one that ends without a result gives 0.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from llvmlite import ir

from .intrinsics import I64, Intrinsic
from .object_code import Source
from .translation import DIVISIONS, Translation, Typed

_F = TypeVar("_F", bound=Callable[..., Any])
_inlined: set[Callable[..., Any]] = set()


def inlined(function: _F) -> _F:
    """A decorator: calls of this function leave no call behind, where it is compiled."""
    _inlined.add(function)
    return function


def source_of(entries: Mapping[str, Callable[..., Any]]) -> Source:
    """Functions of C, `i64 symbol(i64 …)`, by symbol, for `compile_object`."""
    return lambda _: [_module_text(entries)]


def _module_text(entries: Mapping[str, Callable[..., Any]]) -> str:
    """LLVM text of the functions and of what they call. Raises CompileError."""
    module = _Module(entries)
    while module.waiting:
        function, declared = module.waiting.pop()
        _Function(function, module, declared).run(declared.args)
    return str(module.module)


class _Module:
    """The functions so far; `waiting` are those that have been called and are not written yet."""

    def __init__(self, entries: Mapping[str, Callable[..., Any]]) -> None:
        self.module = ir.Module()
        self.waiting: list[tuple[Callable[..., Any], ir.Function]] = []
        self._declared: dict[Callable[..., Any], ir.Function] = {}
        self._sources: dict[str, dict[int, ast.FunctionDef]] = {}  # by file and first line
        for symbol, function in entries.items():
            self._declare(function, symbol)

    def function(self, function: Callable[..., Any]) -> ir.Function:
        """The LLVM function of a Python function."""
        if function not in self._declared:
            self._declare(function, f"{function.__module__.rpartition('.')[2]}.{function.__name__}")
            # where it is inlined, LLVM decides by its size: what is called once would be if it were internal, and the
            # dispatch loop would have too few registers
            self._declared[function].linkage = "linkonce_odr"
        return self._declared[function]

    def _declare(self, function: Callable[..., Any], symbol: str) -> None:
        text = self.text(function)
        results = _results(text)
        kind = I64 if results == 1 else ir.LiteralStructType([I64] * results)
        declared = ir.Function(self.module, ir.FunctionType(kind, [I64] * len(text.args.args)), symbol)
        declared.attributes.add("nounwind")
        if function in _inlined:
            declared.attributes.add("alwaysinline")
        self._declared[function] = declared
        self.waiting.append((function, declared))

    def text(self, function: Callable[..., Any]) -> ast.FunctionDef:
        """Its syntax tree. A file is parsed once for all its functions."""
        code = function.__code__
        if code.co_filename not in self._sources:
            tree = ast.parse("".join(linecache.getlines(code.co_filename, function.__globals__)))
            functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
            self._sources[code.co_filename] = {_first_line(each): each for each in functions}
        return self._sources[code.co_filename][code.co_firstlineno]


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def _results(text: ast.FunctionDef) -> int:
    """How many words a function gives."""
    returned = [node.value for node in ast.walk(text) if isinstance(node, ast.Return)]
    return max([len(value.elts) for value in returned if isinstance(value, ast.Tuple)], default=1)


def _names(function: Callable[..., Any]) -> Mapping[str, Any]:
    return {**function.__globals__, **inspect.getclosurevars(function).nonlocals}


class _Function(Translation):
    """The code of one function."""

    WORD, TRUTH = "a word", "a truth value"

    def __init__(self, function: Callable[..., Any], module: _Module, declared: ir.Function) -> None:
        super().__init__(declared.name, module.text(function), _names(function), declared)
        self._module = module

    def _integer(self, value: Typed) -> ir.Value:
        return self._at.zext(value.value, I64) if value.kind == self.TRUTH else value.value

    def _is_true(self, value: Typed) -> ir.Value:
        return value.value if value.kind == self.TRUTH else self._at.icmp_signed("!=", value.value, I64(0))

    def _return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.Tuple):
            result = ir.Constant(self._function.return_value.type, ir.Undefined)
            for place, each in enumerate(node.value.elts):
                result = self._at.insert_value(result, self._integer(self._value(each)), place)
            self._at.ret(result)
        else:
            self._at.ret(I64(0) if node.value is None else self._integer(self._value(node.value)))

    def _end(self) -> None:
        self._at.ret(I64(0))

    def _assign_several(self, targets: Sequence[ast.expr], values: ast.expr) -> None:
        if not isinstance(values, ast.Call):
            super()._assign_several(targets, values)
            return
        together = self._value(values).value
        for place, target in enumerate(targets):
            self._set(self._name(target), Typed(self.WORD, self._at.extract_value(together, place)))

    def _call(self, function: Callable[..., Any], operands: Sequence[Typed]) -> Typed:
        words = [self._integer(each) for each in operands]
        if function in _COMPARISONS:
            return Typed(self.TRUTH, self._at.icmp_signed(_COMPARISONS[function], *words))
        if isinstance(function, Intrinsic):
            if len(words) != function.arity:
                raise self._error(f"{function.__name__} takes {function.arity} words, got {len(words)}")
            return Typed(self.WORD, function.emit(self._at, *words))
        if function in _ARITHMETIC:
            return Typed(self.WORD, _ARITHMETIC[function](self._at, *words))
        if function in _CHOICES:
            return Typed(self.WORD, self._chosen(_CHOICES[function], words))
        if not inspect.isfunction(function):
            raise self._error(f"{getattr(function, '__name__', function)} is not a function of words")
        return Typed(self.WORD, self._at.call(self._module.function(function), words))

    def _chosen(self, comparison: str, words: Sequence[ir.Value]) -> ir.Value:
        found, *others = words
        for each in others:
            found = self._at.select(self._at.icmp_signed(comparison, each, found), each, found)
        return found


_COMPARISONS: dict[Callable[..., Any], str] = {
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
}
_CHOICES: dict[Callable[..., Any], str] = {min: "<", max: ">"}
_ARITHMETIC: dict[Callable[..., Any], Callable[..., ir.Value]] = {
    operator.add: ir.IRBuilder.add,
    operator.sub: ir.IRBuilder.sub,
    operator.mul: ir.IRBuilder.mul,
    operator.lshift: ir.IRBuilder.shl,
    operator.rshift: ir.IRBuilder.ashr,
    operator.and_: ir.IRBuilder.and_,
    operator.or_: ir.IRBuilder.or_,
    operator.xor: ir.IRBuilder.xor,
    operator.neg: ir.IRBuilder.neg,
    operator.invert: ir.IRBuilder.not_,
    **DIVISIONS,
}
