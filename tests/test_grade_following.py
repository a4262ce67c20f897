"""Whether torch's operators alone make outputs: in calls that are followed.

What numpy writes stands for own kernels.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from msgspec.structs import replace

from kernelgen.grading.kernels.following import Follower
from kernelgen.grading.kernels.own import Policy, TracedCall, objection
from kernelgen.grading.wire.trace import Trace, Work
from kernelgen.solution.declared_kernels import declared_kernels

COUNT = 300
ALONE = "alone make the outputs"
HALF = torch.tensor(0.5)
KEPT = torch.zeros(COUNT)
library = torch.library.Library("followed", "DEF")  # type: ignore[no-untyped-call]
library.define("own(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
library.define("torch_s(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]


def own(x: torch.Tensor, y: torch.Tensor | None = None, count: int = COUNT) -> torch.Tensor:
    """Write sines where no operator of torch's sees it."""
    y = torch.empty_like(x) if y is None else y
    to, given = y.detach().numpy(), x.detach().numpy()
    for i in range(count):
        to[i] = 3.0 * given[i] + 0.1
    return y


for name, kernel in (("own", own), ("torch_s", lambda x: x.exp().log1p())):
    library.impl(name, kernel, "CPU")  # type: ignore[no-untyped-call]


def in_slices(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    y[:100] = x[:100].exp()
    torch.exp(x[100:], out=y[100:])
    return y


def into_scribbled_memory(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x, out=own(x))


def by_copy(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    y.numpy()[:] = x.exp().numpy()
    return y


def rounded_otherwise(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y.view(torch.int32).numpy()[:] ^= 1
    return y


def own_scaled(y: torch.Tensor, by: float) -> torch.Tensor:
    y.numpy()[:] *= by
    return y


def own_peaks(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Write values that are next to nothing beside a single one."""
    y.numpy()[:] = x.numpy() * 1e-7
    y.numpy()[7] = 1.0
    return y


def normalised(x: torch.Tensor) -> torch.Tensor:
    """Normalise by an operator that also returns tensors without elements."""
    return torch.nn.functional.batch_norm(x.view(1, 3, 100), None, None, training=True)


BY_TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "operators": lambda x: (x.exp() + 1.0).log(),
    "a kept constant": lambda x: x * HALF,
    "a new constant": lambda x: x * torch.tensor(0.25),
    "a number of torch's": lambda x: x * x.abs().max().item(),
    "one element again": lambda x: own(x, x * 3.0 + 0.1, count=1),
    "slices": in_slices,
    "written over": into_scribbled_memory,
    "copied": by_copy,
    "views": lambda x: x.view(3, 100).t().exp().t().contiguous().view(-1),
    "complex": lambda x: torch.complex(x, x).abs(),
    "wide complex": lambda x: torch.complex(x.double(), x.double()).abs().float(),
    "broadcast": lambda x: x.expand(2, COUNT) * x.view(3, 100).sum(1)[:, None].expand(3, 100).max(),
    "without elements": normalised,
    "sparse": lambda x: torch.sparse.softmax(x.view(3, 100).to_sparse(), 1).to_dense(),
    "nested": lambda x: torch.nested.nested_tensor([x, x]).relu().to_padded_tensor(0.0),
    "last bits": rounded_otherwise,
    "noise": lambda x: (x + own_scaled(x.clone(), 1e-9)).exp(),
    "undone": lambda x: own_scaled(x.exp(), 3.0) * torch.tensor(1.0 / 3.0),
    "within an operator of its own": torch.ops.followed.torch_s,
}
OWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": own,
    "first": lambda x: own(x).exp(),
    "last": lambda x: own(x.exp()),
    "in place": lambda x: own(x, x.exp()),
    "a part": lambda x: own(x, x.exp(), count=COUNT // 10),
    "in memory that is kept": lambda x: own(x, KEPT) * 2.0,
    "kept memory returned": lambda x: own(x, KEPT).view(3, 100),
    "a number": lambda x: x * float(own(x)[0]),
    "an operator": lambda x: torch.ops.followed.own(x) + 1.0,
    "beside torch's": lambda x: torch.stack([own(x), x.exp()]),
    "a factor": lambda x: own_scaled(x.exp(), 3.0) * HALF,
    "in place, by little": lambda x: own_scaled(x.exp(), 1.0001),
    "broadcast": lambda x: own(x).expand(2, COUNT).exp(),
    "sparse": lambda x: own(x).view(3, 100).to_sparse().to_dense().exp(),
    "small beside few": lambda x: own_peaks(x, torch.zeros(COUNT)) * x.sign().abs(),
    "nothing computed": lambda x: x.clone(),
}


def followed(function: Callable[[torch.Tensor], torch.Tensor]) -> bool | None:
    """Follow two calls, on other inputs each."""
    follower = Follower()
    for _ in range(2):
        x = torch.randn(COUNT)
        result = follower.call(partial(function, x), [x])
        assert result.numel() % COUNT == 0
    return follower.by_torch


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
@pytest.mark.parametrize("name", BY_TORCH)
@torch.no_grad()
def test_what_operators_read_and_leave_is_theirs(name: str) -> None:
    assert followed(BY_TORCH[name])


@pytest.mark.parametrize("name", OWN)
@torch.no_grad()
def test_an_own_kernel_with_a_part_in_the_result_is_seen(name: str) -> None:
    assert not followed(OWN[name])


def test_memory_that_nobody_writes_to_is_not_too_much_to_be_followed() -> None:
    def function() -> torch.Tensor:
        torch.empty(1 << 30)
        return torch.ones(2).exp()

    follower = Follower()
    for _ in range(2):
        follower.call(function, [])
    assert (follower.by_torch, follower.missing) == (True, "")


def test_a_call_that_cannot_be_followed_is_made_all_the_same() -> None:
    calls: list[int] = []

    def function() -> torch.Tensor:
        calls.append(len(calls))
        if len(calls) == 1:
            raise RuntimeError
        return torch.ones(2).exp()

    follower = Follower()
    assert follower.call(function, []).numel()
    assert follower.by_torch is None
    assert calls == [0, 1]


def operators(**elements: int) -> tuple[Work, ...]:
    return tuple(
        Work(name=f"aten::{name}", kind="operator", count=1, time_us=5.0, elements=size)
        for name, size in elements.items()
    )


@pytest.mark.parametrize(
    ("called", "asked", "reason"),
    [
        (operators(exp=1000, sum=1000), operators(_softmax=1000), ALONE),
        (operators(addcmul=1000), operators(mul=1000, add=1000), ALONE),
        # With torch's recording turned off.
        (operators(), operators(mm=1000, relu=1000), ALONE),
        (operators(erf=1000, mul=1000), operators(gelu=1000), ALONE),
        # An own clamp may leave all of a product's values as they are.
        (operators(mm=1000), operators(mm=1000, clamp=1000), "None"),
        (operators(mm=1000, maximum=1000), operators(mm=1000, clamp=1000), ALONE),
    ],
)
def test_torch_s_operators_alone_are_no_own_kernel(
    called: tuple[Work, ...], asked: tuple[Work, ...], reason: str
) -> None:
    trace = Trace(works=called, busy_us=10.0, call_us=1e3)
    call = TracedCall(trace=trace, output_elements=1000, output_bytes=4000, by_torch=True)
    policy = Policy(require="own_kernel", libraries="allowed")
    reference = Trace(works=asked, busy_us=10.0, call_us=10.0)
    found = objection([call], declared_kernels(""), policy, on_gpu=False, reference=reference)
    assert reason in str(found)


@pytest.mark.parametrize(
    ("by_torch", "operands", "reason"),
    [
        (False, 1, "None"),
        (None, 1, "calls torch's"),
        # A followed call shows an own kernel, and others give torch the weight and the bias.
        (False, 3, "calls torch's"),
    ],
)
def test_a_norm_may_leave_its_affine_map_to_an_own_kernel(
    by_torch: bool | None,  # noqa: FBT001
    operands: int,
    reason: str,
) -> None:
    (norm,) = operators(native_group_norm=1000)
    ran, asked = (
        Trace(works=(replace(norm, operands=count),), busy_us=10.0, call_us=50.0)
        for count in (operands, 3)
    )
    call = TracedCall(trace=ran, output_elements=1000, output_bytes=4000, by_torch=by_torch)
    policy = Policy(require="own_kernel", libraries="allowed")
    found = objection([call], declared_kernels(""), policy, on_gpu=False, reference=asked)
    assert reason in str(found)


@pytest.mark.parametrize(
    ("called", "followed", "reason"),
    [
        # In another thread, or with modes turned off.
        (operators(exp=1000, sum=1000), (), "unseen"),
        (operators(exp=1000, sum=1000), operators(sum=1000), "unseen"),
        (operators(exp=1000, sum=1000), operators(exp=1000, sum=1000), "None"),
        (operators(exp=1000, sum=1000), None, "None"),
        # A part of what the reference does, in other threads.
        (operators(addmm=1000, cat=1000), (), "None"),
        (operators(addmm=1000, sub=1000), operators(sub=1000), "unseen"),
        # On less than there is to be computed.
        (operators(addmm=1000, exp=10), (), "None"),
    ],
)
def test_operators_that_nobody_could_follow_are_no_own_kernel(
    called: tuple[Work, ...], followed: tuple[Work, ...] | None, reason: str
) -> None:
    ran = Trace(works=called, busy_us=10.0, call_us=100.0)
    call = TracedCall(
        trace=ran, output_elements=1000, output_bytes=4000, by_torch=False, followed=followed
    )
    policy = Policy(require="own_kernel", libraries="allowed")
    reference = Trace(works=operators(addmm=1000, relu=1000), busy_us=10.0, call_us=10.0)
    found = objection([call], declared_kernels(""), policy, on_gpu=False, reference=reference)
    assert reason in str(found)
