"""`python -m molgcn.predict`: predictions for a file of molecules, from one or several checkpoints."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from omegaconf import OmegaConf

from molgcn.cli import run_app
from molgcn.config import BackendConfig, parse
from molgcn.data.applicability import Contents, warn_of_extrapolation
from molgcn.data.column_names import ColumnName
from molgcn.data.digits import FLOAT32_DIGITS
from molgcn.data.text import RECORD_MB
from molgcn.errors import UserError, require, row_of, shown

if TYPE_CHECKING:
    from molgcn.screening.ensemble import Ensemble
    from molgcn.screening.output import Table
    from molgcn.screening.pipeline import Predicted

log = logging.getLogger(__name__)

OnError = Literal["raise", "skip", "nan"]
STREAM = "-"


@dataclass(frozen=True)
class PredictConfig:
    """conf/predict.yaml."""

    ckpt: str | list[str] | None = None
    input: str | None = None
    output: str = "predictions.csv"
    format: Literal["auto", "csv", "tsv", "smi", "sdf"] = "auto"
    smiles: ColumnName | None = None
    descriptors_path: str | None = None
    max_record_mb: float = RECORD_MB
    on_error: OnError = "raise"
    batch_size: int = 1024
    num_workers: int | None = None
    backend: BackendConfig = field(default_factory=BackendConfig)
    device: str = "auto"
    dropout_samples: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks the ranges."""
        if self.batch_size < 1:
            raise UserError(f"batch_size={self.batch_size} is not valid: expected at least 1.")
        require(self.dropout_samples == 0 or self.dropout_samples > 1, "dropout_samples", self.dropout_samples, "at least 2, or 0 for none")
        require(0 <= self.seed < 2**32, "seed", self.seed, "a whole number from 0 to 4294967295")
        if not 0 < self.max_record_mb <= 1000:
            raise UserError(f"max_record_mb={self.max_record_mb:g} is not valid: expected more than 0 and at most 1000.")


@dataclass(frozen=True)
class Summary:
    """What :func:`predict` did: rows read, rows with a prediction, and seconds from the first to the last."""

    rows: int
    predicted: int
    seconds: float


@dataclass(frozen=True)
class Predictions:
    """What :func:`predict_smiles` returns, one entry a string.

    Attributes:
        values: float64 [M, P], the mean over models and passes of each column of predictions, target by target: values in the targets'
            units or probabilities; standard deviations are combined by the law of total variance; NaN where there is no prediction.
        deviation: float64 [M, P], the sample standard deviation over models and passes; None for a single one.
        errors: M strings, "" or why there is no prediction.
        names: T target names.
        units: T units ("" = none).
    """

    values: np.ndarray
    deviation: np.ndarray | None
    errors: list[str]
    names: list[str]
    units: list[str]


def main() -> None:
    """Entry point of `python -m molgcn.predict`."""
    run_app("predict", _job, imports=["molgcn.screening.pipeline"])


def _job(config: Any) -> None:
    values: Any = OmegaConf.to_container(config, resolve=True)
    if values["on_error"] != values["on_error"]:  # Hydra takes a bare nan for the number
        values["on_error"] = "nan"
    predict(parse(PredictConfig, values))


