"""Random changes of executables, for the fuzzer: of any bytes, of the bytes of one section, of the decoded program.

Everything is a function of the random generator that is given, so that a mutant can be made again from its number.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from ....formats import dims
from ....formats.bytecode import scan
from ....formats.codec import Buffer
from ....formats.container import Container, layout
from ....formats.dtypes import DType
from ....formats.isa import OPERATIONS
from ....formats.program import Program
from ....formats.schema import BY_NAME, REQUIRED
from ....formats.types import UNKNOWN, ShapeDim, TensorType

# Numbers at which counts, sizes and addresses go wrong.
EDGES = (0, 1, 2, 3, 7, 63, 64, 127, 255, 256, 65535, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 47, (1 << 63) - 1)
NAMES = ("", "x", "n", "add", "relu", "matmul", "gpu0", "take", "reshape", "axis", "value", "main", "List", "ß\0")


def tweak(random: Random, number: int) -> int:
    """Another integer, often near, that fits into a word."""
    choice = random.randrange(5)
    if choice == 0:
        changed = number + random.choice((-1, 1))
    elif choice == 1:
        changed = number ^ 1 << random.randrange(64)
    elif choice == 2:
        changed = random.choice(EDGES) * random.choice((1, 1, -1))
    elif choice == 3:
        changed = ~number
    else:
        changed = random.randrange(-8, 32)
    return (changed + (1 << 63)) % (1 << 64) - (1 << 63)


# ---- bytes ----


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """`data` with one to four changes anywhere."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(_BYTE_CHANGES)(random, changed)
    return bytes(changed)


def _flip(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xC0, 0xFF, random.randrange(256)))


def _set_word(random: Random, data: bytearray) -> None:
    at = random.randrange(len(data) + 1)
    width = random.choice((2, 4, 8))
    number = random.choice(EDGES) % (1 << 8 * width)
    data[at : at + width] = number.to_bytes(width, random.choice(("little", "big")))


def _cut(random: Random, data: bytearray) -> None:
    at = random.randrange(len(data) + 1)
    del data[at : at + random.choice((1, 2, 8, 64, len(data)))]


def _insert(random: Random, data: bytearray) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.randbytes(random.choice((1, 2, 8, 64)))


def _copy(random: Random, data: bytearray) -> None:
    start, at = random.randrange(len(data) + 1), random.randrange(len(data) + 1)
    piece = data[start : start + random.choice((1, 2, 8, 64))]
    data[at : at + len(piece)] = piece


_BYTE_CHANGES: Sequence[Callable[[Random, bytearray], None]] = (_flip, _flip, _set, _set_word, _cut, _insert, _copy)


# ---- JSON ----


def mutate_json(random: Random, text: str) -> str:
    """A JSON text with one to four values in it changed, left out, moved or doubled."""
    document = json.loads(text)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        _change_value(random, document)
    return json.dumps(document)


def _change_value(random: Random, document: Any) -> None:
    """Goes down from the document's root, at each step to any part, and changes something in the container where it ends."""
    place = document
    while True:
        inner = [
            part for part in (place.values() if isinstance(place, dict) else place) if isinstance(part, (dict, list))
        ]
        if not inner or random.random() < 0.15:
            break
        place = random.choice(inner)
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    if not keys:
        return
    key = random.choice(keys)
    choice = random.randrange(8)
    if choice == 0:
        del place[key]
    elif choice == 1:
        place[random.choice(keys)] = place[key]
    elif choice == 2 and isinstance(place, list):
        place.append(place[key])
    elif choice == 3:
        place[key] = random.choice((None, True, 1.5, "", -1, [], {}, [[]], "1", 1 << 70, *NAMES))
    elif isinstance(place[key], bool) or not isinstance(place[key], int):
        text = place[key]
        is_number = isinstance(text, str) and text.isdigit()
        place[key] = str(tweak(random, int(text))) if is_number else random.choice(NAMES)
    else:
        place[key] = tweak(random, place[key])


# ---- sections ----


def mutate_section(random: Random, data: bytes) -> bytes:
    """An executable with changed bytes in one section, and checksums that fit."""
    opened = Container(data, frozenset(BY_NAME))
    contents: dict[str, list[Buffer]] = {name: [view] for name, view in opened.contents.items()}
    name = random.choice(list(contents))
    if random.random() < 0.02:
        del contents[name]
    else:
        contents[name] = [mutate_bytes(random, bytes(opened.contents[name]))]
    return b"".join(layout(contents, REQUIRED))


# ---- programs ----


