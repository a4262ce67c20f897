"""A wheel works away from its sources: templates and problems travel along."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.ci

pytest.importorskip("hatchling", reason="the build backend is in the dev extra")


REPOSITORY = Path(__file__).resolve().parent.parent
# Where in the wheel's folder of data each folder of the repository ends.
DATA = {
    "templates": "templates",
    "problems": "problems",
    "selftest/candidates": "tests/candidates",
    "selftest/problems": "tests/problems",
}
# Nothing of the caller's Python may reach the installed copy, or the test would read the sources.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(
    *arguments: str | Path, folder: Path, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = ENVIRONMENT if path is None else {**ENVIRONMENT, "PYTHONPATH": str(path)}
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder into which a source distribution was unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    run("-m", "hatchling", "build", "-t", "sdist", "-d", folder, folder=REPOSITORY)
    (archive,) = folder.glob("*.tar.gz")
    # The archive is our own. Early releases of 3.10 and 3.11 know no filter, 3.12 warns without.
    options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as tar:
        tar.extractall(folder, **options)  # type: ignore[arg-type]
    (unpacked,) = (child for child in folder.iterdir() if child.is_dir())
    return unpacked


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel built from the unpacked source distribution, by pip and without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = ("-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation")
    run(*pip, "--wheel-dir", folder, sdist, folder=folder)
    (built,) = folder.glob("kernelgen-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds the installed wheel and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    pip = ("-m", "pip", "install", "--no-deps", "--no-index", "--no-compile")
    run(*pip, "--target", folder, wheel, folder=folder)
    return folder


def files_under(name: str) -> set[str]:
    """Return the files of a folder of the repository, relative to it."""
    root = REPOSITORY / name
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_and_its_data_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    found = {name for name in names if ".dist-info/" not in name}
    expected = {f"kernelgen/{name}" for name in files_under("kernelgen")}
    for data, source in DATA.items():
        assert files_under(source), f"no {source} in the repository"
        expected |= {f"kernelgen/_data/{data}/{name}" for name in files_under(source)}
    assert found == expected


def test_the_wheel_carries_the_licence(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (licence,) = (name for name in archive.namelist() if name.endswith("licenses/LICENSE"))
    assert archive.read(licence) == (REPOSITORY / "LICENSE").read_bytes()


def test_the_source_distribution_can_run_its_own_tests(sdist: Path) -> None:
    made = ("Makefile", "constraints.txt", "scripts/install.sh", "examples/compare.yml")
    for name in ("tests/test_packaging.py", *made):
        assert (sdist / name).is_file()


def test_the_installed_package_reads_its_own_data(installed: Path, tmp_path: Path) -> None:
    code = (
        "from kernelgen import installation as i\n"
        "print(i.problems_folder(), i.templates_folder(), i.selftest_folder(), sep='\\n')"
    )
    out = run("-c", code, folder=tmp_path, path=installed).stdout.split()
    data = installed / "kernelgen" / "_data"
    assert out == [str(data / name) for name in ("problems", "templates", "selftest")]


def test_the_installed_package_lists_every_problem(installed: Path, tmp_path: Path) -> None:
    out = run("-m", "kernelgen", "list", folder=tmp_path, path=installed).stdout
    for problem in (REPOSITORY / "problems").glob("*.yaml"):
        assert problem.stem in out


def test_the_installed_package_grades_its_own_corpus(installed: Path, tmp_path: Path) -> None:
    command = ("-m", "kernelgen", "selftest", "-v", "-k", "broken_syntax")
    out = run(*command, folder=tmp_path, path=installed).stdout
    assert "broken_syntax.py: as expected" in out


@pytest.mark.parametrize(
    "beside", ["nothing", pytest.param("a checkout's problems", marks=pytest.mark.long)]
)
def test_the_installed_package_renders_the_committed_solutions(
    installed: Path, tmp_path: Path, beside: str
) -> None:
    # One of each kind; that every template travels along is another test's.
    names = ["groupnorm", "matmul_add_gelu", "cumsum", "max_pool_2d", "triplet_margin"]
    if beside != "nothing":
        shutil.copytree(REPOSITORY / "problems", tmp_path / "problems")
    for backend, folder in (("cuda", "."), ("cpp", "cpu")):
        command = ("-m", "kernelgen", "render", *names, "--backend", backend)
        run(*command, folder=tmp_path, path=installed)
        rendered = sorted((tmp_path / "solutions" / folder).glob("*.py"))
        assert [file.stem for file in rendered] == sorted(names)
        for file in rendered:
            committed = REPOSITORY / "solutions" / folder / file.name
            assert file.read_bytes() == committed.read_bytes()


def test_no_process_of_the_installed_package_imports_the_checkout_it_starts_in(
    installed: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "kernelgen").mkdir(parents=True)
    (checkout / "kernelgen" / "__init__.py").write_text("raise SystemExit('of the checkout')\n")
    # As the command that pip installs: its own folder comes first, not the present one.
    command = tmp_path / "command.py"
    command.write_text("from kernelgen.cli import main\nmain()\n")
    solution = REPOSITORY / "solutions" / "cpu" / "softmax.py"
    for arguments in (("build", solution), ("grade", solution, "--no-timing")):
        run(command, *arguments, folder=checkout, path=installed)