def predict(config: PredictConfig) -> Summary:
    """Reads `config.input`, predicts and writes `config.output`, a stretch of rows at a time.

    Raises:
        UserError: for every mistake in the configuration, the checkpoints or the file.
    """
    # Lightning takes seconds to import: not before `--help` or a misspelt key
    from molgcn.data.formats import open_molecules
    from molgcn.screening.descriptors import records_with_descriptors
    from molgcn.screening.ensemble import Ensemble
    from molgcn.screening.output import check_output, open_table
    from molgcn.screening.pipeline import predict_records
    from molgcn.screening.progress import progress
    from molgcn.training.restore import find_checkpoints

    checkpoints = [file for path in checkpoint_paths(config.ckpt) for file in find_checkpoints(path)]
    if config.input is None:
        raise UserError(
            "No molecules are named. Give input=<file.csv> smiles=<column>, a .smi or .sdf file, or input=- for standard input."
        )
    source = None if config.input == STREAM else Path(config.input).expanduser()
    output = None if config.output == STREAM else Path(config.output).expanduser()
    if output is not None:
        check_output(output, [*checkpoints, *([source] if source else [])], listing=config.on_error == "skip")
    with ExitStack() as stack:
        ensemble = Ensemble.load(checkpoints, config.backend, config.device, config.dropout_samples, config.seed)
        columns = [*ensemble.smiles_columns, "smiles"] if config.smiles is None else [config.smiles]
        molecules = stack.enter_context(open_molecules(source, config.format, columns, config.max_record_mb))
        given = None if config.descriptors_path is None else Path(config.descriptors_path).expanduser()
        records = records_with_descriptors(molecules, ensemble.descriptors, given)
        bar = stack.enter_context(progress(molecules.text))
        failures = stack.enter_context(_failure_list(output if config.on_error == "skip" else None))
        table = stack.enter_context(open_table(output))
        places = _places(ensemble)
        table.write([_header(molecules.columns, ensemble, places, config.on_error)])
        predicted, first, contents, digits = 0, "", Contents(), ensemble.digits
        for part in predict_records(ensemble, records, molecules.kind, config.batch_size, config.num_workers):
            for place, reason in sorted(part.errors.items()):
                row, text = part.start + place, _shown(part, place)
                if config.on_error == "raise":
                    raise UserError(_message(row_of(molecules.name, row, molecules.kind), text, reason))
                first = first or f"the first, row {row} ('{shown(text)}'): {reason}"
                if config.on_error == "skip":
                    _report_failure(failures, row, text, reason)
            table.write(_rows(part, places, digits, config.on_error))
            predicted += len(part.records) - len(part.errors)
            contents += part.contents
            bar.update(len(part.records))
        summary = Summary(bar.count, predicted, bar.seconds)
        if not summary.rows:
            raise UserError(f"{molecules.name} has no rows. Expected at least one molecule.")
        if not predicted:
            raise UserError(f"None of the {summary.rows:,} rows of {molecules.name} can be predicted; {first}.")
    _say(summary, ensemble, output, config.on_error)
    warn_of_extrapolation(molecules.name, contents, ensemble.trained_on)
    return summary


def checkpoint_paths(ckpt: str | Sequence[str] | None) -> list[str]:
    """The paths that `ckpt` names: one, or several in brackets or separated by commas.

    Raises:
        UserError: when it names none.
    """
    if isinstance(ckpt, str):
        ckpt = [ckpt] if Path(ckpt).expanduser().exists() else ckpt.removeprefix("[").removesuffix("]").split(",")
    paths = [path.strip() for path in ckpt or ()]
    if not any(paths):
        raise UserError("No checkpoint is named. Give ckpt=<run folder>, a .ckpt file, or several as in ckpt=[runs/a,runs/b].")
    return paths


def predict_smiles(
    ensemble: Ensemble,
    smiles: Sequence[str],
    *,
    on_error: Literal["raise", "nan"] = "raise",
    batch_size: int = 1024,
    num_workers: int | None = None,
    descriptors: np.ndarray | None = None,
) -> Predictions:
    """Predictions for SMILES in memory.

    Args:
        ensemble: from :meth:`molgcn.screening.ensemble.Ensemble.load`.
        smiles: M strings.
        on_error: "raise" stops at the first string that is not a molecule, "nan" leaves its values NaN.
        batch_size: molecules a batch.
        num_workers: processes that read molecules; None chooses.
        descriptors: [M, K], those of columns and files that the models were trained with; None where they take none.

    Raises:
        UserError: for a string that is not a molecule, or lacks a descriptor (with on_error="raise"), and for descriptors of another shape.
    """
    from molgcn.data.formats import Record
    from molgcn.screening.descriptors import described
    from molgcn.screening.pipeline import predict_records

    names = ensemble.descriptors.given
    given = np.empty((len(smiles), 0)) if descriptors is None else np.asarray(descriptors, np.float64)
    if given.shape != (len(smiles), len(names)):
        raise UserError(
            f"descriptors has shape {list(given.shape)}; the model takes [{len(smiles)}, {len(names)}]: {ensemble.descriptors}."
        )
    records = (described(Record([], text), row, names) for text, row in zip(smiles, given, strict=True))
    values, deviation, errors, contents = [], [], [""] * len(smiles), Contents()
    for part in predict_records(ensemble, records, "smiles", batch_size, num_workers):
        for place, reason in sorted(part.errors.items()):
            if on_error == "raise":
                raise UserError(_message(row_of("the list of SMILES", part.start + place), smiles[part.start + place], reason))
            errors[part.start + place] = reason
        values.append(part.values)
        contents += part.contents
        if part.deviation is not None:
            deviation.append(part.deviation)
    warn_of_extrapolation("the list of SMILES", contents, ensemble.trained_on)
    none = np.empty((0, ensemble.task.num_predictions))
    spread = np.concatenate([none, *deviation]) if ensemble.num_passes > 1 else None
    return Predictions(np.concatenate([none, *values]), spread, errors, ensemble.names, ensemble.units)


