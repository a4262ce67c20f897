"""Text that the products of a file share stands in it once, and each product gives what it should.

CUDA runs in the emulation.
"""

import ctypes
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from planned_models import Planned, problem_of
from test_rendered_gradients import check, with_gradients

from kernelgen.engines.architectures import MULTIPROCESSORS
from kernelgen.engines.known import ENGINES
from kernelgen.engines.operators import BY_NAME, OPERATORS
from kernelgen.engines.product import choice, claims
from kernelgen.rendering.planned import render_planned

HOPPER, SHORT = "product_hopper", "product_hopper_short"
GENERAL, SKINNY = "product_general", "product_skinny_short"
SHALLOW, VECTOR = "product_shallow", "product_vector"
FP16 = "product_narrow_float16"


class File(NamedTuple):
    """A model with several products.

    Attributes:
        forms: namespaces of shared text -> how many products use it.
    """

    forward: str
    layers: str
    x: str
    forms: dict[str, int]


def layers(*sizes: tuple[int, int]) -> str:
    return "\n".join(f"self.{n} = nn.Linear{size}" for n, size in zip("abc", sizes, strict=False))


FILES = {
    "two shapes": File(
        "self.b(torch.relu(self.a(x)))", layers((96, 160), (160, 248)), "300, 96", {SHORT: 2}
    ),
    "three shapes and layouts": File(
        "torch.relu(self.b(torch.relu(self.a(x)))) @ self.w",
        layers((96, 160), (160, 248)) + "\nself.w = nn.Parameter(torch.randn(248, 80))",
        "300, 96",
        {SHORT: 3},
    ),
    "sums in one part and in two": File(
        "self.a(x), self.b(x), self.c(x)",
        layers((1032, 172), (1032, 80), (1032, 100)),
        "70, 1032",
        {HOPPER: 3},
    ),
    "two of few rows": File(
        "self.b(torch.relu(self.a(x)))", layers((96, 320), (320, 160)), "9, 96", {SKINNY: 2}
    ),
    "other ways": File(
        "self.c(torch.relu(self.b(torch.relu(self.a(x)))))",
        layers((96, 160), (160, 40), (40, 100)),
        "300, 96",
        {SHORT: 1, SKINNY: 1, SHALLOW: 1},
    ),
    "a vector and no way": File(
        "self.a(x), self.b(x[:, ::2])", layers((96, 1), (48, 72)), "90, 96", {VECTOR: 1, GENERAL: 1}
    ),
    "another precision": File(
        "self.a(x), (x.half() @ self.w.half()).float()",
        layers((96, 160)) + "\nself.w = nn.Parameter(torch.randn(96, 136))",
        "150, 96",
        {SHORT: 1, FP16: 1},
    ),
    "forward and backward": File(
        "self.b(torch.relu(self.a(x)))", layers((96, 160), (160, 248)), "300, 96", {SHORT: 6}
    ),  # the gradients of both weights, of both layers' inputs
}  # fmt: skip
GRADIENTS = {"forward and backward"}
MULTIPLY = {
    **dict.fromkeys((HOPPER, SHORT), "hopper::multiply"),
    **dict.fromkeys((SHALLOW, VECTOR, FP16), "fast::multiply"),
    SKINNY: "skinny::multiply",
    GENERAL: "general::multiply",
}


@pytest.fixture(autouse=True)
def of_a_small_device() -> Iterator[None]:
    """Have every product be the file's own; of four multiprocessors, with tiles of two widths."""
    with (
        mock.patch.object(claims, "_pays", return_value=True),
        mock.patch.object(choice, "_LEAST_FILLED", 0.0),
        mock.patch.dict(MULTIPROCESSORS, sm_90a=4),
    ):
        yield


def planned(name: str, folder: Path, compiled: Path) -> Planned:
    file = FILES[name]
    made = with_gradients if name in GRADIENTS else problem_of
    problem = made(folder, file.forward, layers=file.layers, x=f"torch.randn({file.x})")
    it = Planned(problem, "cuda", compiled)
    it.library.launched.restype = ctypes.c_char_p
    it.library.set_device(4, 1)
    return it


