"""Freeze parts of a network, for a whole run or until an epoch, and give the head a learning rate of its own (`optimizer.head_lr`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from torch import nn

from molgcn.config.run import BackendConfig, Config, ModelConfig
from molgcn.config.training import Frozen, TrainingConfig
from molgcn.errors import UserError, counted
from molgcn.nn.build import resolved_backend
from molgcn.nn.molecule_net import HEADS, MoleculeNet
from molgcn.nn.registry import get_kind

log = logging.getLogger(__name__)


def check_freeze(config: Config) -> Config:
    """Return the configuration with a backend that can train the partly frozen network, in each stage of `training.unfreeze`.

    backend=fused has one mode, training or evaluation, for all batch norms and for dropout. UserError says what cannot be frozen.
    """
    training = config.training
    if training.freeze is not None and config.ckpt_path is None:
        raise UserError(
            f"training.freeze={training.freeze} without ckpt_path= would keep untrained weights. Give ckpt_path=, or leave training.freeze "
            "out."
        )
    for epochs, frozen in training.stages.items():
        if frozen.freeze is not None:
            key = f"training.unfreeze={{{epochs}: {frozen.freeze}}}" if epochs else f"training.freeze={frozen.freeze}"
            config = _check_stage(config, frozen.freeze, key)
    return config


def _check_stage(config: Config, freeze: Literal["encoder"] | int, key: str) -> Config:
    model = config.model
    if freeze != "encoder":
        if not get_kind(model.name).stacked:
            raise UserError(
                f"{key} does not go with model={model.name}, which shares its weights among all rounds. Use training.freeze=encoder."
            )
        if freeze > model.num_layers:
            layers = counted(model.num_layers, "layer")
            raise UserError(f"{key} is more than the {layers} of the network. Give fewer, or training.freeze=encoder.")
    norms = _layers_with_batch_norm(model)
    apart = norms > 0 and (model.dropout > 0 or (freeze != "encoder" and freeze < norms))
    if not apart or resolved_backend(model, config.backend, len(config.dataset.smiles_columns), config.dataset.levels) != "fused":
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


def frozen_parts(model: MoleculeNet, frozen: Frozen) -> list[nn.Module]:
    """Return the parts of a network that do not learn; UserError if no layer of the head would learn."""
    if frozen.freeze is None:
        return []
    if frozen.freeze == "encoder":
        of_heads = [[layer for layer in head.modules() if isinstance(layer, nn.Linear)] for head in model.heads]
        layers = of_heads[0]  # all heads have as many
        if frozen.head >= len(layers):
            raise UserError(
                f"training.freeze_head={frozen.head} leaves nothing to learn: the head has {counted(len(layers), 'layer')}. Give fewer, or "
                "more with model.head_layers=."
            )
        first = [layer for own in of_heads for layer in own[: frozen.head]]
        return [*(part for name, part in model.named_children() if name not in HEADS), *first]
    inputs = (model.embed, model.rwse_encoder, model.bond_embed, model.bond_rw_encoder)
    stacks = (model.convs, model.norms, model.edge_norms, model.feed_forwards)
    return [*(part for part in inputs if part is not None), *(part for parts in stacks for part in parts[: frozen.freeze])]


def stage_at(training: TrainingConfig, epoch: int) -> Frozen:
    """Return what does not learn in an epoch, counted from 0."""
    return [frozen for epochs, frozen in training.stages.items() if epochs <= epoch][-1]


def enter_stage(model: MoleculeNet, before: Frozen, frozen: Frozen) -> None:
    """Let the parts that were frozen `before` learn, and freeze those that are now: they keep their weights and running statistics."""
    for part in frozen_parts(model, before):
        part.requires_grad_(True)
    for part in frozen_parts(model, frozen):
        part.requires_grad_(False)
    model.train(model.training)
    hold_statistics(model, frozen)


def hold_statistics(model: MoleculeNet, frozen: Frozen) -> None:
    """Put the batch norms of frozen parts into evaluation mode; dropout stays as it is."""
    for norm in (norm for part in frozen_parts(model, frozen) for norm in part.modules()):
        if isinstance(norm, nn.BatchNorm1d):
            norm.eval()


def learning_parameters(model: MoleculeNet, config: Config) -> Iterable[Any]:
    """Return the parameters that learn in the run's last stage, as an optimiser takes them: it leaves out those without a gradient.

    With `optimizer.head_lr` the head's parameters are a group of their own with that learning rate.
    """
    last = list(config.training.stages.values())[-1]
    frozen = {parameter for part in frozen_parts(model, last) for parameter in part.parameters()}
    learning = [parameter for parameter in model.parameters() if parameter not in frozen]
    if config.optimizer.head_lr is None:
        return learning
    head = {parameter for part in model.heads for parameter in part.parameters()}
    encoder: list[Any] = [parameter for parameter in learning if parameter not in head]
    of_encoder = [{"params": encoder}] if encoder else []
    return [*of_encoder, {"params": [one for one in learning if one in head], "lr": config.optimizer.head_lr}]
