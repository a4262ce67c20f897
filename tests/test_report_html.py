"""The page: whole, self-contained, with every verdict in it, and with no harm in it."""

import base64
import hashlib
import re
import unicodedata
from pathlib import Path

import msgspec
import pytest
from html_outline import Outline
from hypothesis import given, settings
from hypothesis import strategies as st
from report_runs import (
    FULL_TIMING,
    HARM,
    LONG_SOURCE,
    PLAN,
    TIMING,
    every_status,
    failed,
    full,
    harmful,
    passed,
    planned,
    run_of,
    wrong,
)

from kernelgen.cli.report import Documents
from kernelgen.errors import UserError
from kernelgen.grading.plan_record import PlannedStage, PlanRecord
from kernelgen.grading.timing.times import Speedup
from kernelgen.grading.verdict import KernelUse, Status, Verdict
from kernelgen.report.html.document import page, shown
from kernelgen.report.html.overview import across_of
from kernelgen.report.html.solution import entries_of
from kernelgen.report.json_report import Recorded
from kernelgen.solution.file import RENDERED

TIMES = "\N{MULTIPLICATION SIGN}"
HAND_WRITTEN = (*every_status().verdicts, full(), wrong())


def page_of(*verdicts: Verdict) -> str:
    return page([Recorded(name="run.json", run=run_of(*verdicts))])


def outline(*verdicts: Verdict) -> Outline:
    return Outline(page_of(*verdicts))


@pytest.fixture(scope="module")
def everything() -> Outline:
    return outline(*HAND_WRITTEN)


@pytest.mark.parametrize(
    "verdicts",
    [(), (passed(),), (full(),), HAND_WRITTEN, harmful()],
    ids=["none", "one", "full", "all", "harm"],
)
def test_it_is_well_formed_and_loads_nothing(verdicts: tuple[Verdict, ...]) -> None:
    found = outline(*verdicts)
    assert found.mistakes == []
    assert len(set(found.ids)) == len(found.ids)
    assert found.loads == ["data:,"]
    assert [link for link in found.links if link[0] != "#" or link[1:] not in found.ids] == []


def test_its_style_and_script_ask_for_nothing_and_are_the_only_ones_allowed() -> None:
    text = page_of(full())
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert not re.search(r"url\(|@import|fetch|XMLHttp|import\(|https?:", style + script)
    for part in (style, script):
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert digest in text.partition("Content-Security-Policy")[2].partition(">")[0]
    assert " style=" not in text
    assert " onclick=" not in text


def test_every_verdict_is_in_the_table_and_has_a_section_of_its_own(everything: Outline) -> None:
    entries = entries_of([Recorded(name="run.json", run=run_of(*HAND_WRITTEN))])
    assert len({entry.anchor for entry in entries}) == len(HAND_WRITTEN)
    for entry in entries:
        assert entry.anchor in everything.ids
        assert f"#{entry.anchor}" in everything.links
    for verdict in HAND_WRITTEN:
        assert everything.words.count(verdict.solution.rpartition("/")[2]) >= 2
        assert verdict.reason in everything.words


def test_equal_names_keep_addresses_of_their_own() -> None:
    names = ("a/b.py", "a-b.py", "A/B.py", "a/b--2.py", "ü.py", "ö.py", "x" * 300 + ".py")
    run = run_of(*(passed(name) for name in names))
    anchors = [entry.anchor for entry in entries_of([Recorded(name="", run=run)])]
    assert len(set(anchors)) == len(anchors)
    assert all(re.fullmatch(r"v-[a-z0-9-]{1,90}", anchor) for anchor in anchors)


@pytest.mark.parametrize("status", Status, ids=[status.value for status in Status])
def test_a_status_has_its_sign_and_its_owner(status: Status, everything: Outline) -> None:
    sign = {"PASSED": "✓", "INVALID_PROBLEM": "!", "GRADER_ERROR": "?", "NO_DEVICE": "?"}
    assert f"{sign.get(status.value, '✗')} {status.value}" in everything.words
    blamed = status in (Status.INVALID_PROBLEM, Status.GRADER_ERROR, Status.NO_DEVICE)
    alone = passed() if status is Status.PASSED else failed(status)
    assert ("doing and not the solution's" in outline(alone).words) is blamed


def test_the_counts_are_by_status() -> None:
    words = " ".join(outline(passed(), passed("b.py"), failed(Status.TIMEOUT)).words.split())
    assert "2 of 3 passed on NVIDIA H200" in words
    assert "2 ✓ PASSED 1 ✗ TIMEOUT" in words
    words = outline(passed(), failed(Status.CRASHED)).words
    assert "1 of 2 solutions, 50%" in words
    assert "fast_p vs eager" in words


