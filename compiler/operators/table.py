"""The operator table: one entry holds all that is known of an operator.

An entry's `infer` types a call, its `reference` evaluates it with NumPy (the reference evaluator is made of these), its
`fusion` says how it may share a kernel. A target finds what lowers it by its name: a function of the elementwise vocabulary
or a kernel template. Where the kernels have none of that name the operator runs as a host operator. The modules beside this
one register entries by family; `operators.TABLE` holds them all.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from ... import compiler
from ...formats import dims, limits
from ...formats.constants import aligned_copy
from ...formats.dims import SymbolicDim
from ...formats.dtypes import DType
from ...formats.messages.elsewhere import elsewhere
from ...formats.messages.errors import InferenceError, LimitError
from ...formats.messages.names import near
from ...formats.primitive import Attributes, PrimitiveNode
from ...formats.strings import ELEMENT, is_text, to_numbers, to_texts
from ...formats.types import TensorType, size_problem


class Fusion(Enum):
    """How an operator may be fused."""

    ELEMENTWISE = "elementwise"  # one output element from the broadcast input elements at the same position
    MOVEMENT = "movement"  # output elements are input elements at other positions: transpose, slice, concat …
    REDUCTION = "reduction"  # over axes; takes elementwise prologue and epilogue
    ANCHOR = "anchor"  # conv, matmul, softmax …: takes an elementwise epilogue
    OPAQUE = "opaque"  # a kernel of its own, or a host operator
    VIEW = "view"  # no kernel: the same elements in another shape (the machine's reshape)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64


def _is_dim(value: object) -> bool:
    return isinstance(value, SymbolicDim) or _is_int(value)


def _is_float(value: object) -> bool:
    return isinstance(value, float) or _is_int(value)


def _is_list_of(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, tuple) and len(value) <= limits.OPERANDS and all(map(check, value))


class Kind(Enum):
    """The kind of an attribute's values: its name in messages, and its check."""

    BOOL = ("true or false", lambda value: isinstance(value, bool))
    INT = ("an integer", _is_int)
    FLOAT = ("a number", _is_float)
    NUMBER = ("a number, true or false", lambda value: isinstance(value, bool) or _is_float(value))
    STRING = ("a string", lambda value: isinstance(value, str))
    DTYPE = ("an element type", lambda value: isinstance(value, DType))
    DIM = ("a dimension", _is_dim)
    INTS = ("a list of integers", _is_list_of(_is_int))
    DIMS = ("a list of dimensions", _is_list_of(_is_dim))

    def accepts(self, value: object) -> bool:
        return self.value[1](value)


REQUIRED: Any = object()


@dataclass(frozen=True)
class Attribute:
    """An attribute: its kind, its meaning, and its default, if any. A default of None allows None."""

    kind: Kind
    doc: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()

    def check(self, operator: str, name: str, value: object) -> None:
        """Raises InferenceError for a value of the wrong kind."""
        if value is None and self.default is None:
            return
        if not self.kind.accepts(value) or (self.choices and value not in self.choices):
            expected = " or ".join(map(repr, self.choices)) or self.kind.value[0]
            raise InferenceError(f"{operator}: attribute {name!r} takes {expected}, got {value!r}")

    def normalize(self, value: Any) -> Any:
        """A convenient value in the kind's form: lists as tuples, "float32" as a DType, "n + 1" as a dimension."""
        if value is None:
            return None
        if isinstance(value, np.generic):
            value = value.item()
        if self.kind is Kind.DTYPE:
            return DType.of(value)
        if self.kind is Kind.FLOAT and _is_int(value):
            return float(value)
        if self.kind is Kind.DIM:
            return _to_dim(value)
        if (
            self.kind in (Kind.INTS, Kind.DIMS)
            and isinstance(value, (Sequence, np.ndarray))
            and not isinstance(value, str)
        ):
            return tuple(map(_to_dim, value))
        return value


def _to_dim(value: Any) -> Any:
    if isinstance(value, str):
        return dims.parse(value)
    return int(value) if isinstance(value, np.integer) else value


