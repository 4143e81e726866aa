"""Monte Carlo dropout: passes of a trained network that leave out what dropout leaves out in training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from molgcn.errors import UserError
from molgcn.training.regressor import MoleculeRegressor


def activate_dropout(module: MoleculeRegressor, source: Path | str) -> None:
    """Let a module predict with its dropout active, as if from one of many networks; batch norms keep their statistics.

    Operators that compute all layers at once know no such mode: backend=reference takes the place of backend=fused.

    Source: Gal and Ghahramani, "Dropout as a Bayesian Approximation", ICML 2016.

    Args:
        module: in evaluation mode; it is changed.
        source: where it came from, for the message.

    Raises:
        UserError: when the network has no dropout.
    """
    network = module.averaged
    if not network.dropout and not network.settings.get("attention_dropout"):
        raise UserError(
            f"{source} was trained without dropout, so that all passes would predict the same. Leave dropout_samples out, or train with "
            "model.dropout=0.1."
        )
    if network.backend.name == "fused":
        network = network.on_backend("reference")
    network.train()
    for layer in network.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()
    module.model, module.ema = network, None


@contextmanager
def seeded(seed: int, start: int, device: torch.device) -> Iterator[None]:
    """Let torch draw on a device, within the block, the numbers that belong to a seed and a row; its generator is then as before."""
    generator = torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator
    before = generator.get_state()
    generator.manual_seed(int(np.random.SeedSequence([seed, start]).generate_state(1)[0]))
    try:
        yield
    finally:
        generator.set_state(before)
