"""How tables become bytes: a schema of small codecs over a flat stream of msgpack scalars.

A section is a sequence of integers, floats, strings, byte strings, booleans and nils; msgpack's own arrays and maps are
not used, so that no length in a file makes the decoder allocate: a list is its count, checked against its limit and the
bytes left, then its elements. One schema gives the reader, the writer (equal values have equal bytes) and the page
docs/format.md. A reader's errors name the section, the byte, the field, what was expected and what was found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Union

import msgpack

from . import limits
from .messages.errors import FormatError, LimitError

Buffer = Union[bytes, memoryview]

_EMBEDDED = 8  # scalars that starting to read a value within bytes takes as long as

SCALARS = {int: "an integer", float: "a float", str: "a string", bytes: "bytes", bool: "a boolean", type(None): "nil"}


class Allowance:
    """How many scalars a file's tables may still have: each takes one to three microseconds to read, whatever they mean."""

    def __init__(self) -> None:
        self.left = limits.TABLE_SCALARS

    def spend(self, count: int, place: Reader | Writer) -> None:
        self.left -= count
        if self.left < 0:
            raise place.error(f"a file's tables have at most {limits.TABLE_SCALARS} values", LimitError)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


class Writer:
    """Collects a section's scalars."""

    def __init__(self, section: str, allowance: Allowance | None = None) -> None:
        self.section, self.field, self.depth = section, "", 0
        self.allowance = allowance or Allowance()
        self._packer = msgpack.Packer(use_bin_type=True, autoreset=False)

    def put(self, value: int | float | str | bytes | bool | None) -> None:
        self.allowance.spend(1, self)
        try:
            self._packer.pack(value)
        except (ValueError, OverflowError, TypeError) as error:  # an integer of over 64 bits, a lone surrogate
            raise self.error(f"{_show(value)} cannot be stored: {error}") from None

    def error(self, message: str, kind: type[FormatError] = FormatError) -> FormatError:
        return kind(f"{self.field}: {message}" if self.field else message, section=self.section)

    def getvalue(self) -> bytes:
        return self._packer.bytes()


class Reader:
    """Hands out a section's scalars one by one. `base` is the position of `data` in its section, for messages."""

    def __init__(
        self, data: bytes | memoryview, section: str, base: int = 0, allowance: Allowance | None = None
    ) -> None:
        self.section, self.field, self.depth = section, "", 0
        self.allowance = allowance or Allowance()
        self.size, self._base, self._start = len(data), base, 0
        self._unpacker = msgpack.Unpacker(
            raw=False,
            strict_map_key=True,
            max_buffer_size=max(1, self.size),
            max_str_len=limits.STRING_BYTES,
            max_bin_len=self.size,
            max_array_len=0,
            max_map_len=0,
            max_ext_len=0,
        )
        self._unpacker.feed(data)
        self._next = self._unpacker.unpack

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return self.size - self._unpacker.tell()

    @property
    def position(self) -> int:
        """The place of the next scalar in the section."""
        return self._base + self._unpacker.tell()

    def scalar(self) -> Any:
        self._start = self._unpacker.tell()
        self.allowance.left -= 1
        if self.allowance.left < 0:
            self.allowance.spend(0, self)
        try:
            return self._next()
        except msgpack.OutOfData:
            raise self.error("the section ends inside a value") from None
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None
        except ValueError as error:  # a length over its limit, an array, a map, an extension, a byte msgpack has not
            kind = LimitError if "exceeds" in str(error) else FormatError
            raise self.error(f"expected a scalar, found {error or 'no msgpack value'}", kind) from None

    def take(self, kind: type) -> Any:
        value = self.scalar()
        if type(value) is not kind:
            raise self.error(f"expected {SCALARS[kind]}, found {_show(value)}")
        return value

    def error(self, message: str, kind: type[FormatError] = FormatError) -> FormatError:
        """An error about the scalar that was read last."""
        place = self._base + self._start
        return kind(f"{self.field}: {message}" if self.field else message, section=self.section, offset=place)

    def finish(self) -> None:
        if self.left:
            self._start = self._unpacker.tell()
            raise self.error(f"{self.left} bytes follow the section's last value")


