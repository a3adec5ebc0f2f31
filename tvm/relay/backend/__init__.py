"""`relay.backend`: where TVM keeps the Relay VM's compiler."""

from ..._lazy import lazy

__getattr__, __dir__ = lazy(
    __name__,
    {"executor_factory": "...contrib.factory", "interpreter": ".interpreter", "vm": "..vm"},
    {".options": ("Executor", "Runtime")},
)
