"""Reading models: large weights are taken out of the bytes that protobuf sees, and nothing else changes."""

import sys

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from treadle.compiler.ir.text import print_module
from treadle.compiler.onnx.file import read_model, without_weights
from treadle.compiler.onnx.importer import from_onnx
from treadle.formats.messages.errors import ModelError
from treadle.tools.dev import zoo

MODEL = zoo.mlp((64, 48, 32))
BYTES = MODEL.SerializeToString()

pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="raw data are little-endian")


def parted(content):
    return without_weights(np.frombuffer(content, np.uint8))


def put_back(content):
    """The model of the bytes without weights, when these are where they were."""
    message, weights = parted(content)
    model = onnx.ModelProto.FromString(message)
    for position, raw in weights.items():
        model.graph.initializer[position].raw_data = raw.tobytes()
    return model


def with_tensor(tensor):
    y = helper.make_tensor_value_info("y", tensor.data_type, list(tensor.dims))
    graph = helper.make_graph([helper.make_node("Identity", [tensor.name], ["y"])], "g", [], [y], [tensor])
    return helper.make_model(graph)


def test_large_weights_are_parted_and_small_ones_stay():
    message, weights = parted(BYTES)
    sizes = [numpy_helper.to_array(tensor).nbytes for tensor in MODEL.graph.initializer]
    assert [position for position, size in enumerate(sizes) if size >= 4096] == list(weights)
    assert len(message) < len(BYTES) - sum(raw.nbytes for raw in weights.values())
    assert put_back(BYTES) == MODEL


def test_models_from_files_bytes_and_messages_are_one(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(BYTES)
    texts = {print_module(from_onnx(source)) for source in (path, str(path), BYTES, bytearray(BYTES), MODEL)}
    assert len(texts) == 1
    assert read_model(path).folder == tmp_path


def test_two_graphs_are_joined_as_protobuf_joins_them():
    assert put_back(BYTES + BYTES) == onnx.ModelProto.FromString(BYTES + BYTES)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int8, np.uint16, np.int64, bool, np.uint64])
def test_elements_of_every_plain_type(dtype):
    array = (np.arange(5000) % 2).astype(dtype).reshape(50, 100)
    model = with_tensor(numpy_helper.from_array(array, "w"))
    texts = {print_module(from_onnx(source)) for source in (model, model.SerializeToString())}
    assert len(texts) == 1


def test_other_forms_of_elements_stay():
    """Lists of numbers, and types that are packed or have no NumPy type."""
    listed = helper.make_tensor("w", TensorProto.FLOAT, [2000], np.ones(2000, np.float32).tolist())
    packed = helper.make_tensor("w", TensorProto.BFLOAT16, [4000], bytes(8000), raw=True)
    for tensor in (listed, packed):
        content = with_tensor(tensor).SerializeToString()
        assert parted(content) == (content, {})


def test_too_few_elements_are_an_error():
    tensor = numpy_helper.from_array(np.ones((50, 100), np.float32), "w")
    tensor.dims[0] = 51
    with pytest.raises(ModelError, match="'w'"):
        from_onnx(with_tensor(tensor).SerializeToString())


@settings(max_examples=300, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.binary(min_size=0, max_size=4))
def test_damaged_bytes_mean_what_protobuf_says(place, garbage):
    start = int(place * len(BYTES))
    damaged = BYTES[:start] + garbage + BYTES[start + len(garbage) :] if garbage else BYTES[:start]
    try:
        expected = onnx.ModelProto.FromString(damaged)
    except Exception:
        with pytest.raises(ModelError):
            read_model(damaged)
    else:
        assert put_back(damaged) == expected
