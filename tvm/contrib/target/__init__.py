"""`tvm.contrib.target`: other forms of Relay's programs."""

from ..._lazy import lazy

__getattr__, __dir__ = lazy(__name__, "onnx")
