"""Texts, the elements of string tensors: an element in memory is the number of a text, 0 of the empty one.

Numbers are those of the process: one text has one number as long as anybody holds it, so that equal texts are equal numbers, in
kernels too, and a number is never given to another text. `Texts` holds the texts that one call, or one program, has met; when it
is gone, so are those that nobody else holds. Zeroed memory is a tensor of empty texts. Neither files nor what the verifier lets
through have a number that no text has; asking for its text would be an error.

Ctrl-C, and the exception that ends abandoned work, may come between any two bytecodes. So the tables change in steps of one
operation of C each, in an order in which a text that is held is known at any time. All that an interrupt may cost is that a text
is never forgotten.

A dict or set that grows is copied as a whole, while all threads wait: a third of a second for ten million texts. So each table is
many small ones. Texts lie in shards, by their hashes: these differ enough in size to grow one after another. Numbers are given in
their order, and lie in blocks.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from . import limits
from .dtypes import DType
from .messages.errors import DTypeError, ExecutionError, LimitError
from .metering import CHARACTERS, ITEMS, pay, spans

ELEMENT = DType.string.numpy
NONE = np.zeros(0, np.uint64)  # the numbers of no texts

_SHARDS = 1 << 10  # by high bits of a hash: dicts go by the low ones
_HIGH = 40
_BLOCK = 12  # bits of numbers in a block
_LASTING = 1 << 14  # texts of constants that are found without the lock

_lock = threading.Lock()
_numbers: tuple[dict[str, int], ...] = tuple({} for _ in range(_SHARDS))
_texts: dict[int, dict[int, str]] = {0: {0: ""}}  # by blocks
_others: dict[int, dict[int, int]] = {}  # how many hold a text beside one, where any do; by blocks
_lasting: dict[str, int] = {"": 0}  # some that are held for ever: nobody else needs to hold them
_gone: deque[set[int]] = deque()  # what holders that are gone have held, by blocks: they may go while the lock is held
_last = 0


def _shard(text: str) -> dict[str, int]:
    return _numbers[hash(text) >> _HIGH & _SHARDS - 1]


_shard("")[""] = 0


def _after_fork() -> None:
    """In a child of fork: another thread of the parent's may have held the lock."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def tensor_of(numbers: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The string tensor of numbers that `Texts.number` and `numbers_of` gave, uint64."""
    return numbers.view(ELEMENT).reshape(shape)


