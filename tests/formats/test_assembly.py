"""Assembly: pleasant to write, exact to read back, and clear about mistakes."""

import textwrap

import numpy as np
import pytest
from treadle.formats.messages.errors import FormatError, ParseError
from treadle.formats.program import Program
from treadle.formats.text import assembly
from treadle.formats.text.assembly import parse_assembly, print_assembly
from treadle.vm.verify.verifier import verify

from . import examples


def main_with(*lines: str, head: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"{head}\nfunc @main(x: float32[2]) -> float32[2] {{\n{body}\n}}\n"


def constant(text: str) -> np.ndarray:
    return parse_assembly(f"const c {text}").constants[0]


def test_canonical_text_is_printed_as_it_was() -> None:
    assert print_assembly(parse_assembly(examples.TEXT)) == examples.TEXT


def test_the_example_of_the_documentation_is_a_valid_program() -> None:
    text = textwrap.dedent((assembly.__doc__ or "").partition("\n\n")[2].partition("`from`")[0])
    program = parse_assembly(text)
    verify(program)
    assert print_assembly(program).split() == text.replace("again", "L0").replace("done", "L1").split()


def test_what_can_be_derived_may_be_left_out() -> None:
    short = """
    prim twice(float32[n]) -> float32[n] { %1 = add(%0, %0): float32[n] return %1 }
    func @main(x: float32[n]) -> float32[n] {   # names of labels and constants are free
        shape_of (i0), r0
        if_int i0, empty
        load_const r3, two
        frame_tensor r1, float32[20], 64
        alloc_dynamic r2, float32[i0]
        call twice (r0) -> (r2) [i0]
        ret r2
      empty:
        invoke r1, @main (r0)
        ret r0
    }
    const unused float32[] = 1.0
    """
    program = parse_assembly("const two float32[] = 2" + short)
    (main,) = program.functions
    assert (main.ref_registers, main.int_registers, main.frame_bytes) == (4, 1, 192)
    assert program.primitives[0].definition.variables == ("n",)
    assert [str(type_) for type_ in program.types] == ["float32[20]"]
    assert print_assembly(program).count("L0") == 2


def test_functions_may_be_called_before_they_are_defined() -> None:
    program = parse_assembly(
        main_with("invoke r1, @later (r0)", "ret r1") + "func @later(x: float32[]) -> float32[] { ret r0 }"
    )
    assert program.code.tolist()[:5] == [11, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("float32[2] = [1.5, -0.0]", [0x3FC00000, 0x80000000]),
        ("float32[3] = [nan, nan(0x7f800001), -inf]", [0x7FC00000, 0x7F800001, 0xFF800000]),
        ("float16[] = nan(0xfe01)", [0xFE01]),
        ("float64[] = 0.1", [0x3FB999999999999A]),
        ("float32[] = 1e-45", [1]),
        ("uint64[2] = [0, 18446744073709551615]", [0, (1 << 64) - 1]),
        ("int8[] = -128", [0x80]),
        ("bool[2, 1] = [[true], [false]]", [1, 0]),
        ("float32[0, 3] = []", []),
        ("int16[3] = base64 { AQAC\n AP9/ }", [1, 2, 0x7FFF]),
    ],
)
def test_constants_keep_every_bit(text: str, bits: list[int]) -> None:
    array = constant(text)
    assert array.reshape(-1).view(f"u{array.itemsize}").tolist() == bits
    again = parse_assembly(print_assembly(parse_assembly(f"const c {text}"))).constants[0]
    assert again.tobytes() == array.tobytes()


def test_shortest_digits_that_round_twice_are_not_used() -> None:
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 1 << 16, 60_000, dtype=np.uint16)
    halves = bits.view(np.float16)[~np.isnan(bits.view(np.float16))][:6400].reshape(-1, 64)
    for row in halves:
        program = Program((), (row,), (), np.empty(0, np.int64), (), ())
        assert parse_assembly(print_assembly(program)).constants[0].tobytes() == row.tobytes()


def test_large_constants_are_base64_or_left_out() -> None:
    program = parse_assembly(f"const c float32[65] = [{', '.join(['1.0'] * 65)}]")
    text = print_assembly(program)
    assert "= base64 {\nAACAPwAAgD8" in text
    assert parse_assembly(text).constants[0].tolist() == [1.0] * 65
    with pytest.raises(ParseError, match="printed without its large constants"):
        parse_assembly(print_assembly(program, elide=True))


def test_names_may_be_anything() -> None:
    text = (
        'func @"a \\"b\\"\\n→"("x y": "t0", z: List[float32[2]]) -> "odd name"  refs=2 ints=0 frame=0 {\n  ret r0\n}\n'
    )
    assert print_assembly(parse_assembly(text)) == text


def test_repeated_types_in_the_table_keep_their_places() -> None:
    head = "type t0 = int8[]\ntype t1 = float32[2]\ntype t2 = float32[2]"
    program = parse_assembly(main_with("alloc_tensor r1, float32[2]", "alloc_tensor r1, t2", "ret r1", head=head))
    assert program.code.tolist()[:6] == [17, 1, 1, 17, 1, 2]
    assert "alloc_tensor r1, t2" in print_assembly(program)


