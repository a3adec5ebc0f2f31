"""Text, token by token, from a decoder: `treadle.generate`.

A decoder takes token ids, and what it has computed of the tokens before, its cache, and gives logits and the longer cache. The
names that exporters use tell what is what (`formats/decoders.py`). The first call takes the whole prompt; each later one takes
the newest token alone, and the tensors that the call before has made. Of an executable with a step (`compiler/decoders/step.py`)
that is called: it gives the last logits alone, and, of caches that grow, the new rows, which are put after the existing ones.

Sampling: Fan et al., Hierarchical Neural Story Generation, 2018 (the k likeliest tokens); Holtzman et al., The Curious Case of
Neural Text Degeneration, 2020 (the likeliest tokens that are p together).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Union

import numpy as np

from ..formats.decoders import HELD, IDS, MADE, MASKS, NEW_ROWS, POSITIONS, STEP, Roles
from ..formats.executable import Executable
from ..formats.messages.calling import public, told
from ..formats.messages.errors import ArgumentError
from ..formats.messages.names import near
from ..formats.ports import Port
from ..vm.machine import CancelToken, VirtualMachine
from .sampling import Choose, Sampler


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
    """The tokens that a decoder puts after a prompt, one by one, as they are made.

    ids       the prompt's token ids: a list, or integers [length], for which integers come; or integers [batch, length], or
              a list of prompts of several lengths, for which arrays [batch] come. Prompts of one length are computed together,
              others apart
    sampler   a Sampler, or a function of logits [batch, vocabulary] that gives ids [batch]; without it the numbers behind it
              make one: by default the likeliest token is taken. A temperature that is not given is 1 beside top_k, top_p or seed
    stop      token ids, or sequences of them, after any of which a text ends; the token that completes it is the last.
              A row of a batch that has ended repeats its last token until all have
    attention_mask  of the shape of ids, 0 where a prompt that is shorter than others is padded: before or after it
    feeds     inputs that are the same in every call, by name: what an encoder has made, and its mask
    cancel    ends the text from another thread; the machine's bounds hold for each token

    A machine keeps nothing between two texts: calls from several threads do not disturb each other. Raises ArgumentError for a
    function that is not a decoder, and for anything but a prompt, at once, not with the first token.
    """
    if not isinstance(model, (VirtualMachine, Executable)):
        raise ArgumentError(
            f"generate: model: expected a machine or an executable, got {told(model)}; treadle.compile and treadle.load give one"
        )
    machine = model if isinstance(model, VirtualMachine) else VirtualMachine(model)
    fixed = _fed(feeds, machine.inputs(function), function)
    roles = Roles.of(machine.inputs(function), machine.outputs(function), function, fixed)
    prompts, is_single = _prompts(ids, attention_mask)
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 0:
        raise ArgumentError(f"generate: max_new_tokens: expected a whole number from 0 on, got {max_new_tokens!r}")
    choose = _chooser(sampler, temperature, top_k, top_p, seed)
    step = function + STEP
    wanted = {roles.ids, *fixed, *dict(roles.cache)}
    has_step = machine._reads_in_place and step in machine and {*machine.inputs(step).names} - {HELD} == wanted
    called = step if has_step else function
    call: Callable[..., Any] = machine[called]
    if cancel is not None:
        call = partial(_cancellable, machine, called, cancel)
    groups = _of_equal_lengths(prompts)
    if len(groups) > 1:
        _check_groups(prompts, groups, roles, function)
    make = partial(_Stepping, names=machine.outputs(step).names, count=max_new_tokens) if has_step else _Decoder
    decoders = [
        make(call, roles, function, rows, np.stack([prompts[row] for row in rows]), given)
        for rows, given in zip(groups, _fed_to(groups, fixed, roles), strict=True)
    ]
    return _tokens(decoders, choose, max_new_tokens, _stops(stop), is_single)


def _prompts(ids: Any, attention_mask: Any) -> tuple[list[np.ndarray], bool]:
    """The tokens of each prompt, without those that the mask leaves out, and whether there is one that is not a batch. Raises
    ArgumentError."""
    array = _array(ids)
    if array is None and isinstance(ids, Sequence) and all(map(_is_list, ids)):  # rows of several lengths
        if attention_mask is not None:
            raise ArgumentError(
                "generate: attention_mask: expected none beside prompts of several lengths: these have nothing to leave out"
            )
        return [_tokens_of(np.asarray(row), f"ids: row {number}") for number, row in enumerate(ids)], False
    if array is None or array.ndim not in (1, 2):
        came = f"{array.dtype}{list(array.shape)}" if array is not None else told(ids)
        text = "; a tokenizer makes them of text" if array is not None and array.dtype.kind in "US" else ""
        raise ArgumentError(f"generate: ids: expected integers [length] or [batch, length], got {came}{text}")
    rows = np.atleast_2d(array)
    if attention_mask is None:
        return [_tokens_of(row, "ids") for row in rows] or [_tokens_of(array.ravel(), "ids")], array.ndim == 1
    mask = _array(attention_mask)
    if mask is None:
        raise ArgumentError("generate: attention_mask: its rows are of several lengths; expected the shape of ids")
    if np.atleast_2d(mask).shape != rows.shape:
        raise ArgumentError(
            f"generate: attention_mask: expected the shape of ids, {list(array.shape)}, got {list(mask.shape)}"
        )
    seen = zip(rows, np.atleast_2d(mask) != 0, strict=True)
    return [_tokens_of(row[kept], f"ids: row {n}") for n, (row, kept) in enumerate(seen)], array.ndim == 1


def _array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except ValueError:  # NumPy makes no array of rows of several lengths
        return None


def _is_list(row: Any) -> bool:
    array = _array(row)
    return array is not None and array.ndim == 1


def _tokens_of(prompt: np.ndarray, name: str) -> np.ndarray:
    """A prompt. Raises ArgumentError for anything else; `name` says where it was given."""
    if not prompt.size:
        raise ArgumentError(
            f"generate: {name}: the prompt has no token; a decoder begins with one, such as the tokenizer's bos"
        )
    if prompt.dtype.kind not in "iu":
        text = "; a tokenizer makes them of text" if prompt.dtype.kind in "US" else ""
        raise ArgumentError(f"generate: {name}: expected integers, got {prompt.dtype}{list(prompt.shape)}{text}")
    if prompt.min() < 0:
        raise ArgumentError(f"generate: {name}: expected token ids, which are not negative, got {prompt.min()}")
    return prompt


def _of_equal_lengths(prompts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The numbers of the prompts of each length. Only these share a batch: nothing in a model's signature says whether it
    ignores padding before, after, or not at all (GroupQueryAttention wants it after), so no model gets any."""
    lengths = np.array([len(prompt) for prompt in prompts])
    return [np.flatnonzero(lengths == length) for length in dict.fromkeys(lengths.tolist())]


