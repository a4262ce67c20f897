"""A stand-in on PATH for a tool of NVIDIA's that runs a program: for ncu and the sanitizer."""

import os
import sys
from pathlib import Path

import pytest

_START = """\
#!{python}
import json, os, subprocess, sys
from pathlib import Path

here = Path(__file__).parent
arguments = sys.argv[1:]
start = arguments.index({python!r})
options, command = arguments[:start], arguments[start:]
seen = json.dumps({{"options": options, "environment": dict(os.environ), "folder": os.getcwd()}})
log = Path(options[options.index("--log-file") + 1])
code = 0
if (here / "idle").exists():
    Path(command[-1], "called").touch()  # as the program does that has called forward
else:
    code = subprocess.run(command).returncode
"""


class StandIn:
    """A program of a name in a folder: it runs what follows its options, then reports.

    With `idle` it does not run the program, which takes seconds, but reports as if it had.
    """

    def __init__(self, path: Path, reports: str) -> None:
        self.folder, self.path = path.parent, path
        path.write_text(_START.format(python=sys.executable) + reports)
        path.chmod(0o755)

    def idle(self) -> None:
        """Only report from now on."""
        (self.folder / "idle").touch()


def on_path(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Make a folder, and have it be the first in which tools are looked for."""
    folder.mkdir()
    for name in ("CUDA_HOME", "CUDA_PATH"):
        patch.delenv(name, raising=False)
    patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder
