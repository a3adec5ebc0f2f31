"""`tvm.testing.utils`: comparisons, and decorators that say what a test needs."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...vm.device import Device, device
from ...vm.tensor import Tensor
from ..error import TVMError
from ..modules.load import enabled


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raises AssertionError unless both have the same shape and nearly the same elements."""
    ours, theirs = (np.asanyarray(each.array if isinstance(each, Tensor) else each) for each in (actual, desired))
    np.testing.assert_equal(ours.shape, theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol, verbose=True)


def enable_span_filling() -> contextlib.AbstractContextManager:
    """Nothing to enable: imports have the names of the model's nodes as spans always."""
    return contextlib.nullcontext()


disable_span_filling = enable_span_filling

# ---- targets ----


def enabled_targets() -> list[tuple[str, Device]]:
    """Each available target, and its device."""
    return [("llvm", device("llvm"))]


def device_enabled(target: Any) -> bool:
    """Whether programs can be run for a target here."""
    try:
        return enabled(str(target).split(" ")[0])
    except TVMError:
        return False


def parametrize_targets(*targets: Any) -> Any:
    """A mark: a test is run for each of the targets, its `dev` that target's; it is skipped for those that are not here.
    The plugin has the fixture `dev`. Without targets it is a decorator: a test is run for each available target."""
    if len(targets) == 1 and callable(targets[0]):
        return _parametrized(targets[0], [name for name, _ in enabled_targets()])
    import pytest

    rows = []
    for target in map(str, targets):
        marks = [] if device_enabled(target) else [pytest.mark.skip(reason=f"there is no {target} here")]
        rows.append(pytest.param(target, marks=marks, id=target))
    return pytest.mark.parametrize("target", rows)


def exclude_targets(*targets: str) -> Any:
    """A test is run for each target but those."""
    return lambda test: _parametrized(test, [name for name, _ in enabled_targets() if name not in targets])


def known_failing_targets(*targets: str) -> Any:
    """A test is expected to fail for those targets."""
    return lambda test: test


def _parametrized(test: Callable[..., Any], targets: list[str]) -> Any:
    import pytest

    names = [name for name in ("target", "dev") if name in inspect.signature(test).parameters]
    rows = []
    for target in targets:
        values = {"target": target, "dev": device(target)}
        marks = [] if device_enabled(target) else [pytest.mark.skip(reason=f"there is no {target} here")]
        rows.append(pytest.param(*(values[name] for name in names), marks=marks, id=target))
    return pytest.mark.parametrize(names, rows)(test) if names else test


# ---- what a test needs ----


def _needs(is_there: bool, what: str) -> Callable[..., Any]:
    """A decorator, also with arguments that say more of what is needed."""

    def decorate(*args: Any, **options: Any) -> Any:
        import pytest

        mark = pytest.mark.skipif(not is_there, reason=f"needs {what}")
        if len(args) == 1 and (inspect.isfunction(args[0]) or inspect.isclass(args[0])):
            return mark(args[0])
        if not args and not options:
            return mark
        return lambda test: mark(test)

    decorate.__doc__ = f"The test needs {what}."
    return decorate


requires_llvm = requires_llvm_minimum_version = requires_rpc = uses_gpu = skip_if_32bit = skip_if_wheel_test = slow = (
    _needs(True, "nothing that is not here")
)
requires_gpu = requires_cuda = requires_cudagraph = requires_cudnn = requires_cublas = _needs(False, "a GPU")
requires_nvptx = requires_nvcc_version = requires_cuda_compute_version = requires_rocm = requires_gpu
requires_opencl, requires_vulkan, requires_metal, requires_hexagon, requires_corstone300 = (
    _needs(False, what) for what in ("OpenCL", "Vulkan", "Metal", "a Hexagon", "a Corstone-300")
)


def requires_package(*packages: str) -> Any:
    """The test needs packages of Python's."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return _needs(not missing, f"the packages {', '.join(missing)}")


# ---- parameters ----


def parameter(*values: Any, ids: Any = None, by_dict: dict[str, Any] | None = None) -> Any:
    """A fixture that takes each value in turn; `by_dict` names them."""
    import pytest

    if by_dict is not None:
        values, ids = tuple(by_dict.values()), list(by_dict)

    @pytest.fixture(params=list(values), ids=ids)
    def made(*_: Any, request: Any) -> Any:  # it may stand in a class
        return request.param

    return made


def parameters(*value_sets: Sequence[Any], ids: Any = None) -> tuple[Any, ...]:
    """Fixtures that take values together, by the plugin: `shape, axis = parameters(((2, 3), 0), ((4,), 0))`."""
    import pytest

    group = (list(value_sets), ids)

    def made(place: int) -> Any:
        def value(*_: Any, request: Any) -> Any:  # it may stand in a class
            return request.param

        value.group, value.place = group, place  # type: ignore[attr-defined]
        return pytest.fixture(value)

    return tuple(made(place) for place in range(len(value_sets[0])))


def fixture(func: Any = None, *, cache_return_value: bool = False) -> Any:
    """A fixture, made for each test: it may use others, which have other values in other tests. Nothing is cached."""
    import pytest

    return pytest.fixture if func is None else pytest.fixture(func)


def main() -> None:
    """Runs the tests of the file that calls it."""
    import pytest

    file = inspect.getsourcefile(sys._getframe(1))
    sys.exit(pytest.main([str(file), *sys.argv[1:]]))
