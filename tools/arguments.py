"""The grammar of tensors on the command line, shared by `run` and `bench`.

    [NAME=][TYPE=]SOURCE        x=1x3x224x224xf32=@x.npy   x=@x.npy   2x3xf32=random:7   0.5
    TYPE                        sizes and an element type, joined by x: 2x3xf32, i64 (a scalar); 2x3 for the program's own type
    SOURCE                      @FILE.npy, random:SEED, one number or text for all elements, or all of them: 1,2,3,4
                                @FILE.npz without a name gives each input the array of its name
                                of a data type: JSON, or @FILE.json, as tree='{"Node": ["Leaf", 1.5, "Leaf"]}': a constructor's
                                name, with a list of its fields if it has any; tensors are numbers or lists of them

A name may be left out where the position says it; a type where the program's signature or the file says it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats import dims, limits
from ..formats.dtypes import DType
from ..formats.messages.errors import TreadleError
from ..formats.messages.file_kinds import HEAD_BYTES, kind_of, told
from ..formats.messages.names import near
from ..formats.text.text_files import read_text
from ..formats.types import TensorType, Type
from .errors import UsageError

if TYPE_CHECKING:
    from ..vm.data_types import DataTypes


_SHORT_NAMES = {"bool": DType.bool} | {
    f"{kind[0]}{dtype.itemsize * 8}": dtype
    for dtype in DType
    for kind in ("int", "uint", "float")
    if dtype.is_numpys and dtype.name.startswith(kind)
}
_ELEMENT_TYPES = _SHORT_NAMES | {dtype.name: dtype for dtype in DType}
_TYPE = re.compile(rf"(?P<shape>(?:\d+x)*)(?P<dtype>{'|'.join(sorted(_ELEMENT_TYPES, key=len, reverse=True))})")
_SHAPE = re.compile(r"\d+(x\d+)*")  # without an element type; one number alone, in front of any =, is a name
_FILE = re.compile(r".+\.(npy|npz)")
_JSON = re.compile(r"""(?:(?P<head>[^{}\[\]"]*)=)?(?P<source>[{\["].*|null)""", re.DOTALL)
_RANDOM = re.compile(r"random(?::(\d+))?")


@dataclass(frozen=True)
class TensorArgument:
    """A parsed argument: what it is for, its type as far as it says, and where the elements come from."""

    name: str | None
    dtype: DType | None
    shape: tuple[int, ...] | None
    source: str
    text: str

    @property
    def is_file(self) -> bool:
        """Whether a file holds the elements."""
        return self.source.startswith("@")

    def load_value(self, declared: Type, types: DataTypes) -> Any:
        """A value that is not a tensor, as a call takes it. Raises UsageError."""
        from .json_values import how, value_of  # which needs the machine

        text = self.source
        if self.dtype is not None or self.shape is not None or text.startswith(("random", "@")):
            if not text.startswith("@") or text.endswith((".npy", ".npz")):
                raise UsageError(f"{self.text!r}: expected {declared} as JSON, {how(declared, types)}")
            require_file(text[1:])
            text = read_text(text[1:])
        return value_of(text, declared, types, repr(self.text))

    def load(self, declared: Type | None = None, sizes: Mapping[str, int] | None = None) -> np.ndarray:
        """The tensor. What the argument leaves open is taken from the type that the program declares, whose symbolic dimensions
        are of `sizes`. Raises UsageError."""
        try:
            return self._load(declared, sizes or {})
        except (MemoryError, ValueError) as error:
            if isinstance(error, TreadleError):
                raise
            raise UsageError(f"{self.text!r}: {error}") from None  # NumPy has no such shape, or no memory for it

    def _load(self, declared: Type | None, sizes: Mapping[str, int]) -> np.ndarray:
        if self.is_file:
            return self._from_file(declared)
        if _FILE.fullmatch(self.source) or (not _RANDOM.fullmatch(self.source) and _is_file(self.source)):
            head = self.text[: len(self.text) - len(self.source)]
            raise UsageError(f"{self.text!r}: {self.source} is a file; write @ before its name: {head}@{self.source}")
        dtype, shape = self._type(declared, sizes)
        seed = _RANDOM.fullmatch(self.source)
        if seed:
            from ..debug.subject import random_elements

            below = 2 if dtype is DType.bool else 100
            return random_elements(np.random.default_rng(int(seed[1] or 0)), dtype, shape, below)
        try:
            elements = np.array([_number(word, dtype) for word in self.source.split(",")], dtype.users)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"{self.text!r}: {error}") from None
        if elements.size == 1:
            return np.full(shape, elements[0])
        if elements.size != np.prod(shape, dtype=np.int64):
            raise UsageError(f"{self.text!r} gives {elements.size} elements for a tensor of shape {list(shape)}")
        return elements.reshape(shape)

    def _from_file(self, declared: Type | None) -> np.ndarray:
        array = read_array(self.source[1:], self.name or "")
        dtype = self.dtype or (declared.dtype if isinstance(declared, TensorType) else None)
        if self.dtype is None and dtype is not None and dtype.numpy != array.dtype:
            raise UsageError(
                f"{self.source[1:]} holds {array.dtype} elements, but {self.name} is {declared}; to convert them, "
                f"write the type: {self.name}={''.join(f'{n}x' for n in array.shape)}{dtype.name}={self.source}"
            )
        if self.shape is not None and array.shape != self.shape:
            raise UsageError(f"{self.source[1:]} holds shape {list(array.shape)}, but {list(self.shape)} is asked for")
        return array.astype(dtype.numpy, copy=False) if dtype is not None else array

    def _type(self, declared: Type | None, sizes: Mapping[str, int]) -> tuple[DType, tuple[int, ...]]:
        if self.dtype is not None and self.shape is not None:
            return self.dtype, self.shape
        if not isinstance(declared, TensorType):
            raise UsageError(f"{self.text!r}: the element type and shape are not known; write them, as in 2x3xf32=…")
        if self.shape is not None:
            return declared.dtype, self.shape
        try:
            return declared.dtype, tuple(size_of(dim, sizes) for dim in declared.shape)
        except KeyError as error:
            count = self.source.count(",") + 1
            if declared.rank == 1 and count > 1:  # the elements are all there, and tell how many
                return declared.dtype, (count,)
            example = "x".join(str(dim) if isinstance(dim, int) else "1" for dim in declared.shape)
            symbol = error.args[0]
            by_name = f", or its size: --dim {symbol}=1" if symbol else ""
            name = f"{self.name}=" if self.name else ""
            type_ = example if "x" in example else f"{example}xf32"
            raise UsageError(
                f"{self.text!r}: {declared} has no fixed shape; write one, as in {name}{type_}={self.source}{by_name}"
            ) from None


def size_of(dim: object, sizes: Mapping[str, int]) -> int:
    """How long a dimension is, with symbols of these sizes. Raises KeyError with the symbol that has none; "" for a
    dimension that no symbol stands for."""
    if isinstance(dim, dims.SymbolicDim):
        for symbol in dims.variables(dim):
            if symbol not in sizes:
                raise KeyError(symbol)
        return dims.evaluate(dim, dict(sizes))
    if not isinstance(dim, int):
        raise KeyError("")
    return dim


def dimensions(texts: Sequence[str], types: Sequence[Type]) -> dict[str, int]:
    """The sizes that --dim gives, of symbols that these types have. Raises UsageError."""
    known = {
        symbol: None
        for type_ in types
        if isinstance(type_, TensorType)
        for dim in type_.shape
        if isinstance(dim, dims.SymbolicDim)
        for symbol in dims.variables(dim)
    }
    sizes = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal() or not size.isascii() or len(size) > len(str(limits.DIMENSION)):
            raise UsageError(f"--dim {text!r}: write NAME=SIZE")
        if name not in known:
            there = ", ".join(known) or "none"
            raise UsageError(f"--dim {text!r}: no symbolic dimension {name!r}; there is {there}{near(name, known)}")
        sizes[name] = int(size)
    return sizes


def learn(sizes: dict[str, int], declared: Type, shape: Sequence[int]) -> None:
    """Adds to `sizes` what an argument's shape says of symbols that have none yet."""
    if isinstance(declared, TensorType):
        for dim, size in zip(declared.shape, shape, strict=False):
            if isinstance(dim, dims.SymbolicDim):
                sizes.setdefault(str(dim), size)


def parse(text: str) -> TensorArgument:
    """Raises UsageError for text that is not of the grammar."""
    at = text.find("@")
    if at == 0 or (at > 0 and text[at - 1] == "="):  # a file's name may contain "=" too
        head, source = text[: max(at - 1, 0)], text[at:]
    elif json_ := _JSON.fullmatch(text):
        head, source = json_["head"] or "", json_["source"]
    else:
        head, _, source = text.rpartition("=")
    if not source or source == "@":
        raise UsageError(f"{text!r}: a value is missing; write NAME=@FILE.npy, NAME=random:SEED or NAME=NUMBER")
    name, separator, last = head.rpartition("=")
    type_, shape_ = _TYPE.fullmatch(last), _SHAPE.fullmatch(last)
    if type_ is None and (shape_ is None or not (separator or "x" in last)):
        return TensorArgument(head or None, None, None, source, text)
    sizes = type_["shape"].split("x")[:-1] if type_ else last.split("x")
    if len(sizes) > limits.RANK or any(len(size) > len(str(limits.DIMENSION)) for size in sizes):
        raise UsageError(f"{text!r}: expected at most {limits.RANK} sizes of at most {limits.DIMENSION}")
    shape = tuple(map(int, sizes))
    return TensorArgument(name or None, _ELEMENT_TYPES[type_["dtype"]] if type_ else None, shape, source, text)


def match_names(arguments: Sequence[TensorArgument], names: Sequence[str], what: str) -> dict[str, TensorArgument]:
    """Which argument is for which name; those without one fill the names that are left, in order. Raises UsageError."""
    found: dict[str, TensorArgument] = {}
    for argument in arguments:
        if argument.name is None:
            continue
        if argument.name not in names:
            raise UsageError(
                f"there is no {what} {argument.name!r}; there is {', '.join(names) or 'none'}{near(argument.name, names)}"
            )
        if argument.name in found:
            raise UsageError(f"{what} {argument.name!r} is given twice")
        found[argument.name] = argument
    rest = iter([name for name in names if name not in found])
    for argument in arguments:
        if argument.name is None:
            name = next(rest, None)
            if name is None:
                raise UsageError(f"{len(arguments)} {what}s are given, but there are {len(names)}")
            found[name] = argument
    return found


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def require_file(path: str | Path) -> None:
    """Raises UsageError where there is no file."""
    if not _is_file(str(path)):
        what = "a file is expected, not a folder:" if os.path.isdir(path) else "there is no file"
        raise UsageError(f"{what} {str(path)!r}")


def spread(arguments: Iterable[TensorArgument]) -> Iterator[TensorArgument]:
    """The arguments; an .npz file that is for no name alone is one for each of its arrays, by its name. Raises UsageError."""
    for argument in arguments:
        if argument.name is None and argument.is_file and argument.source.endswith(".npz"):
            for name in _names_in(argument.source[1:]):
                yield replace(argument, name=name)
        else:
            yield argument


def _names_in(path: str) -> list[str]:
    """The names of the arrays in an .npz file. Raises UsageError."""
    require_file(path)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return list(arrays)
    except Exception as error:
        raise UsageError(f"{path!r} is not a readable .npz file: {error}") from None


def read_array(path: str, name: str = "") -> np.ndarray:
    """An .npy file, or the array of an .npz file that has the name, or is alone. Raises UsageError for anything else; pickled
    objects are refused."""
    require_file(path)
    try:
        array = np.load(path, allow_pickle=False)
        if isinstance(array, np.lib.npyio.NpzFile):
            with array as arrays:
                names = list(arrays)
                array = arrays[name] if name in names else arrays[names[0]] if len(names) == 1 else names
    except Exception as error:  # NumPy reads the header as Python's text: tokens, syntax, nesting, sizes may be wrong
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
        kind = kind_of(head)
        why = error if kind is not None and kind.name == "npy" else f"{told(head)}; numpy.save writes such files"
        raise UsageError(f"{path!r} is not a readable .npy file: {why}") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(
            f"{path!r} holds {', '.join(array) or 'no array'}, and none is called {name!r}{near(name, array)}"
        )
    return array


def mismatch(name: str, actual: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str:
    """The mismatch of a result, in one line; "" if there is none."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        got, wanted = (f"{array.dtype}{list(array.shape)}" for array in (actual, expected))
        return f"output {name!r}: expected {wanted}, got {got}"
    wide = np.float64 if expected.dtype.kind == "f" else expected.dtype
    a, b = actual.astype(wide), expected.astype(wide)
    wrong = ~np.isclose(a, b, rtol, atol, equal_nan=True) if wide is np.float64 else a != b
    if not wrong.any():
        return ""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(wrong, np.nan_to_num(np.abs(a.astype(np.float64) - b), nan=np.inf, posinf=np.inf), -1.0)
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    first = tuple(int(index) for index in np.argwhere(wrong)[0])
    return (
        f"output {name!r}: {int(wrong.sum())} of {wrong.size} elements differ by more than rtol={rtol:g}, atol={atol:g}; "
        f"the first at {list(first)}, the worst at {[int(i) for i in worst]}: "
        f"expected {expected[worst]!s}, got {actual[worst]!s}"
    )


def _number(word: str, dtype: DType) -> Any:
    word = word.strip()
    if dtype is DType.bool:
        if word.lower() not in ("0", "1", "true", "false"):
            raise ValueError(f"{word!r} is not a truth value")
        return word.lower() in ("1", "true")
    if dtype.is_string:
        return word
    return float(word) if dtype.is_float else int(word, 0)


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_BYTES = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)


def byte_count(text: str) -> int:
    """Bytes, also as 512M, 2GB or 1.5 GiB: units are powers of 1024. Raises ValueError."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number of bytes")
    return int(Fraction(match.group(1)) * _UNITS[match.group(2).upper()])


_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "min": Fraction(60), "h": Fraction(3600)}
_DURATION = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)\s*({'|'.join(_SECONDS)})?")


def seconds(text: str) -> float:
    """Seconds, also as 500ms, 90s, 2m or 1h. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is not None:
        return float(Fraction(match.group(1)) * _SECONDS[match.group(2) or "s"])
    return float(text)


seconds.__name__ = "number of seconds (as 90, 500ms or 2m)"
byte_count.__name__ = "number of bytes (as 500000, 512M or 2G)"  # what argparse says it is not
