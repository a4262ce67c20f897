"""What limits a kernel, the table of it in benchmarks/, and the conditions beside the counters."""

import sys
import threading
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from ncu_report import COPY, report
from report_runs import CORRECTNESS
from test_device_conditions import nvml
from test_readme import passed

from kernelgen.cli import program
from kernelgen.errors import UserError
from kernelgen.grading.timing.times import Conditions, Limit, Timing
from kernelgen.grading.verdict import SCHEMA_VERSION, Run, Verdict
from kernelgen.problem.record import digest
from kernelgen.profile import profiling
from kernelgen.profile.limits import limited_by, limits_table
from kernelgen.profile.ncu_output import merge, read_launches
from kernelgen.profile.record import Facts, KernelProfile, Profile, read_profile

FACTS = Facts(
    device="NVIDIA H200",
    sm_count=132,
    minimal_read_bytes=10**9,
    minimal_written_bytes=10**9,
    forward_ms=0.5,
)
TIME = "gpu__time_duration.sum"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_active"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
FMA = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
ALU = "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active"
XU = "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
CYCLES = "sm__cycles_elapsed.max"
IDLE = {DRAM: "40"}
# In 480 us: 1500 MHz.
SLOW = {**IDLE, CYCLES: "720000"}
AT_REST = Conditions(sm_mhz=(1200, 1980))
CAPPED = Conditions(sm_mhz=(1200, 1980), throttled=("power cap",))
HOT = Conditions(sm_mhz=(1200, 1980), throttled=("power cap", "thermal slowdown by the driver"))


def kernels(*launches: dict[str, str]) -> tuple[KernelProfile, ...]:
    return merge(read_launches(report(*launches)))


def made_of(
    found: tuple[KernelProfile, ...],
    name: str = "a",
    conditions: Conditions | None = None,
    copy_gbps: float | None = None,
) -> Profile:
    return Profile(
        schema=1,
        kernelgen="0",
        solution=f"solutions/{name}.py",
        solution_sha256=digest(name),
        problem=name,
        case="main",
        ncu="2025.3",
        method="as it was",
        facts=FACTS,
        kernels=found,
        time_us=sum(one.counters.time_us for one in found),
        conditions=conditions,
        copy_gbps=copy_gbps,
    )


def limit_of(
    changes: dict[str, str], conditions: Conditions | None = None, copy_gbps: float | None = None
) -> str:
    (kernel,) = found = kernels(changes)
    profile = made_of(found, conditions=conditions, copy_gbps=copy_gbps)
    return limited_by(kernel, profile)


# --- the rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "DRAM"),
        # At its limit, though another unit has a larger share of a peak that it can reach.
        ({L2: "95"}, "DRAM"),
        ({DRAM: "75", L2: "70"}, "DRAM"),
        ({**IDLE, L2: "75"}, "L2"),
        ({**IDLE, L1: "75"}, "L1"),
        ({**IDLE, L1: "75", SHARED: "74"}, "shared memory"),
        ({**IDLE, L1: "75", SHARED: "n/a"}, "L1 or shared memory"),
        ({**IDLE, SM: "87", TENSOR: "91"}, "tensor cores"),
        ({**IDLE, SM: "87", FMA: "85"}, "FMA"),
        ({**IDLE, SM: "87", ALU: "88"}, "ALU"),
        ({**IDLE, SM: "87", XU: "88"}, "XU"),
        ({**IDLE, SM: "87", ISSUE: "86"}, "issue"),
        ({**IDLE, SM: "87", FMA: "50"}, "another pipe"),
        ({**IDLE, SM: "87", **dict.fromkeys((TENSOR, FMA, ALU, XU, ISSUE), "n/a")}, "another pipe"),
        (IDLE, "latency"),
        ({**IDLE, SM: "59", TENSOR: "95"}, "latency"),
        ({**IDLE, "launch__grid_size": "40", L1: "90"}, "too few blocks"),
        ({**dict.fromkeys(COPY, "n/a"), TIME: "480000"}, "not counted"),
    ],
)
def test_the_busiest_unit_limits(changes: dict[str, str], word: str) -> None:
    assert limit_of(changes) == word


def test_a_copy_s_rate_decides_about_dram_where_it_is_known() -> None:
    assert limit_of({DRAM: "70", L2: "80"}, copy_gbps=4200.0) == "DRAM"
    assert limit_of({L2: "89"}, copy_gbps=4800.0) == "L2"


