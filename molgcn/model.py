"""A trained model in Python: `molgcn.load(...)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from molgcn.config import BackendConfig
from molgcn.predict import Predictions, predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.fingerprint import Fingerprints, fingerprint_smiles


class Model:
    """One or several trained networks, which take SMILES; made by :func:`load`.

    Attributes:
        ensemble: the networks.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble

    @property
    def names(self) -> list[str]:
        """The T targets."""
        return self.ensemble.names

    @property
    def units(self) -> list[str]:
        """Their units ("" = none)."""
        return self.ensemble.units

    def predict(
        self,
        smiles: Sequence[str] | Sequence[Sequence[str]],
        on_error: Literal["raise", "nan"] = "raise",
        num_workers: int | None = None,
        descriptors: np.ndarray | None = None,
    ) -> Predictions:
        """Predict the targets of M molecules, as `python -m molgcn.predict` does.

        Args:
            smiles: M strings, or of each row one for each of its molecules.
            on_error: "raise" stops at the first string that is not a molecule, "nan" leaves its values NaN and says why in `errors`.
            num_workers: processes that read molecules; None is one a core for 10,000 and more.
            descriptors: [M, K], those of columns and files that the networks were trained with; None where they take none.

        Returns:
            `values` float64 [M, P] with `names`, `units` and `columns`, of several networks their mean, and their standard deviation as
            `deviation`; `to_frame()` makes a pandas DataFrame.

        Raises:
            UserError: for a string that is not a molecule (with on_error="raise").
        """
        return predict_smiles(self.ensemble, _listed(smiles), on_error=on_error, num_workers=num_workers, descriptors=descriptors)

    def fingerprint(
        self,
        smiles: Sequence[str] | Sequence[Sequence[str]],
        layer: int = 0,
        on_error: Literal["raise", "nan"] = "raise",
        num_workers: int | None = None,
        descriptors: np.ndarray | None = None,
    ) -> np.ndarray:
        """Compute learned fingerprints of M molecules, as `python -m molgcn.fingerprint` does.

        Args:
            smiles: M strings, or of each row one for each of its molecules.
            layer: 0 is the vector before the head, k the one after the head's k-th hidden layer, -1 after its last.
            on_error: as of :meth:`predict`.
            num_workers: as of :meth:`predict`.
            descriptors: as of :meth:`predict`.

        Returns:
            float32 [M, H], of several networks side by side; rows of NaN for what is not a molecule.

        Raises:
            UserError: as of :meth:`predict`, and for a layer that the head does not have.
        """
        return fingerprint_smiles(
            Fingerprints(self.ensemble, layer), _listed(smiles), on_error=on_error, num_workers=num_workers, descriptors=descriptors
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ensemble.task.described}; networks: {len(self.ensemble.members)})"


def load(
    ckpt: str | Path | Sequence[str | Path], device: str = "auto", backend: Literal["auto", "fused", "pyg", "reference"] = "auto"
) -> Model:
    """Load a trained model for SMILES in Python.

    Args:
        ckpt: a .ckpt file or a run's folder (its best.ckpt is taken, of a run of several trainings those of all), or several, which
            predict together.
        device: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:<n>".
        backend: what computes the layers.

    Raises:
        UserError: where a checkpoint cannot be read, or several do not predict the same from the same.
    """
    paths = [ckpt] if isinstance(ckpt, str | Path) else list(ckpt)
    return Model(Ensemble.load(paths, BackendConfig(name=backend), device))


def _listed(smiles: Sequence[str] | Sequence[Sequence[str]]) -> list[Any]:
    """Return the strings as a list, also where one string was given, which is a sequence of its letters."""
    return [smiles] if isinstance(smiles, str) else list(smiles)
