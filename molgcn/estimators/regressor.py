"""The estimator of numbers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_consistent_length

from molgcn.calibration.outputs import Numbers
from molgcn.estimators.base import MoleculeEstimator
from molgcn.estimators.inputs import as_columns, as_smiles


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
        n_features_in_: 1.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on M molecules.

        Args:
            X: M SMILES, as a list, an array, a Series or one column of a table.
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

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions [M], or [M, T] where `y` had two dimensions."""
        values = np.column_stack([output.values for output in self._outputs(X) if isinstance(output, Numbers)])
        return values[:, 0] if self._one else values
