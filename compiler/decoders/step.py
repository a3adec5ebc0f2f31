"""A decoder's step: what is called for each token of a text, by `treadle.generate` and by the loop in the executable.

    main.step(input_ids, held: bool[past, 0], …, past_key_values.0.key: float32[batch, heads, past + room, size], …)
        -> (logits: float32[batch, words], new.past_key_values.0.key: float32[batch, heads, length, size], …)

It is the decoder with what its callers know: nobody asks for logits but those behind the last token, no token is masked, and
places are counted from the cache's length on. Of a cache behind which the decoder puts new rows, and does no more, the step gives
these rows alone, and takes it with room behind its last row: its holder puts them there, and copies nothing. `held`, which
has no elements, says how many rows there are. Other caches are taken and given whole. What an encoder has made stands before the
caches, the same in each call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

from ...formats import dims
from ...formats.decoders import HELD, NEW_ROWS, OF_ADAPTERS, STEP, Roles, is_cache, is_like_a_decoder, of_encoders
from ...formats.dims import Dim, SymbolicDim
from ...formats.dtypes import DType
from ...formats.messages.errors import ArgumentError, CompileError
from ...formats.ports import Port
from ...formats.types import FunctionType, TensorType, TupleType, substitute_dims
from .. import ir
from ..builder import programs
from ..builder.programs import Expression, op
from ..forced_sizes import forced_sizes
from ..ir.analysis import dimension_names, dimension_uses
from ..ir.infer import infer_types
from ..ir.retype import inlined
from ..operators.shapes import maximum, minimum, never_equal, substitute
from ..operators.table import lookup
from ..passes.rewriting import Rewriter, operator_call, tensor_type

_Known = Union[Dim, bool]


def with_made(
    module: ir.Module, entry: str, makers: Mapping[str, Callable[[ir.Module, str], ir.Function | None]]
) -> ir.Module:
    """The module, typed, with the functions that are made of a decoder; as it is, if the entry function is none or none is made.
    `makers` take the typed module and the entry, by what follows the entry's name in that of the function."""
    function = module.functions.get(entry)
    missing = {entry + suffix: make for suffix, make in makers.items() if entry + suffix not in module.functions}
    if function is None or not missing:
        return module
    if not is_like_a_decoder([param.name for param in function.params], function.result_names):
        return module
    typed, added = infer_types(module), {}
    for name, make in missing.items():
        with contextlib.suppress(ArgumentError):
            if (made := make(typed, entry)) is not None:
                added[name] = made
    return dataclasses.replace(typed, functions={**typed.functions, **added}) if added else module


def step_of(module: ir.Module, entry: str) -> ir.Function | None:
    """The step of a decoder; None if it has none. Raises ArgumentError for anything but a decoder."""
    return _Step(module, entry).function()


def with_sizes_of_caches(module: ir.Module, entry: str) -> ir.Module:
    """The module with numbers for the symbols that only caches have, where one number is left: builders call a head's size so."""
    function = module.functions[entry]
    names: dict[bool, set[str]] = {False: set(), True: set()}  # of sizes, by whether a cache has them
    for param in function.params:
        names[is_cache(param.name)].update(dimension_names(param.type) if param.type is not None else ())
    if not (own := names[True] - names[False]):
        return module
    forced = {(each.symbol, each.size) for each in forced_sizes(function) if each.symbol in own}
    symbols = [symbol for symbol, _ in forced]
    sizes: dict[str, Dim] = {symbol: size for symbol, size in forced if symbols.count(symbol) == 1}
    if not sizes:
        return module
    params = [ir.Var(param.name, param.type and substitute_dims(param.type, sizes)) for param in function.params]
    result = function.result_type and substitute_dims(function.result_type, sizes)
    body = inlined(function, params, sizes)
    made = dataclasses.replace(function, params=tuple(params), body=body, result_type=result)
    return dataclasses.replace(module, functions={**module.functions, entry: made})


def roles_of(function: ir.Function, name: str) -> tuple[Roles, FunctionType, list[str]]:
    """What a decoder's inputs and outputs are, its type, and the inputs of encoders and adapters. Raises ArgumentError."""
    inputs = [Port(param.name, param.type) for param in function.params if param.type is not None]
    type_ = FunctionType(tuple(port.type for port in inputs), function.result_type)  # type: ignore[arg-type]
    results = type_.result.fields if isinstance(type_.result, TupleType) else (type_.result,)
    names = function.result_names or [f"output_{number}" for number in range(len(results))]  # which no cache is called
    fed = of_encoders((port.name for port in inputs), names)
    fed += [port.name for port in inputs if port.name.startswith(OF_ADAPTERS)]
    return Roles.of(inputs, list(map(Port, names, results)), name, fed), type_, fed


