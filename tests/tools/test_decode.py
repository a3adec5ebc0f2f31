"""`treadle bench decode`: what it counts, and what it says."""

from __future__ import annotations

import json

import pytest
from treadle.tools import cli
from treadle.tools.dev.bench import decode
from treadle.tools.dev.zoo.gpt import gpt


def test_the_weights_of_products_count_and_embeddings_do_not() -> None:
    layers, hidden, vocabulary = 2, 32, 100
    model = gpt(layers, hidden, 2, vocabulary=vocabulary, length=1)
    assert decode.weight_bytes(model) == 4 * (layers * 12 * hidden * hidden + hidden * vocabulary)


def test_a_run_of_ours_alone(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "bench",
        "decode",
        "--only",
        "llama-decode",
        "--against",
        "",
        "--threads",
        "1",
        "--repeat",
        "1",
        "--json",
    ]
    assert cli.main(arguments) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["model"] == "llama-decode"
    assert found["share"] > 0