class Texts:
    """Holds texts: `number` of those that it has met are theirs until it is gone. `nbytes` is what they take, about."""

    __slots__ = ("__weakref__", "_held", "nbytes")

    def __init__(self) -> None:
        self._held: dict[int, set[int]] = {}  # by blocks
        self.nbytes = 0

    def number(self, text: str) -> int:
        """Raises DTypeError for anything but a text, LimitError for one that is too long."""
        number = _shard(text).get(text) if type(text) is str else None
        if number is not None and (number == 0 or number in self._held.get(number >> _BLOCK, ())):
            return number
        return self._taken([text])[0]

    def _taken(self, texts: list[str]) -> list[int]:
        global _last
        found, held, nbytes, places, shards = [], self._held, 0, 0, _numbers
        with _lock:
            _forget(4 * len(texts) + ITEMS)
            try:
                for text in texts:
                    if type(text) is not str:
                        text = _text(text)
                    shard = shards[hash(text) >> _HIGH & _SHARDS - 1]  # `_shard`
                    number = shard.get(text)
                    if number is None or (number and number not in held.get(number >> _BLOCK, ())):
                        nbytes += _OVERHEAD + _size(text)
                        places += _PLACES
                        if number is None:
                            number = _last = _last + 1
                            block = number >> _BLOCK
                            if block not in _texts:
                                _texts[block] = {}
                            _texts[block][number] = text  # before anybody can find its number
                            shard[text] = number
                        else:
                            block = number >> _BLOCK
                            _add_holder(number)  # before it is held
                        if block in held:
                            held[block].add(number)
                        else:
                            held[block] = {number}
                        if self is PERMANENT and len(_lasting) < _LASTING:
                            _lasting[text] = number
                    found.append(number)
            finally:
                self.nbytes += nbytes
        pay(places)
        return found

    def numbers(self, array: np.ndarray) -> np.ndarray:
        """The elements of an array of texts as those of a string tensor. Raises DTypeError, LimitError."""
        flat = array.reshape(-1)
        if array.size <= ITEMS:
            found = self.numbers_of(flat.tolist())
        else:
            found = np.empty(array.size, np.uint64)
            for span in spans(array.size):
                found[span] = self._taken(flat[span].tolist())
        return tensor_of(found, array.shape)

    def numbers_of(self, texts: list[str]) -> np.ndarray:
        """The numbers of at most a piece's texts, uint64. Raises DTypeError, LimitError."""
        try:
            found = list(map(_lasting.get, texts))
        except TypeError:  # no text, and without a hash
            found = [None]
        return np.array(self._taken(texts) if None in found else found, np.uint64)

    def keep(self, other: Texts) -> None:
        """Holds what another one holds."""
        for block, numbers in list(other._held.items()):
            mine = self._held.setdefault(block, set())
            with _lock:
                for number in numbers - mine:
                    _add_holder(number)
                    mine.add(number)
        self.nbytes = max(self.nbytes, other.nbytes)

    def __del__(self) -> None:
        if self._held and _gone is not None:  # when Python ends, there is nothing left to tidy
            _gone.extend(self._held.values())


_PLACES = 190  # bytes of a text's number, and of its places in tables
_OVERHEAD = _PLACES + 50  # and of its object


def _add_holder(number: int) -> None:
    others = _others.setdefault(number >> _BLOCK, {})
    others[number] = others.get(number, 0) + 1


def _forget(most: int) -> None:
    """Removes at most `most` texts that nobody holds any more; other threads wait meanwhile. The lock is held."""
    while _gone and most > 0:
        held = _gone[0]
        while held and most > 0:
            most -= 1
            number = held.pop()  # first: it is let go of once at most
            block = number >> _BLOCK
            others = _others.get(block, {})
            count = others.get(number, 0)
            if count > 1:
                others[number] = count - 1
            elif count:
                del others[number]
                if not others:
                    del _others[block]
            else:
                texts = _texts[block]
                del _shard(texts[number])[texts[number]]  # before its number is unknown
                del texts[number]
                if not texts:
                    del _texts[block]
        if not held:
            _gone.popleft()


def has_forgotten() -> bool:
    """Takes away a piece of the texts that nobody holds any more; whether none are left."""
    if _gone:
        with _lock:
            _forget(ITEMS)
    return not _gone


def forget() -> None:
    """Takes away all texts that nobody holds any more, piece by piece."""
    while not has_forgotten():
        pass


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise DTypeError(f"expected a text, got a {type(text).__name__}")
    return str(text)  # not np.str_


def _size(text: str) -> int:
    try:
        size = len(text) if text.isascii() else sum(len(text[span].encode()) for span in spans(len(text), CHARACTERS))
    except UnicodeEncodeError:
        raise DTypeError(f"{text[:60]!r} is not UTF-8 text: it has lone surrogates") from None
    if size > limits.ELEMENT_BYTES:
        raise LimitError(f"a text of {size} bytes; at most {limits.ELEMENT_BYTES} are allowed")
    return size


PERMANENT = Texts()  # texts of constants, and the default

_holder: ContextVar[Texts] = ContextVar("holder", default=PERMANENT)


def hold(texts: Texts) -> None:
    """From now on, texts that operators make in this context of Python's are held by that one."""
    _holder.set(texts)


@contextmanager
def held_by(texts: Texts) -> Iterator[None]:
    """Texts that operators make meanwhile, in this thread, are held by that one."""
    before = holder()
    try:
        _holder.set(texts)
        yield
    finally:
        _holder.set(before)


