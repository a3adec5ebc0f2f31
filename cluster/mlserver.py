"""MLServer's runtime for an executable.

    {"name": "classifier", "implementation": "treadle.cluster.mlserver.TreadleRuntime", "parameters": {"uri": "./model.trdl"}}

is its model-settings.json; `parameters.extra` may say {"function": …, "threads": …} and the options of a handle.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..formats.messages.errors import ArgumentError, MissingPackageError
from .runner import Runner

try:
    from mlserver import MLModel
    from mlserver.codecs import NumpyCodec
    from mlserver.errors import InvalidModelURI, MLServerError
    from mlserver.types import InferenceRequest, InferenceResponse
    from mlserver.utils import get_model_uri
except ImportError as error:
    raise MissingPackageError("this needs MLServer: pip install mlserver") from error

_BAD_REQUEST = 400


class TreadleRuntime(MLModel):
    """A model of one function. Inputs go to parameters by name; outputs are called "output", or "output_0" and so on."""

    async def load(self) -> bool:
        """Links the program."""
        try:
            path = await get_model_uri(self._settings, wellknown_filenames=["model.trdl"])
        except InvalidModelURI:
            raise
        extra = dict((self._settings.parameters and self._settings.parameters.extra) or {})
        self._runner = await asyncio.to_thread(
            Runner, path, extra.pop("function", "main"), extra.pop("threads", None), **extra
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """The answer to a request. Raises MLServer's error of status 400 for one that does not fit."""
        arrays = {each.name: NumpyCodec.decode_input(each) for each in payload.inputs}
        try:
            result: Any = await asyncio.to_thread(self._runner, arrays)
        except (ArgumentError, ValueError) as error:
            raise MLServerError(str(error), _BAD_REQUEST) from error
        results = result if isinstance(result, tuple) else (result,)
        names = ["output"] if len(results) == 1 else [f"output_{number}" for number in range(len(results))]
        outputs = [NumpyCodec.encode_output(name, array) for name, array in zip(names, results, strict=True)]
        return InferenceResponse(model_name=self.name, model_version=self.version, id=payload.id, outputs=outputs)
