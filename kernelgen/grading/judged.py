"""How grading ends when a candidate has not passed: `Judged`; in the oracle, `ProblemFault`."""

from kernelgen.grading.verdict import Owner, Status, owner_of


class Judged(Exception):  # noqa: N818 (an ending, not always an error)
    """Grading has come to a result other than a pass.

    Args:
        owner: whose doing it is, where the status alone does not say.
    """

    def __init__(self, status: Status, reason: str, owner: Owner | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.owner = owner or owner_of(status)


class ProblemFault(Exception):  # noqa: N818 (a finding about the problem)
    """The problem's own code fails or contradicts itself; the message says where and how."""