@pytest.mark.parametrize(
    "told",
    [
        "2.250x", "[2.210, 2.280]", "faster", "same", "slower", "max-autotune",
        "3.950 to 4.050", "torch.compile, default options, TF32 off",
        "of the limit",
        "two of them add 1.25 us",
        "at most 4.020 ms, from 3 batches of 8 verified calls, outputs looked at in place",
        "3.520 ms; 88.0 % of it reached; memory is what limits", "260.0 TFLOP/s",
        "three bf16 products", "power cap",
        "blocks measured again", "gn.weight",
        "other bits, up to 2.0e-07 apart", "cuda_matmul_tf32: False", "segment_norm<4>",
        "75.0 %", "Clean: memcheck and racecheck on one call of case small", "no user namespace",
        "4096 processes", "version 7", "0.940 s", "Warning: the times vary", "compiling",
        "4 GiB a file", "torch2.11.0", "CUDA events, new inputs for every call.",
    ],
)  # fmt: skip
def test_what_was_measured_is_told(told: str) -> None:
    words = " ".join(outline(full()).words.replace(TIMES, "x").split())
    assert told in words.replace("4 096", "4096")


@pytest.mark.parametrize(
    "told",
    [
        "output[0, 3]", "✗ no", "Not run: odd", "invalid __global__ read of size 4 bytes",
        "segment_norm.cu:12, thread (3, 0, 0)", "12.5 s, in the build folder of an earlier run",
        "25\N{NO-BREAK SPACE}000", "2.5e-01", "cd" * 32,
    ],
)  # fmt: skip
def test_what_went_wrong_is_told(told: str) -> None:
    assert told in re.sub(r"[ \n]+", " ", outline(wrong()).words)


def with_plan(plan: PlanRecord, *verdicts: Verdict) -> str:
    return page([Recorded(name="run.json", run=planned(*verdicts, plan=plan))])


def test_the_plan_stands_before_what_ran() -> None:
    rendered = RENDERED + LONG_SOURCE
    verdict = full(source=rendered)
    others = [full("b.py", problem="other", source=rendered), full("by_hand.py")]
    text = with_plan(PLAN, verdict, *others, full("c.py", device="CPU", source=rendered))
    found = Outline(text)
    words = " ".join(found.words.replace(TIMES, "x").replace("\N{NO-BREAK SPACE}", " ").split())
    assert found.mistakes == []
    assert text.count("<h4>Plan</h4>") == 1
    plan, _, kernels = words.partition("What a solution by the plan does")[2].partition("Kernels")
    assert "libraryconv2d64x84.002.00memory50.0 %1 000" in plan
    assert "maprelu relu(add(conv2d, 1))5126.00memory75.0 %1 500" in plan
    assert "view" not in plan
    assert kernels.startswith(" What ran in a call of the main case: 75.0 % of it")
    for told in (
        "stays in torchconv2d",
        "free but for dimensions 1 of x", "10.0 GB, 1.250x the least (8.00 GB)",
        "2.50 ms without launches", "2.00 ms (memory, 4000 GB/s)",
    ):  # fmt: skip
        assert told in words


def test_a_plan_without_rates_has_no_times() -> None:
    stages = tuple(
        msgspec.structs.replace(stage, bound="", expected_ms=None) for stage in PLAN.stages
    )
    text = with_plan(msgspec.structs.replace(PLAN, stages=stages, limit=None), passed())
    assert re.search(r"<td>512</td>\s*<td class=\"number\">6.00</td>", text)
    assert "without launches" not in text
    assert "nan" not in text


def test_why_there_is_no_plan_is_a_line() -> None:
    plan = PlanRecord(problem="groupnorm", device="NVIDIA H200", reason="it reads values")
    text = with_plan(plan, passed())
    assert "No plan: it reads values." in text
    assert "What a solution by the plan does" not in text


def test_a_long_plan_is_cut_and_said_to_be() -> None:
    plan = msgspec.structs.replace(PLAN, stages=PLAN.stages * 60)
    text = with_plan(plan, passed())
    assert text.count("relu(add(conv2d, 1))") == 20
    assert "80 more stages follow; JSON has them." in text


def test_harm_in_a_plan_is_text() -> None:
    stage = PlannedStage(kind="map", name=HARM, shape=(1,), formula=HARM)
    plan = msgspec.structs.replace(PLAN, fixed_sizes=HARM, stages=(stage,))
    found = Outline(with_plan(plan, passed()))
    assert found.mistakes == []
    assert found.shape <= Outline(with_plan(PLAN, passed())).shape
    assert found.words.count("<img src=x onerror=alert(1)>") == 3


def test_what_was_not_measured_is_absent() -> None:
    words = outline(passed(timing=TIMING, build=None, kernels=()), failed(Status.TIMEOUT)).words
    for title in ("of the limit", "Clocks", "Conditions", "compute-sanitizer",
                  "Containment", "Build and log", "Kernels", "None"):  # fmt: skip
        assert title not in words
    assert "The report does not hold it." in words


