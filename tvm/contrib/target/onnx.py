"""`tvm.contrib.target.onnx`: Relay's programs as ONNX files, by `treadle.to_onnx`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....compiler.driver import bind_parameters
from ....compiler.named_weights import Weights
from ....compiler.onnx.export.module import exported, write
from ...relay.build_module import with_known_params
from ...relay.module import IRModule

if TYPE_CHECKING:
    import onnx

__all__ = ["to_onnx"]


def to_onnx(
    relay_ir: Any, params: Mapping[str, Any] | None, name: str, opset_version: int | None = 11, path: str | None = None
) -> onnx.ModelProto:
    """The ONNX model of a module's main function, or of a function; `params` become initializers of their names. Versions from 11
    on are written, None is the first that has all operators.

    Raises UnsupportedOperatorError, a NotImplementedError, which lists what ONNX has no form for; FileError.
    """
    module = relay_ir if isinstance(relay_ir, IRModule) else IRModule.from_expr(relay_ir)
    lowered, arrays = with_known_params(module, params)
    if arrays:
        lowered = bind_parameters(lowered, "main", arrays, Weights())
    model = exported(lowered, "main", opset_version, name)
    if path:
        write(model, path)
    return model
