"""The key `schedules` of a problem file changed as text, so that all the rest stays as it is.

What the edit came to is read back and compared before anybody gets it: a file that is written in
some way that is not foreseen here is refused and never spoilt.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.record import Problem
from kernelgen.problem.text import decode
from kernelgen.problem.yaml_file import parse_yaml_problem
from kernelgen.problem.yaml_tree import read_tree

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KEY = "schedules"
_INDENT = "  "


class _Unforeseen(Exception):  # noqa: N818 (caught here, where it becomes a refusal)
    """The file is written in a way that is not edited."""


class _Edit(msgspec.Struct, frozen=True, kw_only=True):
    """Text from `start` up to `end` to be replaced."""

    start: int
    end: int
    text: str = ""


def with_schedule(path: Path, raw: bytes, arch: str, numbers: Mapping[str, int]) -> bytes:
    """Return a problem file's bytes with the numbers for an architecture changed.

    Args:
        path: the file, for messages.
        raw: its bytes, which hold a problem with a template.
        arch: `sm_90` and the like, or `cpu`.
        numbers: what the entry shall hold; without any there shall be none.

    Raises:
        UserError: this cannot be done without changing anything else; it says what to add by hand.
    """
    before = parse_yaml_problem(path, raw)
    try:
        edited = _edited(path, raw, arch, numbers)
        _require_same_but_for(before, parse_yaml_problem(path, edited), arch, numbers)
    except (_Unforeseen, ProblemError) as error:
        wanted = f"`{_KEY}: {{{arch}: {flow(numbers)}}}`" if numbers else f"no `{_KEY}.{arch}`"
        message = f"{path}: cannot be changed without touching the rest; write {wanted} there"
        raise UserError(f"{message} by hand") from error
    return edited


def flow(numbers: Mapping[str, int]) -> str:
    """Return numbers as YAML on one line, such as `{threads: 256, items: 8}`."""
    return "{" + ", ".join(f"{name}: {value}" for name, value in numbers.items()) + "}"


def _edited(path: Path, raw: bytes, arch: str, numbers: Mapping[str, int]) -> bytes:
    text = decode(path, raw)
    root = read_tree(path, raw).node
    mark = _BYTE_ORDER_MARK if raw.startswith(_BYTE_ORDER_MARK) else b""
    return mark + _applied(text, _edits(_Source(text), root, arch, numbers)).encode()


def _require_same_but_for(
    before: Problem, after: Problem, arch: str, numbers: Mapping[str, int]
) -> None:
    wanted = {name: entry.numbers for name, entry in before.schedules.items() if name != arch}
    if numbers:
        wanted[arch] = dict(numbers)
    found = {name: entry.numbers for name, entry in after.schedules.items()}
    rest = msgspec.structs.replace(after, schedules=before.schedules, sha256=before.sha256)
    if found != wanted or rest != before:
        raise _Unforeseen


class _Source:
    """The file's text, and where things end in it; places are numbers of characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"

    def line_start(self, place: int) -> int:
        """Return where the line of a place begins."""
        return self.text.rfind("\n", 0, place) + 1

    def line_end(self, place: int) -> int:
        """Return where the line of a place ends, before what ends it."""
        end = self.text.find("\n", place)
        end = len(self.text) if end < 0 else end
        return end - (end > place and self.text[end - 1] == "\r")

    def node_end(self, node: Any) -> int:
        """Return where a value ends: a block's own mark is behind the comments that follow it."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self.node_end(last[1] if isinstance(last, tuple) else last)
        return len(self.text[: node.end_mark.index].rstrip())

    def next_line(self, place: int) -> str | None:
        """Return the line after that of a place, without what ends it; None if it is the last."""
        end = self.text.find("\n", place)
        if end < 0 or end + 1 == len(self.text):
            return None
        return self.text[end + 1 : self.line_end(end + 1)]

    def whole_lines(self, key: Any, value: Any) -> _Edit:
        """Return the edit that takes a key and its value away, with one end of a line."""
        start = self.line_start(key.start_mark.index)
        end = self.line_end(self.node_end(value))
        if start == 0:
            return _Edit(start=0, end=min(end + len(self.newline), len(self.text)))
        return _Edit(start=start - len(self.newline), end=end)


def _edits(source: _Source, root: Any, arch: str, numbers: Mapping[str, int]) -> list[_Edit]:
    if root.flow_style:
        raise _Unforeseen
    table = _pair(root, _KEY)
    if table is None:
        return [_new_table(source, root, arch, numbers)] if numbers else []
    entry = _pair(table[1], arch)
    if entry is None:
        return [_new_entry(source, table[1], arch, numbers)] if numbers else []
    if not numbers:
        return [_removal(source, table, entry)]
    if not entry[1].flow_style:
        return _changed_lines(source, entry[1], numbers)
    return [_rewritten(source, entry[1], flow(numbers))]


def _new_table(source: _Source, root: Any, arch: str, numbers: Mapping[str, int]) -> _Edit:
    """Put the table behind the template, with a blank line between where others have one."""
    pair = _pair(root, "template")
    if pair is None:
        raise _Unforeseen
    place = source.line_end(source.node_end(pair[1]))
    while (line := source.next_line(place)) and line[0] in " \t" and line.lstrip()[:1] == "#":
        place = source.line_end(source.text.find("\n", place) + 1)
    lines = [f"{_KEY}:", f"{_INDENT}{arch}: {flow(numbers)}"]
    if not source.next_line(place):
        lines.insert(0, "")
    return _Edit(start=place, end=place, text="".join(source.newline + line for line in lines))


def _new_entry(source: _Source, table: Any, arch: str, numbers: Mapping[str, int]) -> _Edit:
    key, value = table.value[-1]
    place = source.node_end(value)
    text = f"{arch}: {flow(numbers)}"
    if table.flow_style:
        return _Edit(start=place, end=place, text=f", {text}")
    place = source.line_end(place)
    indent = " " * key.start_mark.column
    return _Edit(start=place, end=place, text=f"{source.newline}{indent}{text}")


def _removal(source: _Source, table: Any, entry: Any) -> _Edit:
    others = [pair for pair in table[1].value if pair is not entry]
    if others and table[1].flow_style:
        kept = [source.text[key.start_mark.index : source.node_end(value)] for key, value in others]
        return _rewritten(source, table[1], "{" + ", ".join(kept) + "}")
    if others:
        return source.whole_lines(*entry)
    edit = source.whole_lines(*table)
    before = source.line_start(edit.start)
    # Of a blank line before the table and one behind it, one is left.
    if before and not source.text[before : edit.start].strip() and not source.next_line(edit.end):
        return _Edit(start=before - len(source.newline), end=edit.end)
    return edit


def _rewritten(source: _Source, node: Any, text: str) -> _Edit:
    start, end = node.start_mark.index, node.end_mark.index
    if "#" in source.text[start:end]:
        raise _Unforeseen  # a comment would be lost
    return _Edit(start=start, end=end, text=text)


def _changed_lines(source: _Source, entry: Any, numbers: Mapping[str, int]) -> list[_Edit]:
    """Change the numbers of a block, each on a line of its own, whose comment stays."""
    edits = []
    for key, value in entry.value:
        if key.value in numbers:
            span = (value.start_mark.index, value.end_mark.index)
            edits.append(_Edit(start=span[0], end=span[1], text=str(numbers[key.value])))
        else:
            edits.append(source.whole_lines(key, value))
    first, last = entry.value[0][0], entry.value[-1][1]
    known = {key.value for key, _ in entry.value}
    indent = source.newline + " " * first.start_mark.column
    added = [f"{indent}{name}: {value}" for name, value in numbers.items() if name not in known]
    place = source.line_end(source.node_end(last))
    return [*edits, _Edit(start=place, end=place, text="".join(added))]


def _pair(mapping: Any, name: str) -> Any:
    """Return the key and value nodes of a name, or None."""
    return next((pair for pair in mapping.value if pair[0].value == name), None)


def _applied(text: str, edits: list[_Edit]) -> str:
    """Return a text with edits made, the last one first, so that no place moves before its turn."""
    for edit in sorted(edits, key=lambda one: (one.start, one.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text
