"""Relay's text of programs, written and read."""

import contextlib

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import ParseError
from treadle.tvm import relay
from treadle.tvm.relay import testing
from treadle.tvm.relay.loops import while_loop
from treadle.tvm.relay.prelude import Prelude

HEAD = '#[version = "0.0.5"]\n'


def roundtrip(program):
    """The program read from its text; it must be the same."""
    text = program.astext()
    is_module = isinstance(program, relay.IRModule)
    read = relay.fromtext(text) if is_module else relay.parse_expr(text)
    tvm.ir.assert_structural_equal(read, program, map_free_vars=True)
    if is_module:
        assert relay.transform.InferType()(read).astext() == relay.transform.InferType()(program).astext()
    return read


def module_of(body):
    return relay.parse(HEAD + body)


# ---- written ----


def test_spans_say_names_that_are_no_words():
    x = relay.var('v "x" */', shape=(2,))
    x.span = relay.Span(relay.SourceName(x.name_hint), 0, 0, 0, 0)
    v = relay.var("v", shape=(2,))
    read = roundtrip(relay.IRModule.from_expr(relay.Function([x, v], relay.add(x, v))))
    assert [param.name_hint for param in read["main"].params] == [x.name_hint, "v"]


def test_a_text_is_computed_in_its_order():
    body = "def @main(%x: Tensor[(2), float32]) {{ {} multiply(%1, %0) }}"
    lines = ["%0 = exp(%x) /* span=first:0:0 */;", "%1 = tanh(%x);"]
    orders = []
    for several in (lines, lines[::-1]):
        main = module_of(body.format(" ".join(several))).lowered("main")["main"]
        orders.append([(each.value.operator, each.origin) for each in main.body.bindings[:2]])
    assert orders[0] == orders[1][::-1] == [("exp", "first"), ("tanh", "")]


def test_the_greatest_numbers_are_read_again():
    for dtype in ("float16", "float32", "float64"):
        roundtrip(relay.Constant(np.array(np.finfo(dtype).max)))
    assert relay.parse_expr("nn.leaky_relu(1f, alpha=1e300f)").attrs.alpha == 1e300


def test_calls_have_lines_and_attributes_where_they_are_not_the_default():
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    y = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1), channels=4))
    text = relay.IRModule.from_expr(relay.add(y, y)).astext()
    assert text == (
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]) {\n"
        "  %0 = nn.conv2d(%x, %w, padding=[1, 1], channels=4);\n"
        "  %1 = nn.relu(%0);\n"
        "  add(%1, %1)\n"
        "}\n"
    )


def test_an_expression_declares_what_is_free():
    text = relay.exp(relay.var("x", shape=(2,)) + relay.const(1.0)).astext()
    assert text == HEAD + "free_var %x: Tensor[(2), float32];\n%0 = add(%x, 1f);\nexp(%0)"


def test_branches_loops_functions_and_matches_are_written():
    module = relay.IRModule()
    prelude = Prelude(module)
    i = relay.var("i", shape=(), dtype="int32")
    loop = while_loop(lambda i: i < relay.const(3), [i], lambda i: (i + relay.const(1),))
    _, cons, nil = module.get_type("List")
    first = relay.var("first")
    clause = relay.Clause(relay.PatternConstructor(cons, [relay.PatternVar(first), relay.PatternWildcard()]), first)
    taken = relay.Match(prelude.map(relay.Function([i], i), cons(relay.const(1), nil())), [clause], complete=False)
    module["main"] = relay.Function([], relay.Tuple([loop(relay.const(0)), taken]))
    text = module.astext()
    for part in (
        "let %while_loop = fn (%i",
        "if (%0) {",
        "} else {",
        "match? (",
        "Cons(%first, _) => {",
        "@map(",
        "(%i,)",
        '#[import = "prelude.rly"]',
    ):
        assert part in text, (part, text)
    assert "@foldr" not in text
    roundtrip(module)


