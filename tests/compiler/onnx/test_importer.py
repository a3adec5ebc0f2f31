"""Importing ONNX models: structure, shapes that exporters compute, names, and errors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, numpy_helper, parser
from treadle.compiler import ir
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx
from treadle.formats.messages.errors import InferenceError, ModelError, ShapeError, UnsupportedOperatorError

from ..test_compile import run
from ..test_compile import saved as compiled

HEADER = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>'


def parse(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEADER + text)


def operators(module: ir.Module) -> Counter[str]:
    bindings = module.functions["main"].body.bindings
    return Counter(b.value.operator for b in bindings if isinstance(b.value, ir.OperatorCall))


def types(module: ir.Module) -> list[str]:
    return [str(param.type) for param in module.functions["main"].params]


# ---- shapes ----


def test_shape_arithmetic_vanishes() -> None:
    module = from_onnx(
        parse(
            """agraph (float[batch, length, 12] x) => (float[batch, length, 3, 4] y)
            <int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}, int64[2] heads = {3, 4}> {
                shape = Shape(x)
                b = Gather(shape, zero)
                n = Gather(shape, one)
                b1 = Unsqueeze(b, axis)
                n1 = Unsqueeze(n, axis)
                target = Concat<axis = 0>(b1, n1, heads)
                y = Reshape(x, target)
            }"""
        )
    )
    assert operators(module) == {"reshape": 1}
    x = np.ones((2, 5, 12), np.float32)
    assert evaluate(module, "main", x).shape == (2, 5, 3, 4)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("Mul(n, two)", 10),
        ("Add(n, two)", 7),
        ("Sub(n, two)", 3),
        ("Div(n, two)", 2),
        ("Max(n, two)", 5),
        ("Mod(n, two)", 1),
    ],
)
def test_sizes_may_be_computed(expression: str, expected: int) -> None:
    module = from_onnx(
        parse(
            f"""agraph (float[n] x) => (float[m] y) <int64[1] two = {{2}}, float one = {{1.0}}> {{
                n = Shape(x)
                m = {expression}
                y = Expand(one, m)
            }}"""
        )
    )
    assert evaluate(module, "main", np.zeros(5, np.float32)).shape == (expected,)


def test_sizes_may_pass_through_floats() -> None:
    module = from_onnx(
        parse(
            """agraph (float[n] x) => (int64[m] y)
            <float two = {2.0}, int64 zero = {0}, int64 one = {1}> {
                n = Size(x)
                wide = Cast<to = 1>(n)
                double = Mul(wide, two)
                whole = Floor(double)
                m = Cast<to = 7>(whole)
                y = Range(zero, m, one)
            }"""
        )
    )
    np.testing.assert_array_equal(evaluate(module, "main", np.zeros(3, np.float32)), np.arange(6))


def test_the_step_of_a_range_may_be_a_size() -> None:
    """The offsets of an embedding bag over the rows of a matrix."""
    module = from_onnx(
        parse(
            """agraph (float[n, k] x) => (int64[m] y) <int64 zero = {0}, int64 one = {1}> {
                all = Size(x)
                shape = Shape(x)
                step = Gather(shape, one)
                y = Range(zero, all, step)
            }"""
        )
    )
    np.testing.assert_array_equal(evaluate(module, "main", np.zeros((3, 4), np.float32)), [0, 4, 8])


def test_a_size_can_be_used_as_a_number() -> None:
    module = from_onnx(
        parse(
            """agraph (float[n] x) => (float[n] y) {
                n = Size(x)
                wide = Cast<to = 1>(n)
                root = Sqrt(wide)
                y = Div(x, root)
            }"""
        )
    )
    np.testing.assert_allclose(evaluate(module, "main", np.ones(4, np.float32)), np.full(4, 0.5))


def test_conditions_on_sizes_are_decided() -> None:
    """Exporters write expand(-1, …) as Where(Equal(shape, -1), 1, shape)."""
    module = from_onnx(
        parse(
            """agraph (float[n, 1] x) => (float[n, 4] y)
            <int64[1] four = {4}, int64[2] minus = {-1, -1}, int64[2] ones = {1, 1}, int64 zero = {0}, int64[1] axis = {0}> {
                shape = Shape(x)
                n = Gather(shape, zero)
                n1 = Unsqueeze(n, axis)
                wanted = Concat<axis = 0>(n1, four)
                unchanged = Equal(wanted, minus)
                target = Where(unchanged, ones, wanted)
                y = Expand(x, target)
            }"""
        )
    )
    assert operators(module) == {"broadcast_to": 1}


def test_masked_attention_of_a_decoder() -> None:
    """As exporters write it: the mask from Range over a length known only at run time, the scale from the head's size."""
    module = from_onnx(
        parse(
            """agraph (float[b, h, s, 16] q, float[b, h, s, 16] k, int64[b, s] mask) => (float[b, h, s, 16] y)
            <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] a0 = {0}, int64[1] a1 = {1}, int64[2] a01 = {0, 1},
             int64[2] a12 = {1, 2}, int64[1] last = {-1}, int64[1] end = {9223372036854775807},
             float fzero = {0.0}, float fone = {1.0}, float low = {-3.0e38}> {
                shape = Shape(q)
                length = Gather(shape, two)
                places = Range(zero, length, one)
                columns = Unsqueeze(places, a0)
                rows = Unsqueeze(places, a1)
                causal = LessOrEqual(columns, rows)
                causal4 = Unsqueeze(causal, a01)
                given = Cast<to = 9>(mask)
                given4 = Unsqueeze(given, a12)
                seen = And(causal4, given4)
                bias = Where(seen, fzero, low)
                depth = Slice(shape, last, end)
                depth_float = Cast<to = 1>(depth)
                root = Sqrt(depth_float)
                inverse = Div(fone, root)
                scale = Sqrt(inverse)
                query = Mul(q, scale)
                transposed = Transpose<perm = [0, 1, 3, 2]>(k)
                key = Mul(transposed, scale)
                scores = MatMul(query, key)
                masked = Add(scores, bias)
                weights = Softmax<axis = -1>(masked)
                y = MatMul(weights, k)
            }"""
        )
    )
    assert not operators(module).keys() & {"shape", "shape_tensor", "sqrt", "divide", "slice"}
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 2, 3, 5, 16)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    scores = q @ k.swapaxes(2, 3) / 4
    seen = np.tril(np.ones((5, 5), bool)) & mask[:, np.newaxis, np.newaxis].astype(bool)
    weights = np.exp(np.where(seen, scores, -np.inf))
    expected = weights / weights.sum(-1, keepdims=True) @ k
    np.testing.assert_allclose(evaluate(module, "main", q, k, mask), expected, rtol=1e-4, atol=1e-5)


