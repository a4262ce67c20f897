"""Softmax of 8192 rows of 32768 values."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 32768)]


def get_init_inputs() -> list[int]:
    return []
