"""An ONNX model, compiled once, kept as a file, and called by many threads with batches of any size.

    python examples/deploy_onnx.py [model.onnx]

Without a model it takes the classifier of handwritten digits that the package brings.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import treadle
from treadle.tools import digits


def main() -> None:
    model = Path(sys.argv[1]) if len(sys.argv) > 1 else digits.MODEL
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.trdl")
        treadle.compile(model, progress=False).export_library(file)
        print(f"{model.name}: {model.stat().st_size} bytes, as an executable {file.stat().st_size}")

        machine = treadle.VirtualMachine(treadle.load(file))
        (taken,) = machine.inputs()
        print(f"it takes {taken.name}: {taken.type}, and gives {[str(port.type) for port in machine.outputs()]}")

        random = np.random.default_rng(0)

        def classify(rows: int) -> int:
            sizes = [each if isinstance(each, int) else rows for each in taken.shape or ()]
            return len(machine["main"](random.random(sizes, np.float32)))

        with ThreadPoolExecutor(4) as pool:
            print("rows of the results:", list(pool.map(classify, [1, 2, 8, 64])))


if __name__ == "__main__":
    main()
