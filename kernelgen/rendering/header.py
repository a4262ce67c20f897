"""The first lines of a rendered file: what it was rendered from, and how to render it again."""

import shlex
from collections.abc import Mapping, Sequence

import jinja2

from kernelgen import __version__
from kernelgen.engines.architectures import SIMPLE
from kernelgen.engines.environment import HASH_DIGITS, templates_hash
from kernelgen.problem.record import Backend, Problem
from kernelgen.rendering.schedule_table import DEFAULT_ARCHITECTURES
from kernelgen.solution.file import RENDERED


def header(  # noqa: PLR0913 - one argument a line
    problem: Problem,
    *,
    backend: Backend,
    arch: str | None,
    templates: Sequence[tuple[jinja2.Environment, str]],
    numbers: str = "",
    identities: Sequence[str] = (),
    settings: Mapping[str, str],
) -> str:
    """Return the header, in comments; the same arguments give the same text.

    Args:
        problem: that is rendered.
        backend: of the file.
        arch: that its kernels are for; None if they are for any.
        templates: the file's own first, each with the environment that reads it.
        numbers: of the schedule, as `name=value` words.
        identities: of algebra that the file computes by.
        settings: overrides as they were asked for.
    """
    # A problem in a folder of this name is found by its own name, shipped or in a checkout.
    named = problem.path.absolute().parent.name == "problems"
    command = ["kernelgen render", problem.name if named else problem.path.name]
    if backend != "cuda":
        command.append(f"--backend {backend}")
    if arch is not None and arch != DEFAULT_ARCHITECTURES[backend]:
        command.append("--simple" if arch == SIMPLE else f"--arch {arch}")
    if problem.precision != "fp32":
        command.append(f"--precision {problem.precision}")
    if problem.gradients:
        command.append("--gradients")
    command += [f"--set {shlex.quote(f'{key}={value}')}" for key, value in sorted(settings.items())]
    lines = [
        f"{RENDERED[2:]}{__version__}; do not edit, change the source and render again",
        f"problem: {problem.name}",
        f"source: {problem.path.name} (sha256 {problem.sha256[:HASH_DIGITS]})",
        f"backend: {backend if arch is None else f'{backend}, {arch}'}",
        *(f"templates: {name} (sha256 {templates_hash(templates)})" for _, name in templates[:1]),
        *(_wrapped("schedule: ", numbers.split()) if numbers else ()),
        *(_wrapped("identities: ", "; ".join(identities).split()) if identities else ()),
        *_wrapped("render again: ", command),
    ]
    return "\n".join(f"# {line}" for line in lines)


def _wrapped(label: str, words: list[str], columns: int = 90) -> list[str]:
    lines = [label + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) < columns:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}")
    return lines
