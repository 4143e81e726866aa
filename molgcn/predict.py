"""The command `python -m molgcn.predict`: it predicts a file of molecules with one or several checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import numpy as np

from molgcn.cli import run_command
from molgcn.config.run import BackendConfig
from molgcn.data.applicability import Contents, warn_of_extrapolation
from molgcn.errors import counted, require
from molgcn.screening.config import ScreeningConfig

if TYPE_CHECKING:
    import pandas as pd

    from molgcn.files.column import Column
    from molgcn.screening.ensemble import Ensemble
    from molgcn.screening.run import Summary

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PredictConfig(ScreeningConfig):
    """The keys of conf/predict.yaml."""

    backend: BackendConfig = field(default_factory=BackendConfig)
    dropout_samples: int = 0
    seed: int = 0
    domain: bool = False
    members: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.dropout_samples == 0 or self.dropout_samples > 1, "dropout_samples", self.dropout_samples, "at least 2, or 0 for none")
        require(0 <= self.seed < 2**32, "seed", self.seed, "a whole number from 0 to 4294967295")


@dataclass(frozen=True)
class Predictions:
    """The result of :func:`predict_smiles`, with one row per molecule.

    Attributes:
        values: float64 [M, P], the columns of predictions, target by target: values in the targets' units, or probabilities; object [M, P]
            with arrays for targets of atoms and bonds, a number for each in RDKit's order (and so are `deviation` and `table`). They are
            means over models and passes. Predicted standard deviations are combined by the law of total variance. NaN means no prediction.
        deviation: float64 [M, P], the sample standard deviation over models and passes. None for a single pass.
        errors: M strings, each "" or the reason why there is no prediction.
        names: the names of the T targets.
        units: the units of the T targets ("" = none).
        columns: the C headers of `table`, such as "gap [eV] predicted"; :func:`predict` writes the same.
        table: float64 [M, C], the values and deviations that `columns` name.
        beside: further columns [M] by their headers: calibrated uncertainties (docs/calibration.md), the predictions of each model, and
            the distance of the molecules from the training molecules (docs/domain.md).
        smiles: the M SMILES as they were given, by the name of their column: "smiles", or that of each molecule of a row.
    """

    values: np.ndarray
    deviation: np.ndarray | None
    errors: list[str]
    names: list[str]
    units: list[str]
    columns: list[str]
    table: np.ndarray
    beside: dict[str, np.ndarray] = field(default_factory=dict)
    smiles: dict[str, list[str | None]] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """Return the SMILES, the table and the further columns as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame({**self.smiles, **dict(zip(self.columns, self.table.T, strict=True)), **self.beside})


def main() -> None:
    run_command("predict", predict, PredictConfig, imports=["molgcn.screening.pipeline"])


def predict(config: PredictConfig) -> Summary:
    """Read the molecules, predict them and write the output, some rows at a time. The prediction of a single `molecule=` is printed.

    Raises:
        UserError: for every mistake in the configuration, the checkpoints or the file.
    """
    # Lightning takes seconds to import, and `--help` or a misspelt key does not need it
    from molgcn.screening.pipeline import no_columns, predict_records, say_calibration
    from molgcn.screening.run import load_checked, open_result, open_screening
    from molgcn.training.trained_on import index_files

    ensemble, output = load_checked(config, config.backend, "predictions.csv", dropout_samples=config.dropout_samples, seed=config.seed)
    contents = Contents()
    with open_screening(config, output, ensemble) as screening, TemporaryDirectory() as temporary:
        molecules = screening.molecules
        domain = index_files(ensemble.checkpoints, Path(temporary)) if config.domain else []
        headers = [column.name for columns in no_columns(ensemble, config.domain, config.members) for column in columns]
        with open_result(config, output, molecules.columns, headers) as write:
            sizes = config.batch_size, config.num_workers
            parts = predict_records(ensemble, molecules.records, molecules.kind, *sizes, domain, config.members)
            for part in screening.follow(parts):
                write(part, list(zip(*(column.cells for column in (*part.predicted, *part.beside)), strict=True)))
                contents += part.contents
            summary = screening.summary()
    _say(summary, ensemble, output, config)
    say_calibration(ensemble)
    warn_of_extrapolation(molecules.name, contents, ensemble.trained_on)
    return summary


def predict_smiles(
    ensemble: Ensemble,
    smiles: Sequence[str] | Sequence[Sequence[str]],
    *,
    on_error: Literal["raise", "nan"] = "raise",
    batch_size: int = 1024,
    num_workers: int | None = None,
    domain: Sequence[Path] = (),
    descriptors: np.ndarray | None = None,
    atom_features: Sequence[np.ndarray] | None = None,
    bond_features: Sequence[np.ndarray] | None = None,
    members: bool = False,
) -> Predictions:
    """Predict SMILES in memory by the models that :meth:`molgcn.screening.ensemble.Ensemble.load` gives.

    For most arguments see :meth:`molgcn.model.Model.predict`. A batch has `batch_size` molecules. With `domain`, index files of training
    molecules (the `domain_index.npz` of runs), `beside` also holds the distance from these.

    Raises:
        UserError: for a string that is not a molecule or lacks a descriptor (with on_error="raise"), for descriptors of another shape, and
            for members=True with a single model.
    """
    from molgcn.screening.chunk import check_listed
    from molgcn.screening.pipeline import no_columns, predict_records

    records, components = ensemble.inputs.rows_of(smiles, descriptors, atom_features, bond_features), ensemble.inputs.components
    none = np.empty((0, ensemble.task.num_predictions))
    values, deviation, errors, contents = [none], [none], [""] * len(smiles), Contents()
    predicted, beside = ([columns] for columns in no_columns(ensemble, bool(domain), members))
    for part in predict_records(ensemble, records, "smiles", batch_size, num_workers, domain, members):
        check_listed(part, on_error)
        for place, reason in part.errors.items():
            errors[part.start + place] = reason
        values.append(part.values)
        predicted.append(part.predicted)
        beside.append(part.beside)
        contents += part.contents
        if part.deviation is not None:
            deviation.append(part.deviation)
    warn_of_extrapolation("the list of SMILES", contents, ensemble.trained_on)
    spread = np.concatenate(deviation) if ensemble.num_passes > 1 else None
    shown, further = _concatenated(predicted), _concatenated(beside)
    table = np.stack([*shown.values()], axis=1)
    columns = zip(*smiles, strict=True) if components and len(smiles) else [smiles] * (len(components) or 1)
    given = {name: list(column) for name, column in zip(components or ["smiles"], columns, strict=True)}
    return Predictions(np.concatenate(values), spread, errors, ensemble.names, ensemble.units, [*shown], table, further, given)


def _concatenated(parts: Sequence[Sequence[Column]]) -> dict[str, np.ndarray]:
    return {columns[0].name: np.concatenate([column.entries for column in columns]) for columns in zip(*parts, strict=True)}


def _say(summary: Summary, ensemble: Ensemble, output: Path | None, config: PredictConfig) -> None:
    if config.prints:
        return
    passes = f"{ensemble.num_passes} {'passes with dropout' if ensemble.dropout_samples else 'models'}"
    models = f", mean and standard deviation of {passes}" if ensemble.num_passes > 1 else ""
    where = "" if output is None else f" in {output}"
    log.info("%s (%s%s)%s; %s", counted(summary.predicted, "prediction"), ensemble.task.described, models, where, summary.speed)
    summary.warn_of_failures("prediction", config.on_error, output)


if __name__ == "__main__":
    main()
