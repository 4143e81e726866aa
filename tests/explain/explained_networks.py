"""Networks and molecules that the tests of explanations share."""

import torch

from molgcn.config.run import Config, parse
from molgcn.nn.build import edge_channels_of
from molgcn.tasks.registry import build_task
from molgcn.training.module import MoleculeModule

SMILES = ["CC(=O)Oc1ccccc1", "C", "[Na+].[Cl-]", "C/C=C/F"]
ENCODED = {"encodings": {"rwse": 4, "rwse_dim": 4, "bond_rw": 3}, "embed": True}
NETWORKS = {
    "gcn": {"name": "gcn"},
    "gine": {"name": "gine", "bonds": True},
    "gat": {"name": "gat", "bonds": True, "heads": 2},
    "gated_gcn": {"name": "gated_gcn", "bonds": True},
    "dmpnn": {"name": "dmpnn", "bonds": True, "norm": None, "residual": False},
    "encoded": {"name": "gine", "bonds": True, "embed_bonds": True, **ENCODED},
    "attention": {"name": "gin", "pool": "attention", "readout": "all"},
}


def regressor(molecules, model=NETWORKS["gine"], task="regression", num_classes=0, seed=0, loss="auto"):
    """Return an untrained network of two targets, with norms whose statistics are not the initial ones."""
    config = parse(
        Config, {"dataset": {}, "task": task, "training": {"loss": loss}, "model": {"hidden_channels": 8, "num_layers": 2, **model}}
    )
    task = build_task(task, ["a", "b"], ["eV", ""], num_classes)
    torch.manual_seed(seed)
    statistics = {name: torch.rand(shape) + 0.5 for name, shape in task.statistics_shapes().items()}
    edges = edge_channels_of(config.model, molecules)
    names = molecules.descriptor_names
    module = MoleculeModule(config, molecules.num_features, task, statistics, "general", edge_channels=edges, descriptor_names=names)
    module.fit_descriptors(molecules.descriptors)
    for norm in (norm for norm in module.modules() if isinstance(norm, torch.nn.BatchNorm1d)):
        torch.nn.init.uniform_(norm.running_mean)
        torch.nn.init.uniform_(norm.running_var, 0.5, 2)
    return module.eval()
