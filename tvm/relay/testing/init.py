"""Weights for the workloads: the same ones each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..expr import Function
from ..module import IRModule
from ..transform import infer_module

Initializer = Callable[[str, tuple[int, ...], np.random.Generator], np.ndarray]
SEED = 0


class Xavier:
    """Weights of a spread that keeps signals' sizes (Glorot and Bengio, 2010); the rest as `Constant`'s."""

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)

    def __call__(self, name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        if not name.endswith("weight"):
            return _plain(name, shape)
        if len(shape) < 2:
            raise ValueError(f"{name}: weights need two axes, {shape} has {len(shape)}")
        window = float(np.prod(shape[2:]))
        inputs, outputs = shape[1] * window, shape[0] * window
        factor = {"avg": (inputs + outputs) / 2, "in": inputs, "out": outputs}[self.factor_type]
        spread = float(np.sqrt(self.magnitude / (window if "depthwise" in name else factor)))
        return random.uniform(-spread, spread, shape) if self.rnd_type == "uniform" else random.normal(0, spread, shape)


class Constant:
    """Weights that are all one number."""

    def __call__(self, name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        return np.full(shape, 1 / max(shape[-1], 1)) if name.endswith("weight") else _plain(name, shape)


def _plain(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Parameters that are no weights: those that change nothing."""
    return np.ones(shape) if name.endswith(("gamma", "var")) else np.zeros(shape)


def create_workload(net: Function, initializer: Any = None, seed: int = SEED) -> tuple[IRModule, dict[str, Any]]:
    """A module of the function, typed, and arrays for all its parameters but "data"."""
    from ...runtime.ndarray import array

    module = infer_module(IRModule.from_expr(net))
    random, make = np.random.default_rng(seed), initializer or Xavier()
    params = {}
    for param in module["main"].params:
        if param.name_hint != "data" and param.name_hint not in params:
            type_ = param.checked_type
            values = make(param.name_hint, type_.concrete_shape, random)
            params[param.name_hint] = array(values.astype(type_.dtype))
    return module, params
