"""Type inference: every variable of a module gets a type, or the module an error that names the node.

Operators are typed by their entries in the table; functions by abstract interpretation: a function without a declared result
starts as one that returns NOTHING, and its body is typed again, each time with what is known of the functions that it calls,
until nothing changes. A dimension that would change without end becomes ? at the first join, so few rounds are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...formats import dims
from ...formats.dims import SymbolicDim
from ...formats.dtypes import DType
from ...formats.messages.errors import InferenceError
from ...formats.messages.names import near
from ...formats.primitive import PrimitiveDefinition
from ...formats.types import (
    UNKNOWN,
    DataType,
    DataTypeDefinition,
    FunctionType,
    ShapeDim,
    TensorType,
    TupleType,
    Type,
    TypeVariable,
    erase_dims,
    map_types,
    placed_as,
    replace_dims,
)
from .. import bounds, ir
from ..check import check_definition
from ..operators import lookup
from ..operators.shapes import mismatch, never_equal
from .numbers import dtype_of_numbers, number_as
from .retype import retype
from .unify import NOTHING, Hole, Unifier, bind_dims, dim_variables, leaves, replace_variables, substituted

__all__ = ["check_definition", "infer_types"]

Scope = set[str]  # the dimension variables that are bound


def infer_types(module: ir.Module) -> ir.Module:
    """The same module with every variable and every function's result typed.

    A type that stands on a variable already is checked. Raises InferenceError with function, node, expected and actual.
    """
    return _Inference(module).run()


class _Inference:
    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.unifier = Unifier()
        self.types: dict[ir.Var, Type] = {}
        self.closure_results: dict[ir.Function, Type] = {}
        self.constants: dict[ir.Constant, ir.Constant] = {}  # what weak ones become
        self.visible: set[ir.Var] = set()
        self.results: dict[str, Type] = {}
        self.callers: dict[str, dict[str, None]] = {name: {} for name in module.functions}
        self.checked: dict[int, object] = {}  # definitions that passed, by identity, and kept alive
        self.open: dict[ir.Var, Hole] = {}  # parameters of global functions whose type is to be found
        self.function = ""

    def run(self) -> ir.Module:
        self._check_imports()
        functions = self.module.functions
        self.results = {name: function.result_type or NOTHING for name, function in functions.items()}
        params = [param for function in functions.values() for param in function.params]
        self.open = {param: self.unifier.hole() for param in params if param.type is None}
        waiting: dict[str, None] = dict.fromkeys(reversed(list(functions)))
        while waiting:
            name, _ = waiting.popitem()
            result = self._global_function(name)
            if functions[name].result_type is None and result != self.results[name]:
                self.results[name] = result
                waiting.update(self.callers[name])
        self._check_open()
        types = {var: self._final(type_) for var, type_ in self.types.items()}
        closures = {closure: self._final(type_) for closure, type_ in self.closure_results.items()}
        return retype(
            self.module, types, {name: self._final_result(name) for name in functions}, closures, self.constants
        )

    def _final_result(self, name: str) -> Type:
        result = self._final(self.results[name])
        if any(leaf is NOTHING for leaf in leaves(result)):
            reason = "the result type cannot be inferred, the function only calls itself; declare it"
            raise InferenceError(reason, function=name)
        return result

    def _final(self, type_: Type) -> Type:
        """`type_` without holes. What nothing constrains is (): an element of a list that is always empty."""
        return map_types(
            self.unifier.deep(type_),
            lambda leaf: TupleType(()) if isinstance(leaf, Hole) and leaf is not NOTHING else leaf,
        )

    def _global_function(self, name: str) -> Type:
        """Types the body; the result, joined with what was known before if none is declared."""
        function = self.module.functions[name]
        self.function = name
        scope = set(dim_variables(self.unifier.deep(self._type_of_param(param)) for param in function.params))
        try:
            result = self._body(function, scope)
            if function.result_type is not None:
                return function.result_type
            return self.unifier.deep(self.unifier.join(self.results[name], result))
        except InferenceError as error:
            raise _located(error, name, "") from None

    def _type_of_param(self, param: ir.Var) -> Type:
        return param.type or self.open[param]

    def _check_imports(self) -> None:
        for name, type_ in self.module.imports.items():
            for part in (*type_.params, type_.result):
                if any(isinstance(leaf, TypeVariable) for leaf in leaves(part)):
                    raise InferenceError(f"import {name}: {type_} is generic; functions of Python's have one type")

    def _check_open(self) -> None:
        """Raises InferenceError for a parameter of which neither calls nor the body say what it is."""
        for name, function in self.module.functions.items():
            for param in function.params:
                if param in self.open and any(
                    isinstance(leaf, Hole) for leaf in leaves(self.unifier.deep(self.open[param]))
                ):
                    raise InferenceError(f"parameter {param.name!r} needs a type", function=name)

    # ---- functions and blocks ----

    def _body(self, function: ir.Function, scope: Scope) -> Type:
        for param in function.params:
            self._declare(param, param.type or self.open.get(param) or self.unifier.hole())
        result = self._block(function.body, scope)
        if function.result_type is not None:
            self._check_scope([function.result_type], scope)
            self._flow_into("the result", result, function.result_type)
            result = function.result_type
        self.visible.difference_update(function.params)
        return result

    def _declare(self, var: ir.Var, type_: Type) -> None:
        self._check_data_types(type_)
        self.types[var] = type_
        self.visible.add(var)

    def _check_data_types(self, type_: Type) -> None:
        if isinstance(type_, DataType) and len(self._data_type(type_.name).parameters) != len(type_.arguments):
            raise mismatch(f"type arguments for {list(self._data_type(type_.name).parameters)}", type_)

    def _block(self, block: ir.Block, outer: Scope) -> Type:
        """The type of the block's result. Dimensions that only the block knows are ? outside of it."""
        scope = set(outer)
        for binding in block.bindings:
            bounds.check(binding.origin)
            try:
                type_ = self.expression(binding.value, scope)
                if binding.var.type is not None:
                    self._flow_into(f"variable {binding.var.name!r}", type_, binding.var.type)
                    type_ = placed_as(type_, binding.var.type)
            except InferenceError as error:
                raise _located(error, self.function, binding.origin or binding.var.name) from None
            self._declare(binding.var, type_)
        result = self.atom(block.result)
        self.visible.difference_update(binding.var for binding in block.bindings)
        return self._erase(result, outer) if scope != outer else result

    def _erase(self, type_: Type, scope: Scope) -> Type:
        """`type_` with dimensions that use variables not in scope unknown."""
        return replace_dims(self.unifier.deep(type_), lambda d: d if scope.issuperset(dims.variables(d)) else UNKNOWN)

    def _flow_into(self, what: str, actual: Type, expected: Type) -> None:
        try:
            self.unifier.flow_checked(actual, expected)
        except InferenceError as error:
            raise InferenceError(f"{what}: {error.message}") from None

    def _check_scope(self, types: Iterable[Type], scope: Scope) -> None:
        for name in dim_variables(types):
            if name not in scope:
                raise InferenceError(
                    f"dimension variable {name!r} is not bound here; a parameter or match_shape binds one"
                )

    # ---- expressions ----

    def expression(self, expr: ir.Expr, scope: Scope) -> Type:
        return _RULES[type(expr)](self, expr, scope)

    def atom(self, atom: ir.Atom, scope: Scope | None = None) -> Type:
        if isinstance(atom, ir.Constant):
            return atom.type
        if isinstance(atom, ir.Var):
            if atom not in self.visible:
                raise InferenceError(f"variable {atom.name!r} is not bound here")
            return self.unifier.resolve(self.types[atom])
        params, result = self._signature(atom.name)
        return erase_dims(FunctionType(params, result))

    def _tensor(self, atom: ir.Atom) -> TensorType:
        type_ = self.atom(atom)
        if isinstance(type_, Hole) and type_ is not NOTHING:
            raise InferenceError(f"the type of {_name(atom)} is not known here; give it one where it is bound")
        if not isinstance(type_, TensorType):
            raise mismatch("a tensor", f"{_name(atom)} of type {self.unifier.deep(type_)}")
        return type_

    def _scalar(self, atom: ir.Atom, what: str) -> None:
        type_ = self.atom(atom)
        if isinstance(type_, Hole) and type_ is not NOTHING:
            self.unifier.flow(type_, TensorType(DType.bool, ()))
        elif type_ is not NOTHING and (not isinstance(type_, TensorType) or type_.rank):
            raise mismatch(f"a scalar tensor as {what}", self.unifier.deep(type_))

    def _is_nothing(self, atoms: Iterable[ir.Atom]) -> bool:
        return any(self.atom(atom) is NOTHING for atom in atoms)

    def operator_call(self, expr: ir.OperatorCall, scope: Scope) -> Type:
        operator = lookup(expr.operator)
        unbound = set(PrimitiveDefinition.variables_of((), tuple(value for _, value in expr.attributes))) - scope
        if unbound:
            raise InferenceError(f"{expr.operator}: dimension variable {min(unbound)!r} is not bound here")
        if self._is_nothing(expr.args):
            return NOTHING
        inputs = [self._tensor(atom) for atom in expr.args]
        weak = [isinstance(atom, ir.Constant) and atom.weak for atom in expr.args]
        if any(weak):
            numbers = [atom.value.item() if is_weak else None for atom, is_weak in zip(expr.args, weak, strict=True)]  # type: ignore[union-attr]
            dtype = dtype_of_numbers(operator, inputs, numbers, expr.attributes)
            for index, (atom, number) in enumerate(zip(expr.args, numbers, strict=True)):
                if isinstance(atom, ir.Constant) and number is not None:
                    self.constants[atom] = number_as(number, dtype or atom.type.dtype)
                    inputs[index] = self.constants[atom].type
        device = next((type_.device for type_ in inputs if type_.device), "")  # as the pass `devices` computes it
        if device:
            inputs = [type_.on("") for type_ in inputs]
        try:
            results = operator.result_types(inputs, expr.attributes)
            return _packed([type_.on(device) for type_ in results] if device else results)
        except InferenceError as error:
            told = error.message.startswith(expr.operator)
            names = ", ".join(map(str, inputs))
            raise InferenceError(error.message if told else f"{expr.operator}({names}): {error.message}") from None

    def primitive_call(self, expr: ir.PrimitiveCall, scope: Scope) -> Type:
        if id(expr.definition) not in self.checked:
            check_definition(expr.definition)
            self.checked[id(expr.definition)] = expr.definition
        if self._is_nothing(expr.args):
            return NOTHING
        params: tuple[Type, ...] = expr.definition.params
        values = self._arguments(params, expr.args, {name: dims.variable(name) for name in scope})
        return _packed([substituted(result, values) for result in expr.definition.results])

    def call(self, expr: ir.Call, scope: Scope) -> Type:
        if isinstance(expr.callee, ir.GlobalRef):
            params, result = self._signature(expr.callee.name)
            self._check_count(expr.callee.name, len(params), len(expr.args))
            return substituted(result, self._arguments(params, expr.args, {}))
        callee = self.atom(expr.callee)
        if callee is NOTHING:
            return NOTHING
        if isinstance(callee, Hole):
            wanted = FunctionType(tuple(self.unifier.hole() for _ in expr.args), self.unifier.hole())
            self.unifier.flow(callee, wanted)
            callee = wanted
        if not isinstance(callee, FunctionType):
            raise mismatch("a function", f"{_name(expr.callee)} of type {self.unifier.deep(callee)}")
        self._check_count(_name(expr.callee), len(callee.params), len(expr.args))
        for index, (param, arg) in enumerate(zip(callee.params, expr.args, strict=True)):
            self._flow_into(f"argument {index} of {_name(expr.callee)}", self.atom(arg), param)
        return callee.result

    def import_call(self, expr: ir.ImportCall, scope: Scope) -> Type:
        type_ = self.module.imports.get(expr.name)
        if type_ is None:
            known = ", ".join(self.module.imports) or "none"
            raise InferenceError(
                f"there is no import {expr.name!r} in this module; it has {known}{near(expr.name, self.module.imports)}"
            )
        self._check_count(f"import {expr.name}", len(type_.params), len(expr.args))
        return substituted(type_.result, self._arguments(type_.params, expr.args, {}))

    def _check_count(self, name: str, expected: int, got: int) -> None:
        if expected != got:
            raise InferenceError(f"{name}: {mismatch(f'{expected} arguments', got).message}")

    def _signature(self, name: str) -> tuple[tuple[Type, ...], Type]:
        """Parameters and result of a global function, holes in place of its type variables."""
        if name not in self.module.functions:
            known = ", ".join(self.module.functions)
            raise InferenceError(
                f"there is no function {name!r} in this module; it has {known}{near(name, self.module.functions)}"
            )
        self.callers[name][self.function] = None
        function = self.module.functions[name]
        params = tuple(self.unifier.deep(self._type_of_param(param)) for param in function.params)
        return self._instantiated(params, self.results[name])

    def _instantiated(self, params: tuple[Type, ...], result: Type) -> tuple[tuple[Type, ...], Type]:
        names = {leaf.name for type_ in (*params, result) for leaf in leaves(type_) if type(leaf) is TypeVariable}
        holes: dict[str, Type] = {name: self.unifier.hole() for name in sorted(names)}
        return tuple(replace_variables(param, holes) for param in params), replace_variables(result, holes)

    def _arguments(
        self, params: Sequence[Type], args: Sequence[ir.Atom], values: dict[str, ShapeDim]
    ) -> dict[str, ShapeDim]:
        """Checks arguments against parameters; the values of the parameters' dimension variables (those not in `values` yet)."""
        actual = [self.atom(arg) for arg in args]
        values = values | bind_dims(params, [self.unifier.deep(type_) for type_ in actual])
        expected = [substituted(param, values) for param in params]
        self.unifier.young = {leaf for type_ in expected for leaf in leaves(type_) if isinstance(leaf, Hole)}
        for _ in range(2):  # the second time, with what the type arguments have become
            for index, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
                self._flow_into(f"argument {index}", got, wanted)
            self.unifier.young = set()
        return values

    def make_tuple(self, expr: ir.MakeTuple, scope: Scope) -> Type:
        return TupleType(tuple(map(self.atom, expr.fields)))

    def get_item(self, expr: ir.GetItem, scope: Scope) -> Type:
        type_ = self.atom(expr.tuple)
        if type_ is NOTHING:
            return NOTHING
        if not isinstance(type_, TupleType) or not 0 <= expr.index < len(type_.fields):
            raise mismatch(f"a tuple with a field {expr.index}", self.unifier.deep(type_))
        return self.unifier.resolve(type_.fields[expr.index])

    def _data_type(self, name: str) -> DataTypeDefinition:
        if name not in self.module.data_types:
            raise InferenceError(f"there is no data type {name!r} in this module{near(name, self.module.data_types)}")
        return self.module.data_types[name]

    def _fields(self, type_: DataType, constructor: str) -> tuple[Type, ...]:
        """The fields of a constructor at these type arguments. Their symbolic dimensions are unknown."""
        definition = self._data_type(type_.name)
        for candidate in definition.constructors:
            if candidate.name == constructor:
                arguments = dict(zip(definition.parameters, type_.arguments, strict=True))
                return tuple(erase_dims(replace_variables(field, arguments)) for field in candidate.fields)
        hint = near(constructor, (each.name for each in definition.constructors))
        raise InferenceError(f"there is no constructor {constructor!r} in {definition}{hint}")

    def construct(self, expr: ir.Construct, scope: Scope) -> Type:
        holes = tuple(self.unifier.hole() for _ in self._data_type(expr.data_type).parameters)
        type_ = DataType(expr.data_type, holes)
        fields = self._fields(type_, expr.constructor)
        self._check_count(expr.constructor, len(fields), len(expr.args))
        self._arguments(fields, expr.args, {})
        return type_

    def closure(self, expr: ir.Function, scope: Scope) -> Type:
        inner = scope | set(dim_variables(param.type for param in expr.params if param.type is not None))
        result = self._body(expr, inner)
        self.closure_results[expr] = result
        return self._erase(FunctionType(tuple(self.types[param] for param in expr.params), result), scope)

    def make_closure(self, expr: ir.MakeClosure, scope: Scope) -> Type:
        params, result = self._signature(expr.function)
        free = len(params) - len(expr.captured)
        values = self._arguments(params[free:], expr.captured, {})
        return substituted(FunctionType(params[:free], result), values)

    def if_(self, expr: ir.If, scope: Scope) -> Type:
        self._scalar(expr.condition, "the condition of an if")
        return self._joined(
            "the branches of an if", [self._block(expr.then, scope), self._block(expr.otherwise, scope)]
        )

    def _joined(self, what: str, types: Sequence[Type]) -> Type:
        result: Type = NOTHING
        for type_ in types:
            try:
                result = self.unifier.join(result, type_)
            except InferenceError as error:
                raise InferenceError(f"{what} differ: {error.message}") from None
        return result

    def match(self, expr: ir.Match, scope: Scope) -> Type:
        value = self.atom(expr.value)
        results = []
        for pattern, block in expr.clauses:
            self._pattern(pattern, value)
            results.append(self._block(block, scope))
            self.visible.difference_update(ir.pattern_vars(pattern))
        return self._joined("the clauses of a match", results)

    def _pattern(self, pattern: ir.Pattern, type_: Type) -> None:
        type_ = self.unifier.resolve(type_)
        if isinstance(pattern, ir.Bind):
            if pattern.var.type is not None:
                self.unifier.flow(type_, pattern.var.type)
            self._declare(pattern.var, type_)
        elif isinstance(pattern, (ir.ConstructorPattern, ir.TuplePattern)):
            for part, field in zip(pattern.fields, self._pattern_fields(pattern, type_), strict=True):
                self._pattern(part, field)

    def _type_of_pattern(self, pattern: ir.ConstructorPattern | ir.TuplePattern, hole: Hole) -> Type:
        """The type of what fits a pattern, which is not known otherwise: a tuple, or the one data type with the constructor."""
        if isinstance(pattern, ir.TuplePattern):
            found: Type = TupleType(tuple(self.unifier.hole() for _ in pattern.fields))
        else:
            several = self.module.data_types.values()
            owners = [each for each in several if any(case.name == pattern.constructor for case in each.constructors)]
            if len(owners) != 1:
                return hole
            found = DataType(owners[0].name, tuple(self.unifier.hole() for _ in owners[0].parameters))
        self.unifier.flow(hole, found)
        return found

    def _pattern_fields(self, pattern: ir.ConstructorPattern | ir.TuplePattern, type_: Type) -> tuple[Type, ...]:
        if type_ is NOTHING:
            return (NOTHING,) * len(pattern.fields)
        if isinstance(type_, Hole):
            type_ = self._type_of_pattern(pattern, type_)
        if isinstance(pattern, ir.ConstructorPattern):
            if not isinstance(type_, DataType):
                raise mismatch(f"a data type with a constructor {pattern.constructor!r}", self.unifier.deep(type_))
            fields = self._fields(type_, pattern.constructor)
            self._check_count(f"pattern {pattern.constructor}", len(fields), len(pattern.fields))
            return fields
        if not isinstance(type_, TupleType) or len(type_.fields) != len(pattern.fields):
            raise mismatch(f"a tuple of {len(pattern.fields)}", self.unifier.deep(type_))
        return type_.fields

    def loop(self, expr: ir.Loop, scope: Scope) -> Type:
        """The least types of the variables that initial values and the body's results flow into."""
        types = [var.type or self.atom(initial) for var, initial in zip(expr.variables, expr.initial, strict=True)]
        for var, type_, initial in zip(expr.variables, types, expr.initial, strict=True):
            self._flow_into(f"the initial value of {var.name!r}", self.atom(initial), type_)
        while True:
            for var, type_ in zip(expr.variables, types, strict=True):
                self._declare(var, type_)
            self._loop_condition(expr.condition, scope)
            again = self._loop_body(expr, types, scope)
            if again == types:
                self.visible.difference_update(expr.variables)
                return TupleType(tuple(types))
            types = again

    def _loop_condition(self, condition: ir.Block, scope: Scope) -> None:
        type_ = self.unifier.resolve(self._block(condition, scope))
        if type_ is not NOTHING and (not isinstance(type_, TensorType) or type_.rank):
            raise mismatch("a scalar tensor as the condition of a loop", self.unifier.deep(type_))

    def _loop_body(self, expr: ir.Loop, types: list[Type], scope: Scope) -> list[Type]:
        result = self.unifier.resolve(self._block(expr.body, scope))
        if result is NOTHING:
            return types
        if not isinstance(result, TupleType) or len(result.fields) != len(types):
            raise mismatch(f"a tuple of {len(types)} as the result of a loop's body", self.unifier.deep(result))
        for var, type_, field in zip(expr.variables, types, result.fields, strict=True):
            if var.type is not None:
                self._flow_into(f"the next value of {var.name!r}", field, type_)
        return [
            type_ if var.type is not None else self._joined(f"the values of {var.name!r}", [type_, field])
            for var, type_, field in zip(expr.variables, types, result.fields, strict=True)
        ]

    def match_shape(self, expr: ir.MatchShape, scope: Scope) -> Type:
        type_ = self.atom(expr.value)
        scope.update(str(dim) for dim in expr.shape if isinstance(dim, SymbolicDim) and dims.is_variable(dim))
        if type_ is NOTHING:
            return NOTHING
        value = self._tensor(expr.value)
        if value.rank != len(expr.shape):
            raise mismatch(f"a tensor of rank {len(expr.shape)}", value)
        for known, wanted in zip(value.shape, expr.shape, strict=True):
            if never_equal(known, wanted):
                raise mismatch(f"a tensor of shape [{', '.join(map(str, expr.shape))}]", value)
        shape = tuple(k if w is UNKNOWN else w for k, w in zip(value.shape, expr.shape, strict=True))
        self._check_scope([value.with_shape(shape)], scope)
        return value.with_shape(shape)


