"""Texts to vectors, scores and classes: what `treadle.text.load` gives.

A text is computed at its own length: a call's texts have one length, so that nothing is padded where the model takes any length,
and the vector of a text does not depend on the texts beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..formats.decoders import is_cache
from ..formats.executable import Executable
from ..formats.messages.calling import Suggesting, public_class, told
from ..formats.messages.errors import ArgumentError, BudgetExceededError
from ..formats.messages.names import near
from ..formats.text_model import CLASSIFY, EMBED, GENERATE, SCORE, TextModel
from ..formats.types import TensorType
from ..vm.budgets import CancelToken
from ..vm.machine import VirtualMachine
from .template import Renderer
from .tokens import Tokenizer, Tokens

BATCH = 32  # texts of a call
_BATCH_TOKENS = 4096  # of a call: what a layer makes of them fits the cache of a processor's second or third level
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


class Texts(Suggesting):
    """A tokenizer, and what it stands before."""

    def __init__(self, text: TextModel, executable: Executable, machine: VirtualMachine, max_steps: int | None) -> None:
        self.text, self.tokenizer = text, Tokenizer(text)
        self._machine, self._max_steps = machine, max_steps
        self._renderer = Renderer()

    def tokens(self, texts: str | Sequence[Any]) -> Any:
        """The token numbers of a text, or a list of those of each, cut at the model's bound. Raises ArgumentError."""
        found = [each.ids.tolist() for each in self.tokenizer.tokens(_listed(texts))]
        return found[0] if isinstance(texts, str) else found

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token numbers. Raises ArgumentError."""
        return self.tokenizer.decode(tokens, skip_special_tokens)

    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The text of a chat by the model's template: `messages` have "role" and "content"; `variables` are what the template
        takes besides, such as tools. Raises ArgumentError, BudgetExceededError, MissingPackageError."""
        return self._rendered(messages, {"add_generation_prompt": add_generation_prompt, **variables})

    def _rendered(self, messages: Sequence[Any], variables: Mapping[str, Any]) -> str:
        if not self.text.template:
            raise ArgumentError("chat: the model has no chat template")
        given = {**dict(self.text.tokens), "add_generation_prompt": True, **variables, "messages": messages}
        return self._renderer.render(self.text.template, given)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.tokenizer.size} tokens, at most {self.text.max_tokens or 'any number'} of a text>"


