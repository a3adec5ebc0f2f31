"""How much memory a value in the machine's heap keeps alive."""

from __future__ import annotations

from .layout import KIND, OBJECT, OBJECT_HEAD
from .memory import words
from .values import NativeReference


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
