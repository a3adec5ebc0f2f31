"""Resources of this process: the processors it may run on, and its control groups' limits of CPU time and memory.

Linux: sched_setaffinity(2); Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.max, memory.current),
scheduler/sched-bwc.rst (cpu.cfs_quota_us), cgroup-v1/memory.rst (memory.limit_in_bytes, memory.usage_in_bytes)
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

_OCTAL = re.compile(r"\\([0-7]{3})")


def allowed() -> set[int]:
    """The numbers of the CPUs that this thread may run on; of all, where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        with contextlib.suppress(OSError):
            return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def allowed_count() -> int:
    """How many CPUs this thread may run on."""
    return len(allowed())


def cpu_count() -> int:
    """The CPUs that this thread may run on, or fewer if the process's control groups have less time on them.

    A quota is rounded up: 1.5 CPUs' time takes two threads to use, of which one would leave a third unused.
    """
    quota = cpu_quota()
    return allowed_count() if quota is None else max(1, min(allowed_count(), math.ceil(quota)))


def cpu_quota(process: Path = Path("/proc/self")) -> float | None:
    """The CPUs' time that a process's control groups have, in CPUs: the least of them and all that they lie in. None without a
    limit, and on systems without control groups."""
    quotas = [quota for folder in _groups(process, "cpu") for quota in (_quota(folder),) if quota is not None]
    return min(quotas, default=None)


def memory_limit(process: Path = Path("/proc/self")) -> int | None:
    """The bytes of memory that a process's control groups may have: the least of them and all that they lie in. None without a
    limit, and on systems without control groups."""
    return min((limit for limit, _ in _limited(process)), default=None)


def memory_left(process: Path = Path("/proc/self")) -> int | None:
    """The bytes of memory that a process's control groups may have and do not use yet: the least of what is left to them. What
    they hold of files counts as used, though the system takes it back before it refuses anything: so it is never too much."""
    left = [max(limit - used, 0) for limit, folder in _limited(process) for used in _memory_used(folder)]
    return min(left, default=None)


def _limited(process: Path) -> list[tuple[int, Path]]:
    """The groups that have a limit of memory, in bytes, and their folders."""
    found = ((_memory(folder), folder) for folder in _groups(process, "memory"))
    return [(limit, folder) for limit, folder in found if limit is not None]


def _groups(process: Path, controller: str) -> Iterator[Path]:
    """The folders of the groups that may limit a process, from each one's own up to where the hierarchy is mounted."""
    for line in _lines(process / "cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        for root, mount in _mounts(process, controller if controllers else ""):
            folder = mount / _relative(path, root)
            yield folder
            for above in folder.parents:
                if folder == mount or not above.is_relative_to(mount):
                    break
                yield above


def _mounts(process: Path, controller: str) -> Iterator[tuple[str, Path]]:
    """Where a hierarchy is mounted (version 2 for no controller), each time with the group that is the mount's root."""
    for line in _lines(process / "mountinfo"):
        place, _, kind = line.partition(" - ")
        fields, facts = place.split(" "), kind.split(" ")
        if len(fields) < 5 or len(facts) < 3:
            continue
        if facts[0] == ("cgroup" if controller else "cgroup2") and (
            not controller or controller in facts[2].split(",")
        ):
            root, mount = (_OCTAL.sub(lambda code: chr(int(code[1], 8)), field) for field in fields[3:5])
            yield root, Path(mount)


def _relative(path: str, root: str) -> str:
    """A group's path below a mount's root; the root itself for a group that lies elsewhere, of which nothing is to be seen."""
    inside = path.removeprefix("/" if root == "/" else root)
    is_inside = root == "/" or path == root or path.startswith(root + "/")
    return inside.strip("/") if is_inside and ".." not in path.split("/") else ""


def _quota(folder: Path) -> float | None:
    both = [line.split() for line in _lines(folder / "cpu.max")]
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    words = both[0] if both else [line for name in names for line in _lines(folder / name)]
    with contextlib.suppress(ValueError, ZeroDivisionError):  # "max", and files of a kind that we do not know
        quota, period = map(int, words)
        return quota / period if quota > 0 else None
    return None


def _memory(folder: Path) -> int | None:
    for line in _lines(folder / "memory.max") or _lines(folder / "memory.limit_in_bytes"):
        with contextlib.suppress(ValueError):  # "max", and files of a kind that we do not know
            return int(line)  # version 1 says "no limit" by more bytes than any machine has
    return None


def _memory_used(folder: Path) -> list[int]:
    """The bytes that a group uses; none where it does not say."""
    with contextlib.suppress(ValueError):
        lines = _lines(folder / "memory.current") or _lines(folder / "memory.usage_in_bytes")
        return [int(line) for line in lines[:1]]
    return []


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
