"""The key `schedules`: what is read, what is refused and where, and what is rendered from it."""

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kernelgen.cli import program
from kernelgen.engines.schedule import (
    ChainSchedule,
    CppProductSchedule,
    NarrowSchedule,
    RingSchedule,
    Schedule,
    tried_values,
)
from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem, ScheduleEntry
from kernelgen.problem.schedules import architecture_of
from kernelgen.rendering.schedule_table import changed_numbers, default_schedule, schedule_for
from kernelgen.rendering.solution import render

SHIPPED = msgspec.structs.replace(load_problem("groupnorm"), schedules={})
# Without its own table.
TEXT = re.sub(r"schedules:\n(?:  .*\n)+\n", "", SHIPPED.path.read_text())


def with_table(folder: Path, table: str, text: str = TEXT) -> Path:
    path = folder / "mine.yaml"
    path.write_text(f"{text}\n{table}")
    return path


def tuned(problem: Problem, **numbers: int) -> Problem:
    entry = ScheduleEntry(numbers=numbers, lines=dict.fromkeys(numbers, 1))
    return msgspec.structs.replace(problem, schedules={"sm_100a": entry})


def test_a_table_is_read_with_the_line_of_each_number(tmp_path: Path) -> None:
    table = "schedules:\n  sm_90a: {workers: 512, slots: 7}\n  cpu:\n    batch: 1024\n"
    path = with_table(tmp_path, table)
    first = TEXT.count("\n") + 2
    assert load_problem(path).schedules == {
        "sm_90a": ScheduleEntry(
            numbers={"workers": 512, "slots": 7},
            lines={"workers": first + 1, "slots": first + 1},
        ),
        "cpu": ScheduleEntry(numbers={"batch": 1024}, lines={"batch": first + 3}),
    }


@pytest.mark.parametrize(
    ("table", "line", "message"),
    [
        ("schedules: 3", 1, "schedules: expected a mapping of keys to values, found a whole"),
        ("schedules: {}", 1, "schedules: expected an architecture such as `sm_90a`, found none"),
        ("schedules:\n  sm_90:\n    slots: 8", 2, "schedules.sm_90: expected one of cpu, sm_80, "),
        ("schedules:\n  h200: {items: 8}", 2, "schedules.h200: expected one of cpu"),
        (
            "schedules:\n  sm_90a: {}",
            2,
            "schedules.sm_90a: expected numbers such as `threads: 256`",
        ),
        ("schedules:\n  sm_90a: [8]", 2, "schedules.sm_90a: expected a mapping"),
        ("schedules:\n  cpu: {batch: many}", 2, "schedules.cpu.batch: expected a whole number"),
        ("schedules:\n  cpu: {batch: 1.5}", 2, "schedules.cpu.batch: expected a whole number"),
        ("schedules:\n  cpu: {batch: 16, batch: 32}", 2, "schedules.cpu.batch: the key stands tw"),
        ("schedules:\n  cpu: {batch: 16}\n  cpu: {batch: 32}", 3, "schedules.cpu: the key stands"),
    ],
)
def test_a_wrong_shape_is_refused_when_the_file_is_read(
    tmp_path: Path, table: str, line: int, message: str
) -> None:
    path = with_table(tmp_path, table)
    with pytest.raises(ProblemError) as caught:
        load_problem(path)
    expected = f"{path}:{TEXT.count(chr(10)) + 1 + line}: {message}"
    assert str(caught.value).startswith(expected)
    assert len(str(caught.value).splitlines()) == 1


def test_a_table_for_what_is_planned_is_refused(tmp_path: Path) -> None:
    text = TEXT.replace("return self.gn(x)", "return torch.cumsum(x, 1)")
    path = with_table(tmp_path, "schedules: {cpu: {batch: 256}}", text)
    problem = load_problem(path)
    line = text.count("\n") + 2
    expected = rf"mine.yaml:{line}: schedules.cpu: its Model has not .*; remove the key"
    with pytest.raises(ProblemError, match=expected):
        render(problem)
    plain = msgspec.structs.replace(problem, schedules={})
    with pytest.raises(UserError, match="other kernels have no schedule"):
        default_schedule(plain, "cpp", "cpu")


