"""Softmax of 32768 rows of 1024 values."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32768, 1024)]


def get_init_inputs() -> list[int]:
    return []
