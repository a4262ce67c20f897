"""A profile as it is printed: on terminals of many widths, in a pipe, with hostile names."""

import io
from pathlib import Path

import msgspec
import pytest
from ncu_report import report
from rich.cells import cell_len
from rich.console import Console

from kernelgen.profile.advice import RULES, advise
from kernelgen.profile.merging import merge
from kernelgen.profile.ncu_output import read_launches
from kernelgen.profile.record import Facts, Profile
from kernelgen.profile.scene import Scene
from kernelgen.profile.table import show

FACTS = Facts(
    device="NVIDIA H200",
    sm_count=132,
    l2_cache_bytes=62_914_560,
    minimal_read_bytes=10**9,
    minimal_written_bytes=10**9,
    forward_ms=0.52,
)
SMALL = {"gpu__time_duration.sum": "3000", "kernel": "void at::native::fill<4>(int)"}
NUMBERS = ("time us", "share", "DRAM", "GB/s", "of peak", "occupancy", "L2", "regs", "launches")


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's terminal out of the tests."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def profile(*launches: dict[str, str]) -> Profile:
    kernels = merge(read_launches(report(*launches)))
    told = [
        msgspec.structs.replace(one, advice=advise(Scene(kernel=one, facts=FACTS)))
        for one in kernels
    ]
    return Profile(
        schema=1,
        kernelgen="0",
        solution="copy.py",
        solution_sha256="",
        problem="copy",
        case="main",
        ncu="2025.3",
        method="as it was",
        facts=FACTS,
        kernels=tuple(told),
        time_us=sum(one.counters.time_us for one in kernels),
        dram_bytes=1.98e9,
        unavailable=("sm__other.sum",),
        warnings=("something to be known",),
    )


def printed(found: Profile, *, width: int | None = None) -> list[str]:
    stream = io.StringIO()
    terminal = width is not None
    console = Console(
        file=stream, width=width, force_terminal=terminal, force_interactive=terminal,
        color_system=None, legacy_windows=False,
    )  # fmt: skip
    show(found, console)
    return stream.getvalue().splitlines()


def test_a_pipe_gets_every_column_and_whole_lines() -> None:
    lines = printed(profile({}, SMALL))
    assert all(name in lines[0] for name in NUMBERS)
    assert lines[0].index("time us") < lines[0].index("launches")
    row = next(line for line in lines if line.startswith("copy<float>"))
    assert row.split()[1:6] == ["480.0", "99", "%", "1.98", "GB"]
    assert any(line.startswith("  moves 1.98 GB of DRAM") for line in lines)
    assert any(line.startswith("  - at the limit of DRAM") for line in lines)
    assert "The other kernels (1) take little each; --json has what was counted of them" in lines
    assert "warning: something to be known" in lines
    assert lines[-1] == "as it was"


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_terminal_gets_the_columns_that_fit_and_no_number_is_cut(width: int) -> None:
    lines = printed(profile({}, SMALL), width=width)
    assert max(map(cell_len, lines)) <= width
    heading = lines[0]
    shown = [name for name in NUMBERS if name in heading]
    assert shown == list(NUMBERS[: len(shown)])
    assert len(shown) >= 2
    assert "…" not in "".join(lines)
    assert "480.0" in "".join(lines)


def test_more_room_shows_more() -> None:
    counts = [
        sum(name in printed(profile({}), width=width)[0] for name in NUMBERS)
        for width in (50, 80, 140)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == len(NUMBERS)


def test_a_kernel_s_name_cannot_act_on_the_terminal() -> None:
    lines = printed(profile({"kernel": "evil\x1b[2J\x1b]0;title\x07kernel\u202e(int)"}))
    text = "".join(lines)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "evilkernel" in text


def test_the_document_names_every_rule() -> None:
    text = (Path(__file__).parent.parent / "docs" / "profile.md").read_text(encoding="utf-8")
    names = [rule.name for rule in RULES] + ["waits_*", "unfused", "gaps"]
    assert [name for name in names if f"`{name}`" not in text] == []
