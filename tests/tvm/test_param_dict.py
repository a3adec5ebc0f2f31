"""TVM's test_param_dict.py: parameters as bytes and in files."""

from pathlib import Path

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm import relay, runtime


def test_save_load() -> None:
    x, y = np.ones((10, 2), np.float32), np.ones((1, 2, 3), np.float32)
    data = runtime.save_param_dict({"x": x, "y": y})
    assert isinstance(data, bytearray)
    loaded = relay.load_param_dict(data)
    assert len(loaded) == 2
    np.testing.assert_array_equal(loaded["x"].numpy(), x)
    np.testing.assert_array_equal(loaded["y"].numpy(), y)
    assert runtime.load_param_dict(data.decode("latin-1")).keys() == {"x", "y"}


def test_one_tensor_under_two_names() -> None:
    x = tvm.nd.array(np.random.default_rng(0).random((10, 2), np.float32))
    loaded = relay.load_param_dict(relay.save_param_dict({"x": x, "y": x}))
    np.testing.assert_array_equal(loaded["x"].numpy(), x.numpy())
    np.testing.assert_array_equal(loaded["x"].numpy(), loaded["y"].numpy())


def test_files(tmp_path: Path) -> None:
    path = str(tmp_path / "weights.params")
    runtime.save_param_dict_to_file({"x": tvm.nd.array([1.0, 2.0])}, path)
    assert runtime.load_param_dict_from_file(path)["x"].dtype == "float64"
    assert runtime.load_param_dict_from_file(path)["x"].array.ctypes.data % 64 == 0


def test_what_is_no_parameter_file_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="cut short"):
        runtime.load_param_dict(b"")
    with pytest.raises(TypeError, match="expected bytes"):
        runtime.load_param_dict(3)
