"""Operator fusion: operators become primitives, each computed by one kernel.

An elementwise operator joins the primitive that makes its operand when that is a chain of elementwise operators, a
reduction, or an anchor (convolution, matrix product, softmax …) whose result nothing else needs, or that it only rounds; a
reduction takes in the elementwise operators before it, a resize a preceding resize along another axis, attention what joins its
keys and values to those of earlier tokens. Values of no input (`full`) are computed again wherever they are used. Two primitives
never wait for each other: a merge that would make a cycle is not done.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.primitive import PrimitiveDefinition
from ...formats.types import UNKNOWN, TensorType, TupleType, Type
from .. import bounds, ir
from ..codegen.definitions import define
from ..ir.analysis import atoms_in, dimension_uses, tensors_in, type_of
from ..ir.effects import Effects
from ..operators.table import Fusion, lookup

Supports = Callable[[PrimitiveDefinition], bool]

# instructions of the machine
OF_THE_MACHINE = frozenset({"extent", "extents", "shape", "shape_tensor", "device_copy"})
_MAX_NODES = 48
_MAX_PARAMS = 24
_MAX_OUTPUTS = 4


@dataclass(frozen=True)
class Fuse:
    """`supports` tells whether there is a native kernel for a definition, `devices` whether a device of that name has one; where
    they say nothing, all are assumed to have one."""

    supports: Supports | None = None
    devices: Mapping[str, Supports] = field(default_factory=dict)
    name: str = "fuse"

    def __call__(self, module: ir.Module) -> ir.Module:
        effects = Effects(module)
        functions = {
            name: dataclasses.replace(function, body=_BlockFusion(function.body, module, self, effects).run())
            for name, function in module.functions.items()
        }
        return dataclasses.replace(module, functions=functions)


@dataclass(eq=False)
class _Group:
    """Bindings that are computed together: operator calls of one primitive, or any one other binding."""

    members: list[ir.Binding]
    kind: Fusion | None  # kind of the operator that decides what may join; None for anything but an operator call
    last: int  # the position in the block of its last member
    place: int = 0  # among the groups: see _Order
    inputs: dict[ir.Var, None] = field(default_factory=dict)  # outside variables that it depends on
    merged_into: _Group | None = None

    def find(self) -> _Group:
        return self if self.merged_into is None else self.merged_into.find()


class _Order:
    """A topological order of groups. Places are numbers with gaps for others between them:
    a move does not renumber the rest."""

    _ROOM = 1 << 128

    def __init__(self) -> None:
        self._places: list[int] = []  # ascending; including abandoned ones

    def append(self, group: _Group) -> None:
        group.place = (self._places[-1] if self._places else 0) + self._ROOM
        self._places.append(group.place)

    def move(self, groups: Sequence[_Group], before: _Group, everyone: Callable[[], Iterable[_Group]]) -> None:
        """Puts groups, in the order that they have, before another one; `everyone` gives all groups."""
        at = bisect_left(self._places, before.place)
        if before.place - (self._places[at - 1] if at else 0) <= len(groups):
            for group in everyone():
                group.place *= self._ROOM
            self._places = [place * self._ROOM for place in self._places]
        lowest = self._places[at - 1] if at else 0
        step = (before.place - lowest) // (len(groups) + 1)
        places = [lowest + step * number for number in range(1, len(groups) + 1)]
        self._places[at:at] = places
        for group, place in zip(sorted(groups, key=lambda group: group.place), places, strict=True):
            group.place = place


class _BlockFusion:
    def __init__(self, block: ir.Block, module: ir.Module, options: Fuse, effects: Effects) -> None:
        self.block, self.module, self.options, self.effects = block, module, options, effects
        self.last_effect: ir.Var | None = None  # effects keep their order
        self.groups: dict[ir.Var, _Group] = {}  # by the variables of their members
        self.positions: dict[ir.Var, int] = {}
        self.free: dict[ir.Var, ir.Binding] = {}  # values without inputs
        self.users: dict[ir.Var, list[_Group | None]] = {}  # None: the block's result
        self.provider: dict[str, ir.Var] = {}  # of dimension variables that MatchShape binds
        self.order = _Order()

    def run(self) -> ir.Block:
        for position, binding in enumerate(self.block.bindings):
            bounds.check(binding.origin)
            self._add(binding, position)
        self._count_users()
        for binding in self.block.bindings:
            bounds.check(binding.origin)
            self._fuse(binding)
        return ir.Block(tuple(self._emit_all()), self.block.result)

    # ---- the graph of groups ----

    def _add(self, binding: ir.Binding, position: int) -> None:
        value = (
            ir.map_atoms(binding.value, lambda atom: atom, self._inner) if any(ir.blocks_of(binding.value)) else None
        )
        binding = binding if value is None else dataclasses.replace(binding, value=value)
        group = _Group([binding], self._kind(binding), position)
        self.order.append(group)
        group.inputs = dict.fromkeys(self._needs(binding))
        if self.effects.has(binding.value):
            if self.last_effect is not None:
                group.inputs[self.last_effect] = None
            self.last_effect = binding.var
        self.groups[binding.var] = group
        self.positions[binding.var] = position
        if isinstance(binding.value, ir.MatchShape):
            for dim in binding.value.shape:
                if dims.is_variable(dim):  # type: ignore[arg-type]
                    self.provider.setdefault(str(dim), binding.var)
        if group.kind is Fusion.ELEMENTWISE and not binding.value.args:  # type: ignore[union-attr]
            self.free[binding.var] = binding

    def _inner(self, block: ir.Block) -> ir.Block:
        return _BlockFusion(block, self.module, self.options, self.effects).run()

    def _kind(self, binding: ir.Binding) -> Fusion | None:
        call = binding.value
        if not isinstance(call, ir.OperatorCall) or call.operator in OF_THE_MACHINE:
            return None
        kind = lookup(call.operator).fusion
        if kind is Fusion.VIEW:
            return Fusion.OPAQUE if _has_unknown(binding.var.type) else None
        unknown = any(_has_unknown(self._type(arg)) for arg in call.args)
        if unknown or _has_unknown(binding.var.type) or isinstance(binding.var.type, TupleType):
            return Fusion.OPAQUE
        supports = self._supports(binding)
        if supports is not None and not supports(define([binding], [binding.var], self._type)[0]):
            return Fusion.OPAQUE
        return kind

    def _needs(self, binding: ir.Binding) -> Iterator[ir.Var]:
        """The variables of this block that the binding depends on: those used, and those that bind dimensions."""
        atoms: list[ir.Atom] = list(ir.atoms_of(binding.value))
        for inner in ir.blocks_of(binding.value):
            atoms += atoms_in(inner)
        names = dimension_uses(binding)
        atoms += [self.provider[name] for name in names if name in self.provider]
        return (atom for atom in atoms if isinstance(atom, ir.Var) and atom in self.groups)

    def _type(self, atom: ir.Atom) -> Type:
        return type_of(atom, self.module)

    def _count_users(self) -> None:
        for group in dict.fromkeys(self.groups.values()):
            for var in group.inputs:
                self.users.setdefault(var, []).append(group)
        if isinstance(self.block.result, ir.Var):
            self.users.setdefault(self.block.result, []).append(None)

    def _outputs(self, members: Iterable[ir.Binding]) -> list[ir.Var]:
        """The variables of `members` that are used outside of them."""
        inside = {member.var for member in members}
        groups = {self.groups[var].find() for var in inside}
        return [
            member.var
            for member in members
            if any(user is None or user.find() not in groups for user in self.users.get(member.var, ()))
        ]

    # ---- merging ----

    def _fuse(self, binding: ir.Binding) -> None:
        group = self.groups[binding.var].find()
        if group.kind is Fusion.ELEMENTWISE and binding.var not in self.free:
            producers = {self.groups[var].find() for var in self._operands(binding) if var in self.groups}
            for producer in sorted(producers, key=lambda g: (g.kind is Fusion.ELEMENTWISE, -g.last)):
                group = self._try_merge(producer, group, binding.var.type)
        elif _is_resampling(group):
            for var in self._operands(binding):
                if var in self.groups and _is_resampling(self.groups[var].find()):
                    self._try_merge(self.groups[var].find(), group, var.type)
        elif _operator(binding) == "attention":
            for var in self._operands(binding):
                group = self._take_in(var, group, ({"concat"}, {"permute_dims", "slice"}))
        elif group.kind is Fusion.REDUCTION:
            for var in self._operands(binding):
                if var in self.groups and self.groups[var].find().kind is Fusion.ELEMENTWISE:
                    group = self._try_merge(self.groups[var].find(), group, var.type)

    def _take_in(self, var: ir.Var, group: _Group, operators: Sequence[Collection[str]]) -> _Group:
        """Merges an attention with what moves its operand's elements, one of the first operators and then of those before it."""
        producer = self.groups[var].find() if var in self.groups else None
        if producer is None or not operators or _operator(producer.members[-1]) not in operators[0]:
            return group
        moved = list(self._operands(producer.members[-1]))
        group = self._try_merge(producer, group, var.type)
        if producer.merged_into is group:
            for each in moved:
                group = self._take_in(each, group, operators[1:])
        return group

    def _operands(self, binding: ir.Binding) -> Iterator[ir.Var]:
        return (arg for arg in ir.atoms_of(binding.value) if isinstance(arg, ir.Var) and arg not in self.free)

    def _try_merge(self, producer: _Group, consumer: _Group, shared: Type | None) -> _Group:
        """The merged group, or `consumer` if they stay two. `shared`: a type whose shape they must agree on."""
        producer, consumer = producer.find(), consumer.find()
        if producer is consumer or not self._may_merge(producer, consumer, shared):
            return consumer
        between = self._needed_between(producer, consumer)
        if between is None:
            return consumer
        kind = producer.kind if producer.kind in (Fusion.ANCHOR, Fusion.REDUCTION) else consumer.kind
        members = self._in_order([*producer.members, *consumer.members])
        merged = _Group(members, kind, max(producer.last, consumer.last), producer.place)
        inside = {member.var for member in members}
        merged.inputs = {var: None for var in (*producer.inputs, *consumer.inputs) if var not in inside}
        if merged.kind is not Fusion.ELEMENTWISE:
            outputs = self._outputs_if_merged(producer, consumer)
            if not self._is_supported(members, outputs or [members[-1].var]):
                return consumer
        if between:  # before what is now one with the producer
            self.order.move(between, producer, lambda: {group.find() for group in self.groups.values()})
            merged.place = producer.place
        producer.merged_into = consumer.merged_into = merged
        return merged

    def _in_order(self, members: list[ir.Binding]) -> list[ir.Binding]:
        """An anchor first (its operands come from outside), the others in the block's order."""
        return sorted(members, key=lambda m: (_fusion(m) is not Fusion.ANCHOR, self.positions[m.var]))

    def _may_merge(self, producer: _Group, consumer: _Group, shared: Type | None) -> bool:
        if _is_resampling(producer) and _is_resampling(consumer):
            return self._outputs_if_merged(producer, consumer) == [consumer.members[-1].var]
        if consumer.kind is Fusion.OPAQUE and producer.kind is Fusion.MOVEMENT:
            return self._outputs_if_merged(producer, consumer) == [consumer.members[-1].var]
        if producer.kind not in (Fusion.ELEMENTWISE, Fusion.REDUCTION, Fusion.ANCHOR) or not isinstance(
            shared, TensorType
        ):
            return False
        if producer.kind is not Fusion.ELEMENTWISE and consumer.kind is not Fusion.ELEMENTWISE:
            return False
        members = [*producer.members, *consumer.members]
        outside = {var for member in members for var in self._operands(member)} - {member.var for member in members}
        if len(members) > _MAX_NODES or len(outside) > _MAX_PARAMS:
            return False
        outputs = self._outputs_if_merged(producer, consumer)
        if Fusion.ELEMENTWISE is producer.kind is consumer.kind:
            shapes = {_shape(var.type) for var in outputs}
            made = {_shape(member.var.type) for member in producer.members}
            return len(outputs) <= _MAX_OUTPUTS and shapes == made == {shared.shape}
        if consumer.kind is Fusion.ANCHOR and not self._is_beside(producer, _main(consumer)):
            return False
        last = consumer.members[-1].var
        joint = producer.members[-1].var if consumer.kind is Fusion.REDUCTION else _main(producer).var
        is_rounded = outputs == [*consumer.members[0].value.args[:1], last] and _is_rounding(consumer)  # type: ignore[union-attr]
        return (outputs == [last] or is_rounded) and _shape(joint.type) == shared.shape

    def _is_beside(self, producer: _Group, anchor: ir.Binding) -> bool:
        """Whether the anchor, which takes no prologue, uses no result of `producer`."""
        return not {member.var for member in producer.members} & set(ir.atoms_of(anchor.value))

    def _outputs_if_merged(self, producer: _Group, consumer: _Group) -> list[ir.Var]:
        both = (producer, consumer)
        return [
            member.var
            for member in (*producer.members, *consumer.members)
            if any(user is None or user.find() not in both for user in self.users.get(member.var, ()))
        ]

    def _needed_between(self, producer: _Group, consumer: _Group) -> list[_Group] | None:
        """The groups between producer and consumer that the consumer needs; None if one of them needs the producer: the
        fused group and it would wait for each other. Only groups between the two are visited."""
        seen: dict[_Group, None] = {}
        pending = [self.groups[var].find() for var in consumer.inputs]
        while pending:
            group = pending.pop()
            if group is producer or group.place < producer.place or group in seen:
                continue
            seen[group] = None
            needed = [self.groups[var].find() for var in group.inputs]
            if producer in needed:
                return None
            pending += needed
        return list(seen)

    def _is_supported(self, members: list[ir.Binding], outputs: list[ir.Var]) -> bool:
        supports = self._supports(members[-1])
        return supports is None or supports(define(self._with_free(members), outputs, self._type)[0])

    def _supports(self, binding: ir.Binding) -> Supports | None:
        """What says whether the place where a binding is computed has a kernel. All that is merged is computed in one place: what
        crosses to another is copied in between (`devices.py`)."""
        type_ = binding.var.type
        return self.options.devices.get(getattr(type_, "device", ""), self.options.supports)

    # ---- the new block ----

    def _with_free(self, members: list[ir.Binding]) -> list[ir.Binding]:
        """`members`, preceded by the values without inputs that they use."""
        used = dict.fromkeys(
            arg
            for member in members
            for arg in ir.atoms_of(member.value)
            if _fusion(member) is Fusion.ELEMENTWISE and arg in self.free
        )
        inside = {member.var for member in members}
        return [*(self.free[var] for var in used if var not in inside), *members]

    def _emit_all(self) -> Iterator[ir.Binding]:
        done: set[_Group] = set()
        for group in sorted({group.find() for group in self.groups.values()}, key=lambda group: group.last):
            yield from self._emit(group, done)

    def _emit(self, group: _Group, done: set[_Group]) -> Iterator[ir.Binding]:
        """The group's bindings, after those that it depends on."""
        if group in done:
            return
        done.add(group)
        for var in group.inputs:
            yield from self._emit(self.groups[var].find(), done)
        if group.kind is None:
            yield group.members[0]
        elif not self._is_absorbed(group):
            yield from self._primitive(group)

    def _is_absorbed(self, group: _Group) -> bool:
        """Whether the group is a value without inputs that all its users recompute."""
        var = group.members[0].var
        if var not in self.free:
            return False
        for user in self.users.get(var, ()):
            members = user.find().members if user is not None else []
            takers = [member for member in members if var in ir.atoms_of(member.value)]
            if not takers or any(_fusion(member) is not Fusion.ELEMENTWISE for member in takers):
                return False  # without takers, it is used in a block of a member
        return True

    def _primitive(self, group: _Group) -> Iterator[ir.Binding]:
        members = self._with_free(group.members)
        outputs = self._outputs(group.members) or [group.members[-1].var]
        definition, args = define(members, outputs, self._type)
        call = ir.PrimitiveCall(definition, args)
        origin = " + ".join(dict.fromkeys(member.origin for member in group.members if member.origin))
        if len(outputs) == 1:
            yield ir.Binding(outputs[0], call, origin)
            return
        together = ir.Var("fused", TupleType(tuple(map(self._type, outputs))))
        yield ir.Binding(together, call, origin)
        for index, var in enumerate(outputs):
            yield ir.Binding(var, ir.GetItem(together, index), self.groups[var].members[0].origin)


def _has_unknown(type_: Type | None) -> bool:
    return type_ is not None and any(UNKNOWN in tensor.shape for tensor in tensors_in(type_))


def _shape(type_: Type | None) -> object:
    return type_.shape if isinstance(type_, TensorType) else None


def _fusion(binding: ir.Binding) -> Fusion | None:
    operator = _operator(binding)
    return lookup(operator).fusion if operator is not None else None


def _is_resampling(group: _Group) -> bool:
    """Whether the group is a chain of resizes."""
    return group.kind is Fusion.MOVEMENT and all(_operator(member) == "resize" for member in group.members)


def _is_rounding(group: _Group) -> bool:
    """Whether the group is one operator that makes bfloat16 of a float32 tensor."""
    (made, *others) = (member.var.type for member in group.members)
    return not others and isinstance(made, TensorType) and made.dtype is DType.bfloat16 and len(group.inputs) == 1


def _operator(binding: ir.Binding) -> str | None:
    return binding.value.operator if isinstance(binding.value, ir.OperatorCall) else None


def _main(group: _Group) -> ir.Binding:
    """The operator that gives the group its kind."""
    return next((member for member in group.members if _fusion(member) is group.kind), group.members[-1])