class _Rows(Texts):
    """A model that gives a row for each text."""

    def __init__(self, text: TextModel, executable: Executable, machine: VirtualMachine, max_steps: int | None) -> None:
        super().__init__(text, executable, machine, max_steps)
        ports, names = executable.inputs(), executable.outputs().names
        if unknown := [port.name for port in ports if port.name not in _INPUTS and not is_cache(port.name)]:
            raise ArgumentError(f"the model takes {unknown[0]!r}; of texts are made {', '.join(_INPUTS)}")
        if text.output not in names:
            raise ArgumentError(
                f"the model has no result {text.output!r}; it has {', '.join(names)}{near(text.output, names)}"
            )
        self._output = names.index(text.output) if len(names) > 1 else None
        self._inputs = [(port.name, port.type) for port in ports if isinstance(port.type, TensorType)]
        shapes = [port.type.shape for port in ports if isinstance(port.type, TensorType)]
        self._fixed = [size if isinstance(size, int) else None for size in shapes[0][:2]]
        self._pad = self.tokenizer.number("pad_token") or 0
        length = self._fixed[1]
        if length is not None and not 0 < text.max_tokens <= length:
            raise ArgumentError(
                f"the model takes {length} tokens, and texts may have {text.max_tokens or 'any number'}"
            )

    def _rows(
        self,
        texts: Sequence[Any],
        *,
        batch_size: int,
        progress: bool = False,
        max_seconds: float | None = None,
        cancel: CancelToken | None = None,
    ) -> np.ndarray:
        """A row of numbers for each text, in their order."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ArgumentError(f"batch_size={batch_size!r}; expected an integer from 1 on")
        end = None if max_seconds is None else time.monotonic() + max_seconds
        found = list(self.tokenizer.tokens(texts))
        lengths = np.array([len(each.ids) for each in found], np.int64)
        if len(found) and not lengths.min():
            raise ArgumentError(f"text {int(lengths.argmin())} has no tokens")
        result: np.ndarray | None = None
        for places in _shown(_batches(lengths, batch_size), len(texts), progress):
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise BudgetExceededError(f"the texts took more than {max_seconds} s", budget="seconds")
            rows = self._call([found[place] for place in places], left, cancel)
            if result is None:
                result = np.empty((len(texts), *rows.shape[1:]), np.float32)
            result[places] = rows
        return self._empty() if result is None else result

    def map(self, *columns: Sequence[str]) -> np.ndarray:
        """The row of each text, or of each pair of a query and a text. Raises ArgumentError."""
        rows = self._rows(columns[0] if len(columns) == 1 else list(zip(*columns, strict=True)), batch_size=BATCH)
        return rows[:, 0] if self.text.task == SCORE else rows

    def _empty(self) -> np.ndarray:
        return np.empty((0, self.width or 0), np.float32)

    @property
    def width(self) -> int | None:
        """The numbers of a row; None where only a call tells."""
        type_ = self._machine.executable.outputs()[self._output or 0].type
        size = type_.shape[-1] if isinstance(type_, TensorType) else None
        return size * max(1, len(self.text.pooling)) if isinstance(size, int) else None

    def _call(self, batch: list[Tokens], seconds: float | None, cancel: CancelToken | None) -> np.ndarray:
        """The rows of texts of one length."""
        count, length = len(batch), len(batch[0].ids)
        rows, size = self._fixed[0] or count, self._fixed[1] or length
        values = {name: np.zeros((rows, size), np.int64) for name in _INPUTS}
        values["input_ids"][:] = self._pad
        values["input_ids"][:count, :length] = [each.ids for each in batch]
        values["token_type_ids"][:count, :length] = [each.kinds for each in batch]
        values["attention_mask"][:, :length] = 1
        values["position_ids"][:] = np.arange(size)
        for name, type_ in self._inputs:
            if name not in values:  # a cache of a decoder, which is empty before each text
                sizes = [size if isinstance(size, int) else 0 for size in type_.shape]
                values[name] = np.zeros([rows, *sizes[1:]], np.int64)
        arguments = [values[name].astype(type_.dtype.numpy, copy=False) for name, type_ in self._inputs]
        result = self._machine.call("main", arguments, max_steps=self._max_steps, max_seconds=seconds, cancel=cancel)
        array = (result if self._output is None else result[self._output]).numpy()[:count]
        return self._made(array.astype(np.float32, copy=False), length)

    def _made(self, array: np.ndarray, length: int) -> np.ndarray:
        raise NotImplementedError


@public_class
class Encoder(_Rows):
    """Texts to vectors."""

    def encode(
        self,
        texts: str | Sequence[Any],
        *,
        prompt: str | None = None,
        batch_size: int = BATCH,
        progress: bool = False,
        max_seconds: float | None = None,
        cancel: CancelToken | None = None,
    ) -> np.ndarray:
        """The vectors of texts, float32[n, d], in their order; of one text float32[d]. Lists of token numbers are taken too.

        `prompt` names what the model wants before texts ("query"), `progress` shows a bar. Raises ArgumentError,
        BudgetExceededError, CancelledError.
        """
        given = _listed(texts)
        if prompt is not None:
            before = dict(self.text.prompts)
            if prompt not in before:
                raise ArgumentError(
                    f"encode: no prompt {prompt!r}; the model has {', '.join(before) or 'none'}{near(prompt, before)}"
                )
            given = [before[prompt] + text if isinstance(text, str) else text for text in given]
        rows = self._rows(given, batch_size=batch_size, progress=progress, max_seconds=max_seconds, cancel=cancel)
        return rows[0] if isinstance(texts, str) else rows

    def _made(self, array: np.ndarray, length: int) -> np.ndarray:
        if self.text.pooling:
            vectors = array[:, :length]
            array = np.concatenate([_pooled(vectors, name) for name in self.text.pooling], axis=1)
        if array.ndim != 2:
            raise ArgumentError(
                f"the model's result {self.text.output!r} of shape {list(array.shape)} is not a vector a text"
            )
        if self.text.normalize:
            array = normalized(array)
        return array


def normalized(vectors: np.ndarray) -> np.ndarray:
    """The vectors float32[n, d], each of length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))


