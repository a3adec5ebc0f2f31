"""Text, token by token, from a decoder: `treadle.generate`.

The prompts of a call are the texts of an engine of its own (`engine.py`), whose caches end with the iterator. Where the
executable has no function of texts of any lengths, those of one length are rows of a batch: nothing in a model's signature says
what it does about padding.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

import numpy as np

from ..formats.decoders import ENCODER, ENCODER_MASK, IDS, MADE, MASKS, PAGE, POSITIONS, Roles, encoded, of_encoders
from ..formats.executable import Executable
from ..formats.messages.calling import public, told
from ..formats.messages.errors import ArgumentError
from ..formats.messages.names import near
from ..formats.ports import Port
from ..vm.machine import CancelToken, VirtualMachine
from .adapters import Adapter
from .engine import Engine
from .paged_contexts import PagedContexts, encoded_inputs, has_pages
from .running import Text, stops
from .sampling import Choose, Sampler
from .step_contexts import StepContexts, array_of

_MOST_TOKENS = 1 << 26  # in pages, which are counted one by one


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
    adapter: Adapter | Sequence[Adapter | None] | None = None,
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
    adapter   a treadle.Adapter, or of each prompt one or None; of a decoder that was compiled with `adapters`
    cancel    ends the text from another thread; the machine's bounds hold for each token

    A machine keeps nothing between two texts: calls from several threads do not disturb each other. Raises ArgumentError for a
    function that is not a decoder, and for anything but a prompt, at once, not with the first token.
    """
    if not isinstance(model, (VirtualMachine, Executable)):
        raise ArgumentError(
            f"generate: model: expected a machine or an executable, got {told(model)}; treadle.compile and treadle.load give one"
        )
    machine = model if isinstance(model, VirtualMachine) else VirtualMachine(model)
    fixed = _fed(_encoded(machine, function, feeds, cancel), machine.inputs(function), function)
    prompts, is_single = _prompts(ids, attention_mask)
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 0:
        raise ArgumentError(f"generate: max_new_tokens: expected a whole number from 0 on, got {max_new_tokens!r}")
    chosen = _sampler(sampler, temperature, top_k, top_p, seed)
    ends = stops(stop)
    make = _paged if _have_pages(machine, function, len(prompts), fixed) else _stepping
    adapters: Any = list(adapter) if isinstance(adapter, (list, tuple)) else [adapter] * len(prompts)
    if len(adapters) != len(prompts):
        raise ArgumentError(f"generate: adapter: expected one for each of {len(prompts)} prompts, got {len(adapters)}")
    engine, opened = make(machine, function, prompts, max_new_tokens, fixed, adapters, cancel)
    texts = []
    for row, (prompt, context) in enumerate(zip(prompts, opened, strict=True)):
        draws = chosen.draws(prompt.tolist(), row) if isinstance(chosen, Sampler) else None
        texts.append(engine._begun(prompt, max_new_tokens, draws, ends, context, adapters[row]))
    columns = _drawn(texts) if isinstance(chosen, Sampler) else _chosen(texts, chosen)
    return (int(column[0]) for column in columns) if is_single else columns


def _have_pages(machine: VirtualMachine, function: str, count: int, fixed: Mapping[str, Any]) -> bool:
    """Whether texts are kept in pages: with an encoder's results for each of them, or without any. The call of others says what
    is wrong with them."""
    if not has_pages(machine, function):
        return False
    wanted = {port.name for port in encoded_inputs(machine, function)}
    if {*fixed} - {ENCODER_MASK} != wanted or (fixed and not wanted):
        return False
    arrays = {name: array_of(value) for name, value in fixed.items()}
    lengths = {array.shape[2] if array.ndim == 4 else 0 for name, array in arrays.items() if name != ENCODER_MASK}
    for name, array in arrays.items():
        port = machine.inputs(function)[name]
        sizes: list[Any] = [size if isinstance(size, int) else None for size in port.shape or ()]
        sizes[0] = count
        if array.dtype != port.dtype or array.ndim != len(sizes) or len(lengths) > 1:
            return False
        sizes[1 if name == ENCODER_MASK else 2] = min(lengths)
        if any(size not in (None, got) for size, got in zip(sizes, array.shape, strict=True)):
            return False
    return True


