"""Parameters in files of three kinds, both ways; damaged ones are refused by name, before they cost memory."""

import contextlib
import os
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from random import Random

import numpy as np
import pytest
import treadle
from treadle.formats.messages.errors import FileError, FormatError, LimitError
from treadle.formats.parameter_files import load_params, save_params
from treadle.tools.dev.fuzz.changes import mutate_bytes

PARAMS = {
    "file": np.arange(6, dtype=np.float32).reshape(2, 3),
    "layer.0/weight": np.array(-3),
    "empty": np.zeros((0, 4), np.float16),
    "mask": np.array([True, False]),
}
SUFFIXES = [".params", ".npz", ".safetensors"]


def path_of(folder: Path, suffix: str) -> Path:
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    return folder / f"weights{suffix}"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_saved_is_loaded(suffix: str, tmp_path: Path) -> None:
    path = path_of(tmp_path, suffix)
    save_params(PARAMS, path)
    loaded = load_params(path)
    assert loaded.keys() == PARAMS.keys()
    for name, array in PARAMS.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(loaded[name], array)
    first = path.read_bytes()
    save_params(loaded, path)
    assert path.read_bytes() == first


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_strides_and_byte_orders_are_the_files(suffix: str, tmp_path: Path) -> None:
    path, array = path_of(tmp_path, suffix), np.arange(12, dtype=">i4").reshape(3, 4).T[::2]
    save_params({"x": array}, path)
    np.testing.assert_array_equal(load_params(path)["x"], array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_numpys_own_files_are_read_and_ours_by_numpy(save, tmp_path: Path) -> None:
    save(tmp_path / "theirs.npz", x=np.asfortranarray(np.arange(6.0).reshape(2, 3)), y=np.zeros(10_000))
    loaded = load_params(tmp_path / "theirs.npz")
    np.testing.assert_array_equal(loaded["x"], np.arange(6.0).reshape(2, 3))
    assert loaded["y"].shape == (10_000,)
    save_params(PARAMS, tmp_path / "ours.npz")
    np.testing.assert_array_equal(np.load(tmp_path / "ours.npz")["file"], PARAMS["file"])


def test_files_of_safetensors_own_package_are_read_and_ours_by_it(tmp_path: Path) -> None:
    package = pytest.importorskip("safetensors.numpy")
    package.save_file({"x": np.arange(6.0).reshape(2, 3)}, tmp_path / "theirs.safetensors", metadata={"format": "np"})
    np.testing.assert_array_equal(load_params(tmp_path / "theirs.safetensors")["x"], np.arange(6.0).reshape(2, 3))
    save_params(PARAMS, tmp_path / "ours.safetensors")
    found = package.load_file(tmp_path / "ours.safetensors")
    for name, array in PARAMS.items():
        np.testing.assert_array_equal(found[name], array)


def test_safetensors_may_hold_bfloat16_and_npz_files_not(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    dtype = pytest.importorskip("ml_dtypes").bfloat16
    array = np.arange(6, dtype=np.float32).reshape(2, 3).astype(dtype)
    save_params({"x": array}, tmp_path / "x.safetensors")
    found = load_params(tmp_path / "x.safetensors")["x"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float32), array.astype(np.float32))
    with pytest.raises(FormatError, match="expected an array of numbers, got one of bfloat16"):
        save_params({"x": array}, tmp_path / "x.npz")


def test_bfloat16_is_read_where_nobody_has_imported_it(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    pytest.importorskip("ml_dtypes")
    header = b'{"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\x80\x3f\x00\x40")
    code = "import sys, treadle; print(treadle.load_params(sys.argv[1])['x'].tolist())"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.safetensors")], capture_output=True, text=True)
    assert done.stdout == "[1.0, 2.0]\n", done.stderr


def test_a_machine_takes_them(tmp_path: Path) -> None:
    assert treadle.load_params is load_params
    assert treadle.save_params is save_params


def header(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def npz(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("x.npy", header("(1099511627776,)") + bytes(8))], "has 8796093022208 bytes, 8 are there"),
        ([("x.npy", header("(2,)") + bytes(8))], "has 16 bytes, 8 are there"),
        ([("x.npy", header("(-1,)") + bytes(8))], "bytes"),
        ([("x.npy", header("(") + bytes(8))], "not a readable"),
        ([("x.npy", b"text")], "not a readable"),
        ([("x.npy", header("(1,)") + bytes(8))] * 2, "two parameters are called 'x'"),
    ],
)
def test_what_is_wrong_in_an_npz_file_is_named(members: list, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message):
        load_params(npz(tmp_path / "x.npz", members))


def test_objects_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([None], object))
    with pytest.raises(FormatError, match="expected an array of numbers, got one of object"):
        load_params(tmp_path / "x.npz")
    for suffix in (".npz", ".params"):
        with pytest.raises(FormatError, match="'x'"):
            save_params({"x": np.array(["text"])}, tmp_path / f"y{suffix}")


def test_what_no_compression_gives_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path / "x.npz", [("x.npy", header("(1000000,)") + bytes(8))])
    data = bytearray(path.read_bytes())
    size = len(header("(1000000,)")) + 8
    data = data.replace(size.to_bytes(4, "little") * 2, size.to_bytes(4, "little") + (8_000_064).to_bytes(4, "little"))
    path.write_bytes(data)
    with pytest.raises((LimitError, FormatError)):
        load_params(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_changed_files_are_taken_or_refused_and_cost_little_memory(suffix: str, tmp_path: Path) -> None:
    path, random = path_of(tmp_path, suffix), Random(7)
    save_params(PARAMS, path)
    original = path.read_bytes()
    tracemalloc.start()
    try:
        for _ in range(500):
            path.write_bytes(mutate_bytes(random, original))
            with contextlib.suppress(FormatError):
                load_params(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_not_there(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_params(path_of(tmp_path, suffix))


def test_other_suffixes_are_refused() -> None:
    with pytest.raises(FormatError, match=r"end in \.params, \.npz, \.safetensors"):
        load_params("weights.pt")


def test_without_the_package_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "safetensors.numpy", None)
    for use in (lambda path: save_params(PARAMS, path), load_params):
        with pytest.raises(FormatError, match=r'^files of safetensors need .*: pip install "treadle\[safetensors\]"'):
            use(tmp_path / "x.safetensors")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_what_never_ends_is_refused(tmp_path: Path, suffix: str) -> None:
    pipe, device = tmp_path / f"pipe{suffix}", tmp_path / f"device{suffix}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for path, message in ((pipe, "is not a regular file"), (device, "is a device")):
        with pytest.raises(FormatError, match=message):
            load_params(path)


@pytest.mark.parametrize("name", ["\ud800", "\0", "a" * 300, "nowhere"])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".params"])
def test_a_name_that_no_file_has_is_a_file_error(name: str, suffix: str) -> None:
    with pytest.raises(FileError):
        load_params(name + suffix)
