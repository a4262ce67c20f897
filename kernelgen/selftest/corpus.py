"""The corpus: files to be graded, each of which says in its header what its verdict must be.

A header is the `# key: value` lines that a file begins with. docs/selftest.md explains the keys.
"""

import re
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.errors import UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.verdict import Status
from kernelgen.installation import selftest_folder
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Device
from kernelgen.sandbox.record import Mode

_LINE = re.compile(r"# ([a-z-]+): (.+)")
_WRONG_KEY = re.compile(r"(?:\$\.|unknown field `)([a-z-]+)")
_REPEATABLE = ("reason", "warning", "maps")


class Classes(msgspec.Struct, frozen=True, kw_only=True):
    """The classes of attack, of `candidates/classes.yaml`.

    Attributes:
        classes: id, such as `T05` -> its name in a few words.
        outside: id -> why no candidate can do it to this grader.
    """

    classes: dict[str, str]
    outside: dict[str, str]


@cache
def attack_classes() -> Classes:
    """Return the classes of attack; of each the shipped corpus has a candidate, or says why not."""
    file = selftest_folder() / "candidates" / "classes.yaml"
    return msgspec.yaml.decode(file.read_bytes(), type=Classes)


class Kind(str, Enum):
    """The kind of a candidate; its file name begins with it.

    Attributes:
        HONEST: right, in any style that people write; it must pass.
        BROKEN: it does not come to compute anything.
        WRONG: it computes something else, by mistake.
        HOSTILE: it sets out to fool the grader.
    """

    HONEST = "honest"
    BROKEN = "broken"
    WRONG = "wrong"
    HOSTILE = "hostile"


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A candidate's header; docs/selftest.md explains each key."""

    problem: str
    expect: Status
    reason: tuple[str, ...] = ()
    warning: tuple[str, ...] = ()
    blames: str | None = None
    maps: tuple[str, ...] = ()
    orphan: str | None = None
    time: bool = False
    call_timeout_s: float = 60.0
    build_timeout_s: float = 300.0
    without_gpu: Status | None = None
    slow: str | None = None
    alone: str | None = None
    max_speedup: float | None = None
    gap: str | None = None
    exploit: tuple[str, ...] = ()
    sandbox: Mode = "auto"
    needs: str | None = None


class Candidate(Header, frozen=True, kw_only=True):
    """A file to be graded, its text, and what its name, its folder and its header say."""

    path: Path
    text: str
    kind: Kind
    device: Device
    problem_file: Path

    @property
    def name(self) -> str:
        """Return the file's path below the folder of candidates, such as `cuda/wrong_device.py`."""
        return self.path.name if self.device == "cpu" else f"{self.device}/{self.path.name}"

    @property
    def labels(self) -> dict[str, str]:
        """Return what its verdict is labelled with."""
        labels = {"kind": self.kind.value, "device": self.device}
        labels |= {"exploit": " ".join(self.exploit)} if self.exploit else {}
        return labels | ({"gap": self.gap} if self.gap else {})

    @property
    def blamed_line(self) -> int | None:
        """Return the 1-based number of the line that the reason must name."""
        if self.blames is None:
            return None
        numbered = enumerate(self.text.splitlines(), 1)
        return next((n for n, line in numbered if self.blames in line and line[:2] != "# "), None)

    def options(self) -> GradeOptions:
        """Return how to grade it.

        Raises:
            ProblemError: its problem cannot be read or is wrong.
        """
        return GradeOptions(
            problem=_problem(self.problem_file),
            baselines=("eager",),
            time=self.time,
            min_samples=3,
            max_samples=5,
            call_timeout_s=self.call_timeout_s,
            build_timeout_s=self.build_timeout_s,
            sandbox=self.sandbox,
        )


# Many candidates share one.
_problem = cache(load_problem)


def read_corpus(folder: Path) -> tuple[Candidate, ...]:
    """Read the candidates of a corpus: those for the CPU, then those for CUDA, sorted by name.

    Args:
        folder: holds `candidates/*.py`, `candidates/cuda/*.py` and `problems/`.

    Raises:
        UserError: there is no corpus, or a header is wrong; with file, line and key.
    """
    places: tuple[tuple[Device, Path], ...] = (
        ("cpu", folder / "candidates"),
        ("cuda", folder / "candidates" / "cuda"),
    )
    found = tuple(
        _read_candidate(path, device, folder / "problems")
        for device, place in places
        for path in sorted(place.glob("*.py"))
    )
    if not found:
        raise UserError(
            f"{folder / 'candidates'}: holds no candidate; the selftest's corpus is part of a "
            "clone and of a wheel, and --corpus DIR names another one"
        )
    return found


def _read_candidate(path: Path, device: Device, problems: Path) -> Candidate:
    """Read one candidate, for a device; headers name problems of that folder."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    kind = next((kind for kind in Kind if path.stem.partition("_")[0] == kind.value), None)
    if kind is None:
        kinds = ", ".join(f"{known.value}_" for known in Kind)
        raise UserError(f"{path}: a candidate's name begins with one of {kinds}")
    header = _read_header(path, text)
    problem = problems / f"{header.problem}.py"
    if not problem.is_file():
        problem = problem.with_suffix(".yaml")
    if not problem.is_file():
        raise UserError(f"{path}: problem: there is no {problem}")
    candidate = Candidate(
        path=path,
        text=text,
        kind=kind,
        device=device,
        problem_file=problem,
        **msgspec.structs.asdict(header),
    )
    if candidate.blames is not None and candidate.blamed_line is None:
        raise UserError(f"{path}: blames: no line of the file contains {candidate.blames!r}")
    return candidate


def _read_header(path: Path, text: str) -> Header:
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            break
        key, value = match[1], match[2]
        if key in _REPEATABLE:
            values.setdefault(key, []).append(value)
        elif key in values:
            raise UserError(f"{path}:{number}: {key}: stands here for the second time")
        else:
            values[key] = value.replace(",", " ").split() if key == "exploit" else value
        lines[key] = number
    unknown = set(values.get("exploit", ())) - attack_classes().classes.keys()
    if unknown:
        raise UserError(
            f"{path}:{lines['exploit']}: exploit: {min(unknown)} is no class of attack; `kernelgen "
            "selftest --classes` lists them, and a new one goes into tests/candidates/classes.yaml"
        )
    try:
        return msgspec.convert(values, Header, strict=False)
    except msgspec.ValidationError as error:
        found = _WRONG_KEY.search(str(error))
        place = f"{path}:{lines[found[1]]}: {found[1]}" if found else str(path)
        raise UserError(
            f"{place}: {error}; a header is the lines `# key: value` that a file begins with"
        ) from error
