"""The words of Treadle's text forms: names, types, numbers and tensor values, printed and scanned.

Printing and scanning are exact inverses: a NaN keeps its payload, a float its last bit, a name whatever it is made of.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NoReturn, TypeVar

import numpy as np

from .. import dims, limits
from ..dims import SymbolicDim
from ..dtypes import DType
from ..messages.errors import FormatError, ParseError
from ..messages.names import NAME, near
from ..primitive import AttributeValue
from ..strings import to_numbers, to_texts
from ..types import UNKNOWN, DataType, FunctionType, ShapeDim, TensorType, TupleType, Type, size_problem

T = TypeVar("T")

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_NAME = re.compile(NAME)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_INTEGER = re.compile(r"[-+]?[0-9]+(?![\w.])")
_NUMBER = re.compile(r"nan\(0x[0-9a-fA-F]+\)|[-+]?(?:nan|inf|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?!\w)")
TYPE_NUMBER = re.compile(r"t[0-9]+(?![\w.\[])")
_BASE64_LINE = 96
_SIZE = re.compile(r"\s*[0-9?]")  # begins a shape, and no type
_DTYPES = {dtype.name: dtype for dtype in DType}


class Scanner:
    """A position in a text. Methods skip blanks and comments (# to the end of the line) first; errors show the line."""

    def __init__(self, text: str) -> None:
        if len(text) > limits.TEXT_BYTES:
            raise FormatError(f"a text of {len(text)} characters; at most {limits.TEXT_BYTES} are allowed")
        self.text, self.at = text, 0
        self.depth = 0

    def skip(self) -> int:
        self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]  # it matches the empty text too
        return self.at

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        at = self.skip() if at is None else at
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        line = self.text[start : end if end >= 0 else len(self.text)]
        raise ParseError(message, line=self.text.count("\n", 0, at) + 1, column=at - start + 1, text=line)

    def found(self) -> str:
        """The token found here, for messages."""
        self.skip()
        match = re.compile(r"[\w.@%]+|.", re.DOTALL).match(self.text, self.at)
        return f"found {match.group()[:40]!r}" if match else "found the end of the text"

    def on_this_line(self) -> bool:
        """True when something follows before the line ends."""
        start = self.at
        found = "\n" not in self.text[start : self.skip()] and self.at < len(self.text)
        self.at = start
        return found

    def at_end(self) -> bool:
        return self.skip() == len(self.text)

    def peek(self, literal: str) -> bool:
        return self.text.startswith(literal, self.skip())

    def accept(self, literal: str) -> bool:
        if self.peek(literal):
            self.at += len(literal)
            return True
        return False

    def accept_word(self, word: str) -> bool:
        """Like `accept`, but only a whole word."""
        match = _NAME.match(self.text, self.skip())
        if match is not None and match.group() == word:
            self.at = match.end()
            return True
        return False

    def expect(self, literal: str) -> None:
        if not self.accept(literal):
            self.fail(f"expected {literal!r}, {self.found()}")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self.text, self.skip())
        if match is None:
            self.fail(f"expected {what}, {self.found()}")
        self.at = match.end()
        return match.group()

    def word(self, what: str) -> str:
        return self.match(_NAME, what)

    def string(self, what: str = "a string") -> str:
        start = self.skip()
        text = self.match(_STRING, what)
        try:
            return json.loads(text)
        except ValueError as error:
            self.fail(f"{what}: {error}", start)

    def name(self, what: str) -> str:
        """A bare or a quoted name."""
        return self.string(what) if self.peek('"') else self.word(what)

    def integer(self, what: str = "an integer", low: int = -(1 << 63), high: int = (1 << 63) - 1) -> int:
        start = self.skip()
        text = self.match(_INTEGER, what)
        if len(text) > 20 or not low <= int(text) <= high:
            self.fail(f"{what}: {text[:40]} is not in {low} … {high}", start)
        return int(text)

    def listed(self, element: Callable[[], T], opening: str = "(", closing: str = ")") -> list[T]:
        """`(a, b, c)`; a trailing comma is allowed."""
        self.expect(opening)
        elements: list[T] = []
        while not self.accept(closing):
            if elements:
                self.expect(",")
                if self.accept(closing):
                    break
            elements.append(element())
        return elements

    def nested(self, parse: Callable[[], T]) -> T:
        """Run `parse` one level deeper; fails beyond the limit, long before Python's own."""
        self.depth += 1
        if self.depth > limits.TYPE_NESTING:
            self.fail(f"nested deeper than {limits.TYPE_NESTING}")
        result = parse()
        self.depth -= 1
        return result


