"""Render reference files, grade what is rendered and a verbatim copy of each, and print a table.

python scripts/try_references.py ../KernelBench                     as CUDA, on a GPU
python scripts/try_references.py problem.py folder --backend cpp    as C++, on the CPU
"""

import contextlib
import multiprocessing
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import click
import msgspec
from tables import escaped, row, rule

from kernelgen.build.toolchain import builds_folder
from kernelgen.destination import write_whole
from kernelgen.errors import UserError, in_one_line
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.supervisor.grade import grade
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.kernelbench.checkout import Checkout
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Backend, Problem, device_of
from kernelgen.rendering.solution import render
from kernelgen.report.console import console_for
from kernelgen.report.progress import progress
from kernelgen.solution.file import NO_KERNEL

# A file's own code is stopped after a minute, by whoever traces it.
_RENDER_S = 300.0
# A line that blames the file's code is untrue where a copy of that code passes.
_BLAMES = re.compile(r"its code raises|sent no graph|the process that traces it")
REFUSED = "refused"


class Tried(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a reference file.

    Attributes:
        rendered: `written`, `all in torch`, `refused` or `failed`, which is kernelgen's fault.
        line: why it is refused or failed.
        status, reason: of the verdict on the rendered file, if there is one.
        copy, copy_reason: of the verdict on the verbatim copy.
        outcome: of both, in words; `expected` says whether it may be so.
    """

    reference: str
    rendered: str
    line: str = ""
    status: str = ""
    reason: str = ""
    copy: str
    copy_reason: str = ""
    outcome: str
    expected: bool


class References(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `--json`."""

    backend: str
    counts: dict[str, int]
    references: tuple[Tried, ...]


def files_of(path: Path) -> list[Path]:
    """Return the reference files that a path means: it, a folder's, or all of a checkout's.

    Raises:
        UserError: there are none.
    """
    if path.is_file():
        return [path]
    if (path / "KernelBench").is_dir() or any(path.glob("level*/")):
        checkout = Checkout(path)
        return [file for level in checkout.levels for file in checkout.problems(level).values()]
    if not (found := sorted(path.glob("[!._]*.py"))):
        raise UserError(f"{path}: expected reference files (*.py), or folders level1, level2, ...")
    return found


def render_each(files: Sequence[Path], backend: Backend, pipe: Connection) -> None:
    """Send each file's text and "", or nothing and why there is none."""
    for file in files:
        try:
            answer = render(load_problem(file), backend), ""
        except UserError as error:
            answer = "", f"{REFUSED}: {error}"
        except Exception as error:  # noqa: BLE001 - a bug that one file shows stops no other
            answer = "", f"failed: {in_one_line(error)}"
        pipe.send(answer)


def rendered_texts(
    files: Sequence[Path], backend: Backend
) -> Iterator[tuple[Path, tuple[str, str]]]:
    """Yield each file and what `render_each` sends: another process follows one that is lost."""
    context, left = multiprocessing.get_context("spawn"), list(files)
    while left:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=render_each, args=(left, backend, theirs))
        process.start()
        theirs.close()
        with contextlib.closing(ours):
            while left:
                answer = "", f"failed: not rendered within {_RENDER_S:g} s"
                try:
                    if is_there := ours.poll(_RENDER_S):
                        answer = ours.recv()
                except EOFError:
                    is_there, answer = False, ("", "failed: the process that renders it ended")
                yield left.pop(0), answer
                if not is_there:
                    break
        process.kill()
        process.join()


def verbatim(data: bytes) -> bytes:
    """Return a reference file as a candidate: its Model is called ModelNew."""
    return re.sub(rb"\bModel\b", b"ModelNew", data)


def loaded(file: Path) -> Problem | UserError:
    try:
        return load_problem(file)
    except UserError as error:
        return error


def graded(
    candidates: dict[Path, Path], backend: Backend, jobs: int, *, quiet: bool
) -> dict[Path, Verdict]:
    """Return the verdict on each candidate, told with its reference file."""
    if not candidates:
        return {}
    device, cache = device_of(backend), builds_folder()
    options = GradeOptions(time=False, require="anything", device=device, build_cache=cache)
    with progress(console_for(stderr=True), quiet=quiet) as observer:
        run = grade(
            list(candidates),
            options=options,
            observer=observer,
            jobs=jobs,
            problems={path: loaded(file) for path, file in candidates.items()},
        )
    return dict(zip(candidates, run.verdicts, strict=True))


