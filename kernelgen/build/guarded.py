"""Processes that end with the one that has started them, even if that one is killed.

A group of processes outlives its starter: a compiler goes on when no process waits for it. So each
group gets a guard, a shell that waits for the end of a pipe whose other end is here; when this
process is gone, however that went, the guard ends the group.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

# The guard is of the command's own group, and holds neither its output nor its input open.
_WITH_GUARD = (
    'exec 3<&0 </dev/null; { read -r _ <&3; kill -9 0; } >/dev/null 2>&1 & exec 3<&-; exec "$@"'
)


@contextlib.contextmanager
def guarded(
    command: list[str], *, cwd: Path, env: Mapping[str, str], output: BinaryIO, errors: BinaryIO
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command in a session of its own; on leaving, what is left of its group is ended.

    Yields:
        The process; its output and errors go to files, its input is empty.
    """
    watched, held = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _WITH_GUARD, "sh", *command],
            cwd=cwd,
            env=dict(env),
            stdin=watched,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    except BaseException:
        os.close(held)
        raise
    finally:
        os.close(watched)
    try:
        yield process
    finally:
        os.close(held)
