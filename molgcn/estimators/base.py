"""What the estimators share: their parameters, training and prediction."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from lightning.pytorch.utilities.seed import isolate_rng
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from molgcn.errors import UserError
from molgcn.estimators.configuration import config_of
from molgcn.estimators.inputs import as_smiles
from molgcn.estimators.run_files import read_run, write_run
from molgcn.model import Model, load
from molgcn.predict import Predictions
from molgcn.process.quiet import quiet
from molgcn.replicates.run import train_all
from molgcn.screening.ensemble import Ensemble

_loaded: WeakKeyDictionary[MoleculeEstimator, Model] = WeakKeyDictionary()  # the models of fitted estimators, which pickle as files


@contextmanager
def _silent() -> Iterator[None]:
    """Print nothing, and log and warn of nothing, but let errors through."""
    with quiet("molgcn", "lightning", "lightning.pytorch", "lightning.fabric"), redirect_stdout(io.StringIO()):
        yield


class MoleculeEstimator(BaseEstimator):
    """An estimator that takes SMILES; :class:`molgcn.Regressor` says what its parameters are."""

    def __init__(
        self,
        model: str | None = None,
        *,
        recipe: str | None = None,
        num_layers: int | None = None,
        hidden_channels: int | None = None,
        dropout: float | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        loss: str | None = None,
        ensemble: int | None = None,
        validation_fraction: float = 0.1,
        overrides: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.num_layers = num_layers
        self.hidden_channels = hidden_channels
        self.dropout = dropout
        self.lr = lr
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.loss = loss
        self.ensemble = ensemble
        self.validation_fraction = validation_fraction
        self.overrides = overrides
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        """Say that input is a list of strings, that there may be several targets, and that some of their values may be missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def save(self, folder: str | Path) -> None:
        """Write the fitted model as a run's folder, which `python -m molgcn.predict` and the other commands take.

        Raises:
            UserError: If the folder is not empty.
        """
        check_is_fitted(self, "run_")
        folder = Path(folder).expanduser()
        if folder.exists() and any(folder.iterdir()):
            raise UserError(f"{folder} is not empty. Name a new folder.")
        write_run(self.run_, folder)

    def _fit(self, smiles: np.ndarray, targets: pd.DataFrame, sample_weight: Any, options: Mapping[str, Any]) -> Self:
        """Train on SMILES [M, k] with targets, one column each, in a temporary folder, and keep the files that prediction needs."""
        columns = ["smiles"] if smiles.shape[1] == 1 else [f"smiles_{number}" for number in range(smiles.shape[1])]
        table = targets.assign(**dict(zip(columns, smiles.T, strict=True)))
        options = {**options, "dataset.smiles": columns if len(columns) > 1 else columns[0]}
        if sample_weight is not None:
            table["weight"] = _check_sample_weight(sample_weight, np.zeros((len(smiles), 1)), ensure_non_negative=True)
            if not table["weight"].any():
                raise ValueError("All values of sample_weight are zero. Expected at least one weight above 0.")
            options = {**options, "dataset.weights": "weight"}
        with ExitStack() as stack:
            temporary = Path(stack.enter_context(TemporaryDirectory(prefix="molgcn-")))
            data, folder = temporary / "molecules.csv", temporary / "run"
            table.to_csv(data, index=False)
            if not self.verbose:
                stack.enter_context(_silent())
            stack.enter_context(isolate_rng())  # training seeds the generators of the whole process
            try:
                train_all(config_of(self, data, len({*map(tuple, smiles)}), [*targets], options), folder)
            except UserError as error:
                raise UserError(str(error).replace(str(data), "X and y")) from error
            self.run_ = read_run(folder)
        self.n_features_in_ = len(columns)
        _loaded.pop(self, None)
        return self

    def _predicted(self, X: Any) -> tuple[Ensemble, Predictions]:
        """Return the models, and their predictions."""
        check_is_fitted(self, "run_")
        smiles = as_smiles(X)
        if smiles.shape[1] != self.n_features_in_:
            expected = f"{type(self).__name__} is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {smiles.shape[1]} features, but {expected}: columns of SMILES.")
        if self not in _loaded:
            with TemporaryDirectory(prefix="molgcn-") as folder, _silent(), isolate_rng():
                write_run(self.run_, Path(folder))
                _loaded[self] = load(folder, device=self.device)
        model = _loaded[self]
        with nullcontext() if self.verbose else _silent():
            return model.ensemble, model.predict(smiles.tolist() if model.ensemble.components else smiles[:, 0].tolist())
