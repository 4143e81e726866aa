"""The Python interface to trained models: `molgcn.load(...)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from molgcn.config.run import BackendConfig, WhichModels
from molgcn.predict import Predictions, predict_smiles
from molgcn.screening.chunk import check_listed
from molgcn.screening.components import as_rows
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.fingerprint import Fingerprints, fingerprint_records
from molgcn.screening.ready import MOLECULES_AT_ONCE


class Model:
    """One or several trained networks that take SMILES; made by :func:`load`.

    Attributes:
        ensemble: the networks.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble

    @property
    def names(self) -> list[str]:
        return self.ensemble.names

    @property
    def units(self) -> list[str]:
        """The units of the T targets ("" = none)."""
        return self.ensemble.units

    def predict(
        self,
        smiles: Sequence[str] | Sequence[Sequence[str]],
        on_error: Literal["raise", "nan"] = "raise",
        num_workers: int | None = None,
        descriptors: np.ndarray | None = None,
        atom_features: Sequence[np.ndarray] | None = None,
        bond_features: Sequence[np.ndarray] | None = None,
        members: bool = False,
    ) -> Predictions:
        """Predict the targets of M molecules, as `python -m molgcn.predict` does.

        Args:
            smiles: M SMILES. For networks whose rows are several molecules, M lists with one SMILES per molecule, or a table of them. None
                and NaN count as strings that are not molecules.
            on_error: "raise" stops at the first string that is not a molecule. "nan" sets its values to NaN and says why in `errors`.
            num_workers: The number of processes that read molecules. None means one per core from 10,000 molecules on.
            descriptors: [M, K], the descriptors of columns and files that the networks were trained with. None where they take none.
            atom_features: M matrices [atoms, K], the atoms' own features that the networks were trained with. None where they take none.
            bond_features: M matrices [bonds, K], the bonds' own features. None where the networks take none.
            members: Whether `to_frame()` also has the predictions of each of several networks.

        Returns:
            The predictions `values`, float64 [M, P], with `names`, `units` and `columns`. Several networks give their mean, and their
            standard deviation as `deviation`. `to_frame()` makes a pandas DataFrame.

        Raises:
            UserError: For a string that is not a molecule (with on_error="raise").
        """
        return predict_smiles(
            self.ensemble,
            as_rows(smiles),
            on_error=on_error,
            num_workers=num_workers,
            descriptors=descriptors,
            atom_features=atom_features,
            bond_features=bond_features,
            members=members,
        )

    def fingerprint(
        self,
        smiles: Sequence[str] | Sequence[Sequence[str]],
        layer: int = 0,
        on_error: Literal["raise", "nan"] = "raise",
        num_workers: int | None = None,
        descriptors: np.ndarray | None = None,
        atom_features: Sequence[np.ndarray] | None = None,
        bond_features: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """Compute learned fingerprints of M molecules, as `python -m molgcn.fingerprint` does.

        Args:
            smiles: M SMILES. For networks whose rows are several molecules, M lists with one SMILES per molecule.
            layer: 0 is the vector before the head, k the one after the head's k-th hidden layer, -1 the one after its last.
            on_error: "raise" stops at the first string that is not a molecule. "nan" sets its row to NaN.
            num_workers: The number of processes that read molecules. None means one per core from 10,000 molecules on.
            descriptors: [M, K], the descriptors of columns and files that the networks were trained with. None where they take none.
            atom_features: M matrices [atoms, K], the atoms' own features that the networks were trained with. None where they take none.
            bond_features: M matrices [bonds, K], the bonds' own features. None where the networks take none.

        Returns:
            float32 [M, H]; the fingerprints of several networks stand side by side.

        Raises:
            UserError: For a string that is not a molecule (with on_error="raise"), and for a layer that the head does not have.
        """
        fingerprints = Fingerprints(self.ensemble, layer)
        records = self.ensemble.inputs.rows_of(as_rows(smiles), descriptors, atom_features, bond_features)
        values = [np.empty((0, len(fingerprints.columns)), np.float32)]
        for part in fingerprint_records(fingerprints, records, "smiles", MOLECULES_AT_ONCE, num_workers):
            check_listed(part, on_error, "fingerprinted")
            values.append(part.values)
        return np.concatenate(values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ensemble.task.described}; networks: {len(self.ensemble.members)})"


def load(
    ckpt: str | Path | Sequence[str | Path],
    device: str = "auto",
    backend: Literal["auto", "fused", "pyg", "reference"] = "auto",
    models: WhichModels = "auto",
) -> Model:
    """Load a trained model for SMILES in Python.

    Args:
        ckpt: a .ckpt file or the folder of a run, or several of them, which predict together. A folder stands for its best.ckpt, or for
            the best.ckpt of each of its trainings.
        device: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:<n>".
        backend: what computes the layers.
        models: the models of a cross-validation: "refit" (trained on all molecules), "folds", or "auto", which is refit where there is one.

    Raises:
        UserError: when a checkpoint cannot be read, or several checkpoints differ in their targets or inputs.
    """
    paths = [ckpt] if isinstance(ckpt, str | Path) else list(ckpt)
    return Model(Ensemble.load(paths, BackendConfig(name=backend), device, models=models))
