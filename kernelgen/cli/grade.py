"""`kernelgen grade`: judge solutions, and say so to people, to scripts and to the shell."""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import msgspec

from kernelgen.build.toolchain import builds_folder
from kernelgen.cli import kernelbench, options
from kernelgen.cli.report import DOCUMENT_OPTIONS, Documents, keep_last, until_stopped
from kernelgen.errors import UserError
from kernelgen.grading.options import QUICK_SAMPLES, GradeOptions, Observer
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.verdict import Run
from kernelgen.problem.record import Problem
from kernelgen.scratch import temporary_folder

_DEFAULTS = GradeOptions()
_EXCLUSIVE = {
    "--problem": ("--reference",),
    "--baseline": ("--no-baseline", "--no-timing"),
    "--quick": ("--baseline", "--no-baseline", "--no-timing", "--samples"),
    "--build-cache": ("--no-build-cache", "--ray", "--remote"),
    "--gpus": ("--device cpu", "--ray", "--remote"),
    "--remote": ("--ray", "--device", "--sanitize", "--allow-import", "--memory-limit"),
}
_SENT_AT_ONCE = 16  # files; a service grades as many of them as it can


@click.command("grade")
@click.argument("paths", nargs=-1, required=True, type=options.PATH, metavar="PATH...")
@options.problem("Grade on this problem; else a file's line `# problem: NAME` or its name tells.")
@options.path(
    "--reference", "FILE.py", "Grade on this KernelBench file: Model, get_inputs, get_init_inputs."
)
@options.DEVICE
@options.ALLOW_IMPORT
@options.TOLERANCE
@options.choice(
    "--require",
    ("own_kernel", "anything"),
    "In place of the problem's; anything takes files without a kernel of their own.",
)
@options.PRECISION
@options.flag(
    "--eval-mode", "Grade both sides under eval(); else in training mode, as KernelBench does."
)
@options.flag("--gradients", "Grade forward and backward together, and compare gradients too.")
@options.flag(
    "--launch-overhead",
    "Time calls on an idle GPU, as KernelBench does, launches included.",
)
@options.flag(
    "--sanitize", "Also look for memory errors and races with compute-sanitizer, on a small case."
)
@options.with_options(*kernelbench.RUN_OPTIONS)
@options.flag("--quick", f"While you write a kernel: {QUICK_SAMPLES} samples, no torch.compile.")
@options.BASELINE
@options.flag("--no-baseline", "Time the solution alone.")
@options.NO_TIMING
@options.timing_budget("solution")
@click.option(
    "--interval",
    type=options.Number("percentage", most=100),
    default=100 * _DEFAULTS.interval,
    show_default=True,
    metavar="PERCENT",
    help="Stop timing once every speedup is known to within this; 0 uses up the budget.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=3),  # the interval of a median of fewer says nothing
    show_default=str(_DEFAULTS.max_samples),
    metavar="N",
    help="At most this many timed calls of the solution and of each baseline.",
)
@options.jobs(
    "Build and check so many solutions at once on a GPU; each is timed while the others "
    "on it wait. Else one for each four cores, at most 4; on a CPU one."
)
@options.GPUS
@click.option(
    "--ray",
    "cluster",
    metavar="auto|HOST:PORT",
    help="Grade on a Ray cluster: on all its GPUs; without any, on its nodes' CPUs.",
)
@click.option(
    "--remote",
    metavar="URL",
    help="Grade by a kernelgen serve there, whose token KERNELGEN_TOKEN has; needs no GPU here.",
)
@options.path(
    "--resume",
    "RUN",
    "Append each verdict to this file as it is made, and make none again that is there: "
    "the same command goes on after a kill.",
)
@options.seconds(
    "--build-timeout",
    _DEFAULTS.build_timeout_s,
    "For importing and constructing a solution, compilation included.",
)
@options.CALL_TIMEOUT
@options.seconds(
    "--candidate-timeout",
    _DEFAULTS.candidate_timeout_s,
    "For all that a solution does; else that for building, 10 calls and twice the timing.",
)
@click.option(
    "--memory-limit",
    "memory_limit_bytes",
    type=options.bytes_of,
    metavar="SIZE",
    help="Act as if the GPU had this much memory, such as 24GB or 24GiB.",
)
@options.sandbox()
@options.path(
    "--build-cache",
    "DIR",
    "Keep compiled extensions here for later runs; else in your cache folder.",
)
@options.flag("--no-build-cache", "Keep none, and use none.")
@options.json()
@options.with_options(*DOCUMENT_OPTIONS)
@options.destination(
    "--trace", "Write when each phase of each file ran here, as Chrome's trace format."
)
@options.QUIET
@options.verbose("The details of passes too; every phase on stderr, a line each.")
def command(  # noqa: PLR0913 - one parameter an option
    paths: tuple[Path, ...],
    *,
    jobs: int | None,
    gpus: tuple[str, ...] | None,
    cluster: str | None,
    remote: str | None,
    resume: Path | None,
    trace: Path | None,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> int:
    """Grade solutions: build them, check every case at the problem's tolerance, time them.

    PATH is a Python file that defines ModelNew, or a folder of such files, in which hidden ones,
    __init__.py and conftest.py do not count. With --kernelbench, it is a run's folder, whose files
    tell their problem by KernelBench's naming; the results also go to eval_results.json in it.

    Exit code: 0 all passed, 1 a solution failed, 2 a mistake in the command or in a problem file,
    3 the grader's fault or nothing could be graded, 130 interrupted.
    """
    from kernelgen.grading.supervisor.crew import Crew
    from kernelgen.grading.supervisor.grade import grade, usual_jobs
    from kernelgen.report.console import console_for
    from kernelgen.report.json_report import Recorded
    from kernelgen.report.outcome import exit_code
    from kernelgen.report.planned import with_plans
    from kernelgen.report.progress import progress
    from kernelgen.report.run_table import show
    from kernelgen.report.timeline import Timeline

    documents = Documents(**{name: given.pop(name) for name in Documents.__struct_fields__})
    runs = kernelbench.run_folders(paths, given)
    asked = _options(gpus=gpus, **given)
    own = None if runs is None else runs.problems
    paths = paths if own is None else tuple(own)
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    # Of others' builds, others take care.
    with (
        _journal(resume) as journal,
        _with_builds(asked, here=cluster is None and remote is None) as asked,
    ):
        crew: Crew | None = None
        if cluster is not None:
            from kernelgen.service.cluster import Cluster

            crew = Cluster(cluster, asked, jobs=jobs, journal=journal)
        if remote is not None:
            from kernelgen.service.remote import Remote

            token = os.environ.get("KERNELGEN_TOKEN", "")
            crew = Remote(remote, token=token, jobs=jobs or _SENT_AT_ONCE, journal=journal)

        timeline = Timeline()

        def grading(observer: Observer) -> Run:
            return grade(
                paths,
                options=asked,
                observer=timeline.telling(observer),
                jobs=jobs or usual_jobs(asked, len(gpus or "1")),
                problems=own,
                gpus=gpus or (),
                journal=journal,
                crew=crew,
            )

        told = progress(console_for(stderr=True), quiet=quiet, verbose=verbose)
        run, stopped = until_stopped(grading, told)
        asked_by = {"command": shlex.join(["kernelgen", *sys.argv[1:]]), "date": date}
        run = msgspec.structs.replace(run, environment=run.environment | asked_by)
    if not run.verdicts:
        places = ", ".join(map(str, paths))
        raise UserError(f"{places}: nothing to grade; a solution is a *.py file")
    # None is lost if another cannot be written: the disk is full, the reader of a pipe left.
    try:
        show(run, console_for(stderr=documents.on_stdout), verbose=verbose)
    finally:
        try:
            if runs is not None:
                runs.write(run)
        finally:
            keep_last(run)
            if not stopped and (documents.json or documents.html):
                known = {path: one for path, one in (own or {}).items() if isinstance(one, Problem)}
                run = with_plans(run, asked, known)
            documents.write([Recorded(name="", run=run)])
            if trace is not None:
                timeline.write(trace)
    return stopped or exit_code(run)


@contextlib.contextmanager
def _with_builds(asked: GradeOptions, *, here: bool) -> Iterator[GradeOptions]:
    """Options under which what is built here has a folder, if only for this run.

    Without one, candidates build in their own processes, which stand still while others are timed.
    """
    if asked.build_cache is None and here:
        with temporary_folder() as folder:
            yield msgspec.structs.replace(asked, build_cache=folder)
    else:
        yield asked


@contextlib.contextmanager
def _journal(path: Path | None) -> Iterator[Journal | None]:
    """Open a journal, and say at the end what of the run is not in it."""
    if path is None:
        yield None
        return
    with Journal(path) as journal:
        if journal.torn:
            message = f"{path}: {journal.torn} lines cannot be read; their files are graded again"
            click.echo(message, err=True)
        yield journal
    if journal.problem:
        click.echo(f"{journal.problem}; what is missing there is graded again", err=True)


def _options(  # noqa: PLR0913 - what the options of grading cannot take as it is
    *,
    problem: str | None,
    reference: Path | None,
    baselines: tuple[str, ...] | None,
    no_baseline: bool,
    no_timing: bool,
    interval: float,
    samples: int | None,
    quick: bool,
    build_cache: Path | None,
    no_build_cache: bool,
    gpus: tuple[str, ...] | None,
    **given: Any,
) -> GradeOptions:
    """Return what a command line asks for.

    Raises:
        UserError: options that exclude each other, or a value that cannot be used.
    """
    options.refuse_together(_EXCLUSIVE)
    for name in given["allow_imports"]:
        if not name.isidentifier():
            raise UserError(f"--allow-import {name}: not a top-level module name, such as triton")
    if gpus is not None:
        given["device"] = "cuda"
    most = _DEFAULTS.max_samples if samples is None else samples
    asked = GradeOptions(
        problem=_problem(problem, reference),
        baselines=() if no_baseline else baselines,
        time=not no_timing,
        min_samples=min(_DEFAULTS.min_samples, most),
        max_samples=most,
        interval=interval / 100,
        build_cache=None if no_build_cache else _cache(build_cache),
        **given,
    )
    return asked.in_a_hurry() if quick else asked


def _problem(problem: str | None, reference: Path | None) -> Problem | None:
    from kernelgen.problem.library import load_problem

    if reference is None:
        return None if problem is None else load_problem(problem)
    if reference.suffix != ".py":
        message = "not a Python file; a YAML problem or a problem's name goes with --problem"
        raise UserError(f"--reference {reference}: {message}")
    return load_problem(reference)


def _cache(folder: Path | None) -> Path | None:
    """Return the folder for compiled extensions, made if need be."""
    try:
        if folder is None:
            return builds_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        message = f"--build-cache {folder or error.filename}: cannot be made: {error.strerror}"
        if folder is not None:
            raise UserError(message) from error
        click.echo(f"{message}; compiled extensions are not kept", err=True)
    return folder
