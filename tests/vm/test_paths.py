"""What takes the path of a file says which argument is none."""

import numpy as np
import pytest
import treadle
import treadle.tvm as tvm
from treadle.errors import ArgumentError
from treadle.tvm.files import tensor_cache
from treadle.tvm.modules.module import Module

TENSORS = {"a": np.zeros(1, np.float32)}
READERS = {
    "load_params: path": treadle.load_params,
    "load_module: path": tvm.runtime.load_module,
    "load_static_library: path": lambda path: tvm.runtime.load_static_library(path, []),
    "folder": tensor_cache.load,
}
WRITERS = {
    "save_params: path": lambda path: treadle.save_params(TENSORS, path),
    "path": lambda path: tvm.runtime.save_param_dict_to_file(TENSORS, path),
    "folder": lambda path: tensor_cache.save(TENSORS, path),
    "export_library: path": lambda path: Module().export_library(path),
    "save: file_name": lambda path: Module().save(path),
}
CALLS = [*READERS.items(), *WRITERS.items()]
WRONG = [5, None, 1.5, ["model"], b"model"]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize(("what", "call"), CALLS, ids=[what for what, _ in CALLS])
def test_what_is_no_path_is_an_error_that_names_the_argument(what, call, wrong):
    with pytest.raises(ArgumentError, match=f"^{what}: expected a path, got a value of type {type(wrong).__name__}"):
        call(wrong)


@pytest.mark.parametrize("wrong", [5, None, ["model"]], ids=repr)
@pytest.mark.parametrize("read", [tvm.relay.frontend.from_onnx, tvm.relax.frontend.onnx.from_onnx])
def test_what_is_no_model_is_an_error_that_names_the_argument(read, wrong):
    pytest.importorskip("onnx")
    with pytest.raises(ArgumentError, match=r"^model: expected a path, got a value of type"):
        read(wrong)
