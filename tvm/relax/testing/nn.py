"""Small networks for tests: modules that make expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import op
from ..block_builder import BlockBuilder
from ..expr import Expr, Var
from ..struct_info import TensorStructInfo

__all__ = ["Linear", "LogSoftmax", "Module", "Parameter", "Placeholder", "ReLU", "Sequential", "emit"]


def emit(expr: Expr, name_hint: str = "") -> Expr:
    """The value of an expression in the function that is being built."""
    current = BlockBuilder.current()
    return expr if current is None else current.emit(expr, name_hint)


def _unique(name: str) -> str:
    current = BlockBuilder.current()
    return name if current is None else current.unique(name)


class Placeholder(Var):
    """An input."""

    def __init__(self, shape: Sequence[Any], dtype: str = "float32", name: str = "data") -> None:
        super().__init__(_unique(name), TensorStructInfo(shape, dtype))


class Parameter(Var):
    """A weight."""

    def __init__(self, shape: Sequence[Any], dtype: str = "float32", name: str = "param") -> None:
        super().__init__(_unique(name), TensorStructInfo(shape, dtype))


class Module:
    """Calls `forward`; its parameters are those among its attributes, and of the modules among them."""

    def forward(self, input: Any) -> Expr:
        raise NotImplementedError

    def __call__(self, *args: Any) -> Expr:
        return self.forward(*args)

    def parameters(self) -> list[Parameter]:
        found: list[Parameter] = []
        waiting = list(vars(self).values())
        while waiting:
            value = waiting.pop(0)
            if isinstance(value, Parameter):
                found.append(value)
            elif isinstance(value, Module):
                found += value.parameters()
            elif isinstance(value, (list, tuple)):
                waiting = [*value, *waiting]
        return found


class Sequential(Module):
    """One module after another."""

    def __init__(self, *modules: Module) -> None:
        self.modules = modules

    def forward(self, input: Expr) -> Expr:
        for module in self.modules:
            input = module(input)
        return input


class ReLU(Module):
    def forward(self, input: Expr) -> Expr:
        return emit(op.nn.relu(input))


class LogSoftmax(Module):
    def forward(self, input: Expr) -> Expr:
        return emit(op.nn.log_softmax(input))


class Linear(Module):
    """input @ weight + bias."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: Expr) -> Expr:
        made = emit(op.matmul(input, self.weight))
        return made if self.bias is None else emit(op.add(made, self.bias))
