"""What the compiler makes of small programs, as bytecode: registers, memory, control, shapes."""

from __future__ import annotations

import textwrap

import pytest
from treadle.compiler.driver import compile_module
from treadle.compiler.ir.text import parse_module
from treadle.formats.messages.errors import CompileError
from treadle.formats.text.dis import dis
from treadle.vm.verify.verifier import verify


def listing(text: str, function: str = "main", level: int = 2) -> list[str]:
    """The instructions of a function, in words."""
    program = compile_module(parse_module(textwrap.dedent(text)), opt_level=level).program
    verify(program)
    return [" ".join(f"{item.opname} {item.argrepr}".split()) for item in dis(program, function)]


def names(text: str, function: str = "main", level: int = 2) -> list[str]:
    return [line.split()[0] for line in listing(text, function, level)]


# ---- memory ----


def test_a_chain_of_static_tensors_takes_turns_in_two_places() -> None:
    assert listing("""
        func @main(x: float32[64, 64]) {
          a = matmul(x, x)
          b = matmul(a, a)
          c = matmul(b, b)
          d = matmul(c, c)
          d
        }""") == [
        "frame_tensor r1, float32[64, 64], 0",
        "call matmul (r0) -> (r1)",
        "frame_tensor r0, float32[64, 64], 16384",
        "call matmul (r1) -> (r0)",
        "frame_tensor r1, float32[64, 64], 0",
        "call matmul (r0) -> (r1)",
        "alloc_tensor r0, float32[64, 64]",
        "call matmul (r1) -> (r0)",
        "ret r0",
    ]


def report(text: str, level: int = 0):  # type: ignore[no-untyped-def]
    return compile_module(parse_module(textwrap.dedent(text)), opt_level=level).memory[0]


def test_an_elementwise_primitive_writes_over_the_input_that_it_is_the_last_to_read() -> None:
    chain = "func @main(x: float32[64]) {\na = exp(x)\nb = sqrt(a)\nc = abs(b)\nd = sum(c)\nd }"
    assert (report(chain).frame_bytes, report(chain).in_place) == (256, 2)


def test_a_normalisation_writes_over_what_it_normalises() -> None:
    chain = "func @main(x: float32[8, 8]) {\na = matmul(x, x)\nb = softmax(a)\nc = sum(b)\nc }"
    assert (report(chain).frame_bytes, report(chain).in_place) == (256, 1)


def test_what_is_read_again_is_not_written_over() -> None:
    text = "func @main(x: float32[64]) {\na = exp(x)\nb = sqrt(a)\nc = add(a, b)\nd = sum(c)\nd }"
    assert (report(text).frame_bytes, report(text).in_place) == (512, 1)


def test_a_broadcast_input_is_not_written_over() -> None:
    text = "func @main(x: float32[1]) {\na = exp(x)\nz = full() {shape=(64,), dtype=float32}\nc = add(a, z)\nd = sum(c)\nd }"
    assert report(text).in_place == 1  # z, not a


def test_dynamic_tensors_are_reused_in_place_and_released() -> None:
    text = "func @main(x: float32[n, 4]) {\na = exp(x)\nb = sqrt(a)\nc = matmul(b, b)\nc }".replace("n, 4", "n, n")
    assert listing(text, level=0) == [
        "shape_of (i0, i1), r0",
        "match_shape r0 [i0, i0]",
        "alloc_dynamic r1, float32[i0, i0]",
        "call exp (r0) -> (r1) [i0]",
        "kill (r0)",
        "call sqrt (r1) -> (r1) [i0]",
        "alloc_dynamic r0, float32[i0, i0]",
        "call matmul (r1) -> (r0) [i0]",
        "ret r0",
    ]


def test_values_that_leave_the_function_lie_on_the_heap() -> None:
    text = "func @main(x: float32[4]) {\na = exp(x)\nb = sqrt(x)\nt = (a, b)\nt }"
    assert names(text, level=0) == ["alloc_tensor", "call", "alloc_tensor", "call", "alloc_data", "ret"]


def test_a_result_that_is_reshaped_at_last_is_made_in_its_last_shape() -> None:
    assert listing("""
        func @main(x: float32[2, 3]) {
          a = exp(x)
          b = reshape(a) {shape=(6,)}
          b
        }""") == [
        "alloc_tensor r1, float32[6]",
        "reshape r2, r1 [2, 3]",
        "call exp (r0) -> (r2)",
        "ret r1",
    ]
    # of a parameter, or where control does not run straight from the one to the other, it stays a view
    assert names("func @main(x: float32[2, 3]) {\nb = reshape(x) {shape=(6,)}\nb }") == ["reshape", "ret"]
    chosen = "a = if c { d = exp(x)\nd } else { e = sin(x)\ne }"
    branch = f"func @main(c: bool[], x: float32[2, 3]) {{\n{chosen}\nb = reshape(a) {{shape=(6,)}}\nb }}"
    assert names(branch)[-2:] == ["reshape", "ret"]


def test_a_tensor_that_a_loop_carries_is_new_in_each_round() -> None:
    text = """
    func @main(x: float32[8], n: int64[]) {
      y = exp(x)
      last = loop (i: int64[] = int64(0), s = y) while {
        c = less(i, n)
        c
      } do {
        j = add(i, int64(1))
        t = add(y, s)
        r = (j, t)
        r
      }
      v = last[1]
      v
    }"""
    assert names(text).count("alloc_tensor") == 3  # i, s, and y, which may be the result
    assert names(text).count("frame_tensor") == 1  # the condition


