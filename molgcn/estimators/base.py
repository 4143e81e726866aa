"""What the estimators share: their parameters and input, training and prediction."""

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
from molgcn.model import Model, load
from molgcn.predict import Predictions
from molgcn.process.quiet import quiet
from molgcn.replicates.run import train_all
from molgcn.screening.ensemble import Ensemble

_loaded: WeakKeyDictionary[MoleculeEstimator, Model] = WeakKeyDictionary()  # the models of fitted estimators, which pickle as files
_NOT_FOR_PREDICTION = ("metrics.csv", "splits.json", "training_hashes.npy", "provenance.json", ".lock")


@contextmanager
def _silent() -> Iterator[None]:
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
        _write_run(self.run_, folder)

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
            self.run_ = _read_run(folder)
        self.n_features_in_ = len(columns)
        _loaded.pop(self, None)
        return self

    def _predicted(self, X: Any) -> tuple[Ensemble, Predictions]:
        check_is_fitted(self, "run_")
        smiles = as_smiles(X)
        if smiles.shape[1] != self.n_features_in_:
            expected = f"{type(self).__name__} is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {smiles.shape[1]} features, but {expected}: columns of SMILES.")
        if self not in _loaded:
            with TemporaryDirectory(prefix="molgcn-") as folder, _silent(), isolate_rng():
                _write_run(self.run_, Path(folder))
                _loaded[self] = load(folder, device=self.device)
        model = _loaded[self]
        with nullcontext() if self.verbose else _silent():
            return model.ensemble, model.predict(smiles.tolist() if model.ensemble.inputs.components else smiles[:, 0].tolist())


def as_smiles(X: Any) -> np.ndarray:
    """Return the strings of a list, an array, a Series or a table, object [M, k] for k molecules in a row."""
    if isinstance(X, str):
        raise ValueError("X is a string. Expected a list of SMILES, as in [X].")
    if hasattr(X, "toarray"):
        raise TypeError("Sparse data was passed for X, but SMILES are required. Expected a list of strings.")
    values = np.asarray(X, dtype=object) if not hasattr(X, "to_numpy") else X.to_numpy(dtype=object)
    if values.ndim not in (1, 2):
        raise ValueError(f"X has the shape {values.shape}. Expected M SMILES, or a column of them for each molecule of a row.")
    if not values.size:
        raise ValueError(f"Found array with 0 sample(s) (shape={values.shape}) while a minimum of 1 is required.")
    for place, value in np.ndenumerate(values):
        if not isinstance(value, str):
            raise ValueError(f"X[{', '.join(map(str, place))}] is {value!r} and no string. Expected SMILES.")
    return np.atleast_2d(values.T).T


def as_columns(y: Any) -> tuple[np.ndarray, bool]:
    """Return targets as a table [M, T], and whether they were one column without a second dimension."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    values = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    if values.ndim not in (1, 2):
        raise ValueError(f"y has the shape {values.shape}. Expected [M], or [M, T] for T targets.")
    return (values[:, None], True) if values.ndim == 1 else (values, False)


def _read_run(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a run that prediction needs, by their paths within its folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        superseded = path.name == "last.ckpt" and path.with_name("best.ckpt").is_file()
        if path.is_file() and path.name not in _NOT_FOR_PREDICTION and not superseded:
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def _write_run(files: Mapping[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
