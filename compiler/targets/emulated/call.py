"""Runs the text of a kernel in CPython, every access checked, and stops at its lines.

    result = run_kernel(kernel, definition, arrays)       # raises KernelFaultError, which names the line

It needs no compiler of native code: a kernel, its definition, arrays and sizes are all that it knows. The text is executed as it
stands but for what Python does otherwise than a processor: words of 64 bits wrap around, a quotient by 0 is 0, and
loops end after `MAX_ROUNDS`.
"""

from __future__ import annotations

import ast
import linecache
import math
import re
import sys
from bdb import BdbQuit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from types import CodeType, FrameType, TracebackType
from typing import Any, Union

import numpy as np

from ....formats import dims
from ....formats.metering import step
from ....formats.primitive import PrimitiveDefinition
from ....native.convention import ARGUMENT_HEAD, NOTE_WORDS, STOPPED
from ....native.numba_frontend import compiling_for
from ..cpu.kernels.kernel import Kernel
from ..cpu.target import Target, host
from .memory import DEFINED, NOBODY, UNWRITTEN, Fault, KernelFaultError, Memory, Region
from .vectors import WORD, divided, quotient, rest, wrapped
from .vocabulary import Access, vocabulary

MAX_ROUNDS = 1 << 24  # of all loops of a call: a text whose loops do not end is a fault

_MOST_SHOWN = 120  # characters of a value
_HIDDEN = "__"  # names that the text gets beside its vocabulary begin so


@dataclass(frozen=True)
class Ran:
    """The result of a kernel's call."""

    code: int  # 0, what `vm/failures.py` words, or STOPPED where no more steps were wanted
    outputs: list[np.ndarray]
    undefined: list[np.ndarray]  # of each output, which elements are made of memory that nobody wrote
    asked: int  # into how many parts the kernel wants to be split for two threads


@dataclass(frozen=True)
class Step:
    """A line of a kernel's text that was executed."""

    part: int
    line: int
    text: str
    values: dict[str, str]  # what the line assigned

    def __str__(self) -> str:
        values = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"{self.line:4} {self.text}" + (f"    # {values}" if values not in ("", self.text) else "")


Watch = Callable[[Step], Union[bool, None]]  # False: the call is to end


class _Enough(Exception):
    """The watcher ends the run."""


def run_kernel(
    kernel: Kernel,
    definition: PrimitiveDefinition,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int] | None = None,
    *,
    parts: int | None = 1,
    threads: int = 1,
    order: Iterable[int] | None = None,
    offset: int = 4,
    spare_lanes: bool = False,
    target: Target | None = None,
    watch: Watch | None = None,
    debugger: Any = None,
) -> Ran:
    """Runs a kernel on arrays of the types of the definition's parameters, part after part in this `order` (by default from the
    first to the last), of which each of the `threads`, with scratch memory of its own, takes one in turn; None is the number
    of parts that the kernel asks for. Tensors lie `offset` bytes after a multiple of 64. With `spare_lanes`, elements of the
    results may be made of memory that nobody wrote: those of blocked images after their last channel. The text is for
    `target`, by default the CPU of this process. `watch` is told of each line, and ends the call by returning False;
    `debugger`, a `pdb.Pdb`, is entered at the first.

    Raises KernelFaultError where the text breaks the convention: for what it says itself, for outputs that are not
    written whole, and for results that nobody wrote; BdbQuit where the debugger is left.
    """
    call = _Call(kernel, definition, arrays, sizes or {}, parts or 1, threads, offset)
    with np.errstate(all="ignore"), compiling_for((target or host()).native):
        asked = call.ask()
        if parts is None:
            parts = asked
            if parts > 1:
                call = _Call(kernel, definition, arrays, sizes or {}, parts, threads, offset)
                call.ask()
        call.watch, call.debugger = watch, debugger
        code = 0
        for turn, part in enumerate(range(parts) if order is None else order):
            code = call.part(part, turn % threads) or code
            if code == STOPPED:
                break
    if code == 0:
        call.check_outputs(spare_lanes)
    return Ran(code, call.outputs, call.undefined(), asked)


