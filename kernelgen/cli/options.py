"""The options and the types of arguments that several commands share."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click
from click.shell_completion import CompletionItem

from kernelgen.destination import check_destination
from kernelgen.errors import KernelgenFault, UserError
from kernelgen.grading.options import BASELINES, GradeOptions
from kernelgen.problem.record import LARGEST_TOLERANCE, Backend, OtherRule, Precision
from kernelgen.problem.schedules import architecture_of

Option = Callable[[Any], Any]
"""A decorator that gives a command one more option."""

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", re.ASCII)


PATH = click.Path(path_type=Path)


class Number(click.FloatRange):
    """A number from 0 on; `nan` and `inf`, which Python takes for numbers, are none."""

    def __init__(self, what: str, *, above_zero: bool = False, most: float | None = None) -> None:
        super().__init__(min=0, max=most, min_open=above_zero)
        self._what = what

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; fails as click's own types do."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a {self._what}", param, ctx)
        return number


class ProblemName(click.types.StringParamType):
    """A problem's name, or a path to its file; the shell completes both."""

    name = "problem"

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click passes it
        param: click.Parameter,  # noqa: ARG002 - click passes it
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the problems whose names begin so, else ask the shell for a file."""
        from kernelgen.problem.library import problem_names

        names = [name for name in problem_names() if name.startswith(incomplete)]
        if names:
            return [CompletionItem(name) for name in names]
        return [CompletionItem(incomplete, type="file")]


def native_architecture(mend: str) -> str:
    """Return what the first GPU here takes.

    Raises:
        KernelgenFault: there is none; it ends with how to do without.
    """
    from kernelgen.hardware.device import survey_gpus

    survey = survey_gpus()
    if not survey.devices:
        raise KernelgenFault(f"there is no GPU: {survey.reason}; {mend}")
    return architecture_of(survey.devices[0].compute_capability)


def bytes_of(size: str) -> int:
    """Return the bytes of `24GB` (24e9) or `24GiB` (24 * 2**30); for use as a click option's type.

    Raises:
        click.BadParameter: no unit, an unknown one, or no bytes at all.
    """
    match = _SIZE.fullmatch(size)
    if match is None or match.group(2).upper() not in _UNITS:
        raise click.BadParameter(f"{size!r}: write a number and a unit, such as 24GB or 24GiB")
    size_bytes = round(float(match.group(1)) * _UNITS[match.group(2).upper()])
    if size_bytes == 0:
        raise click.BadParameter(f"{size!r} is no memory at all")
    return size_bytes


def numbers_of(text: str) -> frozenset[int]:
    """Return the numbers of `1-10,23`; for use as a click option's type.

    Raises:
        click.BadParameter: the text is something else.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first, last = (int(n or match.group(1)) for n in match.groups()) if match else (1, 0)
        if first > last:
            raise click.BadParameter(f"{text!r}: expected numbers and ranges, such as 1-10,23")
        found.update(range(first, last + 1))
    return frozenset(found)


def _tolerance(text: str) -> float | str:
    if text in _RULES:
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= LARGEST_TOLERANCE:
        raise click.BadParameter(
            f"{text!r}: write a number above 0 and at most {LARGEST_TOLERANCE}, such as 1e-4, or "
            f"one of {', '.join(_RULES)}"
        )
    return number


def _gpus(text: str) -> tuple[str, ...]:
    """Return GPUs, told as CUDA numbers those that this process sees, as CUDA names them."""
    from kernelgen.hardware.device import all_gpus

    found = all_gpus()
    if not found:
        raise click.BadParameter("no GPU is found; `kernelgen doctor` says why")
    if text == "all":
        return found
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isdecimal() and int(number) < len(found) for number in numbers):
        last = len(found) - 1
        raise click.BadParameter(f"{text!r}: write `all`, or numbers from 0 to {last}: 0,{last}")
    return tuple(dict.fromkeys(found[int(number)] for number in numbers))


_DEFAULTS = GradeOptions()


def flag(name: str, text: str) -> Option:
    """Return an option that is there or not."""
    return click.option(name, is_flag=True, help=text)


def path(name: str, metavar: str, text: str, *others: str, required: bool = False) -> Option:
    """Return an option that takes a path; others are its short name or its parameter's."""
    return click.option(name, *others, type=PATH, required=required, metavar=metavar, help=text)


def numbers(name: str, field: str, metavar: str, text: str) -> Option:
    """Return an option that takes numbers such as `1-10,23`."""
    return click.option(name, field, type=numbers_of, metavar=metavar, help=text)


def choice(name: str, values: Sequence[str], text: str, default: str | None = None) -> Option:
    """Return an option that takes one of some words."""
    shown = default is not None
    kind = click.Choice(values)
    return click.option(name, type=kind, default=default, show_default=shown, help=text)


def device(text: str) -> Option:
    """Return the option that names a device."""
    return choice("--device", ("auto", "cuda", "cpu"), text, _DEFAULTS.device)


