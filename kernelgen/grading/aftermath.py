"""What else may lie behind a failure, asked of the machine while the workers are still there."""

from __future__ import annotations

import contextlib

from kernelgen.errors import KernelgenFault
from kernelgen.grading import messages as m
from kernelgen.grading.dialogue import Dialogue
from kernelgen.grading.judged import Judged
from kernelgen.grading.memory_share import MemoryShare
from kernelgen.grading.verdict import Owner, Status
from kernelgen.problem.record import Device

# How a candidate fails when the GPU is taken away under it.
_LIKE_A_LOST_DEVICE = (Status.RUNTIME_ERROR, Status.CRASHED, Status.TIMEOUT)
_CHECK_TIMEOUT_S = 60.0


def reconsider(judged: Judged, dialogue: Dialogue, device: Device, reference_bytes: int) -> Judged:
    """Return what a failure is, once the machine has been asked; ends the candidate if it asks.

    The oracle's word alone counts: a candidate that says that its GPU was lost is believed when
    the oracle finds the same, and one that has taken the memory is named by what was free after
    its end.

    Args:
        judged: the failure as it showed.
        dialogue: with both workers.
        device: on which.
        reference_bytes: the reference's inputs, parameters and outputs, as far as they are known.
    """
    if not dialogue.has_host:
        return judged
    # A candidate that ends the grader's processes as its last act is not excused by that.
    with contextlib.suppress(KernelgenFault):
        if judged.status is Status.OUT_OF_MEMORY and judged.owner is Owner.GRADER:
            return _by_share(judged, dialogue, device, reference_bytes)
        if judged.status in _LIKE_A_LOST_DEVICE:
            return _by_device(judged, dialogue)
    return judged


def _by_share(judged: Judged, dialogue: Dialogue, device: Device, reference_bytes: int) -> Judged:
    try:
        if device == "cuda":
            # Other programs may be on the GPU too: the candidate's is what its end gives back.
            before = dialogue.ask_oracle(m.MeasureMemory(), m.MemoryMeasured)
            dialogue.end_host()
            after = dialogue.ask_oracle(m.MeasureMemory(), m.MemoryMeasured)
            held_bytes = before.others_bytes - after.others_bytes
        else:
            held_bytes = dialogue.host_bytes()
            dialogue.end_host()
    except Judged:
        return judged
    share = MemoryShare(device=device, held_bytes=held_bytes, reference_bytes=reference_bytes)
    why = share.blame()
    if why is None:
        return judged
    return Judged(Status.OUT_OF_MEMORY, f"{why}\n({judged.reason})", Owner.CANDIDATE)


def _by_device(judged: Judged, dialogue: Dialogue) -> Judged:
    # A kernel without an end would keep the oracle's waiting.
    dialogue.end_host()
    try:
        dialogue.ask_oracle(m.CheckDevice(), m.DeviceWorks, _CHECK_TIMEOUT_S)
    except Judged as lost:
        if lost.status is not Status.GRADER_ERROR:
            return judged  # no room for two numbers says nothing about the device
        reason = f"{lost.reason}\nBefore that, and maybe for this reason, the candidate failed: "
        return Judged(Status.GRADER_ERROR, reason + judged.reason)
    return judged
