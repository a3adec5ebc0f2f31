"""What functions of a module take, and the program that `export_tvm` makes of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from .....formats import dims
from ... import expr
from ...block_builder import BlockBuilder
from ...expr import Var
from ...module import IRModule
from ...struct_info import ShapeStructInfo, TupleStructInfo
from . import core
from .modules import IOEffect

MODES = ("plain", "packed", "none")


class Int:
    """A size."""


class Tensor:
    """A tensor: sizes that are strings are names."""

    def __init__(self, shape: Sequence[Any], dtype: str) -> None:
        self.shape, self.dtype = list(shape), dtype


class Object:
    """A value of another kind than tensors."""

    def __init__(self, object_type: type = core.Object) -> None:
        self.object_type = object_type


class Tuple:
    """Several of them."""

    def __init__(self, name: str, elements: Sequence[Any]) -> None:
        self.name, self.elements = name, elements


def exported(module: core.Module, spec: Mapping[str, Any], debug: bool) -> tuple[IRModule, list[tuple[str, Any]]]:
    """The program of a module's functions, and its parameters. Raises TypeError for what a spec does not name."""
    builder = BlockBuilder()
    effects = [("", IOEffect())] if debug else []
    effects += list(core.found_in(module, "", core.Effect))
    if effects:
        with builder.function("_initialize_effect", []):
            with builder.dataflow():
                states = [each for name, effect in effects for each in effect.emit_init(name, builder)]
                outputs = builder.emit_output(builder.emit(expr.Tuple(states)))
            builder.emit_func_output(outputs)
    params: list[tuple[str, Any]] = []
    for name, given in spec.items():
        params = list(module.named_parameters())
        _export(builder, module, name, dict(given), params, effects)
    return builder.finalize(), params


def _export(
    builder: BlockBuilder,
    module: core.Module,
    name: str,
    given: dict[str, Any],
    params: Sequence[tuple[str, Any]],
    effects: Sequence[tuple[str, core.Effect]],
) -> None:
    """A function: inputs, then effects, then parameters; `$` among the inputs says how the latter are taken."""
    modes = {"param_mode": "plain", "effect_mode": "plain", **given.pop("$", {})}
    method = getattr(module, name)
    names = [each for each in inspect.signature(method).parameters if each in given]
    inputs = [_input(each, given[each]) for each in names]
    states = [effect.create(prefix) for prefix, effect in effects]
    own = [core.Tensor.placeholder(param.shape, param.dtype, place)._expr for place, param in params]
    taken = {
        "plain": own,
        "none": [],
        "packed": [Var("packed_params", TupleStructInfo([each.struct_info for each in own]))],
    }
    extra = [each for several in states for each in several] if modes["effect_mode"] == "plain" else []
    before = [param._expr for _, param in params]
    weights = taken[modes["param_mode"]]
    with builder.function(name, attrs={"num_input": len(inputs) + len(extra)}):
        with builder.dataflow():
            for (_, effect), several in zip(effects, states, strict=True):
                effect.set_state(several)
            for at, (place, param) in enumerate(params):
                is_packed = modes["param_mode"] == "packed"
                param._expr = builder.emit(expr.TupleGetItem(weights[0], at), place) if is_packed else own[at]
            arguments = [_argument(var, given[each], builder) for each, var in zip(names, inputs, strict=True)]
            result = core.unwrap(method(*arguments))
            if extra:
                after = [each for _, effect in effects for each in effect.finalize()]
                result = expr.Tuple([result, expr.Tuple(after)])
            output = builder.emit_output(result)
        builder.emit_func_output(output, [*inputs, *extra, *weights])
    for (_, param), each in zip(params, before, strict=True):
        param._expr = each


def _input(name: str, spec: Any) -> Var:
    """The parameter that a spec says. Raises TypeError for anything else."""
    if isinstance(spec, Tensor):
        return core.Tensor.placeholder(spec.shape, spec.dtype, name)._expr
    if spec is int or isinstance(spec, Int):
        return Var(name, ShapeStructInfo([dims.named(name)]))
    if isinstance(spec, Object):
        return core.object_var(name)
    elements = spec.elements if isinstance(spec, Tuple) else spec
    if not isinstance(elements, (list, tuple)):
        raise TypeError(f"{name}: expected spec.Tensor, spec.Tuple, spec.Object or int, got {spec!r}")
    return Var(name, TupleStructInfo([_input(f"{name}_{at}", each).struct_info for at, each in enumerate(elements)]))


def _argument(var: Var, spec: Any, builder: BlockBuilder) -> Any:
    """What `forward` gets for a parameter."""
    if isinstance(spec, Tensor):
        return core.Tensor(_expr=var)
    if spec is int or isinstance(spec, Int):
        return var.struct_info.values[0]
    if isinstance(spec, Object):
        return core.Object(_expr=var)
    elements = spec.elements if isinstance(spec, Tuple) else spec
    fields = [builder.emit(expr.TupleGetItem(var, at)) for at in range(len(elements))]
    made = [
        core.Tensor(_expr=each) if isinstance(part, Tensor) else core.Object(_expr=each)
        for each, part in zip(fields, elements, strict=True)
    ]
    return made if isinstance(spec, list) else tuple(made)
