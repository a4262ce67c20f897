"""The table of KernelBench's levels is made from the records of their runs."""

from pathlib import Path

import msgspec
from report_runs import PLAN, failed, passed, planned
from tables import levels_table

from kernelgen.grading.plan_record import PlannedStage
from kernelgen.grading.verdict import Status
from kernelgen.report.json_report import write


def test_files_stand_by_what_stays_in_torch(tmp_path: Path) -> None:
    stage = PlannedStage(kind="library", name="convolution", shape=(2, 3))
    convolution = msgspec.structs.replace(PLAN, problem="1_A", stages=(stage, stage))
    norm = msgspec.structs.replace(stage, kind="segment", name="softmax")
    own = msgspec.structs.replace(PLAN, problem="3_C", stages=(norm,))
    run = planned(
        passed(problem="1_A"),
        failed(Status.WRONG_SHAPE, problem="2_B"),
        passed(problem="3_C"),
        plan=convolution,
    )
    run = msgspec.structs.replace(run, plans=(*run.plans, own))
    write(run, tmp_path / "level-1.json")
    assert levels_table(tmp_path).splitlines()[2:] == [
        "| stays in torch | files | passed | vs eager | vs compile |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| convolution | 1 | 1 | 1.71x | 1.00x |",
        "| no plan recorded | 1 | 0 | - | - |",
        "| nothing | 1 | 1 | 1.71x | 1.00x |",
        "| all | 3 | 2 | 1.71x | 1.00x |",
        "",
        "WRONG_SHAPE (1): 2_B.",
    ]
