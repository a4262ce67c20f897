"""Run a program contained: for those that are executed anyway, such as compilers."""

import os
import sys

import msgspec

from kernelgen.child_python import python_command
from kernelgen.sandbox.enter import enter
from kernelgen.sandbox.record import NOT_CONTAINED, Plan, SandboxError, uncontained


def contained_command(plan: Plan, folder: str, command: list[str]) -> list[str]:
    """Return the command line that runs a command contained, in a folder.

    Its environment needs the PYTHONPATH of `python_path`.
    """
    text = msgspec.json.encode(plan).decode()
    return python_command("kernelgen.sandbox.launch", text, folder, *command)


def main() -> None:
    """Enter and execute; never returns."""
    plan, folder, *command = sys.argv[1:]
    try:
        enter(msgspec.json.decode(plan, type=Plan))
    except SandboxError as error:
        sys.stderr.write(f"{uncontained(command[0], error)}\n")
        os._exit(NOT_CONTAINED)
    os.chdir(folder)
    os.execvp(command[0], command)  # noqa: S606