def test_what_inference_found_stands_behind_expressions():
    x = relay.var("x", shape=(2, 3))
    module = relay.transform.InferType()(relay.IRModule.from_expr(relay.sum(x, axis=1) + relay.const(1.0)))
    assert module.astext() == (
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(2, 3), float32] /* ty=Tensor[(2, 3), float32] */) -> Tensor[(2), float32] {\n"
        "  %0 = sum(%x, axis=1) /* ty=Tensor[(2), float32] */;\n"
        "  add(%0, 1f /* ty=float32 */) /* ty=Tensor[(2), float32] */\n"
        "}\n"
    )
    roundtrip(module)


def test_constants_and_sizes_without_text_are_metadata_which_str_leaves_out():
    x = relay.var("x", shape=(tvm.te.size_var("n"), 3))
    module = relay.IRModule.from_expr(x + relay.const(np.arange(3, dtype="float32")))
    text = module.astext()
    assert "Tensor[(meta[tir.SizeVar][0], 3), float32]" in text
    assert "meta[relay.Constant][0]" in text
    assert "b64ndarrays" in text
    assert "b64ndarrays" not in str(module)
    np.testing.assert_array_equal(roundtrip(module)["main"].body.args[1].data.numpy(), [0, 1, 2])


def test_annotate_says_what_stands_behind_expressions():
    text = relay.exp(relay.var("x")).astext(annotate=lambda expr: " /* here */" if isinstance(expr, relay.Call) else "")
    assert text.endswith("exp(%x) /* here */")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *((42, dtype) for dtype in ("int16", "int32", "int64", "int8", "uint8")),
        *((each, "float32") for each in (0.1, -0.0, 1 / 3, 1e-30, 3.4e38, np.inf, -np.inf, np.nan)),
        *((each, "float64") for each in (0.1, 1 / 3, 1e300, np.inf)),
        *((each, "float16") for each in (0.1, 65504.0)),
        *((each, "bool") for each in (True, False)),
        *((each, "int64") for each in (-(2**63), 2**63 - 1)),
    ],
)
def test_a_scalar_reads_back_with_the_same_bits(value, dtype):
    made = relay.const(np.array(value, dtype))
    read = relay.parse_expr(made.astext())
    assert read.array.dtype == made.array.dtype
    assert read.array.tobytes() == made.array.tobytes()


# ---- programs ----


def _workloads():
    yield "mlp", lambda: testing.mlp.get_workload(1)
    yield "resnet", lambda: testing.resnet.get_workload(batch_size=1, num_layers=18)
    yield "mobilenet", lambda: testing.mobilenet.get_workload(batch_size=1)
    yield "squeezenet", lambda: testing.squeezenet.get_workload(batch_size=1)
    yield "dqn", lambda: testing.dqn.get_workload(batch_size=1)
    yield "dcgan", lambda: testing.dcgan.get_workload(batch_size=1)
    yield "lstm", lambda: testing.lstm.get_workload(2, 4)
    yield "densenet", lambda: testing.densenet.get_workload(batch_size=1)
    yield "inception_v3", lambda: testing.inception_v3.get_workload(batch_size=1)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in _workloads()])
def test_workloads_read_back(make):
    roundtrip(make()[0])


def _numbers():
    x, y = relay.var("x", shape=(2, 6)), relay.var("y", shape=(6,))
    yield "tuples", relay.Function([x, y], relay.Tuple([relay.Tuple([x]), relay.Tuple([])]))
    yield "items of items", relay.TupleGetItem(relay.TupleGetItem(relay.Tuple([relay.Tuple([x]), y]), 0), 0)
    yield "split", relay.split(x, 3, axis=1)[1]
    yield "joined", relay.concatenate(relay.split(x, [2, 4], axis=1), axis=1)
    yield "operands by name", relay.strided_slice(x, relay.const([0, 0]), relay.const([1, 2]))
    yield "pad", relay.nn.pad(x, ((0, 0), (1, 2)), pad_value=1.5, pad_mode="constant")
    yield "computed value", relay.nn.pad(x, ((0, 0), (1, 2)), pad_value=relay.var("v", shape=()))
    yield "arange", relay.arange(relay.const(1.0), relay.const(7.0), relay.const(2.0))
    yield "clip", relay.clip(x, -np.inf, 6.0)
    yield "dtype", relay.cast(x, np.dtype("float16"))
    yield "reshape", relay.reshape(x, (-1, 3))
    yield "reshape by tensor", relay.reshape(x, relay.var("s", shape=(2,), dtype="int64"))
    yield "mean", relay.variance(x, with_mean=relay.var("m", shape=(1, 1)))
    yield "names", relay.var("conv1.weight") + relay.var("base/x") + relay.var("3") + relay.var("a b:0")
    yield "strings", relay.nn.conv2d(relay.var("d"), relay.var("w"), data_layout="NHWC", kernel_layout="HWIO")
    yield "curried", relay.Function([x], relay.Function([y], x + y))(relay.const(1.0))(relay.const(2.0))


