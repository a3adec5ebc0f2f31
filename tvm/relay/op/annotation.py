"""`relay.annotation`: words to TVM's passes, which change no value. They say nothing to Treadle's."""

from __future__ import annotations

from typing import Any

from ....compiler.builder.programs import Expression
from .table import Tensor, operator


@operator("annotation.stop_fusion")
def stop_fusion(data: Tensor) -> Expression:
    """The value."""
    return data


@operator("annotation.checkpoint")
def checkpoint(data: Tensor) -> Expression:
    """The value."""
    return data


@operator("annotation.compiler_begin")
def compiler_begin(data: Tensor, compiler: str) -> Expression:
    """The value."""
    return data


@operator("annotation.compiler_end")
def compiler_end(data: Tensor, compiler: str) -> Expression:
    """The value."""
    return data


@operator("on_device")
def on_device(body: Tensor, device: Any, constrain_result: bool = False, constrain_body: bool = True) -> Expression:
    """The value: there is one device."""
    return body


def function_on_device(function: Any, param_devices: Any, return_device: Any) -> Any:
    """The function: there is one device."""
    return function
