"""Imports point one way, and the cheap commands stay cheap."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kernelgen

PACKAGE = Path(kernelgen.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LAYERS = {
    "cli": 5,
    "selftest": 4,
    "profile": 4,
    "comparison": 4,
    "tuning": 4,
    "sweep": 4,
    "kernelbench": 4,
    "service": 4,
    "lint": 4,
    "report": 3,
    "grading": 3,
    "build": 2,
    "rendering": 2,
    "planning": 2,
    "solution": 2,
    "problem": 1,
    "hardware": 1,
    "sandbox": 1,
    "child_python": 0,
    "destination": 0,
    "errors": 0,
    "installation": 0,
    "scratch": 0,
}
# What a room of grading/ may import besides itself, what stands above the rooms, and lower layers.
# Only the fork server names both the oracle and the candidate.
ROOMS: dict[str, set[str]] = {
    "wire": set(),
    "correctness": {"wire"},
    "timing": {"wire"},
    "kernels": {"wire"},
    "tools": {"wire"},
    "candidate": {"wire", "timing", "kernels"},
    "oracle": {"wire", "timing", "kernels", "correctness"},
    "supervisor": {"wire", "timing", "kernels", "correctness", "tools"},
    "forkserver": {"wire", "oracle", "candidate"},
}
MOST_MODULES = 20
# The public API resolves its names lazily, and `python -m` starts the command line.
ABOVE_ALL = ("kernelgen", "kernelgen.__main__")


def module_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


def imported(file: Path) -> Iterator[str]:
    """Yield the modules of kernelgen that a file imports anywhere, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "kernelgen")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            if (node.module or "").split(".")[0] != "kernelgen":
                continue
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module or ""


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


EDGES = {
    name: {target for target in imported(file) if target != "kernelgen"}
    for name, file in MODULES.items()
    if name not in ABOVE_ALL
}


def cycle_in(edges: dict[str, set[str]]) -> list[str]:
    done: set[str] = set()

    def search(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for target in sorted(edges.get(node, ())):
            found = search(target, [*path, node])
            if found:
                return found
        done.add(node)
        return []

    return next((found for node in sorted(edges) if (found := search(node, []))), [])


def test_every_package_has_its_layer() -> None:
    assert {package_of(name) for name in EDGES} <= LAYERS.keys()


def test_no_import_points_up() -> None:
    upward = [
        f"{name} imports {target}"
        for name, targets in EDGES.items()
        for target in targets
        if LAYERS[package_of(target)] > LAYERS[package_of(name)]
    ]

    assert upward == []


def room_of(module: str) -> str | None:
    """Return the room of grading/ that a module belongs to; None for what stands above them."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["grading"] and len(parts) > 2 and parts[2] in ROOMS else None


def test_rooms_keep_their_walls() -> None:
    breaches = [
        f"{name} imports {target}"
        for name, targets in EDGES.items()
        if (room := room_of(name)) is not None
        for target in targets
        if (other := room_of(target)) is not None and other not in {room, *ROOMS[room]}
    ]

    assert breaches == []


def test_the_candidate_knows_no_verdict_and_the_supervisor_no_torch() -> None:
    verdicts = [
        name
        for name, targets in EDGES.items()
        if room_of(name) == "candidate" and "kernelgen.grading.verdict" in targets
    ]

    assert verdicts == []
    assert torch_users("supervisor", room_of) == []


def torch_users(home: str, home_of: Callable[[str], str | None]) -> list[str]:
    return [
        name
        for name, file in MODULES.items()
        if home_of(name) == home
        for node in ast.walk(ast.parse(file.read_text()))
        if (
            isinstance(node, ast.Import)
            and any(a.name.split(".")[0] == "torch" for a in node.names)
        )
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch")
    ]


def test_planning_knows_torch_where_it_traces_and_nobody_runs_that_here() -> None:
    tracing, exported = "kernelgen.planning.tracing", "kernelgen.planning.exported"
    model = {f"kernelgen.planning.model.{name}" for name in ("flattened", "made", "structures")}

    assert set(torch_users("planning", package_of)) == {tracing, exported, *model}
    # A problem's code runs in them.
    host = "kernelgen.planning.capture_host"
    for module in (tracing, exported, *model):
        importers = {name for name, targets in EDGES.items() if module in targets}
        assert importers <= {host, tracing, exported, *model}


def test_no_folder_is_too_full_to_be_read() -> None:
    modules = [file for file in FILES if file.name != "__init__.py"]
    counts = Counter(str(file.parent) for file in modules)
    crowded = {folder: count for folder, count in counts.items() if count > MOST_MODULES}

    assert crowded == {}


def test_modules_and_packages_form_no_cycle() -> None:
    packages: dict[str, set[str]] = {}
    for name, targets in EDGES.items():
        mine = package_of(name)
        packages.setdefault(mine, set()).update(map(package_of, targets))
        packages[mine].discard(mine)

    assert cycle_in(EDGES) == []
    assert cycle_in(packages) == []


def test_the_cycle_search_finds_one() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_no_file_has_a_name_that_says_nothing() -> None:
    stems = {"utils", "util", "helpers", "helper", "common", "misc"}

    assert [str(file) for file in FILES if file.stem in stems] == []


def test_only_the_command_line_and_reports_print() -> None:
    printing = [
        f"{file}:{node.lineno}"
        for name, file in MODULES.items()
        if package_of(name) not in ("cli", "report")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Name) and node.id == "print"
    ]

    assert printing == []


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["show", "groupnorm"]])
def test_cheap_commands_import_no_torch(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from kernelgen.cli import program\n"
        f"try:\n    program({arguments!r})\n"
        "except SystemExit as leaving:\n    assert leaving.code == 0, leaving.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout
