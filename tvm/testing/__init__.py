"""`tvm.testing`: what tests written for TVM use. pytest is imported by those that need it."""

from .._lazy import lazy

_NAMES = {
    ".utils": """
        assert_allclose device_enabled disable_span_filling enable_span_filling enabled_targets exclude_targets fixture
        known_failing_targets main parameter parameters parametrize_targets requires_corstone300 requires_cublas
        requires_cuda requires_cuda_compute_version requires_cudagraph
        requires_cudnn requires_gpu requires_hexagon requires_llvm requires_llvm_minimum_version
        requires_metal requires_nvcc_version requires_nvptx requires_opencl requires_package requires_rocm requires_rpc
        requires_vulkan skip_if_32bit skip_if_wheel_test slow uses_gpu
    """,
    ".functions": """
        ErrorTest device_test echo identity_cpp nop object_use_count test_check_eq_callback test_raise_error_callback
        test_wrap_callback
    """,
}

_get, __dir__ = lazy(__name__, "plugin utils", names=_NAMES)


def __getattr__(name: str) -> object:
    """Whatever else a test requires, of TVM's many marks, is not here: the test is skipped."""
    if not name.startswith("requires_"):
        return _get(name)
    try:
        return _get(name)
    except AttributeError:
        from .utils import _needs

        return _needs(False, name.removeprefix("requires_"))
