"""A batch that is symbolic, of models that were exported with one size of it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper
from treadle.compiler.onnx.importer import from_onnx
from treadle.formats.messages.errors import CompileError, ModelError, UnsupportedOperatorError
from treadle.tools.dev.fuzz.random_onnx.judges import exact_session
from treadle.tools.dev.zoo.bert import bert
from treadle.tools.dev.zoo.catalogue import CATALOGUE, Entry, inputs
from treadle.tools.dev.zoo.recurrent import recurrent
from treadle.tools.dev.zoo.vit import vit

BATCHES = (1, 2, 3, 7)
_RNG = np.random.default_rng(21)


def model(nodes, shape=(1, 4), *, constants=None, outputs=("y",), name="x", opset=18):
    """A model of one input; nodes are (operator, inputs, outputs, attributes)."""
    graph = helper.make_graph(
        [helper.make_node(op, list(ins), list(outs), f"node_{outs[0]}", **rest) for op, ins, outs, rest in nodes],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(output) for output in outputs],
        [numpy_helper.from_array(np.asarray(array), key) for key, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def results(function, arrays):
    found = function(*arrays)
    return [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]


def assert_rows(proto, entry=None, *, rtol=1e-4, **options):
    """Row k of the batched program is what onnxruntime gives for row k, of the model as it was exported."""
    entry = entry or Entry("test", lambda: proto)
    batch = treadle.Batch("rows")
    many = treadle.VirtualMachine(treadle.compile(proto, batch=batch, progress=False, **options))["main"]
    one = exact_session(proto.SerializeToString())
    rows = [inputs(entry, proto, number) for number in range(max(BATCHES))]
    expected = [one.run(None, row) for row in rows]
    for count in BATCHES:
        joined = [np.concatenate([row[name] for row in rows[:count]]) for name in rows[0]]
        for place, result in enumerate(results(many, joined)):
            wanted = np.concatenate([row[place] for row in expected[:count]])
            np.testing.assert_allclose(result, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())
    return batch


def refusal(proto, **options):
    with pytest.raises(UnsupportedOperatorError) as caught:
        from_onnx(proto, batch=treadle.Batch("n"), **options)
    return str(caught.value)


# ---- the networks of the race ----


@pytest.mark.parametrize("name", CATALOGUE)
def test_each_row_of_a_batch_is_what_the_exported_network_gives(name):
    entry = CATALOGUE[name]
    assert_rows(entry.build(), entry)


# ---- what exporters write down ----


def test_a_flatten_that_was_written_down_is_reported_by_its_node():
    proto = model([("Reshape", ("x", "shape"), ("y",), {})], (1, 2, 3), constants={"shape": np.array([1, 6])})
    batch = assert_rows(proto)
    assert str(batch) == "batch rows: 1 node changed\n  node_y: its shape [1, 6] becomes [rows, 6]"


@pytest.mark.parametrize("target", [[1, -1], [-1, 6], [0, 6], [1, 6]])
def test_every_way_to_write_a_flatten_is_the_same(target):
    proto = model([("Reshape", ("x", "shape"), ("y",), {})], (1, 2, 3), constants={"shape": np.array(target)})
    assert_rows(proto)


def test_a_rest_that_took_the_batch_gives_it_back():
    """[-1, 12] of a batch of one, by an exporter that meant one row."""
    proto = model(
        [("Reshape", ("x", "flat"), ("f",), {}), ("Softmax", ("f",), ("y",), {"axis": -1})],
        (1, 3, 4),
        constants={"flat": np.array([-1, 12])},
    )
    assert_rows(proto)


def test_heads_merged_with_the_batch_are_parted_again():
    nodes = [
        ("Reshape", ("x", "merged"), ("m",), {}),
        ("Transpose", ("m",), ("t",), {"perm": [0, 2, 1]}),
        ("MatMul", ("m", "t"), ("s",), {}),
        ("Softmax", ("s",), ("p",), {"axis": -1}),
        ("MatMul", ("p", "m"), ("v",), {}),
        ("Reshape", ("v", "parted"), ("y",), {}),
    ]
    constants = {"merged": np.array([3, 5, 4]), "parted": np.array([1, 3, 5, 4])}
    assert len(assert_rows(model(nodes, (1, 3, 5, 4), constants=constants)).changes) == 2


def test_a_constant_for_merged_heads_is_repeated_for_each_row():
    bias = _RNG.standard_normal((3, 5, 4)).astype(np.float32)
    nodes = [
        ("Reshape", ("x", "m"), ("a",), {}),
        ("Add", ("a", "bias"), ("b",), {}),
        ("Reshape", ("b", "p"), ("y",), {}),
    ]
    constants = {"m": np.array([3, 5, 4]), "p": np.array([1, 3, 5, 4]), "bias": bias}
    assert_rows(model(nodes, (1, 3, 5, 4), constants=constants))


def test_the_batch_is_followed_through_the_middle_of_an_axis():
    """[steps, batch, features] flattened to rows and back: steps stand outside of the batch."""
    nodes = [
        ("Transpose", ("x",), ("t",), {"perm": [1, 0, 2]}),
        ("Reshape", ("t", "flat"), ("f",), {}),
        ("Relu", ("f",), ("r",), {}),
        ("Reshape", ("r", "back"), ("b",), {}),
        ("Transpose", ("b",), ("y",), {"perm": [1, 0, 2]}),
    ]
    assert_rows(model(nodes, (1, 5, 4), constants={"flat": np.array([5, 4]), "back": np.array([5, 1, 4])}))


def test_a_class_token_that_was_expanded_is_repeated():
    token = _RNG.standard_normal((1, 1, 4)).astype(np.float32)
    nodes = [("Expand", ("token", "shape"), ("t",), {}), ("Concat", ("t", "x"), ("y",), {"axis": 1})]
    assert_rows(model(nodes, (1, 5, 4), constants={"token": token, "shape": np.array([1, 1, 4])}))


def test_a_slice_up_to_the_exported_batch_takes_all_rows():
    constants = {"starts": np.array([0, 1]), "ends": np.array([1, 3]), "axes": np.array([0, 1])}
    batch = assert_rows(model([("Slice", ("x", "starts", "ends", "axes"), ("y",), {})], constants=constants))
    assert [change.node for change in batch.changes] == ["node_y"]


def test_a_split_and_a_tile_beside_the_batch_keep_it():
    nodes = [("Split", ("x", "sizes"), ("a", "b"), {"axis": 1}), ("Tile", ("a", "times"), ("y",), {})]
    assert_rows(model(nodes, constants={"sizes": np.array([1, 3]), "times": np.array([1, 2])}))


@pytest.mark.parametrize("axes", [[0, 3], [1], [-1, 2]])
def test_new_axes_on_either_side_of_the_batch_keep_it(axes):
    nodes = [("Unsqueeze", ("x", "new"), ("u",), {}), ("Squeeze", ("u", "new"), ("y",), {})]
    assert_rows(model(nodes, constants={"new": np.array(axes)}))


def test_an_exported_batch_of_four_becomes_symbolic_as_well():
    nodes = [("Reshape", ("x", "shape"), ("f",), {}), ("Add", ("f", "zeros"), ("y",), {})]
    constants = {"shape": np.array([4, 6]), "zeros": np.full((4, 6), 0.5, np.float32)}
    module = from_onnx(model(nodes, (4, 2, 3), constants=constants), batch=treadle.Batch("n"))
    assert str(module.functions["main"].body.result.type) == "float32[n, 6]"


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
def test_states_that_were_written_down_are_repeated(cell):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[cell]
    weights = {"w": _RNG.standard_normal((1, gates * 8, 4)), "r": _RNG.standard_normal((1, gates * 8, 8))}
    constants = {key: (array / 4).astype(np.float32) for key, array in weights.items()}
    constants["state"] = _RNG.standard_normal((1, 1, 8)).astype(np.float32)
    states = ["", "", "state", *(["state"] if cell == "LSTM" else [])]
    nodes = [
        ("Transpose", ("x",), ("t",), {"perm": [1, 0, 2]}),
        (cell, ("t", "w", "r", *states), ("all", "last"), {"hidden_size": 8}),
        ("Squeeze", ("last", "zero"), ("y",), {}),
    ]
    batch = assert_rows(model(nodes, (1, 5, 4), constants=constants | {"zero": np.array([0])}))
    assert batch.changes


def test_a_detection_head_keeps_its_anchors():
    grid = _RNG.standard_normal((1, 3, 2, 4, 4)).astype(np.float32)
    nodes = [
        ("Reshape", ("x", "parted"), ("a",), {}),
        ("Transpose", ("a",), ("b",), {"perm": [0, 1, 3, 4, 2]}),
        ("Sigmoid", ("b",), ("c",), {}),
        ("Split", ("c", "sizes"), ("xy", "rest"), {"axis": -1}),
        ("Add", ("xy", "grid"), ("moved",), {}),
        ("Concat", ("moved", "rest"), ("d",), {"axis": -1}),
        ("Reshape", ("d", "flat"), ("y",), {}),
    ]
    constants = {
        "parted": np.array([1, 3, 7, 4, 4]),
        "sizes": np.array([2, 5]),
        "grid": np.ascontiguousarray(grid.transpose(0, 1, 3, 4, 2)),
        "flat": np.array([1, -1, 7]),
    }
    assert_rows(model(nodes, (1, 21, 4, 4), constants=constants))


def test_the_last_token_of_each_row_is_taken_by_its_own_index():
    """x[arange(batch), argmax]: exporters write the row's number as a constant 0."""
    nodes = [
        ("ArgMax", ("x",), ("i",), {"axis": 1, "keepdims": 0}),
        ("Gather", ("i", "zero"), ("one",), {"axis": 1}),
        ("Unsqueeze", ("one", "last"), ("index",), {}),
        ("Concat", ("row", "index"), ("indices",), {"axis": 1}),
        ("GatherND", ("x", "indices"), ("y",), {}),
    ]
    constants = {"zero": np.array(0), "last": np.array([-1]), "row": np.array([[0]])}
    assert_rows(model(nodes, (1, 5, 4), constants=constants))


