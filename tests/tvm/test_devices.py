"""Devices: text, codes, equality, what the CPU says of itself, and streams that are one stream."""

import numpy as np
import pytest
import treadle
import treadle.tvm as tvm
from treadle.tvm.runtime import Device


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("cpu", tvm.cpu(0)),
        ("llvm -mcpu=core-avx2", tvm.cpu(0)),
        ("cuda:1", tvm.cuda(1)),
        ("nvptx", tvm.cuda(0)),
        ("cl", tvm.opencl(0)),
        ("vulkan", tvm.vulkan(0)),
        ("hexagon:2", tvm.hexagon(2)),
        (1, tvm.cpu(0)),
    ],
)
def test_text_and_codes_name_devices(text: str | int, device: Device) -> None:
    assert tvm.device(text) == device


def test_a_number_in_the_text_wins() -> None:
    assert tvm.device("cuda:3", 7) == tvm.cuda(3)
    assert tvm.device("cuda", 7) == tvm.cuda(7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quark", "Unknown device type"),
        ("cuda:x", "Invalid device id"),
        ("cuda:1:2", "Invalid device string"),
        ("", "Unknown device type"),
    ],
)
def test_other_text_is_a_value_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tvm.device(text)


@pytest.mark.parametrize("number", ["1", -1, 1.5])
def test_a_number_is_a_number(number: object) -> None:
    for kind in (TypeError, ValueError):
        with pytest.raises(kind, match="Invalid device id"):
            tvm.device("cuda", number)


def test_codes_are_dlpacks_and_remote_ones_are_128_on() -> None:
    codes = [tvm.device(kind).device_type for kind in ("cpu", "cuda", "opencl", "vulkan", "metal", "rocm", "webgpu")]
    assert codes == [1, 2, 4, 7, 8, 10, 15]
    assert str(tvm.cpu(0)) == "cpu(0)"
    assert str(Device(128 + 2, 1)) == "remote[0]:cuda(1)"
    assert Device(Device.kDLCUDA, 1) == tvm.cuda(1)


def test_devices_are_keys() -> None:
    assert {tvm.cpu(0): "pooled"}[treadle.cpu()] == "pooled"
    assert tvm.cuda(0) != tvm.cuda(1)


def test_the_cpu_says_what_it_can_and_others_say_that_they_are_not_there() -> None:
    cpu = tvm.cpu(0)
    assert cpu.exist
    assert cpu.multi_processor_count >= 1
    assert cpu.device_name
    assert cpu.total_global_memory > cpu.available_global_memory > 0
    names = ["max_threads_per_block", "warp_size", "max_shared_memory_per_block", "compute_version", "api_version"]
    names += ["max_thread_dimensions", "driver_version"]
    assert [getattr(cpu, name) for name in names] == [None] * len(names)
    names += ["device_name", "max_clock_rate", "multi_processor_count", "l2_cache_size_bytes", "total_global_memory"]
    assert cpu.texture_spatial_limit() is None
    assert not tvm.cuda(0).exist
    assert [getattr(tvm.cuda(0), name) for name in names] == [None] * len(names)


def test_there_is_one_stream() -> None:
    stream = tvm.cpu(0).create_raw_stream()
    tvm.cpu(0).set_raw_stream(stream)
    tvm.cpu(0).sync(stream)
    tvm.cpu(0).free_raw_stream(stream)
    with pytest.raises(RuntimeError, match=r"cuda\(0\) does not exist here"):
        tvm.cuda(0).sync()
    with pytest.raises(TypeError, match="no stream 7"):
        tvm.cpu(0).sync(7)


def test_no_memory_is_on_a_device_that_does_not_exist() -> None:
    with pytest.raises(treadle.TreadleError, match=r"cuda\(0\) does not exist here"):
        tvm.nd.array(np.zeros(3), tvm.cuda(0))


def test_gpu_is_an_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="use tvm.cuda"):
        assert tvm.gpu(1) == tvm.cuda(1)