class _Step:
    """The function in the making: first as a function that calls the decoder, then with the decoder's own bindings."""

    def __init__(self, module: ir.Module, entry: str) -> None:
        self.module, self.entry = module, entry
        self.decoder = module.functions[entry]
        self.roles, self.type, self.fed = roles_of(self.decoder, entry)
        self.caches = [name for name, _ in self.roles.cache]
        self.present = self.decoder.result_names  # of a tuple
        self.axes: dict[str, int] = {}  # of the tokens, of each cache that has them

    def function(self) -> ir.Function | None:
        roles = self.roles
        ids = roles.ports[roles.ids].type
        if not self.caches or roles.switch or not isinstance(ids, TensorType) or ids.rank != 2:
            return None
        batch, length = ids.shape
        if not isinstance(length, SymbolicDim) or not dims.is_variable(length):
            return None
        for name in self.caches:
            shape = roles.empty(name, batch)
            if shape is None:
                return None
            if 0 in shape:
                self.axes[name] = shape.index(0)
        if not self.axes:
            return None
        self.lengths = [tensor_of(roles, name).shape[axis] for name, axis in self.axes.items()]
        self.past: Any = self.lengths[0]
        function = self._calling(ids)
        inlined = with_inlined(function, self.decoder, self.entry, lambda args: sizes_of(self.decoder, args))
        return self._with_rows(decided(inlined, (batch, length)))

    # ---- a call of the decoder ----

    def _calling(self, ids: TensorType) -> ir.Function:
        roles = self.roles
        # caches that are empty at first, and get the rows of each token, are of one length whatever they call it
        same = {str(length): self.past for length in self.lengths}
        types = {name: substitute_dims(roles.ports[name].type, same) for name in (roles.ids, *self.fed, *self.caches)}
        params = {name: programs.var(name, type_) for name, type_ in types.items()}
        arguments = {**made_inputs(roles, ids.shape, self.past), **params}
        results = programs.global_function(self.entry, self.type)(*(arguments[name] for name in roles.ports))
        fields = list(results) if isinstance(self.type.result, TupleType) else [results]
        logits = fields[roles.logits]
        if isinstance(logits.type, TensorType) and logits.type.rank == 3:
            logits = op.take(logits, programs.constant(-1), axis=1)
        results = programs.tuple_(logits, *(fields[number] for _, number in roles.cache))
        made = programs.Module({STEP: programs.function(list(params.values()), results)})
        module = dataclasses.replace(self.module, functions={**self.module.functions, STEP: made.functions[STEP]})
        return infer_types(module).functions[STEP]

    # ---- caches of which only the new rows are given ----

    def _with_rows(self, function: ir.Function) -> ir.Function:
        """The function with room in such caches. Its last binding makes the tuple of its results."""
        definitions = {binding.var: binding.value for binding in function.body.bindings}
        *others, last = function.body.bindings
        assert isinstance(last.value, ir.MakeTuple)
        fields, names = list(last.value.fields), ["logits", *(self.present[number] for _, number in self.roles.cache)]
        params = {param.name: param for param in function.params}
        (room,) = fresh_names(["room"], {*dimension_uses(ir.Binding(ir.Var(""), function))})
        before: list[ir.Binding] = []
        for place, name in enumerate(self.caches, 1):
            joined = definitions.get(fields[place])  # type: ignore[arg-type]
            param, axis = params[name], self.axes.get(name)
            shape = list(tensor_type(param).shape)
            if axis is None or not _puts_behind(joined, param, axis) or shape[axis] != self.past:
                continue
            shape[axis] = dims.add(self.past, room)
            params[name] = ir.Var(name, TensorType(tensor_type(param).dtype, tuple(shape)))
            held = operator_call("slice", params[name], starts=(0,), ends=(self.past,), axes=(axis,))
            before.append(ir.Binding(param, held, name))
            fields[place], names[place] = joined.args[1], NEW_ROWS + name  # type: ignore[union-attr]
        types = TupleType(tuple(tensor_type(field) for field in fields))
        result = ir.Binding(ir.Var(last.var.name, types), ir.MakeTuple(tuple(fields)), last.origin)
        ids, *rest = params.values()
        held_type = TensorType(DType.bool, (self.past, 0))
        return dataclasses.replace(
            function,
            params=(ids, *([ir.Var(HELD, held_type)] if before else []), *rest),
            body=ir.Block((*before, *others, result), result.var),
            result_type=types,
            result_names=tuple(names),
            name=self.entry + STEP,
        )


