"""The table of schedules changed in a problem file: what is written, and what stays as it is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgen.errors import UserError
from kernelgen.problem.library import problem_files
from kernelgen.problem.schedule_text import with_schedule
from kernelgen.problem.yaml_file import parse_yaml_problem

HEAD = """\
# A comment.
summary: doubles its input   # another

model: |
  class Model(nn.Module):
      def forward(self, x):
          return 2 * x  # schedules:
get_inputs: |
  def get_inputs():
      return [torch.rand(4)]
get_init_inputs: |
  def get_init_inputs():
      return []
"""
TEMPLATE = """\
template:
  name: scale  # why
  parameters: {factor: 2}
  # steps: none
"""
TAIL = """\
# What follows is checked.
cases:
  - name: normal
    get_inputs: |
      def get_inputs():
          return [torch.randn(4)]
"""
PATH = Path("doubled.yaml")


def edited(text: str, arch: str, **numbers: int) -> str:
    return with_schedule(PATH, text.encode(), arch, numbers).decode()


def test_a_first_table_follows_the_template() -> None:
    text = f"{HEAD}\n{TEMPLATE}\n{TAIL}"
    table = "schedules:\n  sm_90: {threads: 256, items: 8}\n"
    assert edited(text, "sm_90", threads=256, items=8) == f"{HEAD}\n{TEMPLATE}\n{table}\n{TAIL}"


def test_no_blank_line_is_added_where_there_are_none() -> None:
    table = "schedules:\n  cpu: {batch: 64}\n"
    assert edited(HEAD + TEMPLATE + TAIL, "cpu", batch=64) == HEAD + TEMPLATE + table + TAIL


@pytest.mark.parametrize("ending", ["\n", ""])
def test_a_template_at_the_end_of_the_file(ending: str) -> None:
    text = f"{HEAD}\n{TEMPLATE.rstrip()}"
    table = "\n\nschedules:\n  cpu: {batch: 64}"
    assert edited(text + ending, "cpu", batch=64) == text + table + ending


def test_windows_lines_and_a_byte_order_mark_stay() -> None:
    text = f"{HEAD}\n{TEMPLATE}\n{TAIL}"
    raw = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    found = with_schedule(PATH, raw, "cpu", {"batch": 64})
    assert found.replace(b"\r\n", b"\n") == b"\xef\xbb\xbf" + edited(text, "cpu", batch=64).encode()
    assert found.count(b"\n") == found.count(b"\r\n")
    assert with_schedule(PATH, found, "cpu", {}) == raw


@pytest.mark.parametrize(
    ("old", "numbers", "new"),
    [
        ("  cpu: {batch: 64}\n", {"threads": 64}, "  cpu: {batch: 64}\n  sm_90: {threads: 64}\n"),
        (
            "    cpu:\n      batch: 64 # L1\n",
            {"threads": 64},
            "    cpu:\n      batch: 64 # L1\n    sm_90: {threads: 64}\n",
        ),
        (
            "  sm_90: {threads: 64} # H200\n  cpu: {batch: 64}\n",
            {"items": 8},
            "  sm_90: {items: 8} # H200\n  cpu: {batch: 64}\n",
        ),
        (
            "  sm_90:  # H200\n    threads: 64  # few\n    items: 8\n\n    max_slices: 9\n",
            {"threads": 128, "max_slices": 9},
            "  sm_90:  # H200\n    threads: 128  # few\n\n    max_slices: 9\n",
        ),
        (
            "  sm_90:\n    threads: 64\n    items: 8 # all\n  cpu: {batch: 64}\n",
            {"threads": 64, "min_slice": 1, "max_slice": 2},
            "  sm_90:\n    threads: 64\n    min_slice: 1\n    max_slice: 2\n  cpu: {batch: 64}\n",
        ),
        (
            "  sm_90:\n    threads: 64\n",
            {"items": 8},
            "  sm_90:\n    items: 8\n",
        ),
        ("  sm_90: {threads: 64}\n  cpu: {batch: 64}\n", {}, "  cpu: {batch: 64}\n"),
        ("  cpu: {batch: 64}\n  sm_90:\n    items: 8\n", {}, "  cpu: {batch: 64}\n"),
        ("  cpu: {batch: 64}\n", {}, "  cpu: {batch: 64}\n"),
    ],
)
def test_an_entry_is_changed_where_it_stands(old: str, numbers: dict[str, int], new: str) -> None:
    before, after = (f"{HEAD}\n{TEMPLATE}\nschedules:\n{table}\n{TAIL}" for table in (old, new))
    assert edited(before, "sm_90", **numbers) == after


@pytest.mark.parametrize(
    ("old", "numbers", "new"),
    [
        ("{cpu: {batch: 64}}", {"items": 8}, "{cpu: {batch: 64}, sm_90: {items: 8}}"),
        ("{sm_90: {items: 4}, cpu: {batch: 64}}", {}, "{cpu: {batch: 64}}"),
        ("{sm_90: {items: 4}}", {"threads": 64}, "{sm_90: {threads: 64}}"),
    ],
)
def test_a_table_on_one_line(old: str, numbers: dict[str, int], new: str) -> None:
    before, after = (f"{HEAD}{TEMPLATE}schedules: {table}  # all\n{TAIL}" for table in (old, new))
    assert edited(before, "sm_90", **numbers) == after


def test_the_last_entry_takes_the_table_with_it() -> None:
    table = "schedules:\n  sm_90: {threads: 256}\n"
    assert edited(f"{HEAD}\n{TEMPLATE}\n{table}\n{TAIL}", "sm_90") == f"{HEAD}\n{TEMPLATE}\n{TAIL}"
    assert edited(f"{table}{HEAD}{TEMPLATE}", "sm_90") == HEAD + TEMPLATE
    assert edited(f"{HEAD}{TEMPLATE}{table}{TAIL}", "sm_90") == HEAD + TEMPLATE + TAIL


FLOW_FILE = (
    '{summary: x, model: "class Model(nn.Module):\\n  def forward(self, x): return x", '
    'get_inputs: "def get_inputs(): return []", template: {name: scale}, '
    'get_init_inputs: "def get_init_inputs(): return []"}'
)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (FLOW_FILE, True),
        (f"{HEAD}{TEMPLATE}schedules:\n  sm_90: {{threads: 64, # few\n    items: 8}}\n", True),
        (f"{HEAD}{TEMPLATE}schedules:\n  ? sm_90\n  : threads: 64\n    items: 8\n  # end", False),
    ],
    ids=["all on one line", "a comment in braces", "question marks"],
)
def test_what_is_written_in_another_way_is_left_alone_or_right(text: str, *, refused: bool) -> None:
    before = parse_yaml_problem(PATH, text.encode())
    if refused:
        words = "doubled.yaml: cannot be changed without touching the rest; write `schedules: "
        with pytest.raises(UserError) as caught:
            edited(text, "sm_90", threads=32)
        assert str(caught.value) == words + "{sm_90: {threads: 32}}` there by hand"
        return
    after = parse_yaml_problem(PATH, edited(text, "sm_90", threads=32).encode())
    assert after.schedules["sm_90"].numbers == {"threads": 32}
    assert after.model == before.model


ARCHS = st.sampled_from(["cpu", "sm_90", "sm_100"])
NUMBERS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 9))
STYLES = st.sampled_from([HEAD + TEMPLATE + TAIL, f"{HEAD}\n{TEMPLATE}\n{TAIL}", HEAD + TEMPLATE])


BLOCK = "schedules:\n  cpu:\n    a: 1\n    b: 2 # two\n"


@given(STYLES, st.lists(st.tuples(ARCHS, NUMBERS), max_size=6), st.sampled_from(["", BLOCK]))
def test_the_rest_stays_whatever_is_recorded(
    text: str, records: list[tuple[str, dict[str, int]]], block: str
) -> None:
    text = text.replace(TEMPLATE, TEMPLATE + block)
    wanted = {"cpu": {"a": 1, "b": 2}} if block else {}
    raw = text.encode()
    for arch, numbers in records:
        raw = with_schedule(PATH, raw, arch, numbers)
        wanted.pop(arch, None)
        if numbers:
            wanted[arch] = numbers
    found = parse_yaml_problem(PATH, raw).schedules
    assert {arch: entry.numbers for arch, entry in found.items()} == wanted
    rest = [line for line in raw.decode().splitlines() if line.strip() in text and line.strip()]
    kept = [line for line in HEAD.splitlines() if line.strip()]
    assert rest[: len(kept)] == kept


@pytest.mark.parametrize("path", problem_files(), ids=lambda path: path.stem)
def test_shipped_problems_take_an_entry_and_give_it_back(path: Path) -> None:
    raw = path.read_bytes()
    if parse_yaml_problem(path, raw).template is None:
        pytest.skip("it has no template")
    recorded = with_schedule(path, raw, "sm_75", {"threads": 32})
    assert recorded != raw
    assert with_schedule(path, recorded, "sm_75", {}) == raw
