"""What exporters take apart, recognised: text in, text out, and the same values."""

from __future__ import annotations

import numpy as np
import pytest
from treadle.compiler import ir
from treadle.compiler.builder.programs import Module, constant, function, op, var
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.ir.text import parse_module, print_module
from treadle.compiler.passes import DeadCode, InferTypes, Recognise, SplitBatches
from treadle.compiler.targets.base import Costs
from treadle.compiler.targets.choice import backend_of
from treadle.formats.dtypes import DType
from treadle.formats.types import TensorType

COSTS = backend_of().costs
_TANH = """
c = {cube}
s = multiply(c, float32(0.044715))
i = add(x, s)
j = multiply(i, float32(0.7978846))
t = tanh(j)
p = add(t, float32(1.0))
h = multiply(x, p)
r = multiply(float32(0.5), h)
"""
_LAYER = """
m = mean(x) {axes=(-1,), keepdims=true}
c = subtract(x, m)
q = pow(c, float32(2.0))
v = mean(q) {axes=(1,), keepdims=true}
e = add(v, float32(0.0009765625))
d = sqrt(e)
"""
_ROOT = """
q = multiply(x, x)
v = mean(q) {axes=(-1,), keepdims=true}
e = add(float32(0.0009765625), v)
d = sqrt(e)
"""

CASES = [
    (
        "a = divide(x, float32(1.4142135)); b = erf(a); "
        "c = add(b, float32(1.0)); d = multiply(x, c); r = multiply(d, float32(0.5))",
        "gelu(x)",
    ),
    (
        "a = multiply(x, float32(0.70710678)); b = erf(a); "
        "c = add(float32(1.0), b); h = multiply(x, float32(0.5)); r = multiply(h, c)",
        "gelu(x)",
    ),
    (_TANH.replace("{cube}", "pow(x, float32(3.0))"), 'gelu(x) {approximate="tanh"}'),
    (_TANH.replace("c = {cube}", "k = square(x); c = multiply(k, x)"), None),
    (_TANH.replace("c = {cube}", "k = multiply(x, x); c = multiply(k, x)"), 'gelu(x) {approximate="tanh"}'),
    ("s = sigmoid(x); r = multiply(s, x)", "silu(x)"),
    ("a = hard_sigmoid(x) {alpha=0.16666667, beta=0.5}; r = multiply(x, a)", "hard_swish(x)"),
    (
        "a = add(x, float32(3.0)); c = clip(a) {min=0.0, max=6.0}; m = multiply(x, c); r = divide(m, float32(6.0))",
        "hard_swish(x)",
    ),
    ("a = hard_sigmoid(x) {alpha=0.2, beta=0.5}; r = multiply(x, a)", None),
    ("a = softplus(x); t = tanh(a); r = multiply(x, t)", "mish(x)"),
    (
        "m = max(x) {axes=(0,), keepdims=true}; s = subtract(x, m); "
        "e = exp(s); t = sum(e) {axes=(0,), keepdims=true}; r = divide(e, t)",
        "softmax(x) {axis=-2}",
    ),
    (
        "m = max(x) {axes=(0,), keepdims=true}; s = subtract(x, m); "
        "e = exp(s); t = sum(e) {axes=(1,), keepdims=true}; r = divide(e, t)",
        None,
    ),
    (_LAYER + "r = divide(c, d)", "layer_normalization(x) {epsilon=0.0009765625}"),
    (
        _LAYER + "n = divide(c, d); k = multiply(scale, n); r = add(k, bias)",
        "layer_normalization(x, scale, bias) {epsilon=0.0009765625}",
    ),
    (_LAYER + "n = divide(c, d); r = multiply(y, n)", "multiply(y, n)"),
    (_ROOT + "r = divide(x, d)", "rms_normalization(x) {epsilon=0.0009765625}"),
    (
        _ROOT + "i = reciprocal(d); n = multiply(x, i); r = multiply(scale, n)",
        "rms_normalization(x, scale) {epsilon=0.0009765625}",
    ),
]


