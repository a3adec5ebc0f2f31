"""Lowering: a function of the IR to linear code over virtual registers.

Control flow becomes jumps, and blocks in tail position return directly; a call of the function to itself there is a
jump to its start.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.isa import Kind
from ...formats.primitive import PrimitiveDefinition
from ...formats.program import HOST
from ...formats.types import UNKNOWN, FunctionType, TensorType, TupleType, Type, erase_dims
from .. import bounds, ir
from ..ir.analysis import atoms_in, expressions, is_symbolic, type_of
from ..operators.table import Fusion, lookup
from .definitions import define, result_tensors
from .emission import Emission, Fields, Number, Value
from .matching import lower_match
from .tables import Tables
from .virtual import Instruction, Label, Operand, Register, VirtualFunction


def lower(name: str, function: ir.Function, tables: Tables) -> VirtualFunction:
    """The linear code of a global function. Its types are inferred, its closures lifted, its data types monomorphic."""
    return _Lowering(name, function, tables).run()


class _Lowering(Emission):
    def __init__(self, name: str, function: ir.Function, tables: Tables) -> None:
        super().__init__(name, tables)
        self.function = function
        self.start = Label()

    def run(self) -> VirtualFunction:
        params = self.function.params
        self.code.params = tuple(self.code.new_register(Kind.REF, erase_dims(param.type)) for param in params)  # type: ignore[arg-type]
        self.place(self.start)
        self._bind_parameters()
        self._tail(self.function.body)
        used = {target for item in self.code.items if isinstance(item, Instruction) for target in item.targets()}
        self.code.items = [item for item in self.code.items if isinstance(item, Instruction) or item in used]
        return self.code

    # ---- parameters ----

    def _bind_parameters(self) -> None:
        """Variable dimensions are bound first, so that dimensions computed from them can be checked."""
        params = list(zip(self.function.params, self.code.params, strict=True))
        for param, register in params:
            assert param.type is not None
            self.scope.values[param] = self._unpack(register, param.type)
        tensors = [pair for param, _ in params for pair in self.tensors(self.scope.values[param], param.type)]
        self.bind_variables(tensors)
        for register, type_ in tensors:
            self.prove(register, type_)

    def _unpack(self, register: Register, type_: Type) -> Value:
        """The fields of a tuple in which dimensions occur; anything else stays whole."""
        if not isinstance(type_, TupleType) or not is_symbolic(type_):
            return register
        registers = [self.get_field(register, 0, index) for index in range(len(type_.fields))]
        parts = tuple(map(self._unpack, registers, type_.fields))
        value = Fields(parts, erase_dims(type_))
        self.scope.wholes[value] = register
        return value

    # ---- values ----

    def _type_of(self, atom: ir.Atom) -> Type:
        return type_of(atom, self.tables.module)

    def _value(self, atom: ir.Atom, device: str = "") -> Value:
        """`device`: where a constant is read."""
        if isinstance(atom, ir.Var):
            return self.scope.values[atom]
        if isinstance(atom, ir.Constant):
            index = self.tables.constant(atom, device)
            return self._shared(index, atom.type.on(device), "load_const", index)
        function = self.tables.functions[atom.name]
        return self._shared(atom.name, self._type_of(atom), "alloc_closure", function, ())

    def _shared(self, key: object, type_: Type, name: str, *operands: Operand) -> Register:
        """The instruction's result; an equal instruction in scope is reused."""
        found = self.scope.constants.get(key)
        if found is None:
            found = self.scope.constants[key] = self.new_ref(erase_dims(type_))
            self.emit(name, found, *operands)
        return found

    def _register(self, atom: ir.Atom, device: str = "") -> Register:
        return self.whole(self._value(atom, device))

    def _registers(self, atoms: Sequence[ir.Atom]) -> tuple[Register, ...]:
        return tuple(map(self._register, atoms))

    # ---- blocks ----

    def _block(self, block: ir.Block) -> Value:
        for binding in block.bindings:
            self._bind(binding)
        return self._value(block.result)

    def _bind(self, binding: ir.Binding) -> None:
        self.origin = binding.origin or self.origin
        bounds.check(self.origin)
        value = _LOWER[type(binding.value)](self, binding.value, binding.var.type)
        self.scope.values[binding.var] = self.prove(value, binding.var.type) if isinstance(value, Register) else value

    def _tail(self, block: ir.Block) -> None:
        """A block whose value the function returns."""
        last = block.bindings[-1] if block.bindings else None
        if last is None or block.result is not last.var or not isinstance(last.value, (ir.If, ir.Match, ir.Call)):
            self._return(self._block(block))
            return
        for binding in block.bindings[:-1]:
            self._bind(binding)
        self.origin = last.origin or self.origin
        if isinstance(last.value, ir.If):
            self._branch(last.value, self._tail)
        elif isinstance(last.value, ir.Match):
            self._match(last.value, self._tail)
        elif isinstance(last.value.callee, ir.GlobalRef) and last.value.callee.name == self.name:
            self._assign(self.code.params, self._arguments(last.value))
            self.emit("goto", self.start)
        else:
            self._return(self._call(last.value, last.var.type))  # type: ignore[arg-type]

    def _return(self, value: Value) -> None:
        register = self.prove(self.whole(value), erase_dims(self.function.result_type))  # type: ignore[arg-type]
        self.emit("ret", register)

    # ---- merging the values of several blocks ----

    def _meeting(self, type_: Type) -> Value:
        """New registers for a value that comes from several blocks."""
        if isinstance(type_, TupleType):
            return Fields(tuple(map(self._meeting, type_.fields)), erase_dims(type_))
        return self.new_ref(erase_dims(type_))

    def _pairs(self, target: Value, value: Value) -> list[tuple[Register, Register]]:
        if isinstance(target, Register):
            return [(target, self.whole(value))]
        parts = [self.field(value, 0, index) for index in range(len(target.fields))]
        return [pair for part, source in zip(target.fields, parts, strict=True) for pair in self._pairs(part, source)]

    def _assign_value(self, target: Value, value: Value) -> None:
        pairs = self._pairs(target, value)
        self._assign([pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def _assign(self, targets: Sequence[Register], sources: Sequence[Register]) -> None:
        """Moves all at once: a source that is also a target is saved first."""
        pairs = [pair for pair in zip(targets, sources, strict=True) if pair[0] is not pair[1]]
        overwritten = {target for target, _ in pairs}
        saved = {source: self.new_ref(source.type) for _, source in pairs if source in overwritten}
        for source, copy in saved.items():
            self.emit("move", copy, source)
        for target, source in pairs:
            self.emit("move", target, saved.get(source, source))

    # ---- expressions ----

    def _atom_expression(self, atom: ir.Atom, type_: Type) -> Value:
        return self._value(atom)

    def _operator_call(self, call: ir.OperatorCall, type_: Type) -> Value:
        special = _SPECIAL.get(call.operator)
        if special is not None:
            return special(self, call)
        if lookup(call.operator).fusion is Fusion.VIEW and isinstance(type_, TensorType) and UNKNOWN not in type_.shape:
            result = self.new_ref(type_)
            self.emit("reshape", result, self._register(call.args[0], type_.device), self.shape(type_.shape))
            return result
        var = ir.Var("", type_)
        definition, args = define([ir.Binding(var, call, self.origin)], [var], self._type_of)
        return self._call_primitive(definition, args, type_)

    def _primitive_call(self, call: ir.PrimitiveCall, type_: Type) -> Value:
        return self._call_primitive(call.definition, call.args, type_)

    def _call_primitive(self, definition: PrimitiveDefinition, args: Sequence[ir.Atom], type_: Type) -> Value:
        device = result_tensors(type_)[0].device
        index, sizes = self.tables.primitive(definition, device)
        inputs = tuple([self._register(arg, device) for arg in args])
        tensors = (*definition.params, *definition.results)
        if any(UNKNOWN in tensor.shape for tensor in tensors):
            results = tuple(self.new_ref(result) for result in definition.results)
            self.emit("call_host", index, results, inputs, self.shape(sizes))
        else:
            variables = self.told(sizes, tensors)
            results = tuple([self._allocate(result.on(device)) for result in definition.results])
            self.emit("call", index, inputs, results, variables)
        return Fields(results, erase_dims(type_)) if isinstance(type_, TupleType) else results[0]

    def _allocate(self, type_: TensorType) -> Register:
        result = self.new_ref(type_)
        if type_.device:
            device = self.tables.device(type_.device)
            self.emit("alloc_on", result, device, type_.dtype.code, self.shape(type_.shape))
        elif type_.is_static:
            self.emit("alloc_tensor", result, self.tables.type(type_))
        else:
            self.emit("alloc_dynamic", result, type_.dtype.code, self.shape(type_.shape))
        return result

    def _device_copy(self, call: ir.OperatorCall) -> Value:
        (arg,), device = call.args, str(dict(call.attributes)["device"])
        device = "" if device == HOST else device
        if isinstance(arg, ir.Constant):
            return self._value(arg, device)
        result = self.new_ref(self._type_of(arg).on(device))  # type: ignore[union-attr]
        self.emit("device_copy", result, self._register(arg), self.tables.device(device))
        return result

    def _shape_tensor(self, call: ir.OperatorCall) -> Value:
        return self._make_shape(self.shape(dict(call.attributes)["dims"]))  # type: ignore[arg-type]

    def _shape_of(self, call: ir.OperatorCall) -> Value:
        type_ = self._type_of(call.args[0])
        assert isinstance(type_, TensorType)
        if UNKNOWN not in type_.shape:
            return self._make_shape(self.shape(type_.shape))
        numbers = tuple(self.new_int() for _ in type_.shape)
        self.emit("shape_of", numbers, self._register(call.args[0]))
        return self._make_shape(numbers)

    def _extent(self, call: ir.OperatorCall) -> Value:
        number, result = self.new_int(), self.new_ref(TensorType(DType.bool, (UNKNOWN,)))
        self.emit("read_shape", (number,), self._register(call.args[0]))
        number = self.arithmetic("maximum", number, 0)
        self.emit("alloc_dynamic", result, DType.bool.code, (number,))
        if call in self._read_extents:
            index, _ = self.tables.primitive(_NOTHING_TRUE)
            self.emit("call", index, (), (result,), (number,))
        return result

    def _extents(self, call: ir.OperatorCall) -> Value:
        type_ = self._type_of(call.args[0])
        assert isinstance(type_, TensorType)
        numbers = tuple(self.new_int() for _ in range(type_.shape[0]))  # type: ignore[arg-type]
        result = self.new_ref(TensorType(DType.bool, (0, *(UNKNOWN,) * len(numbers))))
        self.emit("read_shape", numbers, self._register(call.args[0]))
        self.emit("alloc_dynamic", result, DType.bool.code, (0, *numbers))
        return result

    @functools.cached_property
    def _read_extents(self) -> set[ir.OperatorCall]:
        """The calls of extent whose tensor is used beyond its shape."""
        bindings = list(expressions(self.function.body))
        shapes = {binding.var: binding.value.value for binding in bindings if isinstance(binding.value, ir.MatchShape)}
        used = Counter(atoms_in(self.function.body)) - Counter(shapes.values())
        read = {binding.var for binding in bindings if used[binding.var]}
        for var, checked in reversed(shapes.items()):
            if var in read:
                read.add(checked)  # type: ignore[arg-type]
        calls = {
            binding.value for binding in bindings if binding.var in read and isinstance(binding.value, ir.OperatorCall)
        }
        return {call for call in calls if call.operator == "extent"}

    def _make_shape(self, numbers: tuple[Number, ...]) -> Register:
        result = self.new_ref(TensorType(DType.int64, (len(numbers),)))
        self.emit("make_shape", result, numbers)
        return result

    def _arguments(self, call: ir.Call) -> list[Register]:
        """The arguments, with the shapes that the callee requires."""
        callee = self._type_of(call.callee)
        assert isinstance(callee, FunctionType)
        pairs = zip(call.args, callee.params, strict=True)
        return [self.prove(self._register(arg), erase_dims(param)) for arg, param in pairs]

    def _call(self, call: ir.Call, type_: Type) -> Value:
        arguments = tuple(self._arguments(call))
        callee = self._type_of(call.callee)
        assert isinstance(callee, FunctionType)
        result = self.new_ref(erase_dims(callee.result))
        if isinstance(call.callee, ir.GlobalRef):
            self.emit("invoke", result, self.tables.functions[call.callee.name], arguments)
        else:
            self.emit("invoke_closure", result, self._register(call.callee), arguments)
        return result

    def _import_call(self, call: ir.ImportCall, type_: Type) -> Value:
        number, imported = self.tables.imported(call.name)
        pairs = zip(call.args, imported.params, strict=True)
        arguments = tuple(self.prove(self._register(arg), erase_dims(param)) for arg, param in pairs)
        result = self.new_ref(erase_dims(imported.result))
        self.emit("call_import", result, number, arguments)
        return result

    def _make_tuple(self, expr: ir.MakeTuple, type_: Type) -> Value:
        return Fields(tuple(map(self._value, expr.fields)), erase_dims(type_))

    def _get_item(self, expr: ir.GetItem, type_: Type) -> Value:
        return self.field(self._value(expr.tuple), 0, expr.index)

    def _construct(self, expr: ir.Construct, type_: Type) -> Value:
        constructors = self.tables.module.data_types[expr.data_type].constructors
        tag = next(tag for tag, constructor in enumerate(constructors) if constructor.name == expr.constructor)
        fields = self._registers(expr.args)
        result = self.new_ref(type_)
        self.emit("alloc_data", result, self.tables.type(type_), tag, fields)
        return result

    def _make_closure(self, expr: ir.MakeClosure, type_: Type) -> Value:
        captured = self._registers(expr.captured)
        result = self.new_ref(erase_dims(type_))
        self.emit("alloc_closure", result, self.tables.functions[expr.function], captured)
        return result

    def _match_shape(self, expr: ir.MatchShape, type_: Type) -> Value:
        return self._value(expr.value)  # the binding's type is then proved

    def _if(self, expr: ir.If, type_: Type) -> Value:
        return self._meet(type_, lambda finish: self._branch(expr, finish))

    def _match_expression(self, expr: ir.Match, type_: Type) -> Value:
        return self._meet(type_, lambda finish: self._match(expr, finish))

    def _match(self, expr: ir.Match, finish: Callable[[ir.Block], None]) -> None:
        lower_match(self, expr, self._value(expr.value), self._type_of(expr.value), finish)

    def _meet(self, type_: Type, emit: Callable[[Callable[[ir.Block], None]], None]) -> Value:
        """The merged value of several blocks. `emit` gets the action for each."""
        result, end = self._meeting(type_), Label()

        def finish(block: ir.Block) -> None:
            self._assign_value(result, self._block(block))
            self.emit("goto", end)

        emit(finish)
        _drop_jump_to_next(self.code, end)
        self.place(end)
        self.prove_value(result, type_)
        return result

    def _branch(self, expr: ir.If, finish: Callable[[ir.Block], None]) -> None:
        otherwise = Label()
        self.emit("if", self._condition(self._value(expr.condition), self._type_of(expr.condition)), otherwise)
        self.in_child_scope(lambda: finish(expr.then))
        self.place(otherwise)
        self.in_child_scope(lambda: finish(expr.otherwise))

    def _condition(self, value: Value, type_: Type) -> Register:
        """A condition register for `if`: a scalar of integers or booleans."""
        register = self.whole(value)
        if not isinstance(type_, TensorType) or not type_.dtype.is_float:
            return register
        var, zero = ir.Var("condition", type_), ir.Constant(np.zeros((), type_.dtype.numpy))
        self.scope.values[var] = register
        return self.whole(self._operator_call(ir.OperatorCall("not_equal", (var, zero)), TensorType(DType.bool, ())))

    def _loop(self, expr: ir.Loop, type_: Type) -> Value:
        assert isinstance(type_, TupleType)
        variables = [self._meeting(variable.type) for variable in expr.variables]  # type: ignore[arg-type]
        whole = Fields(tuple(variables), erase_dims(type_))
        self._assign_value(whole, Fields(tuple(map(self._value, expr.initial)), whole.type))
        header, end = Label(), Label()
        self.place(header)

        def round_() -> None:
            for variable, value in zip(expr.variables, variables, strict=True):
                self.scope.values[variable] = value
                self.prove_value(value, variable.type)
            self.emit("if", self._condition(self._block(expr.condition), self._type_of(expr.condition.result)), end)
            self._assign_value(whole, self._block(expr.body))
            self.emit("goto", header)

        self.in_child_scope(round_)
        self.place(end)
        self.prove_value(whole, type_)
        return whole


def _drop_jump_to_next(code: VirtualFunction, label: Label) -> None:
    """Drops a `goto label` at the very end of the code, where `label` is about to be placed."""
    last = code.items[-1]
    if isinstance(last, Instruction) and last.name == "goto" and last.operands == (label,):
        code.items.pop()


def _filled(size: Dim) -> PrimitiveDefinition:
    """An array of `False` of that size."""
    type_ = TensorType(DType.bool, (size,))
    var, attributes = ir.Var("", type_), (("dtype", DType.bool), ("shape", (size,)), ("value", False))
    return define([ir.Binding(var, ir.OperatorCall("full", (), attributes))], [var], lambda _: type_)[0]


_NOTHING_TRUE = _filled(dims.variable("n"))

_SPECIAL: dict[str, Callable[[_Lowering, ir.OperatorCall], Value]] = {
    "extent": _Lowering._extent,
    "extents": _Lowering._extents,
    "device_copy": _Lowering._device_copy,
    "shape": _Lowering._shape_of,
    "shape_tensor": _Lowering._shape_tensor,
}

_LOWER: dict[type, Callable[[_Lowering, Any, Any], Value]] = {
    ir.Var: _Lowering._atom_expression,
    ir.Constant: _Lowering._atom_expression,
    ir.GlobalRef: _Lowering._atom_expression,
    ir.OperatorCall: _Lowering._operator_call,
    ir.PrimitiveCall: _Lowering._primitive_call,
    ir.Call: _Lowering._call,
    ir.ImportCall: _Lowering._import_call,
    ir.MakeTuple: _Lowering._make_tuple,
    ir.GetItem: _Lowering._get_item,
    ir.Construct: _Lowering._construct,
    ir.MakeClosure: _Lowering._make_closure,
    ir.If: _Lowering._if,
    ir.Match: _Lowering._match_expression,
    ir.Loop: _Lowering._loop,
    ir.MatchShape: _Lowering._match_shape,
}
