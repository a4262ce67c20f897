"""Findings on a candidate so far, as frozen records; a verdict is made from them at the end."""

import math
from collections.abc import Iterable

from kernelgen.grading.precision import Pins
from kernelgen.grading.timing.times import Timing
from kernelgen.grading.verdict import (
    BuildRecord,
    CaseResult,
    Correctness,
    KernelUse,
    SanitizerRecord,
    Status,
)
from kernelgen.grading.wire.messages import OracleReady, ParametersGiven, Repeated, Verified
from kernelgen.problem.record import DEFAULT_TOLERANCE
from kernelgen.sandbox.record import Containment

# Of names, which are the candidate's word.
_SHOWN_NAMES, _SHOWN_CHARACTERS = 8, 200
# No order of an fp32 sum makes errors so many times as large as torch's.
_BEYOND_FP32 = 100.0


class CaseLog:
    """The verified calls of one case."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._calls: list[Verified] = []
        self._repeated: Repeated | None = None

    def add_repeat(self, repeated: Repeated) -> None:
        """Take in what a second call on the first one's inputs gave."""
        self._repeated = repeated
        if repeated.found is not None:
            self.add(repeated.found)

    def add(self, found: Verified) -> None:
        """Take in what the oracle found on one call."""
        self._calls.append(found)

    @property
    def agreed(self) -> bool:
        """Whether every call so far agreed."""
        return all(call.status is Status.PASSED for call in self._calls)

    def result(self) -> CaseResult | None:
        """Return what all calls together say, or None if there was none."""
        if not self._calls:
            return None
        return CaseResult(
            name=self.name,
            agreed=self.agreed,
            calls=len(self._calls),
            elements=max(call.elements for call in self._calls),
            wrong=max(call.wrong for call in self._calls),
            max_abs_err=_largest(call.max_abs_err for call in self._calls),
            ref_max_abs_err=_largest(call.ref_max_abs_err for call in self._calls),
            of_allowed=_largest(call.of_allowed for call in self._calls),
            exact=self._calls[0].exact,
            worst=next((call.worst for call in self._calls if call.worst), None),
            deterministic=self._repeated.identical if self._repeated else None,
            repeat_max_diff=self._repeated.max_diff if self._repeated else None,
        )


class Evidence:
    """All that a session has seen; what it has not is None or empty.

    Attributes:
        pins: that were in force.
        kernels: of the traced calls.
        printed: the end of what the candidate printed.
        device_fault: how an oracle fails on the device where no candidate is; "" if it does not.
    """

    def __init__(self, expected: tuple[str, ...]) -> None:
        self._expected = expected
        self._cases: list[CaseLog] = []
        self._warnings: dict[str, None] = {}
        self.ready: OracleReady | None = None
        self.containment: Containment | None = None
        self.build: BuildRecord | None = None
        self.parameters: ParametersGiven | None = None
        self.pins: Pins | None = None
        self.sanitizer: SanitizerRecord | None = None
        self.kernels: tuple[KernelUse, ...] = ()
        self.timing: Timing | None = None
        self.printed = ""
        self.device_fault = ""

    def warn(self, text: str) -> None:
        """Note something that should be known, once."""
        self._warnings[text] = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """All findings, in order."""
        return tuple(self._warnings)

    def open_case(self, name: str) -> CaseLog:
        """Begin a case."""
        log = CaseLog(name)
        self._cases.append(log)
        return log

    def note_parameters(self, given: ParametersGiven) -> None:
        """Keep what became of the parameters, and warn of what found no counterpart."""
        self.parameters = given
        if given.missing:
            names = _listed(given.missing)
            self.warn(f"ModelNew has no parameter or buffer for the reference's {names}")
        if given.own:
            self.warn(f"ModelNew's own {_listed(given.own)} got no value from the reference")

    def warn_of_precision(self, tolerance: float) -> None:
        """Warn of a candidate that agrees only as the tolerance is wide: fp32 errs far less."""
        for case in filter(None, (log.result() for log in self._cases)):
            error, share = case.max_abs_err or 0.0, case.of_allowed or 0.0
            fp32 = math.inf if case.ref_max_abs_err is None else case.ref_max_abs_err
            if share * tolerance > DEFAULT_TOLERANCE and error > _BEYOND_FP32 * fp32:
                self.warn(
                    f"case {case.name} is computed with less precision than fp32's, which the "
                    f"problem's tolerance allows: off by up to {error:.1e}, fp32 torch {fp32:.1e}"
                )

    def correctness(self) -> Correctness | None:
        """Return what was verified, if anything was."""
        results = tuple(result for log in self._cases if (result := log.result()) is not None)
        if not results:
            return None
        return Correctness(
            max_abs_err=_largest(case.max_abs_err for case in results),
            ref_max_abs_err=_largest(case.ref_max_abs_err for case in results),
            of_allowed=_largest(case.of_allowed for case in results),
            expected_cases=self._expected,
            cases=results,
            parameters=self.parameters.mapping if self.parameters else {},
            precision=self.pins or {},
        )


def _largest(errors: Iterable[float | None]) -> float | None:
    return max((error for error in errors if error is not None), default=None)


def parameter_hint(given: ParametersGiven | None) -> list[str]:
    """Return lines that name unmapped and doubtful parameters: they may explain wrong values."""
    if given is None:
        return []
    lines = []
    if given.missing:
        why = "their values, which are random here, cannot reach it"
        lines.append(
            f"ModelNew has no parameter for the reference's {_listed(given.missing)}: {why}"
        )
    if given.misfits:
        pairs = _listed(tuple(f"{own} for {wanted}" for wanted, own in given.misfits))
        lines.append(
            f"ModelNew's parameters have other shapes, so nothing was copied into them: {pairs}; "
            "use the reference's shape, or the transposed one of a matrix"
        )
    if given.by_order:
        lines.append(
            f"these parameters were matched by shape and order alone: {_listed(given.by_order)}; "
            "if that is wrong, give them the reference's names, such as `linear_bias` or `bias` "
            "for `linear.bias`, or draw them in its constructor's order, with the same calls"
        )
    return lines


def _listed(parts: tuple[str, ...]) -> str:
    more = f" and {len(parts) - _SHOWN_NAMES} more" if len(parts) > _SHOWN_NAMES else ""
    return ", ".join(part[:_SHOWN_CHARACTERS] for part in parts[:_SHOWN_NAMES]) + more
