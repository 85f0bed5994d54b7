"""What a container may still take of the host's memory. Beyond it the system kills the process, whatever the host has free.

Linux control groups (kernel documentation, cgroup-v2.rst "Memory" and cgroup-v1/memory.rst): a limit and a usage for each
group, and every group above holds too. The file cache counts as used, and is given back when memory is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# (limit, usage, the cache's line in memory.stat) of version 2 and of version 1
NAMES = (("memory.max", "memory.current", "inactive_file"),
         ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))  # fmt: skip


def room_bytes(root: Path = ROOT, own: Path = OWN) -> int | None:
    """The least that a group of this process may still take; None where no limit is set."""
    rooms = [room for group in _groups(root, own) for names in NAMES if (room := _room(group, *names)) is not None]
    return min(rooms, default=None)


def _groups(root: Path, own: Path) -> Iterator[Path]:
    """The process's group and all above it; a container sees itself as the root."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        group = top / path.lstrip("/")
        yield from (place for place in (group, *group.parents) if place.is_relative_to(top))


def _room(group: Path, limit: str, usage: str, cache: str) -> int | None:
    try:
        allowed = int((group / limit).read_text())
        used = int((group / usage).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group is mounted here, or its limit is "max"
        return None
    return max(allowed - used + int(stat.get(cache, 0)), 0)
