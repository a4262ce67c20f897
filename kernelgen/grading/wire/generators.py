"""The default generators of random numbers: torch's on every device, Python's, and numpy's."""

import random
import sys
from typing import Any


def set_generators(seed: int) -> None:
    """Put every default generator into the state that a seed gives."""
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:  # which nobody here imports, but a problem or a candidate may
        sys.modules["numpy"].random.seed(seed % (1 << 32))


def generator_states() -> tuple[Any, ...]:
    """Return the states of the default generators; they compare equal if nothing was drawn."""
    import torch

    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states.append(torch.cuda.get_rng_state())
    numpy = repr(sys.modules["numpy"].random.get_state()) if "numpy" in sys.modules else None
    return tuple(tuple(state.tolist()) for state in states), random.getstate(), numpy
