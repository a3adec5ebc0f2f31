"""Which files are read, and how: what a file names is a regular file, and what others can write is copied."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import FileError, FormatError, TreadleError
from treadle.formats.program import Program
from treadle.native import processes

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links, pipes and modes are POSIX's")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An executable whose constants are in a file beside it, weights.trdc."""
    weights = np.full(100_000, 3, np.float32)
    executable = Executable(Program((), (weights,), (), np.empty(0, np.int64), (), ()))
    executable.move_late_bound_consts(tmp_path / "weights.trdc").export_library(tmp_path / "model.trdl")
    return tmp_path / "model.trdl"


def make_link(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_link_to_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def make_socket(path: Path) -> None:
    path.unlink()
    here = Path.cwd()
    os.chdir(path.parent)  # the names of sockets are short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


def make_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nothing"))


@pytest.mark.parametrize("make", [make_link, make_pipe, make_link_to_device, make_socket, make_dangling_link])
@pytest.mark.parametrize("is_given", [False, True])
def test_constants_are_read_from_regular_files_alone(model: Path, make, is_given: bool) -> None:
    weights = model.with_name("weights.trdc")
    make(weights)
    with pytest.raises(FormatError, match="is not a regular file"):
        load(model, constants=weights if is_given else None)


def test_nor_from_a_device(model: Path) -> None:
    with pytest.raises(FormatError, match="is not a regular file"):
        load(model, constants="/dev/zero")


TRUNCATE = """
import os, sys
from treadle.formats.executable import load
executable = load(sys.argv[1])
for name in ("weights.trdc", "model.trdl"):
    os.truncate(os.path.join(os.path.dirname(sys.argv[1]), name), 0)
print(executable.constants[0].sum())
"""


@pytest.mark.parametrize("who", [0o002, 0o022])
def test_who_may_write_a_file_cannot_end_the_process_that_has_loaded_it(model: Path, who: int) -> None:
    for name in ("weights.trdc", "model.trdl"):
        os.chmod(model.with_name(name), 0o644 | who)
    done = processes.run(TRUNCATE, model, stdout=processes.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "300000.0\n")


def test_a_file_that_only_its_user_can_write_is_mapped(model: Path) -> None:
    weights = model.with_name("weights.trdc")
    weights.chmod(0o644)
    array = load(model).constants[0]
    assert not array.flags.owndata
    assert str(weights) in Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else True
    weights.chmod(0o666)
    assert np.array_equal(load(model).constants[0], array)


# ---- what its user names ----


def read_model(path: str) -> None:
    treadle.compile(path, progress=False)


@pytest.mark.parametrize("read", [load, read_model])
def test_a_device_is_refused_since_it_may_never_end(read: Callable) -> None:
    with pytest.raises(FormatError, match="is a device, which may never end"):
        read("/dev/zero")


@pytest.mark.parametrize("read", [load, read_model])
def test_a_pipe_that_nobody_writes_to_is_empty(read: Callable, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TreadleError):
        read(str(tmp_path / "pipe"))


EMPTY = Executable(Program((), (), (), np.empty(0, np.int64), (), ()))


@pytest.mark.parametrize("use", [load, read_model, EMPTY.export_library])
def test_a_path_with_a_zero_byte_is_an_error_of_ours(use: Callable) -> None:
    with pytest.raises(FileError, match="zero byte"):
        use("a\0b")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_files_are_written_over(make: Callable, tmp_path: Path) -> None:
    """A rename would put a file in the place of a pipe or a device."""
    there = tmp_path / "there"
    make(there)
    kind = there.stat().st_mode
    (tmp_path / "link").symlink_to(there)
    for path in (there, tmp_path / "link"):
        with pytest.raises(FileError, match="a folder, a pipe or a device"):
            EMPTY.export_library(path)
    assert there.stat().st_mode == kind
