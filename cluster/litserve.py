"""LitServe's API for an executable.

    litserve.LitServer(TreadleLitAPI("model.trdl", max_batch_size=16, batch_timeout=0.005), accelerator="cpu").run(port=8000)

A request is JSON with one row of each parameter by name, {"x": […]}; the answer {"output": […]}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..formats.messages.errors import MissingPackageError
from .handle import Exe, Handle
from .ray_serve import answers
from .runner import Runner

try:
    from fastapi import HTTPException
    from litserve import LitAPI
except ImportError as error:
    raise MissingPackageError("this needs LitServe: pip install litserve") from error


class TreadleLitAPI(LitAPI):
    """One row a request; LitServe joins them where `max_batch_size` is more than 1."""

    def __init__(
        self,
        exe: Exe,
        *,
        function: str = "main",
        threads: int | None = None,
        options: Mapping[str, Any] | None = None,
        **api_options: Any,
    ) -> None:
        """`options` are those of a handle, the others those of LitAPI."""
        super().__init__(**api_options)
        self._told = Handle.of(exe, **(options or {})), function, threads

    def setup(self, device: object) -> None:
        """Called in each worker."""
        self._runner = Runner(*self._told)

    def batch(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return inputs

    def predict(self, x: Any) -> Any:
        requests = x if isinstance(x, (list, tuple)) else [x]
        found = answers(self._runner, list(requests))
        return found if isinstance(x, (list, tuple)) else found[0]

    def unbatch(self, output: Any) -> Any:
        return output

    def encode_response(self, output: Any) -> dict[str, Any]:
        if isinstance(output, Exception):
            raise HTTPException(400, str(output))
        return {name: array.tolist() for name, array in output.items()}
