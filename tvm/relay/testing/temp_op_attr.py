"""`relay.testing.temp_op_attr`: a rule of an operator's, for a while."""

from __future__ import annotations

from typing import Any

from ..expr import Op

__all__ = ["TempOpAttr"]


class TempOpAttr:
    """`with TempOpAttr("nn.dense", "FTVMLegalize", rule)`: within it the operator has this attribute. Raises ValueError for an
    unknown operator."""

    def __init__(self, op_name: str, attr_key: str, attr_value: Any) -> None:
        self._op, self._key, self._value = Op.get(op_name), attr_key, attr_value

    def __enter__(self) -> TempOpAttr:
        self._before = self._op.get_attr(self._key)
        self._op.set_attr(self._key, self._value)
        return self

    def __exit__(self, *exception: object) -> None:
        self._op.reset_attr(self._key)
        if self._before is not None:
            self._op.set_attr(self._key, self._before)