def fresh_names(names: Iterable[str], taken: Collection[str]) -> Iterator[SymbolicDim]:
    """Sizes of these names, numbered where these are taken."""
    for name in names:
        numbered = (f"{name}{number or ''}" for number in itertools.count())
        yield dims.variable(next(each for each in numbered if each not in taken))


def with_inlined(
    function: ir.Function, callee: ir.Function, name: str, sizes: Callable[[Sequence[ir.Atom]], Mapping[str, Dim]]
) -> ir.Function:
    """The function with a callee's own bindings in place of its calls; `sizes` are what the names of the callee's sizes stand for
    in a call with these arguments."""
    return _Inlining(callee, name, sizes).function(function)


class _Inlining(Rewriter):
    def __init__(self, callee: ir.Function, name: str, sizes: Callable[[Sequence[ir.Atom]], Mapping[str, Dim]]) -> None:
        super().__init__(ir.Module({}))
        self.callee, self.name, self.sizes = callee, name, sizes

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        call = binding.value
        if not isinstance(call, ir.Call) or call.callee.name != self.name:  # type: ignore[union-attr]
            return (binding,)
        block = inlined(self.callee, call.args, self.sizes(call.args))
        self.atoms[binding.var] = block.result
        return block.bindings


def _puts_behind(joined: ir.Expr | None, cache: ir.Var, axis: int) -> bool:
    """Whether a result is a cache with new rows behind it, in float32: attention reads that where it lies."""
    if not isinstance(joined, ir.OperatorCall) or joined.operator != "concat" or len(joined.args) != 2:
        return False
    type_ = tensor_type(cache)
    is_along = lookup("concat").bind(joined.attributes)["axis"] % type_.rank == axis
    return is_along and joined.args[0] is cache and type_.dtype is DType.float32 and axis == type_.rank - 2


def sizes_of(function: ir.Function, args: Sequence[ir.Atom]) -> dict[str, Dim]:
    """What the names of a function's sizes stand for in a call."""
    found: dict[str, Dim] = {}
    for param, arg in zip(function.params, args, strict=True):
        for dim, given in zip(tensor_type(param).shape, tensor_type(arg).shape, strict=True):
            if isinstance(dim, SymbolicDim) and dims.is_variable(dim):
                found.setdefault(str(dim), given)  # type: ignore[arg-type]
    return found


# ---- what a decoder is given that sizes tell ----


def tensor_of(roles: Roles, name: str, least: int = 1) -> TensorType:
    """The type of an input with at least `least` axes. Raises CompileError."""
    type_ = roles.ports[name].type
    if not isinstance(type_, TensorType) or type_.rank < least:
        raise CompileError(f"decode_loop: {name!r} is {type_}; expected a tensor with the batch as its first dimension")
    return type_


def made_inputs(roles: Roles, shape: Sequence[Any], past: Any) -> dict[str, Expression]:
    """The inputs that follow from the ids' shape, [batch, length], and the tokens in the cache."""
    batch, length = shape
    total = dims.add(past, length)
    made: dict[str, Expression] = {}
    if roles.mask:
        made[roles.mask] = _filled(roles, roles.mask, (batch, total), 1)
    for name in filter(None, (roles.positions, roles.counter)):
        type_ = tensor_of(roles, name)
        places = op.arange(start=past, stop=total, step=1, dtype=type_.dtype)
        outer = type_.shape[:-2]  # 3: in time, height and width, which are one in a text
        made[name] = op.broadcast_to(places, shape=(*outer, batch, length)) if type_.rank > 1 else places
    if roles.kept:
        kept = tensor_of(roles, roles.kept, 0)
        made[roles.kept] = _filled(roles, roles.kept, [dim if isinstance(dim, int) else 1 for dim in kept.shape], 1)
    if roles.zeros:
        made[roles.zeros] = _filled(roles, roles.zeros, (batch, length), 0)
    return made


def _filled(roles: Roles, name: str, shape: Sequence[Any], value: int) -> Expression:
    dtype = tensor_of(roles, name, 0).dtype
    return op.full(shape=shape, value=bool(value) if dtype is DType.bool else value, dtype=dtype)


# ---- decisions that sizes take ----


def decided(function: ir.Function, positive: Iterable[Any]) -> ir.Function:
    """The function without questions that are answered by the sizes: whether all tokens are there that a mask has, for one.
    `positive` sizes are not 0."""
    return _Decider({str(dim): dims.add(dim, 1) for dim in positive if isinstance(dim, SymbolicDim)}).function(function)


