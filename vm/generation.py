"""Text, token by token, from a decoder: `treadle.generate`.

A decoder takes token ids, and what it has computed of the tokens before, its cache, and gives logits and the longer cache. The
names that exporters use tell what is what (`Roles`). The first call takes the whole prompt; each later one takes the newest token
alone, and the tensors that the call before has made.

Sampling: Fan et al., Hierarchical Neural Story Generation, 2018 (the k likeliest tokens); Holtzman et al., The Curious Case of
Neural Text Degeneration, 2020 (the likeliest tokens that are p together).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Union

import numpy as np

from ..formats.calling import Suggesting, public, public_class, told
from ..formats.errors import ArgumentError
from ..formats.executable import Executable
from ..formats.names import near
from ..formats.ports import Port
from .machine import CancelToken, VirtualMachine

Choose = Callable[[np.ndarray], np.ndarray]  # float logits of a batch, [batch, vocabulary] → token ids, [batch]

_PAST = re.compile(r"(past_key_values?|past|cache|mem)[._]?(?=.*\d|$)")
_PRESENT = re.compile(r"(present_key_values?|present|new_cache|cache_out|out_mem)[._]?(?=.*\d|$)")
_IDS = ("input_ids", "ids", "tokens", "token_ids", "decoder_input_ids", "input")
_MASKS = ("attention_mask", "mask")
_POSITIONS = ("position_ids", "positions")
_COUNTER = "cache_position"  # the places of the new tokens in the cache
_KEPT = "num_logits_to_keep"  # of how many of the last tokens there are to be logits
_ZEROS = ("token_type_ids",)
OF_ENCODERS = "encoder_"  # what inputs that an encoder makes are called begins so
_SWITCH = "use_cache_branch"  # of decoders that have been merged from one with a cache and one without
# The roles that a decoder may have besides, and the names of the inputs; all of them are made here.
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "mask": _MASKS,
    "positions": _POSITIONS,
    "counter": (_COUNTER,),
    "kept": (_KEPT,),
    "zeros": _ZEROS,
    "switch": (_SWITCH,),
}
_MADE = tuple(name for names in _OPTIONAL.values() for name in names)
_LOGITS = ("logits", "lm_logits", "output", "scores")


@dataclass(frozen=True)
class Roles:
    """What a decoder's inputs and outputs are, by their names; empty where there is none."""

    ids: str
    logits: int  # number of the output
    mask: str = ""
    positions: str = ""
    counter: str = ""
    kept: str = ""
    zeros: str = ""
    switch: str = ""
    cache: tuple[tuple[str, int], ...] = ()  # an input, and the number of the output that it is in the next call
    ports: dict[str, Port] = field(default_factory=dict)

    @staticmethod
    def of(inputs: Sequence[Port], outputs: Sequence[Port], function: str, fed: Collection[str] = ()) -> Roles:
        """`fed` are inputs that the caller gives. Raises ArgumentError, which names what is not understood."""
        names = {port.name: port for port in inputs}
        made = (*_MADE, *fed)
        rest = {name: port for name, port in names.items() if name not in made}
        present = {
            _PRESENT.sub("", port.name): number for number, port in enumerate(outputs) if _PRESENT.match(port.name)
        }
        cache, unpaired = [], []
        for name in [name for name in rest if _PAST.match(name)]:
            number = present.get(_PAST.sub("", name))
            (unpaired.append(name) if number is None else cache.append((name, number)))
        others = [name for name in rest if not _PAST.match(name)]
        ids = next((name for name in _IDS if name in others), others[0] if len(others) == 1 else "")
        if not ids or unpaired or len(others) > 1:
            strange = unpaired or [name for name in others if name != ids] or list(names)
            raise ArgumentError(
                f"generate: {function}: cannot tell what {', '.join(map(repr, strange))} is; expected token ids "
                f"({', '.join(_IDS[:3])} …), attention_mask, position_ids, and past… with a present… for each among the outputs: "
                f"{', '.join(port.name for port in outputs)}; what is the same in every call, such as an encoder's results, is "
                f"given by name: feeds={{{strange[0]!r}: …}}"
            )
        if (dtype := names[ids].dtype) is None or np.dtype(dtype).kind not in "iu":
            raise ArgumentError(
                f"generate: {function}({ids}): a decoder takes token ids, integers; {names[ids].type} is declared"
            )
        free = [number for number, port in enumerate(outputs) if not _PRESENT.match(port.name)]
        logits = next(
            (number for name in _LOGITS for number in free if outputs[number].name == name), free[0] if free else None
        )
        if logits is None:
            raise ArgumentError(f"generate: {function} has no output that could be logits")
        first = {role: next((name for name in known if name in names), "") for role, known in _OPTIONAL.items()}
        return Roles(ids, logits, cache=tuple(cache), ports=names, **first)


