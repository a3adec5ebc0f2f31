"""The graph of an ONNX file while it is written: nodes, initializers, and sizes as tensors of the graph."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....formats import dims
from ....formats.dims import Dim, Opaque, Solution, SymbolicDim, Variable
from ....formats.dtypes import DType
from ....formats.messages.errors import CompileError
from ....formats.strings import to_texts
from ....formats.types import TensorType
from ... import ir
from ...operators.shapes import is_nonnegative

if TYPE_CHECKING:
    import onnx

OPSET = 21  # of files that no newer operator is in: what onnxruntime 1.18 and others of 2024 run
LEAST_OPSET = 11
_AXES_AS_INPUT = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13}  # since when; of other reductions since 18
_ALLOWS_ZERO = 14  # since when a 0 may be a size of Reshape
_OF_OTHERS = {  # operators whose results may be other values than tensors
    *("If", "Loop", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceAt"),
    *("Optional", "OptionalGetElement", "Identity"),
}
_SHAPE_OF_AXES = 15  # the opset whose Shape takes a range of axes


class RefusedError(CompileError):
    """What ONNX has no form for, and what to do."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the graph. Of what a node between two operators makes, only the element type is known."""

    type: TensorType
    name: str = ""  # "" of a constant
    array: np.ndarray | None = None
    weight: str = ""  # of a constant, what the program calls it
    made: tuple[ir.OperatorCall, tuple[Tensor, ...]] | None = None

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return self.type.rank


Size = tuple[Tensor, Solution]  # the tensor whose shape tells a variable, and how


def constant(value: Any, dtype: DType = DType.int64) -> Tensor:
    array = ir.frozen(np.asarray(value, dtype.numpy))
    return Tensor(TensorType(dtype, array.shape), array=array)


class File:
    """What the graphs of a file share: names, initializers, and which operators there are."""

    def __init__(self, opset: int | None, reserved: Iterable[str]) -> None:
        self.given, self.opset = opset, opset or OPSET
        self.used = {"", *reserved}
        self.numbers: dict[str, int] = {}
        self.initializers: dict[str, np.ndarray] = {}
        self.domains: dict[str, int] = {}
        self._constants: dict[Any, str] = {}

    def unique(self, name: str) -> str:
        """A name that nothing has yet."""
        made = name
        while made in self.used:
            self.numbers[name] = self.numbers.get(name, 1) + 1
            made = f"{name}_{self.numbers[name]}"
        self.used.add(made)
        return made

    def initializer(self, tensor: Tensor) -> str:
        """The name of a constant; one of the same elements is the same."""
        array = tensor.array
        assert array is not None
        key = id(array) if array.nbytes > 256 else (tensor.dtype, array.shape, array.tobytes(), tensor.weight)
        if key not in self._constants:
            self._constants[key] = name = self.unique(tensor.weight or "constant")
            self.initializers[name] = array
        return self._constants[key]

    def require(self, operator: str, domain: str, attributes: frozenset[str], types: Sequence[DType | None]) -> None:
        """Makes the file one of the first version that has an operator with these attributes, for these types of inputs and the
        first result. Raises RefusedError where an older one was asked for."""
        first, newest, what = _version(operator, domain, attributes, tuple(map(_type_name, types)))
        if domain:
            self.domains[domain] = newest
        else:
            self.raise_to(first, what)

    def raise_to(self, opset: int, what: str) -> None:
        """Makes the file one of that version at least."""
        if self.given is None:
            self.opset = max(self.opset, opset)
        elif opset > self.given:
            raise RefusedError(f"ONNX has {what} from opset {opset} on: to_onnx(…, opset={opset}) or higher")