@pytest.mark.parametrize(("bindings", "recognised"), CASES)
def test_recognise(bindings: str, recognised: str | None) -> None:
    """The last binding becomes `recognised`, or stays as it is where that is None; the value stays the same."""
    signature = "x: float32[4, 8], y: float32[4, 8], scale: float32[8], bias: float32[8]"
    bindings = bindings.strip().replace("; ", "\n")
    module = InferTypes()(parse_module(f"func @main({signature}) {{\n{bindings}\nr\n}}"))
    after = DeadCode(("main",))(Recognise(COSTS)(module))
    line = print_module(after).splitlines()[-3].strip()
    wanted = recognised or bindings.splitlines()[-1].removeprefix("r = ")
    assert line == f"r: float32[4, 8] = {wanted}"
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (4, 8), (8,), (8,))]
    before, now = (evaluate(each, "main", *arrays) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-6)


def test_axes_in_the_middle_are_no_layer() -> None:
    text = _LAYER.replace("(-1,)", "(0,)").replace("(1,)", "(0,)") + "r = divide(c, d)"
    module = InferTypes()(parse_module(f"func @main(x: float32[4, 8]) {{\n{text.strip()}\nr\n}}"))
    assert "normalization" not in print_module(Recognise(COSTS)(module))


_HEADS = """
q = permute_dims(x) {axes=(0, 2, 1, 3)}
k = permute_dims(y) {axes=(0, 2, 3, 1)}
v = permute_dims(z) {axes=(0, 2, 1, 3)}
s = matmul(q, k)
d = divide(s, float32(2.0))
"""
_AXES = "k_axes=(0, 2, 1, 3), {}q_axes=(0, 2, 1, 3), result_axes=(0, 2, 1, 3), {}v_axes=(0, 2, 1, 3)"
_SOFTMAX = "w = softmax(e)\no = matmul(w, v)\nr = permute_dims(o) {axes=(0, 2, 1, 3)}\n"
ATTENTIONS = [
    (_HEADS + "e = add(d, mask)\n" + _SOFTMAX, f"attention(x, y, z, mask) {{{_AXES.format('', 'scale=0.5, ')}}}"),
    (
        _HEADS + "e = where(holds, d, float32(-100.0))\n" + _SOFTMAX,
        f"attention(x, y, z, holds) {{{_AXES.format('masked=-100.0, ', 'scale=0.5, ')}}}",
    ),
    (_HEADS.replace("d = divide(s, float32(2.0))", "e = identity(s)") + _SOFTMAX, None),
    (_HEADS.replace("d =", "e =") + _SOFTMAX.replace("w = softmax(e)", "w = softmax(e) {axis=2}"), None),
    (_HEADS.replace("d =", "e =") + "w = softmax(e)\no = matmul(w, v)\nr = matmul(w, o)\n", None),
    (
        _HEADS.replace("k = permute_dims(y) {axes=(0, 2, 3, 1)}", "k = permute_dims(y) {axes=(0, 2, 1, 3)}").replace(
            "d =", "e ="
        )
        + _SOFTMAX,
        None,
    ),
    (
        "a = multiply(x, float32(0.5))\nk = permute_dims(y) {axes=(0, 1, 3, 2)}\nb = multiply(float32(0.5), k)\n"
        "s = matmul(a, b)\nw = softmax(s) {axis=3}\nr = matmul(w, z)",
        "attention(x, y, z) {scale=0.25}",
    ),
]


@pytest.mark.parametrize(("bindings", "recognised"), ATTENTIONS)
def test_recognise_attention(bindings: str, recognised: str | None) -> None:
    """Transpositions around it become the order of its axes. It stays in parts where these do not fit, or are used."""
    shapes = [(2, 6, 6, 6)] * 3 + [(2, 1, 1, 6), (6, 6)]
    signature = ", ".join(
        [*(f"{name}: float32[2, 6, 6, 6]" for name in "xyz"), "mask: float32[2, 1, 1, 6], holds: bool[6, 6]"]
    )
    module = InferTypes()(parse_module(f"func @main({signature}) {{\n{bindings.strip()}\nr\n}}"))
    after = DeadCode(("main",))(Recognise(COSTS)(module))
    text = print_module(after)
    assert ("attention" in text) == (recognised is not None)
    if recognised is not None:
        assert text.splitlines()[1].strip() == f"r: float32[2, 6, 6, 6] = {recognised}"
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes[:4]] + [random.random((6, 6)) < 0.5]
    before, now = (evaluate(each, "main", *arrays) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-5)


