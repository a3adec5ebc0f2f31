"""Weights for the workloads: the same ones each time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.ndarray import array
from ..expr import Function
from ..module import IRModule
from ..transform import infer_module

SEED = 0


class Initializer:
    """Fills arrays by the names of parameters: `initializer("fc1_weight", array)`."""

    def __init__(self, seed: int = SEED) -> None:
        self.random = np.random.default_rng(seed)

    def __call__(self, desc: str, arr: np.ndarray) -> None:
        if desc.endswith("weight"):
            self._init_weight(desc, arr)
        else:
            arr[...] = 1 if desc.endswith(("gamma", "var")) else 0

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        raise NotImplementedError(f"{type(self).__name__} says nothing of weights")


class Xavier(Initializer):
    """Weights of a spread that keeps signals' sizes (Glorot and Bengio, 2010)."""

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3, seed: int = SEED
    ) -> None:
        super().__init__(seed)
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        shape = arr.shape
        if len(shape) < 2:
            raise ValueError(f"{name}: weights need two axes, {shape} has {len(shape)}")
        window = float(np.prod(shape[2:]))
        inputs, outputs = shape[1] * window, shape[0] * window
        factor = {"avg": (inputs + outputs) / 2, "in": inputs, "out": outputs}[self.factor_type]
        spread = float(np.sqrt(self.magnitude / (window if "depthwise" in name else factor)))
        if self.rnd_type == "uniform":
            arr[...] = self.random.uniform(-spread, spread, shape)
        else:
            arr[...] = self.random.normal(0, spread, shape)


class Constant(Initializer):
    """Weights that are all one number."""

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        arr[...] = 1 / max(arr.shape[-1], 1)


def create_workload(net: Function, initializer: Any = None, seed: int = SEED) -> tuple[IRModule, dict[str, Any]]:
    """A module of the function, typed, and arrays for all its parameters but "data"."""
    module = infer_module(IRModule.from_expr(net))
    fill = initializer or Xavier(seed=seed)
    params = {}
    for param in module["main"].params:
        if param.name_hint != "data" and param.name_hint not in params:
            type_ = param.checked_type
            values = np.zeros(type_.concrete_shape, type_.dtype)
            fill(param.name_hint, values)
            params[param.name_hint] = array(values)
    return module, params


def workload(
    net: Callable[..., Function], order: str = "", initializer: Any = None, **defaults: Any
) -> Callable[..., Any]:
    """`get_workload` of a network: the module, and weights from a seed. Its parameters are the network's, in another `order` and
    with other `defaults` where these are told."""
    own = inspect.signature(net).parameters
    names = order.split() or list(own)
    signature = inspect.Signature([own[name].replace(default=defaults.get(name, own[name].default)) for name in names])

    def get_workload(*args: Any, **kwargs: Any) -> tuple[IRModule, dict[str, Any]]:
        """The module, and weights from a seed."""
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return create_workload(net(**bound.arguments), initializer)

    get_workload.__signature__ = signature  # type: ignore[attr-defined]
    return get_workload