@pytest.mark.parametrize(
    ("table", "line", "message"),
    [
        ("  sm_90a: {workers: 100}", 2, "sm_90a.workers: workers must be a multiple of 32"),
        (
            "  sm_90a:\n    slots: 8\n    worker: 64",
            4,
            "sm_90a.worker: unknown number of a schedule;",
        ),
        ("  cpu: {threads: 64}", 2, "cpu.threads: unknown number of a schedule; there are batch"),
        ("  sm_100a: {workers: 64, ahead: 0}", 2, "sm_100a.ahead: ahead must be from 1 to"),
        (
            "  cpu:\n    batch: 4096\n    slice: 4095",
            3,
            "cpu: slice must be from 4096 to 1073741824, not 4095",
        ),
    ],
)
@pytest.mark.parametrize("command", ["render --check", "render --backend cpp -o -", "lint"])
def test_an_illegal_schedule_is_refused_whatever_is_rendered(
    tmp_path: Path, table: str, line: int, message: str, command: str
) -> None:
    path = with_table(tmp_path, f"schedules:\n{table}\n")
    result = CliRunner().invoke(program, [*command.split(), str(path)])
    assert result.exit_code == 2
    assert result.stdout == ""
    place = f"error: {path}:{TEXT.count(chr(10)) + 1 + line}: schedules."
    assert result.stderr.startswith(f"{place}{message}")
    assert result.stderr.count("\n") == 1


def test_the_numbers_of_the_architecture_replace_the_defaults() -> None:
    problem = tuned(SHIPPED, workers=128, slots=13)
    plain, there = render(problem), render(problem, arch="sm_100a")
    assert plain == render(SHIPPED)
    assert render(problem, arch="sm_90a") == plain
    assert "# schedule: sets=2 workers=128 vectors=4 slots=13 " in there
    assert "constexpr int kWorkers = 128;" in there
    assert "# render again: kernelgen render groupnorm --arch sm_100a\n" in there
    assert "--arch" not in plain


def test_set_replaces_the_numbers_of_the_table() -> None:
    problem = tuned(SHIPPED, workers=128, slots=13)
    text = render(problem, "cuda", {"workers": "64", "slots": "6"}, arch="sm_100a")
    assert "# schedule: sets=2 workers=64 vectors=4 slots=6 " in text
    again = (
        "# render again: kernelgen render groupnorm --arch sm_100a --set slots=6 --set workers=64"
    )
    assert again in text


def test_the_cpu_has_an_entry_of_its_own(tmp_path: Path) -> None:
    path = with_table(tmp_path, "schedules: {cpu: {batch: 256}, sm_90a: {ahead: 3}}\n")
    problem = load_problem(path)
    cpp = render(problem, "cpp")
    assert "# schedule: batch=256 slice=16384\n" in cpp
    assert "# render again: kernelgen render mine.yaml --backend cpp\n" in cpp
    assert "slots=14 ahead=3 " in render(problem)