def _check_groups(prompts: Sequence[np.ndarray], groups: Sequence[np.ndarray], roles: Roles, function: str) -> None:
    """Raises ArgumentError where prompts of several lengths do not suit a fixed size of the batch."""
    size = (roles.ports[roles.ids].shape or (None,))[0]
    if isinstance(size, int) and any(len(rows) != size for rows in groups):
        counts = ", ".join(f"{len(rows)} of {len(prompts[rows[0]])} tokens" for rows in groups)
        raise ArgumentError(
            f"generate: ids: {function}({roles.ids}) takes batches of {size}, and only prompts of one length make a batch; got "
            f"{counts}. Compile the model with a symbolic batch, batch='n', or give prompts of equal length"
        )


def _fed_to(groups: Sequence[np.ndarray], fixed: Mapping[str, Any], roles: Roles) -> Iterator[dict[str, Any]]:
    """Of inputs that the caller gives, what each group of prompts takes: of those that have a row for each prompt, its rows."""
    if len(groups) == 1:
        yield dict(fixed)
        return
    batch = (roles.ports[roles.ids].shape or (None,))[0]
    by_row = {name for name in fixed if (shape := roles.ports[name].shape) and shape[0] == batch}
    arrays = {name: value.numpy() if hasattr(value, "numpy") else np.asarray(value) for name, value in fixed.items()}
    for rows in groups:
        yield {name: array[rows] if name in by_row else array for name, array in arrays.items()}


