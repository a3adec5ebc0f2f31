"""Modules inside other files: found whatever is around them; damaged ones are refused by name."""

import contextlib
import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.formats import bundle
from treadle.formats.bundle import MARKER, Part, pack, unpack
from treadle.formats.messages.errors import ChecksumError, FormatError
from treadle.tools.dev.fuzz.changes import mutate_bytes

PARTS = [Part("one", [b"first", b"part"], (1, 2)), Part("two", [b""], (2,)), Part("three", [bytes(range(256))])]
PACKED = b"".join(pack(PARTS))


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_they_are_found_whatever_is_around_them(before: bytes, behind: bytes) -> None:
    found = unpack(memoryview(before + PACKED + behind), "file")
    assert [(each.kind, bytes(each.data), each.imports) for each in found] == [
        (part.kind, b"".join(part.pieces), part.imports) for part in PARTS
    ]
    for each in found:
        each.check()


def test_they_are_found_across_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_WINDOW", 16)
    assert len(unpack(memoryview(bytes(37) + PACKED), "file")) == 3


def test_markers_that_nothing_follows_are_passed_over() -> None:
    assert len(unpack(memoryview(MARKER + bytes(100) + MARKER * 2 + PACKED), "file")) == 3
    with pytest.raises(FormatError, match="holds no module"):
        unpack(memoryview(MARKER * 40 + PACKED), "file")


@pytest.mark.parametrize("end", range(0, len(PACKED), 7))
def test_what_is_cut_short_is_refused(end: int) -> None:
    with pytest.raises(FormatError):
        unpack(memoryview(PACKED[:end]), "file")


def test_imports_are_later_modules() -> None:
    with pytest.raises(FormatError, match=r"module 1 imports \[0\]"):
        unpack(memoryview(b"".join(pack([Part("a", []), Part("b", [], (0,))]))), "file")


def test_a_changed_module_is_noticed_when_it_is_checked() -> None:
    changed = bytearray(PACKED)
    changed[changed.index(b"first")] ^= 1
    with pytest.raises(ChecksumError, match="'one' is damaged"):
        unpack(memoryview(changed), "file")[0].check()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_changed_files_are_taken_or_refused(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        with contextlib.suppress(FormatError):
            for each in unpack(memoryview(mutate_bytes(random, PACKED)), "file"):
                each.check()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_changed_indices_with_right_checksums_are_taken_or_refused(seed: int) -> None:
    random = Random(seed)
    head = bundle._HEADER.size
    _, size, index_bytes, _ = bundle._HEADER.unpack_from(PACKED)
    for _ in range(100):
        index = mutate_bytes(random, PACKED[head : head + index_bytes])
        header = bundle._HEADER.pack(MARKER, size, len(index), zlib.crc32(index))
        with contextlib.suppress(FormatError):
            unpack(memoryview(header + index + PACKED[head + index_bytes :]), "file")
