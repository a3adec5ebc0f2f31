"""Tensors, parameters and modules: what `forward` is written in, and the program that `export_tvm` makes of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .....formats import dims
from .....formats.messages.errors import CheckError
from ....runtime.ndarray import NDArray, array
from ... import expr
from ...block_builder import BlockBuilder
from ...expr import OPERATOR_CALLS, Var
from ...module import IRModule
from ...struct_info import ObjectStructInfo, ShapeStructInfo, TensorStructInfo, TupleStructInfo
from . import spec

__all__ = ["Effect", "IOEffect", "Module", "ModuleDict", "ModuleList", "Object", "Parameter", "Tensor", "wrap_nested"]

_default_dtype = ["float32"]


def get_default_dtype() -> str:
    """The element type of parameters that are told none."""
    return _default_dtype[0]


def set_default_dtype(dtype: str) -> None:
    """Sets it."""
    _default_dtype[0] = dtype


def unwrap(value: Any) -> Any:
    """A value of modules as Relax's expression; lists are tuples."""
    if isinstance(value, (Tensor, Object)):
        return value._expr
    return expr.Tuple(list(map(unwrap, value))) if isinstance(value, (list, tuple)) else value


def wrap_nested(value: Any, name: str) -> Any:
    """An expression as a value of modules, bound in the function that is being built; a tuple by its fields."""
    builder = BlockBuilder.current()
    if builder is not None and not isinstance(value, Var):
        value = builder.emit(value, name)
    info = value.struct_info
    if isinstance(info, TupleStructInfo):
        return tuple(wrap_nested(expr.TupleGetItem(value, at), f"{name}.{at}") for at in range(len(info.fields)))
    return Tensor(_expr=value) if isinstance(info, TensorStructInfo) else Object(_expr=value)


NAMES = {"multiply": "mul", "negative": "neg"}  # of variables


def _method(name: str, swapped: bool = False) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        return wrap_nested(OPERATOR_CALLS[name](*(_operand(each, self) for each in pair)), NAMES.get(name, name))

    return method


def _operand(value: Any, other: Tensor) -> Any:
    return expr.const(value, other.dtype) if isinstance(value, (int, float)) else unwrap(value)


class Tensor:
    """A tensor of a module's `forward`."""

    def __init__(self, *, _expr: Any) -> None:
        self._expr = _expr

    @staticmethod
    def placeholder(shape: Sequence[Any], dtype: str, name: str = "tensor") -> Tensor:
        """A variable of this shape, whose sizes may have names."""
        return Tensor(_expr=Var(name, TensorStructInfo(list(shape), dtype)))

    @staticmethod
    def from_const(data: Any) -> Tensor:
        return Tensor(_expr=expr.const(data))

    @staticmethod
    def from_scalar(data: float, dtype: str) -> Tensor:
        return Tensor(_expr=expr.const(data, dtype))

    def __repr__(self) -> str:
        return f'Tensor({self.shape}, "{self.dtype}")'

    @property
    def shape(self) -> list[Any]:
        return list(self._expr.struct_info.shape)

    @property
    def ndim(self) -> int:
        return self._expr.struct_info.ndim

    @property
    def dtype(self) -> str:
        return self._expr.struct_info.dtype

    __add__ = __radd__ = _method("add")
    __sub__, __rsub__ = _method("subtract"), _method("subtract", swapped=True)
    __mul__ = __rmul__ = _method("multiply")
    __truediv__, __rtruediv__ = _method("divide"), _method("divide", swapped=True)
    __lt__, __le__, __gt__, __ge__ = map(_method, ("less", "less_equal", "greater", "greater_equal"))
    maximum, minimum = _method("maximum"), _method("minimum")

    def repeat(self, repeats: int, axis: int | None = None) -> Any:
        return wrap_nested(OPERATOR_CALLS["repeat"](self._expr, repeats, axis), "repeat")

    def astype(self, dtype: str) -> Any:
        return wrap_nested(OPERATOR_CALLS["astype"](self._expr, dtype), "astype")

    def reshape(self, *shape: Any) -> Any:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
        return wrap_nested(OPERATOR_CALLS["reshape"](self._expr, list(sizes)), "reshape")

    def permute_dims(self, *axes: Any) -> Any:
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (list, tuple)) else axes or None
        return wrap_nested(OPERATOR_CALLS["permute_dims"](self._expr, order), "permute_dims")