def test_dimensions_may_be_expressions() -> None:
    model = parse("agraph (float[n, 2] x, float[k, 2] z) => (float[m, 2] y) { y = Concat<axis = 0>(x, z) }")
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n + 1"
    module = from_onnx(model)
    assert types(module) == ["float32[n, 2]", "float32[n + 1, 2]"]
    assert evaluate(module, "main", np.ones((2, 2), np.float32), np.ones((3, 2), np.float32)).shape == (5, 2)


def test_unnamed_dimensions_get_names() -> None:
    model = parse("agraph (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    assert types(from_onnx(model)) == ["float32[x_dim0, 2]"]


def test_names_that_are_no_identifiers_are_changed() -> None:
    model = parse("agraph (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch size?"
    assert types(from_onnx(model)) == ["float32[batch_size_, 2]"]


@pytest.mark.parametrize("text", ["?", "-1", "*", "None", "_"])
def test_texts_that_name_no_dimension_do_not_make_two_of_them_one(text: str) -> None:
    model = parse("agraph (float[n, 3, h, w] x) => (float[n, 3, h, w] y) { y = Relu(x) }")
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_param = text
    assert types(from_onnx(model)) == ["float32[n, 3, x_dim2, x_dim3]"]


def test_shapes_can_be_given() -> None:
    module = from_onnx(parse("agraph (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }"), shapes={"x": ("k", "k")})
    assert types(module) == ["float32[k, k]"]


def test_dimensions_that_must_be_equal_are_checked_when_run() -> None:
    module = from_onnx(parse("agraph (float[n] a, float[m] b) => (float[n] y) { y = Add(a, b) }"))
    assert evaluate(module, "main", np.ones(3, np.float32), np.ones(3, np.float32)).shape == (3,)
    with pytest.raises(ShapeError):
        evaluate(module, "main", np.ones(3, np.float32), np.ones(4, np.float32))


# ---- structure ----


@pytest.mark.parametrize("count", [0, 1, 3, 5, 6, 11])
@pytest.mark.parametrize(
    ("starts", "ends"), [("minus", "end"), ("zero", "minus"), ("minus", "minus"), ("size", "minus")]
)
@pytest.mark.parametrize("length", ["m", "5"])
def test_slices_count_from_the_end_by_a_size_that_may_be_0(length: str, starts: str, ends: str, count: int) -> None:
    """-n counts from the end where n is not 0, and comes before the first element where n is larger than the length."""
    model = parse(f"""
        agraph (float[{length}] x, float[n] y) => (float[k] z)
        <int64[1] zero = {{0}}, int64[1] end = {{9223372036854775807}}> {{
            size = Shape(y)
            minus = Neg(size)
            z = Slice(x, {starts}, {ends})
        }}""")
    x = np.arange(5, dtype=np.float32)
    bounds = {"minus": -count, "zero": 0, "size": count, "end": None}
    arrays, expected = (x, np.zeros(count, np.float32)), x[bounds[starts] : bounds[ends]]
    assert np.array_equal(evaluate(from_onnx(model), "main", *arrays), expected)
    assert np.array_equal(run(compiled(from_onnx(model)), *arrays), expected)


@pytest.mark.parametrize("count", [1, 3])
def test_a_size_that_may_be_1_is_expanded(count: int) -> None:
    model = parse("agraph (float[2, n] x) => (float[2, 3] y) <int64[3] to = {1, 2, 3}> { y = Expand(x, to) }")
    x = np.arange(2.0 * count, dtype=np.float32).reshape(2, count)
    assert np.array_equal(run(compiled(from_onnx(model)), x), np.broadcast_to(x, (1, 2, 3)))
    with pytest.raises(ShapeError):
        run(compiled(from_onnx(model)), np.zeros((2, 2), np.float32))


@pytest.mark.parametrize(("own", "wanted"), [(1, 3), (3, 1), (3, 3), (1, 1), (0, 1), (1, 0)])
def test_a_size_is_expanded_to_another_that_a_run_tells(own: int, wanted: int) -> None:
    model = parse("agraph (float[n] x, float[m] like) => (float[k] y) { to = Shape(like) y = Expand(x, to) }")
    x, like = np.arange(own, dtype=np.float32), np.zeros(wanted, np.float32)
    shape = np.broadcast_shapes(x.shape, like.shape)
    assert np.array_equal(run(compiled(from_onnx(model)), x, like), np.broadcast_to(x, shape))
    with pytest.raises(ShapeError):
        run(compiled(from_onnx(model)), np.zeros(2, np.float32), np.zeros(3, np.float32))


def test_the_last_of_a_joined_tensor_fit_what_was_joined() -> None:
    """As decoders take the newest keys: for the sizes that the model is for, nothing else than the sum's second part."""
    model = parse("""
        agraph (float[p, 4] past, float[n, 4] new) => (float[n, 4] z)
        <int64[1] one = {1}, int64[1] zero = {0}, int64[1] end = {9223372036854775807}> {
            whole = Concat <axis = 0> (past, new)
            shape = Shape(new)
            n = Slice(shape, zero, one)
            minus = Neg(n)
            last = Slice(whole, minus, end)
            z = Add(last, new)
        }""")
    past, new = np.ones((3, 4), np.float32), np.full((2, 4), 2, np.float32)
    assert np.array_equal(run(compiled(from_onnx(model)), past, new), new * 2)


def test_initializers_may_also_be_inputs() -> None:
    model = parse("agraph (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    assert types(from_onnx(model)) == ["float32[2]"]


def test_several_outputs_make_a_tuple_with_their_names() -> None:
    module = from_onnx(parse("agraph (float[2] x) => (float[2] y, float[2] x) { y = Relu(x) }"))
    body = module.functions["main"].body
    assert isinstance(body.bindings[-1].value, ir.MakeTuple)
    assert [field.name for field in body.bindings[-1].value.fields] == ["y", "x"]  # type: ignore[union-attr]


def test_bindings_keep_the_names_of_nodes() -> None:
    model = parse("agraph (float[2] x) => (float[2] y) { h = Relu(x) y = Exp(h) }")
    model.graph.node[0].name = "activation"
    origins = [b.origin for b in from_onnx(model).functions["main"].body.bindings]
    assert origins == ["activation", "Exp y", "y"]


def test_a_size_that_becomes_a_tensor_is_of_its_own_node() -> None:
    """And not of the node that reads it first, whose result a comparison would take it for."""
    model = parse(
        """agraph (float[n, 3] x) => (float[n, 3] y)
        <int64 zero = {0}> {
            shape = Shape(x)
            rows = Gather(shape, zero)
            count = Cast<to = 1>(rows)
            y = Min(x, count)
        }"""
    )
    for node in model.graph.node:
        node.name = f"the {node.op_type}"
    bindings = from_onnx(model).functions["main"].body.bindings
    origins = {binding.origin for binding in bindings if binding.var.name.startswith("count")}
    assert origins == {"the Cast"}
    assert bindings[-2].origin == "the Min"


def test_standard_function_bodies_are_inlined() -> None:
    module = from_onnx(parse("agraph (float[2] x) => (float[2] y) { y = Celu<alpha = 2.0>(x) }"))
    x = np.float32([-1, 1])
    expected = np.maximum(0, x) + np.minimum(0, 2 * np.expm1(x / 2))
    np.testing.assert_allclose(evaluate(module, "main", x), expected, rtol=1e-6)


def test_functions_of_the_model_are_inlined() -> None:
    model = parse(
        """agraph (float[2] x) => (float[2] y) { y = local.twice<factor = 3.0>(x) }
        <domain: "local", opset_import: ["" : 17]>
        twice <factor> (a) => (b) { c = Constant<value_float: float = @factor>() d = Mul(a, c) b = Add(d, a) }"""
    )
    np.testing.assert_array_equal(evaluate(from_onnx(model), "main", np.float32([1, 2])), [4, 8])


def test_a_standard_function_sees_the_attributes_of_the_function_around_it() -> None:
    """SoftmaxCrossEntropyLoss hands its `reduction` down to NegativeLogLikelihoodLoss, whose body depends on it."""
    module = from_onnx(
        parse(
            """agraph (float[n, 4] scores, int64[n] labels) => (float[n] y) {
                y = SoftmaxCrossEntropyLoss<reduction = "none">(scores, labels)
            }"""
        )
    )
    scores, labels = np.eye(3, 4, dtype=np.float32), np.array([0, 1, 3])
    expected = np.log(np.exp(scores).sum(1)) - scores[np.arange(3), labels]
    np.testing.assert_allclose(evaluate(module, "main", scores, labels), expected, rtol=1e-6)


def test_attributes_left_out_of_a_call_have_their_defaults() -> None:
    module = from_onnx(parse("agraph (float[3] x) => (float[3] y) { y = Shrink<lambd = 1.0>(x) }"))
    np.testing.assert_array_equal(evaluate(module, "main", np.float32([-2, 0.5, 3])), [-2, 0, 3])


def test_branches() -> None:
    module = from_onnx(
        parse(
            """agraph (bool c, float[n] x) => (float[n] y) {
                y = If (c) <
                    then_branch = yes () => (float[n] p) { p = Exp(x) },
                    else_branch = no () => (float[n] q) { q = Neg(x) }
                >
            }"""
        )
    )
    x = np.float32([1, 2, 3])
    np.testing.assert_allclose(evaluate(module, "main", np.array(True), x), np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(evaluate(module, "main", np.array(False), x), -x)


def test_a_branch_that_is_known_is_taken() -> None:
    module = from_onnx(
        parse(
            """agraph (float[n, 2] x) => (float[n, 2] y) <int64 two = {2}> {
                rank = Shape(x)
                count = Size(rank)
                c = Equal(count, two)
                y = If (c) <
                    then_branch = yes () => (float[n, 2] p) { p = Exp(x) },
                    else_branch = no () => (float[n, 2] q) { q = Unheard(x) }
                >
            }"""
        )
    )
    assert operators(module) == {"exp": 1}


# ---- errors ----


def test_all_unsupported_nodes_are_listed() -> None:
    model = parse("agraph (float[2] x) => (float[2] y) { a = Foo(x) b = Exp(a) c = Bar<k = 1>(x) y = Add(b, c) }")
    model.graph.node[2].name = "the_bar"
    with pytest.raises(UnsupportedOperatorError) as caught:
        from_onnx(model)
    assert [(operator, node) for operator, node, _ in caught.value.operators] == [("Foo", "Foo a"), ("Bar", "the_bar")]
    assert "the_bar" in str(caught.value)


def test_an_attribute_that_is_not_known_is_reported() -> None:
    with pytest.raises(UnsupportedOperatorError, match="attribute 'speed'"):
        from_onnx(parse("agraph (float[2] x) => (float[2] y) { y = Relu<speed = 9>(x) }"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{ y = Relu(z) }", "'z', which is made by no node"),
        ("{ y = Relu(z) w = Relu(x) z = Add(v, w) v = Relu(z) }", "'z', which is made in or behind a cycle"),
        ("{ y = Relu(y) }", "'y', which is made in or behind a cycle"),
        ("{ y = Relu(x) y = Exp(x) }", "'y' is made twice"),
        ("{ y = Conv(x) }", "Conv: missing a required argument: 'weight'"),
        ("{ y = Concat(x, x) }", "Concat: attribute 'axis' is missing"),
        ("{ y = Concat<axis = 0.5>(x, x) }", "Concat: attribute 'axis' must be INT, got FLOAT"),
        ("{ z = Relu(x) }", "'y', which is made by no node"),
    ],
)
def test_malformed_graphs(body: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_onnx(parse("agraph (float[2] x) => (float[2] y) " + body))


@pytest.mark.parametrize(
    "body",
    [
        "{ y = Exp(z) z = Neg(x) }",
        "{ y = Exp(w) w = Identity(z) z = Neg(x) }",
        # what the nodes of a branch read
        "{ c = Constant<value = bool {1}>() y = If(c) <then_branch = t () => (float[2] a) { a = Exp(z) }, "
        "else_branch = e () => (float[2] b) { b = Identity(d) d = Exp(x) }> z = Neg(x) }",
    ],
)
def test_nodes_may_stand_in_any_order_as_onnxruntime_takes_them(body: str) -> None:
    model = parse("agraph (float[2] x) => (float[2] y) " + body)
    x = np.float32([0.5, -2])
    found = treadle.VirtualMachine(treadle.compile(model, progress=False))["main"](x)
    np.testing.assert_allclose(found.numpy(), np.exp(-x), rtol=1e-6)


def test_types_that_do_not_agree_name_the_node() -> None:
    with pytest.raises(InferenceError, match=r"Add: .*\[node 'Add y'\]"):
        from_onnx(parse("agraph (float[2] x, int64[2] z) => (float[2] y) { y = Add(x, z) }"))


def test_bytes_that_are_no_model() -> None:
    with pytest.raises(ModelError, match="not an ONNX model"):
        from_onnx(b"\x00nonsense")


def external_model(location: str, **fields: str) -> onnx.ModelProto:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **fields}.items():
        weight.external_data.add(key=key, value=value)
    model = parse("agraph (float[2] x) => (float[2] y) { y = Add(x, w) }")
    model.graph.initializer.append(weight)
    return model


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    path = saved(external_model("weights.bin", offset="4"), tmp_path)
    (tmp_path / "weights.bin").write_bytes(np.float32([9, 1, 2]).tobytes())
    np.testing.assert_array_equal(evaluate(from_onnx(path), "main", np.float32([1, 1])), [2, 3])


@pytest.mark.parametrize("location", ["../weights.bin", "link.bin", "absent.bin", "", "."])
def test_external_data_elsewhere_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(8))
    path = saved(external_model(location), tmp_path / "model")
    (tmp_path / "model" / "link.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(ModelError, match="not a file in the model's folder"):
        from_onnx(path)


def test_external_data_that_are_too_short(tmp_path: Path) -> None:
    path = saved(external_model("weights.bin", offset="4"), tmp_path)
    (tmp_path / "weights.bin").write_bytes(bytes(8))
    with pytest.raises(ModelError, match="needs 8 bytes from byte 4"):
        from_onnx(path)


def test_external_data_need_a_path() -> None:
    with pytest.raises(ModelError, match="compile the model from its path"):
        from_onnx(external_model("weights.bin"))


def test_data_that_do_not_fit_the_shape() -> None:
    model = parse("agraph (float[2] x) => (float[2] y) { y = Add(x, w) }")
    weight = numpy_helper.from_array(np.float32([1, 2]), "w")
    weight.dims[0] = 1 << 40
    model.graph.initializer.append(weight)
    with pytest.raises(ModelError, match="tensor 'w'"):
        from_onnx(model)


@pytest.mark.parametrize("size", ["0", "n"])
def test_hardmax_of_an_axis_without_elements(size: str) -> None:
    model = parse(f"g (float[2,{size}] x) => (float[?,?] y) {{ y = Hardmax(x) }}")
    machine = treadle.VirtualMachine(treadle.compile(model, embed_native=False, progress=False))
    assert machine["main"](np.zeros((2, 0), np.float32)).numpy().shape == (2, 0)
    if size == "n":
        x = np.array([[1, 3, 3], [-1, -2, -3]], np.float32)
        np.testing.assert_array_equal(machine["main"](x).numpy(), [[0, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    "node",
    [
        "s = SequenceConstruct(x, one) y = ConcatFromSequence<axis: int = 0>(s)",
        "s = SequenceConstruct(one, x) y = ConcatFromSequence<axis: int = 0, new_axis: int = 1>(s)",
        "y = Concat<axis: int = 0>(x, one)",
    ],
)
def test_a_size_of_1_is_no_other_where_tensors_are_joined(node: str) -> None:
    rank = "?,?,?" if "new_axis" in node else "?,?"
    model = parse(f"g (float[2,n] x, float[2,1] one) => (float[{rank}] y) {{ {node} }}")
    machine = treadle.VirtualMachine(treadle.compile(model, embed_native=False, progress=False))
    ones = np.ones((2, 1), np.float32)
    assert machine["main"](ones, ones).numpy().size == 4
    with pytest.raises(ShapeError):
        machine["main"](np.ones((2, 3), np.float32), ones)


def test_gather_nd_of_a_batch_whose_size_only_a_run_knows() -> None:
    model = parse("g (float[n,3] x, int64[2,1] at) => (float[?] y) { y = GatherND<batch_dims: int = 1>(x, at) }")
    machine = treadle.VirtualMachine(treadle.compile(model, embed_native=False, progress=False))
    x, at = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([[2], [0]])
    np.testing.assert_array_equal(machine["main"](x, at).numpy(), [2, 3])
    with pytest.raises(ShapeError):
        machine["main"](np.ones((3, 3), np.float32), at)


def test_a_count_of_none_that_a_run_finds_keeps_a_size() -> None:
    """As jax2onnx writes a scatter whose rows may lie outside: 0 in a shape means the size of the input there."""
    model = parse(
        "g (bool[3] taken, float[1,5,2] x) => (float[?,?] y) <int64[1] one = {1}, int64[1] ten = {10}> {"
        " places = NonZero(taken) shape = Shape(places) count = Gather(shape, one)"
        " target = Concat<axis: int = 0>(count, ten) y = Reshape(x, target) }"
    )
    machine = treadle.VirtualMachine(treadle.compile(model, embed_native=False, progress=False))
    x = np.arange(10, dtype=np.float32).reshape(1, 5, 2)
    for taken in ([False, False, False], [False, True, False]):
        np.testing.assert_array_equal(machine["main"](np.array(taken), x).numpy(), x.reshape(1, 10))
    with pytest.raises(ShapeError):
        machine["main"](np.ones(3, bool), x)
