"""Sessions in files: what is written is read, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import treadle
from treadle.formats import session as files
from treadle.formats.container import layout
from treadle.formats.messages.errors import ChecksumError, FormatError, LimitError, TreadleError, VersionError
from treadle.formats.session import SavedSession
from treadle.tools.dev.fuzz.changes import mutate_bytes

CACHES = {"past.0": np.arange(24, dtype="f").reshape(1, 2, 3, 4), "past.1": np.zeros((1, 2, 3, 4), "f2")}
SESSION = SavedSession("0" * 64, "main", 3, (("top_k", 3),), 1 << 120, 7, 2, b"[]", np.array([3, 1, 4, 1]), CACHES)
DATA = b"".join(files.encode(SESSION))


def test_a_session_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = files.save(SESSION, tmp_path / "a.trses")
    found = files.load(path)
    assert found.digest == SESSION.digest
    assert (found.held, found.sampler, found.seed, found.drawn) == (3, (("top_k", 3),), 1 << 120, 7)
    assert found.tokens.tolist() == [3, 1, 4, 1]
    assert {n: (a.dtype, a.tolist()) for n, a in found.caches.items()} == {
        n: (a.dtype, a.tolist()) for n, a in CACHES.items()
    }


def test_in_a_folder_a_session_has_the_name_of_its_contents(tmp_path: Path) -> None:
    path = files.save(SESSION, tmp_path)
    assert path == tmp_path / f"{SESSION.digest}.trses" == files.save(SESSION, tmp_path)
    other = path.rename(tmp_path / f"{'0' * 64}.trses")
    with pytest.raises(ChecksumError, match=f"contents is {SESSION.digest}, expected {'0' * 64}"):
        files.load(other)


def test_whatever_is_changed_is_refused_by_name() -> None:
    random, tried = Random(1), 0
    changes = [DATA[:at] + bytes([DATA[at] ^ 1 << at % 8]) + DATA[at + 1 :] for at in range(len(DATA))]
    changes += [DATA[:at] for at in range(len(DATA))] + [DATA + b"\0", DATA + DATA]
    for changed in [*changes, *(mutate_bytes(random, DATA) for _ in range(2000))]:
        if changed != DATA:
            with pytest.raises(TreadleError):
                files.load(changed)
            tried += 1
    assert tried > 3000


def test_what_does_not_fit_together_is_refused() -> None:
    for wrong, message in (
        ({"held": 5}, "caches of 5 tokens, of 4"),
        ({"made": 5}, "a text of 5 tokens, of 4"),
        ({"tokens": np.array([-1]), "held": 0, "made": 0}, "none is below 0"),
        ({"program": "main"}, "SHA-256"),
        ({"seed": 1 << 600}, "at most 64"),
    ):
        with pytest.raises(FormatError, match=message):
            files.load(b"".join(files.encode(replace(SESSION, **wrong))))
    with pytest.raises(LimitError):
        files.encode(replace(SESSION, chat=bytes((1 << 26) + 1)))


def test_files_of_other_kinds_are_told_apart() -> None:
    with pytest.raises(VersionError, match=r"is a session; treadle\.text\.resume goes on with it"):
        treadle.load(DATA)
    program = b"".join(layout({"globals": [b"\0"], "code": []}, {"globals": True, "code": True}))
    with pytest.raises(VersionError, match=r"is an executable; treadle\.load takes it"):
        files.load(program)