def test_small_transformers_and_recurrent_networks_of_other_seeds_hold_too():
    for proto in (vit(size=32, seed=5), bert(1, 32, 2, vocabulary=1000, length=8, seed=6), recurrent("GRU", seed=7)):
        assert_rows(proto)


def test_shapes_say_where_the_batch_is():
    proto = model([("ReduceMean", ("x", "axes"), ("y",), {})], (5, 1, 4), constants={"axes": np.array([0])})
    module = from_onnx(proto, shapes={"x": (5, "n", 4)}, batch=treadle.Batch("n"))
    assert str(module.functions["main"].body.result.type) == "float32[1, n, 4]"


# ---- what cannot be ----

_AXIS_0 = {"zero": np.array([0])}


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "why"),
    [
        ([("ReduceMean", ("x", "zero"), ("y",), {})], (1, 4), _AXIS_0, "reduces over axis 0 of float32[n, 4]"),
        ([("Softmax", ("x",), ("y",), {"axis": 0})], (1, 4), {}, "works over axis 0"),
        ([("Squeeze", ("x", "zero"), ("y",), {})], (1, 4), _AXIS_0, "drops axis 0 of float32[n, 4]"),
        ([("Gather", ("x", "i"), ("y",), {})], (1, 4), {"i": np.array(0)}, "takes single rows of axis 0"),
        ([("Concat", ("x", "x"), ("y",), {"axis": 0})], (1, 4), {}, "joins tensors along axis 0"),
        ([("Add", ("x", "c"), ("y",), {})], (2, 2), {"c": np.eye(2, dtype=np.float32)}, "a row of its own for each of the 2"),
        ([("Add", ("x", "c"), ("y",), {})], (1, 2), {"c": np.eye(2, dtype=np.float32)}, "would not meet row by row"),
        ([("Reshape", ("x", "s"), ("y",), {})], (2, 6), {"s": np.array([3, 4])}, "mixes it with other axes"),
        ([("MatMul", ("x", "t"), ("y",), {}), ], (1, 4), {"t": np.ones((4, 2), np.float32)}, None),
        ([("Transpose", ("x",), ("t",), {}), ("MatMul", ("t", "x"), ("y",), {})], (1, 4), {}, "sums over the axis"),
        ([("NonZero", ("x",), ("y",), {})], (1, 4), {}, "how many a row has is not known"),
    ],
)  # fmt: skip
def test_what_would_mix_rows_is_refused_by_the_nodes_name(nodes, shape, constants, why):
    proto = model(nodes, shape, constants=constants)
    if why is None:
        assert_rows(proto)
        return
    message = refusal(proto)
    assert why in message
    assert f"(node_{nodes[-1][2][0]})" in message