@pytest.mark.parametrize(
    ("changes", "conditions", "word"),
    [
        ({**SLOW, SM: "87", TENSOR: "91"}, CAPPED, "tensor cores, power"),
        ({**SLOW, SM: "87", TENSOR: "91"}, AT_REST, "tensor cores, a lower clock"),
        ({**SLOW, L1: "91", SHARED: "91"}, CAPPED, "shared memory, power"),
        # The tensor cores are busy, though L2 has a larger share than the SMs.
        ({**IDLE, SM: "85", TENSOR: "95", L2: "90"}, None, "tensor cores"),
        ({**SLOW, SM: "87", TENSOR: "91"}, HOT, "tensor cores, thermal slowdown by the driver"),
        ({**SLOW, SM: "87", TENSOR: "91"}, None, "tensor cores"),
        ({**SLOW, SM: "87", TENSOR: "91"}, Conditions(power_w=700.0), "tensor cores"),
        ({**SLOW, CYCLES: "n/a", SM: "87", TENSOR: "91"}, AT_REST, "tensor cores"),
        # 1880 MHz are within a tenth.
        ({**IDLE, SM: "87", TENSOR: "91"}, AT_REST, "tensor cores"),
        # These have clocks of their own, and latency is no unit.
        ({**SLOW, L2: "88"}, AT_REST, "L2"),
        (SLOW, AT_REST, "latency"),
    ],
)
def test_a_clock_that_falls_while_the_kernel_runs_falls_for_power(
    changes: dict[str, str], conditions: Conditions | None, word: str
) -> None:
    assert limit_of(changes, conditions) == word


# --- the table ------------------------------------------------------------------------------------


def profile(root: Path, *launches: dict[str, str], name: str = "a") -> Profile:
    """Return a profile of a solution that is what was profiled."""
    file = root / "solutions" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(name)
    return made_of(kernels(*launches), name)


def graded(name: str = "a", text: str = "a", time_ms: float = 0.61) -> Verdict:
    limit = Limit(
        limit_ms=0.5, fraction=0.82, bound="arithmetic", source="counted", minimal_bytes=10**9
    )
    return msgspec.structs.replace(
        passed(name),
        solution_sha256=digest(text),
        correctness=CORRECTNESS,
        timing=Timing(candidate_ms=time_ms, limit=limit),
    )


def table(root: Path, *profiles: Profile, verdicts: tuple[Verdict, ...] = ()) -> list[str]:
    run = Run(schema=SCHEMA_VERSION, environment={}, verdicts=verdicts)
    folder = root / "records"
    (folder / "profile").mkdir(parents=True, exist_ok=True)
    for one in profiles:
        (folder / "profile" / f"{one.problem}.json").write_bytes(msgspec.json.encode(one))
    (folder / "run.json").write_bytes(msgspec.json.encode(run))
    return limits_table(folder, root).splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


SPLIT = {"kernel": "void split::halves<4>(int)", TIME: "48000", CYCLES: "96000", **IDLE, L2: "84"}
TINY = {"kernel": "void tiny(int)", TIME: "2000"}
PRODUCT = {
    "kernel": "void hopper::multiply<128>(int)", **IDLE, SM: "87", TENSOR: "91.4", FMA: "9",
}  # fmt: skip


def test_a_solution_has_its_time_its_limit_and_its_main_kernels(tmp_path: Path) -> None:
    lines = table(tmp_path, profile(tmp_path, PRODUCT, SPLIT, TINY), verdicts=(graded(),))
    assert lines[0] == "NVIDIA H200, ncu 2025.3; kernels of at least 5% of a call's time:"
    headings, product, split, more = (cells(line) for line in (lines[2], *lines[4:]))
    found = dict(zip(headings, product, strict=True))
    assert found == {
        "solution": "solutions/a.py",
        "time ms": "0.610",
        "of its limit": "82%",
        "bound": "arithmetic",
        "kernel": "hopper::multiply\\<128>",
        "us": "480",
        "of the time %": "91",
        "DRAM %": "40",
        "L2 %": "42",
        "L1 %": "31",
        "shared memory %": "0",
        "tensor cores %": "91",
        "FMA %": "9",
        "ALU %": "6",
        "XU %": "0",
        "issue %": "9",
        "SM MHz": "1880",
        "limited by": "tensor cores",
    }
    assert split[:7] == ["", "", "", "", "split::halves\\<4>", "48.0", "9"]
    assert split[-2:] == ["2000", "L2"]
    assert more == ["", "", "", "", "1 more", "2.00", "0", *[""] * 11]


def test_counters_that_were_not_counted_are_no_zeros(tmp_path: Path) -> None:
    """A record of before they were asked for has no such fields, and is read all the same."""
    document = msgspec.to_builtins(profile(tmp_path, {**PRODUCT, L1: "95"}))
    for name in ("shared_pct", "alu_pct", "xu_pct", "sm_cycles"):
        del document["kernels"][0]["counters"][name]
    (tmp_path / "old.json").write_bytes(msgspec.json.encode(document))
    lines = table(tmp_path, read_profile(tmp_path / "old.json"))
    found = dict(zip(cells(lines[2]), cells(lines[4]), strict=True))
    unknown = {name for name, cell in found.items() if cell == "-"}
    assert unknown == {
        "time ms", "of its limit", "bound", "shared memory %", "ALU %", "XU %", "SM MHz",
    }  # fmt: skip
    assert found["limited by"] == "L1 or shared memory"
    assert lines[-1].startswith("`-` Not counted")


