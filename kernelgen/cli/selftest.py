"""`kernelgen selftest`: grade candidates whose verdicts are known, and say where they differ."""

import secrets
from pathlib import Path
from typing import Literal

import click

from kernelgen.cli import options
from kernelgen.cli.report import until_stopped
from kernelgen.errors import ExitCode
from kernelgen.installation import selftest_folder

# Long enough that no two runs have the same by chance, short enough to be typed.
_SEEDS = 1_000_000


@click.command("selftest")
@options.device("auto is the CPU's candidates, and the GPU's where there is one.")
@click.option(
    "-k",
    "--only",
    multiple=True,
    metavar="GLOB",
    help="Only files with such a name, as hostile_* or cuda/*; repeatable.",
)
@options.flag("--quick", "Leave out the files that say they are slow.")
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="Of the order; else it is a new one."
)
@options.jobs("How many to grade at once; else what this machine has cores and memory for.")
@options.path(
    "--corpus", "DIR", "Grade DIR/candidates on DIR/problems in place of what comes with kernelgen."
)
@options.flag("--classes", "Only list the classes of attack, with their files.")
@options.json()
@options.QUIET
@options.verbose("A line for every result.")
def command(  # noqa: PLR0913 - one parameter an option
    *,
    device: Literal["auto", "cuda", "cpu"],
    only: tuple[str, ...],
    quick: bool,
    seed: int | None,
    jobs: int | None,
    corpus: Path | None,
    classes: bool,
    json: Path | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Grade candidates whose verdicts are known, and compare.

    They come with kernelgen: honest ones, broken ones, wrong ones, and hostile ones, which set out
    to fool the grader. They are graded in random order and several at once; what is timed is timed
    alone.

    Exit code: 0 every verdict is the expected one, 1 one is not, 2 a mistake in the command or in
    the corpus, 3 the grader's fault or nothing could be run, 130 interrupted.
    """
    from kernelgen.report.console import console_for, show_and_write
    from kernelgen.selftest.corpus import read_corpus
    from kernelgen.selftest.report import exit_code, progress, show, show_classes
    from kernelgen.selftest.running import selftest
    from kernelgen.selftest.selection import select

    candidates = read_corpus(corpus or selftest_folder())
    if classes:
        show_classes(candidates, console_for(stderr=False))
        return ExitCode.OK
    selection = select(candidates, device=device, names=only, quick=quick)
    seed = secrets.randbelow(_SEEDS) if seed is None else seed
    jobs = jobs or selection.jobs
    if not quiet:
        click.echo(f"{len(selection.run)} candidates, {jobs} at once, --seed {seed}", err=True)
    run, stopped = until_stopped(
        lambda reporter: selftest(selection, reporter, seed=seed, jobs=jobs),
        progress(console_for(stderr=True), quiet=quiet),
    )
    show_and_write(
        run, lambda console: show(run, selection.left_out, console, verbose=verbose), json
    )
    return stopped or exit_code(run)
