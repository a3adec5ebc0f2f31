"""Contexts of any decoder: a call for each text, of `main.step` where the executable has it, else of `main`.

Of a decoder with a step (`compiler/decoders/step.py`) caches lie in memory of their own with room behind their rows; others are
handed on as the call before made them; a decoder without a cache gets its whole text each time. Contexts that are opened
together are rows of one batch until one of them goes on alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..formats.decoders import ADAPTER_MASK, HELD, NEW_ROWS, STEP, Roles
from ..formats.messages.errors import ArgumentError, CacheFullError, CheckError
from ..vm.machine import CancelToken, VirtualMachine
from .adapters import Adapter, Bound
from .contexts import BYTES, Appended, Contexts, calling, check_appended, check_restored


class StepContexts(Contexts):
    """`tokens` bounds what all contexts hold together, `longest` each of them. `fed` are the names of inputs that the caller
    gives for each text; `cancel` ends the calls."""

    def __init__(
        self,
        machine: VirtualMachine,
        function: str = "main",
        *,
        tokens: int | None = None,
        longest: int | None = None,
        fed: Collection[str] = (),
        cancel: CancelToken | None = None,
    ) -> None:
        inputs, self.adapters = machine.inputs(function), Bound(machine.inputs(function), function)
        fed = (*fed, *self.adapters.names)
        self.roles = roles = Roles.of(inputs, machine.outputs(function), function, fed)
        self._function = function
        step = function + STEP
        wanted = {roles.ids, *fed, *dict(roles.cache)}
        self._has_step = (
            machine._reads_in_place and step in machine and {*machine.inputs(step).names} - {HELD} == wanted
        )
        called = step if self._has_step else function
        self._call = calling(machine, called, cancel)
        made = machine.outputs(step).names[1:] if self._has_step else ()
        self._grown = [name for (name, _), new in zip(roles.cache, made, strict=False) if new == NEW_ROWS + name]
        logits = machine.outputs(function)[roles.logits].shape or (None,)
        # logits of each token of a call, not of the last one alone
        self._gives_all = len(logits) == 3 and logits[1] != 1 and not self._has_step
        self.vocabulary = logits[-1] if isinstance(logits[-1], int) else 0
        batch = (roles.ports[roles.ids].shape or (None,))[0]
        self.batch = batch if isinstance(batch, int) else None  # the only size of a batch
        self._by_row = {name for name in fed if (shape := roles.ports[name].shape) and shape[0] == batch}
        self._axes = {name: self._axes_of(name) for name, _ in roles.cache}
        self._has_states = any(axis is None for _, axis in self._axes.values())
        self.verifies = self._gives_all and not self._has_states
        self.shortens = not self._has_states
        self._keeps_tokens = self._has_states or not roles.cache
        self._capacity = max(1, BYTES // self._bytes()) if tokens is None else tokens
        self._longest = self._capacity if longest is None else longest
        self._stacks: dict[int, _Stack] = {}
        self._numbers = itertools.count()

    # ---- what a cache is like ----

    def _empty(self, name: str, batch: int) -> np.ndarray:
        """A cache of no tokens."""
        port = self.roles.ports[name]
        if port.shape is None or port.dtype is None:
            raise ArgumentError(f"generate: {self._function}({name}): expected a tensor, {port.type} is declared")
        shape = self.roles.empty(name, batch)
        if shape is None:
            shapes = f"shapes={{{name!r}: {(*port.shape[:-2], 'past', *port.shape[-1:])}, …}}"
            raise ArgumentError(
                f"generate: {self._function}({name}): the cache is {port.type}, of a fixed length; it must be empty before "
                f"the first token, so one dimension must be symbolic: compile the model with {shapes}"
            )
        return np.zeros(shape, port.dtype)

    def _axes_of(self, name: str) -> tuple[int, int | None]:
        """The axes of the batch and of the tokens, None of a state."""
        self._empty(name, 1)
        shape = self.roles.empty(name, -1)
        assert shape is not None
        return shape.index(-1) if -1 in shape else 0, shape.index(0) if 0 in shape else None

    def _bytes(self) -> int:
        """How many bytes a token takes in all caches."""
        empty = [self._empty(name, 1) for name, _ in self.roles.cache]
        return sum(math.prod(size or 1 for size in each.shape) * each.itemsize for each in empty if not each.size) or 8

    def _is_of_text(self, name: str) -> bool:
        """Whether a cache has a row for each token: a state has not, nor an encoder's results in merged decoders."""
        return "encoder" not in name and self._axes[name][1] is not None

    # ---- contexts ----

    def open(self, adapter: Adapter | None = None) -> int:
        return self.open_together(1, adapters=[adapter])[0]

    def open_together(
        self, count: int, feeds: Mapping[str, Any] | None = None, adapters: Sequence[Adapter | None] = ()
    ) -> list[int]:
        """Contexts whose tokens are computed in one call as long as they are appended together. `feeds` are the inputs that the
        caller gives, with a row for each."""
        for each in adapters:
            self.adapters.check(each)
        numbers = list(itertools.islice(self._numbers, count))
        given = list(adapters) or [None] * count
        caches = {name: self._empty(name, count) for name, _ in self.roles.cache}
        self._hold(_Stack(self, numbers, dict(feeds or {}), given, caches, 0, np.zeros((count, 0), np.int64)))
        return numbers

    def _hold(self, stack: _Stack) -> None:
        self._stacks.update(dict.fromkeys(stack.open(), stack))

    def _stack(self, context: int) -> _Stack:
        found = self._stacks.get(context)
        if found is None:
            raise CheckError(f"there is no context {context}")
        return found

    def fork(self, context: int, length: int) -> int:
        self._check_length(context, length)
        (number,) = itertools.islice(self._numbers, 1)
        self._check_room(length)
        self._hold(self._stack(context).picked([context], [number], length))
        return number

    def shorten(self, context: int, length: int) -> None:
        self._check_length(context, length)
        self._alone([context]).cut(length)

    def close(self, context: int) -> None:
        stack = self._stack(context)
        del self._stacks[context]
        stack.rows[stack.rows.index(context)] = None

    def length(self, context: int) -> int:
        return self._stack(context).length

    def room(self) -> int:
        return self._capacity - sum(stack.length for stack in self._stacks.values())

    def saved(self, context: int) -> dict[str, np.ndarray]:
        stack = self._stack(context)
        return stack.picked([context], [context], stack.length).arrays()

    def restored(self, arrays: Mapping[str, np.ndarray], length: int, adapter: Adapter | None = None) -> int:
        self.adapters.check(adapter)
        expected: dict[str, tuple[np.dtype, list[int]]] = {}
        for name, (_, axis) in self._axes.items():
            empty = self._empty(name, 1)
            shape = [length if place == axis else size for place, size in enumerate(empty.shape)]
            expected[name] = empty.dtype, shape
        if self._keeps_tokens:
            expected[self.roles.ids] = np.dtype(np.int64), [1, length]
        check_restored(arrays, expected, length)
        self._check_room(length)
        (number,) = itertools.islice(self._numbers, 1)
        caches = {name: arrays[name].copy() for name in self._axes}
        tokens = arrays[self.roles.ids].copy() if self._keeps_tokens else np.zeros((1, 0), np.int64)
        self._hold(_Stack(self, [number], {}, [adapter], caches, length, tokens))
        return number

    def _check_room(self, count: int) -> None:
        if count > (room := self.room()):
            raise CacheFullError(f"no room for {count} tokens: {room} of {self._capacity} are free")

    # ---- calls ----

    def append(self, batch: Sequence[Appended]) -> list[np.ndarray]:
        self._check_room(sum(len(each.tokens) for each in batch))
        check_appended(batch)
        groups: dict[tuple[int, int, int], list[Appended]] = {}
        for each in batch:
            key = id(self._stack(each.context)), len(each.tokens), each.logits
            groups.setdefault(key, []).append(each)
        calls = [(self._alone([each.context for each in group]), group) for group in groups.values()]
        marks = [(stack, stack.mark()) for stack, _ in calls]
        made: dict[int, np.ndarray] = {}
        try:
            for stack, group in calls:
                if len(stack.rows) == 1:
                    ids = group[0].tokens[None]
                else:
                    given = {each.context: each.tokens for each in group}
                    nothing = np.zeros(len(group[0].tokens), np.int64)  # of a row that is closed nobody reads anything
                    ids = np.stack([nothing if row is None else given[row] for row in stack.rows])
                logits = self._logits(stack, ids, group[0].logits)
                made.update({row: each for row, each in zip(stack.rows, logits, strict=True) if row is not None})
        except BaseException:
            for stack, mark in marks:
                stack.reset(mark)
            raise
        return [made[each.context] for each in batch]

    def _alone(self, contexts: Sequence[int]) -> _Stack:
        """A batch of these contexts, of one stack, alone."""
        stack = self._stack(contexts[0])
        if len(stack.open()) > len(contexts):
            stack = stack.picked(contexts, contexts, stack.length, moved=True)
            self._hold(stack)
        return stack

    def _logits(self, stack: _Stack, ids: np.ndarray, wanted: int) -> np.ndarray:
        """The last logits [batch, wanted, vocabulary] of new tokens."""
        if wanted <= 1 or self._gives_all:
            return self._called(stack, ids, max(wanted, 1))[:, :wanted]
        pieces = [ids[:, : 1 - wanted], *(ids[:, place, None] for place in range(1 - wanted, 0))]
        return np.concatenate([self._called(stack, piece, 1) for piece in pieces], axis=1)

    def _called(self, stack: _Stack, ids: np.ndarray, wanted: int) -> np.ndarray:
        roles, count = self.roles, ids.shape[1]
        if self._keeps_tokens:
            stack.tokens = np.concatenate([stack.tokens, ids], axis=1)
        if self._has_step:
            inputs = {roles.ids: self._cast(roles.ids, ids), **stack.fed(ids), **stack.given()}
            if self._grown:
                inputs[HELD] = np.zeros((stack.length, 0), bool)
            logits, *caches = self._call(**inputs)
            made = dict(zip(self._axes, caches, strict=True))
        else:
            results = self._call(**self._inputs(stack, ids if roles.cache else stack.tokens, wanted))
            results = results if isinstance(results, tuple) else (results,)
            logits, made = results[roles.logits], {name: results[number] for name, number in roles.cache}
        stack.put(made, count)
        array = logits.numpy()
        self.vocabulary = array.shape[-1]
        return array[:, None] if array.ndim == 2 else array[:, -wanted:]

    def restate(self, stack: _Stack) -> None:
        """Computes the states of a shortened stack again from its tokens: a state cannot be shortened."""
        if self._has_states:
            tokens, count = stack.tokens, len(stack.rows)
            stack.caches = {name: self._empty(name, count) for name in stack.caches}
            stack.reset((0, tokens[:, :0], stack.caches))
            if tokens.size:
                self._called(stack, tokens, 1)

    def _inputs(self, stack: _Stack, ids: np.ndarray, wanted: int) -> dict[str, Any]:
        roles, past = self.roles, stack.length if self.roles.cache else 0
        inputs: dict[str, Any] = {roles.ids: self._cast(roles.ids, ids), **stack.fed(ids), **stack.given()}
        batch, length = ids.shape
        total = past + length
        if roles.mask:
            inputs[roles.mask] = np.ones((batch, total), roles.ports[roles.mask].dtype)
        for name in filter(None, (roles.positions, roles.counter)):
            places = np.arange(past, total)
            declared = roles.ports[name].shape or ()
            is_one_list = len(declared) == 1  # for all rows
            of_rows = (*declared[:-2], *ids.shape)  # 3 lists of a row: in time, height and width
            inputs[name] = self._cast(name, places if is_one_list else np.broadcast_to(places, of_rows))
        if roles.kept:
            inputs[roles.kept] = self._one(roles.kept, wanted)
        if roles.zeros:
            inputs[roles.zeros] = np.zeros(ids.shape, roles.ports[roles.zeros].dtype)
        if roles.switch:
            inputs[roles.switch] = self._one(roles.switch, past > 0)
        return inputs

    def _cast(self, name: str, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array, self.roles.ports[name].dtype)

    def _one(self, name: str, value: int) -> np.ndarray:
        """One number, a scalar or the only element of a tensor, as it is declared."""
        port = self.roles.ports[name]
        return np.full([size if isinstance(size, int) else 1 for size in port.shape or ()], value, port.dtype)


