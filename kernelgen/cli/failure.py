"""How an error ends: what a person reads on stderr, and the exit code."""

import errno
import os
import platform
import sys
import traceback

import click

from kernelgen import __version__
from kernelgen.errors import ExitCode, KernelgenFault, UserError

# What a shell reports for a program that SIGPIPE ended, as `kernelgen list | head -1` may.
_SIGPIPE_CODE = 141


def exit_code_of(error: BaseException) -> int:
    """Tell the user about an error and return the exit code that it leads to."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    if isinstance(error, click.ClickException):
        _say(error.format_message())
        return ExitCode.USAGE
    if isinstance(error, UserError | KernelgenFault):
        _say(str(error))
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _say(f"the disk is full{_place(error)}; make room and run again")
        return ExitCode.GRADER_FAULT
    if isinstance(error, OSError) and error.strerror:
        # Without a file: no folder for temporary files, no more processes, no more open files.
        _say(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        return ExitCode.GRADER_FAULT
    _say(f"{type(error).__name__}: {error}")
    versions = f"kernelgen {__version__}, Python {platform.python_version()}, {platform.platform()}"
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    click.echo(
        f"This is a bug in kernelgen; please report it with these lines.\n{versions}", err=True
    )
    click.echo(trace, err=True, nl=False)
    return ExitCode.GRADER_FAULT


def quiet_broken_pipe() -> int:
    """Return the exit code for a reader that went away, and let nothing more be written to it."""
    # The interpreter flushes stdout once more when it exits, and would complain there.
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)
    return _SIGPIPE_CODE


def _say(message: str) -> None:
    click.echo(f"error: {' '.join(message.splitlines())}", err=True)


def _place(error: OSError) -> str:
    return f" (writing {error.filename})" if error.filename else ""
