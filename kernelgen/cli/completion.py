"""`kernelgen completion`: the script that makes a shell complete kernelgen's commands and names."""

import click
from click.shell_completion import get_completion_class

from kernelgen.errors import UserError


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: eval "$(kernelgen completion bash)", in ~/.bashrc. For zsh the
    same with zsh, in ~/.zshrc. For fish: kernelgen completion fish | source.
    """
    maker = get_completion_class(shell)
    if maker is None:
        raise UserError(f"the installed click cannot complete for {shell}; upgrade click")
    script = maker(ctx.find_root().command, {}, "kernelgen", "_KERNELGEN_COMPLETE")
    # Not `source()`: that first runs bash to learn its version, and the script works without.
    click.echo(script.source_template % script.source_vars())
