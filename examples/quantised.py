"""A model of 8-bit integers beside the one of float32 that it was made of.

onnxruntime's quantiser makes it (`pip install onnx onnxruntime onnx-ir sympy`). Treadle computes products of bytes with
exact sums.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import treadle
from treadle.tools import digits


def main() -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "quantised.onnx")
        quantize_dynamic(digits.MODEL, file, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"])
        machines = []
        for model in (digits.MODEL, file):
            executable = treadle.compile(model, progress=False)
            weights = sum(array.nbytes for array in executable.constants)
            print(f"{model.name}: {weights} bytes of weights; {', '.join(executable.primitive_ops)}")
            machines.append(treadle.VirtualMachine(executable))
    images = np.random.default_rng(0).random((256, 1, 8, 8), np.float32)
    exact, quantised = (machine["main"](images).numpy() for machine in machines)
    same = np.mean(exact.argmax(1) == quantised.argmax(1))
    print(
        f"the same digit for {same:.0%} of noise; probabilities differ by {np.abs(exact - quantised).max():.3f} at most"
    )
    assert same > 0.9


if __name__ == "__main__":
    main()
