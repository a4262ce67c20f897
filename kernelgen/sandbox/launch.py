"""`python -m kernelgen.sandbox.launch PLAN FOLDER COMMAND...`: run a program contained.

For programs that are executed anyway, such as compilers; PLAN is the JSON of a `Plan`.
"""

import os
import signal
import sys

import msgspec

from kernelgen.sandbox.enter import enter
from kernelgen.sandbox.record import Plan, SandboxError

# A command that was never executed ends with one of these codes and these first words; the second
# code is a keeper's whose contained process is gone. Sources may forge the words in a compiler's
# output, by `#line`, and have no say in how the compiler ends.
_NOT_CONTAINED = 125
_CODES = (_NOT_CONTAINED, -signal.SIGKILL)
_WORDS = "kernelgen could not contain"


def containment_fault(exit_code: int | None, output: str) -> str:
    """Return why a contained command was not executed, or "" if it was.

    Args:
        exit_code: of the process that `contained_command` describes.
        output: what it printed.
    """
    failed = exit_code in _CODES and output.startswith(_WORDS)
    return output.splitlines()[0] if failed else ""


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
        sys.stderr.write(f"{_WORDS} {command[0]}: {error}\n")
        os._exit(_NOT_CONTAINED)
    os.chdir(folder)
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
