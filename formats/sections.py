"""A program as the bytes of its sections, and back.

`encode` and `decode` follow the schema; `encode_definition` gives a primitive's definition its one canonical form in
bytes, which is also what kernel caches are keyed by. A decoder checks everything that can be seen without looking at the
code: counts, ranges, names, agreement between tables. The code itself is the verifier's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from . import limits, strings
from .codec import Allowance, Buffer, Codec
from .constants import check_constant_type, constant_bytes, constant_pieces, constant_type, split_constants
from .messages.errors import FormatError, LimitError
from .messages.names import NAME, near
from .primitive import Primitive, PrimitiveDefinition, PrimitiveNode
from .program import (
    HOST,
    Function,
    Import,
    LateBoundConstant,
    Native,
    NativeKernel,
    Program,
    ProgramDevice,
    SourceLocation,
)
from .schema import DEFINITION, DEVICES, NATIVE, SECTIONS, SOURCE_MAP, WEIGHTS
from .text_model import TextModel
from .types import FunctionType, TupleType, Type
from .weight_table import WeightTable
from .weight_table import check as check_weights

# ---- definitions ----


def encode_definition(definition: PrimitiveDefinition) -> bytes:
    """The canonical bytes of a definition; the nodes' origins are not part of them. Raises FormatError, LimitError."""
    data = DEFINITION.encode(definition, "definitions")
    if len(data) > limits.PRIMITIVE_BYTES:
        raise LimitError(
            f"a primitive's definition takes {len(data)} bytes; at most {limits.PRIMITIVE_BYTES} are allowed"
        )
    return data


def decode_definition(data: Buffer) -> PrimitiveDefinition:
    """The inverse. Raises FormatError."""
    definition = DEFINITION.decode(data, "definitions")
    check_definition(definition)
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


# ---- programs ----


def encode(
    program: Program,
    late_bound: Mapping[int, LateBoundConstant] | None = None,
    native: Native | None = None,
    weights: WeightTable | None = None,
) -> dict[str, list[Buffer]]:
    """The sections' contents by name, in order; optional ones that would be empty are left out.

    `late_bound`: constants, by index, whose elements stay in other files. Raises FormatError or LimitError for a program
    that could not be loaded again.
    """
    check(program)
    late_bound = late_bound or {}
    constants = [array for index, array in enumerate(program.constants) if index not in late_bound]
    constants, texts = strings.indexed(constants)
    tables: dict[str, Any] = {
        "globals": [
            (f.name, f.param_names, f.captured, f.ref_registers, f.int_registers, f.frame_bytes, f.length)
            for f in program.functions
        ],
        "constant_index": [_index_entry(array, late_bound.get(i)) for i, array in enumerate(program.constants)],
        "strings": texts,
        "primitives": [primitive.name for primitive in program.primitives],
        "types": program.types,
        "data_types": program.data_types,
        "signatures": [function.type for function in program.functions],
        "definitions": [(p.definition, [node.origin for node in p.definition.nodes]) for p in program.primitives],
        "imports": program.imports,
        "devices": _device_rows(program),
        "native": _native_rows(native or {}),
        "weights": weights or WeightTable(),
        "text": () if program.text is None else (program.text,),
        "results": [(number, f.result_names) for number, f in enumerate(program.functions) if f.result_names],
        "source_map": _source_rows(program.source_map),
        "metadata": sorted(program.metadata.items()),
    }
    contents: dict[str, list[Buffer]] = {}
    allowance = Allowance()
    for section in SECTIONS:
        if section.name == "constants":
            contents["constants"] = constant_pieces(constants)
        elif section.name == "code":
            contents["code"] = [constant_bytes(program.code)]
        elif section.codec is not None and (section.required or _is_there(tables[section.name])):
            contents[section.name] = [section.codec.encode(tables[section.name], section.name, allowance)]
    return contents


