"""Many texts of one decoder at once: treadle.Engine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.decode import prefixes
from treadle.decode.contexts import Appended
from treadle.decode.generation import generate
from treadle.decode.guesses import MOST, Guesses, Pays
from treadle.decode.paged_contexts import PagedContexts
from treadle.decode.sampling import Draws, Sampler, log_probabilities
from treadle.decode.step_contexts import StepContexts
from treadle.formats.messages.errors import ArgumentError, CacheFullError, CheckError

from .test_generation import PROMPT, WORDS, blind_decoder, decoder, runtime_decoder

PROMPTS = [PROMPT, PROMPT[:2], [7], [11, 2], [*range(20), 1, 1, 1]]


@pytest.fixture(scope="module")
def machine() -> treadle.VirtualMachine:
    return treadle.VirtualMachine(treadle.compile(decoder(), progress=False))


def ids(text: treadle.decode.running.Text) -> list[int]:
    return [token.id for token in text]


def alone(machine: treadle.VirtualMachine, prompt: Sequence[int], count: int = 12, **options: Any) -> list[int]:
    return list(generate(machine, prompt, max_new_tokens=count, **options))


@pytest.mark.parametrize("chunk", [1, 7, 512])
@pytest.mark.parametrize("make", [decoder, runtime_decoder, blind_decoder, lambda: decoder(with_cache=False)])
def test_texts_beside_one_another_are_the_same_as_alone(make: Callable[[], Any], chunk: int):
    machine = treadle.VirtualMachine(treadle.compile(make(), progress=False))
    engine = treadle.Engine(contexts=StepContexts(machine), chunk=chunk)
    texts = [engine.submit(prompt, max_new_tokens=12) for prompt in PROMPTS]
    assert [ids(text) for text in texts] == [alone(machine, prompt) for prompt in PROMPTS]
    assert [text.finish for text in texts] == ["length"] * len(texts)
    statistics = engine.statistics()
    assert (statistics["tokens"], statistics["running"], statistics["waiting"]) == (60, 0, 0)


def test_threads_share_the_steps(machine: treadle.VirtualMachine):
    engine, found = treadle.Engine(machine, chunk=5), dict[int, list[int]]()

    def read(number: int) -> None:
        found[number] = ids(engine.submit(PROMPTS[number % 5], max_new_tokens=12))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [alone(machine, prompt) for prompt in PROMPTS]
    assert [found[number] for number in range(10)] == expected * 2


def test_a_seed_does_not_depend_on_neighbours(machine: treadle.VirtualMachine):
    engine = treadle.Engine(machine)
    sampler = Sampler(1.5, seed=4)
    expected = alone(machine, PROMPT, sampler=sampler)
    texts = [engine.submit(prompt, max_new_tokens=12, sampler=sampler) for prompt in (PROMPT, [7], PROMPT)]
    assert [ids(texts[0]), ids(texts[2])] == [expected, expected]


def test_draws_go_on_from_text_to_text(machine: treadle.VirtualMachine):
    """And their state can be kept, which is how a session goes on elsewhere."""
    engine, sampler = treadle.Engine(machine), Sampler(1.5, seed=4)
    whole = ids(engine.submit(PROMPT, max_new_tokens=12, sampler=sampler))
    draws = sampler.draws()
    first = ids(engine.submit(PROMPT, max_new_tokens=5, sampler=draws))
    later = sampler.draws()
    later.random_state = draws.random_state
    assert first + ids(engine.submit(PROMPT + first, max_new_tokens=7, sampler=later)) == whole


def test_texts_with_one_beginning_compute_it_once(machine: treadle.VirtualMachine):
    engine, prompt = treadle.Engine(machine), [*range(20), *range(20)]
    texts = [engine.submit(prompt, max_new_tokens=6) for _ in range(3)]
    expected = alone(machine, prompt, 6)
    assert [ids(text) for text in texts] == [expected] * 3
    assert [text.cached_tokens for text in texts] == [0, 39, 39]
    further = engine.submit(prompt + expected + [3], max_new_tokens=6)
    assert ids(further) == alone(machine, prompt + expected + [3], 6)
    assert further.cached_tokens == 45
    branch = engine.submit([*prompt[:35], 2, 2], max_new_tokens=6)
    assert ids(branch) == alone(machine, [*prompt[:35], 2, 2], 6)
    assert branch.cached_tokens == 35
    assert engine.statistics()["cached_tokens"] == 39 + 39 + 45 + 35


def test_a_long_prompt_does_not_keep_others_waiting(machine: treadle.VirtualMachine):
    engine = treadle.Engine(contexts=StepContexts(machine), chunk=16)
    going = engine.submit(PROMPT, max_new_tokens=40)
    next(going)
    rng = np.random.default_rng(2)
    first, second = (engine.submit(rng.integers(0, WORDS, 55), max_new_tokens=1) for _ in range(2))
    short = engine.submit([7, 3], max_new_tokens=1)
    next(short)
    assert first._running.computed < 40
    made = len(going._running.ids)
    next(first)
    assert second._running.computed < 55  # who comes first is first
    assert len(going._running.ids) > made  # each step makes a token of texts that have their prompts


def test_a_full_cache_lets_go_of_what_nobody_uses_and_makes_the_last_wait(machine: treadle.VirtualMachine):
    engine = treadle.Engine(contexts=StepContexts(machine, tokens=60), chunk=16)
    prompts = [[*range(n, n + 18)] for n in range(5)]
    for _ in range(2):
        texts = [engine.submit(prompt, max_new_tokens=30) for prompt in prompts]
        assert [ids(text) for text in texts] == [alone(machine, prompt, 30) for prompt in prompts]
    with pytest.raises(CacheFullError, match="the prompt has 61 tokens; the cache holds 60"):
        engine.submit([1] * 61, max_new_tokens=1)
    text = engine.submit([1] * 50, max_new_tokens=13)
    with pytest.raises(CacheFullError):
        ids(text)
    assert text.finish == "error"
    assert ids(engine.submit([1] * 50, max_new_tokens=11)) == alone(machine, [1] * 50, 11)


def test_texts_end_by_their_owners_and_others_go_on(machine: treadle.VirtualMachine):
    engine, cancel = treadle.Engine(machine), treadle.CancelToken()
    cancelled = engine.submit(PROMPT, max_new_tokens=12)
    by_token = engine.submit([7], max_new_tokens=12, cancel=cancel)
    late = engine.submit([7, 7], max_new_tokens=12, max_seconds=0)
    left = engine.submit([7, 7, 7], max_new_tokens=12)
    other = engine.submit([11, 2], max_new_tokens=12)
    first = next(other)
    cancelled.cancel()
    cancel.cancel()
    del left
    assert [first.id, *ids(other)] == alone(machine, [11, 2])
    assert ids(cancelled) == alone(machine, PROMPT, 1)
    assert (cancelled.finish, by_token.finish, late.finish) == ("cancelled", "cancelled", "deadline")
    assert ids(late) == []
    assert engine.statistics()["running"] == 0
    engine.close()
    with pytest.raises(CheckError, match="closed"):
        engine.submit(PROMPT, max_new_tokens=1)


def test_an_error_ends_one_text_alone(machine: treadle.VirtualMachine):
    class Broken:
        def allowed(self) -> np.ndarray:
            raise ZeroDivisionError

        def take(self, token: int) -> None: ...

    engine = treadle.Engine(machine)
    texts = [
        engine.submit(PROMPT, max_new_tokens=12),
        engine.submit([1, 2, WORDS + 5], max_new_tokens=12),
        engine.submit([1, 2], max_new_tokens=12, mask=Broken()),
        engine.submit([3, 2], max_new_tokens=12, sampler=Sampler(0.0, logit_bias={WORDS: 1})),
    ]
    assert ids(texts[0]) == alone(machine, PROMPT)
    for text, error in zip(texts[1:], (treadle.TreadleError, ZeroDivisionError, ArgumentError), strict=True):
        with pytest.raises(error):
            ids(text)


def test_the_owner_may_choose_tokens(machine: treadle.VirtualMachine):
    engine = treadle.Engine(machine)
    text = engine.choose_by_hand(PROMPT, max_new_tokens=12)
    found = []
    while (logits := text.logits()) is not None:
        found.append(int(logits.argmax()))
        text.take(found[-1])
    assert found == alone(machine, PROMPT)
    assert text.finish == "length"
    with pytest.raises(ArgumentError, match="token: expected at most"):  # which would fail in the steps of all texts
        text.take(1 << 63)


class Even:
    """Every other token."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def allowed(self) -> np.ndarray:
        return np.arange(WORDS) % 2 == len(self.taken) % 2

    def take(self, token: int) -> None:
        self.taken.append(token)


