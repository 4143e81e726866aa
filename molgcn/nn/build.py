"""The network of a configuration."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import torch

from molgcn.config import BackendConfig, LayerSettings, ModelConfig
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError
from molgcn.nn.molecule_net import MoleculeNet
from molgcn.nn.options import settings_of
from molgcn.nn.registry import get_kind


def build_network(
    model: ModelConfig,
    backend: BackendConfig,
    in_channels: int,
    out_channels: int,
    edge_channels: int | None = None,
    descriptor_channels: int = 0,
) -> MoleculeNet:
    """Return the untrained network of a configuration.

    Args:
        model: the network.
        backend: what computes its layers.
        in_channels: features an atom.
        out_channels: targets.
        edge_channels: features a bond, or None for a network that does not see them.
        descriptor_channels: descriptors a molecule.

    Raises:
        UserError: see :class:`molgcn.nn.MoleculeNet`.
    """
    options: dict[str, Any] = {one.name: getattr(model, one.name) for one in fields(model)} | asdict(model.encodings)
    for name in ("name", "bonds", "encodings"):
        del options[name]
    kind = get_kind(model.name)
    for one in fields(LayerSettings):
        if one.name not in kind.own_settings and options.pop(one.name) != one.default:
            settings_of(kind, {one.name: None})  # says that the layer does not have it
    settings = options.pop("settings")
    settings_of(kind, settings)  # refuses those that the layer does not have
    return MoleculeNet(
        in_channels,
        options.pop("hidden_channels"),
        options.pop("num_layers"),
        out_channels,
        conv=model.name,
        edge_channels=edge_channels,
        descriptor_channels=descriptor_channels,
        backend=backend.name,
        strategy=backend.strategy,
        **options | settings,
    )


def resolved_backend(model: ModelConfig, backend: BackendConfig) -> str:
    """Return the name of the backend that a configuration's network runs on, fused, pyg or reference, without taking memory for it.

    Raises:
        UserError: see :class:`molgcn.nn.MoleculeNet`: all options are checked.
    """
    with torch.device("meta"):
        return build_network(model, backend, 1, 1, 1 if model.bonds else None).backend.name


def edge_channels_of(model: ModelConfig, molecules: PackedMolecules) -> int | None:
    """Return the features a bond that a configuration's network sees in a set; None where it sees none.

    Raises:
        UserError: where it is to see bonds and the set has no features of them.
    """
    if model.bonds and molecules.num_edge_features == 0:
        without = "" if molecules.features is None else f" with dataset.features={molecules.features}"
        raise UserError(
            f"model.bonds=true, but the data set has no features of bonds{without}. Choose dataset.features that describe bonds, or a "
            "network that does without: model.bonds=false, or model=gcn."
        )
    return molecules.num_edge_features if model.bonds else None
