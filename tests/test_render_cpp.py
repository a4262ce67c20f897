"""The C++ solutions, built and run on every case, against the reference in float64."""

import warnings
from types import ModuleType
from typing import Any

import pytest
from shipped import PROBLEMS as SHIPPED
from shipped import TEMPLATES

from kernelgen.problem.record import Case, Problem
from kernelgen.rendering.solution import render
from kernelgen.solution.importing import import_file

PROBLEMS = [problem for problem in SHIPPED if TEMPLATES[problem.name]]
CASES = [
    pytest.param(problem, case, id=f"{problem.name}-{case.name}")
    for problem in PROBLEMS
    for case in problem.all_cases()
]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """Every C++ solution as a module; their builds lie in a folder of this session."""
    folder = tmp_path_factory.mktemp("solutions")
    modules = {}
    for problem in PROBLEMS:
        path = folder / f"{problem.name}.py"
        path.write_text(render(problem, "cpp"))
        modules[problem.name] = import_file(path.stem, path)
    return modules


@pytest.fixture(autouse=True)
def extension_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path_factory.getbasetemp() / "extensions"
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(base))


def reference(problem: Problem, case: Case) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(problem.reference_source(case, "cpu"), names)
    return names


def with_random_parameters(model: Any) -> Any:
    import torch

    for parameter in model.parameters():
        with torch.no_grad():
            parameter.copy_(torch.empty_like(parameter).uniform_(0.5, 1.5) * parameter.sign())
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.mark.long
@pytest.mark.parametrize(("problem", "case"), CASES)
def test_agrees_with_the_reference_in_float64(
    problem: Problem, case: Case, built: dict[str, ModuleType]
) -> None:
    import torch

    torch.manual_seed(7)
    names = reference(problem, case)
    arguments = names["get_init_inputs"]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the instance norm of a row warns about its channels
        model = with_random_parameters(names["Model"](*arguments))
        candidate = built[problem.name].ModelNew(*arguments)
        candidate.load_state_dict(model.state_dict())
        inputs = names["get_inputs"]()
        before = [tensor.clone() for tensor in inputs]
        with torch.no_grad():
            got = candidate(*inputs)
            exact = model.double()(*[tensor.double() for tensor in inputs])
            of_magnitudes = model(*[tensor.double().abs() for tensor in inputs])
    assert got.shape == exact.shape
    assert got.dtype == torch.float32
    assert not got.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))
    finite = exact.isfinite()
    assert torch.equal(got[~finite].double(), exact[~finite])
    scale = min(1.0, exact[finite].square().mean().sqrt().item())
    bound = 2e-6 * (scale + exact.abs())
    if TEMPLATES[problem.name] == "product":
        # Products that cancel leave a sum that is off by what floats lose of them, however little
        # of them is left: what counts is the sum of their magnitudes, after the same epilogue.
        bound = bound.maximum(1e-6 * of_magnitudes)
    assert bool(((got.double() - exact).abs() <= bound)[finite].all())


@pytest.mark.parametrize("name", ["groupnorm", "instancenorm"])
@pytest.mark.parametrize("mean", [1.0e4, -1.0e6])
def test_a_mean_far_above_the_spread_costs_no_accuracy(
    name: str, mean: float, built: dict[str, ModuleType]
) -> None:
    import torch

    torch.manual_seed(1)
    module = built[name]
    candidate = module.ModelNew(*module.get_init_inputs())
    # Few large segments: the slices are merged.
    x = torch.randn(1, 64, 150, 150) + mean
    exact = torch.nn.functional.group_norm(x.double(), 8 if name == "groupnorm" else 64)
    with torch.no_grad():
        assert (candidate(x).double() - exact).abs().max().item() <= 5e-6


def test_an_outlier_first_costs_no_accuracy(built: dict[str, ModuleType]) -> None:
    import torch

    torch.manual_seed(2)
    # The deviations of a piece are from the mean of its first values.
    x = torch.randn(2, 4, 3000)
    x[..., ::512] += 1.0e4
    candidate = built["instancenorm_1d"].ModelNew(4)
    exact = torch.nn.functional.instance_norm(x.double())
    assert (candidate(x).double() - exact).abs().max().item() <= 5e-6


@pytest.mark.parametrize(("name", "atol"), [("softmax", 1e-10), ("log_softmax", 1e-6)])
def test_infinities_and_nans_are_those_of_torch(
    name: str, atol: float, built: dict[str, ModuleType]
) -> None:
    import torch

    torch.manual_seed(3)
    x = 30 * torch.randn(8, 20000)  # several pieces, shared by the threads
    x[0, :600] = -torch.inf  # a piece of nothing else
    x[1] = -torch.inf
    x[2, 7000] = torch.inf
    x[3, 9] = torch.nan
    x[4, 600:] = -1000.0 - x[4, 600:].abs()
    x[5] = -1000.0 + x[5] / 100
    x[5, :600] = -torch.inf
    exact = getattr(torch, name)(x.double(), 1)
    got = built[name].ModelNew()(x).double()
    assert torch.allclose(got, exact, rtol=1e-5, atol=atol, equal_nan=True)


def test_gelu_has_the_values_of_torch(built: dict[str, ModuleType]) -> None:
    import torch

    x = torch.cat([torch.linspace(-15, 15, 30001), torch.tensor([torch.inf, 1e30, -1e30])])[None]
    got = built["matmul_add_gelu"].ModelNew()(torch.zeros(1, 1), torch.zeros_like(x), x)
    exact = torch.nn.functional.gelu(x.double())
    assert torch.allclose(got.double(), exact, rtol=1e-6, atol=1e-6)


def test_wrong_inputs_are_refused_with_what_was_expected(built: dict[str, ModuleType]) -> None:
    import torch

    group = built["groupnorm"].ModelNew(64, 8)
    with pytest.raises(ValueError, match="channels of x: the file is for 64, got 32"):
        group(torch.rand(2, 32, 4))
    with pytest.raises(ValueError, match=r"expected torch\.float32 on the CPU, got torch\.float64"):
        group(torch.rand(2, 64, 4).double())
    product = built["matmul"].ModelNew()
    with pytest.raises(ValueError, match=r"\(3, 8\) and \(6, 8\) cannot be multiplied"):
        product(torch.rand(3, 8), torch.rand(6, 8))
    with pytest.raises(ValueError, match=r"expected torch\.float32 on the CPU, got torch\.float64"):
        product(torch.rand(3, 8), torch.rand(8, 6).double())


def test_an_empty_batch_gives_an_empty_result(built: dict[str, ModuleType]) -> None:
    import torch

    assert built["groupnorm"].ModelNew(64, 8)(torch.rand(0, 64, 5, 5)).shape == (0, 64, 5, 5)
    assert built["matmul"].ModelNew()(torch.rand(0, 8), torch.rand(8, 6)).shape == (0, 6)
