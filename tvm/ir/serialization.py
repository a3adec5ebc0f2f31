"""`save_json` and `load_json`: values of containers as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...formats.errors import ArgumentError, FormatError
from ...vm.containers import Array, Map, ShapeTuple, String
from ..tir import FloatImm, IntImm


def save_json(node: Any) -> str:
    """Numbers, strings, shapes, lists and maps as JSON. Raises ArgumentError for anything else, such as a program."""
    return json.dumps(_plain(node))


def load_json(json_str: str) -> Any:
    """What `save_json` wrote. Raises FormatError."""
    try:
        return _value(json.loads(json_str))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"load_json: this is not what save_json writes: {error}") from None


def _plain(node: Any) -> Any:
    if isinstance(node, (IntImm, FloatImm)):
        return {"kind": type(node).__name__, "dtype": node.dtype, "value": node.value}
    if isinstance(node, ShapeTuple):
        return {"kind": "ShapeTuple", "value": list(map(int, node))}
    if node is None or isinstance(node, (bool, int, float)):
        return node
    if isinstance(node, str):
        return {"kind": "String", "value": str(node)}
    if isinstance(node, Mapping):
        return {"kind": "Map", "value": [[_plain(key), _plain(value)] for key, value in node.items()]}
    if isinstance(node, (list, tuple, Array)):
        return [_plain(each) for each in node]
    raise ArgumentError(f"save_json: a {type(node).__name__} is not saved as JSON")


_KINDS = {
    "String": lambda each: String(each["value"]),
    "ShapeTuple": lambda each: ShapeTuple(each["value"]),
    "IntImm": lambda each: IntImm(each["dtype"], each["value"]),
    "FloatImm": lambda each: FloatImm(each["dtype"], each["value"]),
    "Map": lambda each: Map({_value(key): _value(value) for key, value in each["value"]}),
}


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return Array(map(_value, plain))
    return _KINDS[plain["kind"]](plain) if isinstance(plain, dict) else plain