_TWO_MASKS = """
k = permute_dims(y) {axes=(0, 1, 3, 2)}
s = matmul(x, k)
d = multiply(s, float32(0.5))
"""
_IN_WINDOWS = """
v = reshape(b) {shape=(2, 3, 2, 5, 5)}
a = add(v, {mask})
e = reshape(a) {shape=(6, 2, 5, 5)}
"""


@pytest.mark.parametrize(
    ("masks", "bindings"),
    [
        ({"m": (6, 1, 1, 5), "n": (5, 5)}, "b = add(d, m)\ne = add(n, b)"),
        ({"m": (2, 5, 5), "n": (5,)}, "b = add(m, d)\nc = add(b, n)\ne = add(c, m)"),
        ({"m": (1, 2, 5, 5), "n": (1, 3, 1, 5, 5)}, "b = add(d, m)" + _IN_WINDOWS.replace("{mask}", "n")),
        ({"m": (1, 2, 5, 5), "n": (3, 1, 1, 5)}, "b = add(d, m)" + _IN_WINDOWS.replace("{mask}", "n")),
        ({"m": (1, 2, 5, 5), "n": (5, 5)}, "b = identity(d)" + _IN_WINDOWS.replace("{mask}", "n")),
        ({"m": (2, 5, 5), "n": (2, 3, 2, 5, 1)}, "b = add(d, m)" + _IN_WINDOWS.replace("add(v, {mask})", "add(n, v)")),
    ],
)
def test_masks_of_attention_become_one(masks: dict[str, tuple[int, ...]], bindings: str) -> None:
    printed = _recognised_masks(bindings.replace("b = identity(d)", "b = add(d, float32(0.0))"), masks)
    assert "= attention(x, y, z, " in printed
    assert "softmax" not in printed


def _module_of_masks(bindings: str, masks: dict[str, tuple[int, ...]]) -> tuple[ir.Module, dict[str, TensorType]]:
    """Attention of x, y and z whose scores e are made of products d, and what its operands are; h and i are truth values."""
    types = {
        name: TensorType(DType.bool if name in "hi" else DType.float32, shape)
        for name, shape in {**dict.fromkeys("xyz", (6, 2, 5, 4)), **masks}.items()
    }
    signature = ", ".join(f"{name}: {type_}" for name, type_ in types.items())
    text = f"{_TWO_MASKS}{bindings}\nw = softmax(e)\nr = matmul(w, z)"
    return InferTypes()(parse_module(f"func @main({signature}) {{\n{text.strip()}\nr\n}}")), types


def _recognised_masks(bindings: str, masks: dict[str, tuple[int, ...]]) -> str:
    """What becomes of a module of masks, as text; its results are the same."""
    module, types = _module_of_masks(bindings, masks)
    after = InferTypes()(DeadCode(("main",))(Recognise(COSTS)(module)))
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(type_.shape).astype(np.float32) for type_ in types.values()]
    arrays = [
        array > 0 if type_.dtype is DType.bool else array for array, type_ in zip(arrays, types.values(), strict=True)
    ]
    before, now = (evaluate(each, "main", *arrays) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-5)
    return print_module(after)


_SHAPES = {"m": (6, 1, 1, 5), "n": (5, 5), "f": (2, 1, 1), "h": (5, 5), "i": (6, 1, 1, 5), "p": (2, 5, 5)}


@pytest.mark.parametrize(
    ("bindings", "attributes"),
    [
        ("a = where(h, d, float32(-50.0))\ne = add(a, m)", "bias_last=true, masked=-50.0, "),
        ("a = add(d, m)\ne = where(h, a, float32(-50.0))", "masked=-50.0, "),
        ("a = where(h, float32(-50.0), d)\ne = add(m, a)", "bias_last=true, masked=-50.0, "),
        ("a = where(h, d, float32(-50.0))\ne = where(i, float32(-50.0), a)", "masked=-50.0, "),
        ("a = add(d, m)\ne = multiply(a, float32(0.25))", ""),
        (
            "a = where(h, d, float32(-50.0))\nb = divide(a, float32(4.0))\ne = add(b, m)",
            "bias_last=true, masked=-12.5, ",
        ),
        ("a = add(n, d)\nb = add(a, m)\ne = maximum(b, float32(-3.4028235e+38))", ""),
        ("a = multiply(d, f)\ne = add(a, m)", ""),
        ("a = add(d, m)\ne = multiply(f, a)", ""),
        (
            "a = reshape(d) {shape=(12, 5, 5)}\nb = reshape(a) {shape=(6, 2, 5, 5)}\ne = add(b, p)",
            "",
        ),
    ],
)
def test_what_is_done_to_scores_gets_the_form_of_attention(bindings: str, attributes: str) -> None:
    printed = _recognised_masks(bindings, _SHAPES)
    assert "= attention(" in printed
    assert "softmax" not in printed
    assert attributes in printed


