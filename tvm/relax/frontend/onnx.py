"""`relax.frontend.onnx`: ONNX models, by Treadle's own frontend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....compiler import ir
from ....compiler.driver import unbind_weights
from ....compiler.named_weights import Weights
from ....compiler.onnx.importer import from_onnx as read
from ...relay.frontend import shapes_of
from ...runtime.ndarray import NDArray, array

__all__ = ["detach_params", "from_onnx"]


@dataclass(frozen=True, eq=False)
class ModuleWithParams(ir.Module):
    """A module, and for functions the weights that are their last parameters."""

    params: Mapping[str, Sequence[NDArray]] = field(default_factory=dict)


def from_onnx(
    model: Any,
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: str | Mapping[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> ir.Module:
    """The module of an ONNX model: a path, its bytes, or an onnx.ModelProto. `detach_params` gives the weights that were kept as
    parameters. Element types and the opset are the model's own. Raises what `treadle.compile` raises for a model."""
    weights = Weights() if keep_params_in_input else None
    module = read(model, shapes=shapes_of(shape_dict), weights=weights)
    if not keep_params_in_input:
        return module
    module, arrays = unbind_weights(module, "main")
    return ModuleWithParams(
        module.functions, module.data_types, module.imports, (), {"main": [array(each) for each in arrays.values()]}
    )


def detach_params(mod: ir.Module) -> tuple[ir.Module, dict[str, list[NDArray]]]:
    """The module, and by function the weights that it takes after its other parameters."""
    kept = mod.params if isinstance(mod, ModuleWithParams) else {}
    return ir.Module(mod.functions, mod.data_types, mod.imports), {name: list(params) for name, params in kept.items()}
