"""`kernelgen selftest`: grade candidates whose verdicts are known, and say where they differ."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from kernelgen.errors import ExitCode, UserError
from kernelgen.installation import selftest_folder

if TYPE_CHECKING:
    from kernelgen.selftest.corpus import Candidate
    from kernelgen.selftest.record import SelftestRun
    from kernelgen.selftest.selection import Selection

_PATH = click.Path(path_type=Path)
# Long enough that no two runs have the same by chance, short enough to be typed.
_SEEDS = 1_000_000


class SelftestRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The command line of `kernelgen selftest`, parsed."""

    device: Literal["auto", "cuda", "cpu"]
    only: tuple[str, ...]
    kind: tuple[str, ...]
    quick: bool
    seed: int | None
    jobs: int | None
    rounds: int
    corpus: Path | None
    classes: bool
    json: Path | None
    quiet: bool
    verbose: bool


@click.command("selftest")
@click.option(
    "--device",
    type=click.Choice(("auto", "cuda", "cpu")),
    default="auto",
    show_default=True,
    help="auto is the CPU's candidates, and the GPU's where there is one.",
)
@click.option(
    "-k",
    "--only",
    multiple=True,
    metavar="GLOB",
    help="Only files with such a name, as hostile_* or cuda/*; repeatable.",
)
@click.option(
    "--kind",
    multiple=True,
    type=click.Choice(("honest", "broken", "wrong", "hostile")),
    help="Only this kind; repeatable.",
)
@click.option("--quick", is_flag=True, help="Leave out the files that say they are slow.")
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="Of the order; else it is a new one."
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many to grade at once; else what this machine has cores and memory for.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How often to grade each, every time in another order.",
)
@click.option(
    "--corpus",
    type=_PATH,
    metavar="DIR",
    help="Grade DIR/candidates on DIR/problems in place of what comes with kernelgen.",
)
@click.option("--classes", is_flag=True, help="Only list the classes of attack, with their files.")
@click.option(
    "--json",
    type=_PATH,
    metavar="FILE|-",
    help="Write all that was found here; - is stdout, and then the table goes to stderr.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.option("-v", "--verbose", is_flag=True, help="A line for every result.")
def command(**given: Any) -> None:
    """Grade candidates whose verdicts are known, and compare.

    They come with kernelgen: honest ones, broken ones, wrong ones, and hostile ones, which set out
    to fool the grader. They are graded in random order and several at once; what is timed is timed
    alone.

    Exit code: 0 every verdict is the expected one, 1 one is not, 2 a mistake in the command or in
    the corpus, 3 the grader's fault or nothing could be run, 130 interrupted.
    """
    request = SelftestRequest(**given)
    click.get_current_context().exit(_run(request))


def _run(request: SelftestRequest) -> int:
    from kernelgen.destination import check_destination
    from kernelgen.report.console import console_for
    from kernelgen.report.progress import Verbosity
    from kernelgen.selftest.corpus import read_corpus
    from kernelgen.selftest.report import progress, show_classes
    from kernelgen.selftest.running import selftest

    if request.quiet and request.verbose:
        raise UserError("--quiet and --verbose exclude each other; leave one of them out")
    corpus = read_corpus(request.corpus or selftest_folder())
    if request.classes:
        show_classes(corpus, console_for(stderr=False))
        return ExitCode.OK
    if request.json is not None:
        check_destination(request.json)
    selection = _selection(request, corpus)
    seed = secrets.randbelow(_SEEDS) if request.seed is None else request.seed
    jobs = selection.jobs if request.jobs is None else request.jobs
    count = len(selection.run) * request.rounds
    if not request.quiet:
        click.echo(f"{count} candidates, {jobs} at once, --seed {seed}", err=True)
    verbosity = Verbosity.of(quiet=request.quiet, verbose=False)
    with progress(console_for(stderr=True), verbosity) as reporter:
        run, exit_code = selftest(selection, reporter, seed=seed, jobs=jobs, rounds=request.rounds)
    if run.interrupted:
        # What is known by now is reported like any other result.
        done = sum(result.verdict is not None for result in run.results)
        click.echo(f"interrupted; {done} of {count} graded before it", err=True)
    _report(request, run)
    return exit_code


def _selection(request: SelftestRequest, corpus: "tuple[Candidate, ...]") -> "Selection":
    from kernelgen.selftest.corpus import Kind
    from kernelgen.selftest.selection import select

    return select(
        corpus,
        device=request.device,
        names=request.only,
        kinds=tuple(Kind(kind) for kind in request.kind),
        quick=request.quick,
    )


def _report(request: SelftestRequest, run: "SelftestRun") -> None:
    from kernelgen.destination import STDOUT
    from kernelgen.report.console import console_for
    from kernelgen.report.json_report import write
    from kernelgen.selftest.report import show

    # Neither is lost if the other cannot be written: the disk is full, the reader of a pipe left.
    try:
        show(run, console_for(stderr=request.json == STDOUT), verbose=request.verbose)
    finally:
        if request.json is not None:
            write(run, request.json)