def test_a_reciprocal_of_products_is_no_scale() -> None:
    bindings = "a = divide(float32(2.0), d)\nb = add(a, m)\ne = multiply(b, float32(0.25))"
    assert "attention" not in _recognised_masks(bindings, _SHAPES)


@pytest.mark.parametrize(
    "bindings",
    [
        "a = add(d, n)\nb = where(h, a, float32(-50.0))\ne = add(b, m)",  # a bias before and one after
        "a = where(h, d, float32(-50.0))\ne = multiply(a, f)",
        "a = add(d, m)\ne = maximum(a, float32(-50.0))",
        "a = where(h, d, float32(-50.0))\ne = where(i, float32(-60.0), a)",
    ],
)
def test_what_attention_knows_no_form_of_stays_in_parts(bindings: str) -> None:
    assert "attention" not in _recognised_masks(bindings, _SHAPES)


def test_a_mask_of_pixels_that_are_seen_along_two_axes() -> None:
    """As where lines and columns of an image have relative places of their own."""
    text = """
func @main(x: float32[6, 12, 4], y: float32[6, 12, 4], z: float32[6, 12, 4],
           m: float32[6, 3, 4, 3, 1], n: float32[6, 3, 4, 1, 4]) {
k = permute_dims(y) {axes=(0, 2, 1)}
s = matmul(x, k)
a = reshape(s) {shape=(6, 3, 4, 3, 4)}
b = add(a, m)
c = add(b, n)
e = reshape(c) {shape=(6, 12, 12)}
w = softmax(e)
r = matmul(w, z)
r
}"""
    module = InferTypes()(parse_module(text))
    after = InferTypes()(DeadCode(("main",))(Recognise(COSTS)(module)))
    assert "= attention(x, y, z, " in print_module(after)
    random = np.random.default_rng(0)
    shapes = [(6, 12, 4)] * 3 + [(6, 3, 4, 3, 1), (6, 3, 4, 1, 4)]
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    before, now = (evaluate(each, "main", *arrays) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-5)


def test_zeros_for_weights_that_are_no_numbers() -> None:
    text = """
func @main(x: float32[6, 5, 4], y: float32[6, 5, 4], z: float32[6, 5, 4], m: float32[5, 5]) {
k = permute_dims(y) {axes=(0, 2, 1)}
s = matmul(x, k)
e = add(s, m)
w = softmax(e)
i = isnan(w)
u = where(i, float32(0.0), w)
r = matmul(u, z)
r
}"""
    module = InferTypes()(parse_module(text))
    after = DeadCode(("main",))(Recognise(COSTS)(module))
    assert "attention(x, y, z, m) {nan_to_zero=true}" in print_module(after)
    arrays = [np.random.default_rng(0).standard_normal((6, 5, 4)).astype(np.float32) for _ in "xyz"]
    mask = np.zeros((5, 5), np.float32)
    mask[2] = -np.inf
    before, now = (evaluate(each, "main", *arrays, mask) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-5)


_MERGED = """
func @main(x: float32[b, l, 3, 4], y: float32[b, m, 3, 4], z: float32[b, m, 3, 4],
           n: float32[b, 1, l, m], o: float32[b * 3, 1, m]) {
q = permute_dims(x) {axes=(0, 2, 1, 3)}
k = permute_dims(y) {axes=(0, 2, 1, 3)}
v = permute_dims(z) {axes=(0, 2, 1, 3)}
q3 = reshape(q) {shape=(<b * 3>, <l>, 4)}
k3 = reshape(k) {shape=(<b * 3>, <m>, 4)}
v3 = reshape(v) {shape=(<b * 3>, <m>, 4)}
half = multiply(q3, float32(0.5))
turned = permute_dims(k3) {axes=(0, 2, 1)}
s = matmul(half, turned)
SCORES
w = softmax(e) {axis=2}
r = matmul(w, v3)
apart = reshape(r) {shape=(<b>, 3, <l>, 4)}
last = permute_dims(apart) {axes=(0, 2, 1, 3)}
last
}"""


