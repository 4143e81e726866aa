"""`python -m molgcn.predict`: predictions for a file of molecules, from one or several checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from molgcn.cli import run_app
from molgcn.config import BackendConfig
from molgcn.data.applicability import Contents, warn_of_extrapolation
from molgcn.errors import UserError
from molgcn.screening.config import OnError, ScreeningConfig, checkpoint_paths, parse_screening

if TYPE_CHECKING:
    import pandas as pd

    from molgcn.screening.ensemble import Ensemble
    from molgcn.screening.pipeline import Predicted
    from molgcn.screening.run import Summary

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PredictConfig(ScreeningConfig):
    """conf/predict.yaml."""

    backend: BackendConfig = field(default_factory=BackendConfig)


@dataclass(frozen=True)
class Predictions:
    """What :func:`predict_smiles` returns, one entry a string.

    Attributes:
        values: float64 [M, P], the mean over the models of each column of predictions: T values in the targets' units or probabilities, of
            multiclass T times C, target by target; NaN where there is no prediction.
        deviation: float64 [M, P], the models' sample standard deviation; None for a single model.
        errors: M strings, "" or why there is no prediction.
        names: T target names.
        units: T units ("" = none).
        columns: the P headers that :func:`predict` gives the columns, such as "gap [eV] predicted".
    """

    values: np.ndarray
    deviation: np.ndarray | None
    errors: list[str]
    names: list[str]
    units: list[str]
    columns: list[str]

    def to_frame(self) -> pd.DataFrame:
        """Return the values under their `columns`, of several models each with its deviation beside it, as a pandas DataFrame."""
        import pandas as pd

        frame = pd.DataFrame(self.values, columns=self.columns)
        if self.deviation is not None:
            for place, name in enumerate(self.columns):
                frame.insert(2 * place + 1, f"{name} std", self.deviation[:, place])
        return frame


def main() -> None:
    """Entry point of `python -m molgcn.predict`."""
    run_app("predict", _job, imports=["molgcn.screening.pipeline"])


def _job(config: Any) -> None:
    predict(parse_screening(PredictConfig, config))


def predict(config: PredictConfig) -> Summary:
    """Reads the molecules, predicts and writes the output, a stretch of rows at a time; the prediction of one molecule is printed.

    Raises:
        UserError: for every mistake in the configuration, the checkpoints or the file.
    """
    # Lightning takes seconds to import: not before `--help` or a misspelt key
    from molgcn.screening.ensemble import Ensemble
    from molgcn.screening.pipeline import predict_records
    from molgcn.screening.run import check_paths, header_of, open_result, open_screening
    from molgcn.training.restore import find_checkpoint

    checkpoints = [find_checkpoint(path) for path in checkpoint_paths(config.ckpt)]
    output = config.output_or("predictions.csv")
    check_paths(config, output, checkpoints)
    ensemble = Ensemble.load(checkpoints, config.backend, config.device)
    contents, digits = Contents(), ensemble.digits
    with open_screening(config, output, ensemble.smiles_columns) as screening:
        molecules = screening.molecules
        with open_result(config, output) as table:
            table.write([header_of(molecules.columns, _columns(ensemble), config.on_error)])
            parts = predict_records(ensemble, molecules.records, molecules.kind, config.batch_size, config.num_workers)
            for part in screening.follow(parts):
                table.write(_rows(part, digits, config.on_error))
                contents += part.contents
            summary = screening.summary()
    _say(summary, ensemble, output, config)
    warn_of_extrapolation(molecules.name, contents, ensemble.trained_on)
    return summary


def predict_smiles(
    ensemble: Ensemble,
    smiles: Sequence[str],
    *,
    on_error: Literal["raise", "nan"] = "raise",
    batch_size: int = 1024,
    num_workers: int | None = None,
) -> Predictions:
    """Predictions for SMILES in memory.

    Args:
        ensemble: from :meth:`molgcn.screening.ensemble.Ensemble.load`.
        smiles: M strings.
        on_error: "raise" stops at the first string that is not a molecule, "nan" leaves its values NaN.
        batch_size: molecules a batch.
        num_workers: processes that read molecules; None chooses.

    Raises:
        UserError: for a string that is not a molecule (with on_error="raise").
    """
    from molgcn.screening.formats import Record
    from molgcn.screening.pipeline import predict_records
    from molgcn.screening.run import failure_message

    values, deviation, errors, contents = [], [], [""] * len(smiles), Contents()
    for part in predict_records(ensemble, (Record([], text) for text in smiles), "smiles", batch_size, num_workers):
        for place, reason in sorted(part.errors.items()):
            if on_error == "raise":
                raise UserError(failure_message("the list of SMILES", part.start + place, smiles[part.start + place], reason))
            errors[part.start + place] = reason
        values.append(part.values)
        contents += part.contents
        if part.deviation is not None:
            deviation.append(part.deviation)
    warn_of_extrapolation("the list of SMILES", contents, ensemble.trained_on)
    none = np.empty((0, ensemble.task.num_outputs))
    spread = np.concatenate([none, *deviation]) if len(ensemble.members) > 1 else None
    return Predictions(np.concatenate([none, *values]), spread, errors, ensemble.names, ensemble.units, ensemble.columns)


def _columns(ensemble: Ensemble) -> list[str]:
    endings = [""] if len(ensemble.members) == 1 else ["", " std"]
    return [name + ending for name in ensemble.columns for ending in endings]


def _rows(part: Predicted, digits: Sequence[int], on_error: OnError) -> Iterator[list[str]]:
    """The rows as text: the input's columns, then each predicted value in its digits and, of an ensemble, its deviation."""
    from molgcn.screening.run import written_rows

    columns, formats = part.values, [f".{number}g" for number in digits]
    if part.deviation is not None:
        columns = np.stack([part.values, part.deviation], axis=2).reshape(len(part.values), -1)
        formats = [each for form in formats for each in (form, ".7g")]
    values = columns.tolist()
    for place, before, behind in written_rows(part, on_error):
        yield [*before, *map(format, values[place], formats), *behind]


def _say(summary: Summary, ensemble: Ensemble, output: Path | None, config: PredictConfig) -> None:
    if config.prints:
        return
    models = f", mean and standard deviation of {len(ensemble.members)} models" if len(ensemble.members) > 1 else ""
    where = "" if output is None else f" are in {output}"
    log.info("%s predictions (%s%s)%s; %s", f"{summary.predicted:,}", ensemble.task.described, models, where, summary.speed)
    summary.warn_of_failures("prediction", config.on_error, output is not None)


if __name__ == "__main__":
    main()
