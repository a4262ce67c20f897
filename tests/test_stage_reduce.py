"""Reductions in C++ and in the CUDA emulation: kinds, patterns of dimensions, shapes."""

from pathlib import Path

import pytest
from planned_models import Planned, problem_of

from kernelgen.rendering.context import Backend

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")
ALL = """(
    x.sum(DIM), x.mean(DIM), x.prod(DIM), x.amax(DIM), x.amin(DIM), torch.var(x, DIM),
    torch.logsumexp(x, DIM), torch.square(x).mean(DIM) * 2 + x.sum(DIM),
)""".replace("\n", "")


def _planned(
    tmp_path: Path, compiled_folder: Path, backend: Backend, forward: str, **inputs: str
) -> Planned:
    return Planned(problem_of(tmp_path, forward, **inputs), backend, compiled_folder)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("shape", "dims", "others"),
    [
        # Rows, short and long; of pieces.
        ((5, 12), "-1", [(5, 12), (3, 7), (2, 0 + 1), (0, 4), (4, 300)]),
        ((3, 2052), "(1,)", [(2, 2051), (1, 9)]),
        ((4, 3, 5, 8), "(0, 2, 3)", [(2, 3, 5, 8), (3, 1, 2, 3)]),
        ((4, 3, 64), "(0, 2)", [(2, 5, 7)]),
        ((2, 3, 2, 8), "(1, 3)", [(2, 2, 3, 5)]),
        # Columns.
        ((3, 20, 7), "1", [(2, 5, 70), (1, 1, 1)]),
        ((40, 6), "0", [(9, 3), (33, 65)]),
        # Neither: permuted.
        ((3, 4, 5, 6), "(0, 2)", [(2, 3, 2, 3)]),
        ((2, 3, 4, 2, 3), "(1, 3)", [(1, 2, 3, 4, 5)]),
    ],
)
def test_patterns_of_dimensions(
    backend: Backend,
    shape: tuple[int, ...],
    dims: str,
    others: list[tuple[int, ...]],
    tmp_path: Path,
    compiled_folder: Path,
) -> None:
    import torch

    planned = _planned(
        tmp_path, compiled_folder, backend, ALL.replace("DIM", dims), x=f"torch.randn{shape}"
    ) if "(" not in dims else _planned(
        tmp_path,
        compiled_folder,
        backend,
        ALL.replace(" x.prod(DIM),", "").replace("DIM", dims),
        x=f"torch.randn{shape}",
    )
    planned.check()
    for other in others:
        planned.check(torch.randn(other))
    whole = torch.randn(*shape[:-1], shape[-1] + 1)
    planned.check(whole[..., 1:])
    planned.check(whole.flatten()[1 : 1 + torch.Size(shape).numel()].view(shape))
    planned.check(torch.randn(shape[::-1]).permute(*reversed(range(len(shape)))))
