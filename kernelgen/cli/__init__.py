"""The command line: which commands there are, and how an error becomes a line and an exit code.

The module of a command's name is imported when the command runs, so that `kernelgen --help` stays
fast. Each module exposes `command`.
"""

import difflib
import errno
import os
import platform
import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from keyword import iskeyword
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from kernelgen import __version__
from kernelgen.destination import settle_streams
from kernelgen.errors import ExitCode, KernelgenFault, UserError

# A shell's exit code for a program that a signal ended is this plus the signal's number.
_SIGNALLED = 128
# The code that a shell reports for a program that SIGPIPE ended, as `kernelgen list | head -1` may.
_SIGPIPE_CODE = _SIGNALLED + signal.SIGPIPE


_COMMANDS = {
    "render": "Write the solution of a problem.",
    "grade": "Build, check and time solutions.",
    "serve": "Grade what clients send over HTTP.",
    "report": "Show recorded runs: a page, JUnit XML, a table.",
    "compare": "Say what changed between two reports.",
    "sweep": "Grade a problem's solution at many settings.",
    "list": "List the problems.",
    "import": "Write a KernelBench file as a YAML problem.",
    "show": "Show one problem: its constants, cases and model.",
    "build": "Compile solutions, and tell what each kernel uses.",
    "lint": "Say what is wrong with a problem.",
    "profile": "Print ncu's details of a solution's kernels.",
    "tune": "Search a problem's schedule on this machine.",
    "selftest": "Grade candidates whose verdicts are known.",
    "calibrate": "Measure what this device can do.",
    "doctor": "Say what this machine can do, and what it lacks.",
}


class _Program(click.Group):
    """The group of commands; it imports one only to run it, and maps what it raises."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not ctx.resilient_parsing:
            close = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            mend = f"; did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}{mend}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*_COMMANDS]  # `list` here is the submodule once it is imported

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        # A module cannot be called `import`.
        module = import_module(f"kernelgen.cli.{cmd_name}{'_' * iskeyword(cmd_name)}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=summary)
            for name, summary in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> None:
        try:
            code = _run(lambda: super(_Program, self).invoke(ctx))
        except BrokenPipeError:
            code = _SIGPIPE_CODE
            _close_stdout()
        except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - all of them are told
            code = _exit_code_of(error)
        ctx.exit(code)


def _run(invoke: Callable[[], object]) -> int:
    """Run a command and return its exit code, having written out all that it printed."""
    try:
        Path.cwd()
    except OSError as error:
        message = f"the working folder is gone ({error.strerror}); change to one that is there"
        raise UserError(message) from error
    try:
        result = invoke()
        code = result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:
        code = leaving.exit_code
    sys.stdout.flush()
    return code


def _exit_code_of(error: BaseException) -> int:
    """Tell the user about an error and return the exit code that it leads to."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        options = f"; `{context.command_path} --help` lists the options" if context else ""
        _say(error.format_message().rstrip(".") + options)
        return ExitCode.USAGE
    if isinstance(error, UserError | KernelgenFault):
        _say(str(error))
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        if not error.filename:
            _close_stdout()
        place = f" (writing {error.filename})" if error.filename else ""
        _say(f"the disk is full{place}; make room and run again")
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


def _close_stdout() -> None:
    """Let nothing more be written to a stdout that takes no more."""
    # The interpreter flushes it once more when it exits, and would complain there.
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)


def _say(message: str) -> None:
    click.echo(f"error: {' '.join(message.splitlines())}", err=True)


def _leave(number: int, _frame: object) -> None:
    # Once is enough: a second signal must not interrupt the tidying.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(_SIGNALLED + number)


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="kernelgen")
def program() -> None:
    """Render CUDA solutions from YAML problems, and grade any solution.

    Exit codes: 0 all is well, 1 a solution failed or differs, 2 a mistake in
    the usage or in a file, 3 a fault of kernelgen or of this machine, 130 interrupted.
    """


def main() -> None:
    """Run the command line and exit with its code."""
    settle_streams()
    # As after ^C, what was started is ended and temporary folders are removed, whoever asks.
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Not where the parent has it ignored, as nohup has SIGHUP.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)
    program(prog_name="kernelgen")
