"""How much memory a value in the machine's heap keeps alive."""

from __future__ import annotations

from .layout import KIND, OBJECT, OBJECT_HEAD
from .memory import words
from .values import NativeReference


def block_bytes(size: int) -> int:
    """The bytes that an object of `size` bytes counts in the budget: `heap.allocate` rounds to one of four sizes between two
    powers of two."""
    power = (size - 1).bit_length() - 1
    return ((size - 1 >> power - 2) & 3) + 5 << power - 2


def heap_bytes(native: NativeReference, most: int) -> int:
    """Bytes of all objects that a value leads to, each counted once; those of the program's constants are not. Stops soon after
    `most`: a list of a million cells takes about a second."""
    total, seen, todo = 0, set(), [native.word]
    while todo and total <= most:
        reference = todo.pop()
        if reference == 0 or reference & 1 or reference in seen:
            continue
        seen.add(reference)
        header = words(reference, OBJECT.ITEMS)
        total += header[OBJECT.SIZE]
        if header[OBJECT.KIND] == KIND.TENSOR:
            todo.append(header[OBJECT.OWNER])
        elif header[OBJECT.KIND] in (KIND.DATA, KIND.CLOSURE):
            todo += words(reference + OBJECT_HEAD, header[OBJECT.COUNT])
    return total
