"""The nodes of the IR; the package says what they are together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from ...formats.dtypes import DType
from ...formats.messages.readable import Readable, brief
from ...formats.primitive import Attributes, PrimitiveDefinition
from ...formats.types import ShapeDim, TensorType, Type, TypeVariable, types_in


@dataclass(frozen=True, eq=False, repr=False)
class Var(Readable):
    """A variable. `type` is None until inference (parameters must have one); two variables of one name are two variables."""

    name: str
    type: Type | None = None

    def _shown(self) -> str:
        return f"{brief(self.name)}: {self.type or 'type not known yet'}"

    def _brief(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Readable):
    """A tensor known at compile time. The array is read-only.

    A `weak` one is a number of the source: it takes the element type of the tensors that it meets in an operator, and inference
    puts an ordinary one in its place."""

    value: np.ndarray
    weak: bool = False

    @property
    def array(self) -> np.ndarray:
        """The elements, for those who decide nothing by them."""
        return self.value

    def move(self, array: np.ndarray) -> None:
        """Has the same elements in another place, so that the memory that they lay in can be used again."""
        object.__setattr__(self, "value", array)

    @property
    def type(self) -> TensorType:
        return TensorType(DType.of(self.array.dtype), self.array.shape)

    def _shown(self) -> str:
        return f"{self.type}{f' {self.array.item()!r}' if self.array.size == 1 else ''}"

    def _brief(self) -> str:
        return str(self.array.item()) if self.array.size == 1 else str(self.type)


class Weight(Constant):
    """A constant that is a weight of the model, or made of such, and may be another one when the program runs.

    `names` are the weights that it is made of. `made` is how: an operator on constants, and which of its results; None for a
    weight itself. Reading `value` makes the result depend on it, in a way that cannot be repeated for new weights: then all
    these weights are settled, and must stay what they are.
    """

    def __init__(
        self, array: np.ndarray, names: frozenset[str], settled: set[str], made: tuple[OperatorCall, int] | None = None
    ) -> None:
        for name, value in {"weak": False, "_array": array, "names": names, "settled": settled, "made": made}.items():
            object.__setattr__(self, name, value)

    names: frozenset[str]
    settled: set[str]  # the names of all settled weights, of the whole compilation
    made: tuple[OperatorCall, int] | None

    @property
    def value(self) -> np.ndarray:
        self.settled.update(self.names)
        return self._array  # type: ignore[attr-defined]

    @property
    def array(self) -> np.ndarray:
        return self._array  # type: ignore[attr-defined]

    def move(self, array: np.ndarray) -> None:
        object.__setattr__(self, "_array", array)


@dataclass(frozen=True, eq=False, repr=False)
class GlobalRef(Readable):
    """A global function as a value or as a callee."""

    name: str

    def _brief(self) -> str:
        return f"@{self.name}"


Atom = Union[Var, Constant, GlobalRef]


def frozen(array: np.ndarray) -> np.ndarray:
    """A constant's array: the same elements in rows, not copied if they lie so, and read-only."""
    array = np.asarray(array, order="C")
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


# ---- expressions ----


@dataclass(frozen=True, eq=False, repr=False)
class OperatorCall(Readable):
    """An operator of the table (compiler/operators) on tensors. Several results make a tuple."""

    operator: str
    args: tuple[Atom, ...]
    attributes: Attributes = ()


