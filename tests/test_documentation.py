"""The documents are true of this tree: links, commands, folders, the example problem."""

import re
from pathlib import Path

import pytest
import yaml

import kernelgen
from kernelgen.cli import program
from kernelgen.problem.library import load_problem

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path
    for glob in ("*.md", "docs/**/*.md", "benchmarks/**/*.md")
    for path in REPOSITORY.glob(glob)
)
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_relative_link_leads_to_a_file(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


def test_the_readme_names_every_command_and_no_other() -> None:
    section = README.split("## Commands")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `kernelgen ([a-z]+)", section, re.MULTILINE)
    context = program.make_context("kernelgen", [], resilient_parsing=True)
    commands = {name: program.get_command(context, name) for name in program.list_commands(context)}
    shown = [name for name, command in commands.items() if command and not command.hidden]
    assert sorted(shown) == sorted(rows)


def test_the_readme_s_problem_loads_and_renders_for_both_backends(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    file = tmp_path / "signal_norm.yaml"
    file.write_text(block)
    problem = load_problem(file)
    cuda = kernelgen.render(problem)
    cpp = kernelgen.render(problem, backend="cpp")
    assert "# problem: signal_norm" in cuda
    assert "__global__" in cuda
    assert "__global__" not in cpp
    assert "class ModelNew" in cpp


def test_the_architecture_names_every_folder_of_the_package() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = {path.parent.name for path in (REPOSITORY / "kernelgen").glob("*/__init__.py")}
    named = set(re.findall(r"^\| `kernelgen/(\w+)/` \|", text, re.MULTILINE))
    assert named == folders


def test_the_pinned_torch_is_one_that_the_package_admits() -> None:
    pin = re.search(
        r"^torch==(\d+)\.(\d+)", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE
    )
    least = re.search(r'"torch>=(\d+)\.(\d+)"', (REPOSITORY / "pyproject.toml").read_text())
    assert pin
    assert least
    assert tuple(map(int, pin.groups())) >= tuple(map(int, least.groups()))


def test_the_workflow_runs_the_same_script_with_least_rights() -> None:
    text = (REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    check, gpu = workflow["jobs"]["check"], workflow["jobs"]["gpu"]
    assert {"3.10", "3.13"} <= set(check["strategy"]["matrix"]["python"])
    assert {"run": "bash .ci/run"} in check["steps"]
    assert gpu["runs-on"] == ["self-hosted", "gpu"]
    assert "pull_request" in gpu["if"], "a stranger's change must not reach the self-hosted machine"
