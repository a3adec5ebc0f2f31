"""The sections of an executable: one table of them, and the schema of each.

`encode` and `decode` turn a `Program` into its sections and back; `encode_definition` gives a primitive's definition its one
canonical form in bytes, which is also what kernel caches are keyed by. A decoder checks everything that can be seen without
looking at the code: counts, ranges, names, agreement between tables. The code itself is the verifier's business.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Union

import numpy as np

from . import dims, limits
from .codec import (
    Binary,
    Choice,
    Codec,
    Converted,
    Integer,
    Reader,
    Record,
    Scalar,
    Sequence,
    Text,
    Writer,
    record,
    row,
)
from .dims import SymbolicDim
from .dtypes import DType
from .errors import FormatError, LimitError
from .primitive import Primitive, PrimitiveDefinition, PrimitiveNode
from .program import Function, Program, SourceLocation
from .types import UNKNOWN, Constructor, DataType, DataTypeDefinition, FunctionType, ShapeDim, TensorType, TupleType

Buffer = Union[bytes, memoryview]


class NativeKernel(NamedTuple):
    """Native code of one primitive on one target."""

    code: bytes  # an object file; kernels that differ only in `words` share it
    words: tuple[int, ...]  # static words, args[0] of the kernel convention
    scratch_bytes: int
    nanoseconds: int  # expected duration of one call on one thread, 0 when not measured


Native = Mapping[str, Mapping[str, NativeKernel]]  # target key → definition key, hex → kernel


@dataclass(frozen=True)
class LateBoundConstant:
    """A constant whose bytes lie in another file: `file` is a name beside the executable, without folders."""

    type: TensorType
    crc32: int
    file: str
    key: str


# ---- values ----


@lru_cache(maxsize=4096)
def _parse_dim(text: str) -> SymbolicDim:
    dim = dims.parse(text)
    if isinstance(dim, int) or str(dim) != text:
        raise FormatError(f"not the canonical text of a symbolic dimension, which is {str(dim)!r}")
    return dim


def _print_dim(dim: SymbolicDim) -> str:
    text = str(dim)
    if _parse_dim(text) != dim:
        raise FormatError("its text does not parse back")
    return text


class _Dim(Codec):
    """An integer, the canonical text of a symbolic dimension, or nil for `?`."""

    def read(self, reader: Reader) -> ShapeDim:
        value = reader.scalar()
        if type(value) is int:
            if not 0 <= value <= limits.DIMENSION:
                raise reader.error(f"a dimension of {value}; 0 … {limits.DIMENSION} are allowed", LimitError)
            return value
        if type(value) is str:
            try:
                return _parse_dim(value)
            except FormatError as error:
                raise reader.error(f"{value[:60]!r}: {error.message}") from None
        if value is None:
            return UNKNOWN
        raise reader.error(f"expected a dimension, found {value!r}")

    def write(self, writer: Writer, value: ShapeDim) -> None:
        if isinstance(value, SymbolicDim):
            writer.put(_print_dim(value))
        elif value is UNKNOWN:
            writer.put(None)
        elif type(value) is int and 0 <= value <= limits.DIMENSION:
            writer.put(value)
        else:
            raise writer.error(f"{value!r} is not a dimension of 0 … {limits.DIMENSION}", LimitError)

    def describe(self) -> str:
        return "dimension"


TEXT = Text()
DIM = _Dim()
WORD = Integer(-(1 << 63), (1 << 63) - 1)
DTYPE = Converted("element type", Integer(0, 255), DType.from_code, lambda dtype: dtype.code)
SYMBOLIC_DIM = Converted("symbolic dimension", TEXT, _parse_dim, _print_dim)

TENSOR_TYPE = record(TensorType, dtype=DTYPE, shape=Sequence(DIM, limits.RANK))
TYPE = Choice("type", limits.TYPE_NESTING)
TYPE.options.update(
    {
        1: (TensorType, TENSOR_TYPE),
        2: (TupleType, record(TupleType, fields=Sequence(TYPE, limits.FIELDS))),
        3: (FunctionType, record(FunctionType, params=Sequence(TYPE, limits.PARAMETERS), result=TYPE)),
        4: (DataType, Converted("data type's name", TEXT, DataType, lambda type_: _monomorphic(type_, "arguments"))),
    }
)
FUNCTION_TYPE = TYPE.options[3][1]

ATTRIBUTE_VALUE = Choice("attribute value", limits.TYPE_NESTING)
ATTRIBUTE_VALUE.options.update(
    {
        0: (type(None), Scalar(type(None))),
        1: (bool, Scalar(bool)),
        2: (int, WORD),
        3: (float, Scalar(float)),
        4: (str, TEXT),
        5: (DType, DTYPE),
        6: (SymbolicDim, SYMBOLIC_DIM),
        7: (tuple, Sequence(ATTRIBUTE_VALUE, limits.OPERANDS)),
    }
)


def _monomorphic(value: DataType | DataTypeDefinition, parameters: str) -> str:
    if getattr(value, parameters):
        raise FormatError(f"a data type of an executable is monomorphic; {value.name} has {parameters}")
    return value.name


# ---- the schema of each section ----

GLOBAL = row(
    "global",
    name=TEXT,
    param_names=Sequence(TEXT, limits.PARAMETERS),
    captured=Integer(0, limits.PARAMETERS),
    ref_registers=Integer(0, limits.REGISTERS),
    int_registers=Integer(0, limits.REGISTERS),
    frame_bytes=Integer(0, limits.FRAME_BYTES),
    length=Integer(0, limits.CODE_WORDS),
)
GLOBALS = Sequence(GLOBAL, limits.FUNCTIONS)
SIGNATURES = Sequence(FUNCTION_TYPE, limits.FUNCTIONS)

LATE_BOUND = row("late_bound", crc32=Integer(0, (1 << 32) - 1), file=Text(255), key=TEXT)
CONSTANT = row("constant", type=TENSOR_TYPE, late_bound=Sequence(LATE_BOUND, 1))
CONSTANT_INDEX = Sequence(CONSTANT, limits.CONSTANTS)

NODE = Record(
    "node",
    {
        "operator": TEXT,
        "inputs": Sequence(Integer(0, limits.PRIMITIVE_NODES * 64), limits.OPERANDS),
        "results": Sequence(TENSOR_TYPE, limits.OPERANDS),
        "attributes": Sequence(row("attribute", name=TEXT, value=ATTRIBUTE_VALUE), limits.OPERANDS),
    },
    PrimitiveNode,
    lambda node: (node.operator, node.inputs, node.results, node.attributes),
)
DEFINITION = record(
    PrimitiveDefinition,
    params=Sequence(TENSOR_TYPE, limits.OPERANDS),
    nodes=Sequence(NODE, limits.PRIMITIVE_NODES),
    outputs=Sequence(Integer(0, limits.PRIMITIVE_NODES * 64), limits.OPERANDS),
    variables=Sequence(TEXT, limits.OPERANDS),
)
PRIMITIVE_NAMES = Sequence(TEXT, limits.PRIMITIVES)
DEFINITIONS = Sequence(
    row("primitive", definition=Binary(limits.PRIMITIVE_BYTES), origins=Sequence(TEXT, limits.PRIMITIVE_NODES)),
    limits.PRIMITIVES,
)

TYPES = Sequence(TYPE, limits.TYPES)
CONSTRUCTOR = record(Constructor, name=TEXT, fields=Sequence(TYPE, limits.FIELDS))
DATA_TYPE = Record(
    "data_type",
    {"name": TEXT, "constructors": Sequence(CONSTRUCTOR, limits.CONSTRUCTORS)},
    lambda name, constructors: DataTypeDefinition(name, (), constructors),
    lambda definition: (_monomorphic(definition, "parameters"), definition.constructors),
)
DATA_TYPES = Sequence(DATA_TYPE, limits.TYPES)

KERNEL = row(
    "kernel",
    definition_key=Text(128),
    object=Integer(0, limits.KERNELS),
    words=Sequence(WORD, limits.KERNEL_WORDS),
    scratch_bytes=Integer(0, limits.FRAME_BYTES),
    nanoseconds=Integer(),
)
NATIVE = Sequence(
    row(
        "target",
        key=TEXT,
        objects=Sequence(Binary(limits.OBJECT_BYTES), limits.KERNELS),
        kernels=Sequence(KERNEL, limits.KERNELS),
    ),
    limits.TARGETS,
)

SOURCE_MAP = row(
    "source_map",
    nodes=Sequence(TEXT, limits.STRINGS),
    locations=Sequence(
        row(
            "location",
            function=Integer(0, limits.FUNCTIONS),
            offset=Integer(0, limits.CODE_WORDS),
            node=Integer(0, limits.STRINGS),
        ),
        limits.SOURCES,
    ),
)
METADATA = Sequence(row("entry", key=TEXT, value=TEXT), limits.METADATA)


@dataclass(frozen=True)
class Section:
    """`codec` is None for sections of raw bytes. A reader that does not know a section skips it unless it is required."""

    name: str
    required: bool
    codec: Codec | None
    meaning: str


SECTIONS = (
    Section("globals", True, GLOBALS, "the functions, in order; their code lies one behind the other"),
    Section("constant_index", True, CONSTANT_INDEX, "type and place of each constant"),
    Section("constants", True, None, "the elements of the constants, little-endian, each aligned to 64 bytes"),
    Section("primitives", True, PRIMITIVE_NAMES, "the names of the primitives"),
    Section("code", True, None, "64-bit words, little-endian; see isa.md"),
    Section("types", True, TYPES, "the types that instructions refer to"),
    Section("data_types", True, DATA_TYPES, "algebraic data types; a constructor's tag is its position"),
    Section("signatures", True, SIGNATURES, "the type of each function"),
    Section(
        "definitions", True, DEFINITIONS, "of each primitive: the operators that it is made of, and their model nodes"
    ),
    Section("native", False, NATIVE, "a cache of native code, for any number of targets"),
    Section("source_map", False, SOURCE_MAP, "which model node an instruction comes from"),
    Section("metadata", False, METADATA, "what the compiler wants to remember, in order of the keys"),
)
BY_NAME = {section.name: section for section in SECTIONS}


# ---- definitions ----


def encode_definition(definition: PrimitiveDefinition) -> bytes:
    """The canonical bytes of a definition; the nodes' origins are not part of them. Raises FormatError, LimitError."""
    data = DEFINITION.encode(definition, "definitions")
    if len(data) > limits.PRIMITIVE_BYTES:
        raise LimitError(
            f"a primitive's definition takes {len(data)} bytes; at most {limits.PRIMITIVE_BYTES} are allowed"
        )
    return data


