"""What narrow numbers cost, tensor by tensor: a quantised or narrow model beside the float model that it was made of.

Tensors are paired by the names that the quantiser keeps. Codes are dequantised first: what is compared is what the next layer
reads. Sorted by signal-to-noise ratio, 10 log₁₀(Σ y² / Σ (x - y)²) in dB: a bit of a quantised tensor is worth about 6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats.messages.calling import Suggesting, public, public_class
from ..formats.messages.errors import ArgumentError
from ..formats.messages.terminal import showing
from ..formats.program import EXACT
from .comparison import type_of
from .flow import Flow, Step
from .references import Reference, proto_of, reference
from .subject import Subject, arguments, subject
from .tensors import error, forms, is_float

if TYPE_CHECKING:
    import onnx

    from ..vm.observe.hooks import Event

_ROWS = 40
NOISY = 20.0  # dB: noise of a tenth of the signal, below which the first tensor is named
_MASKED, _SCORES = -5e3, 5e2  # masks are of -1e4 at most; nothing else lies between them and scores
_NONE = np.empty(0, object)
_COPIES = frozenset({"cast", "pad", "pack_channels", "unpack_channels", "reshape", "permute_dims"})
# Operators that make or read codes; their models are compared with others by what the codes mean
_OF_CODES = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinear", "MatMulInteger", "ConvInteger")


@public_class
@dataclass(frozen=True)
class LossRow(Suggesting):
    """A tensor of the float model, and how well the narrow one holds it. `snr` is in dB, infinite where nothing differs."""

    tensor: str
    node: str
    type: str
    snr: float
    error: float  # the largest difference, as a share of the largest element


@public_class
@dataclass
class Loss(Suggesting):
    """The result of `loss`; `rows` are in the order of the run."""

    against: str
    rows: list[LossRow] = field(default_factory=list)

    @property
    def worst(self) -> LossRow | None:
        """The tensor with the least signal-to-noise ratio."""
        return min(self.rows, key=lambda row: row.snr, default=None)

    @property
    def first(self) -> LossRow | None:
        """The first tensor of the run whose noise is more than a tenth of its signal."""
        return next((row for row in self.rows if row.snr < NOISY), None)

    def __repr__(self) -> str:
        return f"<Loss against {self.against}: {len(self.rows)} tensors>"

    @showing
    def table(self, rows: int = _ROWS) -> str:
        """The noisiest tensors first; 0 shows all."""
        if self.worst is None:
            return f"no tensor of {self.against} has a counterpart of its name"
        lines = [f"{len(self.rows)} tensors beside those of {self.against}"]
        lines.append(f"worst: {self.worst.tensor!r}, {self.worst.snr:.1f} dB, made by {self.worst.node!r}")
        if self.first is not None:
            lines.append(f"first below {NOISY:.0f} dB: {self.first.tensor!r}, made by {self.first.node!r}")
        ordered = sorted(self.rows, key=lambda row: row.snr)
        shown = ordered[:rows] if rows else ordered
        cells = [["SNR dB", "error", "tensor", "type", "node"]]
        cells += [[f"{row.snr:.1f}", f"{row.error:.2g}", row.tensor, row.type, row.node] for row in shown]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines += ["", *("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)]
        return "\n".join([*lines, *([f"… {len(ordered) - len(shown)} more rows"] if len(shown) < len(ordered) else [])])

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON has it; infinite ratios and errors are null."""
        rows = [
            {name: None if value in (math.inf, -math.inf) else value for name, value in vars(row).items()}
            for row in self.rows
        ]
        return {"against": self.against, "rows": rows}


@public
def loss(
    model: Any, against: Any, feeds: Mapping[str, Any] | None = None, *, function: str = "main", precision: str = EXACT
) -> Loss:
    """How much a narrow model loses, at each tensor, of what its float model computes.

    model      a quantised ONNX model, or a file of one, which onnxruntime runs as it is written; or what `treadle.compile` takes,
               compiled with `precision`, or an executable, of which the results of kernels are compared
    against    the float model
    feeds      arrays by the names of the parameters; None: random ones, always the same

    Raises ArgumentError, MissingPackageError, and what compiling and running raise.
    """
    of = subject(model, function=function, precision=precision)
    values = arguments(of.executable, function, feeds)
    wanted = reference(of, values, against)
    if of.is_onnx and of.precision == EXACT:
        found = _of_codes(of, values, wanted, against)
    else:
        watch = _Watch(wanted)
        of.run(values, watch)
        found = watch.found
    rows = []
    for tensor in wanted.tensors:
        right, mine = tensor.array, found.get(tensor.name)
        if mine is not None and right.dtype.kind == "f" and is_float(mine.dtype) and mine.shape == right.shape:
            pair = _unmasked(mine, right)
            rows.append(LossRow(tensor.name, tensor.node, type_of(right), _snr(*pair), error(*pair)))
    return Loss(wanted.name, rows)