def test_code_that_no_text_stands_for_is_refused() -> None:
    program = parse_assembly(main_with("goto L0", "L0:", "ret r0"))
    code = program.code.copy()
    for word, message in ((1, "a jump to word 1, where no instruction starts"), (99, "to word 99")):
        code[1] = word
        bad = Program(program.functions, (), (), code, (), ())
        with pytest.raises(FormatError, match=message):
            print_assembly(bad)
    code = parse_assembly(main_with("load_const r1, c", "ret r1", head="const c int8[] = 1")).code
    function = parse_assembly(main_with("load_const r1, c", "ret r1", head="const c int8[] = 1")).functions
    with pytest.raises(FormatError, match="load_const: const 0 does not exist"):
        print_assembly(Program(function, (), (), code, (), ()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("constant", "expected meta, data, device, const, type, import, prim or func, found 'constant'"),
        ("const c float32[2] = [1.0]", "line 1, column 26: expected 2 elements here, found 1"),
        ("const c float32[1] = [1.0, 2]", "expected 1 elements here, found more"),
        ("const c float32[n] = [1.0]", "a constant's shape must be known"),
        (f"const c float32[0, {1 << 46}, {1 << 46}] = []", "has more than 140737488355327 bytes"),
        (f"const c float32[0, {1 << 46}, {1 << 46}] = base64 {{ }}", "has more than 140737488355327 bytes"),
        ("const c float32[] = -nan(0x7fc00001)", "expected meta, data"),
        ("const c float32[] = nan(0x17fc00001)", "has more bits than float32"),
        ("const c int8[] = 128", "an int8: 128 is not in -128 … 127"),
        ("const c int8[] = 1\nconst c int8[] = 1", "line 2, column 7: there is a constant 'c' already"),
        ("const c float33[] = 1", "'float33' is not an element type; did you mean float32"),
        ("const c number[] = 1", "'number' is not an element type; known are bool, int8"),
        (
            "func @f(x: floot32[3, n]) -> int64[]",
            "line 1, column 12: 'floot32' is not an element type; did you mean float32",
        ),
        ("const c int8[4] = base64 { AAAA }", "expected 4 bytes of base64, found 3"),
        ("const c int8[4] = base64 { AA*A }", "no base64"),
        ("prim p(float32[n +]) { return }", "is not a dimension"),
        ("prim p(int8[]) { %2 = f(%0): int8[] return %2 }", "expected %1"),
        ("prim p(int8[]) { %1 = f(%1): int8[] return %1 }", "there is no value %1 here"),
        ("prim p(int8[]) { %1 = f(%0): (int8[], int8[]) return %1 }", "1 values, but 2 types"),
        ("prim p(int8[]) -> int8[2] { return %0 }", r"declares int8\[2\] as its result, but returns int8\[\]"),
        ("prim p(int8[]) { %1 = f(%0) {a=<4>}: int8[] return %1 }", "without variables is an integer"),
        (main_with("mov r1, r0"), "line 3, column 3: there is no instruction 'mov'; did you mean move"),
        (main_with("frobnicate r1"), "there is no instruction 'frobnicate'; the machine has move, kill"),
        (main_with("move r1, r" + "9" * 5000), "expected a register r0, r1, …, found 'r999"),
        (main_with("alloc_tensor r1, t" + "9" * 5000), "there is no type t999"),
        (main_with("move r1"), "expected ',', found 'r1'|expected ',', found '}'"),
        (main_with("move r1, i0"), "expected a register r0, r1, …, found 'i0'"),
        (main_with("move r1, r0 r2"), "expected the end of the line, found 'r2'"),
        (main_with("goto away"), "there is no label 'away' in this function"),
        (main_with("a:", "a:"), "line 4, column 3: there is a label 'a' already"),
        (main_with("load_const r1, c0"), "there is no constant 'c0' above"),
        (main_with("call p (r0) -> (r1)"), "there is no primitive 'p' above"),
        (main_with("call_import r1, f (r0)"), "there is no import 'f' above"),
        ("import f: float32[2]", "an import has the type of a function, not float32"),
        ("import f: fn() -> ()\nimport f: fn() -> ()", "line 2, column 8: there is a import 'f' already"),
        (main_with("invoke r1, @f (r0)"), "line 3, column 14: there is no function @f"),
        (main_with("alloc_tensor r1, t0"), "there is no type t0 above"),
        (main_with("alloc_dynamic r1, float32[r0]"), "expected a register i0, i1, …, found 'r0'"),
        (main_with("ret r0") * 2, "line 6, column 6: there is a function 'main' already"),
        ("data A = B(" + "(" * 200, "nested deeper than 64"),
        ('meta "a" = "b', "expected a value in quotes"),
    ],
)
def test_mistakes_are_shown_where_they_are(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_assembly(text)


def test_a_parse_error_shows_the_line_and_a_caret() -> None:
    with pytest.raises(ParseError) as caught:
        parse_assembly(main_with("load_const r1, r2"))
    assert str(caught.value) == (
        "line 3, column 18: there is no constant 'r2' above\n      load_const r1, r2\n                     ^"
    )
    assert (caught.value.line, caught.value.column) == (3, 18)