def shared_in(source: str) -> dict[str, str]:
    """Return the text of each namespace that products share."""
    found: dict[str, str] = {}
    blocks = re.findall(
        r"^namespace ((product\w*)[\w:]*) {\n(.*?)^}  // namespace \1$",
        source,
        re.DOTALL | re.MULTILINE,
    )
    for _, form, block in blocks:
        found[form] = found.get(form, "") + block
    return found


def repeated_in(block: str, lines: int = 6) -> list[list[str]]:
    """Return so many lines, one after the other, that stand in a text before as well."""
    rows = [row for row in block.splitlines() if row.strip()]
    windows = [rows[at : at + lines] for at in range(len(rows) - lines + 1)]
    return [one for at, one in enumerate(windows) if one in windows[:at]]


@pytest.mark.parametrize("name", FILES)
def test_products_of_a_form_share_their_text(
    name: str, tmp_path: Path, compiled_folder: Path
) -> None:
    it, forms = planned(name, tmp_path, compiled_folder), FILES[name].forms
    shared = shared_in(it.text)
    assert Counter(re.findall(r"^using namespace (\w+);", it.text, re.MULTILINE)) == forms
    assert set(shared) == set(forms)
    assert it.text.count(" sum_tile(") == 2 * len(forms)  # defined, and called
    for block in shared.values():
        assert repeated_in(block) == []
    if name in GRADIENTS:
        check(it)
    else:
        it.check(tolerance=1e-3 if FP16 in forms else 1e-5)
    launched = Counter(re.findall(r"kKernel = &?\w+::(\w+::\w+)", it.library.launched().decode()))
    wanted: Counter[str] = Counter()
    for form, count in forms.items():
        wanted[MULTIPLY[form]] += count
    assert {kernel: launched[kernel] for kernel in wanted} == wanted


def declared_in(block: str) -> set[str]:
    """Return the names that a namespace itself has."""
    inner = r"^namespace (\w+) {\n.*?^}  // namespace \1$"
    spaces = {found[1] for found in re.finditer(inner, block, re.DOTALL | re.MULTILINE)}
    own = re.sub(inner, "", block, flags=re.DOTALL | re.MULTILINE)
    own = re.sub(r"//.*|^[ }#].*", "", own, flags=re.MULTILINE)
    return spaces | set(re.findall(r"\b(\w+)(?=\(| = | {)", own))


def test_a_shared_name_is_none_that_is_made_of_a_model(tmp_path: Path) -> None:
    """Names of kernels, which stand beside the shared namespaces, and of what steps call."""
    found: set[str] = set()
    for file in FILES.values():
        problem = problem_of(tmp_path, file.forward, layers=file.layers, x=f"torch.randn({file.x})")
        shared = shared_in(render_planned(problem, "cuda", {}))
        found |= set(shared).union(*map(declared_in, shared.values()))
    assert {"general", "hopper", "Operand", "kWarp", "multiprocessors", SHORT} <= found
    kinds = {engine.record.__struct_config__.tag for engine in ENGINES}
    called = re.compile(r"(\w+)\(")
    steps = {
        name for one in OPERATORS for text in (one.cuda, one.cpp) for name in called.findall(text)
    }
    assert found.isdisjoint({*BY_NAME, *kinds, *steps, "matmul", "linear", "mm", "bmm", "addmm"})


def test_operands_are_called_like_what_products_share(
    tmp_path: Path, compiled_folder: Path
) -> None:
    names = "general split hopper ptx multiprocessors Operand kWarp aligned linear neither none"
    given = dict.fromkeys(names.split(), "torch.randn(160)")
    problem = problem_of(
        tmp_path,
        f"self.a(x) + {' + '.join(given)}",
        layers=layers((96, 160)),
        x="torch.randn(300, 96)",
        **given,
    )
    it = Planned(problem, "cuda", compiled_folder)
    it.library.set_device(4, 1)
    assert "beside_multiprocessors" in it.text
    it.check()
