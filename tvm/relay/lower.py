"""From Relay's expressions to Treadle's: each becomes one of the builder's, operators by the table (`op/`).

A function that a `let` binds and that calls itself, as a loop does, becomes a function of the module: what it uses
from around it are parameters more.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...compiler import ir
from ...compiler.builder import programs
from ...compiler.builder.control import loop as while_
from ...compiler.builder.programs import Expression, FunctionExpression
from ...compiler.ir.analysis import called
from ...compiler.ir.infer import infer_types
from ...compiler.ir.unify import leaves
from ...formats import types
from ...formats.messages.errors import InferenceError
from . import adt, ty
from .expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Op, Tuple, TupleGetItem, Var
from .external import handed_over
from .loops import WhileLoop, while_loop_of
from .op.references import CREATE, READ, WRITE, Cell
from .op.table import ROWS, fields_of, fresh_dim, naming_dims
from .op.weight_types import weight_types
from .ty import to_type
from .visit import Walk, children, free_vars, global_vars, postorder, run

Environment = dict[Var, Expression]
RESULTS = "output_tensor_names"  # the attribute of a function that has the names of its results, as in TVM's frontends


@dataclass(eq=False)
class _Local:
    """A recursive function that a `let` bound: the function that it became, and what it takes more."""

    name: str
    free: list[Expression]
    count: int


@dataclass
class Lowering:
    """The functions of a module as Treadle's, made as they are found to be needed."""

    functions: Mapping[str, Function | ir.Function]
    data_types: Mapping[str, programs.DataTypeBuilder]
    names_dims: bool = True  # whether a dimension of a parameter that is not known gets a name
    made: dict[str, FunctionExpression] = field(default_factory=dict)
    signatures: dict[str, types.FunctionType | None] = field(default_factory=dict)
    expressions: dict[int, Expression] = field(default_factory=dict)  # of each expression of Relay, by identity
    _kept: list[Expr] = field(default_factory=list)

    def function(self, name: str) -> None:
        """Lowers a function of the module, and those that it calls."""
        waiting = [name]
        while waiting:
            name = waiting.pop()
            source = self.functions.get(name)
            if name in self.made or not isinstance(source, Function):
                continue
            self.signature(name)
            self.made[name] = self._function(source, name)
            waiting += global_vars(source)

    def signature(self, name: str) -> types.FunctionType | None:
        """The type of a function of the module, as far as it is known without inference."""
        if name in self.signatures:
            return self.signatures[name]
        source = self.functions.get(name)
        if source is None:
            raise InferenceError(
                f"there is no function {name!r} in the module; it has {', '.join(self.functions) or 'none'}"
            )
        if isinstance(source, ir.Function):
            found = _signature([param.type for param in source.params], source.result_type)
        else:
            self.signatures[name] = None  # it calls itself, perhaps
            found = _signature([to_type(p.type_annotation) for p in source.params], to_type(source.ret_type))
            if found is None and name not in self.made:
                made = self.made[name] = self._function(source, name)
                found = made.type if isinstance(made.type, types.FunctionType) else None
        self.signatures[name] = found
        return found

    def _function(self, source: Function, name: str = "") -> FunctionExpression:
        return run(_Body(self, {}, name or "main").closure(source, name))

    def name(self, hint: str) -> str:
        """A name that no function has."""
        count, name = 0, hint
        while name in self.functions or name in self.made:
            count += 1
            name = f"{hint}_{count}"
        return name


def declared(type_: types.Type | None) -> types.Type | None:
    """The type of data that a variable is declared to have, which inference may find a part of; None for other types, and for
    one with type variables."""
    parts = [] if type_ is None else list(types.types_in(type_))
    is_generic = any(isinstance(each, types.TypeVariable) for each in parts)
    return type_ if not is_generic and any(isinstance(each, types.DataType) for each in parts) else None


def _unpacked(args: Sequence[Expr]) -> Expr | None:
    """The tuple whose fields these are, in order; None for any others."""
    items = [each for each in args if isinstance(each, TupleGetItem)]
    is_one = items and len(items) == len(args) and all(each.tuple_value is items[0].tuple_value for each in items)
    in_order = [each.index for each in items] == list(range(len(args)))
    whole = items[0].tuple_value if is_one and in_order else None
    type_ = whole._checked_type if whole is not None else None
    return whole if isinstance(type_, ty.TupleType) and len(type_.fields) == len(args) else None


