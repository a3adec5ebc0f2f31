"""`relay.qnn.transform`: quantised operators replaced by what registered rules make of them. Without a rule they stay: Treadle's
compiler takes them as they are."""

from typing import Any

from ..passes.legalize import Legalize as _Legalize


def Legalize() -> Any:
    """The rules of the name `FTVMQnnLegalize`."""
    return _Legalize("FTVMQnnLegalize")


def CanonicalizeOps() -> Any:
    """The rules of the name `FTVMQnnCanonicalize`."""
    return _Legalize("FTVMQnnCanonicalize")


__all__ = ["CanonicalizeOps", "Legalize"]