@dataclass(frozen=True)
class Operator:
    """`inputs`: names of the tensor inputs; "bias?" may be missing (only at the end), "*tensors" is any number, at least one.

    `infer(inputs, **attributes)` takes the inputs' TensorTypes and gives the result's TensorType, or a tuple of them
    for several results; it raises InferenceError with what was expected and what was given. `reference(*arrays,
    **attributes)` takes NumPy arrays and gives an array or a tuple of them, of exactly the inferred types; dimensions in
    attributes are integers by then. Both are given every attribute: `bind` adds the defaults. `data_dependent` operators
    have result shapes known only at run time: their inferred shapes contain UNKNOWN, and they are host operators, unless a pass
    (`name_shapes.py`) lets them be counted first.

    `in_place`, as all elementwise operators are: for an input of the result's shape, the last read of element i is not after the
    write of result i, so the output may alias the input.

    One that `inflates` may take any time, for however few input elements.

    The reference of one that `recalls` also takes a `Recall`, or None: its cache between calls.

    One that `varies` has different results each time, or one that lies elsewhere: it is never constant-folded, and no kernel.

    The reference gets types that NumPy lacks as wider ones, and its results are rounded, unless it `takes_bits`. Of string
    tensors it gets numbers, one for each text, unless it `takes_texts`: then it takes and returns arrays of Python's strings.
    One that `takes_objects` may get either.

    `work(inputs, results, **attributes)` counts the arithmetic of a call whose shapes are known (see `work.py`); without it, an
    elementwise operator or reduction does one operation an element, and any other operator none. `scratch` are the bytes that
    the reference allocates per element of its results, if they are many.
    """

    name: str
    inputs: tuple[str, ...]
    infer: Callable[..., TensorType | tuple[TensorType, ...]]
    reference: Callable[..., Any]
    fusion: Fusion
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    doc: str = ""
    data_dependent: bool = False
    work: Callable[..., Any] | None = None
    in_place: bool = False
    takes_bits: bool = False
    takes_texts: bool = False
    takes_objects: bool = False
    varies: bool = False
    scratch: int = 0
    recalls: bool = False
    inflates: bool = False

    def check_arity(self, count: int) -> None:
        """Raises InferenceError unless `count` inputs are possible."""
        least = sum(not name.endswith("?") for name in self.inputs)
        most = float("inf") if any(name.startswith("*") for name in self.inputs) else len(self.inputs)
        if not least <= count <= most:
            names = ", ".join(self.inputs) or "no inputs"
            message = f"{self.name} takes {names}, got {count} {'input' if count == 1 else 'inputs'}"
            hint = f"; attributes are given by name: {', '.join(f'{name}=…' for name in self.attributes)}"
            raise InferenceError(message + (hint if count > most and self.attributes else ""))

    def input_name(self, number: int) -> str:
        """The name of an input; of several with one name, followed by its number."""
        name = self.inputs[min(number, len(self.inputs) - 1)] if self.inputs else ""
        return f"{name[1:]}[{number - len(self.inputs) + 1}]" if name.startswith("*") else name.removesuffix("?")

    def bind(self, attributes: Attributes) -> dict[str, Any]:
        """Every attribute by name, defaults included. Raises InferenceError for an unknown, missing or wrong one."""
        given = dict(attributes)
        for name in given:
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                raise InferenceError(
                    f"{self.name} has no attribute {name!r}; its attributes: {known}{near(name, self.attributes)}"
                )
        for name, attribute in self.attributes.items():
            if name in given:
                attribute.check(self.name, name, given[name])
            elif attribute.default is REQUIRED:
                raise InferenceError(f"{self.name}: attribute {name!r} is missing ({attribute.doc})")
            else:
                given[name] = attribute.default
        return given

    def canonical(self, attributes: Mapping[str, Any]) -> Attributes:
        """Attributes as the IR holds them: checked, sorted, without those that equal their default."""
        values = {
            name: self.attributes[name].normalize(value) if name in self.attributes else value
            for name, value in attributes.items()
        }
        self.bind(tuple(values.items()))
        return tuple(sorted((name, value) for name, value in values.items() if not self._is_default(name, value)))

    def _is_default(self, name: str, value: Any) -> bool:
        default = self.attributes[name].default
        return type(value) is type(default) and value == default

    def result_types(self, inputs: Sequence[TensorType], attributes: Attributes = ()) -> tuple[TensorType, ...]:
        """The types of a call's results. Raises InferenceError."""
        self.check_arity(len(inputs))
        try:
            results = self.infer(tuple(inputs), **self.bind(attributes))
        except LimitError as error:  # from arithmetic on dimensions
            raise InferenceError(f"{self.name}: {error.message}") from None
        results = results if isinstance(results, tuple) else (results,)
        for result in results:
            if problem := size_problem(result):
                raise InferenceError(f"{self.name}: the result {result} {problem}")
        return results

    def evaluate(
        self, arrays: Sequence[np.ndarray], attributes: Attributes = (), bound: Mapping[str, Any] | None = None
    ) -> list[np.ndarray]:
        """The results, C-contiguous, by the reference implementation. Dimensions in attributes are integers; `bound` is what
        `bind` gives of these, if the caller knows it."""
        # a copy is made as an executable keeps it, which then makes no other
        results = self.views(arrays, attributes, bound)
        return [result if result.flags.c_contiguous else aligned_copy(result) for result in results]

    def views(
        self, arrays: Sequence[np.ndarray], attributes: Attributes = (), bound: Mapping[str, Any] | None = None
    ) -> list[np.ndarray]:
        """The same, unprocessed: in any order of the elements, and perhaps views of the inputs."""
        with np.errstate(all="ignore"):
            by_name = self.bind(attributes) if bound is None else bound
            if self.takes_texts:
                results = self._of_texts(arrays, by_name)
            elif any(array.dtype == ELEMENT for array in arrays):
                results = self._of_numbers(arrays, by_name, attributes)
            elif self.takes_bits or all(map(_is_numpys, arrays)):
                results = self.reference(*arrays, **by_name)
            else:
                results = self._rounded(arrays, by_name, attributes)
        return list(map(np.asarray, results if isinstance(results, tuple) else (results,)))

    def _of_texts(self, arrays: Sequence[np.ndarray], by_name: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
        """Evaluates a reference that takes and returns arrays of Python's strings."""
        results = self.reference(*map(to_texts, arrays), **by_name)
        results = results if isinstance(results, tuple) else (results,)
        return tuple(to_numbers(array) if is_text(array) else array for array in map(np.asarray, results))

    def _of_numbers(
        self, arrays: Sequence[np.ndarray], by_name: Mapping[str, Any], attributes: Attributes
    ) -> tuple[np.ndarray, ...]:
        """Evaluates an operator that moves or compares string tensors: it gets the numbers of the texts."""
        types = [TensorType(DType.of(array.dtype), array.shape) for array in arrays]
        seen = [
            array.view(np.uint64) if type_.dtype.is_string else array
            for array, type_ in zip(arrays, types, strict=True)
        ]
        results = self.reference(*seen, **by_name)
        results = results if isinstance(results, tuple) else (results,)
        expected = self.result_types(types, attributes)
        return tuple(
            np.ascontiguousarray(result).view(ELEMENT).reshape(result.shape) if type_.dtype.is_string else result
            for result, type_ in zip(map(np.asarray, results), expected, strict=True)
        )

    def _rounded(
        self, arrays: Sequence[np.ndarray], by_name: Mapping[str, Any], attributes: Attributes
    ) -> tuple[np.ndarray, ...]:
        """Evaluates with types that NumPy lacks: computed in wider ones, and rounded."""
        types = [TensorType(DType.of(array.dtype), array.shape) for array in arrays]
        wide = (array.astype(type_.dtype.computed.numpy) for array, type_ in zip(arrays, types, strict=True))
        results = self.reference(*wide, **by_name)
        results = results if isinstance(results, tuple) else (results,)
        expected = self.result_types(types, attributes)
        return tuple(
            np.asarray(result).astype(type_.dtype.numpy, copy=False)
            for result, type_ in zip(results, expected, strict=True)
        )


def _is_numpys(array: np.ndarray) -> bool:
    return DType.of(array.dtype).is_numpys


TABLE: dict[str, Operator] = {}


def register(
    name: str,
    inputs: str,
    infer: Callable[..., TensorType | tuple[TensorType, ...]],
    reference: Callable[..., Any],
    fusion: Fusion,
    doc: str,
    *,
    attributes: Mapping[str, Attribute] | None = None,
    data_dependent: bool = False,
    work: Callable[..., Any] | None = None,
    in_place: bool = False,
    takes_bits: bool = False,
    takes_texts: bool = False,
    takes_objects: bool = False,
    varies: bool = False,
    scratch: int = 0,
    recalls: bool = False,
    inflates: bool = False,
) -> None:
    """Adds an entry: see `Operator`. `inputs` are separated by spaces.

    A second entry of the same name is an error in this program.
    """
    if name in TABLE:
        raise ValueError(f"operator {name!r} is registered twice")
    names = tuple(inputs.split())
    in_place = in_place or fusion is Fusion.ELEMENTWISE
    TABLE[name] = Operator(
        name,
        names,
        infer,
        reference,
        fusion,
        attributes or {},
        doc,
        data_dependent,
        work,
        in_place,
        takes_bits,
        takes_texts,
        takes_objects,
        varies,
        scratch,
        recalls,
        inflates,
    )


def lookup(name: str) -> Operator:
    """The entry of that name. Raises InferenceError with the nearest names if there is none."""
    found = TABLE.get(name) or complete().get(name)
    if found is None:
        raise InferenceError(f"there is no operator {name!r}{elsewhere('op', name) or near(name, TABLE)}")
    return found


def bound_attributes(node: PrimitiveNode) -> dict[str, Any]:
    """A node's attributes, those with default values included."""
    return lookup(node.operator).bind(node.attributes)


def complete() -> Mapping[str, Operator]:
    """The table with the operators of all targets, which are those on their layouts: only passes make them."""
    importlib.import_module(compiler.operators_of_targets)
    return TABLE
