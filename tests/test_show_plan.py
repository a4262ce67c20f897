"""`kernelgen show --plan`: a plan for a person."""

import re
from pathlib import Path

import pytest
from calibrations import calibration
from click.testing import CliRunner, Result
from html_outline import Outline
from test_tracing import problem

from kernelgen.cli import program
from kernelgen.hardware import identity

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "plan.md"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "first_gpu", lambda: "there is no GPU")


def show(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["show", "--plan", *arguments], prog_name="kernelgen")


def shown(*arguments: str) -> list[str]:
    result = show(*arguments)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("Plan"))
    return lines[first : lines.index("Reference") - 1]


def test_a_kernelbench_file(tmp_path: Path) -> None:
    found = problem(
        tmp_path,
        "return torch.relu(self.conv(x) + self.bias)",
        layers="self.conv = nn.Conv2d(3, 8, 3)\nself.bias = nn.Parameter(torch.zeros(8, 1, 1))",
        x="torch.rand(64, 3, 130, 130)",
    )
    lines = shown(str(found.path))

    assert lines[0] == "Plan, timed by the rates of an NVIDIA H200, recorded on 2026-11-22"
    facts = dict(line.split(None, 1) for line in lines[-5:] if line.startswith("  "))
    assert [line.split()[0] for line in lines[2:4]] == ["view", "convolution"]
    assert "64x8x128x128" in lines[3]
    assert lines[3].split()[-2] == "memory"
    assert "stays in torch     nothing" in "\n".join(lines)
    assert facts["sizes"] == "free but for dimensions 1 of x"
    assert max(map(len, lines)) <= 100


def test_a_norm_is_what_is_rendered() -> None:
    lines = shown("layernorm")
    (stage,) = [line.split() for line in lines if "layer_norm" in line]
    assert stage[:3] == ["segment", "layer_norm", "16x64x256x256"]
    assert "stays in torch     nothing" in "\n".join(lines)


def test_the_rates_of_this_machine_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelgen.hardware.calibration import keep

    here = calibration(copy_gbps=100.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(identity, "first_gpu", lambda: here.device)
    from kernelgen.build.toolchain import cache_folder

    keep(cache_folder(), here)
    found = problem(tmp_path, "return torch.relu(x)", x="torch.rand(1024, 1024)")
    lines = shown(str(found.path))

    assert lines[0] == "Plan, timed by the rates of this machine's NVIDIA H200"
    assert "0.0839 ms without launches" in lines[-2]


def test_fixed_sizes_and_what_stays_are_told(tmp_path: Path) -> None:
    found = problem(tmp_path, "return torch.sort(x.view(2, 16))[0] * x.shape[0] ** 0.5")
    text = "\n".join(shown(str(found.path)))

    assert re.search(r"^  view    view +2x16$", text, re.MULTILINE)
    assert "stays in torch     sort" in text
    assert "free but for dimensions all of x" in text


def test_a_model_without_a_graph_says_why_it_stays_in_torch(tmp_path: Path) -> None:
    found = problem(tmp_path, "return x * x.sum().item()")
    title, line = shown(str(found.path))
    assert title == "Plan"
    assert line.startswith("  all stays in torch forward depends on values")


def test_a_model_whose_code_fails_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    found = problem(tmp_path, "return x * missing")
    result = show(str(found.path))

    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    assert "model: its code raises NameError" in line


def test_the_document_shows_what_the_command_prints() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (command, block) = re.findall(r"\$ kernelgen show (\S+) --plan\n(.*?)```", text, re.DOTALL)[0]

    assert block.splitlines() == shown(command)


@pytest.mark.parametrize("stays", [False, True], ids=["a kernel", "all in torch"])
def test_a_page_draws_the_plan(tmp_path: Path, *, stays: bool) -> None:
    body = "return torch.relu(x).to(torch.float16)" if stays else "return self.norm(x).sigmoid()"
    layers = "" if stays else "self.norm = nn.LayerNorm(64)"
    found = problem(tmp_path, body, layers=layers, x="torch.rand(8, 64)")
    result = show(str(found.path), "--html", str(tmp_path / "plan.html"))
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    drawn = Outline((tmp_path / "plan.html").read_text())
    assert drawn.mistakes == []
    words = " ".join(drawn.words.split())
    assert "class Model(nn.Module):" in words
    assert ("layer_norm_sigmoid segment" in words, "8x64" in words) == (not stays, True)
