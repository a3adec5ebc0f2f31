"""What models of other times and tools have: old and future versions, domains that nobody imports, sparse weights, open ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper
from treadle.formats.messages.errors import CompileError, ModelError, UnsupportedOperatorError
from treadle.tools.dev.fuzz.random_onnx.judges import exact_session

ML = "ai.onnx.ml"
X = np.random.default_rng(0).standard_normal((2, 3, 4), np.float32)
IMAGES = np.random.default_rng(1).standard_normal((2, 3, 5, 6), np.float32)


def model(nodes: list, inputs: dict[str, Any], opset: int = 17, ir: int = 8, **more: Any) -> onnx.ModelProto:
    """`inputs`: shapes by name, None for any rank; floats, or (type, shape)."""
    infos = [
        helper.make_tensor_value_info(name, *(shape if isinstance(shape, tuple) else (TensorProto.FLOAT, shape)))
        for name, shape in inputs.items()
    ]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")], **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def relu(**versions: int) -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 3, 4]}, **versions)


def same(proto: onnx.ModelProto, *arrays: np.ndarray) -> None:
    """Treadle gives what onnxruntime does."""
    feeds = dict(zip((info.name for info in proto.graph.input), arrays, strict=True))
    (expected,) = exact_session(proto.SerializeToString()).run(None, feeds)
    found = np.asarray(treadle.VirtualMachine(treadle.compile(proto, progress=False)).call("main", (), feeds).numpy())
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_hardmax_before_13_sees_a_matrix(axis: int) -> None:
    same(model([helper.make_node("Hardmax", ["x"], ["y"], axis=axis)], {"x": ["n", 3, 4]}, opset=11), X)


EXPERIMENTS: list[tuple[str, dict[str, Any]]] = [
    ("Affine", {"alpha": 2.0, "beta": 3.0}),
    ("ScaledTanh", {"alpha": 2.0, "beta": 3.0}),
    ("ParametricSoftplus", {"alpha": 2.0, "beta": 3.0}),
    ("ImageScaler", {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}),
    ("Crop", {"border": [1, 2, 1, 0]}),
    ("Crop", {"border": [1, 2, 1, 1], "scale": [2, 3]}),
]


@pytest.mark.parametrize(("operator", "attributes"), EXPERIMENTS)
def test_experiments_of_early_opsets(operator: str, attributes: dict[str, Any]) -> None:
    same(model([helper.make_node(operator, ["x"], ["y"], **attributes)], {"x": ["n", 3, "h", "w"]}, opset=7), IMAGES)


def test_crops_beyond_an_image_and_numbers_of_channels_are_refused() -> None:
    for operator, attributes in (("Crop", {"border": [4, 4, 0, 0], "scale": [2, 3]}), ("ImageScaler", {"bias": [1.0]})):
        node = helper.make_node(operator, ["x"], ["y"], **attributes)
        with pytest.raises(ModelError, match=operator):
            treadle.compile(model([node], {"x": [1, 3, 5, 6]}, opset=7), progress=False)


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({"opset": 99}, r"version 99 of ai.onnx; expected one of 1 to \d+, which the package onnx"),
        ({"opset": 0}, "version 0 of ai.onnx"),
        ({"ir": 99}, r"version 99 of the format \(ir_version\)"),
    ],
)
def test_versions_that_do_not_exist_are_refused(versions: dict[str, int], told: str) -> None:
    with pytest.raises(ModelError, match=told):
        treadle.compile(relu(**versions), progress=False)


def test_onnxruntimes_operators_need_no_import() -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], "the node", domain="com.microsoft")
    with pytest.warns(UserWarning, match="imports no version of the operators of com.microsoft.*: Gelu the node"):
        same(model([node], {"x": ["n", 3, 4]}), X)
    node.op_type = "NoSuch"
    with pytest.raises(UnsupportedOperatorError, match="NoSuch"):
        treadle.compile(model([node], {"x": ["n", 3, 4]}), progress=False)


def sparse(dims: list[int], indices: Any, name: str = "w") -> onnx.SparseTensorProto:
    places = np.array(indices, np.int64)
    values = np.arange(1, len(places) + 1, dtype=np.float32)
    tensors = (numpy_helper.from_array(each, name + kind) for each, kind in ((values, ""), (places, "_indices")))
    return helper.make_sparse_tensor(*tensors, dims)


PRODUCT = helper.make_node("MatMul", ["x", "w"], ["y"])


@pytest.mark.parametrize("indices", [[1, 4, 11], [[0, 1], [2, 2], [3, 0]]])
def test_sparse_weights(indices: Any) -> None:
    """As initialisers, and as a node's value."""
    tensor = sparse([4, 3], indices)
    same(model([PRODUCT], {"x": ["n", 3, 4]}, sparse_initializer=[tensor]), X)
    node = helper.make_node("Constant", [], ["w"], sparse_value=tensor)
    same(model([node, PRODUCT], {"x": ["n", 3, 4]}), X)