def holder() -> Texts:
    """The owner of texts that are made now."""
    return _holder.get()


def is_text(array: np.ndarray) -> bool:
    """Whether an array of a user's is one of texts: of Python's objects, or of NumPy's types of texts."""
    return array.dtype.kind in "OUT"


def to_numbers(array: np.ndarray, texts: Texts | None = None) -> np.ndarray:
    """An array of texts as the elements of a string tensor; numbers stay as they are. Raises DTypeError, LimitError."""
    return array if array.dtype == ELEMENT else (texts or holder()).numbers(array)


def to_texts(array: np.ndarray) -> np.ndarray:
    """The elements of a string tensor as an array of Python's texts; any other array as it is. Raises ExecutionError."""
    if array.dtype != ELEMENT:
        return array
    if array.size <= ITEMS:
        made = np.array(listed(array), object)
    else:
        made, flat = np.empty(array.size, object), array.reshape(-1)
        for span in spans(array.size):
            made[span] = listed(flat[span])
    return made if array.ndim == 1 else made.reshape(array.shape)


def listed(array: np.ndarray) -> list:
    """The elements of an array in a row, as Python has them; those of a string tensor are texts. Raises ExecutionError."""
    flat = array if array.ndim == 1 else array.reshape(-1)
    if array.dtype != ELEMENT:
        return flat.tolist()
    try:
        return [_texts[number >> _BLOCK][number] for number in flat.view(np.uint64).tolist()]
    except KeyError:
        unknown = next(each for each in flat.view(np.uint64).tolist() if each not in _texts.get(each >> _BLOCK, ()))
        raise ExecutionError(
            f"the element {unknown} of a string tensor is not text: nothing was written there"
        ) from None


def longest(array: np.ndarray) -> int:
    """Characters of the longest text of a string tensor; 0 of any other array."""
    return max(map(len, to_texts(array).reshape(-1)), default=0) if array.dtype == ELEMENT else 0


FEW = 64  # elements, and
FEW_BYTES = 1 << 12  # bytes of their texts together, in UTF-8, that every operation is done with within a millisecond
_TEXT = {str}


def is_few(array: np.ndarray) -> bool:
    """Whether an array has few elements; those of an array of Python's objects are to be short texts."""
    if array.size > FEW or array.dtype != object:
        return array.size <= FEW
    texts = array.tolist() if array.ndim == 1 else array.reshape(-1).tolist()
    try:
        return _TEXT.issuperset(map(type, texts)) and len("".join(texts).encode()) <= FEW_BYTES
    except UnicodeEncodeError:  # lone surrogates
        return False


def characters(array: np.ndarray) -> int:
    """Characters of all texts of a string tensor; 0 of any other array."""
    return sum(map(len, listed(array))) if array.dtype == ELEMENT else 0


# ---- as files have them ----


def indexed(arrays: Iterable[np.ndarray]) -> tuple[list[np.ndarray], list[str]]:
    """Arrays whose string tensors, and arrays of texts, have places in one list of texts; and that list."""
    places: dict[str, int] = {}
    found = []
    for array in arrays:
        if array.dtype in (ELEMENT, object):
            flat = to_texts(array).reshape(-1)
            array = np.fromiter((places.setdefault(text, len(places)) for text in flat), np.uint64, array.size)
        found.append(array)
    return found, list(places)


def from_indices(array: np.ndarray, numbers: np.ndarray, what: str) -> np.ndarray:
    """A string tensor of places among `numbers`, those of a list of texts. Raises LimitError."""
    places = array.reshape(-1).view(np.uint64)
    if len(places) and int(places.max()) >= len(numbers):
        raise LimitError(f"{what} has the text {int(places.max())} of {len(numbers)}", section="constants")
    made = numbers[places.astype(np.int64)].reshape(array.shape)
    return made.view(ELEMENT)
