"""Folders of tensors: what is written is read, and an index that lies is refused."""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from treadle.formats.messages.errors import FileError, FormatError, TreadleError
from treadle.tvm.files.tensor_cache import INDEX, load, of_bfloat16, save, to_bfloat16

TENSORS = {
    "x_0": np.array([1, 2, 3], np.int32),
    "x_1": np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4),
    "scalar": np.array(2.5, np.float16),
    "empty": np.zeros((0, 3), np.float32),
}


@pytest.mark.parametrize("shard_bytes", [1, 16, 1 << 20])
def test_a_folder_comes_back(tmp_path: Path, shard_bytes: int) -> None:
    save(TENSORS, tmp_path, {"made by": "a test"}, "raw", shard_bytes)
    found, metadata = load(tmp_path)
    assert metadata == {"made by": "a test"}
    assert list(found) == list(TENSORS)
    for name, array in TENSORS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(found[name], array)


def test_floats_are_kept_in_16_bits(tmp_path: Path) -> None:
    save(TENSORS, tmp_path)
    found, _ = load(tmp_path)
    assert np.array_equal(found["x_1"], of_bfloat16(to_bfloat16(TENSORS["x_1"])))
    assert np.array_equal(found["x_0"], TENSORS["x_0"])


def test_bfloat16_is_the_nearest() -> None:
    given = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, -0.0, np.inf, np.nan, 3.4e38], np.float32)
    made = of_bfloat16(to_bfloat16(given))
    assert made[:5].tolist() == [1, 1, 1 + 2**-6, 0, np.inf]
    assert np.isnan(made[5])
    assert made[6] == np.inf or made[6] > 3.3e38


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda index: index.update(records=3), "expected a list of records"),
        (lambda index: index["records"].append([]), "expected an object"),
        (lambda index: index["records"][0].update(dataPath="../secret"), "is not the name of a file in this folder"),
        (lambda index: index["records"][0].update(format="zip"), "expected the format raw-shard"),
        (lambda index: index["records"][0].update(nbytes=1), "1 bytes are expected"),
        (lambda index: index["records"][0]["records"][0].update(shape=[1 << 60]), "is not a shape"),
        (lambda index: index["records"][0]["records"][0].update(shape=[1 << 40]), "do not lie in a shard"),
        (
            lambda index: index["records"][0]["records"][0].update(shape=[0, 1 << 46, 1 << 46], nbytes=0),
            "has more than 140737488355327 bytes",
        ),
        (lambda index: index["records"][0]["records"][0].update(byteOffset=-1), "do not lie in a shard"),
        *(
            (lambda index, dtype=dtype: index["records"][0]["records"][0].update(dtype=dtype), "is not an element type")
            for dtype in ("object", ">f4", "(-1,)f4", "(9999999999999999999999,)f4", "\ud800", [])
        ),
        (lambda index: index["records"][0]["records"][0].update(format="gz"), "is not a format"),
        (lambda index: index["records"][0]["records"][0].update(name=7), "is not a name"),
        (lambda index: index["records"][0]["records"][0].update(name="\ud800"), "is not a name"),
        (lambda index: index["records"][0].update(dataPath="\ud800"), "is not the name of a file in this folder"),
        (lambda index: index["records"][0]["records"].append(index["records"][0]["records"][0]), "two tensors 'x_0'"),
        (lambda index: index["records"].append(index["records"][0]), "two shards of this name"),
        (
            lambda index: index["records"][0]["records"].extend(
                index["records"][0]["records"][1] | {"name": str(number)} for number in range(9)
            ),
            "tensors have more bytes than the shard",
        ),
    ],
)
def test_an_index_that_lies(tmp_path: Path, change, text: str) -> None:
    save(TENSORS, tmp_path)
    path = tmp_path / INDEX[-1]
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    with pytest.raises(FormatError, match=text):
        load(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_shards_that_never_end_are_refused(tmp_path: Path) -> None:
    save(TENSORS, tmp_path)
    shard = tmp_path / "params_shard_0.bin"
    shard.unlink()
    shard.symlink_to("/dev/zero")
    with pytest.raises(FormatError, match="is a device"):
        load(tmp_path)
    shard.unlink()
    os.mkfifo(shard)
    with pytest.raises(FormatError, match="bytes are expected, it has 0"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["\ud800", "\0", "a" * 300])
def test_a_name_that_no_folder_has(name: str) -> None:
    with pytest.raises(FileError):
        load(name)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"there is no tensor-cache\.json"):
        load(tmp_path)
    save(TENSORS, tmp_path)
    (tmp_path / "params_shard_0.bin").unlink()
    with pytest.raises(FileError, match="cannot be read"):
        load(tmp_path)


def test_mutated_indices_are_read_or_refused(tmp_path: Path) -> None:
    save(TENSORS, tmp_path)
    path, chance = tmp_path / INDEX[-1], random.Random(19)
    text = path.read_bytes()
    for _ in range(1000):
        changed = bytearray(text)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.choice(b'0123456789-"[]{},:.eE \xff')
        path.write_bytes(changed)
        with contextlib.suppress(TreadleError):
            load(tmp_path)
