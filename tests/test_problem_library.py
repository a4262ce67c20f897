"""Finding problems by name and by path."""

from pathlib import Path

import pytest

from kernelgen.errors import ProblemError, UserError
from kernelgen.installation import problems_folder
from kernelgen.problem.library import all_problems, load_problem, problem_names


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def add(name: str, summary: str) -> None:
    Path("problems").mkdir(exist_ok=True)
    text = (problems_folder() / "groupnorm.yaml").read_text()
    old = "summary: GroupNorm with a per-channel affine map over any number of spatial dimensions"
    assert old in text
    Path("problems", name).write_text(text.replace(old, f"summary: {summary}"))


def test_shipped_problems_are_found_from_any_folder() -> None:
    assert load_problem("groupnorm").name == "groupnorm"
    assert [problem.name for problem in all_problems()] == list(problem_names())
    assert list(problem_names()) == sorted(problem_names())


def test_the_current_folders_problems_come_first() -> None:
    add("groupnorm.yaml", "mine")
    add("another.yml", "another")

    assert load_problem("groupnorm").summary == "mine"
    assert load_problem("another").summary == "another"
    assert "another" in problem_names()
    assert problem_names().count("groupnorm") == 1


def test_a_path_is_read_whatever_the_name_says(tmp_path: Path) -> None:
    add("mine.yaml", "mine")
    (tmp_path / "kernel.py").write_text(
        "import torch.nn as nn\nclass Model(nn.Module):\n    def forward(self): ...\n"
        "def get_inputs(): return []\ndef get_init_inputs(): return []\n"
    )

    assert load_problem("problems/mine.yaml").summary == "mine"
    assert load_problem(tmp_path / "problems" / "mine.yaml").summary == "mine"
    assert load_problem("kernel.py").module_source is not None


def test_a_solutions_problem_may_lie_beside_it(tmp_path: Path) -> None:
    add("mine.yaml", "beside")
    folder = (tmp_path / "problems").rename(tmp_path / "work")
    (folder / "groupnorm.yaml").write_text("no problem")
    solution = folder / "answer.py"
    with pytest.raises(UserError, match="no problem is called 'mine'"):
        load_problem("mine", solution)  # which is no file
    solution.touch()
    assert load_problem("mine", solution).summary == "beside"
    assert load_problem("groupnorm", solution).summary != "no problem"
    with pytest.raises(UserError, match="no problem is called 'mine'"):
        load_problem("mine")


def test_an_unknown_name_is_told_with_the_close_ones() -> None:
    with pytest.raises(UserError, match=r"'groupnrm'; did you mean groupnorm\b.*kernelgen list"):
        load_problem("groupnrm")
    with pytest.raises(UserError, match="called 'zzz'; `kernelgen list`"):
        load_problem("zzz")


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\.yaml, \.yml or \.py"):
        load_problem(tmp_path / "x.txt")
    with pytest.raises(ProblemError, match="cannot be read"):
        load_problem("absent.yaml")


def test_the_documented_example_and_its_documented_error_are_true(tmp_path: Path) -> None:
    page = Path(__file__).parent.parent / "docs" / "adding-a-problem.md"
    text = page.read_text()
    example = text.split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "problems" / "scale_add.yaml"
    path.parent.mkdir()
    path.write_text(example)

    assert [case.name for case in load_problem("scale_add").cases] == ["odd_features", "negative"]

    path.write_text(example.replace("torch.rand(batch_size, features)", "torch.rand(1, feature)"))
    with pytest.raises(ProblemError) as caught:
        load_problem("scale_add")
    assert f"error: {caught.value}\n" in text
