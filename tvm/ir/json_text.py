"""`tvm.ir.save_json` and `load_json`: objects of the runtime as JSON, each with its kind. The layout is not TVM's."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from ...formats.dims import SymbolicDim, parse
from ...formats.messages.errors import FormatError
from ...formats.param_dict import load_param_dict, save_param_dict
from ..modules.containers import Array, FloatImm, IntImm, Map, String
from ..runtime.ndarray import NDArray
from ..runtime.object_generic import convert


def save_json(node: Any) -> str:
    """The text of a string, number, list, mapping, tensor or symbolic dimension, or of Relay's expressions, types and modules.
    Raises FormatError for another object."""
    from .nodes_json import FIELDS, Writer

    if type(node) not in FIELDS:
        return json.dumps(_to_json(convert(node)))
    writer = Writer(_to_json)
    root = writer.write(node)
    return json.dumps({"Nodes": [writer.nodes, root]})


def load_json(json_str: str) -> Any:
    """The object that `save_json` wrote. Raises FormatError."""
    try:
        return _of_json(json.loads(json_str))
    except FormatError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, AttributeError, OverflowError) as error:
        raise FormatError(f"load_json: this is not what save_json wrote: {type(error).__name__}: {error}") from None


def _to_json(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, (IntImm, FloatImm)):
        return {type(value).__name__: [value.dtype, value.value]}
    if isinstance(value, str):
        return {"String": str(value)}
    if isinstance(value, Array):
        return {"Array": [_to_json(each) for each in value]}
    if isinstance(value, Map):
        return {"Map": [[_to_json(convert(key)), _to_json(each)] for key, each in value.items()]}
    if isinstance(value, NDArray):
        return {"NDArray": base64.b64encode(save_param_dict({"": value.array})).decode()}
    if isinstance(value, SymbolicDim):
        return {"Var": str(value)}
    if isinstance(value, np.generic):
        return {"Python": value.item()}
    raise FormatError(f"save_json: a {type(value).__name__} has no form as JSON")


def _of_json(found: Any) -> Any:
    if found is None:
        return None
    ((kind, value),) = found.items()
    if kind == "String":
        return String(value)
    if kind in ("IntImm", "FloatImm"):
        dtype, number = value
        return IntImm(str(dtype), int(number)) if kind == "IntImm" else FloatImm(str(dtype), float(number))
    if kind == "Array":
        return Array(_of_json(each) for each in value)
    if kind == "Map":
        return Map((_of_json(key), _of_json(each)) for key, each in value)
    if kind == "NDArray":
        return NDArray(load_param_dict(base64.b64decode(value))[""])
    if kind == "Var":
        return parse(str(value))
    if kind == "Nodes":
        from .nodes_json import Reader

        nodes, root = value
        return Reader(nodes, _of_json).read(root)
    raise FormatError(f"load_json: there is no kind of objects {kind!r}")
