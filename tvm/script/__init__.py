"""`tvm.script`: TVMScript of Relax, read by `ast` and never executed (`reader.py`), and printed (`printer.py`)."""

from .._lazy import lazy

__getattr__, __dir__ = lazy(
    __name__,
    "ir relax tir",
    others={"parser": "."},
    names={".reader": "from_source ir_module parse"},
)