# ---- names ----


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def print_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else quote(name)


def scan_result_names(scanner: Scanner) -> tuple[str, ...]:
    """`as (values, best)`, after a function's result; nothing where its results have no names."""
    return tuple(scanner.listed(lambda: scanner.name("a result's name"))) if scanner.accept_word("as") else ()


def print_result_names(names: Sequence[str]) -> str:
    return f" as ({', '.join(map(print_name, names))})" if names else ""


# ---- types ----


def print_type(type_: Type) -> str:
    if isinstance(type_, TensorType):
        return str(type_)
    if isinstance(type_, TupleType):
        return f"({', '.join(map(print_type, type_.fields))}{',' if len(type_.fields) == 1 else ''})"
    if isinstance(type_, FunctionType):
        return f"fn({', '.join(map(print_type, type_.params))}) -> {print_type(type_.result)}"
    return print_data_type_name(type_.name)


def print_data_type_name(name: str) -> str:
    """Bare when it reads as a data type's name: `List`, `List[float32[2]]`; else quoted, and so is `t3`, a type's number."""
    return _printed_name(name) if len(name) <= _SHORT_NAME else _print_name(name)


_SHORT_NAME = 200  # characters of names that are remembered


@lru_cache(maxsize=1024)
def _printed_name(name: str) -> str:
    return _print_name(name)


def _print_name(name: str) -> str:
    if TYPE_NUMBER.fullmatch(name):
        return quote(name)
    scanner = Scanner(name)
    try:
        bare = scan_type(scanner) == DataType(name) and scanner.at == len(name) and name[0] != '"'
    except FormatError:
        bare = False
    return name if bare else quote(name)


def scan_type(scanner: Scanner) -> Type:
    return scanner.nested(lambda: _scan_type(scanner))


def _scan_type(scanner: Scanner) -> Type:
    if scanner.peek("("):
        return TupleType(tuple(scanner.listed(lambda: scan_type(scanner))))
    if scanner.peek('"'):
        return DataType(scanner.string())
    start = scanner.skip()
    word = scanner.word("a type")
    if word in _DTYPES:
        return TensorType(_DTYPES[word], scan_shape(scanner), scan_place(scanner))
    if word == "fn":
        params = tuple(scanner.listed(lambda: scan_type(scanner)))
        scanner.expect("->")
        return FunctionType(params, scan_type(scanner))
    if not scanner.text.startswith("[", scanner.at):
        return DataType(word)
    if _SIZE.match(scanner.text, scanner.at + 1):
        scanner.fail(f"{word!r} is not an element type{_meant(word)}", start)
    arguments = scanner.listed(lambda: scan_type(scanner), "[", "]")
    if not arguments:
        scanner.fail("a data type's arguments are missing", start)
    return DataType(f"{word}[{', '.join(map(print_type, arguments))}]")


def scan_tensor_type(scanner: Scanner) -> TensorType:
    """One that says nothing of a device."""
    return TensorType(scan_dtype(scanner), scan_shape(scanner))


def scan_placed_type(scanner: Scanner) -> TensorType:
    return scan_tensor_type(scanner).on(scan_place(scanner))


def scan_place(scanner: Scanner) -> str:
    """`@gpu0`, right behind a shape: the name of a device; "" for the host."""
    if not scanner.text.startswith("@", scanner.at):
        return ""
    scanner.at += 1
    return scanner.word("a device's name")


