"""Each pass alone, on small programs: text in, text out. And all of them, on all samples: the value stays the same."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import treadle
from treadle.compiler import ir
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.text import parse_module, print_module
from treadle.compiler.passes import (
    CommonSubexpressions,
    DeadCode,
    FoldBatchNorm,
    FoldConstants,
    Fuse,
    InferTypes,
    LambdaLift,
    Monomorphise,
    NameShapes,
    Options,
    Pass,
    Simplify,
    WidenFloat16,
    pipeline,
    run,
)
from treadle.formats.messages.errors import CompileError

from ..samples import SAMPLES
from ..test_compile import assert_equal


def transform(step: Pass, text: str) -> str:
    """The text of a module after type inference and one pass."""
    return print_module(step(InferTypes()(parse_module(textwrap.dedent(text))))).strip()


def body(step: Pass, text: str, signature: str = "x: float32[4, 8], y: float32[4, 8], c: bool[]") -> str:
    """The same for the bindings of one function, which must be a tuple: `r` is its value before and after."""
    lines = "\n".join(textwrap.dedent(text).strip().splitlines())
    printed = transform(step, f"func @main({signature}) {{\n{lines}\nr\n}}")
    inside = printed[
        printed.index("{\n", printed.index("func @main")) + 2 : printed.index("\n}", printed.index("func @main"))
    ]
    return textwrap.dedent(inside).strip()


# ---- simplification ----


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("r = add(x, float32(0.0))", "x"),
        ("r = multiply(float32(1.0), x)", "x"),
        ("z = negative(x)\nr = negative(z)", "x"),
        ("z = cast(x) {dtype=float64}\nr = cast(z) {dtype=float32}", "x"),
        ("z = permute_dims(x)\nr = permute_dims(z)", "x"),
        ("r = slice(x) {starts=(0,), ends=(99,), axes=(1,)}", "x"),
        ("z = reshape(x) {shape=(32,)}\nr = reshape(z) {shape=(4, 8)}", "x"),
        ("t = (x, y)\nr = t[1]", "y"),
        ("r = if bool(true) { x } else { y }", "x"),
        ("r = match_shape x [4, 8]", "x"),
        ("r = identity(x)", "x"),
    ],
)
def test_simplify_replaces_by_a_variable(before: str, after: str) -> None:
    assert body(Simplify(), before).splitlines()[-1] == after


def test_simplify_keeps_what_changes_the_shape() -> None:
    assert "add(x, y)" in body(Simplify(), "r = add(x, y)", "x: float32[1], y: float32[4, 1]")
    assert "cast" in body(Simplify(), "z = cast(x) {dtype=int32}\nr = cast(z) {dtype=float32}")


IMAGE = "x: float32[1, 2, 5, n], w: float32[3, 2, 3, 3]"


def test_convolutions_pad_by_themselves() -> None:
    """As exporters write TensorFlow's pads of uneven sides."""
    padded = "z = pad(x) {{pads=(0, 0, 0, 1, {}, 0, 2, 3)}}\nr = conv(z, w) {{strides=(2, 2), pads=(1, 0, 0, 0)}}"
    made = body(Simplify(), padded.format(0), IMAGE)
    assert "conv(x, w)" in made
    assert "pads=(1, 1, 2, 3)" in made
    assert "conv(z, w)" in body(Simplify(), padded.format(0).replace("{pads", '{mode="edge", pads'), IMAGE)
    assert "conv(z, w)" in body(Simplify(), padded.format(0).replace("{pads=(0", "{value=1.0, pads=(0"), IMAGE)
    assert "conv(z, w)" in body(Simplify(), padded.format(1), IMAGE)  # one more image


def test_transposing_an_axis_of_one_element_is_a_view() -> None:
    assert "reshape(x)" in body(Simplify(), "r = permute_dims(x) {axes=(1, 0, 2)}", "x: float32[4, 1, 8]")


