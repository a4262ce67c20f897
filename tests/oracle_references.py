"""References as an oracle makes them, of source text and the little that a test asks for."""

from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.wire import messages as m
from kernelgen.problem.record import Device, Manner, Rule


def oracle_reference(  # noqa: PLR0913 (a case, and what is asked for)
    source: str,
    *,
    name: str = "main",
    device: Device = "cpu",
    seed: bytes = b"s",
    batch_independent: bool = False,
    rule: Rule = "exact",
    manner: Manner = Manner(),  # noqa: B008 (it cannot change)
    tolerance: float = 1e-5,
) -> Reference:
    case = m.CaseSource(name=name, source=source)
    setup = m.SetUpOracle(
        device=device,
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
