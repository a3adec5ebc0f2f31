"""The cache runs nothing that others may have written, stays in its bounds, and cleans up."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from treadle.native import knobs, platform
from treadle.native.platform import ObjectCache

KEY = "ab" + "cd" * 31
posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system knows no owners and modes")


@pytest.fixture
def filled(tmp_path: Path) -> ObjectCache:
    """A cache with one blob."""
    made = ObjectCache(tmp_path / "cache")
    made.put(KEY, b"content")
    assert made.get(KEY) == b"content"
    return made


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a file another user's: who is not the administrator can only become someone else."""

    def change(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, 12345, 12345, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 12345)

    return change


def shelf(cache: ObjectCache) -> Path:
    assert cache.folder is not None
    return cache.folder / KEY[:2]


PLACES = {"root": lambda cache: cache.folder, "shelf": shelf, "file": lambda cache: shelf(cache) / KEY[2:]}


@posix
@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o777])
def test_folders_and_files_are_this_users_alone_whatever_the_umask(tmp_path, umask):
    folder = tmp_path / "cache"
    code = "import os, sys, pathlib\nfrom treadle.native.platform import ObjectCache\nos.umask(int(sys.argv[2]))\n"
    code += f"cache = ObjectCache(pathlib.Path(sys.argv[1]))\ncache.put({KEY!r}, b'content')\n"
    code += f"assert cache.get({KEY!r}) == b'content'"
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(folder), str(umask)], check=True)
    modes = {path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert modes == {KEY[:2]: 0o700, f"{KEY[:2]}/{KEY[2:]}": 0o600}


@posix
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_may_write_to_is_not_used(filled, place, mode):
    path = PLACES[place](filled)
    path.chmod(stat.S_IMODE(path.stat().st_mode) | mode)
    with pytest.warns(RuntimeWarning, match=r"others may write to .* chmod -R go-w"):
        assert filled.get(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert filled.get(KEY) is None  # it has been said


@posix
@pytest.mark.parametrize("place", PLACES)
def test_what_others_own_is_not_used(filled, place, give_away):
    give_away(PLACES[place](filled))
    with pytest.warns(RuntimeWarning, match=r"belongs to user .* set TREADLE_CACHE to one of your own"):
        assert filled.get(KEY) is None


@posix
@pytest.mark.parametrize("place", ["root", "shelf"])
def test_nothing_is_written_to_what_others_own(filled, place, give_away):
    give_away(PLACES[place](filled))
    before = sorted(filled.folder.rglob("*"))
    with pytest.warns(RuntimeWarning, match="belongs to user"):
        filled.put(KEY[:2] + "00" * 31, b"more")
    assert sorted(filled.folder.rglob("*")) == before
    assert filled.problem() if place == "root" else not filled.problem()


@posix
def test_a_file_of_another_is_replaced_in_a_folder_of_ones_own(filled):
    path = PLACES["file"](filled)
    path.chmod(0o666)
    with pytest.warns(RuntimeWarning):
        assert filled.get(KEY) is None
    filled.put(KEY, b"content")
    assert filled.get(KEY) == b"content"


@posix
@pytest.mark.parametrize("place", PLACES)
def test_links_are_not_followed(filled, tmp_path, place):
    path, moved = PLACES[place](filled), tmp_path / "moved"
    path.rename(moved)
    path.symlink_to(moved)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert filled.get(KEY) is None
    assert len(told) <= 1
    assert place != "root" or "symbolic link" in str(told[0].message)


@posix
def test_a_pipe_in_a_files_place_hangs_nobody(filled):
    path = PLACES["file"](filled)
    path.unlink()
    os.mkfifo(path)
    with pytest.warns(RuntimeWarning, match="not an ordinary file"):
        assert filled.get(KEY) is None


def test_a_blob_in_anothers_place_is_not_found(filled):
    os.rename(shelf(filled) / KEY[2:], shelf(filled) / ("00" * 31))
    assert filled.get(KEY[:2] + "00" * 31) is None


def blobs(count: int) -> list[str]:
    return [f"{number:02x}" * 32 for number in range(count)]


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    limit = 64 << 10
    cache = ObjectCache(tmp_path / "cache", limit)
    for age, key in enumerate(reversed(blobs(12)), 2):
        cache.put(key, bytes(4000))
        path = cache.folder / key[:2] / key[2:]
        os.utime(path, (time.time() - 7200 * age,) * 2)
    oldest, newest = blobs(12)[0], blobs(12)[-1]
    assert cache.get(oldest) is not None  # that is a use
    for number in range(100, 108):
        cache.put(f"{number:02x}" * 32, bytes(4000))
        assert sum(entry.size for entry in cache.entries()) <= limit
    assert cache.get(oldest) is not None
    assert cache.get(newest) is not None
    assert cache.get(blobs(12)[1]) is None


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path):
    cache = ObjectCache(tmp_path / "cache", 10_000)
    cache.put(KEY, bytes(10_001))
    assert cache.get(KEY) is None


def test_left_over_files_are_removed_and_young_ones_are_not(filled):
    old, young, other = (filled.folder / name for name in (".new-old", ".new-young", "README"))
    for path in (old, young, other, shelf(filled) / ".new-old"):
        path.write_bytes(b"half")
    for path in (old, other, shelf(filled) / ".new-old"):
        os.utime(path, (time.time() - 86400,) * 2)
    ObjectCache(filled.folder).put(KEY, b"content")  # the first in a process
    assert not old.exists()
    assert young.exists()
    filled.sweep()
    assert other.exists()
    assert not (shelf(filled) / ".new-old").exists()


def test_files_of_others_in_the_folder_are_not_evicted(tmp_path):
    (tmp_path / "ab").mkdir(mode=0o700)
    mine = [tmp_path / "thesis.tex", tmp_path / "ab" / "notes.txt"]
    for path in mine:
        path.write_bytes(bytes(100_000))
        os.utime(path, (0, 0))
    cache = ObjectCache(tmp_path, 20_000)
    for key in blobs(10):
        cache.put(key, bytes(8000))
    assert all(path.exists() for path in mine)


SHARE = """
    import sys, pathlib
    from treadle.native.platform import ObjectCache
    cache = ObjectCache(pathlib.Path(sys.argv[1]), 200_000)
    for turn in range(300):
        key = f"{(turn * 7 + int(sys.argv[2])) % 100:02x}" * 32
        found = cache.get(key)
        assert found is None or found == key.encode() * 50, key
        cache.put(key, key.encode() * 50)
"""


def test_processes_share_a_small_cache(tmp_path):
    def use(number: int) -> subprocess.CompletedProcess:
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(SHARE), str(tmp_path / "cache"), str(number)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(4) as pool:
        assert [done.stderr for done in pool.map(use, range(4))] == [""] * 4
    cache = ObjectCache(tmp_path / "cache", 200_000)
    assert sum(entry.size for entry in cache.entries()) <= 200_000 + 4 * 4096
    assert not list(cache.folder.rglob(".new-*"))


@pytest.mark.parametrize(("text", "size"), [("12", 12), ("3K", 3 << 10), ("500m", 500 << 20), ("2G", 2 << 30)])
def test_the_size_is_a_knob(text, size, monkeypatch, tmp_path):
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    monkeypatch.setenv("TREADLE_CACHE_SIZE", text)
    assert platform.cache().limit == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5G", "G", "3T"])
def test_nonsense_as_size_is_refused(text, monkeypatch):
    monkeypatch.setenv("TREADLE_CACHE_SIZE", text)
    with pytest.raises(Exception, match="TREADLE_CACHE_SIZE"):
        knobs.get("TREADLE_CACHE_SIZE")


def test_without_a_home_the_working_directory_is_not_one(monkeypatch, tmp_path):
    import platformdirs

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TREADLE_CACHE", raising=False)
    monkeypatch.setenv("TREADLE_CACHE_SIZE", "12345")  # made anew, and not remembered for other tests
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *args, **options: "~/.cache/treadle")
    with pytest.warns(RuntimeWarning, match="set TREADLE_CACHE"):
        assert platform.cache().folder is None


@posix
@pytest.mark.parametrize("error", [MemoryError, OSError])
def test_a_file_that_cannot_be_opened_leaves_no_descriptor(filled, monkeypatch, error):
    closed, close = [], os.close

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(os, "close", lambda descriptor: (closed.append(descriptor), close(descriptor)))
    monkeypatch.setattr("io.FileIO", fail)
    assert filled.get(KEY) is None
    assert len(closed) == 3  # the root, the shelf and the file
