"""The memory that processes keep from others."""

from __future__ import annotations

from pathlib import Path

_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


def own_bytes(pid: int) -> int:
    """Return the memory that a process keeps from others, swapped out or not; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    fields = (line.split() for line in status.splitlines() if line.startswith(_COUNTED))
    return sum(int(field[1]) * 1024 for field in fields)


def tree_bytes(pid: int) -> int:
    """Return the memory that a process and all below it keep from others, swapped out or not."""
    total = 0
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        try:
            for task in Path(f"/proc/{current}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it has just ended
        total += own_bytes(current)
    return total