def _pooled(vectors: np.ndarray, name: str) -> np.ndarray:
    """float32[n, d] of the vectors float32[n, s, d] of texts with s tokens each, as sentence-transformers pools them."""
    size = np.float32(vectors.shape[1])
    if name == "mean":
        return vectors.sum(axis=1) / size
    if name == "mean_sqrt_len_tokens":
        return vectors.sum(axis=1) / np.sqrt(size)
    if name == "weightedmean":
        weights = np.arange(1, vectors.shape[1] + 1, dtype=np.float32)[:, None]
        return (vectors * weights).sum(axis=1) / weights.sum()
    if name == "max":
        return vectors.max(axis=1)
    return vectors[:, 0 if name == "cls" else -1]


class _Scores(_Rows):
    def _made(self, array: np.ndarray, length: int) -> np.ndarray:
        if array.ndim != 2:
            raise ArgumentError(
                f"the model's result {self.text.output!r} of shape {list(array.shape)} is not a row a text"
            )
        if self.text.activation == "sigmoid":
            with np.errstate(over="ignore"):
                return 1 / (1 + np.exp(-array))
        if self.text.activation == "softmax":
            powers = np.exp(array - array.max(axis=1, keepdims=True))
            return powers / powers.sum(axis=1, keepdims=True)
        return array


@public_class
class Classifier(_Scores):
    """Texts to the probabilities of classes."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.text.labels

    def classify(
        self,
        texts: str | Sequence[Any],
        *,
        batch_size: int = BATCH,
        progress: bool = False,
        max_seconds: float | None = None,
        cancel: CancelToken | None = None,
    ) -> np.ndarray:
        """The probability of each class, float32[n, k] for texts or pairs of them, float32[k] of one text. Raises ArgumentError,
        BudgetExceededError, CancelledError."""
        given = _listed(texts)
        rows = self._rows(given, batch_size=batch_size, progress=progress, max_seconds=max_seconds, cancel=cancel)
        return rows[0] if isinstance(texts, str) else rows


@public_class
class Reranker(_Scores):
    """How well texts answer a query."""

    def score(
        self,
        query: str,
        texts: Sequence[str],
        *,
        batch_size: int = BATCH,
        progress: bool = False,
        max_seconds: float | None = None,
        cancel: CancelToken | None = None,
    ) -> np.ndarray:
        """A number for each text, float32[n], in their order. Raises ArgumentError, BudgetExceededError, CancelledError."""
        if not isinstance(query, str) or isinstance(texts, str):
            raise ArgumentError(f"score: expected a query and a list of texts, got {told(query)} and {told(texts)}")
        pairs = [(query, text) for text in _listed(texts)]
        return self.scores(pairs, batch_size=batch_size, progress=progress, max_seconds=max_seconds, cancel=cancel)

    def scores(self, pairs: Sequence[Any], *, batch_size: int = BATCH, **bounds: Any) -> np.ndarray:
        """The same of pairs (query, text), or of their tokens. Raises ArgumentError, BudgetExceededError, CancelledError."""
        return self._rows(pairs, batch_size=batch_size, **bounds)[:, 0]


class RowFunction(NamedTuple):
    """A function of columns of texts, beside those of the executable: `map_batches` calls it."""

    name: str
    columns: tuple[str, ...]
    result: str
    gives_texts: bool = False


ROW_FUNCTIONS = {
    EMBED: RowFunction("encode", ("text",), "embedding"),
    CLASSIFY: RowFunction("classify", ("text",), "probabilities"),
    SCORE: RowFunction("score", ("query", "text"), "score"),
    GENERATE: RowFunction("generate", ("prompt",), "answer", gives_texts=True),
}


def _listed(texts: Any) -> Sequence[Any]:
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, np.ndarray) and texts.ndim == 1:
        return texts.tolist()
    if not isinstance(texts, (list, tuple)):
        raise ArgumentError(f"expected a text or a list of texts, got {told(texts)}")
    return texts


def _batches(lengths: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """The places of the texts of each call: of one length, the longest first."""
    order = np.argsort(-lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order], append=-1)) + 1
    start = 0
    for end in ends:
        rows = max(1, min(batch_size, _BATCH_TOKENS // int(lengths[order[start]])))
        for at in range(start, end, rows):
            yield order[at : min(at + rows, end)]
        start = int(end)


def _shown(batches: Iterator[np.ndarray], count: int, progress: bool) -> Iterator[np.ndarray]:
    if not progress:
        yield from batches
        return
    from tqdm import tqdm

    with tqdm(total=count, unit="text") as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))
