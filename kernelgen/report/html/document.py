"""The page as one text: templates, style and script put together."""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from kernelgen import __version__
from kernelgen.grading.plan_record import PlanRecord
from kernelgen.grading.verdict import OWN_KERNELS
from kernelgen.problem.record import Problem
from kernelgen.report import numbers, plan
from kernelgen.report.columns import tone
from kernelgen.report.console import kernelbench_name, tracked
from kernelgen.report.html.highlight import highlighted
from kernelgen.report.html.overview import across_of, charts_of, counts_of, short
from kernelgen.report.html.solution import cut, entries_of, gist, log_end, subject_table
from kernelgen.report.json_report import Recorded, as_one
from kernelgen.report.outcome import title
from kernelgen.report.printable import printable_block
from kernelgen.report.suite import suite_facts

_TEMPLATES = Path(__file__).parent / "templates"
# Up to so many, every section stands open; more are opened where a link leads to them.
_MOST_UNFOLDED = 8


def page(recorded: Sequence[Recorded]) -> str:
    """Return runs as one HTML document that loads nothing; the same runs give the same text."""
    run = as_one(recorded)
    entries = entries_of(recorded)
    return _document(
        "page.html.jinja",
        title=title(run),
        counts=counts_of(entries),
        figures=list(suite_facts(run)),
        entries=entries,
        charts=charts_of(entries),
        across=across_of(recorded),
        sections=tracked(entries, "page"),  # hundreds of sources take seconds
        unfolded=len(entries) <= _MOST_UNFOLDED,
        recorded=recorded,
        # KernelBench's naming has a problem's number and name already.
        problems=any(not kernelbench_name("", one.verdict.solution) for one in entries),
    )


def plan_page(problem: Problem, record: PlanRecord, rates: str) -> str:
    """Return a plan as one HTML document: a box for each stage; `rates` says whose times it has."""
    costly = [stage for stage in record.stages if stage.kind != "view"]
    most = max([stage.expected_ms or stage.moved_bytes for stage in costly], default=0) or 1
    boxes = [(stage, 100 * (stage.expected_ms or stage.moved_bytes) / most) for stage in costly]
    heading = f"{problem.name}: {problem.summary}"
    values = {"title": heading, "rates": rates, "plan": record, "boxes": boxes}
    return _document("plan.html.jinja", problem=problem, **values)


def _document(template: str, **values: object) -> str:
    style = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    return _environment().get_template(template).render(
        values,
        version=__version__,
        style=Markup(style),  # noqa: S704 - a file of ours
        script=Markup(script),  # noqa: S704 - a file of ours
        # A browser runs this script and no other, and loads nothing, even if an escape failed.
        policy=(
            f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
    )  # fmt: skip


def shown(value: object) -> object:
    """Return what an expression of a template writes: text without anything that acts.

    Raises:
        TypeError: it is neither text nor markup; numbers are written out by a filter.
    """
    if isinstance(value, Markup | jinja2.Undefined):
        return value
    if isinstance(value, str):
        return printable_block(value)
    raise TypeError(f"a template wrote {value!r}, which is no text")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"OWN_KERNELS": OWN_KERNELS, "PLAN_HEADINGS": plan.HEADINGS}
    # Templates call them by their own names.
    for function in (gist, log_end, subject_table, tone, plan.plan_facts, plan.stage_cells):
        environment.globals[function.__name__] = function
    environment.filters |= {
        "exact": repr,
        "bytes": numbers.byte_size,
        "cut": cut,
        "error": numbers.error_size,
        "highlighted": highlighted,
        "interval": numbers.interval,
        "of_allowed": numbers.of_allowed,
        "percent": numbers.percent,
        "plain": numbers.plain,
        "place": short,
        "shortened": plan.cut,
        "thousands": numbers.count,
        "times": numbers.times,
    }
    return environment


def _hash(text: str) -> str:
    digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
