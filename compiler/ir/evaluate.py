"""The reference evaluator: what a module means, by the operators' NumPy references and one environment a function.

It is the oracle of the tests, folds constants, and runs host operators. It is plain, not fast. Whatever holds blocks or
calls is a generator that yields the generator of its part; `_run` keeps them on a list, so that programs recurse as deep
as memory allows without use of Python's stack.

Values are NumPy arrays, tuples, `DataValue`s and `Closure`s.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from ...formats import dims as dims_
from ...formats.dims import Dim, SymbolicDim
from ...formats.dtypes import DType
from ...formats.extensions import EXTENSIONS
from ...formats.messages.errors import (
    ArgumentError,
    BudgetExceededError,
    ExecutionError,
    InferenceError,
    ShapeError,
    TreadleError,
    UnknownFunctionError,
)
from ...formats.messages.names import near
from ...formats.primitive import Attributes, PrimitiveDefinition
from ...formats.strings import to_numbers, to_texts
from ...formats.types import UNKNOWN, ShapeDim, TensorType, TupleType, Type
from ...vm.values import DataValue
from .. import ir
from ..operators import lookup
from ..operators.recall import Recall

MAX_DEPTH = 1_000_000


@dataclass(frozen=True, eq=False)
class Closure:
    """A function value: its free variables and dimension variables, and the arguments that are bound already, the last ones."""

    function: ir.Function
    values: Mapping[ir.Var, Any]
    dims: Mapping[str, int]
    captured: tuple[Any, ...] = ()


Value = Any  # an array, a tuple, a DataValue or a Closure
Steps = Generator["Steps", Any, Value]  # yields computations whose values it is sent; returns its own


def evaluate(
    module: ir.Module,
    name: str,
    *args: object,
    max_depth: int = MAX_DEPTH,
    imports: Mapping[str, Callable[..., Value]] | None = None,
) -> Value:
    """The value of a function of a typed module. Arguments are arrays, numbers, tuples of them, and results of this function.
    `imports` are the functions that it imports, which are given arrays, tuples and data values.

    Raises ExecutionError where the program fails, BudgetExceededError when calls and blocks nest deeper than `max_depth`.
    """
    if name not in module.functions:
        raise UnknownFunctionError(
            f"there is no function {name!r}; the module has {', '.join(module.functions)}{near(name, module.functions)}"
        )
    function = module.functions[name]
    if len(args) != len(function.params):
        names = ", ".join(param.name for param in function.params)
        raise ArgumentError(f"expected {len(function.params)} arguments ({names}), got {len(args)}", function=name)
    values = [_argument(arg, param) for arg, param in zip(args, function.params, strict=True)]
    evaluator = _Evaluator(module, imports or {})
    if missing := [f"{name}: {type_}" for name, type_ in module.imports.items() if name not in evaluator.imports]:
        raise UnknownFunctionError(f"the module imports functions that it was not given: {'; '.join(missing)}")
    return _given_out(_run(evaluator.apply(Closure(function, {}, {}), values), max_depth))


def _given_out(value: Value) -> Value:
    """A value with texts in place of their numbers."""
    if isinstance(value, tuple):
        return tuple(map(_given_out, value))
    return to_texts(value) if isinstance(value, np.ndarray) else value


def evaluate_definition(
    definition: PrimitiveDefinition, arrays: Sequence[np.ndarray], dims: Sequence[int]
) -> list[np.ndarray]:
    """The outputs of a primitive, new arrays. `dims` are the values of its variables."""
    return DefinitionEvaluator(definition)(arrays, dims)


class DefinitionEvaluator:
    """`evaluate_definition` of one definition, for many calls. `inflates`: it may take any time, however few elements go in.
    `varies`: another call may have other results, or does what is seen outside, as a user's operator may."""

    def __init__(self, definition: PrimitiveDefinition) -> None:
        self._definition = definition
        self._nodes = [(Application(node.operator, node.attributes), node.inputs) for node in definition.nodes]
        self.inflates = any(lookup(node.operator).inflates for node in definition.nodes)
        self.varies = any(lookup(node.operator).varies or node.operator in EXTENSIONS for node in definition.nodes)

    @property
    def of_texts(self) -> Callable[..., list[np.ndarray]] | None:
        """What computes the outputs from arrays of Python's texts in place of string tensors, into such; None for others than
        single operators that take these."""
        apply, inputs = self._nodes[0]
        all_results = range(len(self._definition.params), len(self._definition.values))
        if len(self._nodes) > 1 or not apply.takes_objects or self._definition.outputs != tuple(all_results):
            return None
        if inputs == tuple(range(len(inputs))):
            return apply.of_texts
        return lambda *arrays: apply.of_texts(*[arrays[at] for at in inputs])

    def __call__(self, arrays: Sequence[np.ndarray], dims: Sequence[int]) -> list[np.ndarray]:
        definition = self._definition
        bound = dict(zip(definition.variables, dims, strict=True))
        values = list(arrays)
        for apply, inputs in self._nodes:
            values += apply([values[index] for index in inputs], bound)
        return [values[index] for index in definition.outputs]


