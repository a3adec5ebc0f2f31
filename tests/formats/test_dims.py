"""Laws of symbolic dimensions: what is divided exactly, and that simplifying changes no value."""

import dataclasses

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from treadle.formats import dims, limits
from treadle.formats.dims import parse
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import ParseError
from treadle.formats.text.assembly import parse_assembly
from treadle.tests import timing
from treadle.tests.formats.strategies import symbolic_dims

few = settings(max_examples=100, deadline=None, derandomize=True)
polynomials = st.lists(
    st.tuples(st.integers(-3, 3), st.lists(st.sampled_from("abc"), max_size=3)), min_size=1, max_size=4
).map(lambda terms: parse(" + ".join("*".join([f"({factor})", *names]) for factor, names in terms)))
VALUES = {"a": 3, "b": 5, "c": 7, "n": 4, "m": 2, "batch": 6, "max": 8, "i0": 9}


@few
@given(polynomials, polynomials)
def test_a_product_is_divided_by_its_factors(a, b):
    assume(b != 0)
    assert dims.floordiv(dims.multiply(a, b), b) == a
    assert dims.modulo(dims.multiply(a, b), b) == 0


@few
@given(symbolic_dims, polynomials)
def test_division_keeps_values(a, b):
    divisor = dims.evaluate(b, VALUES)
    assume(divisor != 0)
    assert dims.evaluate(dims.floordiv(a, b), VALUES) == dims.evaluate(a, VALUES) // divisor
    assert dims.evaluate(dims.modulo(a, b), VALUES) == dims.evaluate(a, VALUES) % divisor


@pytest.mark.parametrize(
    ("whole", "part", "quotient"),
    [
        ("8*b*h*w + 8*b*h + 8*b*w + 8*b", "b*h*w + b*h + b*w + b", "8"),  # channels that a reshape to images leaves
        ("a*a - b*b", "a - b", "a + b"),
        ("n*n*n - 1", "n - 1", "n*n + n + 1"),
        ("n*n", "n + 1", "n*n // (n + 1)"),
        ("2*n + 2", "4*n + 4", "(2*n + 2) // (4*n + 4)"),
    ],
)
def test_quotients(whole, part, quotient):
    assert str(dims.floordiv(parse(whole), parse(part))) == str(parse(quotient))


PROGRAM = "func @main(x: float32[{0}, 2]) -> float32[{0}, 2] {{\n  ret r0\n}}\n"


@few
@given(st.text(min_size=1))
@example("é")
@example("表里图_dim1")
@example("²")
@example("٣")
@example("a b")
@example("\u2028")
@example("n" * limits.DIM_NAME)
@example("名" * 10_000)
def test_a_name_of_a_size_is_one_everywhere_or_nowhere(text: str):
    """In expressions, in files, and in texts: what one of them writes, all read."""
    try:
        dim = parse(text)
    except ParseError:
        return
    assert parse(str(dim)) == dim
    if not dims.is_variable(dim):
        return
    executable = Executable(parse_assembly(PROGRAM.format(text)))
    assert executable.inputs()[0].type.shape == (dim, 2)
    assert load(executable.as_bytes()).inputs() == executable.inputs()
    assert Executable.from_text(executable.as_text()).inputs() == executable.inputs()


def test_names_begin_with_letters_of_any_script_and_numbers_are_of_ascii():
    for text in ("é", "名", "表里图_dim1", "_", "ª.b", "a²"):
        assert str(parse(text)) == text
    for text in ("1x", "٣", "·", "n'", '"', "", " ", "\n", "a b", "?", "x" * (limits.DIM_NAME + 1)):
        with pytest.raises(ParseError):
            parse(text)
        with pytest.raises(ParseError):
            dims.named(text)


@few
@given(st.lists(symbolic_dims, max_size=5), st.sets(st.sampled_from("abn")))
def test_the_first_dimension_from_which_a_size_follows_is_taken_each_time(shape, known):
    names = set(known)
    order = sorted(range(len(shape)), key=lambda index: not dims.is_variable(shape[index]))
    for solution in dims.solve(shape, known):
        first = next(index for index in order if dims.solve(shape[index : index + 1], names))
        assert solution == dataclasses.replace(*dims.solve(shape[first : first + 1], names), index=first)
        names.add(str(solution.variable))
    assert not any(dims.solve([dim], names) for dim in shape)


def test_sizes_are_solved_for_in_time_that_grows_with_them():
    few, many = ([parse(f"n{i}") for i in range(count)] for count in (200, 400))
    assert timing.calls(lambda: dims.solve(many, ())) < 2.3 * timing.calls(lambda: dims.solve(few, ()))
