"""RMSNorm, with a weight, of 8192 rows of 8192 values."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(features, eps=1e-5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 8192)]


def get_init_inputs() -> list[int]:
    return [8192]
