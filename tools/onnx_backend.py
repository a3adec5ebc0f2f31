"""Treadle as a callable for ONNX conformance tests: each call goes the whole way that a user's model goes.

compile → bytes → load → verify → link → run. The compiler sees the model alone, never the inputs' values.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

# "cached" evaluates primitives whose kernels are not in the cache by their references: right, slow, and no compiling.
KERNELS = os.environ.get("TREADLE_BACKEND_KERNELS", "build")


def run(model_path: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The model's outputs. Raises what compiling or running raises: UnsupportedOperatorError is a NotImplementedError."""
    from .. import VirtualMachine, compile, load

    content = compile(model_path).as_bytes()
    machine = VirtualMachine(load(content), kernels=KERNELS)
    result = machine["main"](*inputs)
    results = list(result) if isinstance(result, tuple) else [result]
    return [np.asarray(value) for value in results]
