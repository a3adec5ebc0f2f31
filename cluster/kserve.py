"""KServe's model for an executable: the Open Inference Protocol, by KServe's own server.

kserve.ModelServer().start([TreadleModel("classifier", "/mnt/models/model.trdl")])
"""

from __future__ import annotations

from typing import Any

from ..formats.dtypes import DType
from ..formats.messages.errors import ArgumentError, MissingPackageError, TreadleError
from ..formats.types import TensorType
from .handle import Exe, Handle
from .runner import Runner

try:
    from kserve import InferOutput, InferRequest, InferResponse, Model
    from kserve.errors import InvalidInput
    from kserve.utils.utils import generate_uuid
except ImportError as error:
    raise MissingPackageError("this needs KServe: pip install kserve") from error


class TreadleModel(Model):
    """A model of one function. Inputs go to parameters by name; outputs are called "output", or "output_0" and so on."""

    def __init__(
        self, name: str, exe: Exe, *, function: str = "main", threads: int | None = None, **options: Any
    ) -> None:
        """`options` are those of a handle."""
        super().__init__(name)
        self._told = Handle.of(exe, **options), function, threads
        self.load()

    def load(self) -> bool:
        """Links the program."""
        self._runner = Runner(*self._told)
        self.ready = True
        return True

    async def get_input_types(self) -> list[dict[str, Any]]:
        signature = self._runner.signature
        return [_described(name, type_) for name, type_ in zip(signature.names, signature.type.params, strict=False)]

    def predict(self, payload: Any, headers: dict[str, str] | None = None, response_headers: Any = None) -> Any:
        """The answer to a request. Raises KServe's InvalidInput for one that does not fit."""
        if not isinstance(payload, InferRequest):
            raise InvalidInput("this model answers requests of the Open Inference Protocol: POST v2/models/NAME/infer")
        try:
            result = self._runner({each.name: each.as_numpy() for each in payload.inputs})
        except (ArgumentError, ValueError) as error:
            raise InvalidInput(str(error)) from error
        except TreadleError as error:
            raise RuntimeError(str(error)) from error
        results = result if isinstance(result, tuple) else (result,)
        outputs = []
        for number, array in enumerate(results):
            name = "output" if len(results) == 1 else f"output_{number}"
            outputs.append(InferOutput(name, list(array.shape), DType.of(array.dtype).protocol))
            outputs[-1].set_data_from_numpy(array, binary_data=False)
        return InferResponse(payload.id or generate_uuid(), self.name, outputs)


def _described(name: str, type_: Any) -> dict[str, Any]:
    assert isinstance(type_, TensorType)
    shape = [size if isinstance(size, int) else -1 for size in type_.shape]
    return {"name": name, "datatype": type_.dtype.protocol, "shape": shape}
