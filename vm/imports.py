"""Functions of Python's that a program calls. It declares them by name and type; who makes a machine hands them over.

    machine = treadle.VirtualMachine(executable, imports={"log": print})

A program reaches what was handed to it, and nothing else: no registry is looked at, nothing is found by name. What a function
gives is checked against the declared type before the program goes on; symbolic dimensions are what the arguments of the call make
them. A function may call the machine, keep what it is given, take any time and raise anything: an exception ends the call and
comes out of it, with a note that says where. Its time counts for the call's `max_seconds`, but nothing ends it in the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..formats import dims
from ..formats.dims import Dim, SymbolicDim
from ..formats.messages.errors import ArgumentError, DTypeError, ShapeError, TreadleError, UnknownFunctionError
from ..formats.program import Import, Program
from ..formats.types import ShapeDim, TensorType, TupleType, Type
from .context import Context
from .convert import Arguments, Results, release
from .layout import CONTEXT, OBJECT, WORD
from .memory import set_word, tensor_shape, word
from .places import Place, iterations

_SHOWN = 1000  # imports, and characters of each, in a message: a file may have any
Functions = Mapping[str, Callable[..., Any]]


def find_imports(program: Program, given: Functions | None) -> tuple[Imported, ...]:
    """The program's imports, in order, with the functions given for them. Raises UnknownFunctionError with all that are
    missing, and ArgumentError for what cannot be called."""
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise ArgumentError(f"imports={given!r}: expected a mapping of names to functions")
    if missing := missing_imports(program, given, "given"):
        raise UnknownFunctionError(
            f"{missing}. Hand over what it may call: VirtualMachine(exe, imports={{name: function}})"
        )
    for entry in program.imports:
        if not callable(given[entry.name]):
            kind = type(given[entry.name]).__name__
            raise ArgumentError(f"imports[{entry.name!r}]: expected a function, got a {kind}")
    return tuple(Imported(entry, given[entry.name]) for entry in program.imports)


def missing_imports(program: Program, given: Collection[str], participle: str) -> str:
    """Says which imports of a program are not among these; "" where none is missing."""
    missing = [str(entry) for entry in program.imports if entry.name not in given]
    if not missing:
        return ""
    what = "a function that it was" if len(missing) == 1 else f"{len(missing)} functions that it was"
    shown = [text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …" for text in missing[:_SHOWN]]
    return f"the program imports {what} not {participle}: {'; '.join(shown)}{' …' * (len(missing) > len(shown))}"


class _Call(NamedTuple):
    """A call_import of the program, decoded."""

    number: int
    dst: int
    args: tuple[int, ...]
    size: int


class Imported:
    """An import, and the function that it is for one machine."""

    def __init__(self, entry: Import, function: Callable[..., Any]) -> None:
        self.entry, self.function = entry, function
        self._params = _Sizes("the arguments", entry.type.params, ())
        self._result = _Sizes("its result", (entry.type.result,), self._params.names)

    def sizes(self, references: Sequence[int]) -> dict[str, int]:
        """The type's dimension variables for these arguments. Raises _Misfit."""
        values: dict[str, int] = {}
        self._params.match(references, values)
        return values

    def check_result(self, reference: int, values: dict[str, int]) -> None:
        """Raises _Misfit."""
        self._result.match((reference,), values)


class _Misfit(Exception):
    """Sizes that the type does not allow."""


def _dims(type_: Type) -> Iterator[ShapeDim]:
    """The dimensions of the tensors in a value, that tuples hold or that are one."""
    if isinstance(type_, TensorType):
        yield from type_.shape
    elif isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _dims(field)


def _sizes(reference: int, type_: Type) -> Iterator[int]:
    """The sizes of a value of the heap."""
    if isinstance(type_, TensorType):
        yield from tensor_shape(reference)
    elif isinstance(type_, TupleType):
        for place, field in enumerate(type_.fields):
            yield from _sizes(word(reference & ~1, OBJECT.ITEMS + place), field)


