"""Where each value lies: types get their devices, and what crosses from one to another is copied.

    y = device_copy(x) {device="gpu0"}          y: float32[n]@gpu0 = device_copy(x) {device="gpu0"}
    z = add(y, w)                               v: float32[n]@gpu0 = device_copy(w) {device="gpu0"}
                                                z: float32[n]@gpu0 = add(y, v)

An operator is computed where its operands lie: where they lie on several devices, on the first of them that is not the host. One
of a node that has been placed is computed where that says, and what its device has no kernel for on the host. Variables of loops
stay where they start, the results of branches where the first one's lies. Functions, closures and data values have all they take
and give on the host. Constants lie wherever they are read. Targets' passes are those of the host's target; a device is asked
whether it has kernels for what these leave.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...formats.messages.errors import CompileError
from ...formats.messages.names import near
from ...formats.primitive import PrimitiveDefinition
from ...formats.program import HOST
from ...formats.types import UNKNOWN, TensorType, TupleType, Type, map_types, placed_as
from .. import bounds, ir
from ..codegen.definitions import define
from ..ir.analysis import expressions, tensors_in, type_of
from ..operators.table import Fusion, lookup
from .fuse import OF_THE_MACHINE
from .rewriting import Emitter, operator_call

COPY = "device_copy"


@dataclass(frozen=True)
class Devices:
    """`devices`: by name, whether a device has a kernel for a definition. `nodes`: where the operators of nodes of the model are
    computed. Raises CompileError for the name of a device or node that does not exist."""

    devices: Mapping[str, Callable[[PrimitiveDefinition], bool]] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    name: str = "devices"

    def __call__(self, module: ir.Module) -> ir.Module:
        bindings = [each for function in module.functions.values() for each in expressions(function.body)]
        copies = (
            each.value for each in bindings if isinstance(each.value, ir.OperatorCall) and each.value.operator == COPY
        )
        for device in (*self.nodes.values(), *map(_copied_to, copies)):
            if device not in (HOST, *self.devices):
                raise CompileError(
                    f"there is no device {device!r}; there is {', '.join((HOST, *self.devices))}{near(device, self.devices)}; "
                    "compile(…, devices={name: target}) gives names to devices"
                )
        origins = {each.origin for each in bindings} - {""}
        if lost := sorted(self.nodes.keys() - origins):
            known = ", ".join(sorted(origins)[:20]) or "none"
            raise CompileError(
                f"placement: no operator of a node {lost[0]!r} is left; there are those of {known}{near(lost[0], origins)}"
            )
        return _Placing(module, self).run() if self.devices else module


def _copied_to(call: ir.OperatorCall) -> str:
    return str(dict(call.attributes)["device"])


def _on(type_: Type, device: str) -> Type:
    return map_types(type_, lambda part: part.on(device) if isinstance(part, TensorType) else part)


class _Placing(Emitter):
    def __init__(self, module: ir.Module, options: Devices) -> None:
        super().__init__(module)
        self.options = options
        self.copies: ChainMap[tuple[ir.Atom, str], ir.Atom] = ChainMap()  # in this block and those around

    def function(self, function: ir.Function) -> ir.Function:
        assert function.result_type is not None
        return dataclasses.replace(function, body=self.scope(function.body, function.result_type))

    def scope(self, block: ir.Block, wanted: Type | None = None) -> ir.Block:
        """The block, whose result lies where a type says; by default where it is made."""
        around, self.new, self.copies = self.new, [], self.copies.new_child()
        for binding in block.bindings:
            bounds.check(binding.origin)
            self.origin = binding.origin
            _PLACE.get(type(binding.value), _Placing._on_host)(self, binding, binding.value)
        result = self.atom(block.result)
        result = result if wanted is None else self.moved(result, wanted)
        made, self.new, self.copies = self.new, around, self.copies.parents
        return ir.Block(tuple(made), result)

    def type(self, atom: ir.Atom) -> Type:
        return type_of(atom, self.module)

    def keep(self, binding: ir.Binding, value: ir.Expr, like: Type) -> None:
        """Binds a value that lies where one of the type `like` does; the variable is a new one where its type says so."""
        assert binding.var.type is not None
        type_ = placed_as(binding.var.type, like)
        var = binding.var if binding.var.type == type_ else ir.Var(binding.var.name, type_)
        if var is not binding.var:
            self.atoms[binding.var] = var
        self.new.append(ir.Binding(var, value, binding.origin))

    def moved(self, atom: ir.Atom, wanted: Type) -> ir.Atom:
        """The value where a type says that it lies."""
        have = self.type(atom)
        there = placed_as(have, wanted)
        if there == have:
            return atom
        if isinstance(have, TupleType) and isinstance(there, TupleType):
            fields = [self.bind(ir.GetItem(atom, index), each, "field") for index, each in enumerate(have.fields)]
            return self.bind(ir.MakeTuple(tuple(map(self.moved, fields, there.fields))), there, "moved")
        assert isinstance(have, TensorType)
        assert isinstance(there, TensorType)
        found = self.copies.get((atom, there.device))
        if found is None:
            if have.dtype.is_string:
                raise CompileError(
                    f"texts lie on the host, not on the device {there.device!r}", node=self.origin or None
                )
            call = operator_call(COPY, atom, device=there.device or HOST)
            found = self.copies[atom, there.device] = self.bind(call, there, "copy")
            self.copies[found, have.device] = atom
        return found

    def on(self, device: str, atom: ir.Atom) -> ir.Atom:
        """The value on a device, "" for the host."""
        atom = self.atom(atom)
        return self.moved(atom, _on(self.type(atom), device))

    # ---- expressions, by their kinds ----

    def _on_host(self, binding: ir.Binding, value: ir.Expr) -> None:
        assert binding.var.type is not None
        type_ = binding.var.type
        moved = ir.map_atoms(value, lambda atom: self.on("", atom), lambda block: self.scope(block, type_))
        self.keep(binding, moved, type_)

    def _atom(self, binding: ir.Binding, value: ir.Atom) -> None:
        atom = self.atom(value)
        type_ = self.type(atom)
        if placed_as(binding.var.type, type_) == type_:  # type: ignore[arg-type]
            self.atoms[binding.var] = atom
        else:  # the new name's type promises less
            self.keep(binding, atom, type_)

    def _operator(self, binding: ir.Binding, call: ir.OperatorCall) -> None:
        assert binding.var.type is not None
        if call.operator == COPY:
            device = _copied_to(call)
            return self._atom(binding, self.on("" if device == HOST else device, call.args[0]))
        args = tuple(map(self.atom, call.args))
        device = self._device_of(binding, call, args)
        if call.operator != "shape":  # which reads no elements
            args = tuple([arg if isinstance(arg, ir.Constant) else self.on(device, arg) for arg in args])
        self.keep(binding, dataclasses.replace(call, args=args), _on(binding.var.type, device))

    def _device_of(self, binding: ir.Binding, call: ir.OperatorCall, args: Sequence[ir.Atom]) -> str:
        places = (part.device for arg in args for part in tensors_in(self.type(arg)) if part.device)
        device = self.options.nodes.get(binding.origin) or next(places, HOST)
        return "" if device == HOST or not self._computes(device, binding, call) else device

    def _computes(self, device: str, binding: ir.Binding, call: ir.OperatorCall) -> bool:
        atoms = (*call.args, binding.var)
        tensors = [part for atom in atoms for part in tensors_in(self.type(atom))]
        if call.operator in OF_THE_MACHINE or any(UNKNOWN in part.shape or part.dtype.is_string for part in tensors):
            return False
        if lookup(call.operator).fusion is Fusion.VIEW:
            return True
        return self.options.devices[device](define([binding], [binding.var], self.type)[0])

    def _tuple(self, binding: ir.Binding, value: ir.MakeTuple) -> None:
        fields = tuple(map(self.atom, value.fields))
        self.keep(binding, ir.MakeTuple(fields), TupleType(tuple(map(self.type, fields))))

    def _item(self, binding: ir.Binding, value: ir.GetItem) -> None:
        whole = self.atom(value.tuple)
        found = self.type(whole)
        assert isinstance(found, TupleType)
        self.keep(binding, ir.GetItem(whole, value.index), found.fields[value.index])

    def _match_shape(self, binding: ir.Binding, value: ir.MatchShape) -> None:
        tensor = self.atom(value.value)
        self.keep(binding, ir.MatchShape(tensor, value.shape), self.type(tensor))

    def _if(self, binding: ir.Binding, value: ir.If) -> None:
        condition = self.on("", value.condition)
        then = self.scope(value.then)
        type_ = self.type(then.result)
        self.keep(binding, ir.If(condition, then, self.scope(value.otherwise, type_)), type_)

    def _loop(self, binding: ir.Binding, value: ir.Loop) -> None:
        initial = tuple(map(self.atom, value.initial))
        variables = tuple(
            ir.Var(old.name, placed_as(old.type, self.type(new)))  # type: ignore[arg-type]
            for old, new in zip(value.variables, initial, strict=True)
        )
        self.atoms.update(zip(value.variables, variables, strict=True))
        types = TupleType(tuple(map(self.type, variables)))
        condition = self.scope(value.condition, self.type(value.condition.result))
        self.keep(binding, ir.Loop(variables, initial, condition, self.scope(value.body, types)), types)


_PLACE: dict[type, Callable[..., None]] = {
    ir.Var: _Placing._atom,
    ir.Constant: _Placing._atom,
    ir.OperatorCall: _Placing._operator,
    ir.MakeTuple: _Placing._tuple,
    ir.GetItem: _Placing._item,
    ir.MatchShape: _Placing._match_shape,
    ir.If: _Placing._if,
    ir.Loop: _Placing._loop,
}
