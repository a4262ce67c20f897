"""`python -m kernelgen.sandbox.launch PLAN FOLDER COMMAND...`: run a program contained.

For programs that are executed anyway, such as compilers; PLAN is the JSON of a `Plan`.
"""

import os
import sys

import msgspec

from kernelgen.sandbox.enter import enter
from kernelgen.sandbox.record import NOT_CONTAINED, Plan, SandboxError, uncontained


def contained_command(plan: Plan, folder: str, command: list[str]) -> list[str]:
    """Return the command line that runs a command contained, in a folder.

    It has to be started in the folder that holds the package: `python -m` looks there first.
    """
    text = msgspec.json.encode(plan).decode()
    return [sys.executable, "-m", "kernelgen.sandbox.launch", text, folder, *command]


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


if __name__ == "__main__":
    main()