def scan_dtype(scanner: Scanner) -> DType:
    start = scanner.skip()
    word = scanner.word("an element type")
    if word not in _DTYPES:
        scanner.fail(f"{word!r} is not an element type{_meant(word)}", start)
    return _DTYPES[word]


def _meant(word: str) -> str:
    return near(word, _DTYPES) or f"; known are {', '.join(_DTYPES)}"


def scan_shape(scanner: Scanner) -> tuple[ShapeDim, ...]:
    """`[n, 4, ?, 2*n + 1]`"""
    scanner.expect("[")
    shape: list[ShapeDim] = []
    while not scanner.accept("]"):
        if shape:
            scanner.expect(",")
        shape.append(_scan_dim(scanner, ",]"))
        if len(shape) > limits.RANK:
            scanner.fail(f"a shape of more than {limits.RANK} dimensions")
    return tuple(shape)


def _scan_dim(scanner: Scanner, closing: str) -> ShapeDim:
    """A dimension, up to a character of `closing` outside of parentheses."""
    start = at = scanner.skip()
    depth = 0
    text = scanner.text
    while at < len(text) and (depth or text[at] not in closing) and text[at] != "\n":
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    scanner.at = at
    expression = text[start:at].strip()
    if expression == "?":
        return UNKNOWN
    try:
        return dims.parse(expression)
    except FormatError as error:
        scanner.fail(error.message if expression else "expected a dimension", start)


# ---- attribute values ----


def print_float(value: float) -> str:
    """As Python prints it; a NaN that is not Python's own shows its bits: nan(0x7ff8000000000001)."""
    if math.isnan(value):
        return _print_nan(np.float64(value))
    return repr(value)


def _print_nan(value: np.generic) -> str:
    unsigned = f"u{value.dtype.itemsize}"
    bits, default = (np.asarray(each, value.dtype).view(unsigned) for each in (value, np.nan))
    return "nan" if bits == default else f"nan(0x{int(bits):0{2 * value.dtype.itemsize}x})"


def print_attribute(value: AttributeValue) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return print_float(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, DType):
        return value.name
    if isinstance(value, SymbolicDim):
        return f"<{value}>"
    if isinstance(value, tuple):
        return f"({', '.join(map(print_attribute, value))}{',' if len(value) == 1 else ''})"
    return str(value)


_WORDS: dict[str, AttributeValue] = {"none": None, "true": True, "false": False, **_DTYPES}


def scan_attribute(scanner: Scanner) -> AttributeValue:
    if scanner.peek("("):
        return scanner.nested(lambda: tuple(scanner.listed(lambda: scan_attribute(scanner))))
    if scanner.peek('"'):
        return scanner.string()
    start = scanner.skip()
    if scanner.accept("<"):
        dim = _scan_dim(scanner, ">")
        scanner.expect(">")
        if not isinstance(dim, SymbolicDim):
            scanner.fail("a dimension without variables is an integer, or is not known", start)
        return dim
    word = _NAME.match(scanner.text, scanner.at)
    if word is not None and word.group() in _WORDS:
        scanner.at = word.end()
        return _WORDS[word.group()]
    if _INTEGER.match(scanner.text, scanner.at):
        return scanner.integer()
    return _parse_float(scanner.match(_NUMBER, "an attribute's value"))


def _parse_float(text: str) -> float:
    if text.startswith("nan("):
        return struct.unpack("<d", struct.pack("<Q", int(text[4:-1], 16) & ((1 << 64) - 1)))[0]
    return float(text)


# ---- tensors ----


def print_tensor(array: np.ndarray) -> str:
    """`[[1.0, 2.0], [3.0, nan]]`; a scalar without brackets."""
    if array.size == 0:
        return "[]"
    if DType.of(array.dtype).is_string:
        return _bracketed(map(quote, to_texts(array).reshape(-1)), array.shape)
    texts = iter([_element_text(element) for element in array.reshape(-1)])
    return _bracketed(texts, array.shape)


