"""References as an oracle makes them, of source text and the little that a test asks for."""

from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.wire import messages as m
from kernelgen.problem.record import Manner, Rule

_SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        {constructor}

    def forward(self, {takes}):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{arguments}]
"""


def model_source(
    forward: str,
    inputs: str,
    constructor: str = "pass",
    *,
    takes: str = "x",
    arguments: str = "",
) -> str:
    """Return a problem's source; the bodies of its methods are indented by eight spaces."""
    return _SOURCE.format(
        forward=forward, inputs=inputs, constructor=constructor, takes=takes, arguments=arguments
    )


def oracle_reference(  # noqa: PLR0913 (a case, and what is asked for)
    source: str,
    *,
    name: str = "main",
    seed: bytes = b"s",
    batch_independent: bool = False,
    rule: Rule = "exact",
    manner: Manner = Manner(),  # noqa: B008 (it cannot change)
    tolerance: float = 1e-5,
) -> Reference:
    case = m.CaseSource(name=name, source=source)
    setup = m.SetUpOracle(
        device="cpu",
        cases=(case,),
        tolerance=tolerance,
        rule=rule,
        manner=manner,
        batch_independent=batch_independent,
        seed=seed.hex(),
        memory_limit_bytes=None,
        threads=1,
    )
    return Reference(case, setup)
