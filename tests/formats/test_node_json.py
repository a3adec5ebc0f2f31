"""TVM's JSON of nodes: the metadata after Relay's text."""

import contextlib
import json

import numpy as np
import pytest
from treadle.formats.dims import variable
from treadle.formats.messages.errors import FormatError
from treadle.tvm.files.node_json import UnknownNode, dump, load

RNG = np.random.default_rng(2)
TEXT = dump(
    {"relay.Constant": [np.arange(6, dtype="float32").reshape(2, 3), np.array(True)], "tir.SizeVar": [variable("n")]}
)


def test_what_is_written_reads_back() -> None:
    found = load(TEXT)
    np.testing.assert_array_equal(found["relay.Constant"][0], np.arange(6).reshape(2, 3))
    assert found["relay.Constant"][1].dtype == np.bool_
    assert found["tir.SizeVar"] == [variable("n")]


def test_nodes_of_other_kinds_are_known_by_name() -> None:
    nodes = [
        {"type_key": ""},
        {"type_key": "Map", "keys": ["VirtualDevice"], "data": [2]},
        {"type_key": "Array", "data": ["3"]},
        {"type_key": "VirtualDevice", "attrs": {"device_type_int": "1"}},
    ]
    (found,) = load(json.dumps({"root": "1", "nodes": nodes}))["VirtualDevice"]
    assert isinstance(found, UnknownNode)
    assert found.kind == "VirtualDevice"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "expected an object"),
        ('{"nodes": 5}', "expected a list as nodes"),
        ('{"root": -1, "nodes": []}', "root must be a number"),
        ('{"root": 1, "nodes": [{}]}', "no node 1"),
        ('{"root": 0, "nodes": [{"type_key": "Array"}]}', "root must be a Map"),
        (TEXT.replace('"data": "0"', '"data": "7"'), "no tensor 7"),
        (TEXT.replace('"repr_str": "n"', '"repr_str": "n + 1"'), "not the name of a dimension"),
    ],
)
def test_a_text_that_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message.replace("+", r"\+")):
        load(text)


def test_texts_that_are_cut_or_changed_are_read_or_refused() -> None:
    for _ in range(1000):
        at = int(RNG.integers(len(TEXT)))
        changed = TEXT[:at] + str(RNG.choice(list('0189"[]{},:A/ '))) + TEXT[at + 1 :]
        with contextlib.suppress(FormatError):
            load(changed if RNG.random() < 0.9 else TEXT[:at])
