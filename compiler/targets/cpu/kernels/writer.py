"""Writing the text of a kernel: lines and indentation, sizes, addresses, the split into parts.

Static sizes become words, so that kernels of one pattern have one text; symbolic ones are computed from the dimension
arguments. Nothing here knows an operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from .....formats import dims
from .....formats.dims import Dim, SymbolicDim
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from .....formats.types import TensorType
from .....native.convention import STREAM_ALIGNMENT
from ....codegen.copies import shape_of
from .. import costs
from ..target import Target
from .kernel import UNFIT, Kernel, TooLargeError, Unsupported
from .operands import Rewired
from .relations import WORD, Relation, magnitude, relations, unbounded

_NOTE_BYTES = 64  # at the beginning of scratch memory that is prepared
_MOST_SCRATCH_BYTES = 1 << 28  # of a thread: attributes of strange definitions, such as strides of 2^40, ask for more
TEXT = 1 << 18  # characters of a kernel's text; the longest of the zoo, ResNet-18's by Winograd, has 63,730
_LARGEST_ESTIMATE = 1 << 62  # nanoseconds


class Writer:
    """The text of one kernel, as it grows, and its words."""

    def __init__(self, definition: PrimitiveDefinition, target: Target, title: str) -> None:
        self.definition, self.target, self.title = definition, target, title
        self.lanes = target.lanes()
        self.words: list[int] = []
        self._indent = "    "
        self._left = TEXT  # characters that may still be written
        self._lines = ["def kernel(args, scratch, part, parts):", f'    """{title}"""', "    stoppable(args)"]
        self("words = word(args, 0)")
        self._relations = list(relations(definition))
        self._prepared = ""
        self._tensors = len(definition.params) + len(definition.outputs)
        self._places: tuple[int, ...] = tuple(range(self._tensors))
        if isinstance(definition, Rewired):
            self._tensors, self._places = definition.tensors, definition.places
        first = 1 + self._tensors
        self._variables = {name: dims.variable(f"d{i}") for i, name in enumerate(definition.variables)}
        for i in range(len(definition.variables)):
            self(f"d{i} = word(args, {first + i})")
        self._check_products()

    def require_zero(self, dim: Dim) -> None:
        """Makes the kernel fail if a dimension is not 0. Before the split."""
        if isinstance(dim, SymbolicDim):
            self._relations.append(Relation(dim, is_zero=True))

    def __call__(self, *lines: str) -> None:
        """Appends lines at the present indentation. Raises TooLargeError."""
        for line in lines:
            self._left -= len(self._indent) + len(line)
            if self._left < 0:
                raise TooLargeError(f"the text of the kernel {self.title!r} has more than {TEXT} characters")
            self._lines.append(self._indent + line)

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`with write.block("for …"):` indents what is written inside."""
        self(f"{head}:")
        self._indent += "    "
        yield
        self._indent = self._indent[:-4]

    def size(self, name: str, dim: Dim) -> str:
        """Defines the variable `name` to be a dimension; returns the name."""
        if isinstance(dim, SymbolicDim):
            factor, rest = dims.content(dim)
            text = str(dims.substitute(rest, self._variables))
            if factor != 1:
                text = f"{self._word(factor)} * {text}" if text.isalnum() else f"{self._word(factor)} * ({text})"
        else:
            text = self._word(dim)
        self(f"{name} = {text}")
        return name

    def sizes(self, **sizes: Dim) -> None:
        """Defines several variables to be dimensions."""
        for name, dim in sizes.items():
            self.size(name, dim)

    def _word(self, value: int) -> str:
        """A static word of that value."""
        if not -(1 << 63) <= value < 1 << 63:
            raise Unsupported(f"{value} is not a word")
        self.words.append(value)
        return f"word(words, {len(self.words) - 1})"

    def input(self, name: str, number: int) -> str:
        """Defines `name` to be the address of a parameter's elements."""
        assert 0 <= number < len(self.definition.params), f"value {number} is not a parameter"
        self(f"{name} = word(args, {self.argument(number)})")
        return name

    def inputs(self, numbers: Sequence[int], *names: str) -> None:
        """Defines each name to be the address of a parameter's elements; the last ones may have none."""
        for name, number in zip(names, numbers, strict=False):
            self.input(name, number)

    def output(self, name: str, number: int) -> str:
        """Defines `name` to be the address of an output's elements."""
        assert 0 <= number < len(self.definition.outputs), f"there is no output {number}"
        self(f"{name} = word(args, {self.argument(len(self.definition.params) + number)})")
        return name

    def argument(self, number: int) -> int:
        """The word of the arguments that holds the address of a tensor. Parameters count first, then outputs."""
        return 1 + self._places[number]

    def notes(self, name: str) -> None:
        """Defines `name` to be the address of the call's notes, which all parts share, at a multiple of 128."""
        arguments = 1 + self._tensors + len(self.definition.variables)
        self(f"{name} = args + {8 * arguments + 127} & -128")

    def prepare(self, name: str) -> None:
        """Defines `name` as the key of the data staged in scratch (-1: none): what one part leaves there
        serves the thread's next ones. Before the split, and before any other use of scratch."""
        self._prepared = name
        self(f"{name} = -1", "noted = scratch", f"scratch += {_NOTE_BYTES}")

    def split(self, units: str, nanoseconds: str, is_uneven: bool = False) -> None:
        """Answers with the number of parts that pay, and takes this part's share of the units."""
        self.ask(units, nanoseconds, is_uneven)
        self.share(units)

    def split_evenly(self, units: str, pieces: str, nanoseconds: str, is_uneven: bool = False) -> None:
        """The same where units are few and large, and consist of `pieces` each: `first` and `last` count pieces, so that
        two threads get three and a half of seven units each. Each gets the same number of parts, about one a unit."""
        self.ask(f"({units} + parts - 1) // parts * parts", nanoseconds, is_uneven)
        self.share(f"{units} * {pieces}")

    def ask(self, units: str, nanoseconds: str, is_uneven: bool = False) -> None:
        """Answers with the number of parts, of at least one unit of work, for the call: twice as many if the last
        units are smaller, so that the thread with these can steal from the others."""
        threads = "2 * parts if parts > 1 else 1" if is_uneven else "parts"
        with self.block("if part < 0"):
            self(f"return parts_for({nanoseconds}, {units}, {threads})")
        self._check_sizes()
        self._leave_if_empty()

    def alone(self) -> None:
        """Answers that the call is one part. If there are more, the first one does it all."""
        with self.block("if part != 0"):
            self("return 1 if part < 0 else 0")
        self._check_sizes()
        self._leave_if_empty()

    def _check_products(self) -> None:
        """Fails if a dimension cannot be computed, before any is: the least word divided by -1 overflows."""
        names = {name: str(dim) for name, dim in self._variables.items()}
        for operand in unbounded(self.definition):
            with self.block(f"if {magnitude(operand, names)} >= {float(WORD)}"):
                self(f"return {UNFIT}")

    def _check_sizes(self) -> None:
        """Fails if sizes do not match."""
        for number, relation in enumerate(dict.fromkeys(self._relations)):
            self.size(f"related{number}", relation.dim)
            with self.block(f"if related{number} {relation.failure}"):
                self(f"return {UNFIT}")

    def _leave_if_empty(self) -> None:
        """There is nothing to do if no output has elements. Loops alone would find that out too, but after as many rounds
        as the length of an axis beside an empty one, which may be any number."""
        counts = [dims.element_count(shape_of(result)) for result in self.definition.results]
        if not any(counts):
            self("return 0")
        elif any(isinstance(count, SymbolicDim) for count in counts):
            factors = [dims.content(count)[1] if isinstance(count, SymbolicDim) else count for count in counts]
            empty = " and ".join(f"{dims.substitute(factor, self._variables)} == 0" for factor in factors)
            with self.block(f"if {empty}"):
                self("return 0")

    def share(self, units: str) -> None:
        """Defines `first` and `last`: this part's share of the units."""
        units = f"({units})" if "+" in units else units
        self("first = 0", f"last = {units}")
        with self.block("if parts > 1"):  # two divisions take longer than a small kernel
            self(f"first = {units} * part // parts", f"last = {units} * (part + 1) // parts")
            if self._prepared:
                self(f"{self._prepared} = word(noted, 0)")

    def kernel(self, nanoseconds: float, scratch_bytes: int = 0) -> Kernel:
        """The finished kernel."""
        if scratch_bytes > _MOST_SCRATCH_BYTES:
            raise Unsupported(f"{scratch_bytes} bytes of scratch memory")
        if self._prepared:
            scratch_bytes += _NOTE_BYTES
            with self.block("if parts > 1"):
                self(f"store_int64(noted, 0, {self._prepared})")
        source = "\n".join([*self._lines, "    return 0", ""])
        nanoseconds = min(max(1, nanoseconds), _LARGEST_ESTIMATE)
        return Kernel(source, self.lanes, tuple(self.words), scratch_bytes, int(nanoseconds), self.title)