# ---- control ----


def test_a_tail_call_to_itself_is_a_jump() -> None:
    text = """
    func @main(n: int64[], s: int64[]) -> int64[] {
      c = less(n, int64(1))
      r = if c {
        s
      } else {
        m = subtract(n, int64(1))
        t = add(s, n)
        u = @main(m, t)
        u
      }
      r
    }"""
    assert "invoke" not in names(text)
    assert names(text).count("ret") == 1
    assert listing(text)[-1].startswith("goto")


def test_branches_return_straight_away() -> None:
    text = "func @main(c: bool[], x: float32[], y: float32[]) {\nr = if c { x } else { y }\nr }"
    assert listing(text) == ["if r0, to 5", "ret r1", "ret r2"]


def test_moves_of_branches_are_made_in_place() -> None:
    text = "func @main(c: bool[], x: float32[4]) {\nr = if c { a = exp(x)\na } else { b = sqrt(x)\nb }\ns = sum(r)\ns }"
    assert "move" not in names(text)


def test_a_match_tests_a_tag_once() -> None:
    text = """
    data T = A | B(float32[]) | C(float32[], T)
    func @main(t: T, x: float32[]) {
      r = match t {
        A() => { x }
        C(y, A()) => { y }
        C(_, B(y)) => { y }
        B(y) => { y }
        C(y, C(_, _)) => { y }
      }
      r
    }"""
    assert names(text).count("get_tag") == 2
    assert "fatal" not in names(text)


def test_a_match_that_nothing_fits_fails() -> None:
    text = "data T = A | B\nfunc @main(t: T, x: float32[]) {\nr = match t { A() => { x } }\nr }"
    assert names(text) == ["get_tag", "if_int", "fatal", "ret"]


def test_tuples_that_are_taken_apart_are_not_built() -> None:
    text = "func @main(x: float32[]) {\nt = (x, x)\nu = (t, x)\nv = u[0]\nw = v[1]\nw }"
    assert names(text, level=0) == ["ret"]


# ---- shapes ----


def test_a_dimension_is_computed_once() -> None:
    text = """
    func @main(x: float32[n]) {
      a = concat(x, x)
      b = exp(a)
      c = concat(b, a)
      c
    }"""
    assert names(text).count("multiply") == 2  # 2 n and 4 n


def test_shapes_are_proved_where_the_verifier_cannot_know_them() -> None:
    text = """
    func @half(x: float32[n]) -> float32[n] {
      r = exp(x)
      r
    }
    func @main(x: float32[n]) {
      y = @half(x)
      r = add(x, y)
      r
    }"""
    assert "match_shape r1 [i0]" in listing(text)


def test_shapes_of_parameters_that_share_a_variable_are_compared() -> None:
    text = "func @main(x: float32[n], y: float32[n, 2 * n]) {\nr = shape(y)\nr }"
    assert [line for line in listing(text) if line.startswith("match_shape")] == ["match_shape r1 [i0, i1]"]


def test_a_dimension_that_nothing_tells_is_an_error() -> None:
    text = "func @main(x: float32[n * n]) {\nr = full() {shape=(<n>,), dtype=float32}\nr }"
    with pytest.raises(CompileError, match="what the dimension n is; let a parameter have a dimension n"):
        listing(text)


def test_a_dimension_that_another_is_linear_in_is_computed_and_checked() -> None:
    text = "func @main(x: float32[n + 2 * m], y: float32[m]) {\nr = full() {shape=(<n>,), dtype=float32}\nr }"
    words = ["shape_of", "shape_of", "kill", "multiply", "subtract", "maximum", "multiply", "add"]
    assert names(text)[: len(words)] == words  # n = max(size - 2 m, 0)


# ---- tables ----


def test_equal_primitives_constants_and_types_are_one() -> None:
    text = """
    func @main(x: float32[n], y: float32[m]) {
      a = add(x, float32[1] [7.0])
      b = add(y, float32[1] [7.0])
      t = (a, b)
      t
    }"""
    program = compile_module(parse_module(text)).program
    assert len(program.primitives) == 1
    assert len(program.constants) == 1


def test_primitives_are_called_after_their_operators() -> None:
    text = "func @main(x: float32[4]) {\na = exp(x)\nb = relu(a)\ns = sum(b)\nr = add(x, s)\nt = add(r, r)\nu = (r, t)\nu }"
    program = compile_module(parse_module(text)).program
    assert [primitive.name for primitive in program.primitives] == ["exp_relu_sum", "add_add"]


def test_instructions_know_their_model_node() -> None:
    text = 'func @main(x: float32[4]) {\na = exp(x)  from "Exp_1"\nr = relu(a)  from "Relu_2"\nr }'
    program = compile_module(parse_module(text)).program
    assert {item.node for item in dis(program) if item.opname == "call"} == {"Exp_1 + Relu_2"}


def test_sizes_that_came_about_differently_share_a_primitive() -> None:
    program = compile_module(
        parse_module("""
        func @main(x: float32[1, 16, h, w], weight: float32[16, 16, 3, 3]) {
          a = conv(x, weight){strides=(2, 2), pads=(1, 1, 1, 1)}
          b = conv(a, weight){strides=(2, 2), pads=(1, 1, 1, 1)}
          c = conv(b, weight){strides=(2, 2), pads=(1, 1, 1, 1)}
          c
        }"""),
        opt_level=0,
    ).program
    verify(program)
    assert len(program.primitives) == 1
