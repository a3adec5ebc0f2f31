"""The verifier's first layer: what stands in an executable's tables is well-formed, whatever the code does with it.

Signatures, constants, the type table, data types and the form of primitive definitions. Whether a definition's
operators exist and have the types it says is the operator table's business: it is asked before a kernel is built, and so
before the cache has one, or evaluated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from ...formats import dims, limits
from ...formats.dims import SymbolicDim
from ...formats.dtypes import DType
from ...formats.messages.errors import DTypeError
from ...formats.primitive import AttributeValue, PrimitiveDefinition, form_problem
from ...formats.program import HOST, Program
from ...formats.types import UNKNOWN, DataType, FunctionType, ShapeDim, TensorType, TupleType, Type, size_problem
from .work import Refusal, Work

LAYER = "tables"


def check_tables(program: Program, work: Work) -> None:
    """Raises Refusal."""
    _check_constants(program.constants)
    devices = _check_devices(program)
    types = _Types(frozenset(data.name for data in program.data_types), devices, work)
    types.check_data_types(program)
    for index, type_ in enumerate(program.types):
        types.check(type_, f"type {index}", symbolic=False)
    _check_unique((function.name for function in program.functions), "functions")
    for function in program.functions:
        types.check_function(f"function {function.name!r}", function.type)
        _check_parameters(function.name, function.param_names, function.type, function.captured)
        _check_frame(function.name, function.ref_registers, function.int_registers, function.frame_bytes, function.type)
    _check_unique((entry.name for entry in program.imports), "imports")
    for entry in program.imports:
        types.check_function(f"import {entry.name!r}", entry.type)
        _check_count(f"import {entry.name!r}", entry.type)
        work.spend(8 * _computed_dims(entry.type) ** 2)  # a machine solves them for their variables
    types.report_missing()
    _check_unique((primitive.name for primitive in program.primitives), "primitives")
    for primitive in program.primitives:
        _Definition(primitive.name, primitive.definition, work, primitive.device, devices).check()
    for location in program.source_map:
        _check_index(location.function, len(program.functions), "the source map: function")


def constant_type(array: np.ndarray) -> TensorType:
    """The type of a constant that `check_tables` passed."""
    return TensorType(DType.of(array.dtype), array.shape)


def _check_size(type_: TensorType, what: str) -> None:
    problem = size_problem(type_)
    if problem:
        raise Refusal(LAYER, f"{what}, {type_}, {problem}")


def _check_devices(program: Program) -> frozenset[str]:
    """The names of the devices. Raises Refusal for constants on others."""
    _check_unique((device.name for device in program.devices), "devices")
    names = frozenset(device.name for device in program.devices)
    if len(names) > limits.DEVICES or HOST in names or "" in names:
        raise Refusal(LAYER, f"{len(names)} devices; at most {limits.DEVICES} are allowed, and none is called {HOST!r}")
    for index, name in program.placed.items():
        _check_index(index, len(program.constants), "a constant on a device: constant")
        _check_place(name, names, f"constant {index}", DType.of(program.constants[index].dtype))
    return names


def _check_place(name: str, names: frozenset[str], what: str, dtype: DType) -> None:
    if name not in names:
        known = ", ".join(sorted(names)) or "none"
        raise Refusal(LAYER, f"{what} is on the device {name!r}, which does not exist; the program's devices: {known}")
    if dtype.is_string:
        raise Refusal(LAYER, f"{what} is on the device {name!r}: texts lie on the host")


class _Types:
    """Checks types; collects the names of data types that do not exist, to report them all at once."""

    def __init__(self, data_types: frozenset[str], devices: frozenset[str], work: Work) -> None:
        self.data_types, self.devices, self.work = data_types, devices, work
        self.missing: dict[str, str] = {}

    def check(self, type_: Type, what: str, *, symbolic: bool, depth: int = 0) -> None:
        self.work.spend(1)
        if depth > limits.TYPE_NESTING:
            raise Refusal(LAYER, f"{what} nests deeper than {limits.TYPE_NESTING}")
        if isinstance(type_, TensorType):
            self._check_tensor(type_, what, symbolic)
        elif isinstance(type_, (TupleType, FunctionType)):
            parts = type_.fields if isinstance(type_, TupleType) else (*type_.params, type_.result)
            for part in parts:
                self.check(part, what, symbolic=symbolic, depth=depth + 1)
        elif isinstance(type_, DataType):
            if type_.arguments:
                raise Refusal(LAYER, f"{what}: {type_} has arguments; an executable's data types have none")
            if type_.name not in self.data_types:
                self.missing.setdefault(type_.name, what)
        else:
            raise Refusal(LAYER, f"{what} contains the type variable {type_}; an executable's types have none")

    def _check_tensor(self, type_: TensorType, what: str, symbolic: bool) -> None:
        self.work.spend(len(type_.shape))
        if not symbolic and any(isinstance(dim, SymbolicDim) for dim in type_.shape):
            raise Refusal(LAYER, f"{what}, {type_}: a dimension here is an integer or ?, not an expression")
        _check_size(type_, what)
        if type_.device:
            _check_place(type_.device, self.devices, f"{what}, {type_},", type_.dtype)

    def check_function(self, what: str, type_: Type) -> None:
        if not isinstance(type_, FunctionType):
            raise Refusal(LAYER, f"{what} has the type {type_}, which is not a function type")
        self.check(type_, f"the type of {what}", symbolic=True)

    def check_data_types(self, program: Program) -> None:
        _check_unique((data.name for data in program.data_types), "data types")
        for data in program.data_types:
            if data.parameters:
                raise Refusal(LAYER, f"data type {data.name!r} has parameters; an executable's data types have none")
            if not 1 <= len(data.constructors) <= limits.CONSTRUCTORS:
                count = len(data.constructors)
                raise Refusal(LAYER, f"data type {data.name!r} has {count} constructors, not 1 … {limits.CONSTRUCTORS}")
            _check_unique((constructor.name for constructor in data.constructors), f"constructors of {data.name!r}")
            for constructor in data.constructors:
                for field in constructor.fields:
                    self.check(field, f"a field of {data.name}.{constructor.name}", symbolic=False)

    def report_missing(self) -> None:
        if self.missing:
            uses = ", ".join(f"{name!r} (in {what})" for name, what in list(self.missing.items())[:20])
            raise Refusal(LAYER, f"{len(self.missing)} data types are used but not defined: {uses}")


def _check_unique(names: Iterable[str], what: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Refusal(LAYER, f"several {what} have the same name: {', '.join(map(repr, twice[:20]))}")


def _check_index(index: int, count: int, what: str) -> None:
    if not 0 <= index < count:
        raise Refusal(LAYER, f"{what} {index} does not exist, there are {count}")


def _is_element_type(dtype: np.dtype) -> bool:
    """One of the other byte order is another."""
    try:
        return DType.of(dtype).numpy == dtype
    except DTypeError:
        return False


def _check_constants(constants: tuple[np.ndarray, ...]) -> None:
    for index, array in enumerate(constants):
        if not _is_element_type(array.dtype):
            raise Refusal(LAYER, f"constant {index} has the element type {array.dtype}, which no tensor has")
        if not array.flags.c_contiguous or array.flags.writeable:
            raise Refusal(LAYER, f"constant {index} is not a read-only, C-contiguous array")
        _check_size(constant_type(array), f"constant {index}")


def _check_parameters(name: str, names: tuple[str, ...], type_: FunctionType, captured: int) -> None:
    if len(names) != len(type_.params):
        raise Refusal(LAYER, f"function {name!r} has {len(type_.params)} parameters but {len(names)} parameter names")
    _check_count(f"function {name!r}", type_)
    _check_unique(names, f"parameters of function {name!r}")
    if not 0 <= captured <= len(names):
        raise Refusal(LAYER, f"function {name!r} captures {captured} values but has {len(names)} parameters")


def _computed_dims(type_: Type) -> int:
    """How many dimensions of a type are expressions over variables, and no variables."""
    if isinstance(type_, TensorType):
        return sum(isinstance(dim, SymbolicDim) and not dims.is_variable(dim) for dim in type_.shape)
    parts = type_.fields if isinstance(type_, TupleType) else ()
    if isinstance(type_, FunctionType):
        parts = (*type_.params, type_.result)
    return sum(map(_computed_dims, parts))


def _check_count(what: str, type_: FunctionType) -> None:
    if len(type_.params) > limits.PARAMETERS:
        raise Refusal(LAYER, f"{what} has {len(type_.params)} parameters; at most {limits.PARAMETERS} are allowed")


def _check_frame(name: str, refs: int, ints: int, frame_bytes: int, type_: FunctionType) -> None:
    if not len(type_.params) <= refs <= limits.REGISTERS:
        raise Refusal(
            LAYER,
            f"function {name!r} has {refs} reference registers; its parameters need {len(type_.params)}, "
            f"{limits.REGISTERS} are allowed",
        )
    if not 0 <= ints <= limits.REGISTERS:
        raise Refusal(LAYER, f"function {name!r} has {ints} integer registers, not 0 … {limits.REGISTERS}")
    if not 0 <= frame_bytes <= limits.FRAME_BYTES:
        raise Refusal(LAYER, f"function {name!r} has a frame of {frame_bytes} bytes, not 0 … {limits.FRAME_BYTES}")


class _Definition:
    """The structure of one primitive definition."""

    def __init__(
        self, name: str, definition: PrimitiveDefinition, work: Work, device: str, devices: frozenset[str]
    ) -> None:
        self.what, self.definition, self.work = f"primitive {name!r}", definition, work
        self.device, self.devices = device, devices
        self.variables = frozenset(definition.variables)

    def check(self) -> None:
        definition = self.definition
        _check_unique(definition.variables, f"variables of {self.what}")
        self._check_types(definition.params, "a parameter")
        for node in definition.nodes:
            place = f"node {node.operator!r}"
            self.work.spend(1 + len(node.inputs) // 8)
            self._check_types(node.results, f"a result of {place}")
            for name, value in node.attributes:
                self._check_attribute(value, f"attribute {name!r} of {place}", 0)
        self.work.spend(1 + len(definition.outputs) // 8)
        problem = form_problem(definition)
        if problem:
            raise Refusal(LAYER, f"{self.what}: {problem}")

    def _check_types(self, types: tuple[TensorType, ...], place: str) -> None:
        for type_ in types:
            if not isinstance(type_, TensorType):
                raise Refusal(LAYER, f"{self.what}: {place} has the type {type_}, which is not a tensor type")
            if type_.device:
                raise Refusal(LAYER, f"{self.what}: {place} has the type {type_}; a definition says nothing of devices")
            if self.device:
                _check_place(self.device, self.devices, self.what, type_.dtype)
            self.work.spend(1 + len(type_.shape))
            _check_size(type_, f"{self.what}: {place}")
            for dim in type_.shape:
                self._check_dim(dim, place)

    def _check_dim(self, dim: ShapeDim, place: str) -> None:
        if dim is UNKNOWN or not isinstance(dim, SymbolicDim):
            return
        self.work.spend(2 * len(dim.terms))
        foreign = [name for name in dims.variables(dim) if name not in self.variables]
        if foreign:
            known = ", ".join(self.definition.variables) or "none"
            raise Refusal(
                LAYER, f"{self.what}: {place} uses the dimension variable {foreign[0]!r}; its variables are: {known}"
            )

    def _check_attribute(self, value: AttributeValue, place: str, depth: int) -> None:
        self.work.spend(1)
        if depth > limits.TYPE_NESTING:
            raise Refusal(LAYER, f"{self.what}: {place} nests deeper than {limits.TYPE_NESTING}")
        if isinstance(value, tuple):
            for element in value:
                self._check_attribute(element, place, depth + 1)
        elif isinstance(value, SymbolicDim):
            self._check_dim(value, place)
        elif not (value is None or isinstance(value, (bool, int, float, str, DType))):
            raise Refusal(LAYER, f"{self.what}: {place} has a value of the kind {type(value).__name__}")