def test_a_mask_says_which_tokens_may_come(machine: treadle.VirtualMachine):
    mask = Even()
    found = ids(treadle.Engine(machine).submit(PROMPT, max_new_tokens=12, mask=mask, sampler=Sampler(1.0, seed=1)))
    assert found == mask.taken
    assert [token % 2 for token in found] == [0, 1] * 6
    draws, logits = Sampler(0.0).draws(), np.array([0, 1, 2], "f")
    assert draws.choose(logits, [1, 1, 0]) == draws.choose(logits, np.array([1, 1, 0])) == 1  # type: ignore[arg-type]


def test_probabilities_of_tokens(machine: treadle.VirtualMachine):
    engine = treadle.Engine(machine)
    text = [*engine.submit(PROMPT, max_new_tokens=4, logprobs=3)]
    hand = engine.choose_by_hand(PROMPT, max_new_tokens=4)
    for token in text:
        logarithms = log_probabilities(hand.logits())
        hand.take(token.id)
        assert np.exp(logarithms).sum() == pytest.approx(1, abs=1e-5)
        assert token.top[0] == (token.id, token.logprob)
        assert [each for each, _ in token.top] == np.argsort(-logarithms)[:3].tolist()
        assert token.logprob == pytest.approx(float(logarithms.max()))


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (Sampler(0.0, repetition_penalty=2.0), [2.0, -2.0, 1.5, 3.5]),
        (Sampler(0.0, presence_penalty=1.0), [4.0, -1.0, 0.5, 3.5]),
        (Sampler(0.0, frequency_penalty=1.0), [4.0, -1.0, -0.5, 3.5]),
        (Sampler(0.0, logit_bias={3: -100.0}), [4.0, -1.0, 1.5, -96.5]),
    ],
    ids=["repetition", "presence", "frequency", "bias"],
)
def test_penalties_change_logits(sampler: Sampler, expected: list[float]):
    """Of a text [2, 2] behind a prompt [0, 1]."""
    draws, logits = sampler.draws([0, 1]), np.array([4.0, -1.0, 1.5, 3.5], "f")
    for _ in range(2):
        draws.take(2)
    changed = draws._changed(logits, None)
    if sampler.repetition_penalty != 1:
        expected = [2.0, -2.0, 0.75, 3.5]
    np.testing.assert_allclose(changed, expected)