class _Call:
    """One call of a kernel: its memory, and its text as a Python function."""

    def __init__(
        self,
        kernel: Kernel,
        definition: PrimitiveDefinition,
        arrays: Sequence[np.ndarray],
        sizes: Mapping[str, int],
        parts: int,
        threads: int,
        offset: int,
    ) -> None:
        self.kernel, self.definition, self.parts = kernel, definition, parts
        self.memory = Memory()
        self.memory.races = parts > 1
        self.watch: Watch | None = None
        self.debugger: Any = None
        self._rounds = 0
        self._shapes = [
            tuple(dims.evaluate(dim, sizes) for dim in type_.shape)  # type: ignore[arg-type]
            for type_ in definition.results
        ]
        self.outputs = [
            np.zeros(math.prod(shape) * type_.dtype.itemsize, np.uint8).view(type_.dtype.numpy).reshape(shape)
            for shape, type_ in zip(self._shapes, definition.results, strict=True)
        ]
        self._lay_out(arrays, [sizes[name] for name in definition.variables], threads, offset)
        self._file = f"<kernel {kernel.description or 'without a title'}>"
        self.memory.line = self._executed_line
        self._function = self._compiled()

    def _lay_out(self, arrays: Sequence[np.ndarray], variables: Sequence[int], threads: int, offset: int) -> None:
        memory, kernel = self.memory, self.kernel
        words = memory.add("static words", _bytes(np.array([*kernel.words], np.int64)))
        inputs = [
            memory.add(f"input {i} ({type_})", _bytes(np.require(array, type_.dtype.numpy, "C")), offset=offset)
            for i, (array, type_) in enumerate(zip(arrays, self.definition.params, strict=True))
        ]
        self._results = [
            memory.add(f"output {i} ({type_})", _bytes(array), offset=offset, writable=0, undefined=0, shared=True)
            for i, (array, type_) in enumerate(zip(self.outputs, self.definition.results, strict=True))
        ]
        addresses = [region.base for region in (words, *inputs, *self._results)]
        given = [*[0] * ARGUMENT_HEAD, *addresses, *variables]
        known = len(given) * WORD.itemsize
        self._args = memory.add(
            "arguments",
            _bytes(np.array([*given, *[0] * NOTE_WORDS], np.int64)),
            offset=WORD.itemsize,
            writable=known,
            undefined=known,
            shared=True,
        )
        self._scratch = [self._scratch_memory(thread) for thread in range(threads)]

    def _scratch_memory(self, thread: int) -> Region:
        """Memory that nobody wrote. Where there are several parts, a thread's first one finds the word -1 there."""
        data = np.full(self.kernel.scratch_bytes, 0xFF, np.uint8)
        defined = min(WORD.itemsize, len(data)) if self.parts > 1 else 0
        return self.memory.add(f"scratch memory of thread {thread}", data, writable=0, undefined=defined)

    # ---- the text ----

    def _compiled(self) -> Callable[..., Any]:
        code, names = _code(self.kernel.source, self._file)
        known, access = vocabulary(self.kernel.lanes), Access(self.memory, self.kernel.lanes)
        values: dict[str, Any] = {
            "stoppable": lambda args: None,
            "range": self._range,
            "__name__": self._file,
            f"{_HIDDEN}word": wrapped,
            f"{_HIDDEN}quotient": quotient,
            f"{_HIDDEN}rest": rest,
            f"{_HIDDEN}divided": divided,
            f"{_HIDDEN}round": self._round,
        }
        values |= {name: known[name](access) for name in names if name in known}
        exec(code, values)
        return values["kernel"]

    def _range(self, *bounds: int) -> range:
        """`range` of words; no rounds for steps of 0."""
        if len(bounds) == 3 and bounds[2] == 0:
            return range(0)
        rounds = range(*map(index, bounds))
        self._round(len(rounds))
        return rounds

    def _round(self, count: int = 1) -> bool:
        """Rounds of a loop begin."""
        self._rounds += count
        step(count)
        if self._rounds > MAX_ROUNDS:
            raise Fault(f"loops take more than {MAX_ROUNDS} rounds: does one not end?")
        return True

    # ---- calls ----

    def ask(self) -> int:
        """Into how many parts the kernel wants to be split, for two threads."""
        self.memory.part = NOBODY
        return self._called(0, -1, 2)

    def part(self, part: int, thread: int) -> int:
        self.memory.part = part
        return self._called(self._scratch[thread].base, part, self.parts)

    def _called(self, scratch: int, part: int, parts: int) -> int:
        arguments = self._args.base + ARGUMENT_HEAD * WORD.itemsize, scratch, part, parts
        self._rounds = 0
        try:
            if self.debugger is not None and part >= 0:
                with _shown(self._file, self.kernel.source):
                    result = self.debugger.runcall(self._function, *arguments)
                if result is None and self.debugger.quitting:
                    raise BdbQuit
            elif self.watch is not None and part >= 0:
                try:
                    result = _Watching(self, part, self.watch).run(arguments)
                except _Enough:
                    return STOPPED
            else:
                result = self._function(*arguments)
        except _USUAL as error:
            raise self._fault(error) from error
        if self.memory.is_streaming and result == 0:
            raise self.wrong(f"part {part} has stored non-temporally (vstream), and does not end with streamed()")
        if self.memory.amx is not None:
            raise self.wrong(f"part {part} uses AMX, and does not end with amx_end()")
        if not isinstance(result, int) or (result == STOPPED and part >= 0):
            raise self.wrong(f"part {part} of {parts} returns {result}; a kernel returns 0 or a failure's code")
        return int(result)

    def wrong(self, reason: str, line: int = 0) -> KernelFaultError:
        """The error for a fault found after the call."""
        return KernelFaultError(
            reason, kernel=self.kernel.description, line=line, text=self.line(line), part="", variables={}
        )

    def _executed_line(self) -> int:
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_filename != self._file:
            frame = frame.f_back
        return 1 if frame is None else frame.f_lineno

    def _fault(self, error: Exception) -> KernelFaultError:
        """Where in the text an operation failed, and what the names of that line hold."""
        frame, line = self._frame(error.__traceback__)
        text = self.line(line)
        variables = {
            name: self.shown(frame.f_locals[name]) for name in _names(text) if frame and name in frame.f_locals
        }
        part = self.memory.part
        return KernelFaultError(
            _reason(error),
            kernel=self.kernel.description,
            line=line,
            text=text,
            part="-1 (how many parts?)" if part == NOBODY else f"{part} of {self.parts}",
            variables=variables,
        )

    def _frame(self, traceback: TracebackType | None) -> tuple[Any, int]:
        frame, line = None, 0
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self._file:
                frame, line = traceback.tb_frame, traceback.tb_lineno
            traceback = traceback.tb_next
        return frame, line

    def line(self, number: int) -> str:
        lines = self.kernel.source.splitlines()
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def shown(self, value: Any) -> str:
        """A value as people read it: an address by the tensor that lies there."""
        text = self.memory.named(value) if type(value) is int else repr(value)
        return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"

    def _states(self) -> Iterator[tuple[Region, np.ndarray]]:
        """Of each output, what its elements hold: what the worst of their bytes do."""
        for region, output in zip(self._results, self.outputs, strict=True):
            state = np.zeros(region.size, np.int32) if region.state is None else region.state
            state = state.reshape(*output.shape, output.dtype.itemsize)
            yield region, np.where(state.min(-1) == UNWRITTEN, UNWRITTEN, state.max(-1))

    def check_outputs(self, spare_lanes: bool) -> None:
        """All of every output has been written, and with what is defined. Raises KernelFaultError."""
        for region, state in self._states():
            wrong = {"never written": state == UNWRITTEN}
            if not spare_lanes:
                wrong["made of memory that nobody wrote"] = state > DEFINED
            for how, is_wrong in wrong.items():
                if is_wrong.any():
                    first = tuple(np.argwhere(is_wrong)[0].tolist())
                    count = np.count_nonzero(is_wrong)
                    reason = f"of {region.name}, {count} of {state.size} elements are {how}, such as {list(first)}"
                    raise self.wrong(reason, max(0, int(state[first])))

    def undefined(self) -> list[np.ndarray]:
        return [state != DEFINED for _, state in self._states()]