class _Stack:
    """Contexts of one length as rows of a batch; a row that is closed is None."""

    def __init__(
        self,
        owner: StepContexts,
        rows: Sequence[int],
        feeds: dict[str, Any],
        adapters: list[Adapter | None],
        caches: Mapping[str, Any],
        length: int,
        tokens: Any,
    ) -> None:
        self.owner, self.feeds, self.adapters, self.length, self.tokens = owner, feeds, adapters, length, tokens
        self.rows: list[int | None] = list(rows)
        self.caches = {name: each for name, each in caches.items() if name not in owner._grown}
        self.grown = {name: _Rows(caches[name], owner._longest, owner._axes[name][1]) for name in owner._grown}

    def open(self) -> list[int]:
        return [row for row in self.rows if row is not None]

    def fed(self, ids: np.ndarray) -> dict[str, Any]:
        """What a call of these tokens is given besides them and the caches."""
        made = self.owner.adapters.inputs(self.adapters, [ids.shape[1]] * len(ids))
        if made:
            made[ADAPTER_MASK] = made[ADAPTER_MASK].reshape(*ids.shape, -1)
        return {**self.feeds, **made}

    def given(self) -> dict[str, Any]:
        """What a call takes."""
        return {**self.caches, **{name: rows.room for name, rows in self.grown.items()}}

    def put(self, made: Mapping[str, Any], count: int) -> None:
        """What a call has made of `count` tokens."""
        for name, each in made.items():
            if name in self.grown:
                self.grown[name].put(array_of(each))
            # Of an encoder's results a merged decoder makes a cache in the first call alone, and then gives it empty.
            elif not (self.owner.roles.switch and self.length and 0 in each.shape):
                self.caches[name] = each
        self.length += count

    def mark(self) -> tuple[int, Any, dict[str, Any]]:
        return self.length, self.tokens, dict(self.caches)

    def reset(self, mark: tuple[int, Any, dict[str, Any]]) -> None:
        self.length, self.tokens, self.caches = mark
        for rows in self.grown.values():
            rows.count = self.length

    def cut(self, length: int) -> None:
        if length < self.length:
            self.caches = {name: self._part(name, each, None, length) for name, each in self.caches.items()}
            self.reset((length, self.tokens[:, :length], self.caches))
            self.owner.restate(self)

    def picked(self, contexts: Sequence[int], numbers: Sequence[int], length: int, *, moved: bool = False) -> _Stack:
        """Copies of rows as a new stack; rows that are `moved` leave this one."""
        owner = self.owner
        if owner.batch not in (None, len(contexts)):
            raise ArgumentError(f"{owner._function} takes batches of {owner.batch}, whose texts go on together")
        places = [self.rows.index(context) for context in contexts]
        feeds = {name: array_of(each)[places] if name in owner._by_row else each for name, each in self.feeds.items()}
        caches = {name: self._part(name, each, places, length) for name, each in self.given().items()}
        adapters = [self.adapters[place] for place in places]
        stack = _Stack(owner, numbers, feeds, adapters, caches, length, self.tokens[places, :length])
        if length < self.length:
            owner.restate(stack)
        if moved:
            for place in places:
                self.rows[place] = None
        return stack

    def _part(self, name: str, cache: Any, places: Sequence[int] | None, length: int) -> np.ndarray:
        batch, axis = self.owner._axes[name]
        array = array_of(cache)
        if axis is not None and self.owner._is_of_text(name):
            array = array[(*[slice(None)] * axis, slice(length))]
        return np.ascontiguousarray(array if places is None else array.take(places, batch))

    def arrays(self) -> dict[str, np.ndarray]:
        """The caches, not copied, and the tokens if they are kept."""
        made = {name: array_of(each) for name, each in self.caches.items()}
        made |= {name: rows.room for name, rows in self.grown.items()}
        return made | ({self.owner.roles.ids: self.tokens} if self.owner._keeps_tokens else {})


class _Rows:
    """A cache with room behind its tokens."""

    def __init__(self, rows: np.ndarray, most: int, axis: int | None = None) -> None:
        self.room = rows
        self._axis = rows.shape.index(0) if axis is None else axis
        self.count, self._most = rows.shape[self._axis], most

    def put(self, rows: np.ndarray) -> None:
        """Puts rows after the existing ones. Where there is no room, twice as much is taken, but not more than the text can
        need."""
        count = self.count + rows.shape[self._axis]
        if count > self.room.shape[self._axis]:
            shape = list(rows.shape)
            shape[self._axis] = max(count, min(2 * count, self._most))
            room = np.zeros(shape, rows.dtype)
            room[self._places(0, self.count)] = self.room[self._places(0, self.count)]
            self.room = room
        self.room[self._places(self.count, count)] = rows
        self.count = count

    def _places(self, start: int, end: int) -> tuple[slice, ...]:
        return (*[slice(None)] * self._axis, slice(start, end))


def array_of(value: Any) -> np.ndarray:
    """A tensor of the machine's, or anything that NumPy takes, as an array."""
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)
