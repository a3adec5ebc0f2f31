"""Sizes of inputs that meet under other names, or without one: equal, or one of them 1, which the run tells."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
import treadle
from onnx import helper
from treadle.compiler import ir
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx
from treadle.formats.messages.errors import ShapeError
from treadle.tools.dev.fuzz.random_onnx.judges import exact_session

Shape = list["int | str"]


def model(operator: str, *inputs: tuple[str, Shape], **attributes: object) -> onnx.ModelProto:
    names = "abcde"[: len(inputs)]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, (dtype, shape) in zip(names, inputs, strict=True)
    ]
    node = helper.make_node(operator, [*names], ["y"], "the node", **attributes)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CASES: dict[str, tuple[str, list[tuple[str, Shape]], dict[str, str]]] = {
    "names": ("Mul", [("f", ["p", 3]), ("f", ["q", 3])], {}),
    "a number": ("Add", [("f", [2]), ("f", ["q"])], {}),
    "no names": ("Sub", [("f", ["", ""]), ("f", ["", ""])], {}),
    "three": ("Where", [("?", ["p", 2]), ("f", ["q", 2]), ("f", ["r", 1])], {}),
    "batches": ("MatMul", [("f", ["p", 2, 3]), ("f", ["q", 3, 2])], {}),
    "a zero point": ("MatMulInteger", [("u1", [2, 3]), ("u1", [3, "n"]), ("u1", []), ("u1", ["c"])], {}),
    "letters": ("Einsum", [("f", ["p", "q"]), ("f", ["r", 2])], {"equation": "ik,kj->ij"}),
}


@pytest.mark.parametrize("case", CASES)
def test_they_broadcast_as_in_onnxruntime(case: str) -> None:
    """Of all sizes of 1 and 4, those that onnxruntime takes give its results; others are refused."""
    operator, inputs, attributes = CASES[case]
    proto = model(operator, *inputs, **attributes)
    session = exact_session(proto.SerializeToString())
    machine = treadle.VirtualMachine(treadle.compile(proto, progress=False))
    open_axes = [
        (place, axis) for place, (_, shape) in enumerate(inputs) for axis, d in enumerate(shape) if isinstance(d, str)
    ]
    random = np.random.default_rng(0)
    taken = 0
    for sizes in itertools.product((1, 2, 3), repeat=len(open_axes)):
        shapes = [list(shape) for _, shape in inputs]
        for (place, axis), size in zip(open_axes, sizes, strict=True):
            shapes[place][axis] = size
        arrays = [
            random.integers(0, 2 if dtype == "?" else 9, shape).astype(dtype)
            for (dtype, _), shape in zip(inputs, shapes, strict=True)
        ]
        try:
            (expected,) = session.run(None, dict(zip("abcde", arrays, strict=False)))
        except Exception:
            with pytest.raises(ShapeError):
                machine["main"](*arrays)
        else:
            taken += 1
            found = machine["main"](*arrays).numpy()
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert taken > 1


def test_where_all_are_equal_the_code_is_that_of_equal_names() -> None:
    """Sizes are asked for once, where a call begins; in a model whose names agree they are not."""
    agreeing, other = (
        from_onnx(model("Mul", ("f", ["p", 3]), ("f", [name, 3]))).functions["main"].body.bindings for name in "pq"
    )
    assert not any(isinstance(binding.value, ir.If) for binding in agreeing)
    (choice,) = (binding.value for binding in other if isinstance(binding.value, ir.If))
    checks = [binding for binding in choice.then.bindings if isinstance(binding.value, ir.MatchShape)]
    assert len(checks) == 1
    assert len(choice.then.bindings) == len(agreeing) + len(checks)


def test_what_is_computed_of_one_size_broadcasts_as_names_do() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[p] x, float[q] y) => (float[?] z) '
        "{ twice = Concat<axis=0>(x, x) z = Mul(twice, y) }"
    )
    module = from_onnx(proto)
    for p, q in ((2, 4), (2, 1), (1, 2), (1, 1)):
        x, y = np.full(p, 3, np.float32), np.full(q, 2, np.float32)
        assert np.asarray(evaluate(module, "main", x, y)).tolist() == [6] * max(2 * p, q)


def test_what_is_computed_of_several_sizes_broadcasts_as_names_do() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[p] a, float[q] b, float[r] c) => (float[?] z) '
        "{ both = Concat<axis=0>(a, b) z = Mul(c, both) }"
    )
    machine = treadle.VirtualMachine(treadle.compile(proto, progress=False, embed_native=False))
    for p, q, r in itertools.product((0, 1, 2), (0, 1, 2), (0, 1, 2, 3, 4)):
        a, b, c = (np.full(size, value, np.float32) for size, value in ((p, 2), (q, 3), (r, 4)))
        both = np.concatenate([a, b])
        if p + q == r or 1 in (p + q, r):
            assert machine["main"](a, b, c).numpy().tolist() == (both * c).tolist()
        else:
            with pytest.raises(ShapeError):
                machine["main"](a, b, c)


@pytest.mark.parametrize("sizes", [("total", "?"), ("?", "total")])
def test_what_is_computed_of_several_sizes_meets_what_the_model_says(sizes: tuple[str, str]) -> None:
    """A mask of a total, and scores of past and new tokens: no version asks."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[past, 2] old, float[length, 2] new, float[total, 2] mask) '
        f"=> (float[{sizes[0]}, 2] keys, float[{sizes[1]}, 2] y) {{ keys = Concat<axis=0>(old, new) y = Add(keys, mask) }}"
    )
    assert not any(isinstance(binding.value, ir.If) for binding in from_onnx(proto).functions["main"].body.bindings)


def test_a_size_that_both_versions_hold_to_one_number_is_told() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[n, 2] x, float[p] a, float[q] b) => (float[1, 2] y, float[?] z) '
        "<int64[2] to = {1, 2}> { y = Reshape(x, to) z = Add(a, b) }"
    )
    with pytest.warns(UserWarning, match="n can only be 1: ") as told:
        treadle.compile(proto, progress=False, embed_native=False)
    assert not any("p can" in str(each.message) or "q can" in str(each.message) for each in told)
