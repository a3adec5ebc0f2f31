"""The sections of an executable: one table of them, and the schema of each.

Encoder, decoder (`sections.py`) and the page docs/format.md follow from what stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from . import dims, limits
from .codec import (
    Binary,
    Choice,
    Codec,
    Converted,
    Embedded,
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
from .constants import constant_bytes, constant_type
from .dims import SymbolicDim
from .dtypes import DType
from .messages.errors import FormatError, LimitError
from .primitive import PrimitiveDefinition, PrimitiveNode
from .program import Import, ProgramDevice
from .text_model import TEXT_MODEL
from .types import UNKNOWN, Constructor, DataType, DataTypeDefinition, FunctionType, ShapeDim, TensorType, TupleType
from .weight_table import NamedWeight, WeightTable, literal

# ---- values ----


@lru_cache(maxsize=1024)
def _parse_dim(text: str) -> SymbolicDim:
    if len(text) > limits.DIM_BYTES:
        raise LimitError(f"a dimension of {len(text)} characters; at most {limits.DIM_BYTES} are allowed")
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

_SHAPE = Sequence(DIM, limits.RANK)
DEVICE_NAME = Text(limits.SECTION_NAME_BYTES)
TENSOR_TYPE = Record("TensorType", {"dtype": DTYPE, "shape": _SHAPE}, TensorType, lambda type_: _on_the_host(type_))
PLACED_TYPE = Record(
    "PlacedType",
    {"dtype": DTYPE, "shape": _SHAPE, "device": DEVICE_NAME},
    lambda dtype, shape, device: _placed(TensorType(dtype, shape, device)),
    lambda type_: (type_.dtype, type_.shape, type_.device),
)


class _Type(Choice):
    """A tensor type is one of two options: files whose tensors all lie on the host have no other than before."""

    def option_of(self, value: Any) -> int | None:
        return 5 if isinstance(value, TensorType) and value.device else super().option_of(value)


TYPE = _Type("type", limits.TYPE_NESTING)
TYPE.options.update(
    {
        1: (TensorType, TENSOR_TYPE),
        2: (TupleType, record(TupleType, fields=Sequence(TYPE, limits.FIELDS))),
        3: (FunctionType, record(FunctionType, params=Sequence(TYPE, limits.PARAMETERS), result=TYPE)),
        4: (DataType, Converted("data type's name", TEXT, DataType, lambda type_: _monomorphic(type_, "arguments"))),
        5: (TensorType, PLACED_TYPE),
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


def _on_the_host(type_: TensorType) -> tuple[DType, tuple[ShapeDim, ...]]:
    if type_.device:
        raise FormatError(f"{type_}: what a constant or a primitive is does not say where it lies")
    return type_.dtype, type_.shape


def _placed(type_: TensorType) -> TensorType:
    if not type_.device:
        raise FormatError("a placed type without a device")
    return type_


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
STRINGS = Sequence(TEXT, limits.STRINGS)
PRIMITIVE_NAMES = Sequence(TEXT, limits.PRIMITIVES)
DEFINITIONS = Sequence(
    row(
        "primitive",
        definition=Embedded(DEFINITION, limits.PRIMITIVE_BYTES),
        origins=Sequence(TEXT, limits.PRIMITIVE_NODES),
    ),
    limits.PRIMITIVES,
)

TYPES = Sequence(TYPE, limits.TYPES)
ON_DEVICE = row("placed", index=Integer(0, limits.CONSTANTS), device=Integer(0, limits.DEVICES - 1))
DEVICES = row(
    "devices",
    devices=Sequence(record(ProgramDevice, name=DEVICE_NAME, target=Text(limits.STRING_BYTES)), limits.DEVICES),
    constants=Sequence(ON_DEVICE, limits.CONSTANTS),
    primitives=Sequence(ON_DEVICE, limits.PRIMITIVES),
)
IMPORTS = Sequence(record(Import, name=TEXT, type=FUNCTION_TYPE), limits.FUNCTIONS)
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

NAMED_WEIGHT = record(NamedWeight, name=TEXT, type=TENSOR_TYPE, digest=Text(64))
LITERAL = Record(
    "literal",
    {"type": TENSOR_TYPE, "elements": Binary(limits.TABLE_BYTES)},
    literal,
    lambda array: (constant_type(array), constant_bytes(array)),
)
WEIGHTS = record(
    WeightTable,
    weights=Sequence(NAMED_WEIGHT, limits.CONSTANTS),
    literals=Sequence(LITERAL, limits.CONSTANTS),
    nodes=Sequence(NODE, limits.STRINGS),
    constants=Sequence(
        row("made", constant=Integer(0, limits.CONSTANTS), value=Integer(0, limits.STRINGS * 64)), limits.CONSTANTS
    ),
)

RESULTS = Sequence(
    row("result", function=Integer(0, limits.FUNCTIONS), names=Sequence(TEXT, limits.FIELDS)), limits.FUNCTIONS
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
    """`codec` is None for sections of raw bytes. A reader that does not know a section skips it unless it is required, or, where
    it is there, `decides` what the others mean."""

    name: str
    required: bool
    codec: Codec | None
    meaning: str
    decides: bool = False


SECTIONS = (
    Section("globals", True, GLOBALS, "the functions, in order; their code is contiguous"),
    Section("constant_index", True, CONSTANT_INDEX, "type and place of each constant"),
    Section("constants", True, None, "the elements of the constants, little-endian, each aligned to 64 bytes"),
    Section(
        "strings", False, STRINGS, "the texts of string tensors, whose elements in `constants` are places in this list"
    ),
    Section("primitives", True, PRIMITIVE_NAMES, "the names of the primitives"),
    Section("code", True, None, "64-bit words, little-endian; see isa.md"),
    Section("types", True, TYPES, "the types that instructions refer to"),
    Section("data_types", True, DATA_TYPES, "algebraic data types; a constructor's tag is its position"),
    Section("signatures", True, SIGNATURES, "the type of each function"),
    Section(
        "definitions", True, DEFINITIONS, "of each primitive: the operators that it is made of, and their model nodes"
    ),
    Section("imports", False, IMPORTS, "the Python functions that it calls; the caller provides them"),
    Section(
        "devices",
        False,
        DEVICES,
        "the devices that types name, and which constants and primitives are there",
        decides=True,
    ),
    Section("native", False, NATIVE, "a cache of native code, for any number of targets"),
    Section(
        "weights", False, WEIGHTS, "how constants are made of weights that have names, to make them again of others"
    ),
    Section(
        "text", False, TEXT_MODEL, "a tokenizer, and how texts become tensors and results vectors, scores or texts"
    ),
    Section("results", False, RESULTS, "the names of functions' results, in order of the functions"),
    Section("source_map", False, SOURCE_MAP, "which model node an instruction comes from"),
    Section(
        "metadata", False, METADATA, "what the compiler wants to remember, such as the `producer`, in order of the keys"
    ),
)
BY_NAME = {section.name: section for section in SECTIONS}
REQUIRED = {section.name: section.required or section.decides for section in SECTIONS}  # of a reader: to know it
