"""The file: nothing damaged is taken for whole, and a save leaves the old file or the new one."""

import dataclasses
import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.formats import container, limits, schema
from treadle.formats.container import Container, save
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import ChecksumError, FileError, FormatError, LimitError, VersionError
from treadle.formats.program import Program
from treadle.formats.types import TupleType, Type, tensor

from . import examples


def load_all(data: bytes) -> Executable:
    executable = load(data)
    executable.check_constants()
    return executable


def test_every_flipped_bit_is_noticed() -> None:
    data = examples.executable().as_bytes()
    load_all(data)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            load_all(bytes(damaged))


def test_every_truncation_is_noticed() -> None:
    data = examples.executable().as_bytes()
    for length in range(len(data)):
        with pytest.raises(FormatError, match="truncated"):
            load(data[:length])


def test_bytes_behind_the_end_are_noticed() -> None:
    with pytest.raises(FormatError, match="bytes behind its end"):
        load(examples.executable().as_bytes() + b"\0")


def test_another_kind_of_file_is_named() -> None:
    with pytest.raises(FormatError, match="not a Treadle file: it starts with b'\\\\x7fELF"):
        load(b"\x7fELF" + bytes(100))


def test_types_nest_as_deep_as_the_limit_says_in_what_is_written_and_read() -> None:
    type_: Type = tensor("float32", ())
    for _ in range(limits.TYPE_NESTING - 1):
        type_ = TupleType((type_,))
    program = examples.executable().program
    deepest = dataclasses.replace(program, types=(type_,))
    assert load(Executable(deepest).as_bytes()).program.types == (type_,)
    with pytest.raises(LimitError, match=f"nests deeper than {limits.TYPE_NESTING}"):
        Executable(dataclasses.replace(program, types=(TupleType((type_,)),))).as_bytes()


def test_a_newer_version_is_named() -> None:
    data = bytearray(examples.executable().as_bytes())
    data[8] += 1
    with pytest.raises(VersionError, match=r"format version 2; this Treadle reads version 1 .*upgrade"):
        load(bytes(data))


def with_sections(changes: dict[str, list], required: bool) -> bytes:
    """The example's file with sections added or replaced, checksums and all."""
    opened = Container(examples.executable().as_bytes(), frozenset(schema.BY_NAME))
    contents = {name: [view] for name, view in opened.contents.items()} | changes
    flags = {name: opened.entries[name].required if name in opened.entries else required for name in contents}
    return b"".join(container.layout(contents, flags))


def test_unknown_sections_are_skipped_unless_required() -> None:
    assert load(with_sections({"colours": [b"red"]}, required=False)).globals == ["main"]
    with pytest.raises(VersionError, match="'colours' that this Treadle does not know"):
        load(with_sections({"colours": [b"red"]}, required=True))


def test_missing_sections_are_named() -> None:
    contents = {"code": [b""], "globals": [b"\0"]}
    with pytest.raises(FormatError, match="no section 'constant_index', 'constants', 'primitives'"):
        load(b"".join(container.layout(contents, dict.fromkeys(contents, True))))


