"""LitServe around onnxruntime: `python lit_server.py model.onnx PORT LARGEST_BATCH`; a batch of 1 is not batching.

POST /predict with {name: {"shape": …, "dtype": …, "data": base64}} is answered with the same of the outputs: LitServe reads JSON.
"""

from __future__ import annotations

import base64
import sys
from typing import Any

import litserve
import numpy as np

_DELAY = 0.002  # seconds that a batch waits for more requests


class Api(litserve.LitAPI):  # type: ignore[misc, unused-ignore]
    """Any model."""

    path = ""

    def setup(self, device: str) -> None:
        import onnxruntime

        self.session = onnxruntime.InferenceSession(self.path, providers=["CPUExecutionProvider"])
        self.names = [each.name for each in self.session.get_outputs()]

    def decode_request(self, request: dict) -> dict[str, np.ndarray]:
        return {
            name: np.frombuffer(base64.b64decode(each["data"]), each["dtype"]).reshape(each["shape"])
            for name, each in request.items()
        }

    def batch(self, inputs: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        self.rows = [len(next(iter(each.values()))) for each in inputs]
        return {name: np.concatenate([each[name] for each in inputs]) for name in inputs[0]}

    def predict(self, x: dict[str, np.ndarray]) -> list[np.ndarray]:
        return self.session.run(None, x)

    def unbatch(self, output: list[np.ndarray]) -> list[list[np.ndarray]]:
        ends = np.cumsum(self.rows)[:-1]
        return [list(parts) for parts in zip(*(np.split(array, ends) for array in output), strict=True)]

    def encode_response(self, output: list[np.ndarray]) -> dict[str, Any]:
        return {
            name: {
                "shape": array.shape,
                "dtype": array.dtype.str,
                "data": base64.b64encode(np.ascontiguousarray(array).data).decode(),
            }
            for name, array in zip(self.names, output, strict=True)
        }


if __name__ == "__main__":
    batch = int(sys.argv[3])
    api = Api(**({"max_batch_size": batch, "batch_timeout": _DELAY} if batch > 1 else {}))
    api.path = sys.argv[1]
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=600)
    server.run(host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False, log_level="error")
