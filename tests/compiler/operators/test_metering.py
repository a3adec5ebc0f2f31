"""Host operators on texts work in pieces, and pay for what they make before they make it (`formats/metering.py`)."""

from __future__ import annotations

import gc
import io
import struct
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from treadle.compiler.operators import lookup
from treadle.compiler.operators.regular_expressions import Pattern, pattern_problem
from treadle.compiler.operators.table import TABLE
from treadle.formats import metering
from treadle.formats.dtypes import DType
from treadle.formats.strings import Texts, held_by, to_numbers, to_texts
from treadle.formats.text_entries import CASES
from treadle.vm.array_memory import bounded

from ...timing import soon

PIECES = 4  # of the work of each test, at least


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


LONG = texts("a," * (PIECES * metering.CHARACTERS // 2))
STEPPED = texts("a," * (PIECES * metering.STEPS // 2))
WIDE = texts("é" * (PIECES * metering.CHARACTERS))
MANY = np.array([f"{number} x" for number in range(PIECES * metering.ITEMS)], object)
NONE = texts()


class Use(NamedTuple):
    operator: str
    arguments: tuple[Any, ...]
    attributes: Mapping[str, Any] = MappingProxyType({})


USES = {
    "one long text behind another": Use("concat_texts", (texts(*["a" * (16 * metering.CHARACTERS)] * 16), texts("b"))),
    "many behind others": Use("concat_texts", (MANY, MANY)),
    "one split": Use("split_texts", (LONG,), {"delimiter": ","}),
    "one split at spaces": Use("split_texts", (texts(LONG[0].replace(",", " ")),)),
    "one split few times": Use("split_texts", (texts(LONG[0] * 4),), {"delimiter": "-", "most": 1}),
    "many split": Use("split_texts", (MANY,)),
    "one in another case": Use("normalize_texts", (WIDE, NONE), {"case": "upper"}),
    "many in another case": Use("normalize_texts", (MANY, NONE), {"case": "upper"}),
    "many stop words": Use("normalize_texts", (texts("a"), MANY)),
    "one matched": Use("match_texts", (STEPPED,), {"expression": "[a,]*"}),
    "many matched": Use("match_texts", (MANY,), {"expression": "[0-9]+ x"}),
    "characters": Use("tokenize_texts", (WIDE, NONE)),
    "tokens": Use("tokenize_texts", (STEPPED, texts("a+"))),
    "tokens that are looked for from each place": Use("tokenize_texts", (texts("a" * 600), texts("a*b"))),
    "what lies between": Use("tokenize_texts", (STEPPED, texts(",")), {"between": True}),
    "one hashed": Use("hash_texts", (STEPPED,)),
    "many hashed": Use("hash_texts", (MANY,)),
    "numbers": Use("print_numbers", (np.arange(len(MANY)) + 0.5,)),
    "many numbers": Use("read_numbers", (texts(*map(str, range(len(MANY)))),), {"dtype": DType.float32}),
    "bytes of one": Use("text_bytes", (WIDE,), {"case": "upper"}),
    "bytes of many": Use("text_bytes", (MANY,)),
}


def test_every_operator_on_texts_is_looked_at() -> None:
    lookup("text_bytes")  # of a target: then all are there
    assert {use.operator for use in USES.values()} == {name for name, operator in TABLE.items() if operator.takes_texts}


class OverError(Exception):
    """The work is to end."""


@contextmanager
def ready(name: str) -> Iterator[Callable[[metering.Meter], None]]:
    """What evaluates an operator by a meter."""
    use = USES[name]
    operator = lookup(use.operator)
    with held_by(Texts()):
        arrays = [to_numbers(array) if array.dtype == object else array for array in use.arguments]

        def evaluate(meter: metering.Meter) -> None:
            with metering.metered(meter):
                operator.evaluate(arrays, operator.canonical(use.attributes))

        yield evaluate


@pytest.mark.parametrize("name", USES)
def test_somebody_looks_between_pieces(name: str) -> None:
    looks: list[int] = []
    with ready(name) as evaluate:
        evaluate(metering.Meter(lambda: looks.append(1), metering.free))
    assert len(looks) >= PIECES - 1


@pytest.mark.parametrize("name", USES)
def test_the_work_ends_where_the_look_says_so(name: str) -> None:
    def end() -> None:
        raise OverError

    with ready(name) as evaluate, pytest.raises(OverError):
        evaluate(metering.Meter(end, metering.free))


ROOM = 1 << 19
SLACK = 3 << 20  # what a piece may take, and what is not made by the operator


@pytest.mark.parametrize("name", USES)
def test_no_more_is_made_than_was_paid_for(name: str) -> None:
    """As Python's own allocators and NumPy's see it."""
    with ready(name) as evaluate, bounded(ROOM) as account:
        tracemalloc.start()
        try:
            evaluate(metering.Meter(lambda: None, account.pay))
        except MemoryError:
            assert account.was_refused
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert peak < ROOM + SLACK


@pytest.mark.parametrize("name", ["many split", "tokens of many"])
def test_no_list_is_kept_for_each_text(name: str) -> None:
    """The collector of garbage walks through all lists, while all threads wait."""
    found: list[int] = []
    operator, attributes = ("split_texts", {}) if name == "many split" else ("tokenize_texts", {})
    arrays = [to_numbers(MANY), *([to_numbers(texts(" "))] if operator == "tokenize_texts" else [])]
    gc.collect()
    before = len(gc.get_objects())
    with metering.metered(metering.Meter(lambda: found.append(len(gc.get_objects())), metering.free)):
        lookup(operator).evaluate(arrays, lookup(operator).canonical(attributes))
    assert max(found) - before < len(MANY) // 8


# ---- pieces give what the whole gives ----


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.compiler.operators import texts as operators
    from treadle.formats import text_entries

    for module in (metering, operators, text_entries):
        monkeypatch.setattr(module, "CHARACTERS", 5)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    "text", ["a,b,,c" * 4, ",", "", "abcdefghi,j", "aaaaaaaaaaa", " a  bc   defghijkl ", "    " * 3]
)
@pytest.mark.parametrize("delimiter", ["", ",", "aa", "ghi,"])
@pytest.mark.parametrize("most", [None, -1, 0, 1, 2])
def test_a_long_text_is_split_as_python_does_it(text: str, delimiter: str, most: int | None) -> None:
    made, counts = lookup("split_texts").reference(texts(text), delimiter=delimiter, most=most)
    assert to_texts(made).tolist() == [text.split(delimiter or None, -1 if most is None else most)]
    assert counts.tolist() == [made.shape[1]]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("text", ["ΑΣΣΑΣ ΣΑΣ.Σ", "ΑΑΑΑΣ\u0301 ΑΑ", "ΑΑΑΑΣ'ΑΑΑΑ'Σ", "Straße İstanbul, ﬃ" * 2])
def test_a_long_text_gets_another_case_as_python_does_it(text: str) -> None:
    assert CASES["lower"](text) == text.lower()
    assert CASES["upper"](text) == text.upper()


# ---- regular expressions ----


def test_what_is_known_of_an_automaton_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.compiler.operators import regular_expressions

    monkeypatch.setattr(regular_expressions, "KEPT", 500)
    random = np.random.default_rng(1)
    expression = Pattern("[ab]*a[ab]{20}")
    text = "".join(random.choice(["a", "b"], 500))
    assert expression.is_whole(text) == (text[-21] == "a")
    assert sum(len(now[0]) + len(ways) for now, ways in expression._known.items()) <= 500


EXPRESSIONS = {
    "repetitions": "[ab]*a([ab]{900}){10}x",
    "groups": "(" * 99 + "a" * 4000 + ")?" * 99,
    "braces": "{" + ",{" * 4000,
    "sets": "[a-z]|" * 1500,
    "flags": "(?i)" * 2000,
}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expressions_are_checked_in_time_that_their_length_tells(expression: str) -> None:
    """Files may have many: an automaton is made when it is needed, and counts."""
    with soon(1.0):
        for number in range(5):
            pattern_problem(f"{expression}|{number}")


@pytest.mark.parametrize("expression", ["", "a|bc?|", "(a{2,5}){3}[x-z]+", "(?i)^(a*|\\b.){2,}$", "a{,5}{1}"])
def test_states_are_counted_as_they_are_made(expression: str) -> None:
    from treadle.compiler.operators import regular_expressions

    counted = regular_expressions._parsed(expression).states
    looks: list[int] = []
    meter = metering.Meter(lambda: looks.append(1), metering.free)
    with metering.metered(meter):
        assert len(Pattern(expression)._made.moves) == counted + 2
        for _ in range(1 + metering.STEPS // max(2 * counted, 1)):
            Pattern(expression)
    assert bool(looks) == (counted > 0)


# ---- numbers ----


@pytest.mark.parametrize("size", [64, 65, 130])
def test_determinants_of_large_matrices_are_those_of_lapack(size: int) -> None:
    x = np.random.default_rng(size).random((3, size, size))
    x[2, :, 7] = x[2, :, 9] * 0
    made, expected = lookup("determinant").reference(x), np.linalg.det(x)
    np.testing.assert_allclose(made, expected, rtol=1e-9)


def test_scattered_elements_are_reduced_in_their_order() -> None:
    count = metering.CHARACTERS + 5
    places = np.arange(count)[:, None] % 7
    made = lookup("scatter_nd").reference(np.zeros(7), places, np.arange(count) * 1.0, reduction="max")
    assert made.tolist() == [count - 1 - (count - 1 - place) % 7 for place in range(7)]


# ---- images ----

FORMS = ["PNG", "BMP", "PPM", "TIFF", "JPEG", "JPEG2000", "WEBP"]


def file_of(pixels: np.ndarray, form: str) -> np.ndarray:
    file = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(pixels).save(file, form)
    return np.frombuffer(file.getvalue(), np.uint8)


def decoded(
    file: np.ndarray, room: int = 1 << 30, order: str = "RGB", look: Callable[[], None] = lambda: None
) -> np.ndarray:
    with bounded(room) as account, metering.metered(metering.Meter(look, account.pay)):
        return lookup("decode_image").reference(file, pixel_format=order)


@pytest.mark.parametrize("form", FORMS)
def test_an_image_is_paid_for_before_memory_is_taken(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(np.zeros((600, 600, 3), np.uint8), form)
    if form != "JPEG2000":
        assert decoded(file, 40_000_000).shape == (600, 600, 3)
    from PIL import ImageFile

    def load(self: object) -> None:
        raise AssertionError("memory for the pixels would be taken here")

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    with pytest.raises(MemoryError):
        decoded(file, 600 * 600 * 12)


def test_a_webp_is_paid_for_before_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    file = file_of(np.zeros((600, 600, 3), np.uint8), "WEBP")
    monkeypatch.setattr(Image, "open", None)
    with pytest.raises(MemoryError):
        decoded(file, 600 * 600 * 12)


def tiff_of_tags(count: int, size: int) -> bytes:
    """Tags that are all the same bytes."""
    entries = b"".join(struct.pack("<HHII", 40_000 + tag, 1, size, 8) for tag in range(count))
    return b"II*\0" + struct.pack("<I", 8 + size) + bytes(size) + struct.pack("<H", count) + entries + bytes(4)


def test_tags_of_an_image_are_paid_for() -> None:
    with pytest.raises(MemoryError):
        decoded(np.frombuffer(tiff_of_tags(1, 200_000), np.uint8), 2_000_000)


def test_what_a_camera_says_is_not_read() -> None:
    plain = file_of(np.zeros((8, 8, 3), np.uint8), "JPEG").tobytes()
    tags = tiff_of_tags(400, 60_000)
    parts = [tags[at : at + 60_000] for at in range(0, len(tags), 60_000)]
    said = b"".join(b"\xff\xe1" + struct.pack(">H", len(part) + 8) + b"Exif\0\0" + part for part in parts)
    tracemalloc.start()
    try:
        assert decoded(np.frombuffer(plain[:2] + said + plain[2:], np.uint8), 4_000_000).shape == (8, 8, 3)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("order", ["RGB", "Grayscale"])
def test_a_jpeg_2000_is_decoded_by_a_process_that_can_be_ended(order: str) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (300, 301, 3), np.uint8)
    file = file_of(pixels, "JPEG2000")
    grey = np.array(image.fromarray(pixels).convert("L"))[:, :, None]
    assert np.array_equal(decoded(file, order=order), pixels if order == "RGB" else grey)
    assert decoded(file[: len(file) // 50], order=order).shape[:2] == (0, 0)

    def end() -> None:
        raise OverError

    with pytest.raises(OverError):
        decoded(file, order=order, look=end)
