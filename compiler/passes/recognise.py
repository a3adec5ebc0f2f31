"""Recombines what exporters decompose: normalisations, softmax, activations.

RULES is a table of patterns (`patterns.py`) and replacements. The call at a pattern's root is replaced; dead code elimination
removes the rest. Scales and biases join a normalisation, recognised or original.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Union

from ...formats.messages.errors import InferenceError
from .. import ir
from ..named_weights import computed
from ..operators.table import lookup
from ..targets.base import Costs
from . import recognise_attention, recognise_groups, recognise_masks
from .patterns import Found, Matcher, Node, may_match, number_of, parse
from .recognise_places import Places
from .rewriting import Emitter, operator_call, rewriting


class _Recogniser(Emitter):
    def __init__(self, module: ir.Module, costs: Costs) -> None:
        super().__init__(module)
        self.longest_row = costs.attention_row
        self.definitions: dict[ir.Var, ir.OperatorCall] = {}
        self.fields: dict[ir.Var, ir.GetItem] = {}
        self.matcher = Matcher(self.definitions)
        self.places = Places(self.definitions, self.fields, self.emit)

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        call = binding.value
        if isinstance(call, ir.GetItem):
            self.fields[binding.var] = call
        if not isinstance(call, ir.OperatorCall):
            return (binding,)
        self.begin(binding)
        call = recognise_masks.with_one_mask(call, self.definitions, self.emit, self.longest_row)
        self.definitions.update((new.var, new.value) for new in self.new if isinstance(new.value, ir.OperatorCall))
        found = next(self._candidates(call, binding.var.type), call)
        self.definitions[binding.var] = found
        return *self.new, binding if found is binding.value else dataclasses.replace(binding, value=found)

    def _candidates(self, call: ir.OperatorCall, type_: object) -> Iterator[ir.OperatorCall]:
        """The replacement of the call by each rule that keeps its type."""
        for pattern, build in _rules_of(call.operator):
            for found in self.matcher.find(pattern, call):
                made = build(found)
                if made is not None and _has_type(made, type_):
                    yield made
        for atom, other in (call.args, call.args[::-1]) if call.operator in _JOINED else ():
            normal = self.definitions.get(atom)  # type: ignore[arg-type]
            if normal is not None and (normal.operator, len(normal.args)) in _JOINED[call.operator]:
                joined = _joined(normal, other)
                if joined is not None and _has_type(joined, type_):
                    yield joined
        for made in recognise_groups.candidates(call, self.definitions, self.uses):
            if _has_type(made, type_):
                yield made
        for made in recognise_attention.candidates(call, self.matcher, self.uses, self.places, self.longest_row):
            if _has_type(made, type_):
                yield made


_Build = Callable[[Found], Union[ir.OperatorCall, None]]


@dataclass(frozen=True)
class _Rule:
    """`build` returns the operator's call from the bindings, or None if the match means something else."""

    patterns: tuple[str, ...]
    build: _Build


def _has_type(call: ir.OperatorCall, type_: object) -> bool:
    types: list[Any] = [arg.type for arg in call.args if not isinstance(arg, ir.GlobalRef)]
    try:
        return lookup(call.operator).result_types(types, call.attributes) == (type_,)
    except InferenceError:  # the parts broadcast where the whole does not
        return False


# ---- replacements ----


def _activation(operator: str, **attributes: Any) -> _Build:
    return lambda found: operator_call(operator, found["x"], **attributes)


def _softmax(found: Found) -> ir.OperatorCall | None:
    axes = found["axes"]
    return operator_call("softmax", found["x"], axis=axes[0] - _rank(found["x"])) if len(axes) == 1 else None


def _normalization(operator: str) -> _Build:
    """A normalisation over the last axes, with a known epsilon."""

    def build(found: Found) -> ir.OperatorCall | None:
        rank, axes, epsilon = _rank(found["x"]), found["axes"], number_of(found["epsilon"])
        first = rank - len(axes)
        if epsilon is None or axes != tuple(range(first, rank)):
            return None
        return operator_call(operator, found["x"], axis=first - rank, epsilon=epsilon)

    return build


def _rank(atom: Any) -> int:
    return atom.type.rank


def _joined(normal: ir.OperatorCall, operand: Any) -> ir.OperatorCall | None:
    """A normalisation with one more operand, of the normalised axes' shape."""
    x: Any = normal.args[0]
    axis = lookup(normal.operator).bind(normal.attributes)["axis"] % x.type.rank
    shape, present = x.type.shape[axis:], operand.type.shape
    leading = len(present) - len(shape)
    if leading < 0 or present[leading:] != shape or any(dim != 1 for dim in present[:leading]):
        return None
    if leading:
        if not isinstance(operand, ir.Constant):
            return None
        operand = computed("reshape", operand, shape=shape)
    return dataclasses.replace(normal, args=(*normal.args, operand))


# Normalisations with scale and bias: the operator that adds each, and the number of operands before
_JOINED = {"multiply": {("layer_normalization", 1), ("rms_normalization", 1)}, "add": {("layer_normalization", 2)}}

# ---- the patterns ----


def _products(*factors: str) -> tuple[str, ...]:
    """A product of three factors in each association."""
    a, b, c = factors
    return tuple(f"({x}) * (({y}) * ({z}))" for x, y, z in ((a, b, c), (b, a, c), (c, a, b)))


def _squares(x: str) -> tuple[str, ...]:
    return f"({x}) ** 2", f"({x}) * ({x})", f"square({x})"


def _quotients(x: str, square: str) -> tuple[str, ...]:
    """x divided by a root, as exporters write it."""
    root = f"sqrt({square})"
    return f"({x}) / {root}", f"({x}) * rsqrt({square})", f"({x}) * reciprocal({root})", f"({x}) * (1 / {root})"


def _normalizations(centred: str) -> tuple[str, ...]:
    return tuple(
        quotient for square in _squares(centred) for quotient in _quotients(centred, f"mean({square}) + epsilon")
    )


_TANH = tuple(f"1 + tanh(0.7978845608 * (x + 0.044715 * {cube}))" for cube in ("x ** 3", "(x * (x * x))"))

RULES = (
    _Rule(_products("x", "0.5", "1 + erf(x * 0.7071067812)"), _activation("gelu")),
    _Rule(
        tuple(text for factor in _TANH for text in _products("x", "0.5", factor)),
        _activation("gelu", approximate="tanh"),
    ),
    _Rule(("x * sigmoid(x)", "x / (1 + exp(-x))"), _activation("silu")),
    _Rule(
        (
            "x * hard_sigmoid(x, alpha=0.1666666667, beta=0.5)",
            *_products("x", "clip(x + 3, min=0, max=6)", "0.1666666667"),
        ),
        _activation("hard_swish"),
    ),
    _Rule(("x * tanh(softplus(x))",), _activation("mish")),
    _Rule(("exp(x - max(x)) / sum(exp(x - max(x)))",), _softmax),
    _Rule(_normalizations("x - mean(x)"), _normalization("layer_normalization")),
    _Rule(_normalizations("x"), _normalization("rms_normalization")),
)


@cache
def _rules_of(operator: str) -> tuple[tuple[Node, _Build], ...]:
    """The patterns whose root may be a call of this operator, in order, and their replacements."""
    patterns = ((parse(text), rule.build) for rule in RULES for text in rule.patterns)
    return tuple((pattern, build) for pattern, build in patterns if may_match(pattern, operator))


Recognise = rewriting("recognise", _Recogniser)
