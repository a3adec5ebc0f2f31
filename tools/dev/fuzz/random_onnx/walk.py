"""A random ONNX graph that grows node by node, each of which is judged as soon as it stands there.

Values carry what they are for one choice of the inputs, the witness, so that a step can ask for an operand that it needs: of a
type, a shape, a range, or exact, where rounding must not decide (the index of a maximum, a floor). A node that no judge takes is
left out, and one about which the judges disagree is a result, but no operand: what comes of it is compared with either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy's types of the narrow elements)
import numpy as np
import onnx
from onnx import helper, numpy_helper

from .judges import (
    REFERENCE_IS_WRONG,
    Array,
    Refused,
    as_array,
    by_onnxruntime,
    by_reference,
    difference,
    is_tensor,
    type_of,
    unsaid,
)

OPSETS = (13, onnx.defs.onnx_opset_version())
SYMBOLS = {"n": (2, 3, 1, 5, 4), "m": (3, 1, 4, 2, 7), "k": (4, 2, 5, 3, 1)}  # sizes, the witness's first
SIZES = (1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 16, 17)
LARGEST_SIZE = 4096  # elements of a value
LARGEST = 100.0  # the magnitude of an operand
IR_VERSION = 10

FLOATS = ("float32", "float32", "float32", "float64", "float16")  # some more often than others
SIGNED = ("int64", "int64", "int32", "int8", "int16")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
NUMBERS = (*FLOATS, *SIGNED, *UNSIGNED)
ALL = (*NUMBERS, "bool")
MOVED = (*ALL, "string")  # what may be moved and compared
WORDS = ("", "a", "b", "Ab", "ab c", "a b  c", " x", "é", "日本 語", "a-b", "10", "-2.5", "the", "THE", "straße")


class Dead(Exception):
    """A step that cannot be made here."""


@dataclass(eq=False)
class Value:
    """What a name of the graph stands for in the witness. `expected`: what it may be, one for each judge that says otherwise."""

    name: str
    array: Array
    exact: bool = True  # computed without rounding
    usable: bool = True  # as an operand
    expected: tuple[Array, ...] = ()
    slack: float = 0.0
    operator: str = ""
    judges: str = ""  # who took the node
    symbolic: tuple[Any, ...] | None = None  # the declared shape of an input
    held: onnx.TypeProto | None = None  # the type of anything but a tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> str:
        return "string" if self.array.dtype.kind == "O" else self.array.dtype.name

    @property
    def type(self) -> onnx.TypeProto:
        return self.held or type_of(self.array, self.symbolic)


Ways = dict[str, Any]  # attributes of a node; None: left out
Step = Callable[["Walk", str], None]
STEPS: dict[tuple[str, str], Step] = {}  # by domain and operator


def step(*names: str, domain: str = "") -> Callable[[Step], Step]:
    """Registers what adds a node of these operators to a walk. It gets the walk and the operator's name."""

    def register(function: Step) -> Step:
        for name in names:
            STEPS[domain, name] = function
        return function

    return register


Drawn = Callable[[Random], tuple[str, str]]


def _nothing(random: Random) -> tuple[str, str]:
    raise Dead("no steps for subgraphs")


