"""`relax.frontend.onnx`: ONNX models, by Treadle's own frontend."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....compiler import ir
from ....compiler.driver import unbind_weights
from ....compiler.named_weights import Weights
from ....compiler.onnx.importer import from_onnx as read
from ....compiler.passes.rewriting import Rewriter
from ...relay.frontend import of_ranks, shapes_of
from ...runtime.ndarray import NDArray
from ..module import IRModule

__all__ = ["detach_params", "from_onnx"]


def from_onnx(
    model: Any,
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: str | Mapping[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> IRModule:
    """The module of an ONNX model: a path, its bytes, or an onnx.ModelProto. `detach_params` gives the weights that were kept as
    parameters. Element types and the opset are the model's own. Raises what `treadle.compile` raises for a model."""
    weights = Weights() if keep_params_in_input else None
    module, arrays = (
        read(of_ranks(model, shape_dict), shapes=shapes_of(shape_dict), weights=weights),
        dict[str, np.ndarray](),
    )
    if keep_params_in_input:
        module, arrays = unbind_weights(module, "main")
    if sanitize_input_names:
        module = _with_identifiers(module)
    return IRModule.of(module, {"main": list(arrays.values())} if keep_params_in_input else None)


def _with_identifiers(module: ir.Module) -> ir.Module:
    """The module with parameters of main whose names are identifiers, each once; of a name that changes there is a warning."""
    main, taken, changed = module.functions["main"], set(), {}
    for param in main.params:
        name = param.name.replace(".", "_") or "empty_"
        name = name if name[0].isalpha() or name[0] == "_" else f"input_{name}"
        fresh = next(
            each for each in itertools.chain([name], (f"{name}_{n}" for n in itertools.count(1))) if each not in taken
        )
        taken.add(fresh)
        if fresh != param.name:
            warnings.warn(f"Renaming name {param.name} to {fresh}", stacklevel=3)
            changed[param] = ir.Var(fresh, param.type)
    if not changed:
        return module

    rewriter = Rewriter(module)
    rewriter.atoms.update(changed)
    params = tuple(changed.get(each, each) for each in main.params)
    made = dataclasses.replace(rewriter.function(main), params=params)
    return dataclasses.replace(module, functions={**module.functions, "main": made})


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[NDArray]]]:
    """The module, and by function the weights that it takes after its other parameters."""
    made = mod.shallow_copy()
    made.params = {}
    if mod.source is None:
        for name in mod.params:
            made[name] = mod[name].without_attr("params")
    else:
        made._made = {}
    return made, {name: list(params) for name, params in mod.params.items()}