def write_copy(write: Writer, itemsize: int, target: str, source: str, begin: str, end: str) -> None:
    """Copies elements `begin` to `end` from one address to the same offsets at another, as vectors."""
    place, lanes = scaled("k", itemsize), write.lanes
    load = f"vload_uint{8 * itemsize}({source}, {place}"
    write(f"whole = {end} - ({end} - {begin}) % {lanes}")
    with write.block(f"for k in range({begin}, whole, {lanes})"):
        write(f"vstore({target}, {place}, {load}))")
    with write.block(f"if whole < {end}"):
        write("k = whole", f"rest = {end} - whole", f"vstore({target}, {place}, {load}, rest), rest)")


class Odometer:
    """Writes the indices of nested axes that are walked as one, given outermost first as (index variable, size variable)."""

    def __init__(self, write: Writer, axes: Sequence[tuple[str, str]]) -> None:
        self.write, self.axes = write, list(axes)

    @property
    def count(self) -> str:
        """The number of places, as an expression."""
        return " * ".join(size for _, size in self.axes) or "1"

    def start(self, at: str) -> None:
        """Sets the indices to place number `at`, a variable."""
        for index, size in reversed(self.axes[1:]):
            self.write(f"{index} = {at} % {size}", f"{at}_{index} = {at} // {size}")
            at = f"{at}_{index}"
        if self.axes:
            self.write(f"{self.axes[0][0]} = {at}")

    def advance(self, count: str = "1") -> None:
        """Advances the indices by `count`, which must not pass the end of the innermost axis."""
        self._carry(self.axes, count)

    def _carry(self, axes: Sequence[tuple[str, str]], count: str = "1") -> None:
        if not axes:
            return
        *outer, (index, size) = axes
        self.write(f"{index} += {count}")
        if outer:
            with self.write.block(f"if {index} == {size}"):
                self.write(f"{index} = 0")
                self._carry(outer)


