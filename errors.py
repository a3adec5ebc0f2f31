"""`treadle.errors`, also for `from treadle.errors import FormatError`: the module `messages/errors.py` itself."""

import sys
from typing import TYPE_CHECKING

from .formats.messages import errors

if TYPE_CHECKING:
    from .formats.messages.errors import *  # noqa: F403

sys.modules[__name__] = errors
