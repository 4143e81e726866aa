"""The estimator of classes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from molgcn.calibration.outputs import Classes, outputs_of
from molgcn.estimators.base import MoleculeEstimator, as_columns, as_smiles


class Classifier(ClassifierMixin, MoleculeEstimator):
    """Predicts classes from SMILES, as a scikit-learn estimator; its parameters are those of :class:`Regressor`.

    Attributes:
        classes_: the classes, sorted; of several targets a list with those of each.
        run_: the files of the run, by their paths in its folder; :meth:`save` writes them.
        n_features_in_: the number of molecules in a row.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on M molecules.

        Args:
            X: M SMILES, as a list, an array, a Series or a table, which may have a column for each molecule of a row.
            y: [M] or [M, T] labels of any kind. NaN and None stand for a label that is not known.
            sample_weight: [M], the weights of the molecules in the loss.
        """
        smiles, (labels, self._one) = as_smiles(X), as_columns(y)
        check_consistent_length(smiles, labels)
        known = ~pd.isna(labels)
        found, codes = [], np.full(labels.shape, np.nan)
        for place, (column, there) in enumerate(zip(labels.T, known.T, strict=True)):
            own = np.asarray(column[there].tolist())
            if self._one and len(own):
                check_classification_targets(own)
            classes, numbers = np.unique(own, return_inverse=True)
            if len(classes) < 2:
                raise ValueError(f"Classifier can't train when only one class is present: target {place} has {[*classes]}.")
            found.append(classes)
            codes[there, place] = numbers
        self.classes_ = found[0] if self._one else found
        names = [f"y{place}" for place in range(len(found))]
        tasks = {name: "multiclass" if len(classes) > 2 else "classification" for name, classes in zip(names, found, strict=True)}
        targets = pd.DataFrame(codes, columns=names)
        return self._fit(smiles, targets, sample_weight, {"dataset.tasks": tasks})

    def predict_proba(self, X: Any) -> np.ndarray | list[np.ndarray]:
        """Return the probability of every class, [M, C] in the order of `classes_`; of several targets a list of such arrays."""
        found = self._probabilities(X)
        return found[0] if self._one else found

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest class of each molecule, [M], or [M, T] where `y` had two dimensions."""
        probabilities = self._probabilities(X)
        classes = [self.classes_] if self._one else self.classes_
        found = [own[one.argmax(axis=1)] for own, one in zip(classes, probabilities, strict=True)]
        return found[0] if self._one else np.column_stack(found)

    def _probabilities(self, X: Any) -> list[np.ndarray]:
        models, predictions = self._predicted(X)
        return [output.probabilities for output in outputs_of(models.task, predictions.values) if isinstance(output, Classes)]
