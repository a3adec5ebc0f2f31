"""Lowering: a function of the IR to linear code over virtual registers.

Control becomes jumps, and blocks whose value is the function's return straight away; a call of the function to itself there is a
jump to its start. Tuples that are only taken apart again are never built. Dimensions are integer registers: parameters
and `MatchShape` bind them, arithmetic derives the rest, each once. Where the verifier cannot know the shape that
inference found (what comes out of calls, data values and merging branches), a `match_shape` proves it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Union

from ..formats import dims
from ..formats.dims import Opaque, SymbolicDim, Variable
from ..formats.dtypes import DType
from ..formats.errors import CompileError
from ..formats.isa import Kind
from ..formats.primitive import PrimitiveDefinition
from ..formats.types import UNKNOWN, DataType, FunctionType, ShapeDim, TensorType, TupleType, Type, erase_dims
from . import decision_tree, ir
from .analysis import dimension_names, is_symbolic, type_of
from .decision_tree import Path
from .definitions import define
from .operators.table import Fusion, lookup
from .tables import Tables
from .virtual import Instruction, Label, Operand, Register, VirtualFunction, instruction

Number = Union[int, Register]  # a dimension at run time: known now, or in an integer register


@dataclass(frozen=True, eq=False)
class Fields:
    """A tuple that exists only as the values of its fields, until something needs it whole."""

    fields: tuple[Value, ...]
    type: Type


Value = Union[Register, Fields]


@dataclass(frozen=True)
class _Scope:
    """What is known at a point of the code. A child sees what its parents know; siblings do not see each other."""

    values: ChainMap[ir.Var, Value] = field(default_factory=ChainMap)
    numbers: ChainMap[SymbolicDim, Number] = field(default_factory=ChainMap)
    constants: ChainMap[object, Register] = field(default_factory=ChainMap)  # also functions as values
    wholes: ChainMap[Fields, Register] = field(default_factory=ChainMap)
    proved: ChainMap[Register, TensorType] = field(default_factory=ChainMap)  # what the verifier knows beyond its type

    def child(self) -> _Scope:
        return _Scope(
            self.values.new_child(),
            self.numbers.new_child(),
            self.constants.new_child(),
            self.wholes.new_child(),
            self.proved.new_child(),
        )


def lower(name: str, function: ir.Function, tables: Tables) -> VirtualFunction:
    """The linear code of a global function. Its types are inferred, its closures lifted, its data types monomorphic."""
    return _Lowering(name, function, tables).run()


class _Lowering:
    def __init__(self, name: str, function: ir.Function, tables: Tables) -> None:
        self.name, self.function, self.tables = name, function, tables
        self.code = VirtualFunction(name, ())
        self.scope = _Scope()
        self.origin = ""
        self.start = Label()

    def run(self) -> VirtualFunction:
        params = self.function.params
        self.code.params = tuple(self.code.new_register(Kind.REF, erase_dims(param.type)) for param in params)  # type: ignore[arg-type]
        self.code.items.append(self.start)
        self._bind_parameters()
        self._tail(self.function.body)
        used = {target for item in self.code.items if isinstance(item, Instruction) for target in item.targets()}
        self.code.items = [item for item in self.code.items if isinstance(item, Instruction) or item in used]
        return self.code

    # ---- emitting ----

    def _emit(self, name: str, *operands: Operand) -> None:
        self.code.items.append(instruction(name, *operands, origin=self.origin))

    def _place(self, label: Label) -> None:
        self.code.items.append(label)

    def _ref(self, type_: Type | None) -> Register:
        return self.code.new_register(Kind.REF, type_)

    def _int(self) -> Register:
        return self.code.new_register(Kind.INT)

    # ---- parameters ----

    def _bind_parameters(self) -> None:
        """Dimensions that are variables are bound first, so that those made of them can be checked."""
        params = list(zip(self.function.params, self.code.params, strict=True))
        for param, register in params:
            assert param.type is not None
            self.scope.values[param] = self._unpack(register, param.type)
        tensors = [pair for param, _ in params for pair in self._tensors(self.scope.values[param], param.type)]
        for register, type_ in tensors:
            if any(dims.is_variable(dim) and dim not in self.scope.numbers for dim in type_.shape):  # type: ignore[arg-type]
                self._bind_variables(register, type_)
        for register, type_ in tensors:
            self._prove(register, type_)

    def _unpack(self, register: Register, type_: Type) -> Value:
        """The fields of a tuple that dimensions are found in; anything else stays whole."""
        if not isinstance(type_, TupleType) or not is_symbolic(type_):
            return register
        registers = [self._get_field(register, 0, index) for index in range(len(type_.fields))]
        parts = tuple(map(self._unpack, registers, type_.fields))
        value = Fields(parts, erase_dims(type_))
        self.scope.wholes[value] = register
        return value

    def _tensors(self, value: Value, type_: Type | None) -> list[tuple[Register, TensorType]]:
        if isinstance(value, Fields):
            assert isinstance(type_, TupleType)
            pairs = zip(value.fields, type_.fields, strict=True)
            return [found for part, part_type in pairs for found in self._tensors(part, part_type)]
        return [(value, type_)] if isinstance(type_, TensorType) else []

    # ---- dimensions ----

    def _known(self, register: Register) -> TensorType | None:
        """What the verifier knows of the tensor in a register."""
        type_ = self.scope.proved.get(register, register.type)
        return type_ if isinstance(type_, TensorType) else None

    def _bind_variables(self, register: Register, type_: TensorType) -> list[Number]:
        """Reads the shape; variables among the dimensions that have no value yet get theirs."""
        numbers: list[Number] = [self._int() for _ in type_.shape]
        self._emit("shape_of", tuple(numbers), register)
        shape = list(self._known(register).shape)  # type: ignore[union-attr]
        for axis, (dim, number) in enumerate(zip(type_.shape, numbers, strict=True)):
            if isinstance(dim, SymbolicDim) and dims.is_variable(dim) and dim not in self.scope.numbers:
                self.scope.numbers[dim] = number
                shape[axis] = dim
        self.scope.proved[register] = TensorType(type_.dtype, tuple(shape))
        return numbers

    def _prove(self, register: Register, wanted: Type | None) -> None:
        """Has the machine check what the type says and the verifier cannot know; binds variables that are new."""
        if not isinstance(wanted, TensorType) or self._is_known(register, wanted):
            return
        numbers: list[Number] = []
        if UNKNOWN in wanted.shape or any(
            dims.variable(name) not in self.scope.numbers for name in dimension_names(wanted)
        ):
            numbers = self._bind_variables(register, wanted)
            if self._is_known(register, wanted):
                return
        shape = [numbers[axis] if dim is UNKNOWN else self._number(dim) for axis, dim in enumerate(wanted.shape)]
        self._emit("match_shape", register, tuple(shape))
        self.scope.proved[register] = wanted

    def _is_known(self, register: Register, wanted: TensorType) -> bool:
        known = self._known(register)
        return known is None or all(
            want is UNKNOWN or want == have for want, have in zip(wanted.shape, known.shape, strict=True)
        )

    def _number(self, dim: ShapeDim) -> Number:
        """A dimension as an operand."""
        if isinstance(dim, int):
            return dim if dim >= 0 else self._load(dim)
        assert isinstance(dim, SymbolicDim), "dimensions were named before"
        found = self.scope.numbers.get(dim)
        if found is None:
            if dims.is_variable(dim):
                raise self._error(f"nothing that is known when it is needed says what the dimension {dim} is")
            found = self.scope.numbers[dim] = self._sum(dim)
        return found

    def _load(self, value: int) -> Register:
        number = self._int()
        self._emit("load_int", number, value)
        return number

    def _arithmetic(self, name: str, left: Number, right: Number) -> Register:
        number = self._int()
        self._emit(name, number, left, right)
        return number

    def _sum(self, dim: SymbolicDim) -> Number:
        total: Number | None = None
        for monomial, coefficient in dim.terms:
            negative = coefficient < 0 and total is not None
            term: Number | None = None if abs(coefficient) == 1 and monomial else abs(coefficient)
            if coefficient < 0 and not negative:
                term = self._load(coefficient)
            for atom in monomial:
                factor = self._atom(atom)
                term = factor if term is None else self._arithmetic("multiply", factor, term)
            assert term is not None
            total = term if total is None else self._arithmetic("subtract" if negative else "add", total, term)
        assert total is not None
        return total

    def _atom(self, atom: Variable | Opaque) -> Number:
        whole = SymbolicDim((((atom,), 1),))
        if isinstance(atom, Variable) or whole in self.scope.numbers:
            return self._number(whole)
        name = {"//": "floor_divide", "%": "remainder", "min": "minimum", "max": "maximum"}[atom.operator]
        number = self._arithmetic(name, self._number(atom.left), self._number(atom.right))
        self.scope.numbers[whole] = number
        return number

    def _shape(self, shape: Sequence[ShapeDim]) -> tuple[Number, ...]:
        return tuple(map(self._number, shape))

    # ---- values ----

    def _type_of(self, atom: ir.Atom) -> Type:
        return type_of(atom, self.tables.module)

    def _value(self, atom: ir.Atom) -> Value:
        if isinstance(atom, ir.Var):
            return self.scope.values[atom]
        if isinstance(atom, ir.Constant):
            index = self.tables.constant(atom)
            return self._shared(index, atom.type, "load_const", index)
        function = self.tables.functions[atom.name]
        return self._shared(atom.name, self._type_of(atom), "alloc_closure", function, ())

    def _shared(self, key: object, type_: Type, name: str, *operands: Operand) -> Register:
        """What the instruction makes, once where it is known already."""
        found = self.scope.constants.get(key)
        if found is None:
            found = self.scope.constants[key] = self._ref(erase_dims(type_))
            self._emit(name, found, *operands)
        return found

    def _whole(self, value: Value) -> Register:
        """`value` in one register."""
        if isinstance(value, Register):
            return value
        found = self.scope.wholes.get(value)
        if found is None:
            parts = tuple(map(self._whole, value.fields))
            found = self.scope.wholes[value] = self._ref(value.type)
            self._emit("alloc_data", found, self.tables.type(value.type), 0, parts)
        return found

    def _register(self, atom: ir.Atom) -> Register:
        return self._whole(self._value(atom))

    def _registers(self, atoms: Sequence[ir.Atom]) -> tuple[Register, ...]:
        return tuple(map(self._register, atoms))

    def _field(self, value: Value, tag: int, index: int) -> Value:
        return value.fields[index] if isinstance(value, Fields) else self._get_field(value, tag, index)

    def _get_field(self, value: Register, tag: int, index: int) -> Register:
        part = self._ref(self._field_type(value.type, tag, index))
        self._emit("get_field", part, value, tag, index)
        return part

    def _field_type(self, type_: Type | None, tag: int, index: int) -> Type:
        if isinstance(type_, TupleType):
            return type_.fields[index]
        assert isinstance(type_, DataType)
        return erase_dims(self.tables.module.data_types[type_.name].constructors[tag].fields[index])

    # ---- blocks ----

    def _block(self, block: ir.Block) -> Value:
        for binding in block.bindings:
            self._bind(binding)
        return self._value(block.result)

    def _bind(self, binding: ir.Binding) -> None:
        self.origin = binding.origin or self.origin
        value = _LOWER[type(binding.value)](self, binding.value, binding.var.type)
        self.scope.values[binding.var] = value
        if isinstance(value, Register) and binding.var.type is not None:
            self._prove(value, binding.var.type)

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
            self._emit("goto", self.start)
        else:
            self._return(self._call(last.value, last.var.type))  # type: ignore[arg-type]

    def _return(self, value: Value) -> None:
        register = self._whole(value)
        self._prove(register, erase_dims(self.function.result_type))  # type: ignore[arg-type]
        self._emit("ret", register)

    def _in_child_scope(self, action: Callable[[], None]) -> None:
        outer, origin = self.scope, self.origin
        self.scope = outer.child()
        action()
        self.scope, self.origin = outer, origin

    # ---- places where the values of several blocks meet ----

    def _meeting(self, type_: Type) -> Value:
        """New registers for a value that comes from several blocks."""
        if isinstance(type_, TupleType):
            return Fields(tuple(map(self._meeting, type_.fields)), erase_dims(type_))
        return self._ref(erase_dims(type_))

    def _pairs(self, target: Value, value: Value) -> list[tuple[Register, Register]]:
        if isinstance(target, Register):
            return [(target, self._whole(value))]
        parts = [self._field(value, 0, index) for index in range(len(target.fields))]
        return [pair for part, source in zip(target.fields, parts, strict=True) for pair in self._pairs(part, source)]

    def _assign_value(self, target: Value, value: Value) -> None:
        pairs = self._pairs(target, value)
        self._assign([pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def _assign(self, targets: Sequence[Register], sources: Sequence[Register]) -> None:
        """Moves all at once: a source that is also a target is saved first."""
        pairs = [pair for pair in zip(targets, sources, strict=True) if pair[0] is not pair[1]]
        overwritten = {target for target, _ in pairs}
        saved = {source: self._ref(source.type) for _, source in pairs if source in overwritten}
        for source, copy in saved.items():
            self._emit("move", copy, source)
        for target, source in pairs:
            self._emit("move", target, saved.get(source, source))

    def _prove_value(self, value: Value, type_: Type) -> None:
        for register, tensor in self._tensors(value, type_):
            self._prove(register, tensor)

    # ---- expressions ----

    def _atom_expression(self, atom: ir.Atom, type_: Type) -> Value:
        return self._value(atom)

    def _operator_call(self, call: ir.OperatorCall, type_: Type) -> Value:
        special = _SPECIAL.get(call.operator)
        if special is not None:
            return special(self, call)
        if lookup(call.operator).fusion is Fusion.VIEW and isinstance(type_, TensorType) and UNKNOWN not in type_.shape:
            result = self._ref(type_)
            self._emit("reshape", result, self._register(call.args[0]), self._shape(type_.shape))
            return result
        var = ir.Var("", type_)
        definition, args = define([ir.Binding(var, call, self.origin)], [var], self._type_of)
        return self._call_primitive(definition, args, type_)

    def _primitive_call(self, call: ir.PrimitiveCall, type_: Type) -> Value:
        return self._call_primitive(call.definition, call.args, type_)

    def _call_primitive(self, definition: PrimitiveDefinition, args: Sequence[ir.Atom], type_: Type) -> Value:
        index = self.tables.primitive(definition)
        inputs = self._registers(args)
        variables = self._shape([dims.variable(name) for name in definition.variables])
        if any(UNKNOWN in tensor.shape for tensor in (*definition.params, *definition.results)):
            results = tuple(self._ref(result) for result in definition.results)
            self._emit("call_host", index, results, inputs, variables)
        else:
            results = tuple(map(self._allocate, definition.results))
            self._emit("call", index, inputs, results, variables)
        return Fields(results, erase_dims(type_)) if isinstance(type_, TupleType) else results[0]

    def _allocate(self, type_: TensorType) -> Register:
        result = self._ref(type_)
        if type_.is_static:
            self._emit("alloc_tensor", result, self.tables.type(type_))
        else:
            self._emit("alloc_dynamic", result, type_.dtype.code, self._shape(type_.shape))
        return result

    def _shape_tensor(self, call: ir.OperatorCall) -> Value:
        return self._make_shape(self._shape(dict(call.attributes)["dims"]))  # type: ignore[arg-type]

    def _shape_of(self, call: ir.OperatorCall) -> Value:
        type_ = self._type_of(call.args[0])
        assert isinstance(type_, TensorType)
        if UNKNOWN not in type_.shape:
            return self._make_shape(self._shape(type_.shape))
        numbers = tuple(self._int() for _ in type_.shape)
        self._emit("shape_of", numbers, self._register(call.args[0]))
        return self._make_shape(numbers)

    def _make_shape(self, numbers: tuple[Number, ...]) -> Register:
        result = self._ref(TensorType(DType.int64, (len(numbers),)))
        self._emit("make_shape", result, numbers)
        return result

    def _arguments(self, call: ir.Call) -> list[Register]:
        """The arguments, with the shapes that the callee relies on."""
        callee = self._type_of(call.callee)
        assert isinstance(callee, FunctionType)
        registers = []
        for arg, param in zip(call.args, callee.params, strict=True):
            registers.append(self._register(arg))
            self._prove(registers[-1], erase_dims(param))
        return registers

    def _call(self, call: ir.Call, type_: Type) -> Value:
        arguments = tuple(self._arguments(call))
        callee = self._type_of(call.callee)
        assert isinstance(callee, FunctionType)
        result = self._ref(erase_dims(callee.result))
        if isinstance(call.callee, ir.GlobalRef):
            self._emit("invoke", result, self.tables.functions[call.callee.name], arguments)
        else:
            self._emit("invoke_closure", result, self._register(call.callee), arguments)
        return result

    def _make_tuple(self, expr: ir.MakeTuple, type_: Type) -> Value:
        return Fields(tuple(map(self._value, expr.fields)), erase_dims(type_))

    def _get_item(self, expr: ir.GetItem, type_: Type) -> Value:
        return self._field(self._value(expr.tuple), 0, expr.index)

    def _construct(self, expr: ir.Construct, type_: Type) -> Value:
        constructors = self.tables.module.data_types[expr.data_type].constructors
        tag = next(tag for tag, constructor in enumerate(constructors) if constructor.name == expr.constructor)
        fields = self._registers(expr.args)
        result = self._ref(type_)
        self._emit("alloc_data", result, self.tables.type(type_), tag, fields)
        return result

    def _make_closure(self, expr: ir.MakeClosure, type_: Type) -> Value:
        captured = self._registers(expr.captured)
        result = self._ref(erase_dims(type_))
        self._emit("alloc_closure", result, self.tables.functions[expr.function], captured)
        return result

    def _match_shape(self, expr: ir.MatchShape, type_: Type) -> Value:
        return self._value(expr.value)  # the binding's type is then proved

    def _if(self, expr: ir.If, type_: Type) -> Value:
        return self._meet(type_, lambda finish: self._branch(expr, finish))

    def _match_expression(self, expr: ir.Match, type_: Type) -> Value:
        return self._meet(type_, lambda finish: self._match(expr, finish))

    def _meet(self, type_: Type, emit: Callable[[Callable[[ir.Block], None]], None]) -> Value:
        """The value of that one of several blocks which control takes. `emit` is told what to do with each."""
        result, end = self._meeting(type_), Label()

        def finish(block: ir.Block) -> None:
            self._assign_value(result, self._block(block))
            self._emit("goto", end)

        emit(finish)
        _drop_jump_to_next(self.code, end)
        self._place(end)
        self._prove_value(result, type_)
        return result

    def _branch(self, expr: ir.If, finish: Callable[[ir.Block], None]) -> None:
        otherwise = Label()
        self._emit("if", self._register(expr.condition), otherwise)
        self._in_child_scope(lambda: finish(expr.then))
        self._place(otherwise)
        self._in_child_scope(lambda: finish(expr.otherwise))

    def _loop(self, expr: ir.Loop, type_: Type) -> Value:
        assert isinstance(type_, TupleType)
        variables = [self._meeting(variable.type) for variable in expr.variables]  # type: ignore[arg-type]
        whole = Fields(tuple(variables), erase_dims(type_))
        self._assign_value(whole, Fields(tuple(map(self._value, expr.initial)), whole.type))
        header, end = Label(), Label()
        self._place(header)

        def round_() -> None:
            for variable, value in zip(expr.variables, variables, strict=True):
                self.scope.values[variable] = value
                self._prove_value(value, variable.type)  # type: ignore[arg-type]
            self._emit("if", self._whole(self._block(expr.condition)), end)
            self._assign_value(whole, self._block(expr.body))
            self._emit("goto", header)

        self._in_child_scope(round_)
        self._place(end)
        self._prove_value(whole, type_)
        return whole

    # ---- match ----

    def _match(self, expr: ir.Match, finish: Callable[[ir.Block], None]) -> None:
        value_type = self._type_of(expr.value)
        tree = decision_tree.build(expr, value_type, self.tables.module.data_types)
        reached = decision_tree.clauses_reached(tree)
        shared = {clause: Label() for clause in reached if reached.count(clause) > 1}
        found: ChainMap[Path, Value] = ChainMap({(): self._value(expr.value)})
        joins: dict[ir.Var, Register] = {}

        def leaf(node: decision_tree.Leaf, found: ChainMap[Path, Value]) -> None:
            values = [(var, self._find(path, found)) for var, path in node.bindings]
            if node.clause not in shared:
                for var, value in values:
                    self.scope.values[var] = value
                    self._prove_value(value, var.type)  # type: ignore[arg-type]
                finish(expr.clauses[node.clause][1])
                return
            for var, value in values:
                self._emit("move", joins.setdefault(var, self._ref(erase_dims(var.type))), self._whole(value))  # type: ignore[arg-type]
            self._emit("goto", shared[node.clause])

        self._walk(tree, found, leaf)
        for clause, label in shared.items():
            self._place(label)
            self._in_child_scope(partial(self._clause, expr.clauses[clause], joins, finish))

    def _clause(
        self,
        clause: tuple[ir.Pattern, ir.Block],
        joins: dict[ir.Var, Register],
        finish: Callable[[ir.Block], None],
    ) -> None:
        """The body of a clause that several tests lead to: its variables are in registers where they meet."""
        pattern, body = clause
        for var in ir.pattern_vars(pattern):
            self.scope.values[var] = joins[var]
            self._prove(joins[var], var.type)  # type: ignore[arg-type]
        finish(body)

    def _walk(self, tree: decision_tree.Tree, found: ChainMap[Path, Value], leaf: Callable[..., None]) -> None:
        if isinstance(tree, decision_tree.Leaf):
            leaf(tree, found)
        elif isinstance(tree, decision_tree.Fail):
            self._emit("fatal", 0)
        else:
            self._test(tree, found, leaf)

    def _test(self, test: decision_tree.Test, found: ChainMap[Path, Value], leaf: Callable[..., None]) -> None:
        """One branch a tag. When the tags are all that there are, the last needs no test."""
        branches = [(tag, subtree) for tag, subtree in test.branches]
        last = test.otherwise
        if last is None:
            _, last = branches.pop()
        if branches:
            number = self._int()
            self._emit("get_tag", number, self._whole(self._find(test.path, found)))
        for tag, subtree in branches:
            following = Label()
            if (
                tag == 0 and len(branches) == 1
            ):  # if_int jumps on 0: the other branch comes first, and no comparison is needed
                subtree, last = last, subtree
                self._emit("if_int", number, following)
            else:
                self._emit("if_int", self._arithmetic("equal", number, tag), following)
            self._in_child_scope(partial(self._walk, subtree, found.new_child(), leaf))
            self._place(following)
        self._in_child_scope(partial(self._walk, last, found.new_child(), leaf))

    def _find(self, path: Path, found: ChainMap[Path, Value]) -> Value:
        value = found.get(path)
        if value is None:
            tag, index = path[-1]
            value = found[path] = self._field(self._find(path[:-1], found), tag, index)
        return value

    def _error(self, message: str) -> CompileError:
        return CompileError(message, function=self.name, node=self.origin or None)


def _drop_jump_to_next(code: VirtualFunction, label: Label) -> None:
    """Takes away a `goto label` at the very end of the code, where `label` is about to be placed."""
    last = code.items[-1]
    if isinstance(last, Instruction) and last.name == "goto" and last.operands == (label,):
        code.items.pop()


_SPECIAL: dict[str, Callable[[_Lowering, ir.OperatorCall], Value]] = {
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
    ir.MakeTuple: _Lowering._make_tuple,
    ir.GetItem: _Lowering._get_item,
    ir.Construct: _Lowering._construct,
    ir.MakeClosure: _Lowering._make_closure,
    ir.If: _Lowering._if,
    ir.Match: _Lowering._match_expression,
    ir.Loop: _Lowering._loop,
    ir.MatchShape: _Lowering._match_shape,
}
