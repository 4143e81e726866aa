"""The estimator of numbers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_consistent_length

from molgcn.calibration.outputs import Numbers, outputs_of
from molgcn.errors import UserError
from molgcn.estimators.base import MoleculeEstimator, as_columns, as_smiles
from molgcn.screening.ensemble import Ensemble


class Regressor(RegressorMixin, MoleculeEstimator):
    """Predicts numbers from SMILES, as a scikit-learn estimator.

    Each parameter that is None has the value that `python train.py dataset=csv` takes.

    Args:
        model: a network of conf/model, such as "gin" or "dmpnn" (`model=`).
        recipe: "csv", the recipe for files of a few hundred to some ten thousand molecules, or "plain" for none (`recipe=`).
        num_layers: number of layers (`model.num_layers=`).
        hidden_channels: width (`model.hidden_channels=`).
        dropout: dropout between layers (`model.dropout=`).
        lr: learning rate (`optimizer.lr=`).
        batch_size: molecules per batch (`dataset.batch_size=`).
        max_epochs: epochs (`trainer.max_epochs=`).
        loss: loss (`training.loss=`).
        ensemble: number of models that predict together (`training.ensemble=`).
        validation_fraction: fraction of the molecules that chooses the best epoch. 0 takes the last one, as do fewer than one molecule.
        overrides: every other key of the configuration with its value, as in {"experiment": "chemprop_dmpnn", "model.pool": "sum"}.
        random_state: seed of the weights, the order of molecules and the validation part. None differs each time.
        device: "auto" (a GPU where there is one), "cpu" or "cuda".
        verbose: whether to print what a run on the command line prints.

    Attributes:
        run_: the files of the run, by their paths in its folder; :meth:`save` writes them.
        n_features_in_: the number of molecules in a row.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on M molecules.

        Args:
            X: M SMILES, as a list, an array, a Series or a table, which may have a column for each molecule of a row.
            y: [M] or [M, T] numbers. NaN stands for a value that is not known.
            sample_weight: [M], the weights of the molecules in the loss.
        """
        smiles, (values, self._one) = as_smiles(X), as_columns(y)
        check_consistent_length(smiles, values)
        values = values.astype(np.float64)
        if np.isinf(values).any():
            raise ValueError("Input y contains infinity or a value too large for dtype('float64').")
        for place, column in enumerate(values.T):
            if np.isnan(column).all():
                raise ValueError(f"Input y contains NaN only, in target {place}. Expected at least one known value.")
        targets = pd.DataFrame({f"y{place}": column for place, column in enumerate(values.T)})
        return self._fit(smiles, targets, sample_weight, {"task": "regression"})

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return predictions [M], or [M, T] where `y` had two dimensions, and with `return_std` also their standard deviations.

        The deviations are calibrated where the model is. Else they are those that the loss learns, or those over the models of an ensemble.

        Raises:
            UserError: With `return_std`, for a model that predicts no standard deviations.
        """
        models, predictions = self._predicted(X)
        outputs = _numbers_of(models, predictions.values)
        values = self._shaped([output.values for output in outputs])
        if not return_std:
            return values
        over_models = None if predictions.deviation is None else _numbers_of(models, predictions.deviation)
        deviations = []
        for place, output in enumerate(outputs):
            calibrated = None if models.calibration is None else models.calibration.targets[place].std(output)
            std = output.std if calibrated is None else calibrated
            if std is None and over_models is not None:
                std = over_models[place].values
            if std is None:
                raise UserError(
                    'return_std=True needs a model that predicts standard deviations: one that was fitted with loss="mve" or "evidential", '
                    "or with ensemble=5."
                )
            deviations.append(std)
        return values, self._shaped(deviations)

    def _shaped(self, columns: list[np.ndarray]) -> np.ndarray:
        return columns[0] if self._one else np.column_stack(columns)


def _numbers_of(models: Ensemble, predictions: np.ndarray) -> list[Numbers]:
    return [output for output in outputs_of(models.task, predictions) if isinstance(output, Numbers)]
