"""Executables in pickles: as a file's path and digest where they have one that is still the same, else as bytes."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import ChecksumError, FileError
from treadle.formats.program import NativeKernel
from treadle.formats.text.assembly import parse_assembly

LARGE = np.arange(4096, dtype=np.float32)
TEXT = 'meta "note" = "{note}"\nfunc @main(x: float32[4096]) -> float32[4096] {{\n  ret r0\n}}\n'


def made(note: str = "one", constants: tuple[np.ndarray, ...] = (LARGE,)) -> Executable:
    program = parse_assembly(TEXT.format(note=note))
    from dataclasses import replace

    return Executable(replace(program, constants=constants))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made().export_library(tmp_path / "model.trdl")
    return tmp_path / "model.trdl"


def copied(exe: Executable) -> Executable:
    return pickle.loads(pickle.dumps(exe))


def test_what_was_made_here_goes_as_bytes() -> None:
    data = pickle.dumps(made())
    assert len(data) > LARGE.nbytes
    assert pickle.loads(data).as_bytes() == made().as_bytes()


def test_what_was_loaded_goes_as_path_and_digest(path: Path) -> None:
    data = pickle.dumps(load(path))
    assert len(data) < 1000
    assert os.fsencode(path) in data
    assert pickle.loads(data).as_bytes() == path.read_bytes()


def test_a_path_may_be_relative_to_a_folder_that_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    exe = load(path.name)
    monkeypatch.chdir("/")
    assert os.fsencode(path) in pickle.dumps(exe)


def replaced(path: Path) -> None:
    made("two").export_library(path)


def written_over(path: Path) -> None:
    path.write_bytes(made("two").as_bytes())


@pytest.mark.parametrize("change", [replaced, written_over, Path.unlink])
def test_a_file_that_has_changed_is_not_named(path: Path, change: Callable[[Path], object]) -> None:
    exe = load(path, mapped=False)
    change(path)
    assert copied(exe).program.metadata["note"] == "one"


def test_a_file_that_changes_under_way_is_refused(path: Path) -> None:
    data = pickle.dumps(load(path))
    replaced(path)
    with pytest.raises(FileError, match="another file than the one"):
        pickle.loads(data)
    path.unlink()
    with pytest.raises(FileError, match="is not on this host"):
        pickle.loads(data)


def test_a_copy_of_the_file_in_its_place_is_the_same(path: Path) -> None:
    data, content = pickle.dumps(load(path)), path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    assert pickle.loads(data).as_bytes() == content


def test_unpickling_checks_as_loading_does() -> None:
    data = pickle.dumps(made())
    at = data.index(b"one")
    with pytest.raises(ChecksumError, match="damaged"):
        pickle.loads(data[:at] + b"two" + data[at + 3 :])


def test_a_variation_of_what_was_loaded_goes_as_bytes(path: Path) -> None:
    kernel = NativeKernel(b"code", (1,), 0, 0)
    native = load(path).with_native({"target": {"key": kernel}})
    assert copied(native).native == native.native


def test_whether_native_code_is_trusted_travels(path: Path) -> None:
    assert copied(load(path, trust_native=True)).trust_native
    assert copied(load(path.read_bytes(), trust_native=True)).trust_native
    assert not copied(load(path)).trust_native


def test_constants_in_another_file_are_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "constants"
    folder.mkdir()
    made().move_late_bound_consts(folder / "shared.constants").export_library(tmp_path / "model.trdl")
    exe = load(tmp_path / "model.trdl", constants=folder / "shared.constants")
    data = pickle.dumps(exe)
    assert len(data) < 1000
    np.testing.assert_array_equal(pickle.loads(data).constants[0], LARGE)
    (folder / "shared.constants").unlink()
    np.testing.assert_array_equal(copied(exe).constants[0], LARGE)


def test_constants_that_were_handed_over_travel(tmp_path: Path) -> None:
    made().with_named_constants({0: "weight"}).export_library(tmp_path / "model.trdl")
    exe = load(tmp_path / "model.trdl", constants={"weight": LARGE})
    np.testing.assert_array_equal(copied(exe).constants[0], LARGE)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_is_right(protocol: int, path: Path) -> None:
    for exe in (made(), load(path)):
        assert pickle.loads(pickle.dumps(exe, protocol)).as_bytes() == path.read_bytes()


def test_a_value_that_does_not_change_is_its_own_copy() -> None:
    exe = made()
    assert copy.copy(exe) is exe
    assert copy.deepcopy([exe])[0] is exe
