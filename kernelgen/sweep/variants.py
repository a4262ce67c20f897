"""A sweep: a problem's rendered solution, graded at each of the settings that a file lists.

Every point is rendered when the file is read, so that a mistake in the last one is told before the
first one is graded.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kernelgen.errors import ProblemError, UserError
from kernelgen.grading.options import GradeOptions, Observer, compiles_baselines
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.supervisor.grade import grade_jobs, require_tools
from kernelgen.grading.verdict import Run
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import MAIN, Backend, Minimal, Problem, device_of
from kernelgen.problem.text import read_raw
from kernelgen.problem.yaml_tree import YamlValue, as_yaml, read_tree
from kernelgen.rendering.solution import render

_KEYS = ("problem", "points")
_NO_FILE_NAME = re.compile(r"[^\w=.+-]+")


def read_sweep(path: Path, backend: Backend, options: GradeOptions) -> tuple[Job, ...]:
    """Read a sweep's file, and render the solution of every point, to be graded by the options.

    Raises:
        ProblemError: the file cannot be read or is wrong, or the problem does not take a point's
            settings; the message names line and key.
        UserError: the problem cannot be rendered at all.
    """
    try:
        fields = read_tree(path, read_raw(path)).fields(_KEYS, _KEYS)
        problem = _problem(fields["problem"])
        found: dict[Path, Job] = {}
        for value in fields["points"].elements():
            job = _variant(value, problem, backend, options)
            if found.setdefault(job.path, job) is not job:
                raise value.error("the same settings stand above; remove one of the points")
    except RecursionError as error:
        raise ProblemError(path, None, None, "nested too deeply; a sweep is flat") from error
    if not found:
        raise fields["points"].error("expected a list of points, found an empty one; add a point")
    return tuple(found.values())


def sweep(variants: Sequence[Job], observer: Observer) -> Run:
    """Grade variants one after another; a verdict's labels are its point's settings.

    Raises:
        ContainmentError: `sandbox` is `require`, and this machine cannot contain candidates.
        KernelgenFault, Interrupted: as `grade_jobs`.
    """
    require_tools(variants[0].options)
    return grade_jobs(variants, Crew(1, compiles=compiles_baselines(variants[0].options)), observer)


def _problem(value: YamlValue) -> Problem:
    """Return the problem: by name, or by a path that starts at the sweep's own folder."""
    name = value.one_line()
    path = Path(name)
    is_path = len(path.parts) > 1 or path.suffix != ""
    with _blaming(value):
        return load_problem(value.path.parent / path if is_path else name)


def _variant(value: YamlValue, problem: Problem, backend: Backend, options: GradeOptions) -> Job:
    """Render one point, as a job on the problem of its size."""
    given = {name: item.constant() for name, item in value.items()}
    # As `--set` takes them: there, Python's `1e-05` would be text.
    texts = {name: as_yaml(setting) for name, setting in given.items()}
    with _blaming(value):
        source = render(problem, backend, texts)
    own = problem.constants_for(MAIN, device_of(backend))
    names = {name: name.removeprefix("constants.") for name in given}
    constants = {names[name]: setting for name, setting in given.items() if names[name] in own}
    resized = msgspec.structs.replace(
        problem,
        constants={**own, **constants},
        cpu_constants={},
        cases=(),
        # Its declared bytes hold for its own size alone.
        minimal=Minimal(),
        cpu_minimal=Minimal(),
    )
    settings = "_".join(f"{name}={text}" for name, text in texts.items())
    path = Path(_NO_FILE_NAME.sub("-", settings or problem.name) + ".py")
    own_options = msgspec.structs.replace(options, problem=resized)
    return Job(path=path, data=source.encode(), options=own_options, labels=given)


@contextmanager
def _blaming(value: YamlValue) -> Iterator[None]:
    """Say of an error that names no place of its own that this value leads to it."""
    try:
        yield
    except ProblemError:
        raise
    except UserError as error:
        raise value.error(str(error)) from error
