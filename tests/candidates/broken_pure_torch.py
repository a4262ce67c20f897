# problem: tiny_polynomial
# expect: NO_CUSTOM_KERNEL
"""Right, with torch's own operations and no kernel of its own. NO_CUSTOM_KERNEL."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x + x
