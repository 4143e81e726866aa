"""The network of a run with all that turns its outputs into predictions, as a plain torch module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from molgcn.blending.blend import Blend
from molgcn.calibration.calibration import Calibration
from molgcn.config.run import Config
from molgcn.data.batch import GraphBatch
from molgcn.data.levels import Levels
from molgcn.nn import MoleculeNet
from molgcn.nn.build import build_network
from molgcn.tasks.base import Task
from molgcn.tasks.registry import learned_with
from molgcn.training.ema import ExponentialMovingAverage


class MoleculePredictor(nn.Module):
    """Predicts T targets of a molecule with a :class:`molgcn.nn.MoleculeNet`; its `task` says what they mean.

    It needs no Lightning, which takes seconds to import. :class:`molgcn.training.MoleculeModule` adds what training needs, and has the same
    weights by the same names.

    Args:
        config: the run's configuration.
        in_channels: features per atom.
        task: what the targets mean. `training.loss` may add outputs, such as standard deviations; see
            :func:`molgcn.tasks.registry.learned_with`.
        statistics: the task's statistics of the training set, by the names of their buffers; see :meth:`Task.statistics_of`. Those in
            float64 stay float64 whatever the module is converted to: float32 has too few digits for them.
        features: the featuriser, with its version if it is not the newest, or None for graphs that do not come from SMILES.
        trained_on: what the training molecules held, from :func:`molgcn.data.applicability.domain_of`, or None.
        edge_channels: features per bond, or None for a network that does not see bonds.
        descriptor_names: the names of the descriptors that the network takes beside each molecule's graph.
        num_components: molecules per row.
        atom_feature_names: the names of the last features of atoms, which come from a file.
        bond_feature_names: the names of the last features of bonds, which come from a file.
        num_atom_targets: the number of targets that are of atoms; they come before those of bonds.
        num_bond_targets: the number of targets that are of bonds, the last ones.

    Shapes:
        - **input:** a batch of B molecules
        - **output:** predictions, float64 [B, P]: values in the targets' units, or probabilities; see :meth:`Task.decode`. With targets of
          atoms or bonds there are more rows (:mod:`molgcn.data.levels`)
    """

    def __init__(
        self,
        config: Config,
        in_channels: int,
        task: Task,
        statistics: Mapping[str, Tensor],
        features: str | None,
        trained_on: Mapping[str, Any] | None = None,
        edge_channels: int | None = None,
        descriptor_names: Sequence[str] = (),
        num_components: int = 1,
        atom_feature_names: Sequence[str] = (),
        bond_feature_names: Sequence[str] = (),
        num_atom_targets: int = 0,
        num_bond_targets: int = 0,
    ) -> None:
        super().__init__()
        self.task = task = learned_with(task, config.training)
        for name, values in statistics.items():
            self.register_buffer(name, values)
        self.config = config
        self.architecture: dict[str, Any] = {
            "in_channels": in_channels,
            "edge_channels": edge_channels,
            "descriptor_names": list(descriptor_names),
            "num_components": num_components,
            "atom_feature_names": list(atom_feature_names),
            "bond_feature_names": list(bond_feature_names),
            "num_atom_targets": num_atom_targets,
            "num_bond_targets": num_bond_targets,
            "task": task.name,
            "target_names": list(task.names),
            "target_units": list(task.units),
            "num_classes": task.num_classes,
        }
        self.features = features
        self.trained_on = trained_on
        self.versions: dict[str, str] = {}  # of the packages that wrote the checkpoint from which the module was loaded
        self.calibration: Calibration | None = None  # fitted on the weights of a finished run
        self.blend: Blend | None = None  # trees of a finished run that predict together with the network
        sizes = edge_channels, len(descriptor_names), num_components, len(atom_feature_names), len(bond_feature_names)
        self.levels = Levels(len(task.names) - num_atom_targets - num_bond_targets, num_atom_targets, num_bond_targets)
        of_levels: dict[str, Any] = {f"{level}_outputs": task.output_places(self.levels.places(level)) for level in ("atom", "bond")}
        self.model = build_network(config.model, config.backend, in_channels, task.num_outputs, *sizes, **of_levels)
        decay = config.training.ema_decay
        self.ema = None if decay is None else ExponentialMovingAverage(self.model, decay)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def target_names(self) -> list[str]:
        return self.architecture["target_names"]

    @property
    def target_units(self) -> list[str]:
        """The units of the targets ("" = none)."""
        return self.architecture["target_units"]

    @property
    def descriptor_names(self) -> list[str]:
        """The names of the descriptors, those of columns and files before those that RDKit computes."""
        return self.architecture["descriptor_names"]

    @property
    def own_features(self) -> dict[str, list[str]]:
        """The names of the features that come from a file, by what they describe: "atom" or "bond"."""
        return {of: self.architecture[f"{of}_feature_names"] for of in ("atom", "bond")}

    @property
    def statistics(self) -> tuple[Tensor, ...]:
        """The task's statistics, in the order in which its methods take them."""
        return tuple(self._buffers.values())  # type: ignore[arg-type]

    @property
    def target_digits(self) -> list[int]:
        """The number of significant digits in which each column of predictions is written."""
        return self.task.digits(*self.statistics)

    @property
    def averaged(self) -> MoleculeNet:
        """The network that validation and prediction use: the moving average where there is one."""
        return self.model if self.ema is None else self.ema.module  # type: ignore[return-value]

    def ready(self, batch: Any, device: torch.device | None = None) -> Any:
        """Return the batch in the model's precision on a device, by default the model's, where the loaders have usually put it."""
        batch = batch.to(device or self.device)
        if self.dtype != torch.float64:
            return batch
        return batch.double() if isinstance(batch, GraphBatch) else batch.apply(Tensor.double, "x", "y")

    def forward(self, batch: Any) -> Tensor:
        """Return predictions, float64 [B, P]; see :meth:`Task.decode`."""
        return self.decode(self.averaged(batch))

    def decode(self, outputs: Tensor) -> Tensor:
        """Turn the network's outputs [B, O] into predictions, float64 [B, P]."""
        return self.task.decode(outputs, *self.statistics)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move and convert the module; statistics in float64 keep their dtype."""
        kept = {name: values for name, values in self._buffers.items() if values is not None and values.dtype == torch.float64}
        super()._apply(fn, recurse)
        for name, values in kept.items():
            setattr(self, name, values.to(getattr(self, name).device))
        return self