def _is_seed(value: object) -> bool:
    return value is None or (isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0))


@public_class
@dataclass(frozen=True)
class Sampler(Suggesting):
    """Which token comes next. At a temperature of 0 the likeliest; else one by chance: of the `top_k` likeliest if that is not 0,
    and of the fewest likeliest whose probabilities are `top_p` together. Equal seeds give equal texts."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, is_good, expected in (
            ("temperature", _is_number(self.temperature) and 0 <= self.temperature < np.inf, "a number from 0 on"),
            ("top_k", isinstance(self.top_k, int) and self.top_k >= 0, "a whole number from 0 on"),
            ("top_p", _is_number(self.top_p) and 0 < self.top_p <= 1, "a number above 0, up to 1"),
            ("seed", _is_seed(self.seed), "a whole number from 0 on, or None"),
        ):
            if not is_good:
                raise ArgumentError(f"generate: {name}: expected {expected}, {getattr(self, name)!r} came")

    def chooser(self) -> Choose:
        """A function that draws, each time it is called."""
        if self.temperature == 0:
            return greedy
        draw = np.random.default_rng(self.seed)
        return lambda logits: np.array([self._one(row, draw) for row in logits])

    def _one(self, logits: np.ndarray, draw: np.random.Generator) -> int:
        order = np.argsort(-logits, kind="stable")
        if self.top_k:
            order = order[: self.top_k]
        scaled = logits[order].astype(np.float64) / self.temperature
        weights = np.exp(scaled - scaled[0])
        sums = np.cumsum(weights / weights.sum())
        count = int(np.searchsorted(sums, self.top_p)) + 1  # the last of them is the one that reaches it
        sums = sums[: min(count, len(sums))]
        return int(order[np.searchsorted(sums, draw.random() * sums[-1], side="right").clip(max=len(sums) - 1)])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating))


def greedy(logits: np.ndarray) -> np.ndarray:
    """The likeliest token of each row, of equal ones the first."""
    return logits.argmax(axis=-1)


@public
def generate(
    model: Union[VirtualMachine, Executable],
    ids: Any,
    *,
    max_new_tokens: int,
    sampler: Sampler | Choose | None = None,
    temperature: float | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | None = None,
    stop: Sequence[int] | Sequence[Sequence[int]] = (),
    attention_mask: Any = None,
    feeds: Mapping[str, Any] | None = None,
    function: str = "main",
    cancel: CancelToken | None = None,
) -> Iterator[Any]:
    """The tokens that a decoder puts behind a prompt, one by one, as they are made.

    ids       the prompt's token ids: a list, or integers [length], for which integers come; or integers [batch, length], for
              which arrays [batch] come
    sampler   a Sampler, or a function of logits [batch, vocabulary] that gives ids [batch]; without it the numbers behind it
              make one: by default the likeliest token is taken. A temperature that is not given is 1 beside top_k, top_p or seed
    stop      token ids, or sequences of them, behind any of which a text ends; the token that completes it is the last.
              A row of a batch that has ended repeats its last token until all have
    attention_mask  [batch, length], 0 where a prompt that is shorter than others is filled up in front
    feeds     inputs that are the same in every call, by name: what an encoder has made, and its mask
    cancel    ends the text from another thread; the machine's bounds hold for each token

    A machine keeps nothing between two texts: calls from several threads do not disturb each other. Raises ArgumentError for a
    function that is no decoder, and for what is no prompt, at once, not with the first token.
    """
    if not isinstance(model, (VirtualMachine, Executable)):
        raise ArgumentError(
            f"generate: model: expected a machine or an executable, {told(model)} came; treadle.compile and treadle.load give one"
        )
    machine = model if isinstance(model, VirtualMachine) else VirtualMachine(model)
    fixed = _fed(feeds, machine.inputs(function), function)
    roles = Roles.of(machine.inputs(function), machine.outputs(function), function, fixed)
    prompt = _array("ids", ids)
    is_single = prompt.ndim == 1
    prompt = prompt[None] if is_single else prompt
    if prompt.ndim == 2 and not prompt.size:
        raise ArgumentError(
            "generate: ids: the prompt has no token; a decoder begins with one, such as the tokenizer's bos"
        )
    if prompt.ndim != 2 or prompt.dtype.kind not in "iu":
        came = f"{prompt.dtype}{list(np.shape(ids))}"
        text = "; a tokenizer makes them of text" if prompt.dtype.kind in "US" else ""
        raise ArgumentError(f"generate: ids: expected integers [length] or [batch, length], {came} came{text}")
    if prompt.min() < 0:
        raise ArgumentError(f"generate: ids: expected token ids, which are not negative, {prompt.min()} came")
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 0:
        raise ArgumentError(f"generate: max_new_tokens: expected a whole number from 0 on, {max_new_tokens!r} came")
    mask = np.ones(prompt.shape, np.int64) if attention_mask is None else _array("attention_mask", attention_mask)
    if mask.shape != prompt.shape:
        raise ArgumentError(
            f"generate: attention_mask: expected the shape of ids, {list(prompt.shape)}, {list(mask.shape)} came"
        )
    if attention_mask is not None and not roles.mask:
        raise ArgumentError(f"generate: attention_mask: {function} takes none")
    choose = _chooser(sampler, temperature, top_k, top_p, seed)
    call: Callable[..., Any] = machine[function]
    if cancel is not None:
        call = partial(_cancellable, machine, function, cancel)
    if fixed:
        call = partial(call, **fixed)
    decoder = _Decoder(call, roles, function, len(prompt))
    return _tokens(decoder, prompt, mask, choose, max_new_tokens, _stops(stop), is_single)


def _array(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError:  # NumPy makes no array of rows of several lengths
        raise ArgumentError(
            f"generate: {name}: its rows are of several lengths; fill shorter ones up in front, and say where by attention_mask"
        ) from None


def _fed(feeds: Any, inputs: Sequence[Port], function: str) -> dict[str, Any]:
    """The inputs that the caller gives. Raises ArgumentError for what is no such input."""
    if feeds is None:
        return {}
    if not isinstance(feeds, Mapping):
        raise ArgumentError(f"generate: feeds: expected a dict from names to arrays, {told(feeds)} came")
    names = [port.name for port in inputs]
    for name in feeds:
        if name not in names:
            raise ArgumentError(f"generate: feeds: {function} has no input {name!r}{near(name, names)}")
        if name in (*_IDS[:-1], *_MADE):
            asked = "attention_mask" if name in (*_POSITIONS, *_MASKS) else "ids"
            raise ArgumentError(
                f"generate: feeds: {name!r} differs from call to call and is made of {asked}; give that"
            )
    return dict(feeds)


def _chooser(sampler: Any, temperature: float | None, top_k: int, top_p: float, seed: int | None) -> Choose:
    """What chooses the tokens. Raises ArgumentError."""
    restricts = top_k != 0 or top_p != 1 or seed is not None
    if sampler is None:
        return Sampler(float(restricts) if temperature is None else temperature, top_k, top_p, seed).chooser()
    if restricts or temperature is not None:
        raise ArgumentError(
            "generate: sampler: expected it alone; temperature, top_k, top_p and seed are a Sampler's own"
        )
    if isinstance(sampler, Sampler):
        return sampler.chooser()
    if isinstance(sampler, type) or not callable(sampler):
        came = f"the class {sampler.__name__}" if isinstance(sampler, type) else told(sampler)
        raise ArgumentError(f"generate: sampler: expected a treadle.Sampler, or a function of logits, {came} came")
    return sampler


def _cancellable(machine: VirtualMachine, function: str, cancel: CancelToken, **inputs: Any) -> Any:
    return machine.call(function, (), inputs, cancel=cancel)


def _stops(stop: Any) -> list[tuple[int, ...]]:
    try:
        sequences = [(int(each),) if isinstance(each, (int, np.integer)) else tuple(map(int, each)) for each in stop]
    except (TypeError, ValueError):
        raise ArgumentError(f"generate: stop: expected token ids, or lists of them, {stop!r} came") from None
    if () in sequences:
        raise ArgumentError("generate: stop: an empty sequence would end every text")
    return sequences


def _tokens(
    decoder: _Decoder,
    prompt: np.ndarray,
    mask: np.ndarray,
    choose: Choose,
    count: int,
    stops: list[tuple[int, ...]],
    is_single: bool,
) -> Iterator[Any]:
    longest = max(map(len, stops), default=0)
    recent: list[list[int]] = [[] for _ in prompt]
    is_over = np.zeros(len(prompt), bool)
    ids, last = prompt, prompt[:, -1]
    for _ in range(count):
        logits = decoder.step(ids, mask)
        tokens = np.where(is_over, last, np.asarray(choose(logits)))
        if tokens.shape != last.shape or tokens.dtype.kind not in "iu":
            came = f"{tokens.dtype}{list(tokens.shape)}"
            raise ArgumentError(f"generate: the sampler gave {came}; expected integers {list(last.shape)}")
        yield int(tokens[0]) if is_single else tokens
        for row, token in enumerate(tokens.tolist()):
            recent[row] = [*recent[row], token][-longest:] if longest else []
            is_over[row] |= any(tuple(recent[row][-len(stop) :]) == stop for stop in stops)
        if is_over.all():
            return
        last = tokens
        ids = tokens[:, None] if decoder.roles.cache else np.concatenate([ids, tokens[:, None]], axis=1)
        mask = np.concatenate([mask, np.ones((len(mask), 1), mask.dtype)], axis=1)


class _Decoder:
    """A decoder, and its cache between two calls."""

    def __init__(self, call: Callable[..., Any], roles: Roles, function: str, batch: int) -> None:
        self.roles = roles
        self._call, self._function = call, function
        self._cache: dict[str, Any] = {name: self._empty(roles.ports[name], batch) for name, _ in roles.cache}
        self._past = 0  # tokens in the cache

    def _empty(self, port: Port, batch: int) -> np.ndarray:
        """A cache of no tokens: its first dimension is the batch; of the others, the one that is not fixed is none long."""
        if port.shape is None or port.dtype is None:
            raise ArgumentError(f"generate: {self._function}({port.name}): expected a tensor, {port.type} is declared")
        shape = [size if isinstance(size, int) else 0 for size in port.shape]
        if shape and not isinstance(port.shape[0], int):
            shape[0] = batch
        if 0 not in shape[1:]:
            shapes = f"shapes={{{port.name!r}: {(*port.shape[:-2], 'past', *port.shape[-1:])}, …}}"
            raise ArgumentError(
                f"generate: {self._function}({port.name}): the cache is {port.type}, of a fixed length; it must be empty before "
                f"the first token, so one dimension is to be symbolic: compile the model with {shapes}"
            )
        return np.zeros(shape, port.dtype)

    def _kept(self, name: str, made: Any) -> Any:
        """The cache for the next call. Of an encoder's results a merged decoder makes it in the first call alone, and then gives
        it empty."""
        return self._cache[name] if self.roles.switch and self._past and 0 in made.shape else made

    def _cast(self, name: str, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array, self.roles.ports[name].dtype)

    def _one(self, name: str, value: int) -> np.ndarray:
        """One number, a scalar or the only element of a tensor, as it is declared."""
        port = self.roles.ports[name]
        return np.full([size if isinstance(size, int) else 1 for size in port.shape or ()], value, port.dtype)

    def step(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The logits behind the last token, [batch, vocabulary]; `mask` is for all tokens so far."""
        roles, length = self.roles, ids.shape[1]
        inputs: dict[str, Any] = {roles.ids: self._cast(roles.ids, ids), **self._cache}
        if roles.mask:
            inputs[roles.mask] = self._cast(roles.mask, mask)
        for name in filter(None, (roles.positions, roles.counter)):
            if len(roles.ports[name].shape or ()) == 1:  # one list for all rows
                places = self._past + np.arange(length)
            else:
                places = np.maximum(mask.astype(bool).cumsum(axis=1) - 1, 0)[:, -length:]
            inputs[name] = self._cast(name, places)
        if roles.kept:
            inputs[roles.kept] = self._one(roles.kept, 1)
        if roles.zeros:
            inputs[roles.zeros] = np.zeros(ids.shape, roles.ports[roles.zeros].dtype)
        if roles.switch:
            inputs[roles.switch] = self._one(roles.switch, self._past > 0)
        results = self._call(**inputs)
        results = results if isinstance(results, tuple) else (results,)
        self._cache = {name: self._kept(name, results[number]) for name, number in roles.cache}
        self._past += length if roles.cache else 0
        logits = results[roles.logits].numpy()
        return logits[:, -1] if logits.ndim == 3 else logits