def holds_codes(proto: onnx.ModelProto) -> bool:
    """Whether a model computes with quantised tensors."""
    return any(node.op_type.startswith(_OF_CODES) for node in proto.graph.node)


def is_loss(of: Subject, against: Any) -> bool:
    """Whether a comparison of these is about what quantisation costs: one model holds codes, and the other does not."""
    if not of.is_onnx:
        return False
    try:
        return holds_codes(proto_of(of.model)) and not holds_codes(proto_of(against))
    except ArgumentError:
        return False


def _of_codes(of: Subject, feeds: Mapping[str, np.ndarray], wanted: Reference, against: Any) -> dict[str, np.ndarray]:
    """What the quantised model has for each tensor of the float model, dequantised. An activation that the quantiser took away
    is the range of the codes of what it read: these are then its result."""
    from onnx import numpy_helper

    proto = proto_of(of.model)
    made = {tensor.name: tensor.array for tensor in reference(of, feeds, "onnxruntime").tensors}
    known = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    activated = {
        node.input[0]: node.output[0]
        for node in _nodes(against)
        if node.op_type in ("Relu", "Clip") and not made.keys() & {node.output[0], f"{node.output[0]}_quantized"}
    }
    readers: dict[str, list[Any]] = {}
    for node in proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    found = {}
    for tensor in wanted.tensors:
        name = tensor.name
        through = [
            after.output[0]
            for node in readers.get(name, ())
            if node.op_type == "QuantizeLinear"
            for after in readers.get(node.output[0], ())
            if after.op_type == "DequantizeLinear"
        ]
        codes, scale = made.get(f"{name}_quantized", _NONE), known.get(f"{name}_scale", _NONE)
        zero = known.get(f"{name}_zero_point", np.zeros(()))
        if through:
            found[name] = made[through[0]]
        elif all(each.dtype.kind in "iuf" for each in (codes, scale, zero)) and scale.size == zero.size == 1:
            # as onnxruntime's quantiser calls those of QLinear operators
            codes, scale, zero = (each.astype(np.float32) for each in (codes, scale, zero))
            found[activated.get(name, name)] = (codes - zero.reshape(())) * scale.reshape(())
        elif name in made:
            found[name] = made[name]
    return found


def _nodes(model: Any) -> list[onnx.NodeProto]:
    """Those of an ONNX model; none of anything else."""
    try:
        return list(proto_of(model).graph.node)
    except ArgumentError:
        return []


class _Watch(Flow):
    """Pairs results of kernels with the tensors that their nodes make."""

    def __init__(self, wanted: Reference) -> None:
        super().__init__()
        self._wanted = wanted
        self.found: dict[str, np.ndarray] = {}

    def result(self, step: Step, index: int, event: Event, register: int) -> None:
        if _COPIES.issuperset(step.operators):  # holds what its node reads, and not what it makes
            return
        array = event.tensor(register)
        if array.dtype.name == "bfloat16":
            array = array.astype(np.float32)
        pairs = [
            (_snr(form, tensor.array), tensor.name, form)
            for tensor in self._wanted.of(step.node)
            if tensor.array.dtype.kind == "f"
            for form in forms(array, tensor.array.shape)
        ]
        if pairs and array.dtype.kind == "f":
            _, name, form = max(pairs, key=lambda pair: pair[0])
            self.found[name] = form.copy()


def _unmasked(found: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without the elements that a mask adds, as -1e9 to scores: in both, they are so large that nothing else would count."""
    masked = (wanted <= _MASKED) & (found <= _MASKED)
    if not masked.any() or masked.all() or np.abs(wanted[~masked]).max() > _SCORES:
        return found, wanted
    return found[~masked], wanted[~masked]


def _snr(found: np.ndarray, wanted: np.ndarray) -> float:
    signal = wanted.astype(np.float64)
    noise = float(np.square(found.astype(np.float64) - signal).sum())
    power = float(np.square(signal).sum())
    if not noise:
        return math.inf
    return 10 * math.log10(power / noise) if power and math.isfinite(noise) and math.isfinite(power) else -math.inf