# ---- float16 ----


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (  # nothing is rounded in between
            "z = add(x, y)\nr = exp(z)",
            """
            cast: float32[4, 8] = cast(x) {dtype=float32}
            cast_1: float32[4, 8] = cast(y) {dtype=float32}
            z: float32[4, 8] = add(cast, cast_1)
            r: float32[4, 8] = exp(z)
            r_1: float16[4, 8] = cast(r) {dtype=float16}
            r_1
            """,
        ),
        (  # what is only carried stays as it is, until something is computed of it
            "z = permute_dims(x)\nw = cast(z) {dtype=float32}\nr = exp(w)",
            """
            z: float16[8, 4] = permute_dims(x)
            cast: float32[8, 4] = cast(z) {dtype=float32}
            r: float32[8, 4] = exp(cast)
            r
            """,
        ),
        (  # so does what is joined to others
            "z = exp(x)\nw = concat(y, z) {axis=0}\nr = exp(w)",
            """
            cast: float32[4, 8] = cast(x) {dtype=float32}
            z: float32[4, 8] = exp(cast)
            z_1: float16[4, 8] = cast(z) {dtype=float16}
            w: float16[8, 8] = concat(y, z_1) {axis=0}
            cast_1: float32[8, 8] = cast(w) {dtype=float32}
            r: float32[8, 8] = exp(cast_1)
            r_1: float16[8, 8] = cast(r) {dtype=float16}
            r_1
            """,
        ),
        (  # branches give what is rounded
            "q = if c { x } else { y }\nz = exp(q)\nr = reshape(z) {shape=(32,)}",
            """
            q: float16[4, 8] = if c {
              x
            } else {
              y
            }
            cast: float32[4, 8] = cast(q) {dtype=float32}
            z: float32[4, 8] = exp(cast)
            r: float32[32] = reshape(z) {shape=(32,)}
            r_1: float16[32] = cast(r) {dtype=float16}
            r_1
            """,
        ),
        (  # so do conversions to integers take it
            "z = exp(x)\nr = cast(z) {dtype=int32}",
            """
            cast: float32[4, 8] = cast(x) {dtype=float32}
            z: float32[4, 8] = exp(cast)
            z_1: float16[4, 8] = cast(z) {dtype=float16}
            r: int32[4, 8] = cast(z_1) {dtype=int32}
            r
            """,
        ),
        (  # what converts to the type that its operand has rounds nothing
            "z = exp(x)\ns = cast(z) {dtype=float16}\nr = log(s)",
            """
            cast: float32[4, 8] = cast(x) {dtype=float32}
            z: float32[4, 8] = exp(cast)
            r: float32[4, 8] = log(z)
            r_1: float16[4, 8] = cast(r) {dtype=float16}
            r_1
            """,
        ),
        (  # fields of a tuple are values of their own
            "t = top_k(x) {k=2}\na = t[0]\nr = exp(a)",
            """
            cast: float32[4, 8] = cast(x) {dtype=float32}
            t: (float32[4, 2], int64[4, 2]) = top_k(cast) {k=2}
            t_1: float32[4, 2] = t[0]
            r: float32[4, 2] = exp(t_1)
            r_1: float16[4, 2] = cast(r) {dtype=float16}
            r_1
            """,
        ),
    ],
)
def test_float16_is_computed_as_float32(before: str, after: str) -> None:
    assert body(_Swept(), before, "x: float16[4, 8], y: float16[4, 8], c: bool[]") == textwrap.dedent(after).strip()


class _Swept:
    """The pass, without what is left over behind it."""

    name = "widen_float16"

    def __call__(self, module: ir.Module) -> ir.Module:
        return DeadCode()(WidenFloat16()(module))


# ---- constants, dead code, common subexpressions ----


def test_fold_constants() -> None:
    assert body(FoldConstants(), "z = add(float32(1.0), float32(2.0))\nr = multiply(x, z)") == (
        "r: float32[4, 8] = multiply(x, float32(3.0))\nr"
    )


def test_fold_constants_keeps_what_fails_and_what_is_large() -> None:
    assert "floor_divide" in body(FoldConstants(), "r = floor_divide(int64(1), int64(0))")
    assert "tile" in body(
        FoldConstants(free_bytes=8), "z = full() {shape=(2,), dtype=float32}\nr = tile(z) {repetitions=(99,)}"
    )


def test_fold_constants_knows_static_shapes() -> None:
    assert body(FoldConstants(), "r = shape(x)") == "int64[2] [4, 8]"


def test_dead_code_sweeps_bindings_and_functions() -> None:
    text = """
    func @unused(x: float32[]) { x }
    func @used(x: float32[]) { x }
    func @main(x: float32[]) {
      dead = exp(x)
      r = @used(x)
      r
    }
    """
    assert transform(DeadCode(("main",)), text) == textwrap.dedent("""\
        func @used(x: float32[]) -> float32[] {
          x
        }

        func @main(x: float32[]) -> float32[] {
          r: float32[] = @used(x)
          r
        }""")


def test_common_subexpressions_see_blocks_around_but_not_beside() -> None:
    before = """
    a = exp(x)
    r = if c {
      b = exp(x)
      d = sqrt(b)
      d
    } else {
      e = sqrt(a)
      e
    }
    """
    after = body(CommonSubexpressions(), before)
    assert after.count("exp(x)") == 1
    assert after.count("sqrt(a)") == 2


# ---- functions and types ----