class _Decider(Rewriter):
    """Follows tensors whose elements are all one number that sizes tell. `above` has positive sizes, each as one that is one
    more than a size that may be 0."""

    def __init__(self, above: Mapping[str, Dim]) -> None:
        super().__init__(ir.Module({}))
        self.above = above
        self.known: dict[ir.Atom, _Known] = {}
        self.tuples: dict[ir.Atom, ir.MakeTuple] = {}

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        value = binding.value
        if isinstance(value, ir.If) and isinstance(answer := self._of(self.atom(value.condition)), bool):
            taken = value.then if answer else value.otherwise
            made = [each for inner in taken.bindings for each in self.binding(inner)]
            self.atoms[binding.var] = self.atom(taken.result)
            return made
        binding = self.with_new_operands(binding)
        value = binding.value
        if isinstance(value, ir.GetItem) and value.tuple in self.tuples:
            value = self.tuples[value.tuple].fields[value.index]
        if isinstance(value, ir.MatchShape) and _type_of(value.value) == binding.var.type:
            value = value.value
        if isinstance(value, (ir.Var, ir.Constant)):
            self.atoms[binding.var] = value
            return ()
        if isinstance(value, ir.MakeTuple):
            self.tuples[binding.var] = value
        if isinstance(value, ir.OperatorCall) and (found := self._made(value, binding.var)) is not None:
            self.known[binding.var] = found
        return (binding,)

    def _of(self, atom: ir.Atom) -> _Known | None:
        if isinstance(atom, ir.Constant) and not isinstance(atom, ir.Weight) and atom.array.size == 1:
            number = atom.array.item()
            return number if isinstance(number, (bool, int)) else None
        return self.known.get(atom)

    def _made(self, call: ir.OperatorCall, var: ir.Var) -> _Known | None:
        rule = _RULES.get(call.operator)
        if rule is None or not isinstance(var.type, TensorType):
            return None
        operands = [self._of(arg) for arg in call.args]
        if None in operands:
            return None
        if call.operator == "equal":
            operands = [each if isinstance(each, bool) else substitute(each, self.above) for each in operands]
        return rule(operands, lookup(call.operator).bind(call.attributes), [tensor_type(arg) for arg in call.args])


def _type_of(atom: ir.Atom) -> Any:
    return None if isinstance(atom, ir.GlobalRef) else atom.type


def _full(_: Any, attributes: Mapping[str, Any], types: Any) -> _Known | None:
    value = attributes["value"]
    return int(value) if isinstance(value, float) and value.is_integer() else value if isinstance(value, int) else None


def _sum(operands: Sequence[Any], attributes: Mapping[str, Any], types: Sequence[TensorType]) -> _Known | None:
    shape, axes = types[0].shape, attributes["axes"]
    summed = shape if axes is None else [shape[axis] for axis in axes]
    is_known = all(isinstance(dim, (int, SymbolicDim)) for dim in summed) and not isinstance(operands[0], bool)
    return dims.multiply(operands[0], dims.product(summed)) if is_known else None  # type: ignore[arg-type]


def _cast(operands: Sequence[Any], attributes: Mapping[str, Any], types: Any) -> _Known | None:
    """Sizes fit into the integers that they are cast to: no tensor has 2³¹ tokens."""
    wide = attributes["dtype"] in (DType.int32, DType.int64)
    return operands[0] if wide and not isinstance(operands[0], bool) else None


def _equal(operands: Sequence[Any], attributes: Any, types: Any) -> _Known | None:
    if any(isinstance(each, bool) for each in operands):
        return None
    return True if operands[0] == operands[1] else False if never_equal(*operands) else None


def _numbers(compute: Any) -> Any:
    return lambda operands, *_: None if any(isinstance(each, bool) for each in operands) else compute(*operands)


def _same(operands: Sequence[Any], *_: Any) -> _Known | None:
    return operands[0]


_RULES: dict[str, Any] = {
    "full": _full,
    "shape_tensor": lambda _, attributes, types: attributes["dims"][0] if len(attributes["dims"]) == 1 else None,
    **dict.fromkeys(("reshape", "expand_dims", "squeeze", "broadcast_to", "permute_dims", "slice", "take"), _same),
    "cast": _cast,
    "sum": _sum,
    "add": _numbers(dims.add),
    "subtract": _numbers(lambda a, b: dims.add(a, dims.multiply(b, -1))),
    "multiply": _numbers(dims.multiply),
    "maximum": _numbers(maximum),
    "minimum": _numbers(minimum),
    "equal": _equal,
    "logical_and": lambda operands, *_: True if operands == [True, True] else None,
    "all": lambda operands, *_: True if operands[0] is True else None,
}