def test_batch_normalization_in_training_mode_is_refused():
    ones = dict.fromkeys(("scale", "bias", "mean", "var"), np.ones(3, np.float32))
    node = ("BatchNormalization", ("x", *ones), ("y", "m", "v"), {"training_mode": 1})
    assert "node_y" in refusal(model([node], (1, 3, 4, 4), constants=ones))


def test_all_that_is_refused_is_listed_at_once():
    nodes = [("ReduceMax", ("x", "zero"), ("a",), {}), ("ReduceMin", ("x", "zero"), ("b",), {})]
    message = refusal(model(nodes, constants=_AXIS_0, outputs=("a", "b")))
    assert "2 nodes are not supported" in message


def test_inputs_of_different_batches_are_told():
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"], "sum")],
        "g",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("a", (2, 4)), ("b", (1, 4)))
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    with pytest.raises(ModelError, match="batches of different sizes"):
        from_onnx(helper.make_model(graph), batch=treadle.Batch("n"))


@pytest.mark.parametrize("wrong", [1, "2n", "", "n + 1", None.__class__])
def test_a_batch_that_is_no_name_is_refused(wrong):
    with pytest.raises(CompileError, match="batch"):
        treadle.compile(model([("Relu", ("x",), ("y",), {})]), batch=wrong)


