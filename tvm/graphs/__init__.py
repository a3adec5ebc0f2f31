"""The graph executor, and graph JSON as programs of the machine and back."""

from . import remote  # noqa: F401  it says what executors at servers are
