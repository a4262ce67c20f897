"""The documents are true of this tree: links, commands, folders, the example problem."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import kernelgen
from kernelgen.cli import program
from kernelgen.installation import TESTED_TORCH
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
    assert tuple(map(int, pin.groups())) == TESTED_TORCH


def test_the_workflow_runs_the_same_script_with_least_rights() -> None:
    text = (REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    check, gpu = workflow["jobs"]["check"], workflow["jobs"]["gpu"]
    assert {"3.10", "3.13"} <= set(check["strategy"]["matrix"]["python"])
    assert {"run": "bash .ci/run"} in check["steps"]
    assert gpu["runs-on"] == ["self-hosted", "gpu"]
    assert "pull_request" in gpu["if"], "a stranger's change must not reach the self-hosted machine"


@pytest.mark.ci
def test_the_tutorial_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
    cpu = text.partition("## 5.")[0]
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", cpu, re.MULTILINE | re.DOTALL)
    saved = iter(re.findall(r"Save this as `([\w.]+)`", cpu))
    ran = 0
    for kind, block in blocks:
        if kind == "console":
            commands = re.findall(r"^\$ kernelgen (.+)", block, re.MULTILINE)
            for command in commands:
                done = CliRunner().invoke(program, command.split())
                said = done.stdout
                assert done.exit_code == ("NON_FINITE" in said), done.output
            statuses = [line for line in block.splitlines() if line.isupper()]
            assert all(status in said for status in statuses)
            ran += len(commands)
        elif block.startswith("    "):  # a line in place of another
            file, name = tmp_path / "mine.py", block.split("=")[0]
            lines = [line for line in file.read_text().splitlines() if line.startswith(name)]
            assert len(lines) == 1
            file.write_text(file.read_text().replace(f"{lines[0]}\n", block))
        else:
            (tmp_path / next(saved)).write_text(block)
    assert ran == 7
    assert (tmp_path / "page.html").exists()
