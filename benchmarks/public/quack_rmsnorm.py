"""QuACK's RMSNorm of rows."""

import torch
from quack.rmsnorm import rmsnorm_fwd
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(features, eps=1e-5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rmsnorm_fwd(x, self.norm.weight, eps=1e-5)[0]