@pytest.mark.parametrize("expr", [pytest.param(expr, id=name) for name, expr in _numbers()])
def test_expressions_read_back(expr):
    roundtrip(expr)


def test_modules_with_data_types_read_back():
    module = module_of("""
        type Shape[A] { Circle(A), Pair(A, Shape[A]), Nothing, }
        def @area[A](%s: Shape[A], %none: A) -> A {
          match (%s) { Circle(%r) => { %r }, Pair(_, Circle(%r)) => %r, _ => %none }
        }
        def @main(%x: Tensor[(2), float32]) { @area(Pair(%x, Circle(%x)), %x) }
    """)
    read = roundtrip(module)
    result = relay.create_executor("vm", mod=read).evaluate()(np.ones(2, "float32"))
    np.testing.assert_array_equal(result.numpy(), [1, 1])


def test_a_module_that_is_given_takes_what_the_text_defines():
    first = module_of("def @f(%y: Tensor[(2), float32]) -> Tensor[(2), float32] { negative(%y) }")
    meta = {"relay.Constant": [relay.const(np.ones(2, "float32"))]}
    text = HEAD + "def @main(%x: Tensor[(2), float32]) { add(@f(%x), meta[relay.Constant][0]) }"
    module = relay.parse(text, "from_string", first, meta)
    result = relay.create_executor("vm", mod=roundtrip(module)).evaluate()(np.ones(2, "float32"))
    np.testing.assert_array_equal(result.numpy(), [0, 0])


def test_signs_bind_as_in_arithmetic_and_operators_of_computed_shapes_have_one_name():
    same = [("1 * 1 + 1 < 1 == 1", "(((1 * 1) + 1) < 1) == 1"), ("1 - 1 - 1", "(1 - 1) - 1"), ("1 -2", "1 - 2")]
    for a, b in same:
        tvm.ir.assert_structural_equal(relay.parse_expr(a), relay.parse_expr(b))
    read = relay.parse_expr("free_var %x: float32; free_var %s: Tensor[(1), int64]; dyn.reshape(%x, %s)")
    assert read.op.name == "reshape"


def test_deep_programs_read_back():
    x = relay.var("x", shape=())
    deep = x
    for _ in range(300):
        deep = relay.If(relay.const(True), deep, x)
    tvm.ir.assert_structural_equal(relay.parse_expr(deep.astext()), deep, map_free_vars=True)