def apply_operator(
    name: str, arrays: Sequence[np.ndarray], attributes: Attributes, dims: Mapping[str, int]
) -> list[np.ndarray]:
    """The results of an operator, whose shapes and element types are those that inference gives for these inputs.

    Raises ShapeError where the inputs do not fit.
    """
    return Application(name, attributes)(arrays, dims)


class Application:
    """An operator with its attributes, for many calls. Attributes that hold for all calls are looked at once, and inference is
    asked where inputs have other types than in the call before."""

    def __init__(self, name: str, attributes: Attributes) -> None:
        self._operator, self._attributes = lookup(name), attributes
        self._kept = {"recall": Recall()} if self._operator.recalls else {}
        self._is_symbolic = bool(PrimitiveDefinition.variables_of((), tuple(value for _, value in attributes)))
        # types of the arguments, what inference gave for them, and all attributes by name
        self._last: tuple[Any, tuple[TensorType, ...], Mapping[str, Any]] = (None, (), {})
        self._last_texts: tuple[Any, Mapping[str, Any]] = (None, {})  # the same of `of_texts`

    @property
    def takes_objects(self) -> bool:
        """Whether `of_texts` may be called."""
        return (self._operator.takes_texts or self._operator.takes_objects) and not self._is_symbolic

    def of_texts(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """The results for arrays of Python's texts in place of string tensors, as such. Raises InferenceError."""
        got = [array.shape for array in arrays]
        known, bound = self._last_texts
        if got != known:
            types = [DType.string if array.dtype == object else DType.of(array.dtype) for array in arrays]
            self._operator.result_types(list(map(TensorType, types, got)), self._attributes)
            bound = self._operator.bind(self._attributes) | self._kept
            self._last_texts = got, bound
        results = self._operator.reference(*arrays, **bound)
        return list(results) if isinstance(results, tuple) else [results]

    def __call__(self, arrays: Sequence[np.ndarray], dims: Mapping[str, int]) -> list[np.ndarray]:
        """The results. Raises ShapeError where the inputs do not fit."""
        attributes, operator = self._attributes, self._operator
        if self._is_symbolic:
            attributes = tuple((key, _concrete(value, dims)) for key, value in attributes)
        got = [(array.dtype, array.shape) for array in arrays]
        known, expected, bound = self._last
        if got != known or self._is_symbolic:
            try:
                expected = operator.result_types([_type_of(array) for array in arrays], attributes)
                bound = operator.bind(attributes) | self._kept
            except InferenceError as error:
                raise ShapeError(f"{operator.name}: {error.message}") from None
            self._last = got, expected, bound
        results = operator.evaluate(arrays, attributes, bound)
        for result, type_ in zip(results, expected, strict=True):
            if not _fits(result, type_):
                raise ExecutionError(
                    f"{operator.name}: expected a result {type_}, got {_type_of(result)}; the operator is wrong"
                )
        return results


def _concrete(value: Any, dims: Mapping[str, int]) -> Any:
    """An attribute with dimension variables replaced."""
    if isinstance(value, SymbolicDim):
        return _size(value, dims)
    return tuple(_concrete(part, dims) for part in value) if isinstance(value, tuple) else value


def _size(dim: Dim, dims: Mapping[str, int]) -> int:
    """The value of a dimension. Raises ExecutionError on division by zero."""
    try:
        return dims_.evaluate(dim, dims)
    except ZeroDivisionError:
        known = ", ".join(f"{name} = {dims[name]}" for name in dims_.variables(dim))
        raise ExecutionError(f"the dimension {dim} divides by zero for {known}") from None


def _type_of(array: np.ndarray) -> TensorType:
    return TensorType(DType.of(array.dtype), array.shape)


def _fits(array: np.ndarray, type_: TensorType) -> bool:
    if array.dtype != type_.dtype.numpy or array.ndim != type_.rank:
        return False
    if array.shape == type_.shape:
        return True
    return all(dim is UNKNOWN or dim == size for dim, size in zip(type_.shape, array.shape, strict=True))


def _sizes(value: Value, type_: Type | None) -> Iterator[tuple[ShapeDim, int]]:
    """The dimensions of a type, in tuples too, and what they are in a value of it; ranks that differ are found later."""
    if isinstance(type_, TensorType) and isinstance(value, np.ndarray):
        yield from zip(type_.shape, value.shape, strict=False)
    elif isinstance(type_, TupleType) and isinstance(value, tuple):
        for part, field in zip(value, type_.fields, strict=True):
            yield from _sizes(part, field)


def _argument(value: object, param: ir.Var) -> Value:
    """A friendly value as the parameter's type has it."""
    if isinstance(value, (DataValue, Closure)):
        return value
    type_ = param.type
    if isinstance(value, (tuple, list)) and isinstance(type_, TupleType):
        fields = (ir.Var(f"{param.name}[{i}]", field) for i, field in enumerate(type_.fields))
        return tuple(_argument(part, field) for part, field in zip(value, fields, strict=True))
    if isinstance(type_, TensorType) and type_.dtype.is_string:
        value = to_numbers(np.asarray(value, object if isinstance(value, (str, list)) else None))
    is_number = isinstance(value, (bool, int, float))
    array = np.asarray(value, type_.dtype.numpy if is_number and isinstance(type_, TensorType) else None)
    if isinstance(type_, TensorType) and (array.dtype != type_.dtype.numpy or array.ndim != type_.rank):
        raise ArgumentError(f"parameter {param.name!r}: expected {type_}, got {_type_of(array)}")
    return array


def _run(steps: Steps, max_depth: int) -> Value:
    """Runs a computation and those that it waits for, which stand on a list."""
    stack, value = [steps], None
    while stack:
        try:
            waiting_for = stack[-1].send(value)
        except StopIteration as finished:
            stack.pop()
            value = finished.value
        else:
            if len(stack) >= max_depth:
                raise BudgetExceededError(f"calls and blocks nest deeper than {max_depth}", budget="depth")
            stack.append(waiting_for)
            value = None
    return value


@dataclass
class _Environment:
    """The values of a running function's variables and dimension variables."""

    values: dict[ir.Var, Value]
    dims: dict[str, int]


class _Evaluator:
    def __init__(self, module: ir.Module, imports: Mapping[str, Callable[..., Value]] | None = None) -> None:
        self.module, self.imports = module, imports or {}

    def apply(self, closure: Closure, args: Sequence[Value]) -> Steps:
        function = closure.function
        env = _Environment(dict(closure.values), dict(closure.dims))
        pairs = list(zip(function.params, (*args, *closure.captured), strict=True))
        self._bind([size for param, arg in pairs for size in _sizes(arg, param.type)], env.dims)
        for param, arg in pairs:
            env.values[param] = arg
            self._check(arg, param.type, env.dims, f"parameter {param.name!r} of {function.name or 'a closure'}")
        result = yield self.block(function.body, env)
        self._check(result, function.result_type, env.dims, f"the result of {function.name or 'a closure'}")
        return result

    def _check(self, value: Value, type_: Type | None, dims: dict[str, int], what: str) -> None:
        """Tensors have the shapes that their types say; yet unbound dimension variables are bound."""
        if isinstance(type_, TensorType) and isinstance(value, np.ndarray):
            self._match(value.shape, type_.shape, dims, what)
        elif isinstance(type_, TupleType) and isinstance(value, tuple):
            for part, field in zip(value, type_.fields, strict=True):
                self._check(part, field, dims, what)

    def _bind(self, sizes: Sequence[tuple[ShapeDim, int]], dims: dict[str, int]) -> None:
        """Gives yet unbound dimension variables the values that follow from sizes."""
        for solution in dims_.solve([dim for dim, _ in sizes], dims):
            product = sizes[solution.index][1] - _size(solution.rest, dims)
            dims[str(solution.variable)] = max(product // solution.coefficient, 0)

    def _match(self, sizes: tuple[int, ...], shape: Sequence[ShapeDim], dims: dict[str, int], what: str) -> None:
        if len(sizes) != len(shape):
            raise ShapeError(f"{what}: expected rank {len(shape)}, got {len(sizes)}")
        self._bind(list(zip(shape, sizes, strict=True)), dims)
        for size, dim in zip(sizes, shape, strict=True):
            if not isinstance(dim, (int, SymbolicDim)) or not dims.keys() >= set(dims_.variables(dim)):
                continue
            if _size(dim, dims) != size:
                known = ", ".join(f"{name} = {dims[name]}" for name in dims_.variables(dim))
                raise ShapeError(f"{what}: expected dimension {dim}{known and f' ({known})'}, got {size}")

    def block(self, block: ir.Block, outer: _Environment) -> Steps:
        env = _Environment(outer.values, dict(outer.dims))  # a round of a loop binds its own dimension variables
        for binding in block.bindings:
            try:
                value = _RULES[type(binding.value)](self, binding.value, env)
            except TreadleError as error:
                raise _located(error, binding) from error
            env.values[binding.var] = (yield value) if isinstance(value, Generator) else value
        return self.atom(block.result, env)

    def atom(self, atom: ir.Atom, env: _Environment) -> Value:
        if isinstance(atom, ir.Constant):
            return atom.value
        if isinstance(atom, ir.GlobalRef):
            return Closure(self.module.functions[atom.name], {}, {})
        return env.values[atom]

    def _atoms(self, atoms: Iterable[ir.Atom], env: _Environment) -> tuple[Any, ...]:
        return tuple(self.atom(atom, env) for atom in atoms)

    # ---- what needs one step ----

    def operator_call(self, expr: ir.OperatorCall, env: _Environment) -> Value:
        return _packed(apply_operator(expr.operator, self._atoms(expr.args, env), expr.attributes, env.dims))

    def primitive_call(self, expr: ir.PrimitiveCall, env: _Environment) -> Value:
        arrays, dims = self._atoms(expr.args, env), dict[str, int]()
        for array, param in zip(arrays, expr.definition.params, strict=True):
            self._check(array, param, dims, "a primitive's parameter")
        values = [(env.dims | dims)[name] for name in expr.definition.variables]
        return _packed(evaluate_definition(expr.definition, arrays, values))

    def import_call(self, expr: ir.ImportCall, env: _Environment) -> Value:
        args, dims, type_ = self._atoms(expr.args, env), dict[str, int](), self.module.imports[expr.name]
        self._bind([size for arg, param in zip(args, type_.params, strict=True) for size in _sizes(arg, param)], dims)
        for position, (arg, param) in enumerate(zip(args, type_.params, strict=True)):
            self._check(arg, param, dims, f"argument {position} of the import {expr.name!r}")
        result = _imported(self.imports[expr.name](*args), type_.result, expr.name)
        self._check(result, type_.result, dims, f"the result of the import {expr.name!r}")
        return result

    def make_tuple(self, expr: ir.MakeTuple, env: _Environment) -> Value:
        return self._atoms(expr.fields, env)

    def get_item(self, expr: ir.GetItem, env: _Environment) -> Value:
        return self.atom(expr.tuple, env)[expr.index]

    def construct(self, expr: ir.Construct, env: _Environment) -> Value:
        cases = [case.name for case in self.module.data_types[expr.data_type].constructors]
        tag = cases.index(expr.constructor)
        return DataValue(tag, self._atoms(expr.args, env), expr.data_type, expr.constructor)

    def closure(self, expr: ir.Function, env: _Environment) -> Value:
        return Closure(expr, dict(env.values), dict(env.dims))  # a copy: a loop gives its variables other values

    def make_closure(self, expr: ir.MakeClosure, env: _Environment) -> Value:
        return Closure(self.module.functions[expr.function], {}, {}, self._atoms(expr.captured, env))

    def match_shape(self, expr: ir.MatchShape, env: _Environment) -> Value:
        value = self.atom(expr.value, env)
        self._match(value.shape, expr.shape, env.dims, "match_shape")
        return value

    # ---- what runs blocks ----

    def call(self, expr: ir.Call, env: _Environment) -> Steps:
        callee = self.atom(expr.callee, env)
        return self.apply(callee, self._atoms(expr.args, env))

    def if_(self, expr: ir.If, env: _Environment) -> Steps:
        condition = self.atom(expr.condition, env)
        return self.block(expr.then if condition.item() else expr.otherwise, env)

    def match(self, expr: ir.Match, env: _Environment) -> Steps:
        value = self.atom(expr.value, env)
        for pattern, block in expr.clauses:
            bound: dict[ir.Var, Value] = {}
            if _pattern_fits(pattern, value, bound):
                env.values.update(bound)
                return self.block(block, env)
        raise ExecutionError("no clause of a match fits")

    def loop(self, expr: ir.Loop, env: _Environment) -> Steps:
        values = self._atoms(expr.initial, env)
        while True:
            for var, value in zip(expr.variables, values, strict=True):
                env.values[var] = value
                self._check(value, var.type, env.dims, f"the loop variable {var.name!r}")
            condition = yield self.block(expr.condition, env)
            if not condition.item():
                return values
            values = yield self.block(expr.body, env)


_Rule = Callable[[_Evaluator, Any, _Environment], Union[Value, Steps]]
_RULES: dict[type, _Rule] = {
    ir.Var: _Evaluator.atom,
    ir.Constant: _Evaluator.atom,
    ir.GlobalRef: _Evaluator.atom,
    ir.OperatorCall: _Evaluator.operator_call,
    ir.PrimitiveCall: _Evaluator.primitive_call,
    ir.ImportCall: _Evaluator.import_call,
    ir.MakeTuple: _Evaluator.make_tuple,
    ir.GetItem: _Evaluator.get_item,
    ir.Construct: _Evaluator.construct,
    ir.Function: _Evaluator.closure,
    ir.MakeClosure: _Evaluator.make_closure,
    ir.MatchShape: _Evaluator.match_shape,
    ir.Call: _Evaluator.call,
    ir.If: _Evaluator.if_,
    ir.Match: _Evaluator.match,
    ir.Loop: _Evaluator.loop,
}


def _packed(results: Sequence[Value]) -> Value:
    return results[0] if len(results) == 1 else tuple(results)


def _imported(value: Any, type_: Type, name: str) -> Value:
    """The result of an import, as a value of its type."""
    if isinstance(type_, TensorType):
        return _argument(getattr(value, "array", value), ir.Var(f"the result of {name}", type_))
    if isinstance(type_, TupleType):
        if not isinstance(value, (tuple, list)) or len(value) != len(type_.fields):
            raise ArgumentError(f"the result of {name}: expected the tuple {type_}, got {value!r}")
        return tuple(_imported(field, inner, name) for field, inner in zip(value, type_.fields, strict=True))
    return value


def _pattern_fits(pattern: ir.Pattern, value: Any, bound: dict[ir.Var, Value]) -> bool:
    if isinstance(pattern, ir.Bind):
        bound[pattern.var] = value
        return True
    if isinstance(pattern, ir.Wildcard):
        return True
    if isinstance(pattern, ir.ConstructorPattern) and value.constructor != pattern.constructor:
        return False
    fields = value.fields if isinstance(pattern, ir.ConstructorPattern) else value
    return all(_pattern_fits(part, field, bound) for part, field in zip(pattern.fields, fields, strict=True))


def _located(error: TreadleError, binding: ir.Binding) -> TreadleError:
    """The error with the node that it is of, unless it has one."""
    if error.node is None:
        error = type(error)(error.message, node=binding.origin or binding.var.name)
    return error