def _bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, in place."""
    return array.reshape(-1).view(np.uint8)


# ---- what goes wrong ----

_USUAL = (Fault, NameError, TypeError, ValueError, ArithmeticError, IndexError, AttributeError, MemoryError)


def _reason(error: Exception) -> str:
    if isinstance(error, Fault):
        return str(error)
    if isinstance(error, UnboundLocalError):
        return f"a variable is read before it is assigned: {error}"
    if isinstance(error, NameError):
        return f"{error}: neither a variable nor of the vocabulary of kernels (vectors/simd.py)"
    return f"{type(error).__name__}: {error}"


def _names(text: str) -> list[str]:
    """The names in a line of a text, in order."""
    return list(dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text)))


# ---- Python as a processor does it ----


@lru_cache(maxsize=16)
def _code(source: str, file: str) -> tuple[CodeType, frozenset[str]]:
    """The code of a kernel's text, and the names of others that it uses. Raises KernelFaultError for a syntax error."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise KernelFaultError(
            f"the text is not Python: {error.msg}", kernel=file, line=error.lineno or 0, text=(error.text or "").strip(),
            part="", variables={},
        ) from None  # fmt: skip
    code = compile(ast.fix_missing_locations(_AsProcessor().visit(tree)), file, "exec")
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return code, frozenset(name for each in inner for name in each.co_names)