@pytest.mark.parametrize(
    ("section", "content", "message"),
    [
        ("globals", b"\xce\x00\x00\xff\xff", "a list of 65535 elements, but 0 bytes are left"),
        ("globals", b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "at most 100000 are allowed"),
        ("globals", b"\x01\xdb\xff\xff\xff\xff", "name: the section ends inside a value"),
        ("globals", b"\x01\xdb\x00\x01\x00\x01" + bytes(65537), "name: expected a scalar, found 65537 exceeds"),
        ("globals", b"\x01\xdd\xff\xff\xff\xff", "name: expected a scalar, found"),
        ("globals", b"\x01\x07", "name: expected a string, found 7"),
        ("globals", b"\x01\xa2\xff\xff", "not UTF-8"),
        ("globals", b"\x00\x00", "1 bytes follow the section's last value"),
        ("types", b"\x01\x09", "9 is not a kind of type; known are 1, 2, 3, 4"),
        ("types", b"\x01\x01\x63\x00", "dtype: 99: unknown element type code 99"),
        ("types", b"\x01\x01\x01\x01\xa3n+1", "not the canonical text .* 'n \\+ 1'"),
        ("types", b"\x01" + b"\x02\x01" * 200, f"nests deeper than {limits.TYPE_NESTING}"),
        ("code", b"\x01", "not a whole number of 64-bit words"),
        ("code", bytes(8), "the section has 1"),
        ("constants", b"", "take 64 bytes, but the section has 0"),
        ("source_map", b"\x00\x01\x00\x00\x00", "node 0 of 0 does not exist"),
        ("metadata", b"\x02\xa1b\xa0\xa1a\xa0", "not in order"),
    ],
)
def test_malformed_sections_are_named_errors(section: str, content: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        load(with_sections({section: [content]}, required=True))
    assert f"section '{section}'" in str(caught.value)


def test_a_section_longer_than_the_file_is_a_limit_error() -> None:
    index = container.INDEX.encode([("code", 1 << 62, 0, True)], "index")
    head = container.HEADER.pack(container.MAGIC, 1, len(index), 128, container.crc32([index]), 0)[:-4]
    forged = (head + container.crc32([head]).to_bytes(4, "little") + index).ljust(128, b"\0")
    with pytest.raises(LimitError, match="'code' has 4611686018427387904 bytes, but"):
        load(forged)


# ---- constants on the map ----


def test_constants_are_mapped_aligned_and_read_only(tmp_path: Path) -> None:
    path = tmp_path / "model.trdl"
    examples.executable().export_library(path)
    (array,) = load(path).constants
    assert array.ctypes.data % 64 == 0
    assert not array.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_constants_in_bytes_at_an_odd_address_are_aligned_too() -> None:
    data = examples.executable().as_bytes()
    for shift in range(8):
        view = memoryview(bytes(shift) + data)[shift:]
        assert load(view).constants[0].ctypes.data % 64 == 0


def test_damaged_constants_are_found_when_they_are_checked() -> None:
    data = bytearray(examples.executable().as_bytes())
    opened = Container(bytes(data), frozenset(schema.BY_NAME))
    data[opened.entries["constants"].offset + 60] = 1  # padding after the first constant
    executable = load(bytes(data))
    with pytest.raises(ChecksumError, match="section 'constants'"):
        executable.check_constants()


def test_a_pipe_can_be_loaded() -> None:
    read, write = os.pipe()
    os.write(write, examples.executable().as_bytes())
    os.close(write)
    assert load(f"/dev/fd/{read}").globals == ["main"]
    os.close(read)


# ---- saving ----


def test_equal_programs_have_equal_bytes() -> None:
    assert examples.executable().as_bytes() == examples.executable().as_bytes()


@pytest.mark.parametrize("size", [1, 100, 999, 1000, 1001, 5000])
def test_a_file_is_written_in_whole_blocks(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_BLOCK", 1000)
    pieces = [np.arange(size, dtype=np.uint8).data, b"", bytes(size // 2)]
    container.save(tmp_path / "file", [*pieces, *pieces])
    assert (tmp_path / "file").read_bytes() == b"".join([*pieces, *pieces])


def test_a_file_is_whole_before_it_is_synced_and_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, synced = os.fsync, []

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_size, (tmp_path / "file").exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    container.save(tmp_path / "file", [bytes(1000)])
    assert synced[0] == (1000, False)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.trdl"
    examples.executable().export_library(path)
    before = path.read_bytes()
    weights = (np.zeros(1 << 20),)
    large = Executable(Program((), weights, (), np.empty(0, np.int64), (), ()))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(OSError, match="while saving; what was there before is unchanged") as caught:
            large.export_library(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.trdl"]


def test_a_missing_folder_is_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere/model\.trdl' cannot be written: there is no folder"):
        examples.executable().export_library(tmp_path / "nowhere" / "model.trdl")


def test_ctrl_c_removes_the_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        examples.executable().export_library(tmp_path / "model.trdl")
    assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.trdl").symlink_to(tmp_path / "real.trdl")
    examples.executable().export_library(tmp_path / "link.trdl")
    assert (tmp_path / "link.trdl").is_symlink()
    assert load(tmp_path / "real.trdl").globals == ["main"]


SAVE_FOREVER = """
import sys
import numpy as np
from treadle.formats.executable import Executable
from treadle.formats.program import Program
versions = [
    Executable(Program((), (np.full(50_000, k, np.float32),), (), np.empty(0, np.int64), (), (), (), {"k": str(k)}))
    for k in range(2)
]
for k in range(1_000_000):
    versions[k % 2].export_library(sys.argv[1])
    if k == 0:
        print("saved once", flush=True)
"""


def test_a_killed_save_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "model.trdl"
    generator = np.random.default_rng(7)
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, str(path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(0.02 + 0.05 * generator.random())
            child.send_signal(signal.SIGKILL)
        executable = load(path)
        executable.check_constants()
        assert (executable.constants[0] == float(executable.program.metadata["k"])).all()


KILLED = """
import os, signal, sys
from treadle.formats import container
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
container.save(sys.argv[1], [bytes(5 << 20)])
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="the system gives every file a name")
def test_a_save_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "file")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == []


LEFT = """
import os, signal, sys
from treadle.formats import container
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
container.save(sys.argv[1], [b"left"])
"""


@pytest.mark.parametrize("has_nameless", [True, False])
def test_what_a_killed_save_leaves_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_nameless: bool
) -> None:
    if not has_nameless:
        monkeypatch.setattr(container, "_OPEN_FILES", str(tmp_path / "none"))
    path = tmp_path / "file"
    container.save(path, [b"1"])
    for _ in range(2):
        subprocess.run([sys.executable, "-c", LEFT, str(path)], check=False)
        assert sorted(os.listdir(tmp_path)) == [".file.tmp", "file"]
        assert path.read_bytes() == b"1"
    container.save(path, [b"2"])
    assert (os.listdir(tmp_path), path.read_bytes()) == (["file"], b"2")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_save_waits_for_no_pipe_under_the_temporary_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".file.tmp")
    container.save(tmp_path / "file", [b"1"])
    assert (sorted(os.listdir(tmp_path)), (tmp_path / "file").read_bytes()) == ([".file.tmp", "file"], b"1")


@pytest.mark.parametrize("has_nameless", [True, False])
def test_saves_of_one_file_at_once_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_nameless: bool
) -> None:
    if not has_nameless:
        monkeypatch.setattr(container, "_OPEN_FILES", str(tmp_path / "none"))
    replace, path = os.replace, tmp_path / "file"

    def replaced(*names: Any) -> None:
        monkeypatch.setattr(os, "replace", replace)
        container.save(path, [b"within"])
        assert path.read_bytes() == b"within"
        replace(*names)

    monkeypatch.setattr(os, "replace", replaced)
    container.save(path, [b"around"])
    assert (os.listdir(tmp_path), path.read_bytes()) == (["file"], b"around")


def test_a_file_is_written_where_every_file_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: names.extend(os.listdir(tmp_path)))
    container.save(tmp_path / "file", [b"1"])
    monkeypatch.setattr(container, "_OPEN_FILES", str(tmp_path / "none"))
    container.save(tmp_path / "file", [b"2"])
    assert (tmp_path / "file").read_bytes() == b"2"
    assert os.listdir(tmp_path) == ["file"]
    assert any(name.endswith(".tmp") for name in names)


def test_what_cannot_be_read_or_written_is_an_error_of_ours(tmp_path):
    """And still the built-in that it was."""
    for path, kind in ((tmp_path / "none.trdl", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(FileError, match="cannot be read") as caught:
            treadle.load(path)
        assert (caught.value.filename, isinstance(caught.value, FileNotFoundError)) == (
            str(path),
            kind is FileNotFoundError,
        )
    with pytest.raises(FileError, match="cannot be written") as caught:
        save(tmp_path / "no" / "folder.trdl", [b""])
    assert isinstance(caught.value, FileNotFoundError)


def test_a_file_is_written_where_no_thread_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    data = np.random.default_rng(1).bytes(5 << 20)
    container.save(tmp_path / "file", [data[:3], data[3:]])
    assert (tmp_path / "file").read_bytes() == data


def test_a_file_is_written_when_python_ends(tmp_path: Path) -> None:
    code = (
        "import atexit, sys; from treadle.formats import container; "
        "atexit.register(lambda: container.save(sys.argv[1], [bytes(5 << 20)]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=True)
    assert (tmp_path / "file").read_bytes() == bytes(5 << 20)
