"""Gradient-boosted trees that learn one target from numbers of molecules: LightGBM, whose models are text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from molgcn.blending.text import check_text
from molgcn.errors import UserError

# LightGBM's parameters, by scaffold cross-validation inside TDC's training parts. More or larger trees are as good in order, but far too
# sure of classes. There is no early stopping, which would need molecules that are better used to train.
SMALL = {"num_trees": 400, "learning_rate": 0.02, "num_leaves": 15, "min_data_in_leaf": 10, "feature_fraction": 0.2}
LARGE = {"num_trees": 500, "learning_rate": 0.05, "num_leaves": 31, "min_data_in_leaf": 20, "feature_fraction": 0.3}
FROM_LARGE = 2_000  # training molecules
_SHARED = {"bagging_fraction": 0.8, "bagging_freq": 1, "deterministic": True, "force_col_wise": True, "verbosity": -1}


@dataclass(frozen=True)
class Trees:
    """The trees of one target, as LightGBM's text, which predict so many classes C, or 0 for a target that is a number."""

    text: str
    num_classes: int = 0

    @classmethod
    def fit(
        cls,
        features: np.ndarray,
        labels: np.ndarray,
        num_classes: int,
        weights: np.ndarray | None,
        seed: int,
        settings: Mapping[str, Any] | None = None,
    ) -> Trees:
        """Fit trees to features float32 [M, F], NaN where a number is missing, and labels [M], numbers or classes 0 to C - 1.

        `num_classes` is C, or 0 for numbers. `settings` are LightGBM's parameters, by default those for the number of molecules. The result
        does not depend on the number of threads.
        """
        lightgbm = import_lightgbm()
        parameters: dict[str, Any] = {**_SHARED, **(settings or (LARGE if len(labels) >= FROM_LARGE else SMALL))}
        parameters |= {"seed": seed % 2**31, "num_threads": torch.get_num_threads()}
        if num_classes > 2:
            parameters |= {"objective": "multiclass", "num_class": num_classes}
        else:
            parameters["objective"] = "binary" if num_classes else "regression"
        count = parameters.pop("num_trees")
        data = lightgbm.Dataset(features, np.ascontiguousarray(labels), weight=weights, params=parameters)
        return cls(lightgbm.train(parameters, data, num_boost_round=count).model_to_string(), num_classes)

    @cached_property
    def _booster(self) -> Any:
        lightgbm = import_lightgbm()
        try:
            check_text(self.text, self.num_classes if self.num_classes > 2 else 1)
            return lightgbm.Booster(model_str=self.text)
        except (ValueError, lightgbm.basic.LightGBMError) as error:
            raise UserError(
                f"A text of boosted trees cannot be used: {error}. Restore the folder trees of the run, or train again."
            ) from error

    @property
    def num_features(self) -> int:
        return self._booster.num_feature()

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predict molecules from features float32 [M, F]: standardised numbers [M], or probabilities of all classes [M, C]."""
        found = self._booster.predict(features, num_threads=torch.get_num_threads())
        return np.stack([1 - found, found], axis=1) if self.num_classes == 2 else found

    def contributions(self, features: np.ndarray, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return what each feature contributes to the predictions: their Shapley values (Lundberg et al., 2020), by LightGBM.

        Args:
            features: float32 [M, F].
            number: the class, with more than two; its logit is explained, and otherwise the number or the logit of class 1.

        Returns:
            The contributions float64 [M, F], and the mean prediction float64 [M], which they are added to.
        """
        found = self._booster.predict(features, pred_contrib=True, num_threads=torch.get_num_threads())
        found = found.reshape(len(features), -1, features.shape[1] + 1)[:, number]
        return found[:, :-1], found[:, -1]


def import_lightgbm() -> Any:
    """Return the package LightGBM, or raise UserError where it is not installed."""
    try:
        import lightgbm
    except ImportError as error:
        raise UserError(
            f"Boosted trees need the package {error.name}. Run `pip install lightgbm`, or train with training.blend=none."
        ) from error
    return lightgbm
