"""Functions of host primitives on texts, called with few short ones: the operators do them, and the engine all others, alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treadle
from hypothesis import given
from hypothesis import strategies as st
from treadle.compiler.ir.text import parse_module
from treadle.compiler.operators import TABLE, lookup
from treadle.formats import strings
from treadle.formats.messages.errors import DTypeError, ExecutionError, ShapeError
from treadle.formats.strings import FEW, FEW_BYTES
from treadle.vm import calls

LINES = {
    "concat_texts": "y = concat_texts(x, x)",
    "count_ngrams": """p = string[4] ["a", "b", "a", "a"]
    q = int64[3] [1, 0, 2]
    y = count_ngrams(x, p, q) {begins = (0, 2), least = 1, most = 2, skips = 1, columns = 4}""",
    "hash_texts": "y = hash_texts(x) {seed = 3}",
    "look_up": """k = string[3] ["a", "b", "a"]
    v = string[3] ["one", "two", "three"]
    y = look_up(x, k, v, string("none"))""",
    "match_texts": 'y = match_texts(x) {expression = "[a-b]+|é?"}',
    "normalize_texts": """w = string[2] ["a", "B"]
    y = normalize_texts(x, w) {case = "upper"}""",
    "split_texts": 'y = split_texts(x) {delimiter = "b"}',
    "tokenize_texts": """e = string[2] ["a", "b+"]
    y = tokenize_texts(x, e) {between = true, marks = true, pad = "#"}""",
}
CHAIN = """y = concat_texts(x, x)
    z = concat_texts(y, x)
    s = split_texts(z) {delimiter = "a"}"""
CODE = "func @main(x: string[n]) {{\n    {}\n    {}\n}}\n"


def machine_of(lines: str, result: str = "y") -> treadle.VirtualMachine:
    return treadle.VirtualMachine(treadle.compile(parse_module(CODE.format(lines, result)), progress=False))


MACHINES = {**{name: machine_of(lines) for name, lines in LINES.items()}, "chain": machine_of(CHAIN, "s")}


def texts(*values: Any) -> np.ndarray:
    return np.array(values, object)


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each host primitive that the engine asks for."""
    found: list[int] = []
    perform = calls.perform

    def counted(*args: Any) -> None:
        found.append(1)
        perform(*args)

    monkeypatch.setattr(calls, "perform", counted)
    return found


def test_every_operator_on_texts_is_looked_at() -> None:
    lookup("text_bytes")  # of a target: then all are there
    to_few = {"print_numbers", "read_numbers"}
    of_bytes = {"text_bytes"}  # followed by kernels
    taking = {name for name, operator in TABLE.items() if operator.takes_texts or operator.takes_objects}
    assert LINES.keys() | to_few | of_bytes == taking


@pytest.mark.parametrize("name", MACHINES)
def test_few_short_texts_are_done_without_the_engine(name: str, performed: list[int]) -> None:
    MACHINES[name]["main"](texts("a", "b a", "é"))
    assert not performed


def parts(value: Any) -> list[np.ndarray]:
    return [each.numpy() for each in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize("name", MACHINES)
@given(values=st.lists(st.text("ab é\n", max_size=9), max_size=6))
def test_the_engine_gives_the_same(name: str, values: list[str]) -> None:
    machine, x = MACHINES[name], np.array(values, object)
    few, bounded = parts(machine["main"](x)), parts(machine.call("main", [x], max_seconds=60))
    for one, other in zip(few, bounded, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    "x",
    [texts(*["a"] * (FEW + 1)), texts("a" * (FEW_BYTES + 1)), texts("é" * (FEW_BYTES // 2 + 1))],
    ids=["many", "a long one", "many bytes"],
)
def test_more_are_the_engines(x: np.ndarray, performed: list[int]) -> None:
    MACHINES["concat_texts"]["main"](x)
    assert performed


def test_many_texts_are_made_of_few_and_forgotten(performed: list[int]) -> None:
    machine = machine_of('e = string[0] []\n    y = tokenize_texts(x, e) {pad = "#"}')
    x = texts(*map(chr, range(0x4E00, 0x4E20)), "".join(map(chr, range(0x5000, 0x5400))))
    before = strings.PERMANENT.nbytes
    found = machine["main"](x).numpy()
    assert not performed
    assert strings.PERMANENT.nbytes == before
    assert found.dtype == object
    assert found.tolist() == machine.call("main", [x], max_seconds=60).numpy().tolist()


def test_what_a_primitive_gives_the_next_is_few_too(performed: list[int]) -> None:
    MACHINES["chain"]["main"](texts("a" * FEW_BYTES))
    assert len(performed) == 3


@pytest.mark.parametrize(
    ("x", "kind", "says"),
    [
        (texts("a", 1), DTypeError, "expected a text, got a int"),
        (texts("a", []), DTypeError, "expected a text, got a list"),
        (texts("\ud800"), DTypeError, "lone surrogates"),
        (texts("a")[None], ShapeError, "x"),
    ],
)
def test_the_engine_says_what_is_wrong(x: np.ndarray, kind: type, says: str) -> None:
    with pytest.raises(kind, match=says):
        MACHINES["concat_texts"]["main"](x)


def test_an_error_says_where_it_is() -> None:
    machine = machine_of("y = read_numbers(x) {dtype = float32}")
    assert machine["main"](texts("1", "2e3", "1e99")).numpy().tolist() == [1, 2000, np.inf]
    with pytest.raises(ExecutionError, match="'a' is not a float32") as caught:
        machine["main"](texts("a"))
    assert caught.value.instruction is not None


def test_sizes_that_a_function_compares_are_compared() -> None:
    code = "func @main(a: string[n], b: string[n]) {\n  y = concat_texts(a, b)\n  y\n}\n"
    machine = treadle.VirtualMachine(treadle.compile(parse_module(code), progress=False))
    assert machine["main"](texts("a"), texts("b")).numpy().tolist() == ["ab"]
    with pytest.raises(ShapeError, match="b"):
        machine["main"](texts("a", "b"), texts("c"))


def test_an_argument_that_is_handed_on_is_a_copy() -> None:
    code = "func @main(x: string[n], i: int64[n]) {\n  y = concat_texts(x, x)\n  both = (y, i)\n  both\n}\n"
    machine, i = treadle.VirtualMachine(treadle.compile(parse_module(code), progress=False)), np.arange(1)
    _, handed_on = machine["main"](texts("a"), i)
    i[0] = 7
    assert handed_on.numpy().tolist() == [0]


def test_a_listener_is_told_of_the_primitive() -> None:
    assert any("concat_texts" in str(row) for row in MACHINES["concat_texts"].profile("main", texts("a")).rows)