@pytest.mark.parametrize(
    "scores",
    [
        "a = reshape(s) {shape=(<b>, 3, <l>, <m>)}\nc = add(a, n)\ne = reshape(c) {shape=(<b * 3>, <l>, <m>)}",
        "e = add(s, o)",
        "e = multiply(s, float32(0.5))",
    ],
)
def test_heads_that_are_merged_with_the_batch_are_those_of_attention(scores: str) -> None:
    module = InferTypes()(parse_module(_MERGED.replace("SCORES", scores)))
    split = DeadCode(("main",))(SplitBatches()(module))
    after = DeadCode(("main",))(Recognise(COSTS)(split))
    printed = print_module(after)
    assert "= attention(x, y, z" in printed
    assert "result_axes=(0, 2, 1, 3)" in printed
    assert "permute_dims" not in printed
    random, sizes = np.random.default_rng(0), [(2, 5, 3, 4), (2, 7, 3, 4), (2, 7, 3, 4), (2, 1, 5, 7), (6, 1, 7)]
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in sizes]
    before, now = (evaluate(each, "main", *arrays) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-5)


def test_keys_that_are_merged_with_the_batch_to_be_transposed_are_those_of_attention() -> None:
    module = InferTypes()(
        parse_module("""func @main(x: float32[1, b, 3, l, 4], y: float32[1, b, 3, m, 4], z: float32[b, 3, m, 4]) {
q = reshape(x) {shape=(<b>, 3, <l>, 4)}
k = reshape(y) {shape=(<b * 3>, <m>, 4)}
t = permute_dims(k) {axes=(0, 2, 1)}
u = reshape(t) {shape=(<b>, 3, 4, <m>)}
a = multiply(q, float32(0.5))
c = multiply(u, float32(0.5))
s = matmul(a, c)
w = softmax(s)
r = matmul(w, z)
r
}""")
    )
    after = DeadCode()(Recognise(COSTS)(SplitBatches()(module)))
    assert "= attention(q, reshape, z) {scale=0.25}" in print_module(after)
    sizes = (1, 2, 3, 5, 4), (1, 2, 3, 7, 4), (2, 3, 7, 4)
    arrays = [np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in sizes]
    before, now = (evaluate(each, "main", *arrays) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-5)


def test_heads_of_sizes_that_nothing_names_stay_as_they_are() -> None:
    module = parse_module(
        "func @main(x: float32[b, 3, ?, 4], y: float32[b, 3, 4, ?]) {\ns = matmul(x, y)\na = add(s, s)\nw = softmax(a)\nw\n}"
    )
    module = InferTypes()(module)
    assert print_module(Recognise(COSTS)(SplitBatches()(module))) == print_module(module)


_JOINED = {
    "taken": """
a = reshape(x) {shape=(2, 5, 3, 4, 6)}
t = permute_dims(a) {axes=(2, 0, 3, 1, 4)}
q = take(t, int64(0))
k = take(t, int64(1))
v = take(t, int64(-1))
""",
    "squeezed": """
a = reshape(x) {shape=(2, 5, 3, 4, 6)}
t = permute_dims(a) {axes=(0, 3, 2, 1, 4)}
p = split(t) {axis=2, sizes=(1, 1, 1)}
e = p[0]
f = p[1]
g = p[2]
q = squeeze(e) {axes=(2,)}
k = squeeze(f) {axes=(-3,)}
v = squeeze(g) {axes=(2,)}
""",
    "in runs": """
p = split(x) {axis=-1, sizes=(24, 24, 24)}
e = p[0]
f = p[1]
g = p[2]
h = reshape(e) {shape=(2, 5, 4, 6)}
i = reshape(f) {shape=(2, 5, 4, 6)}
j = reshape(g) {shape=(2, 5, 4, 6)}
q = permute_dims(h) {axes=(0, 2, 1, 3)}
k = permute_dims(i) {axes=(0, 2, 1, 3)}
v = permute_dims(j) {axes=(0, 2, 1, 3)}
""",
    "in unequal runs": """
p = split(x) {axis=-1, sizes=(24, 12, 12, 24)}
e = p[0]
f = p[1]
g = p[2]
n = p[3]
h = reshape(e) {shape=(2, 5, 4, 6)}
m = concat(f, g) {axis=-1}
i = reshape(m) {shape=(2, 5, 4, 6)}
j = reshape(n) {shape=(2, 5, 4, 6)}
q = permute_dims(h) {axes=(0, 2, 1, 3)}
k = permute_dims(i) {axes=(0, 2, 1, 3)}
v = permute_dims(j) {axes=(0, 2, 1, 3)}
""",
    "with rows apart": """
a = reshape(x) {shape=(2, 5, 4, 6, 3)}
t = permute_dims(a) {axes=(4, 0, 2, 1, 3)}
q = take(t, int64(0))
k = take(t, int64(1))
v = take(t, int64(2))
""",
}