def leaves_cache(shape: Sequence[Dim], target: Target) -> bool:
    """Whether a float32 result is larger than L2; an unknown size counts as small."""
    size = dims.product(shape)
    return isinstance(size, int) and 4 * size > target.l2_bytes


def is_streamed(type_: TensorType) -> bool:
    """Whether a result is written by non-temporal stores: it is larger than the caches, and reading what is overwritten would
    be a third or a quarter of the memory traffic."""
    return type_.is_static and type_.nbytes >= costs.STREAMED_BYTES


def write_streaming(write: Writer, streams: bool, places: str, write_loop: Callable[[str], None]) -> None:
    """A loop, given its vector store function: a non-temporal one if it `streams` and no bit of the `places`
    prevents it."""
    if not streams:
        write_loop("vstore")
        return
    with write.block(f"if ({places}) & {STREAM_ALIGNMENT - 1} == 0"):
        write_loop("vstream")
    with write.block("else"):
        write_loop("vstore")


def estimate(dim: Dim) -> int:
    """A dimension's value in estimates."""
    if isinstance(dim, int):
        return dim
    try:
        return dims.evaluate(dim, dict.fromkeys(dims.variables(dim), costs.SYMBOLIC_SIZE))
    except ZeroDivisionError:
        return costs.SYMBOLIC_SIZE


def scaled(elements: str, itemsize: int) -> str:
    """Elements as bytes."""
    if itemsize == 1:
        return elements
    return f"{elements} * {itemsize}" if elements.isalnum() else f"({elements}) * {itemsize}"


def widened(loaded: str, dtype: DType) -> str:
    """A loaded value in its computed type."""
    return loaded if dtype.computed is dtype else f"convert_{dtype.computed.name}({loaded})"


def stored(value: str, dtype: DType) -> str:
    """A computed value in its stored type."""
    return value if dtype.computed is dtype else f"convert_{dtype.name}({value})"
