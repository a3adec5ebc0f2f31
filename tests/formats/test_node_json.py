"""The metadata of Relay's text: lists of tensors and dimensions."""

from __future__ import annotations

import json

import numpy as np
from treadle.formats import node_json


def test_what_is_named_often_is_made_once() -> None:
    """A text of a megabyte would else stand for a terabyte."""
    found = json.loads(node_json.dump({"relay.Constant": [np.zeros(1 << 16, np.float32)]}))
    (root, lists, constant) = found["nodes"][1:]
    found["nodes"] += [constant] * 1000
    lists["data"] = list(range(3, 1003)) * 10
    root["keys"], root["data"] = [str(number) for number in range(10_000)], root["data"] * 10_000
    read = node_json.load(json.dumps(found))
    assert len(read) == 10_000
    assert {len(each) for each in read.values()} == {10_000}
    assert len({id(array) for array in read["7"]}) == 1
