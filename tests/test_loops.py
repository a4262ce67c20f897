"""Loops over steps that become one operator, and loops that do not."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from planned_models import Planned, plan_in, problem_of

from kernelgen.engines import recurrence
from kernelgen.engines.stage import Library
from kernelgen.tracing import capture
from kernelgen.tracing.capture_host import Answer, Trace

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.sampled(rest="ci")

CELL = "self.cell = nn.{}"
PARTS = "self.i = nn.Linear(4, 5)\nself.h = nn.Linear(5, 5{})"
WHOLE = "self.both = nn.Linear(9, 5{})"
LOOP = "outs = []\nfor t in range(x.size({dim})):\n    h = {step}\n    outs.append(h)\n"
LSTM = "c = h * 2\n" + LOOP.replace("h = {step}", "h, c = {step}")
OF_EACH = (
    "for t in range(6):\n    h = torch.tanh(F.linear(torch.cat([x[t], h], 1), self.cell[t]))\n"
)
FIRST, SECOND = "x[t]", "x[:, t, :]"

# Layers, statements before what is returned, that, and the dimension of the steps.
LOOPS = {
    "gru": (CELL.format("GRUCell(4, 5)"), LOOP, f"self.cell({FIRST}, h)", "torch.stack(outs)", 0),
    "gru_no_bias": (
        CELL.format("GRUCell(4, 5, bias=False)"),
        LOOP,
        f"self.cell({SECOND}, h)",
        "torch.stack(outs, 1)",
        1,
    ),
    "lstm": (
        CELL.format("LSTMCell(4, 5)"),
        LSTM,
        f"self.cell({SECOND}, (h, c))",
        "(torch.stack(outs, dim=1), c)",
        1,
    ),
    "lstm_turned": (
        CELL.format("LSTMCell(4, 5)"),
        LSTM,
        f"self.cell({FIRST}, (h, c))",
        "torch.stack(outs, 1)",
        0,
    ),
    "rnn_last": (
        CELL.format("RNNCell(4, 5, nonlinearity='relu')"),
        LOOP,
        f"self.cell({FIRST}, h)",
        "h",
        0,
    ),
    "parts": (PARTS.format(""), LOOP, f"torch.tanh(self.i({FIRST}) + self.h(h))", "h * 2", 0),
    "parts_turned": (
        PARTS.format(", bias=False"),
        LOOP,
        f"torch.relu(self.h(h) + self.i({FIRST}))",
        "torch.stack(outs)",
        0,
    ),
    "one_for_both": (
        "self.first = nn.Linear(4, 5)\nself.both = nn.Linear(5, 5)",
        "x = self.first(x)\n" + LOOP,
        "torch.tanh(self.both(x[t]) + self.both(h))",
        "h",
        0,
    ),
    "whole": (
        WHOLE.format(""),
        LOOP,
        f"torch.tanh(self.both(torch.cat([{FIRST}, h], 1)))",
        "torch.stack(outs)",
        0,
    ),
    "whole_turned": (
        WHOLE.format(", bias=False"),
        LOOP,
        f"torch.tanh(self.both(torch.cat((h, {SECOND}), dim=-1)))",
        "(outs[1], h)",
        1,
    ),
    "layer_of_each": (
        WHOLE.format("") + "\nself.out = nn.Linear(5, 3)",
        LOOP,
        f"torch.tanh(self.both(torch.cat([{FIRST}, h], 1)))",
        "torch.stack([self.out(one) for one in outs])",
        0,
    ),
    "layers": (
        "self.cell = nn.GRUCell(4, 5)\nself.next = nn.GRUCell(5, 5)",
        "g = h + 1\n"
        + LOOP.replace("    outs", "    g = self.next(h, g)\n    outs").replace(
            "append(h)", "append(g)"
        ),
        f"self.cell({FIRST}, h)",
        "torch.stack(outs)",
        0,
    ),
    "goes_on": (
        CELL.format("GRUCell(4, 5)"),
        LOOP + "for one in x.flip(0):\n    h = self.cell(one, h)\n",
        f"self.cell({FIRST}, h)",
        "h",
        0,
    ),
    "unbound": (
        CELL.format("GRUCell(4, 5)"),
        "outs = []\nfor one in x:\n    h = {step}\n    outs.append(h)\n",
        "self.cell(one, h)",
        "torch.stack(outs)",
        0,
    ),
}


@pytest.mark.parametrize("backend", ["cpp", "cuda"])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_one_operator(
    name: str, backend: str, tmp_path: Path, compiled_folder: Path
) -> None:
    layers, loop, step, forward, dim = LOOPS[name]
    problem = problem_of(
        tmp_path,
        forward,
        layers=layers,
        before=loop.format(step=step, dim=dim),
        x=f"torch.randn({'6,3' if dim == 0 else '3,6'},4)",
        h="torch.randn(3, 5)",
    )
    with mock.patch.multiple(recurrence, _LEAST_STEPS=1, _LEAST_WEIGHTS=0):
        it = Planned(problem, backend, compiled_folder)  # type: ignore[arg-type]
    it.check()
    steps = (9, 3) if dim == 0 else (3, 9)
    it.check(torch.randn(*steps, 4), torch.randn(3, 5))
    forward = it.text[it.text.index("def forward") :]
    assert "for t in" not in forward
    assert len(forward.splitlines()) < 40


@pytest.mark.parametrize(
    ("layers", "before", "forward"),
    [
        # Not the whole sequence, not in order, or each step with a weight of its own.
        ("GRUCell(4, 5)", "for t in range(5):\n    h = self.cell(x[t], h)\n", "h"),
        ("GRUCell(4, 5)", "for t in (1, 0, 2, 3, 4, 5):\n    h = self.cell(x[t], h)\n", "h"),
        ("GRUCell(4, 5)", "for t in range(6):\n    h = self.cell(x[t] * 2, h)\n", "h"),
        ("GRUCell(4, 5)", "for t in range(6):\n    h = self.cell(x[t], h * 2)\n", "h"),
        (
            "ParameterList(torch.randn(5, 9) for _ in range(6))",
            OF_EACH,
            "h",
        ),
        # States before the first step that it repeats.
        (
            "ModuleList([nn.Linear(4, 5), nn.Linear(5, 5)])",
            "a, b = self.cell\nh = h[0]\nfor t in range(6):\n    h = torch.tanh(a(x[t]) + b(h))\n",
            "h",
        ),
        # A cell that it shows on the way.
        (
            "LSTMCell(4, 5)",
            "c, d = h, 0\nfor t in range(6):\n    h, c = self.cell(x[t], (h, c))\n    d = d + c\n",
            "d",
        ),
    ],
)
def test_another_loop_stays(layers: str, before: str, forward: str, tmp_path: Path) -> None:
    problem = problem_of(
        tmp_path,
        forward,
        layers=CELL.format(layers),
        before=before,
        x="torch.randn(6, 3, 4)",
        h="torch.randn(3, 5)",
    )
    it = Planned(problem, "cpp", tmp_path)
    it.check()
    assert ".input(" not in it.text[it.text.index("def forward") :]


def test_steps_are_free(tmp_path: Path) -> None:
    plan = plan_in(
        tmp_path,
        "[h := self.cell(one, h) for one in x][-1]",
        layers=CELL.format("GRUCell(4, 5)"),
        x="torch.randn(6, 3, 4)",
        h="torch.randn(3, 5)",
    )
    (whole,) = (s for s in plan.stages if isinstance(s, Library) and s.computes)
    assert whole.aten == "gru.input"


def test_a_loop_over_a_large_size_is_traced_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    larger, ends, ask = set[int](), set[str](), capture._Server.ask  # noqa: SLF001

    def asked(server: Any, traces: tuple[Trace, ...], *others: Any, **named: Any) -> Answer:
        answer = ask(server, traces, *others, **named)
        resizes = [one.resize for one in traces if one.resize is not None]
        larger.update(one.to for one in resizes if one.to > 2 * one.size)
        ends.add(answer.ended)
        return answer

    monkeypatch.setattr(capture._Server, "ask", asked)  # noqa: SLF001
    layers, loop, step, forward, dim = LOOPS["lstm"]
    problem = problem_of(
        tmp_path,
        forward.replace("outs,", "outs[:],"),  # of a source that no other test has had traced
        layers=layers,
        before=loop.format(step=step, dim=dim),
        x="torch.randn(3, 6, 4)",
        h="torch.randn(3, 5)",
    )
    with mock.patch.multiple(recurrence, _LEAST_STEPS=1, _LEAST_WEIGHTS=0):
        Planned(problem, "cpp", tmp_path)
    assert ends == {""}
    of_batch, of_steps = max(larger), min(larger)
    assert of_batch == 3001
    assert 12 < of_steps < 100
