"""The labels of a batch whose atoms or bonds have targets, as rows (:mod:`molgcn.data.levels`)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.levels import Levels
from molgcn.nn.padding import first_rows


def labels_of_batch(batch: Any, levels: Levels) -> Tensor:
    """Return the labels of a batch in the order of a network's outputs, by operators that a CUDA graph can capture.

    Returns:
        - [B, L], the labels of the molecules, where neither atoms nor bonds have targets.
        - [R, T], the targets of all rows, where one level has targets.
        - [R, 2 T + 1], with bounds of 0 and weights, where several have: the weights make the loss the mean over the levels of the mean
          over each one's known targets, as Chemprop adds them up, since there are many more atoms than molecules.
    """
    labels = batch.targets if isinstance(batch, GraphBatch) else batch.y.reshape(batch.num_graphs, -1)
    if not levels:
        return labels
    counts, blocks = getattr(batch, "counts", None), [labels]
    for number, (level, values) in enumerate((("atom", batch.atom_targets), ("bond", batch.bond_targets)), start=1):
        if level in levels.counts:
            given = values if counts is None else torch.where(first_rows(values, counts[number])[:, None], values, math.nan)
            full = labels.new_full((len(values), labels.shape[1]), math.nan)
            first = levels.places(level)[0]
            full[:, first : first + given.shape[1]] = given
            blocks.append(full)
    rows = torch.cat(blocks)
    learned = [level for level, count in levels.counts.items() if count]
    if len(learned) == 1:
        return rows
    known = ~rows.isnan()
    weights = torch.zeros_like(rows[:, :1])
    for level in learned:
        places = levels.places(level)
        own = known[:, places[0] : places[-1] + 1].sum(dim=1, keepdim=True)
        weights += own.clamp(max=1) * known.sum() / (len(learned) * own.sum().clamp(min=1))
    return torch.cat([rows, torch.zeros_like(rows), weights], dim=1)