# ---- which node forces which symbol ----


def test_the_node_that_leaves_a_symbol_one_size_is_told():
    proto = model([("Reshape", ("x", "shape"), ("y",), {})], (1, 2, 3), constants={"shape": np.array([1, 6])})
    with pytest.warns(UserWarning, match=r"n can only be 1: node_y \(it reshapes float32\[n, 2, 3\] to \[1, 6\]\)"):
        treadle.compile(proto, shapes={"x": ("n", 2, 3)}, progress=False)


def test_sizes_in_whole_blocks_force_none(recwarn):
    """Any multiple of 8 is 8 * (n // 8)."""
    nodes = [
        ("Shape", ("x",), ("n",), {"end": 1}),
        ("Div", ("n", "eight"), ("blocks",), {}),
        ("Mul", ("blocks", "eight"), ("whole",), {}),
        ("Slice", ("x", "zero", "whole"), ("front",), {}),
        ("Add", ("x", "front"), ("y",), {}),
    ]
    constants = {"eight": np.array([8]), "zero": np.array([0])}
    executable = treadle.compile(model(nodes, ("n", 4), constants=constants), progress=False)
    assert not recwarn.list
    x = np.ones((16, 4), np.float32)
    assert np.array_equal(treadle.VirtualMachine(executable)["main"](x), x + x)


def test_sizes_by_which_nothing_can_be_divided_force_none(recwarn):
    """(n + 1) // n rows: what they would be for n = 0 is not asked."""
    nodes = [
        ("Shape", ("x",), ("n",), {"end": 1}),
        ("Add", ("n", "one"), ("more",), {}),
        ("Div", ("more", "n"), ("rows",), {}),
        ("Concat", ("rows", "four"), ("shape",), {"axis": 0}),
        ("Reshape", ("x", "shape"), ("y",), {}),
    ]
    constants = {"one": np.array([1]), "four": np.array([4])}
    executable = treadle.compile(model(nodes, ("n", 4), constants=constants), progress=False)
    assert not recwarn.list
    x = np.ones((2, 4), np.float32)
    with pytest.raises(treadle.TreadleError):
        treadle.VirtualMachine(executable)["main"](x)


def test_models_whose_sizes_are_free_are_compiled_in_silence(recwarn):
    treadle.compile(model([("Relu", ("x",), ("y",), {})]), shapes={"x": ("n", 4)}, progress=False)
    assert not recwarn.list


def test_the_command_line_says_what_it_changed(tmp_path, capsys):
    from treadle.tools.cli import main

    path = tmp_path / "m.onnx"
    proto = model([("Reshape", ("x", "shape"), ("y",), {})], (1, 2, 3), constants={"shape": np.array([1, 6])})
    onnx.save(proto, path)
    assert main(["compile", str(path), "-o", str(tmp_path / "m.trdl"), "--batch", "n"]) == 0
    assert "node_y: its shape [1, 6] becomes [n, 6]" in capsys.readouterr().err
    assert main(["compile", str(path), "-o", str(tmp_path / "f.trdl"), "--shape", "x=n,2,3"]) == 0
    assert "n can only be 1: node_y" in capsys.readouterr().err
