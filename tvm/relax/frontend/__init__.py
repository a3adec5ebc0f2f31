"""`relax.frontend`: models of other tools."""

from ..._lazy import lazy

_EXPORT = "models are read as ONNX; export this one, and use relax.frontend.onnx.from_onnx"
_ABSENT = dict.fromkeys(("stablehlo", "tflite", "torch"), _EXPORT)

__getattr__, __dir__ = lazy(__name__, "nn onnx", names={".onnx": "detach_params"}, absent=_ABSENT)
