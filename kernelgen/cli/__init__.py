"""The command line: which commands there are, and how an error becomes a line and an exit code.

A command's module is imported when the command runs, so that `kernelgen --help` stays fast. Each
module exposes `command`.
"""

import difflib
import signal
import sys
from collections.abc import Callable
from importlib import import_module

import click
import msgspec
from click.shell_completion import CompletionItem

from kernelgen import __version__
from kernelgen.cli.failure import exit_code_of, quiet_broken_pipe

# A shell's exit code for a program that a signal ended is this plus the signal's number.
_SIGNALLED = 128


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A command: where it lives, and what it does, in one line."""

    module: str
    summary: str
    hidden: bool = False


_COMMANDS = {
    "render": _Entry(module="render", summary="Write the solution of a problem."),
    "grade": _Entry(module="grade", summary="Build, check and time solutions."),
    "report": _Entry(module="report", summary="Show recorded runs: a page, JUnit XML, a table."),
    "compare": _Entry(module="compare", summary="Say what changed between two reports."),
    "sweep": _Entry(module="sweep", summary="Time a problem's solution at many sizes."),
    "list": _Entry(module="list", summary="List the problems."),
    "show": _Entry(module="show", summary="Show one problem: its constants, cases and model."),
    "build": _Entry(module="build", summary="Compile solutions, and tell what each kernel uses."),
    "lint": _Entry(module="lint", summary="Say what is wrong with a problem."),
    "profile": _Entry(
        module="profile", summary="Say what a solution's kernels do, and what to try."
    ),
    "tune": _Entry(module="tune", summary="Search a problem's schedule on this machine."),
    "selftest": _Entry(module="selftest", summary="Grade candidates whose verdicts are known."),
    "calibrate": _Entry(module="calibrate", summary="Measure what this device can do."),
    "doctor": _Entry(module="doctor", summary="Say what this machine can do, and what it lacks."),
    "completion": _Entry(module="completion", summary="Print the shell's completion script."),
    "readme": _Entry(module="readme", summary="Fill a README's table of results.", hidden=True),
}


class _Program(click.Group):
    """The group of commands; it imports one only to run it, and maps what it raises."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not ctx.resilient_parsing:
            known = [name for name, entry in _COMMANDS.items() if not entry.hidden]
            close = difflib.get_close_matches(args[0], known, n=1)
            mend = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{mend}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*_COMMANDS]  # `list` here is the submodule once it is imported

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"kernelgen.cli.{_COMMANDS[cmd_name].module}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, e.summary) for name, e in _COMMANDS.items() if not e.hidden])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=entry.summary)
            for name, entry in _COMMANDS.items()
            if name.startswith(incomplete) and not entry.hidden
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> None:
        try:
            code = _run(lambda: super(_Program, self).invoke(ctx))
        except BrokenPipeError:
            code = quiet_broken_pipe()
        except (KeyboardInterrupt, Exception) as error:
            if isinstance(error, click.UsageError):
                raise
            code = exit_code_of(error)
        ctx.exit(code)


def _run(invoke: Callable[[], object]) -> int:
    """Run a command and return its exit code, having written out all that it printed."""
    try:
        result = invoke()
        code = result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:
        code = leaving.exit_code
    sys.stdout.flush()
    return code


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
    # As after ^C, what was started is ended and temporary folders are removed, whoever asks.
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Not where the parent has it ignored, as nohup has SIGHUP.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)
    program(prog_name="kernelgen")
