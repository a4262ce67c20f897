"""Recorded runs, read back from the files that `kernelgen grade --json` wrote."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from kernelgen.destination import STDOUT
from kernelgen.errors import UserError
from kernelgen.grading.verdict import SCHEMA_VERSION, Run, Verdict
from kernelgen.report.json_report import decode


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its file's name as the user gave it; "" for a run that has just ended."""

    name: str
    run: Run


def read_run(path: Path) -> Recorded:
    """Read a file, or standard input where the path is `-`.

    Raises:
        UserError: it cannot be read, or is not the JSON of a run that this version reads.
    """
    try:
        content = sys.stdin.buffer.read() if path == STDOUT else path.read_bytes()
        return Recorded(name=str(path), run=decode(content))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def by_device(recorded: Iterable[Recorded]) -> list[tuple[Recorded, Verdict]]:
    """Return each verdict with its record; those of one device together, else in their order."""
    pairs = [(record, verdict) for record in recorded for verdict in record.run.verdicts]
    devices = list(dict.fromkeys(verdict.device for _, verdict in pairs))
    return sorted(pairs, key=lambda pair: devices.index(pair[1].device))


def as_one(recorded: Sequence[Recorded]) -> Run:
    """Return one run as it is; of several, verdicts by device, and what they share."""
    if len(recorded) == 1:
        return recorded[0].run
    first, *others = [record.run.environment for record in recorded]
    common = {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] == value for other in others)
    }
    verdicts = tuple(verdict for _, verdict in by_device(recorded))
    plans = dict.fromkeys(plan for record in recorded for plan in record.run.plans)
    return Run(schema=SCHEMA_VERSION, environment=common, verdicts=verdicts, plans=tuple(plans))
