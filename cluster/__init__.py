"""An executable on many workers: `treadle.map_batches`, and what Ray, Dask and model servers are handed of it.

`batches.py` is the door. `sources.py` numbers batches, `schedule.py` gives them to the workers of an engine (`local.py`,
`ray.py`, `dask.py`), where `runner.py` computes them, and `checkpoint.py` keeps what is finished. A `Handle` is all that
workers are told of an executable. Ray, Dask and the servers' packages are imported by the modules of their names alone.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .batches import Results, map_batches
    from .handle import Handle
    from .ray import TreadlePredictor
    from .runner import Runner

__all__ = ["Handle", "Results", "Runner", "TreadlePredictor", "map_batches"]

_HOMES = {
    "Handle": ".handle",
    "Results": ".batches",
    "Runner": ".runner",
    "TreadlePredictor": ".ray",
    "map_batches": ".batches",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home, __name__), name)
    globals()[name] = value
    return value
