"""Whatever stands in a file or text, reading it gives a program or a FormatError, and soon."""

import contextlib

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from treadle.formats import container, dims, schema
from treadle.formats.container import Container
from treadle.formats.executable import load
from treadle.formats.messages.errors import FormatError
from treadle.formats.program import Program
from treadle.formats.text.assembly import parse_assembly, print_assembly
from treadle.formats.text.dis import dis
from treadle.formats.text_model import TextModel

from . import examples, strategies

many = settings(max_examples=300, deadline=2000, suppress_health_check=list(HealthCheck))

# A change: where (as a fraction), how many bytes go, what comes instead.
edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4), st.binary(max_size=6)), min_size=1, max_size=3)


def edited(data: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for place, removed, inserted in changes:
        at = int(place * len(data))
        data = data[:at] + inserted + data[at + removed :]
    return data


def look_at(program: Program) -> None:
    for read in (lambda: list(dis(program)), lambda: print_assembly(program)):
        with contextlib.suppress(FormatError):
            read()


TEXT = TextModel(
    "embed", b"{}", 64, "y", ("mean",), True, labels=("a",), prompts=(("b", "c"),), template="d", stops=(2,)
)
OPENED = Container(examples.executable(examples.TEXTS).with_text_model(TEXT).as_bytes(), frozenset(schema.BY_NAME))


@many
@given(st.sampled_from(schema.SECTIONS), edits)
def test_sections_with_right_checksums(section: schema.Section, changes: list) -> None:
    contents = {name: [bytes(view)] for name, view in OPENED.contents.items()}
    contents[section.name] = [edited(contents[section.name][0], changes)]
    data = b"".join(container.layout(contents, {name: entry.required for name, entry in OPENED.entries.items()}))
    try:
        executable = load(data)
    except FormatError:
        return
    look_at(executable.program)


@many
@given(edits)
def test_any_bytes(changes: list) -> None:
    data = OPENED.data.tobytes()
    changed = edited(data, changes)
    try:
        load(changed).check_constants()
    except FormatError:
        return
    assert changed == data


@many
@given(edits.map(lambda changes: [(at, n, text.decode("latin-1").encode()) for at, n, text in changes]))
def test_any_text(changes: list) -> None:
    text = edited(examples.TEXT.encode(), changes).decode(errors="replace")
    try:
        program = parse_assembly(text)
    except FormatError:
        return
    look_at(program)


TOKENS = [*"()[]{}<>=,:%?|", "->", "func", "@f", "prim", "const", "float32", "n", "min", "7", "r0", "call", '"a"', "\n"]


@many
@given(st.lists(st.sampled_from(TOKENS), max_size=40).map(" ".join))
def test_any_tokens(text: str) -> None:
    with contextlib.suppress(FormatError):
        parse_assembly(text)


@many
@example("n +")
@example("(" * 1000)
@example("-" * 1000 + "n")
@example("n*" * 1000 + "n")
@given(st.text("nm123()+-*/% ,min", max_size=40))
def test_any_dimension(text: str) -> None:
    try:
        dim = dims.parse(text)
    except FormatError:
        return
    assert dims.parse(str(dim)) == dim


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.programs(), edits)
def test_words_of_the_code(program: Program, changes: list) -> None:
    code = edited(program.code.tobytes(), changes)
    words = strategies.code_array([list(memoryview(code[: len(code) // 8 * 8]).cast("q"))])
    for function in program.functions[:1]:
        whole = type(function)(**{**vars(function), "start": 0, "length": len(words)})
        look_at(Program((whole,), program.constants, program.primitives, words, program.types, ()))