class Codec(ABC):
    """One kind of value: how it is read, written and described in docs/format.md."""

    @abstractmethod
    def read(self, reader: Reader) -> Any: ...

    @abstractmethod
    def write(self, writer: Writer, value: Any) -> None: ...

    @abstractmethod
    def describe(self) -> str: ...

    def decode(self, data: bytes | memoryview, section: str, base: int = 0, allowance: Allowance | None = None) -> Any:
        """The value that `data`, all of it, holds. Raises FormatError."""
        reader = Reader(data, section, base, allowance)
        value = self.read(reader)
        reader.field = ""
        reader.finish()
        return value

    def encode(self, value: Any, section: str, allowance: Allowance | None = None) -> bytes:
        writer = Writer(section, allowance)
        self.write(writer, value)
        return writer.getvalue()


@dataclass(frozen=True, eq=False, repr=False)
class Integer(Codec):
    low: int = 0
    high: int = (1 << 63) - 1

    def _check(self, value: int, place: Reader | Writer) -> None:
        if not self.low <= value <= self.high:
            raise place.error(f"{value} is not in {self.low} … {self.high}", LimitError)

    def read(self, reader: Reader) -> int:
        value = reader.take(int)
        self._check(value, reader)
        return value

    def write(self, writer: Writer, value: int) -> None:
        if type(value) is not int:
            raise writer.error(f"expected an integer, found {_show(value)}")
        self._check(value, writer)
        writer.put(value)

    def describe(self) -> str:
        names = {1 << 63: "2^63", (1 << 63) - 1: "2^63 - 1", -(1 << 63): "-2^63", (1 << 32) - 1: "2^32 - 1"}
        return f"integer {names.get(self.low, self.low)} … {names.get(self.high, self.high)}"


@dataclass(frozen=True, eq=False, repr=False)
class Scalar(Codec):
    """A float, boolean or nil, as msgpack has it."""

    kind: type

    def read(self, reader: Reader) -> Any:
        return reader.take(self.kind)

    def write(self, writer: Writer, value: Any) -> None:
        if not isinstance(value, self.kind):
            raise writer.error(f"expected {SCALARS[self.kind]}, found {_show(value)}")
        writer.put(None if value is None else self.kind(value))

    def describe(self) -> str:
        return {"float": "float64", "bool": "boolean"}.get(self.kind.__name__, "nil")


@dataclass(frozen=True, eq=False, repr=False)
class Text(Codec):
    limit: int = limits.STRING_BYTES

    def read(self, reader: Reader) -> str:
        value = reader.take(str)
        if len(value) > self.limit:
            raise reader.error(f"a string of {len(value)} characters; at most {self.limit} are allowed", LimitError)
        return value

    def write(self, writer: Writer, value: str) -> None:
        if not isinstance(value, str):
            raise writer.error(f"expected a string, found {_show(value)}")
        size = len(value.encode("utf-8", "surrogatepass"))
        if size > self.limit:
            raise writer.error(f"a string of {size} bytes; at most {self.limit} are allowed", LimitError)
        writer.put(value)

    def describe(self) -> str:
        return "string"


@dataclass(frozen=True, eq=False, repr=False)
class Binary(Codec):
    limit: int

    def _check(self, value: bytes, place: Reader | Writer) -> None:
        if len(value) > self.limit:
            raise place.error(f"{len(value)} bytes; at most {self.limit} are allowed", LimitError)

    def read(self, reader: Reader) -> bytes:
        value = reader.take(bytes)
        self._check(value, reader)
        return value

    def write(self, writer: Writer, value: bytes) -> None:
        self._check(value, writer)
        writer.put(bytes(value))

    def describe(self) -> str:
        return "bytes"


@dataclass(frozen=True, eq=False, repr=False)
class Embedded(Codec):
    """A value that has bytes of its own, inside those of the section."""

    codec: Codec
    limit: int

    def read(self, reader: Reader) -> Any:
        data = Binary(self.limit).read(reader)
        reader.allowance.spend(_EMBEDDED, reader)
        return self.codec.decode(data, reader.section, reader.position - len(data), reader.allowance)

    def write(self, writer: Writer, value: Any) -> None:
        writer.allowance.spend(_EMBEDDED, writer)
        Binary(self.limit).write(writer, self.codec.encode(value, writer.section, writer.allowance))

    def describe(self) -> str:
        return f"bytes that hold a {self.codec.describe()}"


