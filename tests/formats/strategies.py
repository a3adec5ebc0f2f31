"""Random well-formed programs: every kind of instruction, type, constant and definition, in tables that agree.

Well-formed is what a file or text can hold, not what the verifier accepts: registers hold anything.
"""

import numpy as np
from hypothesis import strategies as st
from treadle.formats import dims
from treadle.formats.bytecode import CodeBuilder, code_array, int_register
from treadle.formats.dtypes import DType
from treadle.formats.isa import OPERATIONS, Field, Kind, Operation
from treadle.formats.primitive import Primitive, PrimitiveDefinition, PrimitiveNode
from treadle.formats.program import HOST, Function, Import, NativeKernel, Program, ProgramDevice, SourceLocation
from treadle.formats.strings import to_numbers
from treadle.formats.types import (
    UNKNOWN,
    Constructor,
    DataType,
    DataTypeDefinition,
    FunctionType,
    TensorType,
    TupleType,
)

WORDS = st.integers(-(1 << 63), (1 << 63) - 1)
REGISTERS = st.integers(0, 40)

identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,8}", fullmatch=True)
odd_names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
names = st.one_of(identifiers, odd_names, st.sampled_from(["t0", "c1", "float32", "fn", "from", "i0", "true", "none"]))
texts = st.one_of(st.just(""), names)
dtypes = st.sampled_from(DType)

variables = st.sampled_from(["n", "m", "batch", "max", "i0"]).map(dims.variable)


def _combine(parts: st.SearchStrategy) -> st.SearchStrategy:
    operators = st.sampled_from([dims.add, dims.multiply, dims.minimum, dims.maximum])
    by_constant = st.builds(
        lambda divide, left, right: divide(left, right),
        st.sampled_from([dims.floordiv, dims.modulo]),
        parts,
        st.integers(1, 9),
    )
    return st.one_of(st.builds(lambda f, a, b: f(a, b), operators, parts, parts), by_constant)


symbolic_dims = st.recursive(variables | st.integers(-3, 9), _combine, max_leaves=4).filter(
    lambda dim: isinstance(dim, dims.SymbolicDim)
)
sizes = st.one_of(st.integers(0, 9), st.just(1 << 40))
shapes = st.lists(st.one_of(sizes, symbolic_dims, st.just(UNKNOWN)), max_size=4).map(tuple)
tensor_types = st.builds(TensorType, dtypes, shapes)
device_names = identifiers.filter(lambda name: name != HOST)
placed_types = st.builds(TensorType, dtypes, shapes, st.one_of(st.just(""), device_names))
data_types = st.builds(DataType, st.one_of(names, st.sampled_from(["List[float32[2]]", "Pair[A, (B, C)]"])))


def _larger_types(types: st.SearchStrategy) -> st.SearchStrategy:
    several = st.lists(types, max_size=3).map(tuple)
    return st.one_of(st.builds(TupleType, several), st.builds(FunctionType, several, types))


types = st.recursive(placed_types | data_types, _larger_types, max_leaves=6)
function_types = st.builds(FunctionType, st.lists(types, max_size=3).map(tuple), types)
data_type_definitions = st.builds(
    DataTypeDefinition,
    data_types.map(lambda type_: type_.name),
    st.just(()),
    st.lists(st.builds(Constructor, names, st.lists(types, max_size=3).map(tuple)), max_size=3).map(tuple),
)


@st.composite
def constants(draw: st.DrawFn) -> np.ndarray:
    """Any bits: NaN payloads, infinities, subnormals. Empty ones, and some that are too large to write in line."""
    dtype = draw(dtypes)
    shape = draw(st.one_of(st.lists(st.integers(0, 4), max_size=3).map(tuple), st.just((5, 20))))
    if dtype.is_string:
        found = draw(st.lists(texts, min_size=1, max_size=4))
        return to_numbers(np.resize(np.array(found, object), shape))
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    array = np.frombuffer(data, np.uint8).copy()
    if dtype.value.bits < 8:
        array &= (1 << dtype.value.bits) - 1  # the other bits of a byte say nothing
    return (array & 1 if dtype is DType.bool else array).view(dtype.numpy).reshape(shape)


attribute_values = st.recursive(
    st.one_of(st.none(), st.booleans(), WORDS, st.floats(), texts, dtypes, symbolic_dims),
    lambda values: st.lists(values, max_size=3).map(tuple),
    max_leaves=5,
)
attributes = st.dictionaries(names, attribute_values, max_size=3).map(lambda found: tuple(sorted(found.items())))