def decode_definition(data: Buffer, base: int = 0) -> PrimitiveDefinition:
    """The inverse. Each node uses only values that exist by then. Raises FormatError."""
    definition = DEFINITION.decode(data, "definitions", base)
    known = len(definition.params)
    for number, node in enumerate(definition.nodes):
        late = [value for value in node.inputs if value >= known]
        if late:
            message = f"node {number} ({node.operator}) uses value {late[0]}, but only {known} values exist before it"
            raise FormatError(message, section="definitions", offset=base)
        known += len(node.results)
    if any(value >= known for value in definition.outputs):
        message = f"an output is value {max(definition.outputs)}, but only {known} values exist"
        raise FormatError(message, section="definitions", offset=base)
    return definition


def _with_origins(definition: PrimitiveDefinition, origins: tuple[str, ...]) -> PrimitiveDefinition:
    if len(origins) != len(definition.nodes):
        message = f"{len(origins)} origins for {len(definition.nodes)} nodes"
        raise FormatError(message, section="definitions")
    if not any(origins):
        return definition
    nodes = tuple(
        PrimitiveNode(node.operator, node.inputs, node.results, node.attributes, origin)
        for node, origin in zip(definition.nodes, origins, strict=True)
    )
    return PrimitiveDefinition(definition.params, nodes, definition.outputs, definition.variables)