@pytest.mark.parametrize("way", _JOINED)
def test_attention_reads_queries_keys_and_values_where_one_product_left_them(way: str) -> None:
    bindings = _JOINED[way].strip()
    bindings += "\nc = permute_dims(k) {axes=(0, 1, 3, 2)}\ns = matmul(q, c)\nw = softmax(s)\nr = matmul(w, v)"
    module = InferTypes()(parse_module(f"func @main(x: float32[2, 5, 72]) {{\n{bindings}\nr\n}}"))
    after = InferTypes()(DeadCode(("main",))(Recognise(COSTS)(module)))
    printed = print_module(after)
    assert "= attention(" in printed
    assert ("_part=" in printed) == (way not in ("in unequal runs", "with rows apart"))
    x = np.random.default_rng(0).standard_normal((2, 5, 72)).astype(np.float32)
    before, now = (evaluate(each, "main", x) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-5)


_ROTARY = """
a = slice(x) {starts=(0,), ends=(3,), axes=(-1,)}
b = slice(x) {starts=(3,), ends=(9223372036854775807,), axes=(2,), steps=(1,)}
m = negative(b)
t = concat(m, a) {axis=-1}
p = multiply(t, sine)
q = multiply(x, cosine)
r = add(q, p)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("add(q, p)", "add(p, q)"),
        ("multiply(x, cosine)", "multiply(cosine, x)"),
        ("starts=(0,), ends=(3,)", "starts=(1,), ends=(4,)"),
        ("slice(x) {starts=(3,)", "slice(cosine) {starts=(3,)"),
        ("starts=(0,), ends=(3,), axes=(-1,)", "starts=(0,), ends=(5,), axes=(-1,), steps=(2,)"),
        ("concat(m, a)", "concat(a, m)"),
    ],
)
def test_recognise_rotary(old: str, new: str) -> None:
    """The halves, the second one negated, may stand in no other way."""
    signature = "x: float32[2, 4, 6], cosine: float32[2, 4, 6], sine: float32[4, 6]"
    text = _ROTARY.strip().replace(old, new) if old else _ROTARY.strip()
    module = InferTypes()(parse_module(f"func @main({signature}) {{\n{text}\nr\n}}"))
    after = DeadCode(("main",))(Recognise(COSTS)(module))
    is_rotary = old in ("", "add(q, p)", "multiply(x, cosine)")
    assert ("rotary(x, cosine, sine)" in print_module(after)) == is_rotary
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 6), (2, 4, 6), (4, 6))]
    before, now = (evaluate(each, "main", *arrays) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("split", "is_rotary"),
    [("axis=-1, sizes=(3, 3)", True), ("axis=2, sizes=(3, 3)", True), ("axis=-1, sizes=(2, 4)", False)],
)
def test_recognise_rotary_among_halves_of_a_split(split: str, is_rotary: bool) -> None:
    signature = "x: float32[2, 4, 6], cosine: float32[2, 4, 6], sine: float32[4, 6]"
    halves = f"h = split(x) {{{split}}}\na = h[0]\nb = h[1]\nm"
    text = halves + _ROTARY.strip().partition("\nm")[2]
    module = InferTypes()(parse_module(f"func @main({signature}) {{\n{text}\nr\n}}"))
    after = DeadCode(("main",))(Recognise(COSTS)(module))
    assert ("rotary(x, cosine, sine)" in print_module(after)) == is_rotary
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 6), (2, 4, 6), (4, 6))]
    before, now = (evaluate(each, "main", *arrays) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-6)


_GROUPED = """
a = expand_dims(y) {axes=(2,)}
b = broadcast_to(a) {shape=(2, 2, 3, <n>, 6)}
c = reshape(b) {shape=(2, 6, <n>, 6)}
k = permute_dims(c) {axes=(0, 1, 3, 2)}
d = reshape(z) {shape=(2, 2, 1, <n>, 6)}
e = broadcast_to(d) {shape=(2, 2, 3, <n>, 6)}
v = reshape(e) {shape=(2, 6, <n>, 6)}
s = matmul(x, k)
w = softmax(s)
r = matmul(w, v)
"""


@pytest.mark.parametrize("axis", [2, 1])
def test_recognise_heads_that_share_keys_and_values(axis: int) -> None:
    """Heads that repeat in turns (0, 1, 0, 1 …) are another thing."""
    text = _GROUPED if axis == 2 else _GROUPED.replace("axes=(2,)", "axes=(1,)").replace("2, 2, 3", "2, 3, 2")
    text = text if axis == 2 else text.replace("(2, 2, 1,", "(2, 1, 2,")
    signature = "x: float32[2, 6, 4, 6], y: float32[2, 2, n, 6], z: float32[2, 2, n, 6]"
    module = InferTypes()(parse_module(f"func @main({signature}) {{\n{text.strip()}\nr\n}}"))
    after = DeadCode(("main",))(Recognise(COSTS)(module))
    assert ("attention(x, y, z) {repeat=3}" in print_module(after)) == (axis == 2)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in ((2, 6, 4, 6), (2, 2, 5, 6), (2, 2, 5, 6))]
    before, now = (evaluate(each, "main", *arrays) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("depth", ["n", 300])
def test_attention_of_rows_that_no_kernel_takes_stays_in_parts(depth: str | int) -> None:
    text = "k = permute_dims(x) {axes=(0, 2, 1)}\ns = matmul(x, k)\nw = softmax(s)\nr = matmul(w, x)"
    module = InferTypes()(parse_module(f"func @main(x: float32[2, 6, {depth}]) {{\n{text}\nr\n}}"))
    assert "attention" not in print_module(Recognise(COSTS)(module))


def _normalized(shape: tuple[int, ...], view: tuple[int, ...], *, factor: tuple[int, ...] = (6, 1, 1)) -> ir.Module:
    """What exporters make of group normalisation, where `view` is [N, groups, -1]; `factor` is the shape of its scale."""
    random = np.random.default_rng(4)
    x = var("x", shape)
    vectors = (constant(random.standard_normal(view[1]).astype(np.float32)) for _ in range(2))
    y = op.reshape(op.instance_normalization(op.reshape(x, shape=view), *vectors), shape=shape)
    y = op.multiply(constant(random.standard_normal(factor).astype(np.float32)), y)
    return infer_types(
        Module(main=function([x], op.add(y, constant(random.standard_normal((6, 1, 1)).astype(np.float32)))))
    )


@pytest.mark.parametrize(
    ("module", "operators"),
    [
        (_normalized((2, 6, 4, 2), (2, 3, 16)), ["group_normalization"]),
        (_normalized((2, 6, 4, 2), (2, 3, 16), factor=(2, 1, 1, 1)), ["group_normalization", "multiply", "add"]),
        (
            _normalized((2, 6, 4, 2), (1, 3, 32)),
            ["reshape", "instance_normalization", "reshape", "multiply", "add"],
        ),
    ],
)
def test_recognise_group_normalization(module: ir.Module, operators: list[str]) -> None:
    after = DeadCode(("main",))(Recognise(COSTS)(module))
    assert [binding.value.operator for binding in after.functions["main"].body.bindings] == operators
    x = np.random.default_rng(0).standard_normal((2, 6, 4, 2)).astype(np.float32)
    np.testing.assert_allclose(evaluate(after, "main", x), evaluate(module, "main", x), rtol=1e-5, atol=1e-5)


def test_a_target_without_the_kernel_keeps_attention_as_it_stands() -> None:
    types = ", ".join(f"{name}: float32[2, 3, 8]" for name in "qkv")
    steps = "t = permute_dims(k) {axes=(0, 2, 1)}\ns = matmul(q, t)\nw = softmax(s)\nr = matmul(w, v)\nr"
    module = InferTypes()(parse_module(f"func @main({types}) {{\n{steps}\n}}"))
    assert "attention" in print_module(Recognise(COSTS)(module))
    assert "attention" not in print_module(Recognise(Costs())(module))