@st.composite
def definitions(draw: st.DrawFn) -> PrimitiveDefinition:
    params = draw(st.lists(tensor_types, max_size=3).map(tuple))
    known = len(params)
    nodes = []
    for _ in range(draw(st.integers(0, 3))):
        inputs = draw(st.lists(st.integers(0, known - 1), max_size=3).map(tuple)) if known else ()
        results = draw(st.lists(tensor_types, max_size=2).map(tuple))
        nodes.append(PrimitiveNode(draw(names), inputs, results, draw(attributes), draw(texts)))
        known += len(results)
    outputs = draw(st.lists(st.integers(0, known - 1), max_size=2).map(tuple)) if known else ()
    names_of_dims = draw(st.lists(st.sampled_from(["n", "m", "k"]), max_size=2).map(tuple))
    return PrimitiveDefinition(params, tuple(nodes), outputs, names_of_dims)


# ---- code ----


@st.composite
def _code(draw: st.DrawFn, tables: dict[Kind, int]) -> tuple[list[int], list[tuple[int, str]]]:
    """A function's words and (offset, node) pairs."""
    possible = [op for op in OPERATIONS if all(tables.get(field.kind, 1) for field in op.fields)]
    builder = CodeBuilder()
    operations = draw(st.lists(st.sampled_from(possible), max_size=8))
    labels = [builder.label() for _ in operations]
    for operation, label in zip(operations, labels, strict=True):
        builder.place(label)
        builder.node = draw(texts)
        builder.emit(operation.name, **draw(_fields(operation, tables, labels)))
    return builder.finish()


def _fields(operation: Operation, tables: dict[Kind, int], labels: list) -> st.SearchStrategy:
    return st.fixed_dictionaries({field.name: _field(field, tables, labels) for field in operation.fields})


def _field(field: Field, tables: dict[Kind, int], labels: list) -> st.SearchStrategy:
    word = {
        Kind.REF: REGISTERS,
        Kind.INT: REGISTERS,
        Kind.DIM: st.one_of(st.integers(0, 1 << 47), REGISTERS.map(int_register)),
        Kind.IMM: WORDS,
        Kind.DTYPE: dtypes,
        Kind.LABEL: st.sampled_from(labels),
    }.get(field.kind)
    if word is None:
        word = st.integers(0, tables[field.kind] - 1)
    return st.lists(word, max_size=3) if field.is_list else word


def _unique(strategy: st.SearchStrategy, key: object, max_size: int, min_size: int = 0) -> st.SearchStrategy:
    return st.lists(strategy, min_size=min_size, max_size=max_size, unique_by=key).map(tuple)  # type: ignore[arg-type]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    devices = draw(_unique(st.builds(ProgramDevice, device_names, texts), lambda device: device.name, 2))
    places = st.sampled_from(["", *(device.name for device in devices)])
    primitives = draw(_unique(st.builds(Primitive, names, definitions(), places), lambda p: p.name, 2))
    pool = tuple(draw(st.lists(constants(), max_size=3)))
    placed = {index: place for index in range(len(pool)) if (place := draw(places))}
    type_table = tuple(draw(st.lists(types, max_size=4)))
    imported = draw(_unique(st.builds(Import, names, function_types), lambda entry: entry.name, 2))
    function_names = draw(_unique(names, lambda name: name, 2))
    tables = {
        Kind.PRIM: len(primitives),
        Kind.CONST: len(pool),
        Kind.TYPE: len(type_table),
        Kind.FUNC: len(function_names),
        Kind.IMPORT: len(imported),
        Kind.DEVICE: 1 + len(devices),
    }
    functions, code, locations = [], [], []
    for number, name in enumerate(function_names):
        words, nodes = draw(_code(tables))
        params = draw(st.lists(st.tuples(names, types), max_size=3))
        functions.append(
            Function(
                name,
                tuple(param for param, _ in params),
                FunctionType(tuple(type_ for _, type_ in params), draw(types)),
                draw(st.integers(0, len(params))),
                draw(st.integers(0, 50)),
                draw(st.integers(0, 50)),
                draw(st.integers(0, 1 << 40)),
                sum(map(len, code)),
                len(words),
            )
        )
        code.append(words)
        locations += [SourceLocation(number, offset, node) for offset, node in nodes]
    return Program(
        tuple(functions),
        pool,
        primitives,
        code_array(code),
        type_table,
        draw(_unique(data_type_definitions, lambda definition: definition.name, 2)),
        tuple(locations),
        draw(st.dictionaries(texts, texts, max_size=2)),
        imported,
        devices=devices,
        placed=placed,
    )


kernels = st.builds(
    NativeKernel,
    st.binary(max_size=8),
    st.lists(WORDS, max_size=3).map(tuple),
    st.integers(0, 1 << 30),
    st.integers(0, 9),
)
native_code = st.dictionaries(
    texts, st.dictionaries(st.binary(max_size=4).map(bytes.hex), kernels, max_size=3), max_size=2
)
