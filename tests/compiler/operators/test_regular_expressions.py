"""Regular expressions: what they match, by Python's `re`; what is refused; that none takes long."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.operators.regular_expressions import Pattern, PatternError

from ...timing import soon

few = settings(max_examples=300, deadline=None, derandomize=True)
pieces = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", r"\s", r"\b", r"\B", "^", "$", "é", r"\n", "[0-9_-]"]
)
expressions = st.recursive(
    pieces,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])),
    ),
    max_leaves=6,
)
texts = st.text("abé1 _\n-", max_size=8)


@few
@given(expressions, texts)
def test_whole_texts(expression, text):
    expected = _of_python(expression).fullmatch(text) is not None
    assert Pattern(expression).is_whole(text) == expected


@few
@given(expressions, texts)
def test_the_first_match_and_of_those_the_longest(expression, text):
    python = _of_python(expression)
    begins = (begin for begin in range(len(text) + 1) if python.match(text, begin) and _ends(python, text, begin))
    begin = next(begins, None)
    expected = None if begin is None else (begin, max(_ends(python, text, begin)))
    assert Pattern(expression).search(text, 0) == expected


def _of_python(expression: str) -> re.Pattern:
    """With Python's words for the end of the text, and for no border, which old versions do not find in an empty text."""
    return re.compile(expression.replace("$", r"\Z").replace(r"\B", r"(?!\b)"), re.ASCII)


def _ends(python: re.Pattern, text: str, begin: int) -> list[int]:
    """All ends of matches that begin there: what follows does not matter but for borders, so it is looked at as well."""
    behind = (
        re.compile(f"(?:{python.pattern})(?<=^[\\s\\S]{{{end}}})", re.ASCII) for end in range(begin, len(text) + 1)
    )
    return [end for end, each in enumerate(behind, begin) if each.match(text, begin)]


@pytest.mark.parametrize(
    ("expression", "text", "is_match"),
    [
        (r"[[:alpha:]]+", "abc", True),
        (r"[^[:space:]]", " ", False),
        (r"\pL+", "été", True),
        (r"\P{Lu}+", "été", True),
        (r"(?i)STRASSE|Ä", "ä", True),
        (r"(?i:a)b", "AB", False),
        (r"(?s).", "\n", True),
        (r"(?m)a$\n^b", "a\nb", True),
        (r"a\z", "a", True),
        (r"\Qa.b\E+", "a.bb", True),
        (r"\x41\x{42}\103", "ABC", True),
        (r"a{,2}", "a{,2}", True),
        (r"(?P<year>\d{4})-(?<month>\d\d)", "2024-05", True),
        (r"[]a]+", "]a", True),
        (r"[a-]+", "a-", True),
        ("", "", True),
        (r"(a|)*b?", "aab", True),
    ],
)
def test_the_syntax_of_re2(expression, text, is_match):
    assert Pattern(expression).is_whole(text) == is_match


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "(",
            ")",
            "a)",
            "[a",
            "[b-a]",
            "*",
            "a**",
            r"\1",
            r"\y",
            r"\p{Klingon}",
            "(?=a)",
            "(?<!a)b",
            "a{1001}",
            "a{3,2}",
        ),
        *("(" * 200 + ")" * 200, "((a{1000}){1000}){1000}", "[[:no:]]", "\\", r"\x{110000}", "a" * 20_000),
    ],
)
def test_what_is_no_expression_is_refused(expression):
    with pytest.raises(PatternError):
        Pattern(expression)


@pytest.mark.parametrize("expression", ["(a{100}){11}", "((a{10}b){10}|c){11,}", "(?:a{2,}){501}"])
def test_repetitions_of_repetitions_are_those_of_re2(expression):
    with pytest.raises(PatternError, match="at most 1000"):
        Pattern(expression)
    assert Pattern("(a{100}){10}").is_whole("a" * 1000)
    assert Pattern("(a{10}|b{999})*").is_whole("a" * 20)


def test_no_expression_takes_long():
    """Those that a search by trial would take centuries for."""
    with soon(5):
        for expression in (r"(a*)*b", r"(a|aa)+$b", r"(?:a?){30}a{30}b", r"(\w+\s?)*!"):
            assert not Pattern(expression).is_whole("a" * 2000)
