"""`kernelgen grade RUN_DIR --kernelbench PATH`: which files, which problems, which results."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kernelbench_trees import CANDIDATE, HALF_MORE, TWICE, checkout, generated
from report_runs import every_status, failed, full, passed, run_of

from kernelgen.cli import program
from kernelgen.cli.kernelbench import run_folders
from kernelgen.errors import UserError
from kernelgen.grading.verdict import Owner, Status
from kernelgen.kernelbench.checkout import Checkout
from kernelgen.kernelbench.generated import Wanted, generated_files
from kernelgen.kernelbench.results import entry_of, read_results, write_results

EXPECTED_KEYS = {
    "sample_id",
    "compiled",
    "correctness",
    "metadata",
    "runtime",
    "runtime_stats",
}


def invoke(*arguments: str | Path) -> Result:
    """Run `kernelgen grade` with these arguments, on the CPU."""
    return CliRunner().invoke(program, ["grade", "--device", "cpu", *map(str, arguments)])


def results_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads((folder / "eval_results.json").read_text())
    return found


def test_a_run_is_graded_each_file_on_its_own_problem(tmp_path: Path) -> None:
    bench, run = checkout(tmp_path / "bench"), tmp_path / "run"
    twice = CANDIDATE.format(expression=TWICE)
    generated(run, 1, 12, 0, CANDIDATE.format(expression=HALF_MORE))
    generated(run, 1, 12, 1, twice)
    generated(run, 1, 1, 0, f"Here it is:\n```python\n{twice}```\n")
    generated(run, 1, 1, 2, "class ModelNew(:\n")
    (run / "generation_config.yaml").write_text("level: 1\n")
    report = tmp_path / "run.json"
    timing = ("--samples", "3", "--baseline", "eager")
    result = invoke(run, "--kernelbench", bench, "--json", report, *timing)
    assert result.exit_code == 1, result.output
    verdicts = json.loads(report.read_text())["verdicts"]
    assert sorted((one["problem"], one["status"]) for one in verdicts) == [
        ("12_Half_More", "PASSED"),
        ("12_Half_More", "WRONG_VALUES"),
        ("1_Twice", "BROKEN_CONTRACT"),
        ("1_Twice", "PASSED"),
    ]
    results = results_of(run)
    assert list(results) == ["1", "12"]
    assert all(set(entry) == EXPECTED_KEYS for entries in results.values() for entry in entries)
    (right, broken), (also, wrong) = results["1"], results["12"]
    assert [entry["sample_id"] for entry in (right, broken, also, wrong)] == [0, 2, 0, 1]
    said = [(e["compiled"], e["correctness"]) for e in (right, broken, also, wrong)]
    assert said == [(True, True), (False, False), (True, True), (True, False)]
    times = verdicts[0]["timing"]["samples"]["candidate"]
    assert right["runtime"] == right["runtime_stats"]["mean"]
    assert right["runtime"] == pytest.approx(sum(times) / len(times), rel=1e-3)
    assert right["runtime_stats"]["num_trials"] == len(times)
    assert right["metadata"]["device"] == "cpu"
    assert (wrong["runtime"], wrong["runtime_stats"]) == (-1.0, {})
    assert wrong["metadata"]["correctness_issue_name"] == "WRONG_VALUES"
    assert "compilation_error" in broken["metadata"]


def test_a_run_that_is_rendered_passes(tmp_path: Path) -> None:
    bench, run = checkout(tmp_path / "bench"), tmp_path / "run"
    given = ("render", "--kernelbench", bench, "--level", "1", "--backend", "cpp", "-o", run)
    rendered = CliRunner().invoke(program, [*map(str, given)])
    assert rendered.exit_code == 0, rendered.output
    result = invoke(run, "--kernelbench", bench, "--no-timing")
    assert result.exit_code == 0, result.output
    assert {
        number: [entry["correctness"] for entry in entries]
        for number, entries in results_of(run).items()
    } == {"1": [True], "12": [True]}


def test_a_file_may_use_what_the_reference_defines_but_not_its_model(tmp_path: Path) -> None:
    bench, run, report = checkout(tmp_path / "bench"), tmp_path / "run", tmp_path / "run.json"
    text = CANDIDATE.format(expression=TWICE).replace("import torch\nimport torch.nn as nn\n", "")
    text += "\nassert get_inputs()[0].shape == (rows, columns)\n"
    generated(run, 1, 1, 0, text)
    generated(run, 1, 1, 1, f"{text}\nclass ModelNew(Model):\n    pass\n")
    result = invoke(run, "--kernelbench", bench, "--json", report, "--no-timing")
    good, bad = json.loads(report.read_text())["verdicts"]
    assert (good["status"], bad["status"]) == ("PASSED", "BROKEN_CONTRACT"), result.output
    (lent,) = (w for w in good["warnings"] if "are the reference's" in w)
    names = {"columns", "get_inputs", "nn", "rows", "torch"}
    assert set(re.findall(r"`(\w+)`", lent)) == names
    assert "`Model`" in bad["reason"]


def test_a_run_without_the_checkout_is_refused_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for number in (1, 2, 12):
        generated(run, 1, number, 0, CANDIDATE.format(expression=TWICE))
    result = invoke(run, "--no-timing")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "add --kernelbench PATH" in result.stderr
    # One of them says what it solves: each is judged by itself.
    generated(run, 1, 3, 0, "# problem: softmax\nclass ModelNew(:\n")
    assert "BROKEN_CONTRACT" in invoke(run, "--no-timing").stdout


def test_files_of_a_problem_lie_side_by_side_in_a_stable_order(tmp_path: Path) -> None:
    for problem, sample in ((10, 0), (2, 11), (2, 2), (1, 0)):
        generated(tmp_path, 1, problem, sample, "")
    files = generated_files([tmp_path], Wanted())
    assert [(one.problem, one.sample) for one in files] == [(1, 0), (2, 2), (2, 11), (10, 0)]


def test_level_problems_and_samples_choose(tmp_path: Path) -> None:
    for level in (1, 2):
        for problem in (1, 2, 3, 23):
            for sample in (0, 1):
                generated(tmp_path, level, problem, sample, "")
    wanted = Wanted(levels={2}, problems={1, 2, 23}, sample_ids={1})
    files = generated_files([tmp_path], wanted)
    assert [(one.level, one.problem, one.sample) for one in files] == [
        (2, 1, 1),
        (2, 2, 1),
        (2, 23, 1),
    ]
    with pytest.raises(UserError, match=r"levels 1, 2.*choose one with --level"):
        generated_files([tmp_path], Wanted())


def test_a_file_may_be_named_instead_of_its_folder(tmp_path: Path) -> None:
    file = generated(tmp_path, 1, 1, 0, "")
    assert [one.path for one in generated_files([file, tmp_path], Wanted())] == [file]
    other = tmp_path / "other.py"
    other.touch()
    with pytest.raises(UserError, match="expected a name like level_L"):
        generated_files([other], Wanted())


@pytest.mark.parametrize("inner", ["", "KernelBench"])
def test_the_checkout_is_taken_by_its_root_or_its_inner_folder(tmp_path: Path, inner: str) -> None:
    bench = Checkout(checkout(tmp_path) / inner)
    assert list(bench.levels) == [1, 2]
    assert list(bench.problems(1)) == [1, 12]
    assert bench.problem(1, 12).name == "12_Half_More"


def test_what_is_not_there_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    bench, run, empty = checkout(tmp_path / "bench"), tmp_path / "run", tmp_path / "empty"
    empty.mkdir()
    generated(run, 1, 7, 0, "")
    generated(run, 3, 1, 0, "")
    asked = {
        ("--kernelbench", empty): "expected KernelBench's checkout",
        ("--kernelbench", tmp_path / "absent"): "expected KernelBench's checkout",
        ("--kernelbench", bench, "--level", "1"): "has no problem 7",
        ("--kernelbench", bench, "--level", "3"): "no level 3; there are 1, 2",
        ("--kernelbench", bench, "--level", "2"): "holds no file level_L_problem_P",
        ("--kernelbench", bench): "choose one with --level",
        ("--kernelbench", bench, "--problem", "softmax"): "exclude each other",
        ("--problems", "1-3"): "--problems goes with --kernelbench PATH",
        ("--sample-ids", "0"): "--sample-ids goes with --kernelbench PATH",
    }
    for arguments, words in asked.items():
        result = invoke(run, *arguments)
        assert result.exit_code == 2, result.output
        assert words in result.output
        assert len(result.output.splitlines()) == 1
    assert invoke(empty, "--kernelbench", bench).exit_code == 2
    assert not (run / "eval_results.json").exists()


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-3", "1-2-3", "9999999"])
def test_what_is_no_list_of_numbers_is_refused(tmp_path: Path, text: str) -> None:
    result = invoke(tmp_path, "--kernelbench", tmp_path, "--problems", text)
    assert result.exit_code == 2
    assert "expected numbers and ranges, such as 1-10,23" in result.output


def test_a_number_with_two_files_is_refused(tmp_path: Path) -> None:
    bench = checkout(tmp_path)
    (bench / "KernelBench" / "level1" / "1_Other.py").write_text("")
    with pytest.raises(UserError, match=r"is problem 1 of its level, as 1_Other\.py is"):
        Checkout(bench).problem(1, 1)


# Results


def test_entries_of_other_problems_and_samples_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "eval_results.json"
    other = {"sample_id": 0, "compiled": True, "anything": [1, {"else": None}]}
    stale = {"sample_id": 1, "compiled": False}
    path.write_text(json.dumps({"100": [other], "2": [other, stale], "3": {**other}}))
    files = [
        generated_files([generated(tmp_path, 1, problem, sample, "")], Wanted())[0]
        for problem, sample in ((2, 1), (11, 0))
    ]
    run = run_of(*(passed(str(file.path)) for file in files))
    assert write_results(path, files, run) == []
    results = results_of(tmp_path)
    assert list(results) == ["2", "3", "11", "100"]
    assert results["100"] == results["3"] == [other]
    assert results["2"][0] == other
    assert results["2"][1]["correctness"] is True
    assert len(results["2"]) == 2
    assert path.read_text().startswith('{\n    "2": [\n        {')


def test_what_nobody_could_judge_has_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "eval_results.json"
    file = generated_files([generated(tmp_path, 1, 1, 0, "")], Wanted())[0]
    before = [{"sample_id": 0, "correctness": True}]
    path.write_text(json.dumps({"1": before}))
    for status in (Status.NO_DEVICE, Status.GRADER_ERROR, Status.INVALID_PROBLEM):
        verdict = failed(status, str(file.path))
        assert write_results(path, [file], run_of(verdict)) == [verdict]
    too_large = failed(Status.OUT_OF_MEMORY, str(file.path), owner=Owner.GRADER)
    assert write_results(path, [file], run_of(too_large)) == [too_large]
    assert results_of(tmp_path) == {"1": before}


def test_every_failure_says_why_where_kernelbench_says_it() -> None:
    named = set()
    for verdict in every_status().verdicts:
        metadata = entry_of(verdict, 0, {})["metadata"]
        assert metadata["kernelgen_status"] == verdict.status.value
        found = [key for key in metadata if key.endswith("_name")]
        assert len(found) == (0 if verdict.passed else 1)
        for key in found:
            assert metadata[key] == verdict.status.value
            assert metadata[key.removesuffix("_name")] == verdict.reason
        named.update(found)
    assert named == {
        "compilation_error_name",
        "runtime_error_name",
        "correctness_issue_name",
        "other_error_name",
    }


def test_times_are_milliseconds_of_the_quoted_samples() -> None:
    verdict = full()
    entry = entry_of(verdict, 3, {"gpu": verdict.device})
    assert verdict.timing is not None
    times = verdict.timing.samples["candidate"]
    assert entry["runtime"] == pytest.approx(sum(times) / len(times), rel=1e-3)
    stats = entry["runtime_stats"]
    assert (stats["min"], stats["max"]) == pytest.approx((min(times), max(times)), rel=1e-3)
    assert (stats["hardware"], stats["device"]) == ("NVIDIA H200", "cuda:0")
    untimed = entry_of(passed(timing=None), 0, {})
    assert (untimed["correctness"], untimed["runtime"], untimed["runtime_stats"]) == (True, -1, {})


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": []}', '{"1": 3}', '{"1": [{}]}', "[" * 10_000, "\xff"]
)
def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "eval_results.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match="expected KernelBench's results"):
        read_results(path)
    bench = checkout(tmp_path / "bench")
    generated(tmp_path, 1, 1, 0, "")
    assert invoke(tmp_path, "--kernelbench", bench).exit_code == 2
    assert path.read_text(encoding="latin-1") == text


@pytest.mark.parametrize(("gpus", "usual"), [(1, "cuda"), (0, "auto")])
def test_all_files_are_graded_on_the_gpu_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, usual: str
) -> None:
    bench = checkout(tmp_path / "bench")
    generated(tmp_path, 1, 1, 0, "")
    monkeypatch.setattr("kernelgen.cli.kernelbench.has_gpu_driver", lambda: gpus > 0)
    for asked, chosen in (("auto", usual), ("cpu", "cpu")):
        given: dict[str, Any] = {
            "path": bench,
            "levels": None,
            "problems": None,
            "sample_ids": None,
        }
        given |= {"problem": None, "reference": None, "device": asked}
        runs = run_folders((tmp_path,), given)
        assert runs is not None
        assert given == {"problem": None, "reference": None, "device": chosen}
