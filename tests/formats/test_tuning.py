"""Variants of kernels as text: one form, and nothing else."""

import pytest
from hypothesis import given
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import FormatError
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.tuning import parse_variant, print_variant

from . import strategies


@given(strategies.variants)
def test_text_and_choices_are_one(text: str) -> None:
    assert print_variant(parse_variant(text)) == text


@pytest.mark.parametrize(
    "text", ["tile", "tile=", "=2", "b=1 a=1", "a=1 a=1", "a=1  b=1", " a=1", "a=1 ", "a=../x", "A=1", "a=\n"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_variant(text)


def test_what_no_file_may_hold_is_not_written() -> None:
    program = parse_assembly("func @main(x: float32[]) -> float32[] {\n ret r0\n}")
    for text in ("tile=1;2", "a=" + "9" * 600):
        with pytest.raises(FormatError):
            Executable(program, tuning={"x86-64": {"00": text}}).as_bytes()


def test_the_default_leaves_no_trace() -> None:
    program = parse_assembly("func @main(x: float32[]) -> float32[] {\n ret r0\n}")
    tuned = Executable(program, tuning={"x86-64": {"00": "tile=6x4"}})
    assert load(tuned.as_bytes()).tuning == {"x86-64": {"00": "tile=6x4"}}
    assert tuned.with_tuning({}).as_bytes() == Executable(program).as_bytes()