def test_without_times_there_is_no_chart() -> None:
    words = outline(failed(Status.TIMEOUT)).words
    assert "Speedup" not in words
    assert "Against" not in words


def test_a_speedup_is_called_by_what_its_interval_says() -> None:
    text = page_of(full()).replace(TIMES, "x")
    titles = re.findall(r"<title>([^<]*against [^<]*)</title>", text)
    assert titles == [
        "2.250x [2.210, 2.280] against eager: faster",
        "1.001x [0.998, 1.004] against compile: same",
        "0.950x [0.940, 0.960] against max-autotune: slower",
    ]


@pytest.mark.parametrize("wild", [0.0, -1.0, 1e-300, 1e300])
def test_a_speedup_that_has_no_place_on_the_axis_is_a_number_without_a_bar(wild: float) -> None:
    speedup = {"eager": Speedup(median=wild, ci95=(wild, 2.0))}
    timing = msgspec.structs.replace(TIMING, speedup=speedup)
    found = outline(passed(timing=timing))
    assert found.mistakes == []
    assert "Against eager" in found.words


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(min_value=0, max_value=1e9), max_size=40),
    st.tuples(*[st.floats(min_value=0, max_value=1e9)] * 3),
)
def test_any_times_make_a_whole_page(
    samples: list[float], ends: tuple[float, float, float]
) -> None:
    low, median, high = sorted(ends)
    assert FULL_TIMING.limit is not None
    timing = msgspec.structs.replace(
        FULL_TIMING,
        candidate_ms=median,
        samples={"candidate": tuple(samples), "eager": tuple(samples[::2])},
        speedup={"eager": Speedup(median=median, ci95=(low, high))},
        limit=msgspec.structs.replace(FULL_TIMING.limit, fraction=high),
    )
    text = page_of(passed(timing=timing), passed("b.py"))
    assert Outline(text).mistakes == []
    assert not re.search(r'"(nan|inf|-inf)%?"', text)
    places = [float(x) for x in re.findall(r' (?:x|x1|x2|cx|width)="(-?[\d.]+)%"', text)]
    assert min(places) >= 0
    assert max(places) <= 100


def test_harm_is_text_and_nothing_else() -> None:
    kind, harm = outline(full(), wrong("a_b.py")), outline(*harmful())
    assert harm.shape <= kind.shape
    assert harm.count["script"] == harm.count["style"] == 1
    assert "img" not in harm.count
    assert harm.words.count("<img src=x onerror=alert(1)>") > 30
    assert "{{ 7 * 7 }}" in harm.words


def test_nothing_that_acts_is_left_in_it() -> None:
    text = page_of(*harmful())
    acting = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn")}
    assert acting == {"\n"}
    assert "\\u202egnirts" in text
    assert "\\x00\\x07red" in text, "the colour is gone, the bell is shown"