@pytest.mark.parametrize(
    "sampler", [Sampler(1.0), Sampler(0.7, top_p=0.9), Sampler(2.0, top_p=0.97), Sampler(2.0, min_p=0.1)]
)
@pytest.mark.parametrize("spread", [1.0, 5.0])
def test_tokens_of_large_vocabularies_have_their_probabilities(sampler: Sampler, spread: float):
    """Whether a few are enough or all must be looked at; some are equally likely."""
    logits = (np.random.default_rng(0).standard_normal(3000) * spread).round(1).astype("f")
    order = np.argsort(-logits, kind="stable")
    weights = np.exp((logits[order].astype(float) - logits.max()) / sampler.temperature)
    weights = weights[weights >= sampler.min_p]
    sums = np.cumsum(weights / weights.sum())
    weights = weights[: np.searchsorted(sums, sampler.top_p) + 1]
    expected = np.zeros(3000)
    expected[order[: len(weights)]] = weights / weights.sum()
    draws, count = sampler.draws(), 4000
    drawn = [draws._drawn(logits, int(order[0]), (number + 0.5) / count) for number in range(count)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=3000), expected * count, atol=1.01)


def test_logits_that_choose_nothing_are_an_error():
    draws = Draws(Sampler(1.0, seed=0))
    for logits, message in (([np.nan, 1.0], "not a number"), ([-np.inf] * 2, "no token is allowed")):
        with pytest.raises(CheckError, match=message):
            draws.choose(np.array(logits, "f"))
    with pytest.raises(CheckError, match="no token is allowed"):
        draws.choose(np.zeros(3, "f"), np.zeros(3, bool))
    assert draws.choose(np.zeros(4, "f"), np.array([False, True])) == 1


