"""Outputs that were still changing after forward had returned."""

import msgspec

from kernelgen.grading.verdict import Status
from kernelgen.grading.wire.messages import Verified

_WHY = (
    "its outputs went on changing after forward had returned: work on a stream that the current "
    "one does not wait for, or by a thread that is not joined"
)
_EXPLAINED = (Status.WRONG_VALUES, Status.NON_FINITE)


def unsettled(found: Verified) -> Verified:
    """Return what the verification of such outputs comes to.

    If they were wrong when forward returned, that is the verdict, and here is its reason. If they
    were right, somebody has written to them since: whoever reads them next finds something else.
    """
    if found.status is Status.PASSED:
        return Verified(status=Status.TAMPERED, reason=f"the outputs were right, but {_WHY}")
    if found.status in _EXPLAINED:
        return msgspec.structs.replace(found, reason=f"{found.reason}\n{_WHY}")
    return found
