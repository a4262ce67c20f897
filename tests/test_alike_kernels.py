"""Stages that compute the same of other values have one kernel, launched for each."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
import torch
from planned_models import Planned, problem_of

from kernelgen.engines.known import ENGINES
from kernelgen.engines.product.record import Product
from kernelgen.engines.text.alike import _WORDS
from kernelgen.problem.record import Backend

pytestmark = pytest.mark.sampled(rest="ci")

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "one",
    [
        "torch.relu({x} + {b})",
        "torch.softmax({x} * {b}, -1)",
        "({x} - {b}).sum(-1, keepdim=True).expand(2, 8, 8)",
        "F.max_pool1d({x} * 2, 3, 1, 1) * {b}",
        "torch.cumsum({x} * {b}, 1)",
    ],
)
def test_kernels_that_are_alike_stand_once(
    one: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    """The second reads what torch has made and another bias, both by other names."""
    first = one.format(x="x", b="b")
    problem = problem_of(
        tmp_path,
        one.format(x=f"torch.einsum('ij,bjk->bki', w, {first})", b="self.weight"),
        layers="self.weight = nn.Parameter(torch.randn(8))",
        x="torch.randn(2, 8, 8)",
        b="torch.randn(8)",
        w="torch.randn(8, 8)",
    )
    planned = Planned(problem, backend, compiled_folder)
    planned.check()

    before, after = planned.launched
    assert before == after
    suffix = "launch" if backend == "cuda" else "run"
    assert re.findall(r'extern "C" \w+ (\w+)\(', planned.text) == [f"{before}_{suffix}"]
    assert planned.text.count(f"def _{before}(") == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("F.leaky_relu({x}, 0.1)", "F.leaky_relu({x}, 0.2)"),
        ("{x} - b", "b - {x}"),
        ("({x} + b) * b", "({x} + b) * c"),
        ("F.max_pool1d({x}, 3, 1, 1)", "F.max_pool1d({x}, 5, 1, 2)"),
        ("{x}.cumsum(1)", "{x}.cumsum(2)"),
    ],
)
def test_what_computes_something_else_has_its_own_kernel(
    before: str, after: str, tmp_path: Path, compiled_folder: Path
) -> None:
    first = before.format(x="x")
    problem = problem_of(
        tmp_path,
        after.format(x=f"torch.einsum('ij,bjk->bki', w, {first})"),
        x="torch.randn(2, 8, 8)",
        b="torch.randn(8)",
        c="torch.randn(8)",
        w="torch.randn(8, 8)",
    )
    planned = Planned(problem, "cpp", compiled_folder)
    planned.check()
    assert len(set(planned.launched)) == 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("shapes", "inner"),
    [
        (("8, 1", "8, 1"), "inner_1 % size_1"),
        (("{n}", "{n}"), "inner_1 % size_1"),
        (("2, 1, {n}", "2, 1, {n}"), "(size_1 * inner_1) * inner_1"),
        (("8, 1", "2, 1, {n}"), "inner_2 % size_2"),
        (("8, {n}", "{n}"), "inner_2 % size_2"),
    ],
)
def test_maps_of_several_sizes_share_a_kernel_that_is_told_them(
    shapes: tuple[str, str], inner: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    given = {
        f"{name}{n}": f"torch.randn({shape.format(n=n)})"
        for n in (16, 4)
        for name, shape in zip("bc", shapes, strict=True)
    }
    problem = problem_of(
        tmp_path,
        "torch.relu(torch.einsum('bij,jk->bki', torch.relu(x * b16 + c16), w).mT * b4 + c4)",
        x="torch.randn(2, 8, 16)",
        w="torch.randn(16, 4)",
        **given,
    )
    planned = Planned(problem, backend, compiled_folder)
    planned.check()
    before, after = planned.launched
    assert before == after
    # Rows that are no whole vectors.
    sizes = [tuple(map(int, shape.format(n=n).split(","))) for n in (15, 5) for shape in shapes]
    planned.check(torch.randn(2, 8, 15), torch.randn(15, 5), *map(torch.randn, sizes))
    if backend == "cuda":
        assert inner in planned.text
        assert "constexpr int64_t" not in planned.text.partition("map_vectors(")[0][-300:]


def test_a_map_of_one_size_has_it_as_a_constant(tmp_path: Path, compiled_folder: Path) -> None:
    problem = problem_of(
        tmp_path,
        "torch.relu(torch.matmul(torch.relu(x + b), w) + b)",
        x="torch.randn(2, 8, 16)",
        w="torch.randn(16, 16)",
        b="torch.randn(16)",
    )
    planned = Planned(problem, "cuda", compiled_folder)
    planned.check()
    assert "constexpr unsigned kBInner = 1, kBSize = 16;" in planned.text


def test_no_word_of_a_record_is_taken_for_an_operands_name() -> None:
    seen: set[type] = set()

    def words(of: Any, field: str) -> Iterator[str]:
        if isinstance(of, type) and issubclass(of, msgspec.Struct):
            if of not in seen:
                seen.add(of)
                for one in msgspec.structs.fields(of):
                    if one.name not in _WORDS:
                        yield from words(one.type, f"{of.__name__}.{one.name}")
        elif get_origin(of) is Literal:
            yield field
        else:
            for one in get_args(of):
                yield from words(one, field)

    found = [word for engine in ENGINES for word in words(engine.record, "")]
    assert Product in seen
    assert found == []
