"""The parts of a solution's section that are about how it was built and run."""

from collections.abc import Iterator

from markupsafe import Markup

from kernelgen.grading.verdict import OWN_KERNELS, KernelUse, Verdict
from kernelgen.report.html.bars import share_bar
from kernelgen.report.html.numbers import byte_size, count, percent, plain
from kernelgen.report.html.view import Fact, Fold, Grid, Heading, Part
from kernelgen.report.printable import printable_block
from kernelgen.sandbox.record import Containment

# What a page carries of a log; the JSON report has all of it.
_MOST_LOG = 65_536


def kernel_part(kernels: tuple[KernelUse, ...]) -> Part:
    """Return what ran in a call, largest share first."""
    headings = (
        Heading(text="kernel"),
        Heading(text="whose"),
        Heading(text="share", number=True),
        Heading(text=""),
        Heading(text="us a call", number=True),
        Heading(text="times a call", number=True),
    )
    rows = tuple(
        (
            Markup("<code>{}</code>").format(printable_block(use.name)),
            use.owner,
            percent(use.share),
            share_bar(use.share, "candidate" if use.owner in OWN_KERNELS else "other"),
            plain(use.time_us),
            f"{use.calls:.3g}",
        )
        for use in kernels
    )
    own = sum(use.share for use in kernels if use.owner in OWN_KERNELS)
    caption = f"What ran in a call of the main case: {percent(own)} of it the solution's own"
    return Part(title="Kernels", grids=(Grid(caption=caption, headings=headings, rows=rows),))


def build_part(verdict: Verdict) -> Part | None:
    """Return how long the build took and what was printed; None if nothing is known of either."""
    facts = []
    if verdict.build is not None:
        cached = ", in the build folder of an earlier run" if verdict.build.cached else ""
        facts = [Fact(name="built in", value=f"{plain(verdict.build.seconds, 3)} s{cached}")]
    folds = _log(verdict)
    if not facts and not folds:
        return None
    return Part(title="Build and log", wide=bool(folds), facts=tuple(facts), folds=folds)


def containment_part(containment: Containment) -> Part:
    """Return what was in force around the candidate."""
    facts = [
        Fact(name="level", value=containment.level),
        Fact(name="network", value=containment.network),
        Fact(name="file system", value=containment.filesystem),
        Fact(name="processes", value=containment.processes),
    ]
    if containment.landlock_abi:
        facts.append(Fact(name="Landlock", value=f"version {containment.landlock_abi}"))
    facts += _limits(containment)
    if containment.missing:
        facts.append(Fact(name="missing", value="; ".join(containment.missing)))
    return Part(title="Containment", wide=False, facts=tuple(facts))


def _limits(containment: Containment) -> Iterator[Fact]:
    limits = containment.limits
    if limits is not None:
        text = (
            f"{byte_size(limits.memory_bytes)} of memory, {byte_size(limits.scratch_bytes)} "
            f"written, {byte_size(limits.file_bytes)} a file, {count(limits.processes)} processes, "
            f"{count(limits.open_files)} open files"
        )
        yield Fact(name="limits", value=text)


def _log(verdict: Verdict) -> tuple[Fold, ...]:
    text = printable_block(verdict.log).strip("\n")
    if not text:
        return ()
    title = "The end of what it printed"
    if len(text) > _MOST_LOG:
        title += f"; the last {count(_MOST_LOG)} of {count(len(text))} characters, JSON has all"
        text = text[-_MOST_LOG:]
    return (Fold(title=title, text=text, unfolded=not verdict.passed),)
