"""Sessions are values: forked, saved and resumed elsewhere, they go on with the tokens that they would have had."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.decode.sampling import Sampler
from treadle.decode.session import TokenSession, resumed
from treadle.formats import session as files
from treadle.formats.messages.errors import ArgumentError, FormatError
from treadle.native import processes

from .test_generation import PROMPT, decoder, runtime_decoder

SAMPLERS = (
    None,
    Sampler(1.2, seed=3),
    Sampler(0.9, top_p=0.9, top_k=12, min_p=0.01, seed=1 << 100, logit_bias={3: 0.5, 7: -1.0}),
    Sampler(1.0, presence_penalty=0.5, frequency_penalty=0.2, repetition_penalty=1.2),
)


@pytest.fixture(scope="module")
def executable() -> treadle.Executable:
    return treadle.compile(decoder(), progress=False)


@pytest.fixture(scope="module")
def engine(executable: treadle.Executable) -> treadle.Engine:
    return treadle.Engine(executable)


def ids(text: Iterable[Any]) -> list[int]:
    return [token.id for token in text]


def saved(session: TokenSession) -> bytes:
    return b"".join(files.encode(session.saved()))


@given(
    st.sampled_from(SAMPLERS), st.lists(st.tuples(st.sampled_from("gpfsr"), st.integers(1, 9)), min_size=1, max_size=5)
)
@settings(max_examples=40)
def test_a_session_in_pieces_is_the_session_as_a_whole(executable: Any, engine: Any, sampler: Any, pieces: Any):
    """Generated further (g), partly (p), forked (f), saved and read by the engine (s) or a new one (r)."""
    session = engine.session(PROMPT, sampler)
    whole = session.fork()
    for what, count in pieces:
        if what == "g":
            ids(session.generate(count))
        elif what == "p":
            text = session.generate(2 * count)
            [next(text) for _ in range(count)]
        elif what == "f":
            session = session.fork()
        else:
            session = (engine if what == "s" else treadle.Engine(executable)).resume(saved(session))
    ids(session.generate(5))
    ids(whole.generate(len(session) - len(whole)))
    assert session.tokens.tolist() == whole.tokens.tolist()


RESUMED = """
import json, sys, treadle
engine = treadle.Engine(treadle.load(sys.argv[1]))
session = engine.resume(sys.argv[2])
text = session.generate(20)
print(json.dumps([[token.id for token in text], text.cached_tokens, text.prompt_tokens]))
"""


def test_another_process_goes_on_with_identical_tokens(executable: treadle.Executable, tmp_path: Path):
    executable.export_library(tmp_path / "decoder.trdl")
    session = treadle.Engine(executable).session(PROMPT, SAMPLERS[3])
    ids(session.generate(20))
    path = session.save(tmp_path)
    found = processes.run(RESUMED, tmp_path / "decoder.trdl", path, capture_output=True, text=True, timeout=100)
    assert json.loads(found.stdout or found.stderr) == [ids(session.generate(20)), 24, 25]


def test_caches_of_8_bits_are_saved_and_read(tmp_path: Path):
    executable = treadle.compile(runtime_decoder(), progress=False, cache_dtype="uint8")
    session = treadle.Engine(executable).session(PROMPT, SAMPLERS[1])
    ids(session.generate(40))
    kept = files.load(path := session.save(tmp_path))
    assert {(each.dtype.name, each.shape[-1]) for each in kept.caches.values()} == {("uint8", 16 + 8)}
    again = treadle.Engine(executable).resume(path)
    text = again.generate(20)
    assert ids(text) == ids(session.generate(20))
    assert text.cached_tokens == kept.held > 32


def test_equal_sessions_have_one_name(engine: treadle.Engine, tmp_path: Path):
    session = engine.session(PROMPT, SAMPLERS[1])
    ids(session.generate(20))
    assert session.save(tmp_path) == session.fork().save(tmp_path)
    assert session.save(tmp_path) != session.fork(Sampler(1.2, seed=4)).save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_session_of_another_model_is_refused_by_name(executable: treadle.Executable, engine: treadle.Engine):
    data = saved(engine.session(PROMPT))
    constants = tuple(np.zeros_like(each) for each in executable.program.constants)
    for other in (treadle.compile(decoder(with_cache=False), progress=False), executable.program):
        if not isinstance(other, treadle.Executable):
            other = treadle.Executable(replace(other, constants=constants))
        with pytest.raises(
            ArgumentError, match="the session is a session of another model: of function 'main' of program"
        ):
            treadle.Engine(other).resume(data)
    noted = executable.with_metadata({"note": "the same program"}).with_native({})
    assert treadle.Engine(noted).resume(data).tokens.tolist() == PROMPT


def test_caches_of_a_file_are_nobody_elses(executable: treadle.Executable, engine: treadle.Engine):
    """Its writer may have made them of other tokens."""
    session = engine.session([1, 2, 3] * 9)
    ids(session.generate(5))
    found = session.saved()
    wrong = replace(found, caches={name: array[..., ::-1].copy() for name, array in found.caches.items()})
    fresh = treadle.Engine(executable)
    enemy = resumed(wrong, fresh, "the session")
    assert ids(enemy.generate(20)) != ids(session.fork().generate(20))
    assert ids(fresh.session(session.tokens).generate(20)) == ids(session.generate(20))


def test_caches_that_have_no_room_are_computed_again(executable: treadle.Executable, engine: treadle.Engine):
    session = engine.session(PROMPT)
    ids(session.generate(25))
    small = treadle.Engine(executable, cache_tokens=40)
    busy = small.submit(PROMPT, max_new_tokens=8)
    next(busy)
    again = small.resume(saved(session))
    ids(busy)
    assert ids(again.generate(5)) == ids(session.generate(5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampler": (("heat", 1.0),)}, "heat"),
        ({"sampler": (("temperature", -1.0),)}, "temperature: expected a number from 0 on, got -1.0"),
        ({"sampler": (("logit_bias", 3),)}, "int"),
        ({"caches": {}}, r"restored: 'past_key_values.0.key' of \d+ tokens: expected"),
        ({"held": 28}, "of 28 tokens: expected"),
    ],
)
def test_what_does_not_fit_the_engine_is_refused_by_name(engine: treadle.Engine, change: dict[str, Any], message: str):
    session = engine.session(PROMPT)
    ids(session.generate(25))
    with pytest.raises(FormatError, match=message):
        resumed(replace(session.saved(), **change), engine, "the session")


def test_what_a_session_takes(engine: treadle.Engine):
    session = engine.session()
    for wrong in ([-1], ["a"], [[1]], [1.5], 5, None):
        with pytest.raises(ArgumentError, match="expected token ids"):
            session.append(wrong)
    with pytest.raises(ArgumentError, match="at least one"):
        session.generate(5)
    with pytest.raises(ArgumentError, match="whose state can be saved, got"):
        engine.session(PROMPT, lambda logits: logits.argmax(-1))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="contexts in place of a machine"):
        treadle.Engine(contexts=engine._contexts).session(PROMPT).save("nowhere")
    assert repr(engine.session(PROMPT)) == "<TokenSession: 5 tokens>"
    assert type(engine.session(PROMPT, Sampler(seed=np.int64(3))).saved().seed) is int  # type: ignore[arg-type]


def test_a_text_belongs_to_the_tokens_that_it_was_begun_behind(engine: treadle.Engine):
    session = engine.session(PROMPT)
    text = session.generate(20)
    first = next(text).id
    session.append([7])
    with pytest.raises(ArgumentError, match="other tokens by now"):
        next(text)
    assert session.tokens.tolist() == [*PROMPT, first, 7]
    session.shorten(2)
    assert session.tokens.tolist() == PROMPT[:2]
    with pytest.raises(ArgumentError, match="from 0 to 2, got 3"):
        session.shorten(3)


def test_sessions_are_saved_while_others_go_on(engine: treadle.Engine, tmp_path: Path):
    """A thread that makes one token after the other keeps nobody from it."""
    session, is_over = engine.session(PROMPT), threading.Event()
    ids(session.generate(20))

    def go_on() -> None:
        while not is_over.is_set():
            ids(engine.session(PROMPT).generate(40))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        held = [engine.resume(session.save(tmp_path / "a.trses")).generate(1).cached_tokens for _ in range(20)]
    finally:
        is_over.set()
        thread.join()
    assert len(held) == 20


def test_forks_that_go_on_at_once_share_what_is_known(executable: treadle.Executable):
    session = treadle.Engine(executable).session(PROMPT)
    ids(session.generate(25))
    texts = [each.generate(3) for each in (session, session.fork(), session.fork())]
    assert len({tuple(ids(text)) for text in texts}) == 1
    assert [text.cached_tokens for text in texts] == [29, 29, 29]
