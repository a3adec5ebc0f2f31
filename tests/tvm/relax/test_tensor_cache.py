"""`vm.builtin.ndarray_cache`: what TVM's test_runtime_builtin.py checks of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm.contrib import tvmjs


def builtin(name: str):
    return tvm.get_global_func(f"vm.builtin.{name}")


def test_parameters_are_taken_from_a_folder(tmp_path: Path) -> None:
    params = {"x_0": np.array([1, 2, 3], np.int32), "x_1": np.full((2, 2), 0.1, np.float32)}
    tvmjs.dump_ndarray_cache(params, str(tmp_path), encode_format="raw")
    tvmjs.dump_ndarray_cache({"x_2": params["x_0"] + 1}, str(tmp_path), encode_format="raw", update_if_exists=True)
    builtin("ndarray_cache.load")(str(tmp_path), tvm.cpu().device_type, 0)
    found = [value.numpy() for value in builtin("param_array_from_cache")("x", -1)]
    for value, expected in zip(found, [params["x_0"], params["x_1"], params["x_0"] + 1], strict=True):
        assert np.array_equal(value, expected)
    assert len(builtin("param_array_from_cache")("x", 2)) == 2
    assert np.array_equal(builtin("param_array_from_cache_by_name")(["x_1"])[0].numpy(), params["x_1"])
    with pytest.raises(ValueError, match="Cannot find parameter x_3"):
        builtin("param_array_from_cache")("x", 4)
    with pytest.raises(ValueError, match="Cannot find parameters y, z"):
        builtin("param_array_from_cache_by_name")(["y", "x_0", "z"])
    arrays, _ = tvmjs.load_ndarray_cache(str(tmp_path / "ndarray-cache.json"), tvm.cpu())
    assert np.array_equal(arrays["x_0"].numpy(), params["x_0"])
    builtin("tensor_cache.clear")()
    assert len(builtin("param_array_from_cache")("x", -1)) == 0


def test_tensors_are_put_in_and_taken_out() -> None:
    first, second = tvm.nd.array(np.zeros(1)), tvm.nd.array(np.ones(1))
    builtin("ndarray_cache.update")("a", first, False)
    builtin("ndarray_cache.update")("a", second, False)
    assert builtin("ndarray_cache.get")("a") == first
    builtin("ndarray_cache.update")("a", second, True)
    assert builtin("tensor_cache.get")("a") == second
    builtin("ndarray_cache.remove")("a")
    assert builtin("ndarray_cache.get")("a") is None