class _AsProcessor(ast.NodeTransformer):
    """Lets words wrap around, and divisions by 0 give 0. Sums, products and bits of words are wrapped once, at the end: the
    lowest 64 bits of the result depend on no others."""

    _RING = (ast.Add, ast.Sub, ast.Mult, ast.LShift, ast.BitAnd, ast.BitOr, ast.BitXor)
    _DIVISIONS: Mapping[type, str] = {ast.FloorDiv: "quotient", ast.Mod: "rest", ast.Div: "divided"}

    def __init__(self) -> None:
        self._is_operand = False  # of a sum or product

    def _visited(self, node: ast.AST, is_operand: bool) -> Any:
        outer, self._is_operand = self._is_operand, is_operand
        found = super().generic_visit(node)
        self._is_operand = outer
        return found

    def generic_visit(self, node: ast.AST) -> Any:
        return self._visited(node, False)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if isinstance(node.op, self._RING):
            found = self._visited(node, True)
            return found if self._is_operand else self._called("word", node, found)
        found, division = self._visited(node, False), self._DIVISIONS.get(type(node.op))
        return found if division is None else self._called(division, node, found.left, found.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """`a += b` is `a = a + b`, whose value wraps around."""
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)  # type: ignore[union-attr]
        return self.visit(ast.copy_location(ast.Assign([node.target], ast.copy_location(value, node)), node))

    def visit_While(self, node: ast.While) -> Any:
        found = self.generic_visit(node)
        found.test = ast.BoolOp(ast.And(), [self._called("round", node), found.test])
        return found

    @staticmethod
    def _called(name: str, node: ast.AST, *operands: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Call(ast.Name(_HIDDEN + name, ast.Load()), list(operands), []), node)


# ---- line by line ----


@lru_cache(maxsize=16)
def _assigned(source: str) -> dict[int, tuple[str, ...]]:
    """The names that each line assigns."""
    found: dict[int, tuple[str, ...]] = {}
    for node in ast.walk(ast.parse(source)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = tuple(target.id for target in targets if isinstance(target, ast.Name))
        if names and isinstance(node, ast.stmt):
            found[node.lineno] = found.get(node.lineno, ()) + names
    return found


class _Watching:
    """Runs one part and tells of each line that was executed."""

    def __init__(self, call: _Call, part: int, watch: Watch) -> None:
        self._call, self._part, self._watch = call, part, watch
        self._assigned = _assigned(call.kernel.source)
        self._line = 0  # that is being executed

    def run(self, arguments: Sequence[int]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return self._call._function(*arguments)
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._executed if frame.f_code.co_filename == self._call._file else None

    def _executed(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "return"):
            if self._line:
                self._tell(frame)
            self._line = frame.f_lineno
        return self._executed

    def _tell(self, frame: FrameType) -> None:
        values = frame.f_locals
        shown = {name: self._call.shown(values[name]) for name in self._assigned.get(self._line, ()) if name in values}
        step = Step(self._part, self._line, self._call.line(self._line), shown)
        if self._watch(step) is False:
            raise _Enough


@contextmanager
def _shown(file: str, source: str) -> Iterator[None]:
    """Lets debuggers show the lines of a text."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    try:
        yield
    finally:
        linecache.cache.pop(file, None)
