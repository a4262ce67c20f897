"""What the oracle is at when it is given a message, in words for a reason."""

from __future__ import annotations

from typing import Any

from kernelgen.grading.wire import messages as m

_WORDS: dict[type, str] = {
    m.SetUpOracle: "while it started",
    m.MeasureCase: "while it estimated the memory of",
    m.LintCase: "while it looked for mistakes in",
    m.OpenCase: "while it opened",
    m.RedrawParameters: "while it drew other parameters",
    m.MakeInputs: "while it made inputs",
    m.Verify: "while it compared outputs",
    m.RepeatInputs: "while it sent the same inputs again",
    m.VerifyRepeat: "while it compared the outputs of a repeated call",
    m.VerifyInputs: "while it compared the inputs that were returned",
    m.WarmBaselines: "while it prepared the baselines",
    m.StartCompiler: "while it loaded torch.compile",
    m.MeasureEvents: "while it compared its two clocks",
    m.SpanBaseline: "while it read the second clock on the baseline",
    m.TimeBaseline: "while it timed the baseline",
    m.TraceReference: "while it traced the reference",
    m.MakeBatch: "while it made a batch of inputs",
    m.OpenGate: "while it put a batch's inputs in place",
    m.RunControl: "while it ran the reference on a batch",
    m.SampleBatch: "while it looked at a batch's outputs",
    m.VerifyBatch: "while it compared a batch's outputs",
    m.Probe: "while it timed the device's memory",
    m.CheckDevice: "while it tried the device, after the candidate had failed",
    m.IdentifyDevice: "while it looked which device it is",
    m.MeasureRates: "while it measured the device's rates",
    m.MeasureMemory: "while it measured memory, after it had run out",
}


def stage_of(message: Any, cases: tuple[str, ...]) -> str:
    """Return what the oracle does on a message, such as `while it opened case main`.

    Args:
        message: of a type of `messages.ToOracle`.
        cases: names of the problem's cases, by number.
    """
    words = _WORDS[type(message)]
    if isinstance(message, m.MeasureCase | m.LintCase | m.OpenCase):
        return f"{words} case {cases[message.case]}"
    if isinstance(message, m.TimeBaseline | m.SpanBaseline):
        return f"{words} {message.name}"
    return words
