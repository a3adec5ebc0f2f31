"""`relay.testing.temp_op_attr`: a rule of an operator's, for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....formats.messages.errors import UnsupportedNameError
from ..expr import Op

__all__ = ["TempOpAttr"]

_WITHOUT_RULES = ("FTVMLegalize", "FTVMQnnCanonicalize", "FTVMQnnLegalize")


class TempOpAttr:
    """`with TempOpAttr("qnn.dense", "FTVMQnnLegalize", lambda attrs, inputs, types: None)`: the operator is lowered by Treadle's
    own rule, and by no other. Raises ValueError for an unknown operator, UnsupportedNameError for an attribute whose rule would
    have an effect, and for a rule that gives another expression."""

    def __init__(self, op_name: str, attr_key: str, attr_value: Callable[..., Any]) -> None:
        Op.get(op_name)
        try:
            asks_for_nothing = attr_key in _WITHOUT_RULES and attr_value(None, None, None) is None
        except Exception:  # a rule that looks at its operator is one that may change it
            asks_for_nothing = False
        if not asks_for_nothing:
            raise UnsupportedNameError(
                f"TempOpAttr: {op_name} has no {attr_key} to replace: Treadle's operators are rows of a table "
                "(relay.op.TABLE), and passes are compiler/passes; a rule that gives None leaves an operator as it is"
            )

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass
