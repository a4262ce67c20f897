"""y = (x * x + x) / sqrt(columns) in KernelBench's form, with names that candidates make use of."""

from math import *  # noqa: F403

import torch
from torch import nn

batch_size = 6
features = 37


class Shrink(nn.Module):
    """Divides by the root of a width."""

    def __init__(self, width: int) -> None:
        """Keep the divisor."""
        super().__init__()
        self.divisor = sqrt(width)  # noqa: F405

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x divided."""
        return x / self.divisor


class Model(nn.Module):
    """A polynomial, and a helper of the module's."""

    def __init__(self, width: int) -> None:
        """Make the helper."""
        super().__init__()
        self.shrink = Shrink(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (x * x + x) / sqrt(width)."""
        result: torch.Tensor = self.shrink(x * x + x)
        return result


def get_inputs() -> list[torch.Tensor]:
    """Return the arguments of forward."""
    return [torch.randn(batch_size, features)]


def get_init_inputs() -> list[int]:
    """Return the arguments of the constructor."""
    return [features]


reference = Model(*get_init_inputs())
