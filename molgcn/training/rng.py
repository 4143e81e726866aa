"""Save and restore the state of every random number generator, in values that need no pickle."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def rng_state() -> dict[str, Any]:
    """Return the states of Python's, NumPy's, PyTorch's CPU generator and that of the current GPU."""
    version, internal, gauss = random.getstate()
    _, key, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": (version, list(internal), gauss),
        "numpy": (torch.from_numpy(np.asarray(key).astype(np.int64)), int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_available() else [],
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore what :func:`rng_state` returned; of several GPUs' states, which older checkpoints have, this process's GPU takes its own."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    key, position, has_gauss, cached = state["numpy"]
    np.random.set_state(("MT19937", key.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and state["cuda"]:
        torch.cuda.set_rng_state(state["cuda"][torch.cuda.current_device() % len(state["cuda"])])