@pytest.mark.parametrize("make", [decoder, runtime_decoder, blind_decoder, lambda: decoder(with_cache=False)])
def test_contexts_are_forked_shortened_and_saved(make: Callable[[], Any]):
    contexts = StepContexts(treadle.VirtualMachine(treadle.compile(make(), progress=False)))

    def append(context: int, *tokens: int, logits: int = 1) -> np.ndarray:
        return contexts.append([Appended(context, np.array(tokens), logits)])[0]

    a = contexts.open()
    expected = append(a, 1, 2, 3, 4, logits=3)
    b = contexts.fork(a, 2)
    np.testing.assert_array_equal(append(b, 3), expected[1:2])
    contexts.shorten(a, 3)
    np.testing.assert_array_equal(append(a, 4), expected[2:])
    c = contexts.restored(contexts.saved(b), 3)
    np.testing.assert_array_equal(append(c, 4), expected[2:])
    assert [contexts.length(each) for each in (a, b, c)] == [4, 3, 4]
    with pytest.raises(ArgumentError, match=r"restored: .* of 2 tokens: expected"):
        contexts.restored(contexts.saved(b), 2)
    with pytest.raises(CheckError, match="has 3 tokens, not 4"):
        contexts.fork(b, 4)
    room = contexts.room()
    contexts.close(a)
    assert contexts.room() == room + 4
    with pytest.raises(CheckError, match=f"no context {a}"):
        contexts.length(a)


def test_a_call_that_fails_appends_nothing(machine: treadle.VirtualMachine):
    contexts = StepContexts(machine)
    a, b = contexts.open(), contexts.open()
    expected = contexts.append([Appended(a, np.array([1, 2])), Appended(b, np.array([1, 2]))])[0]
    contexts.shorten(a, 1)
    with pytest.raises(treadle.TreadleError):
        contexts.append([Appended(a, np.array([2, 3, 4])), Appended(b, np.array([WORDS + 5]))])
    assert (contexts.length(a), contexts.length(b)) == (1, 2)
    np.testing.assert_array_equal(contexts.append([Appended(a, np.array([2]))])[0], expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": []}, "ids: expected token ids, at least one"),
        ({"ids": [[1]]}, "ids: expected token ids"),
        ({"ids": "hello"}, "ids: expected token ids"),
        ({"ids": np.array([1, 2**64 - 1], np.uint64)}, "ids: expected token ids"),
        ({"salt": "salt"}, "salt: expected bytes, got a str"),
        ({"max_new_tokens": -1}, "max_new_tokens: expected a whole number"),
        ({"sampler": "greedy"}, "sampler: expected a treadle.Sampler, got a str"),
        ({"stop": [[]]}, "an empty sequence"),
        ({"max_seconds": -1}, "max_seconds: expected"),
        ({"logprobs": -1}, "logprobs: expected"),
        ({"cancel": 3}, "cancel: expected a treadle.CancelToken"),
        ({"mask": 3}, "mask: expected"),
    ],
)
def test_what_is_wrong_is_said_at_once(machine: treadle.VirtualMachine, change: dict[str, Any], message: str):
    with pytest.raises(ArgumentError, match=message):
        treadle.Engine(machine).submit(**({"ids": PROMPT, "max_new_tokens": 3} | change))


def test_what_is_no_engine_is_said_at_once(machine: treadle.VirtualMachine):
    with pytest.raises(treadle.TreadleError, match="there is no function 3"):
        treadle.Engine(machine, 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="contexts: expected contexts of a decoder, got an int"):
        treadle.Engine(contexts=3)  # type: ignore[arg-type]


def test_a_text_may_take_any_time(machine: treadle.VirtualMachine):
    engine = treadle.Engine(machine)
    for seconds in (10**400, np.inf):
        text = engine.submit(PROMPT, max_new_tokens=12, max_seconds=seconds)
        engine._stepping = -1  # another thread's step, which the text waits for
        ending = threading.Timer(0.01, text.cancel)
        ending.start()
        assert (next(text, None), text.finish) == (None, "cancelled")
        engine._stepping = 0


@pytest.mark.parametrize(
    "sampler", [None, Sampler(0.4, seed=1, repetition_penalty=1.1)], ids=["likeliest", "by chance"]
)
@pytest.mark.parametrize("make", [decoder, blind_decoder])
def test_guesses_change_no_token(make: Callable[[], Any], sampler: Sampler | None, monkeypatch: pytest.MonkeyPatch):
    machine = treadle.VirtualMachine(treadle.compile(make(), progress=False))
    prompts = [[1, 2, 3] * 8, [4, 5] * 4, PROMPT]
    expected = [alone(machine, prompt, 25, sampler=sampler) for prompt in prompts]
    monkeypatch.setattr(StepContexts, "verifies", True, raising=False)
    monkeypatch.setattr(Pays, "count", lambda *_: 4)
    engine = treadle.Engine(machine, chunk=16)
    engine._contexts.verifies = True
    texts = [engine.submit(prompt, max_new_tokens=25, sampler=sampler) for prompt in prompts]
    assert [ids(text) for text in texts] == expected
    statistics = engine.statistics()
    assert 0 < statistics["accepted"] < statistics["drafted"]
    assert statistics["tokens"] == 75


