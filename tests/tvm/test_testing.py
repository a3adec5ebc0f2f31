"""What TVM's own tests use, and sessions without a network."""

from pathlib import Path

import numpy as np
import pytest
import treadle.tvm as tvm


def test_values_are_compared() -> None:
    tvm.testing.assert_allclose(tvm.nd.array([1.0, 2.0]), [1.0, 2.0])
    with pytest.raises(AssertionError):
        tvm.testing.assert_allclose([1.0, 2.0], [1.0, 2.1])
    with pytest.raises(AssertionError):
        tvm.testing.assert_allclose([1.0, 1.0], [[1.0], [1.0]])


def test_values_come_back_from_the_other_side() -> None:
    assert tvm.testing.echo(np.int64((1 << 63) - 1)) == (1 << 63) - 1
    s = tvm.runtime.String("xyz")
    assert tvm.testing.echo(s).same_as(s)
    x = tvm.opencl(10)
    assert tvm.testing.device_test(x, x.device_type, x.device_id) == x


def test_errors_are_of_the_kind_that_their_text_names() -> None:
    with pytest.raises(NotImplementedError, match="myop"):
        tvm.testing.test_raise_error_callback("OpNotImplemented: myop")()
    with pytest.raises(tvm.error.InternalError, match="myop"):
        tvm.testing.test_check_eq_callback("InternalError: myop")(0, 1)
    with pytest.raises(ValueError, match=r"0 vs\. 1"):
        tvm.testing.ErrorTest(0, 1)


def test_a_deep_callback_keeps_its_frames() -> None:
    def inner() -> None:
        raise ValueError("callback error")

    wrapped = tvm.testing.test_wrap_callback(inner)
    with pytest.raises(ValueError, match="callback error") as caught:
        tvm.testing.test_wrap_callback(lambda: wrapped())()
    names = [entry.name for entry in caught.traceback if Path(str(entry.path)) == Path(__file__)]
    assert names == ["test_a_deep_callback_keeps_its_frames", "<lambda>", "inner"]


@tvm.testing.parametrize_targets
def test_targets_are_those_that_are_here(target: str, dev: tvm.runtime.Device) -> None:
    assert (target, dev) == ("llvm", tvm.cpu(0))


def test_targets_that_are_named_are_a_mark() -> None:
    mark = tvm.testing.parametrize_targets("llvm", "cuda")
    assert isinstance(mark, pytest.MarkDecorator)  # so a file may say it once: `pytestmark = …`
    assert [row.id for row in mark.args[1]] == ["llvm", "cuda"]
    assert [len(row.marks) for row in mark.args[1]] == [0, 1]


@tvm.testing.requires_gpu
def test_what_needs_a_gpu_is_skipped() -> None:
    raise AssertionError


@tvm.testing.requires_package("numpy")
def test_what_needs_a_package_that_is_here_runs() -> None:
    assert tvm.testing.device_enabled("llvm -mcpu=x")
    assert not tvm.testing.device_enabled("cuda")


sizes = tvm.testing.parameter(1, 2)


def test_parameters(sizes: int) -> None:
    assert sizes in (1, 2)


def test_a_session_has_files_and_functions() -> None:
    server = tvm.rpc.Server("127.0.0.1", key="x")
    remote = tvm.rpc.connect(server.host, server.port, key="x")
    remote.upload(b"bytes", "data.bin")
    assert remote.listdir() == ["data.bin"]
    assert remote.download("data.bin") == b"bytes"
    remote.remove("data.bin")
    assert remote.cpu() == tvm.cpu(0)
    tvm.register_func("tests.session", lambda x: x + 1, override=True)
    assert remote.get_function("tests.session")(1) == 2
    tvm.runtime.remove_global_func("tests.session")
    with pytest.raises(TypeError, match="plain names"):
        remote.upload(b"", "../x")
    server.terminate()
    with pytest.raises(tvm.error.RPCError, match="no such server in this process"):
        tvm.rpc.connect("example.org", server.port)


def test_old_homes_of_names() -> None:
    assert tvm._ffi.base.py_str(b"x") == "x"
    assert tvm._ffi.runtime_ctypes.ArgTypeCode.DLTENSOR_HANDLE == 7
    assert tvm._ffi.get_global_func("nope", allow_missing=True) is None
    assert tvm.support.libinfo()["USE_CUDA"] == "OFF"
