"""MLServer around onnxruntime: `python ml_server.py model.onnx PORT LARGEST_BATCH`; a batch of 1 is not batching.

The Open Inference Protocol; the model is called "model". The calls are made in the server's process (`parallel_workers` of 0).
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.settings import ModelParameters
from mlserver.types import InferenceResponse

_DELAY = 0.002  # seconds that a batch waits for more requests


class Runtime(MLModel):  # type: ignore[misc, unused-ignore]
    """Any model."""

    async def load(self) -> bool:
        import onnxruntime

        path = self._settings.parameters.uri
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.names = [each.name for each in self.session.get_outputs()]
        return True

    async def predict(self, payload: Any) -> Any:
        arrays = {each.name: NumpyCodec.decode_input(each) for each in payload.inputs}
        results = self.session.run(None, arrays)
        outputs = [NumpyCodec.encode_output(name, array) for name, array in zip(self.names, results, strict=True)]
        return InferenceResponse(model_name=self.name, outputs=outputs)


async def _main(path: str, port: int, batch: int) -> None:
    batching = {"max_batch_size": batch, "max_batch_time": _DELAY} if batch > 1 else {}
    model = ModelSettings(name="model", implementation=Runtime, parameters=ModelParameters(uri=path), **batching)
    settings = Settings(
        host="127.0.0.1",
        http_port=port,
        grpc_port=port + 1,
        metrics_port=port + 2,
        parallel_workers=0,
        debug=False,
        load_models_at_startup=False,
    )
    await MLServer(settings).start([model])


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