def test_guesses_are_made_where_they_pay():
    text = [1, 2, 3, 4, 5, 1, 2]
    guesses = Guesses(text)
    for token in (3, 4, 5, 9, 7):
        text.append(token)
        guesses.take()
        if token == 4:
            assert guesses.next(2) == [5, 1]
            assert guesses.next(7) == [5, 1, 2, 3, 4, 5, 1]
    assert guesses.next(4) == []
    assert 0 < guesses.right < 0.5
    pays = Pays()
    pays.saw(0.010, 0)
    assert pays.count(0.9, 1) == MOST
    for _ in range(40):
        pays.saw(0.010 + 4 * 0.005, 4)
    assert pays.count(0.9, 1) == 6  # 0.9⁶ of a call of 10 ms is more than 5 ms
    assert pays.count(0.4, 1) == pays.count(0.9, 2) == 0


def test_mixes_of_texts_change_no_token(monkeypatch: pytest.MonkeyPatch):
    """`python -m treadle.tools.dev.fuzz.mixes` tries more of them, and decoders of several builders."""
    pytest.importorskip("onnx")
    from treadle.tools.dev.fuzz import mixes

    monkeypatch.setattr(mixes, "BUILDERS", mixes.BUILDERS[:1])
    assert [mixes.try_mix(Random(f"0 {number}")) for number in range(25)] == ["same tokens"] * 25


def test_beams_are_the_best_texts(machine: treadle.VirtualMachine):
    engine, length = treadle.Engine(machine), 3

    def logarithms(text: list[int]) -> np.ndarray:
        return log_probabilities(engine.choose_by_hand(PROMPT + text, max_new_tokens=1).logits())

    found = engine.beams(PROMPT, max_new_tokens=length, count=40)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    totals = [sum(float(logarithms(each.tokens[:n])[each.tokens[n]]) for n in range(length)) for each in found[:3]]
    np.testing.assert_allclose([each.score * length for each in found[:3]], totals, rtol=1e-5)
    likely = alone(machine, PROMPT, length)
    assert found[0].score * length >= sum(float(logarithms(likely[:n])[likely[n]]) for n in range(length)) - 1e-5
    assert engine.beams(PROMPT, max_new_tokens=length, count=1)[0].tokens == likely
    stopped = engine.beams(PROMPT, max_new_tokens=length, count=2, stop=[likely[0]])
    assert any(each.tokens == likely[:1] for each in stopped)
    with pytest.raises(ArgumentError, match="count: expected a whole number from 1 on, got 0"):
        engine.beams(PROMPT, max_new_tokens=length, count=0)
    for penalty in ("1", np.nan, 1e9, -1e9):
        with pytest.raises(ArgumentError, match="length_penalty: expected a number from -16 to 16"):
            engine.beams(PROMPT, max_new_tokens=length, length_penalty=penalty)
    assert engine.statistics()["running"] == engine.statistics()["waiting"] == 0


@pytest.mark.parametrize("kind", [StepContexts, PagedContexts])
def test_threads_mix_texts(kind: Any):
    pytest.importorskip("onnx")
    from treadle.tools.dev.fuzz import mixes

    contexts = kind(mixes.machine(), tokens=300)
    room, engine, said = contexts.room(), treadle.Engine(contexts=contexts, chunk=24), list[str]()

    def read(seed: int) -> None:
        random = Random(seed)
        for _ in range(8):
            reading = mixes.Reading(engine, random, random.choice(mixes.BEGINNINGS))
            said.append(next(filter(None, (reading.go_on(random) for _ in range(100)))))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["over"] * 64
    engine.close()
    assert contexts.room() == room


