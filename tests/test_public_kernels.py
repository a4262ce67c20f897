"""benchmarks/public: the references, and the public kernels that are graded on them beside ours."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kernelgen.grading.queue.job import versions
from kernelgen.grading.verdict import Run, Status
from kernelgen.problem.library import load_problem
from kernelgen.solution.contract import check_contract
from kernelgen.solution.file import read_solution

REPOSITORY = Path(__file__).resolve().parent.parent
PUBLIC = REPOSITORY / "benchmarks" / "public"
REFERENCES = sorted(path for path in PUBLIC.glob("*.py") if re.search(r"_\d+x\d+$", path.stem))
CANDIDATES = sorted(set(PUBLIC.glob("*.py")) - set(REFERENCES))

# A package as QuACK is: it needs another one, which lies in another folder.
KERNELS = """
import math
import torch

def softmax(x):
    rows = []
    for row in x.tolist():
        powers = [math.exp(value - max(row)) for value in row]
        total = math.fsum(powers)
        rows.append([power / total for power in powers])
    return torch.tensor(rows)
"""
SOFTMAX = """
import kernels_beside

def softmax_fwd(x):
    return kernels_beside.softmax(x)
"""


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda path: path.stem)
def test_a_reference_has_the_shape_that_its_name_says(reference: Path) -> None:
    found = re.search(r"_(\d+)x(\d+)$", reference.stem)
    assert found is not None
    text = load_problem(reference).reference_source(load_problem(reference).all_cases()[0], "cuda")
    assert f"\nrows = {found[1]}\nfeatures = {found[2]}\n" in text
    assert "torch.randn(rows, features)" in text


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda path: path.stem)
def test_ours_and_the_public_one_keep_the_contract_of_a_reference(reference: Path) -> None:
    kind = reference.stem.partition("_")[0]
    public = [path for path in CANDIDATES if path.stem.endswith(f"_{kind}")]
    assert public, f"no public kernel for {kind}"
    problem = load_problem(reference)
    for path in (REPOSITORY / "solutions" / f"{kind}.py", *public):
        package = path.stem.partition("_")[0]
        findings = check_contract(read_solution(path), problem, allow_imports=(package,))
        assert [finding for finding in findings if finding.severity == "error"] == []


def test_the_versions_of_what_may_be_imported_are_named() -> None:
    assert "imports" not in versions()
    assert "imports" not in versions(("no_such_module",))
    named = versions(("no_such_module", "msgspec", "msgspec"))["imports"]
    assert named == f"msgspec {msgspec.__version__}"


@pytest.mark.long
def test_a_public_kernel_finds_what_its_package_needs(tmp_path: Path) -> None:
    metadata = "Metadata-Version: 2.1\nName: quack-kernels\nVersion: 0.2.4\n"
    for name, text in {
        "one/quack/__init__.py": "",
        "one/quack/softmax.py": SOFTMAX,
        "one/quack_kernels-0.2.4.dist-info/METADATA": metadata,
        "one/quack_kernels-0.2.4.dist-info/top_level.txt": "quack\n",
        "two/kernels_beside.py": KERNELS,
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    reference = tmp_path / "softmax_64x48.py"
    shipped = (PUBLIC / "softmax_32768x1024.py").read_text()
    reference.write_text(shipped.replace("= 32768", "= 64").replace("= 1024", "= 48"))
    entries = [REPOSITORY, tmp_path / "one", tmp_path / "two"]
    report = tmp_path / "run.json"
    found = []
    for allowed in ((), ("--allow-import", "quack")):
        subprocess.run(
            [
                *(sys.executable, "-m", "kernelgen", "grade", str(PUBLIC / "quack_softmax.py")),
                *("--reference", str(reference), "--device", "cpu", "--sandbox", "off"),
                *("--no-timing", "--quiet", "--json", str(report), *allowed),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, entries))},
            check=False,
            capture_output=True,
            timeout=300,
        )
        run = msgspec.json.decode(report.read_bytes(), type=Run)
        found.append((run.verdicts[0].status, run.environment.get("imports")))
    assert found == [
        (Status.BROKEN_CONTRACT, None),
        (Status.PASSED, "quack-kernels 0.2.4"),
    ]
