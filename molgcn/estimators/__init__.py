"""The scikit-learn estimators `molgcn.Regressor` and `molgcn.Classifier`, which take molecules as SMILES."""

from molgcn.estimators.classifier import Classifier as Classifier
from molgcn.estimators.regressor import Regressor as Regressor

__all__ = ["Classifier", "Regressor"]