@pytest.mark.parametrize(
    ("present", "timed", "marked"),
    [
        ("a", "a", []),
        ("a", "before", ["time ms"]),
        ("later", "later", ["solution"]),
        ("later", "a", ["solution", "time ms"]),
        (None, "a", ["solution", "time ms"]),
    ],
)
def test_what_was_recorded_of_another_text_is_marked(
    tmp_path: Path, present: str | None, timed: str, marked: list[str]
) -> None:
    found = profile(tmp_path, PRODUCT)
    file = tmp_path / "solutions" / "a.py"
    if present is None:
        file.unlink()
    else:
        file.write_text(present)
    lines = table(tmp_path, found, verdicts=(graded(text=timed),))
    columns = dict(zip(cells(lines[2]), cells(lines[4]), strict=True))
    assert [name for name, cell in columns.items() if cell.endswith(" †")] == marked
    assert any(line.startswith("† Recorded with an earlier state") for line in lines) == bool(
        marked
    )


def test_the_time_is_of_the_profiled_text_or_else_of_the_last_record(tmp_path: Path) -> None:
    found = profile(tmp_path, PRODUCT)
    others = (graded(text="b", time_ms=2.0), graded(text="c", time_ms=3.0))
    elsewhere = msgspec.structs.replace(graded(), device="NVIDIA A100")
    assert cells(table(tmp_path, found, verdicts=(graded(), *others))[4])[1] == "0.610"
    assert cells(table(tmp_path, found, verdicts=(*others, elsewhere))[4])[1] == "3.00 †"


def test_another_case_has_no_time_of_the_main_one(tmp_path: Path) -> None:
    found = msgspec.structs.replace(profile(tmp_path, PRODUCT), case="one_row")
    row = cells(table(tmp_path, found, verdicts=(graded(),))[4])
    assert row[:4] == ["solutions/a.py (case one_row)", "-", "-", "-"]


def test_no_profiles_says_so(tmp_path: Path) -> None:
    assert table(tmp_path) == ["No profile on this GPU has been recorded yet."]
    assert limits_table(tmp_path / "none", tmp_path) == table(tmp_path)[0]


# --- reading and the command ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not a kernelgen profile: "),
        ('{"schema": 1, "verdicts": []}', "not a kernelgen profile: Object missing required field"),
        ('{"schema": 2}', "the profile has schema 2, this kernelgen reads schema 1"),
        (None, "cannot be read: Is a directory"),
    ],
)
def test_a_file_that_is_no_profile_is_refused_by_name(
    tmp_path: Path, content: str | None, why: str
) -> None:
    path = tmp_path / "profile.json"
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    with pytest.raises(UserError) as raised:
        read_profile(path)
    assert str(raised.value).startswith(f"{path}: {why}")


def test_the_command_checks_and_fills_the_table_of_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "benchmarks" / "h200"
    (folder / "profile").mkdir(parents=True)
    found = profile(tmp_path, PRODUCT)
    (folder / "profile" / "a.json").write_bytes(msgspec.json.encode(found))
    run = Run(schema=SCHEMA_VERSION, environment={}, verdicts=(graded(),))
    (folder / "run.json").write_bytes(msgspec.json.encode(run))
    markers = "<!-- generated: {} -->\n<!-- /generated -->\n"
    Path("README.md").write_text(markers.format("results"))
    Path("benchmarks/h200/limits.md").write_text(markers.format("limits"))

    check = CliRunner().invoke(program, ["readme", "--check"])
    assert check.exit_code == 1
    assert "README.md is not what the records say" in check.stderr
    assert "benchmarks/h200/limits.md is not what the records say" in check.stderr
    assert "+| solutions/a.py | 0.610 | 82% | arithmetic |" in check.stdout

    assert CliRunner().invoke(program, ["readme", "--write"]).exit_code == 0
    again = CliRunner().invoke(program, ["readme", "--check"])
    assert (again.exit_code, again.output) == (0, "")
    monkeypatch.chdir(folder)
    assert CliRunner().invoke(program, ["readme", "--check", "limits.md"]).exit_code == 0


def test_a_document_with_nothing_generated_is_a_mistake(tmp_path: Path) -> None:
    document = tmp_path / "limits.md"
    document.write_text("words\n")
    result = CliRunner().invoke(program, ["readme", str(document)])
    assert result.exit_code == 2
    assert "limits.md: nothing in it is generated: expected a line" in result.stderr
    assert "<!-- generated: limits -->" in result.stderr


# --- conditions -----------------------------------------------------------------------------------


def test_the_device_is_looked_at_while_ncu_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = threading.Semaphore(0)
    clocks = iter([1980, 1200, *[1500] * 10_000])

    def clock(_: object, which: int) -> int:
        if which == 1:
            looks.release()
            return next(clocks)
        return 3201

    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetClockInfo=clock))
    monkeypatch.setattr(profiling, "_LOOK_EVERY_S", 0.001)
    with profiling.watched("GPU-a") as conditions:
        for _ in range(3):
            assert looks.acquire(timeout=60)
    seen = conditions.seen(repeated_blocks=0)
    assert seen is not None
    assert (seen.sm_mhz, seen.power_w) == ((1200, 1980), 412.5)


def test_a_device_that_does_not_tell_has_no_conditions() -> None:
    with profiling.watched("") as conditions:
        pass
    assert conditions.seen(repeated_blocks=0) is None
