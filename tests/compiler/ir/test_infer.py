"""Type inference: what it finds, and what its errors say."""

from __future__ import annotations

import pytest
from treadle.compiler.builder.programs import Module, function, global_function, if_, var
from treadle.compiler.check import check_definition
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.ir.text import parse_module
from treadle.formats import dims
from treadle.formats.messages.errors import InferenceError
from treadle.formats.primitive import PrimitiveDefinition, PrimitiveNode
from treadle.formats.types import tensor

from ..prelude import TEXT, prelude


def result_of(text: str, name: str = "main") -> str:
    return str(infer_types(parse_module(text)).functions[name].result_type)


def test_symbolic_shapes_go_through_operators() -> None:
    assert (
        result_of("func @main(x: float32[n, 3], w: float32[3, m]) { y = matmul(x, w) z = concat(y, y) z }")
        == "float32[2*n, m]"
    )


def test_a_call_puts_the_arguments_sizes_in_place_of_the_parameters() -> None:
    twice = "func @twice(x: float32[n]) { y = concat(x, x) y }"
    assert result_of(f"{twice} func @main(x: float32[m]) {{ y = @twice(x) z = @twice(y) z }}") == "float32[4*m]"
    assert result_of(f"{twice} func @main(x: float32[3]) {{ y = @twice(x) y }}") == "float32[6]"


def test_branches_of_different_sizes_join_to_an_unknown_one() -> None:
    text = "func @main(c: bool[], x: float32[2, 3], y: float32[4, 3]) { z = if c { x } else { y } z }"
    assert result_of(text) == "float32[?, 3]"


def test_a_loop_whose_tensor_grows_has_an_unknown_size() -> None:
    text = """
    func @main(c: bool[], x: float32[1, 3]) {
      l = loop (v = x) while { c } do { w = concat(v, v) t = (w,) t }
      y = l[0]
      y
    }"""
    assert result_of(text) == "float32[?, 3]"


def test_a_recursive_function_needs_no_declared_result() -> None:
    text = """
    func @main(n: int64[], x: float32[k]) {
      done = less_equal(n, int64(0))
      y = if done { x } else { m = subtract(n, int64(1)) z = concat(x, x) r = @main(m, z) r }
      y
    }"""
    assert result_of(text) == "float32[?]"


def test_mutual_recursion() -> None:
    text = """
    func @even(n: int64[]) { z = equal(n, int64(0)) r = if z { bool(true) } else { m = subtract(n, int64(1)) o = @odd(m) o } r }
    func @odd(n: int64[]) { z = equal(n, int64(0)) r = if z { bool(false) } else { m = subtract(n, int64(1)) o = @even(m) o } r }
    """
    assert result_of(text, "even") == "bool[]"


def test_match_shape_binds_dimensions_for_what_follows() -> None:
    text = "func @main(x: float32[?, ?]) { y = match_shape x [a, 4] z = permute_dims(y) w = matmul(z, y) w }"
    assert result_of(text) == "float32[4, 4]"


def test_what_only_a_block_knows_is_unknown_outside() -> None:
    text = "func @main(c: bool[], x: float32[?]) { y = if c { z = match_shape x [k] z } else { w = match_shape x [k] w } y }"
    assert result_of(text) == "float32[?]"


def test_generic_functions_take_each_calls_types() -> None:
    text = (
        TEXT
        + """
    func @main(x: float32[], i: int64[]) {
      nil = List::Nil()
      xs = List::Cons(x, nil)
      to_row = fn(v: float32[]) { r = full() {dtype=float32, shape=(1, 2)} r }
      rows = @map(to_row, xs)
      zipped = @zip(rows, xs)
      zipped
    }"""
    )
    assert result_of(text) == "List[(float32[1, 2], float32[])]"


def test_type_arguments_widen_until_all_arguments_fit() -> None:
    text = (
        TEXT
        + """
    func @main(xs: List[float32[2]], empty: float32[0]) {
      join = fn(all: float32[?], x: float32[2]) { y = concat(all, x) y }
      y = @foldl(join, empty, xs)
      y
    }"""
    )
    assert result_of(text) == "float32[?]"


