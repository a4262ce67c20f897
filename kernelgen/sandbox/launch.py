"""Run a program contained: for those that are executed anyway, such as compilers."""

import os
import sys

import msgspec

from kernelgen.child_python import python_command
from kernelgen.sandbox.enter import enter
from kernelgen.sandbox.record import Plan, SandboxError

TOLD_BY = "KERNELGEN_CONTAINED"
"""The variable with the descriptor on which a process says that it is contained, or why not."""
CONTAINED = b"\0"


def contained_command(plan: Plan, folder: str, command: list[str]) -> list[str]:
    """Return the command line that runs a command contained, in a folder.

    Its environment needs the PYTHONPATH of `python_path`.
    """
    text = msgspec.json.encode(plan).decode()
    return python_command("kernelgen.sandbox.launch", text, folder, *command)


def main() -> None:
    """Contain this process, say so to who watches it, and execute; where it fails, say why and end.

    It is said first, and can be added to but not taken back: it is our own word, as nothing is that
    comes once other code runs.
    """
    plan, folder, *command = sys.argv[1:]
    told = int(os.environ.pop(TOLD_BY))
    try:
        enter(msgspec.json.decode(plan, type=Plan))
        os.write(told, CONTAINED)
    except SandboxError as error:
        os.write(told, f"kernelgen could not contain {command[0]}: {error}".encode())
        os._exit(1)
    os.close(told)
    os.chdir(folder)
    os.execvp(command[0], command)  # noqa: S606