@settings(max_examples=20, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_one_cell_s_text(text: str) -> None:
    kernels = (KernelUse(name=text, owner="candidate", calls=1.0, share=1.0, time_us=1.0),)
    verdict = full(f"{text}.py", problem=text, kernels=kernels, source=text, log=text)
    found = outline(verdict, wrong(f"{text}/2.py", reason=text or "x"))
    assert found.mistakes == []
    assert found.shape <= outline(full(), wrong("a_b.py"), full("b.py", source="")).shape


def test_a_long_log_and_a_long_reason_are_cut_and_said_to_be() -> None:
    verdict = wrong(log="line\n" * 200_000 + "the end", reason="r" * 1_000_000)
    text = page_of(verdict)
    assert len(text) < 200_000
    assert "the end</pre>" in text
    assert re.search(r"the last 65\W536 of 1\W000\W007 characters, JSON has all", text)
    assert re.search(r"980\W000 more characters; JSON has them", text)


def test_a_source_that_two_share_is_there_once() -> None:
    text = page_of(full("a.py"), full("b.py"), full("c.py", source="x = 1\n"))
    assert text.count("Each block takes a segment.") == 1
    assert '<a href="#v-a">the same as here</a>' in text


def test_300_verdicts_stay_small_beside_their_sources() -> None:
    sources = [LONG_SOURCE + f"# {number}\n" for number in range(300)]
    verdicts = [full(f"model/{n}.py", source=source) for n, source in enumerate(sources)]
    text = page_of(*verdicts)
    assert text.count('<details class="solution">') == 300, "so many are folded"
    assert len(text) < 300 * (25_000 + 2.5 * len(LONG_SOURCE))


def test_a_few_stand_open() -> None:
    assert page_of(full()).count('<details class="solution" open>') == 1


def test_rows_of_kernelbench_have_its_numbers_in_their_order() -> None:
    made = [
        passed(f"runs/a/level_1_problem_{n}_sample_0_kernel.py", problem=f"{n}_Name")
        for n in (19, 100, 2)
    ]
    entries = entries_of([Recorded(name="", run=run_of(*made))])
    names = [str(entry.name).replace("<wbr>", "") for entry in entries]
    assert names == ["1/2 Name #0", "1/19 Name #0", "1/100 Name #0"]


def test_several_runs_are_one_by_device() -> None:
    nowhere = failed(Status.BUILD_ERROR, device="")
    one = run_of(passed("a.py"), passed("b.py", device="CPU"), nowhere)
    other = run_of(passed("a.py"), passed("c.py", device="CPU"))
    entries = entries_of([Recorded(name="1.json", run=one), Recorded(name="2.json", run=other)])
    assert [(entry.verdict.solution, entry.where) for entry in entries] == [
        ("a.py", "NVIDIA H200, 1.json"),
        ("a.py", "NVIDIA H200, 2.json"),
        ("b.py", "CPU, 1.json"),
        ("c.py", "CPU, 2.json"),
        ("candidates/bad.py", "1.json"),
    ]
    text = page([Recorded(name="1.json", run=one), Recorded(name="2.json", run=other)])
    words = Outline(text).words
    assert "4 of 5 passed on NVIDIA H200 and CPU" in words
    assert words.count("2.11.0") == 4, "each run's heading and environment"


def test_a_page_says_when_by_which_command_and_with_which_versions_it_was_made() -> None:
    facts = {"command": "kernelgen grade a.py", "date": "2026-11-28 12:00 UTC", "cuda": "13.0"}
    run = msgspec.structs.replace(run_of(passed()), environment={"torch": "2.11.0", **facts})
    heading = page([Recorded(name="", run=run)]).partition("<nav")[0]
    shown = " ".join(re.sub("<[^>]*>", "", heading).split())
    assert "kernelgen grade a.py, 2026-11-28 12:00 UTC, torch 2.11.0, cuda 13.0" in shown


def test_the_table_marks_what_is_slower_and_what_has_warnings() -> None:
    slower = {"eager": Speedup(median=0.5, ci95=(0.49, 0.51))}
    slow = passed("slow.py", timing=msgspec.structs.replace(TIMING, speedup=slower))
    text = page_of(slow, passed("warned.py", warnings=("a < b", "more")), passed())
    rows = text.partition("<tbody>")[2].split("<tr>")
    row = next(row for row in rows if "slow.py" in row)
    assert 'class="number slower"' in row
    assert '<small class="unsure">a &lt; b, and 1 more</small>' in text
    assert text.count('<small class="unsure">') == 1


def test_several_runs_have_a_chart_of_what_became_of_each_problem() -> None:
    def run_with(*medians: float) -> Recorded:
        timings = [
            msgspec.structs.replace(TIMING, speedup={"eager": Speedup(median=m, ci95=(m, m))})
            for m in medians
        ]
        made = [
            passed(f"{index}.py", problem=f"{index}_Name", timing=timing)
            for index, timing in enumerate(timings, 9)
        ]
        return Recorded(name=f"{len(made)}.json", run=run_of(*made))

    runs = [run_with(1.0, 2.0, 4.0), run_with(2.0, 8.0)]
    (chart,) = across_of(runs)
    assert chart.runs == ("3.json", "2.json")
    assert [(row.name, row.speedups) for row in chart.rows] == [
        ("geometric mean of 2", (pytest.approx(2**0.5), pytest.approx(4.0))),
        ("9_Name", (1.0, 2.0)),
        ("10_Name", (2.0, 8.0)),
    ]
    text = page(runs)
    assert Outline(text).mistakes == []
    assert "1: 3.json, 2: 2.json" in text
    assert text.count('class="run"') == 6
    assert across_of(runs[:1]) == []


def test_the_same_runs_give_the_same_page() -> None:
    assert page_of(*HAND_WRITTEN) == page_of(*HAND_WRITTEN)


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    recorded = [Recorded(name="", run=run_of(full()))]
    Documents(html=tmp_path / "page.html").write(recorded)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page(recorded)
    with pytest.raises(UserError, match="cannot be written"):
        Documents(html=tmp_path / "missing" / "page.html").write(recorded)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_template_cannot_write_a_number_by_itself() -> None:
    with pytest.raises(TypeError, match="None"):
        shown(None)
    with pytest.raises(TypeError, match=r"0\.1"):
        shown(0.1)


def test_another_rule_than_the_problems_is_named() -> None:
    text = page_of(passed(overrides={"tolerance": "0.001"}))
    assert "<h4>In effect</h4>" in text
    assert "--tolerance" in text
    assert "In effect" not in page_of(passed())