class Walk:
    """A graph that grows. `outer`: the walk in whose graph this one is a subgraph."""

    def __init__(
        self, random: Random, opset: int, outer: Walk | None = None, fresh: float = 0.3, drawn: Drawn | None = None
    ) -> None:
        """`drawn` gives subgraphs their steps: a domain and an operator of it; by default those that the outer walk has."""
        self.random, self.opset, self.outer, self.fresh = random, opset, outer, fresh
        self.rng = np.random.default_rng(random.getrandbits(63))
        self.values: list[Value] = []
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[Value] = []
        self.initializers: list[Value] = []
        self.used: dict[str, Value] = {}  # of the walks around this one
        self.tally: Counter[str] = outer.tally if outer else Counter()
        self.hidden: list[Value] = outer.hidden if outer else []  # values of subgraphs
        self.names: list[int] = outer.names if outer else [0]
        self.drawn: Drawn = drawn or (outer.drawn if outer else _nothing)
        self.depth: int = outer.depth + 1 if outer else 0

    # ---- values ----

    def new_name(self) -> str:
        self.names[0] += 1
        return f"v{self.names[0]}"

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def one(self, *values: Any) -> Any:
        """One of them; one that is there twice twice as often."""
        return self.random.choice(values)

    def shape(self, rank: int | Sequence[int] | None = None) -> tuple[int, ...]:
        """A random one, of a rank or of one of several."""
        if rank is None:
            rank = (0, 1, 1, 2, 2, 2, 3, 3, 4)
        count = rank if isinstance(rank, int) else self.random.choice(rank)
        sizes = [self.random.choice((2, 3, 4)) if self.chance(0.4) else self.random.choice(SIZES) for _ in range(count)]
        while np.prod(sizes) > LARGEST_SIZE // 4:
            sizes[self.random.randrange(count)] = 2
        if count and self.chance(0.03):
            sizes[self.random.randrange(count)] = 0
        return tuple(sizes)

    def array(
        self, dtype: str, shape: Sequence[int], low: float | None = None, high: float | None = None
    ) -> np.ndarray:
        """Floats that are multiples of 1/8, so that sums and products of a few of them are exact, or integers, both within
        bounds that are low; truth values that are even; words."""
        if dtype == "string":
            return np.asarray(self.rng.choice(np.array(WORDS, object), shape), object)
        kind = np.dtype(dtype)
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if kind.kind in "iu":
            first = (0 if kind.kind == "u" else -4) if low is None else int(np.ceil(low))
            last = 9 if high is None else int(np.floor(high))
            return np.asarray(self.rng.integers(first, max(first, last) + 1, shape)).astype(kind)
        first_float, last_float = -4 if low is None else low, 4 if high is None else high
        return np.asarray(self.rng.integers(int(np.ceil(first_float * 8)), int(last_float * 8) + 1, shape) / 8).astype(
            kind
        )

    def put(self, array: Array, constant: bool | None = None, held: onnx.TypeProto | None = None) -> Value:
        """A new input or initializer that holds the array. Subgraphs have initializers alone, which
        values other than tensors (`held`) cannot be."""
        value = Value(self.new_name(), array if held else as_array(array), held=held)
        value.usable = held is None and not _huge(value.array)
        if held and self.outer:
            raise Dead("a subgraph has no inputs of its own")
        if held:
            self.inputs.append(value)
        elif self.outer or (self.chance(0.3) if constant is None else constant):
            self.initializers.append(value)
        else:
            self.inputs.append(value)
            value.symbolic = self._declared(value.array)
        self.values.append(value)
        return value

    def setting(self, array: Any, dtype: str = "int64") -> Value:
        """What a node is told by an operand (axes, sizes): an initializer mostly, now and then an input."""
        return self.put(np.asarray(array, dtype), constant=not self.chance(0.04))

    def _declared(self, array: np.ndarray) -> tuple[Any, ...] | None:
        if not self.chance(0.4):
            return None
        named = [next((n for n, sizes in SYMBOLS.items() if sizes[0] == size), None) for size in array.shape]
        return tuple(name if name and self.chance(0.6) else size for name, size in zip(named, array.shape, strict=True))

    def visible(self) -> list[Value]:
        return [*self.values, *(self.outer.visible() if self.outer else ())]

    def tensor(
        self,
        dtypes: str | Sequence[str] = FLOATS,
        shape: Sequence[int] | None = None,
        rank: int | Sequence[int] | None = None,
        *,
        exact: bool = False,
        low: float | None = None,
        high: float | None = None,
        fits: Callable[[tuple[int, ...]], bool] | None = None,
        constant: bool | None = None,
        nonzero: bool = False,
    ) -> Value:
        """An operand: a value that is there, or a new one. `fits` says which shapes will do, for those that are there."""
        kinds = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
        ranks = (rank,) if isinstance(rank, int) else rank
        if not self.chance(self.fresh):
            usable = [
                v
                for v in self.visible()
                if v.usable
                and v.dtype in kinds
                and (shape is None or v.shape == tuple(shape))
                and (ranks is None or v.rank in ranks)
                and (fits is None or fits(v.shape))
                and (v.exact or not exact)
                and (constant is not True or v in self.initializers)
                and _within(v.array, low, high, nonzero)
            ]
            if usable:
                return self.random.choice(usable[-8:] if self.chance(0.7) else usable)
        made = self.shape(rank) if shape is None else tuple(shape)
        if fits is not None and not fits(made):
            made = next((each for each in (self.shape(rank) for _ in range(50)) if fits(each)), made)
            if not fits(made):
                raise Dead("no shape fits")
        array = self.array(self.random.choice(kinds), made, low, high)
        if nonzero:
            array = np.where(array == 0, np.ones_like(array), array)
        return self.put(array, constant)

    def standing(self, fits: Callable[[Value], bool]) -> Value | None:
        """An existing value other than a tensor, or None where none fits."""
        if self.chance(self.fresh):
            return None
        found = [v for v in self.visible() if v.held and len(v.expected) < 2 and fits(v)]
        return self.random.choice(found[-8:]) if found else None

    def partner(self, of: Value, dtypes: str | Sequence[str] | None = None, **bounds: Any) -> Value:
        """An operand that broadcasts with another, of its type if none is told."""
        sizes = [size if self.chance(0.8) else 1 for size in of.shape]
        if self.chance(0.2):
            sizes = sizes[self.random.randrange(len(sizes) + 1) :]
        elif len(sizes) < 4 and np.prod(of.shape) < 200 and self.chance(0.1):
            sizes = [self.random.choice((1, 2, 3)), *sizes]

        def fits(shape: tuple[int, ...]) -> bool:
            return _broadcasts(shape, of.shape)

        kinds = of.dtype if dtypes is None else dtypes
        if self.chance(0.5):
            return self.tensor(kinds, tuple(sizes), **bounds)
        try:
            return self.tensor(kinds, fits=fits, **bounds)
        except Dead:
            return self.tensor(kinds, tuple(sizes), **bounds)

    def axis(self, rank: int) -> int:
        """An axis of a tensor of that rank, counted from either end."""
        if not rank:
            raise Dead("no axes")
        return self.random.randrange(-rank, rank)

    # ---- nodes ----

    def allowed(
        self, operator: str, variable: str = "T", domain: str = "", among: Sequence[str] = ALL
    ) -> tuple[str, ...]:
        """The element types that the operator's schema allows for a type variable, of those that are asked for."""
        schema = self.schema(operator, domain)
        for constraint in schema.type_constraints:
            if constraint.type_param_str == variable:
                names = {_NUMPY.get(text, "") for text in constraint.allowed_type_strs}
                kinds = tuple(name for name in among if name in names)
                if kinds:
                    return kinds
        raise Dead(f"{operator} takes none of the types")

    def schema(self, operator: str, domain: str = "") -> onnx.defs.OpSchema:
        """Raises Dead where the opset has no such operator."""
        version = self.opset if domain == "" else DOMAINS[domain]
        try:
            schema = onnx.defs.get_schema(operator, version, domain)
        except onnx.defs.SchemaError:
            raise Dead(f"opset {version} has no {operator}") from None
        if schema.deprecated:
            raise Dead(f"opset {version} has no {operator} any more")
        return schema

    def add(
        self,
        operator: str,
        inputs: Sequence[Value | None],
        outputs: int | Sequence[bool] = 1,
        *,
        domain: str = "",
        exact: bool = False,
        slack: float = 0.0,
        captured: Sequence[Value] = (),
        known: bool = True,
        held: Sequence[onnx.TypeProto | None] = (),
        told: Sequence[Array] = (),
        **attributes: Any,
    ) -> list[Value]:
        """A node, and its outputs in the witness. `exact`: of exact operands its results are, if their digits are few;
        `captured`: what its subgraphs use; `held`: the types of outputs other than tensors; `told`: what the outputs are, where
        no judge has the operator. Raises Dead for one that no judge takes."""
        if any(value is not None and len(value.expected) > 1 for value in inputs):
            raise Dead("an operand about which the judges disagree")
        if known and domain != "com.microsoft":
            since = self.schema(operator, domain)
            attributes = {name: value for name, value in attributes.items() if value is not None}
            if unknown := attributes.keys() - since.attributes.keys():
                raise Dead(f"{operator} has no attribute {min(unknown)}")
        else:
            attributes = {name: value for name, value in attributes.items() if value is not None}
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        names = [self.new_name() if it else "" for it in wanted]
        given = [value.name if value else "" for value in inputs]
        while given and not given[-1]:
            given.pop()
        node = helper.make_node(operator, given, names, f"{operator}_{self.names[0]}", domain=domain, **attributes)
        operands = {value.name: value for value in [*inputs, *captured] if value is not None}
        if told:
            results, judges = [[array] for array in told], "the step"
        else:
            results, judges = self._judged(node, [name for name in names if name], list(operands.values()))
        self.nodes.append(node)
        self._use(operands.values())
        all_exact = all(value.exact for value in operands.values())
        made = []
        types = [*held, *([None] * (len(results) - len(held)))]
        for name, arrays, type_ in zip([name for name in names if name], results, types, strict=True):
            value = Value(name, arrays[0], expected=tuple(arrays), slack=slack, operator=operator, judges=judges)
            if type_ is not None:
                value.held, value.exact, value.usable = type_, exact and all_exact, False
            else:
                value.exact = value.array.dtype.kind in "biuO"
                value.exact = value.exact or (exact and all_exact and _few_digits(value.array))
                value.usable = len(arrays) == 1 and not slack and _tame(value.array)
            self.values.append(value)
            made.append(value)
        self.tally[f"node {domain}.{operator}".replace(" .", " ")] += 1
        return made

    def _use(self, operands: Any) -> None:
        own = {value.name for value in self.values}
        for value in operands:
            if value.name not in own:
                self.used[value.name] = value

    def _judged(self, node: onnx.NodeProto, names: list[str], operands: list[Value]) -> tuple[list[list[Array]], str]:
        """Of each output, what the judges say it is: one array where they agree. And who the judges were."""
        inputs = [onnx.ValueInfoProto(name=v.name, type=v.held or type_of(v.array)) for v in operands]
        graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in names])
        model = make_model(graph, self.opset)
        feeds = {value.name: value.array for value in operands}
        said, told, judges = [], [], []
        for judge in (by_onnxruntime, by_reference):
            try:
                results = judge(model, feeds)
            except Refused as error:
                self.tally[f"{judge.__name__} refuses {node.op_type}"] += 1
                told.append(str(error))
                continue
            if all(_whole(result) for result in results):
                said.append(results)
                judges.append(judge.__name__)
        wrong = next((name for name in _operators(node) if name in REFERENCE_IS_WRONG), None)
        if by_reference.__name__ in judges and wrong:
            if len(said) == 1:
                self.tally[f"only the reference takes {node.op_type}, and is wrong about {wrong}"] += 1
                raise Dead(REFERENCE_IS_WRONG[wrong])
            said, judges = said[:1], judges[:1]
        given = {value.name: value.array for value in operands}
        for results in said:
            if reason := unsaid(node, [given.get(name) for name in node.input], results):
                self.tally[f"nothing is due of {node.op_type}"] += 1
                raise Dead(reason)
        if any(beyond(node.op_type, result) for results in said for result in results):
            raise Dead("beyond the numbers of the type, which each cuts off as it likes")
        if not said:
            self.tally[f"nobody takes {node.op_type}"] += 1
            raise Dead(f"nobody takes {node.op_type}: {told}")
        merged = []
        for told_of in zip(*said, strict=True):
            results = list(told_of)
            different = len(results) == 2 and difference(results[1], results[0], coarse=coarse(*results))
            if different:
                self.tally[f"judges disagree on {node.op_type}"] += 1
            merged.append(results if different else results[:1])
        return merged, " and ".join(judges)

    # ---- the model ----

    def graph(self, outputs: Sequence[Value], name: str = "g", inputs: Sequence[Value] = ()) -> onnx.GraphProto:
        """The graph with these outputs, of what it has and what its subgraphs are told besides."""
        infos = [onnx.ValueInfoProto(name=v.name, type=v.type) for v in [*inputs, *self.inputs]]
        results = [onnx.ValueInfoProto(name=v.name, type=v.held or _unshaped(v.array)) for v in outputs]
        tensors = [numpy_helper.from_array(v.array, v.name) for v in self.initializers]
        return helper.make_graph(self.nodes, name, infos, results, tensors)

    def model(self, outputs: Sequence[Value]) -> onnx.ModelProto:
        return make_model(self.graph(outputs), self.opset)