# ---- constants ----


def aligned(size: int) -> int:
    return -(-size // limits.ALIGNMENT) * limits.ALIGNMENT


def constant_type(array: np.ndarray) -> TensorType:
    return TensorType(DType.of(array.dtype), array.shape)


def constant_bytes(array: np.ndarray) -> memoryview:
    """The elements as they lie in the file."""
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return memoryview(little.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def constant_pieces(arrays: Iterable[np.ndarray]) -> list[Buffer]:
    """The elements of all arrays, with zeros between them, so that each starts at a multiple of 64."""
    pieces: list[Buffer] = []
    for array in arrays:
        data = constant_bytes(array)
        pieces.append(data)
        padding = aligned(len(data)) - len(data)
        if padding:
            pieces.append(bytes(padding))
    return pieces


def split_constants(types: Iterable[TensorType], data: Buffer) -> list[np.ndarray]:
    """Read-only arrays on `data`, not copied unless it lies at an odd address. Raises FormatError when sizes disagree."""
    types = list(types)
    for number, type_ in enumerate(types):
        _check_constant_type(number, type_)
    expected = sum(aligned(type_.nbytes) for type_ in types)
    if expected != len(data):
        message = f"the constants of the index take {expected} bytes, but the section has {len(data)}"
        raise FormatError(message, section="constants")
    flat = _aligned_bytes(data)
    arrays, start = [], 0
    for type_ in types:
        elements = flat[start : start + type_.nbytes].view(type_.dtype.numpy.newbyteorder("<"))
        native = elements.astype(type_.dtype.numpy, copy=False)
        array = native.reshape(type_.shape)  # type: ignore[arg-type]
        array.flags.writeable = False
        arrays.append(array)
        start += aligned(type_.nbytes)
    return arrays


def _aligned_bytes(data: Buffer) -> np.ndarray:
    flat = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
    if flat.ctypes.data % limits.ALIGNMENT and len(flat):
        copy = aligned_empty(len(flat))
        copy[:] = flat
        return copy
    return flat


def aligned_empty(size: int) -> np.ndarray:
    """`size` bytes of new memory at a multiple of 64."""
    space = np.empty(size + limits.ALIGNMENT, np.uint8)
    start = -space.ctypes.data % limits.ALIGNMENT
    return space[start : start + size]


def _check_constant_type(number: int, type_: TensorType) -> None:
    if not type_.is_static:
        raise FormatError(f"constant {number} is a {type_}; its shape must be known", section="constant_index")
    if type_.nbytes > limits.CONSTANT_BYTES:
        message = (
            f"constant {number}, a {type_}, takes {type_.nbytes} bytes; at most {limits.CONSTANT_BYTES} are allowed"
        )
        raise LimitError(message, section="constant_index")


# ---- programs ----


def encode(
    program: Program, late_bound: Mapping[int, LateBoundConstant] | None = None, native: Native | None = None
) -> dict[str, list[Buffer]]:
    """The sections' contents by name, in order; optional ones that would be empty are left out.

    `late_bound`: constants, by index, whose elements stay in other files. Raises FormatError or LimitError for a program
    that could not be loaded again.
    """
    check(program)
    late_bound = late_bound or {}
    constants = [array for index, array in enumerate(program.constants) if index not in late_bound]
    tables: dict[str, Any] = {
        "globals": [
            (f.name, f.param_names, f.captured, f.ref_registers, f.int_registers, f.frame_bytes, f.length)
            for f in program.functions
        ],
        "constant_index": [_index_entry(array, late_bound.get(i)) for i, array in enumerate(program.constants)],
        "primitives": [primitive.name for primitive in program.primitives],
        "types": program.types,
        "data_types": program.data_types,
        "signatures": [function.type for function in program.functions],
        "definitions": [
            (encode_definition(p.definition), [node.origin for node in p.definition.nodes]) for p in program.primitives
        ],
        "native": _native_rows(native or {}),
        "source_map": _source_rows(program.source_map),
        "metadata": sorted(program.metadata.items()),
    }
    contents: dict[str, list[Buffer]] = {}
    for section in SECTIONS:
        if section.name == "constants":
            contents["constants"] = constant_pieces(constants)
        elif section.name == "code":
            contents["code"] = [constant_bytes(program.code)]
        elif section.codec is not None and (section.required or any(map(len, tables[section.name]))):
            contents[section.name] = [section.codec.encode(tables[section.name], section.name)]
    return contents


def decode(
    contents: Mapping[str, Buffer], bind: Callable[[LateBoundConstant], np.ndarray]
) -> tuple[Program, dict[int, LateBoundConstant], Native]:
    """The inverse of `encode`; `bind` finds the elements of late-bound constants. Raises FormatError."""
    tables = {section.name: _decode_table(section, contents) for section in SECTIONS if section.codec is not None}
    code = _decode_code(contents["code"])
    constants, late_bound = _decode_constants(tables["constant_index"], contents["constants"], bind)
    program = Program(
        functions=_decode_functions(tables["globals"], tables["signatures"]),
        constants=constants,
        primitives=_decode_primitives(tables["primitives"], tables["definitions"]),
        code=code,
        types=tables["types"],
        data_types=tables["data_types"],
        source_map=_decode_sources(*tables["source_map"]),
        metadata=_decode_metadata(tables["metadata"]),
    )
    check(program)
    return program, late_bound, _decode_native(tables["native"])


def _decode_table(section: Section, contents: Mapping[str, Buffer]) -> Any:
    assert section.codec is not None
    data = contents.get(section.name)
    if data is None:
        return ((), ()) if section.codec is SOURCE_MAP else ()
    if len(data) > limits.TABLE_BYTES and section.codec is not NATIVE:
        raise LimitError(f"{len(data)} bytes; at most {limits.TABLE_BYTES} are allowed", section=section.name)
    return section.codec.decode(data, section.name)


def _decode_code(data: Buffer) -> np.ndarray:
    if len(data) % 8:
        raise FormatError(f"{len(data)} bytes are no whole number of 64-bit words", section="code")
    if len(data) // 8 > limits.CODE_WORDS:
        raise LimitError(f"{len(data) // 8} words; at most {limits.CODE_WORDS} are allowed", section="code")
    words = np.frombuffer(data, "<i8").astype(np.int64, copy=False) if len(data) else np.empty(0, np.int64)
    words.flags.writeable = False
    return words


def _decode_functions(rows: tuple, signatures: tuple[FunctionType, ...]) -> tuple[Function, ...]:
    if len(rows) != len(signatures):
        raise FormatError(f"{len(signatures)} signatures for {len(rows)} functions", section="signatures")
    functions, start = [], 0
    for (name, params, captured, refs, ints, frame, length), signature in zip(rows, signatures, strict=True):
        functions.append(Function(name, params, signature, captured, refs, ints, frame, start, length))
        start += length
    return tuple(functions)


def _decode_primitives(names: tuple[str, ...], rows: tuple) -> tuple[Primitive, ...]:
    if len(names) != len(rows):
        raise FormatError(f"{len(rows)} definitions for {len(names)} primitives", section="definitions")
    return tuple(
        Primitive(name, _with_origins(decode_definition(data), origins))
        for name, (data, origins) in zip(names, rows, strict=True)
    )


def _decode_sources(nodes: tuple[str, ...], rows: tuple) -> tuple[SourceLocation, ...]:
    for _, _, node in rows:
        if node >= len(nodes):
            raise FormatError(f"node {node} of {len(nodes)} does not exist", section="source_map")
    return tuple(SourceLocation(function, offset, nodes[node]) for function, offset, node in rows)


def _decode_metadata(rows: tuple) -> dict[str, str]:
    metadata = dict(rows)
    if list(metadata) != sorted(metadata) or len(metadata) != len(rows):
        raise FormatError("the keys are not in order, each once", section="metadata")
    return metadata


def _index_entry(array: np.ndarray, late_bound: LateBoundConstant | None) -> tuple:
    place = [(late_bound.crc32, late_bound.file, late_bound.key)] if late_bound else []
    return constant_type(array), place


def _decode_constants(
    index: tuple, data: Buffer, bind: Callable[[LateBoundConstant], np.ndarray]
) -> tuple[tuple[np.ndarray, ...], dict[int, LateBoundConstant]]:
    inside = iter(split_constants((type_ for type_, place in index if not place), data))
    late_bound = {i: LateBoundConstant(type_, *place[0]) for i, (type_, place) in enumerate(index) if place}
    for number, constant in late_bound.items():
        _check_constant_type(number, constant.type)
    arrays = (bind(late_bound[i]) if i in late_bound else next(inside) for i in range(len(index)))
    return tuple(arrays), late_bound


def _source_rows(locations: tuple[SourceLocation, ...]) -> tuple[list[str], list[tuple[int, int, int]]]:
    numbers: dict[str, int] = {}
    rows = [(at.function, at.offset, numbers.setdefault(at.node, len(numbers))) for at in locations]
    return list(numbers), rows


def _native_rows(native: Native) -> list[tuple]:
    rows = []
    for target in sorted(native):
        numbers: dict[bytes, int] = {}
        kernels = [
            (key, numbers.setdefault(bytes(k.code), len(numbers)), tuple(k.words), k.scratch_bytes, k.nanoseconds)
            for key, k in sorted(native[target].items())
        ]
        rows.append((target, list(numbers), kernels))
    return rows


def decode_native(data: Buffer) -> Native:
    """The native section alone. Raises FormatError."""
    return _decode_native(NATIVE.decode(data, "native"))


def _decode_native(rows: tuple) -> Native:
    native: dict[str, dict[str, NativeKernel]] = {}
    for target, objects, kernels in rows:
        if target in native:
            raise FormatError(f"target {target!r} appears twice", section="native")
        native[target] = {}
        for key, number, words, scratch, nanoseconds in kernels:
            if number >= len(objects):
                raise FormatError(f"object {number} of {len(objects)} does not exist", section="native")
            native[target][key] = NativeKernel(objects[number], words, scratch, nanoseconds)
    return native


# ---- agreement between the tables ----


def check(program: Program) -> None:
    """Raises FormatError for a program whose tables disagree. What its code does is not looked at."""
    _check_names("function", (function.name for function in program.functions), "globals")
    _check_names("primitive", (primitive.name for primitive in program.primitives), "primitives")
    _check_names("data type", (definition.name for definition in program.data_types), "data_types")
    _check_functions(program)
    _check_sources(program)


def _check_names(what: str, names: Iterable[str], section: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or name in seen:
            raise FormatError(
                f"two {what}s have the name {name!r}" if name else f"a {what} has no name", section=section
            )
        seen.add(name)


def _check_functions(program: Program) -> None:
    start = 0
    for function in program.functions:
        params = len(function.param_names)
        if len(function.type.params) != params or function.captured > params:
            message = f"{params} parameter names, {len(function.type.params)} types, {function.captured} captured"
            raise FormatError(message, section="globals", function=function.name)
        if function.start != start:
            message = f"its code starts at word {function.start}, but the functions before it end at {start}"
            raise FormatError(message, section="globals", function=function.name)
        start += function.length
    if start != len(program.code):
        raise FormatError(
            f"the functions have {start} words of code, the section has {len(program.code)}", section="code"
        )


def _check_sources(program: Program) -> None:
    last = (-1, 0)
    for at in program.source_map:
        if not last < (at.function, at.offset):
            raise FormatError("the source map is not in order of function and offset", section="source_map")
        if at.function >= len(program.functions) or at.offset >= program.functions[at.function].length:
            raise FormatError(f"there is no word {at.offset} in function {at.function}", section="source_map")
        last = (at.function, at.offset)


def crc32(pieces: Iterable[Buffer]) -> int:
    value = 0
    for piece in pieces:
        value = zlib.crc32(piece, value)
    return value