@functools.lru_cache(4096)
def _version(operator: str, domain: str, attributes: frozenset[str], types: tuple[str, ...]) -> tuple[int, int, str]:
    """The first version of an operator's set that has it so, the newest of the set, and what that version is needed for."""
    schemas = _schemas()
    versions = sorted(schemas[domain, operator], key=lambda each: each.since_version)
    known = [each for each in versions if attributes <= each.attributes.keys()]
    *inputs, result = types

    def takes(schema: Any) -> bool:
        pairs = [(each, schema.inputs[min(place, len(schema.inputs) - 1)]) for place, each in enumerate(inputs)]
        return all(not each or each in formal.types for each, formal in [*pairs, (result, schema.outputs[0])])

    fitting = next(filter(takes, known), None) or (known or versions)[0]
    newest = max(each.since_version for (its, _), several in schemas.items() if its == domain for each in several)
    what = operator if fitting is versions[0] else f"{operator} of {', '.join(filter(None, types))}"
    return fitting.since_version, newest, what


@functools.cache
def _schemas() -> Mapping[tuple[str, str], list[Any]]:
    """All versions of ONNX's operators, by domain and name."""
    import onnx

    found: dict[tuple[str, str], list[Any]] = {}
    for each in onnx.defs.get_all_schemas_with_history():
        found.setdefault((each.domain, each.name), []).append(each)
    return found


_TYPE_NAMES = {DType.float32: "float", DType.float64: "double"}


def _type_name(dtype: DType | None) -> str:
    """A type of tensors as ONNX's schemas call it; "" for what is not a tensor."""
    return "" if dtype is None else f"tensor({_TYPE_NAMES.get(dtype, dtype.name.replace('_', ''))})"


