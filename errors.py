"""`treadle.errors`, also for `from treadle.errors import FormatError`: the module `formats/errors.py` itself."""

import sys
from typing import TYPE_CHECKING

from .formats import errors

if TYPE_CHECKING:
    from .formats.errors import *  # noqa: F403

sys.modules[__name__] = errors