_Rule = Callable[[_Inference, Any, Scope], Type]
_RULES: dict[type, _Rule] = {
    ir.Var: _Inference.atom,
    ir.Constant: _Inference.atom,
    ir.GlobalRef: _Inference.atom,
    ir.OperatorCall: _Inference.operator_call,
    ir.PrimitiveCall: _Inference.primitive_call,
    ir.Call: _Inference.call,
    ir.ImportCall: _Inference.import_call,
    ir.MakeTuple: _Inference.make_tuple,
    ir.GetItem: _Inference.get_item,
    ir.Construct: _Inference.construct,
    ir.Function: _Inference.closure,
    ir.MakeClosure: _Inference.make_closure,
    ir.If: _Inference.if_,
    ir.Match: _Inference.match,
    ir.Loop: _Inference.loop,
    ir.MatchShape: _Inference.match_shape,
}


def _located(error: InferenceError, function: str, node: str) -> InferenceError:
    """The error with its place, unless it has one."""
    return InferenceError(error.message, function=error.function or function, node=error.node or node or None)


def _name(atom: ir.Atom) -> str:
    if isinstance(atom, ir.Constant):
        return "a constant"
    return repr(atom.name)


def _packed(results: Sequence[Type]) -> Type:
    return results[0] if len(results) == 1 else TupleType(tuple(results))
