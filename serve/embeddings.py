"""Endpoints for models of texts: `/v1/embeddings` and `/v1/models` as OpenAI has them, `/v1/rerank` as Cohere and Jina,
`/classify` as vLLM, `/predict` as text-embeddings-inference.

A request is one work in its model's line (`scheduler.py`), with others whose texts have the same length: a thread makes its
tokens, calls the model and prints the answer. Its body, answer, time and place in line have the bounds of all requests.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..text.models import Classifier, Encoder, Reranker, normalized
from ..text.tokens import Tokens
from ..vm.budgets import CancelToken
from .batching import Batch, Done, Pending
from .errors import (
    BadRequestError,
    NotFoundError,
    NotImplementedHereError,
    OverloadedError,
    ServeError,
    UnavailableError,
    as_serve_error,
    let_go,
)
from .http_tensors import read_json
from .json_pieces import SHORT
from .model import Model
from .parameters import after
from .service import Service

MAX_TEXTS = 2048  # of a request, as OpenAI has it
MAX_BODY = 8 << 20  # bytes of a request
_FEW = 1 << 12  # bytes of a request whose tokens are made before it stands in line: some milliseconds
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
}
Handed = Callable[[], tuple[asyncio.Future, Done]]
Waiting = Callable[[asyncio.Future, CancelToken, "float | None"], Awaitable[Any]]
_Answer = tuple[bytes, int]  # JSON, tokens


class _Ask(NamedTuple):
    """What a request asks a model for: tokens of its texts, a row for each, and these as JSON."""

    tokens: Callable[[], list[Tokens]]
    rows: Callable[..., np.ndarray]  # of tokens, within bounds
    answer: Callable[[list[Tokens], np.ndarray], _Answer]


class _Work(Pending):
    """A request as the scheduler's threads take it: with others that have texts of the same length, if its tokens are known."""

    __slots__ = ("ask", "tokens")

    def __init__(
        self, model: Model, ask: _Ask, tokens: list[Tokens] | None, deadline: float, cancel: CancelToken, done: Done
    ) -> None:
        super().__init__(model.endpoint(""), [], None, deadline, cancel, done)
        self.ask, self.tokens = ask, tokens
        lengths = {len(each.ids) for each in tokens or ()}
        if len(lengths) == 1:
            self.rows, self.key = len(tokens or ()), ("texts", *lengths)

    def run(self) -> None:
        try:
            self.check_wanted()
            self.started = time.monotonic()
            assert self.deadline is not None
            tokens = self.ask.tokens() if self.tokens is None else self.tokens
            rows = self.ask.rows(tokens, max_seconds=self.deadline - self.started, cancel=self.cancel)
            found: Any = self.ask.answer(tokens, rows)
            self.ended = time.monotonic()  # how many texts a call should have is learned
        except Exception as error:
            self.done(None, error)
        else:
            self.done(found, None)

    def together(self, members: Sequence[Pending]) -> Batch:
        return _Works(members)


class _Works(Batch):
    """Texts of one length of several requests: a text's row does not depend on those beside it."""

    def call(self, members: Sequence[Any]) -> list[Any]:
        tokens = [each for member in members for each in member.tokens]
        started = time.monotonic()
        deadline = max(each.deadline for each in members)
        rows = members[0].ask.rows(tokens, max_seconds=max(0.0, deadline - started))
        self.rows = len(tokens)
        answers, first = [], 0
        for each in members:
            each.started = started
            answers.append(each.ask.answer(each.tokens, rows[first : first + each.rows]))
            first += each.rows
        return answers