def decode(
    contents: Mapping[str, Buffer], bind: Callable[[LateBoundConstant], np.ndarray]
) -> tuple[Program, dict[int, LateBoundConstant], Native, WeightTable]:
    """The inverse of `encode`; `bind` finds the elements of late-bound constants. Raises FormatError."""
    allowance = Allowance()
    tables = {
        section.name: _decode_table(section.name, section.codec, contents, allowance)
        for section in SECTIONS
        if section.codec is not None
    }
    code = _decode_code(contents["code"])
    texts = strings.Texts()
    numbers = np.array([texts.number(text) for text in tables["strings"]], np.uint64)
    constants, late_bound = _decode_constants(tables["constant_index"], contents["constants"], bind, numbers)
    devices, *placed = tables["devices"]
    constant_devices, primitive_devices = (_decode_placed(rows, devices) for rows in placed)
    program = Program(
        functions=_with_result_names(_decode_functions(tables["globals"], tables["signatures"]), tables["results"]),
        constants=constants,
        primitives=_decode_primitives(tables["primitives"], tables["definitions"], primitive_devices),
        code=code,
        types=tables["types"],
        data_types=tables["data_types"],
        source_map=_decode_sources(*tables["source_map"]),
        metadata=_decode_metadata(tables["metadata"]),
        imports=tables["imports"],
        text=next(iter(tables["text"]), None),
        texts=texts,
        devices=devices,
        placed=constant_devices,
    )
    check(program)
    check_weights(tables["weights"], [constant_type(array) for array in program.constants])
    return (program, late_bound, _decode_native(tables["native"]), tables["weights"])


def _is_there(table: Any) -> bool:
    """Whether an optional table says anything."""
    if isinstance(table, WeightTable):
        return len(table) > 0
    return any(isinstance(row, (Import, TextModel, str)) or len(row) > 0 for row in table)


_NOTHING: dict[Codec, Any] = {
    SOURCE_MAP: ((), ()),
    DEVICES: ((), (), ()),
    WEIGHTS: WeightTable(),
}  # where there is none


def _decode_table(name: str, codec: Codec, contents: Mapping[str, Buffer], allowance: Allowance) -> Any:
    data = contents.get(name)
    if data is None:
        return _NOTHING.get(codec, ())
    if len(data) > limits.TABLE_BYTES and codec is not NATIVE:
        raise LimitError(f"{len(data)} bytes; at most {limits.TABLE_BYTES} are allowed", section=name)
    return codec.decode(data, name, allowance=allowance)


def _decode_code(data: Buffer) -> np.ndarray:
    if len(data) % 8:
        raise FormatError(f"{len(data)} bytes are not a whole number of 64-bit words", section="code")
    if len(data) // 8 > limits.CODE_WORDS:
        raise LimitError(f"{len(data) // 8} words; at most {limits.CODE_WORDS} are allowed", section="code")
    # a copy: the code that is verified must be the code that runs, whatever becomes of the file
    words = np.frombuffer(data, "<i8").astype(np.int64) if len(data) else np.empty(0, np.int64)
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


def _with_result_names(functions: tuple[Function, ...], rows: tuple) -> tuple[Function, ...]:
    named = dict(rows)
    if list(named) != sorted(named) or len(named) != len(rows) or not all(named.values()):
        raise FormatError("the functions are not in order, each once, with names", section="results")
    if named and max(named) >= len(functions):
        raise FormatError(f"function {max(named)} of {len(functions)} does not exist", section="results")
    return tuple(
        replace(function, result_names=named[number]) if number in named else function
        for number, function in enumerate(functions)
    )


def _decode_primitives(names: tuple[str, ...], rows: tuple, devices: Mapping[int, str]) -> tuple[Primitive, ...]:
    if len(names) != len(rows):
        raise FormatError(f"{len(rows)} definitions for {len(names)} primitives", section="definitions")
    if devices and max(devices) >= len(names):
        raise FormatError(f"primitive {max(devices)} of {len(names)} does not exist", section="devices")
    return tuple(
        Primitive(name, _with_origins(definition, origins), devices.get(number, ""))
        for number, (name, (definition, origins)) in enumerate(zip(names, rows, strict=True))
    )


def _device_rows(program: Program) -> tuple[tuple[ProgramDevice, ...], list[tuple[int, int]], list[tuple[int, int]]]:
    numbers = {device.name: number for number, device in enumerate(program.devices)}
    placed = [(index, numbers[name]) for index, name in sorted(program.placed.items())]
    primitives = [(number, numbers[p.device]) for number, p in enumerate(program.primitives) if p.device]
    return program.devices, placed, primitives