class Parameter(Tensor):
    """A weight of a module, with its data once they are known."""

    def __init__(self, shape: Sequence[Any], dtype: str | None = None) -> None:
        super().__init__(_expr=Var("param", TensorStructInfo(list(shape), dtype or get_default_dtype())))
        self._data: NDArray | None = None
        self.attrs: dict[str, Any] = {}

    @property
    def data(self) -> NDArray | None:
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        """Raises CheckError for data of another shape."""
        made = value if isinstance(value, NDArray) else array(value)
        if list(made.shape) != self.shape:
            raise CheckError(f"Parameter: data: expected the shape {self.shape}, got {list(made.shape)}")
        self._data = made

    def to(self, dtype: str | None = None) -> None:
        """Another element type; raises CheckError where data are there already."""
        if dtype is not None:
            if self._data is not None:
                raise CheckError("Parameter.to: the parameter has data; change the type before")
            self._expr = Var("param", TensorStructInfo(self.shape, dtype))


class Object:
    """A value of another kind than tensors, as a cache is."""

    def __init__(self, *, _expr: Any, _name: str = "") -> None:
        self._expr = _expr


class Effect:
    """State that functions take after their inputs, and give after their results: a variable."""

    state: Any = None  # in the function that is being built

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Any]:
        """Its values at the beginning."""
        raise NotImplementedError

    def create(self, name_hint: str) -> list[Var]:
        """The parameters that hold it in a function."""
        self.state = object_var(name_hint)
        return [self.state]

    def set_state(self, state_vars: list[Any]) -> None:
        """What it is in the function that is being built."""
        (self.state,) = state_vars

    def finalize(self) -> list[Any]:
        """What it has become."""
        result, self.state = self.state, None
        return [result]

    def to(self, dtype: str | None = None) -> None:
        pass


class IOEffect(Effect):
    """That of what is seen outside, as printing is."""

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Any]:
        return [builder.emit(OPERATOR_CALLS["null_value"](), f"{name_hint}_io")]

    def create(self, name_hint: str) -> list[Var]:
        return super().create(f"{name_hint}_io")


class Module:
    """A part of a network: its parameters are its attributes, and those of the modules among them."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises NotImplementedError for a module without `forward`."""
        if not hasattr(self, "forward"):
            raise NotImplementedError(f"Module {type(self)} does not have a `forward` method")
        return self.forward(*args, **kwargs)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """The parameters, by their places in the module."""
        return found_in(self, prefix, Parameter)

    def parameters(self) -> Iterator[Parameter]:
        return (each for _, each in self.named_parameters())

    def state_dict(self, *, prefix: str = "") -> dict[str, Parameter]:
        return dict(self.named_parameters(prefix))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
        """Gives parameters their data; what is missing, and what is not known. Raises KeyError for such, if `strict`."""
        own = self.state_dict()
        for name in own.keys() & state_dict.keys():
            given = state_dict[name]
            own[name].data = given.data if isinstance(given, Parameter) else given
        missing, unknown = (
            [each for each in own if each not in state_dict],
            [each for each in state_dict if each not in own],
        )
        if strict and (missing or unknown):
            raise KeyError(f"load_state_dict: missing: {missing}, unknown: {unknown}")
        return missing, unknown

    def to(self, dtype: str | None = None) -> None:
        """Another element type for all parameters."""
        for each in vars(self).values():
            if isinstance(each, (Module, Parameter, Effect)):
                each.to(dtype)

    def export_tvm(self, spec: Any, debug: bool = False, allow_extern: bool = False) -> tuple[Any, ...]:
        """The module's program, and its parameters by name; with `debug` functions take and give a value for effects."""
        made, params = _exported(self, spec, debug)
        return (made, params, []) if allow_extern else (made, params)


