"""`from tvm.script import relax as R`: operators, struct infos, and what a function's text says beside them."""

from .reader import function as function
from .reader import macro as macro
from .vocabulary import R

globals().update(R)
__all__ = sorted([*R, "function", "macro"])