class Graph:
    """A graph, or one within a node: it sees the names of those around it. `origin` is the node of the program at hand, `hint`
    what its result is called, `types` its results' types, `sizes` what tells the variables of sizes."""

    def __init__(self, file: File, outer: Graph | None = None) -> None:
        self.file, self.outer = file, outer
        self.nodes: list[onnx.NodeProto] = []
        self.origin = self.hint = ""
        self.types: tuple[TensorType, ...] = ()
        self.sizes: Mapping[str, Size] = {} if outer is None else outer.sizes
        self._numbers: dict[Any, Tensor] = {}

    @property
    def shape(self) -> tuple[Any, ...]:
        """The result's sizes."""
        return self.types[0].shape

    def name(self, tensor: Tensor) -> str:
        return tensor.name or self.file.initializer(tensor)

    def nodes_of(
        self,
        operator: str,
        *inputs: Tensor | None,
        count: int,
        dtype: DType | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> tuple[Tensor, ...]:
        """A node of `count` results, all of which have the element type of the first input unless `dtype` says another."""
        from onnx import helper

        names = ["" if each is None else self.name(each) for each in inputs]
        while names and not names[-1]:
            names.pop()
        types = [getattr(each.type, "dtype", None) if each is not None else None for each in inputs[: len(names)]]
        dtype = dtype or types[0] or DType.float32
        attributes = {
            key.rstrip("_"): value for key, value in attributes.items() if value is not None
        }  # `dtype_` is ONNX's
        attributes = {key: value for key, value in attributes.items() if not _is_default(operator, domain, key, value)}
        result = None if operator in _OF_OTHERS else dtype
        self.file.require(operator, domain, frozenset(attributes), [*types, result])
        results = [self.file.unique(self.hint or operator.lower()) for _ in range(count)]
        given: dict[str, Any] = {
            key: int(value) if isinstance(value, bool) else value for key, value in attributes.items()
        }
        node = helper.make_node(
            operator, names, results, self.file.unique(self.origin or self.hint), domain=domain, **given
        )
        self.nodes.append(node)
        return tuple(Tensor(TensorType(dtype, ()), name) for name in results)

    def node(self, operator: str, *inputs: Tensor | None, **options: Any) -> Tensor:
        """A node of one result."""
        (result,) = self.nodes_of(operator, *inputs, count=1, **options)
        return result

    def constant(self, value: Any, like: Tensor | DType = DType.int64) -> Tensor:
        return constant(value, like.dtype if isinstance(like, Tensor) else like)

    # ---- what versions write differently ----

    def along(self, operator: str, x: Tensor, axes: Sequence[int] | None, **attributes: Any) -> Tensor:
        """A reduction, Squeeze or Unsqueeze over axes, which older versions take as an attribute."""
        if axes is None:
            return self.node(operator, x, **attributes)
        if self.file.opset >= _AXES_AS_INPUT.get(operator, 18):
            return self.node(operator, x, self.constant(list(axes)), **attributes)
        return self.node(operator, x, axes=list(axes), **attributes)

    # ---- views, of constants at once ----

    def reshaped(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
        """x in another shape."""
        if x.array is not None and all(isinstance(dim, int) for dim in shape):
            return _of_array(x.array.reshape(tuple(shape)))  # type: ignore[arg-type]
        wanted, keeps_zero = _target(x, shape)
        if keeps_zero and self.file.opset >= _ALLOWS_ZERO:
            return self.node("Reshape", x, self.numbers(wanted), allowzero=1)
        return self.node("Reshape", x, self.numbers(wanted))

    def transposed(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        if x.array is not None:
            return _of_array(np.transpose(x.array, axes))
        return self.node("Transpose", x, perm=list(axes))

    def cast(self, x: Tensor, dtype: DType) -> Tensor:
        """x in another element type, kept as it is where it has that one."""
        return x if x.dtype is dtype else self.node("Cast", x, dtype=dtype, to=dtype.value.onnx)

    # ---- sizes ----

    def numbers(self, sizes: Sequence[Dim]) -> Tensor:
        """Sizes as an int64 vector."""
        if all(isinstance(each, int) for each in sizes):
            return self.constant(list(sizes))
        parts: list[Tensor] = []
        known: list[int] = []
        for each in sizes:
            if isinstance(each, int):
                known.append(each)
                continue
            parts += [self.constant(known)] if known else []
            known = []
            parts.append(self.number(each))
        parts += [self.constant(known)] if known else []
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)

    def scalar(self, size: Dim, dtype: DType = DType.int64) -> Tensor:
        if isinstance(size, int):
            return self.constant(size, dtype)
        return self.cast(self.along("Squeeze", self.number(size), [0]), dtype)

    def number(self, size: Dim) -> Tensor:
        """A size as an int64 vector of one element."""
        if isinstance(size, int):
            return self.constant([size])
        key = (size, tuple(id(self.sizes[name][0]) for name in dims.variables(size) if name in self.sizes))
        graph: Graph | None = self
        while graph is not None:
            if key in graph._numbers:
                return graph._numbers[key]
            graph = graph.outer
        hint, self.hint = self.hint, "size"
        self._numbers[key] = made = self._sum(size)
        self.hint = hint
        return made

    def _sum(self, size: SymbolicDim) -> Tensor:
        """A polynomial, what is subtracted behind the rest."""
        total: Tensor | None = None
        for monomial, coefficient in sorted(size.terms, key=lambda term: term[1] < 0):
            factors = [self._atom(atom) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.append(self.constant([abs(coefficient)]))
            term = functools.reduce(lambda a, b: self.node("Mul", a, b), factors)
            if total is None:
                total = term if coefficient > 0 else self.node("Neg", term)
            else:
                total = self.node("Add" if coefficient > 0 else "Sub", total, term)
        assert total is not None
        return total

    def _atom(self, atom: Variable | Opaque) -> Tensor:
        if isinstance(atom, Variable):
            return self._variable(atom.name)
        left, right = self.number(atom.left), self.number(atom.right)
        if atom.operator in ("min", "max"):
            return self.node("Min" if atom.operator == "min" else "Max", left, right)
        rest = functools.partial(self.node, "Mod", left, right)
        if atom.operator == "%":
            return rest()
        if is_nonnegative(atom.left) and is_nonnegative(atom.right):
            return self.node("Div", left, right)  # which cuts towards zero
        return self.node("Div", self.node("Sub", left, rest()), right)

    def _variable(self, name: str) -> Tensor:
        if name not in self.sizes:
            raise RefusedError(f"no shape of a tensor tells the size {name}")
        key = (dims.variable(name), (id(self.sizes[name][0]),))
        if key in self._numbers:
            return self._numbers[key]
        tensor, told = self.sizes[name]
        made = self._length(tensor, told.index)
        if told.rest != 0:
            made = self.node("Sub", made, self.number(told.rest))
        return made if told.coefficient == 1 else self.node("Div", made, self.constant([told.coefficient]))

    def _length(self, x: Tensor, axis: int) -> Tensor:
        if self.file.opset >= _SHAPE_OF_AXES:
            return self.node("Shape", x, dtype=DType.int64, start=axis, end=axis + 1)
        return self.node("Gather", self.node("Shape", x, dtype=DType.int64), self.constant([axis]))


def _target(x: Tensor, shape: Sequence[Dim]) -> tuple[Sequence[Dim], bool]:
    """A shape as Reshape takes it, and whether a 0 in it is a size. Otherwise 0 is the size of x, and -1 what is left, where no
    other size may be 0."""
    if 0 in shape:
        return shape, True
    short = [
        0 if isinstance(dim, SymbolicDim) and axis < x.rank and x.shape[axis] == dim else dim
        for axis, dim in enumerate(shape)
    ]
    left = [axis for axis, dim in enumerate(short) if isinstance(dim, SymbolicDim)]
    if len(left) == 1 and 0 not in short:
        short[left[0]] = -1
        return short, False
    return (shape, True) if left else (short, False)


def _of_array(array: np.ndarray) -> Tensor:
    array = ir.frozen(array)
    return Tensor(TensorType(DType.of(array.dtype), array.shape), array=array)


def _is_default(operator: str, domain: str, name: str, value: Any) -> bool:
    """Whether a number is the default of an attribute, which float32 would round: importers know it unrounded."""
    if not isinstance(value, float) or float(np.float32(value)) == value:
        return False
    attribute = _schemas()[domain, operator][0].attributes.get(name)
    return attribute is not None and attribute.default_value.f == np.float32(value)


# ---- messages of onnx ----


def tensor_proto(name: str, array: np.ndarray) -> onnx.TensorProto:
    """A constant of the file."""
    from onnx import helper, numpy_helper

    if DType.of(array.dtype).is_string:
        texts = to_texts(array)
        flat = [text.encode() for text in texts.ravel()]
        return helper.make_tensor(name, DType.string.value.onnx, texts.shape, flat)
    return numpy_helper.from_array(array, name)


def value_info(name: str, type_: TensorType) -> onnx.ValueInfoProto:
    """What a file says of an input or a result: sizes are numbers or texts, or are not said."""
    from onnx import helper

    shape = [dim if isinstance(dim, int) else str(dim) if isinstance(dim, SymbolicDim) else None for dim in type_.shape]
    return helper.make_tensor_value_info(name, type_.dtype.value.onnx, shape)


def graphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def read_by(node: onnx.NodeProto) -> set[str]:
    """The names that a node and its graphs ask for."""
    found = set(node.input)
    for graph in graphs_of(node):
        found.update(*map(read_by, graph.node), (info.name for info in graph.output))
    return found


def living(nodes: Sequence[onnx.NodeProto], results: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that results depend on."""
    wanted, kept = set(results), list[Any]()
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted |= read_by(node)
            kept.append(node)
    return kept[::-1]


def renamed(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Gives values other names, in the nodes' graphs too."""

    def change(fields: Any) -> None:
        fields[:] = [names.get(each, each) for each in fields]

    for node in nodes:
        change(node.input)
        change(node.output)
        for graph in graphs_of(node):
            renamed(graph.node, names)
            for info in graph.output:
                info.name = names.get(info.name, info.name)
