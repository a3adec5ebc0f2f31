"""Counts tokens of texts on their bytes.

    normalize_texts → tokenize_texts → count_ngrams    →  text_bytes → count_text_ngrams

Tokens then never become texts: one host operator is left, which gives the bytes, and a kernel does the rest by tables of
the expression and the vocabulary. Expressions that distinguish non-ASCII characters stay unchanged. So do tokens
with other users, and those whose padding might count as a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .....formats import dims, strings
from .....formats.dtypes import DType
from .....formats.types import TensorType, TupleType
from .... import ir
from ....ir.analysis import dimension_uses, expressions
from ....operators.table import lookup
from ....passes.rewriting import Emitter, constant, operator_call, rewriting, tensor_type
from .. import text_tables
from ..operators.text_counts import MOST_TOKENS


class _Chain(NamedTuple):
    """The replacement of one call of count_ngrams."""

    texts: ir.Atom
    tables: tuple[ir.Constant, ...]
    attributes: dict[str, Any]
    gone: tuple[ir.Var, ...]  # variables between the texts and the counts


class _Counter(Emitter):
    def function(self, function: ir.Function) -> ir.Function:
        self._came, self._uses = function, None
        bindings = list(expressions(function.body))
        if not any(_is(binding.value, "count_ngrams") for binding in bindings):
            return function
        self.values = {binding.var: binding.value for binding in bindings}
        self.spoken: dict[str, int] = {}  # number of bindings that use a dimension's name
        for binding in bindings:
            for name in dimension_uses(binding):
                self.spoken[name] = self.spoken.get(name, 0) + 1
        chains = {binding.var: self._chain(binding.value) for binding in bindings if _is(binding.value, "count_ngrams")}
        self.chains = {var: chain for var, chain in chains.items() if chain is not None}
        self.gone = {var for chain in self.chains.values() for var in chain.gone}
        named = filter(None, (self._normalized(chain.texts) for chain in self.chains.values()))
        self.named = dict(named)  # normalised texts that are only needed as bytes: as made, and named
        self.bytes: dict[ir.Atom, tuple[ir.Var, ir.Var]] = {}  # and the ends of texts, by what the texts would be
        return super().function(function)

    # ---- matching ----

    def _chain(self, call: ir.Expr) -> _Chain | None:
        assert isinstance(call, ir.OperatorCall)
        x, pool, places = call.args
        attributes = lookup("count_ngrams").bind(call.attributes)
        if not (isinstance(x, ir.Var) and isinstance(pool, ir.Constant) and isinstance(places, ir.Constant)):
            return None
        if not tensor_type(x).dtype.is_string or tensor_type(x).rank != 2:
            return None
        if max(attributes["most"], attributes["skips"]) > MOST_TOKENS:
            return None
        gone = self._back(x, ("reshape",))
        tokenized = self.values.get(gone[-1])
        if not _is(tokenized, "tokenize_texts") or not self._is_only_step(x, gone):
            return None
        assert isinstance(tokenized, ir.OperatorCall)
        options = lookup("tokenize_texts").bind(tokenized.attributes)
        tokens = strings.to_texts(pool.value).tolist()
        moves = _moves(tokenized, options)
        if moves is None or options["marks"] or options["pad"] in tokens:
            return None
        ngrams = _ngrams(tokens, places.value.tolist(), attributes)
        tables = text_tables.vocabulary(ngrams)
        given = {
            "width": attributes["columns"],
            "least": options["least"],
            "most": max((len(tokens) for tokens, _ in ngrams), default=1),
            "skips": attributes["skips"],
        }
        return _Chain(tokenized.args[0], tuple(map(constant, (moves, *tables))), given, gone)

    def _back(self, var: ir.Var, operators: Sequence[str]) -> tuple[ir.Var, ...]:
        """A variable, and those that equal it up to names of dimensions, or shapes."""
        found = [var]
        while True:
            value = self.values.get(found[-1])
            source: ir.Atom | None = None
            if isinstance(value, ir.MatchShape):
                source = value.value
            elif any(_is(value, operator) for operator in operators):
                source = value.args[0]  # type: ignore[union-attr]
            if not isinstance(source, ir.Var):
                return tuple(found)
            found.append(source)

    def _is_only_step(self, x: ir.Var, gone: tuple[ir.Var, ...]) -> bool:
        """Whether the tokens and their number have no other users, and each text has a row."""
        if any(self.uses[var] != 1 for var in gone):
            return False
        texts = tensor_type(self.values[gone[-1]].args[0])  # type: ignore[union-attr]
        width = tensor_type(x).shape[-1]
        names = dims.variables(width) if not isinstance(width, int) else ()  # type: ignore[arg-type]
        inside = sum(name in dimension_uses(ir.Binding(var, self.values[var])) for var in gone for name in names)
        if any(self.spoken[name] > inside + 1 for name in names):
            return False
        return texts.shape[:1] == tensor_type(x).shape[:1] and all(dim == 1 for dim in texts.shape[1:])

    def _normalized(self, texts: ir.Atom) -> tuple[ir.Var, ir.Var] | None:
        """Where texts, with a name for their number, are normalised ones that nothing else looks at: these as they are made,
        and with the name."""
        match = self.values.get(texts)  # type: ignore[arg-type]
        if not isinstance(match, ir.MatchShape) or not isinstance(match.value, ir.Var) or not isinstance(texts, ir.Var):
            return None
        is_single = self.uses[texts] == self.uses[match.value] == 1
        if not is_single or tensor_type(texts).rank != 1 or not _is(self.values.get(match.value), "normalize_texts"):
            return None
        return match.value, texts

    # ---- rewriting ----

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        if binding.var in self.gone:
            return ()
        binding = self.with_new_operands(binding)
        self.begin(binding)
        if binding.var in self.named:
            assert isinstance(binding.value, ir.OperatorCall)
            options = lookup("normalize_texts").bind(binding.value.attributes)
            self.bytes[binding.var] = self._bytes(*binding.value.args, **options)
            return self.new
        if isinstance(binding.value, ir.MatchShape) and binding.value.value in self.bytes:
            text, ends = self.bytes[binding.value.value]
            shape = binding.value.shape
            self.bytes[binding.var] = (
                text,
                self.bind(ir.MatchShape(ends, shape), TensorType(DType.int64, shape), "ends"),
            )
            return self.new
        if binding.var not in self.chains:
            return (binding,)
        chain = self.chains[binding.var]
        text, ends = self.bytes.get(chain.texts) or self._bytes(self._in_a_row(self.atom(chain.texts)))
        call = operator_call("count_text_ngrams", text, ends, *chain.tables, **chain.attributes)
        return *self.new, ir.Binding(binding.var, call, binding.origin)

    def _bytes(self, *args: ir.Atom, **attributes: Any) -> tuple[ir.Var, ir.Var]:
        whole = self.emit("text_bytes", *args, **attributes)
        assert isinstance(whole.type, TupleType)
        text, ends = (self.bind(ir.GetItem(whole, i), type_, "text") for i, type_ in enumerate(whole.type.fields))
        return text, ends

    def _in_a_row(self, texts: ir.Atom) -> ir.Atom:
        type_ = tensor_type(texts)
        return texts if type_.rank == 1 else self.emit("reshape", texts, shape=type_.shape[:1])


def _is(value: object, operator: str) -> bool:
    return isinstance(value, ir.OperatorCall) and value.operator == operator


def _moves(call: ir.OperatorCall, options: dict[str, Any]) -> Any:
    """The table of a call's tokens, or None."""
    expressions_of = call.args[1]
    if not isinstance(expressions_of, ir.Constant):
        return None
    patterns = strings.to_texts(expressions_of.value).tolist()
    if not patterns:
        return text_tables.moves_of_characters()
    return text_tables.moves_between(patterns) if options["between"] else text_tables.moves_of_pattern(patterns[0])


def _ngrams(tokens: list[str], places: list[int], attributes: dict[str, Any]) -> list[tuple[list[str], int]]:
    """The n-grams that count, with their columns."""
    begins, found, number = attributes["begins"], [], 0
    for size, (begin, end) in enumerate(zip(begins, (*begins[1:], len(tokens)), strict=True), 1):
        for at in range(begin, begin + (end - begin) // size * size, size):
            if attributes["least"] <= size <= attributes["most"]:
                found.append((tokens[at : at + size], places[number]))
            number += 1
    return found


CountTexts = rewriting("count_texts", _Counter)