def test_lambda_lift_puts_captured_values_last() -> None:
    text = """
    func @main(k: float32[]) {
      f = fn(x: float32[]) {
        s = add(x, k)
        s
      }
      f
    }
    """
    assert transform(LambdaLift(), text) == textwrap.dedent("""\
        func @main(k: float32[]) -> fn(float32[]) -> float32[] {
          f: fn(float32[]) -> float32[] = closure @main.f(k)
          f
        }

        func @main.f(x: float32[]) captures (k: float32[]) -> float32[] {
          s: float32[] = add(x, k)
          s
        }""")


def test_lambda_lift_calls_known_closures_directly() -> None:
    text = "func @main(k: float32[]) {\nf = fn(x: float32[]) { s = add(x, k)\ns }\nr = call f(k)\nr }"
    assert "@main.f(k, k)" in transform(LambdaLift(), text)


def test_lambda_lift_captures_the_tensor_that_knows_a_dimension() -> None:
    text = "func @main(x: float32[n]) {\nf = fn() { s = full() {shape=(<n>,), dtype=float32}\ns }\nf }"
    assert "captures (x: float32[n])" in transform(LambdaLift(), text)


def test_monomorphise_makes_an_instance_for_each_type() -> None:
    text = """
    func @twice(x: a) -> (a, a) {
      t = (x, x)
      t
    }
    func @main(x: float32[2], i: int64[]) {
      t = @twice(x)
      u = @twice(t)
      v = @twice(i)
      r = (u, v)
      r
    }
    """
    after = transform(Monomorphise(), text)
    assert after.count("func") == 4
    assert 'func @"twice[int64[]]"(x: int64[]) -> (int64[], int64[])' in after


def test_monomorphise_stops_at_infinitely_many_instances() -> None:
    text = "func @f(x: a) -> int64[] {\nt = (x, x)\nr = @f(t)\nr }\nfunc @main(x: float32[]) {\nr = @f(x)\nr }"
    with pytest.raises(CompileError, match="instances"):
        transform(Monomorphise(), text)


def test_name_shapes_binds_what_a_kernel_needs() -> None:
    after = body(NameShapes(), "z = extent(n)\nr = logical_not(z)", "n: int64[]")
    assert after.splitlines()[1:3] == [
        "z_1: bool[s0] = match_shape z [s0]",
        "r: bool[s0] = logical_not(z_1)",
    ]


def test_name_shapes_counts_what_an_operator_finds() -> None:
    after = body(NameShapes(), "z = nonzero(x)\nr = negative(z)")
    assert after.splitlines()[2:] == [
        "sum: int64[] = sum(cast)",
        "extent: bool[?] = extent(sum)",
        "extent_1: bool[s0] = match_shape extent [s0]",
        "counted_nonzero: int64[2, s0] = counted_nonzero(x) {count=<s0>}",
        "r: int64[2, s0] = negative(counted_nonzero)",
        "r",
    ]


# ---- fusion ----


def primitives(text: str, signature: str = "x: float32[4, 8], y: float32[4, 8], c: bool[]") -> list[str]:
    """The operators of each primitive after fusion, in the order of execution."""
    from treadle.compiler import ir
    from treadle.compiler.ir.analysis import expressions

    module = Fuse()(InferTypes()(parse_module(f"func @main({signature}) {{\n{textwrap.dedent(text)}\nr\n}}")))
    calls = [b.value for b in expressions(module.functions["main"].body) if isinstance(b.value, ir.PrimitiveCall)]
    return [" ".join(node.operator for node in call.definition.nodes) for call in calls]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = exp(x)\nb = add(a, y)\nr = relu(b)", ["exp add relu"]),
        ("a = matmul(x, w)\nb = add(a, y)\nr = relu(b)", ["matmul add relu"]),
        ("a = exp(x)\ns = sum(a) {axes=(1,)}\nr = sqrt(s)", ["exp sum sqrt"]),
        ("a = exp(x)\nr = matmul(a, w)", ["exp", "matmul"]),
        # the product's operand is wanted beside it too: it stays before the product
        ("a = exp(x)\nb = matmul(a, w)\nr = add(b, a)", ["exp", "matmul add"]),
        # beside the product and not before it: the operand becomes a part of what follows
        ("a = exp(x)\nb = matmul(x, w)\nr = add(b, a)", ["matmul exp add"]),
        # the matrix product is wanted twice
        ("a = matmul(x, w)\nb = relu(a)\nr = (a, b)", ["matmul", "relu"]),
        # both results of the chain are wanted
        ("a = exp(x)\nb = sqrt(a)\nr = (a, b)", ["exp sqrt"]),
        # merging exp and add would wait for sum, which waits for exp
        ("a = exp(x)\ns = sum(a) {axes=(0,)}\nr = add(a, s)", ["exp", "sum", "add"]),
        # a small operand is not computed again for each of the larger result's elements
        ("a = exp(v)\nr = add(x, a)", ["exp", "add"]),
        ("a = resize(x) {axis=1, size=16}\nr = resize(a) {axis=0, size=8}", ["resize resize"]),
        ("a = resize(x) {axis=1, size=16}\nb = resize(a) {axis=0, size=8}\nr = (a, b)", ["resize", "resize"]),
        # what has no input is computed wherever it is used
        (
            "z = full() {shape=(4, 8), dtype=float32}\na = add(x, z)\nb = matmul(a, w)\nr = add(b, z)",
            ["full add", "full matmul add"],
        ),
    ],
)  # fmt: skip
def test_fusion(text: str, expected: list[str]) -> None:
    assert sorted(primitives(text, "x: float32[4, 8], y: float32[4, 8], w: float32[8, 8], v: float32[8]")) == sorted(
        expected
    )