class ModuleList(Module):
    """Modules one after another."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self.modules = list(modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __getitem__(self, index: int) -> Module:
        return self.modules[index]

    def __setitem__(self, index: int, module: Module) -> None:
        self.modules[index] = module

    def __len__(self) -> int:
        return len(self.modules)

    def append(self, module: Module) -> None:
        self.modules.append(module)

    def to(self, dtype: str | None = None) -> None:
        for each in self.modules:
            each.to(dtype)

    def forward(self, x: Any) -> Any:
        for each in self.modules:
            x = each(x)
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self.modules = dict(modules or {})

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules.values())

    def __getitem__(self, key: str) -> Module:
        return self.modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.modules[key] = module

    def __len__(self) -> int:
        return len(self.modules)

    def keys(self) -> Iterator[str]:
        return iter(self.modules)

    def values(self) -> Iterator[Module]:
        return iter(self.modules.values())

    def items(self) -> Iterator[tuple[str, Module]]:
        return iter(self.modules.items())

    def to(self, dtype: str | None = None) -> None:
        for each in self.modules.values():
            each.to(dtype)


def found_in(root: Any, prefix: str, kind: type) -> Iterator[tuple[str, Any]]:
    """What of a kind is among a module's attributes, and those of the modules in it, by place."""
    if isinstance(root, kind):
        yield prefix, root
        return
    if isinstance(root, ModuleList):
        members: Any = ((str(at), each) for at, each in enumerate(root))
    else:
        members = root.items() if isinstance(root, ModuleDict) else vars(root).items()
    for name, each in members:
        if isinstance(each, (kind, Module)):
            yield from found_in(each, f"{prefix}.{name}" if prefix else name, kind)


def object_var(name: str) -> Var:
    """A variable of which nothing is known."""
    return Var(name, ObjectStructInfo())


# ---- programs ----


def _exported(module: Module, spec: Mapping[str, Any], debug: bool) -> tuple[IRModule, list[tuple[str, Any]]]:
    """The program of a module's functions, and its parameters. Raises TypeError for what a spec does not name."""
    builder = BlockBuilder()
    effects = [("", IOEffect())] if debug else []
    effects += list(found_in(module, "", Effect))
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
    module: Module,
    name: str,
    given: dict[str, Any],
    params: Sequence[tuple[str, Any]],
    effects: Sequence[tuple[str, Effect]],
) -> None:
    """A function: inputs, then effects, then parameters; `$` among the inputs says how the latter are taken."""
    modes = {"param_mode": "plain", "effect_mode": "plain", **given.pop("$", {})}
    method = getattr(module, name)
    names = [each for each in inspect.signature(method).parameters if each in given]
    inputs = [_input(each, given[each]) for each in names]
    states = [effect.create(prefix) for prefix, effect in effects]
    own = [Tensor.placeholder(param.shape, param.dtype, place)._expr for place, param in params]
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
            result = unwrap(method(*arguments))
            if extra:
                after = [each for _, effect in effects for each in effect.finalize()]
                result = expr.Tuple([result, expr.Tuple(after)])
            output = builder.emit_output(result)
        builder.emit_func_output(output, [*inputs, *extra, *weights])
    for (_, param), each in zip(params, before, strict=True):
        param._expr = each


def _input(name: str, given: Any) -> Var:
    """The parameter that a spec says. Raises TypeError for anything else."""
    if isinstance(given, spec.Tensor):
        return Tensor.placeholder(given.shape, given.dtype, name)._expr
    if given is int or isinstance(given, spec.Int):
        return Var(name, ShapeStructInfo([dims.named(name)]))
    if isinstance(given, spec.Object):
        return object_var(name)
    elements = given.elements if isinstance(given, spec.Tuple) else given
    if not isinstance(elements, (list, tuple)):
        raise TypeError(f"{name}: expected spec.Tensor, spec.Tuple, spec.Object or int, got {given!r}")
    return Var(name, TupleStructInfo([_input(f"{name}_{at}", each).struct_info for at, each in enumerate(elements)]))


def _argument(var: Var, given: Any, builder: BlockBuilder) -> Any:
    """What `forward` gets for a parameter."""
    if isinstance(given, spec.Tensor):
        return Tensor(_expr=var)
    if given is int or isinstance(given, spec.Int):
        return var.struct_info.values[0]
    if isinstance(given, spec.Object):
        return Object(_expr=var)
    elements = given.elements if isinstance(given, spec.Tuple) else given
    fields = [builder.emit(expr.TupleGetItem(var, at)) for at in range(len(elements))]
    made = [
        Tensor(_expr=each) if isinstance(part, spec.Tensor) else Object(_expr=each)
        for each, part in zip(fields, elements, strict=True)
    ]
    return made if isinstance(given, list) else tuple(made)
