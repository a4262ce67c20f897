"""QuACK's softmax of rows."""

import torch
from quack.softmax import softmax_fwd
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return softmax_fwd(x)
