"""y = x * x + x in KernelBench's form, whose candidates may import what is installed."""

import torch
from torch import nn

batch_size = 6
features = 37


class Model(nn.Module):
    """The plainest problem, for candidates whose imports are the point."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x * x + x."""
        return x * x + x


def get_inputs() -> list[torch.Tensor]:
    """Return the arguments of forward."""
    return [torch.randn(batch_size, features)]


def get_init_inputs() -> list[int]:
    """Return the arguments of the constructor."""
    return []