DOMAINS = {"ai.onnx.ml": 3, "ai.onnx.preview.training": 1, "com.microsoft": 1}  # versions


def make_model(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    used = set(_domains(graph))
    others = (helper.make_opsetid(name, version) for name, version in DOMAINS.items() if name in used)
    opsets = [helper.make_opsetid("", opset), *others]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets)


def _domains(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.domain
        for attribute in node.attribute:
            yield from _domains(attribute.g)


def _operators(node: onnx.NodeProto) -> Iterator[str]:
    """The node's, and those of its subgraphs."""
    yield node.op_type
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _operators(inner)


def _unshaped(array: np.ndarray) -> onnx.TypeProto:
    """Shapes of results are not told: they may depend on a symbolic size, and ranks on a condition."""
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), None)


def _whole(result: Array) -> bool:
    return not is_tensor(result) or result.dtype.kind != "O" or result.size > 0


def coarse(*arrays: Array) -> bool:
    """Whether there are numbers with 11 bits or fewer."""
    return any(
        coarse(*array) if isinstance(array, list) else getattr(array, "dtype", None) == np.float16 for array in arrays
    )


def _within(array: np.ndarray, low: float | None, high: float | None, nonzero: bool) -> bool:
    if not array.size:
        return True
    return (
        (low is None or bool(array.min() >= low))
        and (high is None or bool(array.max() <= high))
        and (not nonzero or bool((array != 0).all()))
    )