def _behind(result: Expression, placed: Sequence[Expression]) -> Expression:
    """The result of a block that others are computed in too."""
    if not placed:
        return result
    return Expression(operands=(result, *placed), type=result.type, fields=result.fields, name=result.name)


def _origin(expr: Expr) -> str:
    """What a text or a model calls the node that an expression is of."""
    return getattr(getattr(expr.span, "source_name", None), "name", "")


def _signature(params: Sequence[types.Type | None], result: types.Type | None) -> types.FunctionType | None:
    return None if result is None or None in params else types.FunctionType(tuple(params), result)  # type: ignore[arg-type]


def variable(source: Var, name: str = "", names_dims: bool = False, is_closure: bool = False) -> Expression:
    """A variable of Treadle's for one of Relay's."""
    type_ = to_type(source.type_annotation)
    if is_closure and type_ is not None and any(isinstance(each, types.TypeVariable) for each in leaves(type_)):
        type_ = None  # what a closure's type variables stand for, inference finds
    if names_dims and isinstance(type_, types.TensorType):
        shape = tuple(fresh_dim() if dim is types.UNKNOWN else dim for dim in type_.shape)
        type_ = types.TensorType(type_.dtype, shape)
    return programs.var(name or source.name_hint, type_)


def _unique(names: Sequence[str]) -> list[str]:
    """The names, numbered where one comes again: a function's parameters can be told apart by theirs."""
    made: list[str] = []
    for name in names:
        count, candidate = 0, name
        while candidate in made:
            count += 1
            candidate = f"{name}_{count}"
        made.append(candidate)
    return made


def _type_variables(args: Sequence[Expression], expected: Iterable[types.Type | None]) -> None:
    """Gives variables without a type the one that what they are handed to says, if it is not generic."""
    for arg, type_ in zip(args, expected, strict=False):
        if arg.type is not None or not isinstance(arg.atom, ir.Var) or type_ is None:
            continue
        if not any(isinstance(each, types.TypeVariable) for each in leaves(type_)):
            arg.atom, arg.type = ir.Var(arg.atom.name, type_), type_


