"""The default generators of random numbers: torch's on every device, Python's, and numpy's."""

import ctypes
import random
import sys
from typing import Any

import torch

# Numbers that a file draws while it is imported are as constant as its text.
SEED_OF_IMPORTS = 0


def set_generators(seed: int) -> None:
    """Put every default generator into the state that a seed gives."""
    # Not torch.manual_seed: for each kind of device that is not in use, that writes down its stack.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    if "numpy" in sys.modules:  # which nobody here imports, but a problem or a candidate may
        sys.modules["numpy"].random.seed(seed % (1 << 32))


def generator_states() -> tuple[Any, ...]:
    """Return the states of the default generators; they compare equal if nothing was drawn."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states.append(torch.cuda.get_rng_state())
    held = tuple(ctypes.string_at(state.data_ptr(), state.nbytes) for state in states)
    return held, random.getstate(), _numpy_state()


def _numpy_state() -> object:
    if "numpy" not in sys.modules:
        return None
    state = sys.modules["numpy"].random.get_state()
    # To print its 624 numbers takes longer than a small problem's forward, a hundred times.
    if isinstance(state, tuple):
        return tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state)
    return repr(state)
