"""`relay.qnn`: operators on integers that stand for real numbers."""

from . import op, transform  # noqa: F401