class _Body:
    """Lowers the expressions of one function. What an expression became is remembered: what is shared stays shared."""

    def __init__(self, module: Lowering, variables: Mapping[Var, Expression], function: str) -> None:
        self.module, self.function = module, function
        self.variables: Environment = dict(variables)
        self.locals: dict[Var, _Local] = {}
        self.known: dict[int, Expression] = {}
        self.kept: list[Expr] = []
        self.root: Expr | None = None  # the function's body, where all of it is known
        self.uses: Counter[int] = Counter()  # of expressions in it, by identity, once somebody asks
        self.cells: list[Cell] = []  # references that were made
        self.depth = 0  # functions around what is lowered

    def closure(self, source: Function, name: str = "", args: Sequence[Expression] = ()) -> Walk:
        """The function. `args` are what it is called with: parameters without a type have theirs."""
        names = _unique([param.name_hint for param in source.params])
        names_dims = self.module.names_dims and bool(name)
        pairs = zip(source.params, names, strict=True)
        params = [variable(param, each, names_dims, not name) for param, each in pairs]
        for param, arg in zip(params, args, strict=False):
            if param.type is None and isinstance(param.atom, ir.Var):
                param.atom, param.type = ir.Var(param.atom.name, arg.type), arg.type
        self.variables.update(zip(source.params, params, strict=True))
        self.root = source.body if name else self.root
        self.depth += 1
        body = yield self.lower(source.body)
        self.depth -= 1
        result = to_type(source.ret_type)
        if not name and result is not None and any(isinstance(each, types.TypeVariable) for each in leaves(result)):
            result = None
        return programs.function(params, body, result, name)

    def lower(self, expr: Expr) -> Walk:
        found = self.known.get(id(expr))
        if found is None:
            found = yield self._make(expr)
            if expr.place is not None and found.place is None:
                found.place = expr.place
                found.origin = _origin(expr)
            self.known[id(expr)] = self.module.expressions[id(expr)] = found
            self.kept.append(expr)  # so that no other object takes its identity
            self.module._kept.append(expr)
        return found

    def _make(self, expr: Expr) -> Walk:
        rule = _RULES.get(type(expr))
        if rule is None:
            raise InferenceError(
                f"{type(expr).__name__} is not an expression of Relay that can be compiled", function=self.function
            )
        return (yield rule(self, expr))

    def _many(self, several: Sequence[Expr]) -> Walk:
        made = []
        for each in several:
            made.append((yield self.lower(each)))
        return made

    # ---- one kind of expression each ----

    def var(self, expr: Var) -> Walk:
        if expr in self.locals:
            return self._local_value(self.locals[expr])
        if expr not in self.variables:
            raise InferenceError(f"the variable {expr.name_hint!r} is not bound here", function=self.function)
        return self.variables[expr]
        yield

    def constant(self, expr: Constant) -> Walk:
        atom = ir.Constant(ir.frozen(expr.array))
        return Expression(atom=atom, type=atom.type)
        yield

    def global_var(self, expr: GlobalVar) -> Walk:
        return programs.global_function(expr.name_hint, self.module.signature(expr.name_hint))
        yield

    def tuple(self, expr: Tuple) -> Walk:
        return programs.tuple_(*(yield self._many(expr.fields)))

    def item(self, expr: TupleGetItem) -> Walk:
        value = yield self.lower(expr.tuple_value)
        is_made = isinstance(expr.tuple_value, Call) and value.name == "tuple"  # as that of batch_norm
        return fields_of(value)[expr.index] if is_made else programs.field(value, expr.index)

    def if_(self, expr: If) -> Walk:
        """What references hold behind the branches is a result of both."""
        condition, cells = (yield self.lower(expr.cond)), list(self.cells)
        before, known = [cell.value for cell in cells], self.known
        results, ends = [], []
        for branch in (expr.true_branch, expr.false_branch):
            for cell, value in zip(cells, before, strict=True):
                cell.value = value
            self.known = dict(known) if cells else known  # what reads a reference may be shared
            results.append((yield self.lower(branch)))
            ends.append([cell.value for cell in cells])
        self.known = known
        changed = [place for place, value in enumerate(before) if any(end[place] is not value for end in ends)]
        if not changed:
            return programs.if_(condition, *results)
        pairs = zip(results, ends, strict=True)
        made = programs.if_(
            condition, *(programs.tuple_(each, *(end[place] for place in changed)) for each, end in pairs)
        )
        for number, place in enumerate(changed, 1):
            cells[place].value = programs.field(made, number)
        return programs.field(made, 0)

    def _reference(self, name: str, args: Sequence[Expression]) -> Expression:
        """Makes, reads or writes a reference."""
        if name == CREATE:
            self.cells.append(Cell(args[0], self.depth))
            return self.cells[-1]
        cell = args[0]
        if not isinstance(cell, Cell) or cell.depth != self.depth:
            raise InferenceError(
                f"{name}: a reference is followed in the function that makes it alone; hand on values, and return new ones"
            )
        if name == READ:
            return cell.value
        cell.value = args[1]
        return programs.tuple_()

    def let(self, expr: Let) -> Walk:
        last, placed = yield self._lets(expr)
        result = last if isinstance(last, Expression) else (yield self.lower(last))
        return _behind(result, placed)

    def _lets(self, chain: Expr) -> Walk:
        """What is behind lets, and what a text or a model computes there, wherever it is used."""
        placed: list[Expression] = []
        while isinstance(chain, Let):  # a chain may be long
            if isinstance(chain.value, Function) and chain.var in set(free_vars(chain.value)):
                if (loop := while_loop_of(chain)) is not None:
                    return (yield self._loop(loop)), placed
                yield self._recursive(chain.var, chain.value)
            else:
                self.variables[chain.var] = value = yield self.lower(chain.value)
                placed += [value] if chain.value.place is not None and not isinstance(value, Cell) else []
                if isinstance(chain.value, Function):
                    value.name = chain.var.name_hint
                if value.type is None and value.make is not None:
                    value.declared = declared(to_type(chain.var.type_annotation))
            chain = chain.body
        return chain, placed

    def _loop(self, loop: WhileLoop) -> Walk:
        """A function that calls itself as a loop does, as one."""
        for param in loop.params:
            self.variables.setdefault(param, variable(param, is_closure=True))
        initial = yield self._many(loop.initial)
        condition = yield self.lower(loop.condition)
        again, placed = yield self._lets(loop.following)
        if (whole := _unpacked(again.args)) is not None:
            after = yield self.lower(whole)
        else:
            after = programs.tuple_(*(yield self._many(again.args)))
            after.origin = _origin(again)
        variables = [self.variables[param] for param in loop.params]
        return while_(variables, initial, condition, _behind(after, placed))

    def call(self, expr: Call) -> Walk:
        if isinstance(expr.op, Op):
            args = yield self._many(expr.args)
            if expr.op.name in (CREATE, READ, WRITE):
                return self._reference(expr.op.name, args)
            self._type_weights(expr, args)
            if expr.op.name == "nn.bias_add" and (biased := self._biased(expr, args)) is not None:
                return biased
            try:
                return ROWS[expr.op.name](expr, args)
            except InferenceError as error:
                raise InferenceError(error.message, function=error.function or self.function, node=error.node) from None
        if isinstance(expr.op, adt.Constructor):
            args = yield self._many(expr.args)
            _type_variables(args, map(to_type, expr.op.inputs))
            return self._constructor(expr.op)(*args)
        if isinstance(expr.op, Var) and expr.op in self.locals:
            local = self.locals[expr.op]
            args = yield self._many(expr.args)
            return programs.global_function(local.name)(*args, *local.free)
        args = yield self._many(expr.args)
        source = self.module.functions.get(expr.op.name_hint) if isinstance(expr.op, GlobalVar) else expr.op
        if isinstance(source, Function) and "Compiler" in source.attrs and (handed := handed_over(source, _result_of)):
            return handed(*args)
        if isinstance(expr.op, Function) and id(expr.op) not in self.known:
            self.known[id(expr.op)] = yield self.closure(expr.op, args=args)
            self.kept.append(expr.op)
        callee = yield self.lower(expr.op)
        if isinstance(callee.type, types.FunctionType):
            _type_variables(args, callee.type.params)
        return callee(*args)

    def _biased(self, call: Call, args: Sequence[Expression]) -> Expression | None:
        """A bias and the convolution that only it uses as one; None for any other."""
        (data, bias), convolution = args, call.args[0]
        if data.name not in ("conv", "conv_transpose") or len(data.operands) != 2 or (call.attrs or {})["axis"] != 1:
            return None
        if data.make is None or not isinstance(data.type, types.TensorType) or not self._is_used_once(convolution):
            return None
        if bias.type != types.TensorType(data.type.dtype, data.type.shape[1:2]):
            return None
        made = data.make((ir.Var(""), ir.Var("")), ())
        assert isinstance(made, ir.OperatorCall)
        return Expression._operator(made.operator, *data.operands, bias, **dict(made.attributes))  # type: ignore[arg-type]

    def _is_used_once(self, expr: Expr) -> bool:
        if self.root is None:
            return True
        if not self.uses:
            self.uses.update(id(child) for each in postorder(self.root) for child in children(each))
        return self.uses[id(expr)] == 1

    def _type_weights(self, call: Call, args: Sequence[Expression]) -> None:
        """Gives variables without a type the one that the operator says."""
        open_ = [arg for arg in args if arg.type is None and isinstance(arg.atom, ir.Var)]
        if not open_:
            return
        values = ROWS[call.op.name].bound(call, args)
        for name, type_ in weight_types(call.op.name, values).items():
            arg = values.get(name)
            if isinstance(arg, Expression) and any(arg is each for each in open_):
                _type_variables([arg], [type_])

    def function_value(self, expr: Function) -> Walk:
        return (yield self.closure(expr))

    def constructor_value(self, expr: adt.Constructor) -> Walk:
        """A constructor that is not called: a function of its fields."""
        fields = [Var(f"field_{place}") for place in range(len(expr.inputs))]
        return (yield self.closure(Function(fields, Call(expr, fields))))

    def match(self, expr: adt.Match) -> Walk:
        value = yield self.lower(expr.data)
        before = [cell.value for cell in self.cells]
        clauses: list[tuple[Any, Expression]] = []
        for clause in expr.clauses:
            pattern = self._pattern(clause.lhs)
            clauses.append((pattern, (yield self.lower(clause.rhs))))
        if any(cell.value is not held for cell, held in zip(self.cells, before)):  # noqa: B905
            raise InferenceError(
                f"{WRITE}: in a clause of a match; let each clause give the new value", function=self.function
            )
        used = [c.lhs.constructor for c in expr.clauses if isinstance(c.lhs, adt.PatternConstructor)]
        made = programs.match_(value, clauses)
        if used:
            made.data_type = self._constructor(used[0]).definition
        return made

    def _pattern(self, pattern: adt.Pattern) -> ir.Pattern:
        if isinstance(pattern, adt.PatternVar):
            made = variable(pattern.var)
            self.variables[pattern.var] = made
            assert isinstance(made.atom, ir.Var)
            return ir.Bind(made.atom)
        if isinstance(pattern, adt.PatternConstructor):
            return ir.ConstructorPattern(pattern.constructor.name_hint, tuple(map(self._pattern, pattern.patterns)))
        if isinstance(pattern, adt.PatternTuple):
            return ir.TuplePattern(tuple(map(self._pattern, pattern.patterns)))
        return ir.Wildcard()

    def _constructor(self, constructor: adt.Constructor) -> programs.ConstructorFunction:
        name = constructor.belong_to.name_hint
        if name not in self.module.data_types:
            raise InferenceError(f"the data type {name!r} of {constructor.name_hint} is not in the module")
        return getattr(self.module.data_types[name], constructor.name_hint)

    # ---- functions that call themselves ----

    def _recursive(self, name: Var, source: Function) -> Walk:
        """`let name = fn … name(…) …` as a function of the module."""
        outer = [each for each in free_vars(source) if each is not name]
        reached = [(each, self.locals[each]) for each in outer if each in self.locals]
        values = [self.variables[each] for each in outer if each not in self.locals]
        variables = [each for each in outer if each not in self.locals]
        inner_free = [programs.var(each.name_hint, value.type) for each, value in zip(variables, values, strict=True)]
        local = self.module.name(name.name_hint)
        self.module.made[local] = FunctionExpression()  # the name is taken
        body = _Body(self.module, dict(zip(variables, inner_free, strict=True)), local)
        extra: list[Expression] = []
        for other, local_ in reached:
            handed = [programs.var(f"{local_.name}_{place}", free.type) for place, free in enumerate(local_.free)]
            body.locals[other] = _Local(local_.name, handed, local_.count)
            extra += handed
            values += local_.free
        free = [*inner_free, *extra]
        body.locals[name] = _Local(local, free, len(source.params))
        params = [variable(param) for param in source.params]
        body.variables.update(zip(source.params, params, strict=True))
        body.root = source.body
        result = yield body.lower(source.body)
        self.module.made[local] = programs.function([*params, *free], result, to_type(source.ret_type), local)
        self.locals[name] = _Local(local, values, len(source.params))

    def _local_value(self, local: _Local) -> Expression:
        """Such a function as a value."""
        callee = programs.global_function(local.name)
        if not local.free:
            return callee
        params = [programs.var(f"argument_{place}", None) for place in range(local.count)]
        return programs.function(params, callee(*params, *local.free))


