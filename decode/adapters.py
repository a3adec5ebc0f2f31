"""Low-rank adapters of a decoder, bound when it is called: `treadle.Adapter` (Hu et al., LoRA, 2021).

    treadle.compile("decoder.onnx", adapters=True)
    treadle.generate(machine, prompt, adapter=treadle.Adapter.load("adapter/"), …)

An adapter adds x A B to what linear modules make of x. `compiler/onnx/adapters.py` puts the inputs into a decoder; `Bound` makes
them for the texts of a call, each of which may have another adapter, or none.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union

import numpy as np

from ..formats.decoders import ADAPTER_IN, ADAPTER_MASK, ADAPTER_OUT
from ..formats.messages.calling import Suggesting, public_class, told
from ..formats.messages.errors import ArgumentError, FormatError
from ..formats.messages.names import near
from ..formats.ports import Port
from .adapter_files import Pair, read

_PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_TOGETHER = 4  # sets of adapters that stay side by side
_ALIGNED = 16  # ranks, so that an adapter's products are summed alike wherever it lies


@public_class
class Adapter(Suggesting):
    """What is added to linear modules: of each, by its name in the model, A [inputs, rank] and B [rank, outputs].

    `name` is for messages and sessions; `load` gives it that of the file.

    Raises ArgumentError for other arrays.
    """

    def __init__(self, modules: Mapping[str, Pair], *, name: str = "") -> None:
        self.modules: dict[str, Pair] = {}
        self.name = name
        hashed = hashlib.sha256()
        if not isinstance(modules, Mapping) or not all(isinstance(name, str) for name in modules):
            raise ArgumentError(f"Adapter: modules: expected a dict from names to pairs A, B, got {told(modules)}")
        for module, pair in sorted(modules.items()):
            try:
                a, b = (np.ascontiguousarray(each, np.float32) for each in pair)
            except (TypeError, ValueError):
                raise ArgumentError(f"Adapter: {module}: expected two arrays of floats, got {told(pair)}") from None
            if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
                raise ArgumentError(
                    f"Adapter: {module}: expected A [inputs, rank] and B [rank, outputs], got {list(a.shape)} and {list(b.shape)}"
                )
            if not (np.isfinite(a).all() and np.isfinite(b).all()):
                raise ArgumentError(f"Adapter: {module}: expected finite numbers")
            self.modules[module] = a, b
            hashed.update(f"{module}\0{a.shape}{b.shape}".encode() + a.tobytes() + b.tobytes())
        self.digest = hashed.digest()

    @property
    def rank(self) -> int:
        """The largest of its modules."""
        return max((a.shape[1] for a, _ in self.modules.values()), default=0)

    @classmethod
    def load(cls, path: Union[str, os.PathLike]) -> Adapter:
        """An adapter as PEFT writes it, a folder with adapter_config.json and adapter_model.safetensors; or a file .onnx_adapter,
        as Olive writes it for onnxruntime-genai.

        Raises MissingFileError, FileError, and FormatError for what is not a plain LoRA adapter.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise ArgumentError(f"Adapter.load: path: expected a path, got {told(path)}")
        modules = read(Path(path))
        try:
            return cls(modules, name=os.path.basename(os.path.abspath(path)))
        except ArgumentError as error:
            raise FormatError(f"{os.fspath(path)}: {error.message}") from None

    def __repr__(self) -> str:
        return f"<Adapter: {len(self.modules)} modules, rank {self.rank}>"