def _bracketed(texts: Iterator[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return next(texts)
    return f"[{', '.join(_bracketed(texts, shape[1:]) for _ in range(shape[0]))}]"


def _element_text(element: np.generic) -> str:
    if isinstance(element, np.bool_):
        return "true" if element else "false"
    if not DType.of(element.dtype).is_float:
        return str(element)
    if np.isnan(element):
        return _print_nan(element)
    text = str(element) if isinstance(element, np.floating) else repr(float(element))
    # The shortest digits are read as a float64, then rounded: where that rounds twice, write the float64 itself.
    return text if element.dtype.type(float(text)) == element else repr(float(element))


def scan_tensor(scanner: Scanner, type_: TensorType) -> np.ndarray:
    """The inverse of `print_tensor`. Also takes integers for floats. Raises ParseError when the shape does not fit."""
    shape: tuple[int, ...] = type_.shape  # type: ignore[assignment]
    dtype = type_.dtype
    if problem := size_problem(type_):
        scanner.fail(f"a tensor {type_} {problem}")
    if 0 in shape:
        scanner.expect("[")
        scanner.expect("]")
        return np.empty(shape, dtype.numpy)
    values: list[object] = []
    _scan_elements(scanner, dtype, shape, values)
    if dtype.is_string:
        return to_numbers(np.array(values, object).reshape(shape))
    if dtype.is_float:
        return np.array(values, f"u{dtype.itemsize}").view(dtype.numpy).reshape(shape)
    return np.array(values, dtype.numpy).reshape(shape)


def _scan_elements(scanner: Scanner, dtype: DType, shape: tuple[int, ...], values: list[object]) -> None:
    if not shape:
        values.append(_scan_element(scanner, dtype))
        return
    scanner.expect("[")
    for position in range(shape[0]):
        if scanner.peek("]"):
            scanner.fail(f"expected {shape[0]} elements here, found {position}")
        if position:
            scanner.expect(",")
        _scan_elements(scanner, dtype, shape[1:], values)
    if scanner.peek(","):
        scanner.fail(f"expected {shape[0]} elements here, found more")
    scanner.expect("]")


def _scan_element(scanner: Scanner, dtype: DType) -> object:
    """A bool, an integer, or the bits of a float."""
    if dtype is DType.bool:
        word = scanner.word("true or false")
        if word not in ("true", "false"):
            scanner.fail(f"expected true or false, found {word!r}", scanner.at - len(word))
        return word == "true"
    if dtype.is_string:
        return scanner.string("a text in quotes")
    if dtype.is_integer:
        return scanner.integer(f"an {dtype.name}", *map(int, dtype.bounds))
    start = scanner.skip()
    text = scanner.match(_NUMBER, f"a {dtype.name}")
    if text.startswith("nan("):
        bits = int(text[4:-1], 16)
        if bits >> dtype.value.bits:
            scanner.fail(f"{text} has more bits than {dtype.name}", start)
        return bits
    with np.errstate(over="ignore"):
        return int(np.array(float(text), np.float64).astype(dtype.numpy).view(f"u{dtype.itemsize}"))


def print_base64(data: bytes | memoryview) -> Iterator[str]:
    """Lines of base64."""
    step = _BASE64_LINE // 4 * 3
    for start in range(0, len(data), step):
        yield base64.b64encode(data[start : start + step]).decode()


def scan_base64(scanner: Scanner, size: int) -> bytes:
    """`{ lines }` of exactly `size` bytes."""
    scanner.expect("{")
    start = scanner.at
    end = scanner.text.find("}", start)
    if end < 0:
        scanner.fail("the base64 block does not end", start)
    try:
        data = base64.b64decode("".join(scanner.text[start:end].split()), validate=True)
    except (binascii.Error, ValueError) as error:
        scanner.fail(f"no base64: {error}", start)
    if len(data) != size:
        scanner.fail(f"expected {size} bytes of base64, found {len(data)}", start)
    scanner.at = end + 1
    return data