_RULES: dict[type, Any] = {
    Var: _Body.var,
    Constant: _Body.constant,
    GlobalVar: _Body.global_var,
    Tuple: _Body.tuple,
    TupleGetItem: _Body.item,
    If: _Body.if_,
    Let: _Body.let,
    Call: _Body.call,
    Function: _Body.function_value,
    adt.Constructor: _Body.constructor_value,
    adt.Match: _Body.match,
}


def body_of(module: ir.Module, name: str) -> _Body:
    """What lowers expressions of a function, one after another, where the others of a module are Treadle's."""
    builders = {key: programs.DataTypeBuilder(each) for key, each in module.data_types.items()}
    return _Body(Lowering(module.functions, builders), {}, name)


def lowered(
    functions: Mapping[str, Function | ir.Function],
    data_types: Mapping[str, types.DataTypeDefinition],
    entries: Sequence[str],
) -> ir.Module:
    """The module that the entries reach. Raises InferenceError.

    Dimensions that are not known have names, so that kernels are made for them, unless the program then has no types: where one
    is to be broadcast, or changes in a loop, it stays unknown, and a run finds it.
    """
    return labelled(functions, data_types, entries, label=False)[0]


def labelled(
    functions: Mapping[str, Function | ir.Function],
    data_types: Mapping[str, types.DataTypeDefinition],
    entries: Sequence[str],
    label: bool = True,
) -> tuple[ir.Module, Lowering]:
    """The module, and what each expression became. `label` marks, as the origin of its binding, each expression whose type only
    inference will find."""
    sources = [each.source for each in functions.values() if isinstance(each, Function) and each.source is not None]
    imports = {name: type_ for source in sources for name, type_ in source.module.imports.items()}
    functions = {name: _source(each) for name, each in functions.items()}
    own = [each for each in functions.values() if isinstance(each, Function)]
    if any(_has_any(param.type_annotation) for each in own for param in each.params):
        with contextlib.suppress(InferenceError):
            made = _module(functions, data_types, entries, label, True)
            infer_types(made[0])
            return made
    module, lowering = _module(functions, data_types, entries, label, False)
    return (replace(module, imports={**imports, **module.imports}) if imports else module), lowering


