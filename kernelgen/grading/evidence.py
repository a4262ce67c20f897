"""What is known of a candidate so far; a verdict is made from it at the end."""

from __future__ import annotations

from kernelgen.grading.messages import Constructed, Verified
from kernelgen.grading.precision import Pins
from kernelgen.grading.verdict import (
    BuildRecord,
    CaseResult,
    Correctness,
    Status,
    Timing,
    WorstElement,
)
from kernelgen.sandbox.record import Containment


class CaseLog:
    """The verified calls of one case."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._calls: list[Verified] = []

    def add(self, found: Verified) -> None:
        """Take in what the oracle found on one call."""
        self._calls.append(found)

    def result(self) -> CaseResult | None:
        """Return what all calls together say, or None if there was none."""
        if not self._calls:
            return None
        errors = [call.max_abs_err for call in self._calls if call.max_abs_err is not None]
        reference = [
            call.ref_max_abs_err for call in self._calls if call.ref_max_abs_err is not None
        ]
        worst: WorstElement | None = next((call.worst for call in self._calls if call.worst), None)
        return CaseResult(
            name=self.name,
            agreed=all(call.status is Status.PASSED for call in self._calls),
            calls=len(self._calls),
            elements=max(call.elements for call in self._calls),
            wrong=max(call.wrong for call in self._calls),
            max_abs_err=max(errors, default=None),
            ref_max_abs_err=max(reference, default=None),
            exact=self._calls[0].exact,
            worst=worst,
        )


class Evidence:
    """Everything that a session has seen.

    Args:
        expected: names of the cases that have to agree.
    """

    def __init__(self, expected: tuple[str, ...]) -> None:
        self.expected = expected
        self.cases: list[CaseLog] = []
        self.device = ""
        self.environment: dict[str, str | int | bool | None] = {}
        self.build_s: float | None = None
        self.cached = False
        self.baselines: tuple[str, ...] = ()
        self.minimal_bytes = 0
        self.timing: Timing | None = None
        self.log = ""
        self.containment: Containment | None = None
        self.precision: Pins = {}
        self._mapping: dict[str, str] = {}
        self._missing: tuple[str, ...] = ()
        self._own: tuple[str, ...] = ()
        self._warnings: dict[str, None] = {}

    def warn(self, text: str) -> None:
        """Note something that should be known, once."""
        self._warnings[text] = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was noted, in order."""
        return tuple(self._warnings)

    def open_case(self, name: str) -> CaseLog:
        """Begin a case."""
        log = CaseLog(name)
        self.cases.append(log)
        return log

    def note_parameters(self, constructed: Constructed) -> None:
        """Keep the mapping of parameters, and warn of what found no counterpart."""
        self._mapping = constructed.mapping
        self._missing, self._own = constructed.missing, constructed.own
        if self._missing:
            names = ", ".join(self._missing)
            self.warn(f"ModelNew has no parameter or buffer for the reference's {names}")
        if self._own:
            self.warn(f"ModelNew's own {', '.join(self._own)} got no value from the reference")

    def parameter_hint(self) -> list[str]:
        """Return a line that names unmapped parameters: they explain wrong values."""
        if not self._missing:
            return []
        names = ", ".join(self._missing)
        why = "their values, which are random here, cannot reach it"
        return [f"ModelNew has no parameter for the reference's {names}: {why}"]

    def build(self) -> BuildRecord | None:
        """Return the build, if there was one."""
        if self.build_s is None:
            return None
        return BuildRecord(seconds=self.build_s, cached=self.cached)

    def correctness(self) -> Correctness | None:
        """Return what was verified, if anything was."""
        results = tuple(result for log in self.cases if (result := log.result()) is not None)
        if not results:
            return None
        errors = [case.max_abs_err for case in results if case.max_abs_err is not None]
        reference = [case.ref_max_abs_err for case in results if case.ref_max_abs_err is not None]
        return Correctness(
            max_abs_err=max(errors, default=None),
            ref_max_abs_err=max(reference, default=None),
            expected_cases=self.expected,
            cases=results,
            parameters=self._mapping,
            precision=self.precision,
        )
