"""`tvm.ir.make_node`: attributes and numbers by the names of their kinds."""

from __future__ import annotations

from typing import Any

from ..modules.containers import FloatImm, IntImm
from ..relay.expr import Attrs


def make_node(type_key: str, **kwargs: Any) -> Any:
    """Attributes of a function (`DictAttrs`) or of a call (`attrs.…`, which keeps its kind as `attrs_type_key`), or a number.
    Raises ValueError for another kind."""
    if type_key == "DictAttrs":
        return Attrs(kwargs)
    if type_key.startswith(("attrs.", "relay.attrs.")):
        return Attrs({**kwargs, "attrs_type_key": type_key})
    numbers = {"IntImm": IntImm, "FloatImm": FloatImm}
    if type_key in numbers:
        return numbers[type_key](kwargs["dtype"], kwargs["value"])
    raise ValueError(f"make_node({type_key!r}): there are DictAttrs, attrs.…, {', '.join(numbers)}")