def _paged(
    machine: VirtualMachine,
    function: str,
    prompts: Sequence[np.ndarray],
    count: int,
    fixed: Mapping[str, Any],
    adapters: Any,
    cancel: CancelToken | None,
) -> tuple[Engine, Sequence[int | None]]:
    """An engine whose texts, of whatever lengths, are computed in one call."""
    pages = sum(-(-(len(prompt) + count) // PAGE) + 2 for prompt in prompts)  # with what each may not fill
    tokens = min(pages * PAGE, _MOST_TOKENS)
    if not fixed:
        contexts = PagedContexts(machine, function, tokens=tokens, cancel=cancel)
        return Engine(contexts=contexts, chunk=sys.maxsize), [None] * len(prompts)
    caches = {name: array_of(value) for name, value in fixed.items() if name != ENCODER_MASK}
    rows = next(iter(caches.values())).shape[2]
    encoded = max(1, len(prompts) * -(-rows // PAGE) * PAGE)
    contexts = PagedContexts(machine, function, tokens=tokens, encoded=encoded, cancel=cancel)
    mask = fixed.get(ENCODER_MASK)
    opened = [
        contexts.open_encoded(
            {name: array[row : row + 1] for name, array in caches.items()},
            None if mask is None else array_of(mask)[row] != 0,
            each,
        )
        for row, each in enumerate(adapters)
    ]
    return Engine(contexts=contexts, chunk=sys.maxsize), opened


def _stepping(
    machine: VirtualMachine,
    function: str,
    prompts: Sequence[np.ndarray],
    count: int,
    fixed: Mapping[str, Any],
    adapters: Sequence[Adapter | None],
    cancel: CancelToken | None,
) -> tuple[Engine, Sequence[int]]:
    """An engine, and the context of each prompt: those of one length are computed in one call."""
    longest = max(map(len, prompts)) + count
    contexts = StepContexts(machine, function, tokens=sys.maxsize, longest=longest, fed=fixed, cancel=cancel)
    groups = _of_equal_lengths(prompts)
    if len(groups) > 1:
        _check_groups(prompts, groups, contexts.roles, function)
    opened = [0] * len(prompts)
    for rows, given in zip(groups, _fed_to(groups, fixed, contexts.roles), strict=True):
        own = [adapters[row] for row in rows.tolist()]
        for row, context in zip(rows.tolist(), contexts.open_together(len(rows), given, own), strict=True):
            opened[row] = context
    return Engine(contexts=contexts, chunk=sys.maxsize), opened


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
    """A prompt, int64 [length]. Raises ArgumentError for anything else; `name` says where it was given."""
    if not prompt.size:
        raise ArgumentError(
            f"generate: {name}: the prompt has no token; a decoder begins with one, such as the tokenizer's bos"
        )
    if prompt.dtype.kind not in "iu":
        text = "; a tokenizer makes them of text" if prompt.dtype.kind in "US" else ""
        raise ArgumentError(f"generate: {name}: expected integers, got {prompt.dtype}{list(prompt.shape)}{text}")
    tokens = prompt.astype(np.int64)
    if tokens.min() < 0:  # so is what an int64 does not hold
        got = prompt[tokens.argmin()]
        raise ArgumentError(f"generate: {name}: expected token ids, which are not negative, got {got}")
    return tokens


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
    arrays = {name: array_of(value) for name, value in fixed.items()}
    for rows in groups:
        yield {name: array[rows] if name in by_row else array for name, array in arrays.items()}


def _encoded(machine: VirtualMachine, function: str, feeds: Any, cancel: CancelToken | None) -> Any:
    """What the encoder of an executable makes of feeds that are its inputs, and the other feeds. Raises ArgumentError."""
    if ENCODER not in machine or function == ENCODER:
        return feeds
    known, given = machine.inputs(ENCODER).names, feeds if isinstance(feeds, Mapping) else {}
    wanted = of_encoders(machine.inputs(function).names, machine.outputs(function).names)
    own = {name: given[name] for name in known if name in given}
    if not own and not all(name in given for name in wanted):
        raise ArgumentError(
            f"generate: feeds: the encoder takes {', '.join(known)}; expected feeds={{{known[0]!r}: …}}"
        )
    if not own:
        return feeds
    made = machine.call(ENCODER, (), own, cancel=cancel)
    results = dict(zip(machine.outputs(ENCODER).names, made if isinstance(made, tuple) else (made,), strict=True))
    return {**encoded(wanted, results, own), **{name: each for name, each in given.items() if name not in own}}


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


def _sampler(sampler: Any, temperature: float | None, top_k: int, top_p: float, seed: int | None) -> Sampler | Choose:
    """What chooses tokens. Raises ArgumentError."""
    restricts = top_k != 0 or top_p != 1 or seed is not None
    if sampler is None:
        return Sampler(float(restricts) if temperature is None else temperature, top_k, top_p, seed)
    if restricts or temperature is not None:
        raise ArgumentError(
            "generate: sampler: expected it alone; temperature, top_k, top_p and seed are a Sampler's own"
        )
    if isinstance(sampler, type) or (not callable(sampler) and not isinstance(sampler, Sampler)):
        came = f"the class {sampler.__name__}" if isinstance(sampler, type) else told(sampler)
        raise ArgumentError(f"generate: sampler: expected a treadle.Sampler, or a function of logits, got {came}")
    return sampler


def _drawn(texts: Sequence[Text]) -> Iterator[np.ndarray]:
    """The next token of each text, until all are over; one that is repeats its last token."""
    last = np.zeros(len(texts), np.int64)
    while True:
        tokens = [next(text, None) for text in texts]
        if not any(tokens):
            return
        last = np.array([old if token is None else token.id for old, token in zip(last, tokens, strict=True)])
        yield last


def _chosen(texts: Sequence[Text], choose: Choose) -> Iterator[np.ndarray]:
    """The same, chosen by the logits of all of them; those of a text that is over stay."""
    last = np.zeros(len(texts), np.int64)
    rows: list[Any] = [None] * len(texts)
    while True:
        made = [text.logits() for text in texts]
        if all(each is None for each in made):
            return
        rows = [old if new is None else new for old, new in zip(rows, made, strict=True)]
        tokens = np.asarray(choose(np.stack(rows)))
        if tokens.shape != last.shape or tokens.dtype.kind not in "iu":
            got = f"{tokens.dtype}{list(tokens.shape)}"
            raise ArgumentError(f"generate: the sampler gave {got}; expected integers {list(last.shape)}")
        last = np.where([each is None for each in made], last, tokens)
        for text, token, each in zip(texts, last.tolist(), made, strict=True):
            if each is not None:
                text.take(token)
        yield last
