"""Build the network that a configuration describes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, fields
from typing import Any

import torch

from molgcn.config.layer_settings import LayerSettings
from molgcn.config.run import BackendConfig, ModelConfig
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
    num_components: int = 1,
    scaled_channels: int = 0,
    scaled_edge_channels: int = 0,
    atom_outputs: Sequence[int] = (),
    bond_outputs: Sequence[int] = (),
) -> MoleculeNet:
    """Return the untrained network of a configuration; see :class:`molgcn.nn.MoleculeNet` for the numbers, and the errors."""
    options: dict[str, Any] = {one.name: getattr(model, one.name) for one in fields(model)} | asdict(model.encodings)
    for name in ("name", "bonds", "encodings"):
        del options[name]
    kind = get_kind(model.name)
    if model.head_layers is None:  # the task, which may want more, is not known yet
        options["head_layers"] = 1
    for one in fields(LayerSettings):
        if one.name not in kind.own_settings and options.pop(one.name) != one.default:
            settings_of(kind, {one.name: None})  # raises the error that names the option
    settings = options.pop("settings")
    settings_of(kind, settings)  # raises for a setting that the layer does not have
    return MoleculeNet(
        in_channels,
        options.pop("hidden_channels"),
        options.pop("num_layers"),
        out_channels,
        conv=model.name,
        edge_channels=edge_channels,
        descriptor_channels=descriptor_channels,
        num_components=num_components,
        scaled_channels=scaled_channels,
        scaled_edge_channels=scaled_edge_channels,
        atom_outputs=atom_outputs,
        bond_outputs=bond_outputs,
        backend=backend.name,
        strategy=backend.strategy,
        recompute=backend.recompute,
        **options | settings,
    )


def resolved_backend(model: ModelConfig, backend: BackendConfig, num_components: int = 1, levels: Collection[str] = ()) -> str:
    """Return the name of the backend that a configuration's network runs on: "fused", "pyg" or "reference".

    The network is built on the meta device, so that it takes no memory. All its options are checked. `levels` are those of its targets
    beside molecules, "atom" and "bond".
    """
    outputs: dict[str, Any] = {f"{level}_outputs": [place] for place, level in enumerate(levels, start=1)}
    get_kind(model.name)  # a layer's package must not be imported with tensors on that device
    with torch.device("meta"):
        bonds = 1 if model.bonds else None
        return build_network(model, backend, 1, 1 + len(levels), bonds, num_components=num_components, **outputs).backend.name


def edge_channels_of(model: ModelConfig, molecules: PackedMolecules) -> int | None:
    """Return the number of features per bond that a configuration's network sees in a set, which must have some; None if none."""
    if model.bonds and molecules.num_edge_features == 0:
        without = "" if molecules.features is None else f" with dataset.features={molecules.features}"
        raise UserError(
            f"model.bonds=true, but the data set has no features of bonds{without}. Choose dataset.features that describe bonds, or a "
            "network that does without: model.bonds=false, or model=gcn."
        )
    if molecules.bond_feature_names and not model.bonds:
        raise UserError(
            f"dataset.bond_features_path gives features of bonds, which model={model.name} with model.bonds=false does not read. Use "
            "model.bonds=true or a network that reads bonds, such as model=gine, or leave them out."
        )
    return molecules.num_edge_features if model.bonds else None