def test_a_file_of_tuned_schedules_beside_the_problem_is_refused(tmp_path: Path) -> None:
    path = with_table(tmp_path, "")
    beside = path.with_name("mine.schedules.json")
    beside.write_text('{"schedules": {"cpu": {"batch": 64}}}')
    with pytest.raises(ProblemError) as caught:
        load_problem(path)
    message = "not read any more; write its entries under `schedules` in mine.yaml"
    assert str(caught.value) == f"{beside}: {message}, and remove the file"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arch", "sm_75"], "sm_NN of another GPU or native, not 'sm_75'"),
        (["--arch", "cpu"], "expected one of sm_80, sm_90a, sm_100a"),
        (["--arch", "sm_100a", "--backend", "cpp"], "--arch goes with CUDA solutions only"),
        (["--arch", "sm_100a", "--reference"], "--arch goes with CUDA solutions only"),
        (["--simple", "--backend", "cpp"], "--simple goes with CUDA solutions only"),
        (["--simple", "--arch", "sm_80", "-o", "-"], "--simple and --arch exclude each other"),
    ],
)
def test_architectures_that_cannot_be_rendered_for(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(program, ["render", "groupnorm", "-o", "-", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_render_takes_an_architecture(tmp_path: Path) -> None:
    path = with_table(tmp_path, "schedules: {sm_100a: {slots: 13}}\n")
    result = CliRunner().invoke(program, ["render", str(path), "-o", "-", "--arch", "sm_100a"])
    assert result.exit_code == 0
    assert "vectors=4 slots=13 " in result.stdout
    assert "# render again: kernelgen render mine.yaml --arch sm_100a\n" in result.stdout


def test_show_names_the_table(tmp_path: Path) -> None:
    path = with_table(tmp_path, "schedules: {sm_100a: {workers: 128, slots: 8}}\n")
    result = CliRunner().invoke(program, ["show", str(path)])
    assert "schedule, sm_100a  workers=128 slots=8\n" in result.stdout


@pytest.mark.parametrize(
    ("capability", "arch"),
    [
        ((8, 0), "sm_80"),
        ((8, 9), "sm_80"),
        ((9, 0), "sm_90a"),
        ((10, 3), "sm_100a"),
        ((12, 0), "sm_80"),
    ],
)
def test_what_a_gpu_is_rendered_for(capability: tuple[int, int], arch: str) -> None:
    assert architecture_of(capability) == arch


def test_a_table_is_for_the_kernel_of_the_problem_s_own_size(tmp_path: Path) -> None:
    path = with_table(tmp_path, "schedules: {sm_90a: {slots: 13}}\n")
    problem = load_problem(path)
    assert "slots=13" in render(problem, "cuda", {"spatial": "[256, 512]"})
    assert "# schedule: items=16\n" in render(problem, "cuda", {"spatial": "[16, 16]"})


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"slots": 15}, "15 slots of 256 * 4 vectors take 248960 bytes, and there are 232448"),
        ({"listeners": 3}, "listeners must be from 1 to 2, not 3"),
        ({"sets": 1, "listeners": 2}, "listeners must be from 1 to 1, not 2"),
        ({"ahead": 13}, "ahead must be from 1 to 12, not 13"),
        ({"slots": 3}, "slots must be from 4 to 64, not 3"),
        ({"workers": 96}, "workers must be a power of two, not 96"),
    ],
)
def test_rings_that_could_not_run_are_refused(numbers: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        RingSchedule(**numbers)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"tile_columns": 164}, "tile_columns must be a multiple of 8 from 16 to 168, not 164"),
        ({"tile_columns": 176}, "tile_columns must be a multiple of 8 from 16 to 168, not 176"),
        ({"tile_columns": 8}, "tile_columns must be a multiple of 8 from 16 to 168, not 8"),
        ({"group_rows": 0}, "group_rows must be from 1 to 64, not 0"),
        ({"group_rows": 65}, "group_rows must be from 1 to 64, not 65"),
    ],
)
def test_tiles_that_no_multiprocessor_holds_are_refused(
    numbers: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ChainSchedule(**numbers)


@pytest.mark.parametrize("depth", [15, 4097])
def test_a_piece_of_depth_has_limits(depth: int) -> None:
    with pytest.raises(ValueError, match=f"depth must be from 16 to 4096, not {depth}"):
        CppProductSchedule(depth=depth)


def test_the_limits_of_products_are_legal() -> None:
    assert ChainSchedule(tile_columns=16, group_rows=1).tile_columns == 16
    assert ChainSchedule(tile_columns=168, group_rows=64).group_rows == 64
    assert [NarrowSchedule(tile_columns=n).tile_columns for n in (128, 256)] == [128, 256]
    with pytest.raises(ValueError, match="tile_columns must be a multiple of 128 from 128 to 256"):
        NarrowSchedule(tile_columns=192)
    assert [CppProductSchedule(depth=depth).depth for depth in (16, 4096)] == [16, 4096]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tile_columns=100"], "tile_columns must be a multiple of 8 from 16 to 168, not 100"),
        (["schedule.depth=8", "--backend", "cpp"], "depth must be from 16 to 4096, not 8"),
    ],
)
def test_numbers_of_products_are_refused_where_they_are_set(
    arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(program, ["render", "matmul", "-o", "-", "--set", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    "kind", [Schedule, *Schedule.__subclasses__()], ids=lambda kind: kind.__name__
)
def test_every_number_says_which_values_are_worth_trying(kind: type[Schedule]) -> None:
    default = kind()
    values = tried_values(kind)
    assert tuple(values) == default.__struct_fields__
    for name, tries in values.items():
        assert len(set(tries)) == len(tries) >= 2, name
        assert getattr(default, name) in tries, name
        legal = [value for value in tries if is_legal(default, name, value)]
        assert len(legal) >= 2, name


def is_legal(schedule: Schedule, name: str, value: int) -> bool:
    try:
        msgspec.structs.replace(schedule, **{name: value})
    except ValueError:
        return False
    return True


@given(st.data())
def test_a_legal_schedule_comes_back_from_its_changed_numbers(data: st.DataObject) -> None:
    default = default_schedule(SHIPPED, "cuda", "sm_100a")
    tries = tried_values(type(default))
    drawn = {
        name: data.draw(st.sampled_from(values), name) for name, values in tries.items() if values
    }
    try:
        schedule = msgspec.structs.replace(default, **drawn)
    except ValueError:
        return
    problem = tuned(SHIPPED, **changed_numbers(schedule, default))
    assert schedule_for(problem, "cuda", "sm_100a") == schedule
