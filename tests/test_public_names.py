"""The package's own names, and a run as records for a notebook."""

from pathlib import Path

import msgspec
from report_runs import failed, passed

import kernelgen
from kernelgen.grading.verdict import SCHEMA_VERSION, Run, Status


def test_each_name_is_there() -> None:
    for name in kernelgen.__all__:
        assert getattr(kernelgen, name) is not None
    assert {"Candidate", "GradeOptions", "Run", "Status", "UserError", "read_run"} <= {
        *kernelgen.__all__
    }


def test_a_run_is_flat_records_and_a_table(tmp_path: Path) -> None:
    good = passed()
    assert good.timing is not None
    bad = msgspec.structs.replace(failed(Status.WRONG_VALUES), reason="1 < 2 & wrong")
    run = Run(schema=SCHEMA_VERSION, environment={}, verdicts=(good, bad))
    path = tmp_path / "run.json"
    path.write_bytes(msgspec.json.encode(run))
    first, second = kernelgen.read_run(path).run.to_records()
    assert first["status"] == "PASSED"
    assert first["time_ms"] == good.timing.candidate_ms
    for name, speedup in good.timing.speedup.items():
        assert first[f"vs_{name}"] == speedup.median
        assert (first[f"vs_{name}_low"], first[f"vs_{name}_high"]) == speedup.ci95
    assert second["status"] == "WRONG_VALUES"
    assert "time_ms" not in second
    table = run._repr_html_()
    assert table.count("<tr>") == 3
    assert "1 &lt; 2 &amp; wrong" in table