def _fed(feeds: Any, inputs: Sequence[Port], function: str) -> dict[str, Any]:
    """The inputs that the caller gives. Raises ArgumentError for any other input."""
    if feeds is None:
        return {}
    if not isinstance(feeds, Mapping):
        raise ArgumentError(f"generate: feeds: expected a dict from names to arrays, got {told(feeds)}")
    names = [port.name for port in inputs]
    for name in feeds:
        if name not in names:
            raise ArgumentError(f"generate: feeds: {function} has no input {name!r}{near(name, names)}")
        if name in (*IDS[:-1], *MADE):
            asked = "attention_mask" if name in (*POSITIONS, *MASKS) else "ids"
            raise ArgumentError(
                f"generate: feeds: {name!r} differs from call to call and is made of {asked}; give that"
            )
    return dict(feeds)


def _chooser(sampler: Any, temperature: float | None, top_k: int, top_p: float, seed: int | None) -> Choose:
    """The function that chooses tokens. Raises ArgumentError."""
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
        raise ArgumentError(f"generate: sampler: expected a treadle.Sampler, or a function of logits, got {came}")
    return sampler


def _cancellable(machine: VirtualMachine, function: str, cancel: CancelToken, **inputs: Any) -> Any:
    return machine.call(function, (), inputs, cancel=cancel)


def _stops(stop: Any) -> list[tuple[int, ...]]:
    try:
        sequences = [(int(each),) if isinstance(each, (int, np.integer)) else tuple(map(int, each)) for each in stop]
    except (TypeError, ValueError):
        raise ArgumentError(f"generate: stop: expected token ids, or lists of them, got {stop!r}") from None
    if () in sequences:
        raise ArgumentError("generate: stop: an empty sequence would end every text")
    return sequences


def _tokens(
    decoders: Sequence[_Decoder], choose: Choose, count: int, stops: list[tuple[int, ...]], is_single: bool
) -> Iterator[Any]:
    longest = max(map(len, stops), default=0)
    batch = sum(len(decoder.rows) for decoder in decoders)
    recent: list[list[int]] = [[] for _ in range(batch)]
    is_over = np.zeros(batch, bool)
    last = np.zeros(batch, np.int64)
    made: list[np.ndarray] = [np.empty(0)] * len(decoders)
    order = np.argsort(np.concatenate([decoder.rows for decoder in decoders]))
    for _ in range(count):
        for number, decoder in enumerate(decoders):
            if not is_over[decoder.rows].all():
                made[number] = decoder.step()
        logits = np.concatenate(made)[order] if len(made) > 1 else made[0]
        tokens = np.where(is_over, last, np.asarray(choose(logits)))
        if tokens.shape != last.shape or tokens.dtype.kind not in "iu":
            got = f"{tokens.dtype}{list(tokens.shape)}"
            raise ArgumentError(f"generate: the sampler gave {got}; expected integers {list(last.shape)}")
        yield int(tokens[0]) if is_single else tokens
        for row, token in enumerate(tokens.tolist()):
            recent[row] = [*recent[row], token][-longest:] if longest else []
            is_over[row] |= any(tuple(recent[row][-len(stop) :]) == stop for stop in stops)
        if is_over.all():
            return
        last = tokens
        for decoder in decoders:
            decoder.take(tokens[decoder.rows])