def _decode_placed(rows: tuple, devices: tuple[ProgramDevice, ...]) -> dict[int, str]:
    found = dict(rows)
    if list(found) != sorted(found) or len(found) != len(rows):
        raise FormatError("what lies on devices is not in order, each once", section="devices")
    if found and max(found.values()) >= len(devices):
        raise FormatError(f"device {max(found.values())} of {len(devices)} does not exist", section="devices")
    return {index: devices[number].name for index, number in found.items()}


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
    index: tuple, data: Buffer, bind: Callable[[LateBoundConstant], np.ndarray], texts: np.ndarray
) -> tuple[tuple[np.ndarray, ...], dict[int, LateBoundConstant]]:
    inside = iter(split_constants((type_ for type_, place in index if not place), data, texts))
    late_bound = {i: LateBoundConstant(type_, *place[0]) for i, (type_, place) in enumerate(index) if place}
    for number, constant in late_bound.items():
        check_constant_type(number, constant.type)
        if constant.type.dtype.is_string:
            raise FormatError(f"constant {number} is of texts, which other files do not hold", section="constant_index")
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
    _check_names("import", (entry.name for entry in program.imports), "imports")
    _check_names("data type", (definition.name for definition in program.data_types), "data_types")
    _check_devices(program)
    for primitive in program.primitives:
        check_definition(primitive.definition, primitive.name)
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


def check_device_name(name: str) -> None:
    """Raises FormatError for a name that types cannot show."""
    if not re.fullmatch(NAME, name) or len(name.encode()) > limits.SECTION_NAME_BYTES or name == HOST:
        raise FormatError(
            f"a device cannot be called {name!r}: expected a word of at most {limits.SECTION_NAME_BYTES} bytes, not {HOST!r}",
            section="devices",
        )


def _check_devices(program: Program) -> None:
    """What names a device names one of the program's; types are the verifier's business."""
    names = [device.name for device in program.devices]
    _check_names("device", names, "devices")
    for name in names:
        check_device_name(name)
    placed = [(f"constant {index}", name) for index, name in program.placed.items()]
    placed += [(f"primitive {p.name!r}", p.device) for p in program.primitives if p.device]
    for what, name in placed:
        if name not in names:
            message = (
                f"{what} is on the device {name!r}; the program has {', '.join(names) or 'none'}{near(name, names)}"
            )
            raise FormatError(message, section="devices")
    if program.placed and not 0 <= min(program.placed) <= max(program.placed) < len(program.constants):
        raise FormatError(
            f"constants {sorted(program.placed)[:20]} of {len(program.constants)} lie on devices", section="devices"
        )


def check_definition(definition: PrimitiveDefinition, name: str = "") -> None:
    """Raises FormatError for a node or output that uses a value which does not exist by then."""
    known = len(definition.params)
    where = f"primitive {name!r}: " if name else ""
    for number, node in enumerate(definition.nodes):
        for value in node.inputs:
            if not 0 <= value < known:
                message = f"{where}node {number} ({node.operator}) uses value {value}; {known} values exist before it"
                raise FormatError(message, section="definitions")
        known += len(node.results)
    for value in definition.outputs:
        if not 0 <= value < known:
            raise FormatError(f"{where}an output is value {value}; {known} values exist", section="definitions")


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
        check_result_names(function.result_names, function.type.result, function.name)
        start += function.length
    if start != len(program.code):
        raise FormatError(
            f"the functions have {start} words of code, the section has {len(program.code)}", section="code"
        )


def check_result_names(names: Sequence[str], result: Type, function: str) -> None:
    """Raises FormatError unless there are no names, or one for the result or each field of a tuple, all of them different."""
    count = len(result.fields) if isinstance(result, TupleType) else 1
    if names and (len(names) != count or len(set(names)) < count or "" in names):
        raise FormatError(
            f"its {count} results are called {', '.join(map(repr, names))}", section="results", function=function
        )


def _check_sources(program: Program) -> None:
    last = (-1, 0)
    for at in program.source_map:
        if not last < (at.function, at.offset):
            raise FormatError("the source map is not in order of function and offset", section="source_map")
        if at.function >= len(program.functions) or at.offset >= program.functions[at.function].length:
            raise FormatError(f"there is no word {at.offset} in function {at.function}", section="source_map")
        last = (at.function, at.offset)