# ---- refused ----


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("add(%x, 1)", 1, 5, "bound here, found `%x`"),
        ("let %x = 1;\n%x +", 2, 5, "expected an expression, found the end of the text"),
        ("let x = 1; x", 1, 5, "expected a variable, found `x`"),
        ("%0 = 1;\n%1", 2, 1, "found `%1`, which has none"),
        ("(1,\n 2", 2, 3, "expected `,` or `)`, found the end"),
        ("no_such(1)", 1, 1, "no operator or constructor `no_such`"),
        ("abs(1, 2)", 1, 1, "expected at most 1 arguments, got 2"),
        ("abs(1, axis=2)", 1, 1, "unexpected keyword argument 'axis'"),
        ("2147483648i32", 1, 1, "not representable as int32"),
        ("65505f16", 1, 1, "not representable as float16"),
        ("9" * 5000, 1, 1, "not a number of at most"),
        ("meta[relay.Constant][3]", 1, 1, "has 0 entries"),
        ("let %a: Tensor[(99999999999999999999999), int8] = 1; 1", 1, 17, "is not a dimension"),
        ("let %a: Tensor[(1), no] = 1; 1", 1, 21, "is not an element type"),
        ("/* open", 1, 1, "the comment has no end"),
        ("1 $ 2", 1, 3, "'$' begins no word"),
        ("match (1) { Cons(_) => 1 }", 1, 13, "there is no constructor `Cons`"),
    ],
)
def test_a_text_that_is_wrong_says_where(text, line, column, message):
    with pytest.raises(tvm.error.DiagnosticError) as caught:
        relay.parse_expr(text)
    assert isinstance(caught.value, ParseError)
    assert (caught.value.line, caught.value.column) == (line, column), caught.value
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def @f() { 1 } def @f() { 2 }", "defined already"),
        ("type A { B } type C { B }", "defined already"),
        ("type A { B } type A { C }", "defined already"),
        ("def @f() { @g() }", "there is no function @g"),
        ("extern type T { A }", "has no constructors"),
        ('#[import = "other.rly"]', "there are prelude.rly"),
        ("def @f() { 1 } #[metadata] {", "not JSON"),
        ('def @f() { 1 } #[metadata] {"root": 5, "nodes": []}', "no node 5"),
        ("1", "expected def, type or extern type, found .1."),
    ],
)
def test_a_module_that_is_wrong_says_why(body, message):
    with pytest.raises(tvm.error.DiagnosticError, match=message):
        module_of(body)
    with pytest.raises(tvm.error.DiagnosticError, match="expected #"):
        relay.parse("def @f() { 1 }")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 20_000,
        "{" * 20_000,
        "-" * 20_000,
        "abs(" * 10_000,
        "fn () { " * 10_000,
        "if (1) { " * 10_000,
        "reshape(1, newshape=" + "[" * 20_000,
        "let %x: " + "(" * 20_000,
        "let %x: " + "fn (" * 10_000,
        "/*" * 20_000,
        "match (1) { " + "(" * 10_000,
    ],
    ids=lambda text: text[:12],
)
def test_nesting_without_end_is_an_error_of_the_text(text):
    with pytest.raises(tvm.error.DiagnosticError):
        relay.parse_expr(text)


def test_texts_with_parts_missing_or_changed_are_named_errors():
    text = testing.mlp.get_workload(1)[0].astext() + "\ntype L[A] { C(A, L[A]), N }\n"
    x = relay.const(np.arange(3))
    text += relay.IRModule.from_expr(x).astext().removeprefix(HEAD).replace("@main", "@other")
    relay.parse(text)
    random = np.random.default_rng(0)
    for _ in range(400):
        at = int(random.integers(len(text)))
        wrong = text[:at] + random.choice(["", "(", "}", ";", "%", "0", "[", '"', "fn", "\x00", "¤"]) + text[at + 1 :]
        with contextlib.suppress(tvm.TVMError):
            relay.parse(wrong if random.random() < 0.7 else text[:at])


def test_texts_that_say_spans_show_them():
    call = relay.Call(relay.op.get("abs"), [relay.const(1)], span=relay.Span(relay.SourceName("model.py"), 3, 3, 5, 9))
    assert call.astext() == HEAD + "abs(1) /* span=model.py:3:5 */"
    roundtrip(call)


def test_attributes_that_have_no_default_in_tvm_are_shown_always() -> None:
    x, w = relay.var("x", shape=(1, 2, 3, 3)), relay.var("w", shape=(4, 6))
    pooled = relay.nn.max_pool2d(x)
    assert "nn.max_pool2d(%x, pool_size=[1, 1])" in pooled.astext()
    text = relay.nn.dense(relay.transpose(w), relay.transpose(w)).astext()
    assert "transpose(%w, axes=None)" in text
    assert "units=None" in text
    assert tvm.ir.structural_equal(
        relay.fromtext(relay.IRModule.from_expr(pooled).astext()), relay.IRModule.from_expr(pooled)
    )