def _result_of(function: Function) -> types.Type:
    """The type of a function's result, inferred where that has not been done. Raises InferenceError."""
    known = function._checked_type
    if isinstance(known, ty.FuncType):
        result = to_type(known.ret_type)
    else:
        result = infer_types(lowered({"main": function}, {}, ("main",))).functions["main"].result_type
    assert result is not None
    return result


def _source(function: Function | ir.Function) -> Function | ir.Function:
    """An imported function as it was read."""
    return function.source.function if isinstance(function, Function) and function.source is not None else function


def _has_any(type_: ty.Type | None) -> bool:
    return isinstance(type_, ty.TensorType) and any(isinstance(dim, ty.Any) for dim in type_.shape)


def _module(
    functions: Mapping[str, Function | ir.Function],
    data_types: Mapping[str, types.DataTypeDefinition],
    entries: Sequence[str],
    label: bool,
    names_dims: bool,
) -> tuple[ir.Module, Lowering]:
    builders = {name: programs.DataTypeBuilder(definition) for name, definition in data_types.items()}
    lowering = Lowering(functions, builders, names_dims)
    with naming_dims():
        for entry in entries:
            lowering.function(entry)
    for number, expression in enumerate(lowering.expressions.values() if label else ()):
        if expression.type is None and expression.make is not None:
            expression.origin = f"#{number}"
    order = [name for name in dict.fromkeys([*entries, *lowering.made]) if name in lowering.made]
    module = programs.Module({name: lowering.made[name] for name in order}, data_types=list(builders.values()))
    for name, each in module.functions.items():
        names = getattr(functions.get(name), "attrs", {}).get(RESULTS, ())
        if names and len(names) == len(_results(each.body)):
            each = replace(each, result_names=tuple(map(str, names)))
            module = replace(module, functions={**module.functions, name: each})
    native = {name: each for name, each in functions.items() if isinstance(each, ir.Function)}
    return _with_used(module, native, entries), lowering


def _results(block: ir.Block) -> Sequence[ir.Atom]:
    """What a function's result is made of at its end."""
    last = block.bindings[-1] if block.bindings else None
    is_tuple = last is not None and last.var is block.result and isinstance(last.value, ir.MakeTuple)
    return last.value.fields if is_tuple else (block.result,)  # type: ignore[union-attr]


def _with_used(module: ir.Module, library: Mapping[str, ir.Function], entries: Sequence[str]) -> ir.Module:
    """The module with those functions of the library that it uses, and that are entries themselves, as a model's main is."""
    functions = dict(module.functions)
    waiting = [*entries, *(name for function in functions.values() for name in called(function.body))]
    while waiting:
        name = waiting.pop()
        if name in library and name not in functions:
            functions[name] = library[name]
            waiting += called(library[name].body)
    return replace(module, functions=functions)
