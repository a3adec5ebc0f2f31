"""Relay's text of programs."""

from treadle.tvm import relay
from treadle.tvm.relay.loops import while_loop
from treadle.tvm.relay.prelude import Prelude


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
    assert text == '#[version = "0.0.5"]\nfree_var %x: Tensor[(2,), float32];\n%0 = add(%x, 1f);\nexp(%0)\n'


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
    ):
        assert part in text, (part, text)
    assert "@foldr" not in text