def judged(name: str, text: str, line: str, own: Verdict | None, copy: Verdict) -> Tried:
    """Return the outcome of a file, told what was rendered and both verdicts."""
    kind, _, why = line.partition(": ")
    if own is not None:
        kind = "all in torch" if NO_KERNEL in text else "written"
    copied = {Status.PASSED: "", Status.INVALID_PROBLEM: ", copy refused"}
    if own is None:  # both may lack a module
        copied[Status.BROKEN_CONTRACT] = ", copy refused"
    if copy.status not in copied:
        outcome, expected = f"copy {copy.status.value}", False
    elif own is not None:
        passed = own.status is Status.PASSED
        outcome = f"{kind}, {'passed' if passed else own.status.value}{copied[copy.status]}"
        expected = passed or own.status is copy.status is Status.INVALID_PROBLEM
    else:
        untrue = copy.passed and _BLAMES.search(why) is not None
        expected = kind == REFUSED and not untrue and "\n" not in why
        outcome = f"{kind}{', its copy passes' if untrue else copied[copy.status]}"
    return Tried(
        reference=name,
        rendered=kind,
        line=why,
        status="" if own is None else own.status.value,
        reason="" if own is None else own.reason,
        copy=copy.status.value,
        copy_reason=copy.reason,
        outcome=outcome,
        expected=expected,
    )


def lines_of(found: References) -> Iterator[str]:
    """Yield the table, the counts, and what is said of files that did not pass twice."""
    yield row(("reference", "rendered", "rendered file", "verbatim copy", "as expected"))
    yield rule(numbers=[False] * 5)
    for one in found.references:
        expected = "yes" if one.expected else "NO"
        yield row((escaped(one.reference), one.rendered, one.status, one.copy, expected))
    yield ""
    for outcome, count in found.counts.items():
        yield f"{count:4} {outcome}"
    for one in found.references:
        said = {"": one.line, "rendered file: ": one.reason, "copy: ": one.copy_reason}
        for who, why in said.items():
            if why:
                yield f"{one.reference}: {one.outcome}: {who}{' '.join(why.split())}"


def tried(
    files: Sequence[Path], folder: Path, backend: Backend, jobs: int, *, quiet: bool
) -> References:
    """Render and grade reference files; what is made of them is left in the folder."""
    shares = [files[n::jobs] for n in range(min(jobs, len(files)))]
    with ThreadPoolExecutor(len(shares)) as pool:
        answers = pool.map(lambda share: dict(rendered_texts(share, backend)), shares)
        texts = {file: answer for share in answers for file, answer in share.items()}
    places: dict[tuple[str, Path], Path] = {}
    for number, file in enumerate(files):
        made = {"rendered": texts[file][0].encode(), "copy": verbatim(file.read_bytes())}
        for kind, data in made.items():
            if data or kind == "copy":
                places[kind, file] = place = folder / kind / f"{number}_{file.name}"
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
    verdicts = graded({p: file for (_, file), p in places.items()}, backend, jobs, quiet=quiet)
    rows = []
    for file in files:
        own = verdicts.get(places.get(("rendered", file), file))
        name = f"{file.parent.name}/{file.stem}"
        rows.append(judged(name, *texts[file], own, verdicts[places["copy", file]]))
    counts = dict(Counter(one.outcome for one in rows).most_common())
    return References(backend=backend, counts=counts, references=tuple(rows))


@click.command()
@click.argument("paths", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True)
@click.option("--backend", type=click.Choice(["cuda", "cpp"]), default="cuda", show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--json", type=click.Path(path_type=Path), help="Write all that was found here.")
@click.option("--keep", type=click.Path(path_type=Path), help="Leave the files in this folder.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(  # noqa: PLR0913 - one parameter an option
    paths: tuple[Path, ...],
    *,
    backend: Backend,
    jobs: int,
    json: Path | None,
    keep: Path | None,
    quiet: bool,
) -> None:
    """Try reference files: KernelBench's checkout, folders of files, or files.

    As expected is one that passes, rendered and copied, or that is refused with a true line.

    Exit code: 0 all are as expected, 1 one is not, 2 a mistake in the command.
    """
    with contextlib.ExitStack() as held:
        folder = keep or Path(held.enter_context(tempfile.TemporaryDirectory()))
        try:
            files = list(dict.fromkeys(file for path in paths for file in files_of(path)))
            found = tried(files, folder, backend, jobs, quiet=quiet)
        except UserError as error:
            raise click.UsageError(str(error)) from error
    click.echo("\n".join(lines_of(found)))
    if json is not None:
        write_whole(msgspec.json.format(msgspec.json.encode(found)), json)
    sys.exit(not all(one.expected for one in found.references))


if __name__ == "__main__":
    command()
