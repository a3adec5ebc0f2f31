"""Columns of texts, by an executable with a tokenizer."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.formats.messages.errors import ArgumentError
from treadle.tools.cli import main
from treadle.tools.dev.zoo.folders import sentences, write

pytest.importorskip("tokenizers")
TEXTS = sentences()[:20]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folders")
    treadle.compile(write(folder / "minilm"), progress=False).export_library(folder / "minilm.trdl")
    return folder / "minilm.trdl"


@pytest.fixture(scope="module")
def expected(model: Path) -> np.ndarray:
    return treadle.text.load(model).encode(TEXTS)


def test_lists_arrays_columns_and_iterators(model: Path, expected: np.ndarray, tmp_path: Path) -> None:
    for source in (
        TEXTS,
        np.array(TEXTS),
        {"text": np.array(TEXTS, object)},
        iter([TEXTS[:7], TEXTS[7:]]),
        iter(TEXTS),
    ):
        got = treadle.map_batches(model, source, batch_size=8, workers=1).numpy()
        assert (got == expected).all()
    kept = {"batch_size": 8, "workers": 1, "checkpoint": tmp_path / "kept"}
    for _ in range(2):
        assert (treadle.map_batches(model, TEXTS, function="encode", **kept).numpy() == expected).all()


def test_the_tensors_of_the_model_itself_are_taken_too(model: Path) -> None:
    ids = np.full((3, 5), 7)
    source = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    assert treadle.map_batches(model, source, function="main", batch_size=2, workers=1).numpy().shape == (3, 5, 32)


def test_what_is_no_text_is_named(model: Path) -> None:
    with pytest.raises(ArgumentError, match="column 'text': expected texts, got an int"):
        treadle.map_batches(model, ["a", 3], batch_size=2, workers=1).numpy()


def test_the_command_maps_a_file(model: Path, expected: Any, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source, output = tmp_path / "texts.csv", tmp_path / "vectors.csv"
    with source.open("w", newline="") as file:
        csv.writer(file).writerows([["number", "text"], *enumerate(TEXTS)])
    command = ["map", str(source), str(output), "--model", str(model), "--workers", "1", "--quiet", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == len(TEXTS)
    with output.open() as file:
        names, *rows = csv.reader(file)
    assert names[0] == "embedding_0"
    assert (np.array(rows, np.float32) == expected).all()
