"""The default generators of random numbers: torch's on every device, Python's, and numpy's."""

import random
import sys


def set_generators(seed: int) -> None:
    """Put every default generator into the state that a seed gives."""
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:  # which nobody here imports, but a problem or a candidate may
        sys.modules["numpy"].random.seed(seed % (1 << 32))
