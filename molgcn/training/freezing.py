"""Freeze parts of a network (`training.freeze`), and give the head a learning rate of its own (`optimizer.head_lr`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from torch import nn

from molgcn.config.run import BackendConfig, Config, ModelConfig
from molgcn.errors import UserError, counted
from molgcn.nn.build import resolved_backend
from molgcn.nn.molecule_net import MoleculeNet
from molgcn.nn.registry import get_kind

log = logging.getLogger(__name__)

Freeze = Literal["encoder"] | int | None


def check_freeze(config: Config) -> Config:
    """Return the configuration with a backend that can train the partly frozen network.

    backend=fused has one mode, training or evaluation, for all batch norms and for dropout.

    Raises:
        UserError: If the network has fewer layers than are to be frozen, no checkpoint gives it trained weights, or the named backend
            cannot train it.
    """
    freeze, model = config.training.freeze, config.model
    if freeze is None:
        return config
    key = f"training.freeze={freeze}"
    if config.ckpt_path is None:
        raise UserError(f"{key} without ckpt_path= would keep untrained weights. Give ckpt_path=, or leave training.freeze out.")
    if freeze != "encoder":
        if not get_kind(model.name).stacked:
            raise UserError(
                f"{key} does not go with model={model.name}, which shares its weights among all rounds. Use training.freeze=encoder."
            )
        if freeze > model.num_layers:
            raise UserError(
                f"{key} is more than the {counted(model.num_layers, 'layer')} of the network. Give fewer, or training.freeze=encoder."
            )
    norms = _layers_with_batch_norm(model)
    apart = norms > 0 and (model.dropout > 0 or (freeze != "encoder" and freeze < norms))
    if not apart or resolved_backend(model, config.backend, len(config.dataset.smiles_columns)) != "fused":
        return config
    if config.backend.name == "fused":
        raise UserError(
            f"{key} keeps batch norms of frozen layers in evaluation mode, which backend=fused cannot beside layers that train or dropout. "
            "Use backend=reference or backend=pyg, or training.freeze=encoder with model.dropout=0."
        )
    log.info("%s: backend=auto takes reference, since backend=fused has one mode for all batch norms and dropout", key)
    return replace(config, backend=BackendConfig(name="reference"))


def _layers_with_batch_norm(model: ModelConfig) -> int:
    """Return how many of the first layers have batch norm: after the layer, in its multilayer perceptron or in its feed-forward block."""
    if model.mlp_norm or (model.feed_forward and model.feed_forward_norm == "batch"):
        return model.num_layers
    return model.num_layers - (not model.last_activation) if model.norm == "batch" else 0


def frozen_parts(model: MoleculeNet, freeze: Freeze) -> list[nn.Module]:
    """Return the parts of a network that do not learn: all but the head for "encoder", the first n layers and all before for a number n."""
    if freeze is None:
        return []
    if freeze == "encoder":
        return [part for name, part in model.named_children() if name != "head"]
    inputs = (model.embed, model.rwse_encoder, model.bond_embed, model.bond_rw_encoder)
    layers = (model.convs, model.norms, model.edge_norms, model.feed_forwards)
    return [*(part for part in inputs if part is not None), *(part for parts in layers for part in parts[:freeze])]


def freeze_parts(model: MoleculeNet, freeze: Freeze) -> None:
    """Let frozen parts keep their weights and the running statistics of their batch norms."""
    for part in frozen_parts(model, freeze):
        part.requires_grad_(False)
    hold_statistics(model, freeze)


def hold_statistics(model: MoleculeNet, freeze: Freeze) -> None:
    """Put the batch norms of frozen parts into evaluation mode; dropout stays as it is."""
    for norm in (norm for part in frozen_parts(model, freeze) for norm in part.modules()):
        if isinstance(norm, nn.BatchNorm1d):
            norm.eval()


def learning_parameters(model: MoleculeNet, config: Config) -> Iterable[Any]:
    """Return the parameters that are not frozen, as an optimiser takes them.

    With `optimizer.head_lr` the head's parameters are a group of their own with that learning rate.
    """
    frozen = {parameter for part in frozen_parts(model, config.training.freeze) for parameter in part.parameters()}
    learning = [parameter for parameter in model.parameters() if parameter not in frozen]
    if config.optimizer.head_lr is None:
        return learning
    head = set(model.head.parameters())
    encoder: list[Any] = [parameter for parameter in learning if parameter not in head]
    of_encoder = [{"params": encoder}] if encoder else []
    return [*of_encoder, {"params": list(model.head.parameters()), "lr": config.optimizer.head_lr}]
