"""An executable on many workers: `treadle.map_batches`, and what Ray, Dask and model servers are handed of it.

`batches.py` is the door. `sources.py` numbers batches, `schedule.py` gives them to the workers of an engine (`local.py`,
`ray.py`, `dask.py`), where `runner.py` computes them, and `checkpoint.py` keeps what is finished. A `Handle` is all that
workers are told of an executable. Ray, Dask and the servers' packages are imported by the modules of their names alone.
"""

from typing import TYPE_CHECKING

from ..formats.messages.names import lazily

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

__getattr__ = lazily(__name__, _HOMES)
