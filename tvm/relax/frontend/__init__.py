"""`relax.frontend`: models of other tools."""

from ..._lazy import lazy

_EXPORT = "models are read as ONNX; export this one, and use relax.frontend.onnx.from_onnx"
_ABSENT = {
    **dict.fromkeys(("stablehlo", "tflite", "torch"), _EXPORT),
    "nn": "relax.testing.nn and relax.BlockBuilder make programs",
}

__getattr__, __dir__ = lazy(__name__, "onnx", names={".onnx": "detach_params"}, absent=_ABSENT)
