"""The types of command line arguments that several commands share."""

import re

import click
from click.shell_completion import CompletionItem

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", re.ASCII)


class ProblemName(click.types.StringParamType):
    """A problem's name, or a path to its file; the shell completes both."""

    name = "problem"

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click passes it
        param: click.Parameter,  # noqa: ARG002 - click passes it
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the problems whose names begin so, else ask the shell for a file."""
        from kernelgen.problem.library import problem_names

        names = [name for name in problem_names() if name.startswith(incomplete)]
        if names:
            return [CompletionItem(name) for name in names]
        return [CompletionItem(incomplete, type="file")]


def bytes_of(size: str) -> int:
    """Return the bytes of `24GB` (24e9) or `24GiB` (24 * 2**30); for use as a click option's type.

    Raises:
        click.BadParameter: no unit, an unknown one, or no bytes at all.
    """
    match = _SIZE.fullmatch(size)
    if match is None or match.group(2).upper() not in _UNITS:
        raise click.BadParameter(f"{size!r}: write a number and a unit, such as 24GB or 24GiB")
    size_bytes = round(float(match.group(1)) * _UNITS[match.group(2).upper()])
    if size_bytes == 0:
        raise click.BadParameter(f"{size!r} is no memory at all")
    return size_bytes