@pytest.mark.parametrize(
    ("dims", "indices", "told"),
    [
        ([4, 3], [12], "an index is outside"),
        ([4, 3], [-1], "an index is outside"),
        ([4, 3], [[0, 3]], "an index is outside"),
        ([4, 3], [[0, 0, 0]], r"expected values \[n\] and int64 indices \[n\] or \[n, 2\]"),
        ([1 << 40, 1 << 40], [0], "impossible shape"),
        ([1 << 35], [0], "takes 137438953472 bytes, more than the model's size explains"),
    ],
)
def test_sparse_weights_that_are_none(dims: list[int], indices: Any, told: str) -> None:
    with pytest.raises(CompileError, match=told):
        treadle.compile(
            model([PRODUCT], {"x": ["n", 3, 4]}, sparse_initializer=[sparse(dims, indices)]), progress=False
        )


def test_inputs_of_any_rank() -> None:
    """One executable for all ranks that suit the nodes; `shapes` says one."""
    proto = model([helper.make_node("Neg", ["x"], ["z"]), helper.make_node("Exp", ["z"], ["y"])], {"x": None})
    machine = treadle.VirtualMachine(treadle.compile(proto, progress=False))
    session = exact_session(proto.SerializeToString())
    for x in (X, X[0], X[0, 0], IMAGES):
        np.testing.assert_allclose(machine["main"](x).numpy(), session.run(None, {"x": x})[0], rtol=1e-5)
    executable = treadle.compile(proto, shapes={"x": ("a", "b")}, progress=False, embed_native=False)
    assert executable.inputs()[0].shape == ("a", "b")


def test_models_that_are_too_many_for_all_ranks_ask_for_one() -> None:
    """Ten sums of three inputs: 729 combinations each."""
    names = ["a", "b", "c", *(f"s{number}" for number in range(40))]
    nodes = [helper.make_node("Sum", names[i : i + 3], [names[i + 3]]) for i in range(40)]
    proto = model([*nodes, helper.make_node("Neg", [names[-1]], ["y"])], dict.fromkeys("abc"))
    with pytest.raises(CompileError, match=r"says no rank of 'a', 'b', 'c'.*shapes=\{'a': \('n', …\), …\} says one"):
        treadle.compile(proto, progress=False, embed_native=False)


def test_one_hot_codes_become_features() -> None:
    nodes = [
        helper.make_node("OneHotEncoder", ["x"], ["codes"], domain=ML, cats_int64s=[1, 2, 3]),
        helper.make_node("FeatureVectorizer", ["codes", "f"], ["y"], domain=ML, inputdimensions=[6, 2]),
    ]
    proto = model(nodes, {"x": (TensorProto.INT64, ["n", 2]), "f": ["n", 2]})
    proto.opset_import.append(helper.make_opsetid(ML, 2))
    same(proto, np.int64([[1, 2], [3, 3], [9, 1]]), np.ones((3, 2), np.float32))


@pytest.mark.parametrize("sizes", [(1, 5), (5, 1)])
def test_a_summed_letter_of_size_1_is_repeated(sizes: tuple[int, int]) -> None:
    a, b = np.ones((2, sizes[0]), np.float32), np.arange(sizes[1] * 3, dtype=np.float32).reshape(-1, 3)
    node = helper.make_node("Einsum", ["a", "b"], ["y"], equation="ik,kj->ij")
    same(model([node], {"a": list(a.shape), "b": list(b.shape)}), a, b)
