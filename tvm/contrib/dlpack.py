"""`tvm.contrib.dlpack`: functions of TVM's that take another library's tensors, whose memory they share."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..runtime import ndarray


def convert_func(
    tvm_func: Callable[..., Any], tensor_type: type | tuple[type, ...], to_dlpack_func: Callable[[Any], Any]
) -> Callable[..., Any]:
    """The function, which takes tensors of `tensor_type` too: `to_dlpack_func` makes capsules of them."""

    def wrapped(*args: Any) -> Any:
        return tvm_func(
            *(ndarray.from_dlpack(to_dlpack_func(arg)) if isinstance(arg, tensor_type) else arg for arg in args)
        )

    return wrapped


def to_pytorch_func(tvm_func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which takes PyTorch's tensors too. Raises ImportError without PyTorch."""
    torch = importlib.import_module("torch")  # by name: no environment of ours has it, mypy's neither
    return convert_func(tvm_func, torch.Tensor, importlib.import_module("torch.utils.dlpack").to_dlpack)
