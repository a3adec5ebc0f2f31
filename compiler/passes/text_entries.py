"""Adds a twin that takes bytes to each function of texts that uses only their bytes.

    main(x: string[n]) = main.of_bytes(text_bytes(x))        main.of_bytes(text: uint8[?], ends: int64[n]) = …

A machine that is called with texts encodes them as bytes itself, instead of numbers, and calls the twin: the host is not
called in the middle of a run. The twin cannot be called by name. `formats/text_entries.py` has its metadata.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

from ...formats.text_entries import SUFFIX, TextEntry, TextParameter
from ...formats.types import TensorType
from .. import ir
from ..ir.analysis import bound_vars, dimension_names, dimension_uses, expressions
from ..operators.table import lookup
from .rewriting import Rewriter

_OPERATOR = "text_bytes"


@dataclass(frozen=True)
class TextEntries:
    """`entries`: the functions that may be called from outside."""

    entries: tuple[str, ...] = ()
    name: str = "text_entries"

    def __call__(self, module: ir.Module) -> ir.Module:
        functions = dict(module.functions)
        for name in filter(module.functions.__contains__, self.entries):
            functions |= _with_twin(module, name)
        return dataclasses.replace(module, functions=functions)


class _Bytes(NamedTuple):
    """Bindings between a parameter and its bytes."""

    steps: tuple[ir.Binding, ...]
    text: ir.Binding
    ends: ir.Binding


def _with_twin(module: ir.Module, name: str) -> dict[str, ir.Function]:
    """A function and its twin, by their names; empty if it has none."""
    function, twin_name = module.functions[name], name + SUFFIX
    texts = [param for param in function.params if isinstance(param.type, TensorType) and param.type.dtype.is_string]
    if not texts or twin_name in module.functions:
        return {}
    uses = _users(function)
    found = {param: _bytes_of(param, uses) for param in texts}
    if None in found.values() or any(each.text.origin is None for each in found.values() if each):
        return {}
    made = {param: each for param, each in found.items() if each is not None}
    gone = {id(step) for each in made.values() for step in (*each.steps, each.text, each.ends)}
    params: list[ir.Var] = []
    for param in function.params:
        params += [made[param].text.var, made[param].ends.var] if param in made else [param]
    bindings = tuple(binding for binding in function.body.bindings if id(binding) not in gone)
    body = ir.Block(bindings, function.body.result)
    if not _is_closed(params, body, function):
        return {}
    inner = {param: ir.Var(param.name, param.type) for param in params}
    rewriter = Rewriter(module)
    rewriter.atoms.update(inner)
    twin = dataclasses.replace(
        function, params=tuple(inner.values()), body=rewriter.block(body), name=twin_name, captured=len(params)
    )
    result = ir.Var(function.body.result.name if isinstance(function.body.result, ir.Var) else "", function.result_type)
    kept = [binding for binding in function.body.bindings if id(binding) in gone]
    call = ir.Binding(result, ir.Call(ir.GlobalRef(twin_name), tuple(params)), kept[-1].origin)
    outer = dataclasses.replace(function, body=ir.Block((*kept, call), result))
    return {name: outer, twin_name: twin}


def _users(function: ir.Function) -> dict[ir.Atom, list[ir.Binding | None]]:
    """The bindings that use each atom; None for those of inner blocks and the result."""
    users: dict[ir.Atom, list[ir.Binding | None]] = {}
    for binding in function.body.bindings:
        for atom in ir.atoms_of(binding.value):
            users.setdefault(atom, []).append(binding)
        for block in ir.blocks_of(binding.value):
            for inner in expressions(block):
                for atom in ir.atoms_of(inner.value):
                    users.setdefault(atom, []).append(None)
            users.setdefault(block.result, []).append(None)
    users.setdefault(function.body.result, []).append(None)
    return users


def _bytes_of(param: ir.Var, users: dict[ir.Atom, list[ir.Binding | None]]) -> _Bytes | None:
    """The encoding of a parameter as bytes, if it has no other use."""
    steps: list[ir.Binding] = []
    at: ir.Atom = param
    while True:
        (user, *others) = users.get(at, [None])
        if others or user is None or not isinstance(user.value, ir.OperatorCall):
            return None
        steps.append(user)
        at = user.var
        if user.value.operator == _OPERATOR:
            break
        if user.value.operator != "reshape":
            return None
    if len(user.value.args) > 1 and not _is_empty(user.value.args[1]):
        return None
    fields = users.get(at, [])
    by_index = {each.value.index: each for each in fields if each is not None and isinstance(each.value, ir.GetItem)}
    if len(fields) != 2 or set(by_index) != {0, 1}:
        return None
    return _Bytes(tuple(steps), by_index[0], by_index[1])


def _is_empty(atom: ir.Atom) -> bool:
    return isinstance(atom, ir.Constant) and atom.type.shape == (0,)


def _is_closed(params: list[ir.Var], body: ir.Block, function: ir.Function) -> bool:
    """Whether parameters bind all dimensions of a body."""
    used = dimension_uses(ir.Binding(ir.Var(""), ir.Function(tuple(params), body)))
    used += dimension_names(function.result_type) if function.result_type is not None else []
    matched = [binding.var for binding in expressions(body) if isinstance(binding.value, ir.MatchShape)]
    binders = [*params, *matched, *(var for binding in expressions(body) for var in bound_vars(binding.value))]
    bound = {
        str(dim)
        for var in binders
        if isinstance(var.type, TensorType)
        for dim in var.type.shape
        if not isinstance(dim, int)
    }
    return set(used) <= bound


def entries_of(module: ir.Module) -> list[TextEntry]:
    """The text entries after all passes: their operators are primitives by then."""
    found = []
    for name, function in module.functions.items():
        if name + SUFFIX in module.functions:
            sources: dict[ir.Atom, ir.Atom] = {}
            texts = {}
            for binding in function.body.bindings:
                value = binding.value
                if isinstance(value, ir.OperatorCall) and value.operator == "reshape":
                    sources[binding.var] = value.args[0]
                elif isinstance(value, ir.PrimitiveCall) and value.definition.nodes[0].operator == _OPERATOR:
                    at = value.args[0]
                    while at in sources:
                        at = sources[at]
                    options = lookup(_OPERATOR).bind(value.definition.nodes[0].attributes)
                    texts[at] = TextParameter(options["case"], len(value.args) > 1)
            found.append(TextEntry(name, tuple(texts.get(param) for param in function.params)))
    return found
