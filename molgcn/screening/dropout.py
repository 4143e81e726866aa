"""Monte Carlo dropout: predictions of a trained network with its dropout active."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from molgcn.errors import UserError
from molgcn.training.predictor import MoleculePredictor


def activate_dropout(module: MoleculePredictor, source: Path | str) -> None:
    """Let a module predict with its dropout active. Batch norms keep their statistics.

    The fused operators have no dropout in evaluation, so that backend=reference replaces backend=fused.

    The module, in evaluation mode, is changed in place. Its checkpoint `source` is named in messages.

    Source: Gal and Ghahramani, "Dropout as a Bayesian Approximation", ICML 2016.

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
    """Seed torch's generator of a device by a run's seed and the batch's first row within the block, and restore its state afterwards."""
    generator = torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator
    before = generator.get_state()
    generator.manual_seed(int(np.random.SeedSequence([seed, start]).generate_state(1)[0]))
    try:
        yield
    finally:
        generator.set_state(before)