@dataclass(frozen=True, eq=False, repr=False)
class Sequence(Codec):
    """A count, then as many elements; a tuple in memory."""

    element: Codec
    limit: int

    def _check(self, count: int, place: Reader | Writer) -> None:
        if not 0 <= count <= self.limit:
            raise place.error(f"a list of {count} elements; at most {self.limit} are allowed", LimitError)

    def read(self, reader: Reader) -> tuple:
        count = reader.take(int)
        self._check(count, reader)
        if count > reader.left:  # each element takes a byte at least
            raise reader.error(f"a list of {count} elements, but {reader.left} bytes are left", LimitError)
        read = self.element.read
        return tuple([read(reader) for _ in range(count)])

    def write(self, writer: Writer, value: Any) -> None:
        self._check(len(value), writer)
        writer.put(len(value))
        for element in value:
            self.element.write(writer, element)

    def describe(self) -> str:
        return f"list of ({self.element.describe()})"


@dataclass(frozen=True, eq=False, repr=False)
class Record(Codec):
    """The fields of a value in order: `make(*fields)` builds it, `parts(value)` takes it apart."""

    name: str
    fields: Mapping[str, Codec]
    make: Callable[..., Any]
    parts: Callable[[Any], Any]

    def read(self, reader: Reader) -> Any:
        values = []
        for name, codec in self.fields.items():
            reader.field = name
            values.append(codec.read(reader))
        return self.make(*values)

    def write(self, writer: Writer, value: Any) -> None:
        parts = self.parts(value)
        for (name, codec), part in zip(self.fields.items(), parts, strict=True):
            writer.field = name
            codec.write(writer, part)

    def describe(self) -> str:
        return self.name

    def describe_fields(self) -> list[tuple[str, str]]:
        return [(name, codec.describe()) for name, codec in self.fields.items()]


def record(make: Callable[..., Any], /, **fields: Codec) -> Record:
    """A record whose fields are attributes of `make`'s instances, positional arguments in that order."""
    getter = attrgetter(*fields)
    parts = getter if len(fields) > 1 else lambda value: (getter(value),)
    return Record(make.__name__, fields, make, parts)


def row(name: str, /, **fields: Codec) -> Record:
    """A record that is a plain tuple in memory."""
    return Record(name, fields, lambda *values: values, lambda values: values)


@dataclass(frozen=True, eq=False, repr=False)
class Choice(Codec):
    """One of several kinds: its number, then the value. Nests at most `nesting` deep. `options`: number → (class, codec)."""

    name: str
    nesting: int
    options: dict[int, tuple[type, Codec]] = field(default_factory=dict, compare=False)

    def read(self, reader: Reader) -> Any:
        tag = reader.take(int)
        if tag not in self.options:
            raise reader.error(f"{tag} is not a kind of {self.name}; known are {', '.join(map(str, self.options))}")
        self._descend(reader)
        value = self.options[tag][1].read(reader)
        reader.depth -= 1
        return value

    def write(self, writer: Writer, value: Any) -> None:
        tag = self.option_of(value)
        if tag is None:
            raise writer.error(f"{_show(value)} cannot be stored as a {self.name}")
        self._descend(writer)
        writer.put(tag)
        self.options[tag][1].write(writer, value)
        writer.depth -= 1

    def option_of(self, value: Any) -> int | None:
        """The number of the first kind that a value is of; None if there is none."""
        return next((tag for tag, (kind, _) in self.options.items() if isinstance(value, kind)), None)

    def _descend(self, place: Reader | Writer) -> None:
        place.depth += 1
        if place.depth > self.nesting:
            raise place.error(f"a {self.name} nests deeper than {self.nesting}", LimitError)

    def describe(self) -> str:
        return self.name

    def describe_options(self) -> list[tuple[int, str, str]]:
        return [(tag, kind.__name__, codec.describe()) for tag, (kind, codec) in self.options.items()]


@dataclass(frozen=True, eq=False, repr=False)
class Converted(Codec):
    """A value stored as another: `load` makes it of what `codec` reads, `dump` is the inverse. Their errors are placed."""

    name: str
    codec: Codec
    load: Callable[[Any], Any]
    dump: Callable[[Any], Any]

    def read(self, reader: Reader) -> Any:
        stored = self.codec.read(reader)
        try:
            return self.load(stored)
        except (FormatError, TypeError, ValueError) as error:
            raise reader.error(f"{_show(stored)}: {getattr(error, 'message', error)}") from None

    def write(self, writer: Writer, value: Any) -> None:
        try:
            stored = self.dump(value)
        except (FormatError, TypeError, ValueError, AttributeError) as error:
            raise writer.error(f"{_show(value)}: {getattr(error, 'message', error)}") from None
        self.codec.write(writer, stored)

    def describe(self) -> str:
        return f"{self.name} ({self.codec.describe()})"
