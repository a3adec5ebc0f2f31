"""How the process's descriptors are shared out among what clients may open, so that none of it takes the last one."""

from __future__ import annotations

import resource

MAX_CONNECTIONS = 2048  # over HTTP; further ones are answered with 503
MAX_REGIONS = 1024  # of shared memory
_OWN = 32  # that the process has for itself: libraries, event loops, ports, a folder that it looks at


def most_connections() -> int:
    """Over HTTP, and half as many over gRPC."""
    return _share(MAX_CONNECTIONS, 2)


def are_too_many(count: int) -> bool:
    """Whether there are too many connections even to answer further ones with a refusal."""
    return count > most_connections() * 5 // 4


def most_regions() -> int:
    """Of shared memory."""
    return _share(MAX_REGIONS, 16)


def _share(most: int, part: int) -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(8 if part == 2 else 1, min(most, (files - _OWN) // part))