def test_what_is_kept_is_bounded_and_goes_in_order_of_use(
    machine: treadle.VirtualMachine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(prefixes, "MOST", 3)
    engine = treadle.Engine(contexts=StepContexts(machine))

    def known(first: int) -> int:
        text = engine.submit([first, *range(20)], max_new_tokens=1)
        ids(text)
        return text.cached_tokens

    assert [known(first) for first in (0, 1, 2)] == [0, 0, 0]
    assert known(0) == 20
    assert known(3) == 0
    assert [known(first) for first in (0, 2, 1)] == [20, 20, 0]
    assert engine._contexts.room() == engine._capacity - 3 * 21


# ---- enemies ----


class _Mask:
    """Does something with the third token."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act, self.tokens = act, 0

    def allowed(self) -> Any:
        return self.act() if self.tokens == 2 else None

    def take(self, token: int) -> None:
        self.tokens += 1


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("act", "kind", "message"),
    [
        (lambda engine: _raise(StopIteration()), CheckError, "the mask raises StopIteration"),
        (lambda engine: _raise(SystemExit(3)), SystemExit, "3"),
        (lambda engine: np.ones((2, WORDS), bool), ArgumentError, "mask: expected bool"),
        (lambda engine: object(), ArgumentError, "mask: expected bool"),
        (lambda engine: next(engine.submit([1], max_new_tokens=1)), CheckError, "asks the engine that waits for it"),
        (lambda engine: engine.close(), CheckError, "asks the engine that waits for it"),
    ],
)
def test_a_mask_harms_its_own_text_alone(
    machine: treadle.VirtualMachine, act: Callable[[Any], Any], kind: Any, message: str
):
    engine = treadle.Engine(machine)
    wrong = engine.submit(PROMPT, max_new_tokens=12, mask=_Mask(lambda: act(engine)))
    right = engine.submit(PROMPTS[1], max_new_tokens=2)
    assert ids(right) == alone(machine, PROMPTS[1], 2)
    with pytest.raises(kind, match=message):
        ids(wrong)
    assert wrong.finish in ("error", "cancelled")


def test_threads_may_read_one_text(machine: treadle.VirtualMachine):
    engine, expected = treadle.Engine(machine), sorted(alone(machine, PROMPT))
    for _ in range(20):
        text, found = engine.submit(PROMPT, max_new_tokens=12), list[int]()
        threads = [threading.Thread(target=lambda text=text, found=found: found.extend(ids(text))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_process_is_forked_between_two_steps(machine: treadle.VirtualMachine):
    """While threads are at work. The child goes on with what was begun, and begins other texts."""
    engine, over, sampler = treadle.Engine(machine), threading.Event(), Sampler(1.5, seed=4)

    def work() -> None:
        while not over.is_set():
            ids(engine.submit(PROMPT, max_new_tokens=12))

    threads = [threading.Thread(target=work) for _ in range(3)]
    begun = engine.submit(PROMPT, max_new_tokens=12, sampler=sampler)
    first, expected = next(begun).id, alone(machine, PROMPT, sampler=sampler)
    other = alone(machine, PROMPTS[1])
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            child = os.fork()
            if not child:
                signal.alarm(60)
                is_right = [first, *ids(begun)] == expected and ids(
                    engine.submit(PROMPTS[1], max_new_tokens=12)
                ) == other
                os._exit(0 if is_right else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert [first, *ids(begun)] == expected


def test_ctrl_c_loses_no_token_and_changes_none(machine: treadle.VirtualMachine):
    """At the beginning of any function of the decoder's."""
    sampler = Sampler(1.5, seed=4, repetition_penalty=1.2)
    expected = alone(machine, PROMPT, 4, sampler=sampler)
    folder, is_early = os.path.dirname(prefixes.__file__), True
    count = 0
    while is_early:
        engine = treadle.Engine(machine)
        session, left, found = engine.session(PROMPT, sampler), count, list[int]()
        text = session.generate(4)

        def interrupt(frame: Any, event: str, _: Any) -> None:
            nonlocal left
            if event == "call" and os.path.dirname(frame.f_code.co_filename) == folder:
                left -= 1
                if left < 0:
                    sys.setprofile(None)
                    signal.raise_signal(signal.SIGINT)

        sys.setprofile(interrupt)
        try:
            found += ids(text)  # the list is lost where it is interrupted
        except KeyboardInterrupt:
            found += ids(text)
        finally:
            sys.setprofile(None)
        assert session.tokens.tolist() == [*PROMPT, *expected]
        assert found == expected[4 - len(found) :]
        is_early, count = left < 0, count + 3
    assert count > 60
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