class Embeddings:
    """The endpoints that take texts."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._asks = {
            "/v1/embeddings": _embed,
            "/v1/rerank": _rerank,
            "/v1/classify": _classify,
            "/classify": _classify,
            "/predict": _predict,
        }

    def takes(self, path: str) -> bool:
        """Whether requests of this path are answered here."""
        return path in self._asks

    async def answer(
        self,
        path: str,
        data: bytes | bytearray,
        timeout: float | None,
        handed: Handed,
        waiting: Waiting,
    ) -> bytes:
        """The JSON that answers a body. `handed` gives a future and what sets it from any thread, `waiting` waits for it while
        the client does. Raises ServeError."""
        service, begun = self._service, time.monotonic()
        view = memoryview(data)
        values = read_json(view) if len(view) <= SHORT else await asyncio.to_thread(read_json, view)
        if service.is_draining:
            raise UnavailableError("the server stops")
        ask_of = self._asks[path]
        model = self._classifier(values) if ask_of is _predict else service.repository.find(model_name(values))
        ask = ask_of(model, values)
        function = path.rpartition("/")[2]
        work: _Work | None = None
        try:
            seconds = model.config.max_seconds
            deadline = after(seconds if timeout is None else min(timeout, seconds))
            cancel, (future, done) = CancelToken(), handed()
            tokens: list[Tokens] | None = None  # many are made by the thread that calls
            if len(view) <= _FEW:
                tokens = await waiting(_begun(model, ask.tokens), cancel, deadline)
            work = _Work(model, ask, tokens, deadline, cancel, done)
            service.scheduler.submit(model.line, work)
            answer, count = await waiting(future, cancel, deadline)
        except Exception as error:
            code = as_serve_error(error).grpc
            service.metrics.answered(model.name, function, code, time.monotonic() - begun)
            raise
        queued = work.started - work.since if work.started else None
        service.metrics.answered(model.name, function, "OK", time.monotonic() - begun, queued)
        service.metrics.took_tokens(model.name, count)
        return answer

    def _classifier(self, values: Mapping[str, Any]) -> Model:
        """The model that is named; or the only classifier, since clients of text-embeddings-inference name none. Raises
        ServeError."""
        if "model" in values:
            return self._service.repository.find(model_name(values))
        found = [each for each in self._service.repository.models() if isinstance(each.texts, Classifier)]
        if len(found) != 1:
            names = ", ".join(each.name for each in found)
            raise BadRequestError(f"model: expected the name of a classifier; there is {names or 'none'}")
        return found[0]


def _begun(model: Model, make: Callable[[], list[Tokens]]) -> asyncio.Future:
    """What a thread of the model's makes: a tokenizer from anywhere must not keep the event loop, or threads of other models.
    Raises OverloadedError."""
    try:
        return asyncio.wrap_future(model.tokenizing.submit(make))
    except RuntimeError:
        raise OverloadedError("the system has no thread to make tokens; try again later") from None


def models(service: Service, name: str = "") -> dict[str, Any]:
    """`/v1/models`: what is loaded, or one of it. Raises ServeError."""
    found = [service.repository.find(name.partition(":")[0])] if name else service.repository.models()
    each = {
        known: {"id": known, "object": "model", "created": int(model.loaded), "owned_by": "treadle"}
        for model in found
        for known in (model.name, *(f"{model.name}:{adapter}" for adapter in model.adapters))
    }
    if name and name not in each:
        raise NotFoundError(f"no model {name!r} is loaded")
    return each[name] if name else {"object": "list", "data": list(each.values())}


def refusal(error: Exception) -> tuple[ServeError, bytes]:
    """An error as OpenAI's clients read it."""
    found = as_serve_error(error)
    let_go(error)
    told = {"message": str(found), "type": _KINDS.get(found.http, "server_error"), "param": None, "code": None}
    return found, json.dumps({"error": told}).encode()


# ---- requests ----


def model_name(values: Mapping[str, Any]) -> str:
    """That of a request's model. Raises BadRequestError."""
    name = values.get("model")
    if not isinstance(name, str):
        raise BadRequestError("model: expected the name of a model")
    return name


def texts_of(model: Model, kind: type, what: str) -> Any:
    """What computes with a model's texts, if it is of this kind. Raises NotImplementedHereError, NotFoundError."""
    if model.texts is None:
        raise NotImplementedHereError(f"model {model.name!r} takes no texts: {model.no_texts}")
    if not isinstance(model.texts, kind):
        raise NotFoundError(f"model {model.name!r} is for {model.texts.text.task}, not for {what}")
    return model.texts


def given_texts(values: Mapping[str, Any], name: str) -> list[Any]:
    """A request's texts, or lists of token numbers; one of them may stand alone. Raises BadRequestError."""
    given = values.get(name)
    texts = [given] if isinstance(given, str) or (given and _is_numbers(given)) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(e, str) or _is_numbers(e) for e in texts):
        raise BadRequestError(
            f"{name}: expected a text, a list of texts, a list of token numbers or a list of such lists"
        )
    return texts


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)


def _embed(model: Model, values: Mapping[str, Any]) -> _Ask:
    encoder: Encoder = texts_of(model, Encoder, "embeddings")
    texts = given_texts(values, "input")
    _check_count("input", texts)
    format_ = values.get("encoding_format", "float")
    if format_ not in ("float", "base64"):
        raise BadRequestError(f"encoding_format: expected float or base64, got {str(format_)[:40]!r}")
    size = values.get("dimensions")
    if size is not None and (type(size) is not int or size < 1):
        raise BadRequestError(f"dimensions: expected an integer from 1 on, got {str(size)[:40]}")

    def answer(tokens: list[Tokens], vectors: np.ndarray) -> _Answer:
        if size is not None:
            vectors = _shorter(vectors, size)
        rows = [
            {
                "object": "embedding",
                "index": at,
                "embedding": vector.tolist() if format_ == "float" else _base64(vector),
            }
            for at, vector in enumerate(vectors)
        ]
        return _listed(model.name, "data", rows, _count(tokens), {"object": "list"})

    return _Ask(lambda: list(encoder.tokenizer.tokens(texts)), encoder.encode, answer)


