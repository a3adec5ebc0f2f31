"""Treadle as a callable for ONNX conformance tests: each call goes the whole way that a user's model goes.

compile → bytes → load → verify → link → run. The compiler sees the model alone, never the inputs' values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from treadle import VirtualMachine, compile, load
from treadle.native import knobs


def run(model_path: str, inputs: Sequence[Any]) -> list[Any]:
    """The model's outputs. Raises what compiling or running raises: UnsupportedOperatorError is a NotImplementedError.

    With the knob TREADLE_KERNELS=cached no kernel is built: primitives that the cache lacks run by their references.
    """
    kernels = knobs.get("TREADLE_KERNELS")
    content = compile(model_path, embed_native=kernels == "build", progress=False).as_bytes()
    machine = VirtualMachine(load(content), kernels=kernels)
    result = machine["main"](*inputs)
    results = list(result) if isinstance(result, tuple) else [result]
    return [_plain(value) for value in results]


def _plain(value: Any) -> Any:
    """An array; a list of arrays for a sequence; None for an optional value that is not there."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if value is None else np.asarray(value)
