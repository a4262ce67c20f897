"""The types of command line arguments that several commands share."""

import click
from click.shell_completion import CompletionItem


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