def _shorter(vectors: np.ndarray, size: int) -> np.ndarray:
    """The first numbers of each vector, which is normalised again. Raises BadRequestError."""
    if size > vectors.shape[1]:
        raise BadRequestError(f"dimensions: {size}; the model's vectors have {vectors.shape[1]}")
    return normalized(np.ascontiguousarray(vectors[:, :size]))


def _base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _rerank(model: Model, values: Mapping[str, Any]) -> _Ask:
    reranker: Reranker = texts_of(model, Reranker, "reranking")
    query, documents, most = values.get("query"), values.get("documents"), values.get("top_n")
    if not isinstance(query, str):
        raise BadRequestError("query: expected a text")
    found = (
        [each.get("text") if isinstance(each, dict) else each for each in documents]
        if isinstance(documents, list)
        else []
    )
    if not found or not all(isinstance(each, str) for each in found):
        raise BadRequestError('documents: expected a list of texts, or of objects with a "text"')
    _check_count("documents", found)
    if most is not None and (type(most) is not int or most < 1):
        raise BadRequestError(f"top_n: expected an integer from 1 on, got {str(most)[:40]}")
    shows = values.get("return_documents") is True

    def answer(tokens: list[Tokens], scores: np.ndarray) -> _Answer:
        order = np.argsort(-scores, kind="stable")[:most].tolist()
        rows = [
            {"index": at, "relevance_score": float(scores[at]), **({"document": {"text": found[at]}} if shows else {})}
            for at in order
        ]
        return _listed(model.name, "results", rows, _count(tokens), {})

    pairs = [(query, text) for text in found]
    return _Ask(lambda: list(reranker.tokenizer.tokens(pairs)), reranker.scores, answer)


def _classify(model: Model, values: Mapping[str, Any]) -> _Ask:
    classifier: Classifier = texts_of(model, Classifier, "classes")
    texts = given_texts(values, "input")
    _check_count("input", texts)

    def answer(tokens: list[Tokens], rows: np.ndarray) -> _Answer:
        names = _labels(classifier, rows)
        data = [
            {"index": at, "label": names[int(row.argmax())], "probs": row.tolist(), "num_classes": len(row)}
            for at, row in enumerate(rows)
        ]
        head = {"id": f"classify-{secrets.token_hex(12)}", "object": "list", "created": int(time.time())}
        return _listed(model.name, "data", data, _count(tokens), head)

    return _Ask(lambda: list(classifier.tokenizer.tokens(texts)), classifier.classify, answer)


def _predict(model: Model, values: Mapping[str, Any]) -> _Ask:
    classifier: Classifier = texts_of(model, Classifier, "classes")
    given = values.get("inputs")
    is_batch = isinstance(given, list) and bool(given) and isinstance(given[0], list)
    texts = [_text_or_pair(each) for each in (given if is_batch else [given])]  # type: ignore[union-attr]
    _check_count("inputs", texts)
    if values.get("raw_scores") is True:
        raise BadRequestError("raw_scores: true; the model's activation is applied to all of its numbers")

    def answer(tokens: list[Tokens], rows: np.ndarray) -> _Answer:
        names = _labels(classifier, rows)
        found = [
            [{"score": float(row[at]), "label": names[at]} for at in np.argsort(-row, kind="stable").tolist()]
            for row in rows
        ]
        return json.dumps(found if is_batch else found[0]).encode(), _count(tokens)

    return _Ask(lambda: list(classifier.tokenizer.tokens(texts)), classifier.classify, answer)


def _text_or_pair(given: Any) -> Any:
    """A text, alone or in a list, or two in a list. Raises BadRequestError."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or len(texts) not in (1, 2) or not all(isinstance(each, str) for each in texts):
        raise BadRequestError("inputs: expected a text, a pair [text, text], or a list of lists of one or two texts")
    return texts[0] if len(texts) == 1 else tuple(texts)


def _labels(classifier: Classifier, rows: np.ndarray) -> list[str]:
    """The names of the classes: a number where the model's folder has no name."""
    given = classifier.labels
    return [given[at] if at < len(given) else f"LABEL_{at}" for at in range(rows.shape[1])]


def _check_count(name: str, texts: Sequence[Any]) -> None:
    if len(texts) > MAX_TEXTS:
        raise BadRequestError(f"{name}: {len(texts)} texts; at most {MAX_TEXTS} are taken at once")


def _count(tokens: Sequence[Any]) -> int:
    return sum(len(each.ids) for each in tokens)


def _listed(model: str, name: str, rows: list[Any], tokens: int, head: dict[str, Any]) -> _Answer:
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json.dumps({**head, "model": model, name: rows, "usage": usage}).encode(), tokens
