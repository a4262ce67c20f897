"""The supervisor: from paths to verdicts. It imports neither torch nor candidate code."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

import msgspec

from kernelgen.errors import ExitCode, UserError
from kernelgen.grading.options import GradeOptions, Observer, compiles_baselines
from kernelgen.grading.queue.job import Job, versions
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.supervisor.crew import Crew, ended
from kernelgen.grading.tools.sanitizer import find_sanitizer
from kernelgen.grading.verdict import SCHEMA_VERSION, Run, Verdict
from kernelgen.hardware.device import facts_of, usable_cores, visible_gpus
from kernelgen.problem.record import Problem
from kernelgen.sandbox.limits import available_bytes
from kernelgen.sandbox.survey import require_namespaces

# A fork server with torch, two forks of it, and a compiler that reads torch's headers.
_LANE_BYTES = 3 << 30
# The room that the grader asks for before it starts on a GPU; see grading/footprint.py.
_LANE_GPU_BYTES = 5 << 30
_MOST_LANES = 32
# The lanes of one GPU take turns on it, and each holds two CUDA contexts there.
_MOST_LANES_ON_GPU = 8
_NO_CANDIDATES = ("__init__.py", "conftest.py")


class Interrupted(KeyboardInterrupt):
    """Grading was ended by ^C or SIGTERM.

    Attributes:
        run: has the verdicts so far.
        code: of the program: 130, or 143 after SIGTERM.
    """

    def __init__(self, run: Run, code: int = ExitCode.INTERRUPTED) -> None:
        super().__init__()
        self.run, self.code = run, code


def grade(  # noqa: PLR0913 (what of a run may be chosen)
    paths: Sequence[Path | str],
    *,
    options: GradeOptions | None = None,
    observer: Observer | None = None,
    jobs: int = 1,
    problems: Mapping[Path, Problem | UserError] | None = None,
    gpus: Sequence[str] = (),
    journal: Journal | None = None,
    crew: Crew | None = None,
) -> Run:
    """Grade solutions.

    Args:
        paths: files, or folders whose *.py files are meant, as `expand` tells.
        options: what the run may do.
        observer: told what is going on, by one thread at a time.
        jobs: how many files to build and check at once on a GPU; each is timed while nothing else
            runs there.
        problems: file -> the problem to grade it on, where that is not for `options` to say; or why
            there is none, which is its verdict.
        gpus: to be used, as CUDA_VISIBLE_DEVICES names them; else the first one.
        journal: has the verdicts of an earlier run, which are not made again, and gets the others.
        crew: grades, in place of this machine's; then it tells `jobs`, `gpus` and `journal`.

    Returns:
        One verdict a file, in the order given. One bad file never stops the others.

    Raises:
        UserError: a path does not exist, a folder holds no solution, or compute-sanitizer is asked
            for and is not there.
        KernelgenFault: the grader's own processes cannot be started.
        ContainmentError: `options.sandbox` is `require`, and this machine has not all of it.
        Interrupted: as `grade_jobs`.
    """
    files = expand(paths)
    options = options or GradeOptions()
    if crew is None:
        require_tools(options)
    queue = [_job(file, options, (problems or {}).get(file, options.problem)) for file in files]
    crew = crew or Crew(
        min(jobs * max(1, len(gpus)), len(queue)),
        compiles=any(compiles_baselines(job.options) for job in queue),
        gpus=gpus,
        journal=journal,
    )
    return grade_jobs(queue, crew, observer, journal)


def grade_jobs(
    queue: Sequence[Job], crew: Crew, observer: Observer | None, journal: Journal | None = None
) -> Run:
    """Grade files, each by its own options; the crew is left at the end.

    Returns:
        One verdict a file, in the order given.

    Raises:
        KernelgenFault: the grader's own processes cannot be started.
        Interrupted: by ^C or SIGTERM, after everything that was started has been ended.
    """
    if observer is not None:
        observer.begin([str(job.path) for job in queue])
    waiting: dict[Future[Verdict], int] = {}
    verdicts: dict[int, Verdict] = {}

    def keep(future: Future[Verdict]) -> None:
        verdicts[waiting[future]] = future.result()
        del waiting[future]

    try:
        with crew:
            if journal is not None and journal.count < len(queue):
                crew.start()
            for index, job in enumerate(queue):
                future = crew.submit(job, observer, index)
                waiting[future] = index
                if future.done():  # found in the journal
                    keep(future)
            for future in ended(waiting):
                keep(future)
    except (KeyboardInterrupt, SystemExit) as stop:
        for future in list(waiting):
            if future.done() and not future.cancelled() and future.exception() is None:
                keep(future)
        code = stop.code if isinstance(stop, SystemExit) else None
        code = code if isinstance(code, int) else ExitCode.INTERRUPTED
        raise Interrupted(_run(verdicts, queue, crew), code) from None
    return _run(verdicts, queue, crew)


def _job(file: Path, options: GradeOptions, problem: Problem | UserError | None) -> Job:
    if isinstance(problem, UserError):
        return Job(path=file, options=options, no_problem=str(problem))
    return Job(path=file, options=msgspec.structs.replace(options, problem=problem))


def require_tools(options: GradeOptions) -> None:
    """Make sure that this machine has what the options ask for.

    Raises:
        UserError: it has no compute-sanitizer.
        ContainmentError: it cannot contain candidates.
    """
    if options.sanitize and options.device != "cpu":
        find_sanitizer()
    if options.sandbox == "require":
        require_namespaces()


def _run(verdicts: Mapping[int, Verdict], queue: Sequence[Job], crew: Crew) -> Run:
    imports = dict.fromkeys(name for job in queue for name in job.options.allow_imports)
    return Run(
        schema=SCHEMA_VERSION,
        environment=versions(tuple(imports)) | crew.environment,
        verdicts=tuple(verdicts[index] for index in sorted(verdicts)),
    )


def usual_jobs(options: GradeOptions, gpus: int = 1) -> int:
    """Return how many files to build and check at once on each of some GPUs where nobody says."""
    facts = facts_of(options.gpu or visible_gpus(1)[0]) if options.device != "cpu" else None
    if facts is None:
        return 1
    lanes = most_lanes(usable_cores(), available_bytes(), [facts.memory_bytes] * gpus)
    return max(1, lanes // gpus)


def most_lanes(cores: int, memory_bytes: int, gpus_bytes: Sequence[int]) -> int:
    """Return how many files to grade at once on all of some GPUs, as far as memory goes."""
    # A lane keeps two to three cores busy: two compilers, or the oracle and the candidate.
    lanes = min(cores, max(2, cores // 2), _MOST_LANES, memory_bytes // _LANE_BYTES)
    if gpus_bytes:
        # Each GPU gets as many lanes as any other, so the fullest one decides.
        on_each = min(_MOST_LANES_ON_GPU, min(gpus_bytes) // _LANE_GPU_BYTES)
        lanes = min(lanes, on_each * len(gpus_bytes))
    return max(1, lanes)


def expand(paths: Sequence[Path | str]) -> list[Path]:
    """Return the files that paths mean, each once.

    In a folder, hidden files and those that Python and pytest look for by name are none.

    Raises:
        UserError: a path does not exist, or a folder holds no solution.
    """
    files: dict[Path, None] = {}
    for path in map(Path, paths):
        if path.is_dir():
            # A link to nothing is listed as well: its verdict says that it cannot be read.
            inside = sorted(f for f in path.glob("[!.]*.py") if f.is_file() or f.is_symlink())
            inside = [file for file in inside if file.name not in _NO_CANDIDATES]
            if not inside:
                raise UserError(
                    f"{path}: holds no .py file (not counting hidden ones, __init__.py and "
                    "conftest.py); name a solution, or render one with `kernelgen render NAME`"
                )
            files |= dict.fromkeys(inside)
        elif not path.exists():
            kind = "a link to nothing" if path.is_symlink() else "no such file or folder"
            raise UserError(f"{path}: {kind}")
        elif path.suffix != ".py":
            raise UserError(f"{path}: a solution is a *.py file")
        else:
            files[path] = None
    return list(files)