def jobs(text: str) -> Option:
    """Return the option for how many to work on at once."""
    return click.option("--jobs", type=click.IntRange(min=1), metavar="N", help=text)


DEVICE = device("auto takes the device that a file is written for.")
GPUS = click.option(
    "--gpus",
    type=_gpus,
    metavar="all|0,2",
    help="Spread the solutions over these GPUs; else the first one grades all.",
)
NO_TIMING = flag("--no-timing", "Judge correctness alone.")
BASELINE = click.option(
    "--baseline",
    "baselines",
    multiple=True,
    type=click.Choice(tuple(BASELINES)),
    callback=lambda _context, _option, names: tuple(dict.fromkeys(names)) or None,
    help="What to compare times with; repeatable. Else eager and compile, on a CPU eager.",
)
_RULES = get_args(OtherRule)
TOLERANCE = click.option(
    "--tolerance",
    type=_tolerance,
    metavar=f"X|{'|'.join(_RULES)}",
    help="In place of the problem's; reference is what float32 itself is off, however far; "
    "kernelbench is |out - ref| <= 1e-4 + 1e-4 * |ref|, 1e-2 for bf16 and fp16.",
)
PRECISION = click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    help="The type of floating inputs and parameters, in place of the problem's; else fp32.",
)
ALLOW_IMPORT = click.option(
    "--allow-import",
    "allow_imports",
    multiple=True,
    metavar="NAME",
    help="A module beyond those that the problem allows; repeatable.",
)


def _not_both(context: click.Context, option: click.Parameter, value: bool) -> bool:  # noqa: FBT001
    """Refuse --quiet and --verbose together."""
    if value and context.params.get("verbose" if option.name == "quiet" else "quiet"):
        raise UserError("--quiet and --verbose exclude each other; leave one of them out")
    return value


def refuse_together(exclusive: Mapping[str, Sequence[str]]) -> None:
    """Refuse options of the command that runs, or values of them such as `--device cpu`.

    Args:
        exclusive: option -> those that it does not go with, where both have another value than
            usual.

    Raises:
        UserError: two do not go together.
    """
    context, given = click.get_current_context(), set[str]()
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if value not in (None, (), False, option.default):
            given |= {option.opts[0], f"{option.opts[0]} {value}"}
    for one, others in exclusive.items():
        if one in given and (other := next(filter(given.__contains__, others), None)):
            raise UserError(f"{one} and {other} exclude each other; leave one of them out")


QUIET = click.option(
    "-q", "--quiet", is_flag=True, callback=_not_both, help="No progress on stderr."
)


def verbose(text: str = "Every phase on stderr, a line each.") -> Option:
    """Return the flag for more on a console."""
    return click.option("-v", "--verbose", is_flag=True, callback=_not_both, help=text)


def backend(text: str, default: Backend | None = None) -> Option:
    """Return the option that says what solutions are written in."""
    return choice("--backend", ("cuda", "cpp"), text, default)


def seconds(name: str, default: float | None, text: str) -> Option:
    """Return an option that takes seconds above 0; the parameter of `--timeout` is `timeout_s`."""
    return click.option(
        name,
        f"{name.removeprefix('--').replace('-', '_')}_s",
        type=Number("number of seconds", above_zero=True),
        default=default,
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


CALL_TIMEOUT = seconds("--call-timeout", _DEFAULTS.call_timeout_s, "For one call of a solution.")


def timing_budget(whose: str) -> Option:
    """Return the option for the wall time of timed calls: of one solution, or of one point."""
    text = f"Wall time of one {whose}'s timed calls."
    return seconds("--timing-budget", _DEFAULTS.timing_budget_s, text)


def problem(text: str) -> Option:
    """Return the option that names a problem."""
    return click.option("--problem", type=ProblemName(), metavar="NAME|FILE", help=text)


_CONTAINED = "auto contains solutions as far as this machine can; require refuses to grade less."


def sandbox(text: str = _CONTAINED) -> Option:
    """Return the option that says how a solution is contained."""
    return choice("--sandbox", ("auto", "require", "off"), text, _DEFAULTS.sandbox)


def destination(name: str, text: str) -> Option:
    """Return an option for a file to write, or `-` for stdout; refused before any work is done."""

    def checked(_context: click.Context, _option: click.Parameter, place: Path | None) -> Any:
        if place is not None:
            check_destination(place)
        return place

    return click.option(name, type=PATH, callback=checked, metavar="FILE|-", help=text)


def json(what: str = "all that was found") -> Option:
    """Return the option for a record beside what is printed."""
    return destination(
        "--json", f"Write {what} here; - is stdout, and then the table goes to stderr."
    )


def with_options(*options: Option) -> Option:
    """Return a decorator that gives a command options, which its help lists in this order."""

    def decorate(command: Any) -> Any:
        # Decorators apply from the last to the first.
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