def mutate_program(random: Random, program: Program) -> Program:
    """`program` with one to four changes in its code and tables."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        program = _change_code(random, program) if random.random() < 0.6 else _change_tables(random, program)
    return program


def _change_tables(random: Random, program: Program) -> Program:
    tables = [
        name
        for name in ("functions", "constants", "primitives", "types", "data_types", "devices")
        if getattr(program, name)
    ]
    name = random.choice(tables)
    return dataclasses.replace(program, **{name: change(random, getattr(program, name))})


def change(random: Random, value: Any) -> Any:
    """The same value with one part of it, at any depth, replaced by another of its kind, doubled, moved or left out."""
    if isinstance(value, tuple):
        return _change_tuple(random, value)
    if isinstance(value, TensorType) and value.shape and random.random() < 0.5:
        at = random.randrange(len(value.shape))
        return TensorType(value.dtype, (*value.shape[:at], change_dim(random, value.shape[at]), *value.shape[at + 1 :]))
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, dims.SymbolicDim)):
        name = random.choice([field.name for field in dataclasses.fields(value)])
        return dataclasses.replace(value, **{name: change(random, getattr(value, name))})
    if isinstance(value, bool) or value is None:
        return random.choice((True, False, None))
    if isinstance(value, int):
        return tweak(random, value)
    if isinstance(value, float):
        return random.choice((0.0, -0.0, 1.0, -1e30, 1e-45, float("inf"), float("nan")))
    if isinstance(value, str):
        return random.choice((*NAMES, value + "x", value[:-1]))
    if isinstance(value, DType):
        return random.choice(list(DType))
    if isinstance(value, np.ndarray):
        return _change_array(random, value)
    return value


def change_dim(random: Random, dim: ShapeDim) -> ShapeDim:
    choice = random.randrange(4)
    if choice == 0 and isinstance(dim, int):
        return tweak(random, dim)
    if choice == 1:
        return UNKNOWN
    if choice == 2:
        return dims.parse(random.choice(("n", "m", "n + 1", "2*n", "n*m", "(n // 2)", "max(m, n)")))
    return random.randrange(8)


def _change_tuple(random: Random, values: tuple) -> tuple:
    if not values:
        return values
    at, other = random.randrange(len(values)), random.randrange(len(values))
    is_pair = len(values) == 2 and isinstance(values[0], str)  # an attribute stays one
    choice = random.random()
    if choice < 0.7 or is_pair:
        return (*values[:at], change(random, values[at]), *values[at + 1 :])
    if choice < 0.8:
        return values[:at] + values[at + 1 :]
    if choice < 0.9:
        return (*values[:at], values[other], *values[at:])
    return (*values[:at], values[other], *values[at + 1 :])


def _change_array(random: Random, array: np.ndarray) -> np.ndarray:
    shape = random.choice((array.shape, (array.size,), (array.size, 1), (0, *array.shape)))
    dtype = random.choice(list(DType)).numpy
    try:
        changed = np.resize(array.astype(dtype), shape)
    except TypeError:  # ml_dtypes has no cast between some of its types
        changed = np.resize(array, shape)
    changed.flags.writeable = False
    return changed


# ---- code ----


def _change_code(random: Random, program: Program) -> Program:
    if not len(program.code) or not program.functions:
        return program
    index = random.randrange(len(program.functions))
    function = program.functions[index]
    words = program.code[function.start : function.start + function.length].tolist()
    try:
        starts = [instruction.offset for instruction in scan(words)]
    except ValueError:  # an earlier change: there are no instructions any more
        starts = list(range(len(words)))
    if not starts:
        return program
    random.choice(_CODE_CHANGES)(random, words, starts)
    return _with_code(program, index, words)


def _with_code(program: Program, index: int, words: list[int]) -> Program:
    """The program with another body for one function; those behind it move."""
    function = program.functions[index]
    end = function.start + function.length
    shift = len(words) - function.length
    code = np.concatenate([program.code[: function.start], np.array(words, np.int64), program.code[end:]])
    code.flags.writeable = False
    functions = [dataclasses.replace(f, start=f.start + shift) if f.start >= end else f for f in program.functions]
    functions[index] = dataclasses.replace(function, length=len(words))
    return dataclasses.replace(program, code=code, functions=tuple(functions))


def _tweak_word(random: Random, words: list[int], starts: list[int]) -> None:
    at = random.randrange(len(words))
    words[at] = tweak(random, words[at])


def _small_word(random: Random, words: list[int], starts: list[int]) -> None:
    """Most words are register numbers: stay among them."""
    words[random.randrange(len(words))] = random.randrange(8) * random.choice((1, 1, 1, -1))


def _copy_word(random: Random, words: list[int], starts: list[int]) -> None:
    words[random.randrange(len(words))] = random.choice(words)


def _change_opcode(random: Random, words: list[int], starts: list[int]) -> None:
    words[random.choice(starts)] = random.choice(OPERATIONS).opcode


def _drop_instruction(random: Random, words: list[int], starts: list[int]) -> None:
    at = random.randrange(len(starts))
    del words[starts[at] : starts[at + 1] if at + 1 < len(starts) else len(words)]


def _copy_instruction(random: Random, words: list[int], starts: list[int]) -> None:
    at = random.randrange(len(starts))
    piece = words[starts[at] : starts[at + 1] if at + 1 < len(starts) else len(words)]
    to = random.choice(starts)
    words[to:to] = piece


_CODE_CHANGES: Sequence[Callable[[Random, list[int], list[int]], None]] = (
    *(_tweak_word, _small_word, _small_word, _copy_word),
    *(_change_opcode, _drop_instruction, _copy_instruction),
)