@dataclass(frozen=True, eq=False, repr=False)
class PrimitiveCall(Readable):
    """A fused primitive on tensors, after the fusion pass. Several results make a tuple."""

    definition: PrimitiveDefinition
    args: tuple[Atom, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Call(Readable):
    """A function: a GlobalRef, or a variable that holds a function value."""

    callee: Atom
    args: tuple[Atom, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ImportCall(Readable):
    """A function of Python's that the module imports. It may do anything that is seen outside: calls of imports, and of functions
    that may come to some, are made as often as the program says, in its order."""

    name: str
    args: tuple[Atom, ...]


@dataclass(frozen=True, eq=False, repr=False)
class MakeTuple(Readable):
    fields: tuple[Atom, ...]


@dataclass(frozen=True, eq=False, repr=False)
class GetItem(Readable):
    """A field of a tuple."""

    tuple: Atom
    index: int


@dataclass(frozen=True, eq=False, repr=False)
class Construct(Readable):
    """A value of a data type."""

    data_type: str
    constructor: str
    args: tuple[Atom, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Function(Readable):
    """Parameters and a body; as an expression, a closure over the variables around it."""

    params: tuple[Var, ...]
    body: Block
    result_type: Type | None = None
    name: str = ""
    captured: int = 0  # of a lifted function, how many of the parameters, the last, MakeClosure binds
    result_names: tuple[str, ...] = ()  # what the model calls the result, or the fields of a tuple; empty: nothing

    @property
    def is_generic(self) -> bool:
        """Whether its parameters' types have variables."""
        types = (type_ for param in self.params if param.type is not None for type_ in types_in(param.type))
        return any(isinstance(type_, TypeVariable) for type_ in types)

    def _shown(self) -> str:
        return f"{brief(self.name)}({brief(self.params)[1:-1]}): {len(self.body.bindings)} bindings"


@dataclass(frozen=True, eq=False, repr=False)
class MakeClosure(Readable):
    """After lambda lifting: the global function `function` with its last parameters bound to `captured`."""

    function: str
    captured: tuple[Atom, ...]


@dataclass(frozen=True, eq=False, repr=False)
class If(Readable):
    condition: Atom  # a scalar tensor
    then: Block
    otherwise: Block


@dataclass(frozen=True, eq=False, repr=False)
class Match(Readable):
    """The first clause whose pattern fits; if none does, the program fails at run time."""

    value: Atom
    clauses: tuple[tuple[Pattern, Block], ...]


@dataclass(frozen=True, eq=False, repr=False)
class Loop(Readable):
    """`variables` start as `initial`; while `condition` holds, they become the tuple that `body` returns. The value is the
    tuple of their last values (also when there is one). Shapes may change between rounds where a variable's type says ?."""

    variables: tuple[Var, ...]
    initial: tuple[Atom, ...]
    condition: Block  # a scalar tensor
    body: Block  # a tuple, one field a variable


@dataclass(frozen=True, eq=False, repr=False)
class MatchShape(Readable):
    """`value`, a tensor, whose shape is checked at run time: dimensions that are yet unbound variables are bound by it."""

    value: Atom
    shape: tuple[ShapeDim, ...]


Expr = Union[
    Atom,
    OperatorCall,
    PrimitiveCall,
    Call,
    ImportCall,
    MakeTuple,
    GetItem,
    Construct,
    Function,
    MakeClosure,
    If,
    Match,
    Loop,
    MatchShape,
]


# ---- patterns ----


@dataclass(frozen=True, eq=False, repr=False)
class Wildcard(Readable):
    """Fits everything."""


@dataclass(frozen=True, eq=False, repr=False)
class Bind(Readable):
    """Fits everything, and names it."""

    var: Var


@dataclass(frozen=True, eq=False, repr=False)
class ConstructorPattern(Readable):
    constructor: str
    fields: tuple[Pattern, ...]


@dataclass(frozen=True, eq=False, repr=False)
class TuplePattern(Readable):
    fields: tuple[Pattern, ...]


Pattern = Union[Wildcard, Bind, ConstructorPattern, TuplePattern]


# ---- structure ----


@dataclass(frozen=True, eq=False, repr=False)
class Binding(Readable):
    """`var = value`; `origin` is the name of the model node that it came from, kept through every pass."""

    var: Var
    value: Expr
    origin: str = ""

    def _shown(self) -> str:
        return f"{brief(self.var)} = {self.value!r}{f' from {brief(self.origin)}' if self.origin else ''}"


@dataclass(frozen=True, eq=False, repr=False)
class Block(Readable):
    bindings: tuple[Binding, ...]
    result: Atom

    def _shown(self) -> str:
        return f"of {len(self.bindings)} bindings: {brief(self.result)}"


_WITH_ARGUMENTS = (OperatorCall, PrimitiveCall, ImportCall, Construct)
_ATOMS = (Var, Constant, GlobalRef)
# The fields of an expression that hold atoms, and those that hold blocks; the clauses of a Match hold blocks behind patterns
_HELD: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(_WITH_ARGUMENTS, (("args",), ())),
    Call: (("callee", "args"), ()),
    MakeTuple: (("fields",), ()),
    GetItem: (("tuple",), ()),
    Function: ((), ("body",)),
    MakeClosure: (("captured",), ()),
    If: (("condition",), ("then", "otherwise")),
    Match: (("value",), ()),
    Loop: (("initial",), ("condition", "body")),
    MatchShape: (("value",), ()),
}


def blocks_of(expr: Expr) -> tuple[Block, ...]:
    """The blocks that lie directly in an expression."""
    if isinstance(expr, Match):
        return tuple(block for _, block in expr.clauses)
    names = _HELD[type(expr)][1] if type(expr) in _HELD else ()
    return tuple([getattr(expr, name) for name in names]) if names else ()


def atoms_of(expr: Expr) -> tuple[Atom, ...]:
    """The atoms that an expression uses itself, not those in its blocks."""
    if isinstance(expr, _WITH_ARGUMENTS):
        return expr.args
    if isinstance(expr, _ATOMS):
        return (expr,)
    held = [getattr(expr, name) for name in _HELD[type(expr)][0]]
    return tuple(atom for each in held for atom in (each if isinstance(each, tuple) else (each,)))


def map_atoms(expr: Expr, change: Callable[[Atom], Atom], change_block: Callable[[Block], Block]) -> Expr:
    """The same expression with its atoms and its blocks replaced: itself where no atom becomes another."""
    if isinstance(expr, _WITH_ARGUMENTS):  # the common case
        args = tuple(map(change, expr.args))
        return expr if args == expr.args else dataclasses.replace(expr, args=args)
    if isinstance(expr, _ATOMS):
        return change(expr)
    atoms, blocks = _HELD[type(expr)]
    changes: dict[str, Any] = {}
    for name in atoms:
        held = getattr(expr, name)
        changes[name] = tuple(map(change, held)) if isinstance(held, tuple) else change(held)
    changes |= {name: change_block(getattr(expr, name)) for name in blocks}
    if isinstance(expr, Match):
        changes["clauses"] = tuple((pattern, change_block(block)) for pattern, block in expr.clauses)
    # atoms and blocks are equal to themselves alone
    is_same = all(new == getattr(expr, name) for name, new in changes.items())
    return expr if is_same else dataclasses.replace(expr, **changes)


def pattern_vars(pattern: Pattern) -> Iterator[Var]:
    """The variables that a pattern binds, from left to right."""
    if isinstance(pattern, Bind):
        yield pattern.var
    elif isinstance(pattern, (ConstructorPattern, TuplePattern)):
        for part in pattern.fields:
            yield from pattern_vars(part)