class _Sizes:
    """The symbolic dimensions of several types: what they say of variables, and what variables say of them."""

    def __init__(self, what: str, types: Sequence[Type], known: Collection[str]) -> None:
        self._what, self._types = what, types
        shape = [dim for type_ in types for dim in _dims(type_)]
        alone: dict[str, int] = {}  # variables that are a dimension themselves: where one is
        computed = []
        for place, dim in enumerate(shape):
            if isinstance(dim, SymbolicDim):
                if not dims.is_variable(dim):
                    computed.append(place)
                elif (name := str(dim)) not in known:
                    alone.setdefault(name, place)
        self._solutions: list[tuple[str, int, int, Dim]] = [(name, place, 1, 0) for name, place in alone.items()]
        self._solutions += [
            (str(found.variable), computed[found.index], found.coefficient, found.rest)
            for found in dims.solve([shape[place] for place in computed], {*known, *alone})
        ]
        self.names = {*known, *(name for name, *_ in self._solutions)}
        self._checked = [
            (place, str(dim), dim)
            for place, dim in enumerate(shape)
            if isinstance(dim, SymbolicDim) and self.names.issuperset(dims.variables(dim))
        ]

    def match(self, references: Sequence[int], values: dict[str, int]) -> None:
        """Gives the variables that have none yet the values that follow from these objects. Raises _Misfit where the sizes of
        these contradict the types."""
        if not self._checked:
            return
        sizes = [size for at, type_ in zip(references, self._types, strict=True) for size in _sizes(at, type_)]
        for name, place, coefficient, rest in self._solutions:
            size = sizes[place] if rest == 0 else sizes[place] - dims.evaluate(rest, values)
            values[name] = max(size // coefficient, 0)
        for place, text, dim in self._checked:
            expected = values.get(text)
            if expected is None:
                try:
                    expected = dims.evaluate(dim, values)
                except ZeroDivisionError:
                    known = ", ".join(f"{name} = {values[name]}" for name in dims.variables(dim))
                    raise _Misfit(f"{self._what}: a dimension {dim} is divided by 0 ({known})") from None
            if expected != sizes[place]:
                known = ", ".join(f"{name} = {values[name]}" for name in dims.variables(dim))
                told = known if text in values else f"{dim} = {expected} ({known})"
                raise _Misfit(f"{self._what}: expected a dimension {told}, got {sizes[place]}")


def call_imported(context: Context, functions: Sequence[Imported], results: Results) -> None:
    """Does the call_import at the context's program counter, and moves that past it. Raises what the function raises."""
    call = _call_at(context)
    imported = functions[call.number]
    refs = context.registers()[0]
    references = [word(refs, 2 * register + 1) for register in call.args]
    try:
        values = imported.sizes(references)
    except _Misfit as misfit:
        raise _error(context, ShapeError, imported.entry, str(misfit)) from None
    arguments = [results.shown(context, at, word(refs, 2 * r)) for at, r in zip(references, call.args, strict=True)]
    try:
        value = imported.function(*arguments)
    except Exception as error:
        _add_note(error, f"in the import {imported.entry}, called by {_told(Place.current(context))}")
        raise
    made = _taken(context, imported, value, values)
    refs = context.registers()[0]
    old = word(refs, 2 * call.dst + 1)
    set_word(refs, 2 * call.dst, word(made & ~1, OBJECT.DATA))
    set_word(refs, 2 * call.dst + 1, made)
    if old:
        release(context, old)
    context.words[CONTEXT.PC] += call.size * WORD
    context.words[CONTEXT.FUEL] -= 1


def _call_at(context: Context) -> _Call:
    at = context.words[CONTEXT.PC]
    found = context.image.import_calls.get(at)
    if found is None:
        instruction = Place.current(context).instruction
        place = instruction.word("imported"), instruction.word("dst"), instruction.list("args")
        found = context.image.import_calls[at] = _Call(*place, instruction.size)
    return found


def _taken(context: Context, imported: Imported, value: Any, values: dict[str, int]) -> int:
    """A new reference to what a function gave. Raises the errors of arguments, which say where."""
    entry = imported.entry
    try:
        made = Arguments(context, "").result(value, entry.type.result)
    except (ArgumentError, DTypeError, ShapeError) as error:
        raise _error(context, type(error), entry, error.message) from None
    try:
        imported.check_result(made, values)
    except _Misfit as misfit:
        release(context, made)
        raise _error(context, ShapeError, entry, str(misfit)) from None
    return made


def _error(context: Context, kind: type[TreadleError], entry: Import, problem: str) -> TreadleError:
    return kind(f"import {entry}: {problem}", **Place.current(context).where())


def _told(place: Place) -> str:
    node = f", node {place.node!r}" if place.node else ""
    rounds = f", {iterations(place.rounds)}" if place.rounds else ""
    return f"function {place.function.name!r}, instruction {place.index}{node}{rounds}"


def _add_note(error: Exception, note: str) -> None:
    """As Exception.add_note does it, which Python 3.10 lacks."""
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        notes.append(note)
    else:
        error.__notes__ = [note]
