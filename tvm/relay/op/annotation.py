"""`relay.annotation`: words to TVM's passes, which change no value. They say nothing to Treadle's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....compiler.builder.programs import Expression
from .table import Tensor, operator


def _unchanged(name: str, *, names_compiler: bool = False) -> Callable[..., Any]:
    def of(data: Tensor) -> Expression:
        return data

    def of_compiler(data: Tensor, compiler: str) -> Expression:
        return data

    return operator(f"annotation.{name}", summary="The value.")(of_compiler if names_compiler else of)


stop_fusion, checkpoint = map(_unchanged, ("stop_fusion", "checkpoint"))
compiler_begin, compiler_end = (_unchanged(name, names_compiler=True) for name in ("compiler_begin", "compiler_end"))


@operator("on_device")
def on_device(body: Tensor, device: Any, constrain_result: bool = False, constrain_body: bool = True) -> Expression:
    """The value: there is one device."""
    return body


def function_on_device(function: Any, param_devices: Any, return_device: Any) -> Any:
    """The function: there is one device."""
    return function