def _places(ensemble: Ensemble) -> list[int]:
    """Return which columns the table has, of P predictions and behind them their deviations: of several passes those of values too."""
    holds_values = ensemble.task.holds_values
    count, several = len(holds_values), ensemble.num_passes > 1
    return [one for place, value in enumerate(holds_values) for one in ([place, count + place] if several and value else [place])]


def _header(columns: Sequence[str], ensemble: Ensemble, places: Sequence[int], on_error: OnError) -> list[str]:
    from molgcn.data.formats import unused

    header, names = list(columns), [name for names in ensemble.task.columns for name in names]
    names += [f"{name} std" for name in names]
    for place in places:
        header.append(unused(names[place], header))
    return [*header, unused("error", header)] if on_error == "nan" else header


def _rows(part: Predicted, places: Sequence[int], digits: Sequence[int], on_error: OnError) -> Iterator[list[str]]:
    """The rows as text: the input's columns, then each predicted value in its digits and, of an ensemble, its deviation."""
    both = part.values if part.deviation is None else np.concatenate([part.values, part.deviation], axis=1)
    digits = [*digits, *[FLOAT32_DIGITS] * len(digits)]
    columns, formats = both[:, places], [f".{digits[place]}g" for place in places]
    for place, (record, values) in enumerate(zip(part.records, columns.tolist(), strict=True)):
        error = part.errors.get(place, "")
        if error and on_error == "skip":
            continue
        cells = record.cells if part.smiles is None else [part.smiles[place], *record.cells[1:]]
        yield [*cells, *map(format, values, formats), *([error] if on_error == "nan" else [])]


def _shown(part: Predicted, place: int) -> str:
    """What a message shows of a row: its SMILES, or the name of a structure."""
    record = part.records[place]
    return record.molecule if part.smiles is None else record.cells[1]


def _message(row: str, text: str, reason: str) -> str:
    return (
        f"{row}: '{shown(text)}' cannot be predicted: {reason}. Correct the row, leave "
        "such rows out with on_error=skip, or keep them without values with on_error=nan."
    )


@contextmanager
def _failure_list(output: Path | None) -> Iterator[Table | None]:
    """The list of rows left out, beside the output."""
    from molgcn.screening.output import failure_list, open_table

    if output is None or (output.exists() and not output.is_file()):
        yield None
        return
    with open_table(failure_list(output)) as table:
        table.write([["row", "molecule", "reason"]])
        yield table


def _report_failure(failures: Table | None, row: int, text: str, reason: str) -> None:
    if failures is None:
        print(f"Row {row} is left out: '{shown(text)}': {reason}", file=sys.stderr)
    else:
        failures.write([[str(row), text, reason]])


def _say(summary: Summary, ensemble: Ensemble, output: Path | None, on_error: OnError) -> None:
    passes = f"{ensemble.num_passes} {'passes with dropout' if ensemble.dropout_samples else 'models'}"
    models = f", mean and standard deviation of {passes}" if ensemble.num_passes > 1 else ""
    where = "" if output is None else f" are in {output}"
    speed = f"{summary.seconds:.1f} s, {summary.rows / summary.seconds:,.0f} molecules/s"
    log.info("%s predictions (%s%s)%s; %s", f"{summary.predicted:,}", ensemble.task.described, models, where, speed)
    failed = summary.rows - summary.predicted
    if failed:
        kept = "are left out" if on_error == "skip" else "have no prediction; the column error says why"
        log.warning("%s rows %s%s", f"{failed:,}", kept, "; the list is beside the output" if on_error == "skip" and output else "")


if __name__ == "__main__":
    main()
