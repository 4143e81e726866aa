"""What a run's results say of its uncertainties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from molgcn.calibration.assessment import assess
from molgcn.calibration.outputs import Numbers, outputs_of
from molgcn.data.load import LoadedDataset
from molgcn.training.inference import predict_molecules
from molgcn.training.regressor import MoleculeRegressor
from molgcn.training.result import RunResult


def has_uncertainties(module: MoleculeRegressor) -> bool:
    """Whether the module predicts standard deviations, or was calibrated."""
    outputs = outputs_of(module.task, np.zeros((0, module.task.num_predictions)))
    return module.calibration is not None or any(isinstance(one, Numbers) and one.std is not None for one in outputs)


def with_uncertainties(result: RunResult, module: MoleculeRegressor, data: LoadedDataset) -> RunResult:
    """Return the result with the measures of :func:`molgcn.calibration.assessment.assess` on validation and test, if there are any."""
    if not has_uncertainties(module):
        return result
    metrics = dict(result.metrics)
    for part in ("val", "test"):
        if len(data.splits[part]):
            molecules = data.part(part)
            predictions = predict_molecules(module, molecules, module.config.dataset.batch_size)
            found = assess(module.task, module.calibration, predictions, molecules.targets)
            metrics |= {f"{part}/{key}": value for key, value in found.items()}
    return replace(result, metrics=metrics, calibrated="" if module.calibration is None else module.calibration.described)