class Bound:
    """The inputs of a function for the adapters of a call's texts."""

    def __init__(self, inputs: Sequence[Port], function: str) -> None:
        self._function = function
        self.modules: dict[str, tuple[int, int]] = {}
        shapes = {port.name: port.shape for port in inputs}
        before, after = ADAPTER_IN.split("{}")
        for name in shapes:
            if name.startswith(before) and name.endswith(after):
                module = name[len(before) : -len(after)]
                a, b = shapes[name], shapes[ADAPTER_OUT.format(module)]
                self.modules[module] = a[0], b[1]  # type: ignore[index, assignment]
        self._fitted: OrderedDict[bytes, dict[str, Pair]] = OrderedDict()
        self._together: OrderedDict[tuple[bytes, ...], tuple[np.ndarray, dict[str, np.ndarray]]] = OrderedDict()

    @property
    def names(self) -> list[str]:
        """The inputs."""
        own = [each.format(module) for module in self.modules for each in (ADAPTER_IN, ADAPTER_OUT)]
        return [ADAPTER_MASK, *own] if own else []

    def check(self, adapter: Any) -> None:
        """Raises ArgumentError for what is neither None nor an adapter for this function."""
        if adapter is None:
            return
        if not isinstance(adapter, Adapter):
            raise ArgumentError(f"adapter: expected a treadle.Adapter, got {told(adapter)}")
        if not self.modules:
            raise ArgumentError(
                f"adapter: {self._function} takes none; treadle.compile(…, adapters=True) makes one that does"
            )
        self._pairs(adapter)

    def inputs(self, adapters: Sequence[Adapter | None], counts: Sequence[int]) -> dict[str, np.ndarray]:
        """Of texts with these adapters and numbers of tokens, one after another; the mask is bool[1, tokens, rank]."""
        if not self.modules:
            return {}
        used = {each.digest: each for each in adapters if each is not None}
        key = tuple(sorted(used))
        together = self._together.pop(key, None) or self._side_by_side([used[digest] for digest in key])
        self._together[key] = together
        if len(self._together) > _TOGETHER:
            self._together.popitem(last=False)
        owners, arrays = together
        own = [-1 if each is None else key.index(each.digest) for each in adapters]
        return {ADAPTER_MASK: np.repeat(own, counts)[None, :, None] == owners, **arrays}

    def _side_by_side(self, adapters: Sequence[Adapter]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The number of each rank's adapter, int64[rank], and the arrays of all."""
        pairs = [self._pairs(each) for each in adapters]
        widths = list(map(_width, pairs))
        made: dict[str, np.ndarray] = {}
        for name, (inputs, outputs) in self.modules.items():
            a, b = np.zeros((inputs, sum(widths)), np.float32), np.zeros((sum(widths), outputs), np.float32)
            for each, start in zip(pairs, np.cumsum([0, *widths]), strict=False):
                if name in each:
                    rank = each[name][0].shape[1]
                    a[:, start : start + rank], b[start : start + rank] = each[name]
            made |= {ADAPTER_IN.format(name): a, ADAPTER_OUT.format(name): b}
        return np.repeat(np.arange(len(pairs)), widths), made

    def _pairs(self, adapter: Adapter) -> dict[str, Pair]:
        """The arrays of an adapter, by the function's modules. Raises ArgumentError."""
        found = self._fitted.get(adapter.digest)
        if found is None:
            found = self._fitted[adapter.digest] = _fitted(adapter, self.modules)
            if len(self._fitted) > 4 * _TOGETHER:
                self._fitted.popitem(last=False)
        return found


def _width(pairs: Mapping[str, Pair]) -> int:
    rank = max((a.shape[1] for a, _ in pairs.values()), default=0)
    return -(-rank // _ALIGNED) * _ALIGNED


def _fitted(adapter: Adapter, modules: Mapping[str, tuple[int, int]]) -> dict[str, Pair]:
    """An adapter's arrays by the names of modules, of which several may be packed in one. Raises ArgumentError."""
    own = {_plain(name): name for name in modules}
    parts: dict[str, dict[str, Pair]] = {}
    for name, pair in adapter.modules.items():
        scope, _, last = _plain(name).rpartition(".")
        packed = next((each for each, names in _PACKED.items() if last in names), last)
        module = _find(f"{scope}.{last}", own) or _find(f"{scope}.{packed}", own)
        if module is None:
            raise ArgumentError(
                f"adapter: the decoder was compiled without an adapter of {name!r}{near(name, modules)}; it has them of "
                f"{', '.join(sorted({each.rpartition('.')[2] for each in modules}))}"
            )
        parts.setdefault(module, {})[last] = pair
    made: dict[str, Pair] = {}
    for module, pairs in parts.items():
        last = module.rpartition(".")[2]
        made[module] = pair = pairs[last] if last in pairs else _joined(pairs, _PACKED[last], modules[module][1])
        if (pair[0].shape[0], pair[1].shape[1]) != modules[module]:
            raise ArgumentError(
                f"adapter: {module}: expected {modules[module][0]} inputs and {modules[module][1]} outputs, got "
                f"{pair[0].shape[0]} and {pair[1].shape[1]}"
            )
    return made


def _plain(name: str) -> str:
    return name.replace("self_attn.", "attn.")


def _find(name: str, own: Mapping[str, str]) -> str | None:
    """The module of a name, of which either may begin within the other."""
    names = [each for each in own if each == name or name.endswith(f".{each}") or each.endswith(f".{name}")]
    return own[names[0]] if len(names) == 1 else None


def _joined(pairs: Mapping[str, Pair], names: Sequence[str], outputs: int) -> Pair:
    """Of modules that are packed side by side: the first one has what is left of the outputs, the others have equal parts."""
    known = {name: b.shape[1] for name, (_, b) in pairs.items()}
    first, *others = names
    each = next((known[name] for name in others if name in known), (outputs - known.get(first, 0)) // len(others))
    sizes = [outputs - len(others) * each, *[each] * len(others)]
    starts = dict(zip(names, np.cumsum([0, *sizes]).tolist(), strict=False))
    a = np.concatenate([pairs[name][0] for name in pairs], axis=1)
    b = np.zeros((a.shape[1], outputs), np.float32)
    row = 0
    for name, (_, own) in pairs.items():
        part = b[row : row + len(own), starts[name] : starts[name] + own.shape[1]]
        if part.shape != own.shape:
            raise ArgumentError(
                f"adapter: {name} has {own.shape[1]} outputs; {outputs} are those of {', '.join(names)} together"
            )
        part[:] = own
        row += len(own)
    return a, b