class _Decoder:
    """A decoder of texts of one length, and its cache between two calls. `rows` are the numbers of the texts among all."""

    def __init__(
        self,
        call: Callable[..., Any],
        roles: Roles,
        function: str,
        rows: np.ndarray,
        prompt: np.ndarray,
        fixed: Mapping[str, Any],
    ) -> None:
        self.roles, self.rows = roles, rows
        self.ids = prompt  # what the next call takes
        self._call, self._function = call, function
        self._fixed = fixed
        self._cache: dict[str, Any] = {name: self._empty(roles.ports[name], len(rows)) for name, _ in roles.cache}
        self._past = 0  # tokens in the cache

    def take(self, tokens: np.ndarray) -> None:
        """One more token of each text."""
        column = tokens[:, None]
        self.ids = column if self.roles.cache else np.concatenate([self.ids, column], axis=1)

    def _empty(self, port: Port, batch: int) -> np.ndarray:
        """A cache of no tokens."""
        if port.shape is None or port.dtype is None:
            raise ArgumentError(f"generate: {self._function}({port.name}): expected a tensor, {port.type} is declared")
        shape = self.roles.empty(port.name, batch)
        if shape is None:
            shapes = f"shapes={{{port.name!r}: {(*port.shape[:-2], 'past', *port.shape[-1:])}, …}}"
            raise ArgumentError(
                f"generate: {self._function}({port.name}): the cache is {port.type}, of a fixed length; it must be empty before "
                f"the first token, so one dimension must be symbolic: compile the model with {shapes}"
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

    def step(self) -> np.ndarray:
        """The logits after the last token, [batch, vocabulary]."""
        roles, (batch, length) = self.roles, self.ids.shape
        inputs: dict[str, Any] = {roles.ids: self._cast(roles.ids, self.ids), **self._fixed, **self._cache}
        total = self._past + length
        if roles.mask:
            inputs[roles.mask] = np.ones((batch, total), roles.ports[roles.mask].dtype)
        for name in filter(None, (roles.positions, roles.counter)):
            places = np.arange(self._past, total)
            is_one_list = len(roles.ports[name].shape or ()) == 1  # for all rows
            inputs[name] = self._cast(name, places if is_one_list else np.broadcast_to(places, self.ids.shape))
        if roles.kept:
            inputs[roles.kept] = self._one(roles.kept, 1)
        if roles.zeros:
            inputs[roles.zeros] = np.zeros(self.ids.shape, roles.ports[roles.zeros].dtype)
        if roles.switch:
            inputs[roles.switch] = self._one(roles.switch, self._past > 0)
        results = self._call(**inputs)
        results = results if isinstance(results, tuple) else (results,)
        self._cache = {name: self._kept(name, results[number]) for name, number in roles.cache}
        self._past += length if roles.cache else 0
        logits = results[roles.logits].numpy()
        return logits[:, -1] if logits.ndim == 3 else logits


class _Stepping(_Decoder):
    """A decoder by its step, whose results have these names; `count` bounds the tokens behind the prompt."""

    def __init__(self, *decoder: Any, names: Sequence[str], count: int) -> None:
        super().__init__(*decoder)
        most = self.ids.shape[1] + count
        self._grown = {
            name: _Rows(self._cache.pop(name), most)
            for (name, _), made in zip(self.roles.cache, names[1:], strict=True)
            if made == NEW_ROWS + name
        }

    def step(self) -> np.ndarray:
        grown = {name: rows.room for name, rows in self._grown.items()}
        inputs = {self.roles.ids: self._cast(self.roles.ids, self.ids), **self._fixed, **self._cache, **grown}
        if grown:
            inputs[HELD] = np.zeros((self._past, 0), bool)
        logits, *made = self._call(**inputs)
        for (name, _), each in zip(self.roles.cache, made, strict=True):
            if name in self._grown:
                self._grown[name].put(each.numpy())
            else:
                self._cache[name] = each
        self._past += self.ids.shape[1]
        return logits.numpy()


class _Rows:
    """A cache with room behind its tokens."""

    def __init__(self, empty: np.ndarray, most: int) -> None:
        self.room = empty
        self._axis = empty.shape.index(0)
        self._count, self._most = 0, most

    def put(self, rows: np.ndarray) -> None:
        """Puts rows after the existing ones. Where there is no room, twice as much is taken, but not more than the text can
        need."""
        count = self._count + rows.shape[self._axis]
        if count > self.room.shape[self._axis]:
            shape = list(rows.shape)
            shape[self._axis] = max(count, min(2 * count, self._most))
            room = np.zeros(shape, rows.dtype)
            room[self._places(0, self._count)] = self.room[self._places(0, self._count)]
            self.room = room
        self.room[self._places(self._count, count)] = rows
        self._count = count

    def _places(self, start: int, end: int) -> tuple[slice, ...]:
        return (*[slice(None)] * self._axis, slice(start, end))