def _huge(array: np.ndarray) -> bool:
    """Whether there are integers that float64 does not hold, such as a bound that means "to the end": each judge rounds them
    as it likes."""
    if array.dtype.kind not in "iu":
        return False
    return bool((np.abs(array.astype(np.float64)) > 2**53).any())


def _few_digits(array: np.ndarray) -> bool:
    """Whether floats have so few digits that the next sums are exact too, in float16 even."""
    with np.errstate(all="ignore"):
        scaled = array.astype(np.float64) * 16
    return bool((np.isfinite(scaled) & (np.round(scaled) == scaled) & (np.abs(scaled) <= 512)).all())


def beyond(operator: str, array: Array) -> bool:
    """Whether integers may have left their range."""
    is_integer = is_tensor(array) and array.dtype.kind in "iu"
    return operator in _GROWING and is_integer and bool((np.abs(array.astype(np.float64)) > 2**30).any())


_GROWING = {"CumProd", "Loop", "Pow", "ReduceProd", "ReduceSumSquare", "Scan"}


def _tame(array: np.ndarray) -> bool:
    """Whether something may be computed of it."""
    if array.dtype.kind not in "fiubO":
        return False
    if array.size > LARGEST_SIZE:
        return False
    if array.dtype.kind != "f" or not array.size:
        return True
    return bool(np.isfinite(array).all() and np.abs(array).max() <= LARGEST)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(a, b))) <= LARGEST_SIZE and len(a) <= 5
    except ValueError:
        return False


_NUMPY = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(string)": "string"} | {
    f"tensor({name})": name
    for name in ("float16", "bfloat16", "bool", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)))
}


def attempt(walk: Walk, domain: str, name: str) -> bool:
    """Whether a step could be taken."""
    inputs, initializers, values = len(walk.inputs), len(walk.initializers), len(walk.values)
    nodes = len(walk.nodes)
    try:
        STEPS[domain, name](walk, name)
    except Dead:
        walk.tally[f"dead: {name}"] += 1
        if len(walk.nodes) == nodes:  # what was made for it alone is not left behind
            del walk.inputs[inputs:], walk.initializers[initializers:], walk.values[values:]
        return False
    return True
