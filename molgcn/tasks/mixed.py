"""Several tasks at once: one network learns numbers of some targets and probabilities of classes of others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from molgcn.config.training import TrainingConfig
from molgcn.data.label_columns import columns_of, labels_of
from molgcn.errors import UserError
from molgcn.nn.output_layers import SideBySide
from molgcn.tasks.base import Array, Task
from molgcn.tasks.losses import MixedLoss

if TYPE_CHECKING:
    from molgcn.report.page import TargetGroup
    from molgcn.report.subject import Subject

T = TypeVar("T")


@dataclass(frozen=True)
class Mixed(Task):
    """Learn each target by its own task.

    The columns of outputs are ordered part by part, and those of predictions in the targets' order.
    """

    members: tuple[Task, ...] = ()  # the tasks, at most one of each name. Each has some of the targets, in their order
    name = "mixed"

    @property
    def parts(self) -> tuple[Task, ...]:
        return self.members

    def with_parts(self, change: Callable[[Task], Task]) -> Task:
        return replace(self, members=tuple(map(change, self.members)))

    def settled(self, options: TrainingConfig) -> TrainingConfig:
        """Check the options of training for each part; `loss=auto` stays, since each part has a loss of its own."""
        for part in self.parts:
            part.settled(self._options_of(part, options))
        if options.loss != "auto" and not any(options.loss in part.losses for part in self.parts):
            losses = " or ".join(dict.fromkeys(loss for part in self.parts for loss in part.losses))
            raise UserError(f"training.loss={options.loss} goes with none of the targets, which are learned with {losses}. Leave it out.")
        return options

    @staticmethod
    def _options_of(part: Task, options: TrainingConfig) -> TrainingConfig:
        """Return the options of a part: its own loss or `auto`, and weights of classes only where it has classes."""
        weights = options.class_weights if part.num_classes else None
        return replace(options, loss=options.loss if options.loss in part.losses else "auto", class_weights=weights)

    def check(self, targets: np.ndarray, rows: Sequence[str] | np.ndarray) -> None:
        """Check each part's targets; see :meth:`Task.check`."""
        for part, places in zip(self.parts, self.target_places, strict=True):
            part.check(targets[:, places], rows)

    def statistics_of(self, targets: np.ndarray) -> dict[str, Tensor]:
        """Compute each part's statistics; the names of their buffers start with the name of the part."""
        return self._by_part([part.statistics_of(targets[:, places]) for part, places in zip(self.parts, self.target_places, strict=True)])

    def statistics_shapes(self) -> dict[str, tuple[int, ...]]:
        return self._by_part([part.statistics_shapes() for part in self.parts])

    def loss(self, config: TrainingConfig, fused: bool) -> MixedLoss:
        """Return the mean of the parts' losses over the known terms of all targets."""
        losses = [part.loss(self._options_of(part, config), fused) for part in self.parts]
        return MixedLoss(losses, [part.num_outputs for part in self.parts])

    def for_loss(self, targets: Tensor, dtype: torch.dtype, *statistics: Tensor) -> tuple[Any, ...]:
        return tuple(
            part.for_loss(labels_of(targets, len(self.names), places), dtype, *own)
            for part, places, own in zip(self.parts, self.target_places, self.statistics_of_parts(statistics), strict=True)
        )

    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        return self._in_order([part.decode for part in self.parts], outputs, statistics)

    def explained(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        return self._in_order([part.explained for part in self.parts], outputs, statistics)

    def _in_order(self, ways: Sequence[Callable[..., Tensor]], outputs: Tensor, statistics: Sequence[Tensor]) -> Tensor:
        """Turn each part's outputs and statistics into its columns, and put these into the targets' order."""
        given = outputs.split([part.num_outputs for part in self.parts], dim=1)
        turned = [way(one, *own) for way, one, own in zip(ways, given, self.statistics_of_parts(statistics), strict=True)]
        return torch.cat(turned, dim=1)[:, self._order]

    def output_layer(self, *statistics: Tensor) -> nn.Module:
        """Return a layer that applies each part's output layer to its outputs, with predictions in the targets' order."""
        layers = [part.output_layer(*own) for part, own in zip(self.parts, self.statistics_of_parts(statistics), strict=True)]
        return SideBySide(layers, [part.num_outputs for part in self.parts], self._order)

    def differences(self, actual: Tensor, expected: Tensor, *statistics: Tensor) -> Tensor:
        """Return each part's differences, in the targets' order."""
        found = [
            part.differences(actual[:, places], expected[:, places], *own)
            for part, places, own in zip(self.parts, self.prediction_places, self.statistics_of_parts(statistics), strict=True)
        ]
        return torch.cat(found, dim=1)[:, self._order]

    def digits(self, *statistics: Tensor) -> list[int]:
        """Return the number of significant digits in which each column of predictions is written."""
        found = [digits for part, own in zip(self.parts, self.statistics_of_parts(statistics), strict=True) for digits in part.digits(*own)]
        return [found[place] for place in self._order]

    @property
    def holds_values(self) -> list[bool]:
        """Whether each column of predictions holds values, and not standard deviations, in the targets' order."""
        found = [one for part in self.parts for one in part.holds_values]
        return [found[place] for place in self._order]

    def spread(self, predictions: np.ndarray) -> np.ndarray | None:
        """Return the standard deviations [M, T], NaN for targets whose task has none; None where no task has any."""
        found = np.full((len(predictions), len(self.names)), np.nan)
        for part, columns, places in zip(self.parts, self.prediction_places, self.target_places, strict=True):
            if (own := part.spread(predictions[:, columns])) is not None:
                found[:, places] = own
        return None if np.isnan(found).all() else found

    def combine(self, members: np.ndarray) -> np.ndarray:
        return self.together([part.combine(members[:, :, own]) for part, own in zip(self.parts, self.prediction_places, strict=True)])

    @property
    def columns(self) -> list[list[str]]:
        """The headers of each target's columns of predictions, which its task gives."""
        named = {name: columns for part in self.parts for name, columns in zip(part.names, part.columns, strict=True)}
        return [named[name] for name in self.names]

    def values(
        self, predictions: Array, targets: Array, wanted: Collection[str], weights: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Compute for every target those of the metrics that its task has; see :meth:`Task.values`."""
        found: dict[str, np.ndarray] = {}
        for part, given, true in self.of_parts(predictions, targets):
            found |= part.values(given, true, wanted, weights)
        return found

    def guess(self, *statistics: Tensor) -> np.ndarray:
        return self.together([part.guess(*own) for part, own in zip(self.parts, self.statistics_of_parts(statistics), strict=True)])

    def together(self, predictions: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(predictions, axis=1)[:, self._order]

    def pictures(self, targets: np.ndarray, predictions: np.ndarray, folder: Path, ending: str = "") -> dict[str, Path]:
        """Draw each part's targets; the names of the pictures end with the name of the part."""
        drawn: dict[str, Path] = {}
        for part, given, true in self.of_parts(predictions, targets):
            found = part.pictures(true, given, folder, f"_{part.name}{ending}")
            drawn |= {f"{name}_{part.name}": path for name, path in found.items()}
        return drawn

    def loss_name(self, config: TrainingConfig) -> str:
        return " and ".join(dict.fromkeys(part.loss_name(self._options_of(part, config)) for part in self.parts))

    def groups(self, subject: Subject) -> list[TargetGroup]:
        """Return the groups of all parts; see :meth:`Task.groups`."""
        found = []
        for part, places, columns in zip(self.parts, self.target_places, self.prediction_places, strict=True):
            found += part.groups(subject.of_targets(places, columns))
        return found

    @property
    def num_outputs(self) -> int:
        return sum(part.num_outputs for part in self.parts)

    def output_places(self, places: Sequence[int]) -> list[int]:
        """Return the columns of a network's outputs that belong to the targets at `places`, part by part."""
        found, first = [], 0
        for part, own in zip(self.parts, self.target_places, strict=True):
            found += [first + column for column in part.output_places([own.index(place) for place in places if place in own])]
            first += part.num_outputs
        return found

    @property
    def described(self) -> str:
        return ", ".join(part.described for part in self.parts)

    def keys(self, part: str, wanted: Sequence[str] | None = None) -> list[str]:
        return [key for one in self.parts for key in one.keys(part, wanted)]

    @cached_property
    def target_places(self) -> list[list[int]]:
        """The positions of each part's targets among all targets."""
        return [[self.names.index(name) for name in part.names] for part in self.parts]

    @cached_property
    def prediction_places(self) -> list[list[int]]:
        """The positions of each part's columns of predictions among all columns."""
        starts = [0, *accumulate(len(names) for names in self.columns)]
        return [[column for place in places for column in range(starts[place], starts[place + 1])] for places in self.target_places]

    @cached_property
    def _order(self) -> list[int]:
        """The position of each column of predictions when the parts' columns stand one part after the other."""
        return np.argsort([place for places in self.prediction_places for place in places]).tolist()

    def _by_part(self, values: Sequence[Mapping[str, T]]) -> dict[str, T]:
        return {f"{part.name}_{name}": value for part, own in zip(self.parts, values, strict=True) for name, value in own.items()}

    def statistics_of_parts(self, statistics: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """Divide statistics among the parts."""
        rest = iter(statistics)
        return [list(islice(rest, len(part.statistics_shapes()))) for part in self.parts]

    def of_parts(self, predictions: Any, targets: Any) -> list[tuple[Task, Any, Any]]:
        """Return each part with its columns of predictions and of targets, or of labels with bounds."""
        width, total = targets.shape[1], len(self.names)
        places = zip(self.parts, self.prediction_places, self.target_places, strict=True)
        return [(part, predictions[:, columns], targets[:, columns_of(width, total, own)]) for part, columns, own in places]
