"""The facts at the end of a report: the model, the data and the versions of the packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from molgcn.errors import counted


def facts(module: Any, data: str, data_hash: str, where: str, versions: Mapping[str, str | None]) -> dict[str, str]:
    """Return facts about a :class:`molgcn.training.module.MoleculeModule` and the data set of a name and hash, by name.

    `where` is the checkpoint or the folder of the run. Versions are those of Python and packages, None for what is not installed.
    """
    model, config = module.averaged, module.config
    parameters = sum(parameter.numel() for parameter in model.parameters())
    options = [f"norm {model.norm or 'none'}", "residual" if model.residual else "no residual", f"pool {model.pool}"]
    averaged = f", moving average of the weights ({config.training.ema_decay})" if module.ema is not None else ""
    network = f"{model.conv}, {counted(model.num_layers, 'layer')} of {counted(model.hidden_channels, 'channel')}, {', '.join(options)}"
    shown = {name: number for name, number in versions.items() if number and name in ("python", "molgcn", "torch", "rdkit")}
    dataset = config.dataset
    given = [*(dataset.descriptors or ()), *(["a file"] if dataset.descriptors_path else []), *(dataset.descriptor_generators or ())]
    descriptors = {"Descriptors": f"{len(module.descriptor_names)}, of {', '.join(given)}"} if module.descriptor_names else {}
    own = {of: names for of, names in module.own_features.items() if names}
    given_features = {f"Own features of {of}s": f"{len(names)}, of a file" for of, names in own.items()}
    trees = {} if module.blend is None else {"Blend": f"the network and boosted trees (LightGBM): {module.blend.described}"}
    return {
        "Model": f"{network}; {counted(parameters, 'parameter')}{averaged}",
        **trees,
        "Weights": where,
        "Data": data,
        "Data hash": data_hash[:16],
        "Features": f"{module.features}, {model.in_channels} an atom" if module.features else f"{model.in_channels} an atom",
        **given_features,
        **descriptors,
        "Trained on": f"{config.dataset.name}, {module.task.loss_name(config.training)} loss, {config.optimizer.name}, seed {config.seed}",
        "Computed by": f"backend {model.backend.name} on {module.device}",
        "Versions": ", ".join(f"{name} {number}" for name, number in shown.items()),
    }