def test_the_prelude_has_the_types_that_everyone_expects() -> None:
    module = infer_types(prelude())
    assert {name: str(function.result_type) for name, function in module.functions.items()} == {
        "id": "a", "flip": "fn(b, a) -> c", "foldr1": "a", "sum": "int64[]", "map_accumr": "(a, List[c])",
        "map_accuml": "(a, List[c])", "unfoldr": "List[b]", "unfoldl": "List[b]", "tmap": "Tree[b]", "size": "int64[]",
        "head": "a", "tail": "List[a]", "nth": "a", "update": "List[a]", "length": "int64[]", "map": "List[b]", "foldl": "a",
        "foldr": "b", "filter": "List[a]", "append": "List[a]", "reverse": "List[a]", "zip": "List[(a, b)]",
        "compose": "fn(a) -> c", "iterate": "fn(a) -> a",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            'y = matmul(x, x) from "fc 1" y',
            "matmul(float32[n, 4], float32[n, 4]): expected 4 rows in b, as many as a has",
        ),
        ('y = matmul(x, x) from "fc 1" y', "[function 'main', node 'fc 1']"),
        ("y = soft_max(x) y", "there is no operator 'soft_max'; did you mean softmax"),
        ("y = x[0] y", "expected a tuple with a field 0, got float32[n, 4]"),
        ("y = call x(x) y", "expected a function, got 'x' of type float32[n, 4]"),
        ("y = @mai(x) y", "there is no function 'mai' in this module; it has main"),
        ("y = @main(x, x) y", "main: expected 1 arguments, got 2"),
        ("y = if x { x } else { x } y", "expected a scalar tensor as the condition of an if, got float32[n, 4]"),
        (
            "y = if bool(true) { x } else { int64(1) } y",
            "the branches of an if differ: expected float32[n, 4], got int64[]",
        ),
        ("y = match_shape x [n, 5] y", "expected a tensor of shape [n, 5], got float32[n, 4]"),
        ("y = reshape(x) {shape=(<k>, 2)} y", "dimension variable 'k' is not bound here"),
        ("y = List::Cons(x) y", "there is no data type 'List' in this module"),
        ("y = match x { None() => { x } } y", "expected a data type with a constructor 'None', got float32[n, 4]"),
        ("y = @main(x) y", "the function only calls itself; declare it"),
        ("y: float32[n, 5] = relu(x) y", "variable 'y': expected float32[n, 5], got float32[n, 4]"),
        ("f = fn(v) { v } g = fn(v) { w = relu(v) w } y = call g(x) y", "the type of 'v' is not known here"),
        ("y = loop (v = x) while { bool(true) } do { x } y", "expected a tuple of 1 as the result of a loop's body"),
    ],
)
def test_errors_name_the_node_what_was_expected_and_what_came(body: str, message: str) -> None:
    with pytest.raises(InferenceError) as error:
        infer_types(parse_module(f"func @main(x: float32[n, 4]) {{ {body} }}"))
    assert message in str(error.value)


# ---- definitions of primitives ----


def definition(**changes: object) -> PrimitiveDefinition:
    x = tensor("float32", ("n", 4))
    node = PrimitiveNode("softmax", (0,), (x,), (("axis", 1),))
    parts: dict = {"params": (x,), "nodes": (node,), "outputs": (1,), "variables": ("n",)}
    return PrimitiveDefinition(**{**parts, **changes})


def node(operator: str = "relu", inputs: tuple = (0,), result: tuple = ("n", 4), **attributes: object) -> tuple:
    return (PrimitiveNode(operator, inputs, (tensor("float32", result),), tuple(sorted(attributes.items()))),)  # type: ignore[arg-type]


def test_a_sound_definition_passes() -> None:
    check_definition(definition())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": node("reul")}, "there is no operator"),
        ({"nodes": node(inputs=(1,))}, "expected inputs numbered below 1"),
        ({"nodes": node(inputs=(-1,))}, "expected inputs numbered below 1"),
        ({"outputs": (2,)}, "expected outputs numbered below 2"),
        ({"nodes": node(result=("n", 5))}, "expected results float32[n, 5], got float32[n, 4]"),
        ({"nodes": node(result=("m", 4))}, "expected dimension variables among ['n'], got m"),
        ({"nodes": node("softmax", axis=1.5)}, "softmax: attribute 'axis' takes an integer, got 1.5"),
        ({"nodes": node("softmax", axis=True)}, "softmax: attribute 'axis' takes an integer, got True"),
        ({"nodes": node(alpha=1)}, "relu has no attribute 'alpha'"),
        (
            {"nodes": node("reshape", shape=(dims.variable("k"), 4))},
            "expected dimension variables among ['n'], got k",
        ),
        ({"variables": ()}, "expected dimension variables among [], got n"),
    ],
)
def test_a_definition_that_lies_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(InferenceError) as error:
        check_definition(definition(**changes))
    assert message in str(error.value)


def test_dimensions_cannot_grow_without_bound() -> None:
    dim: dims.Dim = dims.variable("n")
    for _ in range(40):
        dim = dims.floordiv(dims.add(dims.multiply(dim, dim), 1), dims.add(dim, 2)) if len(str(dim)) < 4000 else dim
    x = tensor("float32", (dim,))
    with pytest.raises(InferenceError, match="dimensions of at most"):
        check_definition(PrimitiveDefinition((x,), (), (0,), ("n",)))


def test_a_parameter_without_a_type_takes_that_of_the_calls() -> None:
    x = var("x", (2, 3))
    doubled = var("y", None)
    module = Module(main=function([x], global_function("twice")(x)), twice=function([doubled], doubled + doubled))
    typed = infer_types(module)
    assert str(typed.functions["twice"].params[0].type) == "float32[2, 3]"
    assert str(typed.functions["main"].result_type) == "float32[2, 3]"


def test_a_parameter_without_a_type_that_is_a_condition_is_a_truth_value() -> None:
    condition, x = var("condition", None), var("x", (2,))
    typed = infer_types(Module(main=function([condition, x], if_(condition, x, x + 1))))
    assert str(typed.functions["main"].params[0].type) == "bool[]"


def test_a_parameter_of_which_nothing_is_known_needs_a_type() -> None:
    x = var("x", None)
    with pytest.raises(InferenceError, match="parameter 'x' needs a type"):
        infer_types(Module(main=function([x], x)))


def test_a_pattern_says_what_type_a_closures_parameter_has() -> None:
    text = """
    data Box[a] = Full(a) | Empty
    func @main(x: float32[2]) -> float32[2] {
      open = fn(box) {
        chosen = match box { Full(inner) => { inner } }
        chosen
      }
      full = Box::Full(x)
      back = call open(full)
      back
    }
    """
    assert result_of(text) == "float32[2]"
