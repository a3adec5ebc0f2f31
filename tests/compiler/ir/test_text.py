"""The text form: what it looks like, and what its errors say."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from treadle.compiler.builder.programs import Module, constant, data_type, function, named, op, var
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.ir.text import parse_module, print_module
from treadle.formats.messages.errors import ParseError

from ..structure import structurally_equal

PROGRAM = dedent("""\
    data List[a] = Nil | Cons(a, List[a])

    func @scale(x: float32[n, 4], k: float32[]) -> float32[n, 4] {
      multiply: float32[n, 4] = multiply(x, k)  from "Mul_3"
      multiply
    }

    func @main(xs: List[float32[]], n: int64[]) -> (int64[], fn(float32[]) -> float32[]) {
      last: (int64[], float32[?]) = loop (i: int64[] = int64(0), v: float32[?] = float32[2] [1.5, nan]) while {
        less: bool[] = less(i, n)
        less
      } do {
        next: int64[] = add(i, int64(1))
        longer: float32[?] = concat(v, v) {axis=0}
        both: (int64[], float32[?]) = (next, longer)
        both
      }
      chosen: float32[] = match xs {
        Nil() => {
          float32(0.0)
        }
        Cons(first: float32[], _) => {
          first
        }
      }
      closure: fn(float32[]) -> float32[] = fn shift(y: float32[]) -> float32[] {
        add: float32[] = add(y, chosen)
        add
      }
      item: int64[] = last[0]
      pair: (int64[], fn(float32[]) -> float32[]) = (item, closure)
      pair
    }
    """)


def test_text_is_printed_as_it_was_read() -> None:
    text = PROGRAM.replace("closure: fn", '"closure": fn').replace("closure)", '"closure")')
    module = parse_module(text)
    assert print_module(module) == text
    assert structurally_equal(parse_module(print_module(infer_types(module))), infer_types(module))


def test_a_function_or_a_constant_may_stand_alone() -> None:
    text = dedent("""\
        func @twice(x: float32[]) -> float32[] {
          add: float32[] = add(x, x)
          add
        }

        func @main() -> (fn(float32[]) -> float32[], float32[]) {
          f: fn(float32[]) -> float32[] = @twice
          half: float32[] = float32(0.5)
          pair: (fn(float32[]) -> float32[], float32[]) = (f, half)
          pair
        }
        """)
    assert print_module(infer_types(parse_module(text))) == text


def test_a_printed_expression_reads_like_code() -> None:
    x = var("x", ("n", 4))
    module = infer_types(Module(main=function([x], named("act 1", op.clip(named("add", x + 1.0), min=0.0)))))
    assert print_module(module) == dedent("""\
        func @main(x: float32[n, 4]) -> float32[n, 4] {
          add: float32[n, 4] = add(x, float32(1.0))  from "add"
          "act 1": float32[n, 4] = clip(add) {min=0.0}  from "act 1"
          "act 1"
        }
        """)


def test_names_that_are_no_words_are_quoted() -> None:
    x = var('in/0:"a"', (2,))
    module = Module({"a function": function([x], op.identity(x))})
    text = print_module(module)
    assert text.startswith('func @"a function"("in/0:\\"a\\"": float32[2]) {')
    assert structurally_equal(parse_module(text), module)


def test_constants_keep_every_bit(tmp_path: Path) -> None:
    quiet = np.array([0x7FC00001, 0x80000000, 0x00000001], np.uint32).view(np.float32)
    large = np.random.default_rng(0).normal(size=(10, 10))
    module = Module(main=function([], op.sum(constant(quiet)) + op.cast(op.sum(constant(large)), dtype="float32")))
    inline = print_module(module)
    assert structurally_equal(parse_module(inline), module)
    aside = print_module(module, constants_file=tmp_path / "weights.trdc")
    assert len(aside) < len(inline)
    assert structurally_equal(parse_module(aside, folder=tmp_path), module)


def test_the_same_name_in_two_visible_places_gets_a_number() -> None:
    x = var("x", ())
    inner = var("x", ())
    module = Module(main=function([x], function([inner], inner * x)(x)))
    assert "fn(x_1: float32[])" in print_module(module)
    assert structurally_equal(parse_module(print_module(module)), module)


def test_a_word_is_a_type_variable_unless_the_text_has_such_a_data_type() -> None:
    tree = data_type("Tree = Leaf | Node(Tree)")
    module = parse_module("data Tree = Leaf | Node(Tree)\nfunc @f(a: t, b: Tree) -> t { a }")
    assert [str(param.type) for param in module.functions["f"].params] == ["t", "Tree"]
    assert type(module.functions["f"].params[1].type) is type(tree())
    assert module.data_types["Tree"] == tree.definition


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{ y }", "line 1, column 29: 'y' is not bound here"),
        ("{ x = add(x, x) x }", "'x' is bound already"),
        ("{ y = add(x, x)", "expected a variable or a constant, found the end of the text"),
        ("{ if = x if }", "'if' is a word of the language"),
        ("{ y = float32[2] [1.0] y }", "expected 2 elements here, found 1"),
        ("{ y = int8(300) y }", "an int8: 300 is not in -128 … 127"),
        ("{ y = $c0 y }", "there is no constant 'c0'"),
        ("{ y = loop (i = x) do { i } y }", "expected 'while'"),
        ("{ y = sum(x) {axes=} y }", "expected an attribute's value"),
        ("{ " + "y = if x { " * 200, "blocks nest deeper than"),
    ],
)
def test_errors_say_where_and_what(body: str, message: str) -> None:
    with pytest.raises(ParseError) as error:
        parse_module(f"func @f(x: float32[2, ?]) {body}")
    assert message in str(error.value)
    assert "^" in str(error.value)