def test_what_has_no_input_is_there_for_inner_blocks() -> None:
    text = "z = full() {shape=(4, 8), dtype=float32}\nr = if c { u = negative(z)\nu } else { x }"
    assert primitives(text) == ["full", "negative"]


def test_fusion_asks_whether_there_is_a_kernel() -> None:
    text = "func @main(x: float32[4]) {\na = sum(x)\nr = exp(a)\nr }"
    fused = transform(Fuse(lambda definition: len(definition.nodes) == 1), text)
    assert fused.count("func") + fused.count("prim p") >= 3


def test_what_has_no_kernel_keeps_its_operands() -> None:
    text = "func @main(x: float32[4]) {\nz = full() {shape=(4,), value=2.0, dtype=float32}\nr = add(x, z)\nr }"
    fuse = Fuse(lambda definition: definition.nodes[-1].operator != "add")  # what has a kernel
    module = InferTypes()(fuse(InferTypes()(parse_module(text))))
    np.testing.assert_array_equal(evaluate(module, "main", np.ones(4, np.float32)), np.full(4, 3, np.float32))


def test_batch_norm_disappears_into_the_convolution_before_it() -> None:
    module = InferTypes()(SAMPLES["residual_block"].module)
    text = print_module(FoldBatchNorm()(module))
    assert "= batch_normalization(" not in text
    assert text.count("multiply") == 0


@pytest.mark.parametrize("has_bias", [False, True])
def test_batch_norm_in_the_convolution_keeps_the_value(has_bias: bool) -> None:
    generator = np.random.default_rng(0)
    numbers = [treadle.constant((0.5 + generator.random(4)).astype("f")) for _ in range(5)]
    x, weight = treadle.var("x", (1, 3, 5, 5)), treadle.constant(generator.standard_normal((4, 3, 3, 3)).astype("f"))
    result = treadle.op.batch_normalization(treadle.op.conv(x, weight, *numbers[:has_bias]), *numbers[1:])
    module = InferTypes()(treadle.Module(main=treadle.function([x], result)))
    image = generator.standard_normal((1, 3, 5, 5)).astype("f")
    folded = FoldBatchNorm()(module)
    assert "= batch_normalization(" not in print_module(folded)
    np.testing.assert_allclose(evaluate(folded, "main", image), evaluate(module, "main", image), rtol=1e-4, atol=1e-5)


# ---- the pipeline ----


@pytest.mark.parametrize("name", SAMPLES)
def test_every_pass_keeps_the_value(name: str) -> None:
    sample = SAMPLES[name]
    module = InferTypes()(sample.module)
    expected = evaluate(module, "main", *sample.arguments)
    for step in pipeline(2, Options()):
        module = step(module)
        assert_equal(evaluate(module, "main", *sample.arguments), expected)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_pass_leaves_a_module_that_prints_and_types(name: str) -> None:
    module = SAMPLES[name].module
    for step in pipeline(2, Options()):
        module = step(module)
        text = print_module(module)
        assert print_module(parse_module(text)) == text


def test_print_after_shows_the_module_behind_a_pass() -> None:
    shown: list[str] = []
    module = SAMPLES["double"].module
    run(module, pipeline(2, Options()), print_after={"fuse"}, show=shown.append)
    assert len(shown) == 1
    assert shown[0].startswith("# after fuse\nprim p0")


def test_print_after_names_the_passes_that_there_are() -> None:
    with pytest.raises(ValueError, match="no pass is called fus; this pipeline has: infer_types"):
        run(SAMPLES["double"].module, pipeline(2, Options()), print_after={"fus"})
